/* Joining probes: which ranks, communicators and hosts there are, and who is behind whom. */
#include "fr-top/top.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SILENT_LOCAL_NS  UINT64_C(5000000000)  /* the drain thread writes every 250 ms */
#define SILENT_REMOTE_NS UINT64_C(15000000000) /* a heartbeat every 2 s, and the file system's delay */
#define MAX_WORLD        (1u << 24)
#define NEAR_NS          UINT64_C(10000000000) /* a late start of the same run */
#define RUNNING_NS       UINT64_C(2000000000)

void top_snapshot_clear(struct top_snapshot *snapshot)
{
    free(snapshot->processes);
    free(snapshot->members);
    free(snapshot->comms);
    free(snapshot->comm_members);
    free(snapshot->hosts);
    free(snapshot->absent);
    free(snapshot->kind_ranks);
    *snapshot = (struct top_snapshot){0};
}

/* ---- which processes ---- */

static int compare_probes(const void *left, const void *right)
{
    const struct top_process *a = &(*(struct top_probe *const *)left)->process;
    const struct top_process *b = &(*(struct top_probe *const *)right)->process;
    int order = strcmp(a->job, b->job);
    if (order != 0)
        return order;
    uint32_t rank_a = (uint32_t)a->rank, rank_b = (uint32_t)b->rank; /* unknown: last */
    if (rank_a != rank_b)
        return rank_a < rank_b ? -1 : 1;
    if (a->start_ns != b->start_ns)
        return a->start_ns < b->start_ns ? -1 : 1;
    return (a->proc_uid > b->proc_uid) - (a->proc_uid < b->proc_uid);
}

static uint64_t last_sign(const struct top_process *process)
{
    return process->alive_ns > process->last_call_ns ? process->alive_ns : process->last_call_ns;
}

static bool over(const struct top_process *process)
{
    return process->ended || process->vanished;
}

/* A rank that was started again: the old process is history. */
static bool superseded(struct top_probe *const *probes, size_t n, size_t i)
{
    const struct top_process *process = &probes[i]->process;
    if (!over(process) || process->rank < 0 || i + 1 >= n)
        return false;
    const struct top_process *next = &probes[i + 1]->process;
    return next->rank == process->rank && strcmp(next->job, process->job) == 0;
}

struct job_range {
    size_t first, end;
    bool runs;
    uint64_t start_ns;       /* of the process that started last */
    uint64_t first_start_ns; /* of those that run, the one that started first */
};

static struct job_range next_job(struct top_probe *const *probes, size_t n, size_t first)
{
    struct job_range range = {.first = first, .end = first};
    for (; range.end < n; range.end++) {
        const struct top_process *process = &probes[range.end]->process;
        if (strcmp(process->job, probes[first]->process.job) != 0)
            break;
        if (!over(process) && (!range.runs || process->start_ns < range.first_start_ns))
            range.first_start_ns = process->start_ns;
        range.runs |= !over(process);
        if (process->start_ns > range.start_ns)
            range.start_ns = process->start_ns;
    }
    return range;
}

/*
 * Ended long before any process of the present run began: an earlier run under the same id,
 * or an earlier generation of an elastic job.
 */
static bool of_earlier_run(const struct top_process *process, const struct job_range *range)
{
    uint64_t last_ns = last_sign(process);
    uint64_t present_ns = range->runs ? range->first_start_ns : range->start_ns;
    return over(process) && last_ns != 0 && last_ns + NEAR_NS < present_ns;
}

static bool is_job(const struct top_process *process, const char *job)
{
    return strcmp(job, process->job) == 0 || strcmp(job, process->job_id) == 0;
}

/* Jobs that run; when none does, the one that started last. */
static size_t choose(struct top_probe **probes, size_t n, const struct top_options *options,
                     struct top_snapshot *snapshot)
{
    const char *job = options->job;
    bool any_runs = false;
    uint64_t latest = 0;
    for (size_t i = 0; i < n;) {
        struct job_range range = next_job(probes, n, i);
        bool wanted = job == NULL || is_job(&probes[i]->process, job);
        any_runs |= wanted && range.runs;
        if (wanted && range.start_ns > latest)
            latest = range.start_ns;
        i = range.end;
    }
    size_t kept = 0;
    for (size_t i = 0; i < n;) {
        struct job_range range = next_job(probes, n, i);
        const char *id = probes[i]->process.job;
        bool wanted = job != NULL ? is_job(&probes[i]->process, job)
                      : any_runs  ? range.runs
                                  : range.start_ns == latest;
        if (wanted)
            snprintf(snapshot->job, sizeof snapshot->job, "%s", id);
        snapshot->njobs += wanted;
        for (; i < range.end; i++) {
            bool past = superseded(probes, range.end, i) || of_earlier_run(&probes[i]->process, &range);
            snapshot->npast += wanted && past;
            probes[i]->process.past = past;
            if (wanted && (options->all_runs || !past))
                probes[kept++] = probes[i];
        }
    }
    if (snapshot->njobs > 1)
        snprintf(snapshot->job, sizeof snapshot->job, "%u jobs", snapshot->njobs);
    return kept;
}

/* The launcher said nothing: the rank in the widest communicator that was made from a unique id. */
static void derive_rank(struct top_process *process, const struct top_member *members)
{
    uint32_t widest = 0;
    if (process->rank >= 0)
        return;
    for (uint32_t i = 0; i < process->nmembers; i++) {
        const struct top_member *member = &members[i];
        if (rec_kind_canonical(member->made_by) != REC_COMM_INIT_RANK || member->comm_rank == REC_ID_NONE ||
            member->nranks <= widest)
            continue;
        widest = member->nranks;
        process->rank = (int32_t)member->comm_rank;
        process->derived_rank = true;
    }
}

static bool copy_processes(struct top_snapshot *snapshot, struct top_probe *const *probes, size_t n)
{
    size_t members = 0;
    for (size_t i = 0; i < n; i++)
        members += probes[i]->nmembers;
    snapshot->processes = calloc(n + 1, sizeof *snapshot->processes);
    snapshot->members = calloc(members + 1, sizeof *snapshot->members);
    if (snapshot->processes == NULL || snapshot->members == NULL)
        return false;
    for (size_t i = 0; i < n; i++) {
        struct top_process *process = &snapshot->processes[snapshot->nprocesses++];
        *process = probes[i]->process;
        process->first_member = snapshot->nmembers;
        process->job_index =
            i == 0 ? 0 : process[-1].job_index + (strcmp(process[-1].job, process->job) != 0);
        process->nmembers = (uint32_t)probes[i]->nmembers;
        for (size_t m = 0; m < probes[i]->nmembers; m++) {
            struct top_member *member = &snapshot->members[snapshot->nmembers++];
            *member = probes[i]->members[m];
            member->process = (uint32_t)i;
            member->comm = TOP_NONE;
        }
        derive_rank(process, &snapshot->members[process->first_member]);
    }
    return true;
}

/* ---- communicators ---- */

static int compare_members(const void *left, const void *right, void *context)
{
    const struct top_member *members = context;
    uint32_t i = *(const uint32_t *)left, k = *(const uint32_t *)right;
    const struct top_member *a = &members[i], *b = &members[k];
    if (a->uid != b->uid)
        return a->uid < b->uid ? -1 : 1;
    if (a->uid != 0 && a->comm_rank != b->comm_rank)
        return a->comm_rank < b->comm_rank ? -1 : 1;
    return i < k ? -1 : i > k;
}

static int compare_comms(const void *left, const void *right)
{
    const struct top_comm *a = left, *b = right;
    if (a->created_ns != b->created_ns)
        return a->created_ns < b->created_ns ? -1 : 1;
    return (a->uid > b->uid) - (a->uid < b->uid);
}

static void add_member(struct top_comm *comm, const struct top_member *member)
{
    if (member->name[0] != '\0' && comm->name[0] == '\0')
        memcpy(comm->name, member->name, sizeof comm->name);
    if (member->nranks > comm->nranks)
        comm->nranks = member->nranks;
    if (comm->nmembers == 0 || member->created_ns < comm->created_ns)
        comm->created_ns = member->created_ns;
    if (!member->moving && member->next_seq < comm->back)
        comm->back = member->next_seq;
    if (member->next_seq > comm->front)
        comm->front = member->next_seq;
    comm->made_by = member->made_by;
    comm->parent_uid = member->parent_uid;
    comm->nmembers++;
}

/* The communicator of this uid; comm_members are sorted by it, and know their communicators by now. */
static uint32_t comm_of_uid(const struct top_snapshot *snapshot, uint64_t uid)
{
    uint32_t lo = 0, hi = snapshot->nmembers;
    while (lo < hi) {
        uint32_t middle = lo + (hi - lo) / 2;
        if (snapshot->members[snapshot->comm_members[middle]].uid < uid)
            lo = middle + 1;
        else
            hi = middle;
    }
    const struct top_member *member =
        lo < snapshot->nmembers ? &snapshot->members[snapshot->comm_members[lo]] : NULL;
    return uid != 0 && member != NULL && member->uid == uid ? member->comm : TOP_NONE;
}

static bool join_communicators(struct top_snapshot *snapshot)
{
    uint32_t n = snapshot->nmembers;
    snapshot->comm_members = calloc(n + 1u, sizeof *snapshot->comm_members);
    snapshot->comms = calloc(n + 1u, sizeof *snapshot->comms);
    if (snapshot->comm_members == NULL || snapshot->comms == NULL)
        return false;
    uint32_t *order = snapshot->comm_members;
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    qsort_r(order, n, sizeof *order, compare_members, snapshot->members);
    for (uint32_t i = 0; i < n; i++) {
        const struct top_member *member = &snapshot->members[order[i]];
        struct top_comm *comm = snapshot->ncomms > 0 ? &snapshot->comms[snapshot->ncomms - 1] : NULL;
        if (comm == NULL || member->uid == 0 || comm->uid != member->uid) {
            comm = &snapshot->comms[snapshot->ncomms++];
            *comm = (struct top_comm){.uid = member->uid, .back = UINT64_MAX, .members = &order[i]};
        }
        add_member(comm, member);
    }
    qsort(snapshot->comms, snapshot->ncomms, sizeof *snapshot->comms, compare_comms);
    for (uint32_t c = 0; c < snapshot->ncomms; c++) {
        struct top_comm *comm = &snapshot->comms[c];
        if (comm->back > comm->front)
            comm->back = comm->front;
        for (uint32_t m = 0; m < comm->nmembers; m++) {
            struct top_member *member = &snapshot->members[comm->members[m]];
            struct top_process *process = &snapshot->processes[member->process];
            member->comm = c;
            member->lag = member->moving ? 0 : comm->front - member->next_seq;
            comm->lagging += member->lag > 0;
            if (member->lag > process->lag)
                process->lag = member->lag;
        }
    }
    for (uint32_t c = 0; c < snapshot->ncomms; c++)
        snapshot->comms[c].parent = comm_of_uid(snapshot, snapshot->comms[c].parent_uid);
    return true;
}

/* ---- kinds of calls ---- */

static void add_kind(struct top_kind *kind, const struct top_kind_rate *rate)
{
    kind->ranks++;
    kind->sum.calls += rate->calls;
    kind->sum.size += rate->size;
    kind->sum.bus += rate->bus;
    kind->sum.timed_bus += rate->timed_bus;
    kind->sum.timed_s += rate->timed_s;
}

static bool sum_kinds(struct top_snapshot *snapshot)
{
    size_t room = 0;
    for (uint32_t p = 0; p < snapshot->nprocesses; p++) {
        for (unsigned k = 0; k < TOP_KINDS; k++)
            room += snapshot->processes[p].kinds[k].calls > 0;
    }
    snapshot->kind_ranks = calloc(room + 1, sizeof *snapshot->kind_ranks);
    if (snapshot->kind_ranks == NULL)
        return false;
    for (unsigned k = 0; k < TOP_KINDS; k++) {
        struct top_kind kind = {.kind = top_kind_at(k)};
        for (uint32_t p = 0; p < snapshot->nprocesses; p++) {
            const struct top_kind_rate *rate = &snapshot->processes[p].kinds[k];
            if (!(rate->calls > 0))
                continue;
            add_kind(&kind, rate);
            snapshot->kind_ranks[snapshot->nkind_ranks++] = (struct top_kind_rank){snapshot->nkinds, p};
        }
        if (kind.ranks > 0)
            snapshot->kinds[snapshot->nkinds++] = kind;
    }
    return true;
}

/* ---- states and sums ---- */

enum waits { WAITS, MAY_WAIT, WAITS_NOT };

/*
 * Does this rank wait for others in its last call? Returned from or not, that call may still
 * be waiting on the GPU, and then being behind elsewhere is a consequence.
 */
static enum waits waits_for_others(const struct top_snapshot *snapshot, const struct top_process *process)
{
    if (!process->in_call && process->now.op.state == REC_STATE_COMPLETED)
        return WAITS_NOT;
    if (process->now.member >= process->nmembers)
        return MAY_WAIT;
    const struct top_member *member = &snapshot->members[process->first_member + process->now.member];
    const struct top_comm *comm = &snapshot->comms[member->comm];
    if (!(rec_kind_flags(process->now.op.kind) & REC_KF_SEQ))
        return MAY_WAIT;
    if (comm->back <= process->now.op.seq)
        return WAITS;
    return comm->nmembers < comm->nranks ? MAY_WAIT : WAITS_NOT;
}

static enum top_state state_of(const struct top_process *process, uint32_t stall_sec, uint64_t now_ns)
{
    if (process->vanished)
        return TOP_DEAD;
    if (process->ended && process->end.reason == REC_END_SIGNAL)
        return TOP_CRASHED;
    if (process->ended)
        return process->end.status != 0 ? TOP_FAILED : TOP_EXITED;
    uint64_t silent = process->local ? SILENT_LOCAL_NS : SILENT_REMOTE_NS;
    /* Calls are signs of life too: the recorder's own thread may hang on a dead file system. */
    if (process->alive_ns != 0 && process->looked_ns > last_sign(process) + silent)
        return TOP_SILENT;
    uint64_t quiet = now_ns > process->last_call_ns ? now_ns - process->last_call_ns : 0;
    bool stuck = quiet >= stall_sec * UINT64_C(1000000000) && process->last_call_ns != 0;
    if (stuck && (process->in_call || process->nmembers > 0))
        return TOP_STALLED;
    if (process->in_call)
        return TOP_IN_CALL;
    if (process->nmembers == 0)
        return TOP_STARTING;
    return process->ops_per_s > 0 || quiet < RUNNING_NS ? TOP_RUNNING : TOP_IDLE;
}

static void add_rate(double *sum, double rate)
{
    if (!isnan(rate))
        *sum = isnan(*sum) ? rate : *sum + rate;
}

static int compare_hosts(const void *left, const void *right)
{
    const struct top_host *a = left, *b = right;
    return strverscmp(a->name, b->name);
}

static struct top_host *host_of(struct top_snapshot *snapshot, const char *name)
{
    for (uint32_t h = snapshot->nhosts; h-- > 0;) {
        if (strcmp(snapshot->hosts[h].name, name) == 0)
            return &snapshot->hosts[h];
    }
    struct top_host *host = &snapshot->hosts[snapshot->nhosts++];
    snprintf(host->name, sizeof host->name, "%s", name);
    host->ops_per_s = host->bytes_per_s = NAN;
    return host;
}

static void sum_up(struct top_snapshot *snapshot, const struct top_process *process, uint32_t index)
{
    struct top_host *host = host_of(snapshot, process->host);
    bool ended = top_state_ended(process->state), stuck = top_state_stuck(process->state);
    host->processes++;
    host->up += !ended;
    host->stuck += stuck;
    host->ended += ended;
    host->lost += process->lost;
    if (process->lag > host->lag)
        host->lag = process->lag;
    add_rate(&host->ops_per_s, process->ops_per_s);
    add_rate(&host->bytes_per_s, process->bytes_per_s);
    if (process->in_call && !ended && (host->oldest_ns == 0 || process->now.since_ns < host->oldest_ns))
        host->oldest_ns = process->now.since_ns;

    snapshot->states[process->state]++;
    snapshot->up += !ended;
    snapshot->stuck += stuck;
    snapshot->ended += ended;
    snapshot->lost += process->lost;
    add_rate(&snapshot->ops_per_s, process->ops_per_s);
    add_rate(&snapshot->bytes_per_s, process->bytes_per_s);
    if (process->in_call && !ended &&
        (snapshot->oldest == TOP_NONE ||
         process->now.since_ns < snapshot->processes[snapshot->oldest].now.since_ns))
        snapshot->oldest = index;
    if (!process->in_call && process->pending > 0 && !ended &&
        (snapshot->oldest_gpu == TOP_NONE ||
         process->now.since_ns < snapshot->processes[snapshot->oldest_gpu].now.since_ns))
        snapshot->oldest_gpu = index;
    if (process->world_size > 0 && (uint32_t)process->world_size > snapshot->world)
        snapshot->world = (uint32_t)process->world_size;
}

/*
 * Among the stalled, those that keep the others waiting: outside NCCL, behind, and not
 * waiting themselves. Those of which that is not certain count only when there is no other.
 */
static void find_late(struct top_snapshot *snapshot)
{
    bool found = false;
    for (enum waits least = WAITS_NOT; !found && least >= MAY_WAIT; least--) {
        for (uint32_t i = 0; i < snapshot->nprocesses; i++) {
            struct top_process *process = &snapshot->processes[i];
            if (process->state == TOP_STALLED && !process->in_call && process->lag > 0 &&
                waits_for_others(snapshot, process) >= least) {
                process->state = TOP_LATE;
                found = true;
            }
        }
    }
}

/* Ranks that the launcher spoke of and nobody has seen. Processes are sorted by rank. */
static bool find_absent(struct top_snapshot *snapshot)
{
    uint32_t p = 0;
    snapshot->absent = calloc(snapshot->world + 1u, sizeof *snapshot->absent);
    if (snapshot->absent == NULL)
        return false;
    for (uint32_t rank = 0; rank < snapshot->world; rank++) {
        while (p < snapshot->nprocesses && (uint32_t)snapshot->processes[p].rank < rank)
            p++;
        if (p == snapshot->nprocesses || (uint32_t)snapshot->processes[p].rank != rank)
            snapshot->absent[snapshot->nabsent++] = (int32_t)rank;
    }
    return true;
}

/* A trace that cannot be written is worth a word while there is time to make room. */
static void warn_of_writing(struct top_snapshot *snapshot)
{
    for (uint32_t i = 0; i < snapshot->nprocesses && snapshot->warning[0] == '\0'; i++) {
        const struct top_process *process = &snapshot->processes[i];
        char rank[16];
        if (process->file_error == 0 || top_state_ended(process->state))
            continue;
        top_text_rank(rank, sizeof rank, process);
        snprintf(snapshot->warning, sizeof snapshot->warning, "rank %s (%s) cannot write its trace: %s", rank,
                 process->host, strerror((int)process->file_error));
    }
}

bool top_snapshot_build(struct top_snapshot *snapshot, struct top_probe *const *probes, size_t nprobes,
                        const struct top_options *options, uint64_t now_ns)
{
    snapshot->now_ns = now_ns;
    snapshot->oldest = snapshot->oldest_gpu = TOP_NONE;
    snapshot->ops_per_s = snapshot->bytes_per_s = NAN;
    struct top_probe **sorted = calloc(nprobes + 1, sizeof *sorted);
    if (sorted == NULL)
        return false;
    if (nprobes > 0)
        memcpy(sorted, probes, nprobes * sizeof *sorted);
    qsort(sorted, nprobes, sizeof *sorted, compare_probes);
    size_t n = choose(sorted, nprobes, options, snapshot);
    bool ok = copy_processes(snapshot, sorted, n) && join_communicators(snapshot) && sum_kinds(snapshot);
    free(sorted);
    if (!ok)
        return false;
    snapshot->hosts = calloc(n + 1, sizeof *snapshot->hosts);
    if (snapshot->hosts == NULL)
        return false;
    for (uint32_t i = 0; i < snapshot->nprocesses; i++) {
        struct top_process *process = &snapshot->processes[i];
        process->state = state_of(process, options->stall_sec, now_ns);
    }
    find_late(snapshot);
    for (uint32_t i = 0; i < snapshot->nprocesses; i++)
        sum_up(snapshot, &snapshot->processes[i], i);
    qsort(snapshot->hosts, snapshot->nhosts, sizeof *snapshot->hosts, compare_hosts);
    for (uint32_t m = 0; m < snapshot->nmembers; m++) {
        struct top_comm *comm = &snapshot->comms[snapshot->members[m].comm];
        enum top_state state = snapshot->processes[snapshot->members[m].process].state;
        comm->stuck += top_state_stuck(state);
        comm->ended += top_state_ended(state);
    }
    if (snapshot->njobs > 1)
        snapshot->world = 0;
    warn_of_writing(snapshot);
    /* A world size is somebody's claim: no memory for absurd ones. Derived ranks are not in order. */
    bool count = options->dir != NULL && snapshot->world <= MAX_WORLD && snapshot->nprocesses > 0;
    for (uint32_t i = 0; count && i < snapshot->nprocesses; i++)
        count = !snapshot->processes[i].derived_rank;
    return !count || find_absent(snapshot);
}
