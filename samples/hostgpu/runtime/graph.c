/* Stream capture and graphs: the driver's, under the runtime's names. */
#include "runtime.h"

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    return hg_runtime_result(cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode));
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    return hg_runtime_result(cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    return hg_runtime_result(cuStreamEndCapture(stream, graph));
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

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags)
{
    return hg_runtime_result(cuGraphCreate(graph, flags));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return hg_runtime_result(cuGraphDestroy(graph));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    if (!graph || !count)
        return hg_runtime_result(CUDA_ERROR_INVALID_VALUE);
    if (nodes) /* nodes have no handles here */
        return hg_runtime_result(CUDA_ERROR_NOT_SUPPORTED);
    *count = hg_graph_size(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    return hg_runtime_result(cuGraphInstantiate(exec, graph, flags));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info)
{
    if (info)
        *info = (cudaGraphExecUpdateResultInfo){.result = cudaGraphExecUpdateSuccess};
    return hg_runtime_result(cuGraphExecUpdate(exec, graph, NULL));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    return hg_runtime_result(cuGraphUpload(exec, stream));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    return hg_runtime_result(cuGraphLaunch(exec, stream));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return hg_runtime_result(cuGraphExecDestroy(exec));
}
