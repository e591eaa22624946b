#include "fr-top/top.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

const char *top_state_name(enum top_state state)
{
    static const char *const names[TOP_STATES] = {
        [TOP_DEAD] = "dead",       [TOP_CRASHED] = "crashed",   [TOP_FAILED] = "failed",
        [TOP_LATE] = "late",       [TOP_STALLED] = "stalled",   [TOP_SILENT] = "silent",
        [TOP_IN_CALL] = "in_call", [TOP_STARTING] = "starting", [TOP_IDLE] = "idle",
        [TOP_RUNNING] = "running", [TOP_EXITED] = "exited",
    };
    return names[state];
}

bool top_state_ended(enum top_state state)
{
    return state <= TOP_FAILED || state == TOP_EXITED;
}

bool top_state_stuck(enum top_state state)
{
    return state == TOP_LATE || state == TOP_STALLED;
}

void top_text_count(char *out, size_t size, double value)
{
    static const char units[] = " kMGTPE";
    size_t unit = 0;
    if (isnan(value)) {
        snprintf(out, size, "-");
        return;
    }
    while (value >= 999.5 && unit + 2 < sizeof units) {
        value /= 1000;
        unit++;
    }
    if (unit == 0)
        snprintf(out, size, value > 0 && value < 9.95 && value != floor(value) ? "%.1f" : "%.0f", value);
    else
        snprintf(out, size, value < 99.95 ? "%.1f%c" : "%.0f%c", value, units[unit]);
}

void top_text_age(char *out, size_t size, uint64_t ns)
{
    uint64_t ms = ns / 1000000, s = ms / 1000;
    if (ms < 1000)
        snprintf(out, size, "%llums", (unsigned long long)ms);
    else if (s < 60)
        snprintf(out, size, "%llu.%llus", (unsigned long long)s, (unsigned long long)(ms % 1000 / 100));
    else if (s < 3600)
        snprintf(out, size, "%llum%02llus", (unsigned long long)(s / 60), (unsigned long long)(s % 60));
    else if (s < 86400)
        snprintf(out, size, "%lluh%02llum", (unsigned long long)(s / 3600),
                 (unsigned long long)(s % 3600 / 60));
    else
        snprintf(out, size, "%llud%02lluh", (unsigned long long)(s / 86400),
                 (unsigned long long)(s % 86400 / 3600));
}

void top_text_comm(char *out, size_t size, const char *name, uint64_t uid)
{
    if (name[0] != '\0')
        snprintf(out, size, "%s", name);
    else if (uid != 0)
        snprintf(out, size, "%08llx", (unsigned long long)(uid >> 32));
    else
        snprintf(out, size, "(new)");
}

void top_text_op(char *out, size_t size, const struct rec_op *op)
{
    const char *name = rec_kind_name(op->kind);
    if (op->kind == REC_NONE)
        snprintf(out, size, "-");
    else if (name != NULL)
        snprintf(out, size, "%s", name);
    else
        snprintf(out, size, "Op%u", op->kind);
}

const char *top_text_where(const struct rec_op *op)
{
    if (op->kind == REC_NONE)
        return "-";
    if (op->flags & REC_OF_CAPTURED)
        return "graph";
    switch (op->state) {
    case REC_STATE_IN_CALL:
        return "host";
    case REC_STATE_ENQUEUED:
        return op->launch != 0 ? "queue" : "-";
    case REC_STATE_GPU_STARTED:
        return "gpu";
    case REC_STATE_COMPLETED:
        return "done";
    case REC_STATE_FAILED:
        return "fail";
    case REC_STATE_ABORTED:
        return "abort";
    default:
        return "-";
    }
}

void top_text_rank(char *out, size_t size, const struct top_process *process)
{
    if (process->rank < 0)
        snprintf(out, size, "-");
    else
        snprintf(out, size, "%s%d", process->derived_rank ? "~" : "", process->rank);
}

void top_text_end(char *out, size_t size, const struct top_process *process)
{
    if (process->vanished)
        snprintf(out, size, "gone without a word (SIGKILL?)");
    else if (!process->ended)
        out[0] = '\0';
    else if (process->end.reason == REC_END_SIGNAL && sigabbrev_np(process->end.signal) != NULL)
        snprintf(out, size, "SIG%s", sigabbrev_np(process->end.signal));
    else if (process->end.reason == REC_END_SIGNAL)
        snprintf(out, size, "signal %d", process->end.signal);
    else if (process->end.reason == REC_END_EXEC)
        snprintf(out, size, "became another program");
    else
        snprintf(out, size, "exit %d", process->end.status);
}
