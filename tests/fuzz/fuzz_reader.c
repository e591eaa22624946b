/*
 * libFuzzer target: the reader on any bytes.
 *
 * Input: one byte of mode, then a file. In mode bit 0 the checksums of header and pieces are
 * made right first, so that the fuzzer gets behind them; in bit 1 segments are asked for and
 * one is sought. What the reader claims is checked: counts agree, strings end, the end stays
 * the end.
 */
#include <stdlib.h>
#include <string.h>

#include "format/crc.h"
#include "format/wire.h"
#include "rec/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool condition)
{
    if (!condition)
        abort();
}

static void make_checksums_right(uint8_t *data, size_t size)
{
    static struct rec_crc crc;
    if (!crc.table[0][1])
        rec_crc_init(&crc);
    if (size < REC_WIRE_HEADER_BYTES)
        return;
    uint64_t at = (uint64_t)rec_get32(data + 16) + rec_get32(data + 20);
    if (at > size)
        return;
    rec_put32(data + 56, rec_crc_add(&crc, 0, data + rec_get32(data + 16), rec_get32(data + 20)));
    rec_put32(data + 60, rec_crc_add(&crc, 0, data, 60));
    if (rec_get32(data + 16) >= REC_WIRE_META_AT && size >= REC_WIRE_META_AT)
        rec_put32(data + REC_WIRE_META_AT - 4,
                  rec_crc_add(&crc, 0, data + REC_WIRE_NOTICE, REC_WIRE_NOTICE_BYTES - 4));
    while (size - at >= REC_WIRE_PIECE_BYTES) {
        bool segment = rec_get32(data + at) == REC_WIRE_SEGMENT;
        uint64_t bytes = (segment ? REC_WIRE_SEGMENT_BYTES : REC_WIRE_PIECE_BYTES) + rec_get24(data + at + 8);
        if (bytes > size - at)
            return;
        rec_put32(data + at + 4, rec_crc_add(&crc, 0, data + at + 8, bytes - 8));
        at += bytes;
    }
}

static void check_lists(const struct rec_event *event)
{
    uint64_t sum = 0;
    if (event->type == REC_EV_OPEN)
        for (uint32_t i = 0; i < event->u.open.count; i++)
            sum += event->u.open.ops[i].ordinal;
    if (event->type == REC_EV_STALL) {
        for (uint32_t i = 0; i < event->u.stall.nmodules; i++)
            sum += strlen(event->u.stall.modules[i]);
        for (uint32_t i = 0; i < event->u.stall.nthreads; i++) {
            const struct rec_stall_thread *thread = &event->u.stall.threads[i];
            sum += strlen(thread->name) + strlen(thread->where);
            for (uint32_t k = 0; k < thread->nframes; k++)
                check(thread->frames[k].module == REC_ID_NONE ||
                      thread->frames[k].module < event->u.stall.nmodules);
        }
    }
    if (event->type == REC_EV_END)
        for (uint32_t i = 0; i < event->u.end.nframes; i++)
            check(event->u.end.frames[i].module == REC_ID_NONE ||
                  event->u.end.frames[i].module < event->u.end.nmodules);
    static volatile uint64_t used; /* the reads above must happen */
    used = sum;
    (void)used;
}

static void read_all(struct rec_reader *reader)
{
    struct rec_event event;
    struct rec_error err;
    struct rec_reader_stats stats;
    uint64_t ops = 0;
    /* A small file may hold very many ops; enough is enough. */
    for (uint64_t events = 0; events < 3000000; events++) {
        enum rec_code code = rec_reader_next(reader, &event, &err);
        if (code != REC_OK) {
            check(code == REC_END);
            check(rec_reader_next(reader, &event, &err) == REC_END);
            break;
        }
        check(event.type >= REC_EV_COMM && event.type <= REC_EV_GPU);
        ops += event.type == REC_EV_OP;
        check_lists(&event);
    }
    rec_reader_stats(reader, &stats);
    check(stats.ops >= ops);
    check(memchr(stats.first_problem, 0, sizeof(stats.first_problem)) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    unsigned mode = data[0];
    size--;
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        return 0;
    memcpy(copy, data + 1, size);
    if (mode & 1)
        make_checksums_right(copy, size);
    struct rec_reader *reader;
    struct rec_error err;
    if (rec_reader_open_memory(copy, size, "fuzz", &reader, &err) == REC_OK) {
        const struct rec_segment_info *segments;
        size_t count;
        check(rec_reader_meta(reader) != NULL);
        if ((mode & 2) && rec_reader_segments(reader, &segments, &count, &err) == REC_OK && count) {
            check(segments[count - 1].offset < size);
            check(rec_reader_seek(reader, count / 2, &err) == REC_OK);
        }
        read_all(reader);
        rec_reader_close(reader);
    } else {
        check(reader == NULL && err.text[0]);
    }
    free(copy);
    return 0;
}
