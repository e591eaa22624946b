/*
 * Finding the pieces of a trace: validated piece headers in file order, stepping over
 * damage to the next whole segment. Knows nothing of what is inside.
 */
#ifndef REC_FORMAT_SCAN_H
#define REC_FORMAT_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/crc.h"
#include "format/wire.h"
#include "rec/error.h"
#include "rec/reader.h"

/* A file or a piece of memory. Reads ahead; memory bounded by the largest piece. */
struct rec_source {
    int fd; /* -1 = memory */
    const uint8_t *memory;
    uint64_t size;
    uint8_t *buffer; /* of REC_SOURCE_BUFFER bytes, for files */
    uint64_t start;  /* file offset of buffer[0] */
    size_t filled;
    int error; /* errno of a failed read */
};
#define REC_SOURCE_BUFFER ((size_t)REC_WIRE_SEGMENT_BYTES + REC_WIRE_DATA_MAX)

/* Bytes [offset, offset + bytes), valid until the next call; NULL = not all there, or error is set. */
const uint8_t *rec_source_get(struct rec_source *source, uint64_t offset, size_t bytes);

struct rec_piece {
    uint64_t offset;
    uint32_t kind; /* REC_WIRE_SEGMENT, REC_WIRE_PIECE, REC_WIRE_INDEX */
    uint32_t header_bytes, data_bytes, raw_bytes;
    uint32_t sequence;
    uint32_t ops;
    uint32_t late_ms; /* latest time, after base; REC_WIRE_LAST_UNKNOWN */
    uint8_t early_bits;
    /* of a segment's first piece */
    uint64_t base_ns, file_id;
    uint32_t tick_ns, major;
};

struct rec_scan_state {
    struct rec_source source;
    struct rec_crc crc;
    uint64_t pos;
    uint64_t data_start; /* where the first piece should be */
    uint64_t file_id;    /* 0 = not known: take the first segment's */
    bool in_segment;     /* pieces that follow belong to an accepted segment */
    uint32_t next_sequence;
    uint64_t lowest_sequence; /* segments below were seen already */
    uint64_t resync_budget;   /* bytes that looking for segments may still check */
    uint64_t lost_ops;        /* in whole pieces that had to be skipped, since last taken */
    bool gap;                 /* something was skipped since last taken */
    uint64_t gap_offset;      /* where that began */
    struct rec_reader_stats stats;
};

/*
 * The next piece that continues an accepted segment or starts one. With check, its data was
 * verified and *data points to it (valid until the next call); without, only the header was
 * looked at. REC_OK, REC_END, REC_ERR_IO.
 */
enum rec_code rec_scan_piece(struct rec_scan_state *scan, bool check, struct rec_piece *piece,
                             const uint8_t **data);

/* The piece just given turned out to be unusable inside. */
void rec_scan_reject(struct rec_scan_state *scan, const struct rec_piece *piece, const char *why);

/* Offset of the next whole piece (or first piece of a segment) in [from, to); to when there is none. */
uint64_t rec_scan_resync(struct rec_scan_state *scan, uint64_t from, uint64_t to, bool segments_only);

/* The index at the end, checked: its entries, or NULL. */
const uint8_t *rec_scan_index(struct rec_scan_state *scan, size_t *entries);

#endif
