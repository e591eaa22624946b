#include "stage.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "rec/live.h"

uint64_t stage_clock_of(const struct stage *stage, int rank)
{
    return stage->now + stage->ranks[rank].skew_ns;
}

/* ---- files ---- */

void stage_open_trace(struct stage *stage, int rank, const char *dir)
{
    struct teller *t = &stage->ranks[rank];
    struct rec_writer_config config = {.tick_ns = 1};
    size_t bytes = (rec_writer_bytes(&config) + 63) / 64 * 64;
    t->memory = aligned_alloc(64, bytes);
    assert_non_null(t->memory);
    t->writer = rec_writer_init(t->memory, &config);
    char meta[512], stem[32];
    int n = snprintf(
        meta, sizeof meta,
        "{\"host\":\"node-%d\",\"boot_id\":\"boot-%d\",\"pid\":%d,\"proc_uid\":\"%016x\",\"rank\":%d,"
        "\"world_size\":%d,\"start_ns\":%" PRIu64 ",\"job\":{\"source\":\"FREC_JOB_ID\",\"id\":\"story\"}}",
        rank / 8, rank / 8, 1000 + rank, 1000 + rank, rank, stage->nranks, START);
    snprintf(stem, sizeof stem, "node-%d", 1000 + rank);
    struct rec_error err;
    assert_int_equal(rec_writer_open(t->writer, dir, stem, meta, (size_t)n, &err), REC_OK);
    snprintf(t->path, sizeof t->path, "%s/%s.frec", dir, stem);
    for (int i = 0; i < THREADS_MAX; i++) {
        struct rec_thread_def thread = {.id = (uint32_t)i + 1, .tid = 1000 + rank + i};
        rec_writer_thread(t->writer, &thread);
    }
    for (int i = 0; i < COMMS_MAX; i++)
        t->comm_rank[i] = -1;
}

void stage_close_trace(struct stage *stage, int rank)
{
    struct teller *t = &stage->ranks[rank];
    struct rec_error err;
    uint64_t last = t->stop_ns ? t->stop_ns : stage_clock_of(stage, rank);
    if (!t->over) {
        for (int c = 0; c < stage->ncomms; c++) {
            struct rec_frontier frontier = {
                .comm = (uint32_t)c, .next_seq = t->seq[c], .p2p_entered = t->p2p[c], .lost = t->lost[c]};
            if (t->comm_rank[c] >= 0)
                rec_writer_frontier(t->writer, last, &frontier);
        }
        rec_writer_open_ops(t->writer, last, t->open, t->nopen);
        rec_writer_heartbeat(t->writer, last);
        assert_int_equal(rec_writer_flush(t->writer, &err), REC_OK);
        rec_writer_abandon(t->writer);
    }
    if (t->ends_at)
        assert_int_equal(truncate(t->path, t->ends_at), 0);
    if (t->no_trace)
        unlink(t->path);
    free(t->memory);
}

/* ---- ops ---- */

void stage_define_comm(struct stage *stage, int rank, int comm, uint32_t made_by, uint32_t state,
                       uint32_t nranks)
{
    struct comm *c = &stage->comms[comm];
    struct rec_comm_def def = {.id = (uint32_t)comm,
                               .state = state,
                               .nranks = nranks,
                               .rank = (uint32_t)stage->ranks[rank].comm_rank[comm],
                               .uid = 0xc000u + (uint64_t)comm,
                               .made_by = made_by,
                               .color = -1,
                               .created_ns = stage_clock_of(stage, rank)};
    if (c->parent)
        def.parent_uid = 0xc000u + c->parent - 1;
    memcpy(def.name, c->name, sizeof c->name);
    rec_writer_comm(stage->ranks[rank].writer, &def);
}

struct call stage_new_call(int comm, unsigned kind)
{
    return (struct call){.op = {.comm = comm < 0 ? REC_ID_NONE : (uint32_t)comm,
                                .kind = (uint8_t)kind,
                                .dtype = REC_DTYPE_NONE,
                                .redop = REC_REDOP_NONE,
                                .peer = -1,
                                .stream = REC_ID_NONE}};
}

static uint64_t take_seq(struct teller *t, const struct rec_op *op)
{
    unsigned flags = rec_kind_flags(op->kind);
    if (flags & REC_KF_SEQ)
        return t->seq[op->comm]++;
    if (op->kind == REC_GRAPH_LAUNCH)
        return t->replays[op->peer]++;
    if (flags & REC_KF_RMA)
        return 0;
    if (!(flags & REC_KF_P2P))
        return op->comm == REC_ID_NONE ? 0 : t->seq[op->comm];
    t->p2p[op->comm]++;
    for (int i = 0; i < t->npairs; i++)
        if (t->pairs[i].comm == (int)op->comm && t->pairs[i].peer == op->peer &&
            t->pairs[i].send == (op->kind == REC_SEND))
            return t->pairs[i].next++;
    assert_true(t->npairs < PAIRS_MAX);
    t->pairs[t->npairs++] = (struct pair){(int)op->comm, op->peer, op->kind == REC_SEND, 1};
    return 0;
}

void stage_issue(struct stage *stage, int rank, struct call *call)
{
    struct teller *t = &stage->ranks[rank];
    assert_false(t->over);
    struct rec_op *op = &call->op;
    int thread = t->group && op->kind != REC_GROUP_END ? t->group_thread : call->thread;
    op->thread = (uint32_t)thread + 1;
    op->ordinal = t->ordinal[thread]++;
    /* As the recorder: a call that NCCL refuses outside of groups has no place. */
    bool counted = (rec_kind_flags(op->kind) & (REC_KF_COLL | REC_KF_P2P)) != 0;
    if (counted && op->result != REC_RESULT_SUCCESS && !t->group && !call->open)
        op->flags |= REC_OF_NO_SEQ;
    else
        op->seq = take_seq(t, op);
    op->group = t->group;
    t->group_ops += t->group != 0;
    op->enter_ns = stage_clock_of(stage, rank);
    op->result = call->open ? REC_RESULT_NONE : op->result;
    op->flags |= call->open ? REC_OF_OPEN : 0;
    op->flags |= t->capturing ? REC_OF_CAPTURED : 0;
    op->exit_ns = call->open ? 0 : op->enter_ns + MS / 10;
    if (t->capturing)
        op->launch = t->graph;
    else if (stage->marks && (rec_kind_flags(op->kind) & REC_KF_STREAM) && !call->open && !t->group)
        op->launch = ++t->launches;
    t->capturing = false;
    t->gpu.stream = op->stream;
    t->gpu.started = call->started || call->done ? op->launch : t->gpu.started;
    t->gpu.ended = call->done ? op->launch : t->gpu.ended;
    if (call->started || call->done)
        rec_writer_gpu(t->writer, op->enter_ns, &t->gpu);
    op->state = call->open   ? REC_STATE_IN_CALL
                : op->result ? REC_STATE_FAILED
                : t->group   ? REC_STATE_IN_CALL
                             : REC_STATE_ENQUEUED;
    if (call->open) {
        assert_true(t->nopen < 8);
        t->open[t->nopen++] = *op;
    } else if (t->losing) {
        struct rec_loss loss = {
            .thread = op->thread, .first_ordinal = op->ordinal, .count = 1, .why = REC_LOSS_RING_FULL};
        rec_writer_loss(t->writer, op->enter_ns, &loss);
        if (op->comm != REC_ID_NONE)
            t->lost[op->comm]++;
    } else {
        rec_writer_ops(t->writer, op, 1);
    }
}
