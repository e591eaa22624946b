#include "inject.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

const char *const api_names[API_COUNT] = {
#define NCCL_API(name, since, params, args, role) #name,
#include "nccl-api.def"
#undef NCCL_API
};

_Atomic(void *) real_functions[API_COUNT];

/* Of the library that holds the first function found. Threads may race to store the same values. */
static _Atomic(const char *) library_path;
static _Atomic uintptr_t library_start, library_end;

/* Our own wrapper must never be taken for the real function. */
static bool is_ours(const void *address)
{
    Dl_info info, own;
    return dladdr(address, &info) && dladdr(real_functions, &own) && info.dli_fbase == own.dli_fbase;
}

static void *lookup(void *handle, const char *name)
{
    void *found = dlsym(handle, name);
    return found && !is_ours(found) ? found : NULL;
}

/*
 * Linked clients: the library is in the global scope behind us. Otherwise it was opened
 * privately, or not at all yet (a client that only tests for the symbol, and found ours).
 */
void *real_symbol(const char *name)
{
    static _Atomic(void *) opened;
    char profiling[64] = "p";
    strncat(profiling, name, sizeof(profiling) - 2);

    void *found = lookup(RTLD_NEXT, name);
    if (!found)
        found = lookup(RTLD_NEXT, profiling);
    if (found)
        return found;
    void *handle = atomic_load_explicit(&opened, memory_order_acquire);
    if (!handle) {
        handle = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
        if (!handle)
            handle = dlopen("libnccl.so.2", RTLD_LAZY);
        if (!handle)
            return NULL;
        atomic_store_explicit(&opened, handle, memory_order_release);
    }
    found = lookup(handle, name);
    return found ? found : lookup(handle, profiling);
}

struct range {
    uintptr_t inside, start, end;
};

static int find_range(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct range *range = data;
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        uintptr_t to = from + info->dlpi_phdr[i].p_memsz;
        low = from < low ? from : low;
        high = to > high ? to : high;
    }
    if (range->inside < low || range->inside >= high)
        return 0;
    range->start = low;
    range->end = high;
    return 1;
}

static void note_library(void *function)
{
    if (atomic_load_explicit(&library_path, memory_order_relaxed))
        return;
    struct range range = {.inside = (uintptr_t)function};
    if (dl_iterate_phdr(find_range, &range)) {
        atomic_store_explicit(&library_start, range.start, memory_order_relaxed);
        atomic_store_explicit(&library_end, range.end, memory_order_relaxed);
    }
    Dl_info info;
    if (dladdr(function, &info) && info.dli_fname)
        atomic_store_explicit(&library_path, info.dli_fname, memory_order_relaxed);
}

/* A missing function is looked up again at every call: rare, and it may appear by dlopen. */
void *real_resolve(enum api api)
{
    void *function = real_symbol(api_names[api]);
    if (function) {
        note_library(function);
        atomic_store_explicit(&real_functions[api], function, memory_order_release);
    }
    return function;
}

bool real_contains(const void *address)
{
    return (uintptr_t)address >= atomic_load_explicit(&library_start, memory_order_relaxed) &&
           (uintptr_t)address < atomic_load_explicit(&library_end, memory_order_relaxed);
}

const char *real_path(void)
{
    return atomic_load_explicit(&library_path, memory_order_relaxed);
}
