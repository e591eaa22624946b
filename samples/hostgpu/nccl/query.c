/* Questions about the library and a communicator. */
#include "comm.h"
#include "export.h"
#include "version.h"

ncclResult_t pncclGetVersion(int *version)
{
    if (!version)
        return lab_error(ncclInvalidArgument, "ncclGetVersion : version argument is NULL");
    *version = lab_nccl_version;
    return ncclSuccess;
}
LAB_EXPORT(ncclGetVersion);

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    ncclResult_t checked = lab_comm_check(comm, "ncclCommGetAsyncError");
    if (checked == ncclSuccess && !result)
        checked = lab_error(ncclInvalidArgument, "ncclCommGetAsyncError : asyncError argument is NULL");
    if (checked == ncclSuccess)
        *result = (ncclResult_t)atomic_load(&comm->async_result);
    return checked;
}
LAB_EXPORT(ncclCommGetAsyncError);

static ncclResult_t answer(const struct ncclComm *comm, int *out, int value_if_valid(const struct ncclComm *),
                           const char *name)
{
    ncclResult_t result = lab_comm_check(comm, name);
    if (result == ncclSuccess && !out)
        result = lab_error(ncclInvalidArgument, "%s : result argument is NULL", name);
    if (result == ncclSuccess && atomic_load(&comm->async_result) == ncclInProgress)
        result = lab_error(ncclInvalidArgument, "%s : communicator is not ready", name);
    if (result == ncclSuccess)
        *out = value_if_valid(comm);
    return result;
}

static int count_of(const struct ncclComm *comm)
{
    return comm->nranks;
}

static int rank_of(const struct ncclComm *comm)
{
    return comm->rank;
}

static int device_of(const struct ncclComm *comm)
{
    return comm->device;
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int *count)
{
    return answer(comm, count, count_of, "ncclCommCount");
}
LAB_EXPORT(ncclCommCount);

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return answer(comm, rank, rank_of, "ncclCommUserRank");
}
LAB_EXPORT(ncclCommUserRank);

ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return answer(comm, device, device_of, "ncclCommCuDevice");
}
LAB_EXPORT(ncclCommCuDevice);
