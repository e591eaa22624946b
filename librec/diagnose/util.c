#include "util.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool map_grow(struct diag_map *map)
{
    size_t capacity = map->capacity ? map->capacity * 2 : 64;
    uint64_t *keys = calloc(capacity, sizeof *keys);
    uint32_t *values = malloc(capacity * sizeof *values);
    if (!keys || !values) {
        free(keys);
        free(values);
        return false;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (!map->keys[i])
            continue;
        size_t at = map->keys[i] & (capacity - 1);
        while (keys[at])
            at = (at + 1) & (capacity - 1);
        keys[at] = map->keys[i];
        values[at] = map->values[i];
    }
    free(map->keys);
    free(map->values);
    map->keys = keys;
    map->values = values;
    map->capacity = capacity;
    return true;
}

/* Keys come out of rec_mix64 with their lowest bit set: index by the other bits. */
static uint64_t spread(uint64_t key)
{
    return key << 63 | key >> 1;
}

uint32_t *diag_map_put(struct diag_map *map, uint64_t key, bool *fresh)
{
    if (map->used * 4 >= map->capacity * 3 && !map_grow(map))
        return NULL;
    key = spread(key);
    size_t at = key & (map->capacity - 1);
    while (map->keys[at] && map->keys[at] != key)
        at = (at + 1) & (map->capacity - 1);
    *fresh = !map->keys[at];
    if (*fresh) {
        map->keys[at] = key;
        map->values[at] = DIAG_NONE;
        map->used++;
    }
    return &map->values[at];
}

uint32_t diag_map_get(const struct diag_map *map, uint64_t key)
{
    if (!map->capacity)
        return DIAG_NONE;
    key = spread(key);
    for (size_t at = key & (map->capacity - 1); map->keys[at]; at = (at + 1) & (map->capacity - 1))
        if (map->keys[at] == key)
            return map->values[at];
    return DIAG_NONE;
}

void diag_map_free(struct diag_map *map)
{
    free(map->keys);
    free(map->values);
    memset(map, 0, sizeof *map);
}

void *diag_grow_now(void *array, size_t *capacity, size_t size, bool *oom)
{
    size_t grown = *capacity ? *capacity * 2 : 16;
    void *moved = grown < DIAG_NONE ? realloc(array, grown * size) : NULL;
    if (!moved) {
        *oom = true;
        return array;
    }
    *capacity = grown;
    return moved;
}

void diag_printf(struct diag_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int needed = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (needed < 0 || text->oom)
        return;
    if (text->length + (size_t)needed + 1 > text->capacity) {
        size_t capacity = (text->length + (size_t)needed + 1) * 2;
        char *data = realloc(text->data, capacity);
        if (!data) {
            text->oom = true;
            return;
        }
        text->data = data;
        text->capacity = capacity;
    }
    va_start(args, format);
    vsnprintf(text->data + text->length, text->capacity - text->length, format, args);
    va_end(args);
    text->length += (size_t)needed;
}
