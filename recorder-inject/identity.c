/*
 * Names for communicators that all members compute alike, and NCCL's own commHash where its
 * recipe is known (NCCL's src/init.cc and src/include/bitops.h, releases 2.18 to 2.30).
 */
#include "inject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIQUE_ID_BYTES 128

/* ---- our own ------------------------------------------------------------------------- */

enum { HOW_INIT = 1, HOW_INIT_ALL, HOW_SPLIT, HOW_SHRINK, HOW_GROW, HOW_TOLD };

static uint64_t absorb(uint64_t hash, uint64_t word)
{
    return rec_mix64(hash ^ rec_mix64(word + UINT64_C(0x9e3779b97f4a7c15)));
}

static uint64_t absorb_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = 0;
        memcpy(&word, at + i, size - i < 8 ? size - i : 8);
        hash = absorb(hash, word);
    }
    return hash;
}

static uint64_t finish(uint64_t hash)
{
    return hash ? hash : 1; /* 0 means unknown */
}

/*
 * With NCCL_COMM_ID all communicators of a job share one unique id: how often this rank has
 * used (id, nranks) tells them apart, as long as all members create in the same order.
 */
static struct {
    uint64_t key;
    uint32_t count;
} uses[1024];

static uint32_t count_use(uint64_t key)
{
    size_t size = sizeof(uses) / sizeof(uses[0]);
    for (size_t i = 0, at = key % size; i < size; i++, at = (at + 1) % size)
        if (uses[at].key == key || uses[at].key == 0) {
            uses[at].key = key;
            return uses[at].count++;
        }
    return 0;
}

uint64_t identity_init(const void *unique_id, uint32_t nranks, uint32_t rank)
{
    uint64_t hash = absorb_bytes(HOW_INIT, unique_id, UNIQUE_ID_BYTES);
    const char *shared = getenv("NCCL_COMM_ID");
    if (shared && *shared) {
        hash = absorb(hash, nranks);
        slow_lock();
        uint32_t ordinal = count_use(finish(absorb(hash, rank)));
        slow_unlock();
        hash = absorb(hash, ordinal);
    }
    return finish(hash);
}

uint64_t identity_init_all(uint64_t process, uint32_t ordinal, const int *devices, int count)
{
    uint64_t hash = absorb(absorb(HOW_INIT_ALL, process), ordinal);
    hash = absorb(hash, (uint64_t)count);
    for (int i = 0; i < count; i++)
        hash = absorb(hash, (uint64_t)(devices ? devices[i] : i));
    return finish(hash);
}

uint64_t identity_split(uint64_t parent, uint32_t ordinal, int32_t color)
{
    return finish(absorb(absorb(absorb(HOW_SPLIT, parent), ordinal), (uint32_t)color));
}

/* Order in the caller's list must not matter: a sum of mixed terms, no sorting, no memory. */
uint64_t identity_shrink(uint64_t parent, uint32_t ordinal, const int *excluded, int count)
{
    uint64_t set = 0;
    for (int i = 0; i < count; i++)
        set += absorb(HOW_SHRINK, (uint32_t)excluded[i]);
    return finish(absorb(absorb(absorb(absorb(HOW_SHRINK, parent), ordinal), (uint64_t)count), set));
}

uint64_t identity_grow(uint64_t magic, uint32_t nranks)
{
    return magic ? finish(absorb(absorb(HOW_GROW, magic), nranks)) : 0;
}

/* NCCL's hash repeats: with NCCL_COMM_ID, and for shrinks of one parent. */
uint64_t identity_told(uint64_t nccl_hash, uint32_t nranks, uint32_t rank)
{
    uint64_t hash = absorb(absorb(HOW_TOLD, nccl_hash), nranks);
    slow_lock();
    uint32_t ordinal = count_use(finish(absorb(hash, rank)));
    slow_unlock();
    return finish(absorb(hash, ordinal));
}

void identity_forget(void)
{
    memset(uses, 0, sizeof(uses));
}

/* ---- NCCL's ------------------------------------------------------------------------------- */

#define VERSION_NEW_HASH    22602
#define VERSION_SPLIT_COUNT 22403
#define VERSION_KNOWN       21801 /* older ones are not looked at */

/* DJB2a over char, which is signed on x86-64 and unsigned on AArch64; so are NCCL's hashes. */
static uint64_t hash_bytes_old(const char *bytes, size_t size)
{
    uint64_t hash = 5381;
    for (size_t i = 0; i < size; i++)
        hash = (hash * 33) ^ (uint64_t)bytes[i];
    return hash;
}

static void eat(uint64_t acc[2], const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    acc[0] ^= size;
    while (size > 0) {
        acc[0] += acc[1];
        acc[1] ^= acc[0];
        acc[0] ^= acc[0] >> 31;
        acc[0] *= UINT64_C(0x9de62bbc8cef3ce3);
        acc[1] ^= acc[1] >> 32;
        acc[1] *= UINT64_C(0x485cd6311b599e79);
        size_t step = size < 8 ? size : 8;
        uint64_t chunk = 0;
        memcpy(&chunk, at, step);
        acc[0] += chunk;
        at += step;
        size -= step;
    }
}

static uint64_t digest(const uint64_t acc[2])
{
    uint64_t hash = acc[0];
    hash ^= hash >> 31;
    hash *= UINT64_C(0xbac3bd562846de6b);
    hash += acc[1];
    hash ^= hash >> 32;
    hash *= UINT64_C(0x995a187a14e7b445);
    return hash;
}

uint64_t nccl_hash_init(int version, const void *unique_id)
{
    if (version < VERSION_KNOWN)
        return 0;
    if (version < VERSION_NEW_HASH)
        return hash_bytes_old(unique_id, UNIQUE_ID_BYTES);
    uint64_t acc[2] = {1, 1};
    eat(acc, unique_id, UNIQUE_ID_BYTES);
    return digest(acc);
}

uint64_t nccl_hash_split(int version, uint64_t parent, int ordinal, int color)
{
    if (version < VERSION_KNOWN || parent == 0)
        return 0;
    if (version >= VERSION_NEW_HASH) {
        uint64_t acc[2] = {1, 1};
        eat(acc, &parent, sizeof(parent));
        eat(acc, &ordinal, sizeof(ordinal));
        eat(acc, &color, sizeof(color));
        return digest(acc);
    }
    char text[UNIQUE_ID_BYTES] = {0};
    if (version >= VERSION_SPLIT_COUNT)
        snprintf(text, sizeof(text), "%016lx-%d-%d", (unsigned long)parent, ordinal, color);
    else
        snprintf(text, sizeof(text), "%016lx-%d", (unsigned long)parent, color);
    return hash_bytes_old(text, sizeof(text));
}

/* The first bytes of a unique id are random: NCCL calls them the magic of the root communicator. */
uint64_t nccl_magic(const void *unique_id)
{
    uint64_t magic;
    memcpy(&magic, unique_id, sizeof(magic));
    return magic;
}

uint64_t nccl_hash_combine(uint64_t a, uint64_t b)
{
    uint64_t acc[2] = {1, 1};
    eat(acc, &a, sizeof(a));
    eat(acc, &b, sizeof(b));
    return digest(acc);
}
