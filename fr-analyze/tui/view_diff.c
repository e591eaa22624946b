/*
 * Two ranks' calls on one communicator side by side. What both called stands on one line;
 * what only one called stands alone. Bounded: a window of calls around the place asked for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fr-analyze/tui/browser.h"

#define WINDOW   192 /* seqs before and behind */
#define SIDE_MAX (2 * WINDOW + 64)

struct side {
    struct rec_member *member;
    struct rec_op ops[SIDE_MAX];
    uint64_t signatures[SIDE_MAX];
    size_t count;
    struct seek seek;
    bool reading;
};

/* NOTHING: this side has no call here. */
#define NOTHING UINT32_MAX
struct pair {
    uint32_t left, right;
    char mark; /* ' ' equal, '!' one argument differs, '<' only left, '>' only right */
};

struct diff_view {
    struct browser *browser;
    struct side sides[2];
    struct pair pairs[2 * SIDE_MAX];
    size_t npairs, differ;
    uint16_t longest[SIDE_MAX + 1][SIDE_MAX + 1]; /* common subsequence of what is left of both */
};

enum { COL_SEQ, COL_LEFT, COL_MARK, COL_RIGHT, COL_RIGHT_SEQ, COL_ORDER, COLUMNS };

static const struct tui_column columns[COLUMNS] = {
    [COL_SEQ] = {.name = "SEQ", .width = 9},
    [COL_LEFT] = {.name = "LEFT", .width = 28, .max_width = 60},
    [COL_MARK] = {.name = " ", .width = 2},
    [COL_RIGHT] = {.name = "RIGHT", .width = 28, .max_width = 60},
    [COL_RIGHT_SEQ] = {.name = "SEQ", .width = 9},
    [COL_ORDER] = {.name = "", .numeric = true, .rising = true},
};

/* ---- alignment ---- */

static void measure(struct diff_view *v)
{
    const struct side *a = &v->sides[0], *b = &v->sides[1];
    for (size_t i = a->count + 1; i-- > 0;) {
        for (size_t j = b->count + 1; j-- > 0;) {
            uint16_t *cell = &v->longest[i][j];
            if (i == a->count || j == b->count)
                *cell = 0;
            else if (a->signatures[i] == b->signatures[j])
                *cell = (uint16_t)(v->longest[i + 1][j + 1] + 1);
            else
                *cell =
                    v->longest[i + 1][j] > v->longest[i][j + 1] ? v->longest[i + 1][j] : v->longest[i][j + 1];
        }
    }
}

static void add_pair(struct diff_view *v, uint32_t left, uint32_t right, char mark)
{
    v->pairs[v->npairs++] = (struct pair){left, right, mark};
    v->differ += mark != ' ';
}

/* Where neither side explains the other, two calls of one seq are one call with another argument. */
static void align(struct diff_view *v)
{
    const struct side *a = &v->sides[0], *b = &v->sides[1];
    size_t i = 0, j = 0;
    v->npairs = v->differ = 0;
    measure(v);
    while (i < a->count || j < b->count) {
        bool left = i < a->count, right = j < b->count;
        if (left && right && a->signatures[i] == b->signatures[j]) {
            add_pair(v, (uint32_t)i++, (uint32_t)j++, ' ');
        } else if (left && right && v->longest[i + 1][j + 1] == v->longest[i][j]) {
            add_pair(v, (uint32_t)i++, (uint32_t)j++, '!');
        } else if (left && (!right || v->longest[i + 1][j] >= v->longest[i][j + 1])) {
            add_pair(v, (uint32_t)i++, NOTHING, '<');
        } else {
            add_pair(v, NOTHING, (uint32_t)j++, '>');
        }
    }
}

/* ---- reading ---- */

static void found(void *context, const struct rec_op *op)
{
    struct side *side = context;
    if (op == NULL) {
        side->count = 0;
        return;
    }
    if (side->count == SIDE_MAX)
        return;
    /* Threads are read in turn, so a call may come late; open calls come first. */
    size_t at = side->count++;
    while (at > 0 && side->ops[at - 1].seq > op->seq) {
        side->ops[at] = side->ops[at - 1];
        at--;
    }
    side->ops[at] = *op;
}

static void select_place(struct diff_view *v)
{
    uint64_t want = v->browser->here.seq;
    for (size_t i = 0; i < v->npairs; i++) {
        const struct pair *p = &v->pairs[i];
        uint64_t seq = p->left != NOTHING ? v->sides[0].ops[p->left].seq : v->sides[1].ops[p->right].seq;
        if (seq >= want || i + 1 == v->npairs) {
            tui_table_select_id(v->browser->tables[VIEW_DIFF], i + 1);
            return;
        }
    }
}

static bool work(struct browser *b, uint64_t deadline_ns)
{
    struct diff_view *v = b->state[VIEW_DIFF];
    bool any = false;
    for (int s = 0; s < 2; s++) {
        struct side *side = &v->sides[s];
        if (!side->reading)
            continue;
        any = true;
        if (!seek_step(&side->seek, deadline_ns))
            return true;
        side->reading = false;
    }
    if (!any)
        return false;
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < v->sides[s].count; i++)
            v->sides[s].signatures[i] =
                rec_process_signature(v->sides[s].member->process, &v->sides[s].ops[i]);
    align(v);
    tui_table_update(b->tables[VIEW_DIFF]);
    select_place(v);
    return true;
}

static bool show(struct browser *b, const struct place *place)
{
    struct diff_view *v = b->state[VIEW_DIFF];
    uint32_t processes[2] = {place->process, place->other};
    v->npairs = v->differ = 0;
    for (int s = 0; s < 2; s++) {
        struct side *side = &v->sides[s];
        seek_stop(&side->seek);
        side->count = 0;
        side->member = browse_member(b->data.processes[processes[s]], place->comm);
        side->reading = side->member != NULL;
        if (!side->reading)
            continue;
        uint64_t lo = place->seq > WINDOW ? place->seq - WINDOW : 0;
        side->seek = (struct seek){.job = b->data.job,
                                   .member = side->member,
                                   .lo = lo > side->member->first_seq ? lo : side->member->first_seq,
                                   .hi = place->seq + WINDOW,
                                   .peer = -1,
                                   .kinds = REC_KF_SEQ | REC_KF_TEARDOWN,
                                   .found = found,
                                   .context = side};
        seek_start(&side->seek, 0);
    }
    return tui_table_update(b->tables[VIEW_DIFF]);
}

static bool target(struct browser *b, struct place *to)
{
    struct diff_view *v = b->state[VIEW_DIFF];
    size_t row = tui_table_selected(b->tables[VIEW_DIFF]);
    if (row >= v->npairs)
        return false;
    const struct pair *p = &v->pairs[row];
    int s = p->left == NOTHING;
    const struct side *side = &v->sides[s];
    *to = browse_op_place(side->member->process, &side->ops[s ? p->right : p->left]);
    return true;
}

/* ---- cells ---- */

static size_t rows(void *context)
{
    return ((const struct diff_view *)context)->npairs;
}

static uint64_t id(void *context, size_t row)
{
    (void)context;
    return row + 1;
}

static void cell_of(void *context, size_t row, unsigned column, struct tui_cell *cell)
{
    static const char *const marks[][2] = {{"≠", "!"}, {"<", "<"}, {">", ">"}};
    const struct diff_view *v = context;
    const struct pair *p = &v->pairs[row];
    bool right = column == COL_RIGHT || column == COL_RIGHT_SEQ;
    uint32_t at = right ? p->right : p->left;
    cell->number = (double)row;
    cell->style = p->mark != ' ' ? TUI_BAD : TUI_NORMAL;
    if (column == COL_MARK && p->mark != ' ')
        snprintf(cell->text, sizeof cell->text, "%s",
                 marks[p->mark == '!'   ? 0
                       : p->mark == '<' ? 1
                                        : 2][!tui_utf8()]);
    if (column == COL_MARK || column == COL_ORDER)
        return;
    bool seq = column == COL_SEQ || column == COL_RIGHT_SEQ;
    if (at == NOTHING) {
        snprintf(cell->text, sizeof cell->text, "%s", seq ? "" : "-----");
        return;
    }
    const struct rec_op *op = &v->sides[right].ops[at];
    if (seq)
        snprintf(cell->text, sizeof cell->text, "%llu", (unsigned long long)op->seq);
    else
        word_op(cell->text, sizeof cell->text, op);
}

static const struct tui_source source = {.rows = rows, .id = id, .cell = cell_of};

static void about(struct browser *b, char *text, size_t size, enum tui_style *style)
{
    const struct diff_view *v = b->state[VIEW_DIFF];
    char comm[64], end[2][48];
    word_comm(comm, sizeof comm, b->here.comm);
    for (int s = 0; s < 2; s++) {
        const struct rec_member *m = v->sides[s].member;
        snprintf(end[s], sizeof end[s], "rank %d (%llu ops)", m != NULL ? m->process->rank : -1,
                 (unsigned long long)(m != NULL ? m->next_seq : 0));
    }
    bool reading = v->sides[0].reading || v->sides[1].reading;
    *style = v->differ > 0 ? TUI_BAD : TUI_NORMAL;
    snprintf(text, size, "%s: left %s, right %s; %s%zu lines differ of %zu", comm, end[0], end[1],
             reading ? "reading, " : "", v->differ, v->npairs);
}

static bool init(struct browser *b)
{
    struct diff_view *v = calloc(1, sizeof *v);
    b->state[VIEW_DIFF] = v;
    if (v == NULL)
        return false;
    v->browser = b;
    b->tables[VIEW_DIFF] = tui_table_new(columns, COLUMNS, &source, v);
    if (b->tables[VIEW_DIFF] != NULL)
        tui_table_sort(b->tables[VIEW_DIFF], COL_ORDER, false);
    return b->tables[VIEW_DIFF] != NULL;
}

static void fini(struct browser *b)
{
    struct diff_view *v = b->state[VIEW_DIFF];
    if (v == NULL)
        return;
    for (int s = 0; s < 2; s++)
        seek_stop(&v->sides[s].seek);
    free(v);
}

const struct view view_diff = {.name = "Diff",
                               .keys = KEYS_LINES,
                               .init = init,
                               .fini = fini,
                               .show = show,
                               .target = target,
                               .work = work,
                               .about = about};
