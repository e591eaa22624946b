#include "synth.h"

#include <stdio.h>

uint64_t synth_draw(uint64_t *random)
{
    *random += UINT64_C(0x9e3779b97f4a7c15);
    return rec_mix64(*random);
}

static uint64_t draw(struct synth *s, uint64_t below)
{
    return synth_draw(&s->random) % below;
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
    for (uint32_t i = 1; i < SYNTH_COMMS; i++)
        s->seq[i] = 1; /* children begin at 1 */
}

void synth_define(const struct synth *s, struct rec_writer *writer)
{
    static const char *const names[] = {"world", "dp", "tp", "pp"};
    for (uint32_t i = 0; i < SYNTH_COMMS; i++) {
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

bool synth_callsite(void *unused, uint32_t id, struct rec_callsite_def *def)
{
    static struct rec_source_frame frames[REC_CALLSITE_FRAMES];
    static char texts[REC_CALLSITE_FRAMES][2][96];
    (void)unused;
    if (id == 0 || id >= 60000)
        return false;
    *def = (struct rec_callsite_def){.id = id, .frames = frames};
    def->kind = id % 2 ? REC_CALLSITE_NATIVE : REC_CALLSITE_PYTHON;
    def->nframes = id % 2 ? 1 : 4 + id / 2 % 13;
    for (uint32_t i = 0; i < def->nframes; i++) {
        /* Depth is counted from the outermost frame: only the two innermost are a site's own. */
        uint32_t depth = def->nframes - i, own = i < 2 ? id % 100 : depth;
        snprintf(texts[i][0], sizeof(texts[i][0]),
                 "/opt/train/lib/python3.11/site-packages/model/layer_%u.py", own);
        snprintf(texts[i][1], sizeof(texts[i][1]), "forward_%u", own);
        frames[i] = (struct rec_source_frame){.file = texts[i][0], .function = "", .line = 0};
        if (id % 2) {
            frames[i].offset = (uint64_t)id << 20;
        } else {
            frames[i].function = texts[i][1];
            frames[i].line = i < 2 ? id : 100 + depth;
        }
    }
    return true;
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
    bool first = s->position % 14 == 0;
    struct step step = {.kind = s->position % 2 ? REC_RECV : REC_SEND,
                        .dtype = 9,
                        .redop = REC_REDOP_NONE,
                        .comm = 1,
                        .stream = 1,
                        .grouped = first ? 1 : 2,
                        .gap_ns = first ? 300 * US : 600,
                        .gap_spread = first ? 60 * US : 200,
                        .duration_ns = 900,
                        .duration_spread = 300};
    return step;
}

static struct step next_step(struct synth *s)
{
    if (s->pattern == SYNTH_TRAIN)
        return train[s->position % TRAIN_STEPS];
    return s->pattern == SYNTH_MOE ? moe_step(s) : plain;
}

/* Peer, seq and, where it varies, count: what one side sends, the other receives. */
static void pair_up(struct synth *s, struct rec_op *op)
{
    uint32_t distance = (1 + (s->pattern == SYNTH_MOE ? (s->position / 2) % 7 : 0)) % s->nranks;
    bool send = op->kind == REC_SEND;
    uint32_t peer = (s->rank + (send ? distance : s->nranks - distance)) % s->nranks;
    op->peer = (int32_t)peer;
    op->seq = send ? s->sent[distance]++ : s->received[distance]++;
    if (s->pattern == SYNTH_MOE) {
        uint64_t from = send ? s->rank : peer, to = send ? peer : s->rank;
        op->count = 1000 + rec_mix64(op->seq << 40 ^ from << 20 ^ to) % 100000;
    }
}

/* The world communicator, then three split from it. */
static void creation(struct synth *s, struct rec_op *op)
{
    op->comm = 0;
    op->stream = REC_ID_NONE;
    op->dtype = REC_DTYPE_NONE;
    op->redop = REC_REDOP_NONE;
    op->kind = s->ordinal == 0 ? REC_COMM_INIT_RANK : REC_COMM_SPLIT;
    op->peer = s->ordinal == 0 ? (int32_t)s->rank : 0;
    op->count = s->ordinal == 0 ? s->nranks : s->rank;
    op->seq = s->seq[0]++;
    op->enter_ns = s->now_ns + 10 * US;
    op->exit_ns = op->enter_ns + 20000 * US;
}

/* A launch of its own, or that of its group on this stream. */
static uint64_t launch_of(struct synth *s, uint32_t stream, uint32_t group)
{
    if (group == 0 || group != s->launch_group[stream])
        s->launched[stream]++;
    s->launch_group[stream] = group;
    return s->launched[stream];
}

void synth_op(struct synth *s, struct rec_op *op)
{
    *op = (struct rec_op){.ordinal = s->ordinal, .thread = 1, .peer = -1, .state = REC_STATE_ENQUEUED};
    if (s->ordinal < SYNTH_COMMS) {
        creation(s, op);
    } else {
        struct step step = next_step(s);
        op->count = step.count;
        op->comm = step.comm;
        op->stream = step.stream;
        if (s->sites)
            op->callsite = 2 + 2 * (uint32_t)(s->position % TRAIN_STEPS);
        op->kind = step.kind;
        op->dtype = step.dtype;
        op->redop = step.redop;
        if (step.grouped == 1)
            s->group++;
        op->group = step.grouped ? s->group : 0;
        op->launch = launch_of(s, step.stream, op->group);
        if (rec_kind_flags(step.kind) & REC_KF_P2P)
            pair_up(s, op);
        else
            op->seq = s->seq[step.comm]++;
        op->enter_ns = s->now_ns + around(s, step.gap_ns, step.gap_spread);
        op->exit_ns = op->enter_ns + around(s, step.duration_ns, step.duration_spread);
        s->position++;
    }
    s->ordinal++;
    s->now_ns = op->exit_ns;
}

void synth_frontiers(const struct synth *s, struct rec_writer *writer)
{
    for (uint32_t i = 0; i < SYNTH_COMMS; i++) {
        struct rec_frontier frontier = {.comm = i, .next_seq = s->seq[i]};
        for (uint32_t k = 0; k < 8; k++)
            if (i == (s->pattern == SYNTH_MOE ? 1 : 3))
                frontier.p2p_entered += s->sent[k] + s->received[k];
        rec_writer_frontier(writer, s->now_ns, &frontier);
    }
}

/* Of any size, small ones and the extremes often. */
static uint64_t anything(uint64_t *random)
{
    uint64_t r = synth_draw(random);
    switch (r >> 60 & 7) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return r % 4;
    case 3:
        return r % 1000;
    default:
        return synth_draw(random) >> (r % 64);
    }
}

void synth_any_op(uint64_t *random, struct rec_op *op)
{
    *op = (struct rec_op){0};
    op->enter_ns = anything(random);
    op->exit_ns = anything(random);
    if (synth_draw(random) % 8 == 0)
        op->gpu_start_ns = anything(random);
    if (synth_draw(random) % 8 == 0)
        op->gpu_end_ns = anything(random);
    op->count = anything(random);
    op->seq = anything(random);
    op->comm = (uint32_t)anything(random);
    op->stream = (uint32_t)anything(random);
    op->callsite = (uint32_t)anything(random);
    op->group = (uint32_t)anything(random);
    op->peer = (int32_t)anything(random);
    op->kind = (uint8_t)anything(random);
    op->dtype = (uint8_t)anything(random);
    op->redop = (uint8_t)anything(random);
    op->result = (uint8_t)anything(random);
    op->state = (uint8_t)anything(random);
    op->flags = (uint16_t)anything(random);
    if (op->stream != REC_ID_NONE && synth_draw(random) % 4)
        op->launch = anything(random);
    if (synth_draw(random) % 8 == 0)
        op->kind = (uint8_t)(REC_PUT_SIGNAL + synth_draw(random) % 3);
    if (rec_kind_flags(op->kind) & REC_KF_RMA)
        op->signal = anything(random) - 2; /* the special ones are the two below 0 */
}
