/*
 * The Trace Event Format of Chrome, which ui.perfetto.dev opens: one track per thread for the
 * calls, one per stream for what the GPU did, arrows through the ranks of a collective and
 * from send to receive, marks for what is no call: stalls, losses, ends, and what the
 * diagnosis found. Times are relative to the job's start, because the format's microseconds
 * are doubles.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "dump.h"
#include "flows.h"
#include "out.h"
#include "rec/live.h"
#include "rec/verdict.h"
#include "row.h"

#define NS_PER_US     1000
#define STREAM_TRACKS (INT64_C(1) << 30) /* thread ids of the kernel are below 2^22 */
#define THREAD_TRACKS (INT64_C(1) << 31) /* threads whose kernel id is unknown */
#define TRACK_SLOTS   4096

static uint64_t start_ns;
static bool any_event;
static struct flows flows;
static struct rec_verdict *verdict;

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

static uint64_t since_start(uint64_t ns)
{
    return ns > start_ns ? ns - start_ns : 0;
}

static void put_name_event(const struct rec_process *process, int64_t track, const char *what,
                           const char *name)
{
    next_event("M", process, track);
    out_format(",\"name\":\"%s\",\"args\":{\"name\":", what);
    out_json(name);
    out_text("}}");
}

/* ---- tracks ---- */

/* Tracks of the current process that have their name; a forgotten one is named again. */
static int64_t named[TRACK_SLOTS];

static bool first_time(int64_t track)
{
    int64_t *slot = &named[(uint64_t)track % TRACK_SLOTS];
    bool first = *slot != track + 1;
    *slot = track + 1;
    return first;
}

static int64_t thread_track(const struct rec_process *process, const struct rec_op *op)
{
    char name[64];
    const struct rec_thread_def *thread = rec_process_thread(process, op->thread);
    bool known = thread && thread->tid > 0;
    int64_t track = known ? thread->tid : THREAD_TRACKS + op->thread;
    if (first_time(track)) {
        snprintf(name, sizeof(name), "%.15s", thread && thread->name[0] ? thread->name : "thread");
        put_name_event(process, track, "thread_name", name);
    }
    return track;
}

static int64_t stream_track(const struct rec_process *process, const struct rec_op *op)
{
    char name[64];
    const struct rec_stream_def *stream = rec_process_stream(process, op->stream);
    int64_t track = STREAM_TRACKS + op->stream;
    if (first_time(track)) {
        snprintf(name, sizeof(name), "stream 0x%" PRIx64, stream ? stream->handle : 0);
        put_name_event(process, track, "thread_name", name);
    }
    return track;
}

/* ---- calls ---- */

static void put_span(const struct rec_process *process, const struct row *row, int64_t track, uint64_t from,
                     uint64_t to)
{
    next_event("X", process, track);
    put_us(",\"ts\":", since_start(from));
    put_us(",\"dur\":", to > from ? to - from : 0);
    out_text(",\"cat\":\"nccl\",\"name\":");
    out_json(row->values[ROW_OP].u.text);
    out_text(",\"args\":");
    dump_put_row(row);
    out_char('}');
}

static void put_flow(const struct rec_process *process, const struct rec_op *op, int64_t track)
{
    static const char *const phases[] = {[FLOW_BEGIN] = "s", [FLOW_STEP] = "t", [FLOW_END] = "f"};
    uint64_t id;
    enum flow_phase phase = flows_phase(&flows, process, op, &id);
    if (phase == FLOW_NONE)
        return;
    next_event(phases[phase], process, track);
    put_us(",\"ts\":", since_start(flow_time(process, op)));
    out_text(rec_kind_flags(op->kind) & REC_KF_P2P ? ",\"cat\":\"message\",\"name\":\"message\",\"id\":\"0x"
                                                   : ",\"cat\":\"op\",\"name\":\"op\",\"id\":\"0x");
    out_hex(id, 16);
    out_text(phase == FLOW_BEGIN ? "\"}" : "\",\"bp\":\"e\"}");
}

static void perfetto_op(const struct rec_process *process, const struct rec_op *op)
{
    if (op->flags & REC_OF_PART)
        return;
    struct row row;
    row_fill(&row, process, op);
    int64_t track = thread_track(process, op);
    /* An open call lasts to the end. */
    put_span(process, &row, track, op->enter_ns, op->exit_ns ? op->exit_ns : process->last_ns);
    put_flow(process, op, track);
    if (op->gpu_start_ns && op->stream != REC_ID_NONE)
        put_span(process, &row, stream_track(process, op), op->gpu_start_ns,
                 op->gpu_end_ns ? op->gpu_end_ns : process->last_ns);
}

/* ---- marks ---- */

/* Up to the arguments' closing braces. */
static void begin_mark(const struct rec_process *process, uint64_t ns, const char *category, const char *name)
{
    next_event("i", process, 0);
    put_us(",\"s\":\"p\",\"ts\":", since_start(ns));
    out_format(",\"cat\":\"%s\",\"name\":", category);
    out_json(name);
    out_text(",\"args\":{");
}

static void put_end(const struct rec_process *process, uint64_t ns, const struct rec_end *end)
{
    char name[64];
    if (end->reason == REC_END_SIGNAL)
        snprintf(name, sizeof(name), "signal %d", (int)end->signal);
    else
        snprintf(name, sizeof(name), "exit %d", (int)end->status);
    begin_mark(process, ns, "end", end->reason == REC_END_EXEC ? "exec" : name);
    out_text("}}");
}

static void perfetto_record(const struct rec_process *process, const struct rec_event *event)
{
    const struct rec_stall *stall = &event->u.stall;
    const struct rec_loss *loss = &event->u.loss;
    const char *why;
    switch (event->type) {
    case REC_EV_STALL:
        begin_mark(process, event->time_ns, "stall",
                   stall->why == REC_STALL_OPEN_OP ? "stall: a call is open" : "stall: nothing happens");
        out_format("\"since_us\":%" PRIu64 ",\"threads\":%" PRIu32 "}}",
                   since_start(stall->since_ns) / NS_PER_US, stall->nthreads);
        break;
    case REC_EV_LOSS:
        if (!loss->count)
            break;
        why = rec_loss_why_name(loss->why);
        begin_mark(process, event->time_ns, "loss", "calls lost");
        out_format("\"count\":%" PRIu64 ",\"why\":\"%s\"}}", loss->count, why ? why : "unknown");
        break;
    case REC_EV_END:
        put_end(process, event->time_ns, &event->u.end);
        break;
    default:
        break;
    }
}

/* When a finding happened on this rank: what the evidence says of it, else the rank's last call. */
static uint64_t moment_of(const struct rec_finding *finding, const struct rec_process *process)
{
    for (size_t i = 0; i < finding->nevidence; i++)
        if (finding->evidence[i].rank == process->rank && finding->evidence[i].time_ns)
            return finding->evidence[i].time_ns;
    return process->last_call_ns ? process->last_call_ns : process->last_ns;
}

static bool concerns(const struct rec_finding *finding, const struct rec_process *process)
{
    return finding->type != REC_VERDICT_HEALTHY && process->rank >= 0 &&
           rec_has_rank(finding->culprits, finding->nculprits, process->rank);
}

static void put_findings(const struct rec_process *process)
{
    for (size_t i = 0; verdict && i < verdict->nfindings; i++) {
        const struct rec_finding *finding = &verdict->findings[i];
        if (!concerns(finding, process))
            continue;
        begin_mark(process, moment_of(finding, process), "finding", rec_verdict_type_name(finding->type));
        out_format("\"confidence\":\"%s\",\"summary\":", rec_confidence_name(finding->confidence));
        out_json(finding->summary ? finding->summary : "");
        out_text("}}");
    }
}

/* ---- the whole ---- */

/* The timeline is worth having even where no diagnosis can be made. */
static void perfetto_begin(const struct rec_job *job)
{
    static const struct rec_analyze_options options;
    if (rec_analyze(job, &options, &verdict, NULL) != REC_OK)
        verdict = NULL;
    start_ns = rec_job_info(job)->start_ns;
}

static bool perfetto_survey(const struct rec_process *process, const struct rec_op *op)
{
    return flows_note(&flows, process, op);
}

static void perfetto_process(const struct rec_job *job, const struct rec_process *process)
{
    char name[256];
    (void)job;
    memset(named, 0, sizeof(named));
    if (process->rank >= 0)
        snprintf(name, sizeof(name), "rank %d on %s", process->rank, process->host);
    else
        snprintf(name, sizeof(name), "pid %d on %s", process->pid, process->host);
    put_name_event(process, 0, "process_name", name);
    next_event("M", process, 0);
    out_format(",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%u}}", process->index);
    put_name_event(process, 0, "thread_name", "process");
    put_findings(process);
}

static int perfetto_finish(void)
{
    out_text(any_event ? "\n],\"displayTimeUnit\":\"ns\"}\n" : "{\"traceEvents\":[]}\n");
    if (flows.full)
        fr_errorf(NULL, "arrows for the first %u collectives and messages only; --from, --to choose others",
                  FLOWS_MAX);
    flows_fini(&flows);
    rec_verdict_free(verdict);
    verdict = NULL;
    return 0;
}

const struct dump_printer dump_perfetto = {.begin = perfetto_begin,
                                           .survey = perfetto_survey,
                                           .process = perfetto_process,
                                           .op = perfetto_op,
                                           .record = perfetto_record,
                                           .records = true,
                                           .finish = perfetto_finish};
