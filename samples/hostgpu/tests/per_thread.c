/* Compiled with CUDA_API_PER_THREAD_DEFAULT_STREAM: stream 0 is the calling thread's own. */
#include "harness.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static unsigned *gate, *data;

static void *work_behind_gate(void *argument)
{
    (void)argument;
    CHECK(cuStreamWaitValue32(NULL, (CUdeviceptr)gate, 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
    CHECK_CUDA(cudaMemsetAsync(data, 1, 4, NULL));
    CHECK(cudaStreamQuery(NULL) == cudaErrorNotReady);
    CHECK(cudaStreamQuery(cudaStreamPerThread) == cudaErrorNotReady);
    return NULL; /* the stream outlives its thread until its work is done */
}

static void streams_of_threads(void)
{
    pthread_t thread;
    cudaStream_t other = new_stream();
    unsigned long long mine, per_thread, legacy;
    CHECK(!pthread_create(&thread, NULL, work_behind_gate, NULL) && !pthread_join(thread, NULL));
    /* This thread's default stream is another one. */
    CHECK_CUDA(cudaMemset(data + 1, 2, 4));
    CHECK_CUDA(cudaStreamQuery(NULL));
    CHECK(data[1] == 0x02020202 && data[0] == 0);
    CHECK_CUDA(cudaStreamGetId(NULL, &mine));
    CHECK_CUDA(cudaStreamGetId(cudaStreamPerThread, &per_thread));
    CHECK_CUDA(cudaStreamGetId(cudaStreamLegacy, &legacy));
    CHECK(mine == per_thread && mine != legacy);
    /* The legacy stream waits for them all, a non-blocking one for none. */
    CHECK_CUDA(cudaMemsetAsync(data + 2, 3, 4, cudaStreamLegacy));
    CHECK_CUDA(cudaMemsetAsync(data + 3, 4, 4, other));
    CHECK_CUDA(cudaStreamSynchronize(other));
    CHECK(cudaStreamQuery(cudaStreamLegacy) == cudaErrorNotReady && data[2] == 0 && data[3] == 0x04040404);
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
    CHECK_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
    CHECK(data[0] == 0x01010101 && data[2] == 0x03030303);
}

/* The per-thread stream can be captured, the legacy one cannot. */
static void capture(void)
{
    cudaGraph_t graph;
    enum cudaStreamCaptureStatus status;
    CHECK(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeThreadLocal) ==
          cudaErrorStreamCaptureUnsupported);
    CHECK_CUDA(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(cudaMemsetAsync(data, 0, 4, NULL));
    CHECK_CUDA(cudaStreamIsCapturing(NULL, &status));
    CHECK(status == cudaStreamCaptureStatusActive);
    CHECK_CUDA(cudaStreamEndCapture(NULL, &graph));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK(data[0] == 0x01010101);
}

static void names(void)
{
    static const char *const driver[] = {
        "cuMemcpy_ptds",         "cuMemcpyHtoDAsync_v2_ptsz", "cuLaunchKernel_ptsz",
        "cuEventRecord_ptsz",    "cuGraphLaunch_ptsz",        "cuStreamQuery_ptsz",
        "cuLaunchHostFunc_ptsz", "cuStreamWriteValue32_ptsz", "cuStreamWaitEvent_ptsz",
        "cuMemsetD8Async_ptsz",  "cuStreamBatchMemOp_v2_ptsz"};
    static const char *const runtime[] = {"cudaMemcpy_ptds",
                                          "cudaLaunchKernel_ptsz",
                                          "cudaEventRecord_ptsz",
                                          "__cudaLaunchKernel_ptsz",
                                          "cudaGraphLaunch_ptsz",
                                          "cudaMallocAsync_ptsz",
                                          "cudaGetDriverEntryPointByVersion_ptsz"};
    for (size_t i = 0; i < sizeof driver / sizeof *driver; i++)
        CHECK(dlsym(RTLD_DEFAULT, driver[i]));
    for (size_t i = 0; i < sizeof runtime / sizeof *runtime; i++)
        CHECK(dlvsym(RTLD_DEFAULT, runtime[i], "libcudart.so.13"));
    void *plain, *own, *by_runtime;
    CUdriverProcAddressQueryResult status;
    CHECK(cuGetProcAddress_v2("cuStreamWriteValue32", &plain, CUDA_VERSION, CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                              &status) == CUDA_SUCCESS);
    CHECK(cuGetProcAddress_v2("cuStreamWriteValue32", &own, CUDA_VERSION,
                              CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status) == CUDA_SUCCESS);
    CHECK(plain == dlsym(RTLD_DEFAULT, "cuStreamWriteValue32_v2") && own != plain);
    CHECK(own == dlsym(RTLD_DEFAULT, "cuStreamWriteValue32_v2_ptsz"));
    CHECK_CUDA(cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &by_runtime, CUDART_VERSION,
                                                cudaEnableDefault, NULL));
    CHECK(by_runtime == own);
    /* A function without a default stream has one form. */
    CHECK(cuGetProcAddress_v2("cuMemAlloc", &own, CUDA_VERSION, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                              &status) == CUDA_SUCCESS);
    CHECK(own == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
}

static void nccl(const struct rank_context *context)
{
    ncclComm_t comm = rank_comm(context);
    int *sum = device_alloc(sizeof *sum);
    *sum = 1;
    CHECK_NCCL(ncclAllReduce(sum, sum, 1, ncclInt32, ncclSum, comm, cudaStreamPerThread));
    CHECK_CUDA(cudaStreamSynchronize(NULL));
    CHECK(*sum == context->nranks);
    CHECK_NCCL(ncclCommDestroy(comm));
}

int main(void)
{
    ranks_run(2, nccl, NULL);
    gate = device_alloc(sizeof *gate);
    data = device_alloc(4 * sizeof *data);
    *gate = 0;
    memset(data, 0, 4 * sizeof *data);
    streams_of_threads();
    capture();
    names();
    return 0;
}
