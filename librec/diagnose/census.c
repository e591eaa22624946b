/* The census of communicators (rec/census.h): figures while loading, rows and notes at the end. */
#include "diag.h"

#include <inttypes.h>
#include <stdlib.h>

#include "job/recall.h"

#define NAMED_MAX 4 /* communicators that one note names */

/* ---- rows ---- */

static void fill_row(const struct diag *d, struct rec_comm_census *row)
{
    const struct rec_communicator *comm = row->comm;
    bool ended = true;
    for (uint32_t i = 0; i < comm->nmembers; i++) {
        const struct rec_member *member = comm->members[i];
        const struct diag_proc *proc = &d->procs[diag_index(d, member->process)];
        uint64_t created =
            diag_common(proc, member->def.created_ns ? member->def.created_ns : member->first_ns);
        if (created && (!row->created_ns || created < row->created_ns))
            row->created_ns = created;
        uint64_t torn = diag_common(proc, member->teardown.enter_ns);
        ended = ended && member->teardown.kind != REC_NONE;
        if (torn > row->ended_ns)
            row->ended_ns = torn;
        if (member->collectives > row->collectives)
            row->collectives = member->collectives;
        row->sends += member->sends;
        row->onesided += member->onesided;
        row->bytes += member->bytes;
        row->lost += member->lost;
    }
    if (!ended)
        row->ended_ns = 0;
}

void diag_census_fill(const struct diag *d, struct rec_census *census)
{
    for (size_t c = 0; c < census->ncomms; c++)
        if (diag_has(d, census->comms[c].comm))
            fill_row(d, &census->comms[c]);
}

bool diag_census_rows(const struct rec_job *job, struct rec_census *census)
{
    struct rec_communicator *const *comms = rec_job_communicators(job, &census->ncomms);
    census->comms = calloc(census->ncomms + 1, sizeof *census->comms);
    if (!census->comms)
        return false;
    for (size_t c = 0; c < census->ncomms; c++) {
        struct rec_comm_census *row = &census->comms[c];
        row->comm = comms[c];
        row->ranks = malloc((comms[c]->nmembers + 1) * sizeof *row->ranks);
        if (!row->ranks)
            return false;
        for (uint32_t i = 0; i < comms[c]->nmembers; i++)
            row->ranks[i] = comms[c]->members[i]->process->rank;
        if (comms[c]->nmembers)
            row->generation = census->generation_of[comms[c]->members[0]->process->index];
    }
    return true;
}

static int by_creation(const void *a, const void *b)
{
    const struct rec_comm_census *x = a, *y = b;
    if (x->generation != y->generation)
        return x->generation < y->generation ? -1 : 1;
    if (x->created_ns != y->created_ns)
        return x->created_ns < y->created_ns ? -1 : 1;
    return x->comm->index < y->comm->index ? -1 : x->comm->index > y->comm->index;
}

/* ---- more than one communicator over the same members ---- */

static uint64_t members_key(const struct rec_communicator *comm)
{
    uint64_t sum = 0; /* a set: communicators order their members as they like */
    for (uint32_t i = 0; i < comm->nmembers; i++)
        sum += rec_mix64(comm->members[i]->process->index + 1);
    return diag_key(sum, comm->nmembers, 91);
}

static bool find_twins(struct rec_census *census)
{
    struct diag_map seen = {0};
    bool ok = true;
    for (uint32_t c = 0; c < census->ncomms && ok; c++) {
        struct rec_comm_census *row = &census->comms[c];
        if (row->comm->nmembers < 2 || row->comm->nmembers != row->comm->nranks)
            continue;
        bool fresh;
        uint32_t *at = diag_map_put(&seen, members_key(row->comm), &fresh);
        if (!at)
            ok = false;
        else if (fresh)
            *at = c;
        else
            row->same_members = census->comms[*at].comm;
    }
    diag_map_free(&seen);
    return ok;
}

bool diag_census_note(struct rec_census *census, struct diag_text *t)
{
    char **grown = t->oom || !t->data ? NULL : realloc(census->notes, (census->nnotes + 1) * sizeof *grown);
    if (grown) {
        census->notes = grown;
        census->notes[census->nnotes++] = t->data;
        *t = (struct diag_text){0};
        return true;
    }
    free(t->data);
    *t = (struct diag_text){0};
    return false;
}

static bool used(const struct rec_comm_census *row)
{
    return row->collectives || row->sends || row->onesided;
}

static void say_members(struct diag_text *t, const struct rec_comm_census *row)
{
    int32_t *sorted = malloc((row->comm->nmembers + 1) * sizeof *sorted);
    size_t count = 0;
    for (uint32_t i = 0; sorted && i < row->comm->nmembers; i++)
        if (row->ranks[i] >= 0)
            sorted[count++] = row->ranks[i];
    t->oom = t->oom || !sorted;
    if (count) {
        diag_sort_ranks(sorted, &count);
        diag_say_ranks(t, sorted, count);
    }
    free(sorted);
}

static bool is_twin(const struct rec_comm_census *row, const struct rec_comm_census *first)
{
    return (row == first || row->same_members == first->comm) && row->shares;
}

/* Of several such sets of members the first is named. */
static bool note_twins(struct rec_census *census, const struct rec_comm_census *first, size_t count,
                       size_t sets, size_t in_use)
{
    struct diag_text t = {0};
    size_t named = 0;
    if (sets > 1)
        diag_printf(&t, "%zu sets of ranks have more than one communicator in use, %zu in all; ", sets,
                    in_use);
    diag_printf(&t, "%zu communicators in use have the same members, ", count);
    say_members(&t, first);
    for (size_t c = 0; c < census->ncomms && named < NAMED_MAX; c++) {
        if (!is_twin(&census->comms[c], first))
            continue;
        diag_printf(&t, named++ ? ", " : ": ");
        diag_say_comm_name(&t, census->comms[c].comm);
    }
    if (count > NAMED_MAX)
        diag_printf(&t, " and %zu more", count - NAMED_MAX);
    return diag_census_note(census, &t);
}

static bool outlives(const struct rec_comm_census *a, const struct rec_comm_census *b)
{
    return !a->ended_ns || (b->ended_ns && a->ended_ns > b->ended_ns);
}

/* Another one of the same members, in the order of creation. longest: the one before that lived longest. */
static void note_use(struct rec_comm_census *row, struct rec_comm_census **longest)
{
    if (!used(row))
        return;
    if (*longest && (!(*longest)->ended_ns || row->created_ns < (*longest)->ended_ns))
        row->shares = (*longest)->shares = true;
    if (!*longest || outlives(row, *longest))
        *longest = row;
}

/* One note for all. */
static bool note_all_twins(struct rec_census *census)
{
    /* By the first row of the same members. */
    size_t *uses = calloc(census->ncomms + 1, sizeof *uses);
    struct rec_comm_census **longest = calloc(census->ncomms + 1, sizeof(struct rec_comm_census *));
    uint32_t *first_of = calloc(census->ncomms + 1, sizeof *first_of);
    struct diag_map rows = {0};
    bool ok = uses && longest && first_of;
    for (uint32_t c = 0; c < census->ncomms && ok; c++) {
        struct rec_comm_census *row = &census->comms[c];
        bool fresh;
        uint32_t *at = diag_map_put(&rows, diag_key(row->comm->index, 0, 92), &fresh);
        ok = at != NULL;
        if (!at)
            break;
        *at = c;
        first_of[c] = row->same_members ? diag_map_get(&rows, diag_key(row->same_members->index, 0, 92)) : c;
        note_use(row, &longest[first_of[c]]);
    }
    for (size_t c = 0; c < census->ncomms && ok; c++)
        uses[first_of[c]] += census->comms[c].shares;
    size_t sets = 0, in_use = 0, first = 0;
    for (size_t c = census->ncomms; c-- > 0 && ok;) {
        if (uses[c] < 2)
            continue;
        sets++;
        in_use += uses[c];
        first = c;
    }
    ok = ok && (!sets || note_twins(census, &census->comms[first], uses[first], sets, in_use));
    diag_map_free(&rows);
    free(uses);
    free(longest);
    free(first_of);
    return ok;
}

static bool note_differences(struct rec_census *census)
{
    bool ok = true;
    for (size_t i = 0; i < census->ndifferences && ok; i++) {
        const struct rec_order_difference *x = &census->differences[i];
        struct diag_text t = {0};
        diag_printf(&t, "ops of ");
        diag_say_comm(&t, x->a);
        diag_printf(&t, " and ");
        diag_say_comm(&t, x->b);
        diag_printf(&t, " are issued in different orders: rank %d issued op %" PRIu64 " of ",
                    (int)x->a_first->rank, x->seq_a);
        diag_say_comm_name(&t, x->a);
        diag_printf(&t, " before op %" PRIu64 " of ", x->seq_b);
        diag_say_comm_name(&t, x->b);
        diag_printf(&t,
                    ", rank %d after it; on streams of their own that works only as long as the GPU has room "
                    "for both",
                    (int)x->b_first->rank);
        ok = diag_census_note(census, &t);
    }
    return ok;
}

/* A note about the ranks of which it is true. */
static void note_ranks(struct diag *d, struct rec_census *census,
                       bool (*holds)(const struct job_facts *facts), const char *before, const char *after)
{
    int32_t *ranks = malloc((d->nprocs + 1) * sizeof *ranks);
    size_t count = 0;
    d->oom = d->oom || !ranks;
    for (size_t i = 0; i < d->nprocs && !d->oom; i++) {
        struct job_facts facts;
        job_facts(d->procs[i].p, &facts);
        if (holds(&facts))
            ranks[count++] = d->procs[i].p->rank;
    }
    struct diag_text t = {0};
    if (count) {
        diag_sort_ranks(ranks, &count);
        diag_printf(&t, "%s", before);
        diag_say_ranks(&t, ranks, count);
        diag_printf(&t, "%s", after);
        d->oom = !diag_census_note(census, &t) || d->oom;
    }
    free(ranks);
}

static bool has_device_comms(const struct job_facts *facts)
{
    return facts->device_comms;
}

static bool has_unseen_graphs(const struct job_facts *facts)
{
    return facts->unseen_graphs;
}

void diag_unseen(struct diag *d, struct rec_census *census)
{
    note_ranks(
        d, census, has_device_comms, "kernels of ",
        " communicate by themselves (ncclDevCommCreate): that is not recorded, and where it hangs their "
        "streams do not come to the next call");
    note_ranks(
        d, census, has_unseen_graphs, "calls of ",
        " were captured into CUDA graphs whose launches are not recorded: when these calls run, and with "
        "whom, is not known");
}

bool diag_census_finish(struct rec_census *census)
{
    if (census->ncomms)
        qsort(census->comms, census->ncomms, sizeof *census->comms, by_creation);
    return find_twins(census) && note_differences(census) && note_all_twins(census);
}

void diag_census_free(struct rec_census *census)
{
    if (!census)
        return;
    for (size_t g = 0; census->generations && g < census->ngenerations; g++) {
        free(census->generations[g].ranks);
        free(census->generations[g].summary);
        free(census->generations[g].culprits);
    }
    for (size_t c = 0; census->comms && c < census->ncomms; c++)
        free(census->comms[c].ranks);
    for (size_t i = 0; i < census->nnotes; i++)
        free(census->notes[i]);
    free(census->generations);
    free(census->generation_of);
    free(census->clocks);
    free(census->clock_of);
    free(census->comms);
    free(census->differences);
    free(census->notes);
    free(census);
}
