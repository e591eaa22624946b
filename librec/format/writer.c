#include "format/writer_state.h"

#include <errno.h>
#include <string.h>

#include "rec/live.h"
#include "rec/model.h"

#define MIB                  ((uint64_t)1 << 20)
#define DEFAULT_TICK_NS      64
#define DEFAULT_SEGMENT      MIB
#define PARTS_OF_LIMIT       8 /* a rotation forgets an eighth of what may be kept */
#define SEGMENTS_OF_PART     4 /* at least, so that parts come out nearly full */
#define SEGMENT_AGE_NS       UINT64_C(300000000000)
#define MAX_WINDOW_LOG       19 /* of zstd: half a MiB of history in the job's memory */
#define MAX_TABLE_LOG        17
#define MAX_RETRY_STEP       16 /* flushes */
#define MAX_PART_NUMBER_SKIP 100

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
    w->max_bytes = config->max_bytes && config->max_bytes < MIB ? MIB : config->max_bytes;
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

/* ---- parts ---- */

/* Keeps all parts below the limit; what goes with a part is a loss that readers can tell from absence. */
static void make_room(struct rec_writer *w, size_t bytes)
{
    uint64_t gone = 0;
    while (w->max_bytes && rec_parts_total(&w->parts) + bytes > w->max_bytes)
        if (!rec_parts_drop_oldest(&w->parts, &gone))
            break;
    if (gone) {
        struct rec_loss loss = {.thread = REC_ID_NONE, .count = gone, .why = REC_LOSS_ROTATED};
        rec_losses_add(&w->losses, w->last_ns, &loss);
    }
}

static int append(struct rec_writer *w, const void *data, size_t bytes)
{
    make_room(w, bytes);
    return rec_parts_append(&w->parts, data, bytes);
}

static int write_header(struct rec_writer *w)
{
    uint8_t *h = w->out;
    memset(h, 0, REC_WIRE_HEADER_BYTES);
    memcpy(h, REC_WIRE_FILE_MAGIC, 8);
    rec_put16(h + 8, REC_WIRE_MAJOR);
    rec_put16(h + 10, REC_WIRE_MINOR);
    rec_put32(h + 12, REC_WIRE_BYTE_ORDER);
    rec_put32(h + 16, REC_WIRE_HEADER_BYTES);
    rec_put32(h + 20, (uint32_t)w->meta_bytes);
    rec_put32(h + 24, w->part_number);
    rec_put32(h + 28, w->tick_ns);
    rec_put64(h + 32, w->file_id);
    rec_put32(h + 56, rec_crc_add(&w->crc, 0, w->meta, w->meta_bytes));
    rec_put32(h + 60, rec_crc_add(&w->crc, 0, h, 60));
    memcpy(h + REC_WIRE_HEADER_BYTES, w->meta, w->meta_bytes);
    return append(w, h, REC_WIRE_HEADER_BYTES + w->meta_bytes);
}

static int create_part(struct rec_writer *w, uint32_t number)
{
    int error = rec_parts_create(&w->parts, number);
    if (error)
        return error;
    w->part_number = number;
    w->index_count = 0;
    w->index_complete = true;
    error = write_header(w);
    if (error)
        rec_parts_remove_current(&w->parts);
    return error;
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
        w->error = create_part(w, 0);
    if (w->error)
        return report(w, err);
    w->open = true;
    return REC_OK;
}

/* The index is a shortcut only: a part is complete without it. */
static int write_index(struct rec_writer *w)
{
    uint32_t count = w->index_complete ? w->index_count : 0;
    uint32_t data_bytes = count * REC_WIRE_INDEX_ENTRY + REC_WIRE_INDEX_FOOTER;
    _Static_assert(REC_WRITER_INDEX * REC_WIRE_INDEX_ENTRY + 64 < REC_WRITER_OUT,
                   "the index fits the buffer");
    uint8_t *p = w->out + REC_WIRE_PIECE_BYTES;
    for (uint32_t i = 0; i < count; i++, p += REC_WIRE_INDEX_ENTRY) {
        const struct rec_index_entry *entry = &w->index[i];
        rec_put64(p, entry->offset);
        rec_put64(p + 8, entry->bytes);
        rec_put64(p + 16, entry->first_ns);
        rec_put64(p + 24, entry->last_ns);
        rec_put64(p + 32, entry->ops);
    }
    rec_put64(p, rec_parts_current(&w->parts)->bytes);
    memcpy(p + 8, REC_WIRE_INDEX_MAGIC, 8);
    uint8_t *h = w->out;
    memset(h, 0, REC_WIRE_PIECE_BYTES);
    rec_put32(h, REC_WIRE_INDEX);
    rec_put24(h + 8, data_bytes);
    rec_put32(h + 14, w->sequence++);
    rec_put32(h + 4, rec_crc_add(&w->crc, 0, h + 8, REC_WIRE_PIECE_BYTES - 8 + data_bytes));
    return append(w, h, REC_WIRE_PIECE_BYTES + data_bytes);
}

static int rotate(struct rec_writer *w)
{
    (void)write_index(w);
    int error = EEXIST;
    for (uint32_t skip = 1; error == EEXIST && skip <= MAX_PART_NUMBER_SKIP; skip++)
        error = create_part(w, w->part_number + skip);
    return error;
}

/* ---- losing ---- */

static void lose(struct rec_writer *w, uint32_t thread, uint64_t first_ordinal, uint64_t count)
{
    struct rec_loss loss = {
        .thread = thread, .first_ordinal = first_ordinal, .count = count, .why = REC_LOSS_WRITE};
    rec_losses_add(&w->losses, w->last_ns, &loss);
    w->lost_ops += count;
}

static void clear_piece(struct rec_writer *w)
{
    w->raw_bytes = 0;
    w->piece_ops = 0;
    w->piece.count = 0;
    w->piece_min = UINT64_MAX;
    w->piece_max = 0;
}

/* No further piece comes: what is in the file of it goes into the index. */
static void end_segment(struct rec_writer *w)
{
    w->segment = false;
    if (w->starting)
        return;
    if (w->index_count == REC_WRITER_INDEX) {
        w->index_complete = false;
        return;
    }
    if (w->current.first_ns == UINT64_MAX)
        w->current.first_ns = w->current.last_ns = w->base_ns;
    w->index[w->index_count++] = w->current;
}

/* Gives up the piece and its segment; the next attempt starts a new one. */
static void fail(struct rec_writer *w, int error)
{
    w->error = error;
    if (w->segment)
        end_segment(w);
    w->retry_step = w->retry_step ? w->retry_step * 2 : 1;
    if (w->retry_step > MAX_RETRY_STEP)
        w->retry_step = MAX_RETRY_STEP;
    w->retry_in = w->retry_step;
    rec_losses_failed(&w->losses);
    for (uint32_t i = 0; i < w->piece.count; i++) {
        const struct rec_loss *loss = &w->piece.entries[i].loss;
        lose(w, loss->thread, loss->first_ordinal, loss->count);
    }
    clear_piece(w);
}

/* ---- pieces ---- */

/* Compresses raw behind the header room; 0 = zstd failed. */
static size_t compress(struct rec_writer *w, size_t header, bool last)
{
    ZSTD_inBuffer in = {w->raw, w->raw_bytes, 0};
    ZSTD_outBuffer out = {w->out + header, sizeof(w->out) - header, 0};
    size_t left;
    do {
        left = ZSTD_compressStream2(w->zstd, &out, &in, last ? ZSTD_e_end : ZSTD_e_flush);
    } while (!ZSTD_isError(left) && left && out.pos < out.size);
    return left == 0 ? out.pos : 0;
}

static unsigned bit_length(uint64_t v)
{
    return v ? 64 - (unsigned)__builtin_clzll(v) : 0;
}

static void put_piece_header(struct rec_writer *w, size_t header, size_t data)
{
    uint8_t *h = w->out;
    uint64_t late = w->piece_max > w->base_ns ? (w->piece_max - w->base_ns + 999999) / 1000000 : 0;
    uint64_t early = w->piece_min < w->base_ns ? (w->base_ns - w->piece_min + 999999) / 1000000 : 0;
    rec_put32(h, w->starting ? REC_WIRE_SEGMENT : REC_WIRE_PIECE);
    rec_put24(h + 8, (uint32_t)data);
    rec_put24(h + 11, (uint32_t)w->raw_bytes);
    rec_put32(h + 14, w->sequence);
    rec_put16(h + 18, w->piece_ops);
    rec_put24(h + 20, late < REC_WIRE_LAST_UNKNOWN ? (uint32_t)late : REC_WIRE_LAST_UNKNOWN);
    h[23] = (uint8_t)bit_length(early);
    if (w->starting) {
        rec_put64(h + 24, w->base_ns);
        rec_put64(h + 32, w->file_id);
        rec_put32(h + 40, w->tick_ns);
        rec_put16(h + 44, REC_WIRE_MAJOR);
        rec_put16(h + 46, REC_WIRE_MINOR);
    }
    rec_put32(h + 4, rec_crc_add(&w->crc, 0, h + 8, header + data - 8));
}

static void count_piece(struct rec_writer *w, size_t bytes, bool last)
{
    struct rec_part *part = rec_parts_current(&w->parts);
    if (w->starting) {
        w->current = (struct rec_index_entry){.offset = part->bytes - bytes, .first_ns = UINT64_MAX};
        w->first_piece_bytes = bytes;
    }
    w->current.bytes += bytes;
    w->current.ops += w->piece_ops;
    if (w->piece_min < w->current.first_ns)
        w->current.first_ns = w->piece_min;
    if (w->piece_max > w->current.last_ns)
        w->current.last_ns = w->piece_max;
    part->ops += w->piece_ops;
    w->ops += w->piece_ops;
    w->sequence++;
    w->starting = false;
    w->error = 0;
    w->retry_step = 0;
    rec_losses_written(&w->losses);
    clear_piece(w);
    if (last)
        end_segment(w);
}

/* Writes what raw holds; last ends the segment. False when it is lost. */
static bool write_piece(struct rec_writer *w, bool last)
{
    if (w->raw_bytes == 0 && !last)
        return true;
    if (w->starting)
        w->base_ns = w->piece_min != UINT64_MAX ? w->piece_min : w->last_ns;
    size_t header = w->starting ? REC_WIRE_SEGMENT_BYTES : REC_WIRE_PIECE_BYTES;
    size_t data = compress(w, header, last);
    if (data == 0) {
        fail(w, EIO);
        return false;
    }
    put_piece_header(w, header, data);
    int error = append(w, w->out, header + data);
    if (error) {
        fail(w, error);
        return false;
    }
    count_piece(w, header + data, last);
    return true;
}

/* ---- segments ---- */

static bool begin_segment(struct rec_writer *w);

/* A segment ends when it is large, or old and large compared with what starting one costs. */
static bool is_full(const struct rec_writer *w)
{
    if (w->defining)
        return false;
    uint64_t bytes = w->current.bytes + w->raw_bytes / 2;
    if (bytes >= w->segment_bytes)
        return true;
    return !w->starting && w->last_ns > w->base_ns && w->last_ns - w->base_ns > SEGMENT_AGE_NS &&
           bytes > 16 * w->first_piece_bytes;
}

/* Makes room for bytes of records in an open segment; false when records must be dropped. */
static bool room(struct rec_writer *w, size_t bytes)
{
    if (!w->open || w->retry_in || (!w->segment && !begin_segment(w)))
        return false;
    if (w->raw_bytes + bytes <= sizeof(w->raw))
        return true;
    return write_piece(w, is_full(w)) && (w->segment || begin_segment(w));
}

static uint8_t *raw_end(struct rec_writer *w)
{
    return w->raw + w->raw_bytes;
}

static void take(struct rec_writer *w, const uint8_t *end)
{
    w->raw_bytes = (size_t)(end - w->raw);
}

/* A record that carries this time goes into the piece. */
static void note_time(struct rec_writer *w, uint64_t time_ns)
{
    if (!time_ns)
        return;
    if (time_ns < w->piece_min)
        w->piece_min = time_ns;
    if (time_ns > w->piece_max)
        w->piece_max = time_ns;
    if (time_ns > w->last_ns)
        w->last_ns = time_ns;
}

static struct rec_loss_entry *waiting_loss(struct rec_writer *w)
{
    for (uint32_t i = 0; i < w->losses.count; i++)
        if (!w->losses.entries[i].in_piece)
            return &w->losses.entries[i];
    return NULL;
}

static bool put_losses(struct rec_writer *w)
{
    while (waiting_loss(w)) {
        if (!room(w, REC_RECORD_ROOM))
            return false;
        /* Looked up again: making room may have moved it, or started a segment, which puts it itself. */
        struct rec_loss_entry *entry = waiting_loss(w);
        if (!entry)
            break;
        take(w, rec_encode_loss(raw_end(w), &w->time, entry->time_ns, &entry->loss));
        note_time(w, entry->time_ns);
        entry->in_piece = true;
    }
    return true;
}

static bool put_threads(struct rec_writer *w)
{
    for (int i = 0; i < REC_DEFS_SETS; i++) {
        for (int k = 0; k < REC_DEFS_WAYS; k++) {
            const struct rec_defs_thread *thread = &w->defs.threads[i][k];
            if (!thread->used_at)
                continue;
            if (!room(w, REC_RECORD_ROOM))
                return false;
            take(w, rec_encode_thread(raw_end(w), &thread->def));
        }
    }
    return true;
}

static bool put_comms(struct rec_writer *w)
{
    for (int i = 0; i < REC_DEFS_COMMS; i++) {
        const struct rec_defs_comm *comm = &w->defs.comms[i];
        if (!comm->used)
            continue;
        if (!room(w, 2 * REC_RECORD_ROOM))
            return false;
        take(w, rec_encode_comm(raw_end(w), &w->time, &comm->def));
        if (comm->has_frontier)
            take(w, rec_encode_frontier(raw_end(w), &w->time, comm->frontier_ns, &comm->frontier));
    }
    return true;
}

static bool put_small_defs(struct rec_writer *w)
{
    for (int i = 0; i < REC_DEFS_REDOPS; i++) {
        if (!w->defs.redop_used[i])
            continue;
        if (!room(w, REC_RECORD_ROOM))
            return false;
        take(w, rec_encode_redop(raw_end(w), &w->defs.redops[i]));
    }
    for (int i = 0; i < REC_DEFS_STREAMS; i++) {
        if (!w->defs.stream_used[i])
            continue;
        if (!room(w, REC_RECORD_ROOM))
            return false;
        take(w, rec_encode_stream(raw_end(w), &w->defs.streams[i]));
    }
    return true;
}

/* Starts a segment with everything that its records refer to. */
static bool begin_segment(struct rec_writer *w)
{
    uint64_t header = REC_WIRE_HEADER_BYTES + w->meta_bytes;
    uint64_t bytes = rec_parts_current(&w->parts)->bytes;
    clear_piece(w);
    if (w->max_bytes && bytes > header && bytes + w->segment_bytes > w->part_bytes) {
        int error = rotate(w);
        if (error) {
            fail(w, error);
            return false;
        }
    }
    ZSTD_CCtx_reset(w->zstd, ZSTD_reset_session_only);
    rec_ops_reset(&w->coder);
    w->time.clock = 0;
    w->segment = true;
    w->starting = true;
    w->current.bytes = 0;
    w->defining = true;
    take(w, rec_encode_meta(raw_end(w), w->meta, w->meta_bytes));
    bool done = put_threads(w) && put_comms(w) && put_small_defs(w) && put_losses(w);
    w->defining = false;
    return done;
}

struct checkpoint_context {
    struct rec_writer *writer;
    uint64_t time_ns;
};

static void put_checkpoint(void *context, const struct rec_checkpoint *checkpoint)
{
    const struct checkpoint_context *c = context;
    struct rec_writer *w = c->writer;
    if (!room(w, REC_RECORD_ROOM))
        return;
    take(w, rec_encode_checkpoint(raw_end(w), &w->time, c->time_ns, checkpoint));
    note_time(w, c->time_ns);
}

enum rec_code rec_writer_flush(struct rec_writer *w, struct rec_error *err)
{
    if (!w->open)
        return rec_error_set(err, REC_ERR_ARG, NULL, 0, "no file is open");
    if (w->retry_in && --w->retry_in)
        return report(w, err);
    if (w->losses.count && !put_losses(w))
        return report(w, err);
    if (w->segment && !write_piece(w, is_full(w)))
        return report(w, err);
    return REC_OK;
}

enum rec_code rec_writer_close(struct rec_writer *w, struct rec_error *err)
{
    if (!w->open)
        return rec_error_set(err, REC_ERR_ARG, NULL, 0, "no file is open");
    w->retry_in = 0;
    enum rec_code code = REC_OK;
    struct checkpoint_context context = {w, w->last_ns};
    rec_tracks_finish(&w->tracks, put_checkpoint, &context);
    /* A piece may push an old part out, which is one more loss to write. */
    for (int i = 0; i < 3 && code == REC_OK && w->losses.count; i++)
        code = rec_writer_flush(w, err);
    if (code == REC_OK && w->segment && !write_piece(w, true))
        code = report(w, err);
    if (code == REC_OK && (w->error = write_index(w)) != 0)
        code = report(w, err);
    rec_parts_close(&w->parts);
    w->open = false;
    return code;
}

void rec_writer_abandon(struct rec_writer *w)
{
    rec_parts_close(&w->parts);
    w->open = false;
}

void rec_writer_status(const struct rec_writer *w, struct rec_writer_status *status)
{
    *status = (struct rec_writer_status){
        .file_bytes = w->parts.written, .ops = w->ops, .lost_ops = w->lost_ops, .error = w->error};
}

/* ---- records ---- */

/*
 * A definition goes into the segment first and then into the table: a segment that starts
 * for it repeats the table, and would otherwise hold it twice.
 */
void rec_writer_comm(struct rec_writer *w, const struct rec_comm_def *def)
{
    if (room(w, REC_RECORD_ROOM))
        take(w, rec_encode_comm(raw_end(w), &w->time, def));
    rec_defs_comm(&w->defs, def);
    if (def->state == REC_LIVE_COMM_DESTROYED)
        rec_tracks_end(&w->tracks, def->id);
}

void rec_writer_thread(struct rec_writer *w, const struct rec_thread_def *def)
{
    if (room(w, REC_RECORD_ROOM))
        take(w, rec_encode_thread(raw_end(w), def));
    rec_defs_thread(&w->defs, def);
}

void rec_writer_redop(struct rec_writer *w, const struct rec_redop_def *def)
{
    if (room(w, REC_RECORD_ROOM))
        take(w, rec_encode_redop(raw_end(w), def));
    rec_defs_redop(&w->defs, def);
}

void rec_writer_stream(struct rec_writer *w, const struct rec_stream_def *def)
{
    if (room(w, REC_RECORD_ROOM))
        take(w, rec_encode_stream(raw_end(w), def));
    rec_defs_stream(&w->defs, def);
}

void rec_writer_frontier(struct rec_writer *w, uint64_t time_ns, const struct rec_frontier *frontier)
{
    if (room(w, REC_RECORD_ROOM)) {
        take(w, rec_encode_frontier(raw_end(w), &w->time, time_ns, frontier));
        note_time(w, time_ns);
    }
    rec_defs_frontier(&w->defs, time_ns, frontier);
}

void rec_writer_heartbeat(struct rec_writer *w, uint64_t time_ns)
{
    if (!room(w, REC_RECORD_ROOM))
        return;
    take(w, rec_encode_heartbeat(raw_end(w), &w->time, time_ns));
    note_time(w, time_ns);
}

void rec_writer_loss(struct rec_writer *w, uint64_t time_ns, const struct rec_loss *loss)
{
    rec_losses_add(&w->losses, time_ns, loss);
    (void)put_losses(w); /* what cannot be put now, waits */
}

#define LARGE_RECORD ((size_t)128 << 10)

void rec_writer_open_ops(struct rec_writer *w, uint64_t time_ns, const struct rec_op *ops, size_t count)
{
    if (!room(w, LARGE_RECORD))
        return;
    take(w, rec_encode_open(raw_end(w), LARGE_RECORD, &w->time, time_ns, ops, count));
    note_time(w, time_ns);
}

void rec_writer_stall(struct rec_writer *w, uint64_t time_ns, const struct rec_stall *stall)
{
    if (!room(w, LARGE_RECORD))
        return;
    take(w, rec_encode_stall(raw_end(w), LARGE_RECORD, &w->time, time_ns, stall));
    note_time(w, time_ns);
}

void rec_writer_end(struct rec_writer *w, uint64_t time_ns, const struct rec_end *end)
{
    w->retry_in = 0; /* the last chance */
    if (!room(w, LARGE_RECORD))
        return;
    take(w, rec_encode_end(raw_end(w), LARGE_RECORD, &w->time, time_ns, end));
    note_time(w, time_ns);
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
    bool ready = room(w, REC_BATCH_ROOM);
    if (ready && w->piece_ops + count > REC_WIRE_PIECE_OPS_MAX)
        ready = write_piece(w, false);
    if (ready && !rec_ops_fits(&w->coder))
        ready = write_piece(w, true) && room(w, REC_BATCH_ROOM);
    if (!ready) {
        lose(w, ops[0].thread, ops[0].ordinal, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        note_time(w, ops[i].enter_ns);
        note_time(w, ops[i].exit_ns);
    }
    take(w, rec_ops_encode(&w->coder, raw_end(w), &w->time, ops, count));
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
