/*
 * Who comes to a call after another member, having waited there in vain, has ended, comes too late: nobody
 * is there any more. Such calls count as not made, so that what is judged is the job as it stood when
 * the first gave up. Aborts are the same (load.c).
 */
#include "diag.h"

#include <stdlib.h>

/* Ends and calls of several processes are compared this closely. */
#define BLUR_EXACT (NS_PER_S / 10)
#define BLUR_LIFE  (3 * NS_PER_S) /* without an end record only the last sign of life is known */

/* The first end of a member that had waited. */
struct deadline {
    uint64_t ns;    /* UINT64_MAX: none */
    uint64_t came;  /* its member had come to all calls before this seq */
    uint32_t clock; /* only members that follow it can be compared */
};

struct lateness {
    struct diag *d;
    struct deadline *deadlines; /* by communicator index */
    uint64_t *gave_up_ns;       /* by process; UINT64_MAX = did not */
    bool *late;                 /* by member: has come too late */
    uint32_t *queue;            /* ops that came too late and whose reason is not yet known */
    size_t used;
};

static bool collective(const struct diag_op *op)
{
    return op->member && !(op->op.flags & REC_OF_NO_SEQ) &&
           ((rec_kind_flags(op->op.kind) & (REC_KF_SEQ | REC_KF_HOST)) || op->op.kind == REC_GRAPH_LAUNCH);
}

static bool is_message(const struct diag_op *op)
{
    return op->member && (rec_kind_flags(op->op.kind) & REC_KF_P2P);
}

static uint64_t gave_up(const struct diag_proc *proc)
{
    bool ended = proc->p->fate == REC_FATE_SIGNALED || proc->p->fate == REC_FATE_EXITED;
    if (proc->early_dead || proc->ended_well || proc->p->fate == REC_FATE_ALIVE || !diag_stood_still(proc))
        return UINT64_MAX;
    return proc->dead_ns + (ended ? BLUR_EXACT : BLUR_LIFE);
}

/* Where those who gave up first may have waited. Others that gave up with them had perhaps come further. */
static void find_deadlines(struct lateness *l)
{
    struct diag *d = l->d;
    for (size_t c = 0; c < d->ncomms; c++)
        l->deadlines[c] = (struct deadline){UINT64_MAX, 0, 0};
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < d->nops; i++) {
            const struct diag_op *op = &d->ops[i];
            uint64_t end = l->gave_up_ns[op->proc];
            if (end == UINT64_MAX || !collective(op) || op->late || op->op.state == REC_STATE_COMPLETED)
                continue;
            struct deadline *deadline = &l->deadlines[op->member->comm->index];
            uint32_t clock = d->procs[op->proc].clock;
            if (pass == 0 && end < deadline->ns)
                *deadline = (struct deadline){end, 0, clock};
            else if (pass == 1 && clock == deadline->clock && end <= deadline->ns + DIAG_ONE_END_NS &&
                     op->op.seq >= deadline->came)
                deadline->came = op->op.seq + 1;
        }
    }
}

static void set_late(struct lateness *l, uint32_t index)
{
    struct diag *d = l->d;
    struct diag_op *op = &d->ops[index];
    op->late = true;
    if (!collective(op))
        return;
    struct diag_member *member = diag_member_of(d, op->member);
    if (op->op.seq < member->next_seq)
        member->next_seq = op->op.seq;
    if (!l->late[diag_member_id(d, op->member)])
        l->queue[l->used++] = index;
    l->late[diag_member_id(d, op->member)] = true;
}

static bool after_end(const struct diag *d, const struct diag_op *op, uint32_t proc)
{
    return d->procs[proc].clock == d->procs[op->proc].clock && op->op.enter_ns > gave_up(&d->procs[proc]);
}

/* The other end of a message, in the window of its process; DIAG_NONE. */
static uint32_t other_end(const struct diag *d, const struct diag_op *op, const struct rec_member *peer)
{
    const struct diag_proc *proc = &d->procs[diag_index(d, peer->process)];
    unsigned kind = op->op.kind == REC_SEND ? REC_RECV : REC_SEND;
    for (uint32_t i = proc->first + proc->count; i-- > proc->first;)
        if (d->ops[i].member == peer && d->ops[i].op.kind == kind && d->ops[i].op.seq == op->op.seq &&
            d->ops[i].op.peer == (int32_t)op->member->comm_rank)
            return i;
    return DIAG_NONE;
}

/*
 * A message whose other end was posted by one that has ended since. A small send may be over before its
 * receive: there the GPU must have been seen to be still at it.
 */
static bool message_late(const struct diag *d, const struct diag_op *op)
{
    if (!is_message(op))
        return false;
    const struct rec_member *peer = diag_member_at(op->member->comm, op->op.peer);
    if (!peer || !after_end(d, op, diag_index(d, peer->process)))
        return false;
    uint32_t other = other_end(d, op, peer);
    return other != DIAG_NONE && !d->ops[other].late && d->ops[other].op.state != REC_STATE_COMPLETED &&
           (op->op.kind == REC_SEND || d->ops[other].op.launch);
}

static void mark(struct lateness *l)
{
    struct diag *d = l->d;
    for (uint32_t i = 0; i < d->nops; i++) {
        struct diag_op *op = &d->ops[i];
        if (op->late || !op->member || (rec_kind_flags(op->op.kind) & REC_KF_TEARDOWN))
            continue;
        const struct deadline *deadline = &l->deadlines[op->member->comm->index];
        bool after = op->op.enter_ns > deadline->ns && d->procs[op->proc].clock == deadline->clock &&
                     collective(op) &&
                     (op->op.seq < deadline->came || l->late[diag_member_id(d, op->member)]);
        if (after || message_late(d, op))
            set_late(l, i);
    }
}

/* The collective that a process had called before this op in the same thread; DIAG_NONE. */
static uint32_t called_before(const struct diag *d, uint32_t index)
{
    const struct diag_op *op = &d->ops[index];
    for (uint32_t i = index; i-- > d->procs[op->proc].first;)
        if (d->ops[i].op.thread == op->op.thread && collective(&d->ops[i]))
            return d->ops[i].late ? DIAG_NONE : i;
    return DIAG_NONE;
}

/* The op of a member at a seq of its communicator; DIAG_NONE. */
static uint32_t op_at(const struct diag *d, const struct rec_member *member, uint64_t seq)
{
    const struct diag_proc *proc = &d->procs[diag_index(d, member->process)];
    for (uint32_t i = proc->first + proc->count; i-- > proc->first;)
        if (d->ops[i].member == member && collective(&d->ops[i]) && d->ops[i].op.seq == seq)
            return i;
    return DIAG_NONE;
}

/* The GPU was seen to end it, the host went on only later. */
static bool over_before(const struct diag_op *op, uint64_t end)
{
    return op->op.gpu_end_ns && op->op.gpu_end_ns + DIAG_GPU_LAG_NS < end;
}

/* Does it have members of which nobody knows when they came? */
static bool lacks_records(const struct diag *d, const struct rec_communicator *comm)
{
    bool lacks = comm->nranks > comm->nmembers;
    for (uint32_t m = 0; m < comm->nmembers && !lacks; m++)
        lacks = d->procs[diag_index(d, comm->members[m]->process)].cut;
    return lacks;
}

/*
 * Who came too late because it waited somewhere else for one that came there only then: that one is too
 * late, too.
 */
static void follow(struct lateness *l, uint32_t index)
{
    struct diag *d = l->d;
    struct deadline *deadline = &l->deadlines[d->ops[index].member->comm->index];
    uint64_t end = deadline->ns;
    uint32_t before = called_before(d, index);
    if (before == DIAG_NONE || d->ops[before].op.enter_ns >= end || over_before(&d->ops[before], end))
        return;
    const struct rec_communicator *comm = d->ops[before].member->comm;
    bool any = false;
    if (lacks_records(d, comm))
        d->procs[d->ops[index].proc].doubtful = true;
    for (uint32_t m = 0; m < comm->nmembers; m++) {
        uint32_t other = op_at(d, comm->members[m], d->ops[before].op.seq);
        if (other == DIAG_NONE || d->ops[other].late || d->ops[other].op.enter_ns <= end ||
            d->procs[d->ops[other].proc].clock != deadline->clock)
            continue;
        if (end < l->deadlines[comm->index].ns)
            l->deadlines[comm->index] = (struct deadline){end, d->ops[before].op.seq + 1, deadline->clock};
        any = true;
        const struct diag_proc *proc = &d->procs[d->ops[other].proc];
        for (uint32_t i = other; i < proc->first + proc->count; i++)
            if (d->ops[i].member == comm->members[m] && collective(&d->ops[i]))
                set_late(l, i);
    }
    /* That it was completed in the end is another matter. */
    for (uint32_t m = 0; m < comm->nmembers && any; m++) {
        uint32_t other = op_at(d, comm->members[m], d->ops[before].op.seq);
        if (other != DIAG_NONE)
            d->ops[other].op.state = REC_STATE_UNKNOWN;
    }
}

static void message_ends(const struct diag_op *op, int32_t *src, int32_t *dst)
{
    int32_t self = (int32_t)op->member->comm_rank;
    *src = diag_sends(&op->op) ? self : op->op.peer;
    *dst = diag_sends(&op->op) ? op->op.peer : self;
}

/* Had the other end of a message given up, or aborted the communicator, when this one was posted? */
static bool in_vain(const struct diag *d, const struct diag_op *op)
{
    const struct rec_member *peer = diag_member_at(op->member->comm, op->op.peer);
    const struct diag_proc *proc = peer ? &d->procs[diag_index(d, peer->process)] : NULL;
    bool aborted = peer && peer->teardown.kind == REC_COMM_ABORT &&
                   op->op.enter_ns > diag_common(proc, peer->teardown.enter_ns);
    return aborted || (peer && after_end(d, op, diag_index(d, peer->process)));
}

void diag_late_messages(struct diag *d)
{
    for (size_t i = 0; i < d->nops; i++) {
        const struct diag_op *op = &d->ops[i];
        int32_t src, dst;
        if (!op->late || !is_message(op) || !in_vain(d, op))
            continue;
        message_ends(op, &src, &dst);
        uint32_t match = diag_match_find(d, op->member->comm, op->op.seq, src, dst);
        if (match != DIAG_NONE)
            d->matches[match].too_late = true;
    }
}

uint32_t diag_came_late(const struct diag *d, const struct diag_wait *wait, uint32_t proc)
{
    const struct diag_match *m = wait->match == DIAG_NONE ? NULL : &d->matches[wait->match];
    if (!d->procs[proc].late)
        return DIAG_NONE;
    for (uint32_t i = d->procs[proc].first; m && i < d->procs[proc].first + d->procs[proc].count; i++) {
        const struct diag_op *op = &d->ops[i];
        int32_t src = -1, dst = -1;
        if (!op->late || !op->member || op->member->comm != m->comm || op->op.seq != m->seq)
            continue;
        if (is_message(op) && m->too_late)
            message_ends(op, &src, &dst);
        else if (!collective(op))
            continue;
        if (m->src == src && m->dst == dst)
            return i;
    }
    return DIAG_NONE;
}

/* Which processes have made such calls, also after an abort. */
static void note_late(struct diag *d, bool any)
{
    for (size_t c = 0; c < d->ncomms && !any; c++)
        any = d->abort_ns[c] != UINT64_MAX;
    for (size_t i = 0; i < d->nops && any; i++)
        if (d->ops[i].late)
            d->procs[d->ops[i].proc].late = true;
}

void diag_mark_late(struct diag *d)
{
    struct lateness l = {.d = d,
                         .deadlines = malloc((d->ncomms + 1) * sizeof *l.deadlines),
                         .gave_up_ns = malloc((d->nprocs + 1) * sizeof *l.gave_up_ns),
                         .late = calloc(d->nmembers + 1, sizeof *l.late),
                         .queue = malloc((d->nmembers + 1) * sizeof *l.queue)};
    d->oom = d->oom || !l.deadlines || !l.gave_up_ns || !l.late || !l.queue;
    bool any = false;
    for (size_t p = 0; p < d->nprocs && !d->oom; p++) {
        l.gave_up_ns[p] = gave_up(&d->procs[p]);
        any = any || l.gave_up_ns[p] != UINT64_MAX;
    }
    if (any && !d->oom) {
        find_deadlines(&l);
        mark(&l);
        for (size_t at = 0; at < l.used; at++)
            follow(&l, l.queue[at]);
    }
    note_late(d, any);
    free(l.deadlines);
    free(l.gave_up_ns);
    free(l.late);
    free(l.queue);
}
