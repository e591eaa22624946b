/*
 * Reading a .frec trace (docs/format.md).
 *
 * A reader streams: memory is bounded by the largest piece the format allows plus the
 * definitions, and does not grow with the file. It salvages: a damaged or truncated piece
 * costs that segment's rest at most; the reader reports the gap (as a REC_EV_LOSS event
 * with REC_LOSS_DAMAGED and in rec_reader_stats), finds the next whole segment and goes on.
 * Everything in the file is untrusted. One reader belongs to one thread at a time.
 */
#ifndef REC_READER_H
#define REC_READER_H

#include <stddef.h>
#include <stdint.h>

#include "rec/error.h"
#include "rec/event.h"

#pragma GCC visibility push(default)

struct rec_reader;

/*
 * Opens one part. REC_ERR_IO, REC_ERR_FORMAT (no trace), REC_ERR_VERSION (newer major
 * version), REC_ERR_CORRUPT (the header itself is damaged beyond use), REC_ERR_NOMEM.
 */
enum rec_code rec_reader_open(const char *path, struct rec_reader **reader,
                              struct rec_error *err) REC_WARN_UNUSED;
/* The same from memory, which stays the caller's and must outlive the reader. */
enum rec_code rec_reader_open_memory(const void *data, size_t bytes, const char *name,
                                     struct rec_reader **reader, struct rec_error *err) REC_WARN_UNUSED;
void rec_reader_close(struct rec_reader *reader); /* NULL is fine */

/* The header's JSON object, zero terminated; NULL bytes and invalid JSON are the consumer's problem. */
const char *rec_reader_meta(const struct rec_reader *reader);
uint32_t rec_reader_part(const struct rec_reader *reader);
uint32_t rec_reader_tick_ns(const struct rec_reader *reader);

/*
 * The next record in file order. REC_OK, REC_END, or REC_ERR_IO / REC_ERR_NOMEM, after
 * which the reader is at its end. Damage is no error. Ops of one thread come in ordinal
 * order; ops of different threads interleave by batches. Events that only the header tells, of what
 * could not be written (notice), come last: HEARTBEAT, LOSS, END. A segment repeats definitions:
 * taking the same definition twice must be harmless to the consumer.
 */
enum rec_code rec_reader_next(struct rec_reader *reader, struct rec_event *event, struct rec_error *err);

/*
 * What is known of the segments without decoding them: from the index, or by hopping over
 * piece headers. rec_reader_seek continues with segment i (0 … count-1).
 */
struct rec_segment_info {
    uint64_t offset, bytes;
    uint64_t first_ns, last_ns;
    uint64_t ops;
};
enum rec_code rec_reader_segments(struct rec_reader *reader, const struct rec_segment_info **segments,
                                  size_t *count, struct rec_error *err) REC_WARN_UNUSED;
enum rec_code rec_reader_seek(struct rec_reader *reader, size_t segment,
                              struct rec_error *err) REC_WARN_UNUSED;

/*
 * What was appended to a trace since somebody last looked, from the headers of its pieces alone,
 * which costs a fraction of reading it. *offset is 0 at first and moves behind the last whole piece;
 * what is still being written or damaged is looked at again the next time. A file that became
 * shorter or cannot be read has news of calls: whoever reads it will see. fd stays as it is.
 */
enum rec_news {
    REC_NEWS_NONE,
    REC_NEWS_ALIVE, /* heartbeats: the process lives, and nothing else */
    REC_NEWS_CALLS, /* anything else */
};
enum rec_news rec_trace_news(int fd, uint64_t *offset);

struct rec_reader_stats {
    uint64_t file_bytes;
    uint64_t ops;
    uint64_t segments, pieces;
    uint64_t damaged_bytes;  /* skipped */
    uint64_t first_damage;   /* offset of the first; 0 = none */
    uint32_t damages;        /* places */
    bool torn_tail;          /* the file ends inside a piece: a crash or a copy in flight, no alarm */
    bool closed;             /* the writer closed it properly (index present and right) */
    char first_problem[128]; /* one line, "" = none */
    /* Once the end was reached: what the header says of a trace that could not be written to its end. */
    bool unwritten;
    int32_t write_error;    /* errno on Linux; 0 unknown */
    uint64_t unwritten_ops; /* at least so many are missing behind the last record */
};
void rec_reader_stats(const struct rec_reader *reader, struct rec_reader_stats *stats);

#pragma GCC visibility pop

#endif
