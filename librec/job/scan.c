#include <stdlib.h>

#include "format/run.h"
#include "internal.h"
#include "parts.h"

/* Ops of unfinished groups kept back, all threads of a scan together. */
#define MAX_HELD 65536

/* An op and where it was read. */
struct scan_op {
    struct rec_op op;
    uint64_t offset;
};

/* What a scan knows of one thread. */
struct scan_thread {
    uint32_t id;
    uint64_t next;        /* ordinal that the next new op has at least */
    uint64_t limit;       /* the picture that the job holds ends before this ordinal */
    struct scan_op *held; /* ops of the group that is not known to have ended */
    size_t nheld, room;
};

enum stage {
    STAGE_FILES,
    STAGE_COMMS,
    STAGE_THREADS,
    STAGE_REDOPS,
    STAGE_STREAMS,
    STAGE_GPU,
    STAGE_CALLSITES,
    STAGE_OPS,
    STAGE_HELD,
    STAGE_FRONTIERS,
    STAGE_OPEN,
    STAGE_HEARTBEAT,
    STAGE_END,
    STAGE_DONE
};

struct rec_scan {
    struct job_process *process;
    struct rec_scan_filter filter;
    bool filtered, loading;
    bool counts; /* numbers without refused calls; not while it is not known yet what comes behind them */
    struct job_snapshot *snapshot;

    enum stage stage;
    struct job_parts parts; /* in STAGE_FILES */
    uint32_t cursor, slot;  /* position in the live stages */
    bool end_seen;
    struct rec_live_callsite *callsite; /* of the region, given last */

    struct job_map thread_ids;
    struct scan_thread *threads;
    size_t nthreads, threads_room;
    size_t last_thread; /* index of the one met last */
    size_t held;
    struct scan_op *queue; /* ops released by the end of their group */
    size_t queued, taken, queue_room;
};

static enum rec_code no_memory(struct rec_error *err)
{
    return rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
}

static struct scan_thread *new_thread(struct rec_scan *scan, uint32_t id)
{
    if (scan->nthreads >= JOB_MAX_THREADS ||
        !job_grow(&scan->threads, &scan->threads_room, scan->nthreads + 1, sizeof(*scan->threads)) ||
        !job_map_put(&scan->thread_ids, id, (uint32_t)scan->nthreads))
        return NULL;
    struct scan_thread *thread = &scan->threads[scan->nthreads++];
    *thread = (struct scan_thread){.id = id, .limit = UINT64_MAX};
    if (scan->process->cut) {
        const struct job_thread *known = job_process_thread(scan->process, id, false);
        thread->limit = known ? known->next : 0;
    }
    return thread;
}

static struct scan_thread *thread_of(struct rec_scan *scan, uint32_t id)
{
    if (scan->last_thread < scan->nthreads && scan->threads[scan->last_thread].id == id)
        return &scan->threads[scan->last_thread];
    uint32_t at = job_map_get(&scan->thread_ids, id);
    struct scan_thread *thread = at == JOB_MAP_NONE ? new_thread(scan, id) : &scan->threads[at];
    if (thread)
        scan->last_thread = (size_t)(thread - scan->threads);
    return thread;
}

/* ---- groups: an op inside one is launched, or fails, only with the outermost GroupEnd ---- */

static void resolve(struct rec_op *op, const struct rec_op *end)
{
    if (op->state != REC_STATE_IN_CALL)
        return;
    if (end && end->kind == REC_GROUP_SIMULATE_END)
        op->launch = 0; /* its number was never launched */
    if (!end)
        op->state = REC_STATE_UNKNOWN; /* the thread went on, so the group ended; how is lost */
    else if (end->result == REC_RESULT_SUCCESS)
        op->state = rec_kind_flags(op->kind) & REC_KF_STREAM ? REC_STATE_ENQUEUED : REC_STATE_COMPLETED;
    else if (end->result != REC_RESULT_IN_PROGRESS && end->result != REC_RESULT_NONE)
        op->state = REC_STATE_FAILED;
}

static bool queue_op(struct rec_scan *scan, const struct rec_op *op, uint64_t offset)
{
    if (scan->taken == scan->queued)
        scan->taken = scan->queued = 0;
    if (!job_grow(&scan->queue, &scan->queue_room, scan->queued + 1, sizeof(*scan->queue)))
        return false;
    scan->queue[scan->queued++] = (struct scan_op){*op, offset};
    return true;
}

/* One call that NCCL refuses makes the whole group fail; nothing of it is launched. */
static void refuse_group(struct rec_scan *scan, struct scan_thread *thread)
{
    bool refused = false;
    for (size_t i = 0; i < thread->nheld && !refused; i++)
        refused = job_is_refused(&thread->held[i].op);
    for (size_t i = 0; i < thread->nheld && refused; i++) {
        struct rec_op *op = &thread->held[i].op;
        if (rec_kind_flags(op->kind) & (REC_KF_RMA | REC_KF_HOST))
            op->flags |= REC_OF_NO_SEQ; /* these are numbered later */
        else if (scan->loading)
            job_refused_note(scan->process, op);
    }
}

static bool release_held(struct rec_scan *scan, struct scan_thread *thread, const struct rec_op *end,
                         bool ended)
{
    if (ended && (scan->loading || scan->counts))
        refuse_group(scan, thread);
    for (size_t i = 0; i < thread->nheld; i++) {
        if (ended)
            resolve(&thread->held[i].op, end);
        if (!queue_op(scan, &thread->held[i].op, thread->held[i].offset))
            return false;
    }
    scan->held -= thread->nheld;
    thread->nheld = 0;
    return true;
}

static bool hold(struct rec_scan *scan, struct scan_thread *thread, const struct rec_op *op, uint64_t offset)
{
    if (!job_grow(&thread->held, &thread->room, thread->nheld + 1, sizeof(*thread->held)))
        return false;
    thread->held[thread->nheld++] = (struct scan_op){*op, offset};
    scan->held++;
    return scan->held <= MAX_HELD || release_held(scan, thread, NULL, true);
}

static bool wanted(const struct rec_scan *scan, const struct rec_op *op)
{
    return !scan->filtered || ((scan->filter.to_ns == 0 || op->enter_ns <= scan->filter.to_ns) &&
                               (op->exit_ns == 0 || op->exit_ns >= scan->filter.from_ns));
}

/*
 * Takes one finished op into the merge. REC_OK: *op goes out now; REC_END: not now, or never
 * (a duplicate, beyond the picture that the job holds, held back until its group ends).
 */
static enum rec_code merge_op(struct rec_scan *scan, const struct rec_op *op, uint64_t offset)
{
    struct scan_thread *thread = thread_of(scan, op->thread);
    if (!thread)
        return scan->nthreads >= JOB_MAX_THREADS ? REC_END : REC_ERR_NOMEM;
    if (op->ordinal < thread->next || op->ordinal >= thread->limit)
        return REC_END;
    thread->next = op->ordinal + 1;
    bool is_end = op->kind == REC_GROUP_END || op->kind == REC_GROUP_SIMULATE_END;
    if (thread->nheld > 0) {
        bool same = op->group == thread->held[0].op.group;
        if (is_end && same ? !release_held(scan, thread, op, true)
                           : !same && !release_held(scan, thread, NULL, true))
            return REC_ERR_NOMEM;
    }
    if (op->group != 0 && !is_end)
        return hold(scan, thread, op, offset) ? REC_END : REC_ERR_NOMEM;
    if (scan->queued == scan->taken)
        return REC_OK;
    return queue_op(scan, op, offset) ? REC_END : REC_ERR_NOMEM;
}

/* ---- the live region ---- */

static bool live_op(struct rec_scan *scan, struct rec_op *op)
{
    const struct job_snapshot *s = scan->snapshot;
    while (scan->cursor < s->nchunks) {
        const struct rec_live_chunk *chunk = &s->copy.chunks[s->chunks[scan->cursor]];
        if (scan->slot < atomic_load_explicit(&chunk->done, memory_order_relaxed)) {
            size_t at = (size_t)s->chunks[scan->cursor] * s->copy.header->chunk_slots + scan->slot++;
            rec_live_to_op(&s->copy, &s->clock, atomic_load_explicit(&chunk->thread_id, memory_order_relaxed),
                           &s->copy.slots[at].fields, op);
            op->flags |= REC_OF_LATE;
            return true;
        }
        scan->cursor++;
        scan->slot = 0;
    }
    return false;
}

static bool live_frontier(const struct job_snapshot *s, uint32_t index, struct rec_event *event)
{
    struct rec_comm_def def;
    const struct rec_live_comm *comm = &s->copy.comms[index];
    if (!job_snapshot_comm(s, index, &def))
        return false;
    event->u.frontier = (struct rec_frontier){
        .comm = def.id,
        .next_seq = atomic_load_explicit(&comm->next_seq, memory_order_relaxed),
        .p2p_entered = atomic_load_explicit(&comm->p2p_entered, memory_order_relaxed),
        .lost = atomic_load_explicit(&comm->lost, memory_order_relaxed),
    };
    return true;
}

static bool live_end(const struct job_snapshot *s, struct rec_event *event)
{
    const struct rec_live_end *end = &s->copy.header->end;
    event->u.end = (struct rec_end){
        .reason = atomic_load_explicit(&end->reason, memory_order_relaxed),
        .status = atomic_load_explicit(&end->status, memory_order_relaxed),
        .signal = atomic_load_explicit(&end->signal, memory_order_relaxed),
        .tid = atomic_load_explicit(&end->tid, memory_order_relaxed),
        .fault = atomic_load_explicit(&end->fault, memory_order_relaxed),
    };
    event->time_ns = atomic_load_explicit(&end->time_ns, memory_order_relaxed);
    return event->u.end.reason != REC_END_NONE;
}

/* Of a native site the region has the addresses alone: the mappings went with the process. */
static bool live_callsite(struct rec_scan *scan, uint32_t id, struct rec_event *event)
{
    if (!scan->callsite)
        scan->callsite = malloc(sizeof(*scan->callsite));
    if (!scan->callsite || !rec_live_callsite(&scan->snapshot->copy, id, scan->callsite))
        return false;
    struct rec_live_callsite *site = scan->callsite;
    for (uint32_t i = 0; i < site->naddresses; i++)
        site->frames[i] = (struct rec_source_frame){.file = "", .function = "", .offset = site->addresses[i]};
    event->u.callsite = site->def;
    if (site->naddresses > 0) {
        event->u.callsite.frames = site->frames;
        event->u.callsite.nframes = site->naddresses;
    }
    return true;
}

/* One record of the current table, or false at its end; entries that are not in use are skipped. */
static bool next_in_table(struct rec_scan *scan, struct rec_event *event)
{
    const struct job_snapshot *s = scan->snapshot;
    const struct rec_live_header *h = s->copy.header;
    switch (scan->stage) {
    case STAGE_COMMS:
        event->type = REC_EV_COMM;
        while (scan->cursor < h->comm_count)
            if (job_snapshot_comm(s, scan->cursor++, &event->u.comm))
                return true;
        return false;
    case STAGE_THREADS:
        event->type = REC_EV_THREAD;
        while (scan->cursor < h->thread_count)
            if (job_snapshot_thread(s, scan->cursor++, &event->u.thread))
                return true;
        return false;
    case STAGE_REDOPS:
        event->type = REC_EV_REDOP;
        while (scan->cursor < h->redop_count)
            if (job_snapshot_redop(s, scan->cursor++, &event->u.redop))
                return true;
        return false;
    case STAGE_STREAMS:
        event->type = REC_EV_STREAM;
        while (scan->cursor < h->stream_count)
            if (job_snapshot_stream(s, scan->cursor++, &event->u.stream))
                return true;
        return false;
    case STAGE_GPU:
        event->type = REC_EV_GPU; /* at no known time: nobody saw it happen */
        while (scan->cursor < h->stream_count) {
            rec_live_gpu(&s->copy, scan->cursor++, &event->u.gpu);
            if (event->u.gpu.started || event->u.gpu.dropped)
                return true;
        }
        return false;
    case STAGE_CALLSITES:
        event->type = REC_EV_CALLSITE;
        while (scan->cursor < rec_live_callsite_count(&s->copy))
            if (live_callsite(scan, ++scan->cursor, event))
                return true;
        return false;
    case STAGE_FRONTIERS:
        event->type = REC_EV_FRONTIER;
        while (scan->cursor < h->comm_count)
            if (live_frontier(s, scan->cursor++, event))
                return true;
        return false;
    case STAGE_HEARTBEAT:
        event->type = REC_EV_HEARTBEAT;
        event->time_ns = atomic_load_explicit(&h->alive_ns, memory_order_relaxed);
        return scan->cursor++ == 0 && event->time_ns != 0;
    case STAGE_END:
        event->type = REC_EV_END;
        return scan->cursor++ == 0 && !scan->end_seen && live_end(s, event);
    default:
        return false;
    }
}

/*
 * The calls open now. While loading they come from the region; a scan repeats what loading
 * found, so that it shows the same picture.
 */
static bool open_event(struct rec_scan *scan, struct rec_event *event)
{
    const struct job_process *process = scan->process;
    if (scan->cursor++ > 0)
        return false;
    event->type = REC_EV_OPEN;
    if (scan->loading) {
        if (!scan->snapshot)
            return false;
        event->time_ns = atomic_load_explicit(&scan->snapshot->copy.header->alive_ns, memory_order_relaxed);
        event->u.open.ops = scan->snapshot->open;
        event->u.open.count = scan->snapshot->nopen;
        return true;
    }
    event->time_ns = process->pub.last_ns;
    event->u.open.ops = scan->counts ? process->pub.open : process->open;
    event->u.open.count = process->pub.nopen;
    return true;
}

/* A group without its end: its ops come out as they are. */
static enum rec_code release_all(struct rec_scan *scan, struct rec_error *err)
{
    for (size_t i = 0; i < scan->nthreads; i++)
        if (!release_held(scan, &scan->threads[i], NULL, false))
            return no_memory(err);
    return REC_OK;
}

static void next_stage(struct rec_scan *scan)
{
    scan->cursor = scan->slot = 0;
    scan->stage++;
    /* Without a region only what belongs to no table is left. */
    while (!scan->snapshot && scan->stage < STAGE_DONE && scan->stage != STAGE_HELD &&
           scan->stage != STAGE_OPEN)
        scan->stage++;
}

/* While loading it is not known yet how far the GPU will have come. */
static void finish_op(struct rec_scan *scan, struct rec_op *op)
{
    if (!scan->loading)
        job_op_gpu(scan->process, op);
    if (scan->counts)
        job_refused_op(scan->process, op);
}

static bool take_queued(struct rec_scan *scan, struct rec_event *event)
{
    while (scan->taken < scan->queued) {
        const struct scan_op *found = &scan->queue[scan->taken++];
        if (wanted(scan, &found->op)) {
            event->type = REC_EV_OP;
            event->time_ns = found->op.exit_ns;
            event->offset = found->offset;
            event->u.op = found->op;
            finish_op(scan, &event->u.op);
            return true;
        }
    }
    return false;
}

/* Takes the op in event: REC_OK when it goes out now. */
static enum rec_code give_op(struct rec_scan *scan, struct rec_event *event, struct rec_error *err)
{
    enum rec_code code = merge_op(scan, &event->u.op, event->offset);
    if (code == REC_ERR_NOMEM)
        return no_memory(err);
    if (code == REC_OK)
        finish_op(scan, &event->u.op);
    return code == REC_OK && !wanted(scan, &event->u.op) ? REC_END : code;
}

/* Is what could not be written to the file at hand? */
static bool knows_the_end(const struct rec_scan *scan)
{
    const struct job_source *source = &scan->process->source;
    return scan->snapshot || source->meta.saw_live ||
           (source->nparts && source->parts[source->nparts - 1].number >= JOB_RECOVERED_PART);
}

static enum rec_code step_files(struct rec_scan *scan, struct rec_event *event, struct rec_error *err)
{
    enum rec_code code = job_parts_next(&scan->parts, event, err);
    if (code == REC_END) {
        next_stage(scan);
        return REC_END;
    }
    if (code != REC_OK)
        return code;
    if (event->type == REC_EV_OP)
        return give_op(scan, event, err);
    if (event->notice && knows_the_end(scan))
        return REC_END;
    if (event->type == REC_EV_END)
        scan->end_seen = true;
    return REC_OK;
}

/* One step of the current stage: REC_OK an event, REC_END nothing came of it, go on. */
static enum rec_code step(struct rec_scan *scan, struct rec_event *event, struct rec_error *err)
{
    if (scan->stage == STAGE_FILES)
        return step_files(scan, event, err);
    *event = (struct rec_event){0};
    if (scan->stage == STAGE_OPS) {
        event->type = REC_EV_OP;
        if (live_op(scan, &event->u.op)) {
            event->time_ns = event->u.op.exit_ns;
            return give_op(scan, event, err);
        }
    } else if (scan->stage == STAGE_HELD) {
        enum rec_code code = release_all(scan, err);
        if (code != REC_OK)
            return code;
    } else if (scan->stage == STAGE_OPEN ? open_event(scan, event) : next_in_table(scan, event)) {
        return REC_OK;
    }
    next_stage(scan);
    return REC_END;
}

enum rec_code rec_scan_next(struct rec_scan *scan, struct rec_event *event, struct rec_error *err)
{
    for (;;) {
        if (take_queued(scan, event))
            return REC_OK;
        if (scan->stage == STAGE_DONE)
            return REC_END;
        enum rec_code code = step(scan, event, err);
        if (code == REC_END)
            continue;
        if (code != REC_OK)
            scan->stage = STAGE_DONE;
        else if (event->type == REC_EV_FRONTIER && scan->counts)
            event->u.frontier.next_seq =
                job_refused_seq(scan->process, event->u.frontier.comm, event->u.frontier.next_seq);
        return code;
    }
}

const struct rec_op *job_scan_run(struct rec_scan *scan, size_t *count)
{
    size_t n;
    const struct rec_op *ops =
        scan->stage == STAGE_FILES && scan->parts.reader ? rec_reader_run(scan->parts.reader, &n) : NULL;
    *count = 0;
    if (!ops || scan->filtered || scan->taken < scan->queued)
        return NULL;
    struct scan_thread *thread = thread_of(scan, ops[0].thread);
    if (!thread || thread->nheld || ops[0].ordinal < thread->next)
        return NULL;
    while (*count < n && !ops[*count].group && ops[*count].ordinal < thread->limit)
        ++*count;
    if (!*count)
        return NULL;
    thread->next = ops[*count - 1].ordinal + 1;
    rec_reader_take_run(scan->parts.reader, *count);
    return ops;
}

/*
 * The region is copied before the file is read: what is drained meanwhile is then in both,
 * and nothing can be in neither.
 */
static enum rec_code take_snapshot(struct rec_scan *scan, struct rec_error *err)
{
    struct job_process *process = scan->process;
    struct rec_error problem = {0};
    if (!process->source.live)
        return REC_OK;
    enum rec_code code = job_snapshot_take(process->source.live, &scan->snapshot, &problem);
    if (code == REC_ERR_NOMEM) {
        if (err)
            *err = problem;
        return code;
    }
    /* Gone meanwhile: the process ended well and everything is in its file. */
    if (code == REC_OK && scan->snapshot->copy.header->proc_uid != process->source.proc_uid) {
        job_snapshot_free(scan->snapshot);
        scan->snapshot = NULL;
    } else if (code != REC_OK && code != REC_ERR_IO && scan->loading) {
        job_warn(&process->warnings, process->source.live, "%s", problem.text);
    }
    return REC_OK;
}

enum rec_code job_scan_open(struct job_process *process, const struct rec_scan_filter *filter, bool loading,
                            struct rec_scan **scan, struct rec_error *err)
{
    struct rec_scan *s = calloc(1, sizeof(*s));
    if (!s)
        return no_memory(err);
    s->process = process;
    s->loading = loading;
    s->counts = !loading && !(filter && filter->as_recorded);
    if (filter && (filter->from_ns || filter->to_ns)) {
        s->filter = *filter;
        s->filtered = true;
    }
    s->parts = (struct job_parts){.process = process, .loading = loading, .filter = s->filter};
    enum rec_code code = take_snapshot(s, err);
    if (code != REC_OK) {
        rec_scan_close(s);
        return code;
    }
    *scan = s;
    return REC_OK;
}

enum rec_code rec_scan_open(const struct rec_job *job, const struct rec_process *process,
                            const struct rec_scan_filter *filter, struct rec_scan **scan,
                            struct rec_error *err)
{
    (void)job; /* a process knows its own traces */
    return job_scan_open(job_process_of(process), filter, false, scan, err);
}

const struct job_snapshot *job_scan_snapshot(const struct rec_scan *scan)
{
    return scan->snapshot;
}

void rec_scan_close(struct rec_scan *scan)
{
    if (!scan)
        return;
    job_parts_fini(&scan->parts);
    job_snapshot_free(scan->snapshot);
    for (size_t i = 0; i < scan->nthreads; i++)
        free(scan->threads[i].held);
    free(scan->threads);
    job_map_free(&scan->thread_ids);
    free(scan->queue);
    free(scan->callsite);
    free(scan);
}
