#include "format/writer_state.h"

#include <errno.h>
#include <string.h>

#include "rec/live.h"
#include "rec/model.h"

#define LIMIT_MIN        ((uint64_t)16 << 10)
#define DEFAULT_TICK_NS  64
#define DEFAULT_SEGMENT  ((uint64_t)1 << 20)
#define PARTS_OF_LIMIT   8  /* a rotation forgets an eighth of what may be kept */
#define SEGMENTS_OF_PART 4  /* at least, so that parts come out nearly full */
#define MAX_WINDOW_LOG   19 /* of zstd: half a MiB of history in the job's memory */
#define MAX_TABLE_LOG    17

/* ---- setting up ---- */

static int level_of(const struct rec_writer_config *config)
{
    return config->level ? config->level : 1;
}

static unsigned at_most(unsigned value, unsigned limit)
{
    return value < limit ? value : limit;
}

static ZSTD_compressionParameters zstd_parameters(int level)
{
    ZSTD_compressionParameters c = ZSTD_getCParams(level, 0, 0);
    c.windowLog = at_most(c.windowLog, MAX_WINDOW_LOG);
    c.chainLog = at_most(c.chainLog, MAX_TABLE_LOG);
    c.hashLog = at_most(c.hashLog, MAX_TABLE_LOG);
    if (c.strategy > ZSTD_btlazy2) /* the optimal parsers want megabytes more */
        c.strategy = ZSTD_btlazy2;
    return c;
}

static size_t align64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

size_t rec_writer_bytes(const struct rec_writer_config *config)
{
    size_t workspace = ZSTD_estimateCStreamSize_usingCParams(zstd_parameters(level_of(config)));
    return align64(sizeof(struct rec_writer)) + align64(workspace);
}

/* 0, or zstd refused something: impossible with what zstd itself proposed, but not worth a crash. */
static int set_up_zstd(struct rec_writer *w, size_t workspace)
{
    ZSTD_compressionParameters c = zstd_parameters(w->level);
    w->zstd = ZSTD_initStaticCCtx((char *)w + align64(sizeof(*w)), workspace);
    if (!w->zstd)
        return ENOMEM;
    const struct {
        ZSTD_cParameter parameter;
        unsigned value;
    } set[] = {
        {ZSTD_c_windowLog, c.windowLog},
        {ZSTD_c_chainLog, c.chainLog},
        {ZSTD_c_hashLog, c.hashLog},
        {ZSTD_c_searchLog, c.searchLog},
        {ZSTD_c_minMatch, c.minMatch},
        {ZSTD_c_targetLength, c.targetLength},
        {ZSTD_c_strategy, (unsigned)c.strategy},
        {ZSTD_c_contentSizeFlag, 0},
    };
    for (size_t i = 0; i < sizeof(set) / sizeof(set[0]); i++)
        if (ZSTD_isError(ZSTD_CCtx_setParameter(w->zstd, set[i].parameter, (int)set[i].value)))
            return EINVAL;
    return 0;
}

struct rec_writer *rec_writer_init(void *memory, const struct rec_writer_config *config)
{
    struct rec_writer *w = memory;
    /* The large buffers need no clearing; untouched pages stay free. */
    memset(w, 0, offsetof(struct rec_writer, index));
    rec_crc_init(&w->crc);
    w->tick_ns = config->tick_ns ? config->tick_ns : DEFAULT_TICK_NS;
    w->level = level_of(config);
    w->max_bytes = config->max_bytes && config->max_bytes < LIMIT_MIN ? LIMIT_MIN : config->max_bytes;
    w->segment_bytes = config->segment_bytes ? config->segment_bytes : DEFAULT_SEGMENT;
    if (w->max_bytes) {
        w->part_bytes = w->max_bytes / PARTS_OF_LIMIT;
        if (w->segment_bytes > w->part_bytes / SEGMENTS_OF_PART)
            w->segment_bytes = w->part_bytes / SEGMENTS_OF_PART;
    }
    w->time.tick_ns = w->tick_ns;
    w->piece_min = UINT64_MAX;
    rec_parts_init(&w->parts);
    rec_defs_init(&w->defs);
    rec_tracks_init(&w->tracks);
    rec_sites_init(&w->sites);
    w->error = set_up_zstd(w, rec_writer_bytes(config) - align64(sizeof(*w)));
    if (w->error)
        w->zstd = NULL;
    return w;
}

static enum rec_code report(const struct rec_writer *w, struct rec_error *err)
{
    /* strerror may allocate and translate; this does neither. */
    const char *text = strerrordesc_np(w->error);
    return rec_error_set(err, REC_ERR_IO, w->parts.stem, 0, "%s", text ? text : "unknown error");
}

enum rec_code rec_writer_open(struct rec_writer *w, const char *dir, const char *stem, const char *meta,
                              size_t meta_bytes, struct rec_error *err)
{
    if (w->open || meta_bytes > REC_WRITER_META)
        return rec_error_set(err, REC_ERR_ARG, stem, 0, "metadata too long, or already open");
    if (!w->zstd)
        return report(w, err);
    memcpy(w->meta, meta, meta_bytes);
    w->meta_bytes = meta_bytes;
    w->file_id = 0;
    for (size_t i = 0; i < meta_bytes; i++)
        w->file_id = rec_mix64(w->file_id ^ (uint8_t)meta[i]);
    w->error = rec_parts_name(&w->parts, dir, stem);
    if (!w->error)
        w->error = rec_segment_create_part(w, 0);
    if (w->error)
        return report(w, err);
    w->open = true;
    return REC_OK;
}

struct checkpoint_context {
    struct rec_writer *writer;
    uint64_t time_ns;
};

static void put_checkpoint(void *context, const struct rec_checkpoint *checkpoint)
{
    const struct checkpoint_context *c = context;
    struct rec_writer *w = c->writer;
    if (!rec_segment_room(w, REC_RECORD_ROOM))
        return;
    rec_raw_take(w, rec_encode_checkpoint(rec_raw_end(w), &w->time, c->time_ns, checkpoint));
    rec_note_time(w, c->time_ns);
}

static void end_track(struct rec_writer *w, uint32_t comm)
{
    struct checkpoint_context context = {w, w->last_ns};
    rec_tracks_end(&w->tracks, comm, put_checkpoint, &context);
}

static void end_tracks(struct rec_writer *w)
{
    w->flushes++;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->ended_count; i++) {
        if (w->flushes < w->ended[i].due)
            w->ended[kept++] = w->ended[i];
        else
            end_track(w, w->ended[i].comm);
    }
    w->ended_count = kept;
}

enum rec_code rec_writer_flush(struct rec_writer *w, struct rec_error *err)
{
    if (!w->open)
        return rec_error_set(err, REC_ERR_ARG, NULL, 0, "no file is open");
    bool failing = w->retry_in;
    if (!rec_segment_retry(w))
        return report(w, err);
    end_tracks(w);
    /* After a failure something is written in any case: success then means that writing works again. */
    if ((failing && !rec_segment_room(w, 0)) || (w->losses.count && !rec_segment_put_losses(w)) ||
        (w->segment && !rec_segment_write(w, rec_segment_full(w))))
        return report(w, err);
    return REC_OK;
}

static enum rec_code write_last(struct rec_writer *w, struct rec_error *err)
{
    if (!rec_segment_retry(w)) {
        rec_segment_give_up(w);
        return report(w, err);
    }
    struct checkpoint_context context = {w, w->last_ns};
    rec_tracks_finish(&w->tracks, put_checkpoint, &context);
    /* A piece may push an old part out, which is one more loss to write. */
    for (int i = 0; i < 3 && w->losses.count; i++)
        if (!rec_segment_put_losses(w) || (w->segment && !rec_segment_write(w, false)))
            return report(w, err);
    if (w->segment && !rec_segment_write(w, true))
        return report(w, err);
    int error = rec_segment_write_index(w);
    if (!error)
        return REC_OK;
    w->error = error;
    return report(w, err);
}

enum rec_code rec_writer_close(struct rec_writer *w, struct rec_error *err)
{
    if (!w->open)
        return rec_error_set(err, REC_ERR_ARG, NULL, 0, "no file is open");
    w->retry_in = 0; /* the last chance */
    enum rec_code code = write_last(w, err);
    if (w->stuck_bytes)
        rec_segment_give_up(w);
    rec_parts_close(&w->parts);
    w->open = false;
    return code;
}

void rec_writer_abandon(struct rec_writer *w)
{
    rec_parts_close(&w->parts);
    w->open = false;
}

void rec_writer_held(struct rec_writer *w, uint64_t time_ns, uint64_t ops)
{
    if (!w->open || ops == w->held)
        return;
    w->held = ops;
    if (time_ns > w->last_ns)
        w->last_ns = time_ns;
    rec_segment_notice(w);
}

void rec_writer_status(const struct rec_writer *w, struct rec_writer_status *status)
{
    *status = (struct rec_writer_status){
        .file_bytes = w->parts.written, .ops = w->ops, .lost_ops = w->lost_ops, .error = w->error};
}

void rec_writer_callsites(struct rec_writer *w, rec_callsite_source *source, void *context)
{
    w->sites.source = source;
    w->sites.context = context;
}

/* ---- records ---- */

/*
 * A definition goes into the segment first and then into the table: a segment that starts
 * for it repeats the table, and would otherwise hold it twice.
 */
void rec_writer_comm(struct rec_writer *w, const struct rec_comm_def *def)
{
    if (rec_segment_room(w, REC_RECORD_ROOM))
        rec_raw_take(w, rec_encode_comm(rec_raw_end(w), &w->time, def));
    rec_defs_comm(&w->defs, def);
    if (def->state != REC_LIVE_COMM_DESTROYED)
        return;
    if (w->ended_count < REC_ENDED)
        w->ended[w->ended_count++] = (struct rec_ended){def->id, w->flushes + REC_ENDED_FLUSHES};
    else
        end_track(w, def->id);
}

void rec_writer_thread(struct rec_writer *w, const struct rec_thread_def *def)
{
    if (rec_segment_room(w, REC_RECORD_ROOM))
        rec_raw_take(w, rec_encode_thread(rec_raw_end(w), def));
    rec_defs_thread(&w->defs, def);
}

void rec_writer_redop(struct rec_writer *w, const struct rec_redop_def *def)
{
    if (rec_segment_room(w, REC_RECORD_ROOM))
        rec_raw_take(w, rec_encode_redop(rec_raw_end(w), def));
    rec_defs_redop(&w->defs, def);
}

void rec_writer_stream(struct rec_writer *w, const struct rec_stream_def *def)
{
    if (rec_segment_room(w, REC_RECORD_ROOM))
        rec_raw_take(w, rec_encode_stream(rec_raw_end(w), def));
    rec_defs_stream(&w->defs, def);
}

void rec_writer_frontier(struct rec_writer *w, uint64_t time_ns, const struct rec_frontier *frontier)
{
    if (rec_segment_room(w, REC_RECORD_ROOM)) {
        rec_raw_take(w, rec_encode_frontier(rec_raw_end(w), &w->time, time_ns, frontier));
        rec_note_time(w, time_ns);
    }
    rec_defs_frontier(&w->defs, time_ns, frontier);
}

void rec_writer_gpu(struct rec_writer *w, uint64_t time_ns, const struct rec_gpu *gpu)
{
    if (rec_segment_room(w, REC_RECORD_ROOM)) {
        rec_raw_take(w, rec_encode_gpu(rec_raw_end(w), &w->time, time_ns, gpu));
        rec_note_time(w, time_ns);
    }
    rec_defs_gpu(&w->defs, time_ns, gpu);
}

void rec_writer_heartbeat(struct rec_writer *w, uint64_t time_ns)
{
    if (!rec_segment_room(w, REC_RECORD_ROOM))
        return;
    rec_raw_take(w, rec_encode_heartbeat(rec_raw_end(w), &w->time, time_ns));
    rec_note_time(w, time_ns);
}

void rec_writer_loss(struct rec_writer *w, uint64_t time_ns, const struct rec_loss *loss)
{
    rec_losses_add(&w->losses, time_ns, loss);
    (void)rec_segment_put_losses(w); /* what cannot be put now, waits */
}

/* Call sites that records to come name: those of ops, or those of the threads of a stall. */
struct named {
    const struct rec_op *ops;
    size_t count;
    const struct rec_stall *stall;
};

static void put_sites(struct rec_writer *w, const struct named *named)
{
    for (size_t i = 0; i < named->count; i++)
        if (!rec_sites_told(&w->sites, named->ops[i].callsite))
            rec_sites_put(w, named->ops[i].callsite);
    for (uint32_t i = 0; named->stall && i < named->stall->nthreads; i++)
        rec_sites_put(w, named->stall->threads[i].callsite);
}

/*
 * Makes room for records behind the call sites that they name. The segment does not end in
 * between, unless writing fails: the next one knows no call site.
 */
static bool introduce(struct rec_writer *w, const struct named *named, size_t room)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        uint32_t segment = w->sites.segment;
        w->defining = true;
        put_sites(w, named);
        bool ready = rec_segment_room(w, room);
        w->defining = false;
        if (!ready || w->sites.segment == segment)
            return ready;
    }
    return false;
}

#define LARGE_RECORD ((size_t)128 << 10)

void rec_writer_open_ops(struct rec_writer *w, uint64_t time_ns, const struct rec_op *ops, size_t count)
{
    if (!rec_segment_room(w, LARGE_RECORD) || !introduce(w, &(struct named){ops, count, NULL}, LARGE_RECORD))
        return;
    rec_raw_take(w, rec_encode_open(rec_raw_end(w), LARGE_RECORD, &w->time, time_ns, ops, count));
    rec_note_time(w, time_ns);
}

void rec_writer_stall(struct rec_writer *w, uint64_t time_ns, const struct rec_stall *stall)
{
    if (!rec_segment_room(w, LARGE_RECORD) || !introduce(w, &(struct named){NULL, 0, stall}, LARGE_RECORD))
        return;
    rec_raw_take(w, rec_encode_stall(rec_raw_end(w), LARGE_RECORD, &w->time, time_ns, stall));
    rec_note_time(w, time_ns);
}

void rec_writer_end(struct rec_writer *w, uint64_t time_ns, const struct rec_end *end)
{
    w->last.end_reason = end->reason;
    w->last.end_status = end->status;
    w->last.end_signal = end->signal;
    w->last.end_tid = end->tid;
    w->last.end_ns = time_ns;
    if (time_ns > w->last_ns)
        w->last_ns = time_ns;
    w->retry_in = 0; /* the last chance */
    w->end_waits = !rec_segment_room(w, LARGE_RECORD);
    if (w->end_waits)
        return;
    rec_raw_take(w, rec_encode_end(rec_raw_end(w), LARGE_RECORD, &w->time, time_ns, end));
    rec_note_time(w, time_ns);
}

/* ---- ops ---- */

/* Adds an op to the checkpoint of the sequence it belongs to. */
static void track(struct rec_writer *w, const struct rec_op *op)
{
    unsigned flags = rec_kind_flags(op->kind);
    if (!(flags & (REC_KF_SEQ | REC_KF_P2P)) || op->comm == REC_ID_NONE || (op->flags & REC_OF_NO_SEQ))
        return;
    uint64_t redop_hash;
    if (!rec_defs_redop_hash(&w->defs, op->redop, &redop_hash))
        return; /* the window stays incomplete: better no checkpoint than a wrong one */
    uint64_t first_seq = 0;
    if ((flags & REC_KF_SEQ) && op->seq < REC_CHECKPOINT_OPS) {
        const struct rec_comm_def *def = rec_defs_find_comm(&w->defs, op->comm);
        first_seq = def ? rec_first_seq(def->made_by) : 0;
    }
    struct checkpoint_context context = {w, op->exit_ns ? op->exit_ns : op->enter_ns};
    rec_tracks_op(&w->tracks, op->comm, (flags & REC_KF_P2P) ? op->peer : -1, op->kind == REC_SEND, first_seq,
                  op->seq, rec_signature(op->kind, op->count, op->dtype, redop_hash, op->peer),
                  put_checkpoint, &context);
}

static void put_batch(struct rec_writer *w, const struct rec_op *ops, size_t count)
{
    bool ready = rec_segment_room(w, REC_BATCH_ROOM);
    if (ready && w->piece_ops + count > REC_WIRE_PIECE_OPS_MAX)
        ready = rec_segment_write(w, false);
    if (ready && !rec_ops_fits(&w->coder))
        ready = rec_segment_write(w, true) && rec_segment_room(w, REC_BATCH_ROOM);
    if (!ready || !introduce(w, &(struct named){ops, count, NULL}, REC_BATCH_ROOM)) {
        rec_segment_lose(w, ops[0].thread, ops[0].ordinal, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        rec_note_time(w, ops[i].enter_ns);
        rec_note_time(w, ops[i].exit_ns);
    }
    rec_raw_take(w, rec_ops_encode(&w->coder, rec_raw_end(w), &w->time, ops, count));
    w->piece_ops += (uint32_t)count;
    struct rec_loss loss = {
        .thread = ops[0].thread, .first_ordinal = ops[0].ordinal, .count = count, .why = REC_LOSS_WRITE};
    rec_losses_add(&w->piece, 0, &loss);
}

void rec_writer_ops(struct rec_writer *w, const struct rec_op *ops, size_t count)
{
    if (count)
        rec_defs_touch_thread(&w->defs, ops[0].thread);
    for (size_t done = 0; done < count;) {
        size_t n = 1;
        while (n < REC_BATCH_OPS && done + n < count && ops[done + n].thread == ops[done].thread &&
               ops[done + n].ordinal == ops[done].ordinal + n)
            n++;
        put_batch(w, ops + done, n);
        done += n;
    }
    for (size_t i = 0; i < count; i++)
        track(w, &ops[i]);
}
