/* Knots: processes that wait for each other in a circle. */
#include "classify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool inside(const struct diag *d, uint32_t node, uint32_t component)
{
    return d->component[node] == component;
}

struct knot {
    uint32_t component;
    uint64_t since;
    uint32_t collectives, messages, others; /* waits by kind */
    bool maybe;                             /* rests on guessed members */
    const struct rec_communicator *first_comm;
    bool several_comms;
    const struct diag_wait *first;
};

static void survey(const struct diag *d, struct knot *k)
{
    k->since = UINT64_MAX;
    for (size_t i = 0; i < d->nwaits; i++) {
        const struct diag_wait *wait = &d->waits[i];
        if (!inside(d, (uint32_t)(d->nprocs + i), k->component))
            continue;
        if (wait->kind == DIAG_WAIT_COLL)
            k->collectives++;
        else if (wait->kind == DIAG_WAIT_P2P)
            k->messages++;
        else
            k->others++;
        k->several_comms = k->several_comms || (k->first_comm && k->first_comm != wait->comm);
        k->first_comm = wait->comm;
        if (wait->since < k->since) {
            k->since = wait->since;
            k->first = wait;
        }
    }
    for (size_t i = 0; i < d->nedges; i++)
        if (d->edges[i].reason == DIAG_MAYBE && inside(d, d->edges[i].from, k->component))
            k->maybe = true;
}

/* ---- was it rather one op that a few left out? ---- */

/*
 * Did most come to this wait and few not? Half count as most when several ranks agreed to
 * enter the only collective of the knot and the others sit in messages between two.
 */
static bool lacks_few(const struct diag *d, const struct knot *k, const struct diag_wait *wait)
{
    if (wait->kind != DIAG_WAIT_COLL && wait->kind != DIAG_WAIT_CREATE)
        return false;
    const struct diag_match *m = &d->matches[wait->match];
    uint32_t lacking = m->absent + m->unseen + m->posted - m->active, entered = m->active + m->assumed;
    if (lacking && lacking == entered)
        return entered > 1 && k->collectives == 1 && k->messages && !k->others;
    return lacking && lacking < entered;
}

/* Does a process of the knot wait for one of these partners? Then it may be only its victim. */
static bool waits_for_one(struct diag *d, uint32_t proc, const struct diag_partner *partners, size_t count)
{
    for (uint32_t e = d->edge_start[proc]; e < d->edge_start[proc + 1]; e++) {
        uint32_t wait = d->edges[e].to;
        for (uint32_t i = d->edge_start[wait]; i < d->edge_start[wait + 1]; i++)
            for (size_t j = 0; j < count; j++)
                if (partners[j].proc == d->edges[i].to)
                    return true;
    }
    return false;
}

/* Does one process alone wait for one other there? */
static bool between_two(const struct diag *d, uint32_t wait)
{
    const struct diag_wait *w = &d->waits[wait - d->nprocs];
    if (w->kind == DIAG_WAIT_P2P)
        return true;
    return w->match != DIAG_NONE && !d->matches[w->match].unseen && w->waiters == 1 &&
           d->edge_start[wait + 1] - d->edge_start[wait] == 1;
}

/*
 * One that is absent because it waits for one of those that came: either may have left out its
 * part, so this is a circle of two and no exception.
 */
static bool one_against_one(const struct diag *d, const struct diag_partner *absent, size_t count)
{
    if (count != 1)
        return false;
    for (uint32_t e = d->edge_start[absent->proc]; e < d->edge_start[absent->proc + 1]; e++)
        if (!between_two(d, d->edges[e].to))
            return false;
    return true;
}

/* The absent ones took the same other way only if none of them just waits for another of them. */
static bool went_together(struct diag *d, const struct diag_wait *wait)
{
    struct diag_partner *partners;
    size_t count = diag_partners(d, wait, &partners), kept = 0;
    for (size_t i = 0; i < count; i++)
        if (partners[i].reason == DIAG_ABSENT)
            partners[kept++] = partners[i];
    bool together = kept > 0 && !one_against_one(d, partners, kept);
    for (size_t i = 0; i < kept && together; i++)
        together = !waits_for_one(d, partners[i].proc, partners, kept);
    free(partners);
    return together;
}

/*
 * The one wait where most came and few did not, while the few wait for something to which
 * few came: then the few took another way. NULL when the circle is symmetric.
 */
static const struct diag_wait *lopsided(struct diag *d, const struct knot *k)
{
    const struct diag_wait *found = NULL;
    for (size_t i = 0; i < d->nwaits; i++) {
        if (!inside(d, (uint32_t)(d->nprocs + i), k->component) || !lacks_few(d, k, &d->waits[i]))
            continue;
        if (found)
            return NULL;
        found = &d->waits[i];
    }
    /* Who has it behind other work chose another order, but skipped nothing. */
    if (!found || d->matches[found->match].active < d->matches[found->match].posted)
        return NULL;
    return went_together(d, found) ? found : NULL;
}

/* ---- did somebody leave its own loop? ---- */

#define DEPARTURES_MAX 64

struct departures {
    uint32_t procs[DEPARTURES_MAX];
    struct diag_departure what[DEPARTURES_MAX];
    size_t count, members;
};

/* At most half of the knot's processes, else it is no exception. */
static bool find_departures(struct diag *d, uint32_t component, struct departures *found)
{
    found->count = found->members = 0;
    for (uint32_t p = 0; p < d->nprocs && !d->oom; p++) {
        if (!inside(d, p, component))
            continue;
        found->members++;
        struct diag_departure what;
        if (!diag_departed(d, p, &what))
            continue;
        if (found->count == DEPARTURES_MAX)
            return false;
        found->procs[found->count] = p;
        found->what[found->count++] = what;
    }
    return found->count && found->count * 2 <= found->members;
}

static bool is_departed(const struct departures *found, uint32_t proc)
{
    for (size_t i = 0; i < found->count; i++)
        if (found->procs[i] == proc)
            return true;
    return false;
}

/* The first wait of the knot at which only departed processes are absent: what they left out. */
static const struct diag_wait *left_by_departed(struct diag *d, const struct knot *k,
                                                const struct departures *found)
{
    const struct diag_wait *best = NULL;
    for (size_t i = 0; i < d->nwaits; i++) {
        uint32_t node = (uint32_t)(d->nprocs + i);
        if (!inside(d, node, k->component) || d->waits[i].never != DIAG_NEVER_NO)
            continue;
        bool all = d->edge_start[node] < d->edge_start[node + 1];
        for (uint32_t e = d->edge_start[node]; e < d->edge_start[node + 1] && all; e++)
            all = d->edges[e].reason == DIAG_ABSENT && is_departed(found, d->edges[e].to);
        if (all && (!best || d->waits[i].since < best->since))
            best = &d->waits[i];
    }
    return best;
}

static void blame_few_absent(struct classify *c, const struct diag_wait *wait,
                             const struct departures *departures)
{
    struct diag *d = c->d;
    bool creation = wait->kind == DIAG_WAIT_CREATE && d->matches[wait->match].unseen;
    enum rec_verdict_type type = creation                      ? REC_VERDICT_INIT_INCOMPLETE
                                 : wait->kind == DIAG_WAIT_P2P ? REC_VERDICT_P2P_UNMATCHED
                                                               : REC_VERDICT_RANK_NOT_JOINED;
    struct rec_finding *f = diag_finding(d, type, REC_CONF_LIKELY, DIAG_TIER_ROOT, wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    struct diag_partner *partners;
    size_t count = diag_partners(d, wait, &partners);
    uint32_t only = DIAG_NONE;
    for (size_t i = 0; i < count; i++) {
        if (partners[i].reason != DIAG_ABSENT)
            continue;
        diag_blame(d, f, DIAG_CULPRIT, d->procs[partners[i].proc].p->rank);
        c->blamed[partners[i].proc] = (uint32_t)d->nfindings;
        only = partners[i].proc;
    }
    diag_sort_ranks(f->culprits, &f->nculprits);
    struct diag_text t = {0};
    if (f->nculprits == 1 && only != DIAG_NONE)
        diag_say_proc(&t, d->procs[only].p);
    else
        diag_say_ranks(&t, f->culprits, f->nculprits);
    diag_printf(&t, " skipped it and went on to something else while ");
    classify_say_wait(c, &t, wait);
    diag_summary(d, f, &t);
    for (size_t i = 0; i < count && f->nevidence < 6; i++) {
        uint32_t p = partners[i].proc;
        for (uint32_t e = d->edge_start[p]; e < d->edge_start[p + 1] && partners[i].reason == DIAG_ABSENT;
             e++)
            if (d->edges[e].op != DIAG_NONE && f->nevidence < 6)
                diag_evidence_op(d, f, &d->ops[d->edges[e].op], "waits instead in");
    }
    diag_evidence_op(d, f, &d->ops[wait->op], "waits in");
    for (size_t i = 0; departures && i < departures->count && i < 4; i++)
        diag_evidence_departure(d, f, &departures->what[i]);
    free(partners);
    uint32_t node = (uint32_t)d->nprocs + (uint32_t)(wait - d->waits);
    classify_reach(c, &node, 1);
    classify_victims(c, f);
}

/* ---- the circle ---- */

/* A shortest way from a process back to itself inside the component; the steps' edges. */
static size_t find_cycle(struct classify *c, uint32_t component, uint32_t start, uint32_t *path, size_t max)
{
    struct diag *d = c->d;
    size_t nodes = diag_nodes(d);
    uint32_t *via = malloc(nodes * sizeof *via);
    if (!via) {
        d->oom = true;
        return 0;
    }
    memset(via, 0xff, nodes * sizeof *via);
    size_t used = 0, length = 0;
    uint32_t closing = DIAG_NONE;
    c->queue[used++] = start;
    for (size_t at = 0; at < used && closing == DIAG_NONE; at++) {
        uint32_t node = c->queue[at];
        for (uint32_t e = d->edge_start[node]; e < d->edge_start[node + 1]; e++) {
            uint32_t to = d->edges[e].to;
            if (!inside(d, to, component))
                continue;
            if (to == start) {
                closing = e;
                break;
            }
            if (via[to] == DIAG_NONE) {
                via[to] = e;
                c->queue[used++] = to;
            }
        }
    }
    for (uint32_t e = closing; e != DIAG_NONE && length < max; e = via[d->edges[e].from]) {
        path[length++] = e;
        if (d->edges[e].from == start)
            break;
    }
    free(via);
    for (size_t i = 0; i < length / 2; i++) {
        uint32_t swap = path[i];
        path[i] = path[length - 1 - i];
        path[length - 1 - i] = swap;
    }
    return length;
}

#define CYCLE_MAX 512

static void tell_cycle(struct classify *c, struct rec_finding *f, const struct knot *k, struct diag_text *t)
{
    struct diag *d = c->d;
    uint32_t path[CYCLE_MAX];
    uint32_t start = 0;
    while (start < d->nprocs && !inside(d, start, k->component))
        start++;
    size_t length = find_cycle(c, k->component, start, path, CYCLE_MAX);
    if (k->maybe) {
        diag_printf(t, "; each waits for a member that is itself inside another such call");
        for (size_t i = 0; i < length; i++)
            if (d->edges[path[i]].op != DIAG_NONE && d->edges[path[i]].reason == DIAG_WAITS)
                diag_evidence_op(d, f, &d->ops[d->edges[path[i]].op], "waits in");
        return;
    }
    diag_printf(t, ": ");
    for (size_t i = 0; i < length; i++) {
        const struct diag_edge *edge = &d->edges[path[i]];
        if (edge->reason != DIAG_WAITS)
            continue;
        if (i < 12) {
            diag_printf(t, "rank %d → ", (int)d->procs[edge->from].p->rank);
            diag_say_op(t, &d->ops[edge->op].op);
            diag_printf(t, " → ");
        } else if (i == 12 || i == 13) {
            diag_printf(t, "… → ");
        }
        diag_evidence_op(d, f, &d->ops[edge->op], "waits in");
    }
    diag_printf(t, "rank %d", (int)d->procs[start].p->rank);
}

/*
 * In a circle of collectives every process has one in front. Where one has most of the
 * processes in front of it, the others chose another order; else their own past may tell.
 * Marks who is to blame in c->reached; false: all of them.
 */
static bool exceptions(struct classify *c, const struct knot *k, const struct departures *departures)
{
    struct diag *d = c->d;
    uint32_t best = 0, members = 0, usual = 0;
    for (uint32_t p = 0; p < d->nprocs; p++)
        members += inside(d, p, k->component);
    for (size_t i = 0; i < d->nwaits; i++) {
        uint32_t node = (uint32_t)(d->nprocs + i), fronts = 0;
        if (!inside(d, node, k->component))
            continue;
        for (uint32_t r = c->reverse_start[node]; r < c->reverse_start[node + 1]; r++)
            fronts += inside(d, c->reverse_from[r], k->component);
        if (fronts > best) {
            best = fronts;
            usual = node;
        }
    }
    bool majority = best * 2 > members;
    for (uint32_t p = 0; p < d->nprocs; p++)
        c->reached[p] =
            inside(d, p, k->component) && (majority || (departures && is_departed(departures, p)));
    for (uint32_t r = c->reverse_start[usual]; majority && r < c->reverse_start[usual + 1]; r++)
        c->reached[c->reverse_from[r]] = false;
    return majority || departures;
}

/* In a circle of messages only the own past tells. Marks who is to blame like exceptions(). */
static bool left_loops(struct classify *c, const struct knot *k, const struct departures *departures)
{
    for (uint32_t p = 0; departures && p < c->d->nprocs; p++)
        c->reached[p] = inside(c->d, p, k->component) && is_departed(departures, p);
    return departures;
}

static void tell_knot(struct classify *c, const struct knot *k, const struct departures *departures)
{
    struct diag *d = c->d;
    bool order = !k->others && !k->messages && k->several_comms;
    struct rec_finding *f =
        diag_finding(d, order ? REC_VERDICT_ORDER_INVERSION : REC_VERDICT_DEADLOCK_CYCLE,
                     k->maybe ? REC_CONF_LIKELY : REC_CONF_CERTAIN, DIAG_TIER_ROOT, k->since);
    uint32_t *nodes = malloc((d->nprocs + 1) * sizeof *nodes);
    if (!f || !nodes) {
        d->oom = true;
        free(nodes);
        return;
    }
    classify_place(c, f, k->first);
    bool some = order ? exceptions(c, k, departures) : left_loops(c, k, departures);
    size_t count = 0;
    for (uint32_t p = 0; p < d->nprocs; p++) {
        if (!inside(d, p, k->component))
            continue;
        nodes[count++] = p;
        c->blamed[p] = (uint32_t)d->nfindings;
        if (!some || c->reached[p])
            diag_blame(d, f, DIAG_CULPRIT, d->procs[p].p->rank);
    }
    diag_sort_ranks(f->culprits, &f->nculprits);
    struct diag_text t = {0};
    diag_say_ranks(&t, f->culprits, f->nculprits);
    diag_printf(
        &t, " %s",
        some && order ? "issued collectives of several communicators in another order than the others"
        : some        ? "left the loop that it had followed, and now all wait for each other in a circle"
        : order ? "issued collectives of several communicators in different orders and wait for each other"
                : "wait for each other in a circle");
    tell_cycle(c, f, k, &t);
    diag_summary(d, f, &t);
    for (size_t i = 0; departures && i < departures->count && i < 4; i++)
        diag_evidence_departure(d, f, &departures->what[i]);
    classify_reach(c, nodes, count);
    classify_victims(c, f);
    free(nodes);
}

/* A circle through a process of which calls are missing may be none. */
static bool doubtful(struct diag *d, uint32_t component)
{
    bool gap = false;
    for (uint32_t p = 0; p < d->nprocs; p++)
        gap = gap || (inside(d, p, component) && (d->procs[p].gap_ns || d->procs[p].cut));
    for (uint32_t p = 0; p < d->nprocs && gap; p++)
        d->procs[p].suspect = d->procs[p].suspect || inside(d, p, component);
    return gap;
}

void classify_knot(struct classify *c, uint32_t component)
{
    struct diag *d = c->d;
    struct knot k = {.component = component};
    survey(d, &k);
    if (!k.first || doubtful(d, component))
        return;
    struct departures found;
    const struct departures *departures = find_departures(d, component, &found) ? &found : NULL;
    const struct diag_wait *skipped = departures ? left_by_departed(d, &k, departures) : NULL;
    if (skipped) {
        blame_few_absent(c, skipped, departures);
        return;
    }
    skipped = lopsided(d, &k);
    if (skipped)
        blame_few_absent(c, skipped, NULL);
    else
        tell_knot(c, &k, departures);
}
