/* Copying a live region while it is written: nothing torn, nothing lost, nothing invented. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "internal.h"
#include "maker.h"

#define CHUNKS 4
#define OPS    400000

/*
 * A thread that calls NCCL as fast as it can and frees its oldest chunk when it needs one, as
 * the recorder's thread and its drain do; every field of an op follows from its ordinal.
 */
struct caller {
    struct maker_region *region;
    _Atomic uint64_t freed; /* ordinals below are in chunks that were set free ("in the file") */
    _Atomic bool done;
};

static void store_slot(union rec_live_slot *slot, uint64_t ordinal, bool open)
{
    union {
        struct rec_slot slot;
        uint64_t words[8];
    } image = {.slot = {
                   .ordinal = ordinal,
                   .enter = 1000 + ordinal,
                   .exit = open ? 0 : 2000 + ordinal,
                   .count = ordinal * 3,
                   .seq = ordinal,
                   .stream = REC_LIVE_NONE16,
                   .peer = -1,
                   .kind = REC_ALL_REDUCE,
                   .result = open ? REC_RESULT_NONE : REC_RESULT_SUCCESS,
               }};
    for (int i = 0; i < 8; i++)
        atomic_store_explicit(&slot->words[i], image.words[i], memory_order_relaxed);
}

static void *call(void *arg)
{
    struct caller *caller = arg;
    struct rec_live *live = &caller->region->live;
    struct rec_live_thread *thread = &live->threads[0];
    for (uint64_t ordinal = 0; ordinal < OPS; ordinal++) {
        uint32_t index = (uint32_t)(ordinal / REC_LIVE_CHUNK_SLOTS % CHUNKS);
        uint32_t at = (uint32_t)(ordinal % REC_LIVE_CHUNK_SLOTS);
        struct rec_live_chunk *chunk = &live->chunks[index];
        if (at == 0) {
            if (ordinal >= CHUNKS * REC_LIVE_CHUNK_SLOTS)
                atomic_store(&caller->freed, ordinal - (CHUNKS - 1) * REC_LIVE_CHUNK_SLOTS);
            atomic_store_explicit(&chunk->done, 0, memory_order_relaxed);
            atomic_store_explicit(&chunk->owner, 0, memory_order_release);
            atomic_store_explicit(&chunk->claim, ordinal / REC_LIVE_CHUNK_SLOTS + 1, memory_order_relaxed);
            atomic_store_explicit(&chunk->first_ordinal, ordinal, memory_order_relaxed);
            atomic_store_explicit(&chunk->thread_id, 1, memory_order_relaxed);
            atomic_store_explicit(&chunk->owner, 1, memory_order_release);
            atomic_store_explicit(&thread->chunk, index + 1, memory_order_relaxed);
        }
        atomic_store_explicit(&thread->ordinal, ordinal + 1, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        union rec_live_slot *slot = &live->slots[(size_t)index * REC_LIVE_CHUNK_SLOTS + at];
        store_slot(slot, ordinal, true);
        atomic_store_explicit(&thread->open, ordinal + 1, memory_order_release);
        store_slot(slot, ordinal, false);
        atomic_store_explicit(&chunk->done, at + 1, memory_order_release);
        atomic_store_explicit(&thread->open, 0, memory_order_release);
    }
    atomic_store(&caller->done, true);
    return NULL;
}

/*
 * What was entered before and had not been freed after is there, once, whole and without a
 * hole; the very last call may have been between its stores. Returns the ops seen.
 */
static uint64_t check(const struct job_snapshot *snapshot, uint64_t entered, uint64_t freed)
{
    const struct rec_live *copy = &snapshot->copy;
    uint64_t next = freed, ops = 0;
    for (uint32_t i = 0; i < snapshot->nchunks; i++) {
        const struct rec_live_chunk *chunk = &copy->chunks[snapshot->chunks[i]];
        for (uint32_t k = 0; k < chunk->done; k++) {
            const struct rec_slot *slot =
                &copy->slots[(size_t)snapshot->chunks[i] * REC_LIVE_CHUNK_SLOTS + k].fields;
            assert_int_equal(slot->count, slot->ordinal * 3);
            assert_int_equal(slot->exit, slot->ordinal + 2000);
            ops++;
            if (slot->ordinal < freed)
                continue;
            assert_int_equal(slot->ordinal, next);
            next++;
        }
    }
    for (uint32_t i = 0; i < snapshot->nopen; i++) {
        assert_int_equal(snapshot->open[i].count, snapshot->open[i].ordinal * 3);
        if (snapshot->open[i].ordinal >= freed)
            assert_int_equal(snapshot->open[i].ordinal, next++);
    }
    assert_true(next + 1 >= entered);
    return ops;
}

static void test_while_written(void **state)
{
    (void)state;
    char dir[64], path[128];
    struct maker_region region;
    maker_dir(dir, sizeof(dir));
    snprintf(path, sizeof(path), "%s/1.live", dir);
    maker_region(&region, path, 0xa1, getpid(), maker_start_ticks(getpid()), dir, "{}");
    maker_region_thread(&region, 0, 1);
    struct caller caller = {.region = &region};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, call, &caller), 0);
    uint64_t snapshots = 0, ops = 0;
    bool last = false;
    while (!last) {
        last = atomic_load(&caller.done);
        struct job_snapshot *snapshot;
        struct rec_error err = {0};
        uint64_t entered = atomic_load(&region.live.threads[0].ordinal);
        assert_int_equal(job_snapshot_take(path, &snapshot, &err), REC_OK);
        ops += check(snapshot, entered, atomic_load(&caller.freed));
        assert_true(snapshot->alive);
        job_snapshot_free(snapshot);
        snapshots++;
    }
    pthread_join(thread, NULL);
    assert_true(snapshots > 1);
    assert_true(ops > 0);
    maker_region_close(&region);
    maker_clean(dir);
}

static void test_reused_communicator_entry(void **state)
{
    (void)state;
    char dir[64], path[128];
    struct maker_region region;
    struct job_snapshot *snapshot;
    struct rec_comm_def def;
    struct rec_error err = {0};
    maker_dir(dir, sizeof(dir));
    snprintf(path, sizeof(path), "%s/1.live", dir);
    maker_region(&region, path, 0xa1, 1, 1, dir, "{}");
    maker_region_comm(&region, 0, 7, 0x100, 4, 1, 33);
    maker_region_comm(&region, 1, 8, 0x200, 4, 1, 44);
    atomic_store(&region.live.comms[1].version, 3); /* being changed, and its writer is gone */
    assert_int_equal(job_snapshot_take(path, &snapshot, &err), REC_OK);
    assert_true(job_snapshot_comm(snapshot, 0, &def));
    assert_int_equal(def.id, 7);
    assert_int_equal(def.uid, 0x100);
    assert_false(job_snapshot_comm(snapshot, 1, &def));
    assert_false(job_snapshot_comm(snapshot, 2, &def));
    assert_false(snapshot->alive);
    job_snapshot_free(snapshot);
    maker_region_close(&region);
    maker_clean(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_while_written),
        cmocka_unit_test(test_reused_communicator_entry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
