/* Streams, events, host functions. */
#include "runtime.h"

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    return hg_runtime_result(hg_stream_create(stream, hg_current_device(), flags, priority));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    CUstream stream;
    cudaError_t error = hg_runtime_stream(handle, &stream);
    return error == cudaSuccess ? hg_runtime_result(hg_stream_destroy(stream)) : error;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    return hg_runtime_result(hg_event_create(event, flags));
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return hg_runtime_result(hg_event_destroy(event));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return hg_runtime_result(hg_event_query(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return hg_runtime_result(hg_event_synchronize(event));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    return hg_runtime_result(hg_event_elapsed_ms(ms, start, end));
}
