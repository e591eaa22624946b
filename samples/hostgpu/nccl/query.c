/* Questions about a communicator, and memory for it. */
#include "comm.h"
#include "export.h"

#include <stdlib.h>

ncclResult_t pncclGetVersion(int *version)
{
    if (!version)
        return lab_error(ncclInvalidArgument, "ncclGetVersion : version argument is NULL");
    *version = NCCL_VERSION_CODE;
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

/* ---- Registered memory: the lab stages everything, so a registration is only a handle ---- */

struct registration {
    void *buffer;
    size_t bytes;
};

static ncclResult_t make_registration(const struct ncclComm *comm, void *buffer, size_t bytes, void **handle,
                                      const char *name)
{
    ncclResult_t result = lab_comm_check(comm, name);
    if (result == ncclSuccess && (!handle || !buffer || !bytes))
        result = lab_error(ncclInvalidArgument, "%s : buffer, size or handle is missing", name);
    if (result != ncclSuccess)
        return result;
    struct registration *made = malloc(sizeof *made);
    if (!made)
        return lab_error(ncclSystemError, "%s : no memory", name);
    *made = (struct registration){buffer, bytes};
    *handle = made;
    return ncclSuccess;
}

ncclResult_t pncclCommRegister(const ncclComm_t comm, void *buffer, size_t bytes, void **handle)
{
    return make_registration(comm, buffer, bytes, handle, "ncclCommRegister");
}
LAB_EXPORT(ncclCommRegister);

ncclResult_t pncclCommDeregister(const ncclComm_t comm, void *handle)
{
    ncclResult_t result = lab_comm_check(comm, "ncclCommDeregister");
    if (result == ncclSuccess)
        free(handle);
    return result;
}
LAB_EXPORT(ncclCommDeregister);

ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window,
                                     int flags)
{
    if (flags & ~NCCL_WIN_COLL_SYMMETRIC)
        return lab_error(ncclInvalidArgument, "ncclCommWindowRegister : unknown flags %#x", (unsigned)flags);
    return make_registration(comm, buffer, bytes, (void **)window, "ncclCommWindowRegister");
}
LAB_EXPORT(ncclCommWindowRegister);

ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    ncclResult_t result = lab_comm_check(comm, "ncclCommWindowDeregister");
    if (result == ncclSuccess)
        free(window);
    return result;
}
LAB_EXPORT(ncclCommWindowDeregister);

ncclResult_t pncclMemAlloc(void **pointer, size_t bytes)
{
    if (!pointer)
        return lab_error(ncclInvalidArgument, "ncclMemAlloc : ptr argument is NULL");
    CUresult result = hg_memory_alloc(pointer, bytes, hg_current_device(), HG_MEMORY_DEVICE);
    return result == CUDA_SUCCESS
               ? ncclSuccess
               : lab_error(ncclUnhandledCudaError, "ncclMemAlloc : no memory for %zu bytes", bytes);
}
LAB_EXPORT(ncclMemAlloc);

ncclResult_t pncclMemFree(void *pointer)
{
    CUresult result = hg_memory_free(pointer, HG_MEMORY_DEVICE);
    return result == CUDA_SUCCESS ? ncclSuccess
                                  : lab_error(ncclInvalidArgument, "ncclMemFree : unknown pointer");
}
LAB_EXPORT(ncclMemFree);
