/*
 * Logical execution: without marks of the GPU nobody saw an op complete, but a stream is a
 * FIFO and an op needs its partners, so what cannot have completed follows from the order
 * of the launches alone.
 */
#include "diag.h"

#include <stdlib.h>

#include "job/recall.h"

/* So many seqs an op: too few ops for so long a span. */
#define SPARSE 4

uint64_t diag_bytes(const struct rec_op *op)
{
    unsigned size = rec_dtype_size(op->dtype);
    return op->count * (size ? size : 1);
}

static uint64_t match_key(const struct rec_communicator *comm, uint64_t seq, int32_t src, int32_t dst)
{
    return diag_key(comm->index, seq, (uint64_t)(uint32_t)src << 32 | (uint32_t)dst);
}

/* The place of a collective's matching point; NULL = in match_ids. */
static uint32_t *span_place(const struct diag *d, const struct rec_communicator *comm, uint64_t seq)
{
    const struct diag_span *span = &d->spans[comm->index];
    return seq - span->first < span->count ? &d->span_matches[span->at + (size_t)(seq - span->first)] : NULL;
}

uint32_t diag_match_find(const struct diag *d, const struct rec_communicator *comm, uint64_t seq, int32_t src,
                         int32_t dst)
{
    const uint32_t *place = src < 0 ? span_place(d, comm, seq) : NULL;
    if (place)
        return *place;
    return diag_map_get(&d->match_ids, match_key(comm, seq, src, dst));
}

/* Of one that goes on in the background it is not known that it ended. */
static bool creating(const struct diag_op *op)
{
    return (rec_kind_flags(op->op.kind) & REC_KF_CREATE) &&
           ((op->op.flags & REC_OF_OPEN) || op->op.result == REC_RESULT_IN_PROGRESS);
}

/* Do two posted ops complete together? Wrong results are another matter. */
static bool fits(const struct diag_op *a, const struct diag_op *b)
{
    if (rec_kind_flags(a->op.kind) & REC_KF_RMA)
        return true;
    if (rec_kind_flags(a->op.kind) & REC_KF_P2P)
        return diag_bytes(&a->op) == diag_bytes(&b->op);
    /* NCCL does not order creation and data ops among each other: diag_diverge judges these. But a
     * creation that has not returned still waits for whoever is elsewhere. */
    if ((rec_kind_flags(a->op.kind) ^ rec_kind_flags(b->op.kind)) & REC_KF_CREATE)
        return !creating(a) && !creating(b);
    if (a->op.kind == REC_GRAPH_LAUNCH || b->op.kind == REC_GRAPH_LAUNCH)
        return true; /* or what stands in for it */
    if (rec_kind_canonical(a->op.kind) != rec_kind_canonical(b->op.kind))
        return false;
    if (rec_kind_flags(a->op.kind) & REC_KF_DATA)
        return diag_bytes(&a->op) == diag_bytes(&b->op);
    if (rec_kind_canonical(a->op.kind) == REC_COMM_INIT_RANK)
        return a->op.count == b->op.count;
    return true;
}

/* Are all signals that this member gave, or waited for, recorded? The reader counts them. */
static bool counts_signals(const struct rec_member *member)
{
    return member && !member->lost && !member->process->rotated && !member->process->damaged;
}

static bool signals_known(const struct diag_op *op)
{
    return !(rec_kind_flags(op->op.kind) & REC_KF_RMA) ||
           (counts_signals(op->member) && counts_signals(diag_member_at(op->member->comm, op->op.peer)));
}

/* Does it meet others at its seq? */
static bool joins(const struct diag_op *op)
{
    return op->member && !op->late && signals_known(op) && !(op->op.flags & REC_OF_NO_SEQ) &&
           ((rec_kind_flags(op->op.kind) & (REC_KF_SEQ | REC_KF_P2P | REC_KF_RMA | REC_KF_HOST)) ||
            op->op.kind == REC_GRAPH_LAUNCH);
}

/* Spans for all communicators whose seqs in the windows are dense; the others are left to the map. */
static void make_spans(struct diag *d)
{
    struct extent {
        uint64_t first, last;
        size_t ops;
    } *extents = calloc(d->ncomms + 1, sizeof *extents);
    d->spans = calloc(d->ncomms + 1, sizeof *d->spans);
    d->oom = d->oom || !extents || !d->spans;
    for (size_t i = 0; i < d->nops && !d->oom; i++) {
        const struct diag_op *op = &d->ops[i];
        if (!joins(op) || diag_pairs(&op->op))
            continue;
        struct extent *e = &extents[op->member->comm->index];
        e->first = !e->ops || op->op.seq < e->first ? op->op.seq : e->first;
        e->last = !e->ops || op->op.seq > e->last ? op->op.seq : e->last;
        e->ops++;
    }
    size_t total = 0;
    for (size_t c = 0; c < d->ncomms && !d->oom; c++) {
        struct extent *e = &extents[c];
        if (!e->ops || e->last - e->first >= SPARSE * e->ops)
            continue;
        d->spans[c] = (struct diag_span){e->first, total, (size_t)(e->last - e->first) + 1};
        total += d->spans[c].count;
    }
    free(extents);
    d->span_matches = malloc((total + 1) * sizeof *d->span_matches);
    d->oom = d->oom || !d->span_matches;
    for (size_t i = 0; i < total && !d->oom; i++)
        d->span_matches[i] = DIAG_NONE;
}

/* The place of the index of op's matching point; DIAG_NONE is in it when there is none yet. */
static uint32_t *match_place(struct diag *d, const struct diag_op *op, int32_t src, int32_t dst)
{
    bool fresh, onesided = (rec_kind_flags(op->op.kind) & REC_KF_RMA) != 0;
    const struct rec_communicator *comm = op->member->comm;
    uint32_t *place = src < 0 && !onesided ? span_place(d, comm, op->op.seq) : NULL;
    if (place)
        return place;
    uint64_t key = match_key(comm, op->op.seq, src, dst);
    return diag_map_put(&d->match_ids, onesided ? diag_key(key, op->op.signal, 0) : key, &fresh);
}

static void join_match(struct diag *d, uint32_t index)
{
    struct diag_op *op = &d->ops[index];
    if (!joins(op))
        return;
    int32_t src = -1, dst = -1;
    if (diag_pairs(&op->op)) {
        int32_t self = (int32_t)op->member->comm_rank;
        src = diag_sends(&op->op) ? self : op->op.peer;
        dst = diag_sends(&op->op) ? op->op.peer : self;
    }
    uint32_t *at = match_place(d, op, src, dst);
    if (!at || !DIAG_ROOM(d, matches, d->nmatches)) {
        d->oom = true;
        return;
    }
    if (*at == DIAG_NONE) {
        *at = (uint32_t)d->nmatches;
        d->matches[d->nmatches++] =
            (struct diag_match){.comm = op->member->comm,
                                .seq = op->op.seq,
                                .src = src,
                                .dst = dst,
                                .onesided = (rec_kind_flags(op->op.kind) & REC_KF_RMA) != 0,
                                .signal = op->op.signal,
                                .first_op = DIAG_NONE,
                                .failed_op = DIAG_NONE,
                                .compatible = true};
    }
    struct diag_match *m = &d->matches[*at];
    if (op->failed) {
        m->failed_op = index;
        return;
    }
    op->match = *at;
    if (m->first_op == DIAG_NONE) {
        m->first_op = index;
    } else {
        struct diag_op *first = &d->ops[m->first_op];
        m->compatible = m->compatible && fits(first, op);
        m->differs = m->differs || first->sig != op->sig;
        d->ops[m->last_op].match_next = index;
    }
    m->captures = m->captures || diag_captured(op);
    m->inside = creating(op) && (m->inside || m->posted == 0);
    m->host_inside = m->host_inside || (creating(op) && (op->op.flags & REC_OF_OPEN));
    m->last_op = index;
    m->posted++;
}

/* A launch without a record is one that nobody knows of. */
static bool never_launched(const struct diag *d, const struct diag_op *op)
{
    const struct diag_proc *proc = &d->procs[op->proc];
    if (proc->gap_ns || proc->cut || !op->op.launch)
        return false;
    return !job_graph_launches(proc->p, op->op.launch);
}

/* Did some capture it into a graph that they did not launch since, while others run it? */
static bool capture_differs(const struct diag *d, const struct diag_match *m)
{
    bool waiting = false, running = false;
    for (uint32_t i = m->captures ? m->first_op : DIAG_NONE; i != DIAG_NONE; i = d->ops[i].match_next) {
        const struct diag_op *op = &d->ops[i];
        waiting = waiting || (diag_captured(op) && never_launched(d, op));
        running = running || !diag_captured(op);
    }
    return waiting && running;
}

static uint32_t entered_half(const struct diag_match *m, const struct rec_member *member, int32_t peer,
                             bool send)
{
    return m->onesided ? job_signals(member->process, member->comm_id, peer, send, m->signal)
                       : job_messages(member->process, member->comm_id, peer, send);
}

/* Whom the matching point lacks. */
static void count_partners(struct diag *d, struct diag_match *m)
{
    if (m->src >= 0) {
        if (m->posted != 1)
            return;
        const struct diag_op *op = &d->ops[m->first_op];
        bool send = diag_sends(&op->op);
        if (send && m->onesided)
            return; /* nobody need ever wait for it */
        struct rec_member *peer = diag_member_at(m->comm, send ? m->dst : m->src);
        bool posted = peer && !m->too_late && entered_half(m, peer, send ? m->src : m->dst, !send) > m->seq;
        if (!peer)
            m->unseen = 1;
        else if (!posted && d->procs[diag_index(d, peer->process)].cut)
            m->unknown = 1;
        else if (posted || peer->lost || peer->process->rotated || peer->process->damaged)
            m->assumed = 1;
        else
            m->absent = 1;
        return;
    }
    uint32_t entered = 0;
    for (uint32_t i = 0; i < m->comm->nmembers; i++) {
        uint64_t next = d->members[d->member_base[m->comm->index] + i].next_seq;
        if (next == UINT64_MAX ||
            (next <= m->seq && d->procs[diag_index(d, m->comm->members[i]->process)].cut))
            m->unknown++;
        else if (next > m->seq)
            entered++;
    }
    /* Of these nobody knows how many they made, but some may be seen here. */
    for (uint32_t i = m->unknown ? m->first_op : DIAG_NONE; i != DIAG_NONE; i = d->ops[i].match_next) {
        bool seen = diag_member_of(d, d->ops[i].member)->next_seq == UINT64_MAX;
        entered += seen;
        m->unknown -= seen;
    }
    m->absent = m->comm->nmembers - entered - m->unknown;
    const struct rec_op *op = m->first_op == DIAG_NONE ? NULL : &d->ops[m->first_op].op;
    if (op && op->kind == REC_COMM_SHRINK && m->absent == op->count)
        m->absent = 0; /* these are the excluded */
    m->assumed = entered > m->posted ? entered - m->posted : 0;
    uint32_t all = m->comm->nranks;
    m->unseen = all > m->comm->nmembers ? all - m->comm->nmembers : 0;
}

/* Making the units of one process after the other. What was met last is likely to be met next. */
struct builder {
    struct diag_map queues;             /* stream, or communicator where that is not known → queue */
    uint32_t proc, stream, comm, queue; /* the last one's */
};

static uint32_t queue_of(struct diag *d, struct builder *b, const struct diag_op *op)
{
    bool known = op->op.stream != REC_ID_NONE;
    bool fresh;
    if (b->queue != DIAG_NONE && b->proc == op->proc && b->stream == op->op.stream &&
        (known || b->comm == op->op.comm))
        return b->queue;
    uint32_t *at = diag_map_put(
        &b->queues, diag_key(op->proc, known ? op->op.stream : op->op.comm, known ? 41 : 42), &fresh);
    if (!at || !DIAG_ROOM(d, queues, d->nqueues)) {
        d->oom = true;
        return DIAG_NONE;
    }
    if (fresh) {
        *at = (uint32_t)d->nqueues;
        d->queues[d->nqueues++] = (struct diag_queue){DIAG_NONE, DIAG_NONE, DIAG_NONE};
    }
    b->proc = op->proc;
    b->stream = op->op.stream;
    b->comm = op->op.comm;
    return b->queue = *at;
}

static uint32_t new_unit(struct diag *d, const struct diag_op *op)
{
    if (!DIAG_ROOM(d, units, d->nunits))
        return DIAG_NONE;
    d->units[d->nunits] = (struct diag_unit){.proc = op->proc,
                                             .first_op = DIAG_NONE,
                                             .last_op = DIAG_NONE,
                                             .first_slot = DIAG_NONE,
                                             .end = DIAG_NONE};
    return (uint32_t)d->nunits++;
}

static void add_to_unit(struct diag *d, uint32_t unit_index, uint32_t op_index)
{
    struct diag_unit *unit = &d->units[unit_index];
    struct diag_op *op = &d->ops[op_index];
    op->unit = unit_index;
    if (unit->first_op == DIAG_NONE)
        unit->first_op = op_index;
    else
        d->ops[unit->last_op].unit_next = op_index;
    unit->last_op = op_index;
    unit->ops++;
    unit->left++;
}

/* Puts a unit at the end of every stream that its ops use. */
static void enqueue(struct diag *d, struct builder *b, uint32_t unit_index)
{
    for (uint32_t i = d->units[unit_index].first_op; i != DIAG_NONE; i = d->ops[i].unit_next) {
        if (!(rec_kind_flags(d->ops[i].op.kind) & REC_KF_STREAM) || d->ops[i].failed)
            continue;
        uint32_t queue = queue_of(d, b, &d->ops[i]);
        if (queue == DIAG_NONE)
            return;
        if (d->queues[queue].tail != DIAG_NONE && d->slots[d->queues[queue].tail].unit == unit_index)
            continue;
        if (!DIAG_ROOM(d, slots, d->nslots))
            return;
        uint32_t slot = (uint32_t)d->nslots++;
        struct diag_unit *unit = &d->units[unit_index];
        d->slots[slot] = (struct diag_slot){
            .unit = unit_index, .queue = queue, .next = DIAG_NONE, .unit_next = unit->first_slot};
        unit->first_slot = slot;
        unit->queues++;
        if (d->queues[queue].tail == DIAG_NONE)
            d->queues[queue].first = slot;
        else
            d->slots[d->queues[queue].tail].next = slot;
        d->queues[queue].tail = slot;
    }
}

static bool call_failed(const struct rec_op *op)
{
    return !(op->flags & REC_OF_OPEN) && op->result != REC_RESULT_SUCCESS &&
           op->result != REC_RESULT_IN_PROGRESS && op->result != REC_RESULT_NONE;
}

static void close_group(struct diag *d, uint32_t unit_index, uint32_t end)
{
    struct diag_unit *unit = &d->units[unit_index];
    unit->launched = true;
    unit->end = end;
    if (call_failed(&d->ops[end].op))
        for (uint32_t i = unit->first_op; i != DIAG_NONE; i = d->ops[i].unit_next)
            d->ops[i].failed = true;
}

/*
 * A thread that goes on to something else has launched its group, also where the record of the
 * GroupEnd is lost.
 */
static void close_lost_group(struct diag *d, struct builder *b, uint32_t *open, const struct rec_op *op)
{
    if (*open != DIAG_NONE && d->units[*open].launched && !(op->flags & REC_OF_PART))
        *open = DIAG_NONE; /* a wait whose parts are all here */
    if (*open == DIAG_NONE || d->ops[d->units[*open].first_op].op.group == op->group)
        return;
    d->units[*open].launched = true;
    enqueue(d, b, *open);
    *open = DIAG_NONE;
}

/* A launch of a graph: one op for each communicator in it, one after another. */
static void launch_unit(struct diag *d, struct builder *b, uint32_t index)
{
    const struct diag_op *op = &d->ops[index], *before = op - 1;
    bool more = index > d->procs[op->proc].first && before->op.kind == REC_GRAPH_LAUNCH &&
                before->op.thread == op->op.thread && before->op.ordinal == op->op.ordinal;
    uint32_t unit = more ? before->unit : new_unit(d, op);
    if (unit == DIAG_NONE)
        return;
    add_to_unit(d, unit, index);
    d->units[unit].launched = true;
    if (!more)
        enqueue(d, b, unit);
}

/* A process's ops as units, of a group or of a wait for several signals together. Groups take their place in
 * the streams where GroupEnd launches them. */
static void build_units(struct diag *d, uint32_t proc, struct builder *b)
{
    struct diag_map threads = {0};     /* thread → its open group */
    uint32_t *open = NULL, thread = 0; /* of the last op's thread */
    uint32_t first_unit = (uint32_t)d->nunits;
    uint32_t end = d->procs[proc].first + d->procs[proc].count;
    for (uint32_t i = d->procs[proc].first; i < end && !d->oom; i++) {
        struct diag_op *op = &d->ops[i];
        unsigned flags = rec_kind_flags(op->op.kind);
        op->failed = call_failed(&op->op);
        bool fresh;
        if (!open || op->op.thread != thread)
            open = diag_map_put(&threads, diag_key(op->op.thread, 51, 0), &fresh);
        thread = op->op.thread;
        d->oom = d->oom || !open;
        if (d->oom)
            break;
        close_lost_group(d, b, open, &op->op);
        if (op->op.kind == REC_GROUP_END) {
            if (*open != DIAG_NONE) {
                close_group(d, *open, i);
                enqueue(d, b, *open);
                *open = DIAG_NONE;
            }
            continue;
        }
        if (op->op.kind == REC_GRAPH_LAUNCH) {
            launch_unit(d, b, i);
            continue;
        }
        if (!(flags & (REC_KF_COLL | REC_KF_P2P | REC_KF_RMA | REC_KF_CREATE | REC_KF_HOST)))
            continue;
        uint32_t unit = *open != DIAG_NONE ? *open : new_unit(d, op);
        if (unit == DIAG_NONE)
            break;
        add_to_unit(d, unit, i);
        if (op->op.group) {
            *open = unit;
        } else if (*open == DIAG_NONE) {
            d->units[unit].launched = true;
            enqueue(d, b, unit);
            if ((flags & REC_KF_RMA) && op->op.signal == REC_SIGNAL_SEVERAL)
                *open = unit; /* for its parts, which run with it */
        }
    }
    /* Is the end of the last group only missing? */
    for (uint32_t u = first_unit; u < d->nunits && !d->oom; u++) {
        if (d->units[u].launched || !d->procs[proc].gap_ns)
            continue;
        d->units[u].launched = true;
        enqueue(d, b, u);
    }
    diag_map_free(&threads);
}

/* ---- what the GPU says ---- */

/*
 * Aborting a communicator ends its kernels: an op that ended then, or who knows when (0), did not
 * complete. It was inside its kernel when its start was seen before, else nothing is known.
 */
static bool ended_by_abort(const struct diag *d, const struct diag_op *op, uint64_t end_ns)
{
    uint64_t aborted = diag_aborted_ns(d, op);
    return aborted && (!end_ns || end_ns + DIAG_GPU_LAG_NS >= aborted);
}

static bool started_before_abort(const struct diag *d, const struct diag_op *op)
{
    return op->op.gpu_start_ns && op->op.gpu_start_ns + DIAG_GPU_LAG_NS < diag_aborted_ns(d, op);
}

/*
 * What the GPU was seen to complete completes what stands before it in its stream. Marks are
 * words per stream: an op without one of its own is judged by its neighbours.
 */
static void apply_gpu_progress(struct diag *d, uint32_t proc)
{
    struct diag_map streams = {0};
    uint32_t *completed = NULL, stream = 0; /* the next op of the last op's stream that is over */
    struct diag_proc *p = &d->procs[proc];
    for (uint32_t i = p->first + p->count; i-- > p->first && !d->oom;) {
        struct rec_op *op = &d->ops[i].op;
        if (!(rec_kind_flags(op->kind) & REC_KF_STREAM) || op->stream == REC_ID_NONE)
            continue;
        bool fresh;
        if (!completed || op->stream != stream)
            completed = diag_map_put(&streams, diag_key(op->stream, 71, 0), &fresh);
        stream = op->stream;
        if (!completed) {
            d->oom = true;
            break;
        }
        if (op->state == REC_STATE_ENQUEUED && op->gpu_start_ns)
            op->state = REC_STATE_GPU_STARTED;
        if (op->state == REC_STATE_GPU_STARTED && op->gpu_end_ns)
            op->state = REC_STATE_COMPLETED;
        bool aborted = ended_by_abort(d, &d->ops[i], op->gpu_end_ns);
        uint64_t moved = op->gpu_end_ns ? op->gpu_end_ns : op->gpu_start_ns;
        p->gpu_ns = !aborted && moved > p->gpu_ns ? moved : p->gpu_ns;
        if (op->state == REC_STATE_COMPLETED && aborted)
            op->state = started_before_abort(d, &d->ops[i]) ? REC_STATE_GPU_STARTED : REC_STATE_UNKNOWN;
        p->gpu_seen = p->gpu_seen || op->launch || op->state == REC_STATE_GPU_STARTED ||
                      op->state == REC_STATE_COMPLETED;
        if (op->state == REC_STATE_COMPLETED)
            *completed = i;
        else if (*completed != DIAG_NONE &&
                 (op->state == REC_STATE_ENQUEUED || op->state == REC_STATE_GPU_STARTED) &&
                 !ended_by_abort(d, &d->ops[i], d->ops[*completed].op.gpu_end_ns))
            op->state = REC_STATE_COMPLETED;
    }
    diag_map_free(&streams);
}

void diag_simulate(struct diag *d)
{
    struct builder builder = {.queue = DIAG_NONE};
    make_spans(d);
    for (uint32_t i = 0; i < d->nprocs && !d->oom; i++) {
        apply_gpu_progress(d, i);
        build_units(d, i, &builder);
    }
    diag_map_free(&builder.queues);
    for (uint32_t i = 0; i < d->nops && !d->oom; i++)
        if (d->ops[i].unit != DIAG_NONE)
            join_match(d, i);
    diag_late_messages(d);
    for (size_t i = 0; i < d->nmatches && !d->oom; i++) {
        count_partners(d, &d->matches[i]);
        d->matches[i].captured = capture_differs(d, &d->matches[i]);
    }
    diag_mark_doubts(d);
    do
        diag_execute(d, true);
    while (!d->oom && diag_more_doubts(d));
    diag_note_doubts(d);
    if (diag_doubts(d))
        diag_execute(d, false);
    diag_note_held(d);
}
