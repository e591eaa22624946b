/* The table of ranks; as a tree, with their memberships. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fr-top/cells.h"

static const char *comm_state_name(uint32_t state)
{
    switch (state) {
    case REC_LIVE_COMM_CREATING:
        return "creating";
    case REC_LIVE_COMM_READY:
        return "ready";
    case REC_LIVE_COMM_FAILED:
        return "failed";
    case REC_LIVE_COMM_DESTROYED:
        return "destroyed";
    default:
        return "-";
    }
}

enum {
    R_RANK,
    R_HOST,
    R_STATE,
    R_ROLE,
    R_OP,
    R_WHERE,
    R_FOR,
    R_COMM,
    R_SEQ,
    R_LAG,
    R_OPS,
    R_LOST,
    R_BYTES,
    R_OPEN,
    R_PID,
    R_END,
    R_RUN,
    R_JOB
};
static const struct tui_column rank_columns[] = {
    [R_RANK] = {"RANK", "place in the job; ~ = inferred from the communicator", .width = 5, .max_width = 7,
                .tree_width = 16, .numeric = true, .rising = true},
    [R_HOST] = {"HOST", "where it runs", .width = 8, .max_width = 40},
    [R_STATE] = {"STATE", "worst first", .width = 8, .numeric = true, .rising = true, .left = true},
    [R_ROLE] = {"VERDICT", "what the diagnosis says of it", .width = 7},
    [R_OP] = {"OP", "the oldest call inside NCCL, else on the GPU, else the last one", .width = 11,
              .max_width = 24},
    [R_WHERE] = {"AT", "where that call is: host, queue, gpu, done; - = not known", .width = 5},
    [R_FOR] = {"FOR", "how long inside, or since it returned", .width = 6, .numeric = true},
    [R_COMM] = {"COMM", "communicator of that call", .width = 8, .max_width = 32},
    [R_SEQ] = {"SEQ", "its place in the communicator", .width = 6, .max_width = 10, .numeric = true},
    [R_LAG] = {"LAG", "calls behind the foremost member", .width = 4, .max_width = 6, .numeric = true},
    [R_OPS] = {"OPS/S", "calls per second", .width = 6, .max_width = 7, .numeric = true, .yields = 1},
    [R_LOST] = {"LOST", "calls that could not be recorded", .width = 4, .max_width = 7, .numeric = true,
                .yields = 2},
    [R_BYTES] = {"B/S", "bytes per second given to NCCL", .width = 6, .max_width = 7, .numeric = true,
                 .yields = 3},
    [R_OPEN] = {"OPEN", "calls inside NCCL now, over all threads", .width = 4, .numeric = true, .yields = 5},
    [R_PID] = {"PID", "process id", .width = 8, .numeric = true, .rising = true, .yields = 4},
    [R_END] = {"END", "how it ended", .width = 10, .max_width = 48, .yields = 1},
    [R_RUN] = {"RUN", "restart counter of the launcher", .width = 3, .max_width = 8, .yields = 5},
    [R_JOB] = {"JOB", "id of the job", .width = 8, .max_width = 48, .yields = 6},
};

/* Jobs one after the other, ranks in each; a process without a rank sorts last. */
static double rank_order(const struct top_process *process)
{
    return process->rank < 0 ? (double)NAN : process->job_index * 4294967296.0 + process->rank;
}

static void process_cell(const struct top_snapshot *snapshot, const struct top_process *process,
                         unsigned column, struct tui_cell *cell)
{
    const struct top_op *now = &process->now;
    const struct top_member *member =
        now->member < process->nmembers ? &snapshot->members[process->first_member + now->member] : NULL;
    switch (column) {
    case R_RANK:
        top_text_rank(cell->text, sizeof cell->text, process);
        cell->number = rank_order(process);
        cell->style = top_role_style(top_role_of(snapshot->verdict, process));
        break;
    case R_HOST:
        top_put_text(cell, process->host);
        break;
    case R_STATE:
        top_put_text(cell, top_state_name(process->state));
        cell->number = process->state;
        cell->style = top_state_style(process->state);
        break;
    case R_ROLE:
        top_put_text(cell, rec_role_name(top_role_of(snapshot->verdict, process)));
        cell->style = top_role_style(top_role_of(snapshot->verdict, process));
        break;
    case R_WHERE:
        top_put_text(cell, top_text_where(&now->op));
        cell->style = process->in_call ? TUI_ACCENT : TUI_NORMAL;
        break;
    case R_OP:
        top_text_op(cell->text, sizeof cell->text, &now->op);
        cell->style = process->in_call ? TUI_BOLD : TUI_NORMAL;
        break;
    case R_FOR:
        top_put_age(cell, snapshot, now->since_ns);
        cell->style = top_state_stuck(process->state) ? TUI_BAD : TUI_NORMAL;
        break;
    case R_COMM:
        if (member != NULL)
            top_put_comm(cell, member->name, member->uid);
        else
            top_put_text(cell, "-");
        break;
    case R_SEQ:
        if (member != NULL || now->op.kind == REC_GRAPH_LAUNCH)
            top_put_u64(cell, now->op.seq);
        else
            top_put_text(cell, "-");
        break;
    case R_LAG:
        top_put_worry(cell, process->lag, TUI_WARN);
        break;
    case R_OPS:
        top_put_count(cell, process->ops_per_s);
        break;
    case R_LOST:
        top_put_worry(cell, process->lost, TUI_WARN);
        break;
    case R_BYTES:
        top_put_count(cell, process->bytes_per_s);
        break;
    case R_OPEN:
        top_put_u64(cell, process->nopen);
        break;
    case R_PID:
        top_put_u64(cell, (uint64_t)process->pid);
        break;
    case R_END:
        top_text_end(cell->text, sizeof cell->text, process);
        break;
    case R_RUN:
        top_put_text(cell, process->restart);
        break;
    default:
        top_put_text(cell, process->job);
        break;
    }
}

/* A membership below its process. */
static void rank_member_cell(const struct top_member *member, unsigned column, struct tui_cell *cell)
{
    switch (column) {
    case R_RANK:
        top_put_comm(cell, member->name, member->uid);
        break;
    case R_HOST:
        if (member->comm_rank != REC_ID_NONE)
            snprintf(cell->text, sizeof cell->text, "%u of %u", member->comm_rank, member->nranks);
        break;
    case R_STATE:
        top_put_text(cell, comm_state_name(member->state));
        break;
    case R_OP:
        top_put_text(cell, top_made_by(member->made_by));
        cell->style = TUI_DIM;
        break;
    case R_SEQ:
        top_put_seq(cell, member->next_seq);
        break;
    case R_LAG:
        top_put_worry(cell, member->lag, TUI_WARN);
        break;
    case R_LOST:
        top_put_worry(cell, member->lost, TUI_WARN);
        break;
    default:
        break;
    }
}

static size_t rank_rows(void *context)
{
    return top_of(context)->nprocesses + top_of(context)->nmembers;
}

static uint64_t rank_id(void *context, size_t row)
{
    const struct top_snapshot *snapshot = top_of(context);
    if (row < snapshot->nprocesses)
        return snapshot->processes[row].proc_uid;
    return top_member_id(snapshot, (uint32_t)(row - snapshot->nprocesses));
}

static size_t rank_parent(void *context, size_t row)
{
    const struct top_snapshot *snapshot = top_of(context);
    return row < snapshot->nprocesses ? TUI_NO_ROW : snapshot->members[row - snapshot->nprocesses].process;
}

static void rank_cell(void *context, size_t row, unsigned column, struct tui_cell *cell)
{
    const struct top_snapshot *snapshot = top_of(context);
    if (row < snapshot->nprocesses)
        process_cell(snapshot, &snapshot->processes[row], column, cell);
    else
        rank_member_cell(&snapshot->members[row - snapshot->nprocesses], column, cell);
}

static uint32_t rank_process(const struct top_snapshot *snapshot, uint32_t row)
{
    return row < snapshot->nprocesses ? row : snapshot->members[row - snapshot->nprocesses].process;
}

static uint32_t rank_comm(const struct top_snapshot *snapshot, uint32_t row)
{
    return row < snapshot->nprocesses ? TOP_NONE : snapshot->members[row - snapshot->nprocesses].comm;
}

const struct top_view top_view_ranks = {
    .name = "Ranks",
    .columns = rank_columns,
    .ncolumns = TOP_COUNT(rank_columns),
    .source = {.rows = rank_rows, .id = rank_id, .parent = rank_parent, .cell = rank_cell},
    .process = rank_process,
    .comm = rank_comm};
