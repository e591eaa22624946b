/*
 * From the wait-for graph to findings. A cause is what others wait for and what itself
 * waits for nothing: a wait that can never end, an idle process, or a knot.
 */
#include "classify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Causes of one kind beyond this are listed by the first ones' victims. */
#define FINDINGS_MAX 64

bool classify_is_culprit(const struct rec_finding *f, int32_t rank)
{
    for (size_t i = 0; i < f->nculprits; i++)
        if (f->culprits[i] == rank)
            return true;
    return false;
}

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

static uint32_t node_of(const struct diag *d, const struct diag_wait *wait)
{
    return (uint32_t)d->nprocs + (uint32_t)(wait - d->waits);
}

void classify_say_wait(struct classify *c, struct diag_text *t, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    uint32_t node = node_of(d, wait);
    int32_t *ranks = NULL;
    size_t count = 0, capacity = 0;
    for (uint32_t i = c->reverse_start[node]; i < c->reverse_start[node + 1]; i++) {
        ranks = diag_grow(ranks, &capacity, count, sizeof *ranks, &d->oom);
        if (!d->oom)
            ranks[count++] = d->procs[c->reverse_from[i]].p->rank;
    }
    diag_sort_ranks(ranks, &count);
    diag_say_ranks(t, ranks, count);
    diag_printf(t, count == 1 ? " waits in " : " wait in ");
    free(ranks);
    diag_say_op(t, &d->ops[wait->op].op);
    if (wait->match != DIAG_NONE)
        diag_printf(t, ", %s %" PRIu64 " of ", wait->kind == DIAG_WAIT_P2P ? "message" : "op",
                    d->matches[wait->match].seq);
    else
        diag_printf(t, " of ");
    diag_say_comm(t, wait->comm);
    diag_printf(t, ", since ");
    diag_say_time(t, wait->since);
}

void classify_evidence_wait(struct classify *c, struct rec_finding *f, const struct diag_wait *wait)
{
    struct diag_text t = {0};
    classify_say_wait(c, &t, wait);
    const struct diag_op *op = &c->d->ops[wait->op];
    if (t.data)
        diag_evidence(c->d, f, c->d->procs[op->proc].p, wait->match == DIAG_NONE ? UINT64_MAX : op->op.seq,
                      wait->since, "%s", t.data);
    free(t.data);
}

void classify_place(struct classify *c, struct rec_finding *f, const struct diag_wait *wait)
{
    f->comm = wait->comm;
    f->op = c->d->ops[wait->op].op;
    f->seq = wait->match == DIAG_NONE ? UINT64_MAX : c->d->matches[wait->match].seq;
}

/* ---- one cause at one wait ---- */

/* The last call that a process made, as far as the window tells. */
static const struct diag_op *last_op(const struct diag *d, uint32_t proc)
{
    const struct diag_proc *p = &d->procs[proc];
    return p->count ? &d->ops[p->first + p->count - 1] : NULL;
}

static void evidence_last(struct diag *d, struct rec_finding *f, uint32_t proc)
{
    const struct diag_op *op = last_op(d, proc);
    if (op)
        diag_evidence_op(d, f, op, "last called");
    else
        diag_evidence(d, f, d->procs[proc].p, UINT64_MAX, 0, "rank %d made no call that could match",
                      (int)d->procs[proc].p->rank);
}

static void evidence_stack(struct diag *d, struct rec_finding *f, const struct rec_process *p)
{
    const struct rec_stall *stall = &p->stall;
    if (!stall->why || !stall->nthreads)
        return;
    const struct rec_stall_thread *thread = &stall->threads[0];
    for (uint32_t i = 0; i < stall->nthreads; i++)
        if (stall->threads[i].tid == p->pid)
            thread = &stall->threads[i];
    diag_evidence(d, f, p, UINT64_MAX, p->stall_ns, "stack of rank %d, thread %d \"%s\"%s%s:", (int)p->rank,
                  (int)thread->tid, thread->name, thread->where[0] ? ", in " : "", thread->where);
    diag_evidence_frames(d, f, p, stall->modules, stall->nmodules, thread->frames, thread->nframes);
}

/* Did this process go on calling NCCL long after the others came to the wait? */
static bool went_on(const struct diag *d, uint32_t proc, const struct diag_wait *wait)
{
    const struct diag_proc *p = &d->procs[proc];
    return p->p->last_call_ns > wait->since + p->patience_ns;
}

static bool in_open_group(const struct diag *d, uint32_t proc)
{
    for (uint32_t i = d->procs[proc].first; i < d->procs[proc].first + d->procs[proc].count; i++)
        if (d->ops[i].unit != DIAG_NONE && !d->units[d->ops[i].unit].launched)
            return true;
    return false;
}

/* The call that an otherwise idle process has been inside for too long; NULL = outside NCCL. */
static const struct rec_op *stuck_call(const struct diag *d, uint32_t proc)
{
    const struct diag_proc *p = &d->procs[proc];
    for (uint32_t i = 0; i < p->p->nopen; i++)
        if (p->life_ns > p->p->open[i].enter_ns && p->life_ns - p->p->open[i].enter_ns >= p->patience_ns)
            return &p->p->open[i];
    return NULL;
}

struct cause {
    enum rec_verdict_type type;
    enum rec_confidence confidence;
    struct diag_text why; /* predicate after the culprits' names */
};

static const char *teardown_name(const struct rec_member *member)
{
    const char *name = member ? rec_kind_name(member->teardown.kind) : NULL;
    return name ? name : "teardown";
}

static void cause_of_idle(struct classify *c, uint32_t proc, const struct diag_wait *wait,
                          struct cause *cause)
{
    struct diag *d = c->d;
    const struct diag_proc *p = &d->procs[proc];
    const struct rec_op *call = stuck_call(d, proc);
    cause->confidence = REC_CONF_LIKELY;
    if (wait->kind == DIAG_WAIT_CREATE && d->matches[wait->match].unseen) {
        cause->type = REC_VERDICT_INIT_INCOMPLETE;
        diag_printf(&cause->why, "never joined the creation of ");
        diag_say_comm(&cause->why, wait->comm);
        return;
    }
    if (call) {
        cause->type = rec_kind_flags(call->kind) & REC_KF_TEARDOWN ? REC_VERDICT_TEARDOWN_STUCK
                                                                   : REC_VERDICT_STUCK_IN_CALL;
        diag_printf(&cause->why, "has been inside ");
        diag_say_op(&cause->why, call);
        diag_printf(&cause->why, " since ");
        diag_say_time(&cause->why, call->enter_ns);
        diag_printf(&cause->why, " although it waits for nobody");
        return;
    }
    if (went_on(d, proc, wait)) {
        cause->type = wait->kind == DIAG_WAIT_P2P ? REC_VERDICT_P2P_UNMATCHED : REC_VERDICT_RANK_NOT_JOINED;
        diag_printf(&cause->why, "went on with other calls until ");
        diag_say_time(&cause->why, p->p->last_call_ns);
        diag_printf(&cause->why, " and skipped it");
        return;
    }
    cause->type = REC_VERDICT_STUCK_OUTSIDE_NCCL;
    diag_printf(&cause->why, "made no NCCL call since ");
    diag_say_time(&cause->why, p->p->last_call_ns ? p->p->last_call_ns : p->p->start_ns);
    if (in_open_group(d, proc))
        diag_printf(&cause->why, " (between ncclGroupStart and ncclGroupEnd)");
    if (p->p->stall.why == REC_STALL_IDLE || p->life_ns - p->p->last_call_ns >= d->stall_ns)
        cause->confidence = REC_CONF_CERTAIN;
}

static void cause_of_never(struct classify *c, const struct diag_partner *partner,
                           const struct diag_wait *wait, struct cause *cause)
{
    const struct diag_proc *proc = &c->d->procs[partner->proc];
    cause->confidence = REC_CONF_CERTAIN;
    switch (wait->never) {
    case DIAG_NEVER_DEAD:
        cause->type = REC_VERDICT_PROCESS_DEAD;
        diag_say_end(&cause->why, proc->p);
        break;
    case DIAG_NEVER_EXITED:
        cause->type = wait->kind == DIAG_WAIT_P2P      ? REC_VERDICT_P2P_UNMATCHED
                      : wait->kind == DIAG_WAIT_CREATE ? REC_VERDICT_INIT_INCOMPLETE
                                                       : REC_VERDICT_RANK_NOT_JOINED;
        if (wait->kind == DIAG_WAIT_CREATE && partner->member)
            cause->type = REC_VERDICT_RANK_NOT_JOINED;
        diag_say_end(&cause->why, proc->p);
        break;
    case DIAG_NEVER_TEARDOWN:
        cause->type = wait->kind == DIAG_WAIT_P2P ? REC_VERDICT_P2P_UNMATCHED : REC_VERDICT_RANK_NOT_JOINED;
        diag_printf(&cause->why, "called %s instead at ", teardown_name(partner->member));
        diag_say_time(&cause->why, partner->member ? partner->member->teardown.enter_ns : 0);
        break;
    case DIAG_NEVER_LEFT_OUT:
        cause->type = REC_VERDICT_P2P_UNMATCHED;
        diag_printf(&cause->why, "posted its part of the exchange without the matching %s",
                    c->d->ops[wait->op].op.kind == REC_SEND ? "Recv" : "Send");
        break;
    case DIAG_NEVER_NO:
    case DIAG_NEVER_MISMATCH:
    case DIAG_NEVER_FAILED:
        break;
    }
}

/* "rank 2 (host a, pid 1) <why> while ranks 0-1,3 wait in …" */
static void summarize(struct classify *c, struct rec_finding *f, const struct diag_wait *wait,
                      struct cause *cause, const struct rec_process *only)
{
    struct diag_text t = {0};
    if (only)
        diag_say_proc(&t, only);
    else
        diag_say_ranks(&t, f->culprits, f->nculprits);
    diag_printf(&t, " %s while ", cause->why.data ? cause->why.data : "");
    classify_say_wait(c, &t, wait);
    t.oom = t.oom || cause->why.oom;
    diag_summary(c->d, f, &t);
}

/*
 * Those who entered and those who did not, where the latter have all gone on or ended well:
 * then the few are wrong, not the many.
 */
static bool only_few_entered(struct classify *c, const struct diag_wait *wait,
                             const struct diag_partner *partners, size_t count)
{
    if (wait->kind != DIAG_WAIT_COLL)
        return false;
    const struct diag_match *m = &c->d->matches[wait->match];
    if (m->posted + m->assumed >= m->absent)
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct diag_proc *proc = &c->d->procs[partners[i].proc];
        bool ended = proc->ended_well ||
                     (partners[i].member && partners[i].member->teardown.kind == REC_COMM_DESTROY) ||
                     (partners[i].member && partners[i].member->teardown.kind == REC_COMM_FINALIZE);
        if (partners[i].reason == DIAG_ABSENT && !ended && !went_on(c->d, partners[i].proc, wait))
            return false;
    }
    return true;
}

static void blame_few(struct classify *c, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    const struct diag_match *m = &d->matches[wait->match];
    struct rec_finding *f =
        diag_finding(d, REC_VERDICT_RANK_NOT_JOINED, REC_CONF_LIKELY, DIAG_TIER_ROOT, wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        diag_blame(d, f, DIAG_CULPRIT, d->procs[d->ops[i].proc].p->rank);
        c->blamed[d->ops[i].proc] = (uint32_t)d->nfindings;
    }
    diag_sort_ranks(f->culprits, &f->nculprits);
    struct diag_text t = {0};
    diag_printf(&t, "only ");
    diag_say_ranks(&t, f->culprits, f->nculprits);
    diag_printf(&t, " entered ");
    diag_say_op(&t, &f->op);
    diag_printf(&t, ", op %" PRIu64 " of ", f->seq);
    diag_say_comm(&t, f->comm);
    diag_printf(&t, ", at ");
    diag_say_time(&t, wait->since);
    diag_printf(&t, "; the other %" PRIu32 " members went on without it", m->absent);
    diag_summary(d, f, &t);
    for (uint32_t i = m->first_op; i != DIAG_NONE && f->nevidence < 4; i = d->ops[i].match_next)
        diag_evidence_op(d, f, &d->ops[i], "called");
}

/* Is the partner one that this wait's ending depends on by the wait's own reason? */
static bool concerned(const struct classify *c, const struct diag_wait *wait,
                      const struct diag_partner *partner)
{
    const struct diag_proc *proc = &c->d->procs[partner->proc];
    if (partner->reason != DIAG_ABSENT)
        return false;
    switch (wait->never) {
    case DIAG_NEVER_DEAD:
        return proc->early_dead;
    case DIAG_NEVER_EXITED:
        return proc->p->fate == REC_FATE_EXITED;
    case DIAG_NEVER_TEARDOWN:
        return partner->member && partner->member->teardown.kind != REC_NONE;
    default:
        return true;
    }
}

static void merge_victims(struct classify *c, const struct diag_wait *wait, uint32_t finding)
{
    uint32_t node = node_of(c->d, wait);
    classify_reach(c, &node, 1);
    classify_victims(c, &c->d->findings[finding]);
    if (c->d->findings[finding].nevidence < 6)
        classify_evidence_wait(c, &c->d->findings[finding], wait);
}

static void blame_partners(struct classify *c, const struct diag_wait *wait,
                           const struct diag_partner *partners, size_t count)
{
    struct diag *d = c->d;
    const struct diag_partner *first = NULL;
    uint32_t known = 0;
    for (size_t i = 0; i < count; i++) {
        if (!concerned(c, wait, &partners[i]))
            continue;
        if (c->blamed[partners[i].proc])
            known = c->blamed[partners[i].proc];
        else if (!first)
            first = &partners[i];
    }
    if (!first) {
        if (known)
            merge_victims(c, wait, known - 1);
        return;
    }
    struct cause cause = {0};
    if (wait->never != DIAG_NEVER_NO)
        cause_of_never(c, first, wait, &cause);
    else
        cause_of_idle(c, first->proc, wait, &cause);
    struct rec_finding *f = diag_finding(d, cause.type, cause.confidence, DIAG_TIER_ROOT, wait->since);
    if (!f) {
        free(cause.why.data);
        return;
    }
    classify_place(c, f, wait);
    size_t blamed = 0;
    for (size_t i = 0; i < count; i++) {
        if (!concerned(c, wait, &partners[i]) || c->blamed[partners[i].proc])
            continue;
        diag_blame(d, f, DIAG_CULPRIT, d->procs[partners[i].proc].p->rank);
        c->blamed[partners[i].proc] = (uint32_t)d->nfindings;
        blamed++;
    }
    diag_sort_ranks(f->culprits, &f->nculprits);
    summarize(c, f, wait, &cause, blamed == 1 ? d->procs[first->proc].p : NULL);
    free(cause.why.data);
    for (size_t i = 0; i < count && f->nevidence < 8; i++) {
        if (!classify_is_culprit(f, d->procs[partners[i].proc].p->rank))
            continue;
        evidence_last(d, f, partners[i].proc);
        if (d->procs[partners[i].proc].p->fate != REC_FATE_ALIVE &&
            cause.type != REC_VERDICT_STUCK_OUTSIDE_NCCL)
            diag_evidence_end(d, f, d->procs[partners[i].proc].p);
    }
    diag_evidence_op(d, f, &d->ops[wait->op], "waits in");
    if (cause.type == REC_VERDICT_STUCK_OUTSIDE_NCCL)
        evidence_stack(d, f, d->procs[first->proc].p);
    uint32_t node = node_of(d, wait);
    classify_reach(c, &node, 1);
    classify_victims(c, f);
}

static void blame_failed(struct classify *c, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    const struct diag_op *op = &d->ops[wait->culprit_op];
    if (c->blamed[op->proc]) {
        merge_victims(c, wait, c->blamed[op->proc] - 1);
        return;
    }
    struct rec_finding *f = diag_finding(d, REC_VERDICT_COMM_FAILED, REC_CONF_CERTAIN, DIAG_TIER_ROOT,
                                         op->op.exit_ns < wait->since ? op->op.exit_ns : wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    diag_blame(d, f, DIAG_CULPRIT, d->procs[op->proc].p->rank);
    c->blamed[op->proc] = (uint32_t)d->nfindings;
    const char *name = rec_result_name(op->op.result);
    struct cause cause = {0};
    diag_printf(&cause.why, "got %s from ", name ? name : "an error");
    diag_say_op(&cause.why, &op->op);
    summarize(c, f, wait, &cause, d->procs[op->proc].p);
    free(cause.why.data);
    diag_evidence_op(d, f, op, "was refused");
    uint32_t node = node_of(d, wait);
    classify_reach(c, &node, 1);
    classify_victims(c, f);
}

static void blame_pair(struct classify *c, const struct diag_wait *wait)
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
    diag_say_op(&t, &a->op);
    diag_printf(&t, " but ");
    diag_say_proc(&t, d->procs[b->proc].p);
    diag_printf(&t, " called ");
    diag_say_op(&t, &b->op);
    diag_printf(&t, " for message %" PRIu64 " of that pair in ", m->seq);
    diag_say_comm(&t, wait->comm);
    diag_summary(d, f, &t);
    diag_evidence_op(d, f, a, "called");
    diag_evidence_op(d, f, b, "called");
    uint32_t node = node_of(d, wait);
    classify_reach(c, &node, 1);
    classify_victims(c, f);
}

/* The divergence of this communicator has been told already: only its victims are new. */
static void join_divergence(struct classify *c, const struct diag_wait *wait)
{
    for (size_t i = 0; i < c->d->nfindings; i++) {
        struct rec_finding *f = &c->d->findings[i];
        bool divergence = f->type == REC_VERDICT_OP_MISMATCH || f->type == REC_VERDICT_SIGNATURE_MISMATCH ||
                          f->type == REC_VERDICT_INIT_INCOMPLETE || f->type == REC_VERDICT_RANK_NOT_JOINED;
        if (f->comm != wait->comm || !divergence)
            continue;
        uint32_t node = node_of(c->d, wait);
        classify_reach(c, &node, 1);
        classify_victims(c, f);
        return;
    }
}

static void judge_never(struct classify *c, const struct diag_wait *wait)
{
    if (wait->never == DIAG_NEVER_MISMATCH && wait->kind == DIAG_WAIT_P2P) {
        blame_pair(c, wait);
    } else if (wait->never == DIAG_NEVER_MISMATCH) {
        join_divergence(c, wait);
    } else if (wait->never == DIAG_NEVER_FAILED) {
        blame_failed(c, wait);
    } else {
        struct diag_partner *partners;
        size_t count = diag_partners(c->d, wait, &partners);
        if (only_few_entered(c, wait, partners, count))
            blame_few(c, wait);
        else
            blame_partners(c, wait, partners, count);
        free(partners);
    }
}

/* Partners of a wait that wait for nothing themselves. */
static void judge_idle(struct classify *c, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    struct diag_partner *partners;
    size_t count = diag_partners(d, wait, &partners), kept = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t p = partners[i].proc;
        if (d->edge_start[p] == d->edge_start[p + 1])
            partners[kept++] = partners[i];
    }
    for (size_t i = 0; i < kept; i++)
        if (partners[i].reason == DIAG_UNLAUNCHED)
            partners[i].reason = DIAG_ABSENT;
    if (kept && kept == count && only_few_entered(c, wait, partners, kept))
        blame_few(c, wait);
    else if (kept)
        blame_partners(c, wait, partners, kept);
    free(partners);
}

/* Its turn has come on the stream, but the GPU has not begun it. */
static bool not_reached(const struct diag *d, const struct diag_op *op)
{
    return d->procs[op->proc].gpu_seen && op->op.state < REC_STATE_GPU_STARTED;
}

/* Everybody has launched it, it fits, and still it does not end. */
static void judge_kernel(struct classify *c, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    const struct diag_match *m = &d->matches[wait->match];
    size_t odd = 0, all = 0;
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        all++;
        odd += m->captured ? (d->ops[i].op.flags & REC_OF_CAPTURED) != 0 : not_reached(d, &d->ops[i]);
    }
    enum rec_verdict_type type = m->captured ? REC_VERDICT_CAPTURE_MISMATCH
                                 : odd       ? REC_VERDICT_GPU_NOT_REACHED
                                             : REC_VERDICT_STUCK_IN_KERNEL;
    struct rec_finding *f = diag_finding(d, type, REC_CONF_LIKELY, DIAG_TIER_ROOT, wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        const struct diag_op *op = &d->ops[i];
        bool captured = (op->op.flags & REC_OF_CAPTURED) != 0;
        bool blamed = m->captured ? odd * 2 == all || captured == (odd * 2 < all) : odd && not_reached(d, op);
        if (blamed)
            diag_blame(d, f, DIAG_CULPRIT, d->procs[op->proc].p->rank);
        if (f->nevidence < 8)
            diag_evidence_op(d, f, op,
                             captured             ? "captured into a graph"
                             : not_reached(d, op) ? "enqueued, but its GPU has not reached,"
                                                  : "waits in");
    }
    diag_sort_ranks(f->culprits, &f->nculprits);
    struct diag_text t = {0};
    if (m->captured) {
        diag_say_ranks(&t, f->culprits, f->nculprits);
        diag_printf(&t, ": %zu of %zu ranks captured it into a CUDA graph that was not launched, while ", odd,
                    all);
        classify_say_wait(c, &t, wait);
    } else if (odd) {
        diag_say_ranks(&t, f->culprits, f->nculprits);
        diag_printf(&t, " enqueued it, but other work in front of it keeps the GPU from reaching it, while ");
        classify_say_wait(c, &t, wait);
    } else {
        classify_say_wait(c, &t, wait);
        diag_printf(
            &t, "; every GPU is inside the kernel and none comes out, so no rank is to blame: look at the "
                "links and the GPUs");
    }
    diag_summary(d, f, &t);
    uint32_t node = node_of(d, wait);
    classify_reach(c, &node, 1);
    classify_victims(c, f);
}

/* A wait that no process could end: nobody knows who is meant. */
static void judge_lonely(struct classify *c, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    bool creation = wait->kind == DIAG_WAIT_CREATE;
    struct rec_finding *f =
        diag_finding(d, creation ? REC_VERDICT_INIT_INCOMPLETE : REC_VERDICT_TEARDOWN_STUCK, REC_CONF_LIKELY,
                     DIAG_TIER_ROOT, wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    struct diag_text t = {0};
    classify_say_wait(c, &t, wait);
    if (creation) {
        int32_t ranks[256];
        size_t count = diag_absent_ranks(d, wait->comm, ranks, 256);
        for (size_t i = 0; i < count; i++)
            diag_blame(d, f, DIAG_SUSPECT, ranks[i]);
        diag_printf(&t, ", for members that never came: comm rank");
        uint32_t said = 0;
        for (uint32_t i = 0; i < wait->comm->nranks && said < 16; i++)
            if (!diag_member_at(wait->comm, i))
                diag_printf(&t, "%s%" PRIu32, said++ ? "," : " ", i);
        if (count) {
            diag_printf(&t, ", probably ");
            diag_say_ranks(&t, f->suspects, f->nsuspects);
        }
    } else {
        diag_printf(&t, ", although every member has called it");
    }
    diag_summary(d, f, &t);
    diag_evidence_op(d, f, &d->ops[wait->op], "waits in");
    uint32_t node = node_of(d, wait);
    classify_reach(c, &node, 1);
    classify_victims(c, f);
}

/* ---- all of them ---- */

static bool prepare(struct classify *c)
{
    struct diag *d = c->d;
    size_t nodes = diag_nodes(d);
    c->blamed = calloc(d->nprocs + 1, sizeof *c->blamed);
    c->reverse_start = calloc(nodes + 2, sizeof *c->reverse_start);
    c->reverse_from = malloc((d->nedges + 1) * sizeof *c->reverse_from);
    c->reached = calloc(nodes + 1, sizeof *c->reached);
    c->queue = malloc((nodes + 1) * sizeof *c->queue);
    if (!c->blamed || !c->reverse_start || !c->reverse_from || !c->reached || !c->queue)
        return false;
    for (size_t i = 0; i < d->nedges; i++)
        c->reverse_start[d->edges[i].to + 2]++;
    for (size_t i = 2; i < nodes + 2; i++)
        c->reverse_start[i] += c->reverse_start[i - 1];
    for (size_t i = 0; i < d->nedges; i++)
        c->reverse_from[c->reverse_start[d->edges[i].to + 1]++] = d->edges[i].from;
    return true;
}

struct ordered {
    uint64_t since;
    uint32_t wait;
};

static int by_since(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;
    if (x->since != y->since)
        return x->since < y->since ? -1 : 1;
    return x->wait < y->wait ? -1 : x->wait > y->wait;
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
            order[count++] = (struct ordered){d->waits[i].since, i};
    qsort(order, count, sizeof *order, by_since);
    for (size_t i = 0; i < count && !d->oom && d->nfindings < FINDINGS_MAX; i++) {
        const struct diag_wait *wait = &d->waits[order[i].wait];
        uint32_t node = node_of(d, wait);
        if (wait->never != DIAG_NEVER_NO)
            judge_never(c, wait);
        else if (d->edge_start[node] != d->edge_start[node + 1])
            judge_idle(c, wait);
        else if (wait->kind == DIAG_WAIT_COLL || wait->kind == DIAG_WAIT_P2P)
            judge_kernel(c, wait);
        else
            judge_lonely(c, wait);
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

static void judge_dead(struct classify *c)
{
    struct diag *d = c->d;
    for (uint32_t i = 0; i < d->nprocs && !d->oom && d->nfindings < FINDINGS_MAX; i++) {
        const struct diag_proc *proc = &d->procs[i];
        if (!proc->early_dead || c->blamed[i])
            continue;
        struct rec_finding *f =
            diag_finding(d, REC_VERDICT_PROCESS_DEAD, REC_CONF_CERTAIN,
                         proc->waits ? DIAG_TIER_CONSEQUENCE : DIAG_TIER_ROOT, proc->dead_ns);
        if (!f)
            return;
        diag_blame(d, f, DIAG_CULPRIT, proc->p->rank);
        c->blamed[i] = (uint32_t)d->nfindings;
        struct diag_text t = {0};
        diag_say_proc(&t, proc->p);
        diag_printf(&t, " ");
        diag_say_end(&t, proc->p);
        diag_printf(&t, proc->waits ? ", after it had waited for others" : " while the others lived on");
        diag_summary(d, f, &t);
        evidence_last(d, f, i);
        diag_evidence_end(d, f, proc->p);
    }
}

void diag_classify(struct diag *d)
{
    struct classify c = {.d = d};
    if (prepare(&c)) {
        judge_waits(&c);
        judge_knots(&c);
        judge_dead(&c);
    } else {
        d->oom = true;
    }
    free(c.blamed);
    free(c.reverse_start);
    free(c.reverse_from);
    free(c.reached);
    free(c.queue);
}
