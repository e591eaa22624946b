/*
 * CRC-32 as in zlib, PNG and Ethernet (reflected polynomial 0xedb88320, initial value and
 * final xor all ones). Chosen because every language has it in its standard library. The
 * tables are the caller's memory, so that there is no global state to initialise.
 */
#ifndef REC_FORMAT_CRC_H
#define REC_FORMAT_CRC_H

#include <stddef.h>
#include <stdint.h>

struct rec_crc {
    uint32_t table[8][256];
};

void rec_crc_init(struct rec_crc *crc);

/* The checksum of more bytes appended to what value covers; start with 0. */
uint32_t rec_crc_add(const struct rec_crc *crc, uint32_t value, const void *data, size_t bytes);

#endif
