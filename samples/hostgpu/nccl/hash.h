/* Names of communicators: 64-bit hashes that all members compute alike. */
#ifndef LAB_HASH_H
#define LAB_HASH_H

#include <stddef.h>
#include <stdint.h>

#define LAB_HASH_START UINT64_C(0xcbf29ce484222325)

/* FNV-1a, continued from `hash`. */
static inline uint64_t lab_hash(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

#endif
