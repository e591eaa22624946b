/* Names of communicators: 64-bit hashes that all members compute alike. */
#ifndef LAB_HASH_H
#define LAB_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LAB_HASH_START UINT64_C(0xcbf29ce484222325)

/* FNV-1a, continued from `hash`: for where ranks meet. */
static inline uint64_t lab_hash(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* NCCL's own hash since 2.26 (its src/include/bitops.h), of which commHash is made: other tools know a
 * communicator by it. `state` starts as {1, 1}. */
static inline void lab_nccl_eat(uint64_t state[2], const void *data, size_t bytes)
{
    const unsigned char *p = data;
    state[0] ^= bytes;
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t chunk = 0;
        memcpy(&chunk, p + at, bytes - at < 8 ? bytes - at : 8);
        state[0] += state[1];
        state[1] ^= state[0];
        state[0] ^= state[0] >> 31;
        state[0] *= UINT64_C(0x9de62bbc8cef3ce3);
        state[1] ^= state[1] >> 32;
        state[1] *= UINT64_C(0x485cd6311b599e79);
        state[0] += chunk;
    }
}

static inline uint64_t lab_nccl_digest(const uint64_t state[2])
{
    uint64_t hash = state[0];
    hash ^= hash >> 31;
    hash *= UINT64_C(0xbac3bd562846de6b);
    hash += state[1];
    hash ^= hash >> 32;
    return hash * UINT64_C(0x995a187a14e7b445);
}

static inline uint64_t lab_nccl_combine(uint64_t a, uint64_t b)
{
    uint64_t state[2] = {1, 1};
    lab_nccl_eat(state, &a, sizeof a);
    lab_nccl_eat(state, &b, sizeof b);
    return lab_nccl_digest(state);
}

#endif
