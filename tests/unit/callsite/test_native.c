/*
 * Call sites without Python: return addresses from many threads, and what frame pointers lead to.
 */
#include "made_up.h"

#include <sys/mman.h>

static char code_of_none;

#define ADDRESSES 3000

static void *capture_all(void *argument)
{
    uint32_t *numbers = argument;
    for (unsigned round = 0; round < 3; round++)
        for (uintptr_t i = 0; i < ADDRESSES; i++) {
            uint32_t id = callsite_capture(address(i));
            if (id != 0)
                numbers[i] = id;
        }
    return NULL;
}

/* All threads get the same number for an address; the cache holds fewer than there are. */
static void native_threads(void **unused)
{
    (void)unused;
    static uint32_t numbers[THREADS][ADDRESSES];
    pthread_t threads[THREADS];
    struct callsite_config config = {
        .memory = zeroed(), .bytes = BYTES, .frames = 16, .misses_per_second = 1u << 30};
    assert_true(callsite_init(&config));
    assert_int_equal(callsite_capture(NULL), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, capture_all, numbers[i]), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < ADDRESSES; i++) {
        uint32_t id = 0;
        for (unsigned t = 0; t < THREADS; t++) {
            if (numbers[t][i] != 0 && id == 0)
                id = numbers[t][i];
            assert_true(numbers[t][i] == 0 || numbers[t][i] == id);
        }
        if (id != 0) {
            struct rec_callsite_site site = site_of(id);
            assert_int_equal(site.kind, REC_CALLSITE_ADDRESS);
            assert_true(site.addresses[0] == (uintptr_t)address(i));
        }
    }
    assert_int_equal(atomic_load(&header()->sites) + 0u, ADDRESSES);
    assert_int_equal(atomic_load(&header()->python), REC_CALLSITE_PYTHON_NONE);
    callsite_stop();
    assert_int_equal(callsite_capture(address(1)), 0);
}

static void rate(void **unused)
{
    (void)unused;
    struct callsite_config config = {
        .memory = zeroed(), .bytes = BYTES, .frames = 16, .misses_per_second = 50};
    assert_true(callsite_init(&config));
    unsigned given = 0;
    for (uintptr_t i = 0; i < 1000; i++)
        given += callsite_capture(address(i)) != 0;
    assert_in_range(given, 50, 100); /* a new second may begin meanwhile */
    assert_int_equal(atomic_load(&header()->lost_rate) + given, 1000);
    assert_int_not_equal(callsite_capture(address(0)), 0);
}

static void too_small(void **unused)
{
    (void)unused;
    struct callsite_config config = {.memory = zeroed(), .bytes = CALLSITE_MIN_BYTES - 1, .frames = 16};
    assert_false(callsite_init(&config));
    assert_int_equal(callsite_capture(address(1)), 0);
}

/* ---- native stacks ---- */

/* Addresses behind calls, as the return addresses of a real stack are. */
static __attribute__((noinline)) const void *behind_a_call(void)
{
    return __builtin_return_address(0);
}

static uintptr_t places[4];

static void find_places(void)
{
    places[0] = (uintptr_t)behind_a_call();
    places[1] = (uintptr_t)behind_a_call();
    places[2] = (uintptr_t)behind_a_call();
    places[3] = (uintptr_t)behind_a_call();
}

static void start_native(unsigned frames)
{
    struct callsite_config config = {
        .memory = zeroed(), .bytes = BYTES, .native_frames = frames, .misses_per_second = 1000};
    assert_true(callsite_init(&config));
}

/* Frames as functions with frame pointers make them, then everything that is no such frame. */
static void native_frames(void **unused)
{
    (void)unused;
    _Alignas(16) uintptr_t words[64] = {0};
    struct callsite_thread thread;
    find_places();
    for (unsigned i = 0; i < 3; i++) {
        words[16 * i] = (uintptr_t)&words[16 * (i + 1)];
        words[16 * i + 1] = places[i];
    }
    words[49] = places[3];
    start_native(8);
    uint32_t id = callsite_capture_from(address(1), words);
    assert_int_equal(site_of(id).frame_count, 1); /* where this thread's stack lies is not known yet */
    callsite_thread(&thread);
    id = callsite_capture_from(address(2), words);
    struct rec_callsite_site site = site_of(id);
    assert_int_equal(site.frame_count, 4);
    assert_true(site.addresses[0] == (uintptr_t)address(2));
    for (unsigned i = 1; i < 4; i++)
        assert_true(site.addresses[i] == places[i]);
    assert_int_equal(callsite_capture_from(address(2), words), id);
    assert_int_equal(atomic_load(&header()->misses), 2);

    void *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const uintptr_t nonsense[] = {0,
                                  1,
                                  (uintptr_t)&words[0],
                                  (uintptr_t)&words[9],
                                  (uintptr_t)&words[20] + 4,
                                  (uintptr_t)hole,
                                  UINTPTR_MAX,
                                  (uintptr_t)-16};
    for (unsigned i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
        words[16] = nonsense[i];
        assert_int_equal(site_of(callsite_capture_from(address(2), words)).frame_count, 2);
        assert_int_not_equal(callsite_capture_from(address(2), (const void *)nonsense[i]), 0);
    }
    munmap(hole, 4096);
    start_native(1);
    id = callsite_capture_from(address(2), words);
    assert_int_equal(site_of(id).frame_count, 1);
}

/* Where the register holds anything, words that are no return addresses are not looked at for long. */
static void native_nonsense(void **unused)
{
    (void)unused;
    _Alignas(16) uintptr_t words[64] = {0};
    struct callsite_thread thread;
    find_places();
    start_native(8);
    callsite_thread(&thread);
    for (uintptr_t i = 0; i < 100000; i++) {
        words[0] = (uintptr_t)&words[2 + 2 * (i % 30)];
        words[3 + 2 * (i % 30)] = i * 0x1234567 + (uintptr_t)&code_of_none;
        uint32_t id = callsite_capture_from(address(7), words);
        assert_int_equal(site_of(id).frame_count, 1);
        assert_int_equal(id, 1);
    }
    assert_int_equal(atomic_load(&header()->misses), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(native_threads),  cmocka_unit_test(rate),
        cmocka_unit_test(too_small),       cmocka_unit_test(native_frames),
        cmocka_unit_test(native_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, free_memory);
}
