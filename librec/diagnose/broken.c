/* Waits whose cause lies in the op itself: refused, not fitting, never made, or stuck in the kernel. */
#include "classify.h"
#include "rec/live.h"

#include <inttypes.h>
#include <stdlib.h>

#define LAUNCHES_LOOKED 128 /* to find out what holds one of them up */
#define ABSENT_TOLD     64  /* members of a creation that never came */

void classify_failed(struct classify *c, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    const struct diag_op *op = &d->ops[d->matches[wait->match].failed_op];
    if (c->blamed[op->proc]) {
        classify_more_victims(c, wait, c->blamed[op->proc] - 1);
        return;
    }
    bool uneven = diag_uneven_split(d, op);
    struct rec_finding *f =
        diag_finding(d, REC_VERDICT_COMM_FAILED, uneven ? REC_CONF_POSSIBLE : REC_CONF_CERTAIN,
                     DIAG_TIER_ROOT, op->op.exit_ns < wait->since ? op->op.exit_ns : wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    diag_blame(d, f, uneven ? DIAG_SUSPECT : DIAG_CULPRIT, d->procs[op->proc].p->rank);
    c->blamed[op->proc] = (uint32_t)d->nfindings;
    bool gone = diag_excuse_failed(d, f, op);
    struct diag_text t = {0};
    diag_say_proc(&t, d->procs[op->proc].p);
    diag_say_refusal(d, &t, op);
    if (gone)
        diag_say_gone(&t, f);
    classify_say_while(c, &t, wait, gone ? CLASSIFY_APART : 0);
    if (uneven)
        diag_say_uneven_split(&t);
    diag_summary(d, f, &t);
    diag_evidence_op(d, f, op, "was refused");
    classify_waiting(c, f, wait);
}

/* Messages of a pair after one that does not fit tell nothing new: they may all be shifted by it. */
static bool earlier_misfit(const struct diag *d, const struct diag_match *m)
{
    for (uint32_t i = 0; i < d->nwaits; i++) {
        const struct diag_wait *wait = &d->waits[i];
        if (wait->kind != DIAG_WAIT_P2P || wait->never != DIAG_NEVER_MISMATCH || wait->comm != m->comm)
            continue;
        const struct diag_match *other = &d->matches[wait->match];
        if (other->src == m->src && other->dst == m->dst && other->seq < m->seq)
            return true;
    }
    return false;
}

bool classify_shifted(const struct diag *d, const struct diag_wait *wait)
{
    return wait->kind == DIAG_WAIT_P2P && earlier_misfit(d, &d->matches[wait->match]);
}

void classify_pair(struct classify *c, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    const struct diag_match *m = &d->matches[wait->match];
    const struct diag_op *a = &d->ops[m->first_op], *b = &d->ops[m->last_op];
    if (a->op.kind != REC_SEND) {
        const struct diag_op *swap = a;
        a = b;
        b = swap;
    }
    struct rec_finding *f =
        diag_finding(d, REC_VERDICT_P2P_MISMATCH, REC_CONF_CERTAIN, DIAG_TIER_ROOT, wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    diag_blame(d, f, DIAG_CULPRIT, d->procs[a->proc].p->rank);
    diag_blame(d, f, DIAG_CULPRIT, d->procs[b->proc].p->rank);
    struct diag_text t = {0};
    diag_say_proc(&t, d->procs[a->proc].p);
    diag_printf(&t, " called ");
    diag_say_call(&t, a);
    diag_say_place(&t, d->procs[a->proc].p, &a->op);
    diag_printf(&t, " but ");
    diag_say_proc(&t, d->procs[b->proc].p);
    diag_printf(&t, " called ");
    diag_say_call(&t, b);
    diag_say_place(&t, d->procs[b->proc].p, &b->op);
    diag_printf(&t, " for message %" PRIu64 " of that pair in ", m->seq);
    diag_say_comm(&t, wait->comm);
    diag_summary(d, f, &t);
    diag_evidence_op(d, f, a, "called");
    diag_evidence_op(d, f, b, "called");
    classify_waiting(c, f, wait);
}

/* The divergence of this communicator has been told already: only its victims are new. */
void classify_divergence(struct classify *c, const struct diag_wait *wait)
{
    for (size_t i = 0; i < c->d->nfindings; i++) {
        struct rec_finding *f = &c->d->findings[i];
        bool divergence = f->type == REC_VERDICT_OP_MISMATCH || f->type == REC_VERDICT_SIGNATURE_MISMATCH ||
                          f->type == REC_VERDICT_INIT_INCOMPLETE || f->type == REC_VERDICT_RANK_NOT_JOINED;
        if (f->comm != wait->comm || !divergence)
            continue;
        classify_waiting(c, f, wait);
        return;
    }
}

bool classify_behind_divergence(struct classify *c, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    for (size_t i = 0; i < c->ndiverged && wait->kind == DIAG_WAIT_COLL; i++) {
        struct rec_finding *f = &d->findings[i];
        uint32_t at = f->comm == wait->comm && f->seq <= d->matches[wait->match].seq
                          ? diag_match_find(d, f->comm, f->seq, -1, -1)
                          : DIAG_NONE;
        if (at == DIAG_NONE || d->matches[at].done)
            continue;
        classify_waiting(c, f, wait);
        return true;
    }
    return false;
}

/* Ranks of a matching point, by what the GPU has made of it. */
struct reached {
    size_t all, captured, not_yet, left; /* left: over, as for other ranks it is not */
    size_t inside;                       /* the host has not come out of the launching call */
};

static struct reached count_reached(const struct diag *d, const struct diag_match *m)
{
    struct reached n = {0};
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        const struct diag_op *op = &d->ops[i];
        n.all++;
        n.captured += diag_captured(op);
        n.not_yet += diag_not_reached(d, op);
        n.left += op->op.state == REC_STATE_COMPLETED;
        n.inside += diag_host_inside(d, op);
    }
    return n;
}

/*
 * Calls without a record, or a graph that was replayed, may stand in front of it and wait for somebody; and
 * how far a GPU came after its trace breaks off is not known.
 */
static bool front_unknown(const struct diag *d, const struct diag_op *op)
{
    const struct diag_proc *proc = &d->procs[op->proc];
    return proc->gap_ns || proc->cut ||
           (proc->graph_ns && proc->graph_ns <= op->op.enter_ns &&
            op->op.enter_ns < proc->graph_ns + DIAG_GRAPH_NS);
}

static void blame_reached(struct diag *d, struct rec_finding *f, const struct diag_match *m, struct reached n)
{
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        const struct diag_op *op = &d->ops[i];
        int32_t rank = d->procs[op->proc].p->rank;
        bool captured = diag_captured(op), not_yet = diag_not_reached(d, op);
        if (m->captured ? n.captured * 2 == n.all || captured == (n.captured * 2 < n.all)
                        : not_yet && n.not_yet < n.all && !front_unknown(d, op))
            diag_blame(d, f, DIAG_CULPRIT, rank);
        else if (!m->captured && not_yet && n.not_yet < n.all)
            diag_blame(d, f, DIAG_SUSPECT, rank);
        else if (!m->captured && n.not_yet == 0 && n.left > 0 && op->op.state != REC_STATE_COMPLETED)
            diag_blame(d, f, DIAG_SUSPECT, rank);
        if (f->nevidence < 8)
            diag_evidence_op(d, f, op,
                             captured                              ? "captured into a graph"
                             : not_yet                             ? "enqueued, but its GPU has not reached,"
                             : op->op.state == REC_STATE_COMPLETED ? "has left"
                                                                   : "waits in");
    }
    diag_sort_ranks(f->culprits, &f->nculprits);
    diag_sort_ranks(f->suspects, &f->nsuspects);
}

static void say_captured(struct classify *c, struct diag_text *t, const struct diag_wait *wait, bool captured)
{
    struct diag *d = c->d;
    int32_t *ranks = NULL;
    size_t count = 0, capacity = 0;
    for (uint32_t i = d->matches[wait->match].first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        ranks = diag_grow(ranks, &capacity, count, sizeof *ranks, &d->oom);
        if (!d->oom && diag_captured(&d->ops[i]) == captured)
            ranks[count++] = d->procs[d->ops[i].proc].p->rank;
    }
    diag_sort_ranks(ranks, &count);
    diag_say_ranks(t, ranks, count);
    free(ranks);
}

/* One of them with its host and pid. */
static void say_culprits(const struct diag *d, struct diag_text *t, const struct rec_finding *f)
{
    uint32_t only = f->nculprits == 1 ? diag_proc_of_rank(d, f->culprits[0]) : DIAG_NONE;
    if (only != DIAG_NONE)
        diag_say_proc(t, d->procs[only].p);
    else
        diag_say_ranks(t, f->culprits, f->nculprits);
}

static void say_reached(struct classify *c, struct diag_text *t, const struct rec_finding *f,
                        const struct diag_wait *wait, struct reached n)
{
    if (c->d->matches[wait->match].captured) {
        say_captured(c, t, wait, true);
        diag_printf(t, " captured ");
        classify_say_awaited(c->d, t, wait, true);
        diag_printf(t, ", into a CUDA graph that was not launched, and ");
        say_captured(c, t, wait, false);
        diag_printf(t, " called it outside of graphs, since ");
        diag_say_time(c->d, t, wait->since);
        if (n.captured * 2 == n.all)
            diag_printf(t, "; it is a tie, so either side may be wrong");
    } else if (f->nculprits) {
        say_culprits(c->d, t, f);
        diag_printf(t, " called ");
        classify_say_awaited(c->d, t, wait, true);
        diag_printf(t, ", but other work in front of it keeps the GPU from reaching it there");
        classify_say_while(c, t, wait, CLASSIFY_SAID | CLASSIFY_APART);
    } else if (n.not_yet && n.not_yet < n.all) {
        classify_say_wait(c, t, wait);
        diag_printf(t, "; the GPU of ");
        diag_say_ranks(t, f->suspects, f->nsuspects);
        diag_printf(t, " has not reached it, and what is in front of it there was not recorded");
    } else if (n.not_yet) {
        classify_say_wait(c, t, wait);
        diag_printf(t, "; no GPU has reached it: work in front of it that was not recorded, as in a replayed "
                       "graph, does not end on any rank");
    } else if (n.left) {
        classify_say_wait(c, t, wait);
        diag_printf(t, "; their GPUs are inside the kernel, which the others have left: look at their GPUs "
                       "and links");
    } else {
        classify_say_wait(c, t, wait);
        diag_printf(t, "; every GPU is inside the kernel and none comes out, so no rank is to blame: look at "
                       "the links and the GPUs");
    }
}

/* Has it work of which records are missing, so that it may not be done? A full stream holds up its host. */
static bool may_stand_behind(const struct diag *d, const struct diag_proc *proc)
{
    for (uint32_t i = proc->first; i < proc->first + proc->count && !proc->gap_ns; i++) {
        const struct diag_match *m = d->ops[i].match == DIAG_NONE ? NULL : &d->matches[d->ops[i].match];
        if (m && d->ops[i].doubted && d->ops[i].done && (m->unseen || m->unknown || m->assumed))
            return true;
    }
    return proc->gap_ns != 0;
}

/* Does its process wait in another launch as well? Who cannot launch there may hold up all its threads. */
static bool waits_elsewhere(const struct diag *d, const struct diag_op *op)
{
    for (uint32_t e = d->edge_start[op->proc]; e < d->edge_start[op->proc + 1]; e++)
        if (d->edges[e].op != DIAG_NONE && d->ops[d->edges[e].op].unit != op->unit)
            return true;
    return false;
}

/* Is one of those inside there perhaps for another reason? What no record shows makes it a suspect. */
static bool inside_for_another_reason(struct diag *d, const struct diag_match *m)
{
    bool any = false;
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        const struct diag_op *op = &d->ops[i];
        if (!diag_host_inside(d, op))
            continue;
        bool unknown = may_stand_behind(d, &d->procs[op->proc]);
        d->procs[op->proc].suspect |= unknown;
        any = any || unknown || waits_elsewhere(d, op);
    }
    return any;
}

static void classify_host_inside(struct classify *c, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    const struct diag_match *m = &d->matches[wait->match];
    if (m->onesided || inside_for_another_reason(d, m))
        return;
    struct rec_finding *f =
        diag_finding(d, REC_VERDICT_STUCK_IN_CALL, REC_CONF_LIKELY, DIAG_TIER_ROOT, wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    const struct diag_op *stuck = NULL;
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        const struct diag_op *op = &d->ops[i];
        bool inside = diag_host_inside(d, op);
        if (inside) {
            diag_blame(d, f, DIAG_CULPRIT, d->procs[op->proc].p->rank);
            stuck = d->units[op->unit].end != DIAG_NONE ? &d->ops[d->units[op->unit].end] : op;
        }
        if (f->nevidence < 8)
            diag_evidence_op(d, f, inside ? stuck : op, inside ? "has not come out of" : "waits in");
    }
    diag_sort_ranks(f->culprits, &f->nculprits);
    struct diag_text t = {0};
    say_culprits(d, &t, f);
    diag_printf(&t, f->nculprits == 1 ? " is still inside " : " are still inside ");
    if (stuck->match != wait->match) {
        diag_say_call(&t, stuck);
        diag_say_places(d, &t, stuck);
        diag_printf(&t, ", which launches ");
    }
    classify_say_awaited(d, &t, wait, true);
    diag_printf(&t, ", although everybody has come");
    classify_say_while(c, &t, wait, CLASSIFY_SAID | CLASSIFY_APART);
    diag_summary(d, f, &t);
    classify_waiting(c, f, wait);
}

struct launches {
    uint32_t units[LAUNCHES_LOOKED];
    size_t count;
};

static void add_launch(struct launches *l, uint32_t unit)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->units[i] == unit)
            return;
    if (l->count < LAUNCHES_LOOKED)
        l->units[l->count++] = unit;
}

/* When op was there: called, and as far as is known come to by the GPU. */
static uint64_t arrival(const struct diag *d, const struct diag_op *op)
{
    uint64_t came = diag_gpu_came(d, op);
    return came > op->op.enter_ns ? came : op->op.enter_ns;
}

/*
 * When the last one came to a matching point, or to another one that holds it up because both are launched in
 * one group, or are so with a third, and so on. UINT64_MAX: not known. Of large ones some are looked at.
 */
static uint64_t last_arrival(const struct diag *d, const struct diag_match *m)
{
    struct launches l = {.count = 0};
    uint64_t last = 0;
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        uint64_t came = arrival(d, &d->ops[i]);
        last = came > last ? came : last;
        if (l.count < LAUNCHES_LOOKED && d->units[d->ops[i].unit].ops > 1)
            add_launch(&l, d->ops[i].unit);
    }
    for (size_t u = 0; u < l.count; u++)
        for (uint32_t j = d->units[l.units[u]].first_op; j != DIAG_NONE; j = d->ops[j].unit_next) {
            const struct diag_match *with = d->ops[j].match == DIAG_NONE ? m : &d->matches[d->ops[j].match];
            if (with == m || with->posted > LAUNCHES_LOOKED)
                continue;
            if (with->unseen || with->unknown || with->assumed)
                return UINT64_MAX;
            for (uint32_t i = with->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
                uint64_t came = arrival(d, &d->ops[i]);
                last = came > last ? came : last;
                add_launch(&l, d->ops[i].unit);
            }
        }
    return last;
}

/* When anybody called something last, or before the first abort of what is here. */
static uint64_t last_work(const struct diag *d, const struct diag_match *m)
{
    uint64_t last = 0, end = UINT64_MAX;
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        uint64_t aborted = diag_aborted_ns(d, &d->ops[i]);
        end = aborted && aborted < end ? aborted : end;
    }
    for (size_t i = 0; i < d->nprocs && end == UINT64_MAX; i++)
        last = d->procs[i].last_work_ns > last ? d->procs[i].last_work_ns : last;
    for (size_t i = 0; i < d->nops && end != UINT64_MAX; i++)
        if (d->ops[i].unit != DIAG_NONE && d->ops[i].op.enter_ns < end && d->ops[i].op.enter_ns > last)
            last = d->ops[i].op.enter_ns;
    return last;
}

/*
 * An abort ends what it finds, and hosts that waited for the last one to come tear down at once. Only what
 * has not ended for long since all were there is stuck.
 */
static bool stuck_together(const struct diag *d, const struct diag_match *m, bool left)
{
    uint64_t last = last_arrival(d, m), quiet = last_work(d, m);
    for (uint32_t i = m->first_op; i != DIAG_NONE && last != UINT64_MAX; i = d->ops[i].match_next) {
        const struct diag_op *op = &d->ops[i];
        const struct diag_proc *proc = &d->procs[op->proc];
        uint64_t aborted = diag_aborted_ns(d, op);
        uint64_t until = aborted ? aborted : proc->life_ns;
        /* What an abort ended, or others have left, may have waited for other work that was done just before.
         */
        if (until >= last + proc->patience_ns && ((!aborted && !left) || until >= quiet + proc->patience_ns))
            return true;
    }
    return false;
}

/* Everybody has launched it, it fits, and still it does not end. */
void classify_kernel(struct classify *c, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    const struct diag_match *m = &d->matches[wait->match];
    struct reached n = count_reached(d, m);
    if (!m->captured && !stuck_together(d, m, n.left > 0))
        return;
    if (!m->captured && n.inside && n.inside < n.all) {
        classify_host_inside(c, wait);
        return;
    }
    /* Who has no trace, or no record of it, may be the one whose GPU has not come. */
    if (!m->captured && !n.not_yet && (m->unseen || m->unknown || m->assumed))
        return;
    enum rec_verdict_type type = m->captured ? REC_VERDICT_CAPTURE_MISMATCH
                                 : n.not_yet ? REC_VERDICT_GPU_NOT_REACHED
                                             : REC_VERDICT_STUCK_IN_KERNEL;
    struct rec_finding *f = diag_finding(d, type, REC_CONF_LIKELY, DIAG_TIER_ROOT, wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    blame_reached(d, f, m, n);
    struct diag_text t = {0};
    say_reached(c, &t, f, wait, n);
    diag_summary(d, f, &t);
    classify_waiting(c, f, wait);
}

/* A teardown that lacks nobody waits for the work of its communicator: it is the consequence. */
static bool has_work(const struct diag *d, const struct rec_communicator *comm)
{
    for (size_t i = 0; i < d->nwaits; i++)
        if (d->waits[i].comm == comm && d->waits[i].kind != DIAG_WAIT_TEARDOWN)
            return true;
    return false;
}

static bool has_rank(const struct rec_communicator *comm, int64_t rank)
{
    for (uint32_t i = 0; i < comm->nmembers; i++)
        if (comm->members[i]->process->rank == rank)
            return true;
    return false;
}

/* Then one of its members is missing for another reason (creation.c). */
static bool has_twins(const struct rec_communicator *comm)
{
    for (uint32_t i = 0; i + 1 < comm->nmembers; i++)
        if (comm->members[i]->comm_rank == comm->members[i + 1]->comm_rank)
            return true;
    return false;
}

static void say_never_came(struct diag_text *t, const struct rec_communicator *comm)
{
    int32_t absent[ABSENT_TOLD];
    size_t count = comm->nranks > comm->nmembers ? comm->nranks - comm->nmembers : 0, known = 0;
    char folded[64];
    for (uint32_t i = 0; count <= ABSENT_TOLD && i < comm->nranks && known < count; i++)
        if (!diag_member_at(comm, i))
            absent[known++] = (int32_t)i;
    if (known && rec_fold_ranks(folded, sizeof folded, absent, known) < (int)sizeof folded)
        diag_printf(t, ", for members that never came: comm rank%s %s", known == 1 ? "" : "s", folded);
    else if (count)
        diag_printf(t, ", for %zu members that never came", count);
    else
        diag_printf(t, ", for members that never came");
}

static void say_absent(struct diag *d, struct rec_finding *f, const struct diag_wait *wait,
                       struct diag_text *t)
{
    int32_t ranks[256];
    size_t count = diag_absent_ranks(d, wait->comm, ranks, 256);
    for (size_t i = 0; i < count; i++)
        diag_blame(d, f, DIAG_SUSPECT, ranks[i]);
    say_never_came(t, wait->comm);
    if (!count)
        return;
    diag_printf(t, ", probably ");
    diag_say_ranks(t, f->suspects, f->nsuspects);
}

/* Names those to whom a creation is not complete that others have come out of; false when nobody has. */
static bool blame_left_inside(struct diag *d, struct rec_finding *f, const struct rec_communicator *comm)
{
    bool any = false;
    for (uint32_t i = 0; i < comm->nmembers && !any; i++)
        any = comm->members[i]->def.state == REC_LIVE_COMM_READY;
    for (uint32_t i = 0; i < comm->nmembers && any; i++)
        if (comm->members[i]->def.state == REC_LIVE_COMM_CREATING)
            diag_blame(d, f, DIAG_CULPRIT, comm->members[i]->process->rank);
    diag_sort_ranks(f->culprits, &f->nculprits);
    return f->nculprits > 0;
}

/* All members of the parent are inside: a grow waits for those that it adds. */
static void say_no_absent(struct diag *d, struct rec_finding *f, const struct diag_wait *wait,
                          struct diag_text *t)
{
    bool init = rec_kind_canonical(d->ops[wait->op].op.kind) == REC_COMM_INIT_RANK;
    if (init && blame_left_inside(d, f, wait->comm)) {
        diag_printf(t, ", which the others have come out of");
        return;
    }
    if (d->ops[wait->op].op.kind != REC_COMM_GROW) {
        diag_printf(t, ", although every member has called it, so no rank is to blame: look at the network");
        return;
    }
    for (int64_t rank = 0; rank < d->expected; rank++)
        if (!has_rank(wait->comm, rank))
            diag_blame(d, f, DIAG_SUSPECT, (int32_t)rank);
    diag_printf(t, ", for members that it adds and that never came");
    if (!f->nsuspects)
        return;
    diag_printf(t, ", of ");
    diag_say_ranks(t, f->suspects, f->nsuspects);
}

/* A wait that no process could end: nobody knows who is meant. */
void classify_lonely(struct classify *c, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    bool creation = wait->kind == DIAG_WAIT_CREATE;
    bool init = rec_kind_canonical(d->ops[wait->op].op.kind) == REC_COMM_INIT_RANK;
    if (!creation && has_work(d, wait->comm))
        return;
    /* Who is not recorded may be absent from a split, a shrink or a grow. */
    const struct diag_match *m = creation ? &d->matches[wait->match] : NULL;
    if (m && (init ? !m->unseen && has_twins(wait->comm) : m->unseen || m->unknown))
        return;
    struct rec_finding *f =
        diag_finding(d, creation ? REC_VERDICT_INIT_INCOMPLETE : REC_VERDICT_TEARDOWN_STUCK, REC_CONF_LIKELY,
                     DIAG_TIER_ROOT, wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    struct diag_text t = {0};
    classify_say_wait(c, &t, wait);
    if (m && init && m->unseen) {
        say_absent(d, f, wait, &t);
    } else if (m) {
        say_no_absent(d, f, wait, &t);
    } else {
        diag_printf(&t, ", although every member has called it");
    }
    diag_summary(d, f, &t);
    diag_evidence_op(d, f, &d->ops[wait->op], "waits in");
    classify_waiting(c, f, wait);
}
