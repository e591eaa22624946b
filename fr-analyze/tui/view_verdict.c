/* The verdict: sentence, circle, who, evidence; then the other findings. */
#include <stdio.h>
#include <stdlib.h>

#include "fr-analyze/tui/browser.h"
#include "fr-common.h"

#define STEPS_MAX 24 /* of circles, that are drawn */

struct step {
    const struct rec_evidence *evidence;
    bool known;
    struct place place;
    char text[192];
};

struct verdict_view {
    struct browser *browser;
    struct lines lines;
    bool read;
    struct step steps[STEPS_MAX];
    size_t nsteps;
};

static void add_ranks(struct browser *b, struct lines *lines, const char *label, enum tui_style style,
                      const int32_t *ranks, size_t count)
{
    if (count == 0)
        return;
    char folded[1024];
    fr_fold_ranks(folded, sizeof folded, ranks, count);
    struct place to = place_in(VIEW_RANKS, browse_process_of(&b->data, ranks[0]));
    if (count == 1 && to.process != BROWSE_NONE)
        to.view = VIEW_RANK;
    lines_add(lines, style, 23, &to, "  %-20s %s%s", label, count > 1 ? "ranks " : "rank ", folded);
}

static bool is_circle(const struct rec_finding *f)
{
    return f->type == REC_VERDICT_DEADLOCK_CYCLE || f->type == REC_VERDICT_ORDER_INVERSION;
}

/* Where evidence points, exactly where its op is still on record; a text for that op. */
static bool exact_place(struct verdict_view *v, const struct rec_finding *f, const struct rec_evidence *e,
                        struct place *to, char *text, size_t size)
{
    struct rec_op op;
    const struct browse_data *data = &v->browser->data;
    bool known = browse_finding_place(data, f, e, to);
    if (!browse_evidence_op(data, e, &op))
        return known;
    const struct rec_process *p = data->processes[browse_process_of(data, e->rank)];
    *to = browse_op_place(data, p, &op);
    if (text == NULL)
        return true;
    char words[96], name[64];
    word_op(words, sizeof words, &op);
    word_comm(name, sizeof name, to->comm);
    snprintf(text, size, "%s, %s %llu of %s", words, to->src >= 0 ? "message" : "op",
             (unsigned long long)op.seq, name);
    return true;
}

/* Reading for it once is enough: the traces do not change. */
static void read_steps(struct verdict_view *v)
{
    const struct rec_verdict *verdict = v->browser->data.verdict;
    for (size_t i = 0; i < verdict->nfindings && !v->read; i++) {
        const struct rec_finding *f = &verdict->findings[i];
        for (size_t n = 0; is_circle(f) && n < f->nevidence && v->nsteps < STEPS_MAX; n++) {
            if (f->evidence[n].rank < 0 || f->evidence[n].seq == NO_SEQ)
                continue;
            struct step *step = &v->steps[v->nsteps++];
            *step = (struct step){.evidence = &f->evidence[n], .text = "a call"};
            step->known = exact_place(v, f, &f->evidence[n], &step->place, step->text, sizeof step->text);
        }
    }
    v->read = true;
}

/* Evidence of a circle comes in its order. */
static void add_circle(struct verdict_view *v, const struct rec_finding *f)
{
    struct lines *lines = &v->lines;
    int32_t first = -1;
    for (size_t i = 0; i < v->nsteps; i++) {
        const struct step *step = &v->steps[i];
        if (step->evidence < f->evidence || step->evidence >= f->evidence + f->nevidence)
            continue;
        const struct place *to = step->known ? &step->place : NULL;
        if (first >= 0)
            lines_add(lines, TUI_DIM, 0, to, "  │     for");
        lines_add(lines, TUI_BAD, 16, to, "  %s rank %d waits in %s", first < 0 ? "┌─▶" : "│  ",
                  step->evidence->rank, step->text);
        first = first < 0 ? step->evidence->rank : first;
    }
    if (first < 0)
        return;
    lines_add(lines, TUI_BAD, 0, NULL, "  └──── for %srank %d", v->nsteps == STEPS_MAX ? "… " : "", first);
    lines_add(lines, TUI_NORMAL, 0, NULL, "%s", "");
}

static void add_evidence(struct browser *b, struct lines *lines, const struct rec_finding *f)
{
    if (f->nevidence == 0)
        return;
    struct place to = {0};
    bool reach = false;
    lines_add(lines, TUI_BOLD, 0, NULL, "Evidence");
    for (size_t i = 0; i < f->nevidence; i++) {
        const struct rec_evidence *e = &f->evidence[i];
        /* Frames of a stack belong to the line before them. */
        if (e->rank >= 0 || e->text[0] != ' ')
            reach = browse_finding_place(&b->data, f, e, &to);
        lines->about = e->rank >= 0 && e->seq != NO_SEQ ? e : NULL;
        lines_add(lines, e->text[0] == ' ' ? TUI_DIM : TUI_NORMAL, 4, reach ? &to : NULL, "  %s", e->text);
    }
    lines->about = NULL;
    lines_add(lines, TUI_NORMAL, 0, NULL, "%s", "");
}

static void add_finding(struct browser *b, const struct rec_finding *f)
{
    struct verdict_view *v = b->state[VIEW_VERDICT];
    struct lines *lines = &v->lines;
    struct place to;
    bool reach = browse_finding_place(&b->data, f, NULL, &to);
    bool good = f->type == REC_VERDICT_HEALTHY;
    lines_add(lines, good ? TUI_GOOD : TUI_BOLD, 0, reach ? &to : NULL, "%s (%s)",
              rec_verdict_type_name(f->type), rec_confidence_name(f->confidence));
    const char *sentence = f->summary != NULL && f->summary[0] != '\0' ? f->summary : "?";
    bool small = sentence[0] >= 'a' && sentence[0] <= 'z';
    lines_add(lines, TUI_NORMAL, 2, reach ? &to : NULL, "  %c%s.", sentence[0] - (small ? 'a' - 'A' : 0),
              sentence + 1);
    lines_add(lines, TUI_NORMAL, 0, NULL, "%s", "");
    add_ranks(b, lines, "to blame:", TUI_BAD, f->culprits, f->nculprits);
    add_ranks(b, lines, "possible:", TUI_WARN, f->suspects, f->nsuspects);
    add_ranks(b, lines, "waiting because:", TUI_ACCENT, f->victims, f->nvictims);
    if (f->nculprits + f->nsuspects + f->nvictims > 0)
        lines_add(lines, TUI_NORMAL, 0, NULL, "%s", "");
    if (is_circle(f))
        add_circle(v, f);
    add_evidence(b, lines, f);
}

static void say_run(struct browser *b, struct lines *lines, size_t r, const struct place *to)
{
    const struct rec_generation *run = &b->data.verdict->census->generations[r];
    char start[24], end[24];
    word_clock(start, sizeof start, run->start_ns, 0);
    word_clock(end, sizeof end, run->last_ns, 0);
    lines_add(lines, run->nculprits > 0 ? TUI_BAD : TUI_NORMAL, 4, to,
              "  run %zu%s%s, %s to %s UTC, %u processes: %s", r + 1,
              run->restart[0] != '\0' ? ", restart " : "", run->restart, start, end, run->processes,
              run->type != NULL ? run->type : "not examined");
    if (run->summary != NULL)
        lines_add(lines, TUI_NORMAL, 4, to, "    %s", run->summary);
}

/* A job that was restarted: the runs before the last, each a way to it. */
static void add_runs(struct browser *b, struct lines *lines)
{
    if (b->data.nruns == 1)
        return;
    lines_add(lines, TUI_BOLD, 0, NULL, "Earlier runs (r shows them)");
    for (size_t r = b->data.nruns - 1; r-- > 0;) {
        struct place to = place_in(VIEW_RANKS, BROWSE_NONE);
        to.run = (uint32_t)r + 1;
        say_run(b, lines, r, &to);
    }
    lines_add(lines, TUI_NORMAL, 0, NULL, "%s", "");
}

/* How a run ended that another one followed. */
static void show_earlier(struct browser *b, struct lines *lines)
{
    const struct rec_generation *run = &b->data.verdict->census->generations[b->data.run];
    struct place to = place_in(VIEW_VERDICT, BROWSE_NONE);
    to.run = (uint32_t)b->data.nruns;
    lines_add(lines, TUI_BOLD, 0, NULL, "An earlier run of this job");
    say_run(b, lines, b->data.run, NULL);
    lines_add(lines, TUI_NORMAL, 0, NULL, "%s", "");
    add_ranks(b, lines, "to blame:", TUI_BAD, run->culprits, run->nculprits);
    lines_add(lines, TUI_NORMAL, 0, NULL, "%s", "");
    lines_add(lines, TUI_NORMAL, 2, &to, "  The findings are about the last run, %zu (Enter).",
              b->data.nruns);
}

static void add_input(struct browser *b, struct lines *lines)
{
    struct rec_job_input input;
    size_t nwarnings;
    rec_job_input(b->data.job, &input);
    const char *const *warnings = rec_job_warnings(b->data.job, &nwarnings);
    uint32_t expected = rec_job_expected_ranks(b->data.job);
    lines_add(lines, TUI_BOLD, 0, NULL, "Read");
    lines_add(lines, TUI_NORMAL, 4, NULL, "  %zu processes of %u ranks, %u files, %u live regions",
              b->data.nprocesses, expected, input.files, input.live);
    if (input.dropped_ops > 0)
        lines_add(lines, TUI_WARN, 4, NULL, "  %llu calls have no record",
                  (unsigned long long)input.dropped_ops);
    for (size_t i = 0; i < nwarnings; i++)
        lines_add(lines, TUI_WARN, 4, NULL, "  %s", warnings[i]);
}

static const struct tui_column columns[2] = LINES_COLUMNS("FINDINGS");

static bool init(struct browser *b)
{
    struct verdict_view *v = calloc(1, sizeof *v);
    b->state[VIEW_VERDICT] = v;
    if (v == NULL)
        return false;
    v->browser = b;
    b->tables[VIEW_VERDICT] = tui_table_new(columns, 2, &lines_source, &v->lines);
    return b->tables[VIEW_VERDICT] != NULL;
}

static void fini(struct browser *b)
{
    struct verdict_view *v = b->state[VIEW_VERDICT];
    if (v != NULL)
        lines_clear(&v->lines);
    free(v);
}

static bool show(struct browser *b, const struct place *place)
{
    struct verdict_view *v = b->state[VIEW_VERDICT];
    struct lines *lines = &v->lines;
    (void)place;
    read_steps(v);
    lines_clear(lines);
    lines->width = b->width - 1;
    if (b->data.run + 1 < b->data.nruns) {
        show_earlier(b, lines);
        tui_table_sort(b->tables[VIEW_VERDICT], 1, false);
        return !lines->oom;
    }
    for (size_t i = 0; i < b->data.verdict->nfindings; i++) {
        if (i == 1)
            lines_add(lines, TUI_COLUMN, 0, NULL, "Also found");
        add_finding(b, &b->data.verdict->findings[i]);
    }
    add_runs(b, lines);
    add_input(b, lines);
    tui_table_sort(b->tables[VIEW_VERDICT], 1, false);
    return !lines->oom;
}

static bool target(struct browser *b, struct place *to)
{
    struct verdict_view *v = b->state[VIEW_VERDICT];
    const struct rec_verdict *verdict = b->data.verdict;
    size_t row = tui_table_selected(b->tables[VIEW_VERDICT]);
    bool known = lines_target(&v->lines, row, to);
    const struct rec_evidence *e = known ? v->lines.lines[row].about : NULL;
    for (size_t i = 0; e != NULL && i < verdict->nfindings; i++) {
        const struct rec_finding *f = &verdict->findings[i];
        if (e >= f->evidence && e < f->evidence + f->nevidence)
            return exact_place(v, f, e, to, NULL, 0);
    }
    return known;
}

static void about(struct browser *b, char *text, size_t size, enum tui_style *style)
{
    size_t n = b->data.verdict->nfindings;
    *style = TUI_DIM;
    snprintf(text, size, "%zu finding%s. Enter: to what the line is about. F9: next finding. F1: all keys", n,
             n == 1 ? "" : "s");
}

static void forget(struct browser *b, bool again)
{
    struct verdict_view *v = b->state[VIEW_VERDICT];
    if (!again)
        return; /* the verdict is the same, whichever run is shown */
    lines_clear(&v->lines);
    v->read = false;
    v->nsteps = 0;
    tui_table_update(b->tables[VIEW_VERDICT]);
}

const struct view view_verdict = {.name = "Verdict",
                                  .rows = TUI_ROWS_LINES,
                                  .init = init,
                                  .fini = fini,
                                  .show = show,
                                  .target = target,
                                  .forget = forget,
                                  .about = about};
