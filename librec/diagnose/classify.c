/*
 * From the wait-for graph to findings. A cause is what others wait for and what itself
 * waits for nothing: a wait that can never end, an idle process, or a knot.
 */
#include "classify.h"

#include <stdlib.h>
#include <string.h>

/* Causes of one kind beyond this are listed by the first ones' victims. */
#define FINDINGS_MAX 64

void classify_reach(struct classify *c, const uint32_t *nodes, size_t count)
{
    size_t used = 0;
    memset(c->reached, 0, diag_nodes(c->d) * sizeof *c->reached);
    for (size_t i = 0; i < count; i++) {
        if (!c->reached[nodes[i]])
            c->queue[used++] = nodes[i];
        c->reached[nodes[i]] = true;
    }
    for (size_t at = 0; at < used; at++) {
        uint32_t node = c->queue[at];
        for (uint32_t i = c->reverse_start[node]; i < c->reverse_start[node + 1]; i++) {
            uint32_t from = c->reverse_from[i];
            if (!c->reached[from])
                c->queue[used++] = from;
            c->reached[from] = true;
        }
    }
}

void classify_victims(struct classify *c, struct rec_finding *f)
{
    diag_sort_ranks(f->culprits, &f->nculprits);
    diag_sort_ranks(f->suspects, &f->nsuspects);
    size_t next = 0, suspect = 0;
    for (uint32_t p = 0; p < c->d->nprocs; p++) {
        int32_t rank = c->d->procs[p].p->rank;
        while (next < f->nculprits && f->culprits[next] < rank)
            next++;
        while (suspect < f->nsuspects && f->suspects[suspect] < rank)
            suspect++;
        bool named = (next < f->nculprits && f->culprits[next] == rank) ||
                     (suspect < f->nsuspects && f->suspects[suspect] == rank);
        if (c->reached[p] && !named)
            diag_blame(c->d, f, DIAG_VICTIM, rank);
    }
    diag_sort_ranks(f->victims, &f->nvictims);
}

uint32_t classify_node(const struct diag *d, const struct diag_wait *wait)
{
    return (uint32_t)d->nprocs + (uint32_t)(wait - d->waits);
}

void classify_waiting(struct classify *c, struct rec_finding *f, const struct diag_wait *wait)
{
    uint32_t node = classify_node(c->d, wait);
    classify_reach(c, &node, 1);
    classify_victims(c, f);
}

/* How waiting ended for those who do not wait any more. */
struct ending {
    enum { WAITS, ABORTED, DIED, EXITED, ENDED } how; /* ENDED: not all in the same way */
    int number;                                       /* signal or status; -1: not the same */
    uint64_t ns;                                      /* of the last one */
};

/* op: which p waited in; DIAG_NONE. */
static struct ending ending_of(const struct diag *d, uint32_t p, uint32_t op)
{
    const struct diag_proc *proc = &d->procs[p];
    uint64_t aborted = op != DIAG_NONE ? diag_aborted_ns(d, &d->ops[op]) : 0;
    if (aborted)
        return (struct ending){ABORTED, 0, aborted};
    if (proc->p->fate == REC_FATE_SIGNALED)
        return (struct ending){DIED, (int)proc->p->end.signal, proc->dead_ns};
    if (proc->p->fate == REC_FATE_EXITED)
        return (struct ending){EXITED, (int)proc->p->end.status, proc->dead_ns};
    return (struct ending){WAITS, 0, 0};
}

static void join_ending(struct ending *all, struct ending one, bool first)
{
    if (first || one.how == WAITS || all->how == WAITS) {
        all->how = first || one.how == WAITS ? one.how : WAITS;
        all->number = one.number;
    } else if (one.how != all->how) {
        all->how = ENDED;
    } else if (one.number != all->number) {
        all->number = -1;
    }
    all->ns = one.ns > all->ns ? one.ns : all->ns;
}

/* " until they died of signal 6 (SIGABRT) at 12:01:07 UTC" */
static void say_ending(const struct diag *d, struct diag_text *t, const struct ending *ending, size_t count)
{
    if (ending->how == WAITS)
        return;
    diag_printf(t, " until %s ", count == 1 ? "it" : "they");
    if (ending->how == ABORTED)
        diag_printf(t, "aborted it");
    else if (ending->how == DIED && ending->number > 0)
        diag_printf(t, "died of signal %d (SIG%s)", ending->number, diag_signal_name(ending->number));
    else if (ending->how == DIED)
        diag_printf(t, "were killed");
    else if (ending->how == EXITED && ending->number >= 0)
        diag_printf(t, "exited with status %d", ending->number);
    else
        diag_printf(t, ending->how == EXITED ? "exited" : "ended");
    diag_printf(t, " at ");
    diag_say_time(d, t, ending->ns);
}

/* Who waits there and is not to blame, and how that ended. */
struct waiters {
    int32_t *ranks;
    size_t count;
    uint32_t op; /* of one of them */
    struct ending ending;
};

static struct waiters find_waiters(struct classify *c, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    struct waiters w = {0};
    size_t capacity = 0;
    uint32_t node = classify_node(d, wait);
    const struct rec_finding *told = d->nfindings ? &d->findings[d->nfindings - 1] : NULL;
    for (uint32_t i = c->reverse_start[node]; i < c->reverse_start[node + 1]; i++) {
        uint32_t p = c->reverse_from[i];
        w.ranks = diag_grow(w.ranks, &capacity, w.count, sizeof *w.ranks, &d->oom);
        if (d->oom || (c->blamed[p] && c->blamed[p] == d->nfindings) ||
            (told && diag_lists_rank(told->culprits, told->nculprits, d->procs[p].p->rank)))
            continue;
        join_ending(&w.ending, ending_of(d, p, c->reverse_op[i]), !w.count);
        w.ranks[w.count++] = d->procs[p].p->rank;
        w.op = c->reverse_op[i];
    }
    diag_sort_ranks(w.ranks, &w.count);
    return w;
}

void classify_say_awaited(const struct diag *d, struct diag_text *t, const struct diag_wait *wait,
                          bool several)
{
    const struct diag_op *op = &d->ops[wait->op];
    const struct diag_match *m = wait->match == DIAG_NONE ? NULL : &d->matches[wait->match];
    bool ends = m && m->posted > 1 && !m->onesided;
    if (several)
        diag_say_ops(t, &op->op, wait->comm, ends ? m->src : -1, ends ? m->dst : -1);
    else
        diag_say_call(t, op);
    diag_say_places(d, t, op);
    diag_printf(t, diag_inits(&op->op) ? ", the creation of " : m ? ", " : " of ");
    if (m && !diag_inits(&op->op))
        diag_say_number(t, &op->op, m->seq);
    diag_say_comm(t, wait->comm);
}

static void say_waiters(struct classify *c, struct diag_text *t, const struct diag_wait *wait,
                        const struct waiters *w, bool said)
{
    diag_say_ranks(t, w->ranks, w->count);
    struct diag_wait own = *wait;
    /* The two ends of a message call different things. */
    if (wait->kind == DIAG_WAIT_P2P && w->count == 1 && w->op != DIAG_NONE)
        own.op = w->op;
    diag_printf(t, w->ending.how != WAITS ? " waited in " : w->count == 1 ? " waits in " : " wait in ");
    if (said)
        diag_printf(t, "it");
    else
        classify_say_awaited(c->d, t, &own, w->count > 1);
    diag_printf(t, said ? " since " : ", since ");
    diag_say_time(c->d, t, wait->since);
    say_ending(c->d, t, &w->ending, w->count);
}

void classify_say_wait(struct classify *c, struct diag_text *t, const struct diag_wait *wait)
{
    struct waiters w = find_waiters(c, wait);
    say_waiters(c, t, wait, &w, false);
    free(w.ranks);
}

void classify_say_while(struct classify *c, struct diag_text *t, const struct diag_wait *wait, unsigned how)
{
    bool said = how & CLASSIFY_SAID;
    struct waiters w = find_waiters(c, wait);
    if (w.count) {
        diag_printf(t, how & CLASSIFY_APART ? ", while " : " while ");
        say_waiters(c, t, wait, &w, said);
    } else {
        diag_printf(t, ", ");
        if (!said) {
            diag_printf(t, "in ");
            classify_say_awaited(c->d, t, wait, false);
            diag_printf(t, ", ");
        }
        diag_printf(t, "since ");
        diag_say_time(c->d, t, wait->since);
    }
    free(w.ranks);
}

void classify_evidence_wait(struct classify *c, struct rec_finding *f, const struct diag_wait *wait)
{
    struct diag_text t = {0};
    struct waiters w = find_waiters(c, wait);
    const struct diag_op *op = &c->d->ops[wait->op];
    if (w.count)
        say_waiters(c, &t, wait, &w, false);
    if (t.data)
        diag_evidence(c->d, f, c->d->procs[op->proc].p, wait->match == DIAG_NONE ? UINT64_MAX : op->op.seq,
                      wait->since, "%s", t.data);
    free(w.ranks);
    free(t.data);
}

void classify_place(struct classify *c, struct rec_finding *f, const struct diag_wait *wait)
{
    f->comm = wait->comm;
    f->op = c->d->ops[wait->op].op;
    f->seq = wait->match == DIAG_NONE ? UINT64_MAX : c->d->matches[wait->match].seq;
}

static void judge_partners(struct classify *c, const struct diag_wait *wait,
                           const struct diag_partner *partners, size_t count)
{
    uint32_t gone;
    enum classify_side side = classify_vote(c, wait, partners, count, &gone);
    if (side == CLASSIFY_TIE)
        c->ties[c->nties++] = (uint32_t)(wait - c->d->waits);
    else if (side == CLASSIFY_FEW)
        classify_few(c, wait, gone);
    else if (side == CLASSIFY_NEARLY)
        classify_partners(c, wait, partners, count, CLASSIFY_RULED);
    else if (side == CLASSIFY_ALONE)
        classify_alone(c, wait, partners, count);
    else if (wait->kind == DIAG_WAIT_CREATE && diag_excluded(c->d, &c->d->matches[wait->match]).others)
        classify_partners(c, wait, partners, count, CLASSIFY_SOME);
    else
        classify_partners(c, wait, partners, count, CLASSIFY_DECIDED);
}

static void judge_never(struct classify *c, const struct diag_wait *wait)
{
    if (classify_shifted(c->d, wait))
        return;
    if (wait->never == DIAG_NEVER_MISMATCH && wait->kind == DIAG_WAIT_P2P) {
        classify_pair(c, wait);
    } else if (wait->never == DIAG_NEVER_MISMATCH) {
        classify_divergence(c, wait);
    } else if (wait->never == DIAG_NEVER_FAILED) {
        classify_failed(c, wait);
    } else if (wait->never == DIAG_NEVER_DEAD) {
        classify_death(c, wait);
    } else {
        struct diag_partner *partners;
        size_t count = diag_partners(c->d, wait, &partners);
        judge_partners(c, wait, partners, count);
        free(partners);
    }
}

/* Of one that never worked with NCCL, nobody knows how long it takes to come to the end. */
static bool may_be_busy(const struct diag *d, uint32_t p, const struct diag_wait *wait)
{
    const struct diag_proc *proc = &d->procs[p];
    if (wait->kind != DIAG_WAIT_TEARDOWN || proc->life_ns >= proc->last_call_ns + d->stall_ns)
        return false;
    for (uint32_t i = proc->first; i < proc->first + proc->count; i++)
        if (rec_kind_flags(d->ops[i].op.kind) & REC_KF_DATA)
            return false;
    return true;
}

/* Has somebody ended itself because of this wait? Then the job stood still. */
static bool given_up(const struct classify *c, const struct diag_wait *wait)
{
    uint32_t node = classify_node(c->d, wait);
    for (uint32_t i = c->reverse_start[node]; i < c->reverse_start[node + 1]; i++)
        if (c->d->procs[c->reverse_from[i]].gave_up)
            return true;
    return false;
}

/*
 * May it have been blocked in something that no record shows, and that it had called by then? So may its last
 * call, however it ended later, if it was with somebody who is not recorded.
 */
static bool doubtful_before(const struct diag *d, uint32_t p, uint64_t when)
{
    const struct diag_proc *proc = &d->procs[p];
    const struct diag_op *last = NULL;
    for (uint32_t i = proc->first; i < proc->first + proc->count && d->ops[i].op.enter_ns <= when; i++) {
        if (d->ops[i].doubted)
            return true;
        last = d->ops[i].match != DIAG_NONE ? &d->ops[i] : last;
    }
    bool over = !last || (last->op.gpu_end_ns && last->op.gpu_end_ns + DIAG_GPU_LAG_NS < when);
    return proc->gap_ns || (!over && diag_hidden(d, last->member->comm));
}

/* Was it itself in something that it aborted not long before those who waited here stopped? */
static bool held_meanwhile(const struct diag *d, uint32_t p, const struct diag_wait *wait)
{
    const struct diag_proc *proc = &d->procs[p];
    for (uint32_t i = proc->first; i < proc->first + proc->count; i++) {
        const struct diag_op *op = &d->ops[i];
        uint64_t aborted = op->doubted ? diag_aborted_ns(d, op) : 0;
        if (aborted && op->op.enter_ns < wait->stopped[0] && aborted + wait->patience_ns > wait->stopped[0])
            return true;
    }
    return false;
}

/* Partners of a wait that wait for nothing themselves. */
static void judge_idle(struct classify *c, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    struct diag_partner *partners;
    size_t count = diag_partners(d, wait, &partners), kept = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t p = partners[i].proc;
        bool waits = d->edge_start[p] != d->edge_start[p + 1];
        bool back = waits && classify_back_ns(d, p, wait); /* it waits for others since */
        if ((waits && !back) || may_be_busy(d, p, wait))
            continue;
        if (classify_busy(d, p, wait)) {
            d->procs[p].suspect = d->procs[p].suspect || given_up(c, wait);
            continue;
        }
        if (d->procs[p].cut || held_meanwhile(d, p, wait) ||
            (back ? doubtful_before(d, p, wait->since) : d->procs[p].doubtful))
            d->procs[p].suspect = true;
        else
            partners[kept++] = partners[i];
    }
    for (size_t i = 0; i < kept; i++)
        if (partners[i].reason == DIAG_UNLAUNCHED)
            partners[i].reason = DIAG_ABSENT;
    if (kept)
        judge_partners(c, wait, partners, kept);
    free(partners);
}

/* ---- all of them ---- */

static void reverse(struct classify *c, const struct diag_edge *edges, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t at = c->reverse_start[edges[i].to + 1]++;
        c->reverse_from[at] = edges[i].from;
        c->reverse_op[at] = edges[i].op;
    }
}

static bool prepare(struct classify *c)
{
    struct diag *d = c->d;
    size_t nodes = diag_nodes(d);
    c->blamed = calloc(d->nprocs + 1, sizeof *c->blamed);
    c->reverse_start = calloc(nodes + 2, sizeof *c->reverse_start);
    c->reverse_from = malloc((d->nedges + d->npast + 1) * sizeof *c->reverse_from);
    c->reverse_op = malloc((d->nedges + d->npast + 1) * sizeof *c->reverse_op);
    c->reached = calloc(nodes + 1, sizeof *c->reached);
    c->queue = malloc((nodes + 1) * sizeof *c->queue);
    c->ties = malloc((d->nwaits + 1) * sizeof *c->ties);
    c->first_dead = calloc(d->nprocs + 1, sizeof *c->first_dead);
    if (!c->ties || !c->first_dead || !c->blamed || !c->reverse_start || !c->reverse_from || !c->reverse_op ||
        !c->reached || !c->queue)
        return false;
    for (size_t i = 0; i < d->nedges; i++)
        c->reverse_start[d->edges[i].to + 2]++;
    for (size_t i = 0; i < d->npast; i++)
        c->reverse_start[d->past[i].to + 2]++;
    for (size_t i = 2; i < nodes + 2; i++)
        c->reverse_start[i] += c->reverse_start[i - 1];
    reverse(c, d->edges, d->nedges);
    reverse(c, d->past, d->npast);
    return true;
}

struct ordered {
    bool orphaned; /* all who waited there have died */
    uint64_t since;
    uint32_t wait;
};

static int by_since(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;
    if (x->orphaned != y->orphaned)
        return x->orphaned ? 1 : -1;
    if (x->since != y->since)
        return x->since < y->since ? -1 : 1;
    return x->wait < y->wait ? -1 : x->wait > y->wait;
}

static bool orphaned(const struct classify *c, uint32_t node)
{
    for (uint32_t i = c->reverse_start[node]; i < c->reverse_start[node + 1]; i++)
        if (!c->d->procs[c->reverse_from[i]].early_dead)
            return false;
    return true;
}

static void judge_wait(struct classify *c, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    uint32_t node = classify_node(d, wait);
    if (classify_behind_divergence(c, wait))
        return;
    if (wait->never != DIAG_NEVER_NO)
        judge_never(c, wait);
    else if (d->edge_start[node] != d->edge_start[node + 1])
        judge_idle(c, wait);
    else if (wait->kind == DIAG_WAIT_COLL || wait->kind == DIAG_WAIT_P2P)
        classify_kernel(c, wait);
    else if (wait->kind != DIAG_WAIT_HOST)
        classify_lonely(c, wait);
}

void classify_over(struct diag *d, size_t first)
{
    for (size_t i = first; i < d->nfindings; i++)
        d->tiers[i] = DIAG_TIER_FAULT;
}

static void judge_waits(struct classify *c)
{
    struct diag *d = c->d;
    struct ordered *order = malloc((d->nwaits + 1) * sizeof *order);
    size_t count = 0;
    if (!order) {
        d->oom = true;
        return;
    }
    for (uint32_t i = 0; i < d->nwaits; i++)
        if (d->waits[i].stale || d->waits[i].never != DIAG_NEVER_NO)
            order[count++] = (struct ordered){orphaned(c, (uint32_t)d->nprocs + i), d->waits[i].since, i};
    qsort(order, count, sizeof *order, by_since);
    for (size_t i = 0; i < count && !d->oom && d->nfindings < FINDINGS_MAX; i++) {
        const struct diag_wait *wait = &d->waits[order[i].wait];
        size_t before = d->nfindings;
        judge_wait(c, wait);
        if (wait->over)
            classify_over(d, before);
    }
    free(order);
}

static void judge_knots(struct classify *c)
{
    struct diag *d = c->d;
    bool *open = calloc(d->ncomponents + 1, sizeof *open);
    uint32_t *size = calloc(d->ncomponents + 1, sizeof *size);
    if (!open || !size)
        d->oom = true;
    for (uint32_t n = 0; n < diag_nodes(d) && !d->oom; n++)
        size[d->component[n]]++;
    for (size_t i = 0; i < d->nedges && !d->oom; i++)
        if (d->component[d->edges[i].from] != d->component[d->edges[i].to])
            open[d->component[d->edges[i].from]] = true;
    for (uint32_t i = 0; i < d->ncomponents && !d->oom && d->nfindings < FINDINGS_MAX; i++)
        if (size[i] > 1 && !open[i])
            classify_knot(c, i);
    free(open);
    free(size);
}

void diag_classify(struct diag *d)
{
    struct classify c = {.d = d, .ndiverged = d->nfindings};
    if (prepare(&c)) {
        classify_find_deaths(&c);
        judge_waits(&c);
        judge_knots(&c);
        classify_ties(&c);
        classify_deaths(&c);
    } else {
        d->oom = true;
    }
    free(c.blamed);
    free(c.reverse_start);
    free(c.reverse_from);
    free(c.reverse_op);
    free(c.reached);
    free(c.queue);
    free(c.ties);
    free(c.first_dead);
}
