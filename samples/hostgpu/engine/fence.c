#include "engine.h"
#include "futex.h"

#include <stdlib.h>
#include <time.h>

struct hg_fence {
    atomic_uint refs;
    _Atomic uint32_t done; /* futex word; released by the signaller, acquired by whoever waits or asks */
    uint64_t time_ns;      /* written before `done` */
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
    atomic_store_explicit(&fence->done, 1, memory_order_release);
    hg_futex_wake_all(&fence->done);
}

bool hg_fence_done(const struct hg_fence *fence)
{
    return atomic_load_explicit(&fence->done, memory_order_acquire) != 0;
}

void hg_fence_wait(struct hg_fence *fence)
{
    while (!hg_fence_done(fence))
        hg_futex_wait(&fence->done, 0);
}

uint64_t hg_fence_time_ns(const struct hg_fence *fence)
{
    return fence->time_ns;
}
