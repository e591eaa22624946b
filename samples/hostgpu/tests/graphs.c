/* Capture and replay, of NCCL operations too. */
#include "harness.h"

#include <cuda.h>
#include <pthread.h>
#include <string.h>

static void increment(void *user)
{
    ++*(int *)user;
}

static void plain_graph(void)
{
    cudaStream_t stream = new_stream(), side = new_stream();
    cudaEvent_t fork_event, join_event, outside;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int calls = 0, *data = device_alloc(4 * sizeof *data);
    memset(data, 0, 4 * sizeof *data);
    CHECK_CUDA(cudaEventCreate(&fork_event));
    CHECK_CUDA(cudaEventCreate(&join_event));
    CHECK_CUDA(cudaEventCreate(&outside));

    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaErrorIllegalState);
    CHECK_CUDA(cudaLaunchHostFunc(stream, increment, &calls));
    CHECK_CUDA(cudaEventRecord(fork_event, stream));
    CHECK_CUDA(cudaStreamWaitEvent(side, fork_event, 0));
    CHECK_CUDA(cudaMemsetAsync(data, 1, sizeof *data, side));
    CHECK_CUDA(cudaEventRecord(join_event, side));
    CHECK_CUDA(cudaStreamWaitEvent(stream, join_event, 0));
    CHECK_CUDA(cudaMemcpyAsync(data + 1, data, sizeof *data, cudaMemcpyDefault, stream));
    CHECK(cuStreamWriteValue32(stream, (CUdeviceptr)(data + 2), 9, 0) == CUDA_SUCCESS);
    CHECK_CUDA(cudaEventRecordWithFlags(outside, stream, cudaEventRecordExternal));
    enum cudaStreamCaptureStatus status;
    unsigned long long id = 0, side_id = 0;
    CHECK_CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, NULL, NULL, NULL, NULL));
    CHECK_CUDA(cudaStreamGetCaptureInfo(side, &status, &side_id, NULL, NULL, NULL, NULL));
    CHECK(status == cudaStreamCaptureStatusActive && id && id == side_id);
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaStreamIsCapturing(side, &status));
    CHECK(status == cudaStreamCaptureStatusNone);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(calls == 0 && data[0] == 0);

    size_t nodes;
    CHECK_CUDA(cudaGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 5);
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
    for (int i = 1; i <= 3; i++) {
        memset(data, 0, 4 * sizeof *data);
        CHECK_CUDA(cudaGraphLaunch(exec, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        CHECK(calls == i && data[1] == 0x01010101 && data[2] == 9);
    }
    CHECK_CUDA(cudaEventQuery(outside));
    CHECK(cudaEventQuery(fork_event) == cudaErrorCapturedEvent);
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaEventDestroy(fork_event));
    CHECK_CUDA(cudaEventDestroy(join_event));
    CHECK_CUDA(cudaEventDestroy(outside));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaStreamDestroy(side));
    CHECK_CUDA(cudaFree(data));
}

/* What a capture forbids fails and spoils the capture. */
enum forbidden { ALLOCATE, REGISTER, QUERY_EVENT, SYNCHRONIZE, USE_DEFAULT_STREAM };

static cudaError_t do_forbidden(enum forbidden what, cudaStream_t stream, cudaEvent_t event, char *host)
{
    void *pointer;
    switch (what) {
    case ALLOCATE:
        return cudaMalloc(&pointer, 64);
    case REGISTER:
        return cudaHostRegister(host, 64, 0);
    case QUERY_EVENT:
        return cudaEventQuery(event);
    case SYNCHRONIZE:
        return cudaStreamSynchronize(stream);
    default:
        return cudaMemset(host, 0, 64);
    }
}

static void *query_in_thread(void *event)
{
    return cudaEventQuery(event) == cudaSuccess ? event : NULL;
}

static void forbidden_calls(void)
{
    cudaStream_t stream;
    cudaEvent_t event;
    cudaGraph_t graph;
    char host[64];
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaEventCreate(&event));
    for (int what = ALLOCATE; what <= USE_DEFAULT_STREAM; what++) {
        CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        cudaError_t error = do_forbidden((enum forbidden)what, stream, event, host);
        CHECK(error == (what == USE_DEFAULT_STREAM ? cudaErrorStreamCaptureImplicit
                                                   : cudaErrorStreamCaptureUnsupported));
        enum cudaStreamCaptureStatus status;
        CHECK_CUDA(cudaStreamIsCapturing(stream, &status));
        CHECK(status == cudaStreamCaptureStatusInvalidated);
        CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated && !graph);
    }
    /* Another thread may ask unless the capture is global. */
    for (int mode = cudaStreamCaptureModeGlobal; mode <= cudaStreamCaptureModeRelaxed; mode++) {
        pthread_t thread;
        void *answer;
        CHECK_CUDA(cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode));
        CHECK(!pthread_create(&thread, NULL, query_in_thread, event));
        CHECK(!pthread_join(thread, &answer));
        bool is_global = mode == cudaStreamCaptureModeGlobal;
        CHECK((answer == NULL) == is_global);
        CHECK((cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated) == is_global);
        if (graph)
            CHECK_CUDA(cudaGraphDestroy(graph));
    }
    /* And a thread may ask for leave. */
    enum cudaStreamCaptureMode relaxed = cudaStreamCaptureModeRelaxed;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&relaxed));
    CHECK(relaxed == cudaStreamCaptureModeGlobal);
    CHECK_CUDA(cudaEventQuery(event));
    CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&relaxed));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaEventDestroy(event));
    CHECK_CUDA(cudaStreamDestroy(stream));
    cudaGetLastError();
}

static cudaGraphExec_t capture(ncclComm_t comm, int *data, cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int n, rank;
    CHECK_NCCL(ncclCommCount(comm, &n));
    CHECK_NCCL(ncclCommUserRank(comm, &rank));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, stream));
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclSend(data, 1, ncclInt32, (rank + 1) % n, comm, stream));
    CHECK_NCCL(ncclRecv(data + 1, 1, ncclInt32, (rank + n - 1) % n, comm, stream));
    CHECK_NCCL(ncclGroupEnd());
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return exec;
}

static void nccl_graph(const struct rank_context *context)
{
    int n = context->nranks, want = 1;
    ncclComm_t comm = rank_comm(context);
    cudaStream_t stream = new_stream(), other = new_stream();
    int *data = device_alloc(2 * sizeof *data);
    data[0] = 1;
    cudaGraphExec_t exec = capture(comm, data, stream);
    CHECK(data[0] == 1);
    for (int i = 0; i < 5; i++) {
        CHECK_CUDA(cudaGraphLaunch(exec, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        want *= n;
        CHECK(data[0] == want && data[1] == want);
        /* Between replays, on another stream. */
        CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclMax, comm, other));
        CHECK_CUDA(cudaStreamSynchronize(other));
    }
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* One rank replays, its peer calls: the operations are the same, so it works; a count that differs hangs. */
static void mixed(const struct rank_context *context)
{
    ncclComm_t comm = rank_comm(context);
    cudaStream_t stream = new_stream();
    int *data = device_alloc(4 * sizeof *data);
    data[0] = 1;
    cudaGraphExec_t exec = context->rank ? NULL : capture(comm, data, stream);
    if (exec) {
        CHECK_CUDA(cudaGraphLaunch(exec, stream));
    } else {
        CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        CHECK(data[0] == 2);
        CHECK_NCCL(ncclAllReduce(data, data, 2, ncclInt32, ncclSum, comm, stream));
    }
    CHECK(!stream_finishes(stream, 0.5));
    CHECK_NCCL(ncclCommAbort(comm));
    CHECK(stream_finishes(stream, 5));
    if (exec)
        CHECK_CUDA(cudaGraphExecDestroy(exec));
}

/* A communicator that a graph still uses cannot be destroyed: the call waits. */
static void destroy_waits(const struct rank_context *context)
{
    ncclComm_t comm = rank_comm(context);
    int *data = device_alloc(2 * sizeof *data);
    capture(comm, data, new_stream());
    ncclCommDestroy(comm);
}

int main(void)
{
    struct rank_set set;
    ranks_run(1, nccl_graph, NULL);
    ranks_run(3, nccl_graph, NULL);
    ranks_run(2, mixed, NULL);
    ranks_start(&set, 2, destroy_waits, NULL);
    CHECK(ranks_hang(&set, 2, 0.5));
    plain_graph();
    forbidden_calls();
    return 0;
}
