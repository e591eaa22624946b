/*
 * Clocks of several hosts. What one rank did before another is only known on one clock, and
 * NTP is off by seconds more often than one thinks.
 *
 * Creating a communicator synchronizes its members: the calls return within a moment of each
 * other wherever they were made. So the difference between two hosts' clocks is the median
 * difference between the ends of the creations they share. All times of the analysis are
 * moved to the clock of the first host.
 */
#include "diag.h"

#include <stdlib.h>
#include <string.h>

/* A median of so many is as good as one of all. */
#define SAMPLES_MAX 64
#define TELL_NS     INT64_C(100000000)

struct pair {
    uint32_t a, b;                /* hosts */
    int64_t samples[SAMPLES_MAX]; /* clock of b minus clock of a */
    uint32_t count;
};

struct first {
    uint32_t host;
    uint64_t exit_ns;
};

struct clocks {
    struct diag_map host_ids, first_ids, pair_ids;
    struct first *firsts;
    size_t nfirsts, firsts_cap;
    struct pair *pairs;
    size_t npairs, pairs_cap;
    uint32_t nhosts;
};

static uint64_t text_key(const char *text)
{
    uint64_t h = 81;
    for (; *text; text++)
        h = rec_mix64(h ^ (unsigned char)*text) + 1;
    return h | 1;
}

uint32_t diag_host_of(struct diag *d, const struct rec_process *p)
{
    if (!d->clocks && !(d->clocks = calloc(1, sizeof *d->clocks))) {
        d->oom = true;
        return 0;
    }
    bool fresh;
    uint32_t *id = diag_map_put(&d->clocks->host_ids, text_key(p->boot_id[0] ? p->boot_id : p->host), &fresh);
    if (!id) {
        d->oom = true;
        return 0;
    }
    if (fresh)
        *id = d->clocks->nhosts++;
    return *id;
}

static void add_sample(struct diag *d, uint32_t a, uint32_t b, int64_t difference)
{
    struct clocks *c = d->clocks;
    if (a > b) {
        uint32_t swap = a;
        a = b;
        b = swap;
        difference = -difference;
    }
    bool fresh;
    uint32_t *at = diag_map_put(&c->pair_ids, diag_key(a, b, 82), &fresh);
    c->pairs = diag_grow(c->pairs, &c->pairs_cap, c->npairs, sizeof *c->pairs, &d->oom);
    if (!at || d->oom) {
        d->oom = true;
        return;
    }
    if (fresh) {
        *at = (uint32_t)c->npairs;
        c->pairs[c->npairs++] = (struct pair){.a = a, .b = b};
    }
    struct pair *pair = &c->pairs[*at];
    if (pair->count < SAMPLES_MAX)
        pair->samples[pair->count++] = difference;
}

void diag_clock_note(struct diag *d, uint32_t proc, const struct rec_communicator *comm,
                     const struct rec_op *op)
{
    /* Inside a group the call returns before the creation is done. */
    if (!(rec_kind_flags(op->kind) & REC_KF_CREATE) || op->group || op->result != REC_RESULT_SUCCESS ||
        !op->exit_ns)
        return;
    uint32_t host = d->procs[proc].host;
    struct clocks *c = d->clocks;
    bool fresh;
    uint32_t *at = diag_map_put(&c->first_ids, diag_key(comm->index, op->seq, 83), &fresh);
    c->firsts = diag_grow(c->firsts, &c->firsts_cap, c->nfirsts, sizeof *c->firsts, &d->oom);
    if (!at || d->oom) {
        d->oom = true;
        return;
    }
    if (fresh) {
        *at = (uint32_t)c->nfirsts;
        c->firsts[c->nfirsts++] = (struct first){host, op->exit_ns};
    } else if (c->firsts[*at].host != host) {
        add_sample(d, c->firsts[*at].host, host, (int64_t)(op->exit_ns - c->firsts[*at].exit_ns));
    }
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Offsets spread from the first host along the pairs that share creations. */
static void spread_offsets(struct clocks *c, int64_t *offsets, bool *known)
{
    for (size_t i = 0; i < c->npairs; i++)
        qsort(c->pairs[i].samples, c->pairs[i].count, sizeof(int64_t), by_value);
    known[0] = true;
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < c->npairs; i++) {
            const struct pair *pair = &c->pairs[i];
            int64_t difference = pair->samples[pair->count / 2];
            if (known[pair->a] == known[pair->b])
                continue;
            if (known[pair->a])
                offsets[pair->b] = offsets[pair->a] + difference;
            else
                offsets[pair->a] = offsets[pair->b] - difference;
            known[pair->a] = known[pair->b] = changed = true;
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
}

void diag_clock_align(struct diag *d)
{
    struct clocks *c = d->clocks;
    if (!c || c->nhosts < 2)
        return;
    int64_t *offsets = calloc(c->nhosts, sizeof *offsets);
    bool *known = calloc(c->nhosts, sizeof *known);
    if (offsets && known) {
        spread_offsets(c, offsets, known);
        for (size_t i = 0; i < d->nprocs; i++)
            if (offsets[d->procs[i].host])
                move_process(d, &d->procs[i], offsets[d->procs[i].host]);
    } else {
        d->oom = true;
    }
    free(offsets);
    free(known);
}

void diag_clock_evidence(struct diag *d, struct rec_finding *f)
{
    uint32_t told = 0;
    for (size_t i = 1; i < d->nprocs && told < 4; i++) {
        const struct diag_proc *proc = &d->procs[i];
        int64_t offset = proc->offset_ns;
        if (proc->host == d->procs[i - 1].host || (offset > -TELL_NS && offset < TELL_NS))
            continue;
        diag_evidence(d, f, NULL, UINT64_MAX, 0,
                      "the clock of host %s is %.3f s %s that of %s, which all times here follow",
                      proc->p->host, (double)(offset < 0 ? -offset : offset) / 1e9,
                      offset < 0 ? "behind" : "ahead of", d->procs[0].p->host);
        told++;
    }
}

void diag_clock_fini(struct diag *d)
{
    if (!d->clocks)
        return;
    diag_map_free(&d->clocks->host_ids);
    diag_map_free(&d->clocks->first_ids);
    diag_map_free(&d->clocks->pair_ids);
    free(d->clocks->firsts);
    free(d->clocks->pairs);
    free(d->clocks);
}
