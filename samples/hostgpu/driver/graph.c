/* Graphs. */
#include "driver.h"

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = hg_capture_exchange_mode(*mode);
    return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned flags)
{
    return graph && !flags ? hg_graph_new(graph) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    hg_graph_free(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    (void)flags;
    return exec && graph ? hg_graph_instantiate(exec, graph) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    if (!exec || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    if (info)
        *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
    return hg_graph_update(exec, graph);
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    hg_graph_exec_free(exec);
    return CUDA_SUCCESS;
}
