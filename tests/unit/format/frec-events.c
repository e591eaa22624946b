/*
 * Prints every event that the reader gives, one JSON object a line, with the fields as they
 * are in librec (ids of the process, numbers of kinds). For comparing readers: users want
 * fr-dump. Last line: what the reader says of the file.
 *
 * usage: frec-events FILE
 */
#include <inttypes.h>
#include <stdio.h>

#include "rec/reader.h"

#define U64(name, value) printf(", \"" name "\": %" PRIu64, (uint64_t)(value))
#define I64(name, value) printf(", \"" name "\": %" PRId64, (int64_t)(value))

/* Names here hold no control characters, quotes or backslashes. */
static void text(const char *name, const char *value)
{
    printf(", \"%s\": \"%s\"", name, value);
}

static void op_fields(const struct rec_op *op)
{
    U64("ordinal", op->ordinal);
    U64("enter_ns", op->enter_ns);
    U64("exit_ns", op->exit_ns);
    U64("gpu_start_ns", op->gpu_start_ns);
    U64("gpu_end_ns", op->gpu_end_ns);
    U64("count", op->count);
    U64("seq", op->seq);
    U64("comm", op->comm);
    U64("stream", op->stream);
    U64("callsite", op->callsite);
    U64("group", op->group);
    I64("peer", op->peer);
    U64("kind", op->kind);
    U64("dtype", op->dtype);
    U64("redop", op->redop);
    U64("result", op->result);
    U64("state", op->state);
    U64("flags", op->flags);
    U64("launch", op->launch);
    U64("signal", op->signal);
}

static void comm_fields(const struct rec_comm_def *def)
{
    U64("id", def->id);
    U64("state", def->state);
    U64("nranks", def->nranks);
    U64("rank", def->rank);
    U64("uid", def->uid);
    U64("parent_uid", def->parent_uid);
    U64("parent_seq", def->parent_seq);
    U64("comm_hash", def->comm_hash);
    U64("handle", def->handle);
    U64("created_ns", def->created_ns);
    I64("device", def->device);
    I64("color", def->color);
    U64("made_by", def->made_by);
    U64("async_error", def->async_error);
    text("name", def->name);
}

static void modules(const char *const *names, uint32_t count)
{
    printf(", \"modules\": [");
    for (uint32_t i = 0; i < count; i++)
        printf("%s\"%s\"", i ? ", " : "", names[i]);
    printf("]");
}

static void frames(const struct rec_frame *list, uint32_t count)
{
    printf(", \"frames\": [");
    for (uint32_t i = 0; i < count; i++)
        printf("%s[%" PRIu32 ", %" PRIu64 "]", i ? ", " : "", list[i].module, list[i].offset);
    printf("]");
}

static void stall_fields(const struct rec_stall *stall)
{
    U64("why", stall->why);
    U64("thread", stall->thread);
    U64("since_ns", stall->since_ns);
    modules(stall->modules, stall->nmodules);
    printf(", \"threads\": [");
    for (uint32_t i = 0; i < stall->nthreads; i++) {
        const struct rec_stall_thread *thread = &stall->threads[i];
        printf("%s{\"tid\": %d, \"state\": \"%c\"", i ? ", " : "", thread->tid, thread->state);
        text("name", thread->name);
        text("where", thread->where);
        frames(thread->frames, thread->nframes);
        U64("callsite", thread->callsite);
        printf("}");
    }
    printf("]");
}

static void callsite_fields(const struct rec_callsite_def *def)
{
    U64("id", def->id);
    U64("kind", def->kind);
    printf(", \"frames\": [");
    for (uint32_t i = 0; i < def->nframes; i++) {
        const struct rec_source_frame *frame = &def->frames[i];
        printf("%s{\"line\": %" PRIu32 ", \"offset\": %" PRIu64, i ? ", " : "", frame->line, frame->offset);
        text("file", frame->file);
        text("function", frame->function);
        text("build_id", frame->build_id ? frame->build_id : "");
        printf("}");
    }
    printf("]");
}

static void print_event(const struct rec_event *event)
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
    printf("{\"event\": \"%s\"", names[event->type]);
    if ((event->type >= REC_EV_OPEN && event->type <= REC_EV_END) || event->type == REC_EV_GPU)
        U64("time_ns", event->time_ns);
    switch (event->type) {
    case REC_EV_COMM:
        comm_fields(&event->u.comm);
        break;
    case REC_EV_THREAD:
        U64("id", event->u.thread.id);
        I64("tid", event->u.thread.tid);
        text("name", event->u.thread.name);
        break;
    case REC_EV_REDOP:
        U64("redop", event->u.redop.redop);
        U64("dtype", event->u.redop.dtype);
        U64("residence", event->u.redop.residence);
        U64("comm", event->u.redop.comm);
        U64("scalar", event->u.redop.scalar);
        U64("hash", event->u.redop.hash);
        break;
    case REC_EV_STREAM:
        U64("id", event->u.stream.id);
        I64("device", event->u.stream.device);
        U64("handle", event->u.stream.handle);
        break;
    case REC_EV_OP:
        U64("thread", event->u.op.thread);
        op_fields(&event->u.op);
        break;
    case REC_EV_OPEN:
        printf(", \"ops\": [");
        for (uint32_t i = 0; i < event->u.open.count; i++) {
            printf("%s{\"thread\": %" PRIu32, i ? ", " : "", event->u.open.ops[i].thread);
            op_fields(&event->u.open.ops[i]);
            printf("}");
        }
        printf("]");
        break;
    case REC_EV_FRONTIER:
        U64("comm", event->u.frontier.comm);
        U64("next_seq", event->u.frontier.next_seq);
        U64("p2p_entered", event->u.frontier.p2p_entered);
        U64("lost", event->u.frontier.lost);
        break;
    case REC_EV_CHECKPOINT:
        U64("comm", event->u.checkpoint.comm);
        I64("peer", event->u.checkpoint.peer);
        U64("send", event->u.checkpoint.send);
        U64("prefix_ok", event->u.checkpoint.prefix_ok);
        U64("window", event->u.checkpoint.window);
        U64("hash", event->u.checkpoint.hash);
        U64("prefix", event->u.checkpoint.prefix);
        break;
    case REC_EV_HEARTBEAT:
        break;
    case REC_EV_GPU:
        U64("stream", event->u.gpu.stream);
        U64("started", event->u.gpu.started);
        U64("ended", event->u.gpu.ended);
        U64("dropped", event->u.gpu.dropped);
        U64("error", event->u.gpu.error);
        break;
    case REC_EV_CALLSITE:
        callsite_fields(&event->u.callsite);
        break;
    case REC_EV_LOSS:
        U64("thread", event->u.loss.thread);
        U64("first_ordinal", event->u.loss.first_ordinal);
        U64("count", event->u.loss.count);
        U64("why", event->u.loss.why);
        break;
    case REC_EV_STALL:
        stall_fields(&event->u.stall);
        break;
    case REC_EV_END:
        U64("reason", event->u.end.reason);
        I64("status", event->u.end.status);
        I64("signal", event->u.end.signal);
        I64("tid", event->u.end.tid);
        U64("fault", event->u.end.fault);
        modules(event->u.end.modules, event->u.end.nmodules);
        frames(event->u.end.frames, event->u.end.nframes);
        break;
    }
    printf("}\n");
}

int main(int argc, char **argv)
{
    struct rec_reader *reader;
    struct rec_event event;
    struct rec_error err;
    struct rec_reader_stats stats;
    if (argc != 2) {
        fprintf(stderr, "usage: frec-events FILE\n");
        return 2;
    }
    if (rec_reader_open(argv[1], &reader, &err) != REC_OK) {
        fprintf(stderr, "frec-events: %s: %s\n", err.path, err.text);
        return 1;
    }
    while (rec_reader_next(reader, &event, &err) == REC_OK)
        print_event(&event);
    rec_reader_stats(reader, &stats);
    printf("{\"stats\": true");
    U64("ops", stats.ops);
    U64("segments", stats.segments);
    U64("pieces", stats.pieces);
    U64("damaged_bytes", stats.damaged_bytes);
    U64("damages", stats.damages);
    U64("torn_tail", stats.torn_tail);
    U64("closed", stats.closed);
    text("first_problem", stats.first_problem);
    printf("}\n");
    rec_reader_close(reader);
    return 0;
}
