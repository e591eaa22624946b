#include "runtime.h"

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    return hg_runtime_result(hg_memory_alloc(pointer, bytes, hg_current_device(), HG_MEMORY_DEVICE));
}

cudaError_t cudaMallocManaged(void **pointer, size_t bytes, unsigned flags)
{
    (void)flags;
    return hg_runtime_result(hg_memory_alloc(pointer, bytes, hg_current_device(), HG_MEMORY_MANAGED));
}

cudaError_t cudaFree(void *pointer)
{
    return hg_runtime_result(hg_memory_free(pointer, HG_MEMORY_DEVICE));
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    (void)flags;
    return hg_runtime_result(hg_memory_alloc(pointer, bytes, hg_current_device(), HG_MEMORY_HOST));
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes)
{
    return cudaHostAlloc(pointer, bytes, 0);
}

cudaError_t cudaFreeHost(void *pointer)
{
    return hg_runtime_result(hg_memory_free(pointer, HG_MEMORY_HOST));
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags)
{
    (void)flags;
    return hg_runtime_result(hg_memory_register(pointer, bytes, hg_current_device()));
}

cudaError_t cudaHostUnregister(void *pointer)
{
    return hg_runtime_result(hg_memory_unregister(pointer));
}

cudaError_t cudaHostGetDevicePointer(void **device_pointer, void *pointer, unsigned flags)
{
    return hg_runtime_result(cuMemHostGetDevicePointer((CUdeviceptr *)device_pointer, pointer, flags));
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    if (!free_bytes || !total_bytes)
        return hg_runtime_result(CUDA_ERROR_INVALID_VALUE);
    hg_memory_info(hg_current_device(), free_bytes, total_bytes);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    struct hg_memory memory;
    if (!attributes)
        return hg_runtime_result(CUDA_ERROR_INVALID_VALUE);
    *attributes = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered, .device = -2};
    attributes->hostPointer = (void *)(uintptr_t)pointer;
    if (!hg_memory_find(pointer, &memory))
        return cudaSuccess;
    attributes->device = memory.device;
    attributes->devicePointer = (void *)(uintptr_t)pointer;
    if (memory.kind == HG_MEMORY_DEVICE) {
        attributes->type = cudaMemoryTypeDevice;
        attributes->hostPointer = NULL;
    } else {
        attributes->type = memory.kind == HG_MEMORY_MANAGED ? cudaMemoryTypeManaged : cudaMemoryTypeHost;
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t handle)
{
    CUstream stream;
    if ((unsigned)kind > cudaMemcpyDefault)
        return hg_runtime_result((CUresult)cudaErrorInvalidMemcpyDirection);
    cudaError_t error = hg_runtime_stream(handle, &stream);
    return error == cudaSuccess ? hg_runtime_result(hg_submit_copy(stream, dst, src, bytes)) : error;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t count, cudaStream_t handle)
{
    CUstream stream;
    cudaError_t error = hg_runtime_stream(handle, &stream);
    return error == cudaSuccess ? hg_runtime_result(hg_submit_fill(stream, dst, (unsigned)value, 1, count))
                                : error;
}

/* Waits for what the calling thread has just put on the default stream. */
static cudaError_t finish(cudaError_t error)
{
    return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    return finish(cudaMemcpyAsync(dst, src, bytes, kind, NULL));
}

cudaError_t cudaMemset(void *dst, int value, size_t count)
{
    return finish(cudaMemsetAsync(dst, value, count, NULL));
}

/* Row by row. */
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    if (width > dst_pitch || width > src_pitch)
        return hg_runtime_result((CUresult)cudaErrorInvalidPitchValue);
    for (size_t row = 0; row < height && error == cudaSuccess; row++)
        error = cudaMemcpyAsync((char *)dst + row * dst_pitch, (const char *)src + row * src_pitch, width,
                                kind, stream);
    return error;
}

cudaError_t cudaMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                         size_t height, enum cudaMemcpyKind kind)
{
    return finish(cudaMemcpy2DAsync(dst, dst_pitch, src, src_pitch, width, height, kind, NULL));
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t bytes,
                                cudaStream_t stream)
{
    (void)dst_device;
    (void)src_device;
    return cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream);
}

cudaError_t cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t bytes)
{
    return finish(cudaMemcpyPeerAsync(dst, dst_device, src, src_device, bytes, NULL));
}

static void release_memory(void *pointer)
{
    hg_memory_release(pointer);
}

cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    return cudaMalloc(pointer, bytes);
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t handle)
{
    CUstream stream;
    cudaError_t error = hg_runtime_stream(handle, &stream);
    return error == cudaSuccess ? hg_runtime_result(hg_submit_call(stream, release_memory, pointer)) : error;
}
