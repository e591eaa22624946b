#include "engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* All allocations and registrations, sorted by address. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hg_memory *table;
static size_t table_len, table_cap;
static size_t used[HG_MAX_DEVICES];
static uint64_t next_id = 1;

/* Index of the first entry whose base is above the address. */
static size_t upper_bound(const void *address)
{
    size_t low = 0, high = table_len;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((uintptr_t)table[middle].base <= (uintptr_t)address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct hg_memory *exact(const void *base)
{
    size_t i = upper_bound(base);
    return i && table[i - 1].base == base ? &table[i - 1] : NULL;
}

/* Whether something in the table has bytes in this range. Nothing in it overlaps. */
static bool overlaps(const void *base, size_t bytes)
{
    size_t i = upper_bound(base);
    uintptr_t address = (uintptr_t)base;
    return (i && address - (uintptr_t)table[i - 1].base < table[i - 1].bytes) ||
           (i < table_len && (uintptr_t)table[i].base - address < bytes);
}

static CUresult insert(void *base, size_t bytes, int device, enum hg_memory_kind kind)
{
    if (table_len == table_cap) {
        size_t cap = table_cap ? table_cap * 2 : 64;
        struct hg_memory *grown = realloc(table, cap * sizeof *grown);
        if (!grown)
            return CUDA_ERROR_OUT_OF_MEMORY;
        table = grown;
        table_cap = cap;
    }
    size_t i = upper_bound(base);
    memmove(&table[i + 1], &table[i], (table_len - i) * sizeof *table);
    table[i] = (struct hg_memory){base, bytes, device, kind, next_id++};
    table_len++;
    return CUDA_SUCCESS;
}

static void erase(struct hg_memory *entry)
{
    size_t i = (size_t)(entry - table);
    memmove(entry, entry + 1, (table_len - i - 1) * sizeof *table);
    table_len--;
}

static bool on_device(enum hg_memory_kind kind)
{
    return kind == HG_MEMORY_DEVICE || kind == HG_MEMORY_MANAGED;
}

CUresult hg_memory_alloc(void **pointer, size_t bytes, int device, enum hg_memory_kind kind)
{
    if (!pointer)
        return CUDA_ERROR_INVALID_VALUE;
    *pointer = NULL;
    if (!bytes)
        return CUDA_SUCCESS;
    if (hg_capture_allows_call() != CUDA_SUCCESS)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (bytes > HG_DEVICE_MEMORY)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* Page alignment as a real device gives; NCCL windows ask for it. */
    size_t alignment = bytes >= 4096 ? 4096 : 512;
    size_t rounded = (bytes + alignment - 1) & ~(alignment - 1);
    pthread_mutex_lock(&lock);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!on_device(kind) || used[device] + bytes <= HG_DEVICE_MEMORY)
        *pointer = aligned_alloc(alignment, rounded);
    if (*pointer)
        result = insert(*pointer, bytes, device, kind);
    if (result == CUDA_SUCCESS && on_device(kind))
        used[device] += bytes;
    pthread_mutex_unlock(&lock);
    if (result != CUDA_SUCCESS) {
        free(*pointer);
        *pointer = NULL;
    }
    return result;
}

static bool freeable_as(enum hg_memory_kind have, enum hg_memory_kind asked)
{
    return have != HG_MEMORY_REGISTERED && on_device(have) == on_device(asked);
}

CUresult hg_memory_release(void *pointer)
{
    pthread_mutex_lock(&lock);
    struct hg_memory *entry = exact(pointer);
    bool valid = entry && entry->kind != HG_MEMORY_REGISTERED;
    if (valid) {
        if (on_device(entry->kind))
            used[entry->device] -= entry->bytes;
        erase(entry);
    }
    pthread_mutex_unlock(&lock);
    if (!valid)
        return CUDA_ERROR_INVALID_VALUE;
    free(pointer);
    return CUDA_SUCCESS;
}

CUresult hg_memory_free(void *pointer, enum hg_memory_kind kind)
{
    if (!pointer)
        return CUDA_SUCCESS;
    if (hg_capture_allows_call() != CUDA_SUCCESS)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&lock);
    struct hg_memory *entry = exact(pointer);
    bool valid = entry && freeable_as(entry->kind, kind);
    int device = valid ? entry->device : 0;
    pthread_mutex_unlock(&lock);
    if (!valid)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = on_device(kind) ? hg_device_synchronize(device) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? hg_memory_release(pointer) : result;
}

CUresult hg_memory_register(void *pointer, size_t bytes, int device)
{
    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (hg_capture_allows_call() != CUDA_SUCCESS)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&lock);
    CUresult result = overlaps(pointer, bytes) ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                               : insert(pointer, bytes, device, HG_MEMORY_REGISTERED);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult hg_memory_unregister(void *pointer)
{
    pthread_mutex_lock(&lock);
    struct hg_memory *entry = exact(pointer);
    bool found = entry && entry->kind == HG_MEMORY_REGISTERED;
    if (found)
        erase(entry);
    pthread_mutex_unlock(&lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

bool hg_memory_find(const void *pointer, struct hg_memory *found)
{
    pthread_mutex_lock(&lock);
    size_t i = upper_bound(pointer);
    bool inside = i && (uintptr_t)pointer - (uintptr_t)table[i - 1].base < table[i - 1].bytes;
    if (inside)
        *found = table[i - 1];
    pthread_mutex_unlock(&lock);
    return inside;
}

void hg_memory_info(int device, size_t *free_bytes, size_t *total_bytes)
{
    pthread_mutex_lock(&lock);
    *free_bytes = HG_DEVICE_MEMORY - used[device];
    pthread_mutex_unlock(&lock);
    *total_bytes = HG_DEVICE_MEMORY;
}
