/* Capturing, and launching graphs. Compiled twice: the second time the names
 * have _ptsz or _ptds behind them, and the default stream is the calling thread's. */
#include <cudaTypedefs.h>

#include "runtime.h"

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    return hg_runtime_result(HG_DRIVER(PFN_cuStreamBeginCapture_v10010, "cuStreamBeginCapture", 10010,
                                       HG_DEFAULT_FLAG)(stream, (CUstreamCaptureMode)mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    return hg_runtime_result(HG_DRIVER(PFN_cuStreamEndCapture_v10000, "cuStreamEndCapture", 10000,
                                       HG_DEFAULT_FLAG)(stream, graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    return hg_runtime_result(cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)status));
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges,
                                     size_t *count)
{
    cuuint64_t capture = 0;
    if (edges)
        *edges = NULL;
    CUresult result = cuStreamGetCaptureInfo(stream, (CUstreamCaptureStatus *)status, &capture, graph,
                                             dependencies, NULL, count);
    if (id && capture)
        *id = capture;
    return hg_runtime_result(result);
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *dependencies,
                                                const cudaGraphEdgeData *edges, size_t count, unsigned flags)
{
    /* A graph of the lab is a list: its order already keeps every dependency. */
    (void)stream, (void)dependencies, (void)edges, (void)count, (void)flags;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    return hg_runtime_result(cuGraphUpload(exec, stream));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    return hg_runtime_result(
        HG_DRIVER(PFN_cuGraphLaunch_v10000, "cuGraphLaunch", 10000, HG_DEFAULT_FLAG)(exec, stream));
}
