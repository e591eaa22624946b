/* Calls of one-sided operations; rma.c runs them. */
#include "export.h"
#include "group.h"

#include <stdlib.h>

static ncclResult_t check_signal(int signal, int context, const char *name)
{
    if (signal < 0 || signal >= LAB_RMA_SIGNALS || context < 0 || context >= LAB_RMA_CONTEXTS)
        return lab_error(ncclInvalidArgument, "%s : no signal %d in context %d", name, signal, context);
    return ncclSuccess;
}

ncclResult_t pncclPutSignal(const void *local, size_t count, ncclDataType_t type, int peer,
                            ncclWindow_t peer_window, size_t offset, int signal, int context, unsigned flags,
                            ncclComm_t comm, cudaStream_t stream)
{
    const struct lab_window *window = (const struct lab_window *)(void *)peer_window;
    ncclResult_t result = check_signal(signal, context, "PutSignal");
    if (result == ncclSuccess && (!window || flags || (count && !local)))
        result = lab_error(ncclInvalidArgument, "PutSignal : window or source is missing, or flags are set");
    if (result != ncclSuccess)
        return lab_group_refuse(result);
    struct lab_op op = {LAB_PUT_SIGNAL, local, NULL, count, type, .peer = peer, .window = window->index};
    op.offset = offset;
    op.signal = (unsigned)signal;
    op.context = (unsigned)context;
    return lab_enqueue(comm, &op, 1, ncclSum, stream, "PutSignal");
}
LAB_EXPORT(ncclPutSignal);

ncclResult_t pncclSignal(int peer, int signal, int context, unsigned flags, ncclComm_t comm,
                         cudaStream_t stream)
{
    ncclResult_t result = check_signal(signal, context, "Signal");
    if (result == ncclSuccess && flags)
        result = lab_error(ncclInvalidArgument, "Signal : flags are reserved");
    if (result != ncclSuccess)
        return lab_group_refuse(result);
    struct lab_op op = {.kind = LAB_SIGNAL, .peer = peer, .datatype = ncclInt8};
    op.signal = (unsigned)signal;
    op.context = (unsigned)context;
    return lab_enqueue(comm, &op, 1, ncclSum, stream, "Signal");
}
LAB_EXPORT(ncclSignal);

static ncclResult_t read_wait(const ncclWaitSignalDesc_t *from, struct lab_op *to)
{
    ncclResult_t result = check_signal(from->sigIdx, from->ctx, "WaitSignal");
    if (result == ncclSuccess && from->opCnt < 0)
        result = lab_error(ncclInvalidArgument, "WaitSignal : %d signals", from->opCnt);
    *to = (struct lab_op){.kind = LAB_WAIT_SIGNAL, .peer = from->peer, .datatype = ncclInt8};
    to->count = (size_t)from->opCnt;
    to->signal = (unsigned)from->sigIdx;
    to->context = (unsigned)from->ctx;
    return result;
}

ncclResult_t pncclWaitSignal(int n, ncclWaitSignalDesc_t *what, ncclComm_t comm, cudaStream_t stream)
{
    if (n < 0 || (n && !what))
        return lab_group_refuse(lab_error(ncclInvalidArgument, "WaitSignal : no descriptors"));
    struct lab_op *ops = calloc((size_t)n + 1, sizeof *ops);
    ncclResult_t result = ops ? ncclSuccess : lab_error(ncclSystemError, "WaitSignal : no memory");
    for (int i = 0; i < n && result == ncclSuccess; i++)
        result = read_wait(&what[i], &ops[i]);
    result = result == ncclSuccess ? lab_enqueue(comm, ops, (size_t)n, ncclSum, stream, "WaitSignal")
                                   : lab_group_refuse(result);
    free(ops);
    return result;
}
LAB_EXPORT(ncclWaitSignal);
