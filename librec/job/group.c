#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "internal.h"
#include "job/sets.h"

/*
 * Which processes belong together. Shared communicators prove it, and so do the ids that a
 * scheduler never gives twice. Weaker keys (a rendezvous address, a run id that users choose,
 * none at all, another step of one Slurm job) need lifetimes that meet, or a restart counter
 * that says that one continues the other.
 */

#define NEAR_NS       (10 * UINT64_C(1000000000)) /* a late start of the same run */
#define MAX_OPEN_RUNS 64                          /* runs a new one is compared with */

static const char *const unique_sources[] = {
    "FREC_JOB_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PBS_JOBID", "LSB_JOBID",
};

/* Processes that are known to belong together so far. */
struct run {
    const struct job_process *first; /* the one that started first */
    const struct job_meta *key;      /* metadata of the first process with a job id; NULL = none */
    uint64_t start_ns, end_ns;
    struct job_map ranks;
    bool rank_unknown;
    uint32_t root;
    uint32_t size;
};

struct grouping {
    struct job_process **processes;
    size_t count;
    uint32_t *parent; /* sets of processes */
    struct run *runs;
    size_t nruns;
};

static bool is_unique(const struct job_meta *meta)
{
    for (size_t i = 0; i < sizeof(unique_sources) / sizeof(unique_sources[0]); i++)
        if (meta->job_id[0] && strcmp(meta->job_source, unique_sources[i]) == 0)
            return true;
    return false;
}

static bool same_key(const struct job_meta *a, const struct job_meta *b)
{
    if (!a || !b)
        return a == b;
    return strcmp(a->job_source, b->job_source) == 0 && strcmp(a->job_id, b->job_id) == 0;
}

static uint64_t hash_text(uint64_t h, const char *text)
{
    h = rec_mix64(h + 0x100);
    for (; *text; text++)
        h = rec_mix64(h ^ (uint8_t)*text);
    return h;
}

static uint64_t hash_key(const struct job_meta *meta)
{
    return hash_text(hash_text(0, meta->job_source), meta->job_id);
}

static bool unite_by_communicator(struct grouping *g)
{
    struct job_map owners = {0};
    bool ok = true;
    for (uint32_t i = 0; i < g->count && ok; i++)
        for (size_t k = 0; k < g->processes[i]->nmembers && ok; k++) {
            uint64_t uid = g->processes[i]->members[k]->def.uid;
            uint32_t owner = uid ? job_map_get(&owners, uid) : i;
            if (owner == JOB_MAP_NONE)
                ok = job_map_put(&owners, uid, i);
            else
                job_set_unite(g->parent, owner, i);
        }
    job_map_free(&owners);
    return ok;
}

static bool unite_by_unique_id(struct grouping *g)
{
    struct job_map owners = {0};
    bool ok = true;
    for (uint32_t i = 0; i < g->count && ok; i++) {
        const struct job_meta *meta = &g->processes[i]->source.meta;
        if (!is_unique(meta))
            continue;
        uint64_t key = hash_text(hash_key(meta), meta->step);
        uint32_t owner = job_map_get(&owners, key);
        if (owner == JOB_MAP_NONE)
            ok = job_map_put(&owners, key, i);
        else if (same_key(meta, &g->processes[owner]->source.meta) &&
                 strcmp(meta->step, g->processes[owner]->source.meta.step) == 0)
            job_set_unite(g->parent, owner, i);
    }
    job_map_free(&owners);
    return ok;
}

static bool run_add(struct run *run, const struct job_process *process)
{
    const struct rec_process *pub = &process->pub;
    const struct job_meta *meta = &process->source.meta;
    if (!run->first || pub->start_ns < run->first->pub.start_ns)
        run->first = process;
    if (!run->size || pub->start_ns < run->start_ns)
        run->start_ns = pub->start_ns;
    if (pub->last_ns > run->end_ns)
        run->end_ns = pub->last_ns;
    if (!run->key && meta->job_id[0])
        run->key = meta;
    run->size++;
    if (pub->rank < 0)
        run->rank_unknown = true;
    return pub->rank < 0 || job_map_put(&run->ranks, (uint64_t)pub->rank, 1);
}

static bool ranks_meet(const struct run *a, const struct run *b)
{
    for (size_t i = 0; i < b->ranks.room; i++)
        if (b->ranks.slots[i].value_plus_1 && job_map_get(&a->ranks, b->ranks.slots[i].key) != JOB_MAP_NONE)
            return true;
    return false;
}

/* Does the later run b continue a, for which no communicator speaks? */
static bool belongs(const struct run *a, const struct run *b)
{
    if (!same_key(a->key, b->key))
        return false;
    bool overlap = b->start_ns <= a->end_ns || b->start_ns == 0 || a->start_ns == 0;
    bool apart = !ranks_meet(a, b);
    if (!a->key)
        return overlap && apart && (a->size == 1 || b->size == 1 || (!a->rank_unknown && !b->rank_unknown));
    if (overlap)
        return true;
    if (a->key->restart[0] && b->key->restart[0] && strcmp(a->key->restart, b->key->restart) != 0)
        return true;
    return apart && !b->rank_unknown && b->start_ns - a->end_ns < NEAR_NS;
}

static bool run_absorb(struct run *a, struct run *b)
{
    if (b->end_ns > a->end_ns)
        a->end_ns = b->end_ns;
    if (b->key)
        a->key = b->key; /* the newest restart counter */
    a->rank_unknown |= b->rank_unknown;
    a->size += b->size;
    bool ok = true;
    for (size_t i = 0; i < b->ranks.room && ok; i++)
        if (b->ranks.slots[i].value_plus_1)
            ok = job_map_put(&a->ranks, b->ranks.slots[i].key, 1);
    job_map_free(&b->ranks);
    b->size = 0;
    return ok;
}

static int by_start(const void *a, const void *b)
{
    const struct run *x = a, *y = b;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return x->root < y->root ? -1 : x->root > y->root;
}

/* What is united so far, as runs sorted by start. */
static bool collect_runs(struct grouping *g)
{
    struct job_map index = {0};
    bool ok = true;
    g->nruns = 0;
    for (uint32_t i = 0; i < g->count && ok; i++) {
        uint32_t root = job_set_root(g->parent, i);
        uint32_t at = job_map_get(&index, root);
        if (at == JOB_MAP_NONE) {
            at = (uint32_t)g->nruns++;
            g->runs[at] = (struct run){.root = root};
            ok = job_map_put(&index, root, at);
        }
        ok = ok && run_add(&g->runs[at], g->processes[i]);
    }
    job_map_free(&index);
    qsort(g->runs, g->nruns, sizeof(*g->runs), by_start);
    return ok;
}

static void drop_runs(struct grouping *g)
{
    for (size_t i = 0; i < g->nruns; i++)
        job_map_free(&g->runs[i].ranks);
    g->nruns = 0;
}

static bool unite_by_time(struct grouping *g)
{
    uint32_t open[MAX_OPEN_RUNS]; /* latest first */
    size_t nopen = 0;
    bool ok = collect_runs(g);
    for (uint32_t i = 0; i < g->nruns && ok; i++) {
        size_t k = 0;
        while (k < nopen && !belongs(&g->runs[open[k]], &g->runs[i]))
            k++;
        if (k < nopen) {
            job_set_unite(g->parent, g->runs[open[k]].root, g->runs[i].root);
            ok = run_absorb(&g->runs[open[k]], &g->runs[i]);
            continue;
        }
        nopen = nopen < MAX_OPEN_RUNS ? nopen + 1 : nopen;
        memmove(&open[1], &open[0], (nopen - 1) * sizeof(open[0]));
        open[0] = i;
    }
    drop_runs(g);
    return ok;
}

/* ---- the list of jobs ---- */

static void format_time(uint64_t ns, char *buffer, size_t size)
{
    time_t seconds = (time_t)(ns / 1000000000u);
    struct tm tm;
    if (!gmtime_r(&seconds, &tm) || strftime(buffer, size, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        snprintf(buffer, size, "unknown");
}

/* Ids must tell jobs apart: a key used twice gets a number, in the order of starts. */
static void number_ids(struct rec_job *job)
{
    for (size_t i = 0; i < job->ncandidates; i++) {
        unsigned number = 1;
        bool twice = false;
        char plain[320];
        memcpy(plain, job->candidate_ids[i], sizeof(plain));
        if (strchr(plain, '#'))
            continue;
        for (size_t k = i + 1; k < job->ncandidates; k++)
            if (strcmp(job->candidate_ids[k], plain) == 0) {
                twice = true;
                snprintf(job->candidate_ids[k], sizeof(plain), "%.300s#%u", plain, ++number);
            }
        if (twice)
            snprintf(job->candidate_ids[i], sizeof(plain), "%.300s#1", plain);
    }
}

static bool list_jobs(struct rec_job *job, struct grouping *g)
{
    if (!collect_runs(g))
        return false;
    job->candidates = calloc(g->nruns + 1, sizeof(*job->candidates));
    job->candidate_ids = calloc(g->nruns + 1, sizeof(*job->candidate_ids));
    struct job_map group_of = {0};
    bool ok = job->candidates && job->candidate_ids;
    for (uint32_t i = 0; i < g->nruns && ok; i++) {
        const struct run *run = &g->runs[i];
        struct rec_job_info *info = &job->candidates[i];
        *info = (struct rec_job_info){
            .id = job->candidate_ids[i],
            .source = run->key ? run->key->job_source : "start time",
            .start_ns = run->start_ns,
            .last_ns = run->end_ns,
            .processes = run->size,
        };
        if (run->key)
            snprintf(job->candidate_ids[i], sizeof(job->candidate_ids[i]), "%s", run->key->job_id);
        else
            format_time(run->start_ns, job->candidate_ids[i], sizeof(job->candidate_ids[i]));
        ok = job_map_put(&group_of, run->root, i);
    }
    for (uint32_t i = 0; i < g->count && ok; i++)
        g->processes[i]->group = job_map_get(&group_of, job_set_root(g->parent, i));
    job_map_free(&group_of);
    job->ncandidates = g->nruns;
    if (ok)
        number_ids(job);
    return ok;
}

enum rec_code job_group(struct rec_job *job, struct rec_error *err)
{
    struct grouping g = {.processes = job->all, .count = job->nall};
    g.parent = calloc(g.count + 1, sizeof(*g.parent));
    g.runs = calloc(g.count + 1, sizeof(*g.runs));
    bool ok = g.parent && g.runs;
    for (uint32_t i = 0; i < g.count && ok; i++)
        g.parent[i] = i;
    ok = ok && unite_by_communicator(&g) && unite_by_unique_id(&g) && unite_by_time(&g) && list_jobs(job, &g);
    drop_runs(&g);
    free(g.parent);
    free(g.runs);
    return ok ? REC_OK : rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
}
