#include "format/ops.h"

#include <string.h>

#include "rec/model.h"

/* A signature with more different counts than this gets one template whose count is a column. */
#define COUNTS_PER_TEMPLATE 8

#define NO_TEMPLATE UINT32_MAX

void rec_ops_reset(struct rec_ops *ops)
{
    ops->entries = 0;
    ops->written = 0;
    ops->sequences = 0;
    ops->last = NO_TEMPLATE;
    memset(ops->slots, 0, sizeof(ops->slots));
    memset(ops->sequence_slots, 0, sizeof(ops->sequence_slots));
    memset(ops->launches, 0, sizeof(ops->launches));
}

bool rec_ops_fits(const struct rec_ops *ops)
{
    /* A new op makes at most two entries (with and without its count) and one sequence. */
    return ops->entries + 2 * REC_BATCH_OPS <= REC_WIRE_TEMPLATES_MAX &&
           ops->sequences + REC_BATCH_OPS <= REC_WIRE_SEQUENCES_MAX;
}

static void make_key(uint64_t key[REC_OPS_KEY], const struct rec_op *op)
{
    key[0] = op->count;
    key[1] = (uint64_t)op->comm | (uint64_t)op->stream << 32;
    key[2] = (uint64_t)op->callsite | (uint64_t)(uint32_t)op->peer << 32;
    key[3] = (uint64_t)op->kind | (uint64_t)op->dtype << 8 | (uint64_t)op->redop << 16 |
             (uint64_t)op->state << 24 | (uint64_t)op->flags << 32;
    key[4] = op->signal;
}

static bool same_key(const uint64_t a[REC_OPS_KEY], const uint64_t b[REC_OPS_KEY])
{
    return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4])) == 0;
}

static uint64_t hash_key(const uint64_t key[REC_OPS_KEY], bool varies)
{
    uint64_t h = key[0] * UINT64_C(0x9e3779b97f4a7c15) + varies;
    h = (h ^ (h >> 29) ^ key[1]) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ (h >> 32) ^ key[2]) * UINT64_C(0x94d049bb133111eb);
    h = (h ^ (h >> 29) ^ key[3] ^ (key[4] << 48 | key[4] >> 16)) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 32);
}

/* The next seq of what the op belongs to; ops outside any sequence share one that stands still. */
static uint16_t sequence_of(struct rec_ops *ops, const struct rec_op *op, uint8_t *step)
{
    unsigned kind = rec_kind_flags(op->kind);
    uint64_t key = UINT64_MAX;
    *step = 0;
    if (op->kind == REC_GRAPH_LAUNCH) {
        key = UINT64_C(1) << 63 | (uint32_t)op->peer;
        *step = 1;
    } else if (!(op->flags & REC_OF_NO_SEQ) && op->comm != REC_ID_NONE) {
        if (kind & REC_KF_P2P) {
            /* Should two pairs ever share a key, their ops only become exceptions. */
            key =
                (uint64_t)op->comm << 34 ^ (uint64_t)(uint32_t)op->peer << 2 ^ (op->kind == REC_SEND ? 1 : 2);
            *step = 1;
        } else if (kind & (REC_KF_SEQ | REC_KF_TEARDOWN)) {
            key = (uint64_t)op->comm << 34;
            *step = (kind & REC_KF_SEQ) != 0;
        }
    }
    uint32_t i = (uint32_t)rec_mix64(key) & (REC_OPS_HASH_SLOTS - 1);
    for (; ops->sequence_slots[i]; i = (i + 1) & (REC_OPS_HASH_SLOTS - 1))
        if (ops->sequence[ops->sequence_slots[i] - 1].key == key)
            return (uint16_t)(ops->sequence_slots[i] - 1);
    uint16_t index = (uint16_t)ops->sequences++;
    ops->sequence[index] = (struct rec_sequence){.key = key};
    ops->sequence_slots[i] = (uint16_t)(index + 1);
    return index;
}

static uint32_t find_entry(struct rec_ops *ops, const uint64_t key[REC_OPS_KEY], bool varies, uint32_t *slot)
{
    uint32_t i = (uint32_t)hash_key(key, varies) & (REC_OPS_HASH_SLOTS - 1);
    for (; ops->slots[i]; i = (i + 1) & (REC_OPS_HASH_SLOTS - 1)) {
        struct rec_template *entry = &ops->templates[ops->slots[i] - 1];
        if (entry->varies == varies && same_key(entry->key, key))
            return (uint32_t)ops->slots[i] - 1;
    }
    *slot = i;
    return NO_TEMPLATE;
}

static uint32_t add_entry(struct rec_ops *ops, const uint64_t key[REC_OPS_KEY], bool varies, uint32_t slot)
{
    uint32_t index = ops->entries++;
    struct rec_template *entry = &ops->templates[index];
    *entry = (struct rec_template){.id = REC_ID_NONE, .next = NO_TEMPLATE, .varies = varies};
    memcpy(entry->key, key, sizeof(entry->key));
    ops->slots[slot] = (uint16_t)(index + 1);
    return index;
}

static uint8_t *put_template(struct rec_ops *ops, uint8_t *p, struct rec_template *entry,
                             const struct rec_op *op)
{
    entry->id = ops->written++;
    entry->sequence = sequence_of(ops, op, &entry->step);
    uint8_t *record = p;
    p[0] = REC_WIRE_TEMPLATE;
    p += REC_WIRE_RECORD_BYTES;
    *p++ = (uint8_t)((entry->step ? REC_WIRE_T_STEP : 0) | (entry->varies ? REC_WIRE_T_COUNT : 0));
    p = rec_put_varint(p, entry->sequence);
    *p++ = op->kind;
    *p++ = op->dtype;
    *p++ = op->redop;
    *p++ = op->state;
    p = rec_put_varint(p, op->flags);
    p = rec_put_varint(p, (uint32_t)(op->comm + 1));
    p = rec_put_varint(p, (uint32_t)(op->stream + 1));
    p = rec_put_varint(p, op->callsite);
    p = rec_put_signed(p, (uint64_t)(int64_t)op->peer);
    p = rec_put_varint(p, entry->varies ? 0 : op->count);
    if (rec_kind_flags(op->kind) & REC_KF_RMA)
        p = rec_put_varint(p, op->signal + REC_WIRE_SIGNAL);
    rec_put24(record + 1, (uint32_t)(p - record) - REC_WIRE_RECORD_BYTES);
    return p;
}

/* The template of an op; appends its definition when it is new. */
static uint32_t template_of(struct rec_ops *ops, uint8_t **p, const struct rec_op *op)
{
    uint64_t key[REC_OPS_KEY];
    make_key(key, op);
    /* Programs repeat themselves: what came after the last template before, mostly comes again. */
    if (ops->last != NO_TEMPLATE) {
        uint32_t guess = ops->templates[ops->last].next;
        if (guess != NO_TEMPLATE && !ops->templates[guess].varies && same_key(ops->templates[guess].key, key))
            return guess;
    }
    uint32_t slot;
    uint32_t index = find_entry(ops, key, false, &slot);
    if (index == NO_TEMPLATE) {
        uint64_t base_key[REC_OPS_KEY] = {0, key[1], key[2], key[3], key[4]};
        uint32_t base_slot;
        uint32_t base = find_entry(ops, base_key, true, &base_slot);
        if (base == NO_TEMPLATE) {
            base = add_entry(ops, base_key, true, base_slot);
            find_entry(ops, key, false, &slot); /* the new entry may lie on its way */
        }
        if (ops->templates[base].counts < COUNTS_PER_TEMPLATE) {
            ops->templates[base].counts++;
            index = add_entry(ops, key, false, slot);
        } else {
            index = base;
        }
    }
    struct rec_template *entry = &ops->templates[index];
    if (entry->id == REC_ID_NONE)
        *p = put_template(ops, *p, entry, op);
    return index;
}

/* Write positions in the columns of a batch. */
struct columns {
    uint8_t *ids, *gaps, *durations, *groups, *seqs, *results, *counts, *gpu, *numbers;
    uint32_t nseqs, nresults, nnumbers;
    size_t last_seq, last_result, last_number; /* index after the last exception */
    uint32_t group;
    bool grouped, has_gpu, has_launches;
};

static void put_group(struct columns *c, uint32_t group)
{
    if (group == 0) {
        *c->groups++ = REC_WIRE_GROUP_NONE;
        return;
    }
    c->grouped = true;
    if (group == c->group) {
        *c->groups++ = REC_WIRE_GROUP_SAME;
    } else if (group == c->group + 1) {
        *c->groups++ = REC_WIRE_GROUP_NEXT;
    } else {
        *c->groups++ = REC_WIRE_GROUP_OTHER;
        c->groups = rec_put_varint(c->groups, group);
    }
    c->group = group;
}

static void put_exceptions(struct rec_ops *ops, struct columns *c, const struct rec_template *entry,
                           const struct rec_op *op, size_t i)
{
    struct rec_sequence *sequence = &ops->sequence[entry->sequence];
    if (op->seq != sequence->next) {
        c->seqs = rec_put_varint(c->seqs, i - c->last_seq);
        c->seqs = rec_put_signed(c->seqs, op->seq - sequence->next);
        c->last_seq = i + 1;
        c->nseqs++;
    }
    sequence->next = op->seq + entry->step;
    if (op->result != REC_RESULT_SUCCESS) {
        c->results = rec_put_varint(c->results, i - c->last_result);
        *c->results++ = op->result;
        c->last_result = i + 1;
        c->nresults++;
    }
    if (entry->varies)
        c->counts = rec_put_varint(c->counts, op->count);
}

static void put_launch(struct rec_ops *ops, struct columns *c, const struct rec_op *op, size_t i)
{
    struct rec_wire_launch *launch = &ops->launches[op->stream % REC_WIRE_LAUNCHES];
    uint64_t guess = rec_launch_guess(launch, op->group);
    if (op->launch != guess) {
        c->numbers = rec_put_varint(c->numbers, i - c->last_number);
        c->numbers = rec_put_signed(c->numbers, op->launch - guess);
        c->last_number = i + 1;
        c->nnumbers++;
    }
    rec_launch_take(launch, op->group, op->launch);
}

static uint8_t *append(uint8_t *p, const uint8_t *column, const uint8_t *end)
{
    size_t bytes = (size_t)(end - column);
    memcpy(p, column, bytes);
    return p + bytes;
}

static uint8_t *put_batch(const struct rec_ops *ops, uint8_t *p, const struct columns *c,
                          const struct rec_op *op, size_t count, uint64_t first_delta)
{
    uint8_t *record = p;
    unsigned present = (c->grouped ? REC_WIRE_COL_GROUP : 0) | (c->nseqs ? REC_WIRE_COL_SEQ : 0) |
                       (c->nresults ? REC_WIRE_COL_RESULT : 0) |
                       (c->counts != ops->counts ? REC_WIRE_COL_COUNT : 0) |
                       (c->has_gpu ? REC_WIRE_COL_GPU : 0) | (c->has_launches ? REC_WIRE_COL_LAUNCH : 0);
    p[0] = REC_WIRE_OPS;
    p += REC_WIRE_RECORD_BYTES;
    p = rec_put_varint(p, op->thread);
    p = rec_put_varint(p, op->ordinal);
    p = rec_put_varint(p, count);
    p = rec_put_varint(p, present);
    p = rec_put_signed(p, first_delta);
    p = append(p, ops->ids, c->ids);
    p = append(p, ops->gaps, c->gaps);
    p = append(p, ops->durations, c->durations);
    if (c->grouped)
        p = append(p, ops->groups, c->groups);
    if (c->nseqs)
        p = append(rec_put_varint(p, c->nseqs), ops->seqs, c->seqs);
    if (c->nresults)
        p = append(rec_put_varint(p, c->nresults), ops->results, c->results);
    p = append(p, ops->counts, c->counts);
    if (c->has_gpu)
        p = append(p, ops->gpu, c->gpu);
    if (c->has_launches)
        p = append(rec_put_varint(p, c->nnumbers), ops->numbers, c->numbers);
    rec_put24(record + 1, (uint32_t)(p - record) - REC_WIRE_RECORD_BYTES);
    return p;
}

static bool any_gpu(const struct rec_op *op, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (op[i].gpu_start_ns | op[i].gpu_end_ns)
            return true;
    return false;
}

static bool any_launch(const struct rec_op *op, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (op[i].launch)
            return true;
    return false;
}

uint8_t *rec_ops_encode(struct rec_ops *ops, uint8_t *p, struct rec_time *time, const struct rec_op *op,
                        size_t count)
{
    struct columns c = {.ids = ops->ids,
                        .gaps = ops->gaps,
                        .durations = ops->durations,
                        .groups = ops->groups,
                        .seqs = ops->seqs,
                        .results = ops->results,
                        .counts = ops->counts,
                        .gpu = ops->gpu,
                        .numbers = ops->numbers,
                        .has_gpu = any_gpu(op, count),
                        .has_launches = any_launch(op, count)};
    uint64_t first_delta = 0;
    for (size_t i = 0; i < count; i++, op++) {
        uint32_t index = template_of(ops, &p, op);
        if (ops->last != NO_TEMPLATE)
            ops->templates[ops->last].next = index;
        ops->last = index;
        struct rec_template *entry = &ops->templates[index];
        c.ids = rec_put_varint(c.ids, entry->id);

        uint64_t enter = rec_to_ticks(op->enter_ns, time->tick_ns);
        uint64_t exit = rec_to_ticks(op->exit_ns, time->tick_ns);
        uint64_t gap = enter - time->clock, duration = exit - enter;
        if (i == 0) {
            first_delta = gap;
        } else {
            uint64_t residual = gap - entry->gap;
            c.gaps = rec_put_signed(c.gaps, residual);
            entry->gap = rec_predict(entry->gap, residual);
        }
        uint64_t residual = duration - entry->duration;
        c.durations = rec_put_signed(c.durations, residual);
        entry->duration = rec_predict(entry->duration, residual);
        if (exit)
            time->clock = exit;
        else if (enter)
            time->clock = enter;

        put_group(&c, op->group);
        put_exceptions(ops, &c, entry, op, i);
        if (c.has_gpu) {
            uint64_t start = rec_to_ticks(op->gpu_start_ns, time->tick_ns);
            c.gpu = rec_put_signed(c.gpu, start - enter);
            c.gpu = rec_put_signed(c.gpu, rec_to_ticks(op->gpu_end_ns, time->tick_ns) - start);
        }
        if (c.has_launches && op->stream != REC_ID_NONE)
            put_launch(ops, &c, op, i);
    }
    return put_batch(ops, p, &c, op - count, count, first_delta);
}
