/* What is put on a stream or asked of it. Kernels do nothing. Compiled twice: the second time the names
 * have _ptsz or _ptds behind them, and the default stream is the calling thread's. */
#include "driver.h"

#include <stdlib.h>

CUresult cuStreamQuery(CUstream handle)
{
    CUstream stream;
    CUresult result = hg_driver_stream(handle, &stream);
    return result == CUDA_SUCCESS ? hg_stream_query(stream) : result;
}

CUresult cuStreamSynchronize(CUstream handle)
{
    CUstream stream;
    CUresult result = hg_driver_stream(handle, &stream);
    return result == CUDA_SUCCESS ? hg_stream_synchronize(stream) : result;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned *flags)
{
    CUstream stream;
    CUresult result = hg_driver_stream(handle, &stream);
    if (result == CUDA_SUCCESS)
        *flags = hg_stream_flags(stream);
    return result;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
    CUstream stream;
    CUresult result = hg_driver_stream(handle, &stream);
    if (result == CUDA_SUCCESS)
        *priority = hg_stream_priority(stream);
    return result;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
    CUstream stream;
    CUresult result = hg_driver_stream(handle, &stream);
    if (result == CUDA_SUCCESS)
        *id = hg_stream_id(stream);
    return result;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    CUstream stream;
    CUresult result = hg_driver_stream(handle, &stream);
    return result == CUDA_SUCCESS ? cuDevicePrimaryCtxRetain(context, hg_stream_device(stream)) : result;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice *device)
{
    CUstream stream;
    CUresult result = hg_driver_stream(handle, &stream);
    if (result == CUDA_SUCCESS)
        *device = hg_stream_device(stream);
    return result;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
    CUstream stream;
    (void)flags;
    CUresult result = hg_driver_stream(handle, &stream);
    return result == CUDA_SUCCESS ? hg_stream_wait_event(stream, event) : result;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags)
{
    CUstream stream;
    CUresult result = hg_driver_stream(handle, &stream);
    return result == CUDA_SUCCESS ? hg_event_record(event, stream, flags) : result;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}

struct callback {
    CUstream stream;
    CUstreamCallback function;
    void *user;
};

static void call_back(void *argument)
{
    struct callback *callback = argument;
    callback->function(callback->stream, CUDA_SUCCESS, callback->user);
    free(callback);
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback function, void *user, unsigned flags)
{
    CUstream stream;
    if (!function || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = hg_driver_stream(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (hg_capture_info(stream, NULL, NULL))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* callbacks run once, graphs many times */
    struct callback *callback = malloc(sizeof *callback);
    if (!callback)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *callback = (struct callback){handle, function, user};
    return hg_submit_call(stream, call_back, callback);
}

static void do_nothing(void *user)
{
    (void)user;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream handle, void **arguments, void **extra)
{
    CUstream stream;
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    (void)shared_bytes, (void)arguments, (void)extra;
    CUresult result = hg_driver_stream(handle, &stream);
    return result == CUDA_SUCCESS ? hg_submit_call(stream, do_nothing, NULL) : result;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *user)
{
    CUstream stream;
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = hg_driver_stream(handle, &stream);
    return result == CUDA_SUCCESS ? hg_submit_call(stream, function, user) : result;
}
