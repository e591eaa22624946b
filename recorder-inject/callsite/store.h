/*
 * The writer's side of the call-site memory (layout: callsite.h). One writer at a time: the
 * caller holds a lock. Readers need none: a record is complete before the index reaches it.
 */
#ifndef CALLSITE_STORE_H
#define CALLSITE_STORE_H

#include "callsite.h"

struct store {
    struct rec_callsite_header *header;
    char *memory;
    _Atomic uint32_t *index;
    uint32_t *hash;
    uint32_t records;
};

/* Lays out zeroed memory; false when bytes is too small or too large. */
bool store_init(struct store *store, void *memory, size_t bytes);

/* Offset of the record with this content, made if new; 0 = memory full. */
uint32_t store_string(struct store *store, const char *text, size_t length);
uint32_t store_location(struct store *store, uint32_t file, uint32_t function, uint32_t line);

/* Number of the site with this content, made and published if new; 0 = memory full. */
uint32_t store_python(struct store *store, const uint32_t *locations, unsigned count);
/* count is at most REC_CALLSITE_MAX_ADDRESSES. */
uint32_t store_native(struct store *store, const uintptr_t *addresses, unsigned count);

#endif
