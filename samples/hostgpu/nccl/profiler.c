#include "profiler.h"

#include "comm.h"
#include "profiler_abi.h"
#include "reduce.h"
#include "version.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* Callbacks of one communicator come from its callers and from stream threads; the lock keeps those that are
 * late away from a context that is gone. */
struct lab_profiler {
    void *context;
    pthread_mutex_t lock;
    bool is_open;                    /* under lock */
    uint64_t sequence[LAB_RECV + 1]; /* under lock: operations of each kind handed over */
};

/* The plugin: found once, before any communicator uses it. */
static struct {
    int version; /* 0: none */
    struct plugin_v5 *v5;
    struct plugin_v4 *v4;
} plugin;

/* The plugin may change it whenever it likes; as in NCCL there is one for all communicators. */
static int event_mask;

/* ---- Finding the plugin ---- */

__attribute__((format(printf, 5, 6))) static void
log_message(int level, unsigned long flags, const char *file, int line, const char *format, ...)
{
    const char *debug = getenv("NCCL_DEBUG");
    (void)level, (void)flags;
    if (!debug || !*debug)
        return;
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "hostgpu: %s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

/* A path or a library's name, else the X of libnccl-profiler-X.so. */
static void *open_library(const char *name)
{
    if (!strcasecmp(name, "STATIC_PLUGIN"))
        return dlopen(NULL, RTLD_NOW | RTLD_LOCAL);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library || strchr(name, '/'))
        return library;
    char longer[256];
    snprintf(longer, sizeof longer, "libnccl-profiler-%s.so", name);
    return dlopen(longer, RTLD_NOW | RTLD_LOCAL);
}

static void find_plugin(void)
{
    const char *name = getenv("NCCL_PROFILER_PLUGIN");
    if (!name || !*name || !strcasecmp(name, "none") || lab_nccl_version < 22703)
        return;
    void *library = open_library(name);
    if (!library) {
        lab_error(ncclSystemError, "profiler plugin: %s", dlerror());
        return;
    }
    if (lab_nccl_version >= 22902 && (plugin.v5 = dlsym(library, "ncclProfiler_v6")))
        plugin.version = 6;
    else if (lab_nccl_version >= 22803 && (plugin.v5 = dlsym(library, "ncclProfiler_v5")))
        plugin.version = 5;
    else if ((plugin.v4 = dlsym(library, "ncclProfiler_v4")))
        plugin.version = 4;
    else
        lab_error(ncclSystemError, "profiler plugin %s: no version that this NCCL knows", name);
}

/* ---- One interface over its versions ---- */

static ncclResult_t plugin_init(struct ncclComm *c, void **context)
{
    const char *name = c->config.name[0] ? c->config.name : NULL;
    if (plugin.version == 4)
        return plugin.v4->init(context, &event_mask, name, c->identity.hash, 1, c->nranks, c->rank,
                               log_message);
    return plugin.v5->init(context, c->identity.hash, &event_mask, name, 1, c->nranks, c->rank, log_message);
}

/* Locked, by the caller. NULL if the plugin wants no handle or knows no such event. */
static void *start(struct lab_profiler *p, const struct event *event)
{
    void *handle = NULL;
    if (!p->is_open)
        return NULL;
    struct event copy = *event;
    if (plugin.version > 4) {
        plugin.v5->start_event(p->context, &handle, &copy);
    } else if (event->type <= EVENT_NET) {
        struct event_v4 older = {(uint8_t)copy.type, copy.parent, copy.rank, copy.descr};
        plugin.v4->start_event(p->context, &handle, &older);
    }
    return handle;
}

static void stop(struct lab_profiler *p, void *handle)
{
    if (p->is_open && handle)
        (plugin.version == 4 ? plugin.v4->stop_event : plugin.v5->stop_event)(handle);
}

static void record(struct lab_profiler *p, void *handle, int state, union state_args *args)
{
    if (!p->is_open || !handle || (plugin.version == 4 && state > STATE_KERNEL_CH_STOP))
        return;
    (plugin.version == 4 ? plugin.v4->record_event_state : plugin.v5->record_event_state)(handle, state,
                                                                                          args);
}

/* ---- Communicators ---- */

void lab_profiler_open(struct ncclComm *c)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_plugin);
    if (!plugin.version)
        return;
    struct lab_profiler *p = calloc(1, sizeof *p);
    if (!p)
        return;
    if (plugin_init(c, &p->context) != ncclSuccess) {
        free(p); /* it goes on without */
        return;
    }
    pthread_mutex_init(&p->lock, NULL);
    p->is_open = true;
    c->profiler = p;
}

void lab_profiler_close(struct ncclComm *c)
{
    struct lab_profiler *p = c->profiler;
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    bool was_open = p->is_open;
    p->is_open = false;
    pthread_mutex_unlock(&p->lock);
    if (was_open)
        (plugin.version == 4 ? plugin.v4->finalize : plugin.v5->finalize)(p->context);
}

void lab_profiler_free(struct ncclComm *c)
{
    lab_profiler_close(c);
    if (c->profiler)
        pthread_mutex_destroy(&c->profiler->lock);
    free(c->profiler);
}

/* ---- Names ---- */

static const char *func_of(enum lab_kind kind)
{
    static const char *const names[] = {
        [LAB_ALL_REDUCE] = "AllReduce",
        [LAB_BROADCAST] = "Broadcast",
        [LAB_REDUCE] = "Reduce",
        [LAB_ALL_GATHER] = "AllGather",
        [LAB_REDUCE_SCATTER] = "ReduceScatter",
        [LAB_ALL_TO_ALL] = "AlltoAll",
        [LAB_GATHER] = "Gather",
        [LAB_SCATTER] = "Scatter",
        [LAB_SEND] = "Send",
        [LAB_RECV] = "Recv",
    };
    return names[kind];
}

static const char *datatype_of(ncclDataType_t type)
{
    static const char *const names[] = {
        "ncclInt8",       "Unknown" /* ncclUint8 */,
        "ncclInt32",      "ncclUint32",
        "ncclInt64",      "ncclUint64",
        "ncclFloat16",    "ncclFloat32",
        "ncclFloat64",    "ncclBfloat16",
        "ncclFloat8e4m3", "ncclFloat8e5m2",
    };
    return names[type];
}

static bool is_collective(const struct lab_op *op)
{
    return op->kind < LAB_ALL_TO_ALL;
}

/* One rank alone copies, and tells of messages only. */
static bool is_copy(const struct ncclComm *c, const struct lab_op *op)
{
    return c->nranks == 1 && op->kind < LAB_SEND;
}

static bool is_one_sided(const struct lab_op *op)
{
    return op->kind > LAB_RECV; /* nothing is told of these */
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- The calling thread's group ---- */

static _Thread_local struct {
    struct ncclComm *comm; /* of the first operation, with a reference; NULL if nothing has started */
    void *handle;
    int mask;
} group;

static void start_group(struct ncclComm *c, bool captured, int depth)
{
    if (group.comm)
        return;
    lab_comm_ref(c);
    group.comm = c;
    group.mask = __atomic_load_n(&event_mask, __ATOMIC_RELAXED);
    struct event event = {.type = EVENT_GROUP_API, .descr.group_api = {captured, depth}};
    group.handle = group.mask ? start(c->profiler, &event) : NULL;
    record(c->profiler, group.handle, STATE_GROUP_START_API_STOP, NULL);
}

static void *start_coll_api(struct ncclComm *c, const struct lab_op *op, void *stream, bool captured)
{
    struct event event = {.type = EVENT_COLL_API, .parent = group.handle};
    event.descr.coll_api.func = func_of(op->kind);
    event.descr.coll_api.count = op->count;
    event.descr.coll_api.datatype = datatype_of(op->datatype);
    event.descr.coll_api.root = op->peer;
    event.descr.coll_api.stream = stream;
    event.descr.coll_api.captured = captured;
    return start(c->profiler, &event);
}

static void *start_p2p_api(struct ncclComm *c, const struct lab_op *op, enum lab_kind kind, void *stream,
                           bool captured)
{
    struct event event = {.type = EVENT_P2P_API, .parent = group.handle};
    event.descr.p2p_api.func = func_of(kind);
    event.descr.p2p_api.count = op->count;
    event.descr.p2p_api.datatype = datatype_of(op->datatype);
    event.descr.p2p_api.stream = stream;
    event.descr.p2p_api.captured = captured;
    return start(c->profiler, &event);
}

/* An AlltoAll, Gather or Scatter is told as the messages that it is made of; the last one's handle is left
 * for all of them. */
static void *start_messages(struct ncclComm *c, const struct lab_op *op, void *stream, bool captured)
{
    bool is_root = c->rank == op->peer, all = op->kind == LAB_ALL_TO_ALL;
    int sends = all || (op->kind == LAB_SCATTER && is_root) ? c->nranks : op->kind == LAB_GATHER;
    int recvs = all || (op->kind == LAB_GATHER && is_root) ? c->nranks : op->kind == LAB_SCATTER;
    void *handle = NULL;
    for (int i = 0; i < sends + recvs; i++) {
        if (i > 0)
            stop(c->profiler, handle);
        handle = start_p2p_api(c, op, i < sends ? LAB_SEND : LAB_RECV, stream, captured);
    }
    return handle;
}

static void *start_api(struct ncclComm *c, const struct lab_op *op, void *stream, bool captured)
{
    if (is_collective(op))
        return start_coll_api(c, op, stream, captured);
    if (op->kind >= LAB_SEND)
        return start_p2p_api(c, op, op->kind, stream, captured);
    return start_messages(c, op, stream, captured);
}

void lab_profiler_call_starts(struct ncclComm *c, struct lab_op *op, void *stream, bool captured, int depth)
{
    if (!c->profiler || is_one_sided(op) || is_copy(c, op))
        return;
    int wanted = is_collective(op) ? EVENT_COLL_API | EVENT_COLL : EVENT_P2P_API | EVENT_P2P;
    pthread_mutex_lock(&c->profiler->lock);
    start_group(c, captured, depth);
    op->events = (struct lab_op_events){.mask = group.mask, .group_api = group.handle};
    if (group.mask & (wanted | EVENTS_BELOW_TASK))
        op->events.api = start_api(c, op, stream, captured);
    pthread_mutex_unlock(&c->profiler->lock);
}

void lab_profiler_call_stops(struct ncclComm *c, struct lab_op *op)
{
    if (!c->profiler)
        return;
    pthread_mutex_lock(&c->profiler->lock);
    stop(c->profiler, op->events.api);
    pthread_mutex_unlock(&c->profiler->lock);
}

void lab_profiler_group_ends(void)
{
    if (!group.comm)
        return;
    pthread_mutex_lock(&group.comm->profiler->lock);
    record(group.comm->profiler, group.handle, STATE_GROUP_END_API_START, NULL);
    pthread_mutex_unlock(&group.comm->profiler->lock);
}

void lab_profiler_group_ended(void)
{
    if (!group.comm)
        return;
    pthread_mutex_lock(&group.comm->profiler->lock);
    stop(group.comm->profiler, group.handle);
    pthread_mutex_unlock(&group.comm->profiler->lock);
    lab_comm_unref(group.comm);
    group.comm = NULL;
}

/* ---- Launches ---- */

void *lab_profiler_launch_starts(struct ncclComm *c, const struct lab_op *ops, void *stream)
{
    if (!c->profiler || !(ops->events.mask & EVENT_KERNEL_LAUNCH))
        return NULL;
    struct event event = {.type = EVENT_KERNEL_LAUNCH, .parent = ops->events.group_api};
    event.descr.kernel_launch.stream = stream;
    pthread_mutex_lock(&c->profiler->lock);
    void *handle = start(c->profiler, &event);
    pthread_mutex_unlock(&c->profiler->lock);
    return handle;
}

void lab_profiler_launch_stops(struct ncclComm *c, void *launch)
{
    if (!launch)
        return;
    pthread_mutex_lock(&c->profiler->lock);
    stop(c->profiler, launch);
    pthread_mutex_unlock(&c->profiler->lock);
}

static void start_task(struct ncclComm *c, struct lab_op *op, void *task_group, bool captured)
{
    uint64_t *sequence = &c->profiler->sequence[op->kind];
    bool is_coll = is_collective(op);
    /* These two move bytes, whatever their type. */
    bool in_bytes = op->kind == LAB_ALL_GATHER || op->kind == LAB_BROADCAST;
    struct event event = {.type = is_coll ? EVENT_COLL : EVENT_P2P, .rank = c->rank};
    event.parent = plugin.version == 4 ? task_group : op->events.api;
    if (is_coll)
        event.descr.coll = (struct coll_descr){*sequence,
                                               func_of(op->kind),
                                               op->send,
                                               op->recv,
                                               in_bytes ? op->count * lab_type_size(op->datatype) : op->count,
                                               op->peer,
                                               datatype_of(in_bytes ? ncclInt8 : op->datatype),
                                               LAB_PROFILER_CHANNELS,
                                               1,
                                               "RING",
                                               "SIMPLE",
                                               task_group};
    else
        event.descr.p2p = (struct p2p_descr){func_of(op->kind),
                                             op->kind == LAB_SEND ? (void *)(uintptr_t)op->send : op->recv,
                                             datatype_of(op->datatype),
                                             op->count,
                                             op->peer,
                                             LAB_PROFILER_CHANNELS,
                                             task_group};
    int wanted = (is_coll ? EVENT_COLL : EVENT_P2P) | EVENTS_BELOW_TASK;
    op->events.task = op->events.mask & wanted ? start(c->profiler, &event) : NULL;
    /* NCCL does not count what a graph replays, unless kernels are watched. */
    if (!captured || (op->events.mask & EVENT_KERNEL_CH))
        ++*sequence;
}

void lab_profiler_tasks(struct ncclComm *c, struct lab_op *const *classes, const size_t *n, size_t nclasses,
                        bool captured)
{
    if (!c->profiler)
        return;
    int mask = 0;
    for (size_t k = 0; k < nclasses; k++)
        for (size_t i = 0; i < n[k]; i++)
            mask |= classes[k][i].events.mask;
    struct event event = {.type = EVENT_GROUP};
    pthread_mutex_lock(&c->profiler->lock);
    void *task_group =
        mask & (EVENT_GROUP | EVENT_COLL | EVENT_P2P | EVENTS_BELOW_TASK) ? start(c->profiler, &event) : NULL;
    for (size_t k = 0; k < nclasses; k++)
        for (size_t i = 0; i < n[k]; i++)
            if (!is_one_sided(&classes[k][i]))
                start_task(c, &classes[k][i], task_group, captured);
    for (size_t k = 0; k < nclasses; k++)
        for (size_t i = 0; i < n[k]; i++)
            stop(c->profiler, classes[k][i].events.task);
    stop(c->profiler, task_group);
    pthread_mutex_unlock(&c->profiler->lock);
}

void lab_profiler_kernels_start(struct ncclComm *c, struct lab_op *ops, size_t n)
{
    if (!c->profiler)
        return;
    pthread_mutex_lock(&c->profiler->lock);
    for (size_t i = 0; i < n * LAB_PROFILER_CHANNELS; i++) {
        struct lab_op_events *events = &ops[i / LAB_PROFILER_CHANNELS].events;
        uint8_t channel = (uint8_t)(i % LAB_PROFILER_CHANNELS);
        struct event event = {.type = EVENT_KERNEL_CH, .parent = events->task};
        event.descr.kernel_ch.channel = channel;
        event.descr.kernel_ch.timer = now_ns();
        events->kernels[channel] = events->mask & EVENT_KERNEL_CH ? start(c->profiler, &event) : NULL;
    }
    pthread_mutex_unlock(&c->profiler->lock);
}

void lab_profiler_kernels_stop(struct ncclComm *c, struct lab_op *ops, size_t n)
{
    if (!c->profiler)
        return;
    pthread_mutex_lock(&c->profiler->lock);
    for (size_t i = 0; i < n * LAB_PROFILER_CHANNELS; i++) {
        union state_args args = {.kernel_ch.timer = now_ns()};
        void *kernel = ops[i / LAB_PROFILER_CHANNELS].events.kernels[i % LAB_PROFILER_CHANNELS];
        record(c->profiler, kernel, STATE_KERNEL_CH_STOP, &args);
        stop(c->profiler, kernel);
    }
    pthread_mutex_unlock(&c->profiler->lock);
}
