/* A live region in plain memory, and a writer of ops into it that follows rec/live.h. */
#ifndef TEST_REGION_H
#define TEST_REGION_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rec/live.h"

static const struct rec_live_config small_region = {
    .comms = 8, .threads = 4, .redops = 4, .streams = 4, .slots = 4 * REC_LIVE_CHUNK_SLOTS, .tick_ns = 64};

static inline void *make_region(const struct rec_live_config *config, struct rec_live *live)
{
    struct rec_live_header *scratch = malloc(sizeof(*scratch));
    assert_non_null(scratch);
    uint64_t bytes = rec_live_layout(config, scratch);
    free(scratch);
    void *memory = aligned_alloc(64, (bytes + 63) & ~UINT64_C(63));
    assert_non_null(memory);
    memset(memory, 0, bytes);
    rec_live_layout(config, memory);
    rec_live_attach(live, memory);
    live->header->magic = REC_LIVE_MAGIC;
    atomic_store(&live->header->clock.raw0, 1000);
    atomic_store(&live->header->clock.real0_ns, UINT64_C(1700000000000000000));
    return memory;
}

static inline void add_comm(struct rec_live *live, uint32_t index, uint32_t id, uint32_t state)
{
    struct rec_live_comm *comm = &live->comms[index];
    atomic_fetch_add(&comm->version, 1);
    atomic_store(&comm->id, id);
    atomic_store(&comm->state, state);
    atomic_store(&comm->nranks, 4);
    atomic_store(&comm->uid, 0x1000 + id);
    atomic_store(&comm->made_by, REC_COMM_INIT_RANK);
    atomic_fetch_add(&comm->version, 1);
}

static inline void add_thread(struct rec_live *live, uint32_t index, uint32_t id)
{
    struct rec_live_thread *thread = &live->threads[index];
    atomic_store(&thread->tid, (int32_t)(100 + id));
    atomic_store(&thread->ordinal, 0);
    atomic_store(&thread->lost, 0);
    atomic_store(&thread->chunk, 0);
    atomic_store(&thread->exited, 0);
    strcpy(thread->name, "worker");
    atomic_store(&thread->id, id);
}

static inline bool claim_chunk(struct rec_live *live, uint32_t thread_index)
{
    struct rec_live_thread *thread = &live->threads[thread_index];
    for (uint32_t i = 0; i < live->header->chunk_count; i++) {
        uint32_t expected = 0;
        if (!atomic_compare_exchange_strong(&live->chunks[i].owner, &expected, thread_index + 1))
            continue;
        atomic_store(&live->chunks[i].thread_id, atomic_load(&thread->id));
        atomic_store(&live->chunks[i].first_ordinal, atomic_load(&thread->ordinal));
        atomic_store(&live->chunks[i].claim, 1 + atomic_fetch_add(&live->header->next_claim, 1));
        atomic_store(&thread->chunk, i + 1);
        atomic_store(&thread->spilled, 0);
        return true;
    }
    atomic_store(&thread->spilled, 1);
    return false;
}

static inline void store_slot(union rec_live_slot *slot, const struct rec_slot *fields)
{
    uint64_t words[8];
    memcpy(words, fields, sizeof(words));
    for (int i = 0; i < 8; i++)
        atomic_store_explicit(&slot->words[i], words[i], memory_order_relaxed);
}

/* Enters an op; the slot is returned for close_op. Every field is derived from the ordinal. */
static inline union rec_live_slot *open_op(struct rec_live *live, uint32_t thread_index, uint16_t comm)
{
    struct rec_live_thread *thread = &live->threads[thread_index];
    uint64_t ordinal = atomic_load(&thread->ordinal);
    uint32_t chunk = atomic_load(&thread->chunk);
    bool have = chunk != 0 && !atomic_load(&thread->spilled) &&
                atomic_load(&live->chunks[chunk - 1].done) < REC_LIVE_CHUNK_SLOTS;
    if (!have && claim_chunk(live, thread_index))
        have = true;
    chunk = atomic_load(&thread->chunk);
    union rec_live_slot *slot = &thread->spill;
    if (have)
        slot = &live->slots[(uint64_t)(chunk - 1) * REC_LIVE_CHUNK_SLOTS +
                            atomic_load(&live->chunks[chunk - 1].done)];
    struct rec_slot fields = {
        .ordinal = ordinal,
        .enter = 1000 + ordinal * 10,
        .count = ordinal * 3,
        .seq = ordinal,
        .comm = comm,
        .stream = REC_LIVE_NONE16,
        .peer = -1,
        .kind = REC_ALL_REDUCE,
        .dtype = 7,
        .result = REC_RESULT_NONE,
    };
    atomic_store(&thread->ordinal, ordinal + 1);
    atomic_thread_fence(memory_order_release);
    store_slot(slot, &fields);
    atomic_store_explicit(&thread->open, ordinal + 1, memory_order_release);
    return slot;
}

static inline void close_op(struct rec_live *live, uint32_t thread_index, union rec_live_slot *slot)
{
    struct rec_live_thread *thread = &live->threads[thread_index];
    struct rec_slot fields;
    rec_live_slot_load(slot, &fields);
    fields.exit = fields.enter + 5;
    fields.result = REC_RESULT_SUCCESS;
    atomic_store_explicit(&slot->words[2], fields.exit, memory_order_relaxed);
    uint64_t words[8];
    memcpy(words, &fields, sizeof(words));
    atomic_store_explicit(&slot->words[7], words[7], memory_order_relaxed);
    if (slot == &thread->spill)
        atomic_fetch_add(&thread->lost, 1);
    else
        atomic_fetch_add_explicit(&live->chunks[atomic_load(&thread->chunk) - 1].done, 1,
                                  memory_order_release);
    atomic_store_explicit(&thread->open, 0, memory_order_release);
}

static inline void run_ops(struct rec_live *live, uint32_t thread_index, uint16_t comm, int count)
{
    for (int i = 0; i < count; i++)
        close_op(live, thread_index, open_op(live, thread_index, comm));
}

#endif
