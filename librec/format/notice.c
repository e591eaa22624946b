#include "format/notice.h"

#include <string.h>

#include "format/wire.h"

#define CRC_AT (REC_WIRE_NOTICE_BYTES - 4)

void rec_notice_encode(const struct rec_crc *crc, const struct rec_notice *notice, uint8_t *to)
{
    memset(to, 0, REC_WIRE_NOTICE_BYTES);
    rec_put32(to, notice->error);
    rec_put32(to + 4, notice->sequence);
    rec_put64(to + 8, notice->time_ns);
    rec_put64(to + 16, notice->ops);
    rec_put64(to + 24, notice->end_ns);
    rec_put32(to + 32, notice->end_reason);
    rec_put32(to + 36, (uint32_t)notice->end_status);
    rec_put32(to + 40, (uint32_t)notice->end_signal);
    rec_put32(to + 44, (uint32_t)notice->end_tid);
    rec_put32(to + CRC_AT, rec_crc_add(crc, 0, to, CRC_AT));
}

bool rec_notice_is_none(const uint8_t *from)
{
    static const uint8_t none[REC_WIRE_NOTICE_BYTES];
    return memcmp(from, none, sizeof(none)) == 0;
}

bool rec_notice_decode(const struct rec_crc *crc, const uint8_t *from, struct rec_notice *notice)
{
    if (rec_crc_add(crc, 0, from, CRC_AT) != rec_get32(from + CRC_AT))
        return false;
    *notice = (struct rec_notice){
        .error = rec_get32(from),
        .sequence = rec_get32(from + 4),
        .time_ns = rec_get64(from + 8),
        .ops = rec_get64(from + 16),
        .end_ns = rec_get64(from + 24),
        .end_reason = rec_get32(from + 32),
        .end_status = (int32_t)rec_get32(from + 36),
        .end_signal = (int32_t)rec_get32(from + 40),
        .end_tid = (int32_t)rec_get32(from + 44),
    };
    return true;
}
