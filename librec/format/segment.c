#include "format/writer_state.h"

#include <errno.h>
#include <string.h>

#include "rec/live.h"

#define SEGMENT_AGE_NS       UINT64_C(300000000000)
#define MAX_RETRY_STEP       16 /* flushes */
#define MAX_PART_NUMBER_SKIP 100
#define PUSH_NS              UINT64_C(2000000000)

/* ---- parts ---- */

/* Keeps all parts below the limit; what goes with a part is a loss that readers can tell from absence. */
static void drop_old_parts(struct rec_writer *w, size_t bytes)
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
    drop_old_parts(w, bytes);
    return rec_parts_append(&w->parts, data, bytes);
}

static int write_header(struct rec_writer *w)
{
    uint8_t *h = w->out;
    memset(h, 0, REC_WIRE_META_AT);
    memcpy(h, REC_WIRE_FILE_MAGIC, 8);
    rec_put16(h + 8, REC_WIRE_MAJOR);
    rec_put16(h + 10, REC_WIRE_MINOR);
    rec_put32(h + 12, REC_WIRE_BYTE_ORDER);
    rec_put32(h + 16, REC_WIRE_META_AT);
    rec_put32(h + 20, (uint32_t)w->meta_bytes);
    rec_put32(h + 24, w->part_number);
    rec_put32(h + 28, w->tick_ns);
    rec_put64(h + 32, w->file_id);
    rec_put32(h + 56, rec_crc_add(&w->crc, 0, w->meta, w->meta_bytes));
    rec_put32(h + 60, rec_crc_add(&w->crc, 0, h, 60));
    memcpy(h + REC_WIRE_META_AT, w->meta, w->meta_bytes);
    return append(w, h, REC_WIRE_META_AT + w->meta_bytes);
}

int rec_segment_create_part(struct rec_writer *w, uint32_t number)
{
    int error = rec_parts_create(&w->parts, number);
    if (error)
        return error;
    w->part_number = number;
    w->index_count = 0;
    w->index_complete = true;
    w->noticed = false;
    error = write_header(w);
    if (error)
        rec_parts_remove_current(&w->parts);
    return error;
}

/* The index is a shortcut only: a part is complete without it. */
int rec_segment_write_index(struct rec_writer *w)
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

/* ---- the notice ---- */

static void put_notice(struct rec_writer *w, bool wanted)
{
    uint8_t bytes[REC_WIRE_NOTICE_BYTES] = {0};
    if (!wanted && !w->noticed)
        return;
    if (wanted)
        rec_notice_encode(&w->crc, &w->last, bytes);
    w->noticed = true; /* half of it, perhaps */
    if (rec_parts_overwrite(&w->parts, REC_WIRE_NOTICE, bytes, sizeof(bytes)) == 0)
        w->noticed = wanted;
}

void rec_segment_notice(struct rec_writer *w)
{
    struct rec_notice *notice = &w->last;
    notice->error = (uint32_t)w->error;
    notice->sequence = w->sequence;
    notice->time_ns = w->last_ns;
    notice->ops = w->held + w->piece_ops;
    for (uint32_t i = 0; i < w->losses.count; i++)
        if (w->losses.entries[i].loss.why != REC_LOSS_ROTATED)
            notice->ops += w->losses.entries[i].loss.count;
    put_notice(w, w->error || w->held || w->end_waits);
}

static int rotate(struct rec_writer *w)
{
    (void)rec_segment_write_index(w);
    put_notice(w, false); /* it would outlive what it speaks of */
    int error = EEXIST;
    for (uint32_t skip = 1; error == EEXIST && skip <= MAX_PART_NUMBER_SKIP; skip++)
        error = rec_segment_create_part(w, w->part_number + skip);
    return error;
}

/* ---- losing ---- */

void rec_segment_lose(struct rec_writer *w, uint32_t thread, uint64_t first_ordinal, uint64_t count)
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

/* An attempt failed with this errno: waits longer each time. */
static void back_off(struct rec_writer *w, int error)
{
    w->error = error;
    w->retry_step = w->retry_step ? w->retry_step * 2 : 1;
    if (w->retry_step > MAX_RETRY_STEP)
        w->retry_step = MAX_RETRY_STEP;
    w->retry_in = w->retry_step;
    rec_segment_notice(w);
}

/* The piece is lost, and with it the rest of its segment: zstd's history has gone on. */
void rec_segment_give_up(struct rec_writer *w)
{
    w->stuck_bytes = 0;
    if (w->segment)
        end_segment(w);
    rec_losses_failed(&w->losses);
    for (uint32_t i = 0; i < w->piece.count; i++) {
        const struct rec_loss *loss = &w->piece.entries[i].loss;
        rec_segment_lose(w, loss->thread, loss->first_ordinal, loss->count);
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
    if (w->last_ns - w->pushed_ns >= PUSH_NS) { /* also when the clock stepped back */
        w->pushed_ns = w->last_ns;
        rec_parts_push(&w->parts);
    }
    if (last)
        end_segment(w);
}

/*
 * Appends the finished piece in out. When that fails it stays there for the next attempt:
 * a disk that is full for a moment costs nothing but what is given meanwhile.
 */
static bool deliver(struct rec_writer *w)
{
    size_t bytes = w->stuck_bytes;
    int error = append(w, w->out, bytes);
    if (error) {
        back_off(w, error);
        return false;
    }
    w->stuck_bytes = 0;
    count_piece(w, bytes, w->stuck_last);
    if (!w->end_waits)
        w->last.end_reason = REC_END_NONE; /* it is in the file */
    rec_segment_notice(w);
    /* Definitions may be among what was dropped: only a new segment has them all. */
    if (w->dropped && w->segment)
        end_segment(w);
    w->dropped = false;
    return true;
}

bool rec_segment_write(struct rec_writer *w, bool last)
{
    if (w->raw_bytes == 0 && !last)
        return true;
    if (w->starting)
        w->base_ns = w->piece_min != UINT64_MAX ? w->piece_min : w->last_ns;
    size_t header = w->starting ? REC_WIRE_SEGMENT_BYTES : REC_WIRE_PIECE_BYTES;
    size_t data = compress(w, header, last);
    if (data == 0) {
        back_off(w, EIO);
        rec_segment_give_up(w);
        return false;
    }
    put_piece_header(w, header, data);
    w->stuck_bytes = header + data;
    w->stuck_last = last;
    return deliver(w);
}

bool rec_segment_retry(struct rec_writer *w)
{
    if (w->retry_in && --w->retry_in)
        return false;
    return !w->stuck_bytes || deliver(w);
}

/* ---- segments ---- */

static bool begin_segment(struct rec_writer *w);

/* A segment ends when it is large, or old and large compared with what starting one costs. */
bool rec_segment_full(const struct rec_writer *w)
{
    if (w->defining)
        return false;
    uint64_t bytes = w->current.bytes + w->raw_bytes / 2;
    if (bytes >= w->segment_bytes)
        return true;
    return !w->starting && w->last_ns > w->base_ns && w->last_ns - w->base_ns > SEGMENT_AGE_NS &&
           bytes > 16 * w->first_piece_bytes;
}

static bool make_room_in_piece(struct rec_writer *w, size_t bytes)
{
    if (w->retry_in || (w->stuck_bytes && !deliver(w)) || (!w->segment && !begin_segment(w)))
        return false;
    if (w->raw_bytes + bytes <= sizeof(w->raw))
        return true;
    return rec_segment_write(w, rec_segment_full(w)) && (w->segment || begin_segment(w));
}

bool rec_segment_room(struct rec_writer *w, size_t bytes)
{
    if (!w->open)
        return false;
    if (make_room_in_piece(w, bytes))
        return true;
    w->dropped = true;
    return false;
}

static struct rec_loss_entry *waiting_loss(struct rec_writer *w)
{
    for (uint32_t i = 0; i < w->losses.count; i++)
        if (!w->losses.entries[i].in_piece)
            return &w->losses.entries[i];
    return NULL;
}

bool rec_segment_put_losses(struct rec_writer *w)
{
    while (waiting_loss(w)) {
        if (!rec_segment_room(w, REC_RECORD_ROOM))
            return false;
        /* Looked up again: making room may have moved it, or started a segment, which puts it itself. */
        struct rec_loss_entry *entry = waiting_loss(w);
        if (!entry)
            break;
        rec_raw_take(w, rec_encode_loss(rec_raw_end(w), &w->time, entry->time_ns, &entry->loss));
        rec_note_time(w, entry->time_ns);
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
            if (!rec_segment_room(w, REC_RECORD_ROOM))
                return false;
            rec_raw_take(w, rec_encode_thread(rec_raw_end(w), &thread->def));
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
        if (!rec_segment_room(w, 2 * REC_RECORD_ROOM))
            return false;
        rec_raw_take(w, rec_encode_comm(rec_raw_end(w), &w->time, &comm->def));
        if (comm->has_frontier)
            rec_raw_take(w,
                         rec_encode_frontier(rec_raw_end(w), &w->time, comm->frontier_ns, &comm->frontier));
    }
    return true;
}

static bool put_small_defs(struct rec_writer *w)
{
    for (int i = 0; i < REC_DEFS_REDOPS; i++) {
        if (!w->defs.redop_used[i])
            continue;
        if (!rec_segment_room(w, REC_RECORD_ROOM))
            return false;
        rec_raw_take(w, rec_encode_redop(rec_raw_end(w), &w->defs.redops[i]));
    }
    for (int i = 0; i < REC_DEFS_STREAMS; i++) {
        if (!w->defs.stream_used[i])
            continue;
        if (!rec_segment_room(w, 2 * REC_RECORD_ROOM))
            return false;
        rec_raw_take(w, rec_encode_stream(rec_raw_end(w), &w->defs.streams[i]));
        if (w->defs.gpu_ns[i])
            rec_raw_take(w, rec_encode_gpu(rec_raw_end(w), &w->time, w->defs.gpu_ns[i], &w->defs.gpu[i]));
    }
    return true;
}

/* Starts a segment with everything that its records refer to. */
static bool begin_segment(struct rec_writer *w)
{
    uint64_t header = REC_WIRE_META_AT + w->meta_bytes;
    uint64_t bytes = rec_parts_current(&w->parts)->bytes;
    clear_piece(w);
    if (w->max_bytes && bytes > header && bytes + w->segment_bytes > w->part_bytes) {
        int error = rotate(w);
        if (error) {
            back_off(w, error);
            return false;
        }
    }
    ZSTD_CCtx_reset(w->zstd, ZSTD_reset_session_only);
    rec_ops_reset(&w->coder);
    rec_sites_reset(&w->sites);
    w->time.clock = 0;
    w->segment = true;
    w->dropped = false;
    w->starting = true;
    w->current.bytes = 0;
    w->defining = true;
    rec_raw_take(w, rec_encode_meta(rec_raw_end(w), w->meta, w->meta_bytes));
    bool done = put_threads(w) && put_comms(w) && put_small_defs(w) && rec_segment_put_losses(w);
    w->defining = false;
    return done;
}
