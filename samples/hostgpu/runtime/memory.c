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

cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t bytes,
                                cudaStream_t stream)
{
    (void)dst_device;
    (void)src_device;
    return cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream);
}

cudaError_t cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t bytes)
{
    (void)dst_device;
    (void)src_device;
    return cudaMemcpy(dst, src, bytes, cudaMemcpyDefault);
}
