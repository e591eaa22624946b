/* Stream memory operations: on shared memory, in batches, in graphs, and what is refused. */
#include "harness.h"

#include <cuda.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static CUstreamBatchMemOpParams write64(CUdeviceptr address, uint64_t value)
{
    CUstreamBatchMemOpParams p = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64};
    p.writeValue.address = address;
    p.writeValue.value64 = value;
    return p;
}

static CUstreamBatchMemOpParams wait32(CUdeviceptr address, uint32_t value)
{
    CUstreamBatchMemOpParams p = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32};
    p.waitValue.address = address;
    p.waitValue.value = value;
    p.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    return p;
}

/* A page that other processes see, given to the device. */
static uint64_t *shared_page(uint64_t **other_view, CUdeviceptr *device)
{
    int fd = memfd_create("marks", MFD_CLOEXEC);
    CHECK(fd >= 0 && !ftruncate(fd, 4096));
    uint64_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    *other_view = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED && *other_view != MAP_FAILED && !close(fd));
    CHECK(cuMemHostRegister(page, 4096, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) ==
          CUDA_SUCCESS);
    CHECK(cuMemHostGetDevicePointer(device, page, 0) == CUDA_SUCCESS);
    return page;
}

static void on_shared_memory(void)
{
    cudaStream_t stream = new_stream();
    uint64_t *view;
    CUdeviceptr device;
    uint64_t *page = shared_page(&view, &device);
    CHECK(cuStreamWriteValue64(stream, device, 1, 0) == CUDA_SUCCESS);
    CHECK(cuStreamWaitValue32(stream, device + 64, 5, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
    CHECK(cuStreamWriteValue64(stream, device + 8, 2, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) ==
          CUDA_SUCCESS);
    WAIT_UNTIL(__atomic_load_n(&view[0], __ATOMIC_ACQUIRE) == 1);
    CHECK(!stream_finishes(stream, 0.1) && view[1] == 0);
    __atomic_store_n((uint32_t *)&view[8], 5, __ATOMIC_RELEASE); /* as another process would */
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(page[1] == 2);

    CHECK(cuMemHostRegister((char *)page + 128, 64, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK(cuMemHostRegister(view, 4096, 1u << 10) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemHostUnregister(page) == CUDA_SUCCESS);
    CHECK(cuStreamWriteValue64(stream, device, 1, 0) == CUDA_ERROR_INVALID_VALUE);
}

static void batches(void)
{
    cudaStream_t stream = new_stream();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t nodes;
    uint64_t *words = device_alloc(8 * sizeof *words);
    CUdeviceptr at = (CUdeviceptr)words;
    memset(words, 0, 8 * sizeof *words);
    CUstreamBatchMemOpParams ops[] = {
        write64(at, 7), wait32(at + 8, 3), {.operation = CU_STREAM_MEM_OP_BARRIER}, write64(at + 16, 9)};
    CHECK(cuStreamBatchMemOp(stream, 4, ops, 0) == CUDA_SUCCESS);
    WAIT_UNTIL(__atomic_load_n(&words[0], __ATOMIC_ACQUIRE) == 7);
    CHECK(!stream_finishes(stream, 0.1) && words[2] == 0);
    __atomic_store_n((uint32_t *)&words[1], 4, __ATOMIC_RELEASE);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(words[2] == 9);

    /* Captured: one node a call, and nothing happens before the replay. */
    memset(words, 0, 8 * sizeof *words);
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cuStreamBatchMemOp(stream, 4, ops, 0) == CUDA_SUCCESS);
    CHECK(cuStreamWriteValue32(stream, at + 24, 5, 0) == CUDA_SUCCESS);
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 2 && words[0] == 0);
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 2; i++) {
        words[0] = words[2] = words[3] = 0;
        words[1] = 3;
        CHECK_CUDA(cudaGraphLaunch(exec, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        CHECK(words[0] == 7 && words[2] == 9 && words[3] == 5);
    }
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaGraphDestroy(graph));

    CHECK(cuStreamBatchMemOp(stream, 0, ops, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamBatchMemOp(stream, 256, ops, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamBatchMemOp(stream, 1, ops, 1) == CUDA_ERROR_INVALID_VALUE);
    ops[3].writeValue.address = at + 4;
    words[0] = 0;
    CHECK(cuStreamBatchMemOp(stream, 4, ops, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(stream_finishes(stream, 5) && words[0] == 0); /* all or nothing */
    ops[0].operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
    CHECK(cuStreamBatchMemOp(stream, 1, ops, 0) == CUDA_ERROR_NOT_SUPPORTED);
}

static void refused(void)
{
    cudaStream_t stream = new_stream();
    uint64_t local = 0, *words = device_alloc(2 * sizeof *words);
    void *managed;
    CHECK_CUDA(cudaMallocManaged(&managed, 64, cudaMemAttachGlobal));
    CHECK(cuStreamWriteValue32(stream, (CUdeviceptr)&local, 1, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamWriteValue32(stream, (CUdeviceptr)managed, 1, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamWriteValue32(stream, (CUdeviceptr)words + 2, 1, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamWriteValue64(stream, (CUdeviceptr)words + 16, 1, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamWriteValue64(stream, (CUdeviceptr)words, 1, 64) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuStreamWaitValue64(stream, (CUdeviceptr)words, 1, CU_STREAM_WAIT_VALUE_FLUSH) ==
          CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cuStreamWriteValue32(NULL, 0, 1, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(local == 0);
}

int main(void)
{
    on_shared_memory();
    batches();
    refused();
    return 0;
}
