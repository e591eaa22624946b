/*
 * Streams and user-defined operators by their NCCL-side names: small hash maps, read without a
 * lock on the hot path, filled under the slow lock. Stream entries are never taken out, so a
 * published key stays; an operator's map entry dies with the operator.
 */
#include "inject.h"

#include <string.h>

#include "cuda.h"

#define MAP_SIZE 2048

struct map_entry {
    _Atomic uint64_t key; /* 0 = empty, 1 = deleted. Release after value */
    _Atomic uint32_t value;
};

static struct map_entry streams[MAP_SIZE], redops[MAP_SIZE];
static uint32_t stream_count, redop_count; /* under the slow lock */
static _Atomic bool streams_full;

static uint32_t map_find(struct map_entry *map, uint64_t key)
{
    uint64_t at = (key * UINT64_C(0x9e3779b97f4a7c15)) >> 53;
    for (unsigned probes = 0; probes < MAP_SIZE; probes++, at = (at + 1) % MAP_SIZE) {
        uint64_t have = atomic_load_explicit(&map[at].key, memory_order_acquire);
        if (have == key)
            return atomic_load_explicit(&map[at].value, memory_order_relaxed);
        if (have == 0)
            break;
    }
    return UINT32_MAX;
}

/* Under the slow lock; the key is not in the map. */
static void map_add(struct map_entry *map, uint64_t key, uint32_t value)
{
    uint64_t at = (key * UINT64_C(0x9e3779b97f4a7c15)) >> 53;
    for (unsigned probes = 0; probes < MAP_SIZE; probes++, at = (at + 1) % MAP_SIZE) {
        if (atomic_load_explicit(&map[at].key, memory_order_relaxed) > 1)
            continue;
        atomic_store_explicit(&map[at].value, value, memory_order_relaxed);
        atomic_store_explicit(&map[at].key, key, memory_order_release);
        return;
    }
}

static void map_remove(struct map_entry *map, uint64_t key)
{
    uint64_t at = (key * UINT64_C(0x9e3779b97f4a7c15)) >> 53;
    for (unsigned probes = 0; probes < MAP_SIZE; probes++, at = (at + 1) % MAP_SIZE) {
        uint64_t have = atomic_load_explicit(&map[at].key, memory_order_relaxed);
        if (have == 0)
            return;
        if (have != key)
            continue;
        atomic_store_explicit(&map[at].key, 1, memory_order_relaxed);
        /* Deleted marks before the end of a chain are ends themselves: keeps chains short. */
        while (atomic_load_explicit(&map[(at + 1) % MAP_SIZE].key, memory_order_relaxed) == 0 &&
               atomic_load_explicit(&map[at].key, memory_order_relaxed) == 1) {
            atomic_store_explicit(&map[at].key, 0, memory_order_relaxed);
            at = (at + MAP_SIZE - 1) % MAP_SIZE;
        }
        return;
    }
}

/* ---- streams ---------------------------------------------------------------------------- */

/* Handles 0, 1 and 2 (NULL, legacy, per thread) exist once per device: the communicator's. */
static uint64_t stream_key(uint64_t handle, int32_t device)
{
    return handle > 2 ? handle : (UINT64_C(1) << 63) | (uint64_t)(uint32_t)device << 8 | (handle + 2);
}

static uint16_t stream_add(uint64_t key, uint64_t handle, int32_t device)
{
    uint16_t index = REC_LIVE_NONE16;
    slow_lock();
    uint32_t have = map_find(streams, key);
    if (have != UINT32_MAX) {
        index = (uint16_t)have;
    } else if (stream_count < recorder.live.header->stream_count) {
        index = (uint16_t)stream_count++;
        struct rec_live_stream *stream = &recorder.live.streams[index];
        stream->handle = handle;
        stream->device = device;
        atomic_store_explicit(&stream->used, 1, memory_order_release);
        map_add(streams, key, index);
    } else {
        atomic_store_explicit(&streams_full, true, memory_order_relaxed);
    }
    slow_unlock();
    return index;
}

uint16_t stream_index(void *handle, uint16_t comm)
{
    uint64_t number = (uint64_t)(uintptr_t)handle;
    int32_t device = -1;
    if (unlikely(number <= 2) && comm != REC_LIVE_NONE16)
        device = atomic_load_explicit(&recorder.live.comms[comm].device, memory_order_relaxed);
    uint64_t key = stream_key(number, device);
    uint32_t index = map_find(streams, key);
    if (likely(index != UINT32_MAX))
        return (uint16_t)index;
    if (atomic_load_explicit(&streams_full, memory_order_relaxed))
        return REC_LIVE_NONE16;
    if (number > 2 && comm != REC_LIVE_NONE16)
        device = atomic_load_explicit(&recorder.live.comms[comm].device, memory_order_relaxed);
    /* The driver is loaded by the time there are streams. */
    cuda_look_for_driver();
    return stream_add(key, number, device);
}

/* ---- operators ----------------------------------------------------------------------------- */

static uint64_t redop_key(uint16_t comm, int op)
{
    return (UINT64_C(1) << 63) | (uint64_t)comm << 32 | (uint32_t)op;
}

uint8_t redop_code_user(uint16_t comm, int op)
{
    uint32_t index = map_find(redops, redop_key(comm, op));
    return index == UINT32_MAX ? REC_REDOP_NONE : (uint8_t)(REC_REDOP_USER + index);
}

static uint64_t definition_hash(unsigned dtype)
{
    return rec_mix64(UINT64_C(0x507265) ^ rec_mix64(REC_RED_OP_CREATE_PRE_MUL_SUM * 256u + dtype));
}

/* Jobs create the same operator over and over; a definition is kept once. */
static uint32_t redop_define(uint32_t comm_id, unsigned dtype, unsigned residence, uint64_t scalar)
{
    uint64_t hash = definition_hash(dtype);
    uint32_t same_type = UINT32_MAX;
    for (uint32_t i = 0; i < redop_count; i++) {
        const struct rec_live_redop *have = &recorder.live.redops[i];
        if (have->hash != hash)
            continue;
        same_type = i;
        if (have->residence == residence && have->scalar == scalar && have->comm_id == comm_id)
            return i;
    }
    if (redop_count >= recorder.live.header->redop_count)
        return same_type;
    struct rec_live_redop *redop = &recorder.live.redops[redop_count];
    redop->dtype = dtype;
    redop->residence = residence;
    redop->comm_id = comm_id;
    redop->scalar = scalar;
    redop->hash = hash;
    atomic_store_explicit(&redop->used, 1, memory_order_release);
    return redop_count++;
}

void redop_created(uint16_t comm, int op, unsigned dtype, unsigned residence, uint64_t scalar)
{
    if (comm == REC_LIVE_NONE16)
        return;
    uint32_t comm_id = atomic_load_explicit(&recorder.live.comms[comm].id, memory_order_relaxed);
    slow_lock();
    uint32_t index = redop_define(comm_id, dtype, residence, scalar);
    if (index != UINT32_MAX) {
        map_remove(redops, redop_key(comm, op));
        map_add(redops, redop_key(comm, op), index);
    }
    slow_unlock();
}

void redop_destroyed(uint16_t comm, int op)
{
    slow_lock();
    map_remove(redops, redop_key(comm, op));
    slow_unlock();
}

void tables_forget(void)
{
    memset(streams, 0, sizeof(streams));
    memset(redops, 0, sizeof(redops));
    stream_count = redop_count = 0;
    atomic_store_explicit(&streams_full, false, memory_order_relaxed);
}
