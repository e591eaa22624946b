/* Reading call sites from memory that another process writes, or that is damaged. */
#include "rec/callsite.h"

#include <string.h>

bool rec_callsite_open(const void *memory, size_t bytes, struct rec_callsite_reader *reader)
{
    const struct rec_callsite_header *shared = memory;
    if (bytes < sizeof(*shared) ||
        atomic_load_explicit(&shared->magic, memory_order_acquire) != REC_CALLSITE_MAGIC)
        return false;
    struct rec_callsite_header header;
    memcpy(&header, memory, sizeof(header));
    if (header.version != REC_CALLSITE_VERSION)
        return false;
    if (header.bytes > bytes || header.index_offset % 4 != 0 || header.index_offset > header.bytes ||
        header.max_sites >= (header.bytes - header.index_offset) / 4)
        return false;
    *reader = (struct rec_callsite_reader){
        .memory = memory,
        .bytes = header.bytes,
        .max_sites = header.max_sites,
        .index_offset = header.index_offset,
    };
    return true;
}

/* Copies the head of the record at offset and checks that its payload lies inside. */
static const char *record_payload(const struct rec_callsite_reader *reader, uint32_t offset, uint32_t unit,
                                  struct rec_callsite_record *record)
{
    if (offset % 4 != 0 || offset > reader->bytes || reader->bytes - offset < sizeof(*record))
        return NULL;
    memcpy(record, reader->memory + offset, sizeof(*record));
    if (record->count * unit > reader->bytes - offset - sizeof(*record))
        return NULL;
    return reader->memory + offset + sizeof(*record);
}

static bool read_string(const struct rec_callsite_reader *reader, uint32_t offset, const char **text,
                        uint32_t *length)
{
    struct rec_callsite_record record;
    *text = record_payload(reader, offset, 1, &record);
    *length = record.count;
    return *text != NULL && record.kind == REC_CALLSITE_STRING;
}

static bool read_frame(const struct rec_callsite_reader *reader, uint32_t offset,
                       struct rec_callsite_frame *frame)
{
    struct rec_callsite_record record;
    uint32_t words[3];
    const char *payload = record_payload(reader, offset, 4, &record);
    if (payload == NULL || record.kind != REC_CALLSITE_LOCATION || record.count != 3)
        return false;
    memcpy(words, payload, sizeof(words));
    frame->line = words[2];
    return read_string(reader, words[0], &frame->file, &frame->file_length) &&
           read_string(reader, words[1], &frame->function, &frame->function_length);
}

bool rec_callsite_read(const struct rec_callsite_reader *reader, uint32_t id, struct rec_callsite_site *site)
{
    if (id == 0 || id > reader->max_sites)
        return false;
    const _Atomic uint32_t *index =
        (const _Atomic uint32_t *)(const void *)(reader->memory + reader->index_offset);
    uint32_t offset = atomic_load_explicit(&index[id], memory_order_acquire);
    struct rec_callsite_record record;
    const char *payload = record_payload(reader, offset, 4, &record);
    if (offset == 0 || payload == NULL)
        return false;
    *site = (struct rec_callsite_site){.kind = record.kind};
    if (record.kind == REC_CALLSITE_ADDRESS && record.count % 2 == 0 &&
        record.count / 2 <= REC_CALLSITE_MAX_ADDRESSES) {
        site->frame_count = record.count / 2;
        memcpy(site->addresses, payload, (size_t)record.count * 4);
        return true;
    }
    if (record.kind != REC_CALLSITE_STACK || record.count > REC_CALLSITE_MAX_FRAMES)
        return false;
    for (uint32_t i = 0; i < record.count; i++) {
        uint32_t location;
        memcpy(&location, payload + i * 4, sizeof(location));
        if (!read_frame(reader, location, &site->frames[i]))
            return false;
    }
    site->frame_count = record.count;
    return true;
}

/* Copies a text into *text, zero terminated; a longer one than max keeps its start. */
static const char *keep_text(char **text, const char *from, uint32_t length, uint32_t max)
{
    char *kept = *text;
    if (length > max)
        length = max;
    memcpy(kept, from, length);
    kept[length] = '\0';
    *text += length + 1;
    return kept;
}

bool rec_live_callsite(const struct rec_live *live, uint32_t id, struct rec_live_callsite *out)
{
    struct rec_callsite_reader reader;
    struct rec_callsite_site site;
    if (!live->callsites || !rec_callsite_open(live->callsites, live->header->callsite_bytes, &reader) ||
        !rec_callsite_read(&reader, id, &site))
        return false;
    out->def = (struct rec_callsite_def){.id = id, .kind = REC_CALLSITE_NATIVE};
    if (site.kind == REC_CALLSITE_ADDRESS) {
        out->naddresses = site.frame_count;
        memcpy(out->addresses, site.addresses, sizeof(out->addresses));
        return true;
    }
    out->naddresses = 0;
    char *text = out->text;
    out->def.kind = REC_CALLSITE_PYTHON;
    out->def.nframes = site.frame_count;
    out->def.frames = out->frames;
    for (uint32_t i = 0; i < site.frame_count; i++) {
        const struct rec_callsite_frame *frame = &site.frames[i];
        out->frames[i] = (struct rec_source_frame){
            .file = keep_text(&text, frame->file, frame->file_length, REC_CALLSITE_MAX_FILE),
            .function = keep_text(&text, frame->function, frame->function_length, REC_CALLSITE_MAX_FUNCTION),
            .line = frame->line,
        };
    }
    return true;
}

uint32_t rec_live_callsite_count(const struct rec_live *live)
{
    struct rec_callsite_reader reader;
    if (!live->callsites || !rec_callsite_open(live->callsites, live->header->callsite_bytes, &reader))
        return 0;
    const struct rec_callsite_header *header = live->callsites;
    uint32_t sites = atomic_load_explicit(&header->sites, memory_order_acquire);
    return sites < reader.max_sites ? sites : reader.max_sites;
}
