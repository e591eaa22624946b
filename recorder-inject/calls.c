#include "calls.h"

#include <string.h>

static bool grouped(const struct thread *thread)
{
    return thread->group_depth != 0;
}

static uint32_t thread_id(const struct thread *thread)
{
    return atomic_load_explicit(&thread->entry->id, memory_order_relaxed);
}

/* ---- the caller's ncclConfig_t ------------------------------------------------------------ */

static bool config_has(const struct config_prefix *settings, size_t end)
{
    return settings && settings->magic == CONFIG_MAGIC && settings->size >= end;
}

static bool config_nonblocking(const struct config_prefix *settings, bool fallback)
{
    if (!config_has(settings, offsetof(struct config_prefix, cga_cluster_size)))
        return fallback;
    return settings->blocking == NCCL_CONFIG_UNDEF_INT ? fallback : settings->blocking == 0;
}

static void config_name(const struct config_prefix *settings, char name[64])
{
    if (!config_has(settings, sizeof(*settings)) || settings->version < CONFIG_VERSION_NAME ||
        !settings->comm_name)
        return;
    strncpy(name, settings->comm_name, 63);
}

/* ---- refused calls ---------------------------------------------------------------------------- */

/*
 * What NCCL refuses is not in its order either: the next call takes the place. Another thread may
 * have taken the one behind already; then the place cannot be given back and the call keeps it.
 */
void call_refused(struct call *call)
{
    unsigned kind = call->tail & 0xff, flags = rec_kind_flags(kind);
    if (call->comm == REC_LIVE_NONE16 || call->tail & (uint64_t)REC_OF_NO_SEQ << 32)
        return;
    _Atomic uint64_t *counter = NULL;
    if (flags & REC_KF_P2P) {
        int32_t peer = (int32_t)atomic_load_explicit(&call->slot->words[6], memory_order_relaxed);
        counter = comm_p2p_counter(call->comm, peer, kind == REC_RECV);
    } else if (flags & REC_KF_SEQ) {
        counter = &recorder.live.comms[call->comm].next_seq;
    }
    uint64_t next = call->seq + 1;
    if (!counter || atomic_compare_exchange_strong_explicit(counter, &next, call->seq, memory_order_relaxed,
                                                            memory_order_relaxed))
        call->tail |= (uint64_t)REC_OF_NO_SEQ << 32;
}

/* ---- waits for several signals ---------------------------------------------------------------- */

static void put_part(struct thread *thread, const struct call *whole, uint16_t stream,
                     const struct wait_signal *what, ncclResult_t result)
{
    struct call part;
    thread->launch = (uint16_t)(whole->tail >> 48);
    op_open(thread, &part, REC_WAIT_SIGNAL, (struct comm_slot){whole->comm, (uint16_t)(whole->tail >> 32)},
            stream, what->signals > 0 ? (uint64_t)what->signals : 0,
            rec_signal_id(what->signal_index, what->context), what->peer, REC_DTYPE_NONE, REC_REDOP_NONE,
            REC_OF_PART);
    thread->launch = 0;
    op_close(thread, &part, result);
}

void wait_close(struct thread *thread, struct call *call, int n, const ncclWaitSignalDesc_t *descriptions,
                ncclResult_t result)
{
    const struct wait_signal *what = (const struct wait_signal *)descriptions;
    /* Before the slot is closed: then it may be given to another thread. */
    uint64_t place = atomic_load_explicit(&call->slot->words[5], memory_order_relaxed);
    stream_op_close(thread, call, result);
    if (n < 2 || !what || (result != ncclSuccess && result != ncclInProgress))
        return;
    KEEP_ERRNO;
    uint32_t group_ops = thread->group_ops;
    for (int i = 0; i < n; i++)
        put_part(thread, call, (uint16_t)(place >> 16), &what[i], result);
    thread->group_ops = group_ops; /* it was one call */
}

/* ---- init ------------------------------------------------------------------------------------ */

void init_open(struct thread *thread, struct call *call, unsigned copy, unsigned kind, int nranks,
               const ncclUniqueId *id, int rank, const ncclConfig_t *settings)
{
    KEEP_ERRNO;
    const struct config_prefix *prefix = (const struct config_prefix *)settings;
    struct comm_start start = {
        .made_by = kind,
        .nranks = (uint32_t)nranks,
        .rank = (uint32_t)rank,
        .color = -1,
        .parent = REC_LIVE_NONE16,
        .uid = id ? identity_init(id, (uint32_t)nranks, (uint32_t)rank) : 0,
        .comm_hash = id ? nccl_hash_init(real_version(copy), id) : 0,
        .magic = id ? nccl_magic(id) : 0,
        .copy = copy,
        .nonblocking = config_nonblocking(prefix, false),
    };
    config_name(prefix, start.name);
    struct comm_slot comm = {comm_create(&start), start.nonblocking ? REC_OF_NONBLOCKING : 0};
    bool known = comm.index != REC_LIVE_NONE16;
    uint64_t seq = known ? next_seq(comm.index) : 0;
    op_open(thread, call, kind, comm, REC_LIVE_NONE16, (uint64_t)nranks, seq, rank, REC_DTYPE_NONE,
            REC_REDOP_NONE, known ? 0 : REC_OF_NO_SEQ);
}

/* What becomes of a new communicator after its call has returned. */
static void creation_returned(struct thread *thread, uint16_t index, ncclComm_t *out, ncclResult_t result)
{
    if (index == REC_LIVE_NONE16)
        return;
    if (result == ncclSuccess)
        marks_prepare();
    if (result != ncclSuccess && result != ncclInProgress)
        comm_failed(index);
    else if (grouped(thread))
        comm_pend(index, out, thread_id(thread), thread->group);
    else if (result == ncclSuccess)
        comm_ready(index, out ? *out : NULL);
    else
        comm_pend(index, out, 0, 0);
    if (grouped(thread))
        thread->group_created++;
}

void init_close(struct thread *thread, struct call *call, ncclComm_t *out, ncclResult_t result)
{
    KEEP_ERRNO;
    creation_returned(thread, call->comm, out, result);
    /* Init stores the handle early; the application polls it with ncclCommGetAsyncError. */
    if (result == ncclInProgress && !grouped(thread) && call->comm != REC_LIVE_NONE16 && out && *out)
        comm_known(call->comm, *out);
    op_close(thread, call, result);
}

/*
 * One call creates ndev communicators, all with this process's ranks: one record each, all with
 * the times of the one call, so that every comm rank has its seq 0.
 */
void init_all_open(struct thread *thread, struct call *call, unsigned copy, int ndev, const int *devices)
{
    KEEP_ERRNO;
    static _Atomic uint32_t ordinal;
    uint64_t uid = identity_init_all(
        recorder.proc_uid, atomic_fetch_add_explicit(&ordinal, 1, memory_order_relaxed), devices, ndev);
    uint16_t first = REC_LIVE_NONE16, last = REC_LIVE_NONE16;
    for (int rank = 0; rank < ndev; rank++) {
        struct comm_start start = {
            .made_by = REC_COMM_INIT_ALL,
            .nranks = (uint32_t)ndev,
            .rank = (uint32_t)rank,
            .color = -1,
            .parent = REC_LIVE_NONE16,
            .uid = uid,
            .copy = copy,
        };
        uint16_t index = comm_create(&start);
        if (index == REC_LIVE_NONE16)
            break;
        if (last == REC_LIVE_NONE16)
            first = index;
        else
            comm_private[last].next = index;
        last = index;
    }
    struct comm_slot comm = {first, 0};
    bool known = first != REC_LIVE_NONE16;
    op_open(thread, call, REC_COMM_INIT_ALL, comm, REC_LIVE_NONE16, (uint64_t)ndev,
            known ? next_seq(first) : 0, 0, REC_DTYPE_NONE, REC_REDOP_NONE, known ? 0 : REC_OF_NO_SEQ);
}

void init_all_close(struct thread *thread, struct call *call, ncclComm_t *out, int ndev, ncclResult_t result)
{
    KEEP_ERRNO;
    uint16_t index = call->comm;
    for (int rank = 0; rank < ndev && index != REC_LIVE_NONE16; rank++) {
        uint16_t next = comm_private[index].next;
        creation_returned(thread, index, out ? out + rank : NULL, result);
        index = next;
    }
    uint64_t enter = call->enter;
    index = call->comm;
    op_close(thread, call, result);
    for (int rank = 1; rank < ndev && index != REC_LIVE_NONE16; rank++) {
        index = comm_private[index].next;
        if (index == REC_LIVE_NONE16)
            break;
        op_open(thread, call, REC_COMM_INIT_ALL, (struct comm_slot){index, 0}, REC_LIVE_NONE16,
                (uint64_t)ndev, next_seq(index), rank, REC_DTYPE_NONE, REC_REDOP_NONE, 0);
        slot_word(call->slot, 1, enter);
        op_close(thread, call, result);
    }
}

/* ---- split and shrink ---------------------------------------------------------------------------- */

static void child_open(struct thread *thread, struct child *child, struct comm_slot parent, uint64_t count,
                       int32_t peer)
{
    bool known = parent.index != REC_LIVE_NONE16;
    op_open(thread, &child->call, child->made_by, parent, REC_LIVE_NONE16, count,
            known ? next_seq(parent.index) : 0, peer, REC_DTYPE_NONE, REC_REDOP_NONE,
            known ? 0 : REC_OF_NO_SEQ);
}

void split_open(struct thread *thread, struct child *child, ncclComm_t handle, int color, int key)
{
    struct comm_slot parent = comm_find(handle);
    *child = (struct child){
        .made_by = REC_COMM_SPLIT,
        .color = color,
        .member = color != NCCL_SPLIT_NOCOLOR,
    };
    if (parent.index != REC_LIVE_NONE16) {
        const struct rec_live_comm *comm = &recorder.live.comms[parent.index];
        /* Every caller counts, members or not: so ordinals stay equal on all ranks of the parent. */
        uint32_t ordinal =
            1 + atomic_fetch_add_explicit(&comm_private[parent.index].children, 1, memory_order_relaxed);
        child->uid = identity_split(atomic_load_explicit(&comm->uid, memory_order_relaxed), ordinal, color);
        child->hash = nccl_hash_split(real_version(comm_private[parent.index].copy),
                                      atomic_load_explicit(&comm->comm_hash, memory_order_relaxed),
                                      (int)ordinal, color);
    }
    child->magic = child->hash;
    child_open(thread, child, parent, (uint32_t)key, color);
}

void shrink_open(struct thread *thread, struct child *child, ncclComm_t handle, const int *excluded,
                 int count, int flags)
{
    struct comm_slot parent = comm_find(handle);
    *child = (struct child){.made_by = REC_COMM_SHRINK, .color = -1, .member = true};
    if (parent.index != REC_LIVE_NONE16) {
        const struct rec_live_comm *comm = &recorder.live.comms[parent.index];
        uint32_t ordinal =
            1 + atomic_fetch_add_explicit(&comm_private[parent.index].shrinks, 1, memory_order_relaxed);
        child->uid = identity_shrink(atomic_load_explicit(&comm->uid, memory_order_relaxed), ordinal,
                                     excluded, excluded ? count : 0);
        /* NCCL leaves both inputs at 0 for a shrink, so two shrinks of one parent collide in its hash. */
        child->hash = nccl_hash_split(real_version(comm_private[parent.index].copy),
                                      atomic_load_explicit(&comm->comm_hash, memory_order_relaxed), 0, 0);
    }
    child->magic = child->hash;
    child_open(thread, child, parent, (uint64_t)count, flags);
}

void child_close(struct thread *thread, struct child *child, ncclComm_t *out, const ncclConfig_t *settings,
                 ncclResult_t result)
{
    KEEP_ERRNO;
    const struct config_prefix *prefix = (const struct config_prefix *)settings;
    uint16_t parent = child->call.comm;
    if (child->member && parent != REC_LIVE_NONE16 && (result == ncclSuccess || result == ncclInProgress)) {
        struct comm_start start = {
            .made_by = child->made_by,
            .rank = REC_ID_NONE,
            .color = child->color,
            .parent = parent,
            .parent_seq = child->call.seq,
            .uid = child->uid,
            .comm_hash = child->hash,
            .magic = child->magic,
            .first_seq = 1,
            .copy = comm_private[parent].copy,
            /* Without a config of its own a child inherits its parent's. */
            .nonblocking = config_nonblocking(prefix, comm_private[parent].nonblocking),
        };
        config_name(prefix, start.name);
        creation_returned(thread, comm_create(&start), out, result);
    }
    op_close(thread, &child->call, result);
}

/*
 * Old and new ranks name the grown communicator alike: new ones have NCCL's magic of it in the
 * unique id, old ones derive the same number (NCCL's src/init.cc and src/bootstrap.cc, 2.29).
 */
static uint64_t grow_magic(uint16_t parent, const ncclUniqueId *id)
{
    uint64_t derived = 0;
    if (parent != REC_LIVE_NONE16) {
        struct comm_private *private = &comm_private[parent];
        uint32_t ordinal = 1 + atomic_fetch_add_explicit(&private->children, 1, memory_order_relaxed);
        if (private->magic)
            derived = nccl_hash_combine(private->magic, ordinal);
    }
    return id ? nccl_magic(id) : derived;
}

static void join_open(struct thread *thread, struct child *child, unsigned copy, int nranks, int rank,
                      const ncclConfig_t *settings)
{
    const struct config_prefix *prefix = (const struct config_prefix *)settings;
    struct comm_start start = {
        .made_by = REC_COMM_GROW,
        .nranks = (uint32_t)nranks,
        .rank = (uint32_t)rank,
        .color = -1,
        .parent = REC_LIVE_NONE16,
        .uid = child->uid,
        .comm_hash = child->hash,
        .magic = child->magic,
        .first_seq = 1, /* as on the old ranks; this call itself is told as seq 0 */
        .copy = copy,
        .nonblocking = config_nonblocking(prefix, false),
    };
    config_name(prefix, start.name);
    struct comm_slot comm = {comm_create(&start), start.nonblocking ? REC_OF_NONBLOCKING : 0};
    op_open(thread, &child->call, REC_COMM_GROW, comm, REC_LIVE_NONE16, (uint64_t)nranks, 0, rank,
            REC_DTYPE_NONE, REC_REDOP_NONE, 0);
}

void grow_open(struct thread *thread, struct child *child, unsigned copy, ncclComm_t handle, int nranks,
               const ncclUniqueId *id, int rank, const ncclConfig_t *settings)
{
    KEEP_ERRNO;
    struct comm_slot parent = handle ? comm_find(handle) : (struct comm_slot){REC_LIVE_NONE16, 0};
    *child = (struct child){.made_by = REC_COMM_GROW, .color = -1, .member = true};
    child->magic = grow_magic(parent.index, id);
    child->uid = identity_grow(child->magic, (uint32_t)nranks);
    child->hash = child->magic ? nccl_hash_combine(child->magic, (uint64_t)nranks) : 0;
    if (handle)
        child_open(thread, child, parent, (uint64_t)nranks, rank);
    else
        join_open(thread, child, copy, nranks, rank, settings);
}

void grow_close(struct thread *thread, struct child *child, ncclComm_t handle, ncclComm_t *out,
                const ncclConfig_t *settings, ncclResult_t result)
{
    if (handle)
        child_close(thread, child, out, settings, result);
    else
        init_close(thread, &child->call, out, result);
}

/* ---- destroy and abort --------------------------------------------------------------------------- */

void release_open(struct thread *thread, struct call *call, unsigned kind, ncclComm_t handle)
{
    struct comm_slot comm = comm_find(handle);
    op_open(thread, call, kind, comm, REC_LIVE_NONE16, 0, peek_seq(comm.index), -1, REC_DTYPE_NONE,
            REC_REDOP_NONE, 0);
    /* Before NCCL frees the handle: afterwards another thread may get the same one. */
    comm_detach(comm.index, handle);
}

void release_close(struct thread *thread, struct call *call, ncclComm_t handle, ncclResult_t result)
{
    if (call->comm != REC_LIVE_NONE16) {
        /* Its launches are over one way or another, and nobody will ask for them any more. */
        if (atomic_load_explicit(&marks_pending, memory_order_relaxed) != 0)
            marks_async(call->comm, ncclInvalidUsage);
        if (result == ncclSuccess || result == ncclInProgress)
            comm_destroyed(call->comm);
        else
            comm_reattach(call->comm, handle);
    }
    op_close(thread, call, result);
}

/* ---- asynchronous errors --------------------------------------------------------------------------- */

void async_error_open(struct thread *thread, struct call *call)
{
    call->enter = raw_now();
    thread->gate = GATE_INSIDE;
}

void async_error_close(struct thread *thread, struct call *call, ncclComm_t handle, const ncclResult_t *error,
                       ncclResult_t result)
{
    uint64_t enter = call->enter;
    struct comm_slot comm = comm_find(handle);
    if (result == ncclSuccess && error && comm.index != REC_LIVE_NONE16) {
        KEEP_ERRNO;
        uint32_t value = (uint32_t)*error;
        uint32_t before = atomic_exchange_explicit(&recorder.live.comms[comm.index].async_error, value,
                                                   memory_order_relaxed);
        comm_async(comm.index, value);
        if (atomic_load_explicit(&marks_pending, memory_order_relaxed) != 0)
            marks_async(comm.index, value);
        if (value != before) {
            op_open(thread, call, REC_COMM_GET_ASYNC_ERROR, comm, REC_LIVE_NONE16, value, 0, -1,
                    REC_DTYPE_NONE, REC_REDOP_NONE, 0);
            slot_word(call->slot, 1, enter);
            op_close(thread, call, result);
        }
    }
    thread->gate = GATE_OPEN;
}

/* ---- groups ------------------------------------------------------------------------------------------ */

void group_start_open(struct thread *thread)
{
    thread->gate = GATE_INSIDE;
}

void group_start_close(struct thread *thread, ncclResult_t result)
{
    thread->gate = GATE_OPEN;
    if (result != ncclSuccess || thread->group_depth++ != 0)
        return;
    thread->group = ++thread->groups;
    thread->group_ops = 0;
    thread->group_created = 0;
    marks_group_begin(thread);
    atomic_store_explicit(&thread->entry->group, thread->group, memory_order_relaxed);
}

/* Only the end of the outermost group does anything in NCCL, so only that one is an op. */
void group_end_open(struct thread *thread, struct call *call, unsigned kind)
{
    call->slot = NULL;
    if (thread->group_depth > 1) {
        thread->gate = GATE_INSIDE;
        return;
    }
    uint32_t ops = thread->group_ops;
    op_open(thread, call, kind, (struct comm_slot){REC_LIVE_NONE16, 0}, REC_LIVE_NONE16, ops, 0, -1,
            REC_DTYPE_NONE, REC_REDOP_NONE, 0);
    if (kind == REC_GROUP_END)
        marks_group_start(thread);
    else
        marks_group_begin(thread); /* nothing is launched */
}

void group_end_close(struct thread *thread, struct call *call, ncclResult_t result)
{
    if (thread->group_depth > 0)
        thread->group_depth--;
    if (!call->slot) {
        thread->gate = GATE_OPEN;
        return;
    }
    marks_group_end(thread, result);
    if (thread->group_created != 0) {
        KEEP_ERRNO;
        comm_group_ended(thread_id(thread), thread->group, result);
        thread->group_created = 0;
    }
    op_close(thread, call, result);
    thread->group = 0;
    atomic_store_explicit(&thread->entry->group, 0, memory_order_relaxed);
}

/* ---- operators --------------------------------------------------------------------------------------- */

void redop_create_close(struct thread *thread, struct call *call, const ncclRedOp_t *op, const void *scalar,
                        ncclDataType_t dtype, ncclScalarResidence_t residence, ncclResult_t result)
{
    if (result == ncclSuccess && op) {
        uint64_t bits = 0;
        if (residence == ncclScalarHostImmediate && scalar)
            memcpy(&bits, scalar, rec_dtype_size((unsigned)dtype));
        redop_created(call->comm, (int)*op, (unsigned)dtype, (unsigned)residence, bits);
    }
    op_close(thread, call, result);
}
