#include <stdlib.h>
#include <string.h>

#include "internal.h"

static int by_comm_rank(const void *a, const void *b)
{
    const struct rec_member *x = *(struct rec_member *const *)a, *y = *(struct rec_member *const *)b;
    if (x->comm_rank != y->comm_rank)
        return x->comm_rank < y->comm_rank ? -1 : 1; /* unknown is the largest */
    if (x->process->index != y->process->index)
        return x->process->index < y->process->index ? -1 : 1;
    return x->comm_id < y->comm_id ? -1 : x->comm_id > y->comm_id;
}

/* The communicator that a member belongs to, made when new. Member counts are raised on the way. */
static struct rec_communicator *communicator_of(struct rec_job *job, const struct rec_member *member,
                                                size_t *room)
{
    uint64_t uid = member->def.uid;
    uint32_t at = uid ? job_map_get(&job->comm_uids, uid) : JOB_MAP_NONE;
    if (at != JOB_MAP_NONE)
        return job->communicators[at];
    struct rec_communicator *comm = calloc(1, sizeof(*comm));
    if (!comm || !job_grow(&job->communicators, room, job->ncommunicators + 1, sizeof(*job->communicators)) ||
        (uid && !job_map_put(&job->comm_uids, uid, (uint32_t)job->ncommunicators))) {
        free(comm);
        return NULL;
    }
    comm->uid = uid;
    comm->index = (uint32_t)job->ncommunicators;
    job->communicators[job->ncommunicators++] = comm;
    return comm;
}

static int by_nranks(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* The size that most members say; of equals the larger. */
static bool vote_nranks(struct rec_communicator *comm)
{
    uint32_t *votes = calloc(comm->nmembers + 1u, sizeof(*votes));
    size_t count = 0, best = 0;
    if (!votes)
        return false;
    for (uint32_t i = 0; i < comm->nmembers; i++)
        if (comm->members[i]->def.nranks)
            votes[count++] = comm->members[i]->def.nranks;
    qsort(votes, count, sizeof(*votes), by_nranks);
    for (size_t i = 0, first = 0; i < count; i++) {
        if (votes[i] != votes[first])
            first = i;
        if (i - first + 1 >= best) {
            best = i - first + 1;
            comm->nranks = votes[i];
        }
    }
    comm->nranks_differ = count > 0 && votes[0] != votes[count - 1];
    free(votes);
    return true;
}

/* What the members say about their communicator: the first that says anything is believed. */
static void describe(struct rec_communicator *comm)
{
    for (uint32_t i = 0; i < comm->nmembers; i++) {
        const struct rec_comm_def *def = &comm->members[i]->def;
        if (!comm->name[0] && def->name[0])
            memcpy(comm->name, def->name, sizeof(comm->name));
        if (!comm->made_by)
            comm->made_by = def->made_by;
        if (!comm->parent_uid && def->parent_uid) {
            comm->parent_uid = def->parent_uid;
            comm->parent_seq = def->parent_seq;
        }
    }
}

/* Links children to parents; a line of descent that bites its tail is cut. */
static bool link_parents(struct rec_job *job)
{
    uint32_t *walk = calloc(job->ncommunicators + 1, sizeof(*walk)); /* number of the walk that came by */
    if (!walk)
        return false;
    for (size_t i = 0; i < job->ncommunicators; i++) {
        struct rec_communicator *comm = job->communicators[i];
        if (comm->parent_uid)
            comm->parent = rec_job_find_communicator(job, comm->parent_uid);
    }
    for (size_t i = 0; i < job->ncommunicators; i++) {
        struct rec_communicator *comm = job->communicators[i];
        while (comm && walk[comm->index] == 0) {
            walk[comm->index] = (uint32_t)i + 1;
            if (comm->parent && walk[comm->parent->index] == i + 1)
                comm->parent = NULL;
            comm = comm->parent;
        }
    }
    free(walk);
    return true;
}

static void check_ranks(struct rec_job *job, const struct rec_communicator *comm)
{
    for (uint32_t i = 1; i < comm->nmembers; i++) {
        const struct rec_member *a = comm->members[i - 1], *b = comm->members[i];
        if (a->comm_rank != b->comm_rank || a->comm_rank == REC_ID_NONE)
            continue;
        job_warn(&job->warnings, b->process->path, "comm rank %u of communicator %016llx is also in %s",
                 b->comm_rank, (unsigned long long)comm->uid, a->process->path);
        break; /* one line for a communicator is enough */
    }
}

static bool settle(struct rec_job *job, struct rec_communicator *comm)
{
    if (comm->nmembers > 1)
        qsort((void *)(uintptr_t)comm->members, comm->nmembers, sizeof(*comm->members), by_comm_rank);
    for (uint32_t i = 0; i < comm->nmembers; i++)
        comm->members[i]->place = i;
    describe(comm);
    check_ranks(job, comm);
    return vote_nranks(comm);
}

static bool gather_members(struct rec_job *job)
{
    size_t room = 0;
    for (size_t i = 0; i < job->nprocesses; i++)
        for (uint32_t k = 0; k < job->processes[i]->nmembers; k++) {
            struct rec_member *member = job->processes[i]->members[k];
            member->comm = communicator_of(job, member, &room);
            if (!member->comm)
                return false;
            member->comm->nmembers++;
        }
    for (size_t i = 0; i < job->ncommunicators; i++) {
        struct rec_communicator *comm = job->communicators[i];
        comm->members = calloc(comm->nmembers, sizeof(*comm->members));
        if (!comm->members)
            return false;
        comm->nmembers = 0;
    }
    for (size_t i = 0; i < job->nprocesses; i++)
        for (uint32_t k = 0; k < job->processes[i]->nmembers; k++) {
            struct rec_member *member = job->processes[i]->members[k];
            struct rec_member **members = (struct rec_member **)(uintptr_t)member->comm->members;
            members[member->comm->nmembers++] = member;
        }
    return true;
}

enum rec_code job_join(struct rec_job *job, struct rec_error *err)
{
    bool ok = gather_members(job);
    for (size_t i = 0; i < job->ncommunicators && ok; i++)
        ok = settle(job, job->communicators[i]);
    ok = ok && link_parents(job);
    return ok ? REC_OK : rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
}

struct rec_communicator *rec_job_find_communicator(const struct rec_job *job, uint64_t uid)
{
    uint32_t at = uid ? job_map_get(&job->comm_uids, uid) : JOB_MAP_NONE;
    return at == JOB_MAP_NONE ? NULL : job->communicators[at];
}
