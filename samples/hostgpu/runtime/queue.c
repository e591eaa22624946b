/* What is put on a stream or asked of it. Compiled twice: the second time the names
 * have _ptsz or _ptds behind them, and the default stream is the calling thread's. */
#include "runtime.h"

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    CUstream stream;
    cudaError_t error = hg_runtime_stream(handle, &stream);
    return error == cudaSuccess ? hg_runtime_result(hg_stream_query(stream)) : error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    CUstream stream;
    cudaError_t error = hg_runtime_stream(handle, &stream);
    return error == cudaSuccess ? hg_runtime_result(hg_stream_synchronize(stream)) : error;
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags)
{
    CUstream stream;
    cudaError_t error = hg_runtime_stream(handle, &stream);
    if (error == cudaSuccess)
        *flags = hg_stream_flags(stream);
    return error;
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority)
{
    CUstream stream;
    cudaError_t error = hg_runtime_stream(handle, &stream);
    if (error == cudaSuccess)
        *priority = hg_stream_priority(stream);
    return error;
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long *id)
{
    CUstream stream;
    cudaError_t error = hg_runtime_stream(handle, &stream);
    if (error == cudaSuccess)
        *id = hg_stream_id(stream);
    return error;
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device)
{
    CUstream stream;
    cudaError_t error = hg_runtime_stream(handle, &stream);
    if (error == cudaSuccess)
        *device = hg_stream_device(stream);
    return error;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags)
{
    CUstream stream;
    (void)flags;
    cudaError_t error = hg_runtime_stream(handle, &stream);
    return error == cudaSuccess ? hg_runtime_result(hg_stream_wait_event(stream, event)) : error;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void *user,
                                  unsigned flags)
{
    return hg_runtime_result(cuStreamAddCallback(stream, (CUstreamCallback)(void *)function, user, flags));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *user)
{
    CUstream stream;
    cudaError_t error = hg_runtime_stream(handle, &stream);
    if (error != cudaSuccess)
        return error;
    return hg_runtime_result(function ? hg_submit_call(stream, function, user) : CUDA_ERROR_INVALID_VALUE);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned flags)
{
    CUstream stream;
    cudaError_t error = hg_runtime_stream(handle, &stream);
    return error == cudaSuccess ? hg_runtime_result(hg_event_record(event, stream, flags)) : error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}
