/* Memory that programs give to NCCL: allocations, registrations, windows; and the device-side communicator.
 */
#include "export.h"
#include "group.h"
#include "version.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- Registrations: the lab stages everything, so one is only a handle ---- */

ncclResult_t pncclCommRegister(const ncclComm_t comm, void *buffer, size_t bytes, void **handle)
{
    ncclResult_t result = lab_comm_check(comm, "ncclCommRegister");
    if (result == ncclSuccess && (!handle || !buffer || !bytes))
        result = lab_error(ncclInvalidArgument, "ncclCommRegister : buffer, size or handle is missing");
    if (result == ncclSuccess && !(*handle = malloc(1)))
        result = lab_error(ncclSystemError, "ncclCommRegister : no memory");
    return result;
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

/* ---- Windows ---- */

static void enter_window(struct ncclComm *c, struct lab_window *window)
{
    pthread_mutex_lock(&c->window_lock);
    window->index = c->next_window++;
    window->next = c->windows;
    c->windows = window;
    pthread_mutex_unlock(&c->window_lock);
}

static void remove_window(struct ncclComm *c, struct lab_window *window)
{
    pthread_mutex_lock(&c->window_lock);
    struct lab_window **link = &c->windows;
    while (*link && *link != window)
        link = &(*link)->next;
    if (*link)
        *link = window->next;
    pthread_mutex_unlock(&c->window_lock);
    free(window);
}

/* All ranks register their windows in the same order: the position names a window on every rank. It is there
 * before the barrier, because a peer may write into it right after. */
static ncclResult_t run_register(struct lab_job *job)
{
    struct ncclComm *c = job->state;
    struct lab_window *window = job->window;
    job->window = NULL; /* the communicator's from here on */
    enter_window(c, window);
    ncclResult_t result = lab_rma_serve(c);
    if (result == ncclSuccess && !lab_comm_host_barrier(c, 0, 0))
        result = lab_error(ncclInternalError, "aborted while waiting for other ranks to register a window");
    if (result == ncclSuccess)
        *job->new_window = (ncclWindow_t)(void *)window;
    else
        remove_window(c, window);
    return result;
}

static int known_window_flags(void)
{
    return NCCL_WIN_COLL_SYMMETRIC | (lab_nccl_version >= 22907 ? NCCL_WIN_STRICT_ORDERING : 0) |
           (lab_nccl_version >= 23203 ? NCCL_WIN_GIN_ONLY : 0);
}

static ncclResult_t add_register(ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window, int flags)
{
    struct lab_job job = {.run = run_register, .state = comm, .new_window = window};
    ncclResult_t result = lab_comm_check_idle(comm, "ncclCommWindowRegister");
    if (result == ncclSuccess && (!window || !buffer || !bytes))
        result = lab_error(ncclInvalidArgument, "ncclCommWindowRegister : buffer, size or window is missing");
    if (result == ncclSuccess && flags & ~known_window_flags())
        result =
            lab_error(ncclInvalidArgument, "ncclCommWindowRegister : unknown flags %#x", (unsigned)flags);
    if (result != ncclSuccess)
        return result;
    job.window = malloc(sizeof *job.window);
    if (!job.window)
        return lab_error(ncclSystemError, "ncclCommWindowRegister : no memory");
    *job.window = (struct lab_window){.buffer = buffer, .bytes = bytes};
    *window = NULL;
    result = lab_group_add_job(&job);
    if (result != ncclSuccess)
        free(job.window);
    return result;
}

ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window,
                                     int flags)
{
    lab_group_enter();
    return lab_group_leave(add_register(comm, buffer, bytes, window, flags));
}
LAB_EXPORT(ncclCommWindowRegister);

ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    ncclResult_t result = lab_comm_check(comm, "ncclCommWindowDeregister");
    if (result == ncclSuccess && window)
        remove_window(comm, (struct lab_window *)(void *)window);
    return result;
}
LAB_EXPORT(ncclCommWindowDeregister);

ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void **pointer)
{
    ncclResult_t result = lab_comm_check(comm, "ncclWinGetUserPtr");
    if (result == ncclSuccess && (!window || !pointer))
        result = lab_error(ncclInvalidArgument, "ncclWinGetUserPtr : window or output is missing");
    if (result == ncclSuccess)
        *pointer = ((struct lab_window *)(void *)window)->buffer;
    return result;
}
LAB_EXPORT(ncclWinGetUserPtr);

/* ---- Giving memory back for a while ---- */

ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags)
{
    ncclResult_t result = lab_comm_check_idle(comm, "ncclCommSuspend");
    if (result == ncclSuccess && flags != NCCL_SUSPEND_MEM)
        result = lab_error(ncclInvalidArgument, "ncclCommSuspend : flags %#x", (unsigned)flags);
    if (result == ncclSuccess && atomic_exchange(&comm->suspended, true))
        result = lab_error(ncclInvalidUsage, "ncclCommSuspend : suspended already");
    if (result == ncclSuccess)
        lab_comm_drain(comm);
    return result;
}
LAB_EXPORT(ncclCommSuspend);

ncclResult_t pncclCommResume(ncclComm_t comm)
{
    ncclResult_t result = lab_comm_check_idle(comm, "ncclCommResume");
    if (result == ncclSuccess && !atomic_exchange(&comm->suspended, false))
        result = lab_error(ncclInvalidUsage, "ncclCommResume : not suspended");
    return result;
}
LAB_EXPORT(ncclCommResume);

/* The region is what a communicator has of memory; it could all be given back. */
ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value)
{
    ncclResult_t result = lab_comm_check_idle(comm, "ncclCommMemStats");
    if (result == ncclSuccess && !value)
        result = lab_error(ncclInvalidArgument, "ncclCommMemStats : value argument is NULL");
    if (result != ncclSuccess)
        return result;
    switch (stat) {
    case ncclStatGpuMemSuspend:
    case ncclStatGpuMemTotal:
        *value = comm->region.bytes;
        return ncclSuccess;
    case ncclStatGpuMemSuspended:
        *value = atomic_load(&comm->suspended);
        return ncclSuccess;
    case ncclStatGpuMemPersist:
        *value = 0;
        return ncclSuccess;
    }
    return lab_error(ncclInvalidArgument, "ncclCommMemStats : no such statistic %d", (int)stat);
}
LAB_EXPORT(ncclCommMemStats);

/* ---- The device-side communicator: its host half only ----
 *
 * nccl_device.h declares these, in C++. No kernel runs here, so of the struct only what names the rank is
 * filled, at its place in the release that the library speaks as. */

ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void *requirements, void *device_comm);
ncclResult_t pncclDevCommCreate(ncclComm_t comm, const void *requirements, void *device_comm);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void *device_comm);
ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const void *device_comm);

ncclResult_t pncclDevCommCreate(ncclComm_t comm, const void *requirements, void *device_comm)
{
    ncclResult_t result = lab_comm_check_idle(comm, "ncclDevCommCreate");
    if (result == ncclSuccess && (!requirements || !device_comm))
        result = lab_error(ncclInvalidArgument, "ncclDevCommCreate : requirements or output is missing");
    if (result != ncclSuccess)
        return result;
    const int place[] = {comm->rank, comm->nranks};
    size_t versioning = lab_nccl_version >= 23004 ? 2 * sizeof(unsigned) : 0; /* magic and version */
    memcpy((char *)device_comm + versioning, place, sizeof place);
    return ncclSuccess;
}
LAB_EXPORT(ncclDevCommCreate);

ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const void *device_comm)
{
    ncclResult_t result = lab_comm_check(comm, "ncclDevCommDestroy");
    if (result == ncclSuccess && !device_comm)
        result = lab_error(ncclInvalidArgument, "ncclDevCommDestroy : no communicator");
    return result;
}
LAB_EXPORT(ncclDevCommDestroy);
