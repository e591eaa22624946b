/* The map of handles (map.h) against a list that is searched, with keys that collide. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "map.h"

enum { BITS = 4, PLACES = 1 << BITS, KEYS = 24 };

static struct map_entry entries[PLACES];
static const struct map map = {entries, BITS};

static int empty(void **state)
{
    (void)state;
    map_clear(&map);
    return 0;
}

static void no_handles(void **state)
{
    (void)state;
    for (uint64_t key = 0; key < 2; key++) {
        map_put(&map, key, 7);
        map_remove(&map, key);
        assert_int_equal(map_find(&map, key), MAP_NONE);
    }
    for (int i = 0; i < PLACES; i++)
        assert_int_equal(atomic_load(&entries[i].key), 0);
}

static void full(void **state)
{
    (void)state;
    for (uint32_t key = 2; key < 2 + PLACES + 1; key++)
        map_put(&map, key, key);
    for (uint32_t key = 2; key < 2 + PLACES; key++)
        assert_int_equal(map_find(&map, key), key);
    assert_int_equal(map_find(&map, 2 + PLACES), MAP_NONE);
    map_put(&map, 5, 50); /* known keys can change */
    assert_int_equal(map_find(&map, 5), 50);
    map_remove(&map, 9);
    map_put(&map, 2 + PLACES, 1);
    assert_int_equal(map_find(&map, 2 + PLACES), 1);
    assert_int_equal(map_find(&map, 9), MAP_NONE);
}

/* A key stands once, wherever others before it have come and gone. */
static void changes(void **state)
{
    (void)state;
    uint32_t expected[KEYS];
    for (int i = 0; i < KEYS; i++)
        expected[i] = MAP_NONE;
    srand(1);
    for (uint32_t round = 0, held = 0; round < 20000; round++) {
        int i = rand() % KEYS;
        if (rand() % 2) {
            map_remove(&map, (uint64_t)i + 2);
            held -= expected[i] != MAP_NONE;
            expected[i] = MAP_NONE;
        } else if (expected[i] != MAP_NONE || held < PLACES) {
            map_put(&map, (uint64_t)i + 2, round);
            held += expected[i] == MAP_NONE;
            expected[i] = round;
        }
        for (i = 0; i < KEYS; i++)
            assert_int_equal(map_find(&map, (uint64_t)i + 2), expected[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(no_handles, empty),
        cmocka_unit_test_setup(full, empty),
        cmocka_unit_test_setup(changes, empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
