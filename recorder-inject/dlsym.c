/*
 * Clients that open NCCL themselves (ctypes, XLA, CuPy's stubs) ask dlsym for its functions: they
 * get our wrappers. So do those that ask for the CUDA driver's graphs (graphs.h). Everything else passes
 * through.
 *
 * dlsym is asked by its caller's address what RTLD_NEXT and RTLD_DEFAULT mean, so it is entered by
 * a jump: this file is compiled with optimisation and without sanitizers, always (meson.build).
 * It is also entered before anything is initialised, by sanitizers and allocators for instance:
 * until it knows that the question is about those it calls nothing but dlvsym, once.
 * dlvsym is left alone: NCCL's functions have no versions.
 */
#include "inject.h"

#include <dlfcn.h>
#include <string.h>

#include "graphs.h"
#include "plugin.h"

/* libc's dlsym, or that of another interposer behind us. */
real_dlsym_fn *real_dlsym_address(void)
{
    static _Atomic(real_dlsym_fn *) known;
    /* Since glibc 2.34 in libc, before in libdl: x86-64 began with 2.2.5, AArch64 with 2.17. */
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    real_dlsym_fn *function = atomic_load_explicit(&known, memory_order_relaxed);
    for (size_t i = 0; !function && i < sizeof(versions) / sizeof(versions[0]); i++)
        function = (real_dlsym_fn *)(uintptr_t)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    atomic_store_explicit(&known, function, memory_order_relaxed);
    return function;
}

void *real_dlsym(void *handle, const char *name)
{
    return real_dlsym_address()(handle, name);
}

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
    bool nccl = name[0] == 'n' && name[1] == 'c' && name[2] == 'c' && name[3] == 'l';
    bool graphs = name[0] == 'c' && name[1] == 'u' && name[2] == 'G';
    int api = nccl && handle != RTLD_NEXT ? find_api(name) : -1;
    if (unlikely(api >= 0))
        return by_handle(handle, name, api);
    if (unlikely(graphs && handle != RTLD_NEXT && handle != RTLD_DEFAULT)) {
        void *found = real_dlsym(handle, name);
        return found ? graphs_wrap(name, found) : NULL;
    }
    if (unlikely(nccl && handle != RTLD_NEXT && handle != RTLD_DEFAULT && plugin_is_table(name)))
        return plugin_table(handle, name);
    return real_dlsym_address()(handle, name);
}
