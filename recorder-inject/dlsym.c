/*
 * Clients that open NCCL themselves (ctypes, XLA, CuPy's stubs) ask dlsym for its functions: they
 * get our wrappers. Everything else passes through.
 *
 * dlsym is asked by its caller's address what RTLD_NEXT and RTLD_DEFAULT mean, so it is entered by
 * a jump: this file is compiled with optimisation and without sanitizers, always (meson.build).
 * dlvsym is left alone: NCCL's functions have no versions.
 */
#include "inject.h"

#include <dlfcn.h>
#include <string.h>

static int find_api(const char *name)
{
    for (int api = 0; api < API_COUNT; api++)
        if (strcmp(name, api_names[api]) == 0)
            return api;
    return -1;
}

/* By the handle of a library: its function or, for a handle of the whole program, our wrapper. */
static void *by_handle(void *handle, const char *name, int api)
{
    void *found = real_dlsym(handle, name);
    if (!found)
        return NULL;
    if (real_is_ours(found)) {
        if (real_exists((enum api)api))
            return found;
        /* A name that the loaded NCCL lacks must not appear to exist. The failing lookup sets dlerror. */
        return real_dlsym(handle, "a function of NCCL that is not loaded");
    }
    int copy = real_copy_of(found);
    if (copy < 0)
        return found;
    atomic_store_explicit(&real_functions[copy][api], found, memory_order_release);
    return wrapper_address((unsigned)copy, (enum api)api);
}

PUBLIC void *dlsym(void *restrict handle, const char *restrict name)
{
    if (likely(strncmp(name, "nccl", 4) != 0) || handle == RTLD_NEXT)
        return real_dlsym_address()(handle, name);
    int api = find_api(name);
    if (api < 0)
        return real_dlsym_address()(handle, name);
    return by_handle(handle, name, api);
}
