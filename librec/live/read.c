#include "rec/live.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "slots are packed as little-endian words");

void rec_live_slot_load(const union rec_live_slot *slot, struct rec_slot *out)
{
    uint64_t words[8];
    for (size_t i = 0; i < 8; i++)
        words[i] = atomic_load_explicit(&slot->words[i], memory_order_relaxed);
    memcpy(out, words, sizeof(*out));
}

/* Where the open op of a thread lies; NULL when its indices make no sense (torn or hostile). */
static const union rec_live_slot *open_slot(const struct rec_live *live, const struct rec_live_thread *thread)
{
    if (atomic_load_explicit(&thread->spilled, memory_order_relaxed))
        return &thread->spill;
    uint32_t chunk = atomic_load_explicit(&thread->chunk, memory_order_relaxed);
    if (chunk == 0 || chunk > live->header->chunk_count)
        return NULL;
    uint32_t done = atomic_load_explicit(&live->chunks[chunk - 1].done, memory_order_relaxed);
    if (done >= REC_LIVE_CHUNK_SLOTS)
        return NULL;
    return &live->slots[(uint64_t)(chunk - 1) * REC_LIVE_CHUNK_SLOTS + done];
}

bool rec_live_open_op(const struct rec_live *live, uint32_t thread_index, struct rec_slot *out)
{
    const struct rec_live_thread *thread = &live->threads[thread_index];
    for (int tries = 0; tries < 64; tries++) {
        uint64_t open = atomic_load_explicit(&thread->open, memory_order_acquire);
        if (open == 0)
            return false;
        const union rec_live_slot *slot = open_slot(live, thread);
        if (slot)
            rec_live_slot_load(slot, out);
        /* Pairs with the release fence at the owner's next entry: had any word above come from a
         * later op, this load would see that op's open word (or the zero between). */
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&thread->open, memory_order_relaxed) != open)
            continue;
        /* Returning, its owner counts it as done before it clears open: the slot behind it is not it, though
         * one that was never used has the ordinal of a thread's first op. */
        if (!slot || out->ordinal != open - 1 || out->kind == REC_NONE)
            return false;
        out->exit = 0;
        out->result = REC_RESULT_NONE;
        out->flags = (uint16_t)(out->flags | REC_OF_OPEN);
        return true;
    }
    return false;
}

void rec_live_clock_read(const struct rec_live *live, struct rec_clock *clock)
{
    const struct rec_live_clock *source = &live->header->clock;
    uint64_t raw1 = 0, real1 = 0;
    clock->raw0 = 0;
    clock->real0_ns = 0;
    for (int tries = 0; tries < 1000; tries++) {
        uint64_t version = atomic_load_explicit(&source->version, memory_order_acquire);
        clock->raw0 = atomic_load_explicit(&source->raw0, memory_order_relaxed);
        clock->real0_ns = atomic_load_explicit(&source->real0_ns, memory_order_relaxed);
        raw1 = atomic_load_explicit(&source->raw1, memory_order_relaxed);
        real1 = atomic_load_explicit(&source->real1_ns, memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        if (!(version & 1) && atomic_load_explicit(&source->version, memory_order_relaxed) == version)
            break;
    }
    clock->mult = UINT64_C(1) << 32;
    if (raw1 > clock->raw0 && real1 > clock->real0_ns) {
        unsigned __int128 scaled = (unsigned __int128)(real1 - clock->real0_ns) << 32;
        scaled /= raw1 - clock->raw0;
        if (scaled > 0 && scaled <= UINT64_MAX)
            clock->mult = (uint64_t)scaled;
    }
}

uint64_t rec_clock_ns(const struct rec_clock *clock, uint64_t raw)
{
    if (raw >= clock->raw0)
        return clock->real0_ns + (uint64_t)(((unsigned __int128)(raw - clock->raw0) * clock->mult) >> 32);
    uint64_t back = (uint64_t)(((unsigned __int128)(clock->raw0 - raw) * clock->mult) >> 32);
    return back < clock->real0_ns ? clock->real0_ns - back : 0;
}

/*
 * What the slot alone proves. A call inside a group returns before anything is launched; its
 * GroupEnd, a record of its own, says more, so here it stays in_call.
 */
static enum rec_state slot_state(const struct rec_slot *slot)
{
    if (slot->exit == 0 || slot->result == REC_RESULT_NONE || slot->result == REC_RESULT_IN_PROGRESS)
        return REC_STATE_IN_CALL;
    if (slot->result != REC_RESULT_SUCCESS)
        return REC_STATE_FAILED;
    if (slot->group != 0 && slot->kind != REC_GROUP_END && slot->kind != REC_GROUP_SIMULATE_END)
        return REC_STATE_IN_CALL;
    return rec_kind_flags(slot->kind) & REC_KF_STREAM ? REC_STATE_ENQUEUED : REC_STATE_COMPLETED;
}

void rec_live_to_op(const struct rec_live *live, const struct rec_clock *clock, uint32_t thread_id,
                    const struct rec_slot *slot, struct rec_op *op)
{
    *op = (struct rec_op){
        .ordinal = slot->ordinal,
        .enter_ns = rec_clock_ns(clock, slot->enter),
        .exit_ns = slot->exit ? rec_clock_ns(clock, slot->exit) : 0,
        .count = slot->count,
        .seq = slot->flags & REC_OF_NO_SEQ ? 0 : slot->seq, /* one that was given back is still there */
        .thread = thread_id,
        .comm = REC_ID_NONE,
        .stream = slot->stream < live->header->stream_count ? slot->stream : REC_ID_NONE,
        .callsite = slot->callsite,
        .group = slot->group,
        .peer = slot->peer,
        .kind = slot->kind,
        .dtype = slot->dtype,
        .redop = slot->redop,
        .result = slot->result,
        .state = (uint8_t)slot_state(slot),
        .flags = slot->flags,
    };
    if (rec_kind_flags(slot->kind) & REC_KF_RMA) {
        op->signal = slot->seq;
        op->seq = 0;
    }
    if (slot->flags & REC_OF_CAPTURED) {
        op->launch = slot->launch;
    } else if (slot->launch && op->stream != REC_ID_NONE) {
        /* The op was numbered before it was published, and not 65,536 launches ago. */
        uint64_t last = atomic_load_explicit(&live->marks[op->stream].launched, memory_order_relaxed);
        uint64_t back = (uint16_t)(last - slot->launch);
        op->launch = back < last ? last - back : 0;
    }
    if (slot->comm < live->header->comm_count)
        op->comm = atomic_load_explicit(&live->comms[slot->comm].id, memory_order_relaxed);
}

void rec_live_gpu(const struct rec_live *live, uint32_t stream, struct rec_gpu *gpu)
{
    *gpu = (struct rec_gpu){.stream = stream};
    if (stream >= live->header->stream_count)
        return;
    const struct rec_live_mark *mark = &live->marks[stream];
    /* The end first: what is over by now has begun. */
    gpu->dropped = atomic_load_explicit(&mark->dropped, memory_order_acquire);
    if (atomic_load_explicit(&live->header->gpu, memory_order_acquire) == REC_LIVE_GPU_FAILED)
        gpu->error = live->header->gpu_error;
    gpu->ended = atomic_load_explicit(&mark->end, memory_order_acquire);
    gpu->started = atomic_load_explicit(&mark->start, memory_order_acquire);
    if (gpu->started < gpu->ended)
        gpu->started = gpu->ended;
    /* The stream runs them in order; not every launch has an end mark. */
    if (gpu->started > gpu->ended + 1)
        gpu->ended = gpu->started - 1;
}
