#include <stdlib.h>

#include "internal.h"

/* The communicator that stands for the whole job where the launcher told no ranks. */
struct world {
    uint64_t uid; /* 0 = none */
    uint32_t nranks;
    uint32_t each; /* comm ranks per process, when all have as many; else 0 */
};

static uint32_t ranks_in(const struct rec_process *process, uint64_t uid, uint32_t *lowest)
{
    uint32_t count = 0;
    *lowest = REC_ID_NONE;
    for (uint32_t i = 0; i < process->nmembers; i++) {
        const struct rec_member *member = process->members[i];
        if (member->def.uid != uid || member->comm_rank == REC_ID_NONE)
            continue;
        count++;
        if (member->comm_rank < *lowest)
            *lowest = member->comm_rank;
    }
    return count;
}

/* The largest communicator; of equals the one that is met first. */
static struct world find_world(const struct rec_job *job)
{
    struct world world = {0};
    for (size_t i = 0; i < job->nprocesses; i++)
        for (uint32_t k = 0; k < job->processes[i]->nmembers; k++) {
            const struct rec_comm_def *def = &job->processes[i]->members[k]->def;
            if (def->uid && def->nranks > world.nranks && def->nranks <= JOB_MAX_RANKS &&
                def->rank < def->nranks)
                world = (struct world){.uid = def->uid, .nranks = def->nranks};
        }
    bool uneven = false;
    for (size_t i = 0; i < job->nprocesses && world.uid; i++) {
        uint32_t lowest, count = ranks_in(job->processes[i], world.uid, &lowest);
        if (count == 0)
            continue;
        uneven |= (world.each && count != world.each) || lowest % count != 0;
        world.each = count;
    }
    if (uneven)
        world.each = 0;
    return world;
}

/* Ranks of processes that were told none, from their place in the largest communicator. */
static enum rec_code derive_ranks(struct rec_job *job, const struct world *world, struct rec_error *err)
{
    struct job_map taken = {0};
    bool ok = true;
    for (size_t i = 0; i < job->nprocesses && ok; i++)
        if (job->processes[i]->rank >= 0)
            ok = job_map_put(&taken, (uint64_t)job->processes[i]->rank, 1);
    for (size_t i = 0; i < job->nprocesses && ok; i++) {
        struct rec_process *process = job->processes[i];
        uint32_t lowest;
        if (process->rank >= 0 || ranks_in(process, world->uid, &lowest) == 0 || lowest >= world->nranks)
            continue;
        uint32_t rank = world->each ? lowest / world->each : lowest;
        if (job_map_get(&taken, rank) != JOB_MAP_NONE)
            continue;
        ok = job_map_put(&taken, rank, 1);
        process->rank = (int32_t)rank;
        process->derived_rank = true;
    }
    job_map_free(&taken);
    return ok ? REC_OK : rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
}

static int by_value(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

/* The world size that most processes were told; of equals the largest. 0 = none was. */
static uint32_t told_size(const struct rec_job *job)
{
    int32_t *sizes = calloc(job->nprocesses + 1, sizeof(*sizes));
    size_t count = 0, best_votes = 0;
    uint32_t best = 0;
    if (!sizes)
        return 0;
    for (size_t i = 0; i < job->nprocesses; i++)
        if (job->processes[i]->world_size > 0)
            sizes[count++] = job->processes[i]->world_size;
    qsort(sizes, count, sizeof(*sizes), by_value);
    for (size_t i = 0, first = 0; i < count; i++) {
        if (sizes[i] != sizes[first])
            first = i;
        if (i - first + 1 >= best_votes) {
            best_votes = i - first + 1;
            best = (uint32_t)sizes[i];
        }
    }
    free(sizes);
    return best;
}

static void find_expected(struct rec_job *job, const struct world *world)
{
    job->expected = told_size(job);
    if (job->expected == 0 && world->uid)
        job->expected = world->each ? (world->nranks + world->each - 1) / world->each : 0;
    const struct rec_process *highest = NULL;
    for (size_t i = 0; i < job->nprocesses; i++)
        if (!highest || job->processes[i]->rank > highest->rank)
            highest = job->processes[i];
    if (job->expected && highest && highest->rank >= (int32_t)job->expected) {
        job_warn(&job->warnings, highest->path, "rank %d in a job of %u", highest->rank, job->expected);
        job->expected = (uint32_t)highest->rank + 1;
    }
}

/* By rank, unknown ranks last, then by start. */
static int by_rank(const void *a, const void *b)
{
    const struct rec_process *x = *(struct rec_process *const *)a, *y = *(struct rec_process *const *)b;
    uint32_t rank_x = (uint32_t)x->rank, rank_y = (uint32_t)y->rank; /* -1 becomes the largest */
    if (rank_x != rank_y)
        return rank_x < rank_y ? -1 : 1;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    return x->proc_uid < y->proc_uid ? -1 : x->proc_uid > y->proc_uid;
}

enum rec_code job_rank(struct rec_job *job, struct rec_error *err)
{
    struct world world = find_world(job);
    if (world.uid) {
        enum rec_code code = derive_ranks(job, &world, err);
        if (code != REC_OK)
            return code;
    }
    find_expected(job, &world);
    qsort(job->processes, job->nprocesses, sizeof(*job->processes), by_rank);
    for (size_t i = 0; i < job->nprocesses; i++)
        job->processes[i]->index = (uint32_t)i;
    return REC_OK;
}
