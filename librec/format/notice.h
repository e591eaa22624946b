/*
 * The notice in the header of a part: the one place of a file that can still be written when
 * nothing more can be appended, for on ordinary file systems it needs no new block. It says
 * that writing fails, since when, how much is missing behind the last piece, and how the
 * process ended if it did.
 */
#ifndef REC_FORMAT_NOTICE_H
#define REC_FORMAT_NOTICE_H

#include <stdbool.h>
#include <stdint.h>

#include "format/crc.h"

struct rec_notice {
    uint32_t error;    /* errno of the last failed write; 0 = the process had no time left to write */
    uint32_t sequence; /* of the next piece: a reader that finds it, or a later one, forgets the notice */
    uint64_t time_ns;
    uint64_t ops;        /* that have no record in this or an earlier part: at least so many */
    uint32_t end_reason; /* enum rec_end_reason; what follows belongs to it */
    int32_t end_status, end_signal, end_tid;
    uint64_t end_ns;
};

/* To and from REC_WIRE_NOTICE_BYTES bytes. Without a notice they are all zero. */
void rec_notice_encode(const struct rec_crc *crc, const struct rec_notice *notice, uint8_t *to);
bool rec_notice_is_none(const uint8_t *from);
/* False when the bytes are damaged. */
bool rec_notice_decode(const struct rec_crc *crc, const uint8_t *from, struct rec_notice *notice);

#endif
