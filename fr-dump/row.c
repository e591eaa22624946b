#include "row.h"

#include <stdio.h>

const char *const row_names[ROW_NFIELDS] = {
#define X(id, name) [ROW_##id] = (name),
    ROW_FIELDS(X)
#undef X
};

static void set_number(struct row *row, enum row_field field, uint64_t number)
{
    row->values[field] = (struct row_value){.type = ROW_NUMBER, .u.number = number};
}

static void set_signed(struct row *row, enum row_field field, int64_t number)
{
    row->values[field] = (struct row_value){.type = ROW_SIGNED, .u.signed_number = number};
}

static void set_text(struct row *row, enum row_field field, const char *text)
{
    if (text && *text)
        row->values[field] = (struct row_value){.type = ROW_TEXT, .u.text = text};
}

static void set_time(struct row *row, enum row_field field, uint64_t ns)
{
    if (ns)
        set_number(row, field, ns);
}

const char *row_op_name(unsigned kind, char *buffer, size_t size)
{
    const char *name = rec_kind_name(kind);
    if (name)
        return name;
    snprintf(buffer, size, "Op%u", kind);
    return buffer;
}

struct rec_symbolizer *row_symbolizer(void)
{
    static struct rec_symbolizer *symbolizer;
    if (!symbolizer)
        symbolizer = rec_symbolizer_new();
    return symbolizer;
}

const char *row_site(const struct rec_callsite_def *site)
{
    /* Looking symbols up takes time, and a program has few sites. */
    static struct {
        const struct rec_callsite_def *site;
        char text[256];
    } known[256];
    if (!site)
        return "";
    size_t i = ((uintptr_t)site >> 4) % (sizeof(known) / sizeof(known[0]));
    if (known[i].site != site) {
        rec_callsite_text(site, site->kind == REC_CALLSITE_NATIVE ? row_symbolizer() : NULL, known[i].text,
                          sizeof(known[i].text));
        known[i].site = site;
    }
    return known[i].text;
}

static void fill_place(struct row *row, const struct rec_process *process, const struct rec_op *op)
{
    if (process->rank >= 0)
        set_signed(row, ROW_RANK, process->rank);
    if (process->pid >= 0)
        set_signed(row, ROW_PID, process->pid);
    set_text(row, ROW_HOST, process->host);
    const struct rec_member *member = rec_process_member(process, op->comm);
    if (!member)
        return;
    if (member->def.uid)
        row->values[ROW_COMM] = (struct row_value){.type = ROW_UID, .u.number = member->def.uid};
    set_text(row, ROW_COMM_NAME, member->comm ? member->comm->name : member->def.name);
    if (member->comm_rank != REC_ID_NONE)
        set_number(row, ROW_COMM_RANK, member->comm_rank);
    if (member->def.nranks)
        set_number(row, ROW_NRANKS, member->def.nranks);
}

bool row_op_bytes(const struct rec_op *op, uint64_t *bytes)
{
    return (rec_kind_flags(op->kind) & REC_KF_DATA) && rec_dtype_size(op->dtype) &&
           !__builtin_mul_overflow(op->count, rec_dtype_size(op->dtype), bytes);
}

/* The generic fields mean different things for calls that move no data (model.h). */
static void fill_arguments(struct row *row, const struct rec_op *op, unsigned flags)
{
    if ((flags & (REC_KF_SEQ | REC_KF_P2P | REC_KF_TEARDOWN)) && !(op->flags & REC_OF_NO_SEQ))
        set_number(row, ROW_SEQ, op->seq);
    if (flags & REC_KF_DATA) {
        uint64_t bytes;
        set_number(row, ROW_COUNT, op->count);
        if (row_op_bytes(op, &bytes))
            set_number(row, ROW_BYTES, bytes);
        set_text(row, ROW_DATATYPE, rec_dtype_name(op->dtype));
    }
    if (flags & REC_KF_REDOP)
        set_text(row, ROW_REDOP, rec_redop_name(op->redop));
    if (flags & REC_KF_ROOT)
        set_signed(row, ROW_ROOT, op->peer);
    if ((flags & (REC_KF_P2P | REC_KF_RMA)) && op->peer >= 0)
        set_signed(row, ROW_PEER, op->peer);
    if ((flags & REC_KF_RMA) && rec_signal_known(op->signal)) {
        set_number(row, ROW_SIGNAL, rec_signal_index(op->signal));
        set_number(row, ROW_CONTEXT, rec_signal_context(op->signal));
    }
    switch (op->kind) {
    case REC_COMM_SPLIT:
        set_signed(row, ROW_COLOR, op->peer);
        set_signed(row, ROW_KEY, (int32_t)(uint32_t)op->count);
        break;
    case REC_GROUP_END:
    case REC_COMM_SHRINK:
    case REC_WAIT_SIGNAL:
        set_number(row, ROW_COUNT, op->count);
        break;
    case REC_COMM_GET_ASYNC_ERROR:
        set_text(row, ROW_ASYNC_ERROR, rec_result_name((unsigned)op->count));
        break;
    case REC_MEM_ALLOC:
    case REC_COMM_REGISTER:
    case REC_COMM_WINDOW_REGISTER:
        set_number(row, ROW_BYTES, op->count);
        break;
    case REC_GRAPH_LAUNCH:
        set_number(row, ROW_COUNT, op->count);
        set_signed(row, ROW_GRAPH, op->peer);
        set_number(row, ROW_REPLAY, op->seq);
        break;
    default:
        break;
    }
}

static void fill_result(struct row *row, const struct rec_op *op)
{
    if (op->result != REC_RESULT_NONE) {
        const char *name = rec_result_name(op->result);
        snprintf(row->result_name, sizeof(row->result_name), "%u", op->result);
        set_text(row, ROW_RESULT, name ? name : row->result_name);
    }
    if (op->state > REC_STATE_UNKNOWN && op->state <= REC_STATE_ABORTED)
        set_text(row, ROW_STATE, rec_state_name((enum rec_state)op->state));
    if (op->flags & REC_OF_PART)
        row->values[ROW_PART].type = ROW_TRUE;
    if (!(op->flags & REC_OF_CAPTURED))
        return;
    row->values[ROW_CAPTURED].type = ROW_TRUE;
    if (op->launch)
        set_number(row, ROW_GRAPH, op->launch);
}

void row_fill(struct row *row, const struct rec_process *process, const struct rec_op *op)
{
    for (int i = 0; i < ROW_NFIELDS; i++)
        row->values[i].type = ROW_ABSENT;
    set_text(row, ROW_OP, row_op_name(op->kind, row->op_name, sizeof(row->op_name)));
    fill_place(row, process, op);
    fill_arguments(row, op, rec_kind_flags(op->kind));
    if (op->group)
        set_number(row, ROW_GROUP, op->group);
    const struct rec_stream_def *stream = rec_process_stream(process, op->stream);
    if (stream && op->stream != REC_ID_NONE)
        row->values[ROW_STREAM] = (struct row_value){.type = ROW_HANDLE, .u.number = stream->handle};
    const struct rec_thread_def *thread = rec_process_thread(process, op->thread);
    if (thread && thread->tid > 0)
        set_signed(row, ROW_THREAD, thread->tid);
    set_time(row, ROW_ENTER_NS, op->enter_ns);
    set_time(row, ROW_EXIT_NS, op->exit_ns);
    set_time(row, ROW_GPU_START_NS, op->gpu_start_ns);
    set_time(row, ROW_GPU_END_NS, op->gpu_end_ns);
    fill_result(row, op);
    row->callsite = op->callsite ? rec_process_callsite(process, op->callsite) : NULL;
    set_text(row, ROW_SITE, row_site(row->callsite));
}
