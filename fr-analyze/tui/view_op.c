/*
 * One op on all ranks: every member's signature, what differs, how far each came. Members
 * that never entered it are known at once; the others' records are read in steps.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "fr-analyze/tui/browser.h"

enum fate { OP_PENDING, OP_FOUND, OP_NOT_ENTERED, OP_NO_RECORD, OP_NO_TRACE };

struct entry {
    struct rec_member *member; /* NULL: no trace */
    uint32_t comm_rank;
    enum fate fate;
    struct rec_op op; /* its times on the common clock */
    uint64_t signature;
};

struct op_view {
    struct browser *browser;
    struct entry *entries;
    size_t count;
    size_t next; /* first entry that may be pending */
    struct seek seek;
    bool seeking;
    struct rec_op reference; /* what most called; kind REC_NONE = nothing found yet */
    uint64_t usual;          /* its signature */
    size_t found, differ, absent;
    uint64_t first_ns; /* first entry of all */
    uint64_t *sorted;  /* signatures, for counting */
};

enum {
    COL_PLACE,
    COL_RANK,
    COL_FIT,
    COL_CALL,
    COL_COUNT,
    COL_TYPE,
    COL_REDOP,
    COL_ROOT,
    COL_ENTER,
    COL_STATE,
    COL_TOOK,
    COL_CODE,
    COL_HOST,
    COL_RESULT,
    COL_ROLE,
    COLUMNS
};

static const struct tui_column columns[COLUMNS] = {
    [COL_PLACE] = {.name = "#", .help = "comm rank", .width = 4, .numeric = true, .rising = true},
    [COL_RANK] = {.name = "RANK", .help = "place in the job", .width = 5, .numeric = true, .rising = true},
    [COL_FIT] = {.name = "FIT", .help = "is the call the one that most made?", .width = 11},
    [COL_CALL] = {.name = "CALL", .help = "what it called", .width = 10, .max_width = 20},
    [COL_COUNT] =
        {.name = "COUNT", .help = "number of elements", .width = 10, .max_width = 16, .numeric = true},
    [COL_TYPE] = {.name = "TYPE", .help = "data type", .width = 5, .max_width = 7},
    [COL_REDOP] = {.name = "OP", .help = "reduction", .width = 4, .max_width = 6, .yields = 2},
    [COL_ROOT] = {.name = "ROOT", .help = "root of the call", .width = 4, .max_width = 6, .yields = 3},
    [COL_ENTER] =
        {.name = "ENTERED", .help = "after the first one", .width = 10, .numeric = true, .yields = 2},
    [COL_STATE] = {.name = "PROGRESS", .help = "how far the call came", .width = 11},
    [COL_TOOK] = {.name = "TOOK", .help = "from entry to return", .width = 9, .numeric = true, .yields = 4},
    [COL_CODE] =
        {.name = "CODE", .help = "line of code that called", .width = 12, .max_width = 48, .yields = 1},
    [COL_HOST] = {.name = "HOST", .help = "where it ran", .width = 8, .max_width = 32, .yields = 5},
    [COL_RESULT] =
        {.name = "RESULT", .help = "what NCCL returned", .width = 10, .max_width = 20, .yields = 6},
    [COL_ROLE] = {.name = "VERDICT", .help = "what the findings say of the rank", .width = 8, .yields = 7},
};

/* ---- what is read ---- */

static void found(void *context, const struct rec_op *op)
{
    struct op_view *v = context;
    struct entry *e = &v->entries[v->next];
    e->fate = op != NULL ? OP_FOUND : OP_PENDING;
    if (op == NULL)
        return;
    const struct browse_data *data = &v->browser->data;
    e->op = *op;
    e->op.enter_ns = browse_common_ns(data, e->member->process, op->enter_ns);
    e->op.exit_ns = browse_common_ns(data, e->member->process, op->exit_ns);
    e->signature = rec_process_signature(e->member->process, op);
}

static bool is_message(const struct place *place)
{
    return place->src >= 0;
}

static void start(struct op_view *v, struct entry *e)
{
    const struct place *here = &v->browser->here;
    bool send = is_message(here) && e->comm_rank == (uint32_t)here->src;
    v->seek = (struct seek){.job = v->browser->data.job,
                            .member = e->member,
                            .lo = here->seq,
                            .hi = here->seq,
                            .peer = !is_message(here) ? -1
                                    : send            ? here->dst
                                                      : here->src,
                            .send = send,
                            .kinds = here->teardown ? REC_KF_TEARDOWN : REC_KF_SEQ,
                            .found = found,
                            .context = v};
    seek_start(&v->seek, browse_host_ns(&v->browser->data, e->member->process, here->when_ns));
    v->seeking = true;
}

static int compare_u64(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* The signature that most have; of several the lowest comm rank's. */
static void find_usual(struct op_view *v)
{
    size_t n = 0, best = 0;
    for (size_t i = 0; i < v->count; i++)
        if (v->entries[i].fate == OP_FOUND)
            v->sorted[n++] = v->entries[i].signature;
    if (n > 0)
        qsort(v->sorted, n, sizeof *v->sorted, compare_u64);
    for (size_t i = 0; i < v->count; i++) {
        const struct entry *e = &v->entries[i];
        if (e->fate != OP_FOUND || (best > 0 && e->signature == v->usual))
            continue;
        size_t lo = 0, hi = n;
        while (lo < hi) {
            size_t middle = lo + (hi - lo) / 2;
            if (v->sorted[middle] < e->signature)
                lo = middle + 1;
            else
                hi = middle;
        }
        size_t same = 0;
        while (lo + same < n && v->sorted[lo + same] == e->signature)
            same++;
        if (same > best) {
            best = same;
            v->usual = e->signature;
            v->reference = e->op;
        }
    }
}

static void conclude(struct op_view *v)
{
    v->found = v->differ = v->absent = 0;
    v->first_ns = 0;
    v->reference.kind = REC_NONE;
    find_usual(v);
    for (size_t i = 0; i < v->count; i++) {
        const struct entry *e = &v->entries[i];
        v->absent += e->fate == OP_NOT_ENTERED;
        if (e->fate != OP_FOUND)
            continue;
        v->found++;
        v->differ += e->signature != v->usual;
        if (e->op.enter_ns != 0 && (v->first_ns == 0 || e->op.enter_ns < v->first_ns))
            v->first_ns = e->op.enter_ns;
    }
    tui_table_update(v->browser->tables[VIEW_OP]);
}

static bool work(struct browser *b, uint64_t deadline_ns)
{
    struct op_view *v = b->state[VIEW_OP];
    bool any = false;
    while (v->next < v->count && (!any || monotonic_ns() < deadline_ns)) {
        struct entry *e = &v->entries[v->next];
        any = true;
        if (e->fate == OP_PENDING) {
            if (!v->seeking)
                start(v, e);
            if (!seek_step(&v->seek, deadline_ns))
                break;
            v->seeking = false;
            if (e->fate == OP_PENDING)
                e->fate = OP_NO_RECORD;
        }
        v->next++;
    }
    if (any)
        conclude(v);
    return any;
}

/* ---- the place ---- */

static enum fate fate_at_first(const struct place *place, const struct rec_member *m)
{
    if (m == NULL)
        return OP_NO_TRACE;
    if (!is_message(place) && !place->teardown && place->seq >= m->next_seq)
        return OP_NOT_ENTERED;
    return place->teardown && m->teardown.kind == REC_NONE ? OP_NOT_ENTERED : OP_PENDING;
}

static bool list(struct op_view *v, const struct place *place)
{
    const struct rec_communicator *c = place->comm;
    size_t room = (size_t)c->nmembers + 2 + (c->nranks < 1u << 20 ? c->nranks : 0);
    free(v->entries);
    free(v->sorted);
    v->count = v->next = 0;
    v->entries = calloc(room, sizeof *v->entries);
    v->sorted = calloc(room, sizeof *v->sorted);
    if (v->entries == NULL || v->sorted == NULL)
        return false;
    if (is_message(place)) {
        int32_t ends[2] = {place->src, place->dst};
        for (int i = 0; i < 2; i++) {
            struct rec_member *m = browse_member_at(c, ends[i]);
            v->entries[v->count++] =
                (struct entry){.member = m, .comm_rank = (uint32_t)ends[i], .fate = fate_at_first(place, m)};
        }
        return true;
    }
    uint32_t next = 0;
    for (uint32_t i = 0; i < c->nmembers; i++) {
        struct rec_member *m = c->members[i];
        for (; m->comm_rank != REC_ID_NONE && next < m->comm_rank && v->count + c->nmembers - i + 1 < room;
             next++)
            v->entries[v->count++] = (struct entry){.comm_rank = next, .fate = OP_NO_TRACE};
        v->entries[v->count++] =
            (struct entry){.member = m, .comm_rank = m->comm_rank, .fate = fate_at_first(place, m)};
        next = m->comm_rank != REC_ID_NONE ? m->comm_rank + 1 : next;
    }
    for (; next < c->nranks && v->count < room; next++)
        v->entries[v->count++] = (struct entry){.comm_rank = next, .fate = OP_NO_TRACE};
    return true;
}

static bool show(struct browser *b, const struct place *place)
{
    struct op_view *v = b->state[VIEW_OP];
    seek_stop(&v->seek);
    v->seeking = false;
    if (!list(v, place))
        return false;
    conclude(v);
    for (size_t i = 0; i < v->count; i++) {
        const struct rec_member *m = v->entries[i].member;
        if (m != NULL && m->process->index == place->process)
            tui_table_select_id(b->tables[VIEW_OP], i + 1);
    }
    return true;
}

bool op_row_place(const struct browser *b, size_t row, struct place *to)
{
    const struct op_view *v = b->state[VIEW_OP];
    if (row >= v->count || v->entries[row].member == NULL)
        return false;
    const struct entry *e = &v->entries[row];
    *to = b->here;
    to->process = e->member->process->index;
    to->view = e->fate == OP_FOUND ? VIEW_CALL : VIEW_RANK;
    to->when_ns = e->op.enter_ns;
    to->has_row = false;
    return true;
}

static bool target(struct browser *b, struct place *to)
{
    return op_row_place(b, tui_table_selected(b->tables[VIEW_OP]), to);
}

/* ---- cells ---- */

static size_t rows(void *context)
{
    return ((const struct op_view *)context)->count;
}

static uint64_t id(void *context, size_t row)
{
    (void)context;
    return row + 1;
}

/* Of each argument: the text, and whether most have another one. A star says so without colour. */
static void put_argument(struct tui_cell *cell, unsigned column, const struct op_view *v,
                         const struct rec_op *op)
{
    const struct rec_op *usual = &v->reference;
    unsigned flags = rec_kind_flags(op->kind);
    char text[96] = "", buffer[24];
    bool other = false;
    switch (column) {
    case COL_CALL:
        snprintf(text, sizeof text, "%s", word_kind(op, buffer));
        /* The two ends of a message have two names. */
        other = !(flags & REC_KF_P2P) && rec_kind_canonical(op->kind) != rec_kind_canonical(usual->kind);
        break;
    case COL_COUNT:
        if (!(flags & REC_KF_DATA) && rec_kind_canonical(op->kind) != REC_COMM_INIT_RANK)
            return;
        word_count(text, sizeof text, op->count);
        cell->number = (double)op->count;
        other = op->count != usual->count;
        break;
    case COL_TYPE:
        if (!(flags & REC_KF_DATA))
            return;
        snprintf(text, sizeof text, "%s",
                 rec_dtype_name(op->dtype) != NULL ? rec_dtype_name(op->dtype) : "?");
        other = op->dtype != usual->dtype;
        break;
    case COL_REDOP:
        if (!(flags & REC_KF_REDOP))
            return;
        snprintf(text, sizeof text, "%s",
                 rec_redop_name(op->redop) != NULL ? rec_redop_name(op->redop) : "?");
        /* A user's operators have numbers of their own on each rank. */
        other = op->redop != usual->redop && (op->redop < REC_REDOP_USER || usual->redop < REC_REDOP_USER);
        break;
    default:
        if (!(flags & REC_KF_ROOT))
            return;
        snprintf(text, sizeof text, "%d", op->peer);
        other = op->peer != usual->peer;
    }
    snprintf(cell->text, sizeof cell->text, "%s%s", other ? "*" : "", text);
    if (other)
        cell->style = TUI_BAD;
}

static void put_found(struct tui_cell *cell, unsigned column, const struct op_view *v, const struct entry *e)
{
    const struct rec_op *op = &e->op;
    const struct rec_callsite_def *site;
    const char *name;
    uint64_t span;
    switch (column) {
    case COL_FIT:
        snprintf(cell->text, sizeof cell->text, "%s", e->signature == v->usual ? "same" : "DIFFERS");
        cell->style = e->signature == v->usual ? TUI_NORMAL : TUI_BAD;
        break;
    case COL_STATE:
        name = rec_state_name(op->state);
        snprintf(cell->text, sizeof cell->text, "%s", name != NULL ? name : "?");
        cell->style = style_state(op->state);
        break;
    case COL_ENTER:
        cell->text[0] = '+';
        word_span(cell->text + 1, sizeof cell->text - 1, op->enter_ns - v->first_ns);
        cell->number = (double)(op->enter_ns - v->first_ns);
        break;
    case COL_TOOK:
        if (op->exit_ns == 0) {
            snprintf(cell->text, sizeof cell->text, "open");
            cell->style = TUI_WARN;
            break;
        }
        span = op->exit_ns - op->enter_ns;
        word_span(cell->text, sizeof cell->text, span);
        cell->number = (double)span;
        break;
    case COL_CODE:
        site = rec_process_callsite(e->member->process, op->callsite);
        if (site != NULL)
            rec_callsite_text(site, v->browser->symbolizer, cell->text, sizeof cell->text);
        break;
    case COL_RESULT:
        name = rec_result_name(op->result);
        snprintf(cell->text, sizeof cell->text, "%s", name != NULL ? name : "-");
        cell->style = op->result == REC_RESULT_SUCCESS || name == NULL ? TUI_NORMAL : TUI_BAD;
        break;
    default:
        put_argument(cell, column, v, op);
    }
}

static void cell_of(void *context, size_t row, unsigned column, struct tui_cell *cell)
{
    static const char *const fates[] = {[OP_PENDING] = "reading",
                                        [OP_NOT_ENTERED] = "NOT ENTERED",
                                        [OP_NO_RECORD] = "no record",
                                        [OP_NO_TRACE] = "no trace"};
    const struct op_view *v = context;
    const struct entry *e = &v->entries[row];
    const struct rank_figures *rank =
        e->member != NULL ? &v->browser->data.ranks[v->browser->data.rank_of[e->member->process->index]]
                          : NULL;
    switch (column) {
    case COL_PLACE:
        if (e->comm_rank != REC_ID_NONE) {
            snprintf(cell->text, sizeof cell->text, "%u", e->comm_rank);
            cell->number = e->comm_rank;
        }
        return;
    case COL_RANK:
        snprintf(cell->text, sizeof cell->text, "?");
        if (rank == NULL || rank->rank < 0)
            return;
        snprintf(cell->text, sizeof cell->text, "%d", rank->rank);
        cell->number = rank->rank;
        cell->style = style_role(rank->role);
        return;
    case COL_ROLE:
        if (rank != NULL)
            snprintf(cell->text, sizeof cell->text, "%s", rec_role_name(rank->role));
        return;
    case COL_HOST:
        if (e->member != NULL)
            snprintf(cell->text, sizeof cell->text, "%s", e->member->process->host);
        return;
    default:
        break;
    }
    if (e->fate == OP_FOUND) {
        put_found(cell, column, v, e);
    } else if (column == COL_FIT) {
        snprintf(cell->text, sizeof cell->text, "%s", fates[e->fate]);
        cell->style = e->fate == OP_NOT_ENTERED ? TUI_BAD : TUI_WARN;
    }
}

static const struct tui_source source = {.rows = rows, .id = id, .cell = cell_of};

static void about(struct browser *b, char *text, size_t size, enum tui_style *style)
{
    const struct op_view *v = b->state[VIEW_OP];
    char comm[64], op[128] = "", reading[64] = "";
    word_comm(comm, sizeof comm, b->here.comm);
    if (v->reference.kind != REC_NONE)
        word_op(op, sizeof op, &v->reference);
    if (v->next < v->count)
        snprintf(reading, sizeof reading, ", reading %zu of %zu", v->next, v->count);
    *style = v->differ + v->absent > 0 ? TUI_BAD : TUI_NORMAL;
    const char *what = is_message(&b->here) ? "message" : b->here.teardown ? "teardown before op" : "op";
    snprintf(text, size, "%s, %s %llu: %s; %zu entered, %zu differ, %zu not entered%s", comm, what,
             (unsigned long long)b->here.seq, op, v->found, v->differ, v->absent, reading);
}

static bool init(struct browser *b)
{
    struct op_view *v = calloc(1, sizeof *v);
    b->state[VIEW_OP] = v;
    if (v == NULL)
        return false;
    v->browser = b;
    return (b->tables[VIEW_OP] = tui_table_new(columns, COLUMNS, &source, v)) != NULL;
}

static void fini(struct browser *b)
{
    struct op_view *v = b->state[VIEW_OP];
    if (v == NULL)
        return;
    seek_stop(&v->seek);
    free(v->entries);
    free(v->sorted);
    free(v);
}

static void forget(struct browser *b, bool again)
{
    struct op_view *v = b->state[VIEW_OP];
    (void)again;
    seek_stop(&v->seek);
    v->seeking = false;
    v->count = v->next = 0;
    tui_table_update(b->tables[VIEW_OP]);
}

const struct view view_op = {.name = "Op",
                             .rows = TUI_ROWS_TABLE,
                             .init = init,
                             .fini = fini,
                             .show = show,
                             .target = target,
                             .work = work,
                             .forget = forget,
                             .about = about};
