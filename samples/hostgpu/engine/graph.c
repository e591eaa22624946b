#include "stream.h"

#include <stdlib.h>

/* The work of a graph, in order. Shared by the graph and what was instantiated from it; immutable once the
 * capture that fills it has ended. */
struct body {
    atomic_uint refs;
    struct hg_work *head, **tail;
    size_t size;
    unsigned nccl_ops;
};

struct CUgraph_st {
    struct body *body;
};

struct CUgraphExec_st {
    pthread_mutex_t lock;
    struct body *body; /* under lock */
};

struct hg_capture {
    uint64_t id;
    CUgraph graph;
    CUstreamCaptureMode mode;
    pthread_t thread; /* that began it */
    bool is_invalid;
    struct hg_capture *next;
};

/* All captures under way. The lock also orders appends from the streams of one capture; it is taken after a
 * stream's lock. */
static pthread_mutex_t captures_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hg_capture *captures;
static uint64_t next_capture_id = 1;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* ---- Bodies ---- */

static struct body *body_new(void)
{
    struct body *b = calloc(1, sizeof *b);
    if (b) {
        atomic_init(&b->refs, 1);
        b->tail = &b->head;
    }
    return b;
}

static struct body *body_ref(struct body *b)
{
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

static void body_unref(struct body *b)
{
    if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
        return;
    while (b->head) {
        struct hg_work *work = b->head;
        b->head = work->next;
        work->release(work);
    }
    free(b);
}

/* ---- Capture ---- */

bool hg_capture_take(struct CUstream_st *s, struct hg_work *work)
{
    if (!s->capture)
        return false;
    pthread_mutex_lock(&captures_lock);
    struct body *b = s->capture->graph->body;
    work->next = NULL;
    *b->tail = work;
    b->tail = &work->next;
    b->size++;
    b->nccl_ops += work->nccl_ops;
    pthread_mutex_unlock(&captures_lock);
    return true;
}

CUstreamCaptureMode hg_capture_exchange_mode(CUstreamCaptureMode mode)
{
    CUstreamCaptureMode before = thread_mode;
    thread_mode = mode;
    return before;
}

static bool forbids_calls_here(const struct hg_capture *capture)
{
    if (pthread_equal(capture->thread, pthread_self()))
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult hg_capture_allows_call(void)
{
    CUresult result = CUDA_SUCCESS;
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return result;
    pthread_mutex_lock(&captures_lock);
    for (struct hg_capture *capture = captures; capture; capture = capture->next)
        if (forbids_calls_here(capture)) {
            capture->is_invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    pthread_mutex_unlock(&captures_lock);
    return result;
}

void hg_capture_invalidate(struct CUstream_st *s)
{
    pthread_mutex_lock(&s->lock);
    pthread_mutex_lock(&captures_lock);
    if (s->capture)
        s->capture->is_invalid = true;
    pthread_mutex_unlock(&captures_lock);
    pthread_mutex_unlock(&s->lock);
}

CUresult hg_capture_begin(CUstream s, CUstreamCaptureMode mode)
{
    struct hg_capture *capture = calloc(1, sizeof *capture);
    if (!capture || hg_graph_new(&capture->graph) != CUDA_SUCCESS) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->mode = mode;
    capture->thread = pthread_self();
    pthread_mutex_lock(&s->lock);
    bool is_captured = s->capture != NULL;
    if (!is_captured) {
        pthread_mutex_lock(&captures_lock);
        capture->id = next_capture_id++;
        capture->next = captures;
        captures = capture;
        pthread_mutex_unlock(&captures_lock);
        s->capture = capture;
    }
    pthread_mutex_unlock(&s->lock);
    if (!is_captured)
        return CUDA_SUCCESS;
    hg_graph_free(capture->graph);
    free(capture);
    return CUDA_ERROR_ILLEGAL_STATE;
}

CUresult hg_capture_join(CUstream s, uint64_t id)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&s->lock);
    pthread_mutex_lock(&captures_lock);
    struct hg_capture *capture = captures;
    while (capture && capture->id != id)
        capture = capture->next;
    if (!capture || (s->capture && s->capture != capture))
        result = CUDA_ERROR_STREAM_CAPTURE_MERGE;
    else
        s->capture = capture;
    pthread_mutex_unlock(&captures_lock);
    pthread_mutex_unlock(&s->lock);
    return result;
}

static void leave_capture(struct hg_device *device, const struct hg_capture *capture)
{
    pthread_mutex_lock(&device->lock);
    for (struct CUstream_st *s = device->streams; s; s = s->next) {
        pthread_mutex_lock(&s->lock);
        if (s->capture == capture)
            s->capture = NULL;
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_unlock(&device->lock);
}

CUresult hg_capture_end(CUstream s, CUgraph *graph)
{
    pthread_mutex_lock(&s->lock);
    struct hg_capture *capture = s->capture;
    pthread_mutex_unlock(&s->lock);
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    for (int i = 0; i < hg_device_count(); i++)
        leave_capture(hg_device_get(i), capture);
    pthread_mutex_lock(&captures_lock);
    struct hg_capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    pthread_mutex_unlock(&captures_lock);
    bool is_invalid = capture->is_invalid;
    *graph = is_invalid ? NULL : capture->graph;
    if (is_invalid)
        hg_graph_free(capture->graph);
    free(capture);
    return is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUstreamCaptureStatus hg_capture_info(CUstream s, uint64_t *id, CUgraph *graph)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    pthread_mutex_lock(&s->lock);
    if (s->capture) {
        if (id)
            *id = s->capture->id;
        if (graph)
            *graph = s->capture->graph;
        pthread_mutex_lock(&captures_lock);
        status =
            s->capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
        pthread_mutex_unlock(&captures_lock);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* ---- Graphs ---- */

CUresult hg_graph_new(CUgraph *graph)
{
    struct CUgraph_st *g = malloc(sizeof *g);
    *graph = NULL;
    if (!g || !(g->body = body_new())) {
        free(g);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *graph = g;
    return CUDA_SUCCESS;
}

void hg_graph_free(CUgraph graph)
{
    body_unref(graph->body);
    free(graph);
}

size_t hg_graph_size(CUgraph graph)
{
    return graph->body->size;
}

CUresult hg_graph_instantiate(CUgraphExec *exec, CUgraph graph)
{
    struct CUgraphExec_st *e = malloc(sizeof *e);
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&e->lock, NULL);
    e->body = body_ref(graph->body);
    *exec = e;
    return CUDA_SUCCESS;
}

CUresult hg_graph_update(CUgraphExec exec, CUgraph graph)
{
    pthread_mutex_lock(&exec->lock);
    struct body *old = exec->body;
    exec->body = body_ref(graph->body);
    pthread_mutex_unlock(&exec->lock);
    body_unref(old);
    return CUDA_SUCCESS;
}

void hg_graph_exec_free(CUgraphExec exec)
{
    body_unref(exec->body);
    pthread_mutex_destroy(&exec->lock);
    free(exec);
}

/* ---- Replay ---- */

struct replay_work {
    struct hg_work base;
    struct body *body;
};

static void run_replay(struct hg_work *work)
{
    for (struct hg_work *w = ((struct replay_work *)work)->body->head; w; w = w->next)
        w->run(w);
}

static void release_replay(struct hg_work *work)
{
    body_unref(((struct replay_work *)work)->body);
    free(work);
}

CUresult hg_graph_launch(CUgraphExec exec, CUstream stream)
{
    struct replay_work *replay = calloc(1, sizeof *replay);
    if (!replay)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&exec->lock);
    replay->body = body_ref(exec->body);
    pthread_mutex_unlock(&exec->lock);
    unsigned nccl_ops = replay->body->nccl_ops;
    replay->base = (struct hg_work){.run = run_replay,
                                    .release = release_replay,
                                    .kind = nccl_ops ? HG_WORK_NCCL : HG_WORK_PLAIN,
                                    .nccl_ops = nccl_ops};
    return hg_submit(stream, &replay->base);
}
