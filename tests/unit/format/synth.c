#include "synth.h"

#include <stdio.h>
#include <string.h>

static uint64_t draw(struct synth *s, uint64_t below)
{
    s->random += UINT64_C(0x9e3779b97f4a7c15);
    return rec_mix64(s->random) % below;
}

/* About Gaussian: mean ± spread, as the sum of four draws. */
static uint64_t around(struct synth *s, uint64_t mean, uint64_t spread)
{
    uint64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += draw(s, spread + 1);
    return mean + sum / 2 > spread ? mean + sum / 2 - spread : 1;
}

void synth_init(struct synth *s, enum synth_pattern pattern, uint32_t rank, uint32_t nranks)
{
    *s = (struct synth){
        .pattern = pattern, .rank = rank, .nranks = nranks, .random = rank + 1, .now_ns = SYNTH_START_NS};
}

void synth_define(const struct synth *s, struct rec_writer *writer)
{
    static const char *const names[] = {"world", "dp", "tp", "pp"};
    for (uint32_t i = 0; i < 4; i++) {
        struct rec_comm_def comm = {.id = i,
                                    .state = 2,
                                    .nranks = s->nranks,
                                    .rank = s->rank,
                                    .uid = rec_mix64(i + 1),
                                    .parent_uid = i ? rec_mix64(1) : 0,
                                    .parent_seq = i,
                                    .comm_hash = rec_mix64(i + 100),
                                    .handle = UINT64_C(0x7f0000001000) + i * 4096,
                                    .created_ns = SYNTH_START_NS,
                                    .device = 0,
                                    .color = i ? 0 : -1,
                                    .made_by = i ? REC_COMM_SPLIT : REC_COMM_INIT_RANK};
        snprintf(comm.name, sizeof(comm.name), "%s", names[i]);
        rec_writer_comm(writer, &comm);
    }
    struct rec_thread_def thread = {.id = 1, .tid = 4242, .name = "python3"};
    rec_writer_thread(writer, &thread);
    for (uint32_t i = 0; i < 3; i++) {
        struct rec_stream_def stream = {.id = i, .device = 0, .handle = UINT64_C(0x560000000000) + i * 64};
        rec_writer_stream(writer, &stream);
    }
}

struct step {
    uint8_t kind, dtype, redop;
    uint8_t comm, stream;
    uint8_t grouped; /* 1 = first of a group, 2 = further */
    uint64_t count;
    uint64_t gap_ns, gap_spread, duration_ns, duration_spread;
};

#define US 1000u
#define TP(n)                                                                                                \
    {                                                                                                        \
        REC_ALL_REDUCE, 9, 0, 2, 0, 0, n, 45 * US, 9 * US, 7 * US, 2 * US                                    \
    }
#define DP(n)                                                                                                \
    {                                                                                                        \
        REC_REDUCE_SCATTER, 9, 4, 1, 1, 0, n, 90 * US, 30 * US, 9 * US, 2 * US                               \
    }
#define AG(n)                                                                                                \
    {                                                                                                        \
        REC_ALL_GATHER, 9, REC_REDOP_NONE, 1, 1, 0, n, 60 * US, 20 * US, 8 * US, 2 * US                      \
    }

static const struct step train[] = {
    {REC_RECV, 9, REC_REDOP_NONE, 3, 2, 1, 8388608, 30 * US, 8 * US, 2 * US, 500},
    {REC_SEND, 9, REC_REDOP_NONE, 3, 2, 2, 8388608, 800, 200, 2 * US, 500},
    TP(4194304),
    TP(4194304),
    TP(4194304),
    TP(4194304),
    TP(4194304),
    TP(4194304),
    TP(4194304),
    TP(4194304),
    {REC_SEND, 9, REC_REDOP_NONE, 3, 2, 1, 8388608, 30 * US, 8 * US, 2 * US, 500},
    {REC_RECV, 9, REC_REDOP_NONE, 3, 2, 2, 8388608, 800, 200, 2 * US, 500},
    TP(4194304),
    TP(4194304),
    TP(4194304),
    TP(4194304),
    TP(4194304),
    TP(4194304),
    TP(4194304),
    TP(4194304),
    DP(12582912),
    DP(12582912),
    DP(12582912),
    DP(3145728),
    AG(12582912),
    AG(12582912),
    AG(12582912),
    AG(3145728),
    {REC_ALL_REDUCE, 7, 0, 0, 0, 0, 1, 200 * US, 50 * US, 9 * US, 3 * US},
    {REC_ALL_REDUCE, 7, 2, 0, 0, 0, 1, 15 * US, 4 * US, 8 * US, 2 * US},
};
#define TRAIN_STEPS (sizeof(train) / sizeof(train[0]))

static const struct step plain = {REC_ALL_REDUCE, 7, 0, 0, 0, 0, 1 << 20, 20 * US, 4 * US, 6 * US, 2 * US};

/* One rank's turn of an uneven all-to-all: to and from seven others. */
static struct step moe_step(struct synth *s)
{
    struct step step = {.kind = s->position % 2 ? REC_RECV : REC_SEND,
                        .dtype = 9,
                        .redop = REC_REDOP_NONE,
                        .comm = 1,
                        .stream = 1,
                        .grouped = s->position % 14 ? 2 : 1,
                        .count = 1000 + draw(s, 100000),
                        .gap_ns = s->position % 14 ? 600 : 300 * US,
                        .gap_spread = s->position % 14 ? 200 : 60 * US,
                        .duration_ns = 900,
                        .duration_spread = 300};
    return step;
}

void synth_op(struct synth *s, struct rec_op *op)
{
    struct step step = s->pattern == SYNTH_TRAIN ? train[s->position % TRAIN_STEPS]
                       : s->pattern == SYNTH_MOE ? moe_step(s)
                                                 : plain;
    *op = (struct rec_op){.ordinal = s->ordinal++,
                          .count = step.count,
                          .thread = 1,
                          .comm = step.comm,
                          .stream = step.stream,
                          .peer = -1,
                          .kind = step.kind,
                          .dtype = step.dtype,
                          .redop = step.redop,
                          .state = REC_STATE_ENQUEUED};
    if (step.grouped == 1)
        s->group++;
    op->group = step.grouped ? s->group : 0;
    if (rec_kind_flags(step.kind) & REC_KF_P2P) {
        uint32_t other = 1 + (s->pattern == SYNTH_MOE ? (s->position / 2) % 7 : 0);
        op->peer = (int32_t)((s->rank + other) % s->nranks);
        op->seq = step.kind == REC_SEND ? s->sent[other]++ : s->received[other]++;
    } else {
        op->seq = (step.comm ? 1 : 0) + s->seq[step.comm]++;
    }
    op->enter_ns = s->now_ns + around(s, step.gap_ns, step.gap_spread);
    op->exit_ns = op->enter_ns + around(s, step.duration_ns, step.duration_spread);
    s->now_ns = op->exit_ns;
    s->position++;
}
