/* A long random sequence, the same on all ranks, over three communicators and two streams, with random pauses
 * of the hosts: whatever the timing, every result is right. */
#include "harness.h"

#include <string.h>

#define MAX_COUNT ((size_t)150000)
enum { COMMS = 3, SLOTS = 8 };

struct soak {
    unsigned seed;
    int steps;
};

struct state {
    const struct rank_context *context;
    ncclComm_t comms[COMMS];
    int rank[COMMS], nranks[COMMS];
    int *members[COMMS]; /* world ranks */
    cudaStream_t streams[2];
    int *send, *recv;
};

/* xorshift; one generator runs alike on all ranks, another of each rank decides about pauses. */
static unsigned next(unsigned *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static int value(int rank, int step, size_t i)
{
    return (int)((unsigned)rank * 2654435761u + (unsigned)step * 40503u + (unsigned)i * 97u);
}

static void fill(const struct state *s, int step, size_t count)
{
    for (size_t i = 0; i < count; i++)
        s->send[i] = value(s->context->rank, step, i);
}

static void check_sum(const struct state *s, int which, int step, const int *got, size_t count, size_t first)
{
    for (size_t i = 0; i < count; i++) {
        unsigned sum = 0;
        for (int r = 0; r < s->nranks[which]; r++)
            sum += (unsigned)value(s->members[which][r], step, first + i);
        CHECK(got[i] == (int)sum);
    }
}

static void check_copy(const int *got, int rank, int step, size_t count, size_t first)
{
    for (size_t i = 0; i < count; i++)
        CHECK(got[i] == value(rank, step, first + i));
}

static void ring(const struct state *s, int which, size_t count, cudaStream_t stream)
{
    int n = s->nranks[which], me = s->rank[which];
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclRecv(s->recv, count, ncclInt32, (me + n - 1) % n, s->comms[which], stream));
    CHECK_NCCL(ncclSend(s->send, count, ncclInt32, (me + 1) % n, s->comms[which], stream));
    CHECK_NCCL(ncclGroupEnd());
}

static void one_step(const struct state *s, int step, unsigned choice)
{
    int which = (int)(choice % COMMS), n = s->nranks[which], me = s->rank[which];
    cudaStream_t stream = s->streams[choice >> 8 & 1];
    ncclComm_t comm = s->comms[which];
    size_t count = choice >> 9 & 1 ? 1 + (choice >> 10) % 64 : 1 + (choice >> 10) % (MAX_COUNT / SLOTS);
    int root = (int)((choice >> 20) % (unsigned)n), *members = s->members[which];
    fill(s, step, count * (size_t)n);
    switch (choice / COMMS % 6) {
    case 0:
        CHECK_NCCL(ncclAllReduce(s->send, s->recv, count, ncclInt32, ncclSum, comm, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        check_sum(s, which, step, s->recv, count, 0);
        break;
    case 1:
        CHECK_NCCL(ncclReduceScatter(s->send, s->recv, count, ncclInt32, ncclSum, comm, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        check_sum(s, which, step, s->recv, count, (size_t)me * count);
        break;
    case 2:
        CHECK_NCCL(ncclAllGather(s->send, s->recv, count, ncclInt32, comm, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        for (int r = 0; r < n; r++)
            check_copy(s->recv + (size_t)r * count, members[r], step, count, 0);
        break;
    case 3:
        CHECK_NCCL(ncclBroadcast(s->send, s->recv, count, ncclInt32, root, comm, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        check_copy(s->recv, members[root], step, count, 0);
        break;
    case 4:
        CHECK_NCCL(ncclAlltoAll(s->send, s->recv, count, ncclInt32, comm, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        for (int r = 0; r < n; r++)
            check_copy(s->recv + (size_t)r * count, members[r], step, count, (size_t)me * count);
        break;
    default:
        ring(s, which, count, stream);
        CHECK_CUDA(cudaStreamSynchronize(stream));
        check_copy(s->recv, members[(me + n - 1) % n], step, count, 0);
    }
}

static void soak(const struct rank_context *context)
{
    const struct soak *plan = context->argument;
    struct state s = {.context = context, .comms = {rank_comm(context)}};
    CHECK_NCCL(ncclCommSplit(s.comms[0], context->rank % 2, context->rank, &s.comms[1], NULL));
    CHECK_NCCL(ncclCommSplit(s.comms[0], context->rank / 2, -context->rank, &s.comms[2], NULL));
    for (int i = 0; i < COMMS; i++) {
        CHECK_NCCL(ncclCommUserRank(s.comms[i], &s.rank[i]));
        CHECK_NCCL(ncclCommCount(s.comms[i], &s.nranks[i]));
        s.members[i] = calloc((size_t)s.nranks[i], sizeof(int));
        int *gathered = device_alloc((size_t)s.nranks[i] * sizeof(int));
        gathered[s.rank[i]] = context->rank;
        CHECK_NCCL(ncclAllGather(&gathered[s.rank[i]], gathered, 1, ncclInt32, s.comms[i], NULL));
        CHECK_CUDA(cudaMemcpy(s.members[i], gathered, (size_t)s.nranks[i] * sizeof(int), cudaMemcpyDefault));
        CHECK_CUDA(cudaFree(gathered));
    }
    s.streams[0] = new_stream();
    s.streams[1] = new_stream();
    s.send = device_alloc(MAX_COUNT * sizeof(int));
    s.recv = device_alloc(MAX_COUNT * sizeof(int));
    unsigned common = plan->seed, own = plan->seed + (unsigned)context->rank + 1;
    for (int step = 0; step < plan->steps; step++) {
        one_step(&s, step, next(&common));
        if (next(&own) % 8 == 0)
            sleep_s((double)(next(&own) % 1000) / 1e6);
    }
    for (int i = 0; i < COMMS; i++) {
        CHECK_NCCL(ncclCommDestroy(s.comms[i]));
        free(s.members[i]);
    }
}

int main(int argc, char **argv)
{
    struct soak plan = {argc > 1 ? (unsigned)atoi(argv[1]) : 12345, argc > 2 ? atoi(argv[2]) : 400};
    ranks_run(2, soak, &plan);
    ranks_run(7, soak, &plan);
    ranks_run(SLOTS, soak, &plan);
    return 0;
}
