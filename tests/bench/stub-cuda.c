#include "stub-cuda.h"

#include <stdatomic.h>
#include <stddef.h>

#define PUBLIC __attribute__((visibility("default")))

PUBLIC struct stub_cuda stub_cuda = {.registered_in = -1};
PUBLIC _Thread_local int stub_device;

PUBLIC void stub_note(enum stub_what what, void *stream, uint64_t address, uint64_t value)
{
    if (stub_cuda.log && stub_cuda.events < STUB_EVENTS)
        stub_cuda.event[stub_cuda.events++] = (struct stub_event){what, stream, address, value, stub_device};
}

static void *context_of(int device)
{
    return (void *)(uintptr_t)(0x100 + device);
}

#define FUNCTION(name, ...)                                                                                  \
    PUBLIC int name(__VA_ARGS__);                                                                            \
    PUBLIC int name(__VA_ARGS__)

FUNCTION(cuStreamIsCapturing, void *stream, int *status)
{
    *status = stub_cuda.capturing && stub_cuda.capturing == stream;
    return 0;
}

FUNCTION(cuThreadExchangeStreamCaptureMode, int *mode)
{
    int before = stub_cuda.capture_mode;
    stub_cuda.capture_mode = *mode;
    *mode = before;
    return 0;
}

FUNCTION(cuStreamWriteValue64_v2, void *stream, uint64_t address, uint64_t value, unsigned flags)
{
    (void)flags;
    if (stub_cuda.fail)
        return stub_cuda.fail;
    if (!stub_cuda.stuck)
        atomic_store_explicit((_Atomic uint64_t *)(uintptr_t)address, value, memory_order_release);
    stub_note(STUB_WRITE, stream, address, value);
    return 0;
}

FUNCTION(cuStreamGetCtx, void *stream, void **context)
{
    *context = context_of((int)((uintptr_t)stream >> 12 & 15));
    return 0;
}

FUNCTION(cuCtxGetCurrent, void **context)
{
    *context = stub_cuda.no_context ? NULL : context_of(stub_device);
    return 0;
}

/* One deep is enough: the recorder pops what it pushes. */
static _Thread_local int pushed = -1;

FUNCTION(cuCtxPushCurrent_v2, void *context)
{
    if (pushed >= 0)
        return 1;
    pushed = stub_device;
    stub_device = (int)((uintptr_t)context - 0x100);
    return 0;
}

FUNCTION(cuCtxPopCurrent_v2, void **context)
{
    if (pushed < 0)
        return 1;
    *context = context_of(stub_device);
    stub_device = pushed;
    pushed = -1;
    return 0;
}

FUNCTION(cuCtxGetDevice, int *device)
{
    *device = stub_device;
    return 0;
}

FUNCTION(cuDeviceGetAttribute, int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 122; /* CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS */
    return 0;
}

FUNCTION(cuMemHostRegister_v2, void *memory, size_t bytes, unsigned flags)
{
    (void)bytes;
    (void)flags;
    stub_cuda.registered_in = stub_cuda.capture_mode;
    stub_note(STUB_REGISTER, memory, 0, 0);
    return 0;
}

FUNCTION(cuMemHostGetDevicePointer_v2, uint64_t *address, void *memory, unsigned flags)
{
    (void)flags;
    *address = (uint64_t)(uintptr_t)memory;
    return 0;
}
