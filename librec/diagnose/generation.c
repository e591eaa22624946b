/*
 * Generations: a launcher that restarts a failed job makes one job of several runs, one after
 * the other. What the processes of one run waited for says nothing about the next, so each is
 * analyzed by itself.
 *
 * Processes that share communicators, directly or through others, are of one generation: a
 * shrunk or grown job has only one. Else a set of processes follows another when it has its
 * ranks and began after these had ended, or under another restart counter.
 */
#include "diag.h"

#include <stdlib.h>
#include <string.h>

#include "job/sets.h"

struct cluster {
    uint32_t root;
    uint64_t start_ns, last_ns;
    uint32_t size;
    uint32_t generation;
    bool placed; /* by a predecessor */
};

struct runs {
    struct rec_process *const *processes;
    size_t nprocs;
    uint32_t *parent;    /* sets of processes */
    uint32_t *before;    /* the process that had the same rank before; DIAG_NONE */
    uint32_t *at;        /* process → cluster */
    uint32_t *succeeded; /* by cluster: its processes that the cluster being placed succeeds */
    struct cluster *clusters;
    size_t nclusters;
};

static void unite_members(struct runs *r, const struct rec_job *job)
{
    size_t ncomms;
    struct rec_communicator *const *comms = rec_job_communicators(job, &ncomms);
    for (size_t c = 0; c < ncomms; c++)
        for (uint32_t i = 1; i < comms[c]->nmembers; i++)
            job_set_unite(r->parent, comms[c]->members[0]->process->index,
                          comms[c]->members[i]->process->index);
}

static uint64_t end_of(const struct rec_process *p)
{
    return p->end_ns > p->last_ns ? p->end_ns : p->last_ns;
}

static int by_start(const void *a, const void *b)
{
    const struct cluster *x = a, *y = b;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return x->root < y->root ? -1 : x->root > y->root;
}

static void collect_clusters(struct runs *r)
{
    for (uint32_t i = 0; i < r->nprocs; i++) {
        const struct rec_process *p = r->processes[i];
        uint32_t root = job_set_root(r->parent, i);
        if (root == i) { /* the root is the first of its set */
            r->at[i] = (uint32_t)r->nclusters;
            r->clusters[r->nclusters++] = (struct cluster){.root = i, .start_ns = p->start_ns};
        }
        struct cluster *cluster = &r->clusters[r->at[root]];
        cluster->size++;
        if (p->start_ns < cluster->start_ns)
            cluster->start_ns = p->start_ns;
        if (end_of(p) > cluster->last_ns)
            cluster->last_ns = end_of(p);
        /* Sorted by (rank, start). */
        bool same = i && p->rank >= 0 && r->processes[i - 1]->rank == p->rank;
        r->before[i] = same ? i - 1 : DIAG_NONE;
    }
    qsort(r->clusters, r->nclusters, sizeof *r->clusters, by_start);
    for (uint32_t c = 0; c < r->nclusters; c++)
        r->at[r->clusters[c].root] = c;
    for (uint32_t i = 0; i < r->nprocs; i++)
        r->at[i] = r->at[job_set_root(r->parent, i)];
}

static bool other_restart(const struct rec_process *p, const struct rec_process *before)
{
    return before->restart[0] && p->restart[0] && strcmp(before->restart, p->restart) != 0;
}

/* Did the process begin after the earlier one of its rank? */
static bool succeeds(const struct rec_process *p, const struct rec_process *before)
{
    return other_restart(p, before) || (before->fate != REC_FATE_ALIVE && end_of(before) <= p->start_ns);
}

/* The cluster that process i of cluster c succeeds; DIAG_NONE. */
static uint32_t predecessor(const struct runs *r, uint32_t c, uint32_t i)
{
    uint32_t before = r->before[i];
    if (before == DIAG_NONE || r->at[before] >= c || !succeeds(r->processes[i], r->processes[before]))
        return DIAG_NONE;
    return r->at[before];
}

/*
 * Is a cluster the next generation of an earlier one, of whose processes count have successors in
 * it? A helper that some ranks ran before, or a single process that was started anew while the
 * others went on, makes no generation: that takes most processes of both, or of one that was over.
 */
static bool follows(const struct cluster *cluster, const struct cluster *earlier, uint32_t count,
                    uint32_t total)
{
    bool over = earlier->last_ns <= cluster->start_ns, most = count * 2 > earlier->size;
    return (over || most) && (total * 2 > cluster->size || (over && most && earlier->size > 1));
}

/* Places the clusters in the order of their starts, next[] listing the processes of each. */
static void place_successors(struct runs *r, const uint32_t *first, const uint32_t *next)
{
    for (uint32_t c = 0; c < r->nclusters; c++) {
        struct cluster *cluster = &r->clusters[c];
        uint32_t total = 0;
        for (uint32_t i = first[c]; i != DIAG_NONE; i = next[i]) {
            uint32_t earlier = predecessor(r, c, i);
            if (earlier == DIAG_NONE)
                continue;
            r->succeeded[earlier]++;
            total++;
        }
        for (uint32_t i = first[c]; i != DIAG_NONE; i = next[i]) {
            uint32_t at = predecessor(r, c, i);
            if (at == DIAG_NONE)
                continue;
            const struct cluster *earlier = &r->clusters[at];
            if (earlier->generation + 1 > cluster->generation &&
                (other_restart(r->processes[i], r->processes[r->before[i]]) ||
                 follows(cluster, earlier, r->succeeded[at], total))) {
                cluster->generation = earlier->generation + 1;
                cluster->placed = true;
            }
        }
        for (uint32_t i = first[c]; i != DIAG_NONE; i = next[i])
            if (r->before[i] != DIAG_NONE)
                r->succeeded[r->at[r->before[i]]] = 0;
    }
}

/* By cluster the first generation in which others succeed its processes: it is none of that one or later. */
static uint32_t *find_limits(const struct runs *r, uint32_t ngenerations)
{
    uint32_t *limits = malloc((r->nclusters + 1) * sizeof *limits);
    for (uint32_t c = 0; limits && c < r->nclusters; c++)
        limits[c] = ngenerations;
    for (uint32_t i = 0; limits && i < r->nprocs; i++) {
        uint32_t before = r->before[i];
        if (before == DIAG_NONE || !succeeds(r->processes[i], r->processes[before]))
            continue;
        uint32_t *limit = &limits[r->at[before]], generation = r->clusters[r->at[i]].generation;
        *limit = generation < *limit ? generation : *limit;
    }
    return limits;
}

/*
 * Who has no predecessor belongs to the latest generation that had begun by its end and lived on at its
 * start, and in which nobody succeeds it.
 */
static bool place_others(struct runs *r, uint32_t ngenerations)
{
    uint64_t *starts = calloc(ngenerations, sizeof *starts), *ends = calloc(ngenerations, sizeof *ends);
    uint32_t *limits = find_limits(r, ngenerations);
    bool ok = starts && ends && limits;
    for (uint32_t c = 0; ok && c < r->nclusters; c++) {
        const struct cluster *cluster = &r->clusters[c];
        if (!cluster->placed && c)
            continue;
        uint32_t g = cluster->generation;
        if (!starts[g] || cluster->start_ns < starts[g])
            starts[g] = cluster->start_ns;
        if (cluster->last_ns > ends[g])
            ends[g] = cluster->last_ns;
    }
    for (uint32_t c = 1; ok && c < r->nclusters; c++) {
        struct cluster *cluster = &r->clusters[c];
        for (uint32_t g = limits[c]; !cluster->placed && g-- > 0;)
            if (starts[g] && starts[g] <= cluster->last_ns && ends[g] >= cluster->start_ns) {
                cluster->generation = g;
                cluster->placed = true;
            }
    }
    free(starts);
    free(ends);
    free(limits);
    return ok;
}

static bool place(struct runs *r, uint32_t *ngenerations)
{
    uint32_t *first = malloc((r->nclusters + 1) * sizeof *first);
    uint32_t *next = malloc((r->nprocs + 1) * sizeof *next);
    bool ok = first && next;
    for (uint32_t c = 0; ok && c < r->nclusters; c++)
        first[c] = DIAG_NONE;
    for (uint32_t i = 0; ok && i < r->nprocs; i++) {
        next[i] = first[r->at[i]];
        first[r->at[i]] = i;
    }
    *ngenerations = 1;
    if (ok) {
        place_successors(r, first, next);
        for (uint32_t c = 0; c < r->nclusters; c++)
            if (r->clusters[c].generation + 1 > *ngenerations)
                *ngenerations = r->clusters[c].generation + 1;
        ok = *ngenerations == 1 || place_others(r, *ngenerations);
    }
    free(first);
    free(next);
    return ok;
}

static bool describe(const struct runs *r, const struct rec_job *job, struct rec_census *census)
{
    census->generations = calloc(census->ngenerations, sizeof *census->generations);
    if (!census->generations)
        return false;
    for (uint32_t i = 0; i < r->nprocs; i++)
        census->generations[census->generation_of[i]].processes++;
    for (size_t g = 0; g < census->ngenerations; g++) {
        struct rec_generation *generation = &census->generations[g];
        generation->restart = "";
        generation->ranks = malloc((generation->processes + 1) * sizeof *generation->ranks);
        if (!generation->ranks)
            return false;
        for (uint32_t i = 0; i < r->nprocs; i++) {
            const struct rec_process *p = r->processes[i];
            if (census->generation_of[i] != g)
                continue;
            if (p->restart[0])
                generation->restart = p->restart;
            if (!generation->start_ns || p->start_ns < generation->start_ns)
                generation->start_ns = p->start_ns;
            if (end_of(p) > generation->last_ns)
                generation->last_ns = end_of(p);
            if (p->world_size > 0 && (uint32_t)p->world_size > generation->expected)
                generation->expected = (uint32_t)p->world_size;
            size_t n = generation->nranks;
            if (p->rank >= 0 && (!n || generation->ranks[n - 1] != p->rank))
                generation->ranks[generation->nranks++] = p->rank;
        }
        if (census->ngenerations == 1 || !generation->expected)
            generation->expected = rec_job_expected_ranks(job);
    }
    return true;
}

bool diag_generations(const struct rec_job *job, struct rec_census *census)
{
    struct runs r = {0};
    r.processes = rec_job_processes(job, &r.nprocs);
    size_t room = r.nprocs + 1;
    r.parent = malloc(room * sizeof *r.parent);
    r.before = malloc(room * sizeof *r.before);
    r.at = malloc(room * sizeof *r.at);
    r.succeeded = calloc(room, sizeof *r.succeeded);
    r.clusters = calloc(room, sizeof *r.clusters);
    census->generation_of = calloc(room, sizeof *census->generation_of);
    bool ok = r.parent && r.before && r.at && r.succeeded && r.clusters && census->generation_of;
    uint32_t count = 1;
    if (ok) {
        for (uint32_t i = 0; i < r.nprocs; i++)
            r.parent[i] = i;
        unite_members(&r, job);
        collect_clusters(&r);
        ok = place(&r, &count);
    }
    census->ngenerations = count;
    for (uint32_t i = 0; ok && i < r.nprocs; i++)
        census->generation_of[i] = r.clusters[r.at[i]].generation;
    ok = ok && describe(&r, job, census);
    free(r.parent);
    free(r.before);
    free(r.at);
    free(r.succeeded);
    free(r.clusters);
    return ok;
}
