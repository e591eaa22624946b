/*
 * libFuzzer target: the records of a segment, without the compression around them that keeps
 * a fuzzer from getting at them. Input: one byte, then the decompressed bytes of a piece; the
 * byte says after how many of its 256ths a second piece begins.
 */
#include <stdlib.h>
#include <string.h>

#include "format/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_site(const struct rec_callsite_def *site)
{
    if (site->nframes > REC_CALLSITE_FRAMES || (site->nframes && !site->frames))
        abort();
    for (uint32_t i = 0; i < site->nframes; i++)
        if (strlen(site->frames[i].file) > REC_WIRE_STRING_MAX ||
            strlen(site->frames[i].function) > REC_WIRE_STRING_MAX)
            abort();
}

/* From a copy of exact size, so that a sanitizer sees every byte read beyond. */
static void decode(struct rec_decoder *decoder, const uint8_t *data, size_t size)
{
    struct rec_event event;
    enum rec_code code;
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        return;
    memcpy(copy, data, size);
    rec_decoder_piece(decoder, copy, size);
    while ((code = rec_decoder_next(decoder, &event)) == REC_OK) {
        if (event.type == REC_EV_CALLSITE)
            check_site(&event.u.callsite);
        if (event.type < REC_EV_COMM || event.type > REC_EV_GPU)
            abort();
    }
    if (code != REC_END && code != REC_ERR_CORRUPT)
        abort();
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    static struct rec_decoder *decoder; /* large: one for all inputs */
    if (!decoder) {
        decoder = malloc(sizeof(*decoder));
        if (!decoder)
            abort();
        rec_decoder_init(decoder);
    }
    size_t first = (size - 1) * data[0] / 256;
    rec_decoder_segment(decoder, 64);
    decode(decoder, data + 1, first);
    decode(decoder, data + 1 + first, size - 1 - first);
    return 0;
}
