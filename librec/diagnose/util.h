/* Small containers of the diagnosis: maps from keys to indices, arrays that grow, texts. */
#ifndef DIAG_UTIL_H
#define DIAG_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/model.h"

#define DIAG_NONE UINT32_MAX

/* 64-bit key → index. Keys are hashes; two different things with one hash are not expected. */
struct diag_map {
    uint64_t *keys; /* 0 = free */
    uint32_t *values;
    size_t capacity, used;
};
/* The value's place; *fresh tells that it was made now (value DIAG_NONE). NULL without memory. */
uint32_t *diag_map_put(struct diag_map *map, uint64_t key, bool *fresh);
uint32_t diag_map_get(const struct diag_map *map, uint64_t key); /* DIAG_NONE when absent */
void diag_map_free(struct diag_map *map);

static inline uint64_t diag_key(uint64_t a, uint64_t b, uint64_t c)
{
    return rec_mix64(rec_mix64(rec_mix64(a + 0x11) ^ (b + 0x9e3779b97f4a7c15u)) ^ (c + 0x7f4a7c15u)) | 1;
}

/* The array with room for one more element; without memory the old array, and *oom set. */
void *diag_grow_now(void *array, size_t *capacity, size_t size, bool *oom);
static inline void *diag_grow(void *array, size_t *capacity, size_t count, size_t size, bool *oom)
{
    return *oom || count < *capacity ? array : diag_grow_now(array, capacity, size, oom);
}
#define DIAG_ROOM(d, array, count)                                                                           \
    ((d)->array = diag_grow((d)->array, &(d)->array##_cap, count, sizeof *(d)->array, &(d)->oom), !(d)->oom)

/* Growing text. */
struct diag_text {
    char *data; /* NULL while empty */
    size_t length, capacity;
    bool oom;
};
void diag_printf(struct diag_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
