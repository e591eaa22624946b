/* The table of hosts; as a tree, with their ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fr-top/cells.h"

enum { H_HOST, H_RANKS, H_UP, H_STUCK, H_ENDED, H_LAG, H_OPS, H_BYTES, H_LOST, H_OLDEST };
static const struct tui_column host_columns[] = {
    [H_HOST] = {"HOST", "where ranks run", .width = 20, .max_width = 60},
    [H_RANKS] = {"RANKS", "processes seen", .width = 6, .numeric = true},
    [H_UP] = {"UP", "running", .width = 5, .numeric = true},
    [H_STUCK] = {"STALL", "late or stalled", .width = 5, .numeric = true},
    [H_ENDED] = {"ENDED", "ended, well or not", .width = 5, .numeric = true},
    [H_LAG] = {"LAG", "largest of its ranks", .width = 6, .numeric = true},
    [H_OPS] = {"OPS/S", "calls per second", .width = 7, .numeric = true},
    [H_BYTES] = {"B/S", "bytes per second given to NCCL", .width = 7, .numeric = true},
    [H_LOST] = {"LOST", "calls that could not be recorded", .width = 6, .numeric = true},
    [H_OLDEST] = {"OLDEST", "age of the oldest call inside NCCL", .width = 6, .numeric = true, .yields = 1},
};

static void host_row_cell(const struct top_snapshot *snapshot, const struct top_host *host, unsigned column,
                          struct tui_cell *cell)
{
    switch (column) {
    case H_HOST:
        top_put_text(cell, host->name);
        break;
    case H_RANKS:
        top_put_u64(cell, host->processes);
        break;
    case H_UP:
        top_put_u64(cell, host->up);
        break;
    case H_STUCK:
        top_put_worry(cell, host->stuck, TUI_BAD);
        break;
    case H_ENDED:
        top_put_worry(cell, host->ended, TUI_WARN);
        break;
    case H_LAG:
        top_put_worry(cell, host->lag, TUI_WARN);
        break;
    case H_OPS:
        top_put_count(cell, host->ops_per_s);
        break;
    case H_BYTES:
        top_put_count(cell, host->bytes_per_s);
        break;
    case H_LOST:
        top_put_worry(cell, host->lost, TUI_WARN);
        break;
    default:
        top_put_age(cell, snapshot, host->oldest_ns);
        break;
    }
}

static void host_process_cell(const struct top_snapshot *snapshot, const struct top_process *process,
                              unsigned column, struct tui_cell *cell)
{
    char rank[16];
    switch (column) {
    case H_HOST:
        top_text_rank(rank, sizeof rank, process);
        snprintf(cell->text, sizeof cell->text, "rank %s %s", rank, top_state_name(process->state));
        cell->style = top_state_style(process->state);
        break;
    case H_LAG:
        top_put_worry(cell, process->lag, TUI_WARN);
        break;
    case H_OPS:
        top_put_count(cell, process->ops_per_s);
        break;
    case H_BYTES:
        top_put_count(cell, process->bytes_per_s);
        break;
    case H_LOST:
        top_put_worry(cell, process->lost, TUI_WARN);
        break;
    case H_OLDEST:
        top_put_age(cell, snapshot, process->in_call ? process->now.since_ns : 0);
        break;
    default:
        break;
    }
}

static size_t host_rows(void *context)
{
    return top_of(context)->nhosts + top_of(context)->nprocesses;
}

static uint64_t host_id(void *context, size_t row)
{
    const struct top_snapshot *snapshot = top_of(context);
    if (row >= snapshot->nhosts)
        return snapshot->processes[row - snapshot->nhosts].proc_uid;
    uint64_t hash = 1469598103934665603u; /* FNV-1a */
    for (const char *p = snapshot->hosts[row].name; *p != '\0'; p++)
        hash = (hash ^ (unsigned char)*p) * 1099511628211u;
    return hash;
}

static int compare_host_name(const void *name, const void *host)
{
    return strverscmp(name, ((const struct top_host *)host)->name);
}

static size_t host_parent(void *context, size_t row)
{
    const struct top_snapshot *snapshot = top_of(context);
    if (row < snapshot->nhosts)
        return TUI_NO_ROW;
    const char *name = snapshot->processes[row - snapshot->nhosts].host;
    const struct top_host *host =
        bsearch(name, snapshot->hosts, snapshot->nhosts, sizeof snapshot->hosts[0], compare_host_name);
    return host != NULL ? (size_t)(host - snapshot->hosts) : TUI_NO_ROW;
}

static void host_cell(void *context, size_t row, unsigned column, struct tui_cell *cell)
{
    const struct top_snapshot *snapshot = top_of(context);
    if (row < snapshot->nhosts)
        host_row_cell(snapshot, &snapshot->hosts[row], column, cell);
    else
        host_process_cell(snapshot, &snapshot->processes[row - snapshot->nhosts], column, cell);
}

static uint32_t host_process(const struct top_snapshot *snapshot, uint32_t row)
{
    return row < snapshot->nhosts ? TOP_NONE : row - snapshot->nhosts;
}

const struct top_view top_view_hosts = {
    .name = "Hosts",
    .columns = host_columns,
    .ncolumns = TOP_COUNT(host_columns),
    .source = {.rows = host_rows, .id = host_id, .parent = host_parent, .cell = host_cell},
    .process = host_process};
