#include "stall.h"

/* Names one call of the process: ids and ordinals are never used again. */
static uint64_t call_key(uint32_t thread_id, uint64_t open)
{
    return (uint64_t)thread_id << 40 ^ open;
}

struct glance {
    uint64_t activity;
    uint32_t open_calls;
    uint32_t oldest; /* index of the thread with the oldest unreported open call; REC_ID_NONE */
    uint64_t oldest_enter;
};

static struct glance look(const struct stall_watch *watch)
{
    const struct rec_live *live = &recorder.live;
    struct glance glance = {.oldest = REC_ID_NONE};
    for (uint32_t i = 0; i < live->header->thread_count; i++) {
        const struct rec_live_thread *thread = &live->threads[i];
        uint32_t id = atomic_load_explicit(&thread->id, memory_order_acquire);
        if (id == 0)
            continue;
        uint64_t open = atomic_load_explicit(&thread->open, memory_order_relaxed);
        glance.activity += 2 * atomic_load_explicit(&thread->ordinal, memory_order_relaxed) - (open != 0);
        struct rec_slot slot;
        if (open == 0 || !rec_live_open_op(live, i, &slot))
            continue;
        glance.open_calls++;
        if (watch->told[i] == call_key(id, slot.ordinal + 1))
            continue;
        if (glance.oldest == REC_ID_NONE || slot.enter < glance.oldest_enter) {
            glance.oldest = i;
            glance.oldest_enter = slot.enter;
        }
    }
    return glance;
}

/* The stacks of this record cover every call that is open now. */
static void mark_told(struct stall_watch *watch)
{
    const struct rec_live *live = &recorder.live;
    for (uint32_t i = 0; i < live->header->thread_count; i++) {
        uint64_t open = atomic_load_explicit(&live->threads[i].open, memory_order_relaxed);
        if (open)
            watch->told[i] = call_key(atomic_load_explicit(&live->threads[i].id, memory_order_relaxed), open);
    }
}

static bool communicators_exist(void)
{
    const struct rec_live *live = &recorder.live;
    for (uint32_t i = 0; i < live->header->comm_count; i++) {
        uint32_t state = atomic_load_explicit(&live->comms[i].state, memory_order_relaxed);
        if (state == REC_LIVE_COMM_CREATING || state == REC_LIVE_COMM_READY)
            return true;
    }
    return false;
}

bool stall_check(struct stall_watch *watch, struct rec_stall *stall)
{
    const uint64_t limit_ns = (uint64_t)options.stall_sec * 1000000000u;
    if (limit_ns == 0)
        return false;
    struct glance glance = look(watch);
    uint64_t now = monotonic_now_ns();
    if (glance.activity != watch->activity || watch->changed_ns == 0) {
        watch->activity = glance.activity;
        watch->changed_ns = now;
        watch->idle_told = false;
    }

    struct rec_clock clock;
    rec_live_clock_read(&recorder.live, &clock);
    uint64_t wall = rec_clock_ns(&clock, raw_now());
    *stall = (struct rec_stall){.thread = REC_ID_NONE};
    if (glance.oldest != REC_ID_NONE) {
        stall->since_ns = rec_clock_ns(&clock, glance.oldest_enter);
        if (wall < stall->since_ns + limit_ns)
            return false;
        stall->why = REC_STALL_OPEN_OP;
        stall->thread = atomic_load_explicit(&recorder.live.threads[glance.oldest].id, memory_order_relaxed);
        mark_told(watch);
        return true;
    }
    if (glance.open_calls != 0 || watch->idle_told || now < watch->changed_ns + limit_ns ||
        !communicators_exist())
        return false;
    stall->why = REC_STALL_IDLE;
    stall->since_ns = wall - (now - watch->changed_ns);
    watch->idle_told = true;
    return true;
}
