/*
 * Calls in which all members of a communicator meet on the host, as in the registration of a window, that
 * are none of its sequence. NCCL does not order them among other calls, so those of one kind meet by their
 * own order: the n-th of each member.
 */
#include "job/recall.h"
#include "meetings.h"

/* Where records of a member may be missing, any call may be the one that others wait for. */
static bool came(const struct diag *d, const struct rec_member *real, uint64_t kind, uint64_t *calls)
{
    const struct rec_process *p = real->process;
    bool complete = !real->lost && !p->rotated && !p->damaged && !d->procs[diag_index(d, p)].gap_ns;
    *calls = complete ? job_host_calls(p, real->comm_id, (unsigned)kind) : UINT64_MAX;
    return true;
}

static const struct meeting_rule host_calls = {.salt = 95, .came = came, .teardown = true};

void diag_host_calls(struct diag *d)
{
    for (size_t i = 0; i < d->nops && !d->oom; i++) {
        struct diag_op *op = &d->ops[i];
        if (!(rec_kind_flags(op->op.kind) & REC_KF_HOST) || !op->member || (op->op.flags & REC_OF_NO_SEQ))
            continue;
        struct rec_member *member = diag_meeting_member(d, op->member, &host_calls, op->op.kind);
        /* What lacks some before it has not the number of the others', either. */
        if (member && member->next_seq != UINT64_MAX)
            op->member = member;
        else
            op->op.flags |= REC_OF_NO_SEQ;
    }
}
