#include "comm.h"

#include <stdlib.h>

ncclResult_t lab_comm_new(ncclComm_t *out, int nranks, int rank, const struct lab_identity *identity,
                          const struct lab_config *config)
{
    struct ncclComm *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return lab_error(ncclSystemError, "no memory for a communicator");
    c->out = calloc((size_t)nranks, sizeof *c->out);
    c->in = calloc((size_t)nranks, sizeof *c->in);
    c->sources = calloc((size_t)nranks, sizeof *c->sources);
    c->signals_waited = calloc((size_t)nranks, sizeof *c->signals_waited);
    if (!c->out || !c->in || !c->sources || !c->signals_waited) {
        free(c->signals_waited);
        free(c->out);
        free(c->in);
        free(c->sources);
        free(c);
        return lab_error(ncclSystemError, "no memory for a communicator of %d ranks", nranks);
    }
    c->magic = LAB_COMM_MAGIC;
    atomic_init(&c->refs, 1);
    c->rank = rank;
    c->nranks = nranks;
    c->device = hg_current_device();
    c->identity = *identity;
    c->config = *config;
    c->connects_lazily = hg_number_from_environment("HOSTGPU_LAZY_CONNECT", 0);
    c->region.fd = -1;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->run_lock, NULL);
    pthread_mutex_init(&c->window_lock, NULL);
    pthread_cond_init(&c->idle, NULL);
    *out = c;
    return ncclSuccess;
}

void lab_comm_ref(ncclComm_t c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
}

void lab_comm_unref(ncclComm_t c)
{
    if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
        return;
    c->magic = 0;
    lab_profiler_free(c);
    lab_rma_end(c);
    while (c->windows) {
        struct lab_window *window = c->windows;
        c->windows = window->next;
        free(window);
    }
    lab_region_unmap(&c->region);
    hg_fence_unref(c->last_done);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->run_lock);
    pthread_mutex_destroy(&c->window_lock);
    pthread_cond_destroy(&c->idle);
    free(c->redops);
    free(c->signals_waited);
    free(c->sources);
    free(c->out);
    free(c->in);
    free(c);
}

ncclResult_t lab_comm_check(const struct ncclComm *c, const char *name)
{
    if (!c)
        return lab_error(ncclInvalidArgument, "%s : comm argument is NULL", name);
    if (c->magic != LAB_COMM_MAGIC)
        return lab_error(ncclInvalidArgument, "%s : comm %p is not a communicator", name, (const void *)c);
    return ncclSuccess;
}

ncclResult_t lab_comm_check_idle(const struct ncclComm *c, const char *name)
{
    ncclResult_t result = lab_comm_check(c, name);
    if (result == ncclSuccess && atomic_load(&c->async_result) == ncclInProgress)
        result = lab_error(ncclInvalidArgument,
                           "%s : attempt to use communicator before the previous operation "
                           "returned ncclSuccess",
                           name);
    return result;
}

bool lab_comm_is_aborted(const struct ncclComm *c)
{
    return atomic_load(&c->aborted) || (c->parent_aborted && atomic_load(c->parent_aborted));
}

bool lab_comm_is_stopped(const struct ncclComm *c)
{
    return atomic_load(&c->aborted) || atomic_load(&c->revoked);
}

void lab_comm_abort(ncclComm_t c)
{
    atomic_store(&c->aborted, true);
    if (atomic_load(&c->is_mapped))
        lab_bell_ring(c, c->rank);
}

ncclResult_t lab_comm_stop(ncclComm_t c, const char *name)
{
    ncclResult_t result = atomic_load(&c->is_launching) ? ncclSuccess : lab_comm_check_idle(c, name);
    if (result != ncclSuccess)
        return result;
    atomic_store(&c->revoked, true);
    if (atomic_load(&c->is_mapped))
        lab_bell_ring(c, c->rank);
    lab_comm_wait_jobs(c);
    return ncclSuccess;
}

void lab_comm_count_graph_launch(ncclComm_t c, int change)
{
    pthread_mutex_lock(&c->lock);
    c->graph_launches += change;
    if (!c->graph_launches)
        pthread_cond_broadcast(&c->idle);
    pthread_mutex_unlock(&c->lock);
}

void lab_comm_wait_graphs(ncclComm_t c)
{
    pthread_mutex_lock(&c->lock);
    while (c->graph_launches)
        pthread_cond_wait(&c->idle, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

void lab_comm_wait_jobs(ncclComm_t c)
{
    pthread_mutex_lock(&c->lock);
    while (c->jobs)
        pthread_cond_wait(&c->idle, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

void lab_comm_drain(ncclComm_t c)
{
    pthread_mutex_lock(&c->lock);
    struct hg_fence *done = c->last_done;
    if (done)
        hg_fence_ref(done);
    pthread_mutex_unlock(&c->lock);
    if (done)
        hg_fence_wait(done);
    hg_fence_unref(done);
}

static void ring_others(struct ncclComm *c)
{
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            lab_bell_ring(c, r);
}

typedef bool rank_predicate(struct ncclComm *, int rank);

static bool holds_for_all(struct ncclComm *c, rank_predicate *is_here, int *from)
{
    /* Ranks before *from are known to be here. */
    while (*from < c->nranks && is_here(c, *from))
        ++*from;
    return *from == c->nranks;
}

/* Wakes the others if the rank that has just published something was the last to do so. */
static void ring_if_last(struct ncclComm *c, rank_predicate *is_here)
{
    int from = 0;
    if (holds_for_all(c, is_here, &from))
        ring_others(c);
}

/* False if aborted. */
static bool wait_for_all(struct ncclComm *c, rank_predicate *is_here)
{
    int from = 0;
    for (;;) {
        uint32_t seen = lab_bell_read(c);
        if (holds_for_all(c, is_here, &from))
            return true;
        if (lab_comm_is_aborted(c))
            return false;
        lab_bell_sleep(c, seen);
    }
}

static bool has_joined(struct ncclComm *c, int rank)
{
    return atomic_load(&lab_region_rank(&c->region, rank)->joined) != 0;
}

/* Rank 0 removes the file once all are here, and only then lets everybody go. */
static bool may_leave(struct ncclComm *c, int rank)
{
    return rank != 0 || atomic_load(&lab_region_rank(&c->region, 0)->joined) == 2;
}

ncclResult_t lab_comm_join(ncclComm_t c)
{
    ncclResult_t result = lab_region_open(&c->region, c->identity.id, c->nranks);
    if (result != ncclSuccess)
        return result;
    atomic_store(&c->is_mapped, true);
    struct lab_rank_words *me = lab_region_rank(&c->region, c->rank);
    atomic_store(&me->joined, 1);
    ring_if_last(c, has_joined);
    bool met = wait_for_all(c, has_joined);
    if (met && c->rank == 0) {
        result = lab_region_unlink(&c->region);
        atomic_store(&me->joined, 2);
        ring_others(c);
    }
    met = met && wait_for_all(c, may_leave);
    if (met)
        lab_region_close_file(&c->region);
    else
        lab_region_abandon_file(&c->region);
    if (met && result == ncclSuccess)
        lab_profiler_open(c);
    return met ? result : lab_error(ncclInternalError, "aborted while waiting for other ranks");
}

static bool is_in_host_barrier(struct ncclComm *c, int rank)
{
    return atomic_load(&lab_region_rank(&c->region, rank)->host_phase) >= c->host_phase;
}

bool lab_comm_host_barrier(ncclComm_t c, int64_t first, int64_t second)
{
    struct lab_rank_words *me = lab_region_rank(&c->region, c->rank);
    unsigned parity = (unsigned)(c->host_phase + 1) & 1;
    atomic_store(&me->host[parity].first, first);
    atomic_store(&me->host[parity].second, second);
    c->host_phase++;
    atomic_store(&me->host_phase, c->host_phase);
    ring_if_last(c, is_in_host_barrier);
    return wait_for_all(c, is_in_host_barrier);
}
