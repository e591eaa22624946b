#include <string.h>

#include "dump.h"
#include "out.h"
#include "rec/symbolize.h"
#include "row.h"

static void put_key(const char *key, bool *first)
{
    out_text(*first ? "{\"" : ",\"");
    out_text(key);
    out_text("\":");
    *first = false;
}

static void put_number(const char *key, uint64_t number, bool *first)
{
    put_key(key, first);
    out_u64(number);
}

static void put_signed(const char *key, int64_t number, bool *first)
{
    put_key(key, first);
    out_i64(number);
}

static void put_text(const char *key, const char *text, bool *first)
{
    if (!text || !*text)
        return;
    put_key(key, first);
    out_json(text);
}

static void put_uid(const char *key, uint64_t uid, bool *first)
{
    if (!uid)
        return;
    put_key(key, first);
    out_char('"');
    out_hex(uid, 16);
    out_char('"');
}

static void put_handle(const char *key, uint64_t handle, bool *first)
{
    put_key(key, first);
    out_text("\"0x");
    out_hex(handle, 1);
    out_char('"');
}

/* Names where the modules are those that were recorded, on this machine. */
static void put_function(const struct rec_source_frame *frame, bool *first)
{
    char name[256];
    struct rec_symbolizer *symbolizer = row_symbolizer();
    enum rec_symbol symbol =
        symbolizer ? rec_symbolize_frame(symbolizer, frame, name, sizeof(name)) : REC_SYMBOL_NONE;
    if (symbol == REC_SYMBOL_FOUND)
        put_text("function", name, first);
    else if (symbol == REC_SYMBOL_OTHER_BUILD)
        put_text("module_is", "another build", first);
}

static void put_stack(const struct rec_callsite_def *site, bool *first)
{
    put_key("stack", first);
    out_char('[');
    for (uint32_t i = 0; i < site->nframes; i++) {
        const struct rec_source_frame *frame = &site->frames[i];
        bool inner = true;
        if (i)
            out_char(',');
        if (site->kind == REC_CALLSITE_PYTHON) {
            put_text("file", frame->file, &inner);
            put_number("line", frame->line, &inner);
            put_text("function", frame->function, &inner);
        } else {
            put_text("module", frame->file, &inner);
            put_function(frame, &inner);
            put_handle("offset", frame->offset, &inner);
            if (frame->build_id && frame->build_id[0])
                put_text("build_id", frame->build_id, &inner);
        }
        out_char('}');
    }
    out_char(']');
}

void dump_json_stack(const struct rec_callsite_def *site)
{
    bool first = false;
    put_stack(site, &first);
}

void dump_put_row(const struct row *row)
{
    bool first = true;
    for (int i = 0; i < ROW_NFIELDS; i++) {
        const struct row_value *value = &row->values[i];
        switch (value->type) {
        case ROW_ABSENT:
            break;
        case ROW_NUMBER:
            put_number(row_names[i], value->u.number, &first);
            break;
        case ROW_SIGNED:
            put_signed(row_names[i], value->u.signed_number, &first);
            break;
        case ROW_TEXT:
            put_text(row_names[i], value->u.text, &first);
            break;
        case ROW_UID:
            put_uid(row_names[i], value->u.number, &first);
            break;
        case ROW_HANDLE:
            put_handle(row_names[i], value->u.number, &first);
            break;
        case ROW_TRUE:
            put_key(row_names[i], &first);
            out_text("true");
            break;
        }
    }
    if (dump_stacks && row->callsite)
        put_stack(row->callsite, &first);
    out_char('}');
}

static void json_op(const struct rec_process *process, const struct rec_op *op)
{
    struct row row;
    row_fill(&row, process, op);
    dump_put_row(&row);
    out_char('\n');
}

/* ---- records that are no calls (--all): an object with "type" ---- */

static const char *record_name(enum rec_event_type type)
{
    static const char *const names[] = {
        [REC_EV_COMM] = "comm",
        [REC_EV_THREAD] = "thread",
        [REC_EV_REDOP] = "redop",
        [REC_EV_STREAM] = "stream",
        [REC_EV_OP] = "op",
        [REC_EV_OPEN] = "open",
        [REC_EV_FRONTIER] = "frontier",
        [REC_EV_CHECKPOINT] = "checkpoint",
        [REC_EV_HEARTBEAT] = "heartbeat",
        [REC_EV_LOSS] = "loss",
        [REC_EV_STALL] = "stall",
        [REC_EV_END] = "end",
        [REC_EV_CALLSITE] = "callsite",
        [REC_EV_GPU] = "gpu",
    };
    return (size_t)type < sizeof(names) / sizeof(names[0]) && names[type] ? names[type] : "unknown";
}

static void put_comm(const struct rec_process *process, uint32_t id, bool *first)
{
    const struct rec_member *member = rec_process_member(process, id);
    if (member)
        put_uid("comm", member->def.uid, first);
    put_number("comm_id", id, first);
}

static void put_comm_def(const struct rec_comm_def *def, bool *first)
{
    put_uid("comm", def->uid, first);
    put_number("comm_id", def->id, first);
    put_text("comm_name", def->name, first);
    if (def->rank != REC_ID_NONE)
        put_number("comm_rank", def->rank, first);
    if (def->nranks)
        put_number("nranks", def->nranks, first);
    put_text("made_by", rec_kind_name(def->made_by), first);
    put_uid("parent", def->parent_uid, first);
    if (def->parent_uid)
        put_number("parent_seq", def->parent_seq, first);
    put_uid("comm_hash", def->comm_hash, first);
    if (def->device >= 0)
        put_signed("device", def->device, first);
}

static void put_checkpoint(const struct rec_process *process, const struct rec_checkpoint *checkpoint,
                           bool *first)
{
    put_comm(process, checkpoint->comm, first);
    if (checkpoint->peer >= 0) {
        put_signed("peer", checkpoint->peer, first);
        put_text("direction", checkpoint->send ? "send" : "recv", first);
    }
    put_number("window", checkpoint->window, first);
    put_uid("hash", checkpoint->hash, first);
}

static void put_frames(const struct rec_frame *frames, uint32_t count, const char *const *modules,
                       uint32_t nmodules, bool *first)
{
    put_key("frames", first);
    out_char('[');
    for (uint32_t i = 0; i < count; i++) {
        bool inner = true;
        if (i)
            out_char(',');
        if (frames[i].module < nmodules) {
            put_text("module", modules[frames[i].module], &inner);
            put_function(
                &(struct rec_source_frame){.file = modules[frames[i].module], .offset = frames[i].offset},
                &inner);
        }
        put_handle("offset", frames[i].offset, &inner);
        out_char('}');
    }
    out_char(']');
}

static void put_stall(const struct rec_process *process, const struct rec_stall *stall, bool *first)
{
    put_text("why", stall->why == REC_STALL_OPEN_OP ? "open_op" : "idle", first);
    put_number("since_ns", stall->since_ns, first);
    put_key("threads", first);
    out_char('[');
    for (uint32_t i = 0; i < stall->nthreads; i++) {
        const struct rec_stall_thread *thread = &stall->threads[i];
        char state[2] = {thread->state, '\0'};
        bool inner = true;
        if (i)
            out_char(',');
        put_signed("tid", thread->tid, &inner);
        put_text("name", thread->name, &inner);
        put_text("state", state, &inner);
        put_text("where", thread->where, &inner);
        put_frames(thread->frames, thread->nframes, stall->modules, stall->nmodules, &inner);
        const struct rec_callsite_def *python =
            thread->callsite ? rec_process_callsite(process, thread->callsite) : NULL;
        if (python)
            put_stack(python, &inner);
        out_char('}');
    }
    out_char(']');
}

static void put_end(const struct rec_end *end, bool *first)
{
    static const char *const reasons[] = {"none", "exit", "quick_exit", "signal", "exec"};
    put_text("reason", end->reason < sizeof(reasons) / sizeof(reasons[0]) ? reasons[end->reason] : "unknown",
             first);
    put_signed("status", end->status, first);
    if (end->signal)
        put_signed("signal", end->signal, first);
    if (end->nframes)
        put_frames(end->frames, end->nframes, end->modules, end->nmodules, first);
}

static void put_loss(const struct rec_loss *loss, bool *first)
{
    put_text("why", rec_loss_why_name(loss->why), first);
    put_number("count", loss->count, first);
    if (loss->thread != REC_ID_NONE) {
        put_number("thread_id", loss->thread, first);
        put_number("first_ordinal", loss->first_ordinal, first);
    }
}

static void put_frontier(const struct rec_process *process, const struct rec_frontier *frontier, bool *first)
{
    put_comm(process, frontier->comm, first);
    put_number("next_seq", frontier->next_seq, first);
    put_number("p2p_entered", frontier->p2p_entered, first);
    if (frontier->lost)
        put_number("lost", frontier->lost, first);
}

static void put_gpu(const struct rec_process *process, const struct rec_gpu *gpu, bool *first)
{
    const struct rec_stream_def *stream = rec_process_stream(process, gpu->stream);
    if (stream)
        put_handle("stream", stream->handle, first);
    put_number("started", gpu->started, first);
    put_number("ended", gpu->ended, first);
    if (gpu->dropped)
        put_number("dropped", gpu->dropped, first);
    if (gpu->error)
        put_number("error", gpu->error, first);
}

static void json_record(const struct rec_process *process, const struct rec_event *event)
{
    bool first = true;
    put_text("type", record_name(event->type), &first);
    if (process->rank >= 0)
        put_signed("rank", process->rank, &first);
    put_signed("pid", process->pid, &first);
    if (event->time_ns)
        put_number("time_ns", event->time_ns, &first);
    switch (event->type) {
    case REC_EV_COMM:
        put_comm_def(&event->u.comm, &first);
        break;
    case REC_EV_THREAD:
        put_number("thread_id", event->u.thread.id, &first);
        put_signed("thread", event->u.thread.tid, &first);
        put_text("name", event->u.thread.name, &first);
        break;
    case REC_EV_REDOP:
        put_number("redop_id", event->u.redop.redop, &first);
        put_text("datatype", rec_dtype_name(event->u.redop.dtype), &first);
        break;
    case REC_EV_STREAM:
        put_handle("stream", event->u.stream.handle, &first);
        put_signed("device", event->u.stream.device, &first);
        break;
    case REC_EV_OPEN:
        put_number("count", event->u.open.count, &first);
        break;
    case REC_EV_FRONTIER:
        put_frontier(process, &event->u.frontier, &first);
        break;
    case REC_EV_CHECKPOINT:
        put_checkpoint(process, &event->u.checkpoint, &first);
        break;
    case REC_EV_LOSS:
        put_loss(&event->u.loss, &first);
        break;
    case REC_EV_STALL:
        put_stall(process, &event->u.stall, &first);
        break;
    case REC_EV_END:
        put_end(&event->u.end, &first);
        break;
    case REC_EV_CALLSITE:
        put_number("callsite_id", event->u.callsite.id, &first);
        put_stack(&event->u.callsite, &first);
        break;
    case REC_EV_GPU:
        put_gpu(process, &event->u.gpu, &first);
        break;
    case REC_EV_OP:
    case REC_EV_HEARTBEAT:
        break;
    }
    out_text("}\n");
}

const struct dump_printer dump_json = {.op = json_op, .record = json_record};
