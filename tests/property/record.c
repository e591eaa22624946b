#include "record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rec/live.h"
#include "rec/reader.h"
#include "rec/writer.h"

#define DRAIN_NS         (250 * MS)
#define HEARTBEAT_NS     (2 * SEC)
#define BATCH            256
#define ROTATE_BYTES     (16 << 10)
#define ROTATE_NS        (2 * MS) /* between drains of a file that is to rotate: each costs some bytes */
#define INVALID_ARGUMENT 4        /* ncclInvalidArgument */
#define ABORT_NS         (50 * MS)
#define GRACE_NS         (2 * SEC) /* from the first end to that of the others */

struct recorder {
    const struct plan *plan;
    const struct run *run;
    const struct rank_run *mine;
    int rank;
    uint64_t skew, last; /* the end of the process */
    struct rec_writer *writer;
    size_t entered;        /* calls counted so far */
    size_t written[LANES]; /* calls looked at, by thread */
    uint64_t seq[COMMS_MAX], p2p[COMMS_MAX], lost[COMMS_MAX];
    bool changed[COMMS_MAX];
    uint32_t state[COMMS_MAX];
    size_t marks;
    struct mark mark[STREAMS_MAX];
    uint64_t open_key;
    uint64_t drop_from[4], drop_to[4]; /* calls by index: bursts lost */
    bool rotates;
};

int host_of(const struct plan *plan, int rank)
{
    return rank * plan->nhosts / plan->nranks;
}

static uint64_t wall(const struct recorder *r, uint64_t t)
{
    return ORIGIN + r->skew + t;
}

/* ---- definitions ---- */

static void define_comm(struct recorder *r, int comm, uint32_t state, uint64_t at)
{
    const struct plan_comm *c = &r->plan->comms[comm];
    struct rec_comm_def def = {.id = (uint32_t)comm,
                               .state = state,
                               .nranks = (uint32_t)c->nmembers,
                               .rank = (uint32_t)plan_place(c, r->rank),
                               .uid = 0xabc000 + (uint64_t)comm,
                               .made_by = c->made_by,
                               .color = c->parent < 0 ? -1 : c->color,
                               .created_ns = wall(r, at)};
    if (c->parent >= 0)
        def.parent_uid = 0xabc000 + (uint64_t)c->parent;
    snprintf(def.name, sizeof def.name, "c%d", comm);
    rec_writer_comm(r->writer, &def);
    r->state[comm] = state;
    if (c->parent >= 0 && state == REC_LIVE_COMM_READY)
        r->seq[comm] = r->seq[comm] ? r->seq[comm] : 1;
    r->changed[comm] = true;
}

static void define_ready(struct recorder *r, uint64_t until)
{
    for (int c = 0; c < r->plan->ncomms; c++)
        if (r->mine->made[c] <= until && r->state[c] < REC_LIVE_COMM_READY)
            define_comm(r, c, REC_LIVE_COMM_READY, r->mine->made[c]);
}

static unsigned flags_of(const struct call *call)
{
    return call->act.what == ACT_CALL ? rec_kind_flags(call->act.kind) : 0;
}

/* Does the call come back at once, to be asked for its end later? */
static bool in_background(const struct recorder *r, const struct call *call)
{
    return r->plan->nonblocking && (flags_of(call) & REC_KF_CREATE);
}

static uint64_t returned(const struct recorder *r, const struct call *call)
{
    return in_background(r, call) ? call->enter + 20 * US : call->exit;
}

static void enter(struct recorder *r, const struct call *call)
{
    unsigned flags = flags_of(call);
    int comm = call->act.comm;
    if (comm < 0)
        return;
    if (call->act.kind == REC_COMM_INIT_RANK_CONFIG)
        define_comm(r, comm, REC_LIVE_COMM_CREATING, call->enter);
    if (call->act.child >= 0 && in_background(r, call))
        define_comm(r, call->act.child, REC_LIVE_COMM_CREATING, call->enter);
    if ((flags & REC_KF_SEQ) && call->act.odd != ODD_REFUSED)
        r->seq[comm] = call->seq + 1;
    r->p2p[comm] += (flags & REC_KF_P2P) != 0;
    r->changed[comm] = true;
}

/* ---- ops ---- */

/* Every process makes its operators in another order. */
static uint8_t user_redop(int rank, uint8_t redop)
{
    return (uint8_t)(REC_REDOP_USER + (redop - REC_REDOP_USER + rank) % USER_REDOPS);
}

static struct rec_op op_of(const struct recorder *r, const struct call *call, bool open)
{
    const struct act *act = &call->act;
    unsigned kind = act->what == ACT_GROUP_END ? REC_GROUP_END
                    : act->what == ACT_GRAPH   ? REC_GRAPH_LAUNCH
                                               : act->kind;
    bool stream = (rec_kind_flags(kind) & REC_KF_STREAM) != 0;
    struct rec_op op = {.ordinal = call->ordinal,
                        .enter_ns = wall(r, call->enter),
                        .exit_ns = open ? 0 : wall(r, returned(r, call)),
                        .count = act->count,
                        .seq = call->seq,
                        .thread = (uint32_t)call->lane + 1,
                        .comm = act->comm < 0 || act->what == ACT_GRAPH ? REC_ID_NONE : (uint32_t)act->comm,
                        .stream = stream ? (uint32_t)act->stream : REC_ID_NONE,
                        .group = call->group,
                        .peer = act->peer,
                        .kind = (uint8_t)kind,
                        .dtype = rec_kind_flags(kind) & REC_KF_DATA ? act->dtype : REC_DTYPE_NONE,
                        .redop = rec_kind_flags(kind) & REC_KF_REDOP ? act->redop : REC_REDOP_NONE,
                        .result = open ? REC_RESULT_NONE : REC_RESULT_SUCCESS};
    if (act->what == ACT_GROUP_END)
        op.seq = 0;
    if (rec_kind_flags(kind) & REC_KF_RMA) {
        op.seq = 0; /* the reader counts signals */
        op.count = kind == REC_SIGNAL ? 0 : op.count;
    }
    if (op.redop >= REC_REDOP_USER && op.redop != REC_REDOP_NONE)
        op.redop = user_redop(r->rank, op.redop);
    if (r->plan->marks && act->what != ACT_GROUP_END)
        op.launch = call->launch;
    if (act->captured) /* all that is captured of a communicator makes one graph */
        op.launch = (uint64_t)act->comm + 1;
    if (act->what == ACT_GRAPH) {
        op.peer = act->comm + 1;
        op.count = 1;
    }
    op.flags = (uint16_t)((open ? REC_OF_OPEN : 0) | (act->captured ? REC_OF_CAPTURED : 0));
    if (act->odd == ODD_REFUSED && !open) {
        op.result = INVALID_ARGUMENT;
        op.state = REC_STATE_FAILED;
        op.seq = 0;
        op.flags |= act->what == ACT_CALL ? REC_OF_NO_SEQ : 0;
        return op;
    }
    if (r->plan->nonblocking && act->what == ACT_CALL)
        op.flags |= REC_OF_NONBLOCKING;
    if (in_background(r, call) && !open) {
        op.result = REC_RESULT_IN_PROGRESS;
        op.state = REC_STATE_IN_CALL;
        return op;
    }
    bool grouped = call->group && act->what != ACT_GROUP_END;
    op.state = open || grouped ? REC_STATE_IN_CALL : stream ? REC_STATE_ENQUEUED : REC_STATE_COMPLETED;
    return op;
}

static bool dropped(const struct recorder *r, size_t index)
{
    for (int i = 0; i < 4; i++)
        if (index >= r->drop_from[i] && index < r->drop_to[i])
            return true;
    return false;
}

/* What has returned by then, thread by thread in order. */
static void write_ops(struct recorder *r, uint64_t until)
{
    struct rec_op batch[BATCH];
    for (int lane = 0; lane < LANES; lane++) {
        size_t count = 0;
        for (; r->written[lane] < r->entered; r->written[lane]++) {
            size_t i = r->written[lane];
            const struct call *call = &r->mine->calls[i];
            if (call->lane != lane)
                continue;
            if (returned(r, call) > until)
                break;
            if (dropped(r, i)) {
                rec_writer_ops(r->writer, batch, count);
                count = 0;
                struct rec_loss loss = {.thread = (uint32_t)lane + 1,
                                        .first_ordinal = call->ordinal,
                                        .count = 1,
                                        .why = REC_LOSS_RING_FULL};
                rec_writer_loss(r->writer, wall(r, until), &loss);
                if (call->act.comm >= 0) {
                    r->lost[call->act.comm]++;
                    r->changed[call->act.comm] = true;
                }
                continue;
            }
            batch[count++] = op_of(r, call, false);
            if (count == BATCH) {
                rec_writer_ops(r->writer, batch, count);
                count = 0;
            }
        }
        rec_writer_ops(r->writer, batch, count);
    }
}

static void write_open(struct recorder *r, uint64_t until)
{
    struct rec_op open[LANES];
    size_t count = 0;
    uint64_t key = 1;
    for (int lane = 0; lane < LANES; lane++) {
        for (size_t i = r->written[lane]; i < r->entered; i++) {
            const struct call *call = &r->mine->calls[i];
            if (call->lane != lane)
                continue;
            open[count++] = op_of(r, call, true);
            key = rec_mix64(key ^ (call->ordinal * LANES + (uint64_t)lane + 7));
            break;
        }
    }
    if (key == r->open_key)
        return;
    rec_writer_open_ops(r->writer, wall(r, until), open, count);
    r->open_key = key;
}

static void write_marks(struct recorder *r, uint64_t until)
{
    bool changed[STREAMS_MAX] = {0};
    for (; r->marks < r->mine->nmarks && r->mine->marks[r->marks].at <= until; r->marks++) {
        const struct mark *mark = &r->mine->marks[r->marks];
        r->mark[mark->stream] = *mark;
        changed[mark->stream] = true;
    }
    for (int s = 0; s < STREAMS_MAX && r->plan->marks; s++) {
        struct rec_gpu gpu = {
            .stream = (uint32_t)s, .started = r->mark[s].started, .ended = r->mark[s].ended};
        if (changed[s])
            rec_writer_gpu(r->writer, wall(r, until), &gpu);
    }
}

static void drain(struct recorder *r, uint64_t now, bool heartbeat)
{
    for (; r->entered < r->mine->ncalls && r->mine->calls[r->entered].enter <= now; r->entered++)
        enter(r, &r->mine->calls[r->entered]);
    define_ready(r, now);
    write_ops(r, now);
    write_open(r, now);
    for (int c = 0; c < r->plan->ncomms; c++) {
        struct rec_frontier frontier = {
            .comm = (uint32_t)c, .next_seq = r->seq[c], .p2p_entered = r->p2p[c], .lost = r->lost[c]};
        if (r->changed[c] && r->state[c])
            rec_writer_frontier(r->writer, wall(r, now), &frontier);
        r->changed[c] = false;
    }
    write_marks(r, now);
    if (heartbeat)
        rec_writer_heartbeat(r->writer, wall(r, now));
}

/* ---- a file ---- */

static bool open_file(struct recorder *r, const char *dir, char *path, size_t size)
{
    char meta[512], stem[32];
    int n = snprintf(
        meta, sizeof meta,
        "{\"host\":\"node-%d\",\"boot_id\":\"boot-%d\",\"pid\":%d,\"proc_uid\":\"%016x\",\"rank\":%d,"
        "\"world_size\":%d,\"start_ns\":%" PRIu64 ",\"job\":{\"source\":\"FREC_JOB_ID\",\"id\":\"made\"}}",
        host_of(r->plan, r->rank), host_of(r->plan, r->rank), 1000 + r->rank, 1000 + r->rank, r->rank,
        r->plan->nranks, wall(r, 0));
    snprintf(stem, sizeof stem, "node-%d", 1000 + r->rank);
    snprintf(path, size, "%s/%s.frec", dir, stem);
    struct rec_error err;
    if (rec_writer_open(r->writer, dir, stem, meta, (size_t)n, &err) != REC_OK)
        return false;
    for (uint32_t i = 0; i <= LANES; i++) /* the last one is the watchdog */
        rec_writer_thread(r->writer, &(struct rec_thread_def){.id = i + 1, .tid = 1000 + r->rank});
    for (uint8_t i = REC_REDOP_USER; i < REC_REDOP_USER + USER_REDOPS; i++)
        rec_writer_redop(
            r->writer, &(struct rec_redop_def){.redop = user_redop(r->rank, i), .dtype = 7, .hash = 77u + i});
    for (uint32_t s = 0; s < STREAMS_MAX; s++)
        rec_writer_stream(r->writer, &(struct rec_stream_def){.id = s, .handle = s});
    return true;
}

static void choose_losses(struct recorder *r, const struct losses *losses, struct rng *rng)
{
    size_t n = r->mine->ncalls;
    for (int i = 0; losses->lost[r->rank] && n && i < 4; i++) {
        r->drop_from[i] = rng_in(rng, 0, n - 1);
        r->drop_to[i] = r->drop_from[i] + rng_in(rng, 1, n / 8 + 1);
    }
}

static bool is_torn(const char *path)
{
    struct rec_reader *reader;
    struct rec_event event;
    struct rec_reader_stats stats = {0};
    if (rec_reader_open(path, &reader, NULL) != REC_OK)
        return true;
    while (rec_reader_next(reader, &event, NULL) == REC_OK)
        continue;
    rec_reader_stats(reader, &stats);
    rec_reader_close(reader);
    return stats.torn_tail;
}

/* Inside a piece: a file that ends between two looks like that of a process that was killed then. */
static bool cut(const char *path, unsigned percent)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return false;
    off_t size = status.st_size * percent / 100;
    do
        if (truncate(path, size--) != 0)
            return false;
    while (!is_torn(path));
    return true;
}

/* How the process ends. */
struct ending {
    uint64_t at;
    bool told; /* leaves an end record */
    bool aborts;
    struct rec_end end;
};

/* When the first of those who wait gives up; UINT64_MAX. */
static uint64_t first_abort(const struct run *run, const struct plan *plan, const struct recording *recording)
{
    uint64_t first = UINT64_MAX;
    for (int i = 0; i < plan->nranks && recording->watchdog_ns; i++)
        if (run->ranks[i].stuck_since != UINT64_MAX &&
            run->ranks[i].stuck_since + recording->watchdog_ns < first)
            first = run->ranks[i].stuck_since + recording->watchdog_ns;
    return first;
}

static struct ending ending_of(const struct recorder *r, const struct recording *recording, uint64_t jitter)
{
    const struct rank_run *mine = r->mine;
    if (mine->end != UINT64_MAX && mine->end <= recording->end)
        return (struct ending){
            mine->end, mine->exited, false, {.reason = REC_END_EXIT, .status = mine->status}};
    uint64_t first = first_abort(r->run, r->plan, recording);
    uint64_t own = mine->stuck_since == UINT64_MAX ? UINT64_MAX : mine->stuck_since + recording->watchdog_ns;
    if (first != UINT64_MAX && own < first + GRACE_NS && recording->aborts)
        return (struct ending){own + jitter, true, true, {.reason = REC_END_EXIT, .status = 1}};
    if (first != UINT64_MAX && own < first + GRACE_NS)
        return (struct ending){own + jitter, true, false, {.reason = REC_END_SIGNAL, .signal = 6}};
    struct ending last = {
        recording->end + jitter, recording->terminated, false, {.reason = REC_END_SIGNAL, .signal = 15}};
    if (first != UINT64_MAX && first + GRACE_NS < recording->end)
        last.at = first + GRACE_NS + jitter;
    return last;
}

/* What a watchdog does before its process exits; kernels end when their communicator is aborted. */
static void abort_comms(struct recorder *r)
{
    uint64_t ordinal = 0, at = r->last - ABORT_NS;
    drain(r, at, false);
    for (int c = 0; c < r->plan->ncomms; c++) {
        if (r->state[c] < REC_LIVE_COMM_READY)
            continue;
        struct rec_op op = {.ordinal = ordinal++,
                            .enter_ns = wall(r, at),
                            .exit_ns = wall(r, at + MS / 10),
                            .seq = r->seq[c],
                            .thread = LANES + 1,
                            .comm = (uint32_t)c,
                            .stream = REC_ID_NONE,
                            .peer = -1,
                            .kind = REC_COMM_ABORT,
                            .dtype = REC_DTYPE_NONE,
                            .redop = REC_REDOP_NONE,
                            .state = REC_STATE_COMPLETED};
        rec_writer_ops(r->writer, &op, 1);
        at += MS / 5;
    }
    for (uint32_t s = 0; s < STREAMS_MAX && r->plan->marks; s++) {
        struct rec_gpu gpu = {.stream = s, .started = r->mark[s].started, .ended = r->mark[s].started};
        rec_writer_gpu(r->writer, wall(r, r->last), &gpu);
    }
}

static bool write_file(struct recorder *r, const struct recording *recording, struct rng *rng, char *path)
{
    struct ending ending = ending_of(r, recording, rng_in(rng, 0, 40 * MS));
    r->last = ending.at;
    uint64_t first = r->mine->ncalls ? r->mine->calls[0].enter : 0, heartbeat = 0;
    uint64_t work = r->mine->ncalls ? r->mine->calls[r->mine->ncalls - 1].enter : 0;
    struct rec_error err;
    for (uint64_t now = first + rng_in(rng, 1, 60) * MS; now < r->last - (ending.aborts ? ABORT_NS : 0);
         now += r->rotates && now < work ? ROTATE_NS : DRAIN_NS) {
        bool due = now >= heartbeat;
        if (due)
            heartbeat = now + HEARTBEAT_NS;
        drain(r, now, due);
        if (rec_writer_flush(r->writer, &err) != REC_OK)
            return false;
    }
    if (ending.aborts)
        abort_comms(r);
    else if (ending.told)
        drain(r, r->last, false);
    if (ending.told) {
        rec_writer_end(r->writer, wall(r, r->last), &ending.end);
        if (rec_writer_close(r->writer, &err) != REC_OK)
            return false;
    } else {
        rec_writer_abandon(r->writer);
    }
    const struct losses *losses = &recording->losses;
    if (losses->keep_percent[r->rank] && !cut(path, losses->keep_percent[r->rank]))
        return false;
    return !losses->no_trace[r->rank] || unlink(path) == 0;
}

bool record_run(const struct plan *plan, const struct run *run, const struct recording *recording,
                uint64_t seed, const char *dir)
{
    struct rec_writer_config config = {.tick_ns = 64};
    size_t bytes = (rec_writer_bytes(&config) + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    struct recorder *r = malloc(sizeof *r);
    struct rng rng = {seed};
    bool ok = memory && r;
    for (int rank = 0; rank < plan->nranks && ok; rank++) {
        char path[256];
        *r = (struct recorder){.plan = plan, .run = run, .mine = &run->ranks[rank], .rank = rank};
        r->skew = recording->losses.skew_ns[host_of(plan, rank)];
        r->rotates = recording->losses.rotated[rank];
        config.max_bytes = r->rotates ? ROTATE_BYTES : 0;
        r->writer = rec_writer_init(memory, &config);
        choose_losses(r, &recording->losses, &rng);
        ok = open_file(r, dir, path, sizeof path) && write_file(r, recording, &rng, path);
    }
    free(r);
    free(memory);
    return ok;
}
