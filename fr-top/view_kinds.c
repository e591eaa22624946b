/* The table of kinds of calls; as a tree, with the ranks that make them. */
#include <stdio.h>

#include "fr-top/cells.h"

enum { K_KIND, K_RANKS, K_CALLS, K_SIZE, K_ALGBW, K_BUSBW, K_TIMED };
static const struct tui_column kind_columns[] = {
    [K_KIND] = {"CALL", "kind of call", .width = 15, .max_width = 24, .tree_width = 22},
    [K_RANKS] = {"RANKS", "that made some in the last seconds", .width = 6, .numeric = true},
    [K_CALLS] = {"CALLS/S", "of all these ranks", .width = 8, .numeric = true},
    [K_SIZE] = {"SIZE", "mean bytes of a call", .width = 8, .numeric = true},
    [K_ALGBW] = {"ALG B/S", "bytes per second and rank (nccl-tests: algbw), over all the time", .width = 8,
                 .numeric = true},
    [K_BUSBW] = {"BUS B/S", "what each rank's links carried per second (busbw), over all the time",
                 .width = 8, .numeric = true},
    [K_TIMED] = {"ON GPU", "busbw over the time that calls were on the GPU; - = not known", .width = 8,
                 .numeric = true},
};

static void rate_cell(const struct top_kind_rate *rate, uint32_t ranks, unsigned column,
                      struct tui_cell *cell)
{
    switch (column) {
    case K_CALLS:
        top_put_count(cell, rate->calls);
        break;
    case K_SIZE:
        top_put_count(cell, rate->calls > 0 ? rate->size / rate->calls : 0);
        break;
    case K_ALGBW:
        top_put_count(cell, rate->size / ranks);
        break;
    case K_BUSBW:
        top_put_count(cell, rate->bus / ranks);
        cell->style = TUI_BOLD;
        break;
    case K_TIMED:
        if (rate->timed_s > 0)
            top_put_count(cell, rate->timed_bus / rate->timed_s);
        else
            top_put_text(cell, "-");
        break;
    default:
        break;
    }
}

static size_t kind_rows(void *context)
{
    return top_of(context)->nkinds + top_of(context)->nkind_ranks;
}

static uint64_t kind_id(void *context, size_t row)
{
    const struct top_snapshot *snapshot = top_of(context);
    if (row < snapshot->nkinds)
        return snapshot->kinds[row].kind;
    const struct top_kind_rank *rank = &snapshot->kind_ranks[row - snapshot->nkinds];
    return rec_mix64(snapshot->processes[rank->process].proc_uid ^ snapshot->kinds[rank->kind].kind);
}

static size_t kind_parent(void *context, size_t row)
{
    const struct top_snapshot *snapshot = top_of(context);
    return row < snapshot->nkinds ? TUI_NO_ROW : snapshot->kind_ranks[row - snapshot->nkinds].kind;
}

static void kind_cell(void *context, size_t row, unsigned column, struct tui_cell *cell)
{
    const struct top_snapshot *snapshot = top_of(context);
    if (row < snapshot->nkinds) {
        const struct top_kind *kind = &snapshot->kinds[row];
        const char *name = rec_kind_name(kind->kind);
        if (column == K_KIND)
            top_put_text(cell, name != NULL ? name : "?");
        else if (column == K_RANKS)
            top_put_u64(cell, kind->ranks);
        else
            rate_cell(&kind->sum, kind->ranks, column, cell);
        return;
    }
    const struct top_kind_rank *rank = &snapshot->kind_ranks[row - snapshot->nkinds];
    const struct top_process *process = &snapshot->processes[rank->process];
    char text[16];
    if (column == K_KIND) {
        top_text_rank(text, sizeof text, process);
        snprintf(cell->text, sizeof cell->text, "rank %s %.90s", text, process->host);
    } else if (column != K_RANKS) {
        rate_cell(&process->kinds[top_kind_index(snapshot->kinds[rank->kind].kind)], 1, column, cell);
    }
}

static uint32_t kind_process(const struct top_snapshot *snapshot, uint32_t row)
{
    return row < snapshot->nkinds ? TOP_NONE : snapshot->kind_ranks[row - snapshot->nkinds].process;
}

const struct top_view top_view_kinds = {
    .name = "Calls",
    .columns = kind_columns,
    .ncolumns = TOP_COUNT(kind_columns),
    .source = {.rows = kind_rows, .id = kind_id, .parent = kind_parent, .cell = kind_cell},
    .process = kind_process};
