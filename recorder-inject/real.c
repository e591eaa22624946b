/*
 * The NCCL behind the wrappers. Mostly one library, but a process may hold several (PyTorch's
 * own and the one vLLM opens by path): each is a copy with wrappers and a table of its own.
 * Copy 0 is the one that linked clients get; others are met by their dlsym.
 */
#include "inject.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

const char *const api_names[API_COUNT] = {
#define NCCL_API(name, since, params, args, role) #name,
#include "nccl-api.def"
#undef NCCL_API
};

_Atomic(void *) real_functions[REAL_COPIES][API_COUNT];

/*
 * One loaded library. start, end and path are stored by whoever meets it first; threads that race
 * store the same values. A copy other than 0 is taken under the slow lock: base is stored last.
 */
static struct copy {
    _Atomic uintptr_t base, start, end;
    _Atomic(const char *) path;
    _Atomic(void *) handle;
} copies[REAL_COPIES];

static uintptr_t base_of(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) ? (uintptr_t)info.dli_fbase : 0;
}

/* Our own wrapper must never be taken for the real function. */
bool real_is_ours(const void *address)
{
    return base_of(address) == base_of(real_functions);
}

static void *lookup(void *handle, const char *name)
{
    void *found = real_dlsym(handle, name);
    return found && !real_is_ours(found) ? found : NULL;
}

/*
 * Linked clients: the library is in the global scope behind us. Otherwise it was opened privately.
 */
static void *find_default(const char *name, const char *profiling, bool open_it)
{
    void *found = lookup(RTLD_NEXT, name);
    if (!found)
        found = lookup(RTLD_NEXT, profiling);
    if (found)
        return found;
    void *handle = atomic_load_explicit(&copies[0].handle, memory_order_acquire);
    if (!handle) {
        handle = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
        if (!handle && open_it)
            handle = dlopen("libnccl.so.2", RTLD_LAZY);
        if (!handle)
            return NULL;
        atomic_store_explicit(&copies[0].handle, handle, memory_order_release);
    }
    found = lookup(handle, name);
    return found ? found : lookup(handle, profiling);
}

static void *find(unsigned copy, const char *name, bool open_it)
{
    char profiling[64] = "p";
    strncat(profiling, name, sizeof(profiling) - 2);
    if (copy == 0)
        return find_default(name, profiling, open_it);
    void *handle = atomic_load_explicit(&copies[copy].handle, memory_order_acquire);
    void *found = handle ? lookup(handle, name) : NULL;
    return found || !handle ? found : lookup(handle, profiling);
}

void *real_symbol(unsigned copy, const char *name)
{
    return find(copy, name, true);
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

struct library {
    uintptr_t base, start, end;
    const char *path;
};

/* Takes the dynamic linker's locks: never under one of ours. */
static struct library describe(void *function)
{
    struct library library = {0};
    struct range range = {.inside = (uintptr_t)function};
    Dl_info info;
    if (dladdr(function, &info)) {
        library.base = (uintptr_t)info.dli_fbase;
        library.path = info.dli_fname;
    }
    if (dl_iterate_phdr(find_range, &range)) {
        library.start = range.start;
        library.end = range.end;
    }
    return library;
}

static void publish(struct copy *copy, const struct library *library)
{
    atomic_store_explicit(&copy->start, library->start, memory_order_relaxed);
    atomic_store_explicit(&copy->end, library->end, memory_order_relaxed);
    atomic_store_explicit(&copy->path, library->path, memory_order_relaxed);
    atomic_store_explicit(&copy->base, library->base, memory_order_release);
}

static void *resolve(unsigned copy, enum api api, bool open_it)
{
    void *function = atomic_load_explicit(&real_functions[copy][api], memory_order_relaxed);
    if (function)
        return function;
    function = find(copy, api_names[api], open_it);
    if (function) {
        if (!atomic_load_explicit(&copies[copy].base, memory_order_acquire)) {
            struct library library = describe(function);
            publish(&copies[copy], &library);
        }
        atomic_store_explicit(&real_functions[copy][api], function, memory_order_release);
    }
    return function;
}

/* A missing function is looked up again at every call: rare, and it may appear by dlopen. */
void *real_resolve(unsigned copy, enum api api)
{
    return resolve(copy, api, true);
}

bool real_exists(enum api api)
{
    return resolve(0, api, false) != NULL;
}

/* The copy that holds this function; a library not met before takes a free one. -1: none is left,
 * or the library is in another linker namespace. */
int real_copy_of(void *function)
{
    real_exists(API_ncclGetUniqueId); /* meets copy 0, if it is there */
    struct library library = describe(function);
    for (int i = 0; i < REAL_COPIES; i++)
        if (library.base && atomic_load_explicit(&copies[i].base, memory_order_acquire) == library.base)
            return i;
    /* Keeps the library loaded: wrappers that the program holds must stay valid. */
    void *handle = library.path ? dlopen(library.path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (!handle)
        return -1;
    int copy = -1;
    slow_lock();
    for (int i = 1; i < REAL_COPIES && copy < 0; i++) {
        uintptr_t have = atomic_load_explicit(&copies[i].base, memory_order_relaxed);
        if (have != 0 && have != library.base)
            continue;
        copy = i;
        if (have == 0) {
            atomic_store_explicit(&copies[i].handle, handle, memory_order_release);
            publish(&copies[i], &library);
        }
    }
    slow_unlock();
    return copy;
}

bool real_contains(const void *address)
{
    for (int i = 0; i < REAL_COPIES; i++)
        if ((uintptr_t)address >= atomic_load_explicit(&copies[i].start, memory_order_relaxed) &&
            (uintptr_t)address < atomic_load_explicit(&copies[i].end, memory_order_relaxed))
            return true;
    return false;
}

const char *real_path(unsigned copy)
{
    return atomic_load_explicit(&copies[copy].path, memory_order_relaxed);
}

int real_version(unsigned copy)
{
    typedef int version_fn(int *version);
    static _Atomic int versions[REAL_COPIES];
    int version = atomic_load_explicit(&versions[copy], memory_order_relaxed);
    if (version == 0) {
        version_fn *get_version = (version_fn *)(uintptr_t)real_symbol(copy, "ncclGetVersion");
        if (get_version && get_version(&version) == 0)
            atomic_store_explicit(&versions[copy], version, memory_order_relaxed);
    }
    return version;
}
