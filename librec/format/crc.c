#include "format/crc.h"

void rec_crc_init(struct rec_crc *crc)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = (c >> 1) ^ ((c & 1) ? 0xedb88320u : 0);
        crc->table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            crc->table[k][i] = (crc->table[k - 1][i] >> 8) ^ crc->table[0][crc->table[k - 1][i] & 0xff];
}

/* Eight bytes a step ("slicing by 8"); the bytes are combined by shifts, so any byte order works. */
uint32_t rec_crc_add(const struct rec_crc *crc, uint32_t value, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    uint32_t c = ~value;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint32_t low =
            c ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        c = crc->table[7][low & 0xff] ^ crc->table[6][(low >> 8) & 0xff] ^ crc->table[5][(low >> 16) & 0xff] ^
            crc->table[4][low >> 24] ^ crc->table[3][p[4]] ^ crc->table[2][p[5]] ^ crc->table[1][p[6]] ^
            crc->table[0][p[7]];
    }
    for (; bytes; bytes--, p++)
        c = (c >> 8) ^ crc->table[0][(c ^ *p) & 0xff];
    return ~c;
}
