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
 */
#define ENTRY(name, since, function)                                                                         \
    {                                                                                                        \
        name, since, (void *)(function)                                                                      \
    }
#define PLAIN(function) ENTRY(#function, 0, function)

static const struct {
    const char *name;
    int since;
    void *function;
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
    PLAIN(cuMemcpy),
    PLAIN(cuMemcpyAsync),
    ENTRY("cuMemcpyHtoD", 0, cuMemcpyHtoD_v2),
    ENTRY("cuMemcpyDtoH", 0, cuMemcpyDtoH_v2),
    ENTRY("cuMemcpyDtoD", 0, cuMemcpyDtoD_v2),
    ENTRY("cuMemcpyHtoDAsync", 0, cuMemcpyHtoDAsync_v2),
    ENTRY("cuMemcpyDtoHAsync", 0, cuMemcpyDtoHAsync_v2),
    ENTRY("cuMemcpyDtoDAsync", 0, cuMemcpyDtoDAsync_v2),
    ENTRY("cuMemsetD8", 0, cuMemsetD8_v2),
    ENTRY("cuMemsetD32", 0, cuMemsetD32_v2),
    PLAIN(cuMemsetD8Async),
    PLAIN(cuMemsetD32Async),
    PLAIN(cuStreamCreate),
    PLAIN(cuStreamCreateWithPriority),
    ENTRY("cuStreamDestroy", 0, cuStreamDestroy_v2),
    PLAIN(cuStreamQuery),
    PLAIN(cuStreamSynchronize),
    PLAIN(cuStreamGetFlags),
    PLAIN(cuStreamGetPriority),
    PLAIN(cuStreamGetId),
    PLAIN(cuStreamGetCtx),
    PLAIN(cuStreamGetDevice),
    PLAIN(cuStreamWaitEvent),
    ENTRY("cuStreamWriteValue32", 0, cuStreamWriteValue32_v2),
    ENTRY("cuStreamWriteValue64", 0, cuStreamWriteValue64_v2),
    ENTRY("cuStreamWaitValue32", 0, cuStreamWaitValue32_v2),
    ENTRY("cuStreamWaitValue64", 0, cuStreamWaitValue64_v2),
    ENTRY("cuStreamBatchMemOp", 0, cuStreamBatchMemOp_v2),
    PLAIN(cuEventCreate),
    ENTRY("cuEventDestroy", 0, cuEventDestroy_v2),
    PLAIN(cuEventRecord),
    PLAIN(cuEventRecordWithFlags),
    PLAIN(cuEventQuery),
    PLAIN(cuEventSynchronize),
    ENTRY("cuEventElapsedTime", 0, cuEventElapsedTime_v2),
    PLAIN(cuLaunchHostFunc),
    PLAIN(cuStreamAddCallback),
    PLAIN(cuLaunchKernel),
    ENTRY("cuCtxPushCurrent", 0, cuCtxPushCurrent_v2),
    ENTRY("cuCtxPopCurrent", 0, cuCtxPopCurrent_v2),
    ENTRY("cuDevicePrimaryCtxReset", 0, cuDevicePrimaryCtxReset_v2),
    PLAIN(cuDeviceCanAccessPeer),
    PLAIN(cuPointerGetAttributes),
    PLAIN(cuThreadExchangeStreamCaptureMode),
    ENTRY("cuStreamBeginCapture", 10010, cuStreamBeginCapture_v2),
    PLAIN(cuStreamEndCapture),
    PLAIN(cuStreamIsCapturing),
    ENTRY("cuStreamGetCaptureInfo", 10010, cuStreamGetCaptureInfo),
    ENTRY("cuStreamGetCaptureInfo", 11030, cuStreamGetCaptureInfo_v2),
    ENTRY("cuStreamGetCaptureInfo", 12030, cuStreamGetCaptureInfo_v3),
    PLAIN(cuGraphCreate),
    PLAIN(cuGraphDestroy),
    ENTRY("cuGraphInstantiateWithFlags", 11040, cuGraphInstantiateWithFlags),
    ENTRY("cuGraphInstantiate", 12000, cuGraphInstantiateWithFlags),
    ENTRY("cuGraphExecUpdate", 12000, cuGraphExecUpdate_v2),
    PLAIN(cuGraphUpload),
    PLAIN(cuGraphLaunch),
    PLAIN(cuGraphExecDestroy),
    PLAIN(cuGetErrorName),
    PLAIN(cuGetErrorString),
    ENTRY("cuGetProcAddress", 0, cuGetProcAddress),
    ENTRY("cuGetProcAddress", 12000, cuGetProcAddress_v2),
};

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    (void)flags; /* the lab has one default stream per device: legacy and per-thread forms are the same */
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
        *function = entries[i].function;
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
