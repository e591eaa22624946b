#include "plugin_record.h"

#include <errno.h>
#include <string.h>

#include "calls.h"
#include "launches.h"

/* By thread entry; its thread's own. */
static struct plugin_thread {
    struct call call;
    uint16_t stream;  /* version 4 */
    bool open;        /* call is a collective that NCCL has not returned from */
    bool group_ended; /* call is the open ncclGroupEnd */
    bool grouped;
} threads[REC_LIVE_DEFAULT_THREADS];

/* The calling thread, if it may be recorded. */
static struct plugin_thread *self(struct thread **thread)
{
    *thread = &self_thread;
    if ((*thread)->gate == GATE_NEW && !thread_join(*thread, NULL))
        return NULL;
    return (*thread)->by_plugin || (*thread)->gate == GATE_OPEN ? &threads[(*thread)->index] : NULL;
}

static struct comm_slot slot_of(uint16_t comm)
{
    return (struct comm_slot){comm, 0};
}

/* ---- communicators ---------------------------------------------------------------------------- */

uint16_t record_creation(uint64_t nccl_hash, const char *name, uint32_t nranks, uint32_t rank)
{
    struct thread *thread;
    if (!self(&thread) || thread->gate != GATE_OPEN)
        return REC_LIVE_NONE16;
    struct comm_start start = {
        .made_by = REC_COMM_INIT_RANK,
        .nranks = nranks,
        .rank = rank,
        .color = -1,
        .parent = REC_LIVE_NONE16,
        .uid = identity_told(nccl_hash, nranks, rank),
        .comm_hash = nccl_hash,
    };
    if (name)
        strncpy(start.name, name, sizeof(start.name) - 1);
    uint16_t comm = comm_create(&start);
    if (comm == REC_LIVE_NONE16)
        return comm;
    struct call call;
    thread->callsite = callsite_capture(NULL);
    op_open(thread, &call, REC_COMM_INIT_RANK, slot_of(comm), REC_LIVE_NONE16, nranks, next_seq(comm),
            (int32_t)rank, REC_DTYPE_NONE, REC_REDOP_NONE, 0);
    comm_ready(comm, NULL);
    op_close(thread, &call, REC_RESULT_SUCCESS);
    return comm;
}

void record_end(uint16_t comm)
{
    comm_destroyed(comm);
}

/* ---- groups ------------------------------------------------------------------------------------- */

static void make_group(struct thread *thread, struct plugin_thread *mine)
{
    mine->grouped = true;
    group_start_open(thread);
    group_start_close(thread, ncclSuccess);
}

bool record_group_begins(bool alone)
{
    struct thread *thread;
    struct plugin_thread *mine = self(&thread);
    if (!mine)
        return false;
    if (thread->by_plugin)
        record_group_ended(); /* NCCL has lost the last one in an error */
    thread->by_plugin = true;
    mine->open = mine->group_ended = mine->grouped = false;
    if (!alone)
        make_group(thread, mine);
    return true;
}

static void open_group_end(struct thread *thread, struct plugin_thread *mine)
{
    thread->callsite = callsite_capture(NULL);
    group_end_open(thread, &mine->call, REC_GROUP_END);
    mine->group_ended = true;
}

void record_group_ends(void)
{
    struct thread *thread = &self_thread;
    struct plugin_thread *mine = &threads[thread->index];
    if (thread->by_plugin && mine->grouped && !mine->group_ended)
        open_group_end(thread, mine);
}

void record_group_ended(void)
{
    struct thread *thread = &self_thread;
    struct plugin_thread *mine = &threads[thread->index];
    if (!thread->by_plugin)
        return;
    int saved = errno;
    if (mine->open)
        stream_op_close(thread, &mine->call, REC_RESULT_SUCCESS);
    if (mine->grouped && !mine->group_ended)
        open_group_end(thread, mine);
    if (mine->grouped)
        group_end_close(thread, &mine->call, ncclSuccess);
    mine->open = mine->group_ended = mine->grouped = false;
    thread->by_plugin = false;
    errno = saved;
}

/* ---- collectives ----------------------------------------------------------------------------------- */

uint16_t record_coll_begins(uint16_t comm, const struct told_op *op, void *stream, bool captured,
                            uint64_t *launch)
{
    struct thread *thread;
    struct plugin_thread *mine = self(&thread);
    *launch = 0;
    if (!mine || !thread->by_plugin || mine->open)
        return REC_LIVE_NONE16;
    uint16_t index = stream_index(stream, comm);
    mine->call.mark.number = 0;
    thread->told = 0;
    if (!captured)
        marks_claim(thread, &mine->call.mark, index, stream, comm);
    thread->callsite = callsite_capture(NULL);
    op_open(thread, &mine->call, op->kind, slot_of(comm), index, op->count, next_seq(comm), op->root_or_peer,
            op->dtype, REC_REDOP_NONE, captured ? REC_OF_CAPTURED : 0);
    thread->launch = 0;
    mine->open = true;
    *launch = thread->told;
    return index;
}

/* In a group the call has returned; alone, NCCL goes on to launch it. */
void record_coll_taken(void)
{
    struct thread *thread = &self_thread;
    struct plugin_thread *mine = &threads[thread->index];
    if (!thread->by_plugin || !mine->grouped || !mine->open)
        return;
    stream_op_close(thread, &mine->call, REC_RESULT_SUCCESS);
    mine->open = false;
}

/* ---- messages ---------------------------------------------------------------------------------------- */

/* enter: when the call was made, at the latest; 0 = now. */
static void p2p_record(struct thread *thread, uint16_t comm, const struct told_op *op, uint16_t stream,
                       unsigned flags, uint64_t enter)
{
    struct call call;
    uint64_t seq = 0;
    atomic_fetch_add_explicit(&recorder.live.comms[comm].p2p_entered, 1, memory_order_relaxed);
    if (flags & REC_OF_CAPTURED || !comm_p2p_seq(comm, op->root_or_peer, op->kind == REC_RECV, &seq))
        flags |= REC_OF_NO_SEQ;
    op_open(thread, &call, op->kind, slot_of(comm), stream, op->count, seq, op->root_or_peer, op->dtype,
            REC_REDOP_NONE, flags);
    thread->launch = 0;
    if (enter != 0)
        slot_word(call.slot, 1, enter);
    op_close(thread, &call, REC_RESULT_SUCCESS);
}

uint16_t record_p2p_taken(uint16_t comm, const struct told_op *op, void *stream, bool captured,
                          uint64_t *launch)
{
    struct thread *thread;
    struct plugin_thread *mine = self(&thread);
    *launch = 0;
    if (!mine || !thread->by_plugin || mine->open)
        return REC_LIVE_NONE16;
    /* NCCL makes several messages of one AlltoAll, so one alone is a group too. */
    if (!mine->grouped)
        make_group(thread, mine);
    uint16_t index = stream_index(stream, comm);
    thread->callsite = callsite_capture(NULL);
    if (captured) {
        p2p_record(thread, comm, op, index, REC_OF_CAPTURED, 0);
        return index;
    }
    struct mark unused;
    marks_claim(thread, &unused, index, stream, comm);
    thread->launch = 0;
    *launch = thread->told;
    return index;
}

/*
 * Handed over within ncclGroupEnd, whose record is open: that one is taken back, and opened again behind the
 * message's, so that records of a thread stay in the order of their numbers. Nothing of it was published but
 * that it is open, and whoever has read that finds it again.
 */
static void take_back(struct thread *thread)
{
    atomic_store_explicit(&thread->entry->open, 0, memory_order_release);
    thread->ordinal--;
    thread->group_ops -= thread->group_depth != 0;
    thread->gate = GATE_OPEN;
}

void record_p2p_handed_over(uint16_t comm, const struct told_op *op, uint16_t stream, uint64_t launch)
{
    struct thread *thread;
    struct plugin_thread *mine = self(&thread);
    if (!mine || mine->open)
        return;
    uint64_t enter = mine->group_ended ? mine->call.enter : 0;
    if (mine->group_ended)
        take_back(thread);
    thread->launch = (uint16_t)launch_number(launch);
    p2p_record(thread, comm, op, stream, 0, enter);
    if (!mine->group_ended)
        return;
    op_open(thread, &mine->call, REC_GROUP_END, slot_of(REC_LIVE_NONE16), REC_LIVE_NONE16, thread->group_ops,
            0, -1, REC_DTYPE_NONE, REC_REDOP_NONE, 0);
    slot_word(mine->call.slot, 1, enter);
    mine->call.enter = enter;
}

/* ---- version 4 ------------------------------------------------------------------------------- */

uint64_t record_launch_begins(uint16_t comm)
{
    struct thread *thread;
    struct plugin_thread *mine = self(&thread);
    if (!mine || comm == REC_LIVE_NONE16)
        return 0;
    /* An address that no stream has. */
    void *stand_in = &comm_private[comm];
    mine->stream = stream_index(stand_in, comm);
    marks_claim(thread, &mine->call.mark, mine->stream, stand_in, comm);
    thread->launch = 0;
    return thread->told;
}

void record_handed_over(uint16_t comm, const struct told_op *op, uint64_t launch)
{
    struct thread *thread;
    struct plugin_thread *mine = self(&thread);
    struct call call;
    if (!mine)
        return;
    thread->launch = (uint16_t)launch_number(launch);
    thread->callsite = callsite_capture(NULL);
    if (rec_kind_flags(op->kind) & REC_KF_P2P) {
        p2p_record(thread, comm, op, mine->stream, 0, 0);
        return;
    }
    op_open(thread, &call, op->kind, slot_of(comm), mine->stream, op->count, next_seq(comm), op->root_or_peer,
            op->dtype, REC_REDOP_NONE, 0);
    thread->launch = 0;
    op_close(thread, &call, REC_RESULT_SUCCESS);
}

void record_launch_ended(void)
{
    struct thread *thread;
    struct plugin_thread *mine = self(&thread);
    if (!mine || mine->call.mark.number == 0)
        return;
    if (!marks_end(&mine->call.mark, REC_LIVE_NONE16, REC_RESULT_SUCCESS))
        launch_unmarked(mine->call.mark.index, mine->call.mark.number);
    mine->call.mark.number = 0;
}

void record_forget(void)
{
    memset(threads, 0, sizeof(threads));
}
