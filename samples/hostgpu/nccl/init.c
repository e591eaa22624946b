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

/* The caller's struct may be older or newer than ours: take the fields both have. */
static ncclResult_t read_config(const ncclConfig_t *from, const ncclConfig_t *inherited, ncclConfig_t *to)
{
    static const ncclConfig_t defaults = NCCL_CONFIG_INITIALIZER;
    *to = inherited ? *inherited : defaults;
    if (!from)
        return ncclSuccess;
    if (from->magic != defaults.magic || from->size < offsetof(ncclConfig_t, cgaClusterSize))
        return lab_error(ncclInvalidArgument,
                         "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    *to = defaults;
    memcpy(to, from, from->size < sizeof *to ? from->size : sizeof *to);
    to->size = sizeof *to;
    to->netName = to->commName = NULL; /* the caller's strings need not outlive the call */
    if (to->blocking != NCCL_CONFIG_UNDEF_INT && to->blocking != 0 && to->blocking != 1)
        return lab_error(ncclInvalidArgument, "Invalid config blocking attribute value %d", to->blocking);
    return ncclSuccess;
}

/* What a call on a non-blocking communicator returns, asked through the public name as the real library does:
 * an interposer sees the question. */
static ncclResult_t settle(ncclComm_t comm, ncclResult_t result)
{
    if (result == ncclInProgress)
        (void)ncclCommGetAsyncError(comm, &result);
    return result;
}

/* ---- Init ---- */

static ncclResult_t run_join(struct lab_job *job)
{
    struct ncclComm *comm = job->state;
    ncclResult_t result = lab_comm_join(comm);
    if (result != ncclSuccess && comm->blocking && !lab_comm_is_aborted(comm)) {
        /* Nobody has the handle yet: the job's reference is the last. */
        *job->newcomm = NULL;
        lab_comm_unref(comm);
    }
    return result;
}

static ncclResult_t init_rank(ncclComm_t *newcomm, int nranks, int rank, uint64_t id,
                              const ncclConfig_t *config, const char *name)
{
    struct lab_job job = {.run = run_join, .newcomm = newcomm};
    if (!newcomm)
        return lab_error(ncclInvalidArgument, "%s : newcomm argument is NULL", name);
    *newcomm = NULL;
    if (nranks < 1 || rank < 0 || rank >= nranks)
        return lab_error(ncclInvalidArgument, "%s : invalid rank requested : %d/%d", name, rank, nranks);
    ncclResult_t result = read_config(config, NULL, &job.config);
    if (result == ncclSuccess)
        result = lab_comm_new(&job.state, nranks, rank, id, &job.config);
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
    uint64_t hash = lab_hash(LAB_HASH_START, &id, sizeof id);
    lab_group_enter();
    return lab_group_leave(init_rank(newcomm, nranks, rank, hash, NULL, "ncclCommInitRank"));
}
LAB_EXPORT(ncclCommInitRank);

ncclResult_t pncclCommInitRankConfig(ncclComm_t *newcomm, int nranks, ncclUniqueId id, int rank,
                                     ncclConfig_t *config)
{
    uint64_t hash = lab_hash(LAB_HASH_START, &id, sizeof id);
    lab_group_enter();
    ncclResult_t result =
        lab_group_leave(init_rank(newcomm, nranks, rank, hash, config, "ncclCommInitRankConfig"));
    return newcomm ? settle(*newcomm, result) : result;
}
LAB_EXPORT(ncclCommInitRankConfig);

ncclResult_t pncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int rank, int nids, ncclUniqueId *ids,
                                       ncclConfig_t *config)
{
    const char *name = "ncclCommInitRankScalable";
    if (nids < 1 || nids > nranks || !ids)
        return lab_error(ncclInvalidArgument, "%s : %d ids for %d ranks", name, nids, nranks);
    uint64_t hash = lab_hash(LAB_HASH_START, ids, (size_t)nids * sizeof *ids);
    lab_group_enter();
    ncclResult_t result = lab_group_leave(init_rank(newcomm, nranks, rank, hash, config, name));
    return newcomm ? settle(*newcomm, result) : result;
}
LAB_EXPORT(ncclCommInitRankScalable);

static ncclResult_t init_all(ncclComm_t *comms, int ndev, const int *devices)
{
    ncclUniqueId id;
    ncclResult_t result = ncclGetUniqueId(&id);
    uint64_t hash = lab_hash(LAB_HASH_START, &id, sizeof id);
    int before = hg_current_device();
    for (int i = 0; i < ndev && result == ncclSuccess; i++) {
        int device = devices ? devices[i] : i;
        if (hg_set_current_device(device) != CUDA_SUCCESS)
            result = lab_error(ncclInvalidArgument, "ncclCommInitAll : invalid device %d", device);
        for (int j = 0; j < i && devices && result == ncclSuccess; j++)
            if (devices[j] == device)
                result = lab_error(ncclInvalidUsage, "ncclCommInitAll : device %d twice", device);
        if (result == ncclSuccess)
            result = init_rank(&comms[i], ndev, i, hash, NULL, "ncclCommInitAll");
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

/* ---- Children ---- */

static ncclResult_t make_child(struct lab_job *job)
{
    struct ncclComm *parent = job->state, *child;
    ncclResult_t result = lab_comm_new(&child, job->nranks, job->rank, job->id, &job->config);
    if (result != ncclSuccess)
        return result;
    child->device = parent->device;
    child->parent_aborted = &parent->aborted;
    result = lab_comm_join(child);
    child->parent_aborted = NULL;
    if (result == ncclSuccess)
        *job->newcomm = child;
    else
        lab_comm_unref(child);
    return result;
}

/* Rank and size in the group of the same colour: by key, then by parent rank. */
static void find_place(struct lab_job *job)
{
    struct ncclComm *parent = job->state;
    unsigned parity = (unsigned)parent->host_phase & 1;
    job->nranks = job->rank = 0;
    for (int r = 0; r < parent->nranks; r++) {
        struct lab_rank_words *words = lab_region_rank(&parent->region, r);
        int64_t color = atomic_load(&words->host[parity].first);
        int64_t key = atomic_load(&words->host[parity].second);
        if (color != job->color)
            continue;
        job->nranks++;
        if (key < job->key || (key == job->key && r < parent->rank))
            job->rank++;
    }
}

static ncclResult_t run_split(struct lab_job *job)
{
    if (!lab_comm_host_barrier(job->state, job->color, job->key))
        return lab_error(ncclInternalError, "aborted while waiting for other ranks to split");
    if (job->color == NCCL_SPLIT_NOCOLOR)
        return ncclSuccess;
    find_place(job);
    job->id = lab_hash(job->id, &job->color, sizeof job->color);
    return make_child(job);
}

/* Jobs on one communicator must not overlap. */
static ncclResult_t check_idle(struct ncclComm *comm, const char *name)
{
    ncclResult_t result = lab_comm_check(comm, name);
    if (result == ncclSuccess && atomic_load(&comm->async_result) == ncclInProgress)
        result = lab_error(ncclInvalidArgument,
                           "%s : attempt to use communicator before the previous operation "
                           "returned ncclSuccess",
                           name);
    return result;
}

static ncclResult_t add_split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                              const ncclConfig_t *config)
{
    struct lab_job job = {.run = run_split, .state = comm, .newcomm = newcomm, .color = color, .key = key};
    ncclResult_t result = check_idle(comm, "ncclCommSplit");
    if (result == ncclSuccess && !newcomm)
        result = lab_error(ncclInvalidArgument, "ncclCommSplit : newcomm argument is NULL");
    if (result == ncclSuccess && color < 0 && color != NCCL_SPLIT_NOCOLOR)
        result = lab_error(ncclInvalidArgument, "ncclCommSplit : invalid color %d", color);
    if (result == ncclSuccess)
        result = read_config(config, &comm->config, &job.config);
    if (result != ncclSuccess)
        return result;
    *newcomm = NULL;
    pthread_mutex_lock(&comm->lock);
    uint64_t ordinal = ++comm->splits;
    pthread_mutex_unlock(&comm->lock);
    job.id = lab_hash(lab_hash(comm->id, "split", 5), &ordinal, sizeof ordinal);
    return lab_group_add_job(&job);
}

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
    lab_group_enter();
    return lab_group_leave(add_split(comm, color, key, newcomm, config));
}
LAB_EXPORT(ncclCommSplit);

static ncclResult_t run_shrink(struct lab_job *job)
{
    return make_child(job);
}

/* Members after a shrink: everybody not listed. The list is part of the child's name, so ranks that
 * disagree about it never meet. */
static ncclResult_t add_shrink(ncclComm_t comm, const int *excluded, int nexcluded, ncclComm_t *newcomm,
                               const ncclConfig_t *config, int flags)
{
    struct lab_job job = {.run = run_shrink, .state = comm, .newcomm = newcomm};
    ncclResult_t result = check_idle(comm, "ncclCommShrink");
    if (result == ncclSuccess && (!newcomm || !excluded || nexcluded < 1))
        result = lab_error(ncclInvalidArgument, "ncclCommShrink : no list of ranks to exclude");
    if (result == ncclSuccess)
        result = read_config(config, &comm->config, &job.config);
    if (result != ncclSuccess)
        return result;
    pthread_mutex_lock(&comm->lock);
    uint64_t ordinal = ++comm->shrinks;
    pthread_mutex_unlock(&comm->lock);
    job.id = lab_hash(lab_hash(comm->id, "shrink", 6), &ordinal, sizeof ordinal);
    for (int r = 0; r < comm->nranks; r++) {
        bool out = false;
        for (int i = 0; i < nexcluded; i++)
            out |= excluded[i] == r;
        if (out && r == comm->rank)
            return lab_error(ncclInvalidArgument, "ncclCommShrink : called by excluded rank %d", r);
        if (out)
            continue;
        job.id = lab_hash(job.id, &r, sizeof r);
        job.rank += r < comm->rank;
        job.nranks++;
    }
    *newcomm = NULL;
    if (flags & NCCL_SHRINK_ABORT)
        lab_comm_revoke(comm);
    return lab_group_add_job(&job);
}

ncclResult_t pncclCommShrink(ncclComm_t comm, int *excluded, int nexcluded, ncclComm_t *newcomm,
                             ncclConfig_t *config, int flags)
{
    lab_group_enter();
    return lab_group_leave(add_shrink(comm, excluded, nexcluded, newcomm, config, flags));
}
LAB_EXPORT(ncclCommShrink);

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
    ncclResult_t result = check_idle(comm, "ncclCommFinalize");
    if (result == ncclSuccess && (atomic_load(&comm->revoked) || atomic_exchange(&comm->finalized, true)))
        result = lab_error(ncclInvalidArgument, "ncclCommFinalize : comm is finalized or revoked already");
    return result == ncclSuccess ? lab_group_add_job(&job) : result;
}

ncclResult_t pncclCommFinalize(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    lab_group_enter();
    return settle(comm, lab_group_leave(add_finalize(comm)));
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
    lab_comm_unref(comm);
    return ncclSuccess;
}
LAB_EXPORT(ncclCommAbort);

ncclResult_t pncclCommRevoke(ncclComm_t comm, int flags)
{
    ncclResult_t result = lab_comm_check(comm, "ncclCommRevoke");
    if (result != ncclSuccess)
        return result;
    if (flags != NCCL_REVOKE_DEFAULT)
        return lab_error(ncclInvalidArgument, "ncclCommRevoke : flags must be NCCL_REVOKE_DEFAULT");
    lab_comm_revoke(comm);
    return ncclSuccess;
}
LAB_EXPORT(ncclCommRevoke);
