#include "fr-top/views.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fr-top/diagnosis.h"

#define COUNT(array) ((unsigned)(sizeof(array) / sizeof(array)[0]))

enum tui_style top_state_style(enum top_state state)
{
    switch (state) {
    case TOP_DEAD:
    case TOP_CRASHED:
    case TOP_FAILED:
    case TOP_LATE:
    case TOP_STALLED:
        return TUI_BAD;
    case TOP_SILENT:
        return TUI_WARN;
    case TOP_RUNNING:
        return TUI_GOOD;
    case TOP_IN_CALL:
        return TUI_ACCENT;
    case TOP_IDLE:
    case TOP_EXITED:
        return TUI_DIM;
    default:
        return TUI_NORMAL;
    }
}

static enum tui_style role_style(enum top_role role)
{
    static const enum tui_style styles[] = {[TOP_ROLE_NONE] = TUI_NORMAL,
                                            [TOP_ROLE_CULPRIT] = TUI_BAD,
                                            [TOP_ROLE_SUSPECT] = TUI_WARN,
                                            [TOP_ROLE_VICTIM] = TUI_NORMAL,
                                            [TOP_ROLE_SLOW] = TUI_WARN};
    return styles[role];
}

/* ---- filling cells ---- */

static void put_count(struct tui_cell *cell, double value)
{
    top_text_count(cell->text, sizeof cell->text, value);
    cell->number = value;
}

static void put_u64(struct tui_cell *cell, uint64_t value)
{
    snprintf(cell->text, sizeof cell->text, "%llu", (unsigned long long)value);
    cell->number = (double)value;
}

static void put_text(struct tui_cell *cell, const char *text)
{
    snprintf(cell->text, sizeof cell->text, "%.*s", (int)sizeof cell->text - 1, text);
}

/* Counts where zero is the good news. */
static void put_worry(struct tui_cell *cell, uint64_t value, enum tui_style style)
{
    put_count(cell, (double)value);
    cell->style = value > 0 ? style : TUI_DIM;
}

static void put_age(struct tui_cell *cell, const struct top_snapshot *snapshot, uint64_t since_ns)
{
    if (since_ns == 0) {
        put_text(cell, "-");
        return;
    }
    uint64_t age = snapshot->now_ns > since_ns ? snapshot->now_ns - since_ns : 0;
    top_text_age(cell->text, sizeof cell->text, age);
    cell->number = (double)age;
}

static void put_seq(struct tui_cell *cell, uint64_t next_seq)
{
    if (next_seq > 0)
        put_u64(cell, next_seq - 1);
    else
        put_text(cell, "-");
}

static void put_comm(struct tui_cell *cell, const char *name, uint64_t uid)
{
    top_text_comm(cell->text, sizeof cell->text, name, uid);
}

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

static const char *made_by_name(uint32_t made_by)
{
    const char *name = rec_kind_name(made_by);
    return name != NULL ? name : "-";
}

/* ---- ranks ---- */

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
    R_JOB
};
static const struct tui_column rank_columns[] = {
    [R_RANK] = {"RANK", "place in the job; ~ = inferred from the communicator", .width = 5, .max_width = 7,
                .tree_width = 16, .numeric = true, .rising = true},
    [R_HOST] = {"HOST", "where it runs", .width = 8, .max_width = 40},
    [R_STATE] = {"STATE", "worst first", .width = 8, .numeric = true, .rising = true, .left = true},
    [R_ROLE] = {"VERDICT", "what the diagnosis says of it", .width = 7},
    [R_OP] = {"OP", "the oldest call inside NCCL, else on the GPU, else the last one", .width = 10,
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
    [R_JOB] = {"JOB", "id of the job", .width = 8, .max_width = 48, .yields = 6},
};

/* Jobs one after the other, ranks in each; a process without a rank sorts last. */
static double rank_order(const struct top_snapshot *snapshot, const struct top_process *process)
{
    uint32_t job = 0;
    if (process->rank < 0)
        return NAN;
    if (snapshot->njobs > 1) {
        for (const struct top_process *p = snapshot->processes; p < process; p++)
            job += strcmp(p[0].job, p[1].job) != 0;
    }
    return job * 4294967296.0 + process->rank;
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
        cell->number = rank_order(snapshot, process);
        cell->style = role_style(top_role_of(snapshot->verdict, process));
        break;
    case R_HOST:
        put_text(cell, process->host);
        break;
    case R_STATE:
        put_text(cell, top_state_name(process->state));
        cell->number = process->state;
        cell->style = top_state_style(process->state);
        break;
    case R_ROLE:
        put_text(cell, top_role_name(top_role_of(snapshot->verdict, process)));
        cell->style = role_style(top_role_of(snapshot->verdict, process));
        break;
    case R_WHERE:
        put_text(cell, top_text_where(&now->op));
        cell->style = process->in_call ? TUI_ACCENT : TUI_NORMAL;
        break;
    case R_OP:
        top_text_op(cell->text, sizeof cell->text, &now->op);
        cell->style = process->in_call ? TUI_BOLD : TUI_NORMAL;
        break;
    case R_FOR:
        put_age(cell, snapshot, now->since_ns);
        cell->style = top_state_stuck(process->state) ? TUI_BAD : TUI_NORMAL;
        break;
    case R_COMM:
        if (member != NULL)
            put_comm(cell, member->name, member->uid);
        else
            put_text(cell, "-");
        break;
    case R_SEQ:
        if (member != NULL)
            put_u64(cell, now->op.seq);
        else
            put_text(cell, "-");
        break;
    case R_LAG:
        put_worry(cell, process->lag, TUI_WARN);
        break;
    case R_OPS:
        put_count(cell, process->ops_per_s);
        break;
    case R_LOST:
        put_worry(cell, process->lost, TUI_WARN);
        break;
    case R_BYTES:
        top_text_bytes(cell->text, sizeof cell->text, process->bytes_per_s);
        cell->number = process->bytes_per_s;
        break;
    case R_OPEN:
        put_u64(cell, process->nopen);
        break;
    case R_PID:
        put_u64(cell, (uint64_t)process->pid);
        break;
    case R_END:
        top_text_end(cell->text, sizeof cell->text, process);
        break;
    default:
        put_text(cell, process->job);
        break;
    }
}

/* A membership below its process. */
static void rank_member_cell(const struct top_member *member, unsigned column, struct tui_cell *cell)
{
    switch (column) {
    case R_RANK:
        put_comm(cell, member->name, member->uid);
        break;
    case R_HOST:
        if (member->comm_rank != REC_ID_NONE)
            snprintf(cell->text, sizeof cell->text, "%u of %u", member->comm_rank, member->nranks);
        break;
    case R_STATE:
        put_text(cell, comm_state_name(member->state));
        break;
    case R_OP:
        put_text(cell, made_by_name(member->made_by));
        cell->style = TUI_DIM;
        break;
    case R_SEQ:
        put_seq(cell, member->next_seq);
        break;
    case R_LAG:
        put_worry(cell, member->lag, TUI_WARN);
        break;
    case R_LOST:
        put_worry(cell, member->lost, TUI_WARN);
        break;
    default:
        break;
    }
}

static const struct top_snapshot *of(void *context)
{
    return ((const struct top_view_data *)context)->snapshot;
}

static uint64_t member_id(const struct top_snapshot *snapshot, uint32_t m)
{
    const struct top_member *member = &snapshot->members[m];
    return rec_mix64(snapshot->processes[member->process].proc_uid + member->comm_id + 1);
}

static size_t rank_rows(void *context)
{
    return of(context)->nprocesses + of(context)->nmembers;
}

static uint64_t rank_id(void *context, size_t row)
{
    const struct top_snapshot *snapshot = of(context);
    if (row < snapshot->nprocesses)
        return snapshot->processes[row].proc_uid;
    return member_id(snapshot, (uint32_t)(row - snapshot->nprocesses));
}

static size_t rank_parent(void *context, size_t row)
{
    const struct top_snapshot *snapshot = of(context);
    return row < snapshot->nprocesses ? TUI_NO_ROW : snapshot->members[row - snapshot->nprocesses].process;
}

static void rank_cell(void *context, size_t row, unsigned column, struct tui_cell *cell)
{
    const struct top_snapshot *snapshot = of(context);
    if (row < snapshot->nprocesses)
        process_cell(snapshot, &snapshot->processes[row], column, cell);
    else
        rank_member_cell(&snapshot->members[row - snapshot->nprocesses], column, cell);
}

/* ---- communicators ---- */

enum { C_COMM, C_RANKS, C_FRONT, C_SPREAD, C_LAGGING, C_LAST, C_STUCK, C_ENDED, C_AGE, C_MADE, C_UID };
static const struct tui_column comm_columns[] = {
    [C_COMM] = {"COMM", "name, or the first half of its uid", .width = 12, .max_width = 40, .tree_width = 22},
    [C_RANKS] = {"RANKS", "members seen, of how many", .width = 9, .max_width = 12, .numeric = true},
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

static void communicator_cell(const struct top_snapshot *snapshot, const struct top_comm *comm,
                              unsigned column, struct tui_cell *cell)
{
    uint32_t last;
    switch (column) {
    case C_COMM:
        put_comm(cell, comm->name, comm->uid);
        break;
    case C_RANKS:
        snprintf(cell->text, sizeof cell->text, "%u/%u", comm->nmembers, comm->nranks);
        cell->number = comm->nranks;
        break;
    case C_FRONT:
        put_seq(cell, comm->front);
        break;
    case C_SPREAD:
        put_worry(cell, comm->front - comm->back, TUI_WARN);
        break;
    case C_LAGGING:
        put_worry(cell, comm->lagging, TUI_WARN);
        break;
    case C_LAST:
        last = last_member(snapshot, comm);
        if (last == TOP_NONE) {
            put_text(cell, "-");
            break;
        }
        top_text_rank(cell->text, sizeof cell->text, &snapshot->processes[snapshot->members[last].process]);
        cell->number = snapshot->processes[snapshot->members[last].process].rank;
        break;
    case C_STUCK:
        put_worry(cell, comm->stuck, TUI_BAD);
        break;
    case C_ENDED:
        put_worry(cell, comm->ended, TUI_BAD);
        break;
    case C_AGE:
        put_age(cell, snapshot, comm->created_ns);
        break;
    case C_MADE:
        put_text(cell, made_by_name(comm->made_by));
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
            put_u64(cell, member->comm_rank);
        break;
    case C_FRONT:
        put_seq(cell, member->next_seq);
        break;
    case C_SPREAD:
        put_worry(cell, member->lag, TUI_WARN);
        break;
    case C_MADE:
        put_text(cell, top_state_name(process->state));
        cell->style = top_state_style(process->state);
        break;
    default:
        break;
    }
}

static size_t comm_rows(void *context)
{
    return of(context)->ncomms + of(context)->nmembers;
}

static uint64_t comm_id(void *context, size_t row)
{
    const struct top_snapshot *snapshot = of(context);
    if (row >= snapshot->ncomms)
        return member_id(snapshot, snapshot->comm_members[row - snapshot->ncomms]);
    const struct top_comm *comm = &snapshot->comms[row];
    return comm->uid != 0 ? comm->uid : ~member_id(snapshot, comm->members[0]);
}

static size_t comm_parent(void *context, size_t row)
{
    const struct top_snapshot *snapshot = of(context);
    return row < snapshot->ncomms ? TUI_NO_ROW
                                  : snapshot->members[snapshot->comm_members[row - snapshot->ncomms]].comm;
}

static void comm_cell(void *context, size_t row, unsigned column, struct tui_cell *cell)
{
    const struct top_snapshot *snapshot = of(context);
    if (row < snapshot->ncomms)
        communicator_cell(snapshot, &snapshot->comms[row], column, cell);
    else
        comm_member_cell(snapshot, &snapshot->members[snapshot->comm_members[row - snapshot->ncomms]], column,
                         cell);
}

/* ---- hosts ---- */

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
        put_text(cell, host->name);
        break;
    case H_RANKS:
        put_u64(cell, host->processes);
        break;
    case H_UP:
        put_u64(cell, host->up);
        break;
    case H_STUCK:
        put_worry(cell, host->stuck, TUI_BAD);
        break;
    case H_ENDED:
        put_worry(cell, host->ended, TUI_WARN);
        break;
    case H_LAG:
        put_worry(cell, host->lag, TUI_WARN);
        break;
    case H_OPS:
        put_count(cell, host->ops_per_s);
        break;
    case H_BYTES:
        put_count(cell, host->bytes_per_s);
        break;
    case H_LOST:
        put_worry(cell, host->lost, TUI_WARN);
        break;
    default:
        put_age(cell, snapshot, host->oldest_ns);
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
        put_worry(cell, process->lag, TUI_WARN);
        break;
    case H_OPS:
        put_count(cell, process->ops_per_s);
        break;
    case H_BYTES:
        put_count(cell, process->bytes_per_s);
        break;
    case H_LOST:
        put_worry(cell, process->lost, TUI_WARN);
        break;
    case H_OLDEST:
        put_age(cell, snapshot, process->in_call ? process->now.since_ns : 0);
        break;
    default:
        break;
    }
}

static size_t host_rows(void *context)
{
    return of(context)->nhosts + of(context)->nprocesses;
}

static uint64_t host_id(void *context, size_t row)
{
    const struct top_snapshot *snapshot = of(context);
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
    const struct top_snapshot *snapshot = of(context);
    if (row < snapshot->nhosts)
        return TUI_NO_ROW;
    const char *name = snapshot->processes[row - snapshot->nhosts].host;
    const struct top_host *host =
        bsearch(name, snapshot->hosts, snapshot->nhosts, sizeof snapshot->hosts[0], compare_host_name);
    return host != NULL ? (size_t)(host - snapshot->hosts) : TUI_NO_ROW;
}

static void host_cell(void *context, size_t row, unsigned column, struct tui_cell *cell)
{
    const struct top_snapshot *snapshot = of(context);
    if (row < snapshot->nhosts)
        host_row_cell(snapshot, &snapshot->hosts[row], column, cell);
    else
        host_process_cell(snapshot, &snapshot->processes[row - snapshot->nhosts], column, cell);
}

/* ---- */

const struct top_view top_views[TOP_TABLES] = {
    [TOP_VIEW_RANKS] = {"Ranks",
                        rank_columns,
                        COUNT(rank_columns),
                        {rank_rows, rank_id, rank_parent, rank_cell}},
    [TOP_VIEW_COMMS] = {"Communicators",
                        comm_columns,
                        COUNT(comm_columns),
                        {comm_rows, comm_id, comm_parent, comm_cell}},
    [TOP_VIEW_HOSTS] = {"Hosts",
                        host_columns,
                        COUNT(host_columns),
                        {host_rows, host_id, host_parent, host_cell}},
};

uint32_t top_view_process(const struct top_snapshot *snapshot, unsigned view, size_t row)
{
    uint32_t index = (uint32_t)row;
    if (row == TUI_NO_ROW)
        return TOP_NONE;
    if (view == TOP_VIEW_RANKS)
        return index < snapshot->nprocesses ? index : snapshot->members[index - snapshot->nprocesses].process;
    if (view == TOP_VIEW_HOSTS)
        return index < snapshot->nhosts ? TOP_NONE : index - snapshot->nhosts;
    return index < snapshot->ncomms
               ? TOP_NONE
               : snapshot->members[snapshot->comm_members[index - snapshot->ncomms]].process;
}

uint32_t top_view_comm(const struct top_snapshot *snapshot, unsigned view, size_t row)
{
    uint32_t index = (uint32_t)row;
    if (row == TUI_NO_ROW || view == TOP_VIEW_HOSTS)
        return TOP_NONE;
    if (view == TOP_VIEW_COMMS)
        return index < snapshot->ncomms
                   ? index
                   : snapshot->members[snapshot->comm_members[index - snapshot->ncomms]].comm;
    return index < snapshot->nprocesses ? TOP_NONE : snapshot->members[index - snapshot->nprocesses].comm;
}
