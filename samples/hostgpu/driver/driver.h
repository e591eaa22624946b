/* Inside the driver library. The internal API version makes cuda.h declare every historical form of a
 * function under its own name instead of mapping names by macros. */
#ifndef HG_DRIVER_H
#define HG_DRIVER_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "../engine/engine.h"

/* A second exported name for a function of the same signature. */
#define HG_ALIAS(alias_name, name) __typeof__(name) alias_name __attribute__((alias(#name)))

#define HG_DRIVER_VERSION CUDA_VERSION

#endif
