#include "engine.h"
#include "futex.h"

#include <stdlib.h>
#include <time.h>

enum { PENDING, AWAITED, DONE };

struct hg_fence {
    atomic_uint refs;
    _Atomic uint32_t state; /* futex word; DONE is released by the signaller and acquired by whoever asks */
    uint64_t time_ns;       /* written before DONE */
};

struct hg_fence *hg_fence_new(void)
{
    struct hg_fence *fence = calloc(1, sizeof *fence);
    if (fence)
        atomic_init(&fence->refs, 1);
    return fence;
}

void hg_fence_ref(struct hg_fence *fence)
{
    atomic_fetch_add_explicit(&fence->refs, 1, memory_order_relaxed);
}

void hg_fence_unref(struct hg_fence *fence)
{
    if (fence && atomic_fetch_sub_explicit(&fence->refs, 1, memory_order_acq_rel) == 1)
        free(fence);
}

void hg_fence_signal(struct hg_fence *fence)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (hg_fence_done(fence))
        return; /* by an earlier replay of a graph; the first time stands */
    fence->time_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (atomic_exchange_explicit(&fence->state, DONE, memory_order_acq_rel) == AWAITED)
        hg_futex_wake_all(&fence->state);
}

bool hg_fence_done(const struct hg_fence *fence)
{
    return atomic_load_explicit(&fence->state, memory_order_acquire) == DONE;
}

void hg_fence_wait(struct hg_fence *fence)
{
    uint32_t state = PENDING;
    /* On failure `state` is what the word holds: AWAITED by another waiter, or DONE. */
    if (atomic_compare_exchange_strong_explicit(&fence->state, &state, AWAITED, memory_order_acquire,
                                                memory_order_acquire))
        state = AWAITED;
    while (state != DONE) {
        hg_futex_wait(&fence->state, AWAITED);
        state = atomic_load_explicit(&fence->state, memory_order_acquire);
    }
}

uint64_t hg_fence_time_ns(const struct hg_fence *fence)
{
    return fence->time_ns;
}
