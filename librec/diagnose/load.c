/*
 * Loading: the last ops of every process (the window), in the order of their launch, and
 * the few counters that must cover all ops. Both were kept when the job was loaded.
 */
#include "diag.h"

#include <stdlib.h>

#include "job/internal.h"
#include "job/parallel.h"
#include "job/recall.h"

#define SHRINK_ABORT   1 /* NCCL_SHRINK_ABORT */
#define PATIENCE_FLOOR (NS_PER_S * 3 / 2)
#define PATIENCE_FIRST (NS_PER_S * 2) /* while there is no rhythm yet */
#define PAUSES_MIN     3
#define ABORT_SLACK    (NS_PER_S / 2)

struct rec_member *diag_member_at(const struct rec_communicator *comm, int64_t comm_rank)
{
    size_t low = 0, high = comm->nmembers;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((int64_t)comm->members[middle]->comm_rank < comm_rank)
            low = middle + 1;
        else
            high = middle;
    }
    if (comm_rank < 0 || low >= comm->nmembers || comm->members[low]->comm_rank != comm_rank)
        return NULL;
    return comm->members[low];
}

uint32_t diag_proc_of_rank(const struct diag *d, int64_t rank)
{
    return diag_map_get(&d->rank_procs, diag_key((uint64_t)rank, 3, 4));
}

uint64_t diag_thread_quiet(const struct diag *d, const struct diag_op *op)
{
    struct job_facts facts;
    job_facts(d->procs[op->proc].p, &facts);
    for (size_t i = 0; i < facts.nwork; i++)
        if (facts.work[i].thread == op->op.thread)
            return diag_common(&d->procs[op->proc], facts.work[i].last_ns);
    return op->op.enter_ns;
}

/* Within a thread entry times never go back, so this keeps its order too. */
static int launch_order(const void *a, const void *b)
{
    const struct rec_op *x = &((const struct diag_op *)a)->op;
    const struct rec_op *y = &((const struct diag_op *)b)->op;
    if (x->enter_ns != y->enter_ns)
        return x->enter_ns < y->enter_ns ? -1 : 1;
    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    return x->ordinal < y->ordinal ? -1 : x->ordinal > y->ordinal;
}

/* A shrink that ends the work of its parent. */
static bool shrinks_with_abort(const struct rec_op *op)
{
    return op->kind == REC_COMM_SHRINK && op->peer > 0 && (op->peer & SHRINK_ABORT);
}

/*
 * How long may a process be silent before that means something? The longest pause it made so
 * far, several times over. A living job has the time to wait for certainty.
 */
static void measure_rhythm(struct diag *d, struct diag_proc *proc)
{
    uint64_t longest = 0;
    uint32_t pauses = 0;
    for (uint32_t i = proc->first + 1; i < proc->first + proc->count; i++) {
        const struct rec_op *before = &d->ops[i - 1].op, *op = &d->ops[i].op;
        if (op->flags & REC_OF_PART)
            continue;
        /* Setting up takes its time once, and an end is no rhythm. */
        if (rec_kind_flags(before->kind) & (REC_KF_CREATE | REC_KF_HOST) ||
            rec_kind_flags(op->kind) & REC_KF_TEARDOWN || shrinks_with_abort(op))
            continue;
        pauses++;
        if (op->enter_ns > before->enter_ns && op->enter_ns - before->enter_ns > longest)
            longest = op->enter_ns - before->enter_ns;
    }
    uint64_t floor = pauses < PAUSES_MIN ? PATIENCE_FIRST : PATIENCE_FLOOR;
    proc->patience_ns = longest * 5 > floor ? longest * 5 : floor;
    if (proc->patience_ns > d->stall_ns || proc->p->fate == REC_FATE_ALIVE)
        proc->patience_ns = d->stall_ns;
    /* The recorder was told what counts as a stall, and saw one. */
    const struct rec_process *p = proc->p;
    if (p->stall.why && p->stall_ns > p->last_call_ns && p->stall_ns > p->stall.since_ns &&
        p->stall_ns - p->stall.since_ns < proc->patience_ns)
        proc->patience_ns = p->stall_ns - p->stall.since_ns;
}

/*
 * Taking over what was kept. Each piece of the work is one process and fills its own tail, and later
 * its own part of d->ops and its own entry of d->procs; the rest of d is only read meanwhile.
 */
struct loading {
    struct diag *d;
    struct job_tail *tails; /* by process */
    size_t size;
    bool cancelled;
    struct job_first_error failure;
};

/* Taking a tail may mean to read the traces again. */
static bool take_tick(void *context, size_t done)
{
    struct loading *loading = context;
    (void)done;
    loading->cancelled = !diag_go_on(loading->d);
    return !loading->cancelled;
}

static void take_tail(void *context, size_t index)
{
    struct loading *loading = context;
    struct rec_error error = {0};
    enum rec_code code =
        job_tail_take(loading->d->procs[index].p, loading->size, &loading->tails[index], &error);
    if (code != REC_OK)
        job_note_error(&loading->failure, &error);
}

static void take_op(const struct diag *d, uint32_t proc, const struct rec_op *op, struct diag_op *to)
{
    const struct rec_process *p = d->procs[proc].p;
    *to = (struct diag_op){.op = *op,
                           .sig = rec_process_signature(p, op),
                           .member = rec_process_member(p, op->comm),
                           .proc = proc,
                           .unit = DIAG_NONE,
                           .unit_next = DIAG_NONE,
                           .match = DIAG_NONE,
                           .match_next = DIAG_NONE};
}

static bool in_order(const struct diag_op *ops, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (launch_order(&ops[i - 1], &ops[i]) > 0)
            return false;
    return true;
}

/* Is a call that NCCL refused the last of its member? After split and the like it is not. */
static bool ends_refused(const struct diag_op *ops, size_t count, size_t at)
{
    const struct diag_op *op = &ops[at];
    const struct rec_op *last = op->member ? &op->member->last_op : NULL;
    if (!last || !(op->op.flags & REC_OF_NO_SEQ) || op->op.state != REC_STATE_FAILED ||
        last->thread != op->op.thread || last->ordinal != op->op.ordinal)
        return false;
    for (size_t i = at + 1; i < count; i++)
        if (ops[i].member == op->member && rec_kind_flags(ops[i].op.kind) & REC_KF_SEQ)
            return false;
    return true;
}

/*
 * A refused call has no place in the order. Where nothing came after it on its communicator, others
 * may wait there for what it should have been: it stands for that.
 */
static void place_refused(const struct diag_proc *proc, struct diag_op *ops)
{
    for (size_t i = 0; i < proc->count; i++) {
        struct diag_op *op = &ops[i];
        unsigned flags = rec_kind_flags(op->op.kind);
        if (!(flags & (REC_KF_SEQ | REC_KF_P2P)) || !ends_refused(ops, proc->count, i))
            continue;
        op->op.seq = flags & REC_KF_SEQ
                         ? op->member->next_seq
                         : job_messages(proc->p, op->op.comm, op->op.peer, op->op.kind == REC_SEND);
        op->op.flags &= (uint16_t)~REC_OF_NO_SEQ;
    }
}

static void fill_window(void *context, size_t index)
{
    struct loading *loading = context;
    struct diag *d = loading->d;
    struct diag_proc *proc = &d->procs[index];
    struct job_tail *tail = &loading->tails[index];
    struct diag_op *ops = d->ops + proc->first;
    for (size_t i = 0, at = tail->first; i < tail->used; i++, at = at + 1 == tail->size ? 0 : at + 1) {
        take_op(d, (uint32_t)index, &tail->ops[at], &ops[i]);
        proc->gpu_timed = proc->gpu_timed || ops[i].op.gpu_end_ns;
    }
    job_tail_free(tail);
    if (!in_order(ops, proc->count))
        qsort(ops, proc->count, sizeof *ops, launch_order);
    place_refused(proc, ops);
    measure_rhythm(d, proc);
}

/* What covers all ops, and where the window of a process will be. */
static void take_facts(struct diag *d, uint32_t index, const struct job_tail *tail)
{
    struct diag_proc *proc = &d->procs[index];
    const struct rec_process *p = proc->p;
    struct job_facts facts;
    job_facts(p, &facts);
    proc->whole = !p->rotated && !p->dropped_ops && !p->damaged && !tail->spilled;
    proc->graph_ns = facts.graph_ns;
    proc->gap_ns = facts.gap_ns;
    for (size_t i = 0; i < facts.nwork; i++)
        if (facts.work[i].last_ns > proc->last_work_ns)
            proc->last_work_ns = facts.work[i].last_ns;
    for (size_t i = 0; i < facts.ncreations; i++) {
        const struct rec_op *op = &facts.creations[i];
        diag_clock_note(d, index, rec_process_member(p, op->comm)->comm, op);
    }
    proc->first = (uint32_t)d->nops;
    proc->count = (uint32_t)tail->used;
    d->nops += tail->used;
}

static enum rec_code load_windows(struct diag *d, struct loading *loading)
{
    job_parallel(d->threads, &(struct job_parallel){d->nprocs, take_tail, take_tick, loading});
    if (loading->cancelled)
        return job_cancelled(d->err);
    if (loading->failure.error.code != REC_OK) {
        if (d->err)
            *d->err = loading->failure.error;
        return loading->failure.error.code;
    }
    for (uint32_t i = 0; i < d->nprocs; i++)
        take_facts(d, i, &loading->tails[i]);
    d->ops = d->nops < DIAG_NONE ? malloc((d->nops + 1) * sizeof *d->ops) : NULL;
    d->oom = d->oom || !d->ops;
    if (d->oom)
        return REC_OK;
    job_parallel(d->threads, &(struct job_parallel){d->nprocs, fill_window, NULL, loading});
    return REC_OK;
}

static void note_aborts(struct diag *d)
{
    for (size_t c = 0; c < d->ncomms; c++)
        for (uint32_t i = 0; diag_has(d, d->comms[c]) && i < d->comms[c]->nmembers; i++) {
            const struct rec_member *member = d->comms[c]->members[i];
            if (diag_aborts(&member->teardown))
                diag_member_of(d, member)->aborted_ns =
                    diag_common(&d->procs[diag_index(d, member->process)], member->teardown.enter_ns);
        }
    for (size_t i = 0; i < d->nops; i++) {
        const struct diag_op *op = &d->ops[i];
        if (!op->member || !shrinks_with_abort(&op->op))
            continue;
        struct diag_member *member = diag_member_of(d, op->member);
        if (!member->aborted_ns || op->op.enter_ns < member->aborted_ns)
            member->aborted_ns = op->op.enter_ns;
    }
}

/* When each communicator was first aborted; false when none was. */
static bool find_aborts(struct diag *d)
{
    bool any = false;
    for (size_t c = 0; c < d->ncomms; c++) {
        uint64_t aborted = UINT64_MAX;
        for (uint32_t i = 0; diag_has(d, d->comms[c]) && i < d->comms[c]->nmembers; i++) {
            uint64_t when = diag_member_of(d, d->comms[c]->members[i])->aborted_ns;
            if (when && when < aborted)
                aborted = when;
        }
        d->abort_ns[c] = aborted;
        any = any || aborted != UINT64_MAX;
    }
    return any;
}

/* By a member whose clock can be compared. */
static bool after_abort(const struct diag *d, const struct diag_op *op)
{
    const struct rec_communicator *comm = op->member->comm;
    for (uint32_t i = 0; i < comm->nmembers; i++) {
        const struct diag_proc *proc = &d->procs[diag_index(d, comm->members[i]->process)];
        uint64_t aborted = diag_member_of(d, comm->members[i])->aborted_ns;
        bool shrinking = op->op.kind == REC_COMM_SHRINK && !diag_aborts(&comm->members[i]->teardown);
        if (aborted && !shrinking && proc->clock == d->procs[op->proc].clock &&
            op->op.enter_ns > aborted + ABORT_SLACK)
            return true;
    }
    return false;
}

/* After the first abort of a communicator its ops mean nothing any more. */
static void mark_late(struct diag *d)
{
    for (size_t i = 0; i < d->nops; i++) {
        struct diag_op *op = &d->ops[i];
        if (!op->member || (rec_kind_flags(op->op.kind) & REC_KF_TEARDOWN))
            continue;
        uint64_t aborted = d->abort_ns[op->member->comm->index];
        op->late = aborted != UINT64_MAX && op->op.enter_ns > aborted + ABORT_SLACK && after_abort(d, op);
    }
}

/* How far the members of one process have come; they are nobody else's. */
static void note_members(void *context, size_t index)
{
    struct diag *d = context;
    const struct diag_proc *proc = &d->procs[index];
    bool late = false;
    for (uint32_t i = proc->first; i < proc->first + proc->count; i++) {
        struct diag_op *op = &d->ops[i];
        if (!op->member || !(rec_kind_flags(op->op.kind) & REC_KF_SEQ) || (op->op.flags & REC_OF_NO_SEQ))
            continue;
        struct diag_member *m = diag_member_of(d, op->member);
        late = late || op->late;
        if (!op->late && op->op.seq + 1 > m->next_seq)
            m->next_seq = op->op.seq + 1;
    }
    for (uint32_t i = proc->first; late && i < proc->first + proc->count; i++) {
        struct diag_op *op = &d->ops[i];
        if (!op->late || !(rec_kind_flags(op->op.kind) & REC_KF_SEQ) || (op->op.flags & REC_OF_NO_SEQ))
            continue;
        struct diag_member *m = diag_member_of(d, op->member);
        if (op->op.seq < m->next_seq)
            m->next_seq = op->op.seq;
    }
}

/* The processes of the generation. */
static bool choose_processes(struct diag *d)
{
    size_t count;
    struct rec_process *const *processes = rec_job_processes(d->job, &count);
    d->procs = calloc(count + 1, sizeof *d->procs);
    d->proc_index = malloc((count + 1) * sizeof *d->proc_index);
    if (!d->procs || !d->proc_index)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        d->proc_index[i] = DIAG_NONE;
        if (d->census->generation_of[i] != d->generation)
            continue;
        d->proc_index[i] = (uint32_t)d->nprocs;
        struct diag_proc *proc = &d->procs[d->nprocs++];
        proc->p = processes[i];
        proc->host = diag_host_of(d, processes[i]);
        proc->last_call_ns = processes[i]->last_call_ns;
        proc->life_ns = processes[i]->fate == REC_FATE_ALIVE ? d->now_ns : processes[i]->last_ns;
        if (processes[i]->rank < 0)
            continue;
        bool fresh;
        uint32_t *at = diag_map_put(&d->rank_procs, diag_key((uint64_t)processes[i]->rank, 3, 4), &fresh);
        if (!at)
            return false;
        *at = d->proc_index[i];
    }
    return true;
}

static bool make_tables(struct diag *d)
{
    d->comms = rec_job_communicators(d->job, &d->ncomms);
    for (size_t c = 0; c < d->ncomms; c++)
        d->nmembers += d->comms[c]->nmembers;
    d->member_base = calloc(d->ncomms + 1, sizeof *d->member_base);
    d->abort_ns = calloc(d->ncomms + 1, sizeof *d->abort_ns);
    d->members = calloc(d->nmembers + 1, sizeof *d->members);
    if (!choose_processes(d) || !d->member_base || !d->abort_ns || !d->members)
        return false;
    uint32_t id = 0;
    for (size_t c = 0; c < d->ncomms; c++) {
        d->member_base[c] = id;
        for (uint32_t i = 0; i < d->comms[c]->nmembers; i++, id++)
            d->members[id] = (struct diag_member){.next_seq = d->comms[c]->members[i]->next_seq};
    }
    return true;
}

enum rec_code diag_load(struct diag *d)
{
    struct loading loading = {.d = d, .failure = {.lock = PTHREAD_MUTEX_INITIALIZER}};
    d->oom = !make_tables(d) || !(loading.tails = calloc(d->nprocs + 1, sizeof *loading.tails));
    loading.size = job_tail_size(d->nprocs);
    enum rec_code code = d->oom ? REC_OK : load_windows(d, &loading);
    for (size_t i = 0; loading.tails && i < d->nprocs; i++)
        job_tail_free(&loading.tails[i]);
    free(loading.tails);
    size_t ncomms = d->ncomms;
    if (code == REC_OK && !d->oom)
        diag_meet(d);
    if (code == REC_OK && !d->oom)
        diag_settle_replays(d, ncomms);
    if (code != REC_OK || d->oom)
        return code;
    diag_clock_align(d);
    note_aborts(d);
    if (find_aborts(d))
        mark_late(d);
    job_parallel(d->threads, &(struct job_parallel){d->nprocs, note_members, NULL, d});
    return REC_OK;
}
