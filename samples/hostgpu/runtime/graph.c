/* Stream capture and graphs: the driver's, under the runtime's names. */
#include "runtime.h"

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    return hg_runtime_result(cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode));
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

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return hg_runtime_result(cuGraphExecDestroy(exec));
}
