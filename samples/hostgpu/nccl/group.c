#include "export.h"
#include "group.h"

#include <stdlib.h>
#include <string.h>

struct pending_op {
    ncclComm_t comm;
    CUstream stream;
    struct lab_op op;
};

static _Thread_local struct {
    int depth;
    ncclResult_t error;
    struct pending_op *ops;
    size_t nops, cap;
    struct lab_job *jobs, **jobs_tail;
} group;

void lab_group_enter(void)
{
    if (group.depth++ == 0) {
        group.error = ncclSuccess;
        group.jobs = NULL;
        group.jobs_tail = &group.jobs;
    }
}

ncclResult_t lab_group_add_op(ncclComm_t comm, CUstream stream, const struct lab_op *op)
{
    if (group.nops == group.cap) {
        size_t cap = group.cap ? group.cap * 2 : 16;
        struct pending_op *grown = realloc(group.ops, cap * sizeof *grown);
        if (!grown)
            return lab_error(ncclSystemError, "no memory for %zu operations in a group", cap);
        group.ops = grown;
        group.cap = cap;
    }
    struct lab_op *added = &group.ops[group.nops].op;
    lab_comm_ref(comm);
    group.ops[group.nops++] = (struct pending_op){comm, stream, *op};
    lab_profiler_call_starts(comm, added, stream, hg_capture_info(stream, NULL, NULL), group.depth);
    lab_profiler_call_stops(comm, added);
    return ncclSuccess;
}

ncclResult_t lab_group_add_job(const struct lab_job *job)
{
    struct lab_job *copy = malloc(sizeof *copy);
    if (!copy)
        return lab_error(ncclSystemError, "no memory for a job");
    *copy = *job;
    copy->next = copy->then = NULL;
    copy->device = hg_current_device();
    lab_comm_ref(copy->state);
    *group.jobs_tail = copy;
    group.jobs_tail = &copy->next;
    return ncclSuccess;
}

/* ---- Jobs ---- */

static void free_job(struct lab_job *job)
{
    while (job) {
        struct lab_job *then = job->then;
        lab_comm_unref(job->state);
        free(job->window);
        free(job);
        job = then;
    }
}

/* Moves every job on the communicator of an earlier one behind that one. */
static void chain_jobs(struct lab_job *jobs)
{
    for (struct lab_job *j = jobs; j; j = j->next) {
        struct lab_job **end = &j->then, **link = &j->next;
        while (*link) {
            struct lab_job *later = *link;
            if (later->state != j->state) {
                link = &later->next;
                continue;
            }
            *link = later->next;
            *end = later;
            end = &later->then;
        }
    }
}

static void *job_main(void *argument)
{
    struct lab_job *first = argument;
    int device = hg_current_device();
    first->result = ncclSuccess;
    for (struct lab_job *j = first; j && first->result == ncclSuccess; j = j->then) {
        hg_set_current_device(j->device);
        first->result = j->run(j);
    }
    hg_set_current_device(device);
    return NULL;
}

static void count_job(struct ncclComm *comm, int change)
{
    pthread_mutex_lock(&comm->lock);
    comm->jobs += change;
    if (!comm->jobs)
        pthread_cond_broadcast(&comm->idle);
    pthread_mutex_unlock(&comm->lock);
}

/* The asynchronous result of its communicator tells how it goes. */
static void *background_main(void *argument)
{
    struct lab_job *job = argument;
    job_main(job);
    atomic_store(&job->state->async_result, job->result);
    count_job(job->state, -1);
    free_job(job);
    return NULL;
}

static ncclResult_t start_background(struct lab_job *job)
{
    pthread_t thread;
    count_job(job->state, 1);
    atomic_store(&job->state->async_result, ncclInProgress);
    if (pthread_create(&thread, NULL, background_main, job)) {
        atomic_store(&job->state->async_result, ncclSystemError);
        count_job(job->state, -1);
        free_job(job);
        return lab_error(ncclSystemError, "no thread for a communicator job");
    }
    pthread_detach(thread);
    return ncclInProgress;
}

/* Jobs of one group may need one another, as several ranks of one communicator do, so each has a thread. */
static ncclResult_t run_together(struct lab_job *jobs, size_t n)
{
    pthread_t *threads = calloc(n, sizeof *threads);
    if (!threads)
        return lab_error(ncclSystemError, "no memory for %zu jobs", n);
    ncclResult_t result = ncclSuccess;
    size_t started = 0;
    for (struct lab_job *j = jobs; j && result == ncclSuccess; j = j->next, started++)
        if (pthread_create(&threads[started], NULL, job_main, j)) {
            result = lab_error(ncclSystemError, "no thread for a communicator job");
            for (struct lab_job *k = jobs; k; k = k->next)
                lab_comm_abort(k->state); /* those that run would wait for those that do not */
            break;
        }
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    for (struct lab_job *j = jobs; j && result == ncclSuccess; j = j->next)
        result = j->result;
    free(threads);
    return result;
}

static ncclResult_t run_jobs(struct lab_job *jobs)
{
    ncclResult_t result = ncclSuccess;
    chain_jobs(jobs);
    if (jobs->state->config.nonblocking) {
        while (jobs) {
            struct lab_job *next = jobs->next;
            ncclResult_t started = start_background(jobs);
            if (result == ncclSuccess || result == ncclInProgress)
                result = started;
            jobs = next;
        }
        return result;
    }
    if (!jobs->next) {
        job_main(jobs);
        result = jobs->result;
    } else {
        size_t n = 0;
        for (struct lab_job *j = jobs; j; j = j->next)
            n++;
        result = run_together(jobs, n);
    }
    while (jobs) {
        struct lab_job *next = jobs->next;
        atomic_store(&jobs->state->async_result, result);
        free_job(jobs);
        jobs = next;
    }
    return result;
}

/* ---- Operations ---- */

static ncclResult_t launch_comm(struct pending_op *ops, size_t nops, size_t first)
{
    ncclComm_t comm = ops[first].comm;
    struct lab_op *mine = calloc(nops - first, sizeof *mine);
    CUstream *streams = calloc(nops - first, sizeof *streams);
    ncclResult_t result = ncclSuccess;
    size_t n = 0;
    lab_comm_ref(comm); /* another thread may abort it meanwhile */
    for (size_t i = first; i < nops && mine && streams; i++) {
        if (ops[i].comm != comm)
            continue;
        mine[n] = ops[i].op;
        streams[n++] = ops[i].stream;
        ops[i].comm = NULL; /* taken */
        lab_comm_unref(comm);
    }
    if (n)
        result = lab_launch(comm, mine, streams, n);
    else
        result = lab_error(ncclSystemError, "no memory for %zu operations in a group", nops);
    lab_comm_unref(comm);
    free(mine);
    free(streams);
    return result;
}

/* Connects, and puts all on the streams. Takes the operations' references. */
static ncclResult_t run_ops(struct pending_op *ops, size_t nops)
{
    ncclResult_t result = ncclSuccess;
    for (size_t i = 0; i < nops; i++)
        lab_connect_announce(ops[i].comm, &ops[i].op);
    for (size_t i = 0; i < nops && result == ncclSuccess; i++)
        result = lab_connect_wait(ops[i].comm, &ops[i].op);
    for (size_t i = 0; i < nops && result == ncclSuccess; i++)
        if (ops[i].comm)
            result = launch_comm(ops, nops, i);
    for (size_t i = 0; i < nops; i++)
        if (ops[i].comm)
            lab_comm_unref(ops[i].comm);
    free(ops);
    return result;
}

/* ---- Operations on non-blocking communicators: launched by a thread of their own ---- */

struct background_ops {
    struct pending_op *ops;
    size_t nops;
    int device;
    struct ncclComm **comms; /* each once, with a reference */
    size_t ncomms;
};

static void free_background(struct background_ops *b)
{
    for (size_t i = 0; i < b->ncomms; i++) {
        atomic_store(&b->comms[i]->is_launching, false);
        count_job(b->comms[i], -1);
        lab_comm_unref(b->comms[i]);
    }
    free(b->comms);
    free(b);
}

static void *background_ops_main(void *argument)
{
    struct background_ops *b = argument;
    hg_set_current_device(b->device);
    ncclResult_t result = run_ops(b->ops, b->nops);
    for (size_t i = 0; i < b->ncomms; i++) {
        int in_progress = ncclInProgress; /* an error that an operation has raised meanwhile stays */
        atomic_compare_exchange_strong(&b->comms[i]->async_result, &in_progress, result);
    }
    free_background(b);
    return NULL;
}

static void add_comm(struct background_ops *b, struct ncclComm *comm)
{
    for (size_t i = 0; i < b->ncomms; i++)
        if (b->comms[i] == comm)
            return;
    lab_comm_ref(comm);
    count_job(comm, 1);
    atomic_store(&comm->is_launching, true);
    atomic_store(&comm->async_result, ncclInProgress);
    b->comms[b->ncomms++] = comm;
}

static ncclResult_t run_ops_in_background(struct pending_op *ops, size_t nops)
{
    struct background_ops *b = calloc(1, sizeof *b);
    if (b)
        b->comms = calloc(nops, sizeof *b->comms);
    if (!b || !b->comms) {
        free(b);
        return run_ops(ops, nops);
    }
    b->ops = ops;
    b->nops = nops;
    b->device = hg_current_device();
    for (size_t i = 0; i < nops; i++)
        add_comm(b, ops[i].comm);
    pthread_t thread;
    if (pthread_create(&thread, NULL, background_ops_main, b)) {
        background_ops_main(b);
        return ncclSuccess;
    }
    pthread_detach(thread);
    return ncclInProgress;
}

/* ---- Groups ---- */

static ncclResult_t check_group(void)
{
    if (group.error != ncclSuccess)
        return group.error;
    bool blocking = false, nonblocking = false;
    for (size_t i = 0; i < group.nops; i++)
        *(group.ops[i].comm->config.nonblocking ? &nonblocking : &blocking) = true;
    for (const struct lab_job *j = group.jobs; j; j = j->next)
        *(j->state->config.nonblocking ? &nonblocking : &blocking) = true;
    if (blocking && nonblocking)
        return lab_error(ncclInvalidArgument, "Blocking and nonblocking communicators are not allowed in the "
                                              "same group.");
    if (group.nops && group.jobs)
        return lab_error(ncclInvalidUsage, "Communicator creation and operations are not allowed in the same "
                                           "group.");
    return ncclSuccess;
}

static ncclResult_t finish_group(void)
{
    ncclResult_t result = check_group();
    struct lab_job *jobs = group.jobs;
    struct pending_op *ops = group.ops;
    size_t nops = group.nops;
    /* A job may call back into NCCL functions on this thread. */
    group.jobs = NULL;
    group.ops = NULL;
    group.nops = group.cap = 0;
    if (result == ncclSuccess && jobs)
        return run_jobs(jobs);
    if (result == ncclSuccess && nops)
        return ops->comm->config.nonblocking ? run_ops_in_background(ops, nops) : run_ops(ops, nops);
    for (size_t i = 0; i < nops; i++)
        lab_comm_unref(ops[i].comm);
    free(ops);
    while (jobs) {
        struct lab_job *next = jobs->next;
        free_job(jobs);
        jobs = next;
    }
    return result;
}

ncclResult_t lab_settle(ncclComm_t comm, ncclResult_t result)
{
    if (result == ncclInProgress)
        (void)ncclCommGetAsyncError(comm, &result);
    return result;
}

ncclResult_t lab_group_refuse(ncclResult_t result)
{
    lab_group_enter();
    return lab_group_leave(result);
}

ncclResult_t lab_group_leave(ncclResult_t result)
{
    if (result != ncclSuccess && result != ncclInProgress)
        group.error = result;
    if (--group.depth)
        return result;
    lab_profiler_group_ends();
    ncclResult_t finished = finish_group();
    lab_profiler_group_ended();
    return result == ncclSuccess ? finished : result;
}

ncclResult_t pncclGroupStart(void)
{
    lab_group_enter();
    return ncclSuccess;
}
LAB_EXPORT(ncclGroupStart);

ncclResult_t pncclGroupEnd(void)
{
    if (group.depth == 0)
        return lab_error(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
    return lab_group_leave(ncclSuccess);
}
LAB_EXPORT(ncclGroupEnd);

ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *info)
{
    if (group.depth == 0)
        return lab_error(ncclInvalidUsage, "ncclGroupSimulateEnd: not in a group call.");
    if (info && info->magic != 0x74685283)
        return lab_error(ncclInvalidArgument, "ncclGroupSimulateEnd: info was not initialised");
    if (info)
        info->estimatedTime = 0;
    /* Ends the group without doing anything. */
    ncclResult_t error = group.error;
    if (group.depth == 1 && error == ncclSuccess)
        group.error = ncclInProgress;
    lab_group_leave(ncclSuccess);
    return error;
}
LAB_EXPORT(ncclGroupSimulateEnd);
