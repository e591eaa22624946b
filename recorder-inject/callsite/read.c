/* Reading call sites from memory that another process writes, or that is damaged. */
#include "callsite.h"

#include <string.h>

bool callsite_open(const void *memory, size_t bytes, struct callsite_reader *reader)
{
    const struct callsite_header *shared = memory;
    if (bytes < sizeof(*shared) ||
        atomic_load_explicit(&shared->magic, memory_order_acquire) != CALLSITE_MAGIC)
        return false;
    struct callsite_header header;
    memcpy(&header, memory, sizeof(header));
    if (header.version != CALLSITE_VERSION)
        return false;
    if (header.bytes > bytes || header.index_offset % 4 != 0 || header.index_offset > header.bytes ||
        header.max_sites >= (header.bytes - header.index_offset) / 4)
        return false;
    *reader = (struct callsite_reader){
        .memory = memory,
        .bytes = header.bytes,
        .max_sites = header.max_sites,
        .index_offset = header.index_offset,
    };
    return true;
}

/* Copies the head of the record at offset and checks that its payload lies inside. */
static const char *record_payload(const struct callsite_reader *reader, uint32_t offset, uint32_t unit,
                                  struct callsite_record *record)
{
    if (offset % 4 != 0 || offset > reader->bytes || reader->bytes - offset < sizeof(*record))
        return NULL;
    memcpy(record, reader->memory + offset, sizeof(*record));
    if (record->count * unit > reader->bytes - offset - sizeof(*record))
        return NULL;
    return reader->memory + offset + sizeof(*record);
}

static bool read_string(const struct callsite_reader *reader, uint32_t offset, const char **text,
                        uint32_t *length)
{
    struct callsite_record record;
    *text = record_payload(reader, offset, 1, &record);
    *length = record.count;
    return *text != NULL && record.kind == CALLSITE_STRING;
}

static bool read_frame(const struct callsite_reader *reader, uint32_t offset, struct callsite_frame *frame)
{
    struct callsite_record record;
    uint32_t words[3];
    const char *payload = record_payload(reader, offset, 4, &record);
    if (payload == NULL || record.kind != CALLSITE_LOCATION || record.count != 3)
        return false;
    memcpy(words, payload, sizeof(words));
    frame->line = words[2];
    return read_string(reader, words[0], &frame->file, &frame->file_length) &&
           read_string(reader, words[1], &frame->function, &frame->function_length);
}

bool callsite_read(const struct callsite_reader *reader, uint32_t id, struct callsite_site *site)
{
    if (id == 0 || id > reader->max_sites)
        return false;
    const _Atomic uint32_t *index =
        (const _Atomic uint32_t *)(const void *)(reader->memory + reader->index_offset);
    uint32_t offset = atomic_load_explicit(&index[id], memory_order_acquire);
    struct callsite_record record;
    const char *payload = record_payload(reader, offset, 4, &record);
    if (offset == 0 || payload == NULL)
        return false;
    *site = (struct callsite_site){.kind = record.kind};
    if (record.kind == CALLSITE_NATIVE && record.count == 2) {
        memcpy(&site->return_address, payload, sizeof(site->return_address));
        return true;
    }
    if (record.kind != CALLSITE_PYTHON || record.count > CALLSITE_MAX_FRAMES)
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
