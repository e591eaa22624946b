/* The engine of the host lab: devices, streams, events, memory, planned faults.
 *
 * It lives in libcuda.so.1; libcudart.so.13 and libnccl.so.2 of the lab use it, so that a CUstream and a
 * cudaStream_t are the same object. Nothing here is for programs: they use the CUDA and NCCL interfaces.
 *
 * A stream is a queue and one worker thread that runs its work in order; a device is a list of streams and
 * an account of memory. Everything is host memory.
 *
 * Every function is thread safe unless it says otherwise; none is async-signal safe.
 * Functions that can fail return a CUresult; the runtime library returns the same numbers as cudaError_t.
 */
#ifndef HG_ENGINE_H
#define HG_ENGINE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HG_MAX_DEVICES   64
#define HG_MAX_QUEUED    1024 /* pieces of work in a stream; then the host waits, as for a full launch queue */
#define HG_DEVICE_MEMORY ((size_t)16 << 30) /* what a device pretends to have, bytes */

/* ---- Fences: a point in a stream that the host or another stream can wait for ---- */

/* Counted reference. The worker thread of the stream that owns the point signals it, once. */
struct hg_fence;

/* A fence with one reference, not signalled; NULL without memory. */
struct hg_fence *hg_fence_new(void);
void hg_fence_ref(struct hg_fence *fence);
/* NULL is allowed. */
void hg_fence_unref(struct hg_fence *fence);
void hg_fence_signal(struct hg_fence *fence);
bool hg_fence_done(const struct hg_fence *fence);
/* Sleeps until the fence is signalled. */
void hg_fence_wait(struct hg_fence *fence);
/* CLOCK_MONOTONIC in ns at which it was signalled; only after hg_fence_done. */
uint64_t hg_fence_time_ns(const struct hg_fence *fence);

/* ---- Work: what a stream executes ---- */

enum hg_work_kind {
    HG_WORK_PLAIN,  /* copies, host functions, waits */
    HG_WORK_SIGNAL, /* signals a fence: counts as finished before it runs, so that a host that has seen the
                       fence never finds its stream busy because of it */
    HG_WORK_MARK,   /* stream memory write; see hg_fault_plan.block_stream_at */
    HG_WORK_NCCL,   /* a launch of NCCL operations */
};

/* Embedded as first member in what a submitter allocates. The stream owns it after hg_submit. */
struct hg_work {
    void (*run)(struct hg_work *work);     /* on the worker thread; may run again when a graph is replayed */
    void (*release)(struct hg_work *work); /* frees it, after the last run */
    struct hg_work *next;
    enum hg_work_kind kind;
    unsigned nccl_ops; /* operations in this launch, for HG_WORK_NCCL */
};

/* Appends work to the stream (or to the graph being captured from it). Takes ownership in every case. The
 * legacy default stream waits for the device's blocking streams and they wait for it. Blocks while the stream
 * is full. */
CUresult hg_submit(CUstream stream, struct hg_work *work);

/* Copy, fill and call as work. hg_submit_copy reads src when the work runs. */
CUresult hg_submit_copy(CUstream stream, void *dst, const void *src, size_t bytes);
CUresult hg_submit_fill(CUstream stream, void *dst, unsigned value, unsigned width, size_t count);
CUresult hg_submit_call(CUstream stream, void (*function)(void *), void *user);
CUresult hg_submit_wait(CUstream stream, struct hg_fence *fence);
/* A fence at the stream's present end, the caller's; NULL without memory or while the stream is captured. */
struct hg_fence *hg_submit_fence(CUstream stream);

/* ---- Devices ---- */

/* HOSTGPU_DEVICES, 8 unless set, at most HG_MAX_DEVICES. */
int hg_device_count(void);
/* The calling thread's current device. */
int hg_current_device(void);
CUresult hg_set_current_device(int device);
/* Waits for everything submitted so far to every stream of the device. */
CUresult hg_device_synchronize(int device);
int hg_device_attribute(CUdevice_attribute attribute, int device, CUresult *result);

/* ---- Streams ---- */

/* NULL and CU_STREAM_LEGACY become the default stream of `device`, CU_STREAM_PER_THREAD that of the calling
 * thread there, which waits for the other as any blocking stream does; any other handle is checked to be a
 * living stream. CUDA_ERROR_INVALID_HANDLE if it is not. */
CUresult hg_stream_resolve(CUstream handle, int device, CUstream *stream);
CUresult hg_stream_create(CUstream *stream, int device, unsigned flags, int priority);
/* Returns at once; what is queued still runs. */
CUresult hg_stream_destroy(CUstream stream);
CUresult hg_stream_query(CUstream stream);
CUresult hg_stream_synchronize(CUstream stream);
int hg_stream_device(CUstream stream);
unsigned hg_stream_flags(CUstream stream);
int hg_stream_priority(CUstream stream);
uint64_t hg_stream_id(CUstream stream);

/* ---- Events ---- */

CUresult hg_event_create(CUevent *event, unsigned flags);
CUresult hg_event_destroy(CUevent event);
/* flags: CU_EVENT_RECORD_EXTERNAL makes a captured record happen at each replay. */
CUresult hg_event_record(CUevent event, CUstream stream, unsigned flags);
CUresult hg_event_query(CUevent event);
CUresult hg_event_synchronize(CUevent event);
CUresult hg_event_elapsed_ms(float *ms, CUevent start, CUevent end);
CUresult hg_stream_wait_event(CUstream stream, CUevent event);

/* ---- Graphs ----
 *
 * While a stream is captured, hg_submit appends to a graph instead of the queue, and nothing runs. A graph
 * replays its work one after another, in the order of the calls that captured it. A stream that waits for an
 * event recorded in a captured stream joins the capture. */

/* CUDA_ERROR_ILLEGAL_STATE if the stream is captured already. */
CUresult hg_capture_begin(CUstream stream, CUstreamCaptureMode mode);
/* Ends the capture on all streams that joined it. The caller owns the graph; there is none, and the result is
 * CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, if something forbidden happened meanwhile. */
CUresult hg_capture_end(CUstream stream, CUgraph *graph);
/* Whether the stream is captured (0, CU_STREAM_CAPTURE_STATUS_NONE, if not); if so, *id names the capture and
 * *graph what it has so far. Both may be NULL. */
CUstreamCaptureStatus hg_capture_info(CUstream stream, uint64_t *id, CUgraph *graph);
/* The calling thread's mode; returns the one before. */
CUstreamCaptureMode hg_capture_exchange_mode(CUstreamCaptureMode mode);
/* For a call that a capture may forbid (allocation, registration, event query …): refuses it with
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and invalidates the capture that forbids it. */
CUresult hg_capture_allows_call(void);
/* Lets a stream join the capture of another. */
CUresult hg_capture_join(CUstream stream, uint64_t id);

CUresult hg_graph_new(CUgraph *graph);
void hg_graph_free(CUgraph graph);
size_t hg_graph_size(CUgraph graph);
/* An executable graph keeps the work of the graph it was made from. */
CUresult hg_graph_instantiate(CUgraphExec *exec, CUgraph graph);
CUresult hg_graph_update(CUgraphExec exec, CUgraph graph);
CUresult hg_graph_launch(CUgraphExec exec, CUstream stream);
void hg_graph_exec_free(CUgraphExec exec);

/* ---- Memory ---- */

enum hg_memory_kind { HG_MEMORY_DEVICE, HG_MEMORY_HOST, HG_MEMORY_REGISTERED, HG_MEMORY_MANAGED };

struct hg_memory {
    void *base;
    size_t bytes;
    int device;
    enum hg_memory_kind kind;
    uint64_t id;
};

CUresult hg_memory_alloc(void **pointer, size_t bytes, int device, enum hg_memory_kind kind);
/* Frees what hg_memory_alloc gave; device memory only after its device has come to rest, hence never behind
 * a kernel that hangs. NULL is allowed. */
CUresult hg_memory_free(void *pointer, enum hg_memory_kind kind);
/* The same without waiting, for a caller who knows that nothing uses the memory any more. */
CUresult hg_memory_release(void *pointer);
CUresult hg_memory_register(void *pointer, size_t bytes, int device);
CUresult hg_memory_unregister(void *pointer);
/* The allocation that contains pointer; false if the lab did not make it. */
bool hg_memory_find(const void *pointer, struct hg_memory *found);
void hg_memory_info(int device, size_t *free_bytes, size_t *total_bytes);

/* ---- Environment ---- */

/* What is no number is reported on stderr and counts as not set. */
unsigned long hg_number_from_environment(const char *name, unsigned long fallback);

/* ---- Planned faults ---- */

/* From the environment at first use; 0 means no fault. Counts start at 1. */
struct hg_fault_plan {
    unsigned long block_stream_at; /* a stream stops for ever before its N-th NCCL operation, in front of the
                                      stream memory writes that directly precede it */
    unsigned long silent_at;       /* the N-th operation of any communicator completes nowhere */
    unsigned long stuck_at;        /* the host stays in the call that launches the N-th operation */
    unsigned long async_err_at;    /* the N-th operation of any communicator raises an asynchronous error */
    unsigned long slow_us;         /* added to each NCCL operation */
    unsigned long register_ms;     /* that registering host memory takes */
};
const struct hg_fault_plan *hg_fault_plan(void);
/* Sleeps for ever, without using the processor. */
_Noreturn void hg_hang(void);

#endif
