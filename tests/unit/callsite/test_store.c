/* The call-site memory: what is written can be read by another, damage cannot hurt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "store.h"

static void *zeroed(size_t bytes)
{
    void *memory = aligned_alloc(64, bytes);
    assert_non_null(memory);
    return memset(memory, 0, bytes);
}

static uint32_t put_location(struct store *store, const char *file, const char *function, uint32_t line)
{
    uint32_t file_at = store_string(store, file, strlen(file));
    uint32_t function_at = store_string(store, function, strlen(function));
    return file_at != 0 && function_at != 0 ? store_location(store, file_at, function_at, line) : 0;
}

static void check_frame(const struct rec_callsite_frame *frame, const char *file, const char *function,
                        uint32_t line)
{
    assert_int_equal(frame->file_length, strlen(file));
    assert_memory_equal(frame->file, file, frame->file_length);
    assert_int_equal(frame->function_length, strlen(function));
    assert_memory_equal(frame->function, function, frame->function_length);
    assert_int_equal(frame->line, line);
}

static void round_trip(void **unused)
{
    (void)unused;
    struct store store;
    struct rec_callsite_reader reader;
    struct rec_callsite_site site;
    void *memory = zeroed(CALLSITE_MIN_BYTES);
    assert_false(rec_callsite_open(memory, CALLSITE_MIN_BYTES, &reader));
    assert_false(store_init(&store, memory, CALLSITE_MIN_BYTES - 64));
    assert_true(store_init(&store, memory, CALLSITE_MIN_BYTES));
    assert_true(rec_callsite_open(memory, CALLSITE_MIN_BYTES, &reader));
    assert_false(rec_callsite_read(&reader, 0, &site));
    assert_false(rec_callsite_read(&reader, 1, &site));

    uint32_t stack[2] = {put_location(&store, "a.py", "step", 7), put_location(&store, "a.py", "main", 99)};
    assert_int_equal(store_python(&store, stack, 2), 1);
    assert_int_equal(store_python(&store, stack, 1), 2);
    assert_int_equal(store_native(&store, (uintptr_t[]){0x7fff12345678}, 1), 3);
    uint32_t used = atomic_load(&store.header->used);
    assert_int_equal(store_python(&store, stack, 2), 1);
    assert_int_equal(store_native(&store, (uintptr_t[]){0x7fff12345678}, 1), 3);
    assert_int_equal(atomic_load(&store.header->used), used);
    assert_int_equal(atomic_load(&store.header->sites), 3);

    assert_true(rec_callsite_read(&reader, 1, &site));
    assert_int_equal(site.kind, REC_CALLSITE_STACK);
    assert_int_equal(site.frame_count, 2);
    check_frame(&site.frames[0], "a.py", "step", 7);
    check_frame(&site.frames[1], "a.py", "main", 99);
    assert_true(rec_callsite_read(&reader, 3, &site));
    assert_int_equal(site.kind, REC_CALLSITE_ADDRESS);
    assert_true(site.addresses[0] == UINT64_C(0x7fff12345678));
    assert_false(rec_callsite_read(&reader, 4, &site));
    assert_false(rec_callsite_read(&reader, UINT32_MAX, &site));
    assert_false(rec_callsite_open(memory, CALLSITE_MIN_BYTES - 1, &reader));
    free(memory);
}

/* Until full: every number given stays readable and right, none is given twice. */
static void full(void **unused)
{
    (void)unused;
    struct store store;
    struct rec_callsite_reader reader;
    struct rec_callsite_site site;
    void *memory = zeroed(CALLSITE_MIN_BYTES);
    assert_true(store_init(&store, memory, CALLSITE_MIN_BYTES));
    assert_true(rec_callsite_open(memory, CALLSITE_MIN_BYTES, &reader));
    uint32_t last = 0;
    for (uint32_t line = 1; line < 5000; line++) {
        uint32_t location = put_location(&store, "train.py", "step", line);
        uint32_t id = location != 0 ? store_python(&store, &location, 1) : 0;
        if (id == 0)
            break;
        assert_int_equal(id, last + 1);
        last = id;
    }
    assert_in_range(last, 50, 4000);
    for (uint32_t id = 1; id <= last; id++) {
        assert_true(rec_callsite_read(&reader, id, &site));
        check_frame(&site.frames[0], "train.py", "step", id);
    }
    assert_int_equal(store_native(&store, &(uintptr_t){1}, 1), 0);
    assert_true(atomic_load(&store.header->used) <= CALLSITE_MIN_BYTES);
    free(memory);
}

/* Random damage anywhere: reading stays inside the memory, which ends where the allocation ends. */
static void damage(void **unused)
{
    (void)unused;
    struct store store;
    void *memory = zeroed(CALLSITE_MIN_BYTES);
    assert_true(store_init(&store, memory, CALLSITE_MIN_BYTES));
    for (uint32_t i = 0; i < 40; i++) {
        uint32_t stack[3] = {put_location(&store, "a.py", "f", i), put_location(&store, "b.py", "g", i),
                             put_location(&store, "c.py", "h", i)};
        assert_int_not_equal(store_python(&store, stack, 3), 0);
    }
    unsigned char *copy = malloc(CALLSITE_MIN_BYTES);
    assert_non_null(copy);
    uint64_t random = 7;
    unsigned readable = 0, sum = 0;
    for (unsigned round = 0; round < 3000; round++) {
        memcpy(copy, memory, CALLSITE_MIN_BYTES);
        for (unsigned i = 0; i < 8; i++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            /* Half of the damage hits the header and the index. */
            size_t range = i % 2 ? CALLSITE_MIN_BYTES : sizeof(struct rec_callsite_header) + 200;
            copy[(random >> 33) % range] = (unsigned char)(random >> 24);
        }
        struct rec_callsite_reader reader;
        if (!rec_callsite_open(copy, CALLSITE_MIN_BYTES, &reader))
            continue;
        for (uint32_t id = 0; id < 60; id++) {
            struct rec_callsite_site site;
            if (!rec_callsite_read(&reader, id, &site))
                continue;
            readable++;
            for (uint32_t i = 0; i < site.frame_count; i++)
                for (uint32_t j = 0; j < site.frames[i].file_length; j++)
                    sum += (unsigned char)site.frames[i].file[j];
        }
    }
    assert_true(readable > 1000 && sum > 0);
    free(copy);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(full),
        cmocka_unit_test(damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
