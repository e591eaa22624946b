/*
 * The native stack of the calling thread, by frame pointers: each function that keeps one
 * begins its frame with its caller's frame pointer and its return address (the same on x86-64 and
 * AArch64). Code compiled without them leaves anything in that register, so a pointer is followed only
 * upwards within this thread's own stack, where reading cannot fault, and what is found there is
 * taken for a return address by the slow path only if it stands behind a call. Behind which callers that
 * holds how far is learned, so that the fast path does not look further again.
 */
#ifndef CALLSITE_NATIVE_H
#define CALLSITE_NATIVE_H

#include <stdint.h>

#include "rec/callsite.h"

struct native_stack {
    uintptr_t addresses[REC_CALLSITE_MAX_ADDRESSES]; /* return addresses, innermost first */
    unsigned count;
};

/* Forgets what has been learned. While no other thread captures. */
void native_reset(void);

/*
 * Learns where the calling thread's stack lies; without this only its first return address is known.
 * May allocate: not for the fast path.
 */
void native_thread(void);

/*
 * Up to max addresses: return_address, and those of the callers from the frame of the function that
 * returns there (its __builtin_frame_address(0); NULL = no further ones). Async-signal-safe.
 */
void native_walk(const void *return_address, const void *frame, unsigned max, struct native_stack *stack);

/* Cuts the stack where it is no stack any more, and learns that. Reads what cannot fault. */
void native_check(struct native_stack *stack);

uint64_t native_key(const struct native_stack *stack);

#endif
