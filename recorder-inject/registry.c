/*
 * The communicator table. Entries change under the slow lock, as a seqlock for readers
 * (version odd while changing); counters are apart and lock-free (hotpath.h). The drain thread
 * sets destroyed entries free; only then are they used again.
 */
#include "inject.h"
#include "plugin.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct comm_private comm_private[REC_LIVE_DEFAULT_COMMS];
struct map_entry comm_entries[1 << 12];
_Atomic uint32_t comms_pending; /* entries with out set; changed under the lock */

void slow_lock(void)
{
    pthread_mutex_lock(&lock);
}

void slow_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void slow_lock_forget(void)
{
    pthread_mutex_init(&lock, NULL);
}

static struct rec_live_comm *entry_of(uint16_t index)
{
    return &recorder.live.comms[index];
}

static void change_begin(struct rec_live_comm *comm)
{
    uint32_t version = atomic_load_explicit(&comm->version, memory_order_relaxed);
    atomic_store_explicit(&comm->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static void change_end(struct rec_live_comm *comm)
{
    uint32_t version = atomic_load_explicit(&comm->version, memory_order_relaxed);
    atomic_store_explicit(&comm->version, version + 1, memory_order_release);
}

static void set_state(struct rec_live_comm *comm, enum rec_live_comm_state state)
{
    change_begin(comm);
    atomic_store_explicit(&comm->state, state, memory_order_relaxed);
    change_end(comm);
}

/* ---- handles, under the lock ---------------------------------------------------------- */

static void handle_add(void *handle, uint16_t index)
{
    uint32_t flags = comm_private[index].nonblocking ? REC_OF_NONBLOCKING : 0;
    const struct map handles = comm_handles();
    map_put(&handles, (uintptr_t)handle, index | flags << 16);
}

/* Unless it means another communicator by now. */
static void handle_remove(void *handle, uint16_t index)
{
    const struct map handles = comm_handles();
    uint32_t value = map_find(&handles, (uintptr_t)handle);
    if (value != MAP_NONE && (uint16_t)value == index)
        map_remove(&handles, (uintptr_t)handle);
}

/* ---- life of an entry --------------------------------------------------------------------- */

static void release_p2p(struct comm_private *private)
{
    _Atomic uint64_t *counters = atomic_exchange_explicit(&private->p2p, NULL, memory_order_acq_rel);
    if (counters)
        munmap(counters, atomic_load_explicit(&private->p2p_bytes, memory_order_relaxed));
}

static uint16_t take_entry(void)
{
    static uint16_t hint;
    uint32_t count = recorder.live.header->comm_count;
    for (uint32_t i = 0; i < count; i++) {
        uint16_t index = (uint16_t)((hint + i) % count);
        if (atomic_load_explicit(&entry_of(index)->state, memory_order_acquire) == REC_LIVE_COMM_FREE) {
            hint = (uint16_t)(index + 1);
            return index;
        }
    }
    return REC_LIVE_NONE16;
}

static void fill_entry(struct rec_live_comm *comm, const struct comm_start *start)
{
    uint64_t parent_uid = 0;
    if (start->parent != REC_LIVE_NONE16)
        parent_uid = atomic_load_explicit(&entry_of(start->parent)->uid, memory_order_relaxed);
    uint32_t id = atomic_fetch_add_explicit(&recorder.live.header->next_comm_id, 1, memory_order_relaxed);
    change_begin(comm);
    atomic_store_explicit(&comm->state, REC_LIVE_COMM_CREATING, memory_order_relaxed);
    atomic_store_explicit(&comm->id, id, memory_order_relaxed);
    atomic_store_explicit(&comm->nranks, start->nranks, memory_order_relaxed);
    atomic_store_explicit(&comm->uid, start->uid, memory_order_relaxed);
    atomic_store_explicit(&comm->parent_uid, parent_uid, memory_order_relaxed);
    atomic_store_explicit(&comm->parent_seq, start->parent_seq, memory_order_relaxed);
    atomic_store_explicit(&comm->comm_hash, start->comm_hash, memory_order_relaxed);
    atomic_store_explicit(&comm->handle, 0, memory_order_relaxed);
    atomic_store_explicit(&comm->created, raw_now(), memory_order_relaxed);
    atomic_store_explicit(&comm->rank, start->rank, memory_order_relaxed);
    atomic_store_explicit(&comm->device, -1, memory_order_relaxed);
    atomic_store_explicit(&comm->color, start->color, memory_order_relaxed);
    atomic_store_explicit(&comm->made_by, start->made_by, memory_order_relaxed);
    memcpy(comm->name, start->name, sizeof(comm->name));
    atomic_store_explicit(&comm->next_seq, start->first_seq, memory_order_relaxed);
    atomic_store_explicit(&comm->lost, 0, memory_order_relaxed);
    atomic_store_explicit(&comm->p2p_entered, 0, memory_order_relaxed);
    atomic_store_explicit(&comm->async_error, 0, memory_order_relaxed);
    change_end(comm);
}

uint16_t comm_create(const struct comm_start *start)
{
    slow_lock();
    uint16_t index = take_entry();
    if (index != REC_LIVE_NONE16) {
        struct comm_private *private = &comm_private[index];
        release_p2p(private);
        private->out = NULL;
        private->parent = start->parent;
        private->next = REC_LIVE_NONE16;
        private->magic = start->magic;
        private->copy = (uint8_t)start->copy;
        private->nonblocking = start->nonblocking;
        atomic_store_explicit(&private->told, false, memory_order_relaxed);
        atomic_store_explicit(&private->children, 0, memory_order_relaxed);
        atomic_store_explicit(&private->shrinks, 0, memory_order_relaxed);
        fill_entry(entry_of(index), start);
    }
    slow_unlock();
    if (index == REC_LIVE_NONE16)
        atomic_fetch_add_explicit(&recorder.live.header->unslotted, 1, memory_order_relaxed);
    return index;
}

static void unpend(uint16_t index)
{
    if (comm_private[index].out) {
        comm_private[index].out = NULL;
        atomic_fetch_sub_explicit(&comms_pending, 1, memory_order_relaxed);
    }
}

typedef int query_fn(const void *comm, int *value);

static int ask(unsigned copy, const char *name, void *handle, int fallback)
{
    /* The wrapped thread is inside NCCL as far as the gate is concerned, so nothing is recorded. */
    int value = fallback;
    query_fn *query = (query_fn *)(uintptr_t)real_symbol(copy, name);
    return query && query(handle, &value) == 0 ? value : fallback;
}

void comm_ready(uint16_t index, void *handle)
{
    struct rec_live_comm *comm = entry_of(index);
    int rank = -1, nranks = 0, device = -1;
    if (handle) {
        unsigned copy = comm_private[index].copy;
        nranks = ask(copy, "ncclCommCount", handle, 0);
        rank = ask(copy, "ncclCommUserRank", handle, -1);
        device = ask(copy, "ncclCommCuDevice", handle, -1);
    }
    slow_lock();
    unpend(index);
    change_begin(comm);
    if (nranks > 0)
        atomic_store_explicit(&comm->nranks, (uint32_t)nranks, memory_order_relaxed);
    if (rank >= 0)
        atomic_store_explicit(&comm->rank, (uint32_t)rank, memory_order_relaxed);
    atomic_store_explicit(&comm->device, device, memory_order_relaxed);
    atomic_store_explicit(&comm->handle, (uint64_t)(uintptr_t)handle, memory_order_relaxed);
    atomic_store_explicit(&comm->state, REC_LIVE_COMM_READY, memory_order_relaxed);
    change_end(comm);
    handle_add(handle, index);
    slow_unlock();
    plugin_adopt(index);
}

void comm_known(uint16_t index, void *handle)
{
    struct rec_live_comm *comm = entry_of(index);
    slow_lock();
    change_begin(comm);
    atomic_store_explicit(&comm->handle, (uint64_t)(uintptr_t)handle, memory_order_relaxed);
    change_end(comm);
    handle_add(handle, index);
    slow_unlock();
    plugin_adopt(index);
}

void comm_failed(uint16_t index)
{
    slow_lock();
    unpend(index);
    void *handle = (void *)(uintptr_t)atomic_load_explicit(&entry_of(index)->handle, memory_order_relaxed);
    /* A failed non-blocking communicator still has a handle that must be aborted: keep it findable. */
    if (!handle)
        set_state(entry_of(index), REC_LIVE_COMM_FAILED);
    slow_unlock();
}

void comm_pend(uint16_t index, void *out, uint32_t thread, uint32_t group)
{
    slow_lock();
    struct comm_private *private = &comm_private[index];
    if (!private->out)
        atomic_fetch_add_explicit(&comms_pending, 1, memory_order_relaxed);
    private->out = out;
    private->thread = thread;
    private->group = group;
    slow_unlock();
}

/* The handle behind a pending out pointer. The pointer may be stale by now: read it like a stranger. */
static void *read_out(void *out)
{
    void *handle = NULL;
    struct iovec local = {&handle, sizeof(handle)}, remote = {out, sizeof(handle)};
    if (!out || process_vm_readv(recorder.pid, &local, 1, &remote, 1, 0) != (ssize_t)sizeof(handle))
        return NULL;
    return handle;
}

/* The next pending entry from *index on that fits; the lock is taken only to look. */
static bool next_pending(uint16_t *index, bool (*fits)(uint16_t, const void *), const void *what, void **out)
{
    bool found = false;
    slow_lock();
    for (; *index < recorder.live.header->comm_count && !found; (*index)++)
        if (comm_private[*index].out && fits(*index, what)) {
            *out = comm_private[*index].out;
            found = true;
        }
    slow_unlock();
    return found;
}

struct group_key {
    uint32_t thread, group;
};

static bool in_group(uint16_t index, const void *what)
{
    const struct group_key *key = what;
    return comm_private[index].group == key->group && comm_private[index].thread == key->thread;
}

void comm_group_ended(uint32_t thread, uint32_t group, unsigned result)
{
    const struct group_key key = {thread, group};
    void *out;
    for (uint16_t index = 0; next_pending(&index, in_group, &key, &out);) {
        uint16_t entry = (uint16_t)(index - 1);
        void *handle = read_out(out);
        if (result == REC_RESULT_SUCCESS)
            comm_ready(entry, handle);
        else if (result == REC_RESULT_IN_PROGRESS && handle)
            comm_known(entry, handle);
        else if (result != REC_RESULT_IN_PROGRESS)
            comm_failed(entry);
    }
}

/* Pending entries whose fate the state of communicator *what tells: itself and its children. */
static bool concerns(uint16_t index, const void *what)
{
    uint16_t comm = *(const uint16_t *)what;
    return index == comm || comm_private[index].parent == comm;
}

void comm_async(uint16_t index, unsigned error)
{
    if (error == REC_RESULT_IN_PROGRESS || atomic_load_explicit(&comms_pending, memory_order_relaxed) == 0)
        return;
    void *out;
    for (uint16_t at = 0; next_pending(&at, concerns, &index, &out);) {
        uint16_t entry = (uint16_t)(at - 1);
        void *handle = read_out(out);
        if (error != REC_RESULT_SUCCESS)
            comm_failed(entry);
        else if (handle)
            comm_ready(entry, handle);
    }
}

static bool any_pending(uint16_t index, const void *what)
{
    (void)index;
    (void)what;
    return true;
}

struct comm_slot comm_find_slow(void *handle)
{
    int saved = errno;
    struct comm_slot found = {REC_LIVE_NONE16, 0};
    void *out;
    for (uint16_t at = 0; next_pending(&at, any_pending, NULL, &out);)
        if (read_out(out) == handle) {
            found.index = (uint16_t)(at - 1);
            found.flags = comm_private[found.index].nonblocking ? REC_OF_NONBLOCKING : 0;
            comm_known(found.index, handle);
            break;
        }
    errno = saved;
    return found;
}

void comm_detach(uint16_t index, void *handle)
{
    if (index == REC_LIVE_NONE16)
        return;
    slow_lock();
    handle_remove(handle, index);
    unpend(index);
    slow_unlock();
}

void comm_reattach(uint16_t index, void *handle)
{
    slow_lock();
    handle_add(handle, index);
    slow_unlock();
}

void comm_destroyed(uint16_t index)
{
    slow_lock();
    set_state(entry_of(index), REC_LIVE_COMM_DESTROYED);
    slow_unlock();
}

/* ---- point-to-point counters ------------------------------------------------------------------ */

static _Atomic uint64_t *make_p2p(uint16_t index, uint32_t nranks)
{
    int saved = errno;
    struct comm_private *private = &comm_private[index];
    size_t bytes = (size_t)nranks * 2 * sizeof(uint64_t);
    slow_lock();
    _Atomic uint64_t *counters = atomic_load_explicit(&private->p2p, memory_order_acquire);
    if (!counters) {
        /* Pages come only as peers are really talked to. */
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory != MAP_FAILED) {
            counters = memory;
            atomic_store_explicit(&private->p2p_bytes, bytes, memory_order_relaxed);
            atomic_store_explicit(&private->p2p, counters, memory_order_release);
        }
    }
    slow_unlock();
    errno = saved;
    return counters;
}

_Atomic uint64_t *comm_p2p_counter(uint16_t index, int peer, bool receive)
{
    uint32_t nranks = atomic_load_explicit(&entry_of(index)->nranks, memory_order_relaxed);
    if (peer < 0 || (uint32_t)peer >= nranks)
        return NULL;
    _Atomic uint64_t *counters = atomic_load_explicit(&comm_private[index].p2p, memory_order_acquire);
    if (unlikely(!counters) && !(counters = make_p2p(index, nranks)))
        return NULL;
    return &counters[2 * (size_t)peer + receive];
}

bool comm_p2p_seq(uint16_t index, int peer, bool receive, uint64_t *seq)
{
    _Atomic uint64_t *counter = comm_p2p_counter(index, peer, receive);
    if (!counter)
        return false;
    *seq = atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
    return true;
}

void comm_release_freed(void)
{
    /* The drain thread never waits for the lock; next time will do. Under it, no entry is being reused. */
    if (pthread_mutex_trylock(&lock) != 0)
        return;
    for (uint32_t i = 0; i < recorder.live.header->comm_count; i++)
        if (atomic_load_explicit(&entry_of((uint16_t)i)->state, memory_order_acquire) == REC_LIVE_COMM_FREE)
            release_p2p(&comm_private[i]);
    pthread_mutex_unlock(&lock);
}

void registry_forget(void)
{
    for (size_t i = 0; i < REC_LIVE_DEFAULT_COMMS; i++)
        release_p2p(&comm_private[i]);
    memset(comm_private, 0, sizeof(comm_private));
    memset(comm_entries, 0, sizeof(comm_entries));
    atomic_store_explicit(&comms_pending, 0, memory_order_relaxed);
}
