#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum rec_code job_cancelled(struct rec_error *err)
{
    return rec_error_set(err, REC_ERR_CANCELLED, NULL, 0, "cancelled");
}

bool job_grow(void *array, size_t *room, size_t need, size_t size)
{
    if (need <= *room)
        return true;
    size_t wanted = *room ? *room : 8;
    while (wanted < need)
        wanted += wanted / 2 + 1;
    void *old;
    memcpy(&old, array, sizeof(old));
    void *grown = reallocarray(old, wanted, size);
    if (!grown)
        return false;
    memcpy(array, &grown, sizeof(grown));
    *room = wanted;
    return true;
}

static struct job_map_slot *map_slot(const struct job_map *map, uint64_t key)
{
    size_t i = (size_t)rec_mix64(key ^ 0x9e3779b97f4a7c15u) & (map->room - 1);
    while (map->slots[i].value_plus_1 && map->slots[i].key != key)
        i = (i + 1) & (map->room - 1);
    return &map->slots[i];
}

uint32_t job_map_get(const struct job_map *map, uint64_t key)
{
    if (map->count == 0)
        return JOB_MAP_NONE;
    const struct job_map_slot *slot = map_slot(map, key);
    return slot->value_plus_1 ? slot->value_plus_1 - 1 : JOB_MAP_NONE;
}

bool job_map_put(struct job_map *map, uint64_t key, uint32_t value)
{
    if (2 * (map->count + 1) > map->room) {
        struct job_map grown = {.room = map->room ? 2 * map->room : 16};
        grown.slots = calloc(grown.room, sizeof(*grown.slots));
        if (!grown.slots)
            return false;
        for (size_t i = 0; i < map->room; i++)
            if (map->slots[i].value_plus_1)
                *map_slot(&grown, map->slots[i].key) = map->slots[i];
        grown.count = map->count;
        free(map->slots);
        *map = grown;
    }
    struct job_map_slot *slot = map_slot(map, key);
    if (!slot->value_plus_1)
        map->count++;
    *slot = (struct job_map_slot){.key = key, .value_plus_1 = value + 1};
    return true;
}

void job_map_free(struct job_map *map)
{
    free(map->slots);
    *map = (struct job_map){0};
}

void job_spans_add(struct job_spans *spans, uint64_t first, uint64_t end)
{
    if (first >= end)
        return;
    size_t at = 0;
    while (at < spans->count && spans->items[at].end < first)
        at++;
    size_t last = at; /* items[at … last) touch the new range */
    while (last < spans->count && spans->items[last].first <= end) {
        first = spans->items[last].first < first ? spans->items[last].first : first;
        end = spans->items[last].end > end ? spans->items[last].end : end;
        last++;
    }
    if (last == at && (spans->count >= JOB_MAX_SPANS ||
                       !job_grow(&spans->items, &spans->room, spans->count + 1, sizeof(*spans->items)))) {
        spans->overflow += end - first;
        return;
    }
    size_t behind = spans->count - last;
    memmove(&spans->items[at + 1], &spans->items[last], behind * sizeof(*spans->items));
    spans->items[at] = (struct job_span){first, end};
    spans->count = at + 1 + behind;
}

uint64_t job_spans_minus(const struct job_spans *a, const struct job_spans *b)
{
    uint64_t total = 0, cut = 0;
    for (size_t i = 0, j = 0; i < a->count; i++) {
        total += a->items[i].end - a->items[i].first;
        while (j < b->count && b->items[j].end <= a->items[i].first)
            j++;
        for (size_t k = j; k < b->count && b->items[k].first < a->items[i].end; k++) {
            uint64_t first = b->items[k].first > a->items[i].first ? b->items[k].first : a->items[i].first;
            uint64_t end = b->items[k].end < a->items[i].end ? b->items[k].end : a->items[i].end;
            cut += end - first;
        }
    }
    total += a->overflow;
    cut += b->overflow;
    return total > cut ? total - cut : 0;
}

void job_spans_free(struct job_spans *spans)
{
    free(spans->items);
    *spans = (struct job_spans){0};
}

#define MAX_LINES 1000

void job_warn(struct job_lines *lines, const char *path, const char *format, ...)
{
    if (lines->count >= MAX_LINES || !job_grow(&lines->items, &lines->room, lines->count + 1, sizeof(char *)))
        return;
    char reason[512];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof(reason), format, args);
    va_end(args);
    char *line;
    if (asprintf(&line, "%s%s%s", path ? path : "", path ? ": " : "", reason) >= 0)
        lines->items[lines->count++] = line;
}

void job_lines_free(struct job_lines *lines)
{
    for (size_t i = 0; i < lines->count; i++)
        free(lines->items[i]);
    free(lines->items);
    *lines = (struct job_lines){0};
}
