/* The driver as the real runtime opens it. */
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <pthread.h>

#include "runtime.h"

static PFN_cuGetProcAddress_v12000 get_proc_address;

static void open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library)
        get_proc_address = (PFN_cuGetProcAddress_v12000)(uintptr_t)dlsym(library, "cuGetProcAddress_v2");
}

void *hg_runtime_driver(const char *name, int version, unsigned flags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    void *function = NULL;
    pthread_once(&once, open_driver);
    if (!get_proc_address || get_proc_address(name, &function, version, flags, NULL) != CUDA_SUCCESS)
        return NULL;
    return function;
}
