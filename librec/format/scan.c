#include "format/scan.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define READ_AHEAD    ((size_t)256 << 10)
#define READ_FIRST    ((size_t)16 << 10) /* often nothing but the header is wanted */
#define RESYNC_WINDOW ((size_t)64 << 10)

/* ---- bytes ---- */

const uint8_t *rec_source_get(struct rec_source *source, uint64_t offset, size_t bytes)
{
    if (offset > source->size || bytes > source->size - offset || bytes > REC_SOURCE_BUFFER)
        return NULL;
    if (source->fd < 0)
        return source->memory + offset;
    if (offset >= source->start && offset + bytes <= source->start + source->filled)
        return source->buffer + (offset - source->start);
    size_t ahead = source->filled ? READ_AHEAD : READ_FIRST;
    size_t want = bytes > ahead ? bytes : ahead;
    if (want > source->size - offset)
        want = (size_t)(source->size - offset);
    source->start = offset;
    source->filled = 0;
    while (source->filled < want) {
        ssize_t n = pread(source->fd, source->buffer + source->filled, want - source->filled,
                          (off_t)(offset + source->filled));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            source->error = errno;
            return NULL;
        }
        if (n == 0) { /* it became shorter while we read */
            source->size = offset + source->filled;
            break;
        }
        source->filled += (size_t)n;
    }
    return source->filled >= bytes ? source->buffer : NULL;
}

/* ---- one piece ---- */

enum found { FOUND_NOTHING, FOUND_PIECE, FOUND_CUT /* a header whose piece goes beyond the end */ };

static uint64_t end_of(const struct rec_piece *piece)
{
    return piece->offset + piece->header_bytes + piece->data_bytes;
}

static bool is_kind(uint32_t kind)
{
    return kind == REC_WIRE_SEGMENT || kind == REC_WIRE_PIECE || kind == REC_WIRE_INDEX;
}

static bool parse(const uint8_t *h, struct rec_piece *piece)
{
    piece->kind = rec_get32(h);
    if (!is_kind(piece->kind))
        return false;
    piece->header_bytes = piece->kind == REC_WIRE_SEGMENT ? REC_WIRE_SEGMENT_BYTES : REC_WIRE_PIECE_BYTES;
    piece->data_bytes = rec_get24(h + 8);
    piece->raw_bytes = rec_get24(h + 11);
    piece->sequence = rec_get32(h + 14);
    piece->ops = rec_get16(h + 18);
    piece->late_ms = rec_get24(h + 20);
    piece->early_bits = h[23];
    return piece->data_bytes <= REC_WIRE_DATA_MAX && piece->raw_bytes <= REC_WIRE_RAW_MAX &&
           piece->early_bits <= 64;
}

static enum found look(struct rec_scan_state *scan, uint64_t offset, bool check, struct rec_piece *piece,
                       const uint8_t **data)
{
    const uint8_t *h = rec_source_get(&scan->source, offset, REC_WIRE_PIECE_BYTES);
    if (!h)
        return scan->source.error ? FOUND_NOTHING : FOUND_CUT;
    piece->offset = offset;
    if (!parse(h, piece))
        return FOUND_NOTHING;
    if (end_of(piece) > scan->source.size)
        return FOUND_CUT;
    if (piece->kind == REC_WIRE_SEGMENT) {
        h = rec_source_get(&scan->source, offset, REC_WIRE_SEGMENT_BYTES);
        if (!h)
            return FOUND_NOTHING;
        piece->base_ns = rec_get64(h + 24);
        piece->file_id = rec_get64(h + 32);
        piece->tick_ns = rec_get32(h + 40);
        piece->major = rec_get16(h + 44);
        if (piece->tick_ns == 0 || piece->major > REC_WIRE_MAJOR)
            return FOUND_NOTHING;
    }
    if (!check)
        return FOUND_PIECE;
    size_t total = piece->header_bytes + piece->data_bytes;
    h = rec_source_get(&scan->source, offset, total);
    if (!h || rec_crc_add(&scan->crc, 0, h + 8, total - 8) != rec_get32(h + 4))
        return FOUND_NOTHING;
    *data = h + piece->header_bytes;
    return FOUND_PIECE;
}

/* ---- damage ---- */

static void note_gap(struct rec_scan_state *scan, uint64_t offset)
{
    if (!scan->gap)
        scan->gap_offset = offset;
    scan->gap = true;
}

static void damage(struct rec_scan_state *scan, uint64_t offset, uint64_t bytes, const char *what)
{
    struct rec_reader_stats *stats = &scan->stats;
    if (stats->damages++ == 0) {
        stats->first_damage = offset;
        snprintf(stats->first_problem, sizeof(stats->first_problem), "%s at byte %llu", what,
                 (unsigned long long)offset);
    }
    stats->damaged_bytes += bytes;
    note_gap(scan, offset);
}

void rec_scan_reject(struct rec_scan_state *scan, const struct rec_piece *piece, const char *why)
{
    damage(scan, piece->offset, end_of(piece) - piece->offset, why);
    scan->in_segment = false;
}

/* The next place that reads "FR", as all magic numbers of pieces do. */
static uint64_t next_magic(struct rec_scan_state *scan, uint64_t from, uint64_t to)
{
    while (from + 2 <= to) {
        uint64_t left = to - from;
        size_t window = left < RESYNC_WINDOW ? (size_t)left : RESYNC_WINDOW;
        const uint8_t *p = rec_source_get(&scan->source, from, window);
        if (!p)
            return to;
        const uint8_t *hit = memmem(p, window, "FR", 2);
        if (hit)
            return from + (uint64_t)(hit - p);
        from += window - 1;
    }
    return to;
}

uint64_t rec_scan_resync(struct rec_scan_state *scan, uint64_t from, uint64_t to, bool segments_only)
{
    while ((from = next_magic(scan, from, to)) < to) {
        struct rec_piece piece;
        const uint8_t *data;
        if (look(scan, from, false, &piece, NULL) == FOUND_PIECE &&
            (!segments_only || piece.kind == REC_WIRE_SEGMENT)) {
            /* A hostile file may be full of headers that each claim a long piece. */
            uint64_t cost = end_of(&piece) - from;
            if (cost > scan->resync_budget)
                return to;
            scan->resync_budget -= cost;
            if (look(scan, from, true, &piece, &data) == FOUND_PIECE)
                return from;
        }
        from++;
    }
    return to;
}

/* Are the last bytes zero? A crash of the machine may leave a file longer than what was written. */
static bool zero_tail(struct rec_scan_state *scan)
{
    const size_t bytes = 8;
    uint64_t size = scan->source.size;
    const uint8_t *p = size >= bytes ? rec_source_get(&scan->source, size - bytes, bytes) : NULL;
    return p && rec_get64(p) == 0;
}

/* pos is no piece (broken: what its header says, if anything): goes to the next whole one, or to the end. */
static void skip_damage(struct rec_scan_state *scan, bool cut, const struct rec_piece *broken)
{
    uint64_t size = scan->source.size;
    uint64_t next = rec_scan_resync(scan, scan->pos + 1, size, false);
    /* The header is confirmed by a piece that begins where it says. */
    if (broken && next < size && next == end_of(broken))
        scan->lost_ops += broken->ops;
    if (next == size && (cut || zero_tail(scan)))
        scan->stats.torn_tail = true;
    else
        damage(scan, scan->pos, next - scan->pos, "unreadable data");
    scan->pos = next;
    scan->in_segment = false;
}

/* ---- pieces in order ---- */

static bool accept_segment(struct rec_scan_state *scan, const struct rec_piece *piece)
{
    const char *why = NULL;
    if (scan->file_id && piece->file_id != scan->file_id)
        why = "segment of another trace";
    else if (piece->sequence < scan->lowest_sequence)
        why = "segment that was there before";
    if (why) {
        damage(scan, piece->offset, end_of(piece) - piece->offset, why);
        scan->in_segment = false;
        return false;
    }
    scan->file_id = piece->file_id;
    scan->in_segment = true;
    scan->stats.segments++;
    return true;
}

static bool accept(struct rec_scan_state *scan, const struct rec_piece *piece)
{
    if (piece->kind == REC_WIRE_INDEX) {
        scan->in_segment = false;
        scan->stats.closed = scan->pos == scan->source.size;
        return false;
    }
    if (piece->kind == REC_WIRE_SEGMENT) {
        if (!accept_segment(scan, piece))
            return false;
    } else if (!scan->in_segment || piece->sequence != scan->next_sequence) {
        if (scan->in_segment)
            damage(scan, piece->offset, 0, "missing piece");
        scan->in_segment = false;
        scan->stats.damaged_bytes += end_of(piece) - piece->offset;
        scan->lost_ops += piece->ops;
        note_gap(scan, piece->offset);
        return false;
    }
    scan->next_sequence = piece->sequence + 1;
    scan->lowest_sequence = (uint64_t)piece->sequence + 1;
    scan->stats.pieces++;
    return true;
}

enum rec_code rec_scan_piece(struct rec_scan_state *scan, bool check, struct rec_piece *piece,
                             const uint8_t **data)
{
    while (scan->pos < scan->source.size) {
        piece->kind = 0;
        enum found found = look(scan, scan->pos, check, piece, data);
        if (scan->source.error)
            return REC_ERR_IO;
        if (found != FOUND_PIECE) {
            struct rec_piece broken = *piece;
            skip_damage(scan, found == FOUND_CUT, is_kind(broken.kind) ? &broken : NULL);
            continue;
        }
        scan->pos = end_of(piece);
        if (accept(scan, piece))
            return REC_OK;
    }
    return scan->source.error ? REC_ERR_IO : REC_END;
}

/* ---- the index ---- */

const uint8_t *rec_scan_index(struct rec_scan_state *scan, size_t *entries)
{
    struct rec_source *source = &scan->source;
    if (source->size < REC_WIRE_PIECE_BYTES + REC_WIRE_INDEX_FOOTER)
        return NULL;
    const uint8_t *footer =
        rec_source_get(source, source->size - REC_WIRE_INDEX_FOOTER, REC_WIRE_INDEX_FOOTER);
    if (!footer || memcmp(footer + 8, REC_WIRE_INDEX_MAGIC, 8) != 0)
        return NULL;
    uint64_t offset = rec_get64(footer);
    struct rec_piece piece;
    const uint8_t *data;
    if (look(scan, offset, true, &piece, &data) != FOUND_PIECE || piece.kind != REC_WIRE_INDEX ||
        end_of(&piece) != source->size || piece.data_bytes < REC_WIRE_INDEX_FOOTER)
        return NULL;
    size_t bytes = piece.data_bytes - REC_WIRE_INDEX_FOOTER;
    if (bytes % REC_WIRE_INDEX_ENTRY)
        return NULL;
    *entries = bytes / REC_WIRE_INDEX_ENTRY;
    /* Segments must fill the file without holes, else the index is not this file's. */
    uint64_t expect = scan->data_start;
    for (size_t i = 0; i < *entries; i++) {
        const uint8_t *entry = data + i * REC_WIRE_INDEX_ENTRY;
        if (rec_get64(entry) != expect || rec_get64(entry + 8) > source->size - expect)
            return NULL;
        expect += rec_get64(entry + 8);
    }
    return *entries && expect == offset ? data : NULL;
}
