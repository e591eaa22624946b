/*
 * Writing a .frec trace (docs/format.md).
 *
 * Made for the inside of somebody else's process: after rec_writer_init nothing is
 * allocated, no lock is taken, no signal is touched; the only system calls are those on
 * the trace's own directory and files. One writer belongs to one thread at a time.
 *
 * Records go into the current segment's buffer; rec_writer_flush compresses what is new
 * as one piece and hands it to write(2): only then is it safe against SIGKILL. A full
 * buffer flushes by itself. Segments roll over by size; with max_bytes set the file is
 * continued in further parts (STEM.frec, STEM.1.frec, STEM.2.frec …) and the oldest part
 * is removed, so that all parts together stay below the limit.
 *
 * Errors: a piece that cannot be written stays in memory and is tried again at later
 * flushes (a disk may get room again), less and less often. Meanwhile the writer drops what
 * it is given, counts the ops and later puts them on record as LOSS; a caller that keeps its
 * records while rec_writer_flush fails loses none. It never leaves a torn piece behind where
 * it can truncate it away.
 *
 * The writer keeps definitions and repeats them at the start of each segment; callers give
 * each definition once (and again when it changes). Those of call sites it asks for as they are
 * needed (rec_writer_callsites). It computes the checkpoints.
 */
#ifndef REC_WRITER_H
#define REC_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/error.h"
#include "rec/event.h"

#pragma GCC visibility push(default)

struct rec_writer;

struct rec_writer_config {
    uint32_t tick_ns;       /* resolution of times in the file; 0 = 64 */
    uint64_t max_bytes;     /* all parts together; 0 = no limit. Below 16 KiB counts as 16 KiB */
    uint64_t segment_bytes; /* compressed size at which a segment ends; 0 = 1 MiB */
    int level;              /* zstd level; 0 = 1 */
};

/* Bytes of 64-byte-aligned memory for a writer with this configuration (about 4 MiB). */
size_t rec_writer_bytes(const struct rec_writer_config *config);

/* Sets a writer up in memory. Never fails for memory of rec_writer_bytes. */
struct rec_writer *rec_writer_init(void *memory, const struct rec_writer_config *config);

/*
 * Creates DIR/STEM.frec: 0600, O_EXCL, O_NOFOLLOW, O_CLOEXEC; the directory must exist.
 * meta is the header's JSON object (docs/format.md lists the keys); copied. The writer adds
 * the part number itself. After a failure rec_writer_status has the errno (EEXIST: the name
 * is taken, try another); the call may be repeated.
 */
enum rec_code rec_writer_open(struct rec_writer *writer, const char *dir, const char *stem, const char *meta,
                              size_t meta_bytes, struct rec_error *err) REC_WARN_UNUSED;

void rec_writer_comm(struct rec_writer *writer, const struct rec_comm_def *def);
void rec_writer_thread(struct rec_writer *writer, const struct rec_thread_def *def);
void rec_writer_redop(struct rec_writer *writer, const struct rec_redop_def *def);
void rec_writer_stream(struct rec_writer *writer, const struct rec_stream_def *def);

/*
 * Where definitions of call sites come from: fills *def, which stays as it is until the next call,
 * or returns false when there is nothing to tell. The writer asks for a call site when an op names
 * it and the segment does not have it yet.
 */
typedef bool rec_callsite_source(void *context, uint32_t id, struct rec_callsite_def *def);
void rec_writer_callsites(struct rec_writer *writer, rec_callsite_source *source, void *context);

/* count finished ops of one thread, ordinals consecutive from ops[0].ordinal. */
void rec_writer_ops(struct rec_writer *writer, const struct rec_op *ops, size_t count);
/* All calls open at time_ns (possibly none). */
void rec_writer_open_ops(struct rec_writer *writer, uint64_t time_ns, const struct rec_op *ops, size_t count);
void rec_writer_frontier(struct rec_writer *writer, uint64_t time_ns, const struct rec_frontier *frontier);
/* What the GPU has done on a stream; started ≥ ended. */
void rec_writer_gpu(struct rec_writer *writer, uint64_t time_ns, const struct rec_gpu *gpu);
void rec_writer_heartbeat(struct rec_writer *writer, uint64_t time_ns);
void rec_writer_loss(struct rec_writer *writer, uint64_t time_ns, const struct rec_loss *loss);
void rec_writer_stall(struct rec_writer *writer, uint64_t time_ns, const struct rec_stall *stall);
void rec_writer_end(struct rec_writer *writer, uint64_t time_ns, const struct rec_end *end);

/*
 * While flushes fail: how many ops the caller keeps back. With those that the writer could not
 * write they are told in the header of the file, which can be written still when nothing can be
 * appended; so is an END. 0 when they have been given.
 */
void rec_writer_held(struct rec_writer *writer, uint64_t time_ns, uint64_t ops);

/* Writes a piece. REC_OK also when there was nothing to write. */
enum rec_code rec_writer_flush(struct rec_writer *writer, struct rec_error *err);

/* Flushes, ends the frame, appends the index, closes the file. The memory stays the caller's. */
enum rec_code rec_writer_close(struct rec_writer *writer, struct rec_error *err);

/* Closes the descriptor and nothing else: for the child of a fork, whose copy of the file is the parent's. */
void rec_writer_abandon(struct rec_writer *writer);

/* Figures for heartbeats and status lines. */
struct rec_writer_status {
    uint64_t file_bytes; /* written to all parts, removed ones included */
    uint64_t ops;        /* ops safely in the file */
    uint64_t lost_ops;   /* ops that could not be written */
    int error;           /* errno of the last failed write, 0 after a success */
};
void rec_writer_status(const struct rec_writer *writer, struct rec_writer_status *status);

#pragma GCC visibility pop

#endif
