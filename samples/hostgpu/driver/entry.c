/* Error texts and the table of entry points by name. */
#include "driver.h"

#include <string.h>

static const struct {
    CUresult code;
    const char *name;
    const char *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE",
     "the operation cannot be performed in the present state"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded "
     "in a capturing stream"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const char *error_field(CUresult code, bool name)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            return name ? errors[i].name : errors[i].text;
    return NULL;
}

CUresult cuGetErrorName(CUresult code, const char **name)
{
    *name = error_field(code, true);
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char **text)
{
    *text = error_field(code, false);
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The name without its version suffix, the CUDA version that introduced this form, the function. Of several
 * forms of a name the newest that is not newer than the version asked for is taken, so they stand in order.
 * Functions that have a default stream also have a form in which that is the calling thread's. */
#define ENTRY(name, since, function)                                                                         \
    {                                                                                                        \
        name, since, (void *)(function), NULL                                                                \
    }
#define STREAM(name, since, function, per_thread)                                                            \
    {                                                                                                        \
        name, since, (void *)(function), (void *)(per_thread)                                                \
    }
#define PLAIN(function) ENTRY(#function, 0, function)

static const struct {
    const char *name;
    int since;
    void *function;
    void *per_thread;
} entries[] = {
    PLAIN(cuInit),
    PLAIN(cuDriverGetVersion),
    PLAIN(cuDeviceGet),
    PLAIN(cuDeviceGetCount),
    PLAIN(cuDeviceGetName),
    ENTRY("cuDeviceGetUuid", 0, cuDeviceGetUuid_v2),
    ENTRY("cuDeviceTotalMem", 0, cuDeviceTotalMem_v2),
    PLAIN(cuDeviceGetAttribute),
    PLAIN(cuDeviceGetPCIBusId),
    PLAIN(cuDeviceGetByPCIBusId),
    PLAIN(cuDevicePrimaryCtxRetain),
    ENTRY("cuDevicePrimaryCtxRelease", 0, cuDevicePrimaryCtxRelease_v2),
    PLAIN(cuDevicePrimaryCtxGetState),
    PLAIN(cuCtxGetCurrent),
    PLAIN(cuCtxSetCurrent),
    ENTRY("cuCtxCreate", 0, cuCtxCreate_v2),
    ENTRY("cuCtxCreate", 12050, cuCtxCreate_v4),
    ENTRY("cuCtxDestroy", 0, cuCtxDestroy_v2),
    PLAIN(cuCtxGetDevice),
    PLAIN(cuCtxSynchronize),
    ENTRY("cuMemAlloc", 0, cuMemAlloc_v2),
    ENTRY("cuMemFree", 0, cuMemFree_v2),
    PLAIN(cuMemHostAlloc),
    ENTRY("cuMemAllocHost", 0, cuMemAllocHost_v2),
    PLAIN(cuMemFreeHost),
    ENTRY("cuMemHostRegister", 0, cuMemHostRegister_v2),
    PLAIN(cuMemHostUnregister),
    ENTRY("cuMemHostGetDevicePointer", 0, cuMemHostGetDevicePointer_v2),
    ENTRY("cuMemGetInfo", 0, cuMemGetInfo_v2),
    ENTRY("cuMemGetAddressRange", 0, cuMemGetAddressRange_v2),
    PLAIN(cuPointerGetAttribute),
    STREAM("cuMemcpy", 0, cuMemcpy, cuMemcpy_ptds),
    STREAM("cuMemcpyAsync", 0, cuMemcpyAsync, cuMemcpyAsync_ptsz),
    STREAM("cuMemcpyHtoD", 0, cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds),
    STREAM("cuMemcpyDtoH", 0, cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds),
    STREAM("cuMemcpyDtoD", 0, cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds),
    STREAM("cuMemcpyHtoDAsync", 0, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz),
    STREAM("cuMemcpyDtoHAsync", 0, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz),
    STREAM("cuMemcpyDtoDAsync", 0, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz),
    STREAM("cuMemsetD8", 0, cuMemsetD8_v2, cuMemsetD8_v2_ptds),
    STREAM("cuMemsetD32", 0, cuMemsetD32_v2, cuMemsetD32_v2_ptds),
    STREAM("cuMemsetD8Async", 0, cuMemsetD8Async, cuMemsetD8Async_ptsz),
    STREAM("cuMemsetD32Async", 0, cuMemsetD32Async, cuMemsetD32Async_ptsz),
    PLAIN(cuStreamCreate),
    PLAIN(cuStreamCreateWithPriority),
    ENTRY("cuStreamDestroy", 0, cuStreamDestroy_v2),
    STREAM("cuStreamQuery", 0, cuStreamQuery, cuStreamQuery_ptsz),
    STREAM("cuStreamSynchronize", 0, cuStreamSynchronize, cuStreamSynchronize_ptsz),
    STREAM("cuStreamGetFlags", 0, cuStreamGetFlags, cuStreamGetFlags_ptsz),
    STREAM("cuStreamGetPriority", 0, cuStreamGetPriority, cuStreamGetPriority_ptsz),
    STREAM("cuStreamGetId", 0, cuStreamGetId, cuStreamGetId_ptsz),
    STREAM("cuStreamGetCtx", 0, cuStreamGetCtx, cuStreamGetCtx_ptsz),
    STREAM("cuStreamGetDevice", 0, cuStreamGetDevice, cuStreamGetDevice_ptsz),
    STREAM("cuStreamWaitEvent", 0, cuStreamWaitEvent, cuStreamWaitEvent_ptsz),
    STREAM("cuStreamWriteValue32", 0, cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz),
    STREAM("cuStreamWriteValue64", 0, cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz),
    STREAM("cuStreamWaitValue32", 0, cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz),
    STREAM("cuStreamWaitValue64", 0, cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz),
    STREAM("cuStreamBatchMemOp", 0, cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz),
    PLAIN(cuEventCreate),
    ENTRY("cuEventDestroy", 0, cuEventDestroy_v2),
    STREAM("cuEventRecord", 0, cuEventRecord, cuEventRecord_ptsz),
    STREAM("cuEventRecordWithFlags", 0, cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz),
    PLAIN(cuEventQuery),
    PLAIN(cuEventSynchronize),
    ENTRY("cuEventElapsedTime", 0, cuEventElapsedTime_v2),
    STREAM("cuLaunchHostFunc", 0, cuLaunchHostFunc, cuLaunchHostFunc_ptsz),
    STREAM("cuStreamAddCallback", 0, cuStreamAddCallback, cuStreamAddCallback_ptsz),
    STREAM("cuLaunchKernel", 0, cuLaunchKernel, cuLaunchKernel_ptsz),
    ENTRY("cuCtxPushCurrent", 0, cuCtxPushCurrent_v2),
    ENTRY("cuCtxPopCurrent", 0, cuCtxPopCurrent_v2),
    ENTRY("cuDevicePrimaryCtxReset", 0, cuDevicePrimaryCtxReset_v2),
    PLAIN(cuDeviceCanAccessPeer),
    PLAIN(cuPointerGetAttributes),
    PLAIN(cuThreadExchangeStreamCaptureMode),
    STREAM("cuStreamBeginCapture", 10010, cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz),
    STREAM("cuStreamEndCapture", 0, cuStreamEndCapture, cuStreamEndCapture_ptsz),
    STREAM("cuStreamIsCapturing", 0, cuStreamIsCapturing, cuStreamIsCapturing_ptsz),
    STREAM("cuStreamGetCaptureInfo", 10010, cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz),
    STREAM("cuStreamGetCaptureInfo", 11030, cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz),
    STREAM("cuStreamGetCaptureInfo", 12030, cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz),
    PLAIN(cuGraphCreate),
    PLAIN(cuGraphDestroy),
    ENTRY("cuGraphInstantiateWithFlags", 11040, cuGraphInstantiateWithFlags),
    ENTRY("cuGraphInstantiate", 12000, cuGraphInstantiateWithFlags),
    ENTRY("cuGraphExecUpdate", 12000, cuGraphExecUpdate_v2),
    STREAM("cuGraphUpload", 0, cuGraphUpload, cuGraphUpload_ptsz),
    STREAM("cuGraphLaunch", 0, cuGraphLaunch, cuGraphLaunch_ptsz),
    PLAIN(cuGraphExecDestroy),
    PLAIN(cuGetErrorName),
    PLAIN(cuGetErrorString),
    ENTRY("cuGetProcAddress", 0, cuGetProcAddress),
    ENTRY("cuGetProcAddress", 12000, cuGetProcAddress_v2),
};

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    if (!symbol || !function)
        return CUDA_ERROR_INVALID_VALUE;
    *function = NULL;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        if (strcmp(entries[i].name, symbol) != 0)
            continue;
        if (entries[i].since > version) {
            if (!*function)
                found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            continue;
        }
        bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && entries[i].per_thread;
        *function = per_thread ? entries[i].per_thread : entries[i].function;
        found = CU_GET_PROC_ADDRESS_SUCCESS;
    }
    if (status)
        *status = found;
    return *function || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
