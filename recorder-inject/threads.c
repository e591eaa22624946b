/*
 * Application threads: their entry in the live region and their chunks of slots.
 *
 * An entry belongs to its thread from the exchange of claimed until the drain thread stores
 * id 0, which it does only after it has seen exited. A chunk belongs to a
 * thread from the compare-exchange of owner until the drain thread stores 0.
 */
#include "hotpath.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

_Thread_local struct thread self_thread __attribute__((tls_model("initial-exec")));
_Atomic uint32_t free_chunks;
struct thread_mark thread_marks[REC_LIVE_DEFAULT_THREADS];

static pthread_key_t exit_key;
static pthread_once_t exit_key_once = PTHREAD_ONCE_INIT;
static bool exit_key_made;

/* Runs when a thread that has called NCCL ends. Later destructors may call NCCL again: new entry. */
static void thread_exit(void *entry_pointer)
{
    struct thread *thread = &self_thread;
    if (thread->entry == NULL || thread->entry != entry_pointer)
        return;
    struct rec_live_thread *entry = thread->entry;
    /* Cancelled inside NCCL: the call will never return, and its slot never be finished. */
    if (thread->gate == GATE_INSIDE && atomic_load_explicit(&entry->open, memory_order_relaxed)) {
        atomic_store_explicit(&entry->open, 0, memory_order_release);
        op_count_lost(thread, REC_LIVE_NONE16);
    }
    marks_thread_exit(thread);
    memset(thread, 0, sizeof(*thread));
    atomic_store_explicit(&entry->exited, 1, memory_order_release);
}

static void make_exit_key(void)
{
    exit_key_made = pthread_key_create(&exit_key, thread_exit) == 0;
}

/* Held by the thread that is between finding an entry free and publishing its id. */
static _Atomic bool claimed[REC_LIVE_DEFAULT_THREADS];

static bool claim_entry(struct thread *thread)
{
    struct rec_live_header *header = recorder.live.header;
    for (uint32_t i = 0; i < header->thread_count; i++) {
        struct rec_live_thread *entry = &recorder.live.threads[i];
        if (atomic_load_explicit(&entry->id, memory_order_acquire) != 0 ||
            atomic_load_explicit(&claimed[i], memory_order_relaxed))
            continue;
        if (atomic_exchange_explicit(&claimed[i], true, memory_order_acquire))
            continue;
        /* Ours alone now. Look again: it may have been taken and published in between. */
        if (atomic_load_explicit(&entry->id, memory_order_acquire) != 0) {
            atomic_store_explicit(&claimed[i], false, memory_order_release);
            continue;
        }
        atomic_store_explicit(&entry->tid, (int32_t)gettid(), memory_order_relaxed);
        thread->entry = entry;
        thread->index = i;
        return true;
    }
    return false;
}

static void publish_entry(struct thread *thread)
{
    struct rec_live_thread *entry = thread->entry;
    atomic_store_explicit(&entry->open, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->chunk, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->spilled, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->ordinal, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->lost, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->group, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->exited, 0, memory_order_relaxed);
    memset(entry->name, 0, sizeof(entry->name));
    prctl(PR_GET_NAME, entry->name);
    uint32_t id = atomic_fetch_add_explicit(&recorder.live.header->next_thread_id, 1, memory_order_relaxed);
    atomic_store_explicit(&entry->id, id, memory_order_release);
    atomic_store_explicit(&claimed[thread->index], false, memory_order_release);
}

bool thread_join(struct thread *thread, const void *caller)
{
    int saved = errno;
    bool joined = false;
    if (recorder_start()) {
        if (real_contains(caller)) {
            /* A thread of libnccl's own. */
        } else if (claim_entry(thread)) {
            callsite_thread(&thread_marks[thread->index].python);
            publish_entry(thread);
            thread->used = REC_LIVE_CHUNK_SLOTS;
            thread->gate = GATE_OPEN;
            pthread_once(&exit_key_once, make_exit_key);
            if (exit_key_made)
                pthread_setspecific(exit_key, thread->entry);
            joined = true;
        } else {
            atomic_fetch_add_explicit(&recorder.live.header->unslotted, 1, memory_order_relaxed);
        }
    }
    errno = saved;
    return joined;
}

/* Cheaper than a look at every chunk header when all are taken. */
static bool reserve_chunk(void)
{
    uint32_t have = atomic_load_explicit(&free_chunks, memory_order_relaxed);
    while (have != 0)
        if (atomic_compare_exchange_weak_explicit(&free_chunks, &have, have - 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

bool thread_next_chunk(struct thread *thread)
{
    struct rec_live_header *header = recorder.live.header;
    struct rec_live_thread *entry = thread->entry;
    bool taken = reserve_chunk();
    uint32_t start = atomic_load_explicit(&header->next_claim_hint, memory_order_relaxed);
    for (uint32_t i = 0; taken && i < header->chunk_count; i++) {
        uint32_t index = (start + i) % header->chunk_count;
        struct rec_live_chunk *chunk = &recorder.live.chunks[index];
        uint32_t expected = 0;
        if (atomic_load_explicit(&chunk->owner, memory_order_relaxed) != 0)
            continue;
        /* Acquire: pairs with the drain's release of the chunk; done and drained are 0. */
        if (!atomic_compare_exchange_strong_explicit(&chunk->owner, &expected, thread->index + 1,
                                                     memory_order_acquire, memory_order_relaxed))
            continue;
        atomic_store_explicit(&header->next_claim_hint, index + 1, memory_order_relaxed);
        atomic_store_explicit(&chunk->thread_id, atomic_load_explicit(&entry->id, memory_order_relaxed),
                              memory_order_relaxed);
        atomic_store_explicit(&chunk->first_ordinal, thread->ordinal, memory_order_relaxed);
        /* Release: who sees the claim sees the last chunk full (drain.c). */
        atomic_store_explicit(&chunk->claim,
                              atomic_fetch_add_explicit(&header->next_claim, 1, memory_order_release) + 1,
                              memory_order_relaxed);
        thread->chunk = chunk;
        thread->slots = &recorder.live.slots[(uint64_t)index * REC_LIVE_CHUNK_SLOTS];
        thread->used = 0;
        thread->spilled = false;
        atomic_store_explicit(&entry->chunk, index + 1, memory_order_relaxed);
        atomic_store_explicit(&entry->spilled, 0, memory_order_relaxed);
        return true;
    }
    thread->spilled = true;
    atomic_store_explicit(&entry->spilled, 1, memory_order_relaxed);
    return false;
}

/* The slow end of op_close: the op was in the spill slot and is forgotten now. */
void op_count_lost(struct thread *thread, uint16_t comm)
{
    uint64_t lost = atomic_load_explicit(&thread->entry->lost, memory_order_relaxed);
    atomic_store_explicit(&thread->entry->lost, lost + 1, memory_order_relaxed);
    if (comm != REC_LIVE_NONE16)
        atomic_fetch_add_explicit(&recorder.live.comms[comm].lost, 1, memory_order_relaxed);
}

struct thread_mark *thread_mark_of(int32_t tid)
{
    const struct rec_live *live = &recorder.live;
    for (uint32_t i = 0; i < live->header->thread_count; i++) {
        const struct rec_live_thread *entry = &live->threads[i];
        if (atomic_load_explicit(&entry->id, memory_order_acquire) != 0 &&
            !atomic_load_explicit(&entry->exited, memory_order_acquire) &&
            atomic_load_explicit(&entry->tid, memory_order_relaxed) == tid)
            return &thread_marks[i];
    }
    return NULL;
}

void threads_forget(void)
{
    memset(&self_thread, 0, sizeof(self_thread));
    atomic_store_explicit(&free_chunks, 0, memory_order_relaxed);
}
