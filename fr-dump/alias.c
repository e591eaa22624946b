#include "alias.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rec/model.h"

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 0;
    for (; *text; text++)
        hash = rec_mix64(hash + (unsigned char)*text + 1);
    return hash;
}

/* Where the text is, or would go. */
static uint32_t *slot_of(const struct aliases *aliases, const char *text)
{
    size_t i = hash_of(text) % aliases->nslots;
    while (aliases->slots[i] && strcmp(aliases->items[aliases->slots[i] - 1]->text, text) != 0)
        i = (i + 1) % aliases->nslots;
    return &aliases->slots[i];
}

/* Keeps the slots at most half full. */
static bool make_room(struct aliases *aliases)
{
    if (aliases->count < aliases->room)
        return true;
    size_t room = aliases->room ? 2 * aliases->room : 64;
    struct alias **items = reallocarray(aliases->items, room, sizeof(struct alias *));
    if (items)
        aliases->items = items;
    uint32_t *slots = items ? calloc(2 * room, sizeof(*slots)) : NULL;
    if (!slots)
        return false;
    free(aliases->slots);
    aliases->slots = slots;
    aliases->nslots = 2 * room;
    aliases->room = room;
    for (size_t i = 0; i < aliases->count; i++)
        *slot_of(aliases, items[i]->text) = (uint32_t)i + 1;
    return true;
}

size_t alias_number(struct aliases *aliases, const char *text)
{
    if (!make_room(aliases))
        return 0;
    uint32_t *slot = slot_of(aliases, text);
    if (*slot)
        return *slot;
    struct alias *alias = calloc(1, sizeof(*alias));
    char *copy = strdup(text);
    if (!alias || !copy) {
        free(alias);
        free(copy);
        return 0;
    }
    alias->text = copy;
    aliases->items[aliases->count++] = alias;
    snprintf(alias->name, sizeof(alias->name), "%s-%zu%s", aliases->prefix, aliases->count,
             aliases->suffix ? aliases->suffix : "");
    *slot = (uint32_t)aliases->count;
    return aliases->count;
}

const char *alias_of(struct aliases *aliases, const char *text)
{
    if (!*text)
        return "";
    size_t number = alias_number(aliases, text);
    return number ? aliases->items[number - 1]->name : NULL;
}

void aliases_fini(struct aliases *aliases)
{
    for (size_t i = 0; i < aliases->count; i++) {
        free(aliases->items[i]->text);
        free(aliases->items[i]);
    }
    free(aliases->items);
    free(aliases->slots);
    aliases->items = NULL;
    aliases->slots = NULL;
    aliases->count = aliases->room = aliases->nslots = 0;
}
