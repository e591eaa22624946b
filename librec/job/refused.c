/*
 * Groups that NCCL refused. What one call of a group is refused for makes the end of the group fail before
 * anything of it is launched, so none of its calls was ever in NCCL's order. But they had taken their places
 * when they were called; those that came behind them stand too high by as many, which would shift them
 * against the other ranks'. Loading notes the places; once all is known every number is counted anew.
 *
 * Where nothing came behind them, others may wait for what they should have been: they stay.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define MAX_PLACES 65536 /* of one process; calls beyond them keep their places */

static int by_sequence(const struct job_place *x, const struct job_place *y)
{
    if (x->comm != y->comm)
        return x->comm < y->comm ? -1 : 1;
    if (x->way != y->way)
        return x->way < y->way ? -1 : 1;
    return x->peer < y->peer ? -1 : x->peer > y->peer;
}

static int by_place(const void *a, const void *b)
{
    const struct job_place *x = a, *y = b;
    int sequence = by_sequence(x, y);
    return sequence ? sequence : x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* Where an op stands, or would stand; false when it has no place. */
static bool place_of(const struct rec_op *op, struct job_place *place)
{
    unsigned flags = rec_kind_flags(op->kind);
    if (!(flags & (REC_KF_SEQ | REC_KF_P2P | REC_KF_TEARDOWN)) || (op->flags & REC_OF_NO_SEQ) ||
        op->comm == REC_ID_NONE)
        return false;
    bool message = (flags & REC_KF_P2P) != 0;
    *place = (struct job_place){.comm = op->comm,
                                .peer = message ? op->peer : -1,
                                .way = !message               ? JOB_WAY_ALL
                                       : op->kind == REC_SEND ? JOB_WAY_TO
                                                              : JOB_WAY_FROM,
                                .seq = op->seq};
    return true;
}

bool job_is_refused(const struct rec_op *op)
{
    return !(op->flags & REC_OF_OPEN) &&
           (op->result == REC_RESULT_INVALID_ARGUMENT || op->result == REC_RESULT_INVALID_USAGE);
}

void job_refused_note(struct job_process *process, const struct rec_op *op)
{
    struct job_refused *refused = &process->refused;
    struct job_place place;
    if (!(rec_kind_flags(op->kind) & (REC_KF_SEQ | REC_KF_P2P)) || !place_of(op, &place) ||
        refused->count == MAX_PLACES)
        return;
    if (!job_grow(&refused->places, &refused->room, refused->count + 1, sizeof(*refused->places)))
        process->no_memory = true;
    else
        refused->places[refused->count++] = place;
}

/* How many places lie before this one in all. */
static size_t before(const struct job_refused *refused, const struct job_place *place)
{
    size_t low = 0, high = refused->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (by_place(&refused->places[middle], place) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void job_refused_fini(struct job_refused *refused)
{
    free(refused->places);
    free(refused->open);
}

/* How many refused calls lie before this place in its sequence. */
static uint64_t refused_before(const struct job_refused *refused, struct job_place place)
{
    size_t upto = before(refused, &place);
    place.seq = 0;
    return upto - before(refused, &place);
}

void job_refused_op(const struct job_process *process, struct rec_op *op)
{
    const struct job_refused *refused = &process->refused;
    struct job_place place;
    if (!refused->count || !place_of(op, &place))
        return;
    size_t at = before(refused, &place);
    if (op->group && at < refused->count && by_place(&refused->places[at], &place) == 0) {
        op->flags |= REC_OF_NO_SEQ;
        op->seq = 0;
        return;
    }
    op->seq -= refused_before(refused, place);
}

uint64_t job_refused_seq(const struct job_process *process, uint32_t comm, uint64_t seq)
{
    const struct job_refused *refused = &process->refused;
    const struct job_place place = {.comm = comm, .peer = -1, .way = JOB_WAY_ALL, .seq = seq};
    return refused->count ? seq - refused_before(refused, place) : seq;
}

/* The next number of the sequence of a place, refused calls included. */
static uint64_t next_of(const struct job_process *process, const struct job_place *place)
{
    if (place->way != JOB_WAY_ALL)
        return job_messages(&process->pub, place->comm, place->peer, place->way == JOB_WAY_TO);
    const struct rec_member *member = rec_process_member(&process->pub, place->comm);
    return member ? member->next_seq : 0;
}

/* Sorts the places and forgets those at the end of their sequence. */
static void keep_followed(struct job_process *process)
{
    struct job_refused *refused = &process->refused;
    size_t kept = refused->count;
    qsort(refused->places, refused->count, sizeof(*refused->places), by_place);
    uint64_t next = 0;
    for (size_t i = refused->count; i-- > 0;) {
        const struct job_place place = refused->places[i];
        if (i + 1 == refused->count || by_sequence(&place, &refused->places[i + 1]) != 0)
            next = next_of(process, &place);
        if (place.seq + 1 < next)
            refused->places[--kept] = place;
        else
            next = place.seq;
    }
    refused->count -= kept;
    for (size_t i = 0; i < refused->count; i++)
        refused->places[i] = refused->places[kept + i];
}

static void settle_member(struct job_process *process, struct rec_member *member)
{
    struct job_refused *refused = &process->refused;
    const struct job_place first = {.comm = member->comm_id, .peer = -1, .way = JOB_WAY_ALL};
    size_t at = before(refused, &first);
    bool any = at < refused->count && by_sequence(&refused->places[at], &first) == 0;
    /* From there on hashes have summed up the other numbers. */
    for (uint64_t w = any ? refused->places[at].seq / REC_CHECKPOINT_OPS : member->nwindows;
         w < member->nwindows; w++)
        job_member_of(member)->words[w].known = false;
    member->first_seq = job_refused_seq(process, member->comm_id, member->first_seq);
    member->next_seq = job_refused_seq(process, member->comm_id, member->next_seq);
    member->finished = job_refused_seq(process, member->comm_id, member->finished);
    job_refused_op(process, &member->last_op);
    job_refused_op(process, &member->teardown);
}

static void settle_open(struct job_process *process)
{
    struct job_refused *refused = &process->refused;
    if (!process->nopen)
        return;
    refused->open = malloc(process->nopen * sizeof(*refused->open));
    if (!refused->open) {
        process->no_memory = true;
        return;
    }
    memcpy(refused->open, process->open, process->nopen * sizeof(*refused->open));
    for (size_t i = 0; i < process->nopen; i++)
        job_refused_op(process, &refused->open[i]);
    process->pub.open = refused->open;
}

void job_refused_settle(struct job_process *process)
{
    struct job_refused *refused = &process->refused;
    if (refused->count)
        keep_followed(process);
    if (!refused->count)
        return;
    for (size_t i = 0; i < process->nmembers; i++)
        settle_member(process, process->members[i]);
    settle_open(process);
    for (size_t i = 0; i < refused->count; i++)
        if (refused->places[i].way != JOB_WAY_ALL)
            job_pair_less(process, refused->places[i].comm, refused->places[i].peer,
                          refused->places[i].way == JOB_WAY_TO);
    struct job_graphs *graphs = &process->recall.graphs;
    for (size_t i = 0; i < graphs->count; i++) {
        struct job_captured *lists[] = {&graphs->items[i], &graphs->by_comm[i]};
        for (int k = 0; k < 2; k++) {
            lists[k]->first = job_refused_seq(process, lists[k]->comm_id, lists[k]->first);
            lists[k]->last = job_refused_seq(process, lists[k]->comm_id, lists[k]->last);
        }
    }
}
