#include "fr-top/header.h"

#include <stdio.h>
#include <string.h>

#include "fr-top/diagnosis.h"
#include "fr-common.h"
#include "fr-tui/term.h"

/* Bars of the last refreshes, the current value at the lower right, the largest one shown above it. */
static void draw_rate(const struct tui_history *history, struct tui_rect place, const char *label)
{
    char text[16];
    int cells = tui_say(place.y, place.x, TUI_METER_LABEL, "%s", label);
    int x = place.x + cells + 1, inside = place.width - cells - 2, last = place.y + place.height - 1;
    int room = inside - 7;
    for (int y = place.y; y <= last; y++) {
        tui_say(y, x - 1, TUI_BOLD, "[");
        tui_say(y, x + inside, TUI_BOLD, "]");
    }
    if (room > 0)
        tui_history_draw(history, (struct tui_rect){place.y, x, place.height, room}, 0, TUI_METER_FILL);
    if (inside < 6)
        return;
    top_text_count(text, sizeof text, tui_history_get(history, 0));
    tui_put(last, x + inside - 6, 6, TUI_BOLD, TUI_RIGHT, text);
    if (place.height > 1 && room > 0) {
        top_text_count(text, sizeof text, tui_history_max(history, (size_t)room));
        tui_put(place.y, x + inside - 6, 6, TUI_DIM, TUI_RIGHT, text);
    }
}

static void draw_ranks_meter(const struct top_header *header, int y, int x, int width)
{
    const struct top_snapshot *snapshot = header->snapshot;
    uint32_t expected = snapshot->world > snapshot->nprocesses ? snapshot->world : snapshot->nprocesses;
    bool trouble = snapshot->stuck > 0 || snapshot->ended > 0;
    char text[32];
    snprintf(text, sizeof text, "%u/%u up", snapshot->up, expected);
    tui_meter(y, x, width, "Ranks", snapshot->up, expected, trouble ? TUI_BAD : TUI_METER_FILL, text);
}

static int put_worry(int y, int x, const char *label, uint64_t value, enum tui_style bad)
{
    char text[16];
    int cells = tui_say(y, x, TUI_METER_LABEL, "%s: ", label);
    top_text_count(text, sizeof text, (double)value);
    return cells + tui_say(y, x + cells, value > 0 ? bad : TUI_BOLD, "%s", text) + 2;
}

static void draw_job_line(const struct top_header *header, int y, int x)
{
    const struct top_snapshot *snapshot = header->snapshot;
    uint64_t start = UINT64_MAX;
    for (uint32_t i = 0; i < snapshot->nprocesses; i++) {
        if (snapshot->processes[i].start_ns != 0 && snapshot->processes[i].start_ns < start)
            start = snapshot->processes[i].start_ns;
    }
    char age[16] = "";
    if (start < snapshot->now_ns)
        top_text_age(age, sizeof age, snapshot->now_ns - start);
    const char *job = snapshot->nprocesses > 0 ? snapshot->job : "-";
    int cells = (int)tui_text_cells(job, tui_utf8());
    x += tui_say(y, x, TUI_METER_LABEL, "Job: ");
    int room = tui_columns() - x - (int)strlen(age) - 5;
    tui_put(y, x, cells < room ? cells : room, TUI_BOLD, TUI_LEFT, job);
    if (age[0] != '\0')
        tui_say(y, x + (cells < room ? cells : room), TUI_NORMAL, ", up %s", age);
}

static void draw_counts_line(const struct top_header *header, int y, int x)
{
    const struct top_snapshot *snapshot = header->snapshot;
    x += put_worry(y, x, "Stalled", snapshot->stuck, TUI_BAD);
    x += put_worry(y, x, "Ended", snapshot->ended, TUI_BAD);
    x += put_worry(y, x, "Lost", snapshot->lost, TUI_WARN);
    if (header->snapshot->npast > 0 && header->all_runs)
        x += tui_say(y, x, TUI_WARN, "All runs  ");
    if (snapshot->nabsent > 0) {
        char ranks[64];
        fr_fold_ranks(ranks, sizeof ranks, snapshot->absent, snapshot->nabsent);
        x += tui_say(y, x, TUI_METER_LABEL, "Absent: ");
        tui_say(y, x, TUI_BAD, "%s", ranks);
    }
}

/* Whom to look at first: the rank that keeps others waiting, else the oldest call of a host, or of a GPU. */
static void draw_first_line(const struct top_header *header, int y, int x)
{
    const struct top_snapshot *snapshot = header->snapshot;
    uint32_t late = TOP_NONE;
    for (uint32_t i = 0; i < snapshot->nprocesses; i++) {
        const struct top_process *p = &snapshot->processes[i];
        if (p->state == TOP_LATE &&
            (late == TOP_NONE || p->last_call_ns < snapshot->processes[late].last_call_ns))
            late = i;
    }
    if (late != TOP_NONE) {
        const struct top_process *p = &snapshot->processes[late];
        char name[16], quiet[16];
        top_text_rank(name, sizeof name, p);
        top_text_age(quiet, sizeof quiet, snapshot->now_ns - p->last_call_ns);
        int used = tui_say(y, x, TUI_METER_LABEL, "Late: ");
        tui_say(y, x + used, TUI_BAD, "rank %s (%s), no call for %s", name, p->host, quiet);
        return;
    }
    bool host = snapshot->oldest != TOP_NONE;
    int cells =
        tui_say(y, x, TUI_METER_LABEL, host || snapshot->oldest_gpu == TOP_NONE ? "Oldest: " : "On GPU: ");
    if (!host && snapshot->oldest_gpu == TOP_NONE) {
        tui_say(y, x + cells, TUI_DIM, "nobody is inside NCCL");
        return;
    }
    const struct top_process *process = &snapshot->processes[host ? snapshot->oldest : snapshot->oldest_gpu];
    char op[32], rank[16], age[16];
    uint64_t since = process->now.since_ns;
    top_text_op(op, sizeof op, &process->now.op);
    top_text_rank(rank, sizeof rank, process);
    top_text_age(age, sizeof age, snapshot->now_ns > since ? snapshot->now_ns - since : 0);
    tui_say(y, x + cells, top_state_stuck(process->state) ? TUI_BAD : TUI_BOLD, "%s %s, rank %s (%s)", op,
            age, rank, process->host);
}

/* Bytes of text that fit into a line, up to a blank where there is one. */
static size_t fitting(const char *text, int cells)
{
    size_t blank = 0, bytes = 0;
    for (int n = 0; text[bytes] != '\0' && n < cells; n++) {
        const char *next = text + bytes;
        if (text[bytes] == ' ')
            blank = bytes;
        tui_utf8_next(&next);
        bytes = (size_t)(next - text);
    }
    return text[bytes] == '\0' || text[bytes] == ' ' || blank == 0 ? bytes : blank;
}

/* What is wrong, in a sentence; how it is known that nothing is. Returns the lines used. */
static int draw_verdict(const struct top_header *header, int y, int lines)
{
    const struct top_verdict *verdict = header->snapshot->verdict;
    int x = 1 + tui_say(y, 1, TUI_METER_LABEL, "Verdict: ");
    int room = tui_columns() - x;
    char text[1500], age[16], of[176] = "";
    if (verdict == NULL || verdict->serial == 0) {
        const char *why = verdict != NULL && verdict->problem[0] != '\0' ? verdict->problem : "not known yet";
        tui_put(y, x, room, TUI_DIM, TUI_LEFT, why);
        return 1;
    }
    bool good = verdict->status == REC_STATUS_HEALTHY, advice = verdict->type == REC_VERDICT_STRAGGLER;
    enum tui_style style = !good ? TUI_BAD : advice ? TUI_WARN : TUI_GOOD;
    top_text_age(age, sizeof age,
                 header->snapshot->now_ns > verdict->at_ns ? header->snapshot->now_ns - verdict->at_ns : 0);
    if (header->snapshot->njobs > 1)
        snprintf(of, sizeof of, "job %s: ", verdict->job);
    if (good && !advice)
        snprintf(text, sizeof text, "%s%s, as of %s ago", of, rec_verdict_type_name(verdict->type), age);
    else
        snprintf(text, sizeof text, "%s%s (%s): %s", of, rec_verdict_type_name(verdict->type),
                 rec_confidence_name(verdict->confidence), verdict->summary);
    char *at = text;
    for (int line = 1; line < lines; line++) {
        size_t bytes = fitting(at, room);
        char kept = at[bytes];
        at[bytes] = '\0';
        tui_put(y + line - 1, x, room, style, TUI_LEFT, at);
        at[bytes] = kept;
        at += bytes + (kept == ' ');
        if (*at == '\0')
            return line;
    }
    tui_put(y + lines - 1, x, room, style, TUI_LEFT, at);
    return lines;
}

int top_header_draw(const struct top_header *header, int rows, int columns)
{
    int y = 0, half = columns / 2;
    bool wide = columns >= 72;
    if (rows < 12) {
        draw_ranks_meter(header, y, 0, wide ? half : columns);
        if (wide)
            draw_counts_line(header, y, half + 2);
        return y + 1;
    }
    int width = (wide ? half : columns) - 1, bars = rows >= 40 ? 3 : 1;
    draw_ranks_meter(header, y, 1, width);
    draw_rate(&header->ops, (struct tui_rect){y + 1, 1, bars, width}, "Ops/s");
    draw_rate(&header->bytes, (struct tui_rect){y + 1 + bars, 1, bars, width}, "B/s  ");
    if (wide) {
        draw_job_line(header, y, half + 2);
        draw_counts_line(header, y + 1, half + 2);
        draw_first_line(header, y + 2, half + 2);
        y += 1 + 2 * bars;
    } else {
        y += 1 + 2 * bars;
        draw_counts_line(header, y++, 1);
        draw_first_line(header, y++, 1);
    }
    if (header->diagnosed)
        y += draw_verdict(header, y, rows < 18 ? 1 : rows < 40 ? 2 : 3);
    return y;
}
