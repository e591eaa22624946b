#include <string.h>
#include <time.h>

#include "dump.h"
#include "out.h"
#include "rec/live.h"
#include "row.h"

#define NS_PER_S UINT64_C(1000000000)

/* "04:20:05.123456" local; the last second is remembered. */
static const char *clock_text(uint64_t ns)
{
    static uint64_t known = UINT64_MAX;
    static char second[16];
    static char text[24];
    if (ns == 0)
        return "-";
    if (ns / NS_PER_S != known) {
        time_t seconds = (time_t)(ns / NS_PER_S);
        struct tm tm;
        if (!localtime_r(&seconds, &tm) || strftime(second, sizeof(second), "%H:%M:%S", &tm) == 0)
            return "-";
        known = ns / NS_PER_S;
    }
    snprintf(text, sizeof(text), "%s.%06u", second, (unsigned)(ns % NS_PER_S / 1000));
    return text;
}

const char *dump_duration(uint64_t ns, char *buffer, size_t size)
{
    static const struct {
        uint64_t ns;
        const char *unit;
    } units[] = {{NS_PER_S, "s"}, {1000000, "ms"}, {1000, "us"}, {1, "ns"}};
    size_t i = 0;
    while (i < 3 && ns < units[i].ns)
        i++;
    double value = (double)ns / (double)units[i].ns;
    if (value >= 100 || i == 3)
        snprintf(buffer, size, "%.0f%s", value, units[i].unit);
    else
        snprintf(buffer, size, "%.*f%s", value >= 10 ? 1 : 2, value, units[i].unit);
    return buffer;
}

static const char *took_text(const struct rec_op *op, char *buffer, size_t size)
{
    if (op->flags & REC_OF_OPEN)
        return "open";
    if (op->exit_ns < op->enter_ns || op->exit_ns == 0)
        return "-";
    return dump_duration(op->exit_ns - op->enter_ns, buffer, size);
}

static const char *comm_text(const struct rec_process *process, uint32_t id, char *buffer, size_t size)
{
    const struct rec_member *member = rec_process_member(process, id);
    if (!member)
        return "-";
    if (member->comm->name[0])
        return fr_clean(buffer, size, member->comm->name);
    if (!member->def.uid)
        snprintf(buffer, size, "new#%u", member->comm_id);
    else
        snprintf(buffer, size, "%08x", (unsigned)(member->def.uid >> 32));
    return buffer;
}

/* What else there is to say of the arguments: the redop, the root, the peer, the color. */
static const char *argument_text(const struct rec_op *op, char *buffer, size_t size)
{
    unsigned flags = rec_kind_flags(op->kind);
    const char *redop = flags & REC_KF_REDOP ? rec_redop_name(op->redop) : NULL;
    if (redop && (flags & REC_KF_ROOT))
        snprintf(buffer, size, "%s>%d", redop, op->peer);
    else if (redop)
        snprintf(buffer, size, "%s", redop);
    else if (flags & REC_KF_ROOT)
        snprintf(buffer, size, op->kind == REC_GATHER ? ">%d" : "%d>", op->peer);
    else if (op->kind == REC_SEND || op->kind == REC_PUT_SIGNAL || op->kind == REC_SIGNAL)
        snprintf(buffer, size, "to %d", op->peer);
    else if (op->kind == REC_RECV || (op->kind == REC_WAIT_SIGNAL && op->peer >= 0))
        snprintf(buffer, size, "of %d", op->peer);
    else if (op->kind == REC_COMM_SPLIT && op->peer == -1)
        snprintf(buffer, size, "no col");
    else if (op->kind == REC_COMM_SPLIT)
        snprintf(buffer, size, "col %d", op->peer);
    else if (op->kind == REC_GRAPH_LAUNCH)
        snprintf(buffer, size, "gr%d", op->peer);
    else if (rec_kind_canonical(op->kind) == REC_COMM_INIT_RANK)
        snprintf(buffer, size, "%d/%llu", op->peer, (unsigned long long)op->count);
    else
        return "-";
    return buffer;
}

static void put_signal(const struct rec_op *op)
{
    if (!(rec_kind_flags(op->kind) & REC_KF_RMA) || op->signal == 0)
        return;
    if (op->signal == REC_SIGNAL_SEVERAL)
        out_text(" several signals");
    else if (!rec_signal_known(op->signal))
        out_text(" signal unknown");
    else
        out_format(" signal %u", rec_signal_index(op->signal));
    if (rec_signal_known(op->signal) && rec_signal_context(op->signal))
        out_format(" context %u", rec_signal_context(op->signal));
}

static const char *state_text(const struct rec_op *op)
{
    const char *result = rec_result_name(op->result);
    if (op->state == REC_STATE_FAILED && result)
        return result;
    return rec_state_name((enum rec_state)op->state);
}

void dump_text_stack(const struct rec_callsite_def *site)
{
    char file[1024], function[512];
    for (uint32_t i = 0; i < site->nframes && site->kind == REC_CALLSITE_NATIVE; i++) {
        rec_frame_text(site, &site->frames[i], row_symbolizer(), function, sizeof(function));
        out_format("    at %s\n", fr_clean(file, sizeof(file), function));
    }
    for (uint32_t i = 0; i < site->nframes && site->kind != REC_CALLSITE_NATIVE; i++)
        out_format("    at %s:%u in %s\n", fr_clean(file, sizeof(file), site->frames[i].file),
                   site->frames[i].line, fr_clean(function, sizeof(function), site->frames[i].function));
}

static void text_op(const struct rec_process *process, const struct rec_op *op)
{
    char name[16], comm[24], seq[24] = "-", count[24] = "-", argument[24], took[16];
    unsigned flags = rec_kind_flags(op->kind);
    bool counted = (flags & (REC_KF_SEQ | REC_KF_P2P | REC_KF_TEARDOWN)) || op->kind == REC_GRAPH_LAUNCH;
    if (counted && !(op->flags & REC_OF_NO_SEQ))
        snprintf(seq, sizeof(seq), "%llu", (unsigned long long)op->seq);
    if ((flags & REC_KF_DATA) || op->kind == REC_GROUP_END || op->kind == REC_GRAPH_LAUNCH ||
        op->kind == REC_WAIT_SIGNAL)
        snprintf(count, sizeof(count), "%llu", (unsigned long long)op->count);
    const char *dtype = flags & REC_KF_DATA ? rec_dtype_name(op->dtype) : NULL;
    out_format("%-15s %-13s %-8s %5s %8s %-4s %-5s %6s %s", clock_text(op->enter_ns),
               row_op_name(op->kind, name, sizeof(name)), comm_text(process, op->comm, comm, sizeof(comm)),
               seq, count, dtype ? dtype : "-", argument_text(op, argument, sizeof(argument)),
               took_text(op, took, sizeof(took)), state_text(op));
    put_signal(op);
    if (op->flags & REC_OF_PART)
        out_text(" part");
    if (op->group)
        out_format(" g%u", op->group);
    const struct rec_thread_def *thread = rec_process_thread(process, op->thread);
    if (thread && thread->tid > 0 && thread->tid != process->pid)
        out_format(" t%d", thread->tid);
    if ((op->flags & REC_OF_CAPTURED) && op->launch)
        out_format(" captured into gr%u", (unsigned)op->launch);
    else if (op->flags & REC_OF_CAPTURED)
        out_text(" captured");
    out_char('\n');
    const struct rec_callsite_def *site =
        dump_stacks && op->callsite ? rec_process_callsite(process, op->callsite) : NULL;
    if (site)
        dump_text_stack(site);
}

static void put_fate(const struct rec_process *process)
{
    switch (process->fate) {
    case REC_FATE_UNKNOWN:
        out_text("no end recorded");
        break;
    case REC_FATE_ALIVE:
        out_text("running");
        break;
    case REC_FATE_EXITED:
        if (process->end.reason == REC_END_EXEC)
            out_text("replaced by exec");
        else
            out_format("exited with status %d", process->end.status);
        break;
    case REC_FATE_SIGNALED:
        out_format("ended by signal %d (%s)", process->end.signal, strsignal(process->end.signal));
        break;
    case REC_FATE_VANISHED:
        out_text("gone without a word");
        break;
    }
}

/* "UTC", "CET" …; the C library keeps the names. */
static const char *zone_at(uint64_t ns)
{
    time_t seconds = (time_t)(ns / 1000000000u);
    struct tm tm;
    return localtime_r(&seconds, &tm) ? tm.tm_zone : "";
}

static void text_process(const struct rec_job *job, const struct rec_process *process)
{
    static bool not_first;
    char host[256], exe[512], start[64], last[64];
    const char *slash = strrchr(process->exe, '/');
    fr_clean(exe, sizeof(exe), slash ? slash + 1 : process->exe);
    if (not_first)
        out_char('\n');
    not_first = true;
    if (process->rank >= 0)
        out_format("rank %d", process->rank);
    else
        out_text("rank unknown");
    if (rec_job_expected_ranks(job))
        out_format(" of %u", rec_job_expected_ranks(job));
    out_format(", pid %d on %s", process->pid,
               process->host[0] ? fr_clean(host, sizeof(host), process->host) : "an unknown host");
    if (exe[0])
        out_format(", %s", exe);
    if (process->nccl_version)
        out_format(", NCCL %u.%u.%u", process->nccl_version / 10000, process->nccl_version / 100 % 100,
                   process->nccl_version % 100);
    out_format("\n%s to %s %s, %llu calls", dump_date(process->start_ns, start, sizeof(start)),
               dump_date(process->last_ns, last, sizeof(last)), zone_at(process->last_ns),
               (unsigned long long)process->ops);
    if (process->dropped_ops)
        out_format(" (%llu lost)", (unsigned long long)process->dropped_ops);
    out_text(", ");
    put_fate(process);
    out_format("\n%-15s %-13s %-8s %5s %8s %-4s %-5s %6s %s\n", "TIME", "OP", "COMM", "SEQ", "COUNT", "TYPE",
               "ARG", "TOOK", "STATE");
}

const struct dump_printer dump_text = {.process = text_process, .op = text_op};
