/*
 * Records back into events. A decoder holds what a segment knows (templates, sequences, the
 * running time); rec_decoder_segment starts one, rec_decoder_piece gives it the
 * decompressed bytes of the next piece, rec_decoder_next takes events out. The bytes are
 * untrusted: anything impossible makes rec_decoder_next return REC_ERR_CORRUPT, after
 * which the segment's rest must not be decoded.
 */
#ifndef REC_FORMAT_DECODE_H
#define REC_FORMAT_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/wire.h"
#include "rec/error.h"
#include "rec/event.h"

/* Bytes of a record, read front to back; bad stays set once something did not fit. */
struct rec_in {
    const uint8_t *p, *end;
    bool bad;
};

struct rec_in_template {
    struct rec_op op; /* what repeats; the rest is zero */
    uint64_t gap, duration;
    uint32_t sequence;
    uint8_t flags; /* enum rec_wire_template */
};

struct rec_decoder {
    uint32_t tick_ns;
    uint64_t clock, last_ns;
    uint32_t ntemplates;
    struct rec_in_template templates[REC_WIRE_TEMPLATES_MAX];
    uint64_t sequences[REC_WIRE_SEQUENCES_MAX];
    struct rec_wire_launch launches[REC_WIRE_LAUNCHES];

    struct rec_in piece;
    const char *meta; /* of the last META record in the piece; NULL = none yet */
    size_t meta_bytes;

    uint32_t batch, batch_next; /* decoded ops not yet given */
    struct rec_op ops[REC_WIRE_BATCH_OPS_MAX];
    uint16_t ids[REC_WIRE_BATCH_OPS_MAX];

    uint32_t ntexts; /* of the segment, for call sites: zero terminated in text, one after the other */
    uint32_t texts[REC_WIRE_TEXTS_MAX];
    char *text;
    size_t text_size, text_used;
    struct rec_source_frame frames[REC_CALLSITE_FRAMES];

    char *arena; /* lists of the current event */
    size_t arena_size, arena_used;
};

void rec_decoder_init(struct rec_decoder *decoder);
void rec_decoder_fini(struct rec_decoder *decoder);
void rec_decoder_segment(struct rec_decoder *decoder, uint32_t tick_ns);
void rec_decoder_piece(struct rec_decoder *decoder, const uint8_t *raw, size_t bytes);

/* REC_OK, REC_END (the piece has no more), REC_ERR_CORRUPT, REC_ERR_NOMEM. */
enum rec_code rec_decoder_next(struct rec_decoder *decoder, struct rec_event *event);

/* A new template, and a batch into decoder->ops (decode_ops.c). False: impossible content. */
bool rec_decode_template(struct rec_decoder *decoder, struct rec_in *in);
bool rec_decode_batch(struct rec_decoder *decoder, struct rec_in *in);

/* ---- reading numbers ---- */

static inline uint8_t rec_in_byte(struct rec_in *in)
{
    if (in->p == in->end) {
        in->bad = true;
        return 0;
    }
    return *in->p++;
}

static inline uint64_t rec_in_varint(struct rec_in *in)
{
    if (in->p != in->end && !(*in->p & 0x80)) /* most are small */
        return *in->p++;
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (in->p == in->end)
            break;
        uint8_t b = *in->p++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80))
            return v;
    }
    in->bad = true;
    return 0;
}

static inline uint64_t rec_in_signed(struct rec_in *in)
{
    return rec_unzigzag(rec_in_varint(in));
}

static inline uint32_t rec_in_u32(struct rec_in *in)
{
    uint64_t v = rec_in_varint(in);
    if (v > UINT32_MAX)
        in->bad = true;
    return (uint32_t)v;
}

static inline int32_t rec_in_i32(struct rec_in *in)
{
    int64_t v = (int64_t)rec_in_signed(in);
    if (v < INT32_MIN || v > INT32_MAX)
        in->bad = true;
    return (int32_t)v;
}

/* 0 is "none", others are one too high. */
static inline uint32_t rec_in_id(struct rec_in *in)
{
    return rec_in_u32(in) - 1;
}

static inline uint64_t rec_in_signal(struct rec_in *in)
{
    return rec_in_varint(in) - REC_WIRE_SIGNAL;
}

static inline uint64_t rec_from_ticks(const struct rec_decoder *decoder, uint64_t ticks)
{
    return ticks * decoder->tick_ns;
}

#endif
