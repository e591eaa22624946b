#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "job/parallel.h"

/*
 * Loading: a thread takes the next process; what it fills belongs to that process alone, but for the
 * store of call sites, which has a lock. The first failure ends it all.
 */
struct loading {
    struct job_process **processes;
    size_t count;
    const struct rec_progress *progress;
    pthread_t caller;
    _Atomic size_t loaded;
    _Atomic bool stop;
    bool cancelled; /* the caller's thread's own */
    struct job_first_error failure;
};

/* Called now and then by whoever loads. */
static bool go_on(struct loading *loading)
{
    if (!pthread_equal(loading->caller, pthread_self()) || !loading->progress || loading->cancelled)
        return !atomic_load_explicit(&loading->stop, memory_order_relaxed);
    size_t loaded = atomic_load_explicit(&loading->loaded, memory_order_relaxed);
    if (!loading->progress->report(loading->progress->context, REC_PHASE_LOAD, loaded, loading->count)) {
        loading->cancelled = true;
        atomic_store_explicit(&loading->stop, true, memory_order_relaxed);
    }
    return !atomic_load_explicit(&loading->stop, memory_order_relaxed);
}

static bool load_goes_on(void *context)
{
    return go_on(context);
}

static void load_one(void *context, size_t index)
{
    struct loading *loading = context;
    struct rec_error error = {0};
    const struct job_beat beat = {load_goes_on, loading};
    enum rec_code code = job_process_load(loading->processes[index], &beat, &error);
    atomic_fetch_add_explicit(&loading->loaded, 1, memory_order_relaxed);
    if (code == REC_OK)
        return;
    job_note_error(&loading->failure, &error);
    atomic_store_explicit(&loading->stop, true, memory_order_relaxed);
}

static bool load_tick(void *context, size_t done)
{
    (void)done;
    return go_on(context);
}

static enum rec_code load_all(struct rec_job *job, const struct rec_job_options *options,
                              struct rec_error *err)
{
    struct loading loading = {.processes = job->all,
                              .count = job->nall,
                              .progress = options->progress,
                              .caller = pthread_self(),
                              .failure = {.lock = PTHREAD_MUTEX_INITIALIZER}};
    const struct job_parallel pieces = {job->nall, load_one, load_tick, &loading};
    for (size_t i = 0; i < job->nall; i++)
        job->all[i]->recall.size = options->analyze ? job_tail_size(job->nall) : 0;
    if (!go_on(&loading))
        return job_cancelled(err);
    job_parallel(options->threads, &pieces);
    if (loading.cancelled)
        return job_cancelled(err);
    if (loading.failure.error.code != REC_OK && err)
        *err = loading.failure.error;
    return loading.failure.error.code;
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
        code = load_all(job, options, err);
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
        code = job_fates(job, err);
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
