#include "store.h"

#include <string.h>

/* Bytes of memory per hash slot and per site: a record of a typical site takes about 80. */
#define BYTES_PER_SLOT 32
#define BYTES_PER_SITE 64

static uint32_t round_up(uint32_t value, uint32_t unit)
{
    return (value + unit - 1) / unit * unit;
}

bool store_init(struct store *store, void *memory, size_t bytes)
{
    if (bytes < CALLSITE_MIN_BYTES || bytes > (1u << 30))
        return false;
    struct rec_callsite_header *header = memory;
    header->version = REC_CALLSITE_VERSION;
    header->bytes = (uint32_t)bytes;
    uint32_t sites = header->bytes / BYTES_PER_SITE;
    header->max_sites = sites < REC_CALLSITE_MAX_SITES ? sites : REC_CALLSITE_MAX_SITES;
    uint32_t slots = 1;
    while (slots < header->bytes / BYTES_PER_SLOT)
        slots *= 2;
    header->hash_slots = slots;
    header->index_offset = round_up(sizeof(*header), 64);
    header->hash_offset = round_up(header->index_offset + (header->max_sites + 1) * 4, 64);
    header->arena_offset = round_up(header->hash_offset + slots * 4, 64);
    atomic_store_explicit(&header->used, header->arena_offset, memory_order_relaxed);
    *store = (struct store){.header = header, .memory = memory};
    store->index = (_Atomic uint32_t *)(void *)(store->memory + header->index_offset);
    store->hash = (uint32_t *)(void *)(store->memory + header->hash_offset);
    atomic_store_explicit(&header->magic, REC_CALLSITE_MAGIC, memory_order_release);
    return true;
}

static uint32_t hash_bytes(uint32_t kind, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t h = UINT64_C(0x9e3779b97f4a7c15) ^ kind;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return (uint32_t)(h ^ h >> 32);
}

static size_t payload_bytes(const struct rec_callsite_record *record)
{
    switch (record->kind) {
    case REC_CALLSITE_STRING:
        return record->count;
    case REC_CALLSITE_LOCATION:
        return 12;
    default:
        return (size_t)record->count * 4;
    }
}

static struct rec_callsite_record *record_at(const struct store *store, uint32_t offset)
{
    return (struct rec_callsite_record *)(void *)(store->memory + offset);
}

/* The record with this content; a new one gets the number id. 0 = memory full. */
static uint32_t intern(struct store *store, struct rec_callsite_record key, const void *payload)
{
    struct rec_callsite_header *header = store->header;
    size_t bytes = payload_bytes(&key);
    key.hash = hash_bytes(key.kind, payload, bytes);
    uint32_t mask = header->hash_slots - 1;
    uint32_t slot = key.hash & mask;
    for (; store->hash[slot] != 0; slot = (slot + 1) & mask) {
        const struct rec_callsite_record *old = record_at(store, store->hash[slot]);
        if (old->hash == key.hash && old->kind == key.kind && old->count == key.count &&
            memcmp(old + 1, payload, bytes) == 0)
            return store->hash[slot];
    }
    uint32_t offset = atomic_load_explicit(&header->used, memory_order_relaxed);
    uint32_t need = round_up((uint32_t)(sizeof(key) + bytes), 4);
    if (need > header->bytes - offset || store->records >= header->hash_slots / 4 * 3)
        return 0;
    struct rec_callsite_record *record = record_at(store, offset);
    *record = key;
    memcpy(record + 1, payload, bytes);
    store->hash[slot] = offset;
    store->records++;
    atomic_store_explicit(&header->used, offset + need, memory_order_relaxed);
    return offset;
}

uint32_t store_string(struct store *store, const char *text, size_t length)
{
    return intern(store, (struct rec_callsite_record){.kind = REC_CALLSITE_STRING, .count = (uint16_t)length},
                  text);
}

uint32_t store_location(struct store *store, uint32_t file, uint32_t function, uint32_t line)
{
    uint32_t payload[3] = {file, function, line};
    return intern(store, (struct rec_callsite_record){.kind = REC_CALLSITE_LOCATION, .count = 3}, payload);
}

static uint32_t site(struct store *store, enum rec_callsite_record_kind kind, unsigned count,
                     const uint32_t *payload)
{
    struct rec_callsite_header *header = store->header;
    uint32_t next = atomic_load_explicit(&header->sites, memory_order_relaxed) + 1;
    struct rec_callsite_record key = {.kind = (uint16_t)kind, .count = (uint16_t)count, .id = next};
    if (next > header->max_sites)
        return 0;
    uint32_t offset = intern(store, key, payload);
    if (offset == 0)
        return 0;
    uint32_t id = record_at(store, offset)->id;
    if (id == next) {
        atomic_store_explicit(&store->index[id], offset, memory_order_release);
        atomic_store_explicit(&header->sites, id, memory_order_release);
    }
    return id;
}

uint32_t store_python(struct store *store, const uint32_t *locations, unsigned count)
{
    return site(store, REC_CALLSITE_STACK, count, locations);
}

uint32_t store_native(struct store *store, const uintptr_t *addresses, unsigned count)
{
    uint32_t payload[2 * REC_CALLSITE_MAX_ADDRESSES];
    for (unsigned i = 0; i < count; i++) {
        payload[2 * i] = (uint32_t)addresses[i];
        payload[2 * i + 1] = (uint32_t)((uint64_t)addresses[i] >> 32);
    }
    return site(store, REC_CALLSITE_ADDRESS, 2 * count, payload);
}
