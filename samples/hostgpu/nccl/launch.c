/* From calls to stream work. */
#include "group.h"
#include "reduce.h"

#include <stdlib.h>
#include <time.h>

/* What runs one after another: all collectives, all messages, all one-sided operations. */
enum class { COLLECTIVES, MESSAGES, ONE_SIDED, CLASSES };

/* All operations of one group on one communicator; on a GPU, one kernel. */
struct launch {
    struct hg_work base;
    struct ncclComm *comm;
    struct hg_fence *done;
    struct lab_op *ops[CLASSES];
    size_t n[CLASSES];
    bool is_silent, raises_error;
    bool is_captured; /* lives in a graph and runs at each replay */
};

/* Planned faults strike when the first operation has started. */
static void obey_plan(struct launch *l)
{
    struct ncclComm *c = l->comm;
    unsigned long us = hg_fault_plan()->slow_us * l->base.nccl_ops;
    if (us && !lab_comm_is_stopped(c))
        nanosleep(&(struct timespec){(time_t)(us / 1000000), (long)(us % 1000000) * 1000}, NULL);
    if (l->raises_error)
        atomic_store(&c->async_result, ncclRemoteError);
    if (l->is_silent || l->raises_error)
        lab_hang_until_stopped(c);
}

/* As NCCL does, collectives first, in the order of the calls, then all messages at once. */
static void run_classes(struct launch *l)
{
    struct ncclComm *c = l->comm;
    for (size_t i = 0; i < l->n[COLLECTIVES]; i++) {
        struct lab_op *op = &l->ops[COLLECTIVES][i];
        lab_profiler_kernels_start(c, op, 1);
        if (i == 0)
            obey_plan(l);
        lab_run_collective(c, op);
        lab_profiler_kernels_stop(c, op, 1);
    }
    lab_profiler_kernels_start(c, l->ops[MESSAGES], l->n[MESSAGES]);
    if (l->n[COLLECTIVES] == 0)
        obey_plan(l);
    if (l->n[MESSAGES] && !lab_comm_is_stopped(c))
        lab_run_p2p(c, l->ops[MESSAGES], l->n[MESSAGES]);
    lab_profiler_kernels_stop(c, l->ops[MESSAGES], l->n[MESSAGES]);
    lab_run_rma(c, l->ops[ONE_SIDED], l->n[ONE_SIDED]);
}

static void run_launch(struct hg_work *work)
{
    struct launch *l = (struct launch *)work;
    struct ncclComm *c = l->comm;
    pthread_mutex_lock(&c->run_lock);
    if (l->is_captured)
        lab_profiler_tasks(c, l->ops, l->n, CLASSES, true);
    run_classes(l);
    pthread_mutex_unlock(&c->run_lock);
    hg_fence_signal(l->done);
}

static void release_launch(struct hg_work *work)
{
    struct launch *l = (struct launch *)work;
    if (l->is_captured)
        lab_comm_count_graph_launch(l->comm, -1);
    lab_comm_unref(l->comm);
    hg_fence_unref(l->done);
    for (int k = 0; k < CLASSES; k++)
        free(l->ops[k]);
    free(l);
}

/* ---- AlltoAll, Gather and Scatter are sends and receives ---- */

static size_t pieces(const struct ncclComm *c, const struct lab_op *op)
{
    size_t n = (size_t)c->nranks;
    bool is_root = c->rank == op->peer;
    switch (op->kind) {
    case LAB_ALL_TO_ALL:
        return 2 * n;
    case LAB_GATHER:
    case LAB_SCATTER:
        return is_root ? n + 1 : 1;
    default:
        return 1;
    }
}

static struct lab_op message(const struct lab_op *op, enum lab_kind kind, int peer, size_t block)
{
    struct lab_op m = *op;
    size_t offset = block * op->count * lab_type_size(op->datatype);
    m.kind = kind;
    m.peer = peer;
    m.send = kind == LAB_SEND ? (const char *)op->send + offset : NULL;
    m.recv = kind == LAB_RECV ? (char *)op->recv + offset : NULL;
    return m;
}

static size_t expand(const struct ncclComm *c, const struct lab_op *op, struct lab_op *out)
{
    size_t n = 0;
    switch (op->kind) {
    case LAB_ALL_TO_ALL:
        for (int r = 0; r < c->nranks; r++) {
            out[n++] = message(op, LAB_SEND, r, (size_t)r);
            out[n++] = message(op, LAB_RECV, r, (size_t)r);
        }
        break;
    case LAB_GATHER:
        out[n++] = message(op, LAB_SEND, op->peer, 0);
        for (int r = 0; r < c->nranks && c->rank == op->peer; r++)
            out[n++] = message(op, LAB_RECV, r, (size_t)r);
        break;
    case LAB_SCATTER:
        out[n++] = message(op, LAB_RECV, op->peer, 0);
        for (int r = 0; r < c->nranks && c->rank == op->peer; r++)
            out[n++] = message(op, LAB_SEND, r, (size_t)r);
        break;
    default:
        out[n++] = *op;
    }
    return n;
}

static enum class class_of(const struct lab_op *op) {
    return op->kind >= LAB_PUT_SIGNAL   ? ONE_SIDED
           : op->kind >= LAB_ALL_TO_ALL ? MESSAGES
                                        : COLLECTIVES;
}

static bool allocate(struct launch *l, const struct lab_op *ops, size_t n)
{
    size_t count[CLASSES] = {0};
    for (size_t i = 0; i < n; i++)
        count[class_of(&ops[i])] += pieces(l->comm, &ops[i]);
    for (int k = 0; k < CLASSES; k++)
        if (count[k] && !(l->ops[k] = calloc(count[k], sizeof *l->ops[k])))
            return false;
    return true;
}

static struct launch *new_launch(struct ncclComm *c, const struct lab_op *ops, size_t n)
{
    struct launch *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    lab_comm_ref(c);
    l->comm = c;
    l->base = (struct hg_work){run_launch, release_launch, NULL, HG_WORK_NCCL, 0};
    l->done = hg_fence_new();
    if (!allocate(l, ops, n) || !l->done) {
        release_launch(&l->base);
        return NULL;
    }
    const struct hg_fault_plan *plan = hg_fault_plan();
    for (size_t i = 0; i < n; i++) {
        enum class k = class_of(&ops[i]);
        l->is_silent |= plan->silent_at == ops[i].ordinal;
        l->raises_error |= plan->async_err_at == ops[i].ordinal;
        l->n[k] += expand(c, &ops[i], l->ops[k] + l->n[k]);
        /* A wait for several peers is one call. */
        l->base.nccl_ops += i == 0 || ops[i].ordinal != ops[i - 1].ordinal;
    }
    return l;
}

/* ---- Streams ---- */

/* The first stream of a group runs the launch; the others wait for it, and it for them. */
static CUresult gather_streams(CUstream main, const CUstream *streams, size_t n)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++) {
        if (streams[i] == main || (i && streams[i] == streams[i - 1]))
            continue;
        struct hg_fence *fence = hg_submit_fence(streams[i]);
        result = fence ? hg_submit_wait(main, fence) : CUDA_ERROR_OUT_OF_MEMORY;
        hg_fence_unref(fence);
    }
    return result;
}

static CUresult release_streams(CUstream main, const CUstream *streams, size_t n, struct hg_fence *done)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++)
        if (streams[i] != main && !(i && streams[i] == streams[i - 1]))
            result = hg_submit_wait(streams[i], done);
    return result;
}

/* Into a graph. The other streams of the group join the capture; the graph's order does the rest. */
static CUresult submit_captured(struct launch *l, uint64_t capture, const CUstream *streams, size_t n)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++)
        result = hg_capture_join(streams[i], capture);
    if (result != CUDA_SUCCESS) {
        release_launch(&l->base);
        return result;
    }
    l->is_captured = true;
    lab_comm_count_graph_launch(l->comm, 1);
    return hg_submit(streams[0], &l->base);
}

/* Onto the streams. Launches of one communicator run in the order of the calls, whatever their streams. */
static CUresult submit_now(struct launch *l, const CUstream *streams, size_t n)
{
    struct ncclComm *c = l->comm;
    struct hg_fence *done = l->done;
    CUresult result = CUDA_SUCCESS;
    hg_fence_ref(done);
    pthread_mutex_lock(&c->lock);
    if (c->last_done && c->last_stream != hg_stream_id(streams[0]))
        result = hg_submit_wait(streams[0], c->last_done);
    if (result == CUDA_SUCCESS)
        result = gather_streams(streams[0], streams, n);
    if (result == CUDA_SUCCESS)
        result = hg_submit(streams[0], &l->base);
    else
        release_launch(&l->base);
    if (result == CUDA_SUCCESS) {
        hg_fence_unref(c->last_done);
        hg_fence_ref(done);
        c->last_done = done;
        c->last_stream = hg_stream_id(streams[0]);
        result = release_streams(streams[0], streams, n, done);
    }
    pthread_mutex_unlock(&c->lock);
    hg_fence_unref(done);
    return result;
}

/* Events that callers asked to be recorded when their operation starts: in front of the launch. */
static CUresult record_starts(const struct lab_op *ops, const CUstream *streams, size_t n)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++)
        if (ops[i].launched)
            result = hg_event_record(ops[i].launched, streams[i], CU_EVENT_RECORD_DEFAULT);
    return result;
}

static bool sticks(const struct lab_op *ops, size_t n)
{
    unsigned long at = hg_fault_plan()->stuck_at;
    for (size_t i = 0; at && i < n; i++)
        if (ops[i].ordinal == at)
            return true;
    return false;
}

ncclResult_t lab_launch(ncclComm_t c, const struct lab_op *ops, const CUstream *streams, size_t n)
{
    struct launch *l = new_launch(c, ops, n);
    uint64_t capture;
    if (!l)
        return lab_error(ncclSystemError, "no memory to launch %zu operations", n);
    if (sticks(ops, n))
        hg_hang();
    CUresult result = record_starts(ops, streams, n);
    bool is_captured = hg_capture_info(streams[0], &capture, NULL);
    void *profiled = lab_profiler_launch_starts(c, ops, streams[0]);
    if (!is_captured)
        lab_profiler_tasks(c, l->ops, l->n, CLASSES, false);
    if (result != CUDA_SUCCESS)
        release_launch(&l->base);
    else if (is_captured)
        result = submit_captured(l, capture, streams, n);
    else
        result = submit_now(l, streams, n);
    lab_profiler_launch_stops(c, profiled);
    return result == CUDA_SUCCESS ? ncclSuccess
                                  : lab_error(ncclUnhandledCudaError, "Cuda failure %d", (int)result);
}
