/* Communicators by lineage, and the members of one. */
#include <stdio.h>
#include <stdlib.h>

#include "fr-analyze/tui/browser.h"
#include "fr-common.h"

static void put(struct tui_cell *cell, uint64_t value)
{
    snprintf(cell->text, sizeof cell->text, "%llu", (unsigned long long)value);
    cell->number = (double)value;
}

static void put_worry(struct tui_cell *cell, uint64_t value, enum tui_style style)
{
    put(cell, value);
    cell->style = value > 0 ? style : TUI_DIM;
}

/* ---- all of them ---- */

enum {
    COL_NAME,
    COL_STATUS,
    COL_RANKS,
    COL_MEMBERS,
    COL_OPS,
    COL_SPREAD,
    COL_BEHIND,
    COL_P2P,
    COL_LOST,
    COL_MADE,
    COL_UID,
    COLUMNS
};

static const struct tui_column columns[COLUMNS] = {
    [COL_NAME] = {.name = "COMMUNICATOR",
                  .help = "name, or the first half of its uid; below it those made from it",
                  .width = 16,
                  .tree_width = 20,
                  .max_width = 40},
    [COL_STATUS] = {.name = "STATUS", .help = "first finding about it, or how even it is", .width = 19},
    [COL_RANKS] =
        {.name = "RANKS", .help = "members seen, of how many", .width = 9, .max_width = 12, .numeric = true},
    [COL_MEMBERS] = {.name = "MEMBERS", .help = "job ranks of those seen", .width = 10, .max_width = 30},
    [COL_OPS] = {.name = "OPS",
                 .help = "calls that the foremost member entered",
                 .width = 7,
                 .numeric = true},
    [COL_SPREAD] = {.name = "SPREAD",
                    .help = "calls between the first and the last member",
                    .width = 7,
                    .numeric = true},
    [COL_BEHIND] =
        {.name = "BEHIND", .help = "members behind the foremost", .width = 6, .numeric = true, .yields = 1},
    [COL_P2P] =
        {.name = "SEND/RECV", .help = "messages of all members", .width = 9, .numeric = true, .yields = 2},
    [COL_LOST] = {.name = "LOST", .help = "calls without a record", .width = 6, .numeric = true, .yields = 1},
    [COL_MADE] =
        {.name = "MADE BY", .help = "the call that made it", .width = 12, .max_width = 20, .yields = 3},
    [COL_UID] = {.name = "UID", .help = "equal on all members", .width = 16, .yields = 4},
};

static size_t rows(void *context)
{
    return ((const struct browser *)context)->data.nshown;
}

static const struct rec_communicator *comm_at(const struct browser *b, size_t row)
{
    return b->data.comms[b->data.shown[row]];
}

static uint64_t id(void *context, size_t row)
{
    (void)context;
    return row + 1;
}

static size_t parent(void *context, size_t row)
{
    const struct browser *b = context;
    const struct rec_communicator *up = comm_at(b, row)->parent;
    return up != NULL && b->data.shown_at[up->index] != BROWSE_NONE ? b->data.shown_at[up->index]
                                                                    : TUI_NO_ROW;
}

static void put_status(struct tui_cell *cell, const struct browse_data *data,
                       const struct rec_communicator *c)
{
    const struct comm_figures *f = &data->figures[c->index];
    const char *text = "even";
    if (f->finding != BROWSE_NONE) {
        text = rec_verdict_type_name(data->verdict->findings[f->finding].type);
        cell->style = TUI_BAD;
    } else if (c->nmembers < c->nranks) {
        text = "members not seen";
        cell->style = TUI_WARN;
    } else if (f->behind > 0) {
        text = "uneven";
        cell->style = TUI_WARN;
    } else if (f->ended == c->nmembers) {
        text = "torn down";
        cell->style = TUI_DIM;
    }
    snprintf(cell->text, sizeof cell->text, "%s", text);
}

/* Communicators of one name differ in who they are for. */
static void put_members(struct tui_cell *cell, const struct rec_communicator *c)
{
    int32_t *ranks = malloc((c->nmembers + 1u) * sizeof *ranks);
    for (uint32_t m = 0; ranks != NULL && m < c->nmembers; m++)
        ranks[m] = c->members[m]->process->rank;
    if (ranks != NULL)
        fr_fold_unsorted(cell->text, sizeof cell->text, ranks, c->nmembers);
    free(ranks);
}

static void cell_of(void *context, size_t row, unsigned column, struct tui_cell *cell)
{
    const struct browser *b = context;
    const struct rec_communicator *c = comm_at(b, row);
    const struct comm_figures *f = &b->data.figures[c->index];
    const char *made;
    uint64_t p2p = 0;
    switch (column) {
    case COL_NAME:
        word_comm(cell->text, sizeof cell->text, c);
        cell->style = f->finding != BROWSE_NONE ? TUI_BAD : TUI_NORMAL;
        break;
    case COL_STATUS:
        put_status(cell, &b->data, c);
        break;
    case COL_RANKS:
        snprintf(cell->text, sizeof cell->text, "%u/%u", c->nmembers, c->nranks);
        cell->number = c->nranks;
        cell->style = c->nmembers < c->nranks ? TUI_WARN : TUI_NORMAL;
        break;
    case COL_MEMBERS:
        put_members(cell, c);
        break;
    case COL_OPS:
        put(cell, f->front);
        break;
    case COL_SPREAD:
        put_worry(cell, f->front - f->back, TUI_WARN);
        break;
    case COL_BEHIND:
        put_worry(cell, f->behind, TUI_WARN);
        break;
    case COL_P2P:
        for (uint32_t m = 0; m < c->nmembers; m++)
            p2p += c->members[m]->p2p_entered;
        put(cell, p2p);
        break;
    case COL_LOST:
        put_worry(cell, f->lost, TUI_WARN);
        break;
    case COL_MADE:
        made = rec_kind_name(c->made_by);
        snprintf(cell->text, sizeof cell->text, "%s", made != NULL ? made : "-");
        break;
    default:
        snprintf(cell->text, sizeof cell->text, "%016llx", (unsigned long long)c->uid);
    }
}

/* Also a list has them all. */
static bool inner(void *context, size_t row)
{
    (void)context;
    (void)row;
    return false;
}

static const struct tui_source source = {rows, id, parent, cell_of, inner};

static bool init(struct browser *b)
{
    b->tables[VIEW_COMMS] = tui_table_new(columns, COLUMNS, &source, b);
    if (b->tables[VIEW_COMMS] == NULL)
        return false;
    tui_table_set_tree(b->tables[VIEW_COMMS], true);
    return true;
}

static void fini(struct browser *b)
{
    (void)b;
}

static bool show(struct browser *b, const struct place *place)
{
    if (!tui_table_update(b->tables[VIEW_COMMS]))
        return false;
    if (place->comm != NULL && b->data.shown_at[place->comm->index] != BROWSE_NONE)
        tui_table_select_id(b->tables[VIEW_COMMS], b->data.shown_at[place->comm->index] + 1);
    return true;
}

static bool target(struct browser *b, struct place *to)
{
    size_t row = tui_table_selected(b->tables[VIEW_COMMS]);
    if (row == TUI_NO_ROW)
        return false;
    *to = place_in(VIEW_COMM, BROWSE_NONE);
    to->comm = comm_at(b, row);
    return true;
}

static void about(struct browser *b, char *text, size_t size, enum tui_style *style)
{
    size_t uneven = 0;
    for (size_t i = 0; i < b->data.nshown; i++)
        uneven += b->data.figures[b->data.shown[i]].behind > 0;
    *style = TUI_NORMAL;
    snprintf(text, size, "%zu communicators, %zu of them uneven. SPREAD: ops between first and last member",
             b->data.nshown, uneven);
}

const struct view view_comms = {.name = "Communicators",
                                .rows = TUI_ROWS_TREE,
                                .init = init,
                                .fini = fini,
                                .show = show,
                                .target = target,
                                .about = about};

/* ---- the members of one ---- */

enum {
    MEM_PLACE,
    MEM_RANK,
    MEM_ROLE,
    MEM_BEHIND,
    MEM_ENTERED,
    MEM_RETURNED,
    MEM_OP,
    MEM_STATE,
    MEM_HOST,
    MEM_P2P,
    MEM_LOST,
    MEM_END,
    MEM_COLUMNS
};

static const struct tui_column member_columns[MEM_COLUMNS] = {
    [MEM_PLACE] = {.name = "#", .help = "comm rank", .width = 5, .numeric = true, .rising = true},
    [MEM_RANK] = {.name = "RANK", .help = "place in the job", .width = 6, .numeric = true, .rising = true},
    [MEM_ROLE] = {.name = "VERDICT", .help = "what the findings say of it", .width = 8},
    [MEM_BEHIND] = {.name = "BEHIND",
                    .help = "calls behind the foremost member",
                    .width = 6,
                    .numeric = true},
    [MEM_ENTERED] = {.name = "ENTERED", .help = "calls entered", .width = 8, .numeric = true},
    [MEM_RETURNED] =
        {.name = "RETURNED", .help = "calls that returned", .width = 8, .numeric = true, .yields = 2},
    [MEM_OP] = {.name = "LAST OP", .help = "the last call that moves data", .width = 20, .max_width = 40},
    [MEM_STATE] = {.name = "PROGRESS", .help = "how far that call came", .width = 11},
    [MEM_HOST] = {.name = "HOST", .help = "where it ran", .width = 10, .max_width = 32},
    [MEM_P2P] = {.name = "SEND/RECV", .help = "messages entered", .width = 9, .numeric = true, .yields = 3},
    [MEM_LOST] = {.name = "LOST", .help = "calls without a record", .width = 6, .numeric = true, .yields = 4},
    [MEM_END] = {.name = "TEARDOWN", .help = "the call that ended it", .width = 12, .yields = 1},
};

static size_t member_rows(void *context)
{
    const struct browser *b = context;
    return b->here.comm != NULL ? b->here.comm->nmembers : 0;
}

static void member_cell(void *context, size_t row, unsigned column, struct tui_cell *cell)
{
    const struct browser *b = context;
    const struct rec_member *m = b->here.comm->members[row];
    const struct rank_figures *rank = &b->data.ranks[b->data.rank_of[m->process->index]];
    const char *state;
    switch (column) {
    case MEM_PLACE:
        if (m->comm_rank != REC_ID_NONE)
            put(cell, m->comm_rank);
        break;
    case MEM_RANK:
        if (rank->rank >= 0)
            put(cell, (uint64_t)rank->rank);
        cell->style = style_role(rank->role);
        break;
    case MEM_ROLE:
        snprintf(cell->text, sizeof cell->text, "%s", rec_role_name(rank->role));
        cell->style = style_role(rank->role);
        break;
    case MEM_BEHIND:
        put_worry(cell, b->data.figures[b->here.comm->index].front - m->next_seq, TUI_WARN);
        break;
    case MEM_ENTERED:
        put(cell, m->next_seq);
        break;
    case MEM_RETURNED:
        put(cell, m->finished);
        break;
    case MEM_OP:
        if (m->last_op.kind != REC_NONE)
            word_op(cell->text, sizeof cell->text, &m->last_op);
        break;
    case MEM_STATE:
        state = m->last_op.kind != REC_NONE ? rec_state_name(m->last_op.state) : NULL;
        snprintf(cell->text, sizeof cell->text, "%s", state != NULL ? state : "-");
        cell->style = style_state(m->last_op.state);
        break;
    case MEM_HOST:
        snprintf(cell->text, sizeof cell->text, "%s", m->process->host);
        break;
    case MEM_P2P:
        put(cell, m->p2p_entered);
        break;
    case MEM_LOST:
        put_worry(cell, m->lost, TUI_WARN);
        break;
    default:
        if (m->teardown.kind != REC_NONE)
            word_op(cell->text, sizeof cell->text, &m->teardown);
    }
}

static const struct tui_source member_source = {.rows = member_rows, .id = id, .cell = member_cell};

static bool init_members(struct browser *b)
{
    b->tables[VIEW_COMM] = tui_table_new(member_columns, MEM_COLUMNS, &member_source, b);
    return b->tables[VIEW_COMM] != NULL;
}

static bool show_members(struct browser *b, const struct place *place)
{
    struct tui_table *table = b->tables[VIEW_COMM];
    if (!tui_table_update(table))
        return false;
    for (uint32_t m = 0; place->process != BROWSE_NONE && m < place->comm->nmembers; m++)
        if (place->comm->members[m]->process->index == place->process)
            tui_table_select_id(table, m + 1);
    return true;
}

static bool member_target(struct browser *b, struct place *to)
{
    size_t row = tui_table_selected(b->tables[VIEW_COMM]);
    if (row == TUI_NO_ROW)
        return false;
    const struct rec_member *m = b->here.comm->members[row];
    *to = browse_op_place(&b->data, m->process, &m->last_op);
    return true;
}

static void about_members(struct browser *b, char *text, size_t size, enum tui_style *style)
{
    const struct rec_communicator *c = b->here.comm;
    const struct comm_figures *f = &b->data.figures[c->index];
    char name[64], up[64] = "";
    word_comm(name, sizeof name, c);
    if (c->parent != NULL)
        word_comm(up, sizeof up, c->parent);
    *style = f->finding != BROWSE_NONE ? TUI_BAD : TUI_NORMAL;
    char spread[80] = "all members even";
    if (f->behind > 0)
        snprintf(spread, sizeof spread, "%u members behind by up to %llu", f->behind,
                 (unsigned long long)(f->front - f->back));
    snprintf(text, size, "%s, %u ranks%s%s: %llu ops entered, %s", name, c->nranks,
             c->parent != NULL ? ", from " : "", up, (unsigned long long)f->front, spread);
}

const struct view view_comm = {.name = "Members",
                               .rows = TUI_ROWS_TABLE,
                               .init = init_members,
                               .fini = fini,
                               .show = show_members,
                               .target = member_target,
                               .about = about_members};
