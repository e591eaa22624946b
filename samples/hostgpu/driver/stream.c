/* Making and ending streams and events. */
#include "driver.h"

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    return hg_stream_create(stream, hg_current_device(), flags, priority);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    return hg_stream_create(stream, hg_current_device(), flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream handle)
{
    CUstream stream;
    CUresult result = hg_driver_stream(handle, &stream);
    return result == CUDA_SUCCESS ? hg_stream_destroy(stream) : result;
}
HG_ALIAS(cuStreamDestroy, cuStreamDestroy_v2);

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    return hg_event_create(event, flags);
}

CUresult cuEventDestroy_v2(CUevent event)
{
    return hg_event_destroy(event);
}
HG_ALIAS(cuEventDestroy, cuEventDestroy_v2);

CUresult cuEventQuery(CUevent event)
{
    return hg_event_query(event);
}

CUresult cuEventSynchronize(CUevent event)
{
    return hg_event_synchronize(event);
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    return hg_event_elapsed_ms(ms, start, end);
}
HG_ALIAS(cuEventElapsedTime, cuEventElapsedTime_v2);
