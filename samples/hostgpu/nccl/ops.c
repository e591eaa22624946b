/* The operations: check the arguments, add to the group. */
#include "export.h"
#include "group.h"
#include "redop.h"
#include "reduce.h"

#include <stdint.h>

static ncclResult_t check_ready(ncclComm_t c, const char *name)
{
    ncclResult_t result = lab_comm_check(c, name), state = ncclSuccess;
    if (result == ncclSuccess)
        /* Through the public name, as in the real library: an interposer sees this call. */
        result = ncclCommGetAsyncError(c, &state);
    if (result != ncclSuccess)
        return result;
    if (atomic_load(&c->aborted) || atomic_load(&c->revoked) || atomic_load(&c->finalized))
        return lab_error(ncclInvalidUsage, "%s : communicator was aborted, revoked or finalized", name);
    if (atomic_load(&c->suspended))
        return lab_error(ncclInvalidUsage, "%s : communicator is suspended", name);
    if (state == ncclInProgress)
        return lab_error(ncclInvalidArgument,
                         "%s : attempt to use communicator before the previous operation "
                         "returned ncclSuccess",
                         name);
    return state;
}

static ncclResult_t check_op(ncclComm_t c, const struct lab_op *op, const char *name)
{
    size_t size = lab_type_size(op->datatype);
    if (!size)
        return lab_error(ncclInvalidArgument, "%s : invalid type %d", name, (int)op->datatype);
    if (op->count > SIZE_MAX / 4 / size / (size_t)c->nranks)
        return lab_error(ncclInvalidArgument, "%s : count %zu is too large", name, op->count);
    if (op->peer < 0 || op->peer >= c->nranks)
        return lab_error(ncclInvalidArgument, "%s : invalid root or peer %d (nranks %d)", name, op->peer,
                         c->nranks);
    return ncclSuccess;
}

static ncclResult_t check_call(ncclComm_t c, struct lab_op *ops, size_t n, ncclRedOp_t redop,
                               const char *name)
{
    ncclResult_t result = check_ready(c, name);
    for (size_t i = 0; i < n && result == ncclSuccess; i++)
        result = check_op(c, &ops[i], name);
    for (size_t i = 0; i < n && result == ncclSuccess; i++)
        result = lab_redop_resolve(c, redop, ops[i].datatype, &ops[i].redop, name);
    return result;
}

static ncclResult_t add(ncclComm_t c, struct lab_op *ops, size_t n, ncclRedOp_t redop, cudaStream_t handle,
                        const char *name)
{
    CUstream stream;
    ncclResult_t result = check_call(c, ops, n, redop, name);
    if (result != ncclSuccess)
        return result;
    /* The default stream means the communicator's device, whatever the calling thread's current one is. */
    if (hg_stream_resolve(handle, c->device, &stream) != CUDA_SUCCESS)
        return lab_error(ncclInvalidArgument, "%s : invalid stream", name);
    if (n == 0 || (ops->count == 0 && ops->kind < LAB_SEND))
        return ncclSuccess; /* dropped before launch, as in NCCL */
    pthread_mutex_lock(&c->lock);
    unsigned ordinal = ++c->op_count;
    pthread_mutex_unlock(&c->lock);
    for (size_t i = 0; i < n && result == ncclSuccess; i++) {
        ops[i].ordinal = ordinal;
        result = lab_group_add_op(c, stream, &ops[i]);
    }
    return result;
}

ncclResult_t lab_enqueue(ncclComm_t c, struct lab_op *ops, size_t n, ncclRedOp_t redop, cudaStream_t stream,
                         const char *name)
{
    lab_group_enter();
    return lab_settle(c, lab_group_leave(add(c, ops, n, redop, stream, name)));
}

static ncclResult_t enqueue(ncclComm_t c, struct lab_op op, ncclRedOp_t redop, cudaStream_t stream,
                            const char *name)
{
    return lab_enqueue(c, &op, 1, redop, stream, name);
}

ncclResult_t pncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                            ncclRedOp_t redop, ncclComm_t comm, cudaStream_t stream)
{
    struct lab_op op = {LAB_ALL_REDUCE, send, recv, count, type, .peer = 0};
    return enqueue(comm, op, redop, stream, "AllReduce");
}
LAB_EXPORT(ncclAllReduce);

ncclResult_t pncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                            ncclComm_t comm, cudaStream_t stream)
{
    struct lab_op op = {LAB_BROADCAST, send, recv, count, type, .peer = root};
    return enqueue(comm, op, ncclSum, stream, "Broadcast");
}
LAB_EXPORT(ncclBroadcast);

ncclResult_t pncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream)
{
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
LAB_EXPORT(ncclBcast);

ncclResult_t pncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t redop,
                         int root, ncclComm_t comm, cudaStream_t stream)
{
    struct lab_op op = {LAB_REDUCE, send, recv, count, type, .peer = root};
    return enqueue(comm, op, redop, stream, "Reduce");
}
LAB_EXPORT(ncclReduce);

ncclResult_t pncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                            cudaStream_t stream)
{
    struct lab_op op = {LAB_ALL_GATHER, send, recv, count, type, .peer = 0};
    return enqueue(comm, op, ncclSum, stream, "AllGather");
}
LAB_EXPORT(ncclAllGather);

ncclResult_t pncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                                ncclRedOp_t redop, ncclComm_t comm, cudaStream_t stream)
{
    struct lab_op op = {LAB_REDUCE_SCATTER, send, recv, count, type, .peer = 0};
    return enqueue(comm, op, redop, stream, "ReduceScatter");
}
LAB_EXPORT(ncclReduceScatter);

ncclResult_t pncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    struct lab_op op = {LAB_ALL_TO_ALL, send, recv, count, type, .peer = 0};
    return enqueue(comm, op, ncclSum, stream, "AlltoAll");
}
LAB_EXPORT(ncclAlltoAll);

ncclResult_t pncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream)
{
    struct lab_op op = {LAB_GATHER, send, recv, count, type, .peer = root};
    return enqueue(comm, op, ncclSum, stream, "Gather");
}
LAB_EXPORT(ncclGather);

ncclResult_t pncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                          ncclComm_t comm, cudaStream_t stream)
{
    struct lab_op op = {LAB_SCATTER, send, recv, count, type, .peer = root};
    return enqueue(comm, op, ncclSum, stream, "Scatter");
}
LAB_EXPORT(ncclScatter);

ncclResult_t pncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                       cudaStream_t stream)
{
    struct lab_op op = {LAB_SEND, send, NULL, count, type, .peer = peer};
    return enqueue(comm, op, ncclSum, stream, "Send");
}
LAB_EXPORT(ncclSend);

ncclResult_t pncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                       cudaStream_t stream)
{
    struct lab_op op = {LAB_RECV, NULL, recv, count, type, .peer = peer};
    return enqueue(comm, op, ncclSum, stream, "Recv");
}
LAB_EXPORT(ncclRecv);
