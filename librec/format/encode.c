#include "format/encode.h"

#include <string.h>

#include "format/wire.h"

/* A record is opened, filled and closed: its length is known only at the end. */
static uint8_t *begin(uint8_t *p, enum rec_wire_type type)
{
    p[0] = (uint8_t)type;
    return p + REC_WIRE_RECORD_BYTES;
}

static uint8_t *finish(uint8_t *record, uint8_t *p)
{
    rec_put24(record + 1, (uint32_t)(p - record) - REC_WIRE_RECORD_BYTES);
    return p;
}

static uint8_t *put_time(uint8_t *p, struct rec_time *time, uint64_t time_ns)
{
    uint64_t ticks = rec_to_ticks(time_ns, time->tick_ns);
    p = rec_put_signed(p, ticks - time->clock);
    time->clock = ticks;
    return p;
}

/* A number of which one value stands for "none": that one becomes 0, others move up. */
static uint8_t *put_id(uint8_t *p, uint32_t id)
{
    return rec_put_varint(p, (uint32_t)(id + 1));
}

static uint8_t *put_int(uint8_t *p, int32_t v)
{
    return rec_put_signed(p, (uint64_t)(int64_t)v);
}

static uint8_t *put_word(uint8_t *p, uint64_t v)
{
    rec_put64(p, v);
    return p + 8;
}

/* max: bytes of the array that holds it, or the longest length taken. */
static uint8_t *put_string(uint8_t *p, const char *s, size_t max)
{
    size_t n = strnlen(s, max);
    p = rec_put_varint(p, n);
    memcpy(p, s, n);
    return p + n;
}

uint8_t *rec_encode_meta(uint8_t *p, const char *meta, size_t bytes)
{
    uint8_t *record = p;
    p = begin(p, REC_WIRE_META);
    memcpy(p, meta, bytes);
    return finish(record, p + bytes);
}

uint8_t *rec_encode_comm(uint8_t *p, struct rec_time *time, const struct rec_comm_def *def)
{
    uint8_t *record = p;
    p = begin(p, REC_WIRE_COMM);
    p = rec_put_varint(p, def->id);
    p = rec_put_varint(p, def->state);
    p = rec_put_varint(p, def->nranks);
    p = put_id(p, def->rank);
    p = put_word(p, def->uid);
    p = put_word(p, def->parent_uid);
    p = rec_put_varint(p, def->parent_seq);
    p = put_word(p, def->comm_hash);
    p = rec_put_varint(p, def->handle);
    p = rec_put_varint(p, rec_to_ticks(def->created_ns, time->tick_ns));
    p = put_int(p, def->device);
    p = put_int(p, def->color);
    p = rec_put_varint(p, def->made_by);
    p = rec_put_varint(p, def->async_error);
    p = put_string(p, def->name, sizeof(def->name) - 1);
    return finish(record, p);
}

uint8_t *rec_encode_thread(uint8_t *p, const struct rec_thread_def *def)
{
    uint8_t *record = p;
    p = begin(p, REC_WIRE_THREAD);
    p = rec_put_varint(p, def->id);
    p = put_int(p, def->tid);
    p = put_string(p, def->name, sizeof(def->name) - 1);
    return finish(record, p);
}

uint8_t *rec_encode_redop(uint8_t *p, const struct rec_redop_def *def)
{
    uint8_t *record = p;
    p = begin(p, REC_WIRE_REDOP);
    p = rec_put_varint(p, def->redop);
    p = rec_put_varint(p, def->dtype);
    p = rec_put_varint(p, def->residence);
    p = put_id(p, def->comm);
    p = put_word(p, def->scalar);
    p = put_word(p, def->hash);
    return finish(record, p);
}

uint8_t *rec_encode_stream(uint8_t *p, const struct rec_stream_def *def)
{
    uint8_t *record = p;
    p = begin(p, REC_WIRE_STREAM);
    p = rec_put_varint(p, def->id);
    p = put_int(p, def->device);
    p = rec_put_varint(p, def->handle);
    return finish(record, p);
}

uint8_t *rec_encode_frontier(uint8_t *p, struct rec_time *time, uint64_t time_ns,
                             const struct rec_frontier *frontier)
{
    uint8_t *record = p;
    p = begin(p, REC_WIRE_FRONTIER);
    p = put_time(p, time, time_ns);
    p = rec_put_varint(p, frontier->comm);
    p = rec_put_varint(p, frontier->next_seq);
    p = rec_put_varint(p, frontier->p2p_entered);
    p = rec_put_varint(p, frontier->lost);
    return finish(record, p);
}

uint8_t *rec_encode_gpu(uint8_t *p, struct rec_time *time, uint64_t time_ns, const struct rec_gpu *gpu)
{
    uint8_t *record = p;
    p = begin(p, REC_WIRE_GPU);
    p = put_time(p, time, time_ns);
    p = rec_put_varint(p, gpu->stream);
    p = rec_put_varint(p, gpu->ended);
    p = rec_put_varint(p, gpu->started - gpu->ended);
    p = rec_put_varint(p, gpu->dropped);
    p = rec_put_varint(p, gpu->error);
    return finish(record, p);
}

uint8_t *rec_encode_checkpoint(uint8_t *p, struct rec_time *time, uint64_t time_ns,
                               const struct rec_checkpoint *checkpoint)
{
    uint8_t *record = p;
    p = begin(p, REC_WIRE_CHECKPOINT);
    p = put_time(p, time, time_ns);
    p = rec_put_varint(p, checkpoint->comm);
    p = put_int(p, checkpoint->peer);
    *p++ = (uint8_t)((checkpoint->send ? 1 : 0) | (checkpoint->prefix_ok ? 2 : 0));
    p = rec_put_varint(p, checkpoint->window);
    p = put_word(p, checkpoint->hash);
    p = put_word(p, checkpoint->prefix);
    return finish(record, p);
}

uint8_t *rec_encode_heartbeat(uint8_t *p, struct rec_time *time, uint64_t time_ns)
{
    uint8_t *record = p;
    p = put_time(begin(p, REC_WIRE_HEARTBEAT), time, time_ns);
    return finish(record, p);
}

uint8_t *rec_encode_loss(uint8_t *p, struct rec_time *time, uint64_t time_ns, const struct rec_loss *loss)
{
    uint8_t *record = p;
    p = begin(p, REC_WIRE_LOSS);
    p = put_time(p, time, time_ns);
    p = put_id(p, loss->thread);
    p = rec_put_varint(p, loss->first_ordinal);
    p = rec_put_varint(p, loss->count);
    p = rec_put_varint(p, loss->why);
    return finish(record, p);
}

/*
 * Lists are cut to what fits: the number of elements is written first as a fixed two-byte
 * varint, so that it can be filled in when the list ends.
 */
#define LIST_COUNT_BYTES 2
_Static_assert(REC_WIRE_LIST_MAX <= 1 << 14, "two bytes of varint");

static uint8_t *list_begin(uint8_t *p)
{
    return p + LIST_COUNT_BYTES;
}

static void list_end(uint8_t *list, uint32_t count)
{
    list[0] = (uint8_t)(count | 0x80);
    list[1] = (uint8_t)((count >> 7) & 0x7f);
}

#define OP_ROOM (20 * REC_VARINT_MAX)

static uint8_t *put_op(uint8_t *p, struct rec_time *time, const struct rec_op *op)
{
    p = rec_put_varint(p, op->thread);
    p = rec_put_varint(p, op->ordinal);
    uint64_t enter = rec_to_ticks(op->enter_ns, time->tick_ns);
    uint64_t exit = rec_to_ticks(op->exit_ns, time->tick_ns);
    uint64_t gpu_start = rec_to_ticks(op->gpu_start_ns, time->tick_ns);
    uint64_t gpu_end = rec_to_ticks(op->gpu_end_ns, time->tick_ns);
    p = rec_put_signed(p, enter - time->clock);
    p = rec_put_signed(p, exit - enter);
    p = rec_put_signed(p, gpu_start - enter);
    p = rec_put_signed(p, gpu_end - gpu_start);
    p = rec_put_varint(p, op->count);
    p = rec_put_varint(p, op->seq);
    p = put_id(p, op->comm);
    p = put_id(p, op->stream);
    p = rec_put_varint(p, op->callsite);
    p = rec_put_varint(p, op->group);
    p = put_int(p, op->peer);
    *p++ = op->kind;
    *p++ = op->dtype;
    *p++ = op->redop;
    *p++ = op->result;
    *p++ = op->state;
    return rec_put_varint(p, op->flags);
}

uint8_t *rec_encode_open(uint8_t *p, size_t limit, struct rec_time *time, uint64_t time_ns,
                         const struct rec_op *ops, size_t count)
{
    uint8_t *record = p, *stop = p + limit - OP_ROOM;
    p = put_time(begin(p, REC_WIRE_OPEN), time, time_ns);
    uint8_t *list = p;
    uint32_t n = 0;
    bool onesided = false;
    p = list_begin(p);
    for (; n < count && n < REC_WIRE_LIST_MAX - 1 && p + (size_t)n * REC_VARINT_MAX < stop; n++) {
        p = put_op(p, time, &ops[n]);
        onesided = onesided || (rec_kind_flags(ops[n].kind) & REC_KF_RMA);
    }
    list_end(list, n);
    if (!onesided)
        return finish(record, p);
    list = p;
    p = list_begin(p);
    for (uint32_t i = 0; i < n; i++)
        p = rec_put_varint(p, ops[i].signal + REC_WIRE_SIGNAL);
    list_end(list, n);
    return finish(record, p);
}

static uint8_t *put_modules(uint8_t *p, const uint8_t *stop, const char *const *modules, uint32_t count)
{
    uint8_t *list = p;
    uint32_t n = 0;
    p = list_begin(p);
    for (; n < count && n < REC_WIRE_LIST_MAX - 1 && p + REC_WIRE_STRING_MAX + REC_VARINT_MAX < stop; n++)
        p = put_string(p, modules[n], REC_WIRE_STRING_MAX);
    list_end(list, n);
    return p;
}

static uint8_t *put_frames(uint8_t *p, const uint8_t *stop, const struct rec_frame *frames, uint32_t count)
{
    uint8_t *list = p;
    uint32_t n = 0;
    p = list_begin(p);
    for (; n < count && n < REC_WIRE_LIST_MAX - 1 && p + 2 * REC_VARINT_MAX < stop; n++) {
        p = put_id(p, frames[n].module);
        p = rec_put_varint(p, frames[n].offset);
    }
    list_end(list, n);
    return p;
}

#define THREAD_ROOM 256

uint8_t *rec_encode_stall(uint8_t *p, size_t limit, struct rec_time *time, uint64_t time_ns,
                          const struct rec_stall *stall)
{
    uint8_t *record = p, *stop = p + limit - THREAD_ROOM;
    p = put_time(begin(p, REC_WIRE_STALL), time, time_ns);
    p = rec_put_varint(p, stall->why);
    p = put_id(p, stall->thread);
    p = rec_put_varint(p, rec_to_ticks(stall->since_ns, time->tick_ns));
    p = put_modules(p, record + limit / 2, stall->modules, stall->nmodules);
    uint8_t *list = p;
    uint32_t n = 0;
    p = list_begin(p);
    for (; n < stall->nthreads && n < REC_WIRE_LIST_MAX - 1 && p < stop; n++) {
        const struct rec_stall_thread *thread = &stall->threads[n];
        p = put_int(p, thread->tid);
        *p++ = (uint8_t)thread->state;
        p = put_string(p, thread->name, sizeof(thread->name) - 1);
        p = put_string(p, thread->where, sizeof(thread->where) - 1);
        p = put_frames(p, stop, thread->frames, thread->nframes);
    }
    list_end(list, n);
    list = p;
    p = list_begin(p);
    uint32_t sites = 0;
    for (; sites < n && p + REC_VARINT_MAX < record + limit; sites++)
        p = rec_put_varint(p, stall->threads[sites].callsite);
    list_end(list, sites);
    return finish(record, p);
}

uint8_t *rec_encode_end(uint8_t *p, size_t limit, struct rec_time *time, uint64_t time_ns,
                        const struct rec_end *end)
{
    uint8_t *record = p, *stop = p + limit;
    p = put_time(begin(p, REC_WIRE_END), time, time_ns);
    p = rec_put_varint(p, end->reason);
    p = put_int(p, end->status);
    p = put_int(p, end->signal);
    p = put_int(p, end->tid);
    p = rec_put_varint(p, end->fault);
    p = put_modules(p, record + limit / 2, end->modules, end->nmodules);
    p = put_frames(p, stop, end->frames, end->nframes);
    return finish(record, p);
}

uint8_t *rec_encode_text(uint8_t *p, const char *text, size_t length)
{
    uint8_t *record = p;
    p = begin(p, REC_WIRE_TEXT);
    memcpy(p, text, length);
    return finish(record, p + length);
}

uint8_t *rec_encode_callsite(uint8_t *p, const struct rec_callsite_def *def,
                             const struct rec_callsite_text *texts, uint32_t count)
{
    _Static_assert(REC_CALLSITE_FRAMES * 2 * REC_VARINT_MAX + 64 < REC_CALLSITE_ROOM, "a site fits");
    uint8_t *record = p;
    p = begin(p, REC_WIRE_CALLSITE);
    p = rec_put_varint(p, def->id);
    p = rec_put_varint(p, def->kind == REC_CALLSITE_NATIVE ? REC_WIRE_CALLSITE_BUILDS : def->kind);
    p = rec_put_varint(p, count);
    for (uint32_t i = 0; i < count; i++) {
        p = put_id(p, texts[i].file);
        p = put_id(p, texts[i].second);
        p = rec_put_varint(p, def->kind == REC_CALLSITE_NATIVE ? def->frames[i].offset : def->frames[i].line);
    }
    return finish(record, p);
}
