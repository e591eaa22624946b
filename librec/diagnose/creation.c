/* Communicators whose creation lacks members: which job ranks should have come? */
#include "diag.h"

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
