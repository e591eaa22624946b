/*
 * Who comes to a call after another member, having waited there in vain, has ended, comes too late: nobody
 * is there any more. Such calls count as not made, so that what is judged is the job as it stood when
 * the first gave up. Aborts are the same (load.c).
 */
#include "diag.h"

#include <stdlib.h>

#include "job/recall.h"

/* Ends and calls of several processes are compared this closely. */
#define BLUR_EXACT  (NS_PER_S / 10)
#define BLUR_LIFE   (3 * NS_PER_S) /* without an end record only the last sign of life is known */
#define TOGETHER_NS (NS_PER_S / 2)

/* The first end of a member that had waited. */
struct deadline {
    uint64_t ns;   /* UINT64_MAX: none */
    uint64_t came; /* its member had come to all calls before this seq */
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
           ((rec_kind_flags(op->op.kind) & REC_KF_SEQ) || op->op.kind == REC_GRAPH_LAUNCH);
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
        l->deadlines[c] = (struct deadline){UINT64_MAX, 0};
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < d->nops; i++) {
            const struct diag_op *op = &d->ops[i];
            uint64_t end = l->gave_up_ns[op->proc];
            if (end == UINT64_MAX || !collective(op) || op->late || op->op.state == REC_STATE_COMPLETED)
                continue;
            struct deadline *deadline = &l->deadlines[op->member->comm->index];
            if (pass == 0)
                deadline->ns = end < deadline->ns ? end : deadline->ns;
            else if (end <= deadline->ns + TOGETHER_NS && op->op.seq >= deadline->came)
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

/* A message whose other end was posted by one that has ended since. Small sends end without a receiver. */
static bool message_late(const struct lateness *l, const struct diag_op *op)
{
    const struct diag *d = l->d;
    if (!op->member || !(rec_kind_flags(op->op.kind) & REC_KF_P2P))
        return false;
    const struct rec_member *peer = diag_member_at(op->member->comm, op->op.peer);
    if (!peer || op->op.enter_ns <= l->gave_up_ns[diag_index(d, peer->process)] || op->op.kind != REC_SEND)
        return false;
    return job_pair_next(peer->process, peer->comm_id, (int32_t)op->member->comm_rank, false, false) >
           op->op.seq;
}

static void mark(struct lateness *l)
{
    struct diag *d = l->d;
    for (uint32_t i = 0; i < d->nops; i++) {
        struct diag_op *op = &d->ops[i];
        if (op->late || !op->member || (rec_kind_flags(op->op.kind) & REC_KF_TEARDOWN))
            continue;
        const struct deadline *deadline = &l->deadlines[op->member->comm->index];
        bool after = op->op.enter_ns > deadline->ns && collective(op) &&
                     (op->op.seq < deadline->came || l->late[diag_member_id(d, op->member)]);
        if (after || message_late(l, op))
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

/*
 * Who came too late because it waited somewhere else for one that came there only then: that one is too
 * late, too.
 */
static void follow(struct lateness *l, uint32_t index)
{
    struct diag *d = l->d;
    uint64_t end = l->deadlines[d->ops[index].member->comm->index].ns;
    uint32_t before = called_before(d, index);
    if (before == DIAG_NONE || d->ops[before].op.enter_ns >= end)
        return;
    const struct rec_communicator *comm = d->ops[before].member->comm;
    for (uint32_t m = 0; m < comm->nmembers; m++) {
        uint32_t other = op_at(d, comm->members[m], d->ops[before].op.seq);
        if (other == DIAG_NONE || d->ops[other].late || d->ops[other].op.enter_ns <= end)
            continue;
        if (end < l->deadlines[comm->index].ns)
            l->deadlines[comm->index] = (struct deadline){end, d->ops[before].op.seq + 1};
        set_late(l, other);
        const struct diag_proc *proc = &d->procs[d->ops[other].proc];
        for (uint32_t i = other + 1; i < proc->first + proc->count; i++)
            if (d->ops[i].member == comm->members[m] && collective(&d->ops[i]))
                set_late(l, i);
    }
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
    free(l.deadlines);
    free(l.gave_up_ns);
    free(l.late);
    free(l.queue);
}
