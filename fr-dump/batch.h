/*
 * Ops from a scan into a writer, in runs of one thread with consecutive ordinals, as
 * rec_writer_ops wants them. What is missing before an op of the live region goes on record as
 * a loss: the region's own counters are not copied.
 */
#ifndef FR_DUMP_BATCH_H
#define FR_DUMP_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/event.h"
#include "rec/writer.h"

#define BATCH_OPS 128

struct batch {
    struct rec_writer *writer;
    bool late_only; /* take only ops that the file does not have */
    struct rec_op ops[BATCH_OPS];
    size_t count;
    struct batch_next {
        uint32_t thread;
        uint64_t ordinal;
    } * next; /* ordinal after the last record of each thread */
    size_t nnext, room;
    uint64_t total; /* ops given to the writer */
};

/* Takes the next op of the scan; false without memory. */
bool batch_add(struct batch *batch, const struct rec_op *op);
/* Calls that are open, whether from the file or the region; false without memory. */
bool batch_open(struct batch *batch, uint64_t time_ns, const struct rec_op *ops, uint32_t count);
/* To be called before any other record is written, and at the end. */
void batch_flush(struct batch *batch);
void batch_fini(struct batch *batch);

#endif
