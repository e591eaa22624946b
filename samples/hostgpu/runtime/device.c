#include "runtime.h"

#include <stdio.h>
#include <string.h>

static bool is_device(int device)
{
    return device >= 0 && device < hg_device_count();
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (!version)
        return hg_runtime_result(CUDA_ERROR_INVALID_VALUE);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    if (!version)
        return hg_runtime_result(CUDA_ERROR_INVALID_VALUE);
    return hg_runtime_result(cuDriverGetVersion(version));
}

cudaError_t cudaGetDeviceCount(int *count)
{
    if (!count)
        return hg_runtime_result(CUDA_ERROR_INVALID_VALUE);
    *count = hg_device_count();
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    if (!device)
        return hg_runtime_result(CUDA_ERROR_INVALID_VALUE);
    *device = hg_current_device();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return hg_runtime_result(hg_set_current_device(device));
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
    (void)device_flags;
    (void)flags;
    return hg_runtime_result(is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceFlags(unsigned *flags)
{
    *flags = cudaDeviceScheduleAuto;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (value)
        *value = hg_device_attribute((CUdevice_attribute)attribute, device, &result);
    return hg_runtime_result(result);
}

static int attribute(CUdevice_attribute which, int device)
{
    CUresult result;
    return hg_device_attribute(which, device, &result);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    if (!p || !is_device(device))
        return hg_runtime_result(p ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Host lab device");
    cuDeviceGetUuid((CUuuid *)&p->uuid, device);
    p->totalGlobalMem = HG_DEVICE_MEMORY;
    p->major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    p->minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    p->multiProcessorCount = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    p->warpSize = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
    p->maxThreadsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device);
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = p->maxThreadsPerBlock;
    p->maxThreadsDim[2] = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, device);
    p->maxGridSize[0] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, device);
    p->maxGridSize[1] = p->maxGridSize[2] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, device);
    p->sharedMemPerBlock = (size_t)attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, device);
    p->unifiedAddressing = p->managedMemory = p->canMapHostMemory = p->concurrentKernels = 1;
    p->streamPrioritiesSupported = p->hostRegisterSupported = 1;
    p->pciBusID = attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device)
{
    return hg_runtime_result(cuDeviceGetPCIBusId(text, length, device));
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text)
{
    return hg_runtime_result(cuDeviceGetByPCIBusId(device, text));
}

cudaError_t cudaDeviceSynchronize(void)
{
    return hg_runtime_result(hg_device_synchronize(hg_current_device()));
}

cudaError_t cudaDeviceReset(void)
{
    /* Streams and memory stay: a program that resets a device is about to exit. */
    return cudaDeviceSynchronize();
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    if (!can || !is_device(device) || !is_device(peer))
        return hg_runtime_result(CUDA_ERROR_INVALID_VALUE);
    *can = device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    return hg_runtime_result(is_device(peer) && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    return hg_runtime_result(is_device(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    (void)limit;
    (void)value;
    return cudaSuccess;
}

/* As cuda_profiler_api.h declares them: a header of a package of its own, which not everyone has. */
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);

cudaError_t cudaProfilerStart(void)
{
    return cudaSuccess;
}

cudaError_t cudaProfilerStop(void)
{
    return cudaSuccess;
}
