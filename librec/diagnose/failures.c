/* Calls that NCCL refused, and errors that it reported later. */
#include <inttypes.h>
#include <stdlib.h>

#include "diag.h"

/* Errors that come so close together came at once. */
#define CHANCE_NS (NS_PER_S / 10)
/* Members without a trace beyond these are not named. */
#define GONE_MAX 64

static bool is_failure(const struct diag_op *op)
{
    if (op->op.kind == REC_COMM_GET_ASYNC_ERROR)
        return op->op.count != REC_RESULT_SUCCESS && op->op.count != REC_RESULT_IN_PROGRESS;
    return op->failed || (op->op.kind == REC_GROUP_END && !(op->op.flags & REC_OF_OPEN) &&
                          op->op.result != REC_RESULT_SUCCESS && op->op.result != REC_RESULT_IN_PROGRESS &&
                          op->op.result != REC_RESULT_NONE);
}

static uint64_t failure_ns(const struct diag_op *op)
{
    return op->op.exit_ns ? op->op.exit_ns : op->op.enter_ns;
}

/* The call that returned the error: the op's own, or the end of its group. */
static const struct rec_op *refused_by(const struct diag *d, const struct diag_op *op)
{
    bool by_end =
        op->op.result == REC_RESULT_SUCCESS && op->unit != DIAG_NONE && d->units[op->unit].end != DIAG_NONE;
    return by_end ? &d->ops[d->units[op->unit].end].op : &op->op;
}

void diag_say_refusal(const struct diag *d, struct diag_text *t, const struct diag_op *op)
{
    const struct rec_op *refused = refused_by(d, op);
    const char *name = rec_result_name(refused->result);
    diag_printf(t, " got %s from %s", name ? name : "an unknown error",
                refused == &op->op ? "" : "the GroupEnd of the group with ");
    diag_say_call(t, op);
}

bool diag_uneven_split(const struct diag *d, const struct diag_op *op)
{
    const struct rec_communicator *comm = op->member ? op->member->comm : NULL;
    if (!comm || comm->made_by != REC_COMM_SPLIT || op->op.peer < 0 || (uint32_t)op->op.peer < comm->nranks ||
        !(rec_kind_flags(op->op.kind) & (REC_KF_P2P | REC_KF_RMA | REC_KF_ROOT)))
        return false;
    for (size_t c = 0; c < d->ncomms; c++) {
        const struct rec_communicator *other = d->comms[c];
        if (diag_has(d, other) && other->made_by == REC_COMM_SPLIT && other->parent_uid == comm->parent_uid &&
            other->parent_seq == comm->parent_seq && other->nranks != comm->nranks)
            return true;
    }
    return false;
}

void diag_say_uneven_split(struct diag_text *t)
{
    diag_printf(
        t, "; the split that made it made others of another size, so one of its colors may be wrong instead");
}

static void say_failure(const struct diag *d, struct diag_text *t, const struct diag_op *op)
{
    if (op->op.kind == REC_COMM_GET_ASYNC_ERROR) {
        const char *name = rec_result_name((unsigned)op->op.count);
        diag_printf(t, " got the asynchronous error %s", name ? name : "(unknown)");
    } else {
        diag_say_refusal(d, t, op);
    }
    if (op->member) {
        diag_printf(t, " on ");
        diag_say_comm(t, op->member->comm);
    }
    diag_printf(t, " at ");
    diag_say_time(d, t, failure_ns(op));
}

/* Does it name this rank alone, for having left the others? */
static bool is_leaving(const struct rec_finding *f, int32_t rank)
{
    return (f->type == REC_VERDICT_RANK_NOT_JOINED || f->type == REC_VERDICT_PROCESS_DEAD) &&
           f->nculprits == 1 && f->culprits[0] == rank;
}

/* Is there a cause that came before this failure, or one that this failure explains? */
static uint64_t earlier_cause(const struct diag *d, const struct diag_op *op, bool *explained)
{
    const uint64_t onset_of_failure = failure_ns(op);
    uint64_t onset = onset_of_failure;
    int32_t rank = d->procs[op->proc].p->rank;
    *explained = false;
    for (size_t i = 0; i < d->nfindings; i++) {
        if (d->tiers[i] != DIAG_TIER_ROOT)
            continue;
        /* Kernels that do not end on a communicator that fails at once hang because of that;
         * an error that comes after a long wait is what the wait led to. */
        bool kernel = d->findings[i].type == REC_VERDICT_STUCK_IN_KERNEL && op->member &&
                      d->findings[i].comm == op->member->comm &&
                      onset_of_failure < d->onsets[i] + d->procs[op->proc].patience_ns;
        *explained = *explained || is_leaving(&d->findings[i], rank) || kernel;
        if (d->onsets[i] < onset)
            onset = d->onsets[i];
    }
    return onset;
}

/* A call of the group that this ended, which stands for all that is known of it; else the call itself. */
static const struct diag_op *of_group(const struct diag *d, const struct diag_op *op)
{
    const struct diag_op *first = &d->ops[d->procs[op->proc].first];
    for (const struct diag_op *before = op; op->op.kind == REC_GROUP_END && before-- > first;)
        if (before->op.thread == op->op.thread)
            return before->op.group == op->op.group && before->member ? before : op;
    return op;
}

/* Did its rank go on on that communicator as if nothing had been? */
static bool survived(const struct diag *d, const struct diag_op *failure)
{
    const struct diag_op *op = of_group(d, failure);
    const struct diag_proc *proc = &d->procs[op->proc];
    for (uint32_t i = proc->first + proc->count; op->member && i-- > proc->first;) {
        const struct diag_op *later = &d->ops[i];
        if (later->op.enter_ns <= failure_ns(op))
            break;
        if (later->op.comm == op->op.comm && later->match != DIAG_NONE && later->done &&
            d->matches[later->match].posted > 1)
            return true;
    }
    return false;
}

/* The same error at the same call, or at the same moment: what came first is chance. */
static bool alike(const struct diag_op *a, const struct diag_op *b)
{
    bool async = a->op.kind == REC_COMM_GET_ASYNC_ERROR;
    if (!a->member || !b->member || a->member->comm != b->member->comm || a->op.kind != b->op.kind)
        return false;
    if (!async)
        return a->op.seq == b->op.seq && a->op.result == b->op.result &&
               (!(a->op.flags & REC_OF_NO_SEQ) || a->sig == b->sig);
    uint64_t x = failure_ns(a), y = failure_ns(b);
    return a->op.count == b->op.count && (x > y ? x - y : y - x) < CHANCE_NS;
}

/* ---- errors that come from others ---- */

/* What the call or the poll returned. */
static unsigned result_of(const struct diag *d, const struct diag_op *op)
{
    if (op->op.kind == REC_COMM_GET_ASYNC_ERROR)
        return (unsigned)op->op.count;
    return refused_by(d, op)->result;
}

/* A connection to another process broke: who is told so has met the fault, and need not have it. */
static bool from_others(const struct diag *d, const struct diag_op *op)
{
    return op->member && diag_tells_of_others(result_of(d, op));
}

/* May it have gone away before the failure? It ended, or its records do, and none is later. */
static bool may_be_gone(const struct diag *d, const struct diag_proc *proc, const struct diag_op *failed)
{
    uint64_t blur = proc->clock == d->procs[failed->proc].clock ? 0 : DIAG_UNALIGNED_NS;
    return (proc->cut || proc->p->fate != REC_FATE_ALIVE) && proc->life_ns <= failure_ns(failed) + blur;
}

/* The members that may have been what went away; false when all were there. */
static bool suspect_gone(struct diag *d, struct rec_finding *f, const struct diag_op *op)
{
    const struct rec_communicator *comm = op->member->comm;
    int32_t ranks[GONE_MAX];
    size_t count = diag_absent_ranks(d, comm, ranks, GONE_MAX);
    for (size_t i = 0; i < count; i++)
        diag_blame(d, f, DIAG_SUSPECT, ranks[i]);
    bool gone = comm->nranks > comm->nmembers;
    for (uint32_t i = 0; i < comm->nmembers; i++) {
        const struct diag_proc *proc = &d->procs[diag_index(d, comm->members[i]->process)];
        bool failed = diag_lists_rank(f->culprits, f->nculprits, proc->p->rank) ||
                      diag_lists_rank(f->victims, f->nvictims, proc->p->rank);
        if (failed || !may_be_gone(d, proc, op))
            continue;
        diag_blame(d, f, DIAG_SUSPECT, proc->p->rank);
        gone = true;
    }
    diag_sort_ranks(f->suspects, &f->nsuspects);
    return gone;
}

static void all_are_victims(struct diag *d, struct rec_finding *f)
{
    for (size_t i = 0; i < f->nculprits; i++)
        diag_blame(d, f, DIAG_VICTIM, f->culprits[i]);
    f->nculprits = 0;
    diag_sort_ranks(f->victims, &f->nvictims);
}

/* That a rank left after the error is what the error led to. */
static void excuse_leaving(struct diag *d, int32_t rank)
{
    for (size_t i = 0; i < d->nfindings; i++) {
        if (d->tiers[i] != DIAG_TIER_ROOT || !is_leaving(&d->findings[i], rank))
            continue;
        all_are_victims(d, &d->findings[i]);
        d->tiers[i] = DIAG_TIER_CONSEQUENCE;
    }
}

bool diag_excuse_failed(struct diag *d, struct rec_finding *f, const struct diag_op *op)
{
    if (!from_others(d, op) || !suspect_gone(d, f, op))
        return false;
    f->confidence = REC_CONF_POSSIBLE;
    for (size_t i = 0; i < f->nculprits; i++)
        excuse_leaving(d, f->culprits[i]);
    all_are_victims(d, f);
    return true;
}

void diag_say_gone(struct diag_text *t, const struct rec_finding *f)
{
    diag_printf(t, ", which tells of a member that cannot be reached");
    if (!f->nsuspects)
        return;
    diag_printf(t, "; that may be ");
    diag_say_ranks(t, f->suspects, f->nsuspects);
    diag_printf(t, ", without a later sign of life");
}

/* ---- the finding ---- */

/* Did all members fail of which the records can tell? */
static bool all_failed(const struct diag *d, const struct rec_communicator *comm, const int32_t *ranks,
                       size_t count)
{
    for (uint32_t i = 0; i < comm->nmembers; i++) {
        const struct diag_proc *proc = &d->procs[diag_index(d, comm->members[i]->process)];
        if (!proc->cut && !proc->gap_ns && !rec_has_rank(ranks, count, proc->p->rank))
            return false;
    }
    return count > 1;
}

/* Names those who failed alike; false: they are all members of several, so nobody is to blame. */
static bool blame_alike(struct diag *d, struct rec_finding *f, const struct diag_op *op, enum diag_list list)
{
    for (uint32_t i = 0; i < d->nops; i++)
        if (&d->ops[i] == op || (is_failure(&d->ops[i]) && alike(op, &d->ops[i])))
            diag_blame(d, f, list, d->procs[d->ops[i].proc].p->rank);
    diag_sort_ranks(f->culprits, &f->nculprits);
    diag_sort_ranks(f->suspects, &f->nsuspects);
    diag_sort_ranks(f->victims, &f->nvictims);
    const int32_t *ranks = f->nculprits ? f->culprits : f->nsuspects ? f->suspects : f->victims;
    size_t count = f->nculprits + f->nsuspects + f->nvictims; /* of one list */
    if (!op->member || !all_failed(d, op->member->comm, ranks, count))
        return true;
    all_are_victims(d, f);
    return false;
}

/* What lessens the guilt of those who failed. */
enum excuse { NO_EXCUSE, ALL_FAILED, MEMBER_GONE, UNEVEN_SPLIT };

static void say_failed(struct diag *d, struct rec_finding *f, const struct diag_op *op, enum excuse excuse)
{
    struct diag_text t = {0};
    bool uneven = excuse == UNEVEN_SPLIT;
    size_t count = f->nculprits ? f->nculprits : uneven ? f->nsuspects : f->nvictims;
    if (count > 1)
        diag_say_ranks(&t, f->nculprits ? f->culprits : uneven ? f->suspects : f->victims, count);
    else
        diag_say_proc(&t, d->procs[op->proc].p);
    say_failure(d, &t, op);
    if (excuse == MEMBER_GONE)
        diag_say_gone(&t, f);
    else if (excuse == ALL_FAILED)
        diag_printf(&t, ", as all who took part, so no rank is to blame");
    else if (excuse == UNEVEN_SPLIT)
        diag_say_uneven_split(&t);
    diag_summary(d, f, &t);
}

static void evidence_failures(struct diag *d, struct rec_finding *f, uint32_t first)
{
    uint32_t shown = 0;
    for (uint32_t i = 0; i < d->nops && shown < 8; i++) {
        const struct diag_op *other = &d->ops[i];
        if (i == first || (!is_failure(other) && other->op.kind != REC_COMM_ABORT))
            continue;
        if (other->op.kind == REC_COMM_ABORT) {
            diag_evidence_op(d, f, other, "then called");
        } else {
            struct diag_text t = {0};
            diag_say_proc(&t, d->procs[other->proc].p);
            say_failure(d, &t, other);
            if (t.data)
                diag_evidence(d, f, d->procs[other->proc].p, UINT64_MAX, failure_ns(other), "%s", t.data);
            free(t.data);
        }
        shown++;
    }
}

/*
 * One finding for the first failure of the job that its rank did not survive; what failed later is
 * listed under it. A failure that follows a cause is its consequence; one after which its rank left
 * explains why.
 */
void diag_failures(struct diag *d)
{
    uint32_t first = DIAG_NONE;
    bool all_well = true;
    for (size_t i = 0; i < d->nprocs; i++)
        all_well = all_well && d->procs[i].ended_well;
    for (uint32_t i = 0; i < d->nops && !all_well; i++)
        if (is_failure(&d->ops[i]) &&
            (first == DIAG_NONE || failure_ns(&d->ops[i]) < failure_ns(&d->ops[first])) &&
            !survived(d, &d->ops[i]))
            first = i;
    if (first == DIAG_NONE)
        return;
    const struct diag_op *op = &d->ops[first];
    for (size_t i = 0; i < d->nfindings; i++)
        if (d->findings[i].type == REC_VERDICT_COMM_FAILED)
            return;
    bool explained;
    uint64_t cause = earlier_cause(d, op, &explained);
    bool root = explained || cause == failure_ns(op), uneven = root && diag_uneven_split(d, op);
    struct rec_finding *f =
        diag_finding(d, REC_VERDICT_COMM_FAILED, uneven ? REC_CONF_POSSIBLE : REC_CONF_LIKELY,
                     uneven ? DIAG_TIER_FAULT
                     : root ? DIAG_TIER_ROOT
                            : DIAG_TIER_CONSEQUENCE,
                     explained && cause ? cause - 1 : failure_ns(op));
    if (!f)
        return;
    enum excuse excuse = uneven ? UNEVEN_SPLIT : NO_EXCUSE;
    if (!blame_alike(d, f, op, uneven ? DIAG_SUSPECT : root ? DIAG_CULPRIT : DIAG_VICTIM))
        excuse = ALL_FAILED;
    if (root && diag_excuse_failed(d, f, op))
        excuse = MEMBER_GONE;
    say_failed(d, f, op, excuse);
    f->comm = op->member ? op->member->comm : NULL;
    f->op = op->op;
    bool placed = op->member && !(op->op.flags & REC_OF_NO_SEQ) && op->op.kind != REC_COMM_GET_ASYNC_ERROR;
    f->seq = placed ? op->op.seq : UINT64_MAX;
    evidence_failures(d, f, first);
}
