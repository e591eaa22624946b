/*
 * Advice for healthy jobs: a rank for which the others regularly wait.
 *
 * A collective cannot complete before its last member enters it, so what a rank spends
 * between that moment of its previous collective and its entering the next is its own time.
 * A rank whose own time is longer than the median of its peers, op after op, slows all of
 * them down; one that merely arrives late because it waited elsewhere does not.
 */
#include "diag.h"

#include <stdlib.h>

#define MATCHES_MIN  20
#define EXCESS_SHARE 10 /* a tenth of the time and more */
#define EXCESS_MEAN  (NS_PER_S / 2000)
#define EXCESS_TIMES 4 /* as much as the median rank */
#define RANKS_MAX    3
#define LEAD_MIN     (NS_PER_S / 10000)

struct score {
    uint32_t proc;
    uint32_t matches;
    uint64_t excess_ns;
    uint32_t last; /* how often it came last, by more than LEAD_MIN, and by how much in all */
    uint64_t lead_ns;
};

static bool usable(const struct diag *d, const struct diag_match *m)
{
    return m->src < 0 && m->posted > 1 && m->posted == m->comm->nranks &&
           (rec_kind_flags(d->ops[m->first_op].op.kind) & REC_KF_COLL);
}

static uint64_t last_arrival(const struct diag *d, const struct diag_match *m)
{
    uint64_t last = 0;
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next)
        if (d->ops[i].op.enter_ns > last)
            last = d->ops[i].op.enter_ns;
    return last;
}

/* Own time before each op that takes part in a usable match; UINT64_MAX elsewhere. */
static void measure_own_time(const struct diag *d, const uint64_t *arrivals, uint64_t *own)
{
    for (size_t p = 0; p < d->nprocs; p++) {
        uint64_t free_since = 0;
        for (uint32_t i = d->procs[p].first; i < d->procs[p].first + d->procs[p].count; i++) {
            const struct diag_op *op = &d->ops[i];
            own[i] = UINT64_MAX;
            if (op->match == DIAG_NONE || !usable(d, &d->matches[op->match]))
                continue;
            if (free_since)
                own[i] = op->op.enter_ns > free_since ? op->op.enter_ns - free_since : 0;
            uint64_t arrived = arrivals[op->match];
            free_since = arrived > op->op.enter_ns ? arrived : op->op.enter_ns;
        }
    }
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void score_match(const struct diag *d, const struct diag_match *m, const uint64_t *own,
                        uint64_t *sorted, struct score *scores)
{
    size_t n = 0;
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next)
        if (own[i] != UINT64_MAX)
            sorted[n++] = own[i];
    if (n < 2)
        return;
    qsort(sorted, n, sizeof *sorted, by_value);
    uint64_t median = sorted[(n - 1) / 2];
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        if (own[i] == UINT64_MAX)
            continue;
        struct score *score = &scores[d->ops[i].proc];
        score->matches++;
        score->excess_ns += own[i] > median ? own[i] - median : 0;
    }
}

/* Who came last, and how long after the one before. */
static void score_last(const struct diag *d, const struct diag_match *m, struct score *scores)
{
    const struct diag_op *last = NULL;
    uint64_t before = 0;
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        const struct diag_op *op = &d->ops[i];
        if (!last || op->op.enter_ns > last->op.enter_ns) {
            before = last ? last->op.enter_ns : 0;
            last = op;
        } else if (op->op.enter_ns > before) {
            before = op->op.enter_ns;
        }
    }
    if (!last || !before || last->op.enter_ns - before < LEAD_MIN)
        return;
    scores[last->proc].last++;
    scores[last->proc].lead_ns += last->op.enter_ns - before;
}

static int by_excess(const void *a, const void *b)
{
    const struct score *x = a, *y = b;
    if (x->excess_ns != y->excess_ns)
        return x->excess_ns > y->excess_ns ? -1 : 1;
    return x->proc < y->proc ? -1 : x->proc > y->proc;
}

static uint64_t span_of(const struct diag *d, uint32_t proc)
{
    const struct diag_proc *p = &d->procs[proc];
    if (p->count < 2)
        return 0;
    uint64_t first = d->ops[p->first].op.enter_ns, last = d->ops[p->first + p->count - 1].op.enter_ns;
    return last > first ? last - first : 0;
}

static bool stands_out(const struct diag *d, const struct score *score, uint64_t median)
{
    uint64_t span = span_of(d, score->proc);
    return score->matches >= MATCHES_MIN && span && score->excess_ns >= span / EXCESS_SHARE &&
           score->excess_ns / score->matches >= EXCESS_MEAN && score->excess_ns / EXCESS_TIMES >= median;
}

static void advise(struct diag *d, const struct score *score, uint64_t span)
{
    struct rec_finding *f =
        diag_finding(d, REC_VERDICT_STRAGGLER, REC_CONF_LIKELY, DIAG_TIER_NOTE, d->nfindings);
    if (!f)
        return;
    const struct rec_process *p = d->procs[score->proc].p;
    diag_blame(d, f, DIAG_CULPRIT, p->rank);
    struct diag_text t = {0};
    diag_say_proc(&t, p);
    diag_printf(&t, " takes ");
    diag_say_seconds(&t, score->excess_ns / score->matches);
    diag_printf(&t,
                " longer than its peers before a collective (average of %u), %u %% of its time, in which "
                "others wait for it",
                score->matches, (unsigned)(score->excess_ns * 100 / span));
    if (score->last) {
        diag_printf(&t,
                    score->last == 1 ? "; it came last once, by " : "; it came last %u times, on average by ",
                    score->last);
        diag_say_seconds(&t, score->lead_ns / score->last);
    }
    diag_summary(d, f, &t);
}

void diag_stragglers(struct diag *d)
{
    uint64_t *arrivals = calloc(d->nmatches + 1, sizeof *arrivals);
    uint64_t *own = calloc(d->nops + 1, sizeof *own);
    uint64_t *sorted = calloc(d->nops + 1, sizeof *sorted);
    struct score *scores = calloc(d->nprocs + 1, sizeof *scores);
    if (arrivals && own && sorted && scores) {
        for (size_t i = 0; i < d->nmatches; i++)
            if (usable(d, &d->matches[i]))
                arrivals[i] = last_arrival(d, &d->matches[i]);
        measure_own_time(d, arrivals, own);
        for (uint32_t i = 0; i < d->nprocs; i++)
            scores[i].proc = i;
        for (size_t i = 0; i < d->nmatches; i++)
            if (usable(d, &d->matches[i])) {
                score_match(d, &d->matches[i], own, sorted, scores);
                score_last(d, &d->matches[i], scores);
            }
        qsort(scores, d->nprocs, sizeof *scores, by_excess);
        uint64_t median = d->nprocs ? scores[d->nprocs / 2].excess_ns : 0;
        for (size_t i = 0; i < RANKS_MAX && i < d->nprocs; i++)
            if (stands_out(d, &scores[i], median))
                advise(d, &scores[i], span_of(d, scores[i].proc));
    } else {
        d->oom = true;
    }
    free(arrivals);
    free(own);
    free(sorted);
    free(scores);
}
