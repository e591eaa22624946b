#include "plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "cuda.h"
#include "launches.h"
#include "plugin-abi.h"
#include "plugin_record.h"

/* ---- handles ---------------------------------------------------------------------------------- */

/* What NCCL keeps of an event of ours: no pointer, but what it is and its name, so that a late report about
 * an event that is long over can do no harm. NULL: nothing more is wanted of the event. */
enum handle_kind {
    HANDLE_GROUP_API = 1, /* of a group that only we see */
    HANDLE_API,           /* launch, and stream + 1 above it */
    HANDLE_COLL_API,      /* the same, of a collective that only we see */
    HANDLE_LAUNCH,        /* version 4: PLUGIN_GROUP, of a launch that only we see */
    HANDLE_TASK,          /* task */
    HANDLE_KERNEL,        /* task, of one of its channels */
};
#define KIND_BITS 3
_Static_assert(sizeof(void *) == 8, "a handle holds 64 bits");
_Static_assert(KIND_BITS + TASK_BITS <= 64 && KIND_BITS + LAUNCH_BITS + 16 <= 64, "names fit");

static void *pack(enum handle_kind kind, uint64_t value)
{
    return (void *)(uintptr_t)(value << KIND_BITS | kind); // NOLINT: a number
}

static enum handle_kind kind_of(const void *handle)
{
    return (enum handle_kind)((uintptr_t)handle & ((1u << KIND_BITS) - 1));
}

static uint64_t value_of(const void *handle)
{
    return (uint64_t)(uintptr_t)handle >> KIND_BITS;
}

static void *pack_api(enum handle_kind kind, uint64_t launch, uint16_t stream)
{
    return pack(kind, launch | (uint64_t)(uint16_t)(stream + 1) << LAUNCH_BITS);
}

static uint64_t launch_in(const void *handle)
{
    return value_of(handle) & ((UINT64_C(1) << LAUNCH_BITS) - 1);
}

static uint16_t stream_in(const void *handle)
{
    return (uint16_t)((value_of(handle) >> LAUNCH_BITS) - 1);
}

/* ---- what NCCL calls a context: one communicator of this process ---------------------------------- */

#define CONTEXTS 2048

/* Taken and given back under the slow lock. */
static struct context {
    bool taken;
    bool has_wrappers; /* its calls come through ours, so those that create it too */
    int version;
    uint64_t hash;
    uint32_t nranks, rank;
    _Atomic uint16_t comm; /* index; REC_LIVE_NONE16 = not yet known */
    /* The GPU's clock runs behind wall clock by this, at least: the least of this second and of the last. */
    _Atomic uint64_t second;
    _Atomic int64_t behind, behind_before;
} contexts[CONTEXTS];
static _Atomic uint32_t contexts_used, unjoined;

bool plugin_in_use(void)
{
    return atomic_load_explicit(&contexts_used, memory_order_relaxed) != 0;
}

/* Complete when the lock is given back: plugin_adopt may look at it right then. */
static struct context *take_context(int version, uint64_t hash, uint32_t nranks, uint32_t rank,
                                    bool has_wrappers)
{
    struct context *context = NULL;
    slow_lock();
    for (size_t i = 0; i < CONTEXTS && !context; i++)
        if (!contexts[i].taken)
            context = &contexts[i];
    if (context) {
        *context = (struct context){
            .taken = true,
            .has_wrappers = has_wrappers,
            .version = version,
            .hash = hash,
            .nranks = nranks,
            .rank = rank,
            .comm = REC_LIVE_NONE16,
        };
        atomic_fetch_add_explicit(&contexts_used, 1, memory_order_relaxed);
        if (has_wrappers)
            atomic_fetch_add_explicit(&unjoined, 1, memory_order_relaxed);
    }
    slow_unlock();
    return context;
}

static void join(struct context *context, uint16_t comm)
{
    atomic_store_explicit(&context->comm, comm, memory_order_relaxed);
    atomic_store_explicit(&comm_private[comm].told, true, memory_order_relaxed);
}

static uint16_t comm_of(const struct context *context)
{
    return atomic_load_explicit(&context->comm, memory_order_relaxed);
}

/* With the hash that NCCL gave it; or one of equal shape, where the hash could not be computed. */
void plugin_adopt(uint16_t index)
{
    if (atomic_load_explicit(&unjoined, memory_order_relaxed) == 0 || plugin_tells(index))
        return;
    const struct rec_live_comm *comm = &recorder.live.comms[index];
    uint64_t hash = atomic_load_explicit(&comm->comm_hash, memory_order_relaxed);
    uint32_t nranks = atomic_load_explicit(&comm->nranks, memory_order_relaxed);
    uint32_t rank = atomic_load_explicit(&comm->rank, memory_order_relaxed);
    struct context *found = NULL;
    slow_lock();
    for (size_t i = 0; i < CONTEXTS; i++) {
        struct context *context = &contexts[i];
        if (!context->taken || !context->has_wrappers || comm_of(context) != REC_LIVE_NONE16 ||
            context->nranks != nranks || (rank != REC_ID_NONE && context->rank != rank) ||
            (hash != 0 && context->hash != hash))
            continue;
        found = context;
        break;
    }
    if (found) {
        join(found, index);
        atomic_fetch_sub_explicit(&unjoined, 1, memory_order_relaxed);
    }
    slow_unlock();
}

/* Does a call that came through a wrapper create a communicator right now? NCCL may do it in a thread of its
 * own. */
static bool wrapper_creates(void)
{
    struct rec_slot slot;
    if (record_has_wrapper(&self_thread))
        return true;
    for (uint32_t i = 0; i < recorder.live.header->comm_count; i++)
        if (atomic_load_explicit(&recorder.live.comms[i].state, memory_order_acquire) ==
            REC_LIVE_COMM_CREATING)
            return true;
    for (uint32_t i = 0; i < recorder.live.header->thread_count; i++)
        if (rec_live_open_op(&recorder.live, i, &slot) && rec_kind_flags(slot.kind) & REC_KF_CREATE)
            return true;
    return false;
}

static int init(void **out, int version, uint64_t hash, int *mask, const char *name, int nranks, int rank)
{
    int saved = errno;
    *out = NULL;
    struct context *context = NULL;
    if (config_wants_plugin() && recorder_start() &&
        (context = take_context(version, hash, (uint32_t)nranks, (uint32_t)rank, wrapper_creates()))) {
        verbose("NCCL's profiler plugin: communicator %016llx, rank %d of %d", (unsigned long long)hash, rank,
                nranks);
        atomic_store_explicit(&recorder.live.header->gpu, REC_LIVE_GPU_MARKS, memory_order_release);
        if (!context->has_wrappers) {
            uint16_t comm = record_creation(hash, name, (uint32_t)nranks, (uint32_t)rank);
            if (comm != REC_LIVE_NONE16)
                join(context, comm);
        }
        const int of_calls = PLUGIN_GROUP_API | PLUGIN_COLL_API | PLUGIN_P2P_API;
        int wanted = PLUGIN_COLL | PLUGIN_P2P | PLUGIN_KERNEL_CH | (version > 4 ? of_calls : PLUGIN_GROUP);
        /* NCCL reads it whenever it likes. */
        __atomic_store_n(mask, wanted, __ATOMIC_RELAXED);
        *out = context;
    }
    errno = saved;
    /* Never an error: some releases warn, and some go on without a context but with the last mask. */
    return 0;
}

static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int nnodes, int nranks,
                   int rank, plugin_logger *log)
{
    (void)nnodes, (void)log;
    return init(context, 4, hash, mask, name, nranks, rank);
}

static int init_v5(void **context, uint64_t hash, int *mask, const char *name, int nnodes, int nranks,
                   int rank, plugin_logger *log)
{
    (void)nnodes, (void)log;
    return init(context, 5, hash, mask, name, nranks, rank);
}

static int finalize(void *pointer)
{
    struct context *context = pointer;
    if (!context || !context->taken)
        return 0;
    int saved = errno;
    tasks_drop((uint16_t)(context - contexts));
    if (!context->has_wrappers && comm_of(context) != REC_LIVE_NONE16)
        record_end(comm_of(context));
    slow_lock();
    if (context->has_wrappers && comm_of(context) == REC_LIVE_NONE16)
        atomic_fetch_sub_explicit(&unjoined, 1, memory_order_relaxed);
    context->taken = false;
    slow_unlock();
    errno = saved;
    return 0;
}

/* ---- the GPU's clock ---------------------------------------------------------------------------------- */

/*
 * A report comes a little after what it tells; the quickest one of a second says how the clocks
 * stand to each other. Of several threads that report at once one may be forgotten: no harm.
 */
static uint64_t real_time(struct context *context, uint64_t gpu_ns)
{
    uint64_t now = trace_now_ns();
    if (gpu_ns == 0)
        return now;
    int64_t behind = (int64_t)(now - gpu_ns);
    uint64_t second = (now >> 30) + 1, known = atomic_load_explicit(&context->second, memory_order_relaxed);
    int64_t least = atomic_load_explicit(&context->behind, memory_order_relaxed);
    if (known != second) {
        atomic_store_explicit(&context->behind_before, known + 1 == second ? least : INT64_MAX,
                              memory_order_relaxed);
        atomic_store_explicit(&context->second, second, memory_order_relaxed);
        least = behind;
    } else if (behind < least) {
        least = behind;
    }
    atomic_store_explicit(&context->behind, least, memory_order_relaxed);
    int64_t before = atomic_load_explicit(&context->behind_before, memory_order_relaxed);
    uint64_t real = gpu_ns + (uint64_t)(before < least ? before : least);
    return real < now ? real : now;
}

/* ---- events ---------------------------------------------------------------------------------- */

static unsigned kind_of_func(const char *func)
{
    static const unsigned kinds[] = {
        REC_ALL_REDUCE, REC_ALL_GATHER, REC_REDUCE_SCATTER, REC_SEND,   REC_RECV,
        REC_BROADCAST,  REC_REDUCE,     REC_ALL_TO_ALL,     REC_GATHER, REC_SCATTER,
    };
    for (size_t i = 0; func && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(func, rec_kind_name(kinds[i])) == 0)
            return kinds[i];
    return 0;
}

static unsigned dtype_of(const char *name)
{
    static const char *const names[] = {
        "ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",   "ncclInt64",      "ncclUint64",
        "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2",
    };
    for (unsigned i = 0; name && i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return REC_DTYPE_NONE;
}

static struct told_op told_op(const char *func, uint64_t count, const char *datatype, int root)
{
    unsigned kind = kind_of_func(func);
    bool rooted = rec_kind_flags(kind) & (REC_KF_ROOT | REC_KF_P2P);
    return (struct told_op){kind, dtype_of(datatype), count, rooted ? root : -1};
}

static void *group_api_begins(const struct plugin_descr *descr)
{
    if (record_has_wrapper(&self_thread) || !record_group_begins(descr->group_api.depth <= 1))
        return NULL;
    return pack(HANDLE_GROUP_API, 0);
}

/* Of a call that has a record: its launch. */
static void *wrapped_api(void)
{
    uint64_t launch = self_thread.told;
    return launch ? pack_api(HANDLE_API, launch, REC_LIVE_NONE16) : NULL;
}

static void *coll_api_begins(struct context *context, const struct plugin_descr *descr)
{
    uint64_t launch;
    if (record_has_wrapper(&self_thread))
        return wrapped_api();
    struct told_op op =
        told_op(descr->coll_api.func, descr->coll_api.count, descr->coll_api.datatype, descr->coll_api.root);
    if (op.kind == 0 || comm_of(context) == REC_LIVE_NONE16)
        return NULL;
    uint16_t stream =
        record_coll_begins(comm_of(context), &op, descr->coll_api.stream, descr->coll_api.captured, &launch);
    return pack_api(HANDLE_COLL_API, launch, stream);
}

static void *p2p_api_begins(struct context *context, const struct plugin_descr *descr)
{
    uint64_t launch;
    if (record_has_wrapper(&self_thread))
        return wrapped_api();
    struct told_op op = told_op(descr->p2p_api.func, descr->p2p_api.count, descr->p2p_api.datatype, -1);
    if (op.kind == 0 || comm_of(context) == REC_LIVE_NONE16)
        return NULL;
    uint16_t stream =
        record_p2p_taken(comm_of(context), &op, descr->p2p_api.stream, descr->p2p_api.captured, &launch);
    return descr->p2p_api.captured ? NULL : pack_api(HANDLE_API, launch, stream);
}

static struct told_op task_op(const struct plugin_descr *descr, bool is_coll)
{
    return is_coll ? told_op(descr->coll.func, descr->coll.count, descr->coll.datatype, descr->coll.root)
                   : told_op(descr->p2p.func, descr->p2p.count, descr->p2p.datatype, descr->p2p.peer);
}

/* Handed over without a record of the call: messages, and in version 4 everything. */
static void record_task(const struct context *context, const struct plugin_descr *descr, bool is_coll,
                        uint64_t launch)
{
    uint16_t comm = comm_of(context);
    struct told_op op = task_op(descr, is_coll);
    if (comm == REC_LIVE_NONE16 || op.kind == 0)
        return;
    if (context->version == 4)
        record_handed_over(comm, &op, launch);
    else
        record_p2p_handed_over(comm, &op, stream_in(descr->parent), launch);
}

static void *task_begins(struct context *context, const struct plugin_descr *descr, bool is_coll)
{
    uint64_t launch = descr->parent ? launch_in(descr->parent) : 0;
    if (context->version == 4 && context->has_wrappers)
        launch = record_has_wrapper(&self_thread) ? marks_told(&self_thread, comm_of(context)) : 0;
    else if (descr->parent &&
             (context->version == 4 || (!is_coll && stream_in(descr->parent) != REC_LIVE_NONE16)))
        record_task(context, descr, is_coll, launch);
    uint64_t task = task_open(launch, is_coll ? descr->coll.nchannels : descr->p2p.nchannels,
                              (uint16_t)(context - contexts));
    return task ? pack(HANDLE_TASK, task) : NULL;
}

static void *group_begins(struct context *context)
{
    if (context->version != 4 || context->has_wrappers)
        return NULL;
    uint64_t launch = record_launch_begins(comm_of(context));
    /* A handle even without a launch: the end must be told. */
    return pack_api(HANDLE_LAUNCH, launch, REC_LIVE_NONE16);
}

static void *kernel_begins(struct context *context, const struct plugin_descr *descr)
{
    if (!descr->parent || kind_of(descr->parent) != HANDLE_TASK)
        return NULL;
    uint64_t task = value_of(descr->parent);
    task_began(task, real_time(context, descr->kernel_ch.timer));
    return pack(HANDLE_KERNEL, task);
}

static int start_event(void *pointer, void **handle, uint64_t type, const struct plugin_descr *descr)
{
    struct context *context = pointer;
    *handle = NULL;
    if (unlikely(!context || !context->taken))
        return 0;
    int saved = errno;
    switch (type) {
    case PLUGIN_GROUP_API:
        *handle = group_api_begins(descr);
        break;
    case PLUGIN_COLL_API:
        *handle = coll_api_begins(context, descr);
        break;
    case PLUGIN_P2P_API:
        *handle = p2p_api_begins(context, descr);
        break;
    case PLUGIN_GROUP:
        *handle = group_begins(context);
        break;
    case PLUGIN_COLL:
    case PLUGIN_P2P:
        *handle = task_begins(context, descr, type == PLUGIN_COLL);
        break;
    case PLUGIN_KERNEL_CH:
        *handle = kernel_begins(context, descr);
        break;
    default:
        break;
    }
    errno = saved;
    return 0;
}

static int start_event_v4(void *context, void **handle, struct plugin_descr *descr)
{
    return start_event(context, handle, (uint8_t)descr->type, descr);
}

static int start_event_v5(void *context, void **handle, struct plugin_descr *descr)
{
    return start_event(context, handle, descr->type, descr);
}

static int stop_event(void *handle)
{
    switch (kind_of(handle)) {
    case HANDLE_GROUP_API:
        record_group_ended();
        break;
    case HANDLE_COLL_API:
        record_coll_taken();
        break;
    case HANDLE_LAUNCH:
        record_launch_ended();
        break;
    default: /* the host is through with it; or the kernel, of which record_event_state has told */
        break;
    }
    return 0;
}

static int record_event_state(void *handle, int state, union plugin_state_args *args)
{
    uint16_t owner;
    if (kind_of(handle) == HANDLE_KERNEL && state == PLUGIN_STATE_KERNEL_CH_STOP && args &&
        task_owner(value_of(handle), &owner))
        task_ended(value_of(handle), real_time(&contexts[owner], args->kernel_ch.timer));
    else if (kind_of(handle) == HANDLE_GROUP_API && state == PLUGIN_STATE_GROUP_END_API_START)
        record_group_ends();
    return 0;
}

#define NAME "flight recorder"
extern const struct plugin_v4 ncclProfiler_v4 PUBLIC;
const struct plugin_v4 ncclProfiler_v4 = {NAME,    init_v4, start_event_v4, stop_event, record_event_state,
                                          finalize};
extern const struct plugin_v5 ncclProfiler_v5 PUBLIC;
const struct plugin_v5 ncclProfiler_v5 = {NAME,    init_v5, start_event_v5, stop_event, record_event_state,
                                          finalize};
extern const struct plugin_v5 ncclProfiler_v6 PUBLIC;
const struct plugin_v5 ncclProfiler_v6 = {NAME,    init_v5, start_event_v5, stop_event, record_event_state,
                                          finalize};

/* ---- being found, or not --------------------------------------------------------------------- */

bool plugin_is_table(const char *name)
{
    return strncmp(name, "ncclProfiler_v", strlen("ncclProfiler_v")) == 0;
}

/* Whoever asks for a plugin in the whole program (STATIC_PLUGIN) must not get ours unless we are wanted. */
void *plugin_table(void *handle, const char *name)
{
    void *found = real_dlsym(handle, name);
    if (!found || !real_is_ours(found) || config_wants_plugin())
        return found;
    found = real_dlsym(RTLD_NEXT, name);
    /* No jump: next to us is meant, not to our caller. */
    __asm__ volatile("" : "+r"(found));
    return found;
}

/* NCCL's contexts of the parent mean nothing here. */
void plugin_forget(void)
{
    memset(contexts, 0, sizeof(contexts));
    atomic_store_explicit(&contexts_used, 0, memory_order_relaxed);
    atomic_store_explicit(&unjoined, 0, memory_order_relaxed);
    launches_forget();
    record_forget();
}
