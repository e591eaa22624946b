#include "engine.h"

#include <pthread.h>
#include <stdlib.h>

struct CUevent_st {
    atomic_uint refs; /* the program's handle and graph nodes that record it */
    unsigned flags;
    pthread_mutex_t lock;
    struct hg_fence *last; /* of the latest record, NULL before the first; under lock */
    uint64_t capture;      /* not 0: the latest record was captured, and this is the capture; under lock */
};

CUresult hg_event_create(CUevent *event, unsigned flags)
{
    struct CUevent_st *e = event ? calloc(1, sizeof *e) : NULL;
    if (!e)
        return event ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    atomic_init(&e->refs, 1);
    e->flags = flags;
    pthread_mutex_init(&e->lock, NULL);
    *event = e;
    return CUDA_SUCCESS;
}

static void unref(CUevent e)
{
    if (atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1)
        return;
    hg_fence_unref(e->last);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

CUresult hg_event_destroy(CUevent e)
{
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    unref(e);
    return CUDA_SUCCESS;
}

static void set_latest(CUevent e, struct hg_fence *fence, uint64_t capture)
{
    pthread_mutex_lock(&e->lock);
    struct hg_fence *old = e->last;
    e->last = fence;
    e->capture = capture;
    pthread_mutex_unlock(&e->lock);
    hg_fence_unref(old);
}

/* ---- Recording in a graph, for those outside it: happens anew at each replay ---- */

struct record_work {
    struct hg_work base;
    CUevent event;
};

static void run_record(struct hg_work *work)
{
    struct hg_fence *fence = hg_fence_new();
    if (!fence)
        return;
    hg_fence_signal(fence);
    set_latest(((struct record_work *)work)->event, fence, 0);
}

static void release_record(struct hg_work *work)
{
    unref(((struct record_work *)work)->event);
    free(work);
}

static CUresult capture_external_record(CUevent e, CUstream stream)
{
    struct record_work *work = calloc(1, sizeof *work);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    work->base = (struct hg_work){.run = run_record, .release = release_record, .kind = HG_WORK_PLAIN};
    work->event = e;
    return hg_submit(stream, &work->base);
}

CUresult hg_event_record(CUevent e, CUstream stream, unsigned flags)
{
    uint64_t capture;
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    if (hg_capture_info(stream, &capture, NULL)) {
        if (flags & CU_EVENT_RECORD_EXTERNAL)
            return capture_external_record(e, stream);
        set_latest(e, NULL, capture);
        return CUDA_SUCCESS;
    }
    struct hg_fence *fence = hg_submit_fence(stream);
    if (!fence)
        return CUDA_ERROR_OUT_OF_MEMORY;
    set_latest(e, fence, 0);
    return CUDA_SUCCESS;
}

/* *fence is a reference for the caller, NULL if the event was never recorded. */
static CUresult latest(CUevent e, struct hg_fence **fence, uint64_t *capture)
{
    *fence = NULL;
    *capture = 0;
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&e->lock);
    *fence = e->last;
    *capture = e->capture;
    if (*fence)
        hg_fence_ref(*fence);
    pthread_mutex_unlock(&e->lock);
    return CUDA_SUCCESS;
}

/* For the host, which cannot wait for an event that exists only in a graph. */
static CUresult latest_outside_graphs(CUevent e, struct hg_fence **fence)
{
    uint64_t capture;
    CUresult result = hg_capture_allows_call();
    *fence = NULL;
    if (result == CUDA_SUCCESS)
        result = latest(e, fence, &capture);
    return result == CUDA_SUCCESS && capture ? CUDA_ERROR_CAPTURED_EVENT : result;
}

CUresult hg_event_query(CUevent e)
{
    struct hg_fence *fence;
    CUresult result = latest_outside_graphs(e, &fence);
    if (result == CUDA_SUCCESS && fence && !hg_fence_done(fence))
        result = CUDA_ERROR_NOT_READY;
    hg_fence_unref(fence);
    return result;
}

CUresult hg_event_synchronize(CUevent e)
{
    struct hg_fence *fence;
    CUresult result = latest_outside_graphs(e, &fence);
    if (result == CUDA_SUCCESS && fence)
        hg_fence_wait(fence);
    hg_fence_unref(fence);
    return result;
}

CUresult hg_event_elapsed_ms(float *ms, CUevent start, CUevent end)
{
    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    if (!start || !end || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    struct hg_fence *from, *to = NULL;
    CUresult result = latest_outside_graphs(start, &from);
    if (result == CUDA_SUCCESS)
        result = latest_outside_graphs(end, &to);
    if (result == CUDA_SUCCESS && (!from || !to))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && (!hg_fence_done(from) || !hg_fence_done(to)))
        result = CUDA_ERROR_NOT_READY;
    if (result == CUDA_SUCCESS)
        *ms = (float)((double)(int64_t)(hg_fence_time_ns(to) - hg_fence_time_ns(from)) / 1e6);
    hg_fence_unref(from);
    hg_fence_unref(to);
    return result;
}

CUresult hg_stream_wait_event(CUstream stream, CUevent e)
{
    struct hg_fence *fence;
    uint64_t capture;
    CUresult result = latest(e, &fence, &capture);
    if (result == CUDA_SUCCESS && capture)
        result = hg_capture_join(stream, capture);
    else if (result == CUDA_SUCCESS && fence)
        result = hg_submit_wait(stream, fence);
    hg_fence_unref(fence);
    return result;
}
