/*
 * A libnccl that does nothing, for measuring the recorder and for unit tests of it: every call
 * succeeds at once, so that NCCL's own time hides nothing. Communicators are bare handles that
 * know rank and size. Built as libnccl.so.2; every name comes from recorder-inject/nccl-api.def.
 *
 * STUB_NCCL_VERSION overrides the version that ncclGetVersion tells; STUB_NCCL_BLOCK_MS makes
 * ncclCommFinalize take that long.
 */
#include "nccl-compat.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

struct ncclComm {
    int rank, nranks, device;
};

static struct ncclComm *make(int rank, int nranks)
{
    struct ncclComm *comm = calloc(1, sizeof(*comm));
    if (comm) {
        comm->rank = rank;
        comm->nranks = nranks;
    }
    return comm;
}

PUBLIC ncclResult_t ncclGetVersion(int *version)
{
    const char *text = getenv("STUB_NCCL_VERSION");
    *version = text ? atoi(text) : 22809;
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    *count = comm->nranks;
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    *device = comm->device;
    return ncclSuccess;
}

static void block(void)
{
    const char *text = getenv("STUB_NCCL_BLOCK_MS");
    if (text)
        usleep((useconds_t)atoi(text) * 1000);
}

/* What a call of each role does; most do nothing. */
#ifndef DO_COLL /* a second library, that answers otherwise, can be built for tests */
#define DO_COLL(kind, count, datatype, ...) REFUSE_UNKNOWN(datatype)
#endif
#define DO_P2P(kind, count, datatype, ...) REFUSE_UNKNOWN(datatype)
#define REFUSE_UNKNOWN(datatype)                                                                             \
    if ((unsigned)(datatype) >= ncclNumTypes)                                                                \
        return ncclInvalidArgument;
#define DO_RMA(...)
#define DO_WAIT(...)
#define DO_CALL(...)
#define DO_TEARDOWN(...) block();
#define DO_GROUP_START(...)
#define DO_GROUP_END(...)
#define DO_REDOP_DESTROY(...)
#ifndef DO_INIT
#define DO_INIT(kind, out, nranks, id, rank, settings) *(out) = make(rank, nranks);
#endif
#define DO_INIT_ALL(out, ndev, devices)                                                                      \
    for (int i = 0; i < (ndev); i++)                                                                         \
        (out)[i] = make(i, ndev);
#define DO_SPLIT(comm, color, key, out, settings)                                                            \
    *(out) = (color) == NCCL_SPLIT_NOCOLOR ? NULL : make((comm)->rank, (comm)->nranks);
#define DO_SHRINK(comm, excluded, count, out, settings, flags)                                               \
    *(out) = make((comm)->rank, (comm)->nranks - (count));
#define DO_GROW(comm, nranks, id, rank, out, settings)                                                       \
    *(out) = make((rank) < 0 ? (comm)->rank : (rank), nranks);
#define DO_RELEASE(kind, comm)      free(comm);
#define DO_ASYNC_ERROR(comm, error) *(error) = ncclSuccess;
#define DO_REDOP_CREATE(op, ...)    *(op) = (ncclRedOp_t)5;

#define NCCL_API(name, since, params, args, role)                                                            \
    PUBLIC ncclResult_t name params;                                                                         \
    PUBLIC ncclResult_t name params                                                                          \
    {                                                                                                        \
        DO_##role return ncclSuccess;                                                                        \
    }
#include "nccl-api.def"
