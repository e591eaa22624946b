#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fr-analyze/tui/browser.h"
#include "rec/live.h"

const char *word_kind(const struct rec_op *op, char buffer[24])
{
    const char *name = rec_kind_name(op->kind);
    if (name != NULL)
        return name;
    snprintf(buffer, 24, "Op%u", op->kind);
    return buffer;
}

void word_count(char *out, size_t size, uint64_t value)
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, value);
    size_t at = 0;
    for (int i = 0; i < n && at + 2 < size; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
}

/* " 2 from 0 index 1": of a one-sided call, how many, whose and which. */
static void word_signal(char *out, size_t size, const struct rec_op *op)
{
    char count[24] = "", peer[24] = "", index[24] = "", context[24] = "";
    bool waits = op->kind == REC_WAIT_SIGNAL;
    if (waits)
        snprintf(count, sizeof count, " %" PRIu64, op->count);
    if (op->peer >= 0)
        snprintf(peer, sizeof peer, " %s %d", waits ? "from" : "to", op->peer);
    if (op->signal == REC_SIGNAL_SEVERAL)
        snprintf(index, sizeof index, " several signals");
    else if (rec_signal_known(op->signal) && op->signal != 0)
        snprintf(index, sizeof index, " index %u", rec_signal_index(op->signal));
    if (rec_signal_known(op->signal) && rec_signal_context(op->signal) != 0)
        snprintf(context, sizeof context, " context %u", rec_signal_context(op->signal));
    snprintf(out, size, "%s%s%s%s", count, peer, index, context);
}

void word_op(char *out, size_t size, const struct rec_op *op)
{
    char name[24], count[32];
    unsigned flags = rec_kind_flags(op->kind);
    int used = snprintf(out, size, "%s", word_kind(op, name));
#define MORE(...)                                                                                            \
    if (used >= 0 && (size_t)used < size)                                                                    \
    used += snprintf(out + used, size - (size_t)used, __VA_ARGS__)
    if (flags & REC_KF_DATA) {
        const char *dtype = rec_dtype_name(op->dtype);
        word_count(count, sizeof count, op->count);
        MORE(" %s %s", count, dtype != NULL ? dtype : "?");
    }
    if (flags & REC_KF_REDOP) {
        const char *redop = rec_redop_name(op->redop);
        MORE(" %s", redop != NULL ? redop : "?");
    }
    if (flags & REC_KF_ROOT) {
        MORE(" root %d", op->peer);
    } else if (flags & REC_KF_P2P) {
        MORE(" %s %d", op->kind == REC_SEND ? "to" : "from", op->peer);
    } else if (flags & REC_KF_RMA) {
        char which[64];
        word_signal(which, sizeof which, op);
        MORE("%s", which);
    } else if (op->kind == REC_COMM_SPLIT) {
        MORE(" color %d", op->peer);
    } else if (rec_kind_canonical(op->kind) == REC_COMM_INIT_RANK) {
        MORE(" %d of %" PRIu64, op->peer, op->count);
    }
#undef MORE
}

void word_comm(char *out, size_t size, const struct rec_communicator *comm)
{
    if (comm == NULL)
        snprintf(out, size, "-");
    else if (comm->name[0] != '\0')
        snprintf(out, size, "%s", comm->name);
    else if (comm->uid != 0)
        snprintf(out, size, "%08" PRIx64, comm->uid >> 32);
    else
        snprintf(out, size, "(new)");
}

void word_end(char *out, size_t size, const struct rec_process *p)
{
    const char *name;
    out[0] = '\0';
    switch (p->fate) {
    case REC_FATE_EXITED:
        if (p->end.reason == REC_END_EXEC)
            snprintf(out, size, "exec");
        else
            snprintf(out, size, "exit %d", p->end.status);
        break;
    case REC_FATE_SIGNALED:
        name = sigabbrev_np(p->end.signal);
        if (name != NULL)
            snprintf(out, size, "SIG%s", name);
        else
            snprintf(out, size, "signal %d", p->end.signal);
        break;
    case REC_FATE_VANISHED:
        snprintf(out, size, "vanished");
        break;
    case REC_FATE_ALIVE:
        snprintf(out, size, "runs");
        break;
    default:
        snprintf(out, size, "unknown");
    }
}

void word_state(char *out, size_t size, const struct browse_data *data, const struct rank_figures *rank)
{
    if (rank->process == BROWSE_NONE) {
        snprintf(out, size, "no trace");
        return;
    }
    const struct rec_process *p = data->processes[rank->process];
    bool ended = p->fate == REC_FATE_EXITED || p->fate == REC_FATE_SIGNALED;
    snprintf(out, size, "%s",
             rank->open           ? "in call"
             : ended              ? "ended"
             : rank->last == NULL ? "no call"
                                  : "outside");
}

void word_span(char *out, size_t size, uint64_t ns)
{
    double s = (double)ns / 1e9;
    if (ns < 1000000)
        snprintf(out, size, "%.1f us", s * 1e6);
    else if (ns < 1000000000)
        snprintf(out, size, "%.2f ms", s * 1e3);
    else if (s < 120)
        snprintf(out, size, "%.2f s", s);
    else
        snprintf(out, size, "%" PRIu64 " min", ns / 60000000000u);
}

void word_clock(char *out, size_t size, uint64_t ns, int decimals)
{
    time_t seconds = (time_t)(ns / 1000000000u);
    struct tm tm;
    char text[32];
    if (ns == 0 || gmtime_r(&seconds, &tm) == NULL || strftime(text, sizeof text, "%H:%M:%S", &tm) == 0) {
        snprintf(out, size, "-");
        return;
    }
    char fraction[16];
    snprintf(fraction, sizeof fraction, ".%09u", (unsigned)(ns % 1000000000u));
    snprintf(out, size, "%s%.*s", text, decimals > 0 ? decimals + 1 : 0, fraction);
}

void word_time(char *out, size_t size, const struct browse_data *data, const struct rec_process *process,
               uint64_t ns, int decimals)
{
    word_clock(out, size, browse_common_ns(data, process, ns), decimals);
}

enum tui_style style_role(enum rec_role role)
{
    static const enum tui_style styles[] = {[REC_ROLE_NONE] = TUI_NORMAL,
                                            [REC_ROLE_CULPRIT] = TUI_BAD,
                                            [REC_ROLE_SUSPECT] = TUI_WARN,
                                            [REC_ROLE_VICTIM] = TUI_ACCENT,
                                            [REC_ROLE_SLOW] = TUI_WARN};
    return styles[role];
}

enum tui_style style_state(unsigned state)
{
    switch (state) {
    case REC_STATE_IN_CALL:
        return TUI_WARN;
    case REC_STATE_COMPLETED:
        return TUI_GOOD;
    case REC_STATE_GPU_STARTED:
        return TUI_ACCENT;
    case REC_STATE_FAILED:
    case REC_STATE_ABORTED:
        return TUI_BAD;
    default:
        return TUI_NORMAL;
    }
}

void word_plain(char *out, size_t size, const char *text)
{
    static const struct {
        const char *sign, *letters;
    } table[] = {{"→", "->"}, {"×", "x"}, {"…", "..."}, {"≠", "!="}, {"▶", ">"}, {"│", "|"},
                 {"┌", "+"},  {"└", "`"}, {"─", "-"},   {"▼", "v"},  {"–", "-"}};
    size_t at = 0;
    while (*text != '\0' && at + 1 < size) {
        const char *put = NULL;
        for (size_t i = 0; !tui_utf8() && i < sizeof table / sizeof table[0]; i++) {
            size_t n = strlen(table[i].sign);
            if (strncmp(text, table[i].sign, n) == 0) {
                put = table[i].letters;
                text += n;
                break;
            }
        }
        if (put == NULL) {
            out[at++] = *text++;
            continue;
        }
        for (; *put != '\0' && at + 1 < size; put++)
            out[at++] = *put;
    }
    out[at] = '\0';
}
