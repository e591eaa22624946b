#include "maker.h"

#include <stdlib.h>
#include <string.h>

uint64_t rng_next(struct rng *rng)
{
    return rec_mix64(rng->state += 0x9e3779b97f4a7c15u);
}

uint64_t rng_in(struct rng *rng, uint64_t low, uint64_t high)
{
    return low + rng_next(rng) % (high - low + 1);
}

bool rng_chance(struct rng *rng, unsigned percent)
{
    return rng_next(rng) % 100 < percent;
}

static int pick(struct rng *rng, int low, int high)
{
    return (int)rng_in(rng, (uint64_t)low, (uint64_t)high);
}

/* ---- acts ---- */

void plan_insert(struct plan *plan, int rank, int lane, size_t at, const struct act *act)
{
    struct lane *l = &plan->lanes[rank][lane];
    if (l->count == l->capacity) {
        l->capacity = l->capacity ? l->capacity * 2 : 256;
        l->acts = realloc(l->acts, l->capacity * sizeof *l->acts);
        if (!l->acts)
            abort();
    }
    memmove(l->acts + at + 1, l->acts + at, (l->count - at) * sizeof *l->acts);
    l->acts[at] = *act;
    l->count++;
}

void plan_add(struct plan *plan, int rank, int lane, const struct act *act)
{
    struct act mine = *act;
    mine.step = plan->step;
    plan_insert(plan, rank, lane, plan->lanes[rank][lane].count, &mine);
}

void maker_next_step(struct plan *plan)
{
    plan->step = ++plan->steps;
}

void plan_remove(struct plan *plan, int rank, int lane, size_t at)
{
    struct lane *l = &plan->lanes[rank][lane];
    memmove(l->acts + at, l->acts + at + 1, (l->count - at - 1) * sizeof *l->acts);
    l->count--;
}

void plan_free(struct plan *plan)
{
    for (int r = 0; r < RANKS_MAX; r++)
        for (int l = 0; l < LANES; l++)
            free(plan->lanes[r][l].acts);
}

int plan_place(const struct plan_comm *comm, int rank)
{
    for (int i = 0; i < comm->nmembers; i++)
        if (comm->members[i] == rank)
            return i;
    return -1;
}

bool plan_pairs(const struct act *act)
{
    return act->what == ACT_CALL && (rec_kind_flags(act->kind) & (REC_KF_P2P | REC_KF_RMA));
}

struct act maker_act(enum act_kind what)
{
    return (struct act){.what = (uint8_t)what,
                        .comm = -1,
                        .child = -1,
                        .peer = -1,
                        .stream = -1,
                        .dtype = REC_DTYPE_NONE,
                        .redop = REC_REDOP_NONE};
}

struct act maker_call(int comm, unsigned kind)
{
    struct act act = maker_act(ACT_CALL);
    act.comm = (int16_t)comm;
    act.kind = (uint8_t)kind;
    return act;
}

int maker_pick(struct maker *m, int low, int high)
{
    return pick(m->rng, low, high);
}

void maker_add_work(struct maker *m, uint64_t most)
{
    maker_next_step(m->plan);
    for (int r = 0; r < m->plan->nranks; r++) {
        struct act act = maker_act(ACT_COMPUTE);
        if (m->plan->gone[r])
            continue;
        act.ns = rng_in(m->rng, most / 2, most);
        plan_add(m->plan, r, 0, &act);
    }
}

void maker_add_all(struct plan *plan, enum act_kind what)
{
    struct act act = maker_act(what);
    maker_next_step(plan);
    for (int r = 0; r < plan->nranks; r++)
        for (int l = 0; l < LANES; l++)
            if (!plan->gone[r] && (l == 0 || plan->lanes[r][l].count))
                plan_add(plan, r, l, &act);
}

/* ---- the whole ---- */

static bool lacks_members(const struct plan *plan, int comm)
{
    for (int i = 0; i < plan->comms[comm].nmembers; i++)
        if (plan->gone[plan->comms[comm].members[i]])
            return true;
    return false;
}

static void make_end(struct maker *m)
{
    struct plan *plan = m->plan;
    maker_add_all(plan, ACT_SYNC);
    plan->step = 0;
    for (int r = 0; r < plan->nranks; r++) {
        struct act act = maker_act(ACT_JOIN);
        if (plan->lanes[r][1].count && !plan->gone[r])
            plan_add(plan, r, 0, &act);
    }
    int how = maker_pick(m, 0, 4);
    bool forward = rng_chance(m->rng, 50);
    for (int i = 0; how && i < plan->ncomms; i++) {
        int c = forward ? i : plan->ncomms - 1 - i;
        if (lacks_members(plan, c))
            continue;
        for (int pass = how == 2 ? 0 : 1; pass < 2; pass++) {
            struct act act = maker_call(c, pass == 0  ? REC_COMM_FINALIZE
                                           : how == 3 ? REC_COMM_ABORT
                                                      : REC_COMM_DESTROY);
            maker_next_step(plan);
            for (int j = 0; j < plan->comms[c].nmembers; j++)
                plan_add(plan, plan->comms[c].members[j], 0, &act);
        }
    }
    struct act act = maker_act(ACT_EXIT);
    plan->step = 0;
    for (int r = 0; r < plan->nranks; r++)
        plan_add(plan, r, 0, &act);
}

void plan_make(struct plan *plan, struct rng *rng, int max_ranks)
{
    static const int sizes[] = {2, 2, 3, 4, 4, 4, 5, 6, 8, 8, 8, 9, 12, 16, 24};
    *plan = (struct plan){.queue_bound = pick(rng, 0, 1) ? 1024 : pick(rng, 4, 64)};
    do
        plan->nranks = sizes[pick(rng, 0, sizeof sizes / sizeof *sizes - 1)];
    while (plan->nranks > max_ranks);
    plan->nhosts = plan->nranks > 2 ? pick(rng, 1, 3) : 1;
    plan->marks = rng_chance(rng, 35);
    plan->destroy_waits = rng_chance(rng, 50);
    plan->nonblocking = rng_chance(rng, 15);
    plan->eager_bytes = rng_chance(rng, 30) ? 16384 : 0;
    struct maker m = {.plan = plan, .rng = rng, .any_stream = rng_chance(rng, 15)};
    maker_comms(&m);
    struct act spawn = maker_act(ACT_SPAWN);
    plan->step = 0;
    for (int c = 0; c < plan->ncomms; c++)
        for (int i = 0; plan->comms[c].lane && i < plan->comms[c].nmembers; i++) {
            int rank = plan->comms[c].members[i];
            struct act begin = maker_act(ACT_COMPUTE);
            begin.ns = rng_in(rng, 1, 900) * US;
            plan_add(plan, rank, 0, &spawn);
            plan_add(plan, rank, 1, &begin);
        }
    for (int r = 0; r < plan->nranks; r++)
        for (int l = 0; l < LANES; l++)
            plan->first_act[r][l] = plan->lanes[r][l].count;
    if (rng_chance(rng, 10))
        maker_capture(&m);
    maker_loop(&m);
    if (rng_chance(rng, 8))
        maker_shrink(&m);
    if (rng_chance(rng, 20))
        maker_loop(&m);
    for (int r = 0; r < plan->nranks; r++)
        for (int l = 0; l < LANES; l++)
            plan->last_act[r][l] = plan->lanes[r][l].count;
    make_end(&m);
}
