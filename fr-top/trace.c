/* Reading the ends of trace files, for processes that have no live region here. */
#include "fr-top/top.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rec/reader.h"

#define RATE_STALE_NS UINT64_C(5000000000) /* a rate is worth nothing after that */
#define SETTLED_NS    UINT64_C(1000000000) /* the recorder writes changes within 250 ms */
#define RECENT        256                  /* launches that may not be over: the recorder's marks end there */
#define STREAMS       64
#define SKEW_NS       INT64_C(2000000000) /* smaller differences are delay, not clocks */

struct trace {
    uint32_t part;
    uint64_t bytes;
    struct timespec changed; /* the file's time when it was last read */
    uint64_t changed_ns;     /* our time then */
    uint64_t newest_ns;      /* its own time of the last record */
    uint64_t newest_exit_ns, last_call_ns;
    uint64_t replayed; /* calls in launched graphs, so far */
    uint64_t readings;
    bool rated;
    int64_t behind_ns; /* smallest (our time - its time) seen when it changed */
    char boot_id[40];  /* of this host */
};

static void part_path(const struct top_probe *probe, const struct trace *trace, char *out, size_t size)
{
    size_t stem = strlen(probe->path) - strlen(".frec");
    if (trace->part == 0)
        snprintf(out, size, "%s", probe->path);
    else
        snprintf(out, size, "%.*s.%u.frec", (int)stem, probe->path, trace->part);
}

enum rec_code top_trace_open(struct top_probe *probe, uint32_t part, struct rec_error *err)
{
    struct rec_reader *reader;
    char path[sizeof probe->path + 16];
    struct trace *trace = calloc(1, sizeof *trace);
    if (trace == NULL)
        return rec_error_set(err, REC_ERR_NOMEM, probe->path, 0, "no memory");
    trace->part = part;
    part_path(probe, trace, path, sizeof path);
    enum rec_code code = rec_reader_open(path, &reader, err);
    if (code != REC_OK) {
        free(trace);
        return code;
    }
    struct top_process *process = &probe->process;
    *process = (struct top_process){.rank = TOP_NO_RANK, .world_size = -1};
    const char *meta = rec_reader_meta(reader);
    top_probe_meta(probe, meta, strlen(meta));
    rec_reader_close(reader);
    const char *slash = strrchr(probe->path, '/');
    size_t dir = slash != NULL ? (size_t)(slash - probe->path) : 0;
    snprintf(process->frec_dir, sizeof process->frec_dir, "%.*s", (int)dir, probe->path);
    if (process->job[0] == '\0')
        memcpy(process->job, process->frec_dir, sizeof process->job - 1);
    process->ops_per_s = process->bytes_per_s = NAN;
    top_boot_id(trace->boot_id, sizeof trace->boot_id);
    trace->behind_ns = INT64_MAX;
    probe->reader = trace;
    return REC_OK;
}

void top_trace_part(struct top_probe *probe, uint32_t part)
{
    struct trace *trace = probe->reader;
    if (trace != NULL && part > trace->part)
        trace->part = part;
}

void top_trace_close(struct top_probe *probe)
{
    free(probe->reader);
    probe->reader = NULL;
}

static struct top_member *member_for(struct top_probe *probe, uint32_t comm_id)
{
    uint32_t at = top_probe_find(probe, comm_id);
    if (at != TOP_NONE)
        return &probe->members[at];
    struct top_member *member = top_probe_member(probe);
    if (member != NULL)
        member->comm_id = comm_id;
    return member;
}

static void take_comm(struct top_probe *probe, const struct rec_comm_def *def)
{
    struct top_member *member = member_for(probe, def->id);
    if (member == NULL)
        return;
    member->uid = def->uid;
    member->state = def->state;
    member->nranks = def->nranks;
    member->comm_rank = def->rank;
    member->made_by = def->made_by;
    member->parent_uid = def->parent_uid;
    member->async_error = def->async_error;
    member->created_ns = def->created_ns;
    snprintf(member->name, sizeof member->name, "%s", def->name);
}

struct tail {
    uint64_t newest_ns, last_call_ns;
    uint64_t replayed; /* calls in graphs that were launched since the last reading */
    uint64_t bytes;    /* of calls that returned since the last reading */
    uint64_t newest_exit_ns;
    struct top_kind_sum kinds[TOP_KINDS];
    struct rec_op recent[RECENT]; /* the last launches, a ring */
    uint64_t nrecent;
    struct rec_gpu gpu[STREAMS]; /* as last told */
    unsigned ngpu;
};

static void saw(uint64_t *newest, uint64_t ns)
{
    if (ns > *newest)
        *newest = ns;
}

/* Calls inside a group are launched by its end. */
static void launch_group(struct top_probe *probe, struct tail *tail, const struct rec_op *end)
{
    for (uint64_t i = tail->nrecent; i > 0 && i + RECENT > tail->nrecent; i--) {
        struct rec_op *op = &tail->recent[(i - 1) % RECENT];
        if (op->thread == end->thread && op->group == end->group && op->state == REC_STATE_IN_CALL &&
            end->result == REC_RESULT_SUCCESS)
            op->state = REC_STATE_ENQUEUED;
    }
    struct rec_op *last = &probe->process.now.op;
    if (last->thread == end->thread && last->group == end->group && last->state == REC_STATE_IN_CALL)
        last->state = REC_STATE_ENQUEUED;
}

static void take_op(struct top_probe *probe, const struct trace *trace, const struct rec_op *op,
                    struct tail *tail)
{
    struct top_process *process = &probe->process;
    saw(&tail->last_call_ns, op->exit_ns);
    saw(&tail->newest_exit_ns, op->exit_ns);
    if (op->exit_ns > trace->newest_exit_ns && rec_kind_flags(op->kind) & REC_KF_DATA) {
        uint32_t at = top_probe_find(probe, op->comm);
        tail->bytes += op->count * rec_dtype_size(op->dtype);
        top_kind_add(tail->kinds, op, at != TOP_NONE ? probe->members[at].nranks : 0);
    }
    if (op->kind == REC_GROUP_END && op->group != 0)
        launch_group(probe, tail, op);
    if (op->launch != 0 && !(op->flags & REC_OF_CAPTURED))
        tail->recent[tail->nrecent++ % RECENT] = *op;
    if (op->exit_ns > trace->newest_exit_ns && op->kind == REC_GRAPH_LAUNCH)
        tail->replayed += op->count;
    bool placed = op->comm != REC_ID_NONE || op->kind == REC_GRAPH_LAUNCH;
    if (placed && top_tells_progress(op->kind) && op->exit_ns >= process->now.since_ns) {
        process->now.op = *op;
        process->now.since_ns = op->exit_ns;
    }
}

static void take_gpu(struct tail *tail, const struct rec_gpu *gpu)
{
    unsigned i = 0;
    while (i < tail->ngpu && tail->gpu[i].stream != gpu->stream)
        i++;
    if (i == STREAMS)
        return;
    tail->gpu[i] = *gpu;
    tail->ngpu += i == tail->ngpu;
}

static void set_state(const struct tail *tail, struct rec_op *op)
{
    for (unsigned i = 0; i < tail->ngpu; i++) {
        if (tail->gpu[i].stream == op->stream)
            top_op_gpu(op, &tail->gpu[i]);
    }
}

/* Where the marks tell it, the process is at the oldest launch that is not over. */
static void find_pending(struct top_probe *probe, struct tail *tail)
{
    struct top_process *process = &probe->process;
    const struct rec_op *oldest = NULL;
    process->pending = 0;
    set_state(tail, &process->now.op);
    for (uint64_t i = 0; i < tail->nrecent && i < RECENT && tail->ngpu > 0; i++) {
        struct rec_op *op = &tail->recent[i];
        set_state(tail, op);
        if (op->launch == 0 || (op->state != REC_STATE_ENQUEUED && op->state != REC_STATE_GPU_STARTED))
            continue;
        process->pending++;
        if (oldest == NULL || op->enter_ns < oldest->enter_ns)
            oldest = op;
    }
    if (oldest != NULL)
        process->now = (struct top_op){.op = *oldest, .since_ns = oldest->enter_ns};
}

static void take_event(struct top_probe *probe, const struct trace *trace, const struct rec_event *event,
                       struct tail *tail)
{
    struct top_process *process = &probe->process;
    struct top_member *member;
    saw(&tail->newest_ns, event->time_ns);
    switch (event->type) {
    case REC_EV_COMM:
        take_comm(probe, &event->u.comm);
        break;
    case REC_EV_FRONTIER:
        member = member_for(probe, event->u.frontier.comm);
        if (member != NULL) {
            member->next_seq = event->u.frontier.next_seq;
            member->p2p = event->u.frontier.p2p_entered;
            member->lost = event->u.frontier.lost;
            member->changed_ns = event->time_ns;
        }
        break;
    case REC_EV_OP:
        take_op(probe, trace, &event->u.op, tail);
        break;
    case REC_EV_OPEN:
        process->nopen = 0;
        for (uint32_t i = 0; i < event->u.open.count; i++) {
            struct top_op open = {.op = event->u.open.ops[i], .since_ns = event->u.open.ops[i].enter_ns};
            saw(&tail->last_call_ns, open.since_ns);
            top_process_open(process, &open);
        }
        break;
    case REC_EV_GPU:
        take_gpu(tail, &event->u.gpu);
        break;
    case REC_EV_END:
        process->ended = true;
        process->end = event->u.end;
        break;
    default:
        break;
    }
}

/* Everything that the last segment says; a segment repeats definitions and frontiers. */
static bool read_tail(struct top_probe *probe, const struct trace *trace, struct tail *tail)
{
    struct top_process *process = &probe->process;
    char path[sizeof probe->path + 16];
    struct rec_reader *reader;
    const struct rec_segment_info *segments;
    struct rec_event event;
    struct rec_error err;
    size_t count = 0;
    part_path(probe, trace, path, sizeof path);
    if (rec_reader_open(path, &reader, &err) != REC_OK)
        return false;
    bool ok = rec_reader_segments(reader, &segments, &count, &err) == REC_OK && count > 0 &&
              rec_reader_seek(reader, count - 1, &err) == REC_OK;
    if (ok) {
        probe->nmembers = 0;
        process->nopen = 0;
        process->now = (struct top_op){.member = TOP_NONE};
        while (rec_reader_next(reader, &event, &err) == REC_OK)
            take_event(probe, trace, &event, tail);
        find_pending(probe, tail);
    }
    rec_reader_close(reader);
    return ok;
}

/* Puts a foreign host's times on our clock, once it has been seen to write with a constant delay. */
static void shift_times(struct top_probe *probe, const struct trace *trace)
{
    struct top_process *process = &probe->process;
    int64_t shift = trace->behind_ns;
    bool ours = strcmp(process->boot_id, trace->boot_id) == 0;
    if (ours || trace->readings < 2 || (shift >= 0 && shift < SKEW_NS))
        return;
    uint64_t *const times[] = {&process->last_call_ns, &process->now.since_ns};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        if (*times[i] != 0)
            *times[i] += (uint64_t)shift;
    }
    for (uint32_t i = 0; i < process->nopen && i < TOP_MAX_OPEN; i++)
        process->open[i].since_ns += (uint64_t)shift;
    for (size_t m = 0; m < probe->nmembers; m++)
        probe->members[m].created_ns += (uint64_t)shift;
}

static void take_tail(struct top_probe *probe, struct trace *trace, const struct tail *tail, uint64_t now_ns)
{
    struct top_process *process = &probe->process;
    uint64_t ops = 0, lost = 0;
    for (size_t m = 0; m < probe->nmembers; m++) {
        struct top_member *member = &probe->members[m];
        uint64_t first = rec_first_seq(member->made_by);
        ops += (member->next_seq > first ? member->next_seq - first : 0) + member->p2p;
        lost += member->lost;
        member->moving = !process->ended && tail->newest_ns < member->changed_ns + SETTLED_NS;
    }
    trace->replayed += tail->replayed;
    ops += trace->replayed;
    process->ops_per_s = process->bytes_per_s = NAN;
    if (trace->readings > 0 && tail->newest_ns > trace->newest_ns && ops >= process->ops) {
        double seconds = (double)(tail->newest_ns - trace->newest_ns) / 1e9;
        process->ops_per_s = (double)(ops - process->ops) / seconds;
        process->bytes_per_s = (double)tail->bytes / seconds;
        top_kind_update(process->kinds, tail->kinds, seconds, 1, !trace->rated);
        trace->rated = true;
    }
    process->ops = ops;
    process->lost = lost;
    for (uint32_t i = 0; i < process->nopen && i < TOP_MAX_OPEN; i++)
        process->open[i].member = top_probe_find(probe, process->open[i].op.comm);
    process->now.member = top_probe_find(probe, process->now.op.comm);
    process->in_call = process->nopen > 0 && !process->ended;
    if (process->in_call)
        process->now = process->open[0];
    process->last_call_ns = tail->last_call_ns;

    int64_t behind = (int64_t)(now_ns - tail->newest_ns);
    if (trace->readings > 0 && behind < trace->behind_ns)
        trace->behind_ns = behind;
    trace->changed_ns = trace->readings > 0 ? now_ns : tail->newest_ns;
    trace->newest_ns = tail->newest_ns;
    trace->newest_exit_ns = tail->newest_exit_ns;
    trace->last_call_ns = tail->last_call_ns;
    trace->readings++;
    shift_times(probe, trace);
}

/* Of this host, and no such process: it cannot come back. */
static bool gone(const struct top_process *process, const struct trace *trace)
{
    char path[32];
    if (process->pid <= 0 || trace->boot_id[0] == '\0' || strcmp(process->boot_id, trace->boot_id) != 0)
        return false;
    if (process->pid_ns != 0 && process->pid_ns != rec_pid_namespace())
        return false;
    snprintf(path, sizeof path, "/proc/%d", process->pid);
    return access(path, F_OK) != 0;
}

void top_trace_read(struct top_probe *probe, uint64_t now_ns)
{
    struct trace *trace = probe->reader;
    struct top_process *process = &probe->process;
    char path[sizeof probe->path + 16];
    struct stat st;
    part_path(probe, trace, path, sizeof path);
    if (stat(path, &st) == 0 &&
        ((uint64_t)st.st_size != trace->bytes || st.st_mtim.tv_sec != trace->changed.tv_sec ||
         st.st_mtim.tv_nsec != trace->changed.tv_nsec)) {
        struct tail tail = {.newest_exit_ns = trace->newest_exit_ns, .last_call_ns = trace->last_call_ns};
        if (read_tail(probe, trace, &tail))
            take_tail(probe, trace, &tail, now_ns);
        trace->bytes = (uint64_t)st.st_size;
        trace->changed = st.st_mtim;
        process->file_bytes = trace->bytes;
    }
    process->looked_ns = now_ns;
    process->alive_ns = trace->changed_ns;
    if (now_ns > trace->changed_ns + RATE_STALE_NS && process->ops_per_s > 0)
        process->ops_per_s = process->bytes_per_s = 0;
    process->vanished = !process->ended && gone(process, trace);
    if (process->ended || process->vanished) {
        process->ops_per_s = process->bytes_per_s = NAN;
        memset(process->kinds, 0, sizeof process->kinds);
    }
}
