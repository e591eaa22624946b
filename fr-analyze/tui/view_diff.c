/*
 * Two ranks' calls side by side: those on one communicator by seq, or those on all that both
 * share in the order of their time. What both called stands on one line; what only one
 * called stands alone. Bounded: a window of calls around the place asked for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fr-analyze/tui/browser.h"

#define WINDOW   192 /* seqs before and behind */
#define SIDE_MAX (2 * WINDOW + 64)
#define BATCH    256
#define NS_PER_S UINT64_C(1000000000)

enum { CMD_ALL = CMD_OWN };

static const struct tui_binding bindings[] = {
    {CMD_ALL, {TUI_F(6), 'c'}, "Comms", "this communicator by seq, or all that both share by time"},
};

struct side {
    struct rec_member *member;
    struct rec_op ops[SIDE_MAX];
    uint64_t signatures[SIDE_MAX];
    size_t count;
    struct seek seek;      /* one communicator */
    struct rec_scan *scan; /* all of them */
    size_t before;         /* ops before the time asked for */
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
    bool all;         /* communicators */
    uint64_t when_ns; /* all: the time asked for, common clock */
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

/* Where a window by time was cut, the other side may have calls that this one had too. */
static void trim(struct diff_view *v)
{
    bool front = false, back = false;
    size_t first = 0, last = v->npairs;
    for (int s = 0; s < 2; s++) {
        front |= v->sides[s].before == WINDOW;
        back |= v->sides[s].count - v->sides[s].before == WINDOW;
    }
    while (front && first < last && v->pairs[first].mark != ' ')
        first++;
    while (back && last > first && v->pairs[last - 1].mark != ' ')
        last--;
    if (first == last)
        return; /* nothing in common: then all of it is worth showing */
    v->npairs = v->differ = 0;
    for (size_t i = first; i < last; i++)
        add_pair(v, v->pairs[i].left, v->pairs[i].right, v->pairs[i].mark);
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

/* ---- reading, all communicators ---- */

static bool shared_comm(const struct diff_view *v, const struct side *side, const struct rec_op *op)
{
    const struct side *other = &v->sides[side == &v->sides[0]];
    const struct rec_member *m = rec_process_member(side->member->process, op->comm);
    return m != NULL && rec_kind_flags(op->kind) & (REC_KF_SEQ | REC_KF_P2P | REC_KF_TEARDOWN) &&
           browse_member(other->member->process, m->comm) != NULL;
}

/* Keeps the last WINDOW before the time asked for and the first WINDOW behind it; false = enough. */
static bool take(struct diff_view *v, struct side *side, const struct rec_op *op)
{
    if (!shared_comm(v, side, op))
        return true;
    bool before = browse_common_ns(&v->browser->data, side->member->process, op->enter_ns) < v->when_ns;
    if (before && side->before == WINDOW) {
        memmove(side->ops, side->ops + 1, (side->count - 1) * sizeof *side->ops);
        side->count--;
        side->before--;
    }
    if (side->count == SIDE_MAX)
        return false;
    size_t at = side->count++;
    while (at > 0 && side->ops[at - 1].enter_ns > op->enter_ns) {
        side->ops[at] = side->ops[at - 1];
        at--;
    }
    side->ops[at] = *op;
    side->before += before;
    return side->count - side->before < WINDOW;
}

static void start_all(struct diff_view *v, struct side *side)
{
    const struct rec_process *p = side->member->process;
    uint64_t life = p->last_call_ns > p->start_ns ? p->last_call_ns - p->start_ns : 0;
    uint64_t around = p->ops > 0 ? life / p->ops * WINDOW * 2 : 0;
    around = around > NS_PER_S ? around : NS_PER_S;
    uint64_t when_ns = browse_host_ns(&v->browser->data, p, v->when_ns);
    struct rec_scan_filter filter = {.from_ns = when_ns > around ? when_ns - around : 0};
    side->before = 0;
    for (uint32_t i = 0; i < p->nopen; i++)
        take(v, side, &p->open[i]);
    side->reading = rec_scan_open(v->browser->data.job, p, &filter, &side->scan, NULL) == REC_OK;
}

/* true = done */
static bool read_all(struct diff_view *v, struct side *side, uint64_t deadline_ns)
{
    struct rec_event event;
    do {
        for (int i = 0; i < BATCH; i++) {
            if (rec_scan_next(side->scan, &event, NULL) != REC_OK)
                return true;
            if (event.type == REC_EV_OP && !take(v, side, &event.u.op))
                return true;
        }
    } while (monotonic_ns() < deadline_ns);
    return false;
}

static void stop(struct side *side)
{
    seek_stop(&side->seek);
    rec_scan_close(side->scan);
    side->scan = NULL;
    side->reading = false;
}

/* ---- the place ---- */

static uint64_t signature_of(const struct diff_view *v, const struct side *side, const struct rec_op *op)
{
    uint64_t signature = rec_process_signature(side->member->process, op);
    const struct rec_member *m = rec_process_member(side->member->process, op->comm);
    return v->all && m != NULL ? rec_mix64(signature ^ (m->comm->index + 1)) : signature;
}

/* To the first difference near the place asked for, else to the place. */
static void select_place(struct diff_view *v)
{
    uint64_t want = v->browser->here.seq;
    for (size_t i = 0; v->all && i < v->npairs; i++) {
        if (v->pairs[i].mark != ' ') {
            tui_table_select_id(v->browser->tables[VIEW_DIFF], i + 1);
            return;
        }
    }
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
        if (v->all ? !read_all(v, side, deadline_ns) : !seek_step(&side->seek, deadline_ns))
            return true;
        stop(side);
    }
    if (!any)
        return false;
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < v->sides[s].count; i++)
            v->sides[s].signatures[i] = signature_of(v, &v->sides[s], &v->sides[s].ops[i]);
    align(v);
    if (v->all)
        trim(v);
    tui_table_update(b->tables[VIEW_DIFF]);
    select_place(v);
    return true;
}

static void start_one(struct diff_view *v, struct side *side, uint64_t seq)
{
    uint64_t lo = seq > WINDOW ? seq - WINDOW : 0;
    side->seek = (struct seek){.job = v->browser->data.job,
                               .member = side->member,
                               .lo = lo > side->member->first_seq ? lo : side->member->first_seq,
                               .hi = seq + WINDOW,
                               .peer = -1,
                               .kinds = REC_KF_SEQ | REC_KF_TEARDOWN,
                               .found = found,
                               .context = side};
    seek_start(&side->seek, 0);
    side->reading = true;
}

static bool read_sides(struct browser *b, bool all)
{
    struct diff_view *v = b->state[VIEW_DIFF];
    const struct rec_process *pair[2] = {b->data.processes[b->here.process],
                                         b->data.processes[b->here.other]};
    v->npairs = v->differ = 0;
    v->all = all;
    v->when_ns =
        b->here.when_ns != 0 ? b->here.when_ns : browse_common_ns(&b->data, pair[0], pair[0]->last_call_ns);
    for (int s = 0; s < 2; s++) {
        stop(&v->sides[s]);
        v->sides[s].count = 0;
        v->sides[s].member = browse_member(pair[s], b->here.comm);
    }
    for (int s = 0; s < 2; s++) {
        if (v->sides[!s].member == NULL || v->sides[s].member == NULL)
            continue;
        if (all)
            start_all(v, &v->sides[s]);
        else
            start_one(v, &v->sides[s], b->here.seq);
    }
    return tui_table_update(b->tables[VIEW_DIFF]);
}

/* Messages have no common seq, and where the order of communicators is wrong, one alone shows nothing. */
static bool show(struct browser *b, const struct place *place)
{
    const struct rec_finding *first = &b->data.verdict->findings[0];
    bool message =
        place->src >= 0 || (rec_kind_flags(first->op.kind) & REC_KF_P2P && first->comm == place->comm);
    return read_sides(b, message || first->type == REC_VERDICT_ORDER_INVERSION);
}

static bool command(struct browser *b, int cmd)
{
    struct diff_view *v = b->state[VIEW_DIFF];
    if (cmd != CMD_ALL)
        return false;
    if (!read_sides(b, !v->all))
        snprintf(b->shell.status, sizeof b->shell.status, "no memory");
    return true;
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
    *to = browse_op_place(&b->data, side->member->process, &side->ops[s ? p->right : p->left]);
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

static void put_call(struct tui_cell *cell, const struct diff_view *v, const struct side *side,
                     const struct rec_op *op)
{
    word_op(cell->text, sizeof cell->text, op);
    const struct rec_member *m = rec_process_member(side->member->process, op->comm);
    if (!v->all || m == NULL)
        return;
    char text[sizeof cell->text], name[64];
    word_comm(name, sizeof name, m->comm);
    snprintf(text, sizeof text, "%.24s: %.90s", name, cell->text);
    memcpy(cell->text, text, sizeof text);
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
        put_call(cell, v, &v->sides[right], op);
}

static const struct tui_source source = {.rows = rows, .id = id, .cell = cell_of};

static void about(struct browser *b, char *text, size_t size, enum tui_style *style)
{
    const struct diff_view *v = b->state[VIEW_DIFF];
    char comm[64], end[2][48];
    word_comm(comm, sizeof comm, b->here.comm);
    if (v->all)
        snprintf(comm, sizeof comm, "all they share");
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
        stop(&v->sides[s]);
    free(v);
}

static void forget(struct browser *b, bool again)
{
    struct diff_view *v = b->state[VIEW_DIFF];
    (void)again;
    for (int s = 0; s < 2; s++) {
        stop(&v->sides[s]);
        v->sides[s].count = 0;
    }
    v->npairs = 0;
    tui_table_update(b->tables[VIEW_DIFF]);
}

const struct view view_diff = {.name = "Diff",
                               .rows = TUI_ROWS_LINES,
                               .init = init,
                               .fini = fini,
                               .show = show,
                               .target = target,
                               .bindings = bindings,
                               .nbindings = sizeof bindings / sizeof bindings[0],
                               .work = work,
                               .forget = forget,
                               .about = about,
                               .command = command};
