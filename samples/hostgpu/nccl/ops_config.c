/* The collectives with a configuration of the single call. */
#include "export.h"
#include "group.h"

static ncclResult_t enqueue(ncclComm_t c, struct lab_op op, ncclRedOp_t redop, cudaStream_t stream,
                            const ncclCollConfig_t *config, const char *name)
{
    ncclResult_t result = lab_coll_config_read(config, &op.launched, name);
    return result == ncclSuccess ? lab_enqueue(c, &op, 1, redop, stream, name) : lab_group_refuse(result);
}

ncclResult_t pncclAllReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclRedOp_t redop, ncclComm_t comm, cudaStream_t stream,
                                  const ncclCollConfig_t *config)
{
    struct lab_op op = {LAB_ALL_REDUCE, send, recv, count, type, .peer = 0};
    return enqueue(comm, op, redop, stream, config, "AllReduceConfig");
}
LAB_EXPORT(ncclAllReduceConfig);

ncclResult_t pncclBroadcastConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                  ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    struct lab_op op = {LAB_BROADCAST, send, recv, count, type, .peer = root};
    return enqueue(comm, op, ncclSum, stream, config, "BroadcastConfig");
}
LAB_EXPORT(ncclBroadcastConfig);

ncclResult_t pncclReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t redop, int root, ncclComm_t comm, cudaStream_t stream,
                               const ncclCollConfig_t *config)
{
    struct lab_op op = {LAB_REDUCE, send, recv, count, type, .peer = root};
    return enqueue(comm, op, redop, stream, config, "ReduceConfig");
}
LAB_EXPORT(ncclReduceConfig);

ncclResult_t pncclAllGatherConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    struct lab_op op = {LAB_ALL_GATHER, send, recv, count, type, .peer = 0};
    return enqueue(comm, op, ncclSum, stream, config, "AllGatherConfig");
}
LAB_EXPORT(ncclAllGatherConfig);

ncclResult_t pncclReduceScatterConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                      ncclRedOp_t redop, ncclComm_t comm, cudaStream_t stream,
                                      const ncclCollConfig_t *config)
{
    struct lab_op op = {LAB_REDUCE_SCATTER, send, recv, count, type, .peer = 0};
    return enqueue(comm, op, redop, stream, config, "ReduceScatterConfig");
}
LAB_EXPORT(ncclReduceScatterConfig);

ncclResult_t pncclAlltoAllConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    struct lab_op op = {LAB_ALL_TO_ALL, send, recv, count, type, .peer = 0};
    return enqueue(comm, op, ncclSum, stream, config, "AlltoAllConfig");
}
LAB_EXPORT(ncclAlltoAllConfig);

ncclResult_t pncclGatherConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    struct lab_op op = {LAB_GATHER, send, recv, count, type, .peer = root};
    return enqueue(comm, op, ncclSum, stream, config, "GatherConfig");
}
LAB_EXPORT(ncclGatherConfig);

ncclResult_t pncclScatterConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    struct lab_op op = {LAB_SCATTER, send, recv, count, type, .peer = root};
    return enqueue(comm, op, ncclSum, stream, config, "ScatterConfig");
}
LAB_EXPORT(ncclScatterConfig);
