/* Inside the driver library. The internal API version makes cuda.h declare every historical form of a
 * function under its own name instead of mapping names by macros. */
#ifndef HG_DRIVER_H
#define HG_DRIVER_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "../engine/engine.h"

#ifdef HG_PER_THREAD
#include "per_thread.h"
#define HG_DEFAULT_STREAM CU_STREAM_PER_THREAD
#else
#define HG_DEFAULT_STREAM CU_STREAM_LEGACY
#endif

/* A second exported name for a function of the same signature. */
#define HG_ALIAS(alias_name, name)  HG_ALIAS_(alias_name, name) /* names may be macros */
#define HG_ALIAS_(alias_name, name) __typeof__(name) alias_name __attribute__((alias(#name)))

#define HG_DRIVER_VERSION CUDA_VERSION

/* The stream behind a handle, on the current device for the default one. */
static inline CUresult hg_driver_stream(CUstream handle, CUstream *stream)
{
    return hg_stream_resolve(handle ? handle : HG_DEFAULT_STREAM, hg_current_device(), stream);
}

#endif
