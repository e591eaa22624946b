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

/* The least seq that some open-ended member of a communicator has not come to; UINT64_MAX = there is none. */
static uint64_t open_seq(const struct diag *d, const struct rec_communicator *comm)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; diag_has(d, comm) && i < comm->nmembers; i++) {
        uint64_t next = diag_member_of(d, comm->members[i])->next_seq;
        if (open_ended(&d->procs[diag_index(d, comm->members[i]->process)]) && next < least)
            least = next;
    }
    return least;
}

/* seen_ns: by process, when it lived as others show. */
static void note_members(const struct diag *d, const struct diag_op *op, uint64_t completed,
                         uint64_t *seen_ns)
{
    const struct rec_communicator *comm = op->member->comm;
    for (uint32_t i = 0; i < comm->nmembers; i++) {
        uint32_t p = diag_index(d, comm->members[i]->process);
        if (open_ended(&d->procs[p]) && diag_member_of(d, comm->members[i])->next_seq <= op->op.seq &&
            d->procs[p].clock == d->procs[op->proc].clock && completed > seen_ns[p])
            seen_ns[p] = completed;
    }
}

void diag_find_outlived(struct diag *d, uint64_t margin_ns)
{
    uint64_t *seqs = malloc((d->ncomms + 1) * sizeof *seqs);
    uint64_t *seen_ns = calloc(d->nprocs + 1, sizeof *seen_ns);
    d->oom = d->oom || !seqs || !seen_ns;
    for (size_t c = 0; c < d->ncomms && !d->oom; c++)
        seqs[c] = open_seq(d, d->comms[c]);
    for (size_t i = 0; i < d->nops && !d->oom; i++) {
        const struct diag_op *op = &d->ops[i];
        if (!op->member || op->late || op->op.seq < seqs[op->member->comm->index] || !needs_all(&op->op))
            continue;
        uint64_t completed = completed_ns(d, op);
        if (completed)
            note_members(d, op, completed, seen_ns);
    }
    for (size_t p = 0; p < d->nprocs && !d->oom; p++) {
        struct diag_proc *proc = &d->procs[p];
        proc->outlived = seen_ns[p] > proc->life_ns + margin_ns;
        if (!proc->outlived)
            continue;
        proc->life_ns = seen_ns[p];
        proc->dead_ns = seen_ns[p] > proc->dead_ns ? seen_ns[p] : proc->dead_ns;
    }
    free(seqs);
    free(seen_ns);
}
