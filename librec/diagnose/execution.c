/* Logical execution: runs what simulate.c built to its end. */
#include "diag.h"

#include <stdlib.h>

/* A host that went on for so long after a send cannot have been waiting for it. */
#define EAGER_NS (2 * NS_PER_S)
/* Of so many launches in a row at least one has marks. */
#define CAME_LOOK 64

struct work {
    uint32_t *units;
    size_t count, capacity;
    bool doubting; /* nothing completes that missing records may have held up */
};

static void push_unit(struct diag *d, struct work *work, uint32_t unit)
{
    work->units = diag_grow(work->units, &work->capacity, work->count, sizeof *work->units, &d->oom);
    if (!d->oom)
        work->units[work->count++] = unit;
}

/* Logic would let it complete, but the GPU's own marks say that it has not. */
static bool observed_unfinished(const struct diag *d, const struct diag_op *op)
{
    return d->procs[op->proc].gpu_seen && op->op.launch && !diag_captured(op) && op->op.count &&
           (op->op.state == REC_STATE_ENQUEUED || op->op.state == REC_STATE_GPU_STARTED);
}

/* The marks stand around a launch: only a group that is complete as a whole can be judged by them. */
static bool unit_unfinished(struct diag *d, const struct diag_unit *unit)
{
    bool unfinished = false;
    for (uint32_t i = unit->first_op; i != DIAG_NONE && !unfinished; i = d->ops[i].unit_next)
        unfinished = observed_unfinished(d, &d->ops[i]);
    for (uint32_t i = unit->first_op; i != DIAG_NONE && unfinished; i = d->ops[i].unit_next) {
        d->ops[i].done = false;
        if (d->ops[i].match != DIAG_NONE)
            d->matches[d->ops[i].match].unfinished = true;
    }
    return unfinished;
}

/* What stands at slot is at the front of the stream now; DIAG_NONE: nothing is. */
static void advance(struct diag *d, struct work *work, struct diag_queue *queue, uint32_t slot)
{
    queue->head = slot;
    if (slot == DIAG_NONE)
        return;
    struct diag_unit *unit = &d->units[d->slots[slot].unit];
    if (++unit->heads == unit->queues)
        push_unit(d, work, d->slots[slot].unit);
}

static void finish_op(struct diag *d, struct work *work, uint32_t index)
{
    struct diag_op *op = &d->ops[index];
    if (op->done || op->unit == DIAG_NONE)
        return;
    op->done = true;
    struct diag_unit *unit = &d->units[op->unit];
    if (--unit->left || !unit->active || unit->done || unit_unfinished(d, unit))
        return;
    unit->done = true;
    for (uint32_t s = unit->first_slot; s != DIAG_NONE; s = d->slots[s].unit_next) {
        struct diag_queue *queue = &d->queues[d->slots[s].queue];
        if (queue->head == s)
            advance(d, work, queue, d->slots[s].next);
    }
}

bool diag_not_reached(const struct diag *d, const struct diag_op *op)
{
    return d->procs[op->proc].gpu_seen && op->op.launch && op->op.state == REC_STATE_ENQUEUED;
}

uint64_t diag_gpu_came(const struct diag *d, const struct diag_op *op)
{
    if (!d->procs[op->proc].gpu_seen || op->op.stream == REC_ID_NONE || op->op.state == REC_STATE_UNKNOWN)
        return 0;
    if (op->op.gpu_start_ns)
        return op->op.gpu_start_ns;
    uint32_t looked = 0;
    for (uint32_t i = (uint32_t)(op - d->ops); i-- > d->procs[op->proc].first && looked < CAME_LOOK;) {
        const struct rec_op *before = &d->ops[i].op;
        if (before->stream != op->op.stream || !(rec_kind_flags(before->kind) & REC_KF_STREAM))
            continue;
        looked++;
        if (before->gpu_end_ns || before->gpu_start_ns)
            return before->gpu_end_ns ? before->gpu_end_ns : before->gpu_start_ns;
    }
    return 0;
}

bool diag_host_inside(const struct diag *d, const struct diag_op *op)
{
    const struct diag_unit *unit = &d->units[op->unit];
    const struct rec_op *call = unit->end != DIAG_NONE ? &d->ops[unit->end].op : &op->op;
    if (!(call->flags & REC_OF_OPEN) || d->procs[op->proc].cut)
        return false;
    for (uint32_t i = unit->first_op; i != DIAG_NONE; i = d->ops[i].unit_next) {
        const struct diag_match *m = d->ops[i].match != DIAG_NONE ? &d->matches[d->ops[i].match] : NULL;
        if (m && (m->absent || m->unseen || m->unknown || !m->compatible))
            return false;
    }
    return true;
}

/* What one host has not come out of launching nobody's GPU gets through, even where the others' hosts have.
 */
static bool held_by_host(const struct diag *d, const struct diag_match *m)
{
    uint32_t inside = 0;
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next)
        inside += diag_host_inside(d, &d->ops[i]);
    return inside && inside < m->posted;
}

static void try_match(struct diag *d, struct work *work, uint32_t index)
{
    struct diag_match *m = &d->matches[index];
    if (work->doubting && m->doubtful)
        return;
    if (m->done || m->absent || !m->compatible || m->captured || m->active < m->posted ||
        m->failed_op != DIAG_NONE)
        return;
    if (held_by_host(d, m)) {
        m->unfinished = true;
        return;
    }
    /* A communicator that was made must have had all its members; one that was not may lack them, or those
     * that it adds. */
    if ((m->unseen && rec_kind_canonical(d->ops[m->first_op].op.kind) == REC_COMM_INIT_RANK) ||
        (m->inside && m->host_inside && !m->assumed))
        return;
    m->done = true;
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next)
        finish_op(d, work, i);
}

/*
 * Creation, and what else meets on the host, is synchronous: a call that returned success is done, whatever
 * the traces of others say.
 */
static bool done_by_itself(const struct diag *d, const struct diag_op *op)
{
    unsigned flags = rec_kind_flags(op->op.kind);
    if (op->match == DIAG_NONE || diag_captured(op))
        return true;
    if ((flags & REC_KF_STREAM) && op->op.state == REC_STATE_COMPLETED)
        return true;
    if (flags & (REC_KF_CREATE | REC_KF_HOST)) {
        const struct diag_unit *unit = &d->units[op->unit];
        bool returned =
            !(op->op.flags & REC_OF_OPEN) &&
            (!op->op.group || (unit->end != DIAG_NONE && !(d->ops[unit->end].op.flags & REC_OF_OPEN)));
        if (rec_kind_canonical(op->op.kind) == REC_COMM_INIT_RANK && op->member &&
            op->member->def.state == REC_LIVE_COMM_READY)
            return true;
        return returned && op->op.result == REC_RESULT_SUCCESS;
    }
    /* Writes and signals need nobody at the other end. */
    if ((flags & REC_KF_RMA) && diag_sends(&op->op))
        return true;
    /* NCCL drops empty collectives, but not empty messages. */
    return (flags & REC_KF_COLL) && op->op.count == 0;
}

/* Behind calls without a record there may be anything in front of it. */
static bool withheld(const struct diag *d, const struct diag_unit *unit)
{
    uint64_t gap = d->procs[unit->proc].gap_ns;
    if (!gap || d->ops[unit->first_op].op.enter_ns < gap)
        return false;
    for (uint32_t i = unit->first_op; i != DIAG_NONE; i = d->ops[i].unit_next)
        if (!done_by_itself(d, &d->ops[i]))
            return true;
    return false;
}

static void activate(struct diag *d, struct work *work, uint32_t index)
{
    struct diag_unit *unit = &d->units[index];
    if (work->doubting && withheld(d, unit))
        return;
    unit->active = true;
    for (uint32_t i = unit->first_op; i != DIAG_NONE; i = d->ops[i].unit_next) {
        struct diag_op *op = &d->ops[i];
        op->active = true;
        if (op->match != DIAG_NONE)
            d->matches[op->match].active++;
        if (done_by_itself(d, op))
            finish_op(d, work, i);
        if (op->match != DIAG_NONE)
            try_match(d, work, op->match);
    }
}

static void run_units(struct diag *d, struct work *work)
{
    while (work->count && !d->oom)
        activate(d, work, work->units[--work->count]);
}

/*
 * NCCL buffers small messages: a send may complete before its receive is posted. Where a host went on for
 * long after a send that looks blocked, that is what happened; or only its stream stands still, so while
 * doubting it is noted and no more.
 */
static bool release_eager_sends(struct diag *d, struct work *work)
{
    bool any = false;
    for (uint32_t i = 0; i < d->nops; i++) {
        struct diag_op *op = &d->ops[i];
        if (op->op.kind != REC_SEND || !op->active || op->done || op->match == DIAG_NONE)
            continue;
        const struct diag_match *m = &d->matches[op->match];
        const struct diag_proc *proc = &d->procs[op->proc];
        uint64_t last = d->ops[proc->first + proc->count - 1].op.enter_ns;
        if (m->compatible && !m->absent && !m->unfinished && last > op->op.enter_ns + EAGER_NS) {
            d->buffered = true;
            if (work->doubting)
                return false;
            finish_op(d, work, i);
            any = true;
        }
    }
    return any;
}

/* When its process had aborted the communicators of all its ops; UINT64_MAX = it did not. */
static uint64_t aborted_ns(const struct diag *d, const struct diag_unit *unit)
{
    uint64_t when = 0;
    for (uint32_t i = unit->first_op; i != DIAG_NONE; i = d->ops[i].unit_next) {
        const struct diag_op *op = &d->ops[i];
        uint64_t aborted = diag_aborted_ns(d, op);
        if (!aborted)
            return UINT64_MAX;
        when = aborted > when ? aborted : when;
    }
    return when;
}

/* The first slot whose unit was launched when all in front of it had been aborted; DIAG_NONE. */
static uint32_t behind_aborts(const struct diag *d, const struct diag_queue *queue)
{
    uint64_t aborted = 0;
    for (uint32_t s = queue->head; s != DIAG_NONE && aborted != UINT64_MAX; s = d->slots[s].next) {
        const struct diag_unit *unit = &d->units[d->slots[s].unit];
        if (s != queue->head && d->ops[unit->first_op].op.enter_ns > aborted)
            return s;
        uint64_t when = aborted_ns(d, unit);
        aborted = when > aborted ? when : aborted;
    }
    return DIAG_NONE;
}

/* Aborted ops do not complete, but what was launched after the abort does not wait for them. */
static bool release_aborted(struct diag *d, struct work *work)
{
    bool any = false;
    for (size_t q = 0; q < d->nqueues; q++) {
        uint32_t slot = behind_aborts(d, &d->queues[q]);
        if (slot == DIAG_NONE)
            continue;
        advance(d, work, &d->queues[q], slot);
        any = true;
    }
    return any;
}

/* Everything as before the first launch. */
static void rewind_all(struct diag *d)
{
    for (size_t i = 0; i < d->nops; i++)
        d->ops[i].active = d->ops[i].done = false;
    for (size_t i = 0; i < d->nmatches; i++) {
        d->matches[i].active = 0;
        d->matches[i].done = d->matches[i].unfinished = false;
    }
    for (size_t i = 0; i < d->nunits; i++) {
        struct diag_unit *unit = &d->units[i];
        unit->left = unit->ops;
        unit->heads = 0;
        unit->active = unit->done = false;
    }
    for (size_t i = 0; i < d->nqueues; i++) {
        struct diag_queue *queue = &d->queues[i];
        queue->head = queue->first;
        if (queue->head != DIAG_NONE)
            d->units[d->slots[queue->head].unit].heads++;
    }
}

void diag_execute(struct diag *d, bool doubting)
{
    if (d->oom)
        return;
    struct work work = {.doubting = doubting};
    rewind_all(d);
    for (uint32_t u = 0; u < d->nunits && !d->oom; u++)
        if (d->units[u].launched && d->units[u].heads == d->units[u].queues)
            push_unit(d, &work, u);
    do
        run_units(d, &work);
    while (!d->oom && (release_eager_sends(d, &work) || release_aborted(d, &work)));
    free(work.units);
}
