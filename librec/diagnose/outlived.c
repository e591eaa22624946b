/*
 * What only works with a process shows that it lives. Its own file may end earlier: it was copied while the
 * job ran, or its last part never reached the disk.
 */
#include "diag.h"

#include <stdlib.h>

/* May this process have gone on after its last record? */
static bool open_ended(const struct diag_proc *proc)
{
    return proc->p->fate == REC_FATE_VANISHED || proc->p->fate == REC_FATE_UNKNOWN;
}

/* No member can complete it before all have come. To a shrink those do not come that it excludes. */
static bool needs_all(const struct rec_op *op)
{
    switch (rec_kind_canonical(op->kind)) {
    case REC_COMM_SHRINK:
        return false;
    case REC_ALL_REDUCE:
    case REC_ALL_GATHER:
    case REC_REDUCE_SCATTER:
    case REC_ALL_TO_ALL:
        return op->count > 0;
    default:
        return (rec_kind_flags(op->kind) & REC_KF_CREATE) && !(op->flags & REC_OF_NO_SEQ);
    }
}

/* When it had been completed, as far as that was seen; 0 = it was not. An abort ends an op, too. */
static uint64_t completed_ns(const struct diag *d, const struct diag_op *op)
{
    if (rec_kind_flags(op->op.kind) & REC_KF_CREATE)
        return op->op.group || op->op.result != REC_RESULT_SUCCESS ? 0 : op->op.exit_ns;
    if (!op->op.gpu_end_ns || diag_aborted_ns(d, op))
        return 0;
    return op->op.gpu_end_ns - DIAG_GPU_LAG_NS;
}

/* The members of a communicator that may have gone on; most have none. */
struct open_members {
    const struct rec_member **items;
    size_t count;
    uint64_t seq; /* the least that one of them has not come to */
};

static void find_open(struct diag *d, const struct rec_communicator *comm, struct open_members *open)
{
    *open = (struct open_members){.seq = UINT64_MAX};
    size_t capacity = 0;
    for (uint32_t i = 0; diag_has(d, comm) && i < comm->nmembers && !d->oom; i++) {
        if (!open_ended(&d->procs[diag_index(d, comm->members[i]->process)]))
            continue;
        open->items = diag_grow(open->items, &capacity, open->count, sizeof *open->items, &d->oom);
        if (d->oom)
            return;
        open->items[open->count++] = comm->members[i];
        uint64_t next = diag_member_of(d, comm->members[i])->next_seq;
        open->seq = next < open->seq ? next : open->seq;
    }
}

/* seen_ns: by process, when it lived as others show. */
static void note_members(const struct diag *d, const struct diag_op *op, uint64_t completed,
                         const struct open_members *open, uint64_t *seen_ns)
{
    for (size_t i = 0; i < open->count; i++) {
        uint32_t p = diag_index(d, open->items[i]->process);
        if (diag_member_of(d, open->items[i])->next_seq <= op->op.seq &&
            d->procs[p].clock == d->procs[op->proc].clock && completed > seen_ns[p])
            seen_ns[p] = completed;
    }
}

static void outlive(struct diag_proc *proc, uint64_t seen_ns, uint64_t margin_ns)
{
    proc->outlived = seen_ns > proc->life_ns + margin_ns;
    if (!proc->outlived)
        return;
    proc->life_ns = seen_ns;
    proc->dead_ns = seen_ns > proc->dead_ns ? seen_ns : proc->dead_ns;
}

void diag_find_outlived(struct diag *d, uint64_t margin_ns)
{
    struct open_members *open = calloc(d->ncomms + 1, sizeof *open);
    uint64_t *seen_ns = calloc(d->nprocs + 1, sizeof *seen_ns);
    d->oom = d->oom || !open || !seen_ns;
    for (size_t c = 0; c < d->ncomms && !d->oom; c++)
        find_open(d, d->comms[c], &open[c]);
    for (size_t i = 0; i < d->nops && !d->oom; i++) {
        const struct diag_op *op = &d->ops[i];
        const struct open_members *members = op->member ? &open[op->member->comm->index] : NULL;
        if (!members || op->late || op->op.seq < members->seq || !needs_all(&op->op))
            continue;
        uint64_t completed = completed_ns(d, op);
        if (completed)
            note_members(d, op, completed, members, seen_ns);
    }
    for (size_t p = 0; p < d->nprocs && !d->oom; p++)
        outlive(&d->procs[p], seen_ns[p], margin_ns);
    for (size_t c = 0; open && c < d->ncomms; c++)
        free(open[c].items);
    free(open);
    free(seen_ns);
}
