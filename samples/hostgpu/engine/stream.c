#include "stream.h"

#include <signal.h>
#include <stdlib.h>

static atomic_uint_least64_t next_stream_id = 1;

/* Whether the stream is to stop for ever in front of this work, as if a kernel before it never ended. */
static bool stops_before(const struct CUstream_st *s, const struct hg_work *work)
{
    unsigned long stop = hg_fault_plan()->block_stream_at;
    return work && work->kind == HG_WORK_NCCL && s->nccl_done < stop && s->nccl_done + work->nccl_ops >= stop;
}

/* A stream memory write right before the operation at which the stream is to stop must not run either: such
 * a mark says that the stream has reached the operation. So look ahead of marks, except for the first one
 * after an operation, which says that that one is over, unless it stands alone between two. Lock held. */
static bool stops_behind_marks(struct CUstream_st *s)
{
    const struct hg_work *next = s->head->next;
    bool is_end_mark = s->nccl_done && !s->marks_seen && !(next && next->kind == HG_WORK_NCCL);
    if (!hg_fault_plan()->block_stream_at || is_end_mark)
        return false;
    for (;;) {
        const struct hg_work *ahead = s->head;
        while (ahead && ahead->kind == HG_WORK_MARK)
            ahead = ahead->next;
        if (ahead || s->destroyed)
            return stops_before(s, ahead);
        pthread_cond_wait(&s->filled, &s->lock);
    }
}

/* The next piece of work, NULL when the stream is at its end. */
static struct hg_work *take_work(struct CUstream_st *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->head && !s->destroyed)
        pthread_cond_wait(&s->filled, &s->lock);
    struct hg_work *work = s->head;
    if (work && work->kind == HG_WORK_MARK && stops_behind_marks(s)) {
        pthread_mutex_unlock(&s->lock);
        hg_hang();
    }
    if (work) {
        s->head = work->next;
        if (!s->head)
            s->tail = &s->head;
        if (work->kind == HG_WORK_SIGNAL) {
            s->completed++;
            pthread_cond_signal(&s->room);
        }
    }
    s->ended = !work;
    pthread_mutex_unlock(&s->lock);
    return work;
}

static void run_work(struct CUstream_st *s, struct hg_work *work)
{
    if (stops_before(s, work))
        hg_hang();
    work->run(work);
    if (work->kind == HG_WORK_NCCL) {
        s->nccl_done += work->nccl_ops;
        s->marks_seen = 0;
    } else if (work->kind == HG_WORK_MARK) {
        s->marks_seen++;
    }
}

static void unlink_and_free(struct CUstream_st *s)
{
    pthread_mutex_lock(&s->device->lock);
    struct CUstream_st **link = &s->device->streams;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    pthread_mutex_unlock(&s->device->lock);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->filled);
    pthread_cond_destroy(&s->room);
    free(s);
}

static void *worker_main(void *argument)
{
    struct CUstream_st *s = argument;
    struct hg_work *work;
    while ((work = take_work(s)) != NULL) {
        bool counted = work->kind == HG_WORK_SIGNAL;
        run_work(s, work);
        work->release(work);
        if (!counted) {
            pthread_mutex_lock(&s->lock);
            s->completed++;
            pthread_cond_signal(&s->room);
            pthread_mutex_unlock(&s->lock);
        }
    }
    unlink_and_free(s);
    return NULL;
}

/* Signals belong to the program's own threads. */
static int start_worker(struct CUstream_st *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int error = pthread_create(&thread, NULL, worker_main, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error)
        pthread_detach(thread);
    return error;
}

static CUresult append(struct CUstream_st *s, struct hg_work *work)
{
    CUresult result = CUDA_SUCCESS;
    work->next = NULL;
    pthread_mutex_lock(&s->lock);
    if (s->ended) {
        /* Only somebody who waits for a destroyed stream comes here: its end is reached. */
        pthread_mutex_unlock(&s->lock);
        work->run(work);
        work->release(work);
        return result;
    }
    if (!s->has_worker) {
        if (start_worker(s))
            result = CUDA_ERROR_OUT_OF_MEMORY;
        else
            s->has_worker = true;
    }
    if (result == CUDA_SUCCESS) {
        *s->tail = work;
        s->tail = &work->next;
        s->submitted++;
        pthread_cond_signal(&s->filled);
    }
    pthread_mutex_unlock(&s->lock);
    if (result != CUDA_SUCCESS)
        work->release(work);
    return result;
}

/* ---- Fences as work ---- */

struct fence_work {
    struct hg_work base;
    struct hg_fence *fence;
};

static void run_signal(struct hg_work *work)
{
    hg_fence_signal(((struct fence_work *)work)->fence);
}

static void run_wait(struct hg_work *work)
{
    hg_fence_wait(((struct fence_work *)work)->fence);
}

static void release_fence_work(struct hg_work *work)
{
    hg_fence_unref(((struct fence_work *)work)->fence);
    free(work);
}

static struct hg_work *fence_work_new(struct hg_fence *fence, void (*run)(struct hg_work *))
{
    struct fence_work *work = calloc(1, sizeof *work);
    if (!work)
        return NULL;
    hg_fence_ref(fence);
    work->base.run = run;
    work->base.release = release_fence_work;
    work->base.kind = run == run_signal ? HG_WORK_SIGNAL : HG_WORK_PLAIN;
    work->fence = fence;
    return &work->base;
}

static CUresult append_fence(struct CUstream_st *s, struct hg_fence *fence, void (*run)(struct hg_work *))
{
    struct hg_work *work = fence_work_new(fence, run);
    return work ? append(s, work) : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool is_pending(struct CUstream_st *s)
{
    pthread_mutex_lock(&s->lock);
    bool pending = s->submitted != s->completed;
    pthread_mutex_unlock(&s->lock);
    return pending;
}

static CUresult follow(struct CUstream_st *later, struct CUstream_st *earlier)
{
    if (!is_pending(earlier))
        return CUDA_SUCCESS;
    struct hg_fence *fence = hg_fence_new();
    if (!fence)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = append_fence(earlier, fence, run_signal);
    if (result == CUDA_SUCCESS)
        result = append_fence(later, fence, run_wait);
    hg_fence_unref(fence);
    return result;
}

/* Work on the default stream would make a captured blocking stream's graph depend on what is outside it. */
static bool is_implicit_in_capture(const struct hg_device *device)
{
    bool found = false;
    for (struct CUstream_st *t = device->streams; t; t = t->next)
        if (!(t->flags & CU_STREAM_NON_BLOCKING) && hg_capture_info(t, NULL, NULL)) {
            hg_capture_invalidate(t);
            found = true;
        }
    return found;
}

/* The legacy default stream and the blocking streams of its device wait for one another. Device lock held. */
static CUresult follow_legacy(struct CUstream_st *s)
{
    struct hg_device *device = s->device;
    CUresult result = CUDA_SUCCESS;
    if (s == device->default_stream) {
        if (is_implicit_in_capture(device))
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        for (struct CUstream_st *t = device->streams; t && result == CUDA_SUCCESS; t = t->next)
            if (t != s && !(t->flags & CU_STREAM_NON_BLOCKING))
                result = follow(s, t);
    } else if (device->default_stream && !(s->flags & CU_STREAM_NON_BLOCKING)) {
        result = follow(s, device->default_stream);
    }
    return result;
}

CUresult hg_submit(CUstream s, struct hg_work *work)
{
    pthread_mutex_lock(&s->lock);
    bool captured = hg_capture_take(s, work);
    while (!captured && s->submitted - s->completed >= HG_MAX_QUEUED)
        pthread_cond_wait(&s->room, &s->lock);
    pthread_mutex_unlock(&s->lock);
    if (captured)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&s->device->lock);
    CUresult result = follow_legacy(s);
    if (result == CUDA_SUCCESS)
        result = append(s, work);
    else
        work->release(work);
    pthread_mutex_unlock(&s->device->lock);
    return result;
}

CUresult hg_submit_wait(CUstream s, struct hg_fence *fence)
{
    struct hg_work *work = fence_work_new(fence, run_wait);
    return work ? hg_submit(s, work) : CUDA_ERROR_OUT_OF_MEMORY;
}

struct hg_fence *hg_submit_fence(CUstream s)
{
    if (hg_capture_info(s, NULL, NULL))
        return NULL; /* a point in a graph is not a point in time */
    struct hg_fence *fence = hg_fence_new();
    struct hg_work *work = fence ? fence_work_new(fence, run_signal) : NULL;
    if (!work || hg_submit(s, work) != CUDA_SUCCESS) {
        hg_fence_unref(fence);
        return NULL;
    }
    return fence;
}

/* ---- Life of a stream ---- */

static struct CUstream_st *new_stream(struct hg_device *device, unsigned flags, int priority)
{
    struct CUstream_st *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->filled, NULL);
    pthread_cond_init(&s->room, NULL);
    s->device = device;
    s->flags = flags;
    s->priority = priority;
    s->id = atomic_fetch_add_explicit(&next_stream_id, 1, memory_order_relaxed);
    s->tail = &s->head;
    return s;
}

CUresult hg_stream_create(CUstream *stream, int index, unsigned flags, int priority)
{
    struct hg_device *device = hg_device_get(index);
    if (!stream || !device)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUstream_st *s = new_stream(device, flags, priority);
    if (!s)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&device->lock);
    s->next = device->streams;
    device->streams = s;
    pthread_mutex_unlock(&device->lock);
    *stream = s;
    return CUDA_SUCCESS;
}

static CUresult default_stream(int index, CUstream *stream)
{
    struct hg_device *device = hg_device_get(index);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&device->lock);
    if (!device->default_stream) {
        struct CUstream_st *s = new_stream(device, CU_STREAM_DEFAULT, 0);
        if (s) {
            s->next = device->streams;
            device->streams = s;
        }
        device->default_stream = s;
    }
    *stream = device->default_stream;
    pthread_mutex_unlock(&device->lock);
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- The calling thread's default streams, one for each device; they end with it ---- */

static _Thread_local CUstream thread_streams[HG_MAX_DEVICES];
static pthread_key_t thread_end;

static void end_thread_streams(void *streams)
{
    CUstream *own = streams;
    for (int i = 0; i < HG_MAX_DEVICES; i++)
        if (own[i])
            hg_stream_destroy(own[i]);
}

static void make_thread_key(void)
{
    pthread_key_create(&thread_end, end_thread_streams);
}

static CUresult thread_stream(int index, CUstream *stream)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!hg_device_get(index))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_once(&once, make_thread_key);
    CUresult result = CUDA_SUCCESS;
    if (!thread_streams[index]) {
        pthread_setspecific(thread_end, thread_streams);
        result = hg_stream_create(&thread_streams[index], index, CU_STREAM_DEFAULT, 0);
    }
    *stream = thread_streams[index];
    return result;
}

static bool is_listed(struct hg_device *device, CUstream handle)
{
    pthread_mutex_lock(&device->lock);
    struct CUstream_st *s = device->streams;
    while (s && s != handle)
        s = s->next;
    bool is_valid = s && !s->is_gone;
    pthread_mutex_unlock(&device->lock);
    return is_valid;
}

CUresult hg_stream_resolve(CUstream handle, int index, CUstream *stream)
{
    if (!handle || handle == CU_STREAM_LEGACY)
        return default_stream(index, stream);
    if (handle == CU_STREAM_PER_THREAD)
        return thread_stream(index, stream);
    *stream = handle;
    for (int i = 0; i < hg_device_count(); i++)
        if (is_listed(hg_device_get(i), handle))
            return CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult hg_stream_destroy(CUstream s)
{
    struct hg_device *device = s->device;
    pthread_mutex_lock(&device->lock);
    if (s == device->default_stream) {
        pthread_mutex_unlock(&device->lock);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    s->is_gone = true;
    pthread_mutex_unlock(&device->lock);

    pthread_mutex_lock(&s->lock);
    s->destroyed = true;
    bool has_worker = s->has_worker;
    pthread_cond_signal(&s->filled);
    pthread_mutex_unlock(&s->lock);
    if (!has_worker)
        unlink_and_free(s);
    return CUDA_SUCCESS;
}

CUresult hg_stream_query(CUstream s)
{
    if (hg_capture_info(s, NULL, NULL)) {
        hg_capture_invalidate(s);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return is_pending(s) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult hg_stream_synchronize(CUstream s)
{
    if (hg_capture_info(s, NULL, NULL)) {
        hg_capture_invalidate(s);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    struct hg_fence *fence = hg_submit_fence(s);
    if (!fence)
        return CUDA_ERROR_OUT_OF_MEMORY;
    hg_fence_wait(fence);
    hg_fence_unref(fence);
    return CUDA_SUCCESS;
}

int hg_stream_device(CUstream s)
{
    return s->device->index;
}

unsigned hg_stream_flags(CUstream s)
{
    return s->flags;
}

int hg_stream_priority(CUstream s)
{
    return s->priority;
}

uint64_t hg_stream_id(CUstream s)
{
    return s->id;
}

/* Everything submitted so far to any stream of the device; the fences are taken under its lock and waited
 * for without it, because streams come and go meanwhile. */
CUresult hg_device_synchronize(int index)
{
    struct hg_device *device = hg_device_get(index);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (hg_capture_allows_call() != CUDA_SUCCESS)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&device->lock);
    size_t n = 0;
    for (struct CUstream_st *s = device->streams; s; s = s->next)
        n++;
    struct hg_fence **fences = calloc(n + 1, sizeof *fences);
    CUresult result = fences ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    n = 0;
    for (struct CUstream_st *s = device->streams; s && result == CUDA_SUCCESS; s = s->next) {
        if (!is_pending(s))
            continue;
        fences[n] = hg_fence_new();
        result = fences[n] ? append_fence(s, fences[n], run_signal) : CUDA_ERROR_OUT_OF_MEMORY;
        n++;
    }
    pthread_mutex_unlock(&device->lock);
    for (size_t i = 0; i < n; i++) {
        if (result == CUDA_SUCCESS)
            hg_fence_wait(fences[i]);
        hg_fence_unref(fences[i]);
    }
    free(fences);
    return result;
}
