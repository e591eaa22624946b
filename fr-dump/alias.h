/*
 * Names in place of names: the first text that is met becomes PREFIX-1, the next other one
 * PREFIX-2, and the same text always the same name.
 */
#ifndef FR_DUMP_ALIAS_H
#define FR_DUMP_ALIAS_H

#include <stddef.h>
#include <stdint.h>

struct aliases {
    const char *prefix, *suffix;
    struct alias {
        char *text;
        char name[32];
    } * *items; /* in the order of their numbers, from 1 */
    size_t count, room;
    uint32_t *slots; /* by hash: number, 0 = free */
    size_t nslots;
};

/* "" stays "". NULL without memory. The name lives as long as the aliases. */
const char *alias_of(struct aliases *aliases, const char *text);
/* The number in the name, from 1; 0 without memory. */
size_t alias_number(struct aliases *aliases, const char *text);
void aliases_fini(struct aliases *aliases);

#endif
