/*
 * Streams and user-defined operators by their NCCL-side names: small hash maps, read without a
 * lock on the hot path, filled under the slow lock. Stream entries are never taken out, so a
 * published key stays; an operator's map entry dies with the operator.
 */
#include "inject.h"

#include <string.h>

#include "cuda.h"
#include "map.h"

static struct map_entry stream_entries[2048], redop_entries[2048];
static const struct map streams = {stream_entries, 11}, redops = {redop_entries, 11};
static uint32_t stream_count, redop_count; /* under the slow lock */
static _Atomic bool streams_full;

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
    uint32_t have = map_find(&streams, key);
    if (have != MAP_NONE) {
        index = (uint16_t)have;
    } else if (stream_count < recorder.live.header->stream_count) {
        index = (uint16_t)stream_count++;
        struct rec_live_stream *stream = &recorder.live.streams[index];
        stream->handle = handle;
        stream->device = device;
        atomic_store_explicit(&stream->used, 1, memory_order_release);
        map_put(&streams, key, index);
    } else {
        atomic_store_explicit(&streams_full, true, memory_order_relaxed);
    }
    slow_unlock();
    return index;
}

uint16_t stream_index_on(void *handle, int32_t device)
{
    uint64_t number = (uint64_t)(uintptr_t)handle, key = stream_key(number, device);
    uint32_t index = map_find(&streams, key);
    if (likely(index != MAP_NONE))
        return (uint16_t)index;
    if (atomic_load_explicit(&streams_full, memory_order_relaxed))
        return REC_LIVE_NONE16;
    /* The driver is loaded by the time there are streams. */
    cuda_look_for_driver();
    return stream_add(key, number, device);
}

uint16_t stream_index(void *handle, uint16_t comm)
{
    uint64_t number = (uint64_t)(uintptr_t)handle;
    uint32_t index = number > 2 ? map_find(&streams, number) : MAP_NONE;
    if (likely(index != MAP_NONE))
        return (uint16_t)index;
    int32_t device = -1;
    if (comm != REC_LIVE_NONE16)
        device = atomic_load_explicit(&recorder.live.comms[comm].device, memory_order_relaxed);
    return stream_index_on(handle, device);
}

/* ---- operators ----------------------------------------------------------------------------- */

static uint64_t redop_key(uint16_t comm, int op)
{
    return (UINT64_C(1) << 63) | (uint64_t)comm << 32 | (uint32_t)op;
}

uint8_t redop_code_user(uint16_t comm, int op)
{
    uint32_t index = map_find(&redops, redop_key(comm, op));
    return index == MAP_NONE ? REC_REDOP_NONE : (uint8_t)(REC_REDOP_USER + index);
}

static uint64_t definition_hash(unsigned dtype)
{
    return rec_mix64(UINT64_C(0x507265) ^ rec_mix64(REC_RED_OP_CREATE_PRE_MUL_SUM * 256u + dtype));
}

/* Jobs create the same operator over and over; a definition is kept once. */
static uint32_t redop_define(uint32_t comm_id, unsigned dtype, unsigned residence, uint64_t scalar)
{
    uint64_t hash = definition_hash(dtype);
    uint32_t same_type = MAP_NONE;
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
    if (index != MAP_NONE)
        map_put(&redops, redop_key(comm, op), index);
    slow_unlock();
}

void redop_destroyed(uint16_t comm, int op)
{
    slow_lock();
    map_remove(&redops, redop_key(comm, op));
    slow_unlock();
}

void tables_forget(void)
{
    map_clear(&streams);
    map_clear(&redops);
    stream_count = redop_count = 0;
    atomic_store_explicit(&streams_full, false, memory_order_relaxed);
}
