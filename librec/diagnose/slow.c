/*
 * Slow executions: what a collective takes after the last of its ranks has begun it on the GPU is
 * the time of links and GPUs, of no rank's program. Waiting for a rank that comes late is another
 * matter (straggler.c).
 *
 * Times from stream marks are those at which somebody looked, up to a quarter of a second late.
 */
#include "diag.h"

#include <inttypes.h>
#include <stdlib.h>

#define COARSE_MIN  NS_PER_S
#define EXACT_MIN   (NS_PER_S / 200)
#define EXACT_TIMES 10 /* as long as the typical one of its communicator */
#define NOTES_MAX   8

struct execution {
    const struct rec_communicator *comm;
    const struct diag_op *op;
    uint64_t ns;
    bool exact;
};

/* From the last beginning to the first end: no rank's own delay is in it. */
static bool measure(const struct diag *d, const struct diag_match *m, struct execution *e)
{
    uint64_t begin = 0, end = UINT64_MAX;
    if (m->src >= 0 || m->posted < 2 || m->posted != m->comm->nranks ||
        !(rec_kind_flags(d->ops[m->first_op].op.kind) & REC_KF_COLL))
        return false;
    *e = (struct execution){.comm = m->comm, .op = &d->ops[m->first_op], .exact = true};
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        const struct rec_op *op = &d->ops[i].op;
        if (!op->gpu_start_ns || !op->gpu_end_ns)
            return false;
        e->exact = e->exact && !op->launch;
        begin = op->gpu_start_ns > begin ? op->gpu_start_ns : begin;
        end = op->gpu_end_ns < end ? op->gpu_end_ns : end;
    }
    e->ns = end > begin ? end - begin : 0;
    return true;
}

/* By communicator, shortest first. */
static int by_time(const void *a, const void *b)
{
    const struct execution *x = a, *y = b;
    if (x->comm != y->comm)
        return x->comm->index < y->comm->index ? -1 : 1;
    return x->ns < y->ns ? -1 : x->ns > y->ns;
}

static bool is_slow(const struct execution *e, uint64_t median)
{
    return e->exact ? e->ns >= EXACT_MIN && e->ns / EXACT_TIMES >= median : e->ns >= COARSE_MIN;
}

static void note(struct diag *d, struct rec_census *census, const struct execution *all, size_t count)
{
    size_t slow = 0;
    while (slow < count && is_slow(&all[count - 1 - slow], all[(count - 1) / 2].ns))
        slow++;
    if (!slow || census->nnotes >= NOTES_MAX)
        return;
    const struct execution *longest = &all[count - 1];
    struct diag_text t = {0};
    diag_printf(&t, "%zu of %zu collectives of ", slow, count);
    diag_say_comm(&t, longest->comm);
    diag_printf(&t, " took long after all ranks had begun them, at most ");
    diag_say_seconds(&t, longest->ns);
    diag_printf(&t, " (op %" PRIu64 ", ", longest->op->op.seq);
    diag_say_call(&t, longest->op);
    diag_printf(&t, "): links or GPUs are slow, no rank is late");
    d->oom = !diag_census_note(census, &t) || d->oom;
}

void diag_slow(struct diag *d, struct rec_census *census)
{
    struct execution *all = malloc((d->nmatches + 1) * sizeof *all);
    size_t count = 0;
    d->oom = d->oom || !all;
    for (size_t i = 0; i < d->nmatches && !d->oom; i++)
        count += measure(d, &d->matches[i], &all[count]);
    if (count)
        qsort(all, count, sizeof *all, by_time);
    for (size_t first = 0, next; first < count && !d->oom; first = next) {
        for (next = first + 1; next < count && all[next].comm == all[first].comm; next++)
            ;
        note(d, census, &all[first], next - first);
    }
    free(all);
}
