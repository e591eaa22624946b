/* Non-blocking communicators: calls return ncclInProgress, a thread goes on, ncclCommGetAsyncError tells. */
#include "harness.h"

static ncclConfig_t nonblocking(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return config;
}

static ncclResult_t wait_ready(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    for (double until = now_s() + 30; state == ncclInProgress && now_s() < until; sleep_s(0.0005))
        CHECK_NCCL(ncclCommGetAsyncError(comm, &state));
    return state;
}

/* A call has been accepted, and then succeeds. A pointer, because the call may be what makes the
 * communicator. */
static void accept(const ncclComm_t *comm, ncclResult_t result)
{
    CHECK(result == ncclInProgress || result == ncclSuccess);
    CHECK_NCCL(wait_ready(*comm));
}

static int sum_of_one(ncclComm_t comm)
{
    cudaStream_t stream = new_stream();
    int *data = device_alloc(sizeof *data);
    *data = 1;
    accept(&comm, ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    return *data;
}

static void life(const struct rank_context *context)
{
    ncclConfig_t config = nonblocking();
    ncclComm_t comm = NULL, child = NULL, small = NULL;
    int n = context->nranks, count;
    if (context->rank == 0)
        sleep_s(0.1);
    ncclResult_t result = ncclCommInitRankConfig(&comm, n, context->id, context->rank, &config);
    CHECK(comm);
    accept(&comm, result);
    CHECK_NCCL(ncclCommCount(comm, &count));
    accept(&comm, ncclCommSplit(comm, 0, context->rank, &child, NULL)); /* inherits */
    CHECK(child && sum_of_one(child) == n);
    accept(&child, ncclCommFinalize(child));
    CHECK_NCCL(ncclCommDestroy(child));
    accept(&comm, ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    int last = n - 1;
    if (context->rank != last) {
        accept(&comm, ncclCommShrink(comm, &last, 1, &small, NULL, NCCL_SHRINK_ABORT));
        CHECK(sum_of_one(small) == n - 1);
        CHECK_NCCL(ncclCommDestroy(small));
    }
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* Two communicators in one group. Nothing may be called on them before both are ready. */
static void group(const struct rank_context *context)
{
    ncclConfig_t config = nonblocking();
    ncclComm_t comms[2];
    cudaStream_t streams[2] = {new_stream(), new_stream()};
    int *data = device_alloc(4 * sizeof *data);
    accept(&comms[0],
           ncclCommInitRankConfig(&comms[0], context->nranks, context->id, context->rank, &config));
    accept(&comms[0], ncclCommSplit(comms[0], 0, 0, &comms[1], NULL));
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 4; i++)
            data[i] = i + 1;
        CHECK_NCCL(ncclGroupStart());
        for (int i = 0; i < 4; i++)
            CHECK_NCCL(
                ncclAllReduce(&data[i], &data[i], 1, ncclInt32, ncclSum, comms[i % 2], streams[i % 2]));
        ncclResult_t result = ncclGroupEnd();
        CHECK(result == ncclInProgress);
        CHECK_NCCL(wait_ready(comms[0]));
        CHECK_NCCL(wait_ready(comms[1]));
        CHECK_CUDA(cudaDeviceSynchronize());
        for (int i = 0; i < 4; i++)
            CHECK(data[i] == (i + 1) * context->nranks);
    }
    CHECK_NCCL(ncclCommDestroy(comms[0]));
    CHECK_NCCL(ncclCommDestroy(comms[1]));
}

/* An operation that has to connect first stays in progress while its peer does not come; abort ends it, and
 * revoke. */
static void connecting(const struct rank_context *context)
{
    ncclConfig_t config = nonblocking();
    ncclComm_t comm;
    ncclResult_t state;
    int *data = device_alloc(sizeof *data);
    CHECK(!setenv("HOSTGPU_LAZY_CONNECT", "1", 1));
    accept(&comm, ncclCommInitRankConfig(&comm, context->nranks, context->id, context->rank, &config));
    if (context->rank == 0)
        sleep_s(60);
    CHECK(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, NULL) == ncclInProgress);
    sleep_s(0.3);
    CHECK_NCCL(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclInProgress);
    CHECK(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, NULL) == ncclInvalidArgument);
    CHECK(stream_finishes(NULL, 5)); /* nothing has reached it */
    if (context->argument) {
        accept(&comm, ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT)); /* gives up connecting */
        CHECK_NCCL(ncclCommDestroy(comm));
    } else {
        CHECK_NCCL(ncclCommAbort(comm));
    }
}

static void abort_in_init(const struct rank_context *context)
{
    ncclConfig_t config = nonblocking();
    ncclComm_t comm;
    ncclResult_t state;
    CHECK(ncclCommInitRankConfig(&comm, 2, context->id, 0, &config) == ncclInProgress);
    int count;
    sleep_s(0.1);
    CHECK(ncclCommCount(comm, &count) == ncclInvalidArgument);
    CHECK_NCCL(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclInProgress);
    CHECK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT) == ncclInvalidArgument); /* not ready */
    CHECK_NCCL(ncclCommAbort(comm));
}

static void mixed(const struct rank_context *context)
{
    ncclConfig_t config = nonblocking();
    ncclComm_t comm, blocking = rank_comm(context);
    int *data = device_alloc(sizeof *data);
    ncclUniqueId id;
    CHECK_NCCL(ncclGetUniqueId(&id));
    accept(&comm, ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, NULL));
    CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, blocking, NULL));
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK_NCCL(ncclCommDestroy(comm));
    CHECK_NCCL(ncclCommDestroy(blocking));
}

int main(void)
{
    struct rank_set set;
    ranks_run(3, life, NULL);
    ranks_run(2, group, NULL);
    ranks_start(&set, 2, connecting, NULL);
    CHECK(ranks_hang(&set, 1, 0));
    ranks_start(&set, 2, connecting, "revoke");
    CHECK(ranks_hang(&set, 1, 0));
    ranks_run(1, abort_in_init, NULL);
    ranks_run(1, mixed, NULL);
    return 0;
}
