/* Capturing, and launching graphs. Compiled twice: the second time the names
 * have _ptsz or _ptds behind them, and the default stream is the calling thread's. */
#include "driver.h"

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    CUstream stream;
    if ((handle ? handle : HG_DEFAULT_STREAM) == CU_STREAM_LEGACY)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult result = hg_driver_stream(handle, &stream);
    return result == CUDA_SUCCESS ? hg_capture_begin(stream, mode) : result;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    CUstream stream;
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = hg_driver_stream(handle, &stream);
    return result == CUDA_SUCCESS ? hg_capture_end(stream, graph) : result;
}

/* What all versions of the question have in common. Each output may be NULL. */
static CUresult capture_info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph)
{
    CUstream stream;
    uint64_t capture;
    CUgraph captured;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = hg_driver_stream(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    *status = hg_capture_info(stream, &capture, &captured);
    if (*status != CU_STREAM_CAPTURE_STATUS_NONE && id)
        *id = capture;
    if (*status != CU_STREAM_CAPTURE_STATUS_NONE && graph)
        *graph = captured;
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    return capture_info(stream, status, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return capture_info(stream, status, id, NULL);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
    if (dependencies)
        *dependencies = NULL;
    if (count)
        *count = 0;
    return capture_info(stream, status, id, graph);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies,
                                   const CUgraphEdgeData **edges, size_t *count)
{
    if (edges)
        *edges = NULL;
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    (void)stream;
    return exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
    CUstream stream;
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = hg_driver_stream(handle, &stream);
    return result == CUDA_SUCCESS ? hg_graph_launch(exec, stream) : result;
}
