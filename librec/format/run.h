/*
 * Ops without events: after rec_reader_next gave an op, the others of its batch lie behind it as they
 * were decoded. They are of one thread and their ordinals are consecutive. For loading, which sees
 * every op of every trace.
 */
#ifndef REC_FORMAT_RUN_H
#define REC_FORMAT_RUN_H

#include "rec/reader.h"

/* What is left of the batch; valid until the next call. NULL and 0: rec_reader_next must be asked. */
const struct rec_op *rec_reader_run(const struct rec_reader *reader, size_t *count);
/* The first count of them were taken: rec_reader_next does not give them any more. */
void rec_reader_take_run(struct rec_reader *reader, size_t count);

#endif
