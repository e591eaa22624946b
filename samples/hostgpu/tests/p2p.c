/* Sends and receives: groups of many, several per pair, every size, and those that must block. */
#include "harness.h"

#include <string.h>

#define MAX_PART ((size_t)200000)

static char mark(int from, int to, size_t i)
{
    return (char)((unsigned)from * 31 + (unsigned)to * 7 + (unsigned)(i % 251) + (unsigned)(i >> 12));
}

/* Uneven on purpose, zero for some pairs, several chunks for others. */
static size_t part_bytes(int from, int to, int round)
{
    static const size_t sizes[] = {0, 1, 4095, 65536, 65537, 0, 190001, 13};
    return sizes[(from * 3 + to * 5 + round) % 8];
}

static void all_to_all(const struct rank_context *context)
{
    int n = context->nranks, me = context->rank;
    ncclComm_t comm = rank_comm(context);
    cudaStream_t stream = new_stream();
    char *send = device_alloc((size_t)n * MAX_PART), *recv = device_alloc((size_t)n * MAX_PART);
    for (int round = 0; round < 4; round++) {
        for (int r = 0; r < n; r++)
            for (size_t i = 0; i < MAX_PART; i++)
                send[(size_t)r * MAX_PART + i] = mark(me, r, i);
        memset(recv, 0x55, (size_t)n * MAX_PART);
        CHECK_NCCL(ncclGroupStart());
        /* Receives first on odd ranks: the order within a group must not matter. */
        for (int pass = 0; pass < 2; pass++)
            for (int r = 0; r < n; r++) {
                if ((pass + me) % 2)
                    CHECK_NCCL(ncclRecv(recv + (size_t)r * MAX_PART, part_bytes(r, me, round), ncclInt8, r,
                                        comm, stream));
                else
                    CHECK_NCCL(ncclSend(send + (size_t)r * MAX_PART, part_bytes(me, r, round), ncclInt8, r,
                                        comm, stream));
            }
        CHECK_NCCL(ncclGroupEnd());
        CHECK_CUDA(cudaStreamSynchronize(stream));
        for (int r = 0; r < n; r++) {
            const char *part = recv + (size_t)r * MAX_PART;
            size_t bytes = part_bytes(r, me, round);
            for (size_t i = 0; i < bytes; i++)
                CHECK(part[i] == mark(r, me, i));
            CHECK(part[bytes] == 0x55);
        }
    }
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* Several messages between one pair in one group go in order. */
static void ordered(const struct rank_context *context)
{
    enum { MESSAGES = 100 };
    int peer = !context->rank;
    ncclComm_t comm = rank_comm(context);
    cudaStream_t stream = new_stream();
    int *send = device_alloc(MESSAGES * sizeof(int)), *recv = device_alloc(MESSAGES * sizeof(int));
    for (int i = 0; i < MESSAGES; i++)
        send[i] = context->rank * 1000 + i;
    CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < MESSAGES; i++) {
        CHECK_NCCL(ncclSend(send + i, 1, ncclInt32, peer, comm, stream));
        CHECK_NCCL(ncclRecv(recv + i, 1, ncclInt32, peer, comm, stream));
    }
    CHECK_NCCL(ncclGroupEnd());
    CHECK_CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < MESSAGES; i++)
        CHECK(recv[i] == peer * 1000 + i);
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* Ungrouped, in an order that works; then messages and collectives mixed in one group. */
static void pipeline(const struct rank_context *context)
{
    int n = context->nranks, me = context->rank;
    ncclComm_t comm = rank_comm(context);
    cudaStream_t stream = new_stream();
    int *value = device_alloc(2 * sizeof *value);
    for (int step = 0; step < 50; step++) {
        value[0] = step;
        if (me > 0)
            CHECK_NCCL(ncclRecv(value, 1, ncclInt32, me - 1, comm, stream));
        if (me < n - 1)
            CHECK_NCCL(ncclSend(value, 1, ncclInt32, me + 1, comm, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        CHECK(value[0] == step);
    }
    value[0] = me;
    value[1] = -1;
    int *sum = device_alloc(sizeof *sum);
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclSend(value, 1, ncclInt32, (me + 1) % n, comm, stream));
    CHECK_NCCL(ncclAllReduce(value, sum, 1, ncclInt32, ncclSum, comm, stream));
    CHECK_NCCL(ncclRecv(value + 1, 1, ncclInt32, (me + n - 1) % n, comm, stream));
    CHECK_NCCL(ncclGroupEnd());
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(value[1] == (me + n - 1) % n && *sum == n * (n - 1) / 2);
    CHECK_NCCL(ncclCommDestroy(comm));
}

enum blocking_case { SEND_BEFORE_RECV, RECV_BEFORE_SEND, UNEQUAL_BYTES, NO_PARTNER };

static void must_block(const struct rank_context *context)
{
    enum blocking_case which = *(const enum blocking_case *)context->argument;
    int n = context->nranks, next = (context->rank + 1) % n, previous = (context->rank + n - 1) % n;
    size_t count = 1 << 20;
    ncclComm_t comm = rank_comm(context);
    cudaStream_t stream = new_stream();
    char *send = device_alloc(count), *recv = device_alloc(count);
    switch (which) {
    case SEND_BEFORE_RECV:
        CHECK_NCCL(ncclSend(send, count, ncclInt8, next, comm, stream));
        CHECK_NCCL(ncclRecv(recv, count, ncclInt8, previous, comm, stream));
        break;
    case RECV_BEFORE_SEND:
        CHECK_NCCL(ncclRecv(recv, count, ncclInt8, previous, comm, stream));
        CHECK_NCCL(ncclSend(send, count, ncclInt8, next, comm, stream));
        break;
    case UNEQUAL_BYTES:
        if (context->rank == 0)
            CHECK_NCCL(ncclSend(send, 1, ncclInt32, 1, comm, stream));
        else
            CHECK_NCCL(ncclRecv(recv, 3, ncclInt32, 0, comm, stream));
        break;
    case NO_PARTNER:
        CHECK_NCCL(ncclGroupStart());
        CHECK_NCCL(ncclSend(send, count, ncclInt8, next, comm, stream));
        CHECK_NCCL(ncclRecv(recv, count, ncclInt8, previous, comm, stream));
        if (context->rank == 1)
            CHECK_NCCL(ncclRecv(recv, count, ncclInt8, 0, comm, stream));
        CHECK_NCCL(ncclGroupEnd());
        CHECK(stream_finishes(stream, context->rank == 1 ? 0.3 : 5) == (context->rank != 1));
        CHECK_NCCL(ncclCommAbort(comm));
        CHECK(stream_finishes(stream, 5));
        return;
    }
    CHECK(!stream_finishes(stream, 0.3));
    CHECK_NCCL(ncclCommAbort(comm));
    CHECK(stream_finishes(stream, 5));
}

int main(void)
{
    ranks_run(1, all_to_all, NULL);
    ranks_run(2, all_to_all, NULL);
    ranks_run(5, all_to_all, NULL);
    ranks_run(16, all_to_all, NULL);
    ranks_run(2, ordered, NULL);
    ranks_run(4, pipeline, NULL);
    ranks_run(2, must_block, &(enum blocking_case){SEND_BEFORE_RECV});
    ranks_run(6, must_block, &(enum blocking_case){RECV_BEFORE_SEND});
    ranks_run(2, must_block, &(enum blocking_case){UNEQUAL_BYTES});
    ranks_run(3, must_block, &(enum blocking_case){NO_PARTNER});
    return 0;
}
