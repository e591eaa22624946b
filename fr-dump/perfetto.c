/*
 * The Trace Event Format of Chrome, which ui.perfetto.dev opens: one track per thread for the
 * calls, one per stream for what the GPU did. Times are relative to the job's start, because
 * the format's microseconds are doubles.
 */
#include "dump.h"
#include "out.h"
#include "row.h"

#define NS_PER_US 1000

static uint64_t start_ns;
static bool any_event;

static void next_event(const char *phase, const struct rec_process *process, int64_t track)
{
    out_text(any_event ? ",\n{\"ph\":\"" : "{\"traceEvents\":[\n{\"ph\":\"");
    any_event = true;
    out_text(phase);
    out_text("\",\"pid\":");
    out_u64(process->index);
    out_text(",\"tid\":");
    out_i64(track);
}

static void put_us(const char *key, uint64_t ns)
{
    out_text(key);
    out_u64(ns / NS_PER_US);
    out_format(".%03u", (unsigned)(ns % NS_PER_US));
}

static void perfetto_process(const struct rec_job *job, const struct rec_process *process)
{
    char name[256];
    start_ns = rec_job_info(job)->start_ns;
    if (process->rank >= 0)
        snprintf(name, sizeof(name), "rank %d on %s", process->rank, process->host);
    else
        snprintf(name, sizeof(name), "pid %d on %s", process->pid, process->host);
    next_event("M", process, 0);
    out_text(",\"name\":\"process_name\",\"args\":{\"name\":");
    out_json(name);
    out_text("}}");
    next_event("M", process, 0);
    out_format(",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%u}}", process->index);
}

/* Streams have small ids, threads those of the kernel: told apart by sign. */
static int64_t stream_track(const struct rec_op *op)
{
    return -1 - (int64_t)op->stream;
}

static void put_span(const struct rec_process *process, const struct row *row, int64_t track, uint64_t from,
                     uint64_t to)
{
    uint64_t begin = from > start_ns ? from - start_ns : 0;
    next_event("X", process, track);
    put_us(",\"ts\":", begin);
    put_us(",\"dur\":", to > from ? to - from : 0);
    out_text(",\"cat\":\"nccl\",\"name\":");
    out_json(row->values[ROW_OP].u.text);
    out_text(",\"args\":");
    dump_put_row(row);
    out_char('}');
}

static void perfetto_op(const struct rec_process *process, const struct rec_op *op)
{
    struct row row;
    row_fill(&row, process, op);
    const struct rec_thread_def *thread = rec_process_thread(process, op->thread);
    uint64_t end = op->exit_ns ? op->exit_ns : process->last_ns; /* an open call lasts to the end */
    put_span(process, &row, thread && thread->tid > 0 ? thread->tid : 0, op->enter_ns, end);
    if (op->gpu_start_ns && op->stream != REC_ID_NONE)
        put_span(process, &row, stream_track(op), op->gpu_start_ns,
                 op->gpu_end_ns ? op->gpu_end_ns : process->last_ns);
}

static void perfetto_finish(void)
{
    out_text(any_event ? "\n],\"displayTimeUnit\":\"ns\"}\n" : "{\"traceEvents\":[]}\n");
}

const struct dump_printer dump_perfetto = {
    .process = perfetto_process, .op = perfetto_op, .finish = perfetto_finish};
