/* Stream capture and graphs: the driver's, under the runtime's names. */
#include <cudaTypedefs.h>

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
    return hg_runtime_result(HG_DRIVER(PFN_cuGraphDestroy_v10000, "cuGraphDestroy", 10000, 0)(graph));
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
    return hg_runtime_result(HG_DRIVER(PFN_cuGraphInstantiateWithFlags_v11040, "cuGraphInstantiateWithFlags",
                                       11040, 0)(exec, graph, flags));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info)
{
    if (info)
        *info = (cudaGraphExecUpdateResultInfo){.result = cudaGraphExecUpdateSuccess};
    return hg_runtime_result(
        HG_DRIVER(PFN_cuGraphExecUpdate_v12000, "cuGraphExecUpdate", 12000, 0)(exec, graph, NULL));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return hg_runtime_result(HG_DRIVER(PFN_cuGraphExecDestroy_v10000, "cuGraphExecDestroy", 10000, 0)(exec));
}
