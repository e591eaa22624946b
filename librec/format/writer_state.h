/*
 * The inside of a writer: defs.c keeps what every segment repeats, losses.c what could not
 * be written, segment.c makes pieces, segments and parts, writer.c takes the records.
 */
#ifndef REC_FORMAT_WRITER_STATE_H
#define REC_FORMAT_WRITER_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZSTD_STATIC_LINKING_ONLY /* ZSTD_initStaticCCtx: a context in memory of ours */
#include <zstd.h>

#include "format/checkpoint.h"
#include "format/crc.h"
#include "format/encode.h"
#include "format/notice.h"
#include "format/ops.h"
#include "format/part.h"
#include "format/wire.h"
#include "rec/writer.h"

#define REC_WRITER_RAW   ((size_t)256 << 10) /* uncompressed bytes of a piece at most */
#define REC_WRITER_OUT   (REC_WIRE_SEGMENT_BYTES + ZSTD_COMPRESSBOUND(REC_WRITER_RAW) + 64)
#define REC_WRITER_META  ((size_t)64 << 10)
#define REC_WRITER_INDEX 2048 /* segments of a part that the index can tell about */

/* ---- definitions ---- */

#define REC_DEFS_COMMS   1024
#define REC_DEFS_SETS    128 /* threads: sets of eight, the least recently used goes first */
#define REC_DEFS_WAYS    8
#define REC_DEFS_REDOPS  251
#define REC_DEFS_STREAMS 1024

struct rec_defs_comm {
    struct rec_comm_def def;
    struct rec_frontier frontier;
    uint64_t frontier_ns;
    bool used, has_frontier;
};

struct rec_defs_thread {
    struct rec_thread_def def;
    uint64_t used_at; /* 0 = free */
};

struct rec_defs {
    struct rec_defs_comm comms[REC_DEFS_COMMS];
    uint32_t comm_probe; /* no communicator lies further than this from its home place */
    struct rec_defs_thread threads[REC_DEFS_SETS][REC_DEFS_WAYS];
    uint64_t thread_clock;
    struct rec_redop_def redops[REC_DEFS_REDOPS];
    bool redop_used[REC_DEFS_REDOPS];
    struct rec_stream_def streams[REC_DEFS_STREAMS];
    bool stream_used[REC_DEFS_STREAMS];
    struct rec_gpu gpu[REC_DEFS_STREAMS];
    uint64_t gpu_ns[REC_DEFS_STREAMS]; /* 0 = nothing known */
};

void rec_defs_init(struct rec_defs *defs);
void rec_defs_comm(struct rec_defs *defs, const struct rec_comm_def *def);
void rec_defs_frontier(struct rec_defs *defs, uint64_t time_ns, const struct rec_frontier *frontier);
void rec_defs_gpu(struct rec_defs *defs, uint64_t time_ns, const struct rec_gpu *gpu);
void rec_defs_thread(struct rec_defs *defs, const struct rec_thread_def *def);
void rec_defs_redop(struct rec_defs *defs, const struct rec_redop_def *def);
void rec_defs_stream(struct rec_defs *defs, const struct rec_stream_def *def);
/* The thread is in use: do not forget it soon. */
void rec_defs_touch_thread(struct rec_defs *defs, uint32_t id);
/* NULL when unknown. */
const struct rec_comm_def *rec_defs_find_comm(const struct rec_defs *defs, uint32_t id);
/* False when the operator is a user's of which nothing is known. */
bool rec_defs_redop_hash(const struct rec_defs *defs, uint8_t redop, uint64_t *hash);

/* ---- call sites ---- */

#define REC_SITES_MAX   65536 /* numbers above get no definition */
#define REC_SITES_TEXTS 4096  /* of a segment; a site that needs more is left out */
#define REC_SITES_SLOTS 8192
_Static_assert(REC_SITES_TEXTS <= REC_WIRE_TEXTS_MAX, "as the format says");

/* What the segment has been told of call sites: which of them, and the texts that they share. */
struct rec_sites {
    rec_callsite_source *source; /* NULL = none */
    void *context;
    uint32_t segment; /* slots of other segments are free */
    uint32_t texts, text_bytes;
    uint64_t told[REC_SITES_MAX / 64];
    struct rec_sites_slot {
        uint64_t a, b; /* hash of the text */
        uint32_t number;
        uint32_t segment;
    } slots[REC_SITES_SLOTS];
};

void rec_sites_init(struct rec_sites *sites);
void rec_sites_reset(struct rec_sites *sites);
/*
 * Puts the definition of call site id unless the segment has it; what finds no room is left
 * out. Making room may start another segment (sites.segment changes).
 */
void rec_sites_put(struct rec_writer *w, uint32_t id);

/* Does the segment have it, or can it have no definition? For every op. */
static inline bool rec_sites_told(const struct rec_sites *sites, uint32_t id)
{
    return id == 0 || id >= REC_SITES_MAX || (sites->told[id / 64] >> (id % 64) & 1);
}

/* ---- losses ---- */

#define REC_LOSSES 256

struct rec_loss_entry {
    struct rec_loss loss;
    uint64_t time_ns;
    bool in_piece; /* written into the piece being built: forgotten when that is safe */
};

struct rec_losses {
    uint32_t count;
    struct rec_loss_entry entries[REC_LOSSES];
};

/* Adds to the list, merging with a neighbour; a full list keeps the count and forgets the thread. */
void rec_losses_add(struct rec_losses *losses, uint64_t time_ns, const struct rec_loss *loss);
/* The piece is safe in the file. */
void rec_losses_written(struct rec_losses *losses);
/* The piece is gone: its losses wait again. */
void rec_losses_failed(struct rec_losses *losses);

/* ---- the writer ---- */

/*
 * A communicator said to be destroyed. Ops that ran before may still be given for a while
 * (definitions overtake them), so its checkpoints end some flushes later.
 */
struct rec_ended {
    uint32_t comm;
    uint64_t due; /* number of flushes */
};
#define REC_ENDED         64
#define REC_ENDED_FLUSHES 3

struct rec_index_entry {
    uint64_t offset, bytes, first_ns, last_ns, ops;
};

struct rec_writer {
    struct rec_crc crc;
    uint32_t tick_ns;
    uint64_t max_bytes, part_bytes, segment_bytes;
    int level;

    struct rec_parts parts;
    uint64_t file_id;
    uint32_t part_number;
    size_t meta_bytes;
    char meta[REC_WRITER_META];

    /* the segment being written */
    bool open;         /* the trace has a file */
    bool segment;      /* a segment is open: raw belongs to it */
    bool starting;     /* none of its pieces is in the file yet */
    bool defining;     /* it is being given its definitions: not the moment to end it */
    uint32_t sequence; /* of the next piece, over all parts */
    struct rec_time time;
    struct rec_index_entry current;
    uint64_t first_piece_bytes;
    uint64_t base_ns;

    /* the piece being built */
    size_t raw_bytes;
    uint32_t piece_ops;
    uint64_t piece_min, piece_max; /* times in it, ns; min UINT64_MAX = none */
    struct rec_losses piece;       /* its ops as they would be lost */

    /* a finished piece in out that could not be written yet; records are refused meanwhile */
    size_t stuck_bytes; /* 0 = none */
    bool stuck_last;
    bool dropped; /* records were refused since the segment began */

    /* what could not be written */
    struct rec_losses losses;
    int error;
    uint32_t retry_in, retry_step; /* flushes until the next attempt */
    uint64_t last_ns;              /* latest time given */
    uint64_t pushed_ns;            /* when the system was last asked to write back */
    uint64_t ops, lost_ops;
    uint64_t held;          /* ops that the caller keeps because writing fails */
    struct rec_notice last; /* its end is what rec_writer_end was given; the rest is filled when written */
    bool end_waits;         /* the end found no room: only the notice can tell it */
    bool noticed;           /* the current part's header has a notice */

    uint64_t flushes;
    uint32_t ended_count;
    struct rec_ended ended[REC_ENDED];

    bool index_complete;
    uint32_t index_count;
    struct rec_index_entry index[REC_WRITER_INDEX]; /* from here on rec_writer_init clears nothing */

    struct rec_defs defs;
    struct rec_tracks tracks;
    struct rec_sites sites;
    struct rec_ops coder;
    ZSTD_CCtx *zstd;
    uint8_t raw[REC_WRITER_RAW];
    uint8_t out[REC_WRITER_OUT];
};

/* ---- parts, segments and pieces (segment.c) ---- */

/* Creates part number and writes its header; an errno value. */
int rec_segment_create_part(struct rec_writer *w, uint32_t number);
/* Ends the part with its index; an errno value. */
int rec_segment_write_index(struct rec_writer *w);
/* Makes room for bytes of records in an open segment, starting one if need be; false: drop them. */
bool rec_segment_room(struct rec_writer *w, size_t bytes);
/* Writes the piece that has been built; last ends the segment. False when it has to wait, or is lost. */
bool rec_segment_write(struct rec_writer *w, bool last);
/* Tries again to write the piece that waits, if its turn has come. True when none waits any more. */
bool rec_segment_retry(struct rec_writer *w);
/* Counts the piece that waits as lost. */
void rec_segment_give_up(struct rec_writer *w);
/* Is it time to end the segment? */
bool rec_segment_full(const struct rec_writer *w);
/* Puts the losses that wait into the piece; false when there is no room for them yet. */
bool rec_segment_put_losses(struct rec_writer *w);
/* Brings the notice in the part's header up to date, or takes it away when all is well. */
void rec_segment_notice(struct rec_writer *w);
/* Notes ops that never reach the file. */
void rec_segment_lose(struct rec_writer *w, uint32_t thread, uint64_t first_ordinal, uint64_t count);

/* Records go to the end of raw: encode at rec_raw_end, then take what was encoded. */
static inline uint8_t *rec_raw_end(struct rec_writer *w)
{
    return w->raw + w->raw_bytes;
}

static inline void rec_raw_take(struct rec_writer *w, const uint8_t *end)
{
    w->raw_bytes = (size_t)(end - w->raw);
}

/* A record that carries this time goes into the piece. */
static inline void rec_note_time(struct rec_writer *w, uint64_t time_ns)
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

#endif
