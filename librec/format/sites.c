#include "format/writer_state.h"

#include <string.h>

/* A text's identity: 128 bits, so that two of a trace that meet are not to be expected. */
struct text_key {
    uint64_t a, b;
};

static struct text_key key_of(const char *text, size_t length)
{
    struct text_key key = {length, ~(uint64_t)length};
    while (length) {
        uint64_t word = 0;
        size_t n = length < sizeof(word) ? length : sizeof(word);
        memcpy(&word, text, n);
        key.a = rec_mix64(key.a ^ word);
        key.b = rec_mix64(key.b + word) ^ key.a;
        text += n;
        length -= n;
    }
    return key;
}

void rec_sites_init(struct rec_sites *sites)
{
    memset(sites, 0, sizeof(*sites));
}

void rec_sites_reset(struct rec_sites *sites)
{
    sites->segment++;
    sites->texts = 0;
    sites->text_bytes = 0;
    memset(sites->told, 0, sizeof(sites->told));
}

/* The number of a text in this segment, put there when it is new. False: no room for it. */
static bool put_text(struct rec_writer *w, const char *text, uint32_t *number)
{
    struct rec_sites *sites = &w->sites;
    size_t length = strnlen(text, REC_WIRE_STRING_MAX);
    *number = REC_ID_NONE;
    if (length == 0)
        return true;
    struct text_key key = key_of(text, length);
    uint32_t i = (uint32_t)key.a % REC_SITES_SLOTS;
    for (; sites->slots[i].segment == sites->segment; i = (i + 1) % REC_SITES_SLOTS) {
        if (sites->slots[i].a == key.a && sites->slots[i].b == key.b) {
            *number = sites->slots[i].number;
            return true;
        }
    }
    if (sites->texts == REC_SITES_TEXTS || sites->text_bytes + length > REC_WIRE_TEXT_BYTES_MAX)
        return false;
    if (!rec_segment_room(w, REC_WIRE_STRING_MAX + REC_RECORD_ROOM))
        return false;
    rec_raw_take(w, rec_encode_text(rec_raw_end(w), text, length));
    *number = sites->texts++;
    sites->text_bytes += (uint32_t)length;
    sites->slots[i] =
        (struct rec_sites_slot){.a = key.a, .b = key.b, .number = *number, .segment = sites->segment};
    return true;
}

static const char *second_text(const struct rec_callsite_def *def, uint32_t i)
{
    const struct rec_source_frame *frame = &def->frames[i];
    if (def->kind != REC_CALLSITE_NATIVE)
        return frame->function;
    return frame->build_id ? frame->build_id : "";
}

static void put_site(struct rec_writer *w, const struct rec_callsite_def *def)
{
    struct rec_callsite_text texts[REC_CALLSITE_FRAMES];
    uint32_t count = def->nframes < REC_CALLSITE_FRAMES ? def->nframes : REC_CALLSITE_FRAMES;
    for (uint32_t i = 0; i < count; i++)
        if (!put_text(w, def->frames[i].file, &texts[i].file) ||
            !put_text(w, second_text(def, i), &texts[i].second))
            return;
    if (rec_segment_room(w, REC_CALLSITE_ROOM))
        rec_raw_take(w, rec_encode_callsite(rec_raw_end(w), def, texts, count));
}

void rec_sites_put(struct rec_writer *w, uint32_t id)
{
    struct rec_sites *sites = &w->sites;
    if (!sites->source || rec_sites_told(sites, id))
        return;
    sites->told[id / 64] |= UINT64_C(1) << (id % 64);
    struct rec_callsite_def def;
    if (sites->source(sites->context, id, &def))
        put_site(w, &def);
}
