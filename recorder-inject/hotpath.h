/*
 * What every recorded call pays, some 350 instructions (tests/bench/run): no allocation, lock, system call or
 * formatted output, and no read-modify-write except the communicator's own counters and, with marks, the
 * claim of the stream. The first call of a thread and on a stream, and a full chunk, are slower.
 *
 * Memory order, as rec/live.h promises to readers:
 *   op_open   fence(release); slot words (relaxed); thread.open = ordinal + 1 (release)
 *   op_close  exit and result (relaxed); chunk.done (release); thread.open = 0 (release)
 * The fence orders the clearing of open before the next op's words, so a reader that saw any of
 * those also sees that open has changed.
 */
#ifndef INJECT_HOTPATH_H
#define INJECT_HOTPATH_H

#include "graphs.h"
#include "inject.h"
#include "marks.h"
#include "nccl-compat.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "slots are packed as little-endian words");
_Static_assert(offsetof(struct rec_slot, comm) == 40 && offsetof(struct rec_slot, peer) == 48 &&
                   offsetof(struct rec_slot, kind) == 56,
               "packing below");

/* An op under way: on the wrapper's stack, or where the plugin keeps it (plugin_record.c). */
struct call {
    union rec_live_slot *slot;
    uint64_t enter;
    uint64_t tail; /* the slot's last word with result 0 */
    uint16_t comm;
    uint64_t seq;
    struct mark mark; /* of stream ops only */
};

static inline void slot_word(union rec_live_slot *slot, unsigned word, uint64_t value)
{
    atomic_store_explicit(&slot->words[word], value, memory_order_relaxed);
}

static inline void op_open(struct thread *thread, struct call *call, unsigned kind, struct comm_slot comm,
                           uint16_t stream, uint64_t count, uint64_t seq, int32_t peer, unsigned dtype,
                           unsigned redop, unsigned flags)
{
    struct rec_live_thread *entry = thread->entry;
    union rec_live_slot *slot;
    if (likely(thread->used < REC_LIVE_CHUNK_SLOTS) || thread_next_chunk(thread)) {
        slot = &thread->slots[thread->used];
    } else {
        slot = &entry->spill;
    }
    if (unlikely(thread->group_depth != 0))
        thread->group_ops++;

    /* Not the call's own address: the plugin keeps calls elsewhere than on the stack. */
    atomic_store_explicit(&thread_marks[thread->index].stack, (uint64_t)(uintptr_t)__builtin_frame_address(0),
                          memory_order_relaxed);

    uint64_t ordinal = thread->ordinal++;
    call->slot = slot;
    call->comm = comm.index;
    call->seq = seq;
    call->tail = (uint64_t)kind | (uint64_t)(dtype & 0xff) << 8 | (uint64_t)(redop & 0xff) << 16 |
                 (uint64_t)(comm.flags | flags) << 32 | (uint64_t)thread->launch << 48;
    atomic_store_explicit(&entry->ordinal, ordinal + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    slot_word(slot, 0, ordinal);
    slot_word(slot, 2, 0);
    slot_word(slot, 3, count);
    slot_word(slot, 4, seq);
    slot_word(slot, 5, (uint64_t)comm.index | (uint64_t)stream << 16 | (uint64_t)thread->callsite << 32);
    slot_word(slot, 6, (uint64_t)(uint32_t)peer | (uint64_t)thread->group << 32);
    slot_word(slot, 7, call->tail | (uint64_t)REC_RESULT_NONE << 24);
    call->enter = raw_now();
    slot_word(slot, 1, call->enter);
    atomic_store_explicit(&entry->open, ordinal + 1, memory_order_release);
    thread->gate = GATE_INSIDE;
}

void op_count_lost(struct thread *thread, uint16_t comm);

static inline void op_close(struct thread *thread, struct call *call, unsigned result)
{
    struct rec_live_thread *entry = thread->entry;
    slot_word(call->slot, 2, raw_now());
    slot_word(call->slot, 7, call->tail | (uint64_t)(result & 0xff) << 24);
    if (likely(!thread->spilled))
        atomic_store_explicit(&thread->chunk->done, ++thread->used, memory_order_release);
    else
        op_count_lost(thread, call->comm);
    atomic_store_explicit(&entry->open, 0, memory_order_release);
    thread->gate = GATE_OPEN;
}

/* Position of a collective-like op; comm.index must be known. */
static inline uint64_t next_seq(uint16_t comm)
{
    return atomic_fetch_add_explicit(&recorder.live.comms[comm].next_seq, 1, memory_order_relaxed);
}

static inline uint64_t peek_seq(uint16_t comm)
{
    if (comm == REC_LIVE_NONE16)
        return 0;
    return atomic_load_explicit(&recorder.live.comms[comm].next_seq, memory_order_relaxed);
}

static inline unsigned redop_code(uint16_t comm, int op)
{
    if (likely(op < REC_REDOP_USER))
        return op < 0 ? REC_REDOP_NONE : (unsigned)op;
    return redop_code_user(comm, op);
}

/* A stream op: the stream's index first, for the first stream brings the driver. */
static inline void stream_op_open(struct thread *thread, struct call *call, unsigned kind,
                                  struct comm_slot comm, void *stream, uint64_t count, uint64_t seq,
                                  int32_t peer, unsigned dtype, unsigned redop, unsigned flags)
{
    uint16_t index = stream_index(stream, comm.index);
    enum mark_stream what = marks_ask(stream);
    call->mark.number = 0;
    if (what == MARK_STREAM_RUNS) {
        marks_claim(thread, &call->mark, index, stream, comm.index);
    } else if (what == MARK_STREAM_CAPTURED) {
        flags |= REC_OF_CAPTURED;
        thread->launch = graphs_captured(stream);
    }
    op_open(thread, call, kind, comm, index, count, seq, peer, dtype, redop, flags);
    thread->launch = 0;
    /* Now that the call shows as open: the driver may make it wait. */
    if (call->mark.number != 0)
        marks_start(&call->mark);
}

/* NCCL refused this call outside of groups: it gives its place back. */
void call_refused(struct call *call);

/* Arguments are looked at before anything else; in a group its end decides. */
static inline bool is_refusal(const struct thread *thread, unsigned result)
{
    return unlikely(result == ncclInvalidArgument || result == ncclInvalidUsage) && thread->group_depth == 0;
}

static inline void stream_op_close(struct thread *thread, struct call *call, unsigned result)
{
    if (is_refusal(thread, result))
        call_refused(call);
    if (call->mark.number != 0 && unlikely(!marks_end(&call->mark, call->comm, result)))
        call->tail &= ~(UINT64_C(0xffff) << 48); /* the launch: nobody will tell of it */
    op_close(thread, call, result);
}

static inline void coll_open(struct thread *thread, struct call *call, unsigned kind, uint64_t count,
                             unsigned dtype, int redop, int root, void *handle, void *stream)
{
    struct comm_slot comm = comm_find(handle);
    uint64_t seq = 0;
    unsigned flags = REC_OF_NO_SEQ;
    if (likely(comm.index != REC_LIVE_NONE16)) {
        seq = next_seq(comm.index);
        flags = 0;
    }
    stream_op_open(thread, call, kind, comm, stream, count, seq, root, dtype, redop_code(comm.index, redop),
                   flags);
}

static inline void p2p_open(struct thread *thread, struct call *call, unsigned kind, uint64_t count,
                            unsigned dtype, int peer, void *handle, void *stream)
{
    struct comm_slot comm = comm_find(handle);
    uint64_t seq = 0;
    unsigned flags = REC_OF_NO_SEQ;
    if (likely(comm.index != REC_LIVE_NONE16)) {
        atomic_fetch_add_explicit(&recorder.live.comms[comm.index].p2p_entered, 1, memory_order_relaxed);
        if (likely(comm_p2p_seq(comm.index, peer, kind == REC_RECV, &seq)))
            flags = 0;
    }
    stream_op_open(thread, call, kind, comm, stream, count, seq, peer, dtype, REC_REDOP_NONE, flags);
}

/* Which signal a wait is for. */
static inline uint64_t wait_signal_id(int n, const void *descriptions)
{
    const struct wait_signal *what = descriptions;
    if (!what || n < 1)
        return REC_SIGNAL_UNKNOWN;
    return n > 1 ? REC_SIGNAL_SEVERAL : rec_signal_id(what->signal_index, what->context);
}

static inline void rma_open(struct thread *thread, struct call *call, unsigned kind, uint64_t count,
                            unsigned dtype, int peer, uint64_t signal, void *handle, void *stream)
{
    struct comm_slot comm = comm_find(handle);
    stream_op_open(thread, call, kind, comm, stream, count, signal, peer, dtype, REC_REDOP_NONE, 0);
}

static inline void call_open(struct thread *thread, struct call *call, unsigned kind, void *handle,
                             uint64_t count, int peer)
{
    struct comm_slot comm = handle ? comm_find(handle) : (struct comm_slot){REC_LIVE_NONE16, 0};
    uint64_t seq = rec_kind_flags(kind) & REC_KF_TEARDOWN ? peek_seq(comm.index) : 0;
    op_open(thread, call, kind, comm, REC_LIVE_NONE16, count, seq, peer, REC_DTYPE_NONE, REC_REDOP_NONE, 0);
}

/* May this call be recorded? Not from inside NCCL, and not when the recorder is off. */
static inline bool call_admit(struct thread *thread, const void *caller)
{
    if (likely(thread->gate == GATE_OPEN))
        return true;
    return thread->gate == GATE_NEW && thread_join(thread, caller);
}

#endif
