#include <string.h>

#include "format/decode.h"

bool rec_decode_template(struct rec_decoder *d, struct rec_in *in)
{
    if (d->ntemplates == REC_WIRE_TEMPLATES_MAX)
        return false;
    struct rec_in_template *t = &d->templates[d->ntemplates];
    memset(t, 0, sizeof(*t));
    t->flags = rec_in_byte(in);
    t->sequence = rec_in_u32(in);
    t->op.kind = rec_in_byte(in);
    t->op.dtype = rec_in_byte(in);
    t->op.redop = rec_in_byte(in);
    t->op.state = rec_in_byte(in);
    uint32_t flags = rec_in_u32(in);
    t->op.flags = (uint16_t)flags;
    t->op.comm = rec_in_id(in);
    t->op.stream = rec_in_id(in);
    t->op.callsite = rec_in_u32(in);
    t->op.peer = rec_in_i32(in);
    t->op.count = rec_in_varint(in);
    if (rec_kind_flags(t->op.kind) & REC_KF_RMA)
        t->op.signal = in->p == in->end ? REC_SIGNAL_UNKNOWN : rec_in_signal(in); /* 1.3 ends before it */
    if (in->bad || t->sequence >= REC_WIRE_SEQUENCES_MAX || flags > UINT16_MAX)
        return false;
    d->ntemplates++;
    return true;
}

static bool read_ids(struct rec_decoder *d, struct rec_in *in, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t id = rec_in_varint(in);
        if (id >= d->ntemplates)
            return false;
        d->ids[i] = (uint16_t)id;
        d->ops[i] = d->templates[id].op;
    }
    return !in->bad;
}

/*
 * Gaps and durations are two columns, but an op's enter time needs both: the gaps are kept
 * in enter_ns until the durations are known.
 */
static void read_times(struct rec_decoder *d, struct rec_in *in, uint32_t n, uint64_t first_delta)
{
    d->ops[0].enter_ns = first_delta;
    for (uint32_t i = 1; i < n; i++) {
        struct rec_in_template *t = &d->templates[d->ids[i]];
        uint64_t residual = rec_in_signed(in);
        d->ops[i].enter_ns = t->gap + residual;
        t->gap = rec_predict(t->gap, residual);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct rec_in_template *t = &d->templates[d->ids[i]];
        uint64_t residual = rec_in_signed(in);
        uint64_t enter = d->clock + d->ops[i].enter_ns;
        uint64_t exit = enter + t->duration + residual;
        t->duration = rec_predict(t->duration, residual);
        if (exit)
            d->clock = exit;
        else if (enter)
            d->clock = enter;
        d->ops[i].enter_ns = enter;
        d->ops[i].exit_ns = exit;
    }
}

static bool read_groups(struct rec_decoder *d, struct rec_in *in, uint32_t n)
{
    uint32_t group = 0;
    for (uint32_t i = 0; i < n; i++) {
        switch (rec_in_byte(in)) {
        case REC_WIRE_GROUP_NONE:
            continue;
        case REC_WIRE_GROUP_SAME:
            break;
        case REC_WIRE_GROUP_NEXT:
            group++;
            break;
        case REC_WIRE_GROUP_OTHER:
            group = rec_in_u32(in);
            break;
        default:
            return false;
        }
        d->ops[i].group = group;
    }
    return !in->bad;
}

/* The next place of a sparse list; n = there is none, the list is wrong. */
static uint64_t next_place(struct rec_in *in, uint64_t from, uint32_t n)
{
    uint64_t skip = rec_in_varint(in);
    return skip < n - from ? from + skip : n;
}

/* Exceptions are laid down as differences first, then all sequences run through the batch. */
static bool read_seqs(struct rec_decoder *d, struct rec_in *in, uint32_t n, bool present)
{
    uint64_t left = present ? rec_in_varint(in) : 0;
    for (uint64_t i = 0; left > 0; left--, i++) {
        if ((i = next_place(in, i, n)) == n)
            return false;
        d->ops[i].seq = rec_in_signed(in);
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct rec_in_template *t = &d->templates[d->ids[i]];
        d->ops[i].seq += d->sequences[t->sequence];
        d->sequences[t->sequence] = d->ops[i].seq + ((t->flags & REC_WIRE_T_STEP) ? 1 : 0);
    }
    return !in->bad;
}

static bool read_results(struct rec_decoder *d, struct rec_in *in, uint32_t n)
{
    uint64_t left = rec_in_varint(in);
    for (uint64_t i = 0; left > 0; left--, i++) {
        if ((i = next_place(in, i, n)) == n)
            return false;
        d->ops[i].result = rec_in_byte(in);
    }
    return !in->bad;
}

static void read_gpu(struct rec_decoder *d, struct rec_in *in, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t start = d->ops[i].enter_ns + rec_in_signed(in);
        d->ops[i].gpu_start_ns = start;
        d->ops[i].gpu_end_ns = start + rec_in_signed(in);
    }
}

/* As with sequences: differences first, then all streams run through the batch. */
static bool read_launches(struct rec_decoder *d, struct rec_in *in, uint32_t n)
{
    uint64_t left = rec_in_varint(in);
    for (uint64_t i = 0; left > 0; left--, i++) {
        if ((i = next_place(in, i, n)) == n)
            return false;
        d->ops[i].launch = rec_in_signed(in);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct rec_op *op = &d->ops[i];
        struct rec_wire_launch *launch = &d->launches[op->stream % REC_WIRE_LAUNCHES];
        if (op->stream == REC_ID_NONE) {
            op->launch = 0;
            continue;
        }
        op->launch += rec_launch_guess(launch, op->group);
        rec_launch_take(launch, op->group, op->launch);
    }
    return !in->bad;
}

bool rec_decode_batch(struct rec_decoder *d, struct rec_in *in)
{
    uint32_t thread = rec_in_u32(in);
    uint64_t ordinal = rec_in_varint(in);
    uint64_t count = rec_in_varint(in);
    uint64_t present = rec_in_varint(in);
    uint64_t first_delta = rec_in_signed(in);
    if (in->bad || count == 0 || count > REC_WIRE_BATCH_OPS_MAX)
        return false;
    uint32_t n = (uint32_t)count;
    if (!read_ids(d, in, n))
        return false;
    read_times(d, in, n, first_delta);
    if ((present & REC_WIRE_COL_GROUP) && !read_groups(d, in, n))
        return false;
    if (!read_seqs(d, in, n, present & REC_WIRE_COL_SEQ))
        return false;
    if ((present & REC_WIRE_COL_RESULT) && !read_results(d, in, n))
        return false;
    if (present & REC_WIRE_COL_COUNT)
        for (uint32_t i = 0; i < n; i++)
            if (d->templates[d->ids[i]].flags & REC_WIRE_T_COUNT)
                d->ops[i].count = rec_in_varint(in);
    if (present & REC_WIRE_COL_GPU)
        read_gpu(d, in, n);
    if ((present & REC_WIRE_COL_LAUNCH) && !read_launches(d, in, n))
        return false;
    if (in->bad)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct rec_op *op = &d->ops[i];
        op->thread = thread;
        op->ordinal = ordinal + i;
        op->enter_ns = rec_from_ticks(d, op->enter_ns);
        op->exit_ns = rec_from_ticks(d, op->exit_ns);
        op->gpu_start_ns = rec_from_ticks(d, op->gpu_start_ns);
        op->gpu_end_ns = rec_from_ticks(d, op->gpu_end_ns);
    }
    d->batch = n;
    d->batch_next = 0;
    return true;
}
