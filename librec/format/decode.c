#include "format/decode.h"

#include <stdlib.h>
#include <string.h>

/*
 * Decoded lists are larger than their bytes; the worst is a thread of a stall (5 bytes at
 * least, sizeof(struct rec_stall_thread) decoded).
 */
#define ARENA_PER_BYTE 24
_Static_assert(sizeof(struct rec_stall_thread) <= 5 * ARENA_PER_BYTE, "arena large enough for threads");
_Static_assert(sizeof(struct rec_op) <= 19 * ARENA_PER_BYTE, "and for open ops");

void rec_decoder_init(struct rec_decoder *d)
{
    memset(d, 0, offsetof(struct rec_decoder, templates));
    d->piece = (struct rec_in){0};
    d->meta = NULL;
    d->batch = d->batch_next = 0;
    d->arena = NULL;
    d->arena_size = d->arena_used = 0;
    d->ntexts = 0;
    d->text = NULL;
    d->text_size = d->text_used = 0;
}

void rec_decoder_fini(struct rec_decoder *d)
{
    free(d->arena);
    d->arena = NULL;
    free(d->text);
    d->text = NULL;
}

void rec_decoder_segment(struct rec_decoder *d, uint32_t tick_ns)
{
    d->tick_ns = tick_ns;
    d->clock = 0;
    d->ntemplates = 0;
    d->ntexts = 0;
    d->text_used = 0;
    memset(d->sequences, 0, sizeof(d->sequences));
    memset(d->launches, 0, sizeof(d->launches));
}

void rec_decoder_piece(struct rec_decoder *d, const uint8_t *raw, size_t bytes)
{
    d->piece = (struct rec_in){.p = raw, .end = raw + bytes};
    d->batch = d->batch_next = 0;
    d->meta = NULL;
}

/* ---- lists ---- */

static bool arena_reset(struct rec_decoder *d, size_t body_bytes)
{
    size_t want = (body_bytes + 64) * ARENA_PER_BYTE;
    d->arena_used = 0;
    if (want <= d->arena_size)
        return true;
    char *arena = realloc(d->arena, want);
    if (!arena)
        return false;
    d->arena = arena;
    d->arena_size = want;
    return true;
}

/* NULL with in->bad when the record claims more than its bytes can hold. */
static void *arena_take(struct rec_decoder *d, struct rec_in *in, size_t count, size_t size)
{
    size_t start = (d->arena_used + 7) & ~(size_t)7;
    if (in->bad || start > d->arena_size || count > (d->arena_size - start) / size) {
        in->bad = true;
        return NULL;
    }
    d->arena_used = start + count * size;
    return d->arena + start;
}

static void get_string(struct rec_in *in, char *to, size_t size)
{
    uint64_t n = rec_in_varint(in);
    if (in->bad || n > (size_t)(in->end - in->p)) {
        in->bad = true;
        return;
    }
    size_t take = n < size ? (size_t)n : size - 1;
    memcpy(to, in->p, take);
    to[take] = '\0';
    in->p += n;
}

/* The number of elements of a list, each of min_bytes at least. */
static uint32_t get_count(struct rec_in *in, size_t min_bytes)
{
    uint64_t n = rec_in_varint(in);
    if (in->bad || n > REC_WIRE_LIST_MAX || n > (size_t)(in->end - in->p) / min_bytes) {
        in->bad = true;
        return 0;
    }
    return (uint32_t)n;
}

static const char *const *get_modules(struct rec_decoder *d, struct rec_in *in, uint32_t *count)
{
    *count = 0;
    uint32_t n = get_count(in, 1);
    const char **modules = arena_take(d, in, n, sizeof(*modules));
    for (uint32_t i = 0; i < n && !in->bad; i++) {
        struct rec_in peek = *in;
        uint64_t length = rec_in_varint(&peek);
        if (peek.bad || length > REC_WIRE_STRING_MAX) {
            in->bad = true;
            break;
        }
        char *text = arena_take(d, in, (size_t)length + 1, 1);
        if (!text)
            break;
        get_string(in, text, (size_t)length + 1);
        modules[i] = text;
    }
    if (in->bad)
        return NULL;
    *count = n;
    return modules;
}

static const struct rec_frame *get_frames(struct rec_decoder *d, struct rec_in *in, uint32_t modules,
                                          uint32_t *count)
{
    *count = 0;
    uint32_t n = get_count(in, 2);
    struct rec_frame *frames = arena_take(d, in, n, sizeof(*frames));
    for (uint32_t i = 0; i < n && !in->bad; i++) {
        frames[i].module = rec_in_id(in);
        frames[i].offset = rec_in_varint(in);
        if (frames[i].module >= modules) /* its module was cut off */
            frames[i].module = REC_ID_NONE;
    }
    if (in->bad)
        return NULL;
    *count = n;
    return frames;
}

/* ---- records ---- */

static uint64_t get_word(struct rec_in *in)
{
    if (in->end - in->p < 8) {
        in->bad = true;
        return 0;
    }
    in->p += 8;
    return rec_get64(in->p - 8);
}

static uint64_t get_time(struct rec_decoder *d, struct rec_in *in)
{
    d->clock += rec_in_signed(in);
    return rec_from_ticks(d, d->clock);
}

static void get_comm(struct rec_decoder *d, struct rec_in *in, struct rec_comm_def *def)
{
    def->id = rec_in_u32(in);
    def->state = rec_in_u32(in);
    def->nranks = rec_in_u32(in);
    def->rank = rec_in_id(in);
    def->uid = get_word(in);
    def->parent_uid = get_word(in);
    def->parent_seq = rec_in_varint(in);
    def->comm_hash = get_word(in);
    def->handle = rec_in_varint(in);
    def->created_ns = rec_from_ticks(d, rec_in_varint(in));
    def->device = rec_in_i32(in);
    def->color = rec_in_i32(in);
    def->made_by = rec_in_u32(in);
    def->async_error = rec_in_u32(in);
    get_string(in, def->name, sizeof(def->name));
}

static void get_redop(struct rec_in *in, struct rec_redop_def *def)
{
    def->redop = rec_in_u32(in);
    def->dtype = rec_in_u32(in);
    def->residence = rec_in_u32(in);
    def->comm = rec_in_id(in);
    def->scalar = get_word(in);
    def->hash = get_word(in);
}

static void get_checkpoint(struct rec_in *in, struct rec_checkpoint *checkpoint)
{
    checkpoint->comm = rec_in_u32(in);
    checkpoint->peer = rec_in_i32(in);
    uint8_t flags = rec_in_byte(in);
    checkpoint->send = flags & 1;
    checkpoint->prefix_ok = flags & 2;
    checkpoint->window = rec_in_varint(in);
    checkpoint->hash = get_word(in);
    checkpoint->prefix = get_word(in);
}

static void get_op(struct rec_decoder *d, struct rec_in *in, struct rec_op *op)
{
    memset(op, 0, sizeof(*op));
    op->thread = rec_in_u32(in);
    op->ordinal = rec_in_varint(in);
    uint64_t enter = d->clock + rec_in_signed(in);
    uint64_t exit = enter + rec_in_signed(in);
    uint64_t gpu_start = enter + rec_in_signed(in);
    uint64_t gpu_end = gpu_start + rec_in_signed(in);
    op->enter_ns = rec_from_ticks(d, enter);
    op->exit_ns = rec_from_ticks(d, exit);
    op->gpu_start_ns = rec_from_ticks(d, gpu_start);
    op->gpu_end_ns = rec_from_ticks(d, gpu_end);
    op->count = rec_in_varint(in);
    op->seq = rec_in_varint(in);
    op->comm = rec_in_id(in);
    op->stream = rec_in_id(in);
    op->callsite = rec_in_u32(in);
    op->group = rec_in_u32(in);
    op->peer = rec_in_i32(in);
    op->kind = rec_in_byte(in);
    op->dtype = rec_in_byte(in);
    op->redop = rec_in_byte(in);
    op->result = rec_in_byte(in);
    op->state = rec_in_byte(in);
    op->flags = (uint16_t)rec_in_u32(in);
    if (rec_kind_flags(op->kind) & REC_KF_RMA)
        op->signal = REC_SIGNAL_UNKNOWN;
}

static void get_open(struct rec_decoder *d, struct rec_in *in, struct rec_event *event)
{
    uint32_t n = get_count(in, 19);
    struct rec_op *ops = arena_take(d, in, n, sizeof(*ops));
    for (uint32_t i = 0; i < n && !in->bad; i++)
        get_op(d, in, &ops[i]);
    event->u.open.ops = ops;
    event->u.open.count = n;
    if (in->bad || in->p == in->end) /* 1.3 ends here, and where no call is one-sided */
        return;
    uint32_t signals = get_count(in, 1);
    for (uint32_t i = 0; i < signals && !in->bad; i++) {
        uint64_t signal = rec_in_signal(in);
        if (i < n && (rec_kind_flags(ops[i].kind) & REC_KF_RMA))
            ops[i].signal = signal;
    }
}

static void get_stall(struct rec_decoder *d, struct rec_in *in, struct rec_stall *stall)
{
    stall->why = rec_in_u32(in);
    stall->thread = rec_in_id(in);
    stall->since_ns = rec_from_ticks(d, rec_in_varint(in));
    stall->modules = get_modules(d, in, &stall->nmodules);
    uint32_t n = get_count(in, 5);
    struct rec_stall_thread *threads = arena_take(d, in, n, sizeof(*threads));
    for (uint32_t i = 0; i < n && !in->bad; i++) {
        struct rec_stall_thread *thread = &threads[i];
        memset(thread, 0, sizeof(*thread));
        thread->tid = rec_in_i32(in);
        thread->state = (char)rec_in_byte(in);
        get_string(in, thread->name, sizeof(thread->name));
        get_string(in, thread->where, sizeof(thread->where));
        thread->frames = get_frames(d, in, stall->nmodules, &thread->nframes);
    }
    stall->threads = threads;
    stall->nthreads = n;
    if (in->bad || in->p == in->end) /* 1.0 ends here */
        return;
    uint32_t sites = get_count(in, 1);
    for (uint32_t i = 0; i < sites && !in->bad; i++) {
        uint32_t callsite = rec_in_u32(in);
        if (i < n)
            threads[i].callsite = callsite;
    }
}

static void get_end(struct rec_decoder *d, struct rec_in *in, struct rec_end *end)
{
    end->reason = rec_in_u32(in);
    end->status = rec_in_i32(in);
    end->signal = rec_in_i32(in);
    end->tid = rec_in_i32(in);
    end->fault = rec_in_varint(in);
    end->modules = get_modules(d, in, &end->nmodules);
    end->frames = get_frames(d, in, end->nmodules, &end->nframes);
}

/* A text of the segment; REC_ERR_CORRUPT beyond the limits. */
static enum rec_code get_text(struct rec_decoder *d, const char *text, size_t bytes)
{
    if (d->ntexts == REC_WIRE_TEXTS_MAX || bytes > REC_WIRE_STRING_MAX ||
        d->text_used + bytes - d->ntexts > REC_WIRE_TEXT_BYTES_MAX)
        return REC_ERR_CORRUPT;
    if (d->text_used + bytes + 1 > d->text_size) {
        size_t size = 2 * (d->text_used + bytes) + 4096;
        char *grown = realloc(d->text, size);
        if (!grown)
            return REC_ERR_NOMEM;
        d->text = grown;
        d->text_size = size;
    }
    memcpy(d->text + d->text_used, text, bytes);
    d->text[d->text_used + bytes] = '\0';
    d->texts[d->ntexts++] = (uint32_t)d->text_used;
    d->text_used += bytes + 1;
    return REC_OK;
}

static const char *text_of(const struct rec_decoder *d, struct rec_in *in)
{
    uint32_t number = rec_in_id(in);
    if (number == REC_ID_NONE)
        return "";
    if (number >= d->ntexts) {
        in->bad = true;
        return "";
    }
    return d->text + d->texts[number];
}

static void get_callsite(struct rec_decoder *d, struct rec_in *in, struct rec_callsite_def *def)
{
    def->id = rec_in_u32(in);
    def->kind = rec_in_u32(in);
    bool builds = def->kind == REC_WIRE_CALLSITE_BUILDS;
    if (builds)
        def->kind = REC_CALLSITE_NATIVE;
    if (def->kind != REC_CALLSITE_PYTHON && def->kind != REC_CALLSITE_NATIVE)
        return; /* of a newer version */
    uint32_t n = get_count(in, 2);
    if (n > REC_CALLSITE_FRAMES) {
        in->bad = true;
        return;
    }
    for (uint32_t i = 0; i < n && !in->bad; i++) {
        struct rec_source_frame *frame = &d->frames[i];
        *frame = (struct rec_source_frame){.file = text_of(d, in), .function = "", .build_id = ""};
        if (def->kind == REC_CALLSITE_NATIVE) {
            if (builds)
                frame->build_id = text_of(d, in);
            frame->offset = rec_in_varint(in);
        } else {
            frame->function = text_of(d, in);
            frame->line = rec_in_u32(in);
        }
    }
    def->nframes = n;
    def->frames = n ? d->frames : NULL;
}

/* Fills event; false: the record gives none (a template, metadata, an unknown type). */
static bool get_record(struct rec_decoder *d, unsigned type, struct rec_in *in, struct rec_event *event)
{
    static const uint8_t events[] = {
        [REC_WIRE_COMM] = REC_EV_COMM,
        [REC_WIRE_THREAD] = REC_EV_THREAD,
        [REC_WIRE_REDOP] = REC_EV_REDOP,
        [REC_WIRE_STREAM] = REC_EV_STREAM,
        [REC_WIRE_OPEN] = REC_EV_OPEN,
        [REC_WIRE_FRONTIER] = REC_EV_FRONTIER,
        [REC_WIRE_CHECKPOINT] = REC_EV_CHECKPOINT,
        [REC_WIRE_HEARTBEAT] = REC_EV_HEARTBEAT,
        [REC_WIRE_LOSS] = REC_EV_LOSS,
        [REC_WIRE_STALL] = REC_EV_STALL,
        [REC_WIRE_END] = REC_EV_END,
        [REC_WIRE_CALLSITE] = REC_EV_CALLSITE,
        [REC_WIRE_GPU] = REC_EV_GPU,
    };
    if (type >= sizeof(events) || !events[type])
        return false;
    memset(event, 0, sizeof(*event));
    event->type = events[type];
    if ((type >= REC_WIRE_OPEN && type <= REC_WIRE_END) ||
        type == REC_WIRE_GPU) /* the others have no time of their own */
        d->last_ns = get_time(d, in);
    event->time_ns = d->last_ns;
    switch (type) {
    case REC_WIRE_COMM:
        get_comm(d, in, &event->u.comm);
        break;
    case REC_WIRE_THREAD:
        event->u.thread.id = rec_in_u32(in);
        event->u.thread.tid = rec_in_i32(in);
        get_string(in, event->u.thread.name, sizeof(event->u.thread.name));
        break;
    case REC_WIRE_REDOP:
        get_redop(in, &event->u.redop);
        break;
    case REC_WIRE_STREAM:
        event->u.stream.id = rec_in_u32(in);
        event->u.stream.device = rec_in_i32(in);
        event->u.stream.handle = rec_in_varint(in);
        break;
    case REC_WIRE_OPEN:
        get_open(d, in, event);
        break;
    case REC_WIRE_FRONTIER:
        event->u.frontier.comm = rec_in_u32(in);
        event->u.frontier.next_seq = rec_in_varint(in);
        event->u.frontier.p2p_entered = rec_in_varint(in);
        event->u.frontier.lost = rec_in_varint(in);
        break;
    case REC_WIRE_CHECKPOINT:
        get_checkpoint(in, &event->u.checkpoint);
        break;
    case REC_WIRE_LOSS:
        event->u.loss.thread = rec_in_id(in);
        event->u.loss.first_ordinal = rec_in_varint(in);
        event->u.loss.count = rec_in_varint(in);
        event->u.loss.why = rec_in_u32(in);
        break;
    case REC_WIRE_STALL:
        get_stall(d, in, &event->u.stall);
        break;
    case REC_WIRE_END:
        get_end(d, in, &event->u.end);
        break;
    case REC_WIRE_CALLSITE:
        get_callsite(d, in, &event->u.callsite);
        break;
    case REC_WIRE_GPU:
        event->u.gpu.stream = rec_in_u32(in);
        event->u.gpu.ended = rec_in_varint(in);
        event->u.gpu.started = event->u.gpu.ended + rec_in_varint(in);
        event->u.gpu.dropped = rec_in_varint(in);
        if (in->p != in->end) /* 1.1 ends here */
            event->u.gpu.error = rec_in_u32(in);
        break;
    }
    return true;
}

static void give_op(struct rec_decoder *d, struct rec_event *event)
{
    event->type = REC_EV_OP;
    event->u.op = d->ops[d->batch_next++];
    event->time_ns = event->u.op.exit_ns;
    if (event->time_ns)
        d->last_ns = event->time_ns;
}

enum rec_code rec_decoder_next(struct rec_decoder *d, struct rec_event *event)
{
    for (;;) {
        if (d->batch_next < d->batch) {
            give_op(d, event);
            return REC_OK;
        }
        size_t left = (size_t)(d->piece.end - d->piece.p);
        if (left == 0)
            return REC_END;
        if (left < REC_WIRE_RECORD_BYTES)
            return REC_ERR_CORRUPT;
        unsigned type = d->piece.p[0];
        size_t bytes = rec_get24(d->piece.p + 1);
        d->piece.p += REC_WIRE_RECORD_BYTES;
        if (bytes > left - REC_WIRE_RECORD_BYTES)
            return REC_ERR_CORRUPT;
        struct rec_in in = {.p = d->piece.p, .end = d->piece.p + bytes};
        d->piece.p += bytes;
        if (type == REC_WIRE_META) {
            d->meta = (const char *)in.p;
            d->meta_bytes = bytes;
            continue;
        }
        if (type == REC_WIRE_TEXT) {
            enum rec_code code = get_text(d, (const char *)in.p, bytes);
            if (code != REC_OK)
                return code;
            continue;
        }
        if (type == REC_WIRE_TEMPLATE || type == REC_WIRE_OPS) {
            if (!(type == REC_WIRE_OPS ? rec_decode_batch(d, &in) : rec_decode_template(d, &in)))
                return REC_ERR_CORRUPT;
            continue;
        }
        bool lists = type == REC_WIRE_OPEN || type == REC_WIRE_STALL || type == REC_WIRE_END;
        if (lists && !arena_reset(d, bytes))
            return REC_ERR_NOMEM;
        bool given = get_record(d, type, &in, event);
        if (in.bad)
            return REC_ERR_CORRUPT;
        if (given)
            return REC_OK;
    }
}
