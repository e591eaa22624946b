#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define BEAT_EVENTS 16384 /* how often a long load asks whether it is still wanted */

static enum rec_code no_memory(struct rec_error *err)
{
    return rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
}

/* ---- members ---- */

/* The member for a comm id, made when new; NULL when there are too many or without memory. */
static struct job_member *member_of(struct job_process *process, uint32_t comm_id)
{
    if (comm_id < JOB_LOW_COMMS && process->low_members[comm_id])
        return process->low_members[comm_id];
    uint32_t at = job_map_get(&process->member_ids, comm_id);
    if (at != JOB_MAP_NONE)
        return job_member_of(process->members[at]);
    if (comm_id == REC_ID_NONE)
        return NULL;
    if (process->nmembers >= JOB_MAX_COMMS) {
        if (!process->comms_left_out)
            job_warn(&process->warnings, process->pub.path,
                     "more than %d communicators; the rest is left out", JOB_MAX_COMMS);
        process->comms_left_out = true;
        return NULL;
    }
    struct job_member *member = calloc(1, sizeof(*member));
    if (!member ||
        !job_grow(&process->members, &process->members_room, process->nmembers + 1, sizeof(void *)) ||
        !job_map_put(&process->member_ids, comm_id, (uint32_t)process->nmembers)) {
        free(member);
        process->no_memory = true;
        return NULL;
    }
    process->members[process->nmembers++] = &member->pub;
    if (comm_id < JOB_LOW_COMMS)
        process->low_members[comm_id] = member;
    member->pub.process = &process->pub;
    member->pub.comm_id = comm_id;
    member->pub.comm_rank = REC_ID_NONE;
    member->pub.def = (struct rec_comm_def){.id = comm_id, .rank = REC_ID_NONE, .device = -1, .color = -1};
    return member;
}

static void take_comm(struct job_process *process, const struct rec_comm_def *def)
{
    struct job_member *member = member_of(process, def->id);
    if (!member)
        return;
    /* A later definition may know less only by damage: what is known stays. */
    uint64_t uid = def->uid ? def->uid : member->pub.def.uid;
    member->pub.def = *def;
    member->pub.def.uid = uid;
    member->pub.def.name[sizeof(def->name) - 1] = '\0';
    member->pub.comm_rank = def->rank;
}

static void take_frontier(struct job_process *process, const struct rec_frontier *frontier)
{
    struct job_member *member = member_of(process, frontier->comm);
    if (!member)
        return;
    member->counter = frontier->next_seq; /* may have fallen: a refused call gives its place back */
    if (frontier->p2p_entered > member->pub.p2p_entered)
        member->pub.p2p_entered = frontier->p2p_entered;
    if (frontier->lost > member->pub.lost)
        member->pub.lost = frontier->lost;
}

static void take_checkpoint(struct job_process *process, const struct rec_checkpoint *checkpoint)
{
    struct job_member *member = member_of(process, checkpoint->comm);
    if (!member || checkpoint->peer >= 0)
        return;
    uint64_t window = checkpoint->window;
    if (window >= member->pub.nwindows) {
        if (window - member->pub.nwindows >= JOB_MAX_WINDOWS - process->windows)
            return; /* absurd, or more than we keep: such windows stay unknown */
        size_t need = (size_t)window + 1;
        if (!job_grow(&member->words, &member->windows_room, need, sizeof(*member->words))) {
            process->no_memory = true;
            return;
        }
        memset(&member->words[member->pub.nwindows], 0,
               (need - member->pub.nwindows) * sizeof(*member->words));
        process->windows += need - member->pub.nwindows;
        member->pub.nwindows = need;
        member->pub.windows = member->words;
    }
    member->words[window] = (struct rec_checkpoint_word){checkpoint->hash, true};
}

/* For the census. */
static void count_work(struct rec_member *m, const struct rec_op *op, unsigned flags)
{
    if (flags & REC_KF_COLL)
        m->collectives++;
    else if (flags & REC_KF_P2P)
        m->sends += op->kind == REC_SEND;
    else if (flags & REC_KF_RMA)
        m->onesided += !(op->flags & REC_OF_PART);
    if (flags & REC_KF_DATA) {
        unsigned size = rec_dtype_size(op->dtype);
        m->bytes += op->count * (size ? size : 1);
    }
}

/* What an op says about its communicator, whether it returned or not; false when there is none. */
static bool count_op(struct job_process *process, const struct rec_op *op)
{
    struct job_member *member = op->comm == REC_ID_NONE ? NULL : member_of(process, op->comm);
    if (!member)
        return false;
    struct rec_member *m = &member->pub;
    unsigned flags = rec_kind_flags(op->kind);
    if (op->enter_ns && (m->first_ns == 0 || op->enter_ns < m->first_ns))
        m->first_ns = op->enter_ns;
    uint64_t latest = op->exit_ns > op->enter_ns ? op->exit_ns : op->enter_ns;
    if (latest > m->last_ns)
        m->last_ns = latest;
    if ((flags & REC_KF_SEQ) && !(op->flags & REC_OF_NO_SEQ) && op->seq < UINT64_MAX) {
        if (!member->any_seq || op->seq < m->first_seq)
            m->first_seq = op->seq;
        member->any_seq = true;
        if (op->seq + 1 > member->entered)
            member->entered = op->seq + 1;
    }
    if (flags & REC_KF_P2P)
        member->p2p_ops++;
    if ((flags & (REC_KF_COLL | REC_KF_P2P | REC_KF_RMA)) && op->enter_ns >= m->last_op.enter_ns)
        m->last_op = *op;
    if ((flags & REC_KF_TEARDOWN) && op->kind != REC_COMM_REVOKE && m->teardown.kind == REC_NONE)
        m->teardown = *op;
    count_work(m, op, flags);
    return true;
}

static void take_call(struct job_process *process, struct job_thread *thread, const struct rec_op *op)
{
    if (op->enter_ns > process->pub.last_call_ns)
        process->pub.last_call_ns = op->enter_ns;
    if (op->exit_ns > process->pub.last_call_ns)
        process->pub.last_call_ns = op->exit_ns;
    bool known = count_op(process, op);
    job_recall_op(process, thread, known, op);
}

/* Calls of one thread with consecutive ordinals. */
static void take_ops(struct job_process *process, const struct rec_op *ops, size_t count)
{
    struct job_thread *thread = job_process_thread(process, ops->thread, true);
    process->pub.ops += count;
    if (thread)
        job_losses_ops(thread, ops->ordinal, count);
    /* Old gaps are forgotten by the time of the last call before. */
    take_call(process, thread, &ops[0]);
    if (thread)
        job_recall_ordinals(process, thread, ops, count);
    for (size_t i = 1; i < count; i++)
        take_call(process, thread, &ops[i]);
}

/* ---- open calls ---- */

static void take_open(struct job_process *process, const struct rec_op *ops, uint32_t count)
{
    if (count > JOB_MAX_OPEN)
        count = JOB_MAX_OPEN;
    if (!job_grow(&process->open, &process->open_room, count, sizeof(*process->open))) {
        process->no_memory = true;
        return;
    }
    if (count)
        memcpy(process->open, ops, count * sizeof(*ops));
    process->nopen = count;
}

/* Calls that returned after the list was written are open no more; the others count for their communicators.
 */
static void settle_open(struct job_process *process)
{
    size_t kept = 0;
    for (size_t i = 0; i < process->nopen; i++) {
        const struct job_thread *thread = job_process_thread(process, process->open[i].thread, false);
        if (thread && process->open[i].ordinal < thread->next)
            continue;
        struct rec_op *op = &process->open[kept++];
        *op = process->open[i];
        op->flags |= REC_OF_OPEN;
        op->state = REC_STATE_IN_CALL;
        op->result = REC_RESULT_NONE;
        op->exit_ns = 0;
        if (op->enter_ns > process->pub.last_call_ns)
            process->pub.last_call_ns = op->enter_ns;
        struct job_thread *its = job_process_thread(process, op->thread, true);
        if (its)
            job_recall_ordinals(process, its, op, 1);
        job_recall_op(process, its, count_op(process, op), op);
    }
    process->nopen = kept;
    process->pub.open = process->open;
    process->pub.nopen = (uint32_t)kept;
}

static void settle_members(struct job_process *process)
{
    for (size_t i = 0; i < process->nmembers; i++) {
        struct job_member *member = job_member_of(process->members[i]);
        struct rec_member *m = &member->pub;
        m->next_seq = member->counter > member->entered ? member->counter : member->entered;
        if (member->p2p_ops > m->p2p_entered)
            m->p2p_entered = member->p2p_ops;
        if (!member->any_seq)
            m->first_seq = m->next_seq;
        m->finished = m->next_seq;
        if (m->last_op.kind != REC_NONE)
            job_op_gpu(process, &m->last_op);
    }
    for (size_t i = 0; i < process->nopen; i++) {
        const struct rec_op *op = &process->open[i];
        struct rec_member *m = rec_process_member(&process->pub, op->comm);
        if (m && (rec_kind_flags(op->kind) & REC_KF_SEQ) && m->finished > 0)
            m->finished--;
    }
}

/* ---- copies of records with pointers ---- */

static size_t text_bytes(const char *const *texts, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += strlen(texts[i]) + 1;
    return bytes;
}

/* Copies texts behind the pointer array at *at; returns the array and moves *at behind all. */
static const char *const *copy_texts(char **at, const char *const *texts, uint32_t count)
{
    const char **array = (const char **)(void *)*at;
    char *to = *at + count * sizeof(char *);
    for (uint32_t i = 0; i < count; i++) {
        array[i] = to;
        to = stpcpy(to, texts[i]) + 1;
    }
    *at = to;
    return array;
}

static void take_stall(struct job_process *process, uint64_t time_ns, const struct rec_stall *stall)
{
    size_t frames = 0;
    for (uint32_t i = 0; i < stall->nthreads; i++)
        frames += stall->threads[i].nframes;
    if (frames > JOB_MAX_STALL_FRAMES)
        return;
    char *memory = malloc(stall->nthreads * sizeof(*stall->threads) + frames * sizeof(struct rec_frame) +
                          stall->nmodules * sizeof(char *) + text_bytes(stall->modules, stall->nmodules) + 1);
    if (!memory) {
        process->no_memory = true;
        return;
    }
    struct rec_stall_thread *threads = (struct rec_stall_thread *)(void *)memory;
    struct rec_frame *frame = (struct rec_frame *)(void *)(threads + stall->nthreads);
    for (uint32_t i = 0; i < stall->nthreads; i++) {
        threads[i] = stall->threads[i];
        threads[i].frames = frame;
        if (threads[i].nframes)
            memcpy(frame, stall->threads[i].frames, threads[i].nframes * sizeof(*frame));
        frame += threads[i].nframes;
    }
    char *at = (char *)frame;
    free(process->stall_memory);
    process->stall_memory = memory;
    process->pub.stall = *stall;
    process->pub.stall.threads = threads;
    process->pub.stall.modules = copy_texts(&at, stall->modules, stall->nmodules);
    process->pub.stall_ns = time_ns;
}

static void take_end(struct job_process *process, uint64_t time_ns, const struct rec_end *end)
{
    char *memory = malloc(end->nframes * sizeof(struct rec_frame) + end->nmodules * sizeof(char *) +
                          text_bytes(end->modules, end->nmodules) + 1);
    if (!memory) {
        process->no_memory = true;
        return;
    }
    struct rec_frame *frames = (struct rec_frame *)(void *)memory;
    if (end->nframes)
        memcpy(frames, end->frames, end->nframes * sizeof(*frames));
    char *at = (char *)(frames + end->nframes);
    free(process->end_memory);
    process->end_memory = memory;
    process->pub.end = *end;
    process->pub.end.frames = frames;
    process->pub.end.modules = copy_texts(&at, end->modules, end->nmodules);
    process->pub.end_ns = time_ns;
}

static void take_stream(struct job_process *process, const struct rec_stream_def *def)
{
    uint32_t at = job_map_get(&process->stream_ids, def->id);
    if (at != JOB_MAP_NONE) {
        process->streams[at] = *def;
        return;
    }
    if (process->nstreams >= JOB_MAX_STREAMS)
        return;
    if (job_grow(&process->streams, &process->streams_room, process->nstreams + 1,
                 sizeof(*process->streams)) &&
        job_map_put(&process->stream_ids, def->id, (uint32_t)process->nstreams))
        process->streams[process->nstreams++] = *def;
    else
        process->no_memory = true;
}

static void take_redop(struct job_process *process, const struct rec_redop_def *def)
{
    size_t at = def->redop - REC_REDOP_USER;
    if (def->redop < REC_REDOP_USER || def->redop >= REC_REDOP_NONE)
        return;
    if (!job_grow(&process->redops, &process->redops_room, at + 1, sizeof(*process->redops))) {
        process->no_memory = true;
        return;
    }
    while (process->nredops <= at)
        process->redops[process->nredops++] = (struct rec_redop_def){0};
    process->redops[at] = *def;
}

/* ---- the stream of events ---- */

static void take_event(struct job_process *process, const struct rec_event *event)
{
    if (event->time_ns > process->pub.last_ns)
        process->pub.last_ns = event->time_ns;
    process->pub.unwritten |= event->notice;
    switch (event->type) {
    case REC_EV_COMM:
        take_comm(process, &event->u.comm);
        break;
    case REC_EV_THREAD: {
        struct job_thread *thread = job_process_thread(process, event->u.thread.id, true);
        if (thread)
            thread->def = event->u.thread;
        break;
    }
    case REC_EV_REDOP:
        take_redop(process, &event->u.redop);
        break;
    case REC_EV_STREAM:
        take_stream(process, &event->u.stream);
        break;
    case REC_EV_CALLSITE:
        job_process_callsite(process, &event->u.callsite);
        break;
    case REC_EV_GPU:
        job_process_gpu(process, event->time_ns, &event->u.gpu);
        break;
    case REC_EV_OP:
        take_ops(process, &event->u.op, 1);
        break;
    case REC_EV_OPEN:
        take_open(process, event->u.open.ops, event->u.open.count);
        break;
    case REC_EV_FRONTIER:
        take_frontier(process, &event->u.frontier);
        break;
    case REC_EV_CHECKPOINT:
        take_checkpoint(process, &event->u.checkpoint);
        break;
    case REC_EV_HEARTBEAT:
        break;
    case REC_EV_LOSS:
        job_recall_loss(process, &event->u.loss, event->time_ns);
        if (event->notice)
            process->unwritten += event->u.loss.count;
        else
            job_losses_record(process, &event->u.loss);
        break;
    case REC_EV_STALL:
        take_stall(process, event->time_ns, &event->u.stall);
        break;
    case REC_EV_END:
        take_end(process, event->time_ns, &event->u.end);
        break;
    }
    if (process->pub.start_ns == 0)
        process->pub.start_ns = event->time_ns;
}

/* What follows an op without anything in between. */
static size_t take_run(struct job_process *process, struct rec_scan *scan)
{
    size_t count;
    const struct rec_op *ops = job_scan_run(scan, &count);
    for (size_t i = 0; i < count; i++) {
        if (ops[i].exit_ns > process->pub.last_ns)
            process->pub.last_ns = ops[i].exit_ns;
        if (process->pub.start_ns == 0)
            process->pub.start_ns = ops[i].exit_ns;
    }
    if (count)
        take_ops(process, ops, count);
    return count;
}

static int by_comm_id(const void *a, const void *b)
{
    const struct rec_member *x = *(struct rec_member *const *)a, *y = *(struct rec_member *const *)b;
    return x->comm_id < y->comm_id ? -1 : x->comm_id > y->comm_id;
}

/* Members by comm id; the map follows. */
static bool sort_members(struct job_process *process)
{
    if (process->nmembers)
        qsort(process->members, process->nmembers, sizeof(*process->members), by_comm_id);
    for (size_t i = 0; i < process->nmembers; i++)
        if (!job_map_put(&process->member_ids, process->members[i]->comm_id, (uint32_t)i))
            return false;
    process->pub.members = process->members;
    process->pub.nmembers = (uint32_t)process->nmembers;
    return true;
}

static enum rec_code finish(struct job_process *process, const struct rec_scan *scan, struct rec_error *err)
{
    const struct job_snapshot *snapshot = job_scan_snapshot(scan);
    if (snapshot) {
        process->live_read = process->pub.has_live = process->pub.saw_live = true;
        process->live_alive = snapshot->alive;
        job_losses_live(process, snapshot);
    }
    settle_open(process);
    job_recall_settle(process);
    if (!sort_members(process) || process->no_memory)
        return no_memory(err);
    settle_members(process);
    job_refused_settle(process);
    if (process->no_memory)
        return no_memory(err);
    process->pub.has_file = process->files_read > 0;
    /* Parts begin at 0; the oldest ones go first. */
    uint32_t first = process->source.nparts ? process->source.parts[0].number : 0;
    if (first > 0 && first < JOB_RECOVERED_PART)
        process->pub.rotated = true;
    job_losses_sum(process);
    if (process->pub.unaccounted)
        job_warn(&process->warnings, process->pub.path, "%llu calls are missing and nothing explains why",
                 (unsigned long long)process->pub.unaccounted);
    if (process->pub.unwritten)
        job_warn(&process->warnings, process->pub.path,
                 "could not be written to its end; at least %llu more calls have no record",
                 (unsigned long long)process->unwritten);
    process->cut = true;
    return REC_OK;
}

enum rec_code job_process_load(struct job_process *process, const struct job_beat *beat,
                               struct rec_error *err)
{
    struct rec_scan *scan;
    enum rec_code code = job_scan_open(process, NULL, true, &scan, err);
    if (code != REC_OK)
        return code;
    struct rec_event event;
    size_t events = 0;
    bool wanted = true;
    while (wanted && !process->no_memory && (code = rec_scan_next(scan, &event, err)) == REC_OK) {
        take_event(process, &event);
        events += 1 + (event.type == REC_EV_OP ? take_run(process, scan) : 0);
        if (events < BEAT_EVENTS)
            continue;
        events = 0;
        wanted = beat->go_on(beat->context);
    }
    if (process->no_memory)
        code = no_memory(err);
    else if (!wanted)
        code = job_cancelled(err);
    if (code == REC_END)
        code = finish(process, scan, err);
    rec_scan_close(scan);
    return code;
}

struct job_process *job_process_new(struct job_source *source)
{
    struct job_process *process = calloc(1, sizeof(*process));
    if (!process)
        return NULL;
    process->source = *source;
    *source = (struct job_source){0};
    const struct job_meta *meta = &process->source.meta;
    struct rec_process *pub = &process->pub;
    pub->rank = meta->rank;
    pub->world_size = meta->world_size;
    pub->local_rank = meta->local_rank;
    pub->pid = meta->pid;
    pub->saw_live = meta->saw_live;
    pub->nccl_version = meta->nccl_version;
    pub->proc_uid = process->source.proc_uid;
    memcpy(pub->host, meta->host, sizeof(pub->host));
    memcpy(pub->boot_id, meta->boot_id, sizeof(pub->boot_id));
    memcpy(pub->restart, meta->restart, sizeof(pub->restart));
    memcpy(pub->exe, meta->exe, sizeof(pub->exe));
    pub->start_ns = pub->last_ns = meta->start_ns;
    pub->path = process->source.nparts ? process->source.parts[0].path : process->source.live;
    pub->live_path = process->source.live;
    return process;
}

void job_process_free(struct job_process *process)
{
    if (!process)
        return;
    for (size_t i = 0; i < process->nmembers; i++) {
        free(job_member_of(process->members[i])->words);
        free(process->members[i]);
    }
    free(process->members);
    for (size_t i = 0; i < process->nthreads; i++) {
        job_spans_free(&process->threads[i].gaps);
        job_spans_free(&process->threads[i].losses);
    }
    free(process->threads);
    free(process->streams);
    job_gpu_free(process);
    job_recall_fini(&process->recall);
    free(process->sites);
    free(process->redops);
    job_refused_fini(&process->refused);
    free(process->open);
    free(process->stall_memory);
    free(process->end_memory);
    job_map_free(&process->member_ids);
    job_map_free(&process->thread_ids);
    job_map_free(&process->stream_ids);
    job_map_free(&process->site_ids);
    job_lines_free(&process->warnings);
    job_source_fini(&process->source);
    free(process);
}

struct rec_member *rec_process_member(const struct rec_process *process, uint32_t comm_id)
{
    const struct job_process *p = job_process_of(process);
    uint32_t at = job_map_get(&p->member_ids, comm_id);
    return at == JOB_MAP_NONE ? NULL : p->members[at];
}

uint64_t rec_process_signature(const struct rec_process *process, const struct rec_op *op)
{
    const struct job_process *p = job_process_of(process);
    uint64_t redop_hash = op->redop;
    size_t user = (size_t)op->redop - REC_REDOP_USER;
    if (op->redop >= REC_REDOP_USER && user < p->nredops && p->redops[user].redop != 0)
        redop_hash = p->redops[user].hash;
    return rec_signature(op->kind, op->count, op->dtype, redop_hash, op->peer);
}

const struct rec_thread_def *rec_process_thread(const struct rec_process *process, uint32_t thread_id)
{
    const struct job_thread *thread = job_process_thread(job_process_of(process), thread_id, false);
    return thread ? &thread->def : NULL;
}

const struct rec_stream_def *rec_process_stream(const struct rec_process *process, uint32_t stream_id)
{
    const struct job_process *p = job_process_of(process);
    uint32_t at = job_map_get(&p->stream_ids, stream_id);
    return at == JOB_MAP_NONE ? NULL : &p->streams[at];
}
