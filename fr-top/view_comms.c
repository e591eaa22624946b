/* The table of communicators; as a tree by lineage, with their members. */
#include <stdio.h>
#include <stdlib.h>

#include "fr-top/cells.h"
#include "fr-common.h"

enum {
    C_COMM,
    C_RANKS,
    C_MEMBERS,
    C_FRONT,
    C_SPREAD,
    C_LAGGING,
    C_LAST,
    C_STUCK,
    C_ENDED,
    C_AGE,
    C_MADE,
    C_UID
};
static const struct tui_column comm_columns[] = {
    [C_COMM] = {"COMM", "name, or the first half of its uid", .width = 12, .max_width = 40, .tree_width = 22},
    [C_RANKS] = {"RANKS", "members seen, of how many", .width = 9, .max_width = 12, .numeric = true},
    [C_MEMBERS] = {"MEMBERS", "job ranks of those seen", .width = 10, .max_width = 30},
    [C_FRONT] = {"FRONT", "seq of the foremost member", .width = 8, .max_width = 12, .numeric = true},
    [C_SPREAD] = {"SPREAD", "calls between the foremost and the last", .width = 7, .numeric = true},
    [C_LAGGING] = {"BEHIND", "members behind the front", .width = 6, .numeric = true},
    [C_LAST] = {"LAST", "rank that is farthest behind", .width = 6, .numeric = true, .rising = true},
    [C_STUCK] = {"STALL", "members late or stalled", .width = 5, .numeric = true},
    [C_ENDED] = {"ENDED", "members that ended", .width = 5, .numeric = true, .yields = 1},
    [C_AGE] = {"AGE", "since it was made", .width = 6, .numeric = true, .yields = 1},
    [C_MADE] = {"MADE BY", "the call that made it", .width = 12, .max_width = 22, .yields = 2},
    [C_UID] = {"UID", "equal on all members", .width = 16, .yields = 3},
};

/* The member that is farthest behind; TOP_NONE when all are level. */
static uint32_t last_member(const struct top_snapshot *snapshot, const struct top_comm *comm)
{
    uint32_t last = TOP_NONE;
    for (uint32_t m = 0; m < comm->nmembers; m++) {
        uint64_t lag = snapshot->members[comm->members[m]].lag;
        if (lag > 0 && (last == TOP_NONE || lag > snapshot->members[last].lag))
            last = comm->members[m];
    }
    return last;
}

/* Communicators of one name differ in who they are for. */
static void put_members(struct tui_cell *cell, const struct top_snapshot *snapshot,
                        const struct top_comm *comm)
{
    int32_t *ranks = malloc((comm->nmembers + 1u) * sizeof *ranks);
    for (uint32_t m = 0; ranks != NULL && m < comm->nmembers; m++)
        ranks[m] = snapshot->processes[snapshot->members[comm->members[m]].process].rank;
    if (ranks != NULL)
        fr_fold_unsorted(cell->text, sizeof cell->text, ranks, comm->nmembers);
    free(ranks);
}

static void communicator_cell(const struct top_snapshot *snapshot, const struct top_comm *comm,
                              unsigned column, struct tui_cell *cell)
{
    uint32_t last;
    const struct top_process *process;
    switch (column) {
    case C_COMM:
        top_put_comm(cell, comm->name, comm->uid);
        break;
    case C_RANKS:
        snprintf(cell->text, sizeof cell->text, "%u/%u", comm->nmembers, comm->nranks);
        cell->number = comm->nranks;
        break;
    case C_MEMBERS:
        put_members(cell, snapshot, comm);
        break;
    case C_FRONT:
        top_put_seq(cell, comm->front);
        break;
    case C_SPREAD:
        top_put_worry(cell, comm->front - comm->back, TUI_WARN);
        break;
    case C_LAGGING:
        top_put_worry(cell, comm->lagging, TUI_WARN);
        break;
    case C_LAST:
        last = last_member(snapshot, comm);
        if (last == TOP_NONE) {
            top_put_text(cell, "-");
            break;
        }
        process = &snapshot->processes[snapshot->members[last].process];
        top_text_rank(cell->text, sizeof cell->text, process);
        cell->number = process->rank;
        break;
    case C_STUCK:
        top_put_worry(cell, comm->stuck, TUI_BAD);
        break;
    case C_ENDED:
        top_put_worry(cell, comm->ended, TUI_BAD);
        break;
    case C_AGE:
        top_put_age(cell, snapshot, comm->created_ns);
        break;
    case C_MADE:
        top_put_text(cell, top_made_by(comm->made_by));
        break;
    default:
        snprintf(cell->text, sizeof cell->text, "%016llx", (unsigned long long)comm->uid);
        break;
    }
}

static void comm_member_cell(const struct top_snapshot *snapshot, const struct top_member *member,
                             unsigned column, struct tui_cell *cell)
{
    const struct top_process *process = &snapshot->processes[member->process];
    char rank[16];
    switch (column) {
    case C_COMM:
        top_text_rank(rank, sizeof rank, process);
        snprintf(cell->text, sizeof cell->text, "rank %s %.90s", rank, process->host);
        cell->style = top_state_style(process->state);
        break;
    case C_RANKS:
        if (member->comm_rank != REC_ID_NONE)
            top_put_u64(cell, member->comm_rank);
        break;
    case C_FRONT:
        top_put_seq(cell, member->next_seq);
        break;
    case C_SPREAD:
        top_put_worry(cell, member->lag, TUI_WARN);
        break;
    case C_MADE:
        top_put_text(cell, top_state_name(process->state));
        cell->style = top_state_style(process->state);
        break;
    default:
        break;
    }
}

/* Of a row behind those of the communicators. */
static const struct top_member *member_at(const struct top_snapshot *snapshot, size_t row)
{
    return &snapshot->members[snapshot->comm_members[row - snapshot->ncomms]];
}

static size_t comm_rows(void *context)
{
    return top_of(context)->ncomms + top_of(context)->nmembers;
}

static uint64_t comm_id(void *context, size_t row)
{
    const struct top_snapshot *snapshot = top_of(context);
    if (row >= snapshot->ncomms)
        return top_member_id(snapshot, snapshot->comm_members[row - snapshot->ncomms]);
    const struct top_comm *comm = &snapshot->comms[row];
    return comm->uid != 0 ? comm->uid : ~top_member_id(snapshot, comm->members[0]);
}

static size_t comm_parent(void *context, size_t row)
{
    const struct top_snapshot *snapshot = top_of(context);
    if (row < snapshot->ncomms)
        return snapshot->comms[row].parent != TOP_NONE ? snapshot->comms[row].parent : TUI_NO_ROW;
    return member_at(snapshot, row)->comm;
}

static bool comm_inner(void *context, size_t row)
{
    return row >= top_of(context)->ncomms;
}

static void comm_cell(void *context, size_t row, unsigned column, struct tui_cell *cell)
{
    const struct top_snapshot *snapshot = top_of(context);
    if (row < snapshot->ncomms)
        communicator_cell(snapshot, &snapshot->comms[row], column, cell);
    else
        comm_member_cell(snapshot, member_at(snapshot, row), column, cell);
}

static uint32_t comm_process(const struct top_snapshot *snapshot, uint32_t row)
{
    return row < snapshot->ncomms ? TOP_NONE : member_at(snapshot, row)->process;
}

static uint32_t comm_comm(const struct top_snapshot *snapshot, uint32_t row)
{
    return row < snapshot->ncomms ? row : member_at(snapshot, row)->comm;
}

const struct top_view top_view_comms = {.name = "Communicators",
                                        .columns = comm_columns,
                                        .ncolumns = TOP_COUNT(comm_columns),
                                        .source = {comm_rows, comm_id, comm_parent, comm_cell, comm_inner},
                                        .process = comm_process,
                                        .comm = comm_comm};
