/*
 * What missing records leave open. An execution that takes for granted what it cannot see may let
 * a process appear idle that in truth is blocked: behind an op whose record was lost, in a
 * collective with a rank that left no trace, or with one that died before it had come together, or
 * where the GPUs tell nothing and all that had a part in an op fell silent, or the host of one is
 * still in the call: it may not end. So everything is executed once without such ops, and who would
 * be blocked then is not blamed for its silence.
 */
#include "diag.h"
#include "job/recall.h"

#include <stdlib.h>

/* Work that was followed by other work on its stream for so long has completed, but where the host is held
 * up in launching more: then the queue of the stream is full. */
#define SETTLED_NS (NS_PER_S / 20)
/* What was issued so shortly before a process ended may not have been finished. */
#define LAST_WORK_NS NS_PER_S

static uint64_t stream_key(const struct diag_op *op)
{
    bool known = op->op.stream != REC_ID_NONE;
    return diag_key(op->proc, known ? op->op.stream : op->op.comm, known ? 43 : 44);
}

/* Was its end so sudden, or so early, that others may miss what it had begun? */
static bool may_break_off(const struct diag_proc *proc)
{
    return proc->early_dead || proc->p->fate == REC_FATE_EXITED;
}

static bool broke_off(const struct diag_proc *proc, const struct diag_op *op)
{
    return !diag_finished(&op->member->teardown) && op->op.enter_ns + LAST_WORK_NS > proc->dead_ns;
}

static bool lost_a_member(const struct diag *d, const struct diag_match *m)
{
    if (!m->assumed)
        return false;
    for (uint32_t i = 0; i < m->comm->nmembers; i++)
        if (d->procs[diag_index(d, m->comm->members[i]->process)].gap_ns)
            return true;
    return false;
}

/* Does nothing but a later call of its process, if there is one, say that it ended? */
static bool end_unseen(const struct diag_op *op)
{
    bool launched = op->op.state == REC_STATE_ENQUEUED || op->op.state == REC_STATE_IN_CALL;
    return (rec_kind_flags(op->op.kind) & REC_KF_STREAM) && !op->op.launch && !diag_captured(op) &&
           launched && (op->member->teardown.kind == REC_NONE || diag_aborts(&op->member->teardown));
}

/* By match: is somebody known not to have come to it, or not to have launched it? */
static bool *find_lacking(const struct diag *d)
{
    bool *lacking = malloc((d->nmatches + 1) * sizeof *lacking);
    for (size_t i = 0; lacking && i < d->nmatches; i++)
        lacking[i] = d->matches[i].absent > 0;
    for (size_t i = 0; lacking && i < d->nops; i++) {
        const struct diag_op *op = &d->ops[i];
        if (op->match == DIAG_NONE)
            continue;
        bool open = op->op.flags & REC_OF_OPEN, creates = rec_kind_flags(op->op.kind) & REC_KF_CREATE;
        bool never_came = open && creates && d->matches[op->match].unseen;
        lacking[op->match] = lacking[op->match] || never_came || !d->units[op->unit].launched;
    }
    return lacking;
}

/* Silent, without having called anything that others did not come to. */
static bool is_quiet(const struct diag *d, const struct diag_proc *proc, const bool *lacking)
{
    if (proc->ended_well)
        return false;
    for (uint32_t i = proc->first; i < proc->first + proc->count; i++)
        if (d->ops[i].match != DIAG_NONE && lacking[d->ops[i].match])
            return false;
    return true;
}

/* Did all that have a part in it come, and fell silent since? */
static bool among_quiet(const struct diag *d, const struct diag_match *m, const bool *quiet)
{
    bool alone = m->onesided && m->posted == 1 && diag_sends(&d->ops[m->first_op].op); /* nobody awaits it */
    uint32_t all = m->src < 0 ? m->comm->nmembers : 2;
    if (!alone && m->posted != all)
        return false;
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next)
        if (!quiet[d->ops[i].proc] || !end_unseen(&d->ops[i]))
            return false;
    return true;
}

/* The last ops of a process on its streams, as far back as they are among the silent. */
static void mark_tails_of(struct diag *d, const struct diag_proc *proc, const bool *among,
                          struct diag_map *passed)
{
    for (uint32_t i = proc->first + proc->count; i-- > proc->first;) {
        struct diag_op *op = &d->ops[i];
        if (op->op.enter_ns + LAST_WORK_NS < proc->last_work_ns)
            return;
        if (op->match == DIAG_NONE || !(rec_kind_flags(op->op.kind) & REC_KF_STREAM))
            continue;
        bool fresh;
        uint32_t *at = diag_map_put(passed, stream_key(op), &fresh);
        if (!at) {
            d->oom = true;
            return;
        }
        if (!among[op->match])
            *at = i;
        op->tail = *at == DIAG_NONE;
    }
}

/*
 * An op after which no process called anything on the same stream but what is among the silent may
 * have stopped all of them: their hosts wait for it outside NCCL, where no record shows it.
 */
static void mark_tails(struct diag *d)
{
    bool *quiet = calloc(d->nprocs + 1, sizeof *quiet), *among = calloc(d->nmatches + 1, sizeof *among);
    bool *lacking = find_lacking(d);
    struct diag_map passed = {0};
    d->oom = d->oom || !quiet || !among || !lacking;
    for (size_t p = 0; p < d->nprocs && !d->oom; p++)
        quiet[p] = is_quiet(d, &d->procs[p], lacking);
    for (size_t i = 0; i < d->nmatches && !d->oom; i++)
        among[i] = among_quiet(d, &d->matches[i], quiet);
    for (size_t p = 0; p < d->nprocs && !d->oom; p++)
        if (quiet[p])
            mark_tails_of(d, &d->procs[p], among, &passed);
    diag_map_free(&passed);
    free(quiet);
    free(among);
    free(lacking);
}

/* Something after which all that have a part in it fell silent together, and that is all that is known. */
static bool silent_behind(const struct diag *d, const struct diag_match *m)
{
    if (m->posted < 2 && !m->onesided)
        return false;
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next)
        if (!d->ops[i].tail)
            return false;
    return true;
}

/* Has the host not come out of the call that launches it? */
static bool is_inside(const struct diag *d, const struct diag_op *op)
{
    uint32_t end = d->units[op->unit].end;
    return (rec_kind_flags(op->op.kind) & REC_KF_STREAM) && !op->op.launch &&
           ((op->op.flags & REC_OF_OPEN) || (end != DIAG_NONE && (d->ops[end].op.flags & REC_OF_OPEN)));
}

/* Complete only if the host that is in the call has launched it. */
static bool held_inside(const struct diag *d, const struct diag_match *m)
{
    for (uint32_t i = m->posted > 1 ? m->first_op : DIAG_NONE; i != DIAG_NONE; i = d->ops[i].match_next)
        if (is_inside(d, &d->ops[i]))
            return true;
    return false;
}

static bool creates(const struct diag_op *op)
{
    return (rec_kind_flags(op->op.kind) & REC_KF_CREATE) != 0;
}

/*
 * NCCL does not order creations and data ops among each other, so at one seq both may be right. Then
 * whether the data op has met its like is not known; and of a creation in which all are, who is stuck.
 */
static bool open_creation(const struct diag *d, const struct diag_match *m)
{
    if (m->first_op == DIAG_NONE || m->src >= 0)
        return false;
    bool all_inside = creates(&d->ops[m->first_op]), mixed = false;
    for (uint32_t i = m->first_op; i != DIAG_NONE && (all_inside || m->differs); i = d->ops[i].match_next) {
        all_inside = all_inside && (d->ops[i].op.flags & REC_OF_OPEN);
        mixed = mixed || creates(&d->ops[i]) != creates(&d->ops[m->first_op]);
    }
    return mixed || all_inside;
}

/* Marks all matching points that are uncertain; false when none is. */
static bool find_uncertain(struct diag *d)
{
    bool any = false;
    mark_tails(d);
    for (size_t i = 0; i < d->nmatches; i++) {
        struct diag_match *m = &d->matches[i];
        m->doubtful = m->unseen || m->unknown || lost_a_member(d, m) || silent_behind(d, m) ||
                      held_inside(d, m) || open_creation(d, m);
        any = any || m->doubtful;
    }
    for (size_t p = 0; p < d->nprocs; p++) {
        const struct diag_proc *proc = &d->procs[p];
        for (uint32_t i = proc->first; may_break_off(proc) && i < proc->first + proc->count; i++) {
            if (d->ops[i].match == DIAG_NONE || !broke_off(proc, &d->ops[i]))
                continue;
            d->matches[d->ops[i].match].doubtful = any = true;
        }
    }
    return any;
}

void diag_mark_doubts(struct diag *d)
{
    struct diag_map last = {0}; /* stream → its last op */
    if (!find_uncertain(d))
        return;
    for (uint32_t i = 0; i < d->nops && !d->oom; i++) {
        if (d->ops[i].match == DIAG_NONE)
            continue;
        bool fresh;
        uint32_t *at = diag_map_put(&last, stream_key(&d->ops[i]), &fresh);
        if (at)
            *at = i;
        else
            d->oom = true;
    }
    for (size_t i = 0; i < d->nmatches && !d->oom; i++) {
        struct diag_match *m = &d->matches[i];
        if (!m->doubtful)
            continue;
        m->doubtful = false;
        for (uint32_t j = m->first_op; j != DIAG_NONE && !m->doubtful; j = d->ops[j].match_next) {
            const struct diag_op *newest = &d->ops[diag_map_get(&last, stream_key(&d->ops[j]))];
            m->doubtful = newest->op.enter_ns <= d->ops[j].op.enter_ns + SETTLED_NS || is_inside(d, newest);
        }
    }
    diag_map_free(&last);
}

/* Has the communicator of the one work on the stream of the other? Its work in a group is one launch. */
static bool shares_stream(const struct diag *d, const struct diag_unit *unit, const struct diag_op *open,
                          const struct diag_op *other)
{
    for (uint32_t i = unit->first_op; i != DIAG_NONE; i = d->ops[i].unit_next)
        if (d->ops[i].member == open->member && d->ops[i].op.stream == other->op.stream)
            return true;
    return false;
}

/*
 * A group's work on one stream is launched communicator by communicator, in an order that no record
 * tells: as long as one of them is not done the others may stand behind it.
 */
bool diag_more_doubts(struct diag *d)
{
    bool any = false;
    for (size_t u = 0; u < d->nunits; u++) {
        const struct diag_unit *unit = &d->units[u];
        if (!unit->active || unit->done || unit->ops < 2)
            continue;
        for (uint32_t i = unit->first_op; i != DIAG_NONE; i = d->ops[i].unit_next) {
            const struct diag_op *open = &d->ops[i];
            for (uint32_t j = unit->first_op; j != DIAG_NONE && !open->done; j = d->ops[j].unit_next) {
                const struct diag_op *other = &d->ops[j];
                if (!other->done || other->member == open->member || other->match == DIAG_NONE ||
                    d->matches[other->match].doubtful || !shares_stream(d, unit, open, other))
                    continue;
                d->matches[other->match].doubtful = any = true;
            }
        }
    }
    return any;
}

/* What a replayed graph does is not recorded: its collectives may wait for somebody. */
static bool in_graph(const struct diag_proc *proc, const struct diag_op *op)
{
    return diag_captured(op) && !op->replayed && proc->graph_ns >= op->op.enter_ns &&
           proc->graph_ns + DIAG_GRAPH_NS > proc->last_call_ns;
}

bool diag_doubts(const struct diag *d)
{
    if (d->buffered)
        return true;
    for (size_t i = 0; i < d->nmatches; i++)
        if (d->matches[i].doubtful)
            return true;
    for (size_t i = 0; i < d->nprocs; i++)
        if (d->procs[i].gap_ns)
            return true;
    return false;
}

/* Nothing but its own call, as far as is known, keeps the process in it. */
static bool held_by_itself(const struct diag *d, const struct diag_op *op)
{
    const struct diag_match *m = &d->matches[op->match];
    return op->active && is_inside(d, op) && m->active == m->posted && !m->unseen && !m->unknown &&
           !silent_behind(d, m);
}

/* A wait for signals of which nobody knows whether they were given, and not long before the silence. */
static bool may_await(const struct diag_proc *proc, const struct diag_op *op)
{
    return op->op.kind == REC_WAIT_SIGNAL && op->match == DIAG_NONE && op->member && !op->failed &&
           !diag_finished(&op->member->teardown) && op->op.state != REC_STATE_COMPLETED &&
           op->op.enter_ns + LAST_WORK_NS >= proc->last_work_ns;
}

/* A call in which all meet on the host, and all are: one of them may be stuck and keep the others. */
static bool meets_all(const struct diag *d, const struct diag_op *op)
{
    return (rec_kind_flags(op->op.kind) & REC_KF_HOST) && (op->op.flags & REC_OF_OPEN) &&
           op->match != DIAG_NONE && d->matches[op->match].posted > 1;
}

void diag_note_doubts(struct diag *d)
{
    for (size_t i = 0; i < d->nops; i++) {
        struct diag_op *op = &d->ops[i];
        op->doubted = op->match != DIAG_NONE && !op->done && d->units[op->unit].launched;
        if (op->match != DIAG_NONE && (in_graph(&d->procs[op->proc], op) ||
                                       (op->doubted && !held_by_itself(d, op) && !diag_aborted_ns(d, op))))
            d->procs[op->proc].doubtful = true;
        /* The end of its group may be among the records that are lost. */
        bool lost_end =
            op->unit != DIAG_NONE && !d->units[op->unit].launched && d->procs[op->proc].p->dropped_ops;
        if (may_await(&d->procs[op->proc], op) || meets_all(d, op) || lost_end)
            d->procs[op->proc].doubtful = true;
    }
    for (size_t i = 0; i < d->nprocs; i++) {
        struct job_facts facts; /* graphs whose launches are not seen may run at any time */
        job_facts(d->procs[i].p, &facts);
        d->procs[i].doubtful = d->procs[i].doubtful || d->procs[i].gap_ns || facts.unseen_graphs;
    }
}

void diag_note_held(struct diag *d)
{
    for (size_t i = 0; i < d->nops; i++)
        if (d->ops[i].doubted && d->ops[i].done)
            d->procs[d->ops[i].proc].held = true;
}
