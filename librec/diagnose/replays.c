/*
 * Calls by which ranks may rightly differ where graphs are used: one runs eagerly what the others launch in a
 * graph, or captures for itself what it never launches. Both take numbers of the communicator that the others
 * do not, so that from there on equal numbers mean different ops. Here they give them back: what stands in
 * for a launch becomes one, what is never launched has no number.
 */
#include <stdlib.h>
#include <string.h>

#include "diag.h"
#include "job/recall.h"

#define SHIFT_MAX 64   /* numbers that are looked for */
#define MEND_MAX  4096 /* of one communicator */

/* A member's ops with numbers of one communicator, in their order. */
struct series {
    struct rec_member *member;
    uint32_t proc;
    uint32_t *ops;
    size_t count;
};

static bool fill(struct diag *d, struct series *series, struct rec_member *member)
{
    series->member = member;
    series->proc = diag_index(d, member->process);
    const struct diag_proc *proc = &d->procs[series->proc];
    series->ops = malloc((proc->count + 1) * sizeof *series->ops);
    series->count = 0;
    d->oom = d->oom || !series->ops;
    for (uint32_t i = proc->first; i < proc->first + proc->count && !d->oom; i++) {
        const struct diag_op *op = &d->ops[i];
        if (op->member != member || !(rec_kind_flags(op->op.kind) & REC_KF_SEQ) ||
            (op->op.flags & REC_OF_NO_SEQ))
            continue;
        /* Threads may have taken their numbers in another order than they called. */
        size_t at = series->count++;
        for (; at && d->ops[series->ops[at - 1]].op.seq > op->op.seq; at--)
            series->ops[at] = series->ops[at - 1];
        series->ops[at] = i;
    }
    return !d->oom;
}

/* How many launches of a meeting its member had issued before the op at index. */
static uint64_t launches_before(const struct diag *d, const struct rec_member *member, uint32_t proc,
                                uint32_t index)
{
    const struct diag_proc *p = &d->procs[proc];
    for (uint32_t i = index; i < p->first + p->count; i++)
        if (d->ops[i].member == member)
            return d->ops[i].op.seq;
    return diag_member_of(d, member)->next_seq;
}

/* How many ops of the communicator one launch stands for there. */
static uint64_t length_of(const struct rec_member *real, uint64_t seq)
{
    const struct job_captured *items;
    uint32_t graph = job_captured_first(real->process, real->comm_id, seq);
    for (size_t count = graph ? job_captured(real->process, graph, &items) : 0, i = 0; i < count; i++)
        if (items[i].comm_id == real->comm_id)
            return items[i].last - items[i].first + 1;
    return 0;
}

/* Ops that one has more than the other, and what explains them. */
struct shift {
    uint64_t seq, count;
    struct diag_meeting instead; /* launches of it; its comm is NULL: captured and never launched */
    uint64_t launches, first;    /* how many, and the number of the first one */
};

static bool of_graphs(const struct diag_meeting *meeting, const struct rec_communicator *comm)
{
    return meeting->of == comm && meeting->seq != UINT64_MAX;
}

/* Are all of them captured into graphs that this process never launched? They must all be in the window. */
static bool never_ran(const struct diag *d, const struct series *more, size_t at, uint64_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct diag_op *op = &d->ops[more->ops[at + i]];
        if (!diag_captured(op) || !op->op.launch ||
            job_graph_launches(more->member->process, op->op.launch) || d->procs[more->proc].gap_ns)
            return false;
    }
    return true;
}

/* Has the other one launched graphs that often more, as these are ops? Of one meeting: else the order is
 * open. */
static bool instead_of_launches(const struct diag *d, const struct series *more, size_t behind,
                                const struct series *less, size_t at, struct shift *shift)
{
    struct diag_meeting meeting;
    shift->instead.comm = NULL;
    for (size_t i = 0; diag_meeting(d, i, &meeting); i++) {
        if (!of_graphs(&meeting, more->member->comm) || !meeting.comm->nmembers)
            continue;
        const struct rec_member *mine = meeting.comm->members[more->member->place],
                                *other = meeting.comm->members[less->member->place];
        uint64_t here = launches_before(d, mine, more->proc, more->ops[behind]),
                 there = launches_before(d, other, less->proc, less->ops[at]);
        if (here == there)
            continue;
        if (shift->instead.comm || here > there ||
            (there - here) * length_of(less->member, meeting.seq) != shift->count)
            return false;
        shift->instead = meeting;
        shift->launches = there - here;
        shift->first = here;
    }
    return shift->instead.comm != NULL;
}

/* Are these what it captured, as far as that is known? */
static bool same_as_captured(const struct diag *d, const struct series *more, size_t from, uint64_t captured,
                             uint64_t length, uint64_t count)
{
    for (size_t i = 0; i < more->count && d->ops[more->ops[i]].op.seq < captured + length; i++) {
        const struct diag_op *op = &d->ops[more->ops[i]];
        for (uint64_t k = op->op.seq - captured; op->op.seq >= captured && k < count; k += length)
            if (from + k < more->count && d->ops[more->ops[from + k]].sig != op->sig)
                return false;
    }
    return true;
}

/* Both differ where they are: has `more` ops that explain it? */
static bool explained(const struct diag *d, const struct series *more, size_t from, const struct series *less,
                      size_t at, struct shift *shift)
{
    uint64_t seq = d->ops[less->ops[at]].op.seq;
    for (size_t behind = from + 1; behind < more->count; behind++) {
        shift->seq = seq;
        shift->count = d->ops[more->ops[behind]].op.seq - seq;
        if (shift->count > SHIFT_MAX)
            return false;
        if (d->ops[more->ops[behind]].sig != d->ops[less->ops[at]].sig)
            continue;
        shift->instead.comm = NULL;
        bool all = behind - from == shift->count; /* their records are there */
        if (all && never_ran(d, more, from, shift->count))
            return true;
        if (instead_of_launches(d, more, behind, less, at, shift) &&
            (!all || same_as_captured(d, more, from, shift->instead.seq, shift->count / shift->launches,
                                      shift->count)))
            return true;
    }
    return false;
}

/* Gives the numbers back; what stood in for launches becomes these. */
static void mend(struct diag *d, const struct series *more, const struct shift *shift)
{
    const struct diag_proc *proc = &d->procs[more->proc];
    const struct rec_communicator *meeting = shift->instead.comm;
    struct rec_member *member = meeting ? meeting->members[more->member->place] : NULL;
    uint64_t each = meeting ? shift->count / shift->launches : 0;
    for (uint32_t i = proc->first; i < proc->first + proc->count; i++) {
        struct diag_op *op = &d->ops[i];
        if (member && op->member == member && op->op.seq >= shift->first) {
            op->op.seq += shift->launches;
        } else if (op->member == more->member && op->op.seq >= shift->seq + shift->count) {
            op->op.seq -= shift->count;
        } else if (op->member == more->member && op->op.seq >= shift->seq &&
                   (rec_kind_flags(op->op.kind) & REC_KF_SEQ)) {
            uint64_t k = op->op.seq - shift->seq;
            if (member && k % each == 0) {
                op->member = member;
                op->sig = 0;
                op->op.seq = shift->first + k / each;
            } else {
                op->op.flags |= REC_OF_NO_SEQ;
            }
        }
    }
    diag_member_of(d, more->member)->next_seq -= shift->count;
    if (member && diag_member_of(d, member)->next_seq != UINT64_MAX) /* else nobody knows how often */
        diag_member_of(d, member)->next_seq += shift->launches;
}

/* Follows both up to their first difference and mends it; which of them had more. NULL: there is nothing to
 * do. */
static const struct series *settle(struct diag *d, const struct series *a, const struct series *b)
{
    size_t i = 0, j = 0;
    while (i < a->count && j < b->count) {
        const struct diag_op *x = &d->ops[a->ops[i]], *y = &d->ops[b->ops[j]];
        struct shift shift;
        if (x->op.seq != y->op.seq || x->sig == y->sig) {
            bool forward = x->op.seq <= y->op.seq;
            j += y->op.seq <= x->op.seq;
            i += forward;
            continue;
        }
        const struct series *more = explained(d, a, i, b, j, &shift)   ? a
                                    : explained(d, b, j, a, i, &shift) ? b
                                                                       : NULL;
        if (more)
            mend(d, more, &shift);
        return more;
    }
    return NULL;
}

/* The member of whom most is known: with it the others are compared. */
static uint32_t best_known(const struct diag *d, const struct rec_communicator *comm)
{
    uint32_t best = 0, most = 0;
    for (uint32_t i = 0; i < comm->nmembers; i++) {
        const struct diag_proc *proc = &d->procs[diag_index(d, comm->members[i]->process)];
        if (!proc->gap_ns && !proc->p->damaged && proc->count > most) {
            most = proc->count;
            best = i;
        }
    }
    return best;
}

/* Compares all with one; true when that one was mended, so that who was like it is so no longer. */
static bool settle_all(struct diag *d, const struct rec_communicator *comm, uint32_t *mended)
{
    uint32_t best = best_known(d, comm);
    bool changed = false;
    for (uint32_t i = 0; i < comm->nmembers && *mended < MEND_MAX && !d->oom;) {
        struct series usual = {0}, other = {0};
        const struct series *more = NULL;
        if (i != best && fill(d, &usual, comm->members[best]) && fill(d, &other, comm->members[i]))
            more = settle(d, &usual, &other);
        changed = changed || more == &usual;
        *mended += more != NULL;
        i += more == NULL;
        free(usual.ops);
        free(other.ops);
    }
    return changed;
}

void diag_settle_replays(struct diag *d, size_t ncomms)
{
    bool *captures = calloc(ncomms + 1, sizeof *captures);
    struct diag_meeting meeting;
    d->oom = d->oom || !captures;
    for (size_t i = 0; i < d->nops && !d->oom; i++)
        if (d->ops[i].member && diag_captured(&d->ops[i]))
            captures[d->ops[i].member->comm->index] = true;
    for (size_t i = 0; !d->oom && diag_meeting(d, i, &meeting); i++)
        captures[meeting.of->index] |= of_graphs(&meeting, meeting.of);
    for (size_t c = 0; c < ncomms && !d->oom; c++) {
        uint32_t mended = 0;
        if (captures[c] && diag_has(d, d->comms[c]) && settle_all(d, d->comms[c], &mended))
            settle_all(d, d->comms[c], &mended);
    }
    free(captures);
}

bool diag_in_graphs(const struct diag *d, const struct rec_communicator *comm)
{
    struct diag_meeting meeting;
    for (size_t i = 0; diag_meeting(d, i, &meeting); i++)
        if (of_graphs(&meeting, comm))
            return true;
    return false;
}
