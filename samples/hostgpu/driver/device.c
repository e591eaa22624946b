/* Initialisation, devices, contexts. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

struct CUctx_st {
    int device;
};

/* The primary context of each device; contexts made by cuCtxCreate are the same ones. */
static struct CUctx_st contexts[HG_MAX_DEVICES];

static bool is_device(int device)
{
    return device >= 0 && device < hg_device_count();
}

static CUcontext context_of(int device)
{
    CUcontext context = &contexts[device];
    /* Many threads may store the same value. */
    __atomic_store_n(&context->device, device, __ATOMIC_RELAXED);
    return context;
}

CUresult cuInit(unsigned flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = HG_DRIVER_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = hg_device_count();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    if (!device || !is_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    if (!name || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "Host lab device");
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    if (!uuid || !is_device(device))
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(uuid->bytes, "host lab device", sizeof uuid->bytes);
    uuid->bytes[sizeof uuid->bytes - 1] = (char)device;
    return CUDA_SUCCESS;
}
HG_ALIAS(cuDeviceGetUuid, cuDeviceGetUuid_v2);

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    if (!bytes || !is_device(device))
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = HG_DEVICE_MEMORY;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (value)
        *value = hg_device_attribute(attribute, device, &result);
    return result;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    if (!text || length < 13 || !is_device(device))
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(text, (size_t)length, "0000:%02x:00.0", device + 1);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
    unsigned domain, bus;
    if (!device || !text || sscanf(text, "%x:%x:", &domain, &bus) != 2 || !is_device((int)bus - 1))
        return CUDA_ERROR_INVALID_VALUE;
    *device = (int)bus - 1;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    if (!context || !is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *context = context_of(device);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
HG_ALIAS(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2);

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    if (!flags || !active || !is_device(device))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    *context = context_of(hg_current_device());
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    return context ? hg_set_current_device(context->device) : CUDA_SUCCESS;
}

/* Each thread's stack of contexts holds device numbers; the top is the current device. */
#define MAX_PUSHED 16
static _Thread_local int pushed[MAX_PUSHED];
static _Thread_local int npushed;

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    if (!context || npushed == MAX_PUSHED)
        return CUDA_ERROR_INVALID_CONTEXT;
    pushed[npushed++] = hg_current_device();
    return hg_set_current_device(context->device);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    if (!npushed)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context)
        *context = context_of(hg_current_device());
    return hg_set_current_device(pushed[--npushed]);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return hg_device_synchronize(device);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    if (!can || !is_device(device) || !is_device(peer))
        return CUDA_ERROR_INVALID_VALUE;
    *can = device != peer;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    (void)flags;
    CUresult result = cuDevicePrimaryCtxRetain(context, device);
    return result == CUDA_SUCCESS ? cuCtxSetCurrent(*context) : result;
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned flags, CUdevice device)
{
    (void)params;
    return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = hg_current_device();
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    return hg_device_synchronize(hg_current_device());
}
