/*
 * A small hash map from handles to numbers: open addressing, fixed size. Read without a lock;
 * changed by one thread at a time (under the slow lock). A key that goes away while another thread
 * looks for it is found or not; all others are found.
 */
#ifndef INJECT_MAP_H
#define INJECT_MAP_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define MAP_NONE UINT32_MAX

struct map_entry {
    _Atomic uint64_t key; /* 0 = empty, 1 = deleted. Release after value */
    _Atomic uint32_t value;
};

struct map {
    struct map_entry *entries;
    unsigned bits; /* it has 2^bits of them */
};

static inline uint64_t map_place(const struct map *map, uint64_t key)
{
    return (key * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - map->bits);
}

static inline uint64_t map_mask(const struct map *map)
{
    return (UINT64_C(1) << map->bits) - 1;
}

/* MAP_NONE: not there, as keys that are no handles (0 and 1) never are. */
static inline uint32_t map_find(const struct map *map, uint64_t key)
{
    uint64_t at = map_place(map, key), mask = map_mask(map);
    if (key <= 1)
        return MAP_NONE;
    for (uint64_t probes = 0; probes <= mask; probes++, at = (at + 1) & mask) {
        uint64_t have = atomic_load_explicit(&map->entries[at].key, memory_order_acquire);
        if (__builtin_expect(have == key, 1))
            return atomic_load_explicit(&map->entries[at].value, memory_order_relaxed);
        if (have == 0)
            break;
    }
    return MAP_NONE;
}

/* A key that was there is found all the while, with its former value or this one. A full map takes no new
 * key. */
static inline void map_put(const struct map *map, uint64_t key, uint32_t value)
{
    uint64_t at = map_place(map, key), mask = map_mask(map), place = UINT64_MAX;
    for (uint64_t probes = 0; key > 1 && probes <= mask; probes++, at = (at + 1) & mask) {
        uint64_t have = atomic_load_explicit(&map->entries[at].key, memory_order_relaxed);
        if (have == key || (have <= 1 && place == UINT64_MAX))
            place = at;
        if (have == key || have == 0)
            break;
    }
    if (place == UINT64_MAX)
        return;
    atomic_store_explicit(&map->entries[place].value, value, memory_order_relaxed);
    atomic_store_explicit(&map->entries[place].key, key, memory_order_release);
}

static inline void map_remove(const struct map *map, uint64_t key)
{
    uint64_t at = map_place(map, key), mask = map_mask(map);
    for (uint64_t probes = 0; key > 1 && probes <= mask; probes++, at = (at + 1) & mask) {
        uint64_t have = atomic_load_explicit(&map->entries[at].key, memory_order_relaxed);
        if (have == 0)
            return;
        if (have != key)
            continue;
        atomic_store_explicit(&map->entries[at].key, 1, memory_order_relaxed);
        /* Deleted marks before the end of a chain are ends themselves: keeps chains short. */
        while (atomic_load_explicit(&map->entries[(at + 1) & mask].key, memory_order_relaxed) == 0 &&
               atomic_load_explicit(&map->entries[at].key, memory_order_relaxed) == 1) {
            atomic_store_explicit(&map->entries[at].key, 0, memory_order_relaxed);
            at = (at - 1) & mask;
        }
        return;
    }
}

static inline void map_clear(const struct map *map)
{
    memset(map->entries, 0, sizeof(map->entries[0]) << map->bits);
}

#endif
