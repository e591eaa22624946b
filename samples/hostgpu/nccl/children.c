/* Communicators made from others: split, shrink, grow. */
#include "export.h"
#include "group.h"
#include "hash.h"

#include <string.h>

static ncclResult_t make_child(struct lab_job *job)
{
    struct ncclComm *parent = job->state, *child;
    ncclResult_t result = lab_comm_new(&child, job->nranks, job->rank, &job->identity, &job->config);
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

/* NCCL's commHash of a child: of its parent's, the ordinal of the split, and the colour. A shrink has zeros.
 */
static void name_child(struct lab_job *job, int ordinal, int color)
{
    uint64_t state[2] = {1, 1};
    lab_nccl_eat(state, &job->state->identity.hash, sizeof job->state->identity.hash);
    lab_nccl_eat(state, &ordinal, sizeof ordinal);
    lab_nccl_eat(state, &color, sizeof color);
    job->identity.hash = job->identity.magic = lab_nccl_digest(state);
}

/* Counts the children of `comm`, as NCCL does for split and grow together. */
static int next_child(struct ncclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    int ordinal = ++comm->children;
    pthread_mutex_unlock(&comm->lock);
    return ordinal;
}

/* ---- Split ---- */

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
    return make_child(job);
}

static ncclResult_t add_split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                              const ncclConfig_t *config)
{
    struct lab_job job = {.run = run_split, .state = comm, .newcomm = newcomm, .color = color, .key = key};
    ncclResult_t result = lab_comm_check_idle(comm, "ncclCommSplit");
    if (result == ncclSuccess && !newcomm)
        result = lab_error(ncclInvalidArgument, "ncclCommSplit : newcomm argument is NULL");
    if (result == ncclSuccess && color < 0 && color != NCCL_SPLIT_NOCOLOR)
        result = lab_error(ncclInvalidArgument, "ncclCommSplit : invalid color %d", color);
    if (result == ncclSuccess)
        result = lab_config_read(config, &comm->config, &job.config);
    if (result != ncclSuccess)
        return result;
    *newcomm = NULL;
    int ordinal = next_child(comm);
    uint64_t id = lab_hash(lab_hash(comm->identity.id, "split", 5), &ordinal, sizeof ordinal);
    job.identity.id = lab_hash(id, &color, sizeof color);
    name_child(&job, ordinal, color);
    return lab_group_add_job(&job);
}

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
    lab_group_enter();
    return lab_group_leave(add_split(comm, color, key, newcomm, config));
}
LAB_EXPORT(ncclCommSplit);

/* ---- Shrink ---- */

/* With NCCL_SHRINK_ABORT what runs on the parent ends first. */
static ncclResult_t run_shrink(struct lab_job *job)
{
    if (job->ends_parent)
        lab_comm_drain(job->state);
    return make_child(job);
}

/* Members after a shrink: everybody not listed. The list is part of the child's name, so ranks that
 * disagree about it never meet. */
static ncclResult_t add_shrink(ncclComm_t comm, const int *excluded, int nexcluded, ncclComm_t *newcomm,
                               const ncclConfig_t *config, int flags)
{
    struct lab_job job = {.run = run_shrink, .state = comm, .newcomm = newcomm};
    job.ends_parent = flags & NCCL_SHRINK_ABORT;
    ncclResult_t result = lab_comm_check(comm, "ncclCommShrink");
    if (result == ncclSuccess && flags & ~NCCL_SHRINK_ABORT)
        result = lab_error(ncclInvalidArgument, "ncclCommShrink : unknown flags %#x", (unsigned)flags);
    if (result == ncclSuccess && !job.ends_parent)
        result = lab_comm_check_idle(comm, "ncclCommShrink");
    if (result == ncclSuccess && (!newcomm || !excluded || nexcluded < 1))
        result = lab_error(ncclInvalidArgument, "ncclCommShrink : no list of ranks to exclude");
    if (result == ncclSuccess)
        result = lab_config_read(config, &comm->config, &job.config);
    if (result != ncclSuccess)
        return result;
    pthread_mutex_lock(&comm->lock);
    uint64_t ordinal = ++comm->shrinks;
    pthread_mutex_unlock(&comm->lock);
    uint64_t id = lab_hash(lab_hash(comm->identity.id, "shrink", 6), &ordinal, sizeof ordinal);
    for (int r = 0; r < comm->nranks; r++) {
        bool out = false;
        for (int i = 0; i < nexcluded; i++)
            out |= excluded[i] == r;
        if (out && r == comm->rank)
            return lab_error(ncclInvalidArgument, "ncclCommShrink : called by excluded rank %d", r);
        if (out)
            continue;
        id = lab_hash(id, &r, sizeof r);
        job.rank += r < comm->rank;
        job.nranks++;
    }
    name_child(&job, 0, 0);
    job.identity.id = id;
    *newcomm = NULL;
    if (job.ends_parent)
        result = lab_comm_stop(comm, "ncclCommShrink");
    return result == ncclSuccess ? lab_group_add_job(&job) : result;
}

ncclResult_t pncclCommShrink(ncclComm_t comm, int *excluded, int nexcluded, ncclComm_t *newcomm,
                             ncclConfig_t *config, int flags)
{
    lab_group_enter();
    return lab_group_leave(add_shrink(comm, excluded, nexcluded, newcomm, config, flags));
}
LAB_EXPORT(ncclCommShrink);

/* ---- Grow ----
 *
 * The old ranks derive what the unique id of the new ranks begins with, so only these need it; the one old
 * rank that made the id passes it too. Old ranks keep their places. */

static void name_grown(struct lab_identity *identity, uint64_t magic, int nranks)
{
    uint64_t id = lab_hash(lab_hash(LAB_HASH_START, "grow", 4), &magic, sizeof magic);
    identity->id = lab_hash(id, &nranks, sizeof nranks);
    identity->magic = magic;
    identity->hash = lab_nccl_combine(magic, (uint64_t)nranks);
}

ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id)
{
    ncclResult_t result = lab_comm_check_idle(comm, "ncclCommGetUniqueId");
    if (result == ncclSuccess && !id)
        result = lab_error(ncclInvalidArgument, "ncclCommGetUniqueId : uniqueId argument is NULL");
    if (result != ncclSuccess)
        return result;
    pthread_mutex_lock(&comm->lock);
    bool is_pending = comm->grow_id_pending;
    uint64_t magic = lab_nccl_combine(comm->identity.magic, (uint64_t)comm->children + 1);
    comm->grow_id_pending = true;
    pthread_mutex_unlock(&comm->lock);
    if (is_pending)
        return lab_error(ncclInvalidUsage, "ncclCommGetUniqueId : the previous id has not been used");
    memset(id, 0, sizeof *id);
    memcpy(id->internal, &magic, sizeof magic);
    return ncclSuccess;
}
LAB_EXPORT(ncclCommGetUniqueId);

static ncclResult_t add_grow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
                             ncclComm_t *newcomm, const ncclConfig_t *config)
{
    struct lab_job job = {.run = make_child, .state = comm, .newcomm = newcomm, .nranks = nranks};
    ncclResult_t result = lab_comm_check_idle(comm, "ncclCommGrow");
    if (result == ncclSuccess && (!newcomm || nranks <= comm->nranks || rank != -1))
        result = lab_error(ncclInvalidArgument, "ncclCommGrow : rank %d of %d to join the %d that are here",
                           rank, nranks, comm->nranks);
    if (result == ncclSuccess)
        result = lab_config_read(config, &comm->config, &job.config);
    if (result != ncclSuccess)
        return result;
    uint64_t magic = lab_nccl_combine(comm->identity.magic, (uint64_t)next_child(comm));
    if (id && memcmp(id->internal, &magic, sizeof magic) != 0)
        return lab_error(ncclInvalidArgument, "ncclCommGrow : this id is not of this communicator");
    pthread_mutex_lock(&comm->lock);
    comm->grow_id_pending = false;
    pthread_mutex_unlock(&comm->lock);
    job.rank = comm->rank;
    name_grown(&job.identity, magic, nranks);
    *newcomm = NULL;
    return lab_group_add_job(&job);
}

ncclResult_t pncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                           ncclConfig_t *config)
{
    if (!comm && !id)
        return lab_error(ncclInvalidArgument, "ncclCommGrow : a new rank needs the unique id");
    lab_group_enter();
    if (comm)
        return lab_group_leave(add_grow(comm, nranks, id, rank, newcomm, config));
    struct lab_identity identity;
    uint64_t magic;
    memcpy(&magic, id->internal, sizeof magic);
    name_grown(&identity, magic, nranks);
    ncclResult_t result =
        lab_group_leave(lab_init_rank(newcomm, nranks, rank, &identity, config, "ncclCommGrow"));
    return newcomm ? lab_settle(*newcomm, result) : result;
}
LAB_EXPORT(ncclCommGrow);
