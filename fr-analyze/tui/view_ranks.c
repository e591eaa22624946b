/*
 * All ranks. As a tree, ranks that follow each other and look the same are one branch; as a
 * list every rank has its line. Rows: the ranks, then the ranges.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fr-analyze/tui/pending.h"

enum {
    COL_RANK,
    COL_ROLE,
    COL_STATE,
    COL_CALL,
    COL_COMM,
    COL_SEQ,
    COL_GPU,
    COL_LAG,
    COL_HOST,
    COL_END,
    COL_PID,
    COL_PROGRESS,
    COL_RETURNED,
    COL_QUIET,
    COL_CALLS,
    COL_LOST,
    COLUMNS
};

static const struct tui_column columns[COLUMNS] = {
    [COL_RANK] = {.name = "RANK",
                  .help = "place in the job",
                  .width = 6,
                  .tree_width = 12,
                  .numeric = true,
                  .rising = true},
    [COL_ROLE] = {.name = "VERDICT", .help = "what the findings say of it", .width = 8},
    [COL_STATE] = {.name = "STATE", .help = "inside NCCL, outside, ended", .width = 8},
    [COL_CALL] = {.name = "LAST CALL",
                  .help = "the call it is in, else the last one",
                  .width = 14,
                  .max_width = 40},
    [COL_COMM] = {.name = "COMM", .help = "communicator of that call", .width = 8, .max_width = 24},
    [COL_SEQ] = {.name = "SEQ",
                 .help = "its place in the communicator",
                 .width = 6,
                 .max_width = 10,
                 .numeric = true},
    [COL_GPU] = {.name = "GPU AT",
                 .help = "the oldest call that its GPU has not finished",
                 .width = 20,
                 .max_width = 32,
                 .yields = 1},
    [COL_LAG] = {.name = "LAG",
                 .help = "calls behind the foremost member, at most",
                 .width = 4,
                 .max_width = 8,
                 .numeric = true},
    [COL_HOST] = {.name = "HOST", .help = "where it ran", .width = 8, .max_width = 32, .yields = 1},
    [COL_END] = {.name = "END", .help = "how the process ended", .width = 8, .max_width = 12},
    [COL_PID] =
        {.name = "PID", .help = "process id", .width = 7, .numeric = true, .rising = true, .yields = 5},
    [COL_PROGRESS] = {.name = "PROGRESS",
                      .help = "what the GPU had done of the call",
                      .width = 11,
                      .yields = 2},
    [COL_RETURNED] = {.name = "RETURNED",
                      .help = "calls on that communicator that returned",
                      .width = 8,
                      .numeric = true,
                      .yields = 4},
    [COL_QUIET] = {.name = "QUIET",
                   .help = "from its last call to the end of the record",
                   .width = 9,
                   .numeric = true,
                   .yields = 3},
    [COL_CALLS] = {.name = "CALLS", .help = "records of it", .width = 9, .numeric = true, .yields = 5},
    [COL_LOST] = {.name = "LOST", .help = "calls without a record", .width = 6, .numeric = true, .yields = 4},
};

struct range {
    uint32_t first, last; /* in data.ranks */
};

/* What the GPU of a rank had come to; read for the lines on the screen. */
struct gpu_front {
    bool read, known;
    uint32_t pending;
    struct rec_op oldest; /* kind REC_NONE = nothing pending */
};

struct ranks_view {
    struct browser *browser;
    struct gpu_front *fronts; /* by rank entry */
    struct pending reading;   /* of rank entry next */
    size_t next;              /* SIZE_MAX = none */
    struct range *ranges;
    size_t nranges;
    uint32_t *range_of; /* by rank entry; BROWSE_NONE = stands alone */
};

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return rec_mix64(hash ^ (value + 0x9e3779b97f4a7c15u));
}

static uint64_t mix_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++)
        hash = mix(hash, (unsigned char)*text);
    return hash;
}

/* Ranks with one key look the same, but for who and where they are. */
static uint64_t look(const struct browse_data *data, const struct rank_figures *rank)
{
    uint64_t key = mix((uint64_t)rank->role, rank->lag);
    if (rank->process == BROWSE_NONE)
        return mix(key, 1);
    const struct rec_process *p = data->processes[rank->process];
    key = mix(key, (uint64_t)p->fate);
    key = mix(key, ((uint64_t)(uint32_t)p->end.status << 32) | (uint32_t)p->end.signal);
    key = mix(key, p->dropped_ops > 0);
    if (rank->last == NULL)
        return key;
    key = mix(key, rank->last->kind);
    key = mix(key, rank->last->seq);
    key = mix(key, ((uint64_t)rank->last->state << 8) | rank->open);
    return rank->member != NULL ? mix_text(key, rank->member->comm->name) : key;
}

static bool fold(struct ranks_view *v)
{
    const struct browse_data *data = &v->browser->data;
    v->ranges = calloc(data->nranks / 2 + 1, sizeof *v->ranges);
    v->range_of = calloc(data->nranks + 1, sizeof *v->range_of);
    v->fronts = calloc(data->nranks + 1, sizeof *v->fronts);
    if (v->ranges == NULL || v->range_of == NULL || v->fronts == NULL)
        return false;
    for (size_t i = 0; i < data->nranks;) {
        size_t last = i;
        uint64_t key = look(data, &data->ranks[i]);
        while (last + 1 < data->nranks && data->ranks[last + 1].rank == data->ranks[last].rank + 1 &&
               data->ranks[i].rank >= 0 && look(data, &data->ranks[last + 1]) == key)
            last++;
        for (size_t r = i; r <= last; r++)
            v->range_of[r] = last > i ? (uint32_t)v->nranges : BROWSE_NONE;
        if (last > i)
            v->ranges[v->nranges++] = (struct range){(uint32_t)i, (uint32_t)last};
        i = last + 1;
    }
    return true;
}

static bool is_tree(const struct ranks_view *v)
{
    return tui_table_is_tree(v->browser->tables[VIEW_RANKS]);
}

static size_t rows(void *context)
{
    const struct ranks_view *v = context;
    return v->browser->data.nranks + (is_tree(v) ? v->nranges : 0);
}

static uint64_t id(void *context, size_t row)
{
    (void)context;
    return row + 1;
}

static size_t parent(void *context, size_t row)
{
    const struct ranks_view *v = context;
    size_t n = v->browser->data.nranks;
    if (row >= n || !is_tree(v) || v->range_of[row] == BROWSE_NONE)
        return TUI_NO_ROW;
    return n + v->range_of[row];
}

static void put(struct tui_cell *cell, uint64_t value)
{
    snprintf(cell->text, sizeof cell->text, "%llu", (unsigned long long)value);
    cell->number = (double)value;
}

static void put_op(struct tui_cell *cell, unsigned column, const struct browse_data *data,
                   const struct rank_figures *rank)
{
    const struct rec_op *op = rank->last;
    const char *state;
    uint64_t then;
    if (op == NULL)
        return;
    switch (column) {
    case COL_CALL:
        word_op(cell->text, sizeof cell->text, op);
        break;
    case COL_SEQ:
        if (!(op->flags & REC_OF_NO_SEQ))
            put(cell, op->seq);
        break;
    case COL_PROGRESS:
        state = rec_state_name(op->state);
        snprintf(cell->text, sizeof cell->text, "%s", state != NULL ? state : "?");
        cell->style = style_state(op->state);
        break;
    case COL_QUIET:
        then = browse_common_ns(data, data->processes[rank->process],
                                op->exit_ns != 0 ? op->exit_ns : op->enter_ns);
        word_span(cell->text, sizeof cell->text, data->last_ns > then ? data->last_ns - then : 0);
        cell->number = (double)(data->last_ns > then ? data->last_ns - then : 0);
        break;
    default:
        break;
    }
}

static void put_gpu(struct tui_cell *cell, const struct browse_data *data, const struct rank_figures *rank,
                    const struct gpu_front *front)
{
    char name[24], comm[64];
    const struct rec_op *op = &front->oldest;
    if (!front->read || (!front->known && front->pending == 0))
        return;
    if (op->kind == REC_NONE) {
        snprintf(cell->text, sizeof cell->text, "done");
        return;
    }
    const struct rec_member *m = rec_process_member(data->processes[rank->process], op->comm);
    word_comm(comm, sizeof comm, m != NULL ? m->comm : NULL);
    snprintf(cell->text, sizeof cell->text, "%s %llu %s%s", word_kind(op, name), (unsigned long long)op->seq,
             comm, op->state == REC_STATE_GPU_STARTED ? "" : ", queued");
    cell->style = TUI_ACCENT;
}

static void put_member(struct tui_cell *cell, unsigned column, const struct rec_member *member)
{
    if (member == NULL)
        return;
    if (column == COL_COMM)
        word_comm(cell->text, sizeof cell->text, member->comm);
    else
        put(cell, member->finished);
}

static void put_process(struct tui_cell *cell, unsigned column, const struct rec_process *p)
{
    switch (column) {
    case COL_HOST:
        snprintf(cell->text, sizeof cell->text, "%s", p->host);
        break;
    case COL_END:
        word_end(cell->text, sizeof cell->text, p);
        cell->style = p->fate == REC_FATE_SIGNALED || (p->fate == REC_FATE_EXITED && p->end.status != 0)
                          ? TUI_BAD
                          : TUI_NORMAL;
        break;
    case COL_PID:
        put(cell, (uint64_t)p->pid);
        break;
    case COL_CALLS:
        put(cell, p->ops);
        break;
    case COL_LOST:
        put(cell, p->dropped_ops);
        cell->style = p->dropped_ops > 0 ? TUI_WARN : TUI_DIM;
        break;
    default:
        break;
    }
}

static void put_rank(struct tui_cell *cell, unsigned column, const struct browse_data *data,
                     const struct rank_figures *rank)
{
    switch (column) {
    case COL_RANK:
        if (rank->rank >= 0)
            snprintf(cell->text, sizeof cell->text, "%d", rank->rank);
        else
            snprintf(cell->text, sizeof cell->text, "?");
        cell->number = rank->rank >= 0 ? (double)rank->rank : (double)NAN;
        cell->style = style_role(rank->role);
        return;
    case COL_ROLE:
        snprintf(cell->text, sizeof cell->text, "%s", rec_role_name(rank->role));
        cell->style = style_role(rank->role);
        return;
    case COL_STATE:
        word_state(cell->text, sizeof cell->text, data, rank);
        cell->style = rank->process == BROWSE_NONE || rank->open ? TUI_WARN : TUI_NORMAL;
        return;
    case COL_LAG:
        put(cell, rank->lag);
        cell->style = rank->lag > 0 ? TUI_WARN : TUI_DIM;
        return;
    default:
        break;
    }
    if (rank->process == BROWSE_NONE)
        return;
    put_op(cell, column, data, rank);
    if (column == COL_COMM || column == COL_RETURNED)
        put_member(cell, column, rank->member);
    put_process(cell, column, data->processes[rank->process]);
}

/* What differs inside a range is told as how much of it there is. */
static void put_range(struct tui_cell *cell, unsigned column, const struct browse_data *data,
                      const struct range *range)
{
    const struct rank_figures *first = &data->ranks[range->first];
    put_rank(cell, column, data, first);
    if (column == COL_RANK)
        snprintf(cell->text, sizeof cell->text, "%d-%d", first->rank, data->ranks[range->last].rank);
    else if (column == COL_PID || column == COL_CALLS || column == COL_QUIET || column == COL_RETURNED)
        snprintf(cell->text, sizeof cell->text, "%s", "");
    if (column != COL_HOST || first->process == BROWSE_NONE)
        return;
    unsigned hosts = 1;
    for (uint32_t i = range->first + 1; i <= range->last; i++)
        hosts += strcmp(data->processes[data->ranks[i].process]->host,
                        data->processes[data->ranks[i - 1].process]->host) != 0;
    if (hosts > 1)
        snprintf(cell->text, sizeof cell->text, "%u hosts", hosts);
}

static void cell_of(void *context, size_t row, unsigned column, struct tui_cell *cell)
{
    const struct ranks_view *v = context;
    const struct browse_data *data = &v->browser->data;
    if (row < data->nranks && column == COL_GPU)
        put_gpu(cell, data, &data->ranks[row], &v->fronts[row]);
    else if (row < data->nranks)
        put_rank(cell, column, data, &data->ranks[row]);
    else
        put_range(cell, column, data, &v->ranges[row - data->nranks]);
}

static const struct tui_source source = {.rows = rows, .id = id, .parent = parent, .cell = cell_of};

static bool init(struct browser *b)
{
    struct ranks_view *v = calloc(1, sizeof *v);
    b->state[VIEW_RANKS] = v;
    if (v == NULL)
        return false;
    v->browser = b;
    v->next = SIZE_MAX;
    b->tables[VIEW_RANKS] = tui_table_new(columns, COLUMNS, &source, v);
    if (b->tables[VIEW_RANKS] == NULL || !fold(v))
        return false;
    tui_table_set_open_by_default(b->tables[VIEW_RANKS], false);
    tui_table_set_tree(b->tables[VIEW_RANKS], v->nranges > 0);
    return true;
}

static void fini(struct browser *b)
{
    struct ranks_view *v = b->state[VIEW_RANKS];
    if (v == NULL)
        return;
    pending_stop(&v->reading);
    free(v->ranges);
    free(v->range_of);
    free(v->fronts);
    free(v);
}

static void forget(struct browser *b, bool again)
{
    (void)again;
    struct ranks_view *v = b->state[VIEW_RANKS];
    pending_stop(&v->reading);
    free(v->ranges);
    free(v->range_of);
    free(v->fronts);
    v->ranges = NULL;
    v->range_of = NULL;
    v->fronts = NULL;
    v->nranges = 0;
    v->next = SIZE_MAX;
}

/* With a process: to its line, or to that of its range. */
static bool show(struct browser *b, const struct place *place)
{
    struct ranks_view *v = b->state[VIEW_RANKS];
    struct tui_table *table = b->tables[VIEW_RANKS];
    if ((v->ranges == NULL && !fold(v)) || !tui_table_update(table))
        return false;
    if (place->process == BROWSE_NONE)
        return true;
    uint32_t rank = b->data.rank_of[place->process];
    if (rank != BROWSE_NONE && !tui_table_select_id(table, rank + 1) && v->range_of[rank] != BROWSE_NONE)
        tui_table_select_id(table, b->data.nranks + v->range_of[rank] + 1);
    return true;
}

static bool target(struct browser *b, struct place *to)
{
    struct tui_table *table = b->tables[VIEW_RANKS];
    size_t row = tui_table_selected(table), lines = tui_table_lines(table);
    if (row == TUI_NO_ROW)
        return false;
    if (row >= b->data.nranks) {
        tui_table_command(table, TUI_EXPAND);
        if (tui_table_lines(table) == lines)
            tui_table_command(table, TUI_COLLAPSE);
        return false;
    }
    *to = place_in(VIEW_RANK, b->data.ranks[row].process);
    return to->process != BROWSE_NONE;
}

/* The first line on the screen of which it is not known yet what the GPU had come to. */
static size_t next_unread(struct browser *b, const struct ranks_view *v)
{
    size_t first, count;
    tui_table_window(b->tables[VIEW_RANKS], &first, &count);
    for (size_t line = first; line < first + count; line++) {
        size_t row = tui_table_row_at(b->tables[VIEW_RANKS], line);
        if (row < b->data.nranks && b->data.ranks[row].process != BROWSE_NONE && !v->fronts[row].read)
            return row;
    }
    return SIZE_MAX;
}

static bool work(struct browser *b, uint64_t deadline_ns)
{
    struct ranks_view *v = b->state[VIEW_RANKS];
    bool any = false;
    while (monotonic_ns() < deadline_ns) {
        if (v->next == SIZE_MAX) {
            v->next = next_unread(b, v);
            if (v->next == SIZE_MAX)
                return any;
            pending_start(&v->reading, b->data.job, b->data.processes[b->data.ranks[v->next].process]);
        }
        any = true;
        if (!pending_step(&v->reading, deadline_ns))
            break;
        v->fronts[v->next] =
            (struct gpu_front){.read = true, .known = v->reading.known, .pending = v->reading.count};
        if (v->reading.count > 0)
            v->fronts[v->next].oldest = v->reading.oldest[0];
        v->next = SIZE_MAX;
    }
    return any;
}

static void about(struct browser *b, char *text, size_t size, enum tui_style *style)
{
    size_t roles[REC_ROLE_SLOW + 1] = {0}, untraced = 0;
    for (size_t i = 0; i < b->data.nranks; i++) {
        roles[b->data.ranks[i].role]++;
        untraced += b->data.ranks[i].process == BROWSE_NONE;
    }
    *style = TUI_NORMAL;
    snprintf(
        text, size, "%zu ranks: %zu to blame, %zu possible, %zu waiting because of it, %zu without a trace",
        b->data.nranks, roles[REC_ROLE_CULPRIT], roles[REC_ROLE_SUSPECT], roles[REC_ROLE_VICTIM], untraced);
}

const struct view view_ranks = {.name = "Ranks",
                                .rows = TUI_ROWS_TREE,
                                .init = init,
                                .fini = fini,
                                .show = show,
                                .target = target,
                                .work = work,
                                .forget = forget,
                                .about = about};
