/*
 * The few functions of the CUDA driver that the recorder calls, looked up among what the process
 * has loaded: the recorder needs no CUDA itself. Declared here after cuda.h (CUDA 12 and 13), for
 * which this is the whole interface that is used.
 */
#ifndef INJECT_CUDA_H
#define INJECT_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CUDA_OK = 0, CUDA_NOT_SUPPORTED = 801 };                    /* CUresult */
enum { CUDA_CAPTURE_NONE = 0, CUDA_CAPTURE_ACTIVE = 1 };           /* CUstreamCaptureStatus */
enum { CUDA_CAPTURE_MODE_RELAXED = 2 };                            /* CUstreamCaptureMode */
enum { CUDA_REGISTER_PORTABLE = 1, CUDA_REGISTER_DEVICE_MAP = 2 }; /* CU_MEMHOSTREGISTER_… */
enum { CUDA_HAS_64_BIT_STREAM_MEM_OPS = 122 };                     /* CUdevice_attribute */

/* X(member, symbol, parameters). All return CUresult. */
#define CUDA_FUNCTIONS(X)                                                                                    \
    X(is_capturing, "cuStreamIsCapturing", (void *stream, int *status))                                      \
    X(exchange_mode, "cuThreadExchangeStreamCaptureMode", (int *mode))                                       \
    X(write_value, "cuStreamWriteValue64_v2",                                                                \
      (void *stream, uint64_t address, uint64_t value, unsigned flags))                                      \
    X(stream_context, "cuStreamGetCtx", (void *stream, void **context))                                      \
    X(current_context, "cuCtxGetCurrent", (void **context))                                                  \
    X(push_context, "cuCtxPushCurrent_v2", (void *context))                                                  \
    X(pop_context, "cuCtxPopCurrent_v2", (void **context))                                                   \
    X(current_device, "cuCtxGetDevice", (int *device))                                                       \
    X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))                     \
    X(host_register, "cuMemHostRegister_v2", (void *memory, size_t bytes, unsigned flags))                   \
    X(device_pointer, "cuMemHostGetDevicePointer_v2", (uint64_t * address, void *memory, unsigned flags))

struct cuda_driver {
#define X(member, symbol, params) int(*member) params;
    CUDA_FUNCTIONS(X)
#undef X
};

/*
 * The driver, or NULL as long as the process has not loaded it, or lacks one of the functions.
 * cuda_look_for_driver takes the dynamic linker's locks: under none of ours. Thread safe.
 */
void cuda_look_for_driver(void);
const struct cuda_driver *cuda_driver(void);

#endif
