#include "meetings.h"

#include <stdlib.h>
#include <string.h>

/* Of all meetings together; about 500 bytes each. */
#define MEMBERS_MAX 65536

struct meeting {
    struct rec_communicator comm;
    struct rec_communicator *of;
    uint64_t seq; /* of the call of the real one that it stands for; UINT64_MAX = none */
    bool apart;   /* the calls need not correspond */
    struct rec_member *members;
    struct rec_member **list;
};

struct diag_meetings {
    struct meeting **items;
    size_t count, items_cap;
    struct diag_map by_place; /* (rule, communicator, place) → meeting */
    size_t nmembers;
    struct rec_communicator **comms; /* the job's, then ours */
    size_t njob;                     /* of the job */
};

static bool add_member(const struct diag *d, struct meeting *meeting, const struct rec_member *real,
                       const struct meeting_rule *rule, uint64_t place)
{
    uint64_t calls;
    if (diag_index(d, real->process) == DIAG_NONE || !rule->came(d, real, place, &calls))
        return false;
    struct rec_member *member = &meeting->members[meeting->comm.nmembers];
    *member = (struct rec_member){.comm = &meeting->comm,
                                  .process = real->process,
                                  .place = meeting->comm.nmembers,
                                  .comm_id = real->comm_id,
                                  .comm_rank = real->comm_rank,
                                  .def = real->def,
                                  .next_seq = calls,
                                  .finished = calls};
    if (rule->teardown)
        member->teardown = real->teardown;
    meeting->list[meeting->comm.nmembers++] = member;
    return true;
}

static void fill(const struct diag *d, struct meeting *meeting, const struct meeting_rule *rule,
                 uint64_t place)
{
    const struct rec_communicator *of = meeting->of;
    meeting->comm = (struct rec_communicator){
        .index = (uint32_t)(d->meetings->njob + d->meetings->count), .uid = of->uid, .nranks = of->nranks};
    memcpy(meeting->comm.name, of->name, sizeof of->name);
    for (uint32_t i = 0; i < of->nmembers && !meeting->apart; i++)
        meeting->apart = !add_member(d, meeting, of->members[i], rule, place);
    meeting->comm.members = meeting->list;
}

static struct meeting *make(struct diag *d, struct rec_communicator *comm, const struct meeting_rule *rule,
                            uint64_t place)
{
    struct diag_meetings *meetings = d->meetings;
    meetings->items =
        diag_grow(meetings->items, &meetings->items_cap, meetings->count, sizeof(struct meeting *), &d->oom);
    struct meeting *meeting = d->oom ? NULL : calloc(1, sizeof *meeting);
    d->oom = d->oom || !meeting;
    if (d->oom)
        return NULL;
    *meeting = (struct meeting){.of = comm, .seq = rule->teardown ? UINT64_MAX : place};
    meeting->members = calloc(comm->nmembers + 1, sizeof *meeting->members);
    meeting->list = calloc(comm->nmembers + 1, sizeof(struct rec_member *));
    d->oom = !meeting->members || !meeting->list;
    if (!d->oom)
        fill(d, meeting, rule, place);
    meetings->items[meetings->count++] = meeting;
    meetings->nmembers += comm->nmembers;
    return meeting;
}

struct rec_member *diag_meeting_member(struct diag *d, const struct rec_member *real,
                                       const struct meeting_rule *rule, uint64_t place)
{
    if (!d->meetings) {
        d->meetings = calloc(1, sizeof *d->meetings);
        d->oom = d->oom || !d->meetings;
        if (d->oom)
            return NULL;
        d->meetings->njob = d->ncomms;
    }
    struct rec_communicator *comm = real->comm;
    bool fresh;
    uint32_t *at = diag_map_put(&d->meetings->by_place, diag_key(comm->index, place, rule->salt), &fresh);
    d->oom = d->oom || !at;
    if (d->oom)
        return NULL;
    struct meeting *meeting = *at == DIAG_NONE ? NULL : d->meetings->items[*at];
    if (fresh && d->meetings->nmembers + comm->nmembers <= MEMBERS_MAX) {
        *at = (uint32_t)d->meetings->count;
        meeting = make(d, comm, rule, place);
    }
    return d->oom || !meeting || meeting->apart ? NULL : meeting->list[real->place];
}

/* All tables that are indexed by communicator and member grow by the meetings. */
static bool extend_tables(struct diag *d)
{
    struct diag_meetings *meetings = d->meetings;
    size_t ncomms = meetings->njob + meetings->count, nmembers = d->nmembers;
    meetings->comms = malloc((ncomms + 1) * sizeof(struct rec_communicator *));
    uint32_t *bases = realloc(d->member_base, (ncomms + 1) * sizeof *bases);
    d->member_base = bases ? bases : d->member_base;
    uint64_t *aborts = realloc(d->abort_ns, (ncomms + 1) * sizeof *aborts);
    d->abort_ns = aborts ? aborts : d->abort_ns;
    struct diag_member *members = realloc(d->members, (nmembers + meetings->nmembers + 1) * sizeof *members);
    d->members = members ? members : d->members;
    if (!meetings->comms || !bases || !aborts || !members)
        return false;
    for (size_t i = 0; i < meetings->njob; i++)
        meetings->comms[i] = d->comms[i];
    for (size_t i = 0; i < meetings->count; i++) {
        struct meeting *meeting = meetings->items[i];
        meeting->comm.nmembers = meeting->apart ? 0 : meeting->comm.nmembers;
        meetings->comms[meetings->njob + i] = &meeting->comm;
        bases[meetings->njob + i] = (uint32_t)nmembers;
        for (uint32_t k = 0; k < meeting->comm.nmembers; k++)
            members[nmembers++] = (struct diag_member){.next_seq = meeting->list[k]->next_seq};
    }
    d->comms = meetings->comms;
    d->ncomms = ncomms;
    d->nmembers = nmembers;
    return true;
}

void diag_meet(struct diag *d)
{
    diag_host_calls(d);
    diag_graphs(d);
    if (d->meetings && !d->oom)
        d->oom = !extend_tables(d);
}

bool diag_meeting(const struct diag *d, size_t index, struct diag_meeting *out)
{
    if (!d->meetings || index >= d->meetings->count)
        return false;
    struct meeting *meeting = d->meetings->items[index];
    *out = (struct diag_meeting){&meeting->comm, meeting->of, meeting->seq};
    return true;
}

/* ---- the end ---- */

static const struct meeting *meeting_of(const struct diag *d, const struct rec_communicator *comm)
{
    return d->meetings && comm && comm->index >= d->meetings->njob
               ? d->meetings->items[comm->index - d->meetings->njob]
               : NULL;
}

void diag_meetings_resolve(struct diag *d)
{
    for (size_t i = 0; i < d->nfindings; i++) {
        struct rec_finding *f = &d->findings[i];
        const struct meeting *meeting = meeting_of(d, f->comm);
        if (!meeting)
            continue;
        f->comm = meeting->of;
        f->seq = meeting->seq;
    }
}

void diag_meetings_fini(struct diag *d)
{
    struct diag_meetings *meetings = d->meetings;
    if (!meetings)
        return;
    for (size_t i = 0; i < meetings->count; i++) {
        free(meetings->items[i]->members);
        free(meetings->items[i]->list);
        free(meetings->items[i]);
    }
    free(meetings->items);
    free(meetings->comms);
    diag_map_free(&meetings->by_place);
    free(meetings);
}
