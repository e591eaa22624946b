#include "native.h"

#include <pthread.h>
#include <stdatomic.h>

#include "call.h"
#include "key.h"

/* How many addresses can be had behind a first one: its upper bits, and the number in the low 8. */
#define DEPTHS 1024
static _Atomic uint64_t depths[DEPTHS];

#define FRAME_BYTES (2 * sizeof(uintptr_t))

/* Of this thread's stack: its first byte, and in how many bytes from there a frame can begin. */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
    uintptr_t start;
    size_t bytes;
} bounds;

void native_reset(void)
{
    for (unsigned i = 0; i < DEPTHS; i++)
        atomic_store_explicit(&depths[i], 0, memory_order_relaxed);
}

void native_thread(void)
{
    pthread_attr_t attributes;
    void *start;
    size_t bytes;
    if (bounds.bytes != 0 || pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    if (pthread_attr_getstack(&attributes, &start, &bytes) == 0 && bytes > FRAME_BYTES) {
        bounds.start = (uintptr_t)start;
        bounds.bytes = bytes - FRAME_BYTES;
    }
    pthread_attr_destroy(&attributes);
}

static _Atomic uint64_t *depth_word(uintptr_t address)
{
    return &depths[(address * KEY_SALT) >> 32 & (DEPTHS - 1)];
}

static unsigned known_depth(uintptr_t address, unsigned max)
{
    uint64_t word = atomic_load_explicit(depth_word(address), memory_order_relaxed);
    unsigned depth = word >> 8 == (address & UINT64_MAX >> 8) ? (unsigned)(word & 255) : max;
    return depth < max ? depth : max;
}

/* The caller's frame after the one at frame; 0 = not to be followed. */
__attribute__((no_sanitize("address"))) static uintptr_t next_frame(uintptr_t frame)
{
    /* Both ABIs: a frame lies on 16 bytes. */
    if (frame - bounds.start >= bounds.bytes || frame % 16 != 0)
        return 0;
    uintptr_t next = *(const uintptr_t *)frame;
    return next > frame && next - bounds.start < bounds.bytes && next % 16 == 0 ? next : 0;
}

__attribute__((no_sanitize("address"))) void native_walk(const void *return_address, const void *frame,
                                                         unsigned max, struct native_stack *stack)
{
    stack->addresses[0] = (uintptr_t)return_address;
    stack->count = 1;
    unsigned depth = max > 1 ? known_depth(stack->addresses[0], max) : 1;
    uintptr_t at = (uintptr_t)frame;
    while (stack->count < depth && (at = next_frame(at)) != 0)
        stack->addresses[stack->count++] = ((const uintptr_t *)at)[1];
}

void native_check(struct native_stack *stack)
{
    for (unsigned i = 1; i < stack->count; i++) {
        unsigned char code[CALL_BYTES];
        uintptr_t address = stack->addresses[i];
        if (address >= sizeof(code) && py_peek(address - sizeof(code), code, sizeof(code)) &&
            call_ends(address, code))
            continue;
        stack->count = i;
        atomic_store_explicit(depth_word(stack->addresses[0]), stack->addresses[0] << 8 | i,
                              memory_order_relaxed);
    }
}

uint64_t native_key(const struct native_stack *stack)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < stack->count; i++)
        sum = key_fold(sum ^ stack->addresses[i] ^ KEY_SALT, KEY_SECRET);
    return key_finish(sum, KEY_SALT);
}
