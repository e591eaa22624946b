/* A libnccl for test-marks.c: notes its launches between the marks, and is asked to say InProgress. */
#include <nccl.h>

#include <stddef.h>
#include <string.h>

#include "../../bench/stub-cuda.h"
#include "marks-nccl.h"

#define PUBLIC __attribute__((visibility("default")))

PUBLIC ncclResult_t marks_nccl_result = ncclSuccess, marks_nccl_async = ncclSuccess;

static _Thread_local int depth, queued;
static _Thread_local void *queue[64];

/* nccl.h declares some of them without a prototype. */
#define FUNCTION(name, ...)                                                                                  \
    PUBLIC ncclResult_t name(__VA_ARGS__);                                                                   \
    PUBLIC ncclResult_t name(__VA_ARGS__)

FUNCTION(ncclGetVersion, int *version)
{
    *version = 22809;
    return ncclSuccess;
}

FUNCTION(ncclCommInitRank, ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    (void)nranks;
    (void)id;
    *comm = (ncclComm_t)(uintptr_t)(0x1000000 + rank * 0x100); /* rank = device */
    return ncclSuccess;
}

FUNCTION(ncclCommCount, const ncclComm_t comm, int *count)
{
    (void)comm;
    *count = 8;
    return ncclSuccess;
}

FUNCTION(ncclCommUserRank, const ncclComm_t comm, int *rank)
{
    *rank = (int)((uintptr_t)comm >> 8 & 0xff);
    return ncclSuccess;
}

FUNCTION(ncclCommCuDevice, const ncclComm_t comm, int *device)
{
    return ncclCommUserRank(comm, device);
}

static ncclResult_t launch(void)
{
    for (int i = 0; i < queued; i++)
        stub_note(STUB_LAUNCH, queue[i], 0, 0);
    queued = 0;
    return marks_nccl_result;
}

FUNCTION(ncclAllReduce, const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
         ncclComm_t comm, cudaStream_t stream)
{
    (void)from, (void)to, (void)count, (void)type, (void)op, (void)comm;
    queue[queued++ % 64] = stream;
    return depth ? ncclSuccess : launch();
}

FUNCTION(ncclGroupStart, void)
{
    depth++;
    return ncclSuccess;
}

FUNCTION(ncclGroupEnd, void)
{
    return --depth ? ncclSuccess : launch();
}

FUNCTION(ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t *error)
{
    (void)comm;
    *error = marks_nccl_async;
    return ncclSuccess;
}
