/*
 * Ops as columns (docs/format.md, "Batches of ops"). The coder holds what a segment knows:
 * the templates (everything of an op that repeats) and the sequences (next seq per
 * communicator or P2P pair). Memory is fixed; rec_ops_reset starts a segment.
 */
#ifndef REC_FORMAT_OPS_H
#define REC_FORMAT_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/encode.h"
#include "format/wire.h"
#include "rec/event.h"

#define REC_BATCH_OPS 256 /* as many as the writer puts into one batch */
/* Room that one batch and its new templates may take. */
#define REC_BATCH_ROOM ((size_t)REC_BATCH_OPS * (64 + 11 * REC_VARINT_MAX) + 64)

#define REC_OPS_HASH_SLOTS 32768

#define REC_OPS_KEY 5

struct rec_template {
    uint64_t key[REC_OPS_KEY];
    uint64_t gap, duration; /* estimates (rec_predict) */
    uint32_t id;            /* in the segment; REC_ID_NONE = not written (counts variants only) */
    uint32_t next;          /* index of the template that came after this one last time */
    uint16_t sequence;
    uint8_t step, varies; /* varies: has no count of its own */
    uint32_t counts;      /* of a varying template: fixed-count templates made of it */
};

struct rec_sequence {
    uint64_t key;
    uint64_t next;
};

struct rec_ops {
    uint32_t entries;                            /* templates in use, written or not */
    uint32_t written;                            /* ids given */
    uint32_t sequences;                          /* in use */
    uint32_t last;                               /* index of the last op's template */
    uint16_t slots[REC_OPS_HASH_SLOTS];          /* template index + 1 */
    uint16_t sequence_slots[REC_OPS_HASH_SLOTS]; /* sequence index + 1 */
    struct rec_template templates[REC_WIRE_TEMPLATES_MAX];
    struct rec_sequence sequence[REC_WIRE_SEQUENCES_MAX];
    struct rec_wire_launch launches[REC_WIRE_LAUNCHES];
    /* columns of the batch being built */
    uint8_t ids[REC_BATCH_OPS * 3];
    uint8_t gaps[REC_BATCH_OPS * REC_VARINT_MAX];
    uint8_t durations[REC_BATCH_OPS * REC_VARINT_MAX];
    uint8_t groups[REC_BATCH_OPS * (1 + REC_VARINT_MAX)];
    uint8_t seqs[REC_BATCH_OPS * (2 + REC_VARINT_MAX)];
    uint8_t results[REC_BATCH_OPS * 3];
    uint8_t counts[REC_BATCH_OPS * REC_VARINT_MAX];
    uint8_t gpu[REC_BATCH_OPS * 2 * REC_VARINT_MAX];
    uint8_t numbers[REC_BATCH_OPS * (2 + REC_VARINT_MAX)];
};

void rec_ops_reset(struct rec_ops *ops);

/* Can a batch of any REC_BATCH_OPS ops be coded without more templates than the format allows? */
bool rec_ops_fits(const struct rec_ops *ops);

/*
 * Appends new templates and one batch at p (REC_BATCH_ROOM bytes). 1 ≤ count ≤
 * REC_BATCH_OPS, one thread, ordinals consecutive.
 */
uint8_t *rec_ops_encode(struct rec_ops *ops, uint8_t *p, struct rec_time *time, const struct rec_op *op,
                        size_t count);

#endif
