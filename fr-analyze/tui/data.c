#include <stdlib.h>
#include <string.h>

#include "fr-analyze/tui/browser.h"
#include "fr-common.h"

#define RANKS_MAX (1u << 20) /* that a job may claim to have */
#define NEAR_NS   20000000   /* around the time of a piece of evidence */
#define READ_NS   30000000   /* that a key may wait for */
#define SAME_NS   1000       /* more than the resolution of any trace */

static void figure_comms(struct browse_data *data)
{
    for (size_t c = 0; c < data->ncomms; c++) {
        const struct rec_communicator *comm = data->comms[c];
        struct comm_figures *f = &data->figures[c];
        *f = (struct comm_figures){.back = UINT64_MAX, .finding = BROWSE_NONE};
        for (uint32_t m = 0; m < comm->nmembers; m++) {
            const struct rec_member *member = comm->members[m];
            f->front = member->next_seq > f->front ? member->next_seq : f->front;
            f->back = member->next_seq < f->back ? member->next_seq : f->back;
            f->lost += member->lost;
            f->ended += member->teardown.kind != REC_NONE;
        }
        for (uint32_t m = 0; m < comm->nmembers; m++)
            f->behind += comm->members[m]->next_seq < f->front;
        if (comm->nmembers == 0)
            f->back = 0;
    }
    for (size_t i = data->verdict->nfindings; i-- > 0;) {
        const struct rec_communicator *comm = data->verdict->findings[i].comm;
        if (comm != NULL)
            data->figures[comm->index].finding = (uint32_t)i;
    }
}

/* What the process did last: the call it is in, else the last one on any communicator. */
static void find_last(struct rank_figures *rank, const struct rec_process *p)
{
    for (uint32_t i = 0; i < p->nopen; i++) {
        if (!rank->open || p->open[i].enter_ns > rank->last->enter_ns) {
            rank->last = &p->open[i];
            rank->open = true;
        }
    }
    if (rank->open) {
        rank->member = rec_process_member(p, rank->last->comm);
        return;
    }
    for (uint32_t m = 0; m < p->nmembers; m++) {
        const struct rec_op *op = &p->members[m]->last_op;
        if (op->kind != REC_NONE && (rank->last == NULL || op->enter_ns > rank->last->enter_ns)) {
            rank->last = op;
            rank->member = p->members[m];
        }
    }
}

uint64_t browse_common_ns(const struct browse_data *data, const struct rec_process *process, uint64_t ns)
{
    return ns != 0 ? ns - (uint64_t)data->offsets[process->index] : 0;
}

uint64_t browse_host_ns(const struct browse_data *data, const struct rec_process *process, uint64_t ns)
{
    return ns != 0 ? ns + (uint64_t)data->offsets[process->index] : 0;
}

static const struct rec_host_clock *clock_of(const struct browse_data *data, size_t process)
{
    const struct rec_census *census = data->verdict->census;
    uint32_t clock = census->clock_of[process];
    return clock < census->nclocks && census->clocks[clock].known ? &census->clocks[clock] : NULL;
}

bool browse_clock_known(const struct browse_data *data, const struct rec_process *process)
{
    return clock_of(data, process->index) != NULL;
}

static void take_clocks(struct browse_data *data)
{
    for (size_t i = 0; i < data->nprocesses; i++) {
        const struct rec_host_clock *clock = clock_of(data, i);
        data->offsets[i] = clock != NULL ? clock->offset_ns : 0;
    }
}

static void figure_rank(struct browse_data *data, struct rank_figures *rank, uint32_t process)
{
    const struct rec_process *p = data->processes[process];
    *rank = (struct rank_figures){.rank = p->rank, .process = process};
    find_last(rank, p);
    for (uint32_t m = 0; m < p->nmembers; m++) {
        uint64_t front = data->figures[p->members[m]->comm->index].front;
        uint64_t lag = front - p->members[m]->next_seq;
        rank->lag = lag > rank->lag ? lag : rank->lag;
    }
    uint64_t start_ns = browse_common_ns(data, p, p->start_ns),
             last_ns = browse_common_ns(data, p, p->last_ns);
    uint64_t call_ns = browse_common_ns(data, p, p->last_call_ns);
    if (data->first_ns == 0 || (start_ns != 0 && start_ns < data->first_ns))
        data->first_ns = start_ns;
    if (last_ns > data->last_ns)
        data->last_ns = last_ns;
    if (call_ns > data->quiet_ns)
        data->quiet_ns = call_ns;
}

/* The first finding that names the rank decides; of earlier runs only the culprits are known. */
static enum rec_role role_of(const struct browse_data *data, int32_t rank)
{
    const struct rec_verdict *verdict = data->verdict;
    enum rec_role role = REC_ROLE_NONE;
    if (data->run + 1 < data->nruns) {
        const struct rec_generation *run = &verdict->census->generations[data->run];
        const struct rec_finding known = {.culprits = run->culprits, .nculprits = run->nculprits};
        return rec_finding_role(&known, rank);
    }
    for (size_t i = 0; i < verdict->nfindings && rank >= 0 && role == REC_ROLE_NONE; i++)
        role = rec_finding_role(&verdict->findings[i], rank);
    return role;
}

static bool of_run(const struct browse_data *data, size_t process)
{
    return data->verdict->census->generation_of[process] == data->run;
}

/* Processes come by rank; the holes between them are ranks without a trace. Those without a rank stay last.
 */
static void list_ranks(struct browse_data *data, uint32_t expected)
{
    int64_t next = 0;
    size_t unranked = 0;
    while (unranked < data->nprocesses && data->processes[unranked]->rank < 0)
        unranked++;
    for (size_t i = unranked; i < data->nprocesses; i++) {
        if (!of_run(data, i))
            continue;
        for (; next < data->processes[i]->rank && next < expected; next++)
            data->ranks[data->nranks++] =
                (struct rank_figures){.rank = (int32_t)next, .process = BROWSE_NONE};
        data->rank_of[i] = (uint32_t)data->nranks;
        figure_rank(data, &data->ranks[data->nranks++], (uint32_t)i);
        next = (int64_t)data->processes[i]->rank + 1;
    }
    for (; unranked == 0 && next < expected; next++)
        data->ranks[data->nranks++] = (struct rank_figures){.rank = (int32_t)next, .process = BROWSE_NONE};
    for (size_t i = 0; i < unranked; i++) {
        if (!of_run(data, i))
            continue;
        data->rank_of[i] = (uint32_t)data->nranks;
        figure_rank(data, &data->ranks[data->nranks++], (uint32_t)i);
    }
    for (size_t i = 0; i < data->nranks; i++)
        data->ranks[i].role = role_of(data, data->ranks[i].rank);
}

static void list_comms(struct browse_data *data)
{
    data->nshown = 0;
    for (size_t c = 0; c < data->ncomms; c++) {
        const struct rec_communicator *comm = data->comms[c];
        bool shown = comm->nmembers > 0 ? of_run(data, comm->members[0]->process->index)
                                        : data->run + 1 == data->nruns;
        data->shown_at[c] = shown ? (uint32_t)data->nshown : BROWSE_NONE;
        if (shown)
            data->shown[data->nshown++] = (uint32_t)c;
    }
}

void browse_data_show(struct browse_data *data, size_t run)
{
    uint32_t expected = data->verdict->census->generations[run].expected;
    data->run = run;
    data->nranks = 0;
    data->first_ns = data->last_ns = data->quiet_ns = 0;
    for (size_t i = 0; i < data->nprocesses; i++)
        data->rank_of[i] = BROWSE_NONE;
    list_ranks(data, expected < RANKS_MAX ? expected : RANKS_MAX);
    list_comms(data);
}

bool browse_data_init(struct browse_data *data, const struct rec_job *job, const struct rec_verdict *verdict)
{
    *data = (struct browse_data){.job = job, .verdict = verdict};
    data->processes = rec_job_processes(job, &data->nprocesses);
    data->comms = rec_job_communicators(job, &data->ncomms);
    uint32_t expected = 0;
    data->nruns = verdict->census->ngenerations;
    for (size_t r = 0; r < data->nruns; r++)
        if (verdict->census->generations[r].expected > expected)
            expected = verdict->census->generations[r].expected;
    if (expected > RANKS_MAX)
        expected = RANKS_MAX;
    data->figures = calloc(data->ncomms + 1, sizeof *data->figures);
    data->ranks = calloc(data->nprocesses + expected + 1, sizeof *data->ranks);
    data->rank_of = calloc(data->nprocesses + 1, sizeof *data->rank_of);
    data->offsets = calloc(data->nprocesses + 1, sizeof *data->offsets);
    data->shown = calloc(data->ncomms + 1, sizeof *data->shown);
    data->shown_at = calloc(data->ncomms + 1, sizeof *data->shown_at);
    if (data->shown == NULL || data->shown_at == NULL || data->figures == NULL || data->ranks == NULL ||
        data->rank_of == NULL || data->offsets == NULL) {
        browse_data_free(data);
        return false;
    }
    data->runs = fr_job_runs(job);
    take_clocks(data);
    figure_comms(data);
    browse_data_show(data, data->nruns - 1);
    return true;
}

void browse_data_free(struct browse_data *data)
{
    free(data->figures);
    free(data->ranks);
    free(data->rank_of);
    free(data->offsets);
    free(data->shown);
    free(data->shown_at);
    data->shown = data->shown_at = NULL;
    data->offsets = NULL;
    data->figures = NULL;
    data->ranks = NULL;
    data->rank_of = NULL;
}

uint32_t browse_process_of(const struct browse_data *data, int32_t rank)
{
    size_t lo = 0, hi = data->nprocesses;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (data->processes[middle]->rank <= rank)
            lo = middle + 1;
        else
            hi = middle;
    }
    for (; rank >= 0 && lo > 0 && data->processes[lo - 1]->rank == rank; lo--) {
        if (of_run(data, lo - 1))
            return (uint32_t)lo - 1;
    }
    return BROWSE_NONE;
}

struct rec_member *browse_member(const struct rec_process *process, const struct rec_communicator *comm)
{
    for (uint32_t m = 0; m < process->nmembers; m++)
        if (process->members[m]->comm == comm)
            return process->members[m];
    return NULL;
}

struct rec_member *browse_member_at(const struct rec_communicator *comm, int64_t comm_rank)
{
    for (uint32_t m = 0; m < comm->nmembers; m++)
        if (comm->members[m]->comm_rank == comm_rank)
            return comm->members[m];
    return NULL;
}

struct place browse_op_place(const struct browse_data *data, const struct rec_process *process,
                             const struct rec_op *op)
{
    struct place place = place_in(VIEW_RANK, process->index);
    const struct rec_member *member = rec_process_member(process, op->comm);
    unsigned flags = rec_kind_flags(op->kind);
    place.when_ns = browse_common_ns(data, process, op->enter_ns);
    if (member == NULL || op->flags & REC_OF_NO_SEQ || !(flags & (REC_KF_SEQ | REC_KF_TEARDOWN | REC_KF_P2P)))
        return place;
    place.view = VIEW_OP;
    place.comm = member->comm;
    place.seq = op->seq;
    place.teardown = (flags & REC_KF_TEARDOWN) != 0;
    if (flags & REC_KF_P2P) {
        place.src = op->kind == REC_SEND ? (int32_t)member->comm_rank : op->peer;
        place.dst = op->kind == REC_SEND ? op->peer : (int32_t)member->comm_rank;
    }
    return place;
}

/* The op of this seq that a process is known to have called last on some communicator. */
static const struct rec_op *known_op(const struct rec_process *p, const struct rec_communicator *comm,
                                     uint64_t seq, uint64_t time_ns /* of its host's clock */)
{
    const struct rec_op *best = NULL;
    for (uint32_t i = 0; i < p->nopen + p->nmembers; i++) {
        const struct rec_op *op = i < p->nopen ? &p->open[i] : &p->members[i - p->nopen]->last_op;
        const struct rec_member *member = rec_process_member(p, op->comm);
        if (op->kind == REC_NONE || op->seq != seq || member == NULL)
            continue;
        /* Times are equal but for the clocks of hosts, so the right one is the nearest. */
        if (best == NULL ||
            (time_ns != 0 &&
             llabs((long long)(op->enter_ns - time_ns)) < llabs((long long)(best->enter_ns - time_ns))) ||
            (time_ns == 0 && member->comm == comm))
            best = op;
    }
    return best;
}

bool browse_finding_place(const struct browse_data *data, const struct rec_finding *f,
                          const struct rec_evidence *evidence, struct place *place)
{
    int32_t rank = evidence != NULL ? evidence->rank : f->nculprits > 0 ? f->culprits[0] : -1;
    uint64_t seq = evidence != NULL ? evidence->seq : f->seq;
    uint32_t process = browse_process_of(data, rank);
    *place = place_in(VIEW_RANK, process);
    place->comm = f->comm;
    place->when_ns = evidence != NULL ? evidence->time_ns : f->op.enter_ns;
    if (process != BROWSE_NONE && seq != NO_SEQ) {
        const struct rec_process *p = data->processes[process];
        const struct rec_op *op = known_op(p, f->comm, seq, browse_host_ns(data, p, place->when_ns));
        if (op != NULL && (evidence != NULL || browse_op_place(data, p, op).comm == f->comm)) {
            *place = browse_op_place(data, p, op);
            return true;
        }
    }
    if (f->comm != NULL && seq != NO_SEQ && !(rec_kind_flags(f->op.kind) & REC_KF_P2P)) {
        place->view = VIEW_OP;
        place->seq = seq;
        place->teardown = (rec_kind_flags(f->op.kind) & REC_KF_TEARDOWN) != 0;
        return true;
    }
    if (process != BROWSE_NONE)
        return true;
    place->view = VIEW_COMM;
    return f->comm != NULL;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

bool browse_evidence_op(const struct browse_data *data, const struct rec_evidence *e, struct rec_op *op)
{
    uint32_t process = browse_process_of(data, e->rank);
    uint64_t deadline = monotonic_ns() + READ_NS, best = NEAR_NS;
    struct rec_event event;
    struct rec_scan *scan;
    if (process == BROWSE_NONE || e->seq == NO_SEQ || e->time_ns <= NEAR_NS)
        return false;
    uint64_t time_ns = browse_host_ns(data, data->processes[process], e->time_ns);
    struct rec_scan_filter filter = {.from_ns = time_ns - NEAR_NS, .to_ns = time_ns + NEAR_NS};
    if (rec_scan_open(data->job, data->processes[process], &filter, &scan, NULL) != REC_OK)
        return false;
    while (best > SAME_NS && rec_scan_next(scan, &event, NULL) == REC_OK && monotonic_ns() < deadline) {
        const struct rec_op *ops = event.type == REC_EV_OP ? &event.u.op : event.u.open.ops;
        uint32_t count = event.type == REC_EV_OP ? 1 : event.type == REC_EV_OPEN ? event.u.open.count : 0;
        for (uint32_t i = 0; i < count; i++) {
            unsigned flags = rec_kind_flags(ops[i].kind) & (REC_KF_SEQ | REC_KF_P2P | REC_KF_TEARDOWN);
            if (flags == 0 || ops[i].seq != e->seq || distance(ops[i].enter_ns, time_ns) >= best)
                continue;
            best = distance(ops[i].enter_ns, time_ns);
            *op = ops[i];
        }
    }
    rec_scan_close(scan);
    return best < NEAR_NS;
}
