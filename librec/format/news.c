#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/wire.h"
#include "rec/reader.h"

/*
 * The body of a heartbeat is one number: the time since the last record, of 5 bytes at most where that
 * is minutes. Beside that time, other records that stand alone in a piece hold more.
 */
#define HEARTBEAT_RAW (REC_WIRE_RECORD_BYTES + 5)

static bool read_at(int fd, uint64_t offset, void *to, size_t bytes)
{
    ssize_t n;
    do
        n = pread(fd, to, bytes, (off_t)offset);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)bytes;
}

/* The first piece's place; 0 = this is no trace of ours, or there is not enough of it yet. */
static uint64_t first_piece(int fd)
{
    uint8_t header[REC_WIRE_HEADER_BYTES];
    if (!read_at(fd, 0, header, sizeof(header)) || memcmp(header, REC_WIRE_FILE_MAGIC, 8) != 0)
        return 0;
    return (uint64_t)rec_get32(header + 16) + rec_get32(header + 20);
}

enum rec_news rec_trace_news(int fd, uint64_t *offset)
{
    enum rec_news news = REC_NEWS_NONE;
    uint8_t piece[REC_WIRE_PIECE_BYTES];
    struct stat status;
    if (fstat(fd, &status) != 0 || (uint64_t)status.st_size < *offset)
        return REC_NEWS_CALLS;
    uint64_t at = *offset ? *offset : first_piece(fd), size = (uint64_t)status.st_size;
    while (at && at < size && size - at >= sizeof(piece)) {
        if (!read_at(fd, at, piece, sizeof(piece)))
            return REC_NEWS_CALLS;
        uint32_t kind = rec_get32(piece), raw = rec_get24(piece + 11), ops = rec_get16(piece + 18);
        uint64_t bytes = rec_get24(piece + 8);
        bytes += kind == REC_WIRE_SEGMENT ? REC_WIRE_SEGMENT_BYTES : REC_WIRE_PIECE_BYTES;
        if ((kind != REC_WIRE_PIECE && kind != REC_WIRE_SEGMENT && kind != REC_WIRE_INDEX) ||
            bytes > size - at)
            break;
        bool heartbeat = kind == REC_WIRE_PIECE && ops == 0 && raw <= HEARTBEAT_RAW;
        if (!heartbeat)
            news = REC_NEWS_CALLS;
        else if (news == REC_NEWS_NONE)
            news = REC_NEWS_ALIVE;
        at += bytes;
    }
    *offset = at;
    return news;
}
