#include "engine.h"

#include <pthread.h>
#include <stdlib.h>

struct CUevent_st {
    unsigned flags;
    pthread_mutex_t lock;
    struct hg_fence *last; /* of the latest record, NULL before the first; under lock */
};

CUresult hg_event_create(CUevent *event, unsigned flags)
{
    struct CUevent_st *e = event ? calloc(1, sizeof *e) : NULL;
    if (!e)
        return event ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    e->flags = flags;
    pthread_mutex_init(&e->lock, NULL);
    *event = e;
    return CUDA_SUCCESS;
}

CUresult hg_event_destroy(CUevent e)
{
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    hg_fence_unref(e->last);
    pthread_mutex_destroy(&e->lock);
    free(e);
    return CUDA_SUCCESS;
}

CUresult hg_event_record(CUevent e, CUstream stream)
{
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    struct hg_fence *fence = hg_submit_fence(stream);
    if (!fence)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&e->lock);
    struct hg_fence *old = e->last;
    e->last = fence;
    pthread_mutex_unlock(&e->lock);
    hg_fence_unref(old);
    return CUDA_SUCCESS;
}

/* The caller owns a reference; NULL if the event was never recorded. */
static struct hg_fence *latest(CUevent e)
{
    pthread_mutex_lock(&e->lock);
    struct hg_fence *fence = e->last;
    if (fence)
        hg_fence_ref(fence);
    pthread_mutex_unlock(&e->lock);
    return fence;
}

CUresult hg_event_query(CUevent e)
{
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    struct hg_fence *fence = latest(e);
    bool done = !fence || hg_fence_done(fence);
    hg_fence_unref(fence);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult hg_event_synchronize(CUevent e)
{
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    struct hg_fence *fence = latest(e);
    if (fence)
        hg_fence_wait(fence);
    hg_fence_unref(fence);
    return CUDA_SUCCESS;
}

CUresult hg_event_elapsed_ms(float *ms, CUevent start, CUevent end)
{
    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    if (!start || !end || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    struct hg_fence *from = latest(start), *to = latest(end);
    CUresult result = CUDA_SUCCESS;
    if (!from || !to)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (!hg_fence_done(from) || !hg_fence_done(to))
        result = CUDA_ERROR_NOT_READY;
    else
        *ms = (float)((double)(int64_t)(hg_fence_time_ns(to) - hg_fence_time_ns(from)) / 1e6);
    hg_fence_unref(from);
    hg_fence_unref(to);
    return result;
}

CUresult hg_stream_wait_event(CUstream stream, CUevent e)
{
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    struct hg_fence *fence = latest(e);
    CUresult result = fence ? hg_submit_wait(stream, fence) : CUDA_SUCCESS;
    hg_fence_unref(fence);
    return result;
}
