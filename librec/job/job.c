#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

#define MAX_WORKERS 8

/* Loading: each worker takes the next process; what it fills belongs to that process alone. */
struct loading {
    struct job_process **processes;
    size_t count;
    _Atomic size_t next;
    _Atomic bool failed;
    struct rec_error error; /* written by the worker that sets failed, read after joining */
    pthread_mutex_t lock;
};

static void *load_some(void *arg)
{
    struct loading *loading = arg;
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&loading->next, 1, memory_order_relaxed);
        if (i >= loading->count || atomic_load_explicit(&loading->failed, memory_order_relaxed))
            return NULL;
        struct rec_error error = {0};
        if (job_process_load(loading->processes[i], &error) == REC_OK)
            continue;
        pthread_mutex_lock(&loading->lock);
        loading->error = error;
        atomic_store_explicit(&loading->failed, true, memory_order_relaxed);
        pthread_mutex_unlock(&loading->lock);
    }
}

static enum rec_code load_all(struct rec_job *job, struct rec_error *err)
{
    struct loading loading = {.processes = job->all, .count = job->nall, .lock = PTHREAD_MUTEX_INITIALIZER};
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t workers = cpus < 1 ? 1 : (size_t)cpus;
    workers = workers > MAX_WORKERS ? MAX_WORKERS : workers;
    workers = workers > job->nall ? job->nall : workers;
    pthread_t threads[MAX_WORKERS];
    size_t started = 0;
    while (started + 1 < workers && pthread_create(&threads[started], NULL, load_some, &loading) == 0)
        started++;
    load_some(&loading);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (!loading.failed)
        return REC_OK;
    if (err)
        *err = loading.error;
    return loading.error.code;
}

static enum rec_code find_all(struct rec_job *job, const char *const *dirs, size_t ndirs,
                              const struct rec_job_options *options, struct rec_error *err)
{
    struct job_sources sources = {0};
    enum rec_code code = job_find(dirs, ndirs, options, &sources, &job->warnings, err);
    job->input.unreadable = sources.unreadable;
    job->all = code == REC_OK ? calloc(sources.count + 1, sizeof(*job->all)) : NULL;
    for (size_t i = 0; i < sources.count && job->all; i++) {
        struct job_process *process = job_process_new(&sources.items[i]);
        if (!process)
            break;
        process->callsites = &job->callsites;
        job->all[job->nall++] = process;
    }
    if (code == REC_OK && job->nall != sources.count)
        code = rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
    job_sources_fini(&sources);
    return code;
}

/* The id without the number that tells runs with the same key apart. */
static bool id_matches(const char *id, const char *wanted)
{
    size_t length = strlen(wanted);
    return strcmp(id, wanted) == 0 || (strncmp(id, wanted, length) == 0 && id[length] == '#');
}

/*
 * A directory is often emptied and used again while the regions of the last run, which was
 * killed, are still in memory. Sets leftover[i] for jobs of which nothing but such regions is
 * there, and returns how many these are; 0 when all are.
 */
static size_t find_leftovers(const struct rec_job *job, bool *leftover)
{
    size_t count = job->ncandidates;
    for (size_t i = 0; i < job->ncandidates; i++)
        leftover[i] = true;
    for (size_t i = 0; i < job->nall; i++)
        if (!job->all[i]->source.orphan && leftover[job->all[i]->group]) {
            leftover[job->all[i]->group] = false;
            count--;
        }
    return count < job->ncandidates ? count : 0;
}

static enum rec_code choose(struct rec_job *job, const char *wanted, struct rec_error *err)
{
    bool *leftover = calloc(job->ncandidates + 1, sizeof(*leftover));
    if (!leftover)
        return rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
    size_t skipped = wanted ? 0 : find_leftovers(job, leftover);
    size_t found = 0, chosen = 0;
    for (size_t i = 0; i < job->ncandidates; i++) {
        const struct rec_job_info *info = &job->candidates[i];
        if (skipped && leftover[i]) {
            job_warn(&job->warnings, NULL,
                     "job %s ignored: only live regions are left of it, its traces were removed (--job %s)",
                     info->id, info->id);
            continue;
        }
        if (wanted && strcmp(wanted, info->id) == 0) {
            chosen = i;
            found = 1;
            break;
        }
        if (!wanted || id_matches(info->id, wanted)) {
            chosen = i;
            found++;
        }
    }
    free(leftover);
    if (found == 0 && strcmp(wanted, "latest") == 0) {
        chosen = job->ncandidates - 1; /* sorted by start */
        found = 1;
    }
    if (found == 0)
        return rec_error_set(err, REC_ERR_MIXED, NULL, 0, "no job %s among the %zu here", wanted,
                             job->ncandidates);
    if (found > 1)
        return rec_error_set(err, REC_ERR_MIXED, NULL, 0, "traces of %zu jobs: choose one", found);
    job->info = &job->candidates[chosen];
    return REC_OK;
}

static enum rec_code take_chosen(struct rec_job *job, struct rec_error *err)
{
    uint32_t group = (uint32_t)(job->info - job->candidates);
    job->processes = calloc(job->info->processes + 1u, sizeof(*job->processes));
    if (!job->processes)
        return rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
    for (size_t i = 0; i < job->nall; i++) {
        struct job_process *process = job->all[i];
        if (process->group != group)
            continue;
        job->processes[job->nprocesses++] = &process->pub;
        job->input.files += process->files_read;
        job->input.salvaged += process->files_salvaged;
        job->input.unreadable += process->files_unreadable;
        job->input.live += process->live_read;
        job->input.dropped_ops += process->pub.dropped_ops;
        for (size_t k = 0; k < process->warnings.count; k++)
            job_warn(&job->warnings, NULL, "%s", process->warnings.items[k]);
    }
    return REC_OK;
}

static enum rec_code build(struct rec_job *job, const char *const *dirs, size_t ndirs,
                           const struct rec_job_options *options, struct rec_error *err)
{
    enum rec_code code = find_all(job, dirs, ndirs, options, err);
    if (code == REC_OK)
        code = load_all(job, err);
    if (code == REC_OK)
        code = job_group(job, err);
    if (code == REC_OK)
        code = choose(job, options->job_id, err);
    if (code == REC_OK)
        code = take_chosen(job, err);
    if (code == REC_OK)
        code = job_rank(job, err);
    if (code == REC_OK)
        code = job_join(job, err);
    if (code == REC_OK)
        job_fates(job);
    return code;
}

enum rec_code rec_job_open(const char *const *dirs, size_t ndirs, const struct rec_job_options *options,
                           struct rec_job **job, struct rec_error *err)
{
    static const struct rec_job_options defaults;
    *job = NULL;
    if (ndirs == 0)
        return rec_error_set(err, REC_ERR_ARG, NULL, 0, "no directory given");
    struct rec_job *made = calloc(1, sizeof(*made));
    if (!made)
        return rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
    job_callsites_init(&made->callsites);
    enum rec_code code = build(made, dirs, ndirs, options ? options : &defaults, err);
    if (code == REC_OK || code == REC_ERR_MIXED)
        *job = made;
    else
        rec_job_close(made);
    return code;
}

void rec_job_close(struct rec_job *job)
{
    if (!job)
        return;
    for (size_t i = 0; i < job->ncommunicators; i++) {
        free((void *)(uintptr_t)job->communicators[i]->members);
        free(job->communicators[i]);
    }
    free(job->communicators);
    job_map_free(&job->comm_uids);
    free(job->processes);
    for (size_t i = 0; i < job->nall; i++)
        job_process_free(job->all[i]);
    free(job->all);
    job_callsites_fini(&job->callsites);
    free(job->candidates);
    free(job->candidate_ids);
    job_lines_free(&job->warnings);
    free(job);
}

const struct rec_job_info *rec_job_candidates(const struct rec_job *job, size_t *count)
{
    *count = job->ncandidates;
    return job->candidates;
}

const struct rec_job_info *rec_job_info(const struct rec_job *job)
{
    return job->info;
}

struct rec_process *const *rec_job_processes(const struct rec_job *job, size_t *count)
{
    *count = job->nprocesses;
    return job->processes;
}

struct rec_communicator *const *rec_job_communicators(const struct rec_job *job, size_t *count)
{
    *count = job->ncommunicators;
    return job->communicators;
}

uint32_t rec_job_expected_ranks(const struct rec_job *job)
{
    return job->expected;
}

void rec_job_input(const struct rec_job *job, struct rec_job_input *input)
{
    *input = job->input;
}

const char *const *rec_job_warnings(const struct rec_job *job, size_t *count)
{
    *count = job->warnings.count;
    return (const char *const *)job->warnings.items;
}
