#include "graphs.h"

#include <dlfcn.h>
#include <string.h>

#include "cuda.h"
#include "hotpath.h"
#include "map.h"

#define MAX_GRAPHS 65535

/* ---- the graphs ------------------------------------------------------------------------------- */

/* Handle → number. Read without a lock; changed under the slow lock. */
static struct map_entry graph_entries[1 << 14], exec_entries[1 << 15];
static const struct map graphs = {graph_entries, 14}, execs = {exec_entries, 15};

/* By number; pages come with the graphs. */
static uint64_t captures[MAX_GRAPHS + 1]; /* CUDA's id of the capture; under the slow lock */
static _Atomic uint32_t calls[MAX_GRAPHS + 1];
static _Atomic uint64_t launches[MAX_GRAPHS + 1];
static _Atomic uint32_t graph_count;

static bool any_graphs(void)
{
    return atomic_load_explicit(&graph_count, memory_order_relaxed) != 0;
}

/* The graph that a capture fills has its handle from the start; the id tells it from a former one. */
static uint16_t number_of(void *graph, uint64_t capture)
{
    slow_lock();
    uint32_t number = map_find(&graphs, (uintptr_t)graph),
             count = atomic_load_explicit(&graph_count, memory_order_relaxed);
    if (number == MAP_NONE || captures[number] != capture) {
        number = count < MAX_GRAPHS ? count + 1 : 0;
        if (number != 0) {
            captures[number] = capture;
            map_put(&graphs, (uintptr_t)graph, number);
            atomic_store_explicit(&graph_count, number, memory_order_relaxed);
        } else {
            map_remove(&graphs, (uintptr_t)graph);
        }
    }
    slow_unlock();
    return (uint16_t)number;
}

static void forget_graph(const struct map *map, void *handle)
{
    if (!any_graphs())
        return;
    slow_lock();
    map_remove(map, (uintptr_t)handle);
    slow_unlock();
}

/* exec is what this graph was at this moment. */
static void made(void *exec, void *graph)
{
    if (!any_graphs())
        return;
    slow_lock();
    uint32_t number = map_find(&graphs, (uintptr_t)graph);
    if (number != MAP_NONE)
        map_put(&execs, (uintptr_t)exec, number);
    else
        map_remove(&execs, (uintptr_t)exec);
    slow_unlock();
}

/* ---- the driver's functions and our forms of them ---------------------------------------------- */

typedef int launch_fn(void *exec, void *stream);
typedef int instantiate_fn(void **exec, void *graph, void **node, char *log, size_t size);
typedef int instantiate_flags_fn(void **exec, void *graph, unsigned long long flags);
typedef int instantiate_params_fn(void **exec, void *graph, void *params);
typedef int update_fn(void *exec, void *graph, void **node, int *outcome);
typedef int update_v2_fn(void *exec, void *graph, void *outcome);
typedef int destroy_fn(void *handle);
typedef int get_proc_fn(const char *symbol, void **function, int version, uint64_t flags);
typedef int get_proc_v2_fn(const char *symbol, void **function, int version, uint64_t flags, int *status);

enum { ANY_STREAM, LEGACY_STREAM, PER_THREAD_STREAM }; /* what a function means by stream 0 */

/*
 * X(exported symbol, type, name, since, before, default stream): a symbol's parameters never change. Asked by
 * cuGetProcAddress for `name` as of a version from `since` on and older than `before`, the driver gives this
 * one (cuda.h and cudaTypedefs.h of CUDA 13.0; what newer versions may give is not touched).
 */
#define NEWER 13001
#define FUNCTIONS(X)                                                                                         \
    X(cuGraphLaunch, launch_fn, "cuGraphLaunch", 0, NEWER, LEGACY_STREAM)                                    \
    X(cuGraphLaunch_ptsz, launch_fn, "cuGraphLaunch", 0, NEWER, PER_THREAD_STREAM)                           \
    X(cuGraphInstantiate, instantiate_fn, "cuGraphInstantiate", 0, 11000, ANY_STREAM)                        \
    X(cuGraphInstantiate_v2, instantiate_fn, "cuGraphInstantiate", 11000, 12000, ANY_STREAM)                 \
    X(cuGraphInstantiateWithFlags, instantiate_flags_fn, "cuGraphInstantiateWithFlags", 0, NEWER,            \
      ANY_STREAM)                                                                                            \
    X(cuGraphInstantiateWithParams, instantiate_params_fn, "cuGraphInstantiateWithParams", 0, NEWER,         \
      LEGACY_STREAM)                                                                                         \
    X(cuGraphInstantiateWithParams_ptsz, instantiate_params_fn, "cuGraphInstantiateWithParams", 0, NEWER,    \
      PER_THREAD_STREAM)                                                                                     \
    X(cuGraphExecUpdate, update_fn, "cuGraphExecUpdate", 0, 12000, ANY_STREAM)                               \
    X(cuGraphExecUpdate_v2, update_v2_fn, "cuGraphExecUpdate", 12000, NEWER, ANY_STREAM)                     \
    X(cuGraphExecDestroy, destroy_fn, "cuGraphExecDestroy", 0, NEWER, ANY_STREAM)                            \
    X(cuGraphDestroy, destroy_fn, "cuGraphDestroy", 0, NEWER, ANY_STREAM)                                    \
    X(cuGetProcAddress, get_proc_fn, "cuGetProcAddress", 0, 12000, ANY_STREAM)                               \
    X(cuGetProcAddress_v2, get_proc_v2_fn, "cuGetProcAddress", 12000, NEWER, ANY_STREAM)

enum function {
#define X(symbol, type, name, since, before, stream) FN_##symbol,
    FUNCTIONS(X)
#undef X
        FUNCTION_COUNT
};

/* The driver's; stored once, before our form is handed out. */
static _Atomic(void *) reals[FUNCTION_COUNT];

#define REAL(symbol, type)                                                                                   \
    ((type *)(uintptr_t)atomic_load_explicit(&reals[FN_##symbol], memory_order_relaxed))

static void *current_stream(void *stream, bool per_thread)
{
    return !stream && per_thread ? (void *)2 : stream; /* CU_STREAM_PER_THREAD */
}

static uint16_t index_of(void *stream)
{
    const struct cuda_driver *cuda = cuda_driver();
    int device;
    return stream_index_on(stream, cuda && cuda->current_device(&device) == CUDA_OK ? device : -1);
}

/* A replay as an op of its own, alone on its stream. In an NCCL group it is no part of the group. */
static void launch_open(struct thread *thread, struct call *call, uint32_t graph, void *stream,
                        enum mark_stream what)
{
    KEEP_ERRNO;
    uint32_t depth = thread->group_depth, group = thread->group;
    uint16_t index = index_of(stream);
    call->mark.number = 0;
    if (what == MARK_STREAM_RUNS && depth == 0)
        marks_claim(thread, &call->mark, index, stream, REC_LIVE_NONE16);
    thread->group_depth = thread->group = 0;
    op_open(thread, call, REC_GRAPH_LAUNCH, (struct comm_slot){REC_LIVE_NONE16, 0}, index,
            atomic_load_explicit(&calls[graph], memory_order_relaxed),
            atomic_fetch_add_explicit(&launches[graph], 1, memory_order_relaxed), (int32_t)graph,
            REC_DTYPE_NONE, REC_REDOP_NONE, 0);
    thread->group_depth = depth;
    thread->group = group;
    thread->launch = 0;
    if (call->mark.number != 0)
        marks_start(&call->mark);
}

static int launch(launch_fn *real, void *exec, void *stream, bool per_thread, const void *caller)
{
    struct thread *thread = &self_thread;
    uint32_t graph = likely(!any_graphs()) ? MAP_NONE : map_find(&execs, (uintptr_t)exec);
    if (likely(graph == MAP_NONE) || !call_admit(thread, caller))
        return real(exec, stream);
    void *where = current_stream(stream, per_thread);
    enum mark_stream what = marks_ask(where);
    if (what == MARK_STREAM_CAPTURED) /* it becomes a part of another graph */
        return real(exec, stream);
    struct call call;
    thread->callsite = callsite_capture(NULL); /* of Python only: a native caller is the CUDA runtime */
    launch_open(thread, &call, graph, where, what);
    int error = real(exec, stream);
    stream_op_close(thread, &call, error == CUDA_OK ? REC_RESULT_SUCCESS : ncclUnhandledCudaError);
    return error;
}

static int our_cuGraphLaunch(void *exec, void *stream)
{
    return launch(REAL(cuGraphLaunch, launch_fn), exec, stream, false, __builtin_return_address(0));
}

static int our_cuGraphLaunch_ptsz(void *exec, void *stream)
{
    return launch(REAL(cuGraphLaunch_ptsz, launch_fn), exec, stream, true, __builtin_return_address(0));
}

#define INSTANTIATE(symbol, type, params, args)                                                              \
    static int our_##symbol params                                                                           \
    {                                                                                                        \
        int error = REAL(symbol, type) args;                                                                 \
        if (error == CUDA_OK && exec)                                                                        \
            made(*exec, graph);                                                                              \
        return error;                                                                                        \
    }
INSTANTIATE(cuGraphInstantiate, instantiate_fn,
            (void **exec, void *graph, void **node, char *log, size_t size), (exec, graph, node, log, size))
INSTANTIATE(cuGraphInstantiate_v2, instantiate_fn,
            (void **exec, void *graph, void **node, char *log, size_t size), (exec, graph, node, log, size))
INSTANTIATE(cuGraphInstantiateWithFlags, instantiate_flags_fn,
            (void **exec, void *graph, unsigned long long flags), (exec, graph, flags))
INSTANTIATE(cuGraphInstantiateWithParams, instantiate_params_fn, (void **exec, void *graph, void *params),
            (exec, graph, params))
INSTANTIATE(cuGraphInstantiateWithParams_ptsz, instantiate_params_fn,
            (void **exec, void *graph, void *params), (exec, graph, params))

static int our_cuGraphExecUpdate(void *exec, void *graph, void **node, int *outcome)
{
    int error = REAL(cuGraphExecUpdate, update_fn)(exec, graph, node, outcome);
    if (error == CUDA_OK)
        made(exec, graph);
    return error;
}

static int our_cuGraphExecUpdate_v2(void *exec, void *graph, void *outcome)
{
    int error = REAL(cuGraphExecUpdate_v2, update_v2_fn)(exec, graph, outcome);
    if (error == CUDA_OK)
        made(exec, graph);
    return error;
}

/* Before the driver frees the handle: afterwards another thread may get the same one. */
static int our_cuGraphExecDestroy(void *exec)
{
    forget_graph(&execs, exec);
    return REAL(cuGraphExecDestroy, destroy_fn)(exec);
}

static int our_cuGraphDestroy(void *graph)
{
    forget_graph(&graphs, graph);
    return REAL(cuGraphDestroy, destroy_fn)(graph);
}

static void *by_version(const char *name, void *found, int version, uint64_t flags);

static int our_cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
    int error = REAL(cuGetProcAddress, get_proc_fn)(symbol, function, version, flags);
    if (error == CUDA_OK && function && *function)
        *function = by_version(symbol, *function, version, flags);
    return error;
}

static int our_cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                                   int *status)
{
    int error = REAL(cuGetProcAddress_v2, get_proc_v2_fn)(symbol, function, version, flags, status);
    if (error == CUDA_OK && function && *function)
        *function = by_version(symbol, *function, version, flags);
    return error;
}

/* ---- handing out -------------------------------------------------------------------------------- */

typedef void function(void);
static const struct {
    const char *symbol, *name;
    int since, before, stream;
    function *ours;
} functions[FUNCTION_COUNT] = {
#define X(symbol, type, name, since, before, stream)                                                         \
    [FN_##symbol] = {#symbol, name, since, before, stream, (function *)our_##symbol},
    FUNCTIONS(X)
#undef X
};

/* Ours, if the driver's is the one that ours calls: a second driver, or what stands before it, stays as it
 * is. */
static void *replace(enum function which, void *found)
{
    void *have = NULL;
    if (atomic_compare_exchange_strong_explicit(&reals[which], &have, found, memory_order_relaxed,
                                                memory_order_relaxed) ||
        have == found)
        return (void *)(uintptr_t)functions[which].ours;
    return found;
}

void *graphs_wrap(const char *symbol, void *found)
{
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if (strcmp(symbol, functions[i].symbol) == 0)
            return replace((enum function)i, found);
    return found;
}

static void *by_version(const char *name, void *found, int version, uint64_t flags)
{
    const uint64_t per_thread = 2; /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */
    int stream = flags & per_thread ? PER_THREAD_STREAM : LEGACY_STREAM;
    /* From CUDA 12 on this is the newer function's other name. */
    if (strcmp(name, "cuGraphInstantiate") == 0 && version >= 12000)
        name = "cuGraphInstantiateWithFlags";
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if (strcmp(name, functions[i].name) == 0 && version >= functions[i].since &&
            version < functions[i].before &&
            (functions[i].stream == ANY_STREAM || functions[i].stream == stream))
            return replace((enum function)i, found);
    return found;
}

/* ---- captured calls ------------------------------------------------------------------------------ */

/* Has anybody got a function from us by which it launches graphs, or one that leads to those? */
static bool launches_are_seen(void)
{
    return REAL(cuGetProcAddress, get_proc_fn) || REAL(cuGetProcAddress_v2, get_proc_v2_fn) ||
           REAL(cuGraphLaunch, launch_fn) || REAL(cuGraphLaunch_ptsz, launch_fn);
}

typedef int capture_info_fn(void *stream, int *status, uint64_t *id, void **graph, const void **nodes,
                            size_t *count);

/* Since CUDA 11.3. Takes the dynamic linker's locks: under none of ours. */
static capture_info_fn *capture_info(void)
{
    static _Atomic(capture_info_fn *) known;
    capture_info_fn *ask = atomic_load_explicit(&known, memory_order_relaxed);
    if (ask)
        return ask;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library)
        ask = (capture_info_fn *)(uintptr_t)real_dlsym(library, "cuStreamGetCaptureInfo_v2");
    atomic_store_explicit(&known, ask, memory_order_relaxed);
    return ask;
}

uint16_t graphs_captured(void *stream)
{
    KEEP_ERRNO;
    capture_info_fn *ask = launches_are_seen() ? capture_info() : NULL;
    int status = CUDA_CAPTURE_NONE;
    uint64_t capture = 0;
    void *graph = NULL;
    if (!ask || ask(stream, &status, &capture, &graph, NULL, NULL) != CUDA_OK ||
        status != CUDA_CAPTURE_ACTIVE || !graph)
        return 0;
    uint16_t number = number_of(graph, capture);
    if (number != 0)
        atomic_fetch_add_explicit(&calls[number], 1, memory_order_relaxed);
    return number;
}

void graphs_forget(void)
{
    if (!any_graphs())
        return;
    uint32_t count = atomic_load_explicit(&graph_count, memory_order_relaxed);
    map_clear(&graphs);
    map_clear(&execs);
    memset(captures, 0, (count + 1) * sizeof(captures[0]));
    memset(calls, 0, (count + 1) * sizeof(calls[0]));
    memset(launches, 0, (count + 1) * sizeof(launches[0]));
    atomic_store_explicit(&graph_count, 0, memory_order_relaxed);
}
