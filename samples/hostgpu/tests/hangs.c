/* What hangs on a GPU hangs here, nothing else does, and an abort frees it. */
#include "harness.h"

#include <cuda.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

/* What the last rank does differently in the second of three operations. */
enum difference {
    NO_DIFFERENCE,
    OTHER_KIND,
    OTHER_COUNT,
    NOT_CALLED,
    OTHER_REDOP,
    OTHER_ROOT,
    EQUAL_BYTES,
};

struct plan {
    enum difference difference;
    bool hangs;
};

static void odd_operation(enum difference difference, void *buffer, void *out, ncclComm_t comm,
                          cudaStream_t stream)
{
    switch (difference) {
    case NO_DIFFERENCE:
        CHECK_NCCL(ncclAllReduce(buffer, out, 1000, ncclInt32, ncclSum, comm, stream));
        break;
    case OTHER_KIND:
        CHECK_NCCL(ncclAllGather(buffer, out, 1000, ncclInt32, comm, stream));
        break;
    case OTHER_COUNT:
        CHECK_NCCL(ncclAllReduce(buffer, out, 1001, ncclInt32, ncclSum, comm, stream));
        break;
    case NOT_CALLED:
        break;
    case OTHER_REDOP:
        CHECK_NCCL(ncclAllReduce(buffer, out, 1000, ncclInt32, ncclMax, comm, stream));
        break;
    case OTHER_ROOT:
        CHECK_NCCL(ncclBroadcast(buffer, out, 1000, ncclInt32, 1, comm, stream));
        break;
    case EQUAL_BYTES:
        CHECK_NCCL(ncclAllReduce(buffer, out, 2000, ncclFloat16, ncclSum, comm, stream));
        break;
    }
}

static void differ(const struct rank_context *context)
{
    const struct plan *plan = context->argument;
    bool odd = context->rank == context->nranks - 1;
    ncclComm_t comm = rank_comm(context);
    cudaStream_t stream = new_stream();
    void *buffer = device_alloc(64000), *out = device_alloc(64000);
    memset(buffer, 0, 64000);
    CHECK_NCCL(ncclAllReduce(buffer, out, 1000, ncclInt32, ncclSum, comm, stream));
    CHECK(stream_finishes(stream, 10));
    if (plan->difference == OTHER_ROOT && !odd)
        CHECK_NCCL(ncclBroadcast(buffer, out, 1000, ncclInt32, 0, comm, stream));
    else
        odd_operation(odd ? plan->difference : NO_DIFFERENCE, buffer, out, comm, stream);
    bool waits = plan->hangs && !(odd && plan->difference == NOT_CALLED);
    CHECK(stream_finishes(stream, waits ? 0.3 : 10) == !waits);
    if (!waits) {
        CHECK_NCCL(ncclCommDestroy(comm));
        return;
    }
    CHECK_NCCL(ncclAllReduce(buffer, out, 1000, ncclInt32, ncclSum, comm, stream));
    CHECK(!stream_finishes(stream, 0.1));
    ncclResult_t state;
    CHECK_NCCL(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclSuccess);
    CHECK_NCCL(ncclCommAbort(comm));
    CHECK(stream_finishes(stream, 5));
    CHECK_CUDA(cudaFree(buffer));
}

/* All but the killed rank stay in the collective for as long as one looks. */
static void victim(const struct rank_context *context)
{
    ncclComm_t comm = rank_comm(context);
    cudaStream_t stream = new_stream();
    void *buffer = device_alloc(1 << 20);
    memset(buffer, 0, 1 << 20);
    for (int step = 0;; step++) {
        CHECK_NCCL(ncclAllReduce(buffer, buffer, 1 << 18, ncclInt32, ncclSum, comm, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        if (step == 20 && context->rank == 1)
            raise(SIGKILL);
    }
}

/* A barrier of the hosts: nobody aborts before all have looked. */
static void meet(ncclComm_t comm)
{
    ncclComm_t none;
    CHECK_NCCL(ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &none, NULL));
}

/* The same two communicators, used in another order on rank 1. */
static void two_orders(const struct rank_context *context)
{
    ncclComm_t parent = rank_comm(context), comms[2];
    cudaStream_t stream = new_stream();
    void *buffer = device_alloc(4096);
    for (int i = 0; i < 2; i++)
        CHECK_NCCL(ncclCommSplit(parent, 0, context->rank, &comms[i], NULL));
    for (int i = 0; i < 2; i++)
        CHECK_NCCL(
            ncclAllReduce(buffer, buffer, 1, ncclInt32, ncclSum, comms[context->rank ? 1 - i : i], stream));
    CHECK(!stream_finishes(stream, 0.3));
    meet(parent);
    for (int i = 0; i < 2; i++)
        CHECK_NCCL(ncclCommAbort(comms[i]));
    CHECK(stream_finishes(stream, 5));
    CHECK_NCCL(ncclCommDestroy(parent));
}

static void join_with_other_size(const struct rank_context *context)
{
    ncclComm_t comm;
    ncclCommInitRank(&comm, context->rank == 0 ? 3 : 2, context->id, context->rank);
}

static double processor_seconds(void)
{
    struct rusage usage;
    CHECK(!getrusage(RUSAGE_SELF, &usage));
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Many ranks wait for one that never comes: nobody works meanwhile. */
static void wait_quietly(const struct rank_context *context)
{
    ncclComm_t comm = rank_comm(context);
    cudaStream_t stream = new_stream();
    int *data = device_alloc(sizeof *data);
    if (context->rank)
        CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, stream));
    sleep_s(0.2);
    double before = processor_seconds();
    sleep_s(1);
    double used = processor_seconds() - before;
    if (context->rank == 1)
        printf("%d ranks in a hang of 1 s: %.1f ms processor time of rank 1\n", context->nranks, used * 1e3);
    CHECK(used < 0.05);
    CHECK_NCCL(ncclCommAbort(comm));
    CHECK(stream_finishes(stream, 10));
}

/* With connections made at first use: who waits for a missing rank waits inside the call, and an abort from
 * another thread frees it; connected ranks no longer wait there. */
static void *abort_later(void *comm)
{
    sleep_s(0.3);
    CHECK_NCCL(ncclCommAbort(comm));
    return NULL;
}

static void connect_lazily(const struct rank_context *context)
{
    int n = context->nranks, me = context->rank, *data = device_alloc(64 * sizeof *data);
    setenv("HOSTGPU_LAZY_CONNECT", "1", 1);
    ncclComm_t comm = rank_comm(context), half;
    cudaStream_t stream = new_stream();
    CHECK_NCCL(ncclCommSplit(comm, 0, me, &half, NULL));
    CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclMax, comm, stream));
    CHECK_NCCL(ncclAlltoAll(data, data + 32, 1, ncclInt32, comm, stream));
    CHECK_NCCL(ncclGather(data, data + 32, 1, ncclInt32, 1, half, stream));
    CHECK_NCCL(ncclScatter(data, data + 32, 1, ncclInt32, 0, half, stream));
    CHECK(stream_finishes(stream, 10));
    if (me == 0) { /* connected: the others are not needed to enqueue */
        CHECK_NCCL(ncclSend(data, 1, ncclInt32, 1, comm, stream));
        CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclMax, comm, stream));
    } else if (me == n - 1) { /* not connected, and the peer does not come */
        pthread_t thread;
        double start = now_s();
        CHECK(!pthread_create(&thread, NULL, abort_later, half));
        CHECK(ncclAllReduce(data, data, 1, ncclInt32, ncclMax, half, stream) == ncclInternalError);
        CHECK(now_s() - start >= 0.3);
        pthread_join(thread, NULL);
    }
    CHECK_NCCL(ncclCommAbort(comm));
    if (me != n - 1)
        CHECK_NCCL(ncclCommAbort(half));
    CHECK(stream_finishes(stream, 5));
}

/* ---- Planned faults: the environment is set in the ranks, before the lab first reads it ---- */

struct fault {
    const char *name, *value;
    int finished_ops;    /* before the stream stands still */
    ncclResult_t raised; /* asynchronous result on the rank with the fault */
};

static void with_fault(const struct rank_context *context)
{
    const struct fault *fault = context->argument;
    bool odd = context->rank == 0;
    if (odd)
        setenv(fault->name, fault->value, 1);
    ncclComm_t comm = rank_comm(context), comm_for_meeting;
    CHECK_NCCL(ncclCommSplit(comm, 0, context->rank, &comm_for_meeting, NULL));
    cudaStream_t stream = new_stream();
    void *buffer = device_alloc(4096);
    cudaEvent_t events[6];
    /* Nothing runs, and nothing goes wrong, before all is enqueued. */
    unsigned *gate = device_alloc(sizeof *gate);
    *gate = 0;
    CHECK(cuStreamWaitValue32(stream, (CUdeviceptr)gate, 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
    for (int i = 0; i < 6; i++) {
        CHECK_CUDA(cudaEventCreate(&events[i]));
        CHECK_NCCL(ncclAllReduce(buffer, buffer, 8, ncclInt32, ncclMax, comm, stream));
        CHECK_CUDA(cudaEventRecord(events[i], stream));
    }
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < fault->finished_ops; i++)
        CHECK_CUDA(cudaEventSynchronize(events[i]));
    CHECK(!stream_finishes(stream, 0.3));
    for (int i = 0; i < 6; i++)
        CHECK((cudaEventQuery(events[i]) == cudaSuccess) == (i < fault->finished_ops));
    for (int i = 0; i < 6; i++)
        CHECK_CUDA(cudaEventDestroy(events[i]));
    ncclResult_t state;
    CHECK_NCCL(ncclCommGetAsyncError(comm, &state));
    CHECK(state == (odd ? fault->raised : ncclSuccess));
    meet(comm_for_meeting);
    CHECK_NCCL(ncclCommAbort(comm));
    bool is_blocked = odd && !strcmp(fault->name, "HOSTGPU_BLOCK_STREAM_AT");
    CHECK(stream_finishes(stream, is_blocked ? 0.3 : 5) == !is_blocked);
    CHECK_NCCL(ncclCommDestroy(comm_for_meeting));
}

static void slow(const struct rank_context *context)
{
    setenv("HOSTGPU_SLOW_US", "20000", 1);
    ncclComm_t comm = rank_comm(context);
    cudaStream_t stream = new_stream();
    void *buffer = device_alloc(4096);
    double start = now_s();
    for (int i = 0; i < 5; i++)
        CHECK_NCCL(ncclAllReduce(buffer, buffer, 8, ncclInt32, ncclMax, comm, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(now_s() - start >= 0.1);
    CHECK_NCCL(ncclCommDestroy(comm));
}

int main(void)
{
    static const struct plan plans[] = {
        {NO_DIFFERENCE, false}, {OTHER_KIND, true},  {OTHER_COUNT, true},  {NOT_CALLED, true},
        {OTHER_REDOP, false},   {OTHER_ROOT, false}, {EQUAL_BYTES, false},
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        ranks_run(2, differ, &plans[i]);
        ranks_run(5, differ, &plans[i]);
    }
    struct rank_set set;
    ranks_start(&set, 4, victim, NULL);
    CHECK(ranks_hang(&set, 3, 0.5));
    ranks_run(64, wait_quietly, NULL);
    ranks_run(2, two_orders, NULL);
    ranks_run(3, connect_lazily, NULL);
    ranks_start(&set, 2, join_with_other_size, NULL);
    CHECK(ranks_hang(&set, 2, 0.5));
    static const struct fault faults[] = {
        {"HOSTGPU_BLOCK_STREAM_AT", "4", 3, ncclSuccess},
        {"HOSTGPU_SILENT_AT", "3", 2, ncclSuccess},
        {"HOSTGPU_ASYNC_ERR_AT", "2", 1, ncclRemoteError},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        ranks_run(3, with_fault, &faults[i]);
    ranks_run(2, slow, NULL);
    return 0;
}
