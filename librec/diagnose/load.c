/*
 * Loading: the last ops of every process (the window), in the order of their launch, and
 * the few counters that must cover all ops.
 */
#include "diag.h"

#include <stdlib.h>
#include <string.h>

/* All windows together; about 200 bytes an op. */
#define WINDOW_OPS     1500000u
#define WINDOW_MIN     256u
#define WINDOW_MAX     8192u
#define PATIENCE_FLOOR (NS_PER_S * 3 / 2)
#define PATIENCE_FIRST (NS_PER_S * 2) /* while there is no rhythm yet */
#define PAUSES_MIN     3
#define ABORT_SLACK    (NS_PER_S / 2)
#define GAP_SETTLED    (10 * NS_PER_S)

uint32_t diag_member_id(const struct diag *d, const struct rec_member *member)
{
    return diag_map_get(&d->member_ids, diag_key((uintptr_t)member, 1, 2));
}

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

static uint64_t pair_key(uint32_t member_id, int32_t peer, bool send, bool onesided)
{
    return diag_key(member_id, (uint32_t)peer, (send ? 21u : 22u) + (onesided ? 2u : 0u));
}

uint64_t diag_pair_next(const struct diag *d, const struct rec_member *member, int32_t peer, bool send,
                        bool onesided)
{
    uint32_t next = diag_map_get(&d->pair_next, pair_key(diag_member_id(d, member), peer, send, onesided));
    return next == DIAG_NONE ? 0 : next;
}

static uint64_t thread_key(uint32_t proc, uint32_t thread)
{
    return diag_key(proc, thread, 31);
}

uint64_t diag_thread_quiet(const struct diag *d, const struct diag_op *op)
{
    uint32_t at = diag_map_get(&d->threads, thread_key(op->proc, op->op.thread));
    return at == DIAG_NONE ? op->op.enter_ns : diag_common(&d->procs[op->proc], d->thread_last[at]);
}

/* Does the diagnosis look at such calls one by one? */
static bool wanted(const struct rec_op *op)
{
    return (rec_kind_flags(op->kind) &
            (REC_KF_COLL | REC_KF_P2P | REC_KF_RMA | REC_KF_CREATE | REC_KF_TEARDOWN)) ||
           op->kind == REC_GROUP_END || (op->kind == REC_COMM_GET_ASYNC_ERROR && op->count);
}

static void note_thread(struct diag *d, uint32_t proc, const struct rec_op *op)
{
    if (!(rec_kind_flags(op->kind) & (REC_KF_COLL | REC_KF_P2P | REC_KF_RMA | REC_KF_CREATE)) &&
        op->kind != REC_GROUP_END)
        return;
    bool fresh;
    uint32_t *at = diag_map_put(&d->threads, thread_key(proc, op->thread), &fresh);
    if (!at || !DIAG_ROOM(d, thread_last, d->nthreads)) {
        d->oom = true;
        return;
    }
    if (fresh) {
        *at = (uint32_t)d->nthreads;
        d->thread_last[d->nthreads++] = 0;
    }
    uint64_t when = op->exit_ns > op->enter_ns ? op->exit_ns : op->enter_ns;
    if (when > d->procs[proc].last_work_ns)
        d->procs[proc].last_work_ns = when;
    if (when > d->thread_last[*at])
        d->thread_last[*at] = when;
}

static void note_pair(struct diag *d, uint32_t member_id, const struct rec_op *op)
{
    if (!(rec_kind_flags(op->kind) & REC_KF_P2P) || (op->flags & REC_OF_NO_SEQ) || op->seq >= DIAG_NONE - 1)
        return;
    bool fresh;
    uint32_t *next =
        diag_map_put(&d->pair_next, pair_key(member_id, op->peer, op->kind == REC_SEND, false), &fresh);
    if (!next)
        d->oom = true;
    else if (fresh || *next <= op->seq)
        *next = (uint32_t)op->seq + 1;
}

/* Signals are counted one by one, waits by how many they ask for. A wait for several peers is none of a pair.
 */
static void number_signal(struct diag *d, uint32_t member_id, struct rec_op *op)
{
    op->flags |= REC_OF_NO_SEQ;
    bool sends = diag_sends(op);
    uint64_t count = sends ? 1 : op->count;
    if (op->peer < 0 || !count || count >= DIAG_NONE)
        return;
    bool fresh;
    uint32_t *next = diag_map_put(&d->pair_next, pair_key(member_id, op->peer, sends, true), &fresh);
    if (!next) {
        d->oom = true;
        return;
    }
    *next = fresh ? 0 : *next;
    if (*next >= DIAG_NONE - count)
        return;
    *next += (uint32_t)count;
    op->seq = *next - 1;
    op->flags &= (uint16_t)~REC_OF_NO_SEQ;
}

struct window {
    struct diag_op *ring;
    size_t size, used, next;
    struct ordinals *ordinals; /* of the process being loaded */
    size_t nordinals, ordinals_cap;
};

/* What comes next on a thread if no record is missing. */
struct ordinals {
    uint32_t thread;
    uint64_t next, last_ns;
    uint64_t lost_end, lost_ns; /* as a loss record says */
};

static struct ordinals *ordinals_of(struct diag *d, struct window *window, uint32_t thread)
{
    for (size_t i = window->nordinals; i-- > 0;)
        if (window->ordinals[i].thread == thread)
            return &window->ordinals[i];
    window->ordinals = diag_grow(window->ordinals, &window->ordinals_cap, window->nordinals,
                                 sizeof *window->ordinals, &d->oom);
    if (d->oom)
        return NULL;
    window->ordinals[window->nordinals] = (struct ordinals){.thread = thread};
    return &window->ordinals[window->nordinals++];
}

/* Calls without a record between two moments; what lies long before the last call has settled. */
static void note_gap(struct diag_proc *proc, uint64_t from, uint64_t to)
{
    if (to + GAP_SETTLED < proc->p->last_call_ns)
        return;
    from = from ? from : 1;
    if (!proc->gap_ns || from < proc->gap_ns)
        proc->gap_ns = from;
}

static void note_ordinal(struct diag *d, uint32_t proc, struct window *window, const struct rec_op *op)
{
    struct ordinals *o = ordinals_of(d, window, op->thread);
    if (!o || op->ordinal < o->next)
        return;
    if (op->ordinal > o->next)
        note_gap(&d->procs[proc], o->last_ns, op->enter_ns);
    o->next = op->ordinal + 1;
    o->last_ns = op->enter_ns;
}

static void note_loss(struct diag *d, uint32_t proc, struct window *window, const struct rec_loss *loss,
                      uint64_t when)
{
    if (loss->thread == REC_ID_NONE) {
        if (loss->count)
            note_gap(&d->procs[proc], when > GAP_SETTLED ? when - GAP_SETTLED : 1, when);
        return;
    }
    struct ordinals *o = ordinals_of(d, window, loss->thread);
    if (!o || loss->first_ordinal + loss->count < o->lost_end)
        return;
    o->lost_end = loss->first_ordinal + loss->count;
    o->lost_ns = when;
}

/* Losses behind the last record of a thread. */
static void note_lost_tails(struct diag_proc *proc, const struct window *window)
{
    for (size_t i = 0; i < window->nordinals; i++) {
        const struct ordinals *o = &window->ordinals[i];
        if (o->lost_end > o->next)
            note_gap(proc, o->last_ns, o->lost_ns);
    }
}

static void take(struct diag *d, uint32_t proc, const struct rec_op *op, struct window *window)
{
    note_ordinal(d, proc, window, op);
    note_thread(d, proc, op);
    if (op->kind == REC_GRAPH_LAUNCH && op->enter_ns > d->procs[proc].graph_ns)
        d->procs[proc].graph_ns = op->enter_ns;
    const struct rec_process *p = d->procs[proc].p;
    struct rec_member *member = rec_process_member(p, op->comm);
    if (member)
        diag_census_count(d, member, op);
    if (!wanted(op))
        return;
    struct diag_op *slot = &window->ring[window->next];
    *slot = (struct diag_op){.op = *op, .proc = proc};
    slot->unit = slot->unit_next = slot->match = slot->match_next = DIAG_NONE;
    slot->member = member;
    slot->sig = rec_process_signature(p, op);
    if (slot->member) {
        if (rec_kind_flags(op->kind) & REC_KF_RMA)
            number_signal(d, diag_member_id(d, slot->member), &slot->op);
        note_pair(d, diag_member_id(d, slot->member), op);
        diag_clock_note(d, proc, slot->member->comm, op);
    }
    window->next = (window->next + 1) % window->size;
    if (window->used < window->size)
        window->used++;
    else
        d->procs[proc].whole = false;
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
        /* Setting up takes its time once, and an end is no rhythm. */
        if (rec_kind_flags(before->kind) & REC_KF_CREATE || rec_kind_flags(op->kind) & REC_KF_TEARDOWN)
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

static enum rec_code load_process(struct diag *d, uint32_t proc, struct window *window)
{
    const struct rec_process *p = d->procs[proc].p;
    window->used = window->next = window->nordinals = 0;
    d->procs[proc].whole = !p->rotated && !p->dropped_ops && !p->damaged;
    struct rec_scan *scan;
    enum rec_code code = rec_scan_open(d->job, p, NULL, &scan, d->err);
    if (code != REC_OK)
        return code;
    struct rec_event event;
    while (!d->oom && (code = rec_scan_next(scan, &event, d->err)) == REC_OK)
        if (event.type == REC_EV_OP)
            take(d, proc, &event.u.op, window);
        else if (event.type == REC_EV_LOSS)
            note_loss(d, proc, window, &event.u.loss, event.time_ns);
    rec_scan_close(scan);
    if (code != REC_END && code != REC_OK)
        return code;
    for (uint32_t i = 0; i < p->nopen; i++)
        take(d, proc, &p->open[i], window);
    struct diag_proc *state = &d->procs[proc];
    note_lost_tails(state, window);
    state->first = (uint32_t)d->nops;
    for (size_t i = 0; i < window->used; i++) {
        if (!DIAG_ROOM(d, ops, d->nops))
            return REC_OK;
        d->ops[d->nops++] = window->ring[(window->next + window->size - window->used + i) % window->size];
    }
    state->count = (uint32_t)d->nops - state->first;
    if (state->count) /* ops may be NULL */
        qsort(d->ops + state->first, state->count, sizeof *d->ops, launch_order);
    measure_rhythm(d, state);
    return REC_OK;
}

/* After the first abort of a communicator its ops mean nothing any more. */
static void mark_late(struct diag *d)
{
    for (size_t c = 0; c < d->ncomms; c++) {
        uint64_t aborted = UINT64_MAX;
        for (uint32_t i = 0; diag_has(d, d->comms[c]) && i < d->comms[c]->nmembers; i++) {
            const struct rec_member *member = d->comms[c]->members[i];
            const struct rec_op *teardown = &member->teardown;
            uint64_t when = diag_common(&d->procs[diag_index(d, member->process)], teardown->enter_ns);
            if ((teardown->kind == REC_COMM_ABORT || teardown->kind == REC_COMM_REVOKE) && when < aborted)
                aborted = when;
        }
        d->abort_ns[c] = aborted;
    }
    for (size_t i = 0; i < d->nops; i++) {
        struct diag_op *op = &d->ops[i];
        if (!op->member || (rec_kind_flags(op->op.kind) & REC_KF_TEARDOWN))
            continue;
        uint64_t aborted = d->abort_ns[op->member->comm->index];
        op->late = aborted != UINT64_MAX && op->op.enter_ns > aborted + ABORT_SLACK;
    }
}

static void note_members(struct diag *d)
{
    for (size_t i = 0; i < d->nops; i++) {
        struct diag_op *op = &d->ops[i];
        if (!op->member || !(rec_kind_flags(op->op.kind) & REC_KF_SEQ) || (op->op.flags & REC_OF_NO_SEQ))
            continue;
        struct diag_member *m = diag_member_of(d, op->member);
        if (op->op.seq < m->tail_seq)
            m->tail_seq = op->op.seq;
        if (!op->late && op->op.seq + 1 > m->next_seq)
            m->next_seq = op->op.seq + 1;
    }
    for (size_t i = 0; i < d->nops; i++) {
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
        for (uint32_t i = 0; i < d->comms[c]->nmembers; i++, id++) {
            bool fresh;
            uint32_t *at =
                diag_map_put(&d->member_ids, diag_key((uintptr_t)d->comms[c]->members[i], 1, 2), &fresh);
            if (!at)
                return false;
            *at = id;
            d->members[id].next_seq = d->comms[c]->members[i]->next_seq;
            d->members[id].tail_seq = UINT64_MAX;
        }
    }
    return true;
}

enum rec_code diag_load(struct diag *d)
{
    if (!make_tables(d)) {
        d->oom = true;
        return REC_OK;
    }
    struct window window = {.size = d->nprocs ? WINDOW_OPS / d->nprocs : WINDOW_MAX};
    window.size = window.size > WINDOW_MAX ? WINDOW_MAX : window.size < WINDOW_MIN ? WINDOW_MIN : window.size;
    window.ring = malloc(window.size * sizeof *window.ring);
    if (!window.ring) {
        d->oom = true;
        return REC_OK;
    }
    enum rec_code code = REC_OK;
    for (uint32_t i = 0; i < d->nprocs && code == REC_OK && !d->oom; i++)
        code = load_process(d, i, &window);
    free(window.ring);
    free(window.ordinals);
    if (code != REC_OK || d->oom)
        return code;
    diag_clock_align(d);
    mark_late(d);
    note_members(d);
    return REC_OK;
}
