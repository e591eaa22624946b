/*
 * What only the CUDA driver knows: is a stream being captured into a graph? Then the call records
 * itself into the graph and nothing runs.
 *
 * The driver is asked in the calling thread, right before NCCL asks it the same; never by the
 * drain thread. It is looked up among what the process has loaded, and its absence means that
 * nothing is known.
 */
#include "inject.h"

#include <dlfcn.h>

/* cuda.h: CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus *); 1 = active. It
 * does not disturb a capture, whatever it returns. */
typedef int is_capturing_fn(void *stream, int *status);

static _Atomic(is_capturing_fn *) is_capturing;

void gpu_look_for_driver(void)
{
    if (options.no_gpu || atomic_load_explicit(&is_capturing, memory_order_relaxed))
        return;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!driver)
        return;
    is_capturing_fn *found = (is_capturing_fn *)(uintptr_t)real_dlsym(driver, "cuStreamIsCapturing");
    atomic_store_explicit(&is_capturing, found, memory_order_release);
}

bool gpu_is_captured(void *stream)
{
    is_capturing_fn *ask = atomic_load_explicit(&is_capturing, memory_order_acquire);
    int status = 0;
    return ask && ask(stream, &status) == 0 && status == 1;
}
