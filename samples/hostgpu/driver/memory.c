#include "driver.h"

#include <unistd.h>

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    void *memory;
    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = hg_memory_alloc(&memory, bytes, hg_current_device(), HG_MEMORY_DEVICE);
    *pointer = (CUdeviceptr)memory;
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    return hg_memory_free((void *)pointer, HG_MEMORY_DEVICE);
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    (void)flags;
    return hg_memory_alloc(pointer, bytes, hg_current_device(), HG_MEMORY_HOST);
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    return cuMemHostAlloc(pointer, bytes, 0);
}

CUresult cuMemFreeHost(void *pointer)
{
    return hg_memory_free(pointer, HG_MEMORY_HOST);
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags)
{
    const unsigned known =
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
    if (flags & ~known)
        return CUDA_ERROR_INVALID_VALUE; /* IOMEMORY: there is no device of somebody else's here */
    usleep((useconds_t)hg_fault_plan()->register_ms * 1000);
    return hg_memory_register(pointer, bytes, hg_current_device());
}
HG_ALIAS(cuMemHostRegister, cuMemHostRegister_v2);

CUresult cuMemHostUnregister(void *pointer)
{
    return hg_memory_unregister(pointer);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device_pointer, void *pointer, unsigned flags)
{
    struct hg_memory memory;
    if (!device_pointer || flags || !hg_memory_find(pointer, &memory))
        return CUDA_ERROR_INVALID_VALUE;
    *device_pointer = (CUdeviceptr)pointer;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    if (!free_bytes || !total_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    hg_memory_info(hg_current_device(), free_bytes, total_bytes);
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    struct hg_memory memory;
    if (!data || !hg_memory_find((void *)pointer, &memory))
        return CUDA_ERROR_INVALID_VALUE;
    bool on_device = memory.kind == HG_MEMORY_DEVICE || memory.kind == HG_MEMORY_MANAGED;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = on_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        break;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return cuDevicePrimaryCtxRetain(data, memory.device);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(CUdeviceptr *)data = pointer;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(uint64_t *)data = memory.id;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = memory.kind == HG_MEMORY_MANAGED;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = memory.device;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = (CUdeviceptr)memory.base;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = memory.bytes;
        break;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

/* As documented: an attribute that cannot be told leaves its output zero and is no error. */
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr pointer)
{
    if (!attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if (cuPointerGetAttribute(data[i], attributes[i], pointer) != CUDA_SUCCESS)
            *(unsigned *)data[i] = 0;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    struct hg_memory memory;
    if (!hg_memory_find((void *)pointer, &memory))
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = (CUdeviceptr)memory.base;
    if (bytes)
        *bytes = memory.bytes;
    return CUDA_SUCCESS;
}
