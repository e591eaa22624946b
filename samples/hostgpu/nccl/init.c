/* Making and ending communicators. */
#include "export.h"
#include "group.h"
#include "hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

ncclResult_t pncclGetUniqueId(ncclUniqueId *id)
{
    if (!id)
        return lab_error(ncclInvalidArgument, "GetUniqueId : id argument is NULL");
    memset(id, 0, sizeof *id);
    /* NCCL_COMM_ID fixes the meeting point for all; otherwise 8 random bytes, then what would be the address.
     */
    const char *fixed = getenv("NCCL_COMM_ID");
    if (fixed && *fixed) {
        snprintf(id->internal, sizeof id->internal, "%s", fixed);
        return ncclSuccess;
    }
    uint64_t magic;
    if (getrandom(&magic, sizeof magic, 0) != sizeof magic)
        return lab_error(ncclSystemError, "GetUniqueId : no random bytes");
    uint32_t pid = (uint32_t)getpid();
    memcpy(id->internal, &magic, sizeof magic);
    memcpy(id->internal + sizeof magic, &pid, sizeof pid);
    return ncclSuccess;
}
LAB_EXPORT(ncclGetUniqueId);

/* ---- Init ---- */

static struct lab_identity name_of(const ncclUniqueId *ids, int n)
{
    struct lab_identity identity;
    uint64_t state[2] = {1, 1};
    identity.id = lab_hash(LAB_HASH_START, ids, (size_t)n * sizeof *ids);
    lab_nccl_eat(state, ids, sizeof *ids);
    identity.hash = lab_nccl_digest(state);
    memcpy(&identity.magic, ids, sizeof identity.magic);
    return identity;
}

static ncclResult_t run_join(struct lab_job *job)
{
    struct ncclComm *comm = job->state;
    ncclResult_t result = lab_comm_join(comm);
    if (result != ncclSuccess && !comm->config.nonblocking && !lab_comm_is_aborted(comm)) {
        /* Nobody has the handle yet: the job's reference is the last. */
        *job->newcomm = NULL;
        lab_comm_unref(comm);
    }
    return result;
}

ncclResult_t lab_init_rank(ncclComm_t *newcomm, int nranks, int rank, const struct lab_identity *identity,
                           const ncclConfig_t *config, const char *name)
{
    struct lab_job job = {.run = run_join, .newcomm = newcomm};
    if (!newcomm)
        return lab_error(ncclInvalidArgument, "%s : newcomm argument is NULL", name);
    *newcomm = NULL;
    if (nranks < 1 || rank < 0 || rank >= nranks)
        return lab_error(ncclInvalidArgument, "%s : invalid rank requested : %d/%d", name, rank, nranks);
    ncclResult_t result = lab_config_read(config, NULL, &job.config);
    if (result == ncclSuccess)
        result = lab_comm_new(&job.state, nranks, rank, identity, &job.config);
    if (result != ncclSuccess)
        return result;
    result = lab_group_add_job(&job);
    if (result != ncclSuccess) {
        lab_comm_unref(job.state);
        return result;
    }
    *newcomm = job.state; /* early, as NCCL does: so that it can be aborted while it waits */
    return ncclSuccess;
}

ncclResult_t pncclCommInitRank(ncclComm_t *newcomm, int nranks, ncclUniqueId id, int rank)
{
    struct lab_identity identity = name_of(&id, 1);
    lab_group_enter();
    return lab_group_leave(lab_init_rank(newcomm, nranks, rank, &identity, NULL, "ncclCommInitRank"));
}
LAB_EXPORT(ncclCommInitRank);

ncclResult_t pncclCommInitRankConfig(ncclComm_t *newcomm, int nranks, ncclUniqueId id, int rank,
                                     ncclConfig_t *config)
{
    struct lab_identity identity = name_of(&id, 1);
    lab_group_enter();
    ncclResult_t result =
        lab_group_leave(lab_init_rank(newcomm, nranks, rank, &identity, config, "ncclCommInitRankConfig"));
    return newcomm ? lab_settle(*newcomm, result) : result;
}
LAB_EXPORT(ncclCommInitRankConfig);

ncclResult_t pncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int rank, int nids, ncclUniqueId *ids,
                                       ncclConfig_t *config)
{
    const char *name = "ncclCommInitRankScalable";
    if (nids < 1 || nids > nranks || !ids)
        return lab_error(ncclInvalidArgument, "%s : %d ids for %d ranks", name, nids, nranks);
    struct lab_identity identity = name_of(ids, nids);
    lab_group_enter();
    ncclResult_t result = lab_group_leave(lab_init_rank(newcomm, nranks, rank, &identity, config, name));
    return newcomm ? lab_settle(*newcomm, result) : result;
}
LAB_EXPORT(ncclCommInitRankScalable);

static ncclResult_t init_all(ncclComm_t *comms, int ndev, const int *devices)
{
    ncclUniqueId id;
    ncclResult_t result = ncclGetUniqueId(&id);
    struct lab_identity identity = name_of(&id, 1);
    int before = hg_current_device();
    for (int i = 0; i < ndev && result == ncclSuccess; i++) {
        int device = devices ? devices[i] : i;
        if (hg_set_current_device(device) != CUDA_SUCCESS)
            result = lab_error(ncclInvalidArgument, "ncclCommInitAll : invalid device %d", device);
        for (int j = 0; j < i && devices && result == ncclSuccess; j++)
            if (devices[j] == device)
                result = lab_error(ncclInvalidUsage, "ncclCommInitAll : device %d twice", device);
        if (result == ncclSuccess)
            result = lab_init_rank(&comms[i], ndev, i, &identity, NULL, "ncclCommInitAll");
    }
    hg_set_current_device(before);
    return result;
}

ncclResult_t pncclCommInitAll(ncclComm_t *comms, int ndev, const int *devices)
{
    if (!comms || ndev < 1 || ndev > hg_device_count())
        return lab_error(ncclInvalidArgument, "ncclCommInitAll : invalid device count %d", ndev);
    lab_group_enter();
    return lab_group_leave(init_all(comms, ndev, devices));
}
LAB_EXPORT(ncclCommInitAll);

/* ---- The end ---- */

static ncclResult_t run_finalize(struct lab_job *job)
{
    lab_comm_drain(job->state);
    if (hg_number_from_environment("HOSTGPU_FINALIZE_BARRIER", 0) && !lab_comm_host_barrier(job->state, 0, 0))
        return lab_error(ncclInternalError, "aborted while finalizing");
    return ncclSuccess;
}

static ncclResult_t add_finalize(ncclComm_t comm)
{
    struct lab_job job = {.run = run_finalize, .state = comm};
    ncclResult_t result = lab_comm_check_idle(comm, "ncclCommFinalize");
    if (result == ncclSuccess && (atomic_load(&comm->revoked) || atomic_exchange(&comm->finalized, true)))
        result = lab_error(ncclInvalidArgument, "ncclCommFinalize : comm is finalized or revoked already");
    return result == ncclSuccess ? lab_group_add_job(&job) : result;
}

ncclResult_t pncclCommFinalize(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    lab_group_enter();
    return lab_settle(comm, lab_group_leave(add_finalize(comm)));
}
LAB_EXPORT(ncclCommFinalize);

ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    ncclResult_t result = lab_comm_check(comm, "ncclCommDestroy");
    if (result != ncclSuccess)
        return result;
    /* No barrier: a thread may destroy the ranks of one communicator one after another. */
    lab_comm_wait_graphs(comm);
    lab_comm_wait_jobs(comm);
    lab_comm_drain(comm);
    lab_profiler_close(comm);
    lab_comm_unref(comm);
    return ncclSuccess;
}
LAB_EXPORT(ncclCommDestroy);

ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    ncclResult_t result = lab_comm_check(comm, "ncclCommAbort");
    if (result != ncclSuccess)
        return result;
    /* What is queued keeps a reference and ends at once when its turn comes. */
    lab_comm_abort(comm);
    lab_comm_wait_jobs(comm);
    lab_profiler_close(comm);
    lab_comm_unref(comm);
    return ncclSuccess;
}
LAB_EXPORT(ncclCommAbort);

static ncclResult_t run_revoke(struct lab_job *job)
{
    lab_comm_drain(job->state);
    return ncclSuccess;
}

ncclResult_t pncclCommRevoke(ncclComm_t comm, int flags)
{
    ncclResult_t result = lab_comm_check(comm, "ncclCommRevoke");
    if (result != ncclSuccess)
        return result;
    if (flags != NCCL_REVOKE_DEFAULT)
        return lab_error(ncclInvalidArgument, "ncclCommRevoke : flags must be NCCL_REVOKE_DEFAULT");
    result = lab_comm_stop(comm, "ncclCommRevoke");
    if (result != ncclSuccess)
        return result;
    struct lab_job job = {.run = run_revoke, .state = comm};
    lab_group_enter();
    return lab_settle(comm, lab_group_leave(lab_group_add_job(&job)));
}
LAB_EXPORT(ncclCommRevoke);
