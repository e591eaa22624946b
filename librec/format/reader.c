#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "format/decode.h"
#include "format/notice.h"
#include "format/run.h"
#include "format/scan.h"
#include "rec/live.h"
#include "rec/reader.h"

#define SEGMENTS_MAX  ((size_t)1 << 20)
#define RESYNC_FACTOR 16                  /* times the file's size that looking for segments may read */
#define SALVAGE_BYTES ((uint64_t)4 << 20) /* without a header: how far to look for a segment */

struct rec_reader {
    char *path;
    struct rec_scan_state scan;
    ZSTD_DCtx *zstd;
    char *meta;
    uint32_t part, tick_ns;
    bool header_bad;
    bool at_end;
    struct rec_piece piece; /* the one being decoded */
    bool has_notice;
    struct rec_notice notice;
    int notice_given; /* events of it */
    struct rec_segment_info *segments;
    size_t nsegments;
    bool segments_known;
    struct rec_decoder decoder;
    uint8_t raw[REC_WIRE_RAW_MAX];
};

/* ---- opening ---- */

static enum rec_code set_meta(struct rec_reader *r, const char *meta, size_t bytes)
{
    char *copy = malloc(bytes + 1);
    if (!copy)
        return REC_ERR_NOMEM;
    memcpy(copy, meta, bytes);
    copy[bytes] = '\0';
    free(r->meta);
    r->meta = copy;
    return REC_OK;
}

/* An older header has no room for one. */
static void read_notice(struct rec_reader *r, uint32_t minor, uint32_t header_bytes)
{
    const uint8_t *bytes = NULL;
    if (minor >= REC_WIRE_NOTICE_MINOR && header_bytes >= REC_WIRE_META_AT)
        bytes = rec_source_get(&r->scan.source, REC_WIRE_NOTICE, REC_WIRE_NOTICE_BYTES);
    if (!bytes || rec_notice_is_none(bytes))
        return;
    r->has_notice = rec_notice_decode(&r->scan.crc, bytes, &r->notice);
    if (r->has_notice)
        return;
    struct rec_reader_stats *stats = &r->scan.stats;
    stats->damages = 1;
    stats->damaged_bytes = REC_WIRE_NOTICE_BYTES;
    stats->first_damage = REC_WIRE_NOTICE;
    strcpy(stats->first_problem, "notice in the header damaged");
}

/* REC_ERR_CORRUPT: look for a segment instead. */
static enum rec_code read_header(struct rec_reader *r, struct rec_error *err)
{
    struct rec_source *source = &r->scan.source;
    const uint8_t *h = rec_source_get(source, 0, REC_WIRE_HEADER_BYTES);
    if (!h || memcmp(h, REC_WIRE_FILE_MAGIC, 8) != 0 ||
        rec_crc_add(&r->scan.crc, 0, h, 60) != rec_get32(h + 60))
        return REC_ERR_CORRUPT;
    uint32_t major = rec_get16(h + 8), minor = rec_get16(h + 10);
    if (major > REC_WIRE_MAJOR)
        return rec_error_set(err, REC_ERR_VERSION, r->path, 8,
                             "trace format %u is newer than this program (%u)", major, REC_WIRE_MAJOR);
    uint32_t header_bytes = rec_get32(h + 16), meta_bytes = rec_get32(h + 20);
    uint32_t meta_crc = rec_get32(h + 56);
    r->part = rec_get32(h + 24);
    r->tick_ns = rec_get32(h + 28);
    r->scan.file_id = rec_get64(h + 32);
    if (rec_get32(h + 12) != REC_WIRE_BYTE_ORDER || header_bytes < REC_WIRE_HEADER_BYTES ||
        header_bytes > REC_WIRE_META_MAX || meta_bytes > REC_WIRE_META_MAX || r->tick_ns == 0)
        return REC_ERR_CORRUPT;
    r->scan.data_start = (uint64_t)header_bytes + meta_bytes;
    read_notice(r, minor, header_bytes);
    const uint8_t *meta = rec_source_get(source, header_bytes, meta_bytes);
    if (!meta || rec_crc_add(&r->scan.crc, 0, meta, meta_bytes) != meta_crc)
        return REC_ERR_CORRUPT;
    return set_meta(r, (const char *)meta, meta_bytes);
}

/* The header is unusable: every segment repeats what it says, except the part number. */
static enum rec_code salvage_header(struct rec_reader *r, struct rec_error *err)
{
    struct rec_scan_state *scan = &r->scan;
    const uint8_t *h = rec_source_get(&scan->source, 0, 8);
    bool ours = h && memcmp(h, REC_WIRE_FILE_MAGIC, 8) == 0;
    uint64_t limit = scan->source.size < SALVAGE_BYTES ? scan->source.size : SALVAGE_BYTES;
    uint64_t found = rec_scan_resync(scan, 0, limit, true);
    if (found == limit && scan->source.error)
        return rec_error_set(err, REC_ERR_IO, r->path, 0, "%s", strerror(scan->source.error));
    if (found == limit)
        return ours ? rec_error_set(err, REC_ERR_CORRUPT, r->path, 0,
                                    "header damaged and no whole segment found")
                    : rec_error_set(err, REC_ERR_FORMAT, r->path, 0, "not a trace");
    scan->data_start = found;
    scan->pos = found;
    scan->file_id = 0;
    r->header_bad = true;
    /* Reads until the metadata record, which comes first in a segment, then goes back. */
    struct rec_event event;
    enum rec_code code = rec_reader_next(r, &event, err);
    if (code != REC_OK && code != REC_END)
        return code;
    if (!r->meta)
        return rec_error_set(err, REC_ERR_CORRUPT, r->path, 0, "header damaged");
    return REC_OK;
}

static void rewind_to(struct rec_reader *r, uint64_t offset)
{
    r->scan.pos = offset;
    r->scan.in_segment = false;
    r->scan.lowest_sequence = 0;
    r->scan.gap = false;
    r->scan.lost_ops = 0;
    r->at_end = false;
    r->notice_given = 0;
    rec_decoder_piece(&r->decoder, r->raw, 0);
}

static enum rec_code start(struct rec_reader *r, struct rec_error *err)
{
    struct rec_scan_state *scan = &r->scan;
    rec_crc_init(&scan->crc);
    scan->resync_budget = RESYNC_FACTOR * (scan->source.size + SALVAGE_BYTES);
    if (scan->source.size == 0)
        return rec_error_set(err, REC_ERR_FORMAT, r->path, 0, "empty file");
    enum rec_code code = read_header(r, err);
    if (code == REC_ERR_CORRUPT) {
        code = salvage_header(r, err);
        if (code == REC_OK) {
            memset(&scan->stats, 0, sizeof(scan->stats));
            scan->stats.damages = 1;
            scan->stats.damaged_bytes = scan->data_start;
            strcpy(scan->stats.first_problem, "header damaged");
        }
    }
    if (code == REC_ERR_NOMEM)
        return rec_error_set(err, REC_ERR_NOMEM, r->path, 0, "no memory");
    if (code != REC_OK)
        return code;
    scan->stats.file_bytes = scan->source.size;
    rewind_to(r, scan->data_start);
    return REC_OK;
}

static struct rec_reader *allocate(const char *path)
{
    struct rec_reader *r = malloc(sizeof(*r));
    if (!r)
        return NULL;
    memset(r, 0, offsetof(struct rec_reader, decoder));
    rec_decoder_init(&r->decoder);
    r->scan.source.fd = -1;
    r->path = strdup(path ? path : "");
    if (!r->path) {
        free(r);
        return NULL;
    }
    return r;
}

static enum rec_code finish_open(struct rec_reader *r, struct rec_reader **reader, struct rec_error *err)
{
    enum rec_code code = start(r, err);
    if (code != REC_OK) {
        rec_reader_close(r);
        r = NULL;
    }
    *reader = r;
    return code;
}

enum rec_code rec_reader_open(const char *path, struct rec_reader **reader, struct rec_error *err)
{
    *reader = NULL;
    struct rec_reader *r = allocate(path);
    uint8_t *buffer = malloc(REC_SOURCE_BUFFER);
    if (!r || !buffer) {
        free(buffer);
        rec_reader_close(r);
        return rec_error_set(err, REC_ERR_NOMEM, path, 0, "no memory");
    }
    struct rec_source *source = &r->scan.source;
    source->buffer = buffer;
    /* Not blocking: a pipe of that name must not stop us. */
    source->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (source->fd < 0 || fstat(source->fd, &st) != 0) {
        int error = errno;
        rec_reader_close(r);
        return rec_error_set(err, REC_ERR_IO, path, 0, "%s", strerror(error));
    }
    if (!S_ISREG(st.st_mode)) {
        rec_reader_close(r);
        return rec_error_set(err, REC_ERR_FORMAT, path, 0, "not a regular file");
    }
    source->size = (uint64_t)st.st_size;
    return finish_open(r, reader, err);
}

enum rec_code rec_reader_open_memory(const void *data, size_t bytes, const char *name,
                                     struct rec_reader **reader, struct rec_error *err)
{
    *reader = NULL;
    struct rec_reader *r = allocate(name);
    if (!r)
        return rec_error_set(err, REC_ERR_NOMEM, name, 0, "no memory");
    r->scan.source.memory = data;
    r->scan.source.size = bytes;
    return finish_open(r, reader, err);
}

void rec_reader_close(struct rec_reader *r)
{
    if (!r)
        return;
    if (r->scan.source.fd >= 0)
        close(r->scan.source.fd);
    free(r->scan.source.buffer);
    ZSTD_freeDCtx(r->zstd);
    rec_decoder_fini(&r->decoder);
    free(r->segments);
    free(r->meta);
    free(r->path);
    free(r);
}

const char *rec_reader_meta(const struct rec_reader *r)
{
    return r->meta;
}

uint32_t rec_reader_part(const struct rec_reader *r)
{
    return r->part;
}

uint32_t rec_reader_tick_ns(const struct rec_reader *r)
{
    return r->tick_ns;
}

void rec_reader_stats(const struct rec_reader *r, struct rec_reader_stats *stats)
{
    *stats = r->scan.stats;
}

/* ---- reading ---- */

/* Made when the first piece is read: many readers only look at the header. */
static bool make_zstd(struct rec_reader *r)
{
    if (r->zstd)
        return true;
    r->zstd = ZSTD_createDCtx();
    if (r->zstd)
        ZSTD_DCtx_setParameter(r->zstd, ZSTD_d_windowLogMax, REC_WIRE_WINDOW_LOG);
    return r->zstd != NULL;
}

/* Decompresses one piece; all of its data must give exactly what the header says. */
static bool inflate(struct rec_reader *r, const struct rec_piece *piece, const uint8_t *data)
{
    ZSTD_inBuffer in = {data, piece->data_bytes, 0};
    ZSTD_outBuffer out = {r->raw, piece->raw_bytes, 0};
    for (;;) {
        size_t in_before = in.pos, out_before = out.pos;
        size_t left = ZSTD_decompressStream(r->zstd, &out, &in);
        if (ZSTD_isError(left))
            return false;
        if (in.pos == in.size && out.pos == out.size)
            return true;
        if (left == 0 || (in.pos == in_before && out.pos == out_before))
            return false;
    }
}

static enum rec_code io_error(struct rec_reader *r, struct rec_error *err)
{
    r->at_end = true;
    return rec_error_set(err, REC_ERR_IO, r->path, r->scan.pos, "%s", strerror(r->scan.source.error));
}

/* Loads the next usable piece. */
static enum rec_code next_piece(struct rec_reader *r, struct rec_error *err)
{
    struct rec_piece piece;
    const uint8_t *data;
    if (!make_zstd(r)) {
        r->at_end = true;
        return rec_error_set(err, REC_ERR_NOMEM, r->path, r->scan.pos, "no memory");
    }
    for (;;) {
        enum rec_code code = rec_scan_piece(&r->scan, true, &piece, &data);
        if (code == REC_ERR_IO)
            return io_error(r, err);
        if (code != REC_OK) {
            r->at_end = true;
            return code;
        }
        if (piece.kind == REC_WIRE_SEGMENT) {
            ZSTD_DCtx_reset(r->zstd, ZSTD_reset_session_only);
            rec_decoder_segment(&r->decoder, piece.tick_ns);
            if (r->header_bad)
                r->tick_ns = piece.tick_ns;
        }
        if (inflate(r, &piece, data))
            break;
        r->scan.lost_ops += piece.ops;
        rec_scan_reject(&r->scan, &piece, "piece that does not decompress");
    }
    r->piece = piece;
    rec_decoder_piece(&r->decoder, r->raw, piece.raw_bytes);
    return REC_OK;
}

/* Tells of what was skipped before going on. */
static bool give_gap(struct rec_reader *r, struct rec_event *event)
{
    if (!r->scan.gap)
        return false;
    memset(event, 0, sizeof(*event));
    event->type = REC_EV_LOSS;
    event->time_ns = r->decoder.last_ns;
    event->offset = r->scan.gap_offset;
    event->u.loss.thread = REC_ID_NONE;
    event->u.loss.count = r->scan.lost_ops;
    event->u.loss.why = REC_LOSS_DAMAGED;
    r->scan.gap = false;
    r->scan.lost_ops = 0;
    return true;
}

/* In place of the records that could not be written; pieces that came after all make it void. */
static bool give_notice(struct rec_reader *r, struct rec_event *event)
{
    const struct rec_notice *notice = &r->notice;
    if (!r->has_notice || r->scan.lowest_sequence > notice->sequence)
        return false;
    struct rec_reader_stats *stats = &r->scan.stats;
    stats->unwritten = true;
    stats->write_error = (int32_t)notice->error;
    stats->unwritten_ops = notice->ops;
    for (;;) {
        *event = (struct rec_event){.notice = true, .offset = REC_WIRE_NOTICE, .time_ns = notice->time_ns};
        switch (r->notice_given++) {
        case 0:
            event->type = REC_EV_HEARTBEAT;
            return true;
        case 1:
            event->type = REC_EV_LOSS;
            event->u.loss =
                (struct rec_loss){.thread = REC_ID_NONE, .count = notice->ops, .why = REC_LOSS_WRITE};
            if (notice->ops)
                return true;
            break;
        case 2:
            event->type = REC_EV_END;
            event->time_ns = notice->end_ns;
            event->u.end = (struct rec_end){.reason = notice->end_reason,
                                            .status = notice->end_status,
                                            .signal = notice->end_signal,
                                            .tid = notice->end_tid};
            if (notice->end_reason != REC_END_NONE)
                return true;
            break;
        default:
            r->notice_given = 3;
            return false;
        }
    }
}

/* What the decoder gives, with its failures turned into damage; REC_END: it needs another piece. */
static enum rec_code decode(struct rec_reader *r, struct rec_event *event, struct rec_error *err)
{
    enum rec_code code = rec_decoder_next(&r->decoder, event);
    if (r->decoder.meta && !r->meta && set_meta(r, r->decoder.meta, r->decoder.meta_bytes) != REC_OK)
        code = REC_ERR_NOMEM;
    switch (code) {
    case REC_OK:
        event->offset = r->piece.offset;
        event->notice = false;
        r->scan.stats.ops += event->type == REC_EV_OP;
        return REC_OK;
    case REC_END:
        return REC_END;
    case REC_ERR_NOMEM:
        r->at_end = true;
        rec_decoder_piece(&r->decoder, r->raw, 0);
        return rec_error_set(err, REC_ERR_NOMEM, r->path, r->piece.offset, "no memory");
    default:
        rec_decoder_piece(&r->decoder, r->raw, 0);
        rec_scan_reject(&r->scan, &r->piece, "impossible record");
        return REC_END;
    }
}

enum rec_code rec_reader_next(struct rec_reader *r, struct rec_event *event, struct rec_error *err)
{
    for (;;) {
        enum rec_code code = decode(r, event, err);
        if (code != REC_END)
            return code;
        if (r->at_end)
            return give_gap(r, event) || give_notice(r, event) ? REC_OK : REC_END;
        code = next_piece(r, err);
        if (code != REC_OK && code != REC_END)
            return code;
        if (give_gap(r, event))
            return REC_OK;
    }
}

const struct rec_op *rec_reader_run(const struct rec_reader *r, size_t *count)
{
    *count = r->decoder.batch - r->decoder.batch_next;
    return *count ? &r->decoder.ops[r->decoder.batch_next] : NULL;
}

void rec_reader_take_run(struct rec_reader *r, size_t count)
{
    struct rec_decoder *d = &r->decoder;
    d->batch_next += (uint32_t)count;
    r->scan.stats.ops += count;
    for (size_t i = 1; i <= count; i++) {
        if (!d->ops[d->batch_next - i].exit_ns)
            continue;
        d->last_ns = d->ops[d->batch_next - i].exit_ns;
        break;
    }
}

/* ---- segments ---- */

static void from_index(struct rec_segment_info *info, const uint8_t *entry)
{
    *info = (struct rec_segment_info){.offset = rec_get64(entry),
                                      .bytes = rec_get64(entry + 8),
                                      .first_ns = rec_get64(entry + 16),
                                      .last_ns = rec_get64(entry + 24),
                                      .ops = rec_get64(entry + 32)};
}

static void add_piece(struct rec_segment_info *info, uint64_t base_ns, const struct rec_piece *piece)
{
    uint64_t late = (uint64_t)piece->late_ms * 1000000, early = UINT64_MAX;
    if (piece->early_bits < 44) /* 2^44 ms are 2^64 ns and more */
        early = (((uint64_t)1 << piece->early_bits) - 1) * 1000000;
    uint64_t first = early < base_ns ? base_ns - early : 0;
    uint64_t last =
        piece->late_ms == REC_WIRE_LAST_UNKNOWN || late > UINT64_MAX - base_ns ? UINT64_MAX : base_ns + late;
    if (first < info->first_ns)
        info->first_ns = first;
    if (last > info->last_ns)
        info->last_ns = last;
    info->ops += piece->ops;
    info->bytes = piece->offset + piece->header_bytes + piece->data_bytes - info->offset;
}

/* Hops over piece headers without looking at what is in them. */
static enum rec_code hop(struct rec_reader *r, struct rec_segment_info **segments, size_t *count)
{
    size_t room = 0;
    uint64_t base_ns = 0;
    struct rec_piece piece;
    enum rec_code code;
    while ((code = rec_scan_piece(&r->scan, false, &piece, NULL)) == REC_OK) {
        if (piece.kind == REC_WIRE_SEGMENT) {
            if (*count == SEGMENTS_MAX)
                return REC_ERR_LIMIT;
            if (*count == room) {
                room = room ? 2 * room : 64;
                struct rec_segment_info *more = realloc(*segments, room * sizeof(*more));
                if (!more)
                    return REC_ERR_NOMEM;
                *segments = more;
            }
            base_ns = piece.base_ns;
            (*segments)[(*count)++] =
                (struct rec_segment_info){.offset = piece.offset, .first_ns = UINT64_MAX};
        }
        add_piece(&(*segments)[*count - 1], base_ns, &piece);
    }
    return code == REC_END ? REC_OK : code;
}

static enum rec_code find_segments(struct rec_reader *r)
{
    size_t entries;
    const uint8_t *index = rec_scan_index(&r->scan, &entries);
    if (index) {
        r->segments = malloc(entries * sizeof(*r->segments));
        if (!r->segments)
            return REC_ERR_NOMEM;
        for (size_t i = 0; i < entries; i++)
            from_index(&r->segments[i], index + i * REC_WIRE_INDEX_ENTRY);
        r->nsegments = entries;
        r->scan.stats.closed = true;
        return REC_OK;
    }
    /* Reading stands where it stood; only the read-ahead has moved. */
    struct rec_scan_state before = r->scan;
    r->scan.pos = r->scan.data_start;
    r->scan.in_segment = false;
    r->scan.lowest_sequence = 0;
    enum rec_code code = hop(r, &r->segments, &r->nsegments);
    before.source = r->scan.source;
    before.resync_budget = r->scan.resync_budget;
    r->scan = before;
    return code;
}

enum rec_code rec_reader_segments(struct rec_reader *r, const struct rec_segment_info **segments,
                                  size_t *count, struct rec_error *err)
{
    if (!r->segments_known) {
        enum rec_code code = find_segments(r);
        if (code == REC_ERR_IO)
            return io_error(r, err);
        if (code != REC_OK)
            return rec_error_set(err, code, r->path, 0,
                                 code == REC_ERR_LIMIT ? "more segments than a trace may have" : "no memory");
        r->segments_known = true;
    }
    *segments = r->segments;
    *count = r->nsegments;
    return REC_OK;
}

enum rec_code rec_reader_seek(struct rec_reader *r, size_t segment, struct rec_error *err)
{
    const struct rec_segment_info *segments = NULL;
    size_t count = 0;
    enum rec_code code = rec_reader_segments(r, &segments, &count, err);
    if (code != REC_OK)
        return code;
    if (segment >= count)
        return rec_error_set(err, REC_ERR_ARG, r->path, 0, "no segment %llu", (unsigned long long)segment);
    rewind_to(r, segments[segment].offset);
    return REC_OK;
}
