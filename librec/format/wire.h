/*
 * The bytes of a .frec file: magic numbers, sizes, limits, record types and the integer
 * codings that writer and reader share. docs/format.md is the specification; a number here
 * never changes its meaning within a major version.
 */
#ifndef REC_FORMAT_WIRE_H
#define REC_FORMAT_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define REC_WIRE_MAJOR      1
#define REC_WIRE_MINOR      4
#define REC_WIRE_BYTE_ORDER 0x01020304u

/* File header: fixed part, the notice (notice.h, since 1.2), then the metadata. */
#define REC_WIRE_FILE_MAGIC   "FREC\r\n\x1a\n" /* as PNG's: a transfer in text mode breaks it visibly */
#define REC_WIRE_HEADER_BYTES 64
#define REC_WIRE_NOTICE       REC_WIRE_HEADER_BYTES /* where it is */
#define REC_WIRE_NOTICE_BYTES 64
#define REC_WIRE_META_AT      (REC_WIRE_NOTICE + REC_WIRE_NOTICE_BYTES)
#define REC_WIRE_NOTICE_MINOR 2
#define REC_WIRE_META_MAX     (1u << 20)

/* Piece headers. The magic numbers read "FRSG", "FRPC", "FRIX" in the file. */
#define REC_WIRE_SEGMENT       0x47535246u /* first piece of a segment */
#define REC_WIRE_PIECE         0x43505246u /* a further piece */
#define REC_WIRE_INDEX         0x58495246u /* the index */
#define REC_WIRE_PIECE_BYTES   24
#define REC_WIRE_SEGMENT_BYTES 48 /* a piece header and 24 bytes more */
#define REC_WIRE_INDEX_MAGIC   "FRECEND\n"
#define REC_WIRE_INDEX_ENTRY   40
#define REC_WIRE_INDEX_FOOTER  16

/* Limits that a writer keeps and a reader enforces. */
#define REC_WIRE_RAW_MAX        (1u << 20)                /* decompressed bytes of a piece */
#define REC_WIRE_DATA_MAX       ((1u << 20) + (1u << 16)) /* bytes of a piece after its header */
#define REC_WIRE_WINDOW_LOG     20                        /* zstd window */
#define REC_WIRE_PIECE_OPS_MAX  65535
#define REC_WIRE_BATCH_OPS_MAX  1024
#define REC_WIRE_TEMPLATES_MAX  8192 /* per segment */
#define REC_WIRE_SEQUENCES_MAX  8192 /* per segment */
#define REC_WIRE_STRING_MAX     4096
#define REC_WIRE_LIST_MAX       16384      /* modules, threads, frames, open calls of one record */
#define REC_WIRE_TEXTS_MAX      8192       /* per segment */
#define REC_WIRE_TEXT_BYTES_MAX (1u << 20) /* all texts of a segment */
#define REC_WIRE_LAST_UNKNOWN   0xffffffu

/* A record: type (1 byte), body length (3 bytes), body. */
#define REC_WIRE_RECORD_BYTES 4
enum rec_wire_type {
    REC_WIRE_META = 1,
    REC_WIRE_COMM = 2,
    REC_WIRE_THREAD = 3,
    REC_WIRE_REDOP = 4,
    REC_WIRE_STREAM = 5,
    REC_WIRE_TEMPLATE = 6,
    REC_WIRE_OPS = 7,
    REC_WIRE_OPEN = 8,
    REC_WIRE_FRONTIER = 9,
    REC_WIRE_CHECKPOINT = 10,
    REC_WIRE_HEARTBEAT = 11,
    REC_WIRE_LOSS = 12,
    REC_WIRE_STALL = 13,
    REC_WIRE_END = 14,
    REC_WIRE_TEXT = 15,     /* since 1.1 */
    REC_WIRE_CALLSITE = 16, /* since 1.1 */
    REC_WIRE_GPU = 17,      /* since 1.1 */
};

/* Kind of a native call site whose frames have build ids (since 1.3); before, REC_CALLSITE_NATIVE has none.
 */
#define REC_WIRE_CALLSITE_BUILDS 3

/* Which optional columns a batch of ops has. */
enum rec_wire_columns {
    REC_WIRE_COL_GROUP = 1 << 0,
    REC_WIRE_COL_SEQ = 1 << 1,
    REC_WIRE_COL_RESULT = 1 << 2,
    REC_WIRE_COL_COUNT = 1 << 3,
    REC_WIRE_COL_GPU = 1 << 4,
    REC_WIRE_COL_LAUNCH = 1 << 5, /* since 1.1 */
};

enum rec_wire_group { REC_WIRE_GROUP_NONE, REC_WIRE_GROUP_SAME, REC_WIRE_GROUP_NEXT, REC_WIRE_GROUP_OTHER };

/* Added to signals: the special ones are small, too. */
#define REC_WIRE_SIGNAL 2

/* Flags of a template. */
enum rec_wire_template {
    REC_WIRE_T_STEP = 1 << 0,  /* an op raises the sequence's next number */
    REC_WIRE_T_COUNT = 1 << 1, /* count is given per op in the count column */
};

/*
 * What a segment knows of a stream's launches, to predict the number of the next: one more than
 * the last, or the same for ops of one group. Streams share REC_WIRE_LAUNCHES entries.
 */
#define REC_WIRE_LAUNCHES 1024
struct rec_wire_launch {
    uint64_t last;
    uint32_t group;
};

static inline uint64_t rec_launch_guess(const struct rec_wire_launch *launch, uint32_t group)
{
    return launch->last + (group == 0 || group != launch->group);
}

static inline void rec_launch_take(struct rec_wire_launch *launch, uint32_t group, uint64_t number)
{
    if (number == 0)
        return;
    launch->last = number;
    launch->group = group;
}

/* ---- fixed-width little-endian integers ---- */

static inline void rec_put16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void rec_put24(uint8_t *p, uint32_t v)
{
    rec_put16(p, v);
    p[2] = (uint8_t)(v >> 16);
}

static inline void rec_put32(uint8_t *p, uint32_t v)
{
    rec_put16(p, v);
    rec_put16(p + 2, v >> 16);
}

static inline void rec_put64(uint8_t *p, uint64_t v)
{
    rec_put32(p, (uint32_t)v);
    rec_put32(p + 4, (uint32_t)(v >> 32));
}

static inline uint32_t rec_get16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static inline uint32_t rec_get24(const uint8_t *p)
{
    return rec_get16(p) | (uint32_t)p[2] << 16;
}

static inline uint32_t rec_get32(const uint8_t *p)
{
    return rec_get16(p) | rec_get16(p + 2) << 16;
}

static inline uint64_t rec_get64(const uint8_t *p)
{
    return (uint64_t)rec_get32(p) | (uint64_t)rec_get32(p + 4) << 32;
}

/* ---- varints: 7 bits a byte, lowest first, high bit = more follows; at most 10 bytes ---- */

#define REC_VARINT_MAX 10

static inline uint8_t *rec_put_varint(uint8_t *p, uint64_t v)
{
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

/* Signed numbers as 0, -1, 1, -2 …; taken modulo 2^64, so every difference of two words fits. */
static inline uint64_t rec_zigzag(uint64_t v)
{
    return (v << 1) ^ (0 - (v >> 63));
}

static inline uint64_t rec_unzigzag(uint64_t v)
{
    return (v >> 1) ^ (0 - (v & 1));
}

static inline uint8_t *rec_put_signed(uint8_t *p, uint64_t v)
{
    return rec_put_varint(p, rec_zigzag(v));
}

/* Times in a file are ticks; 0 stays "unknown" and nothing else becomes 0. */
static inline uint64_t rec_to_ticks(uint64_t ns, uint32_t tick_ns)
{
    uint64_t ticks = ns / tick_ns;
    return ticks || !ns ? ticks : 1;
}

/*
 * The time coder's estimate of the next gap or duration of a template: follows a slow
 * average, so that what is written is mostly the noise around it. Modulo 2^64.
 */
static inline uint64_t rec_predict(uint64_t estimate, uint64_t residual)
{
    return estimate + (uint64_t)((int64_t)residual >> 2);
}

#endif
