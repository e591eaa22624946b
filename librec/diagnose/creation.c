/* Communicators whose creation lacks members: which job ranks should have come? */
#include <inttypes.h>

#include "diag.h"

#include "rec/live.h"

/* Members without a trace beyond these are not named. */
#define HIDDEN_MAX 64

/*
 * Launchers and frameworks give communicators regular shapes: job rank = start + stride ×
 * comm rank. Where the present members fit that, the absent ones follow from it.
 */
static bool fit(const struct rec_communicator *comm, uint32_t expected, int64_t *start, int64_t *stride)
{
    const struct rec_member *first = NULL, *second = NULL;
    for (uint32_t i = 0; i < comm->nmembers; i++) {
        const struct rec_member *m = comm->members[i];
        if (m->comm_rank == REC_ID_NONE || m->process->rank < 0)
            return false;
        if (!first)
            first = m;
        else if (!second && m->comm_rank != first->comm_rank)
            second = m;
    }
    if (!first)
        return false;
    /* Any two lie in a line. */
    if (comm->nmembers < 3 && comm->nranks != expected && comm->nmembers * 2 < comm->nranks)
        return false;
    int64_t rank = first->process->rank, comm_rank = first->comm_rank;
    if (second) {
        int64_t ranks = second->process->rank - rank, places = (int64_t)second->comm_rank - comm_rank;
        if (ranks % places)
            return false;
        *stride = ranks / places;
    } else if (comm->nranks == expected && rank == comm_rank) {
        *stride = 1;
    } else {
        return false;
    }
    *start = rank - *stride * comm_rank;
    for (uint32_t i = 0; i < comm->nmembers; i++)
        if (comm->members[i]->process->rank != *start + *stride * (int64_t)comm->members[i]->comm_rank)
            return false;
    return *stride != 0;
}

/* Every process outside the communicator, when they are just as many as it lacks. */
static size_t remaining(const struct rec_communicator *comm, uint32_t expected, int32_t *ranks, size_t max)
{
    size_t count = 0, lacking = comm->nranks > comm->nmembers ? comm->nranks - comm->nmembers : 0;
    for (uint32_t rank = 0; rank < expected; rank++) {
        bool member = false;
        for (uint32_t i = 0; i < comm->nmembers && !member; i++)
            member = comm->members[i]->process->rank == (int32_t)rank;
        if (member)
            continue;
        if (count == lacking || count == max)
            return 0;
        ranks[count++] = (int32_t)rank;
    }
    return count == lacking ? count : 0;
}

size_t diag_absent_ranks(const struct diag *d, const struct rec_communicator *comm, int32_t *ranks,
                         size_t max)
{
    uint32_t expected = d->expected;
    int64_t start, stride;
    if (comm->nranks_differ || !comm->nranks)
        return 0;
    if (!fit(comm, expected, &start, &stride))
        return remaining(comm, expected, ranks, max);
    size_t count = 0;
    for (uint32_t place = 0; place < comm->nranks; place++) {
        if (diag_member_at(comm, place))
            continue;
        int64_t rank = start + stride * place;
        if (rank < 0 || (expected && rank >= expected) || count == max)
            return 0;
        ranks[count++] = (int32_t)rank;
    }
    return count;
}

/* ---- members whose last calls are not recorded ---- */

static bool all_recorded(const struct diag *d)
{
    for (uint32_t rank = 0; rank < d->expected; rank++) {
        uint32_t proc = diag_proc_of_rank(d, rank);
        if (proc == DIAG_NONE || d->procs[proc].cut)
            return false;
    }
    return d->expected > 0;
}

uint32_t diag_hidden(const struct diag *d, const struct rec_communicator *comm)
{
    uint32_t count = comm->nranks > comm->nmembers ? comm->nranks - comm->nmembers : 0;
    if (count && all_recorded(d))
        count = 0; /* they have just not joined */
    for (uint32_t i = 0; i < comm->nmembers; i++)
        count += d->procs[diag_index(d, comm->members[i]->process)].cut;
    return count;
}

void diag_suspect_hidden(struct diag *d, struct rec_finding *f, const struct rec_communicator *comm)
{
    int32_t ranks[HIDDEN_MAX];
    size_t count = comm->nranks > comm->nmembers ? diag_absent_ranks(d, comm, ranks, HIDDEN_MAX) : 0;
    for (size_t i = 0; i < count; i++)
        diag_blame(d, f, DIAG_SUSPECT, ranks[i]);
    for (uint32_t i = 0; i < comm->nmembers; i++)
        if (d->procs[diag_index(d, comm->members[i]->process)].cut)
            diag_blame(d, f, DIAG_SUSPECT, comm->members[i]->process->rank);
    diag_sort_ranks(f->suspects, &f->nsuspects);
}

/* ---- members that a shrink leaves behind ---- */

bool diag_has_left(const struct diag *d, const struct rec_member *member)
{
    const struct diag_proc *proc = &d->procs[diag_index(d, member->process)];
    return proc->early_dead || member->teardown.kind != REC_NONE ||
           (proc->p->fate == REC_FATE_EXITED && !proc->waits && !proc->followed);
}

struct diag_excluded diag_excluded(const struct diag *d, const struct diag_match *m)
{
    const struct rec_op *op = m->first_op == DIAG_NONE ? NULL : &d->ops[m->first_op].op;
    struct diag_excluded excluded = {0, false};
    if (!op || op->kind != REC_COMM_SHRINK)
        return excluded;
    uint32_t left = 0;
    for (uint32_t i = 0; i < m->comm->nmembers; i++)
        left += diag_lacks(d, m->comm->members[i], m->seq) && diag_has_left(d, m->comm->members[i]);
    excluded.left = left && left <= op->count && left < m->absent + m->unseen + m->unknown;
    excluded.others = op->count - (excluded.left ? left : 0);
    return excluded;
}

/* ---- two that say they are the same member ---- */

static bool joins_for_long(const struct diag *d, const struct rec_member *m)
{
    const struct diag_proc *proc = &d->procs[diag_index(d, m->process)];
    uint64_t since = diag_common(proc, m->def.created_ns);
    return m->def.state < REC_LIVE_COMM_READY && since && proc->life_ns >= since + proc->patience_ns;
}

/* Do all but these two have the comm rank that they have in the job? */
static bool others_in_line(const struct rec_communicator *comm, uint32_t first)
{
    for (uint32_t i = 0; i < comm->nmembers; i++)
        if (i != first && i != first + 1 &&
            comm->members[i]->process->rank != (int32_t)comm->members[i]->comm_rank)
            return false;
    return true;
}

static void tell_twins(struct diag *d, const struct rec_communicator *comm, uint32_t first)
{
    const struct rec_member *a = comm->members[first], *b = comm->members[first + 1];
    bool a_fits = a->process->rank == (int32_t)a->comm_rank,
         b_fits = b->process->rank == (int32_t)b->comm_rank;
    bool known = a_fits != b_fits && others_in_line(comm, first);
    struct rec_finding *f =
        diag_finding(d, REC_VERDICT_INIT_INCOMPLETE, REC_CONF_LIKELY, DIAG_TIER_ROOT,
                     diag_common(&d->procs[diag_index(d, b->process)], b->def.created_ns));
    if (!f)
        return;
    f->comm = comm;
    for (uint32_t i = first; i < first + 2; i++)
        diag_blame(d, f, known && (i == first ? a_fits : b_fits) ? DIAG_VICTIM : DIAG_CULPRIT,
                   comm->members[i]->process->rank);
    diag_sort_ranks(f->culprits, &f->nculprits);
    for (uint32_t i = 0; i < comm->nmembers; i++)
        if (i != first && i != first + 1)
            diag_blame(d, f, DIAG_VICTIM, comm->members[i]->process->rank);
    diag_sort_ranks(f->victims, &f->nvictims);
    struct diag_text t = {0};
    diag_say_proc(&t, a->process);
    diag_printf(&t, " and ");
    diag_say_proc(&t, b->process);
    diag_printf(&t, " both join the creation of ");
    diag_say_comm(&t, comm);
    diag_printf(&t, " as comm rank %" PRIu32, a->comm_rank);
    if (!known)
        diag_printf(&t, "; the records do not tell which of them is wrong");
    diag_summary(d, f, &t);
}

void diag_twins(struct diag *d)
{
    for (size_t c = 0; c < d->ncomms; c++) {
        const struct rec_communicator *comm = d->comms[c];
        /* Where they disagree about its size, that is why they count differently. */
        for (uint32_t i = 0; diag_has(d, comm) && !comm->nranks_differ && i + 1 < comm->nmembers; i++) {
            const struct rec_member *a = comm->members[i], *b = comm->members[i + 1];
            if (a->comm_rank != REC_ID_NONE && a->comm_rank == b->comm_rank && a->process != b->process &&
                joins_for_long(d, a) && joins_for_long(d, b))
                tell_twins(d, comm, i);
        }
    }
}
