/*
 * Clocks of several hosts. What one rank did before another is only known on one clock, and
 * NTP is off by seconds more often than one thinks.
 *
 * Calls that synchronize tell two things. First, they end together wherever they were made: the
 * typical difference of their ends is the difference of the clocks. Second, none ends before
 * all have begun: the end on one host minus the beginning on another bounds the difference,
 * from both sides once each of the two has come last at some call. Such calls are the creations
 * of communicators, and collectives whose end on the GPU was recorded. All times of the analysis
 * are moved to the clock of the first host.
 */
#include "diag.h"

#include <stdlib.h>

/* A median of so many is as good as one of all. */
#define SAMPLES_MAX 64
#define SAMPLES_FEW 8 /* up to so many the most different one counts as uncertainty, else the middle 80 % */
#define CALLS_MAX   (1u << 18)
#define TELL_NS     INT64_C(100000000)
#define FAR_NS      (INT64_MAX / 4)

struct pair {
    uint32_t a, b;                /* hosts */
    int64_t samples[SAMPLES_MAX]; /* clock of b minus clock of a */
    uint32_t count;
    int64_t low, high; /* proven bounds of the same */
};

/* One call of one communicator on one host. */
struct call {
    uint32_t host;
    uint32_t first; /* the same call on the host that was loaded first */
    uint64_t last_enter_ns, first_end_ns;
};

struct estimate {
    bool known;
    int64_t offset;
    uint64_t uncertainty;
    uint32_t samples;
};

struct clocks {
    struct diag_map host_ids, first_ids, call_ids, pair_ids;
    struct call *calls;
    size_t ncalls, calls_cap;
    struct pair *pairs;
    size_t npairs, pairs_cap;
    uint32_t nhosts;
    struct estimate *estimates; /* by host, after diag_clock_align */
};

static uint64_t text_key(const char *text)
{
    uint64_t h = 81;
    for (; *text; text++)
        h = rec_mix64(h ^ (unsigned char)*text) + 1;
    return h | 1;
}

static uint64_t host_key(const struct rec_process *p)
{
    return text_key(p->boot_id[0] ? p->boot_id : p->host);
}

uint32_t diag_host_of(struct diag *d, const struct rec_process *p)
{
    if (!d->clocks && !(d->clocks = calloc(1, sizeof *d->clocks))) {
        d->oom = true;
        return 0;
    }
    bool fresh;
    uint32_t *id = diag_map_put(&d->clocks->host_ids, host_key(p), &fresh);
    if (!id) {
        d->oom = true;
        return 0;
    }
    if (fresh)
        *id = d->clocks->nhosts++;
    return *id;
}

static struct pair *pair_of(struct diag *d, uint32_t a, uint32_t b)
{
    struct clocks *c = d->clocks;
    bool fresh;
    uint32_t *at = diag_map_put(&c->pair_ids, diag_key(a, b, 82), &fresh);
    c->pairs = diag_grow(c->pairs, &c->pairs_cap, c->npairs, sizeof *c->pairs, &d->oom);
    if (!at || d->oom) {
        d->oom = true;
        return NULL;
    }
    if (fresh) {
        *at = (uint32_t)c->npairs;
        c->pairs[c->npairs++] = (struct pair){.a = a, .b = b, .low = INT64_MIN, .high = INT64_MAX};
    }
    return &c->pairs[*at];
}

/* Times of traces may be anything: so far apart that sums and differences cannot overflow. */
static int64_t bounded(int64_t ns)
{
    return ns > FAR_NS ? FAR_NS : ns < -FAR_NS ? -FAR_NS : ns;
}

static int64_t difference(uint64_t later, uint64_t earlier)
{
    return bounded((int64_t)(later - earlier));
}

/* What one call says about the clocks of two hosts. */
static void add_sample(struct diag *d, const struct call *x, const struct call *y)
{
    if (x->host > y->host) {
        const struct call *swap = x;
        x = y;
        y = swap;
    }
    struct pair *pair = pair_of(d, x->host, y->host);
    if (!pair)
        return;
    if (pair->count < SAMPLES_MAX)
        pair->samples[pair->count++] = difference(y->first_end_ns, x->first_end_ns);
    int64_t high = difference(y->first_end_ns, x->last_enter_ns);
    int64_t low = difference(y->last_enter_ns, x->first_end_ns);
    pair->high = high < pair->high ? high : pair->high;
    pair->low = low > pair->low ? low : pair->low;
}

static void note_call(struct diag *d, uint32_t host, uint64_t key, uint64_t enter_ns, uint64_t end_ns)
{
    struct clocks *c = d->clocks;
    bool fresh_first, fresh;
    if (c->ncalls == CALLS_MAX)
        return;
    uint32_t *first = diag_map_put(&c->first_ids, key, &fresh_first);
    uint32_t *at = diag_map_put(&c->call_ids, diag_key(key, host, 84), &fresh);
    c->calls = diag_grow(c->calls, &c->calls_cap, c->ncalls, sizeof *c->calls, &d->oom);
    if (!first || !at || d->oom) {
        d->oom = true;
        return;
    }
    if (fresh_first)
        *first = (uint32_t)c->ncalls;
    if (fresh) {
        *at = (uint32_t)c->ncalls;
        c->calls[c->ncalls++] = (struct call){host, *first, enter_ns, end_ns};
        return;
    }
    struct call *call = &c->calls[*at];
    if (enter_ns > call->last_enter_ns)
        call->last_enter_ns = enter_ns;
    if (end_ns < call->first_end_ns)
        call->first_end_ns = end_ns;
}

void diag_clock_note(struct diag *d, uint32_t proc, const struct rec_communicator *comm,
                     const struct rec_op *op)
{
    unsigned flags = rec_kind_flags(op->kind);
    /* Inside a group the call returns before the creation is done. */
    if ((flags & REC_KF_CREATE) && !op->group && op->result == REC_RESULT_SUCCESS && op->exit_ns)
        note_call(d, d->procs[proc].host, diag_key(comm->index, op->seq, 83), op->enter_ns, op->exit_ns);
}

/*
 * Collectives whose end was seen; those that have a root need not end together. What stream marks
 * tell is too coarse: the time at which somebody looked.
 */
static void note_collectives(struct diag *d)
{
    for (size_t p = 0; p < d->nprocs; p++) {
        const struct diag_proc *proc = &d->procs[p];
        for (uint32_t i = proc->first; proc->gpu_timed && i < proc->first + proc->count && !d->oom; i++) {
            const struct diag_op *op = &d->ops[i];
            unsigned flags = rec_kind_flags(op->op.kind);
            if (op->member && (flags & REC_KF_COLL) && !(flags & REC_KF_ROOT) && op->op.gpu_end_ns &&
                !op->op.launch)
                note_call(d, proc->host, diag_key(op->member->comm->index, op->op.seq, 83), op->op.enter_ns,
                          op->op.gpu_end_ns);
        }
    }
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t apart(int64_t x, int64_t y)
{
    return (uint64_t)bounded(x > y ? x - y : y - x);
}

static uint64_t larger(uint64_t x, uint64_t y)
{
    return x > y ? x : y;
}

/*
 * The median, as far as the bounds allow. What is proven counts as uncertainty, or how much the
 * samples differ among each other where they are many and agree better.
 */
static struct estimate estimate(const struct pair *pair)
{
    struct estimate e = {.known = true, .samples = pair->count};
    int64_t median = pair->samples[pair->count / 2];
    e.offset = median < pair->low ? pair->low : median > pair->high ? pair->high : median;
    uint32_t skip = pair->count > SAMPLES_FEW ? pair->count / 10 : 0;
    uint64_t proven = larger(apart(e.offset, pair->low), apart(e.offset, pair->high));
    uint64_t spread =
        larger(apart(e.offset, pair->samples[skip]), apart(e.offset, pair->samples[pair->count - 1 - skip]));
    e.uncertainty = pair->count > SAMPLES_FEW && spread < proven ? spread : proven;
    e.uncertainty += !e.uncertainty;
    return e;
}

/* Offsets spread from the first host along the pairs that share calls. */
static void spread_offsets(struct clocks *c)
{
    for (size_t i = 0; i < c->npairs; i++)
        qsort(c->pairs[i].samples, c->pairs[i].count, sizeof(int64_t), by_value);
    c->estimates[0].known = true;
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < c->npairs; i++) {
            const struct pair *pair = &c->pairs[i];
            struct estimate *a = &c->estimates[pair->a], *b = &c->estimates[pair->b];
            if (a->known == b->known)
                continue;
            bool forward = a->known;
            struct estimate e = estimate(pair), *from = forward ? a : b, *to = forward ? b : a;
            *to = e;
            to->offset = bounded(from->offset + (forward ? e.offset : -e.offset));
            to->uncertainty = (from->uncertainty + e.uncertainty) & INT64_MAX;
            changed = true;
        }
    }
}

static uint64_t moved(uint64_t ns, int64_t offset)
{
    return ns ? ns - (uint64_t)offset : 0;
}

static void move_process(struct diag *d, struct diag_proc *proc, int64_t offset)
{
    proc->offset_ns = offset;
    proc->life_ns = moved(proc->life_ns, offset);
    proc->last_call_ns = moved(proc->last_call_ns, offset);
    proc->last_work_ns = moved(proc->last_work_ns, offset);
    for (uint32_t i = proc->first; i < proc->first + proc->count; i++) {
        struct rec_op *op = &d->ops[i].op;
        op->enter_ns = moved(op->enter_ns, offset);
        op->exit_ns = moved(op->exit_ns, offset);
        op->gpu_start_ns = moved(op->gpu_start_ns, offset);
        op->gpu_end_ns = moved(op->gpu_end_ns, offset);
    }
    proc->graph_ns = moved(proc->graph_ns, offset);
    proc->gap_ns = moved(proc->gap_ns, offset);
}

void diag_clock_align(struct diag *d)
{
    struct clocks *c = d->clocks;
    if (!c || c->nhosts < 2)
        return;
    note_collectives(d);
    for (size_t i = 0; i < c->ncalls && !d->oom; i++)
        if (c->calls[i].first != i)
            add_sample(d, &c->calls[c->calls[i].first], &c->calls[i]);
    c->estimates = calloc(c->nhosts, sizeof *c->estimates);
    if (!c->estimates || d->oom) {
        d->oom = true;
        return;
    }
    spread_offsets(c);
    for (size_t i = 0; i < d->nprocs; i++) {
        const struct estimate *e = &c->estimates[d->procs[i].host];
        d->procs[i].clock = e->known ? 0 : d->procs[i].host;
        if (e->offset)
            move_process(d, &d->procs[i], e->offset);
    }
}

/* Also of the processes of earlier generations, which ran on the same hosts. */
static void say_clock_of(const struct rec_job *job, const struct clocks *c, uint32_t *clock_of)
{
    size_t count;
    struct rec_process *const *processes = rec_job_processes(job, &count);
    for (size_t i = 0; i < count; i++) {
        uint32_t host = c ? diag_map_get(&c->host_ids, host_key(processes[i])) : DIAG_NONE;
        clock_of[i] = host == DIAG_NONE ? REC_ID_NONE : host;
    }
}

void diag_clock_census(struct diag *d, struct rec_census *census)
{
    struct clocks *c = d->clocks;
    size_t nprocesses;
    rec_job_processes(d->job, &nprocesses);
    census->clocks = calloc((c ? c->nhosts : 0) + 1u, sizeof *census->clocks);
    census->clock_of = calloc(nprocesses + 1, sizeof *census->clock_of);
    if (!census->clocks || !census->clock_of) {
        d->oom = true;
        return;
    }
    say_clock_of(d->job, c, census->clock_of);
    if (!c)
        return;
    census->nclocks = c->nhosts;
    for (size_t i = d->nprocs; i-- > 0;) {
        uint32_t host = d->procs[i].host;
        struct rec_host_clock *clock = &census->clocks[host];
        *clock = (struct rec_host_clock){.host = d->procs[i].p->host, .known = host == 0};
        if (c->estimates && c->estimates[host].known) {
            const struct estimate *e = &c->estimates[host];
            *clock = (struct rec_host_clock){clock->host, true, e->offset, e->uncertainty, e->samples};
        }
    }
}

void diag_clock_evidence(struct diag *d, struct rec_finding *f)
{
    uint32_t told = 0;
    for (size_t i = 1; i < d->nprocs && told < 4; i++) {
        const struct diag_proc *proc = &d->procs[i];
        int64_t offset = proc->offset_ns;
        if (proc->host == d->procs[i - 1].host || (offset > -TELL_NS && offset < TELL_NS))
            continue;
        struct diag_text t = {0};
        diag_say_seconds(&t, d->clocks->estimates[proc->host].uncertainty);
        diag_evidence(d, f, NULL, UINT64_MAX, 0,
                      "the clock of host %s is %.3f s %s that of %s (± %s), which all times here follow",
                      proc->p->host, (double)(offset < 0 ? -offset : offset) / 1e9,
                      offset < 0 ? "behind" : "ahead of", d->procs[0].p->host, t.data ? t.data : "?");
        free(t.data);
        told++;
    }
}

void diag_clock_fini(struct diag *d)
{
    if (!d->clocks)
        return;
    diag_map_free(&d->clocks->host_ids);
    diag_map_free(&d->clocks->first_ids);
    diag_map_free(&d->clocks->call_ids);
    diag_map_free(&d->clocks->pair_ids);
    free(d->clocks->calls);
    free(d->clocks->estimates);
    free(d->clocks->pairs);
    free(d->clocks);
}
