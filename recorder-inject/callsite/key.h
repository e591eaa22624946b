/*
 * The fast path: 64 bits that identify the calling thread's Python stack. Reads the interpreter's memory
 * without protection, which proof.h has shown to be as the layout says. What a key is made of, and why it
 * cannot go stale: callsite.h.
 */
#ifndef CALLSITE_KEY_H
#define CALLSITE_KEY_H

#include "callsite.h"
#include "python.h"
#include "stack.h"

#define KEY_NONE    UINT64_C(0) /* no frame */
#define KEY_UNKNOWN UINT64_C(1) /* a frame that cannot be told from others, or not yet */

/*
 * Key of at most max Python frames of the thread with this state; KEY_NONE when the
 * interpreter is not running (any more). Before 3.12 KEY_UNKNOWN when a frame has not been learned. A
 * versioned frame without a version gives a key like any other: such a stack must not be put into the
 * cache (stack.h tells), and so is never found there.
 */
typedef uint64_t key_function(const struct py_api *api, const struct py_layout *layout,
                              const char *thread_state, unsigned max);

/*
 * Finds the same frames as the key covers, with a key for each, by which what is known of a frame can
 * be found again. None when the interpreter is not running (any more).
 */
void key_frames(const struct py_api *api, const struct py_layout *layout, const char *thread_state,
                unsigned max, struct stack *stack);

/*
 * Before 3.12: learns to tell a frame of the calling thread that stack_copy has copied, and sets its key;
 * KEY_UNKNOWN stays where that is not possible. By one thread at a time.
 */
void key_learn(const struct py_layout *layout, struct stack_frame *frame);

/* The function for this layout: with constant offsets where they are known beforehand. */
key_function *key_choose(const struct py_layout *layout);

/* Folded 128-bit product: mixes two words in a few cycles. */
static inline uint64_t key_fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

#define KEY_SALT   UINT64_C(0x9e3779b97f4a7c15)
#define KEY_SECRET UINT64_C(0xd6e8feb86659fd93)

static inline uint64_t key_finish(uint64_t sum, uint64_t seed)
{
    uint64_t key = key_fold(sum ^ seed, KEY_SECRET) ^ sum;
    return key <= KEY_UNKNOWN ? key + 2 : key;
}

#endif
