/* Who makes communicators with whom. */
#include "maker.h"

static int new_comm(struct plan *plan, unsigned made_by, int parent, int color, int lane)
{
    plan->comms[plan->ncomms] =
        (struct plan_comm){.made_by = made_by, .parent = parent, .color = color, .lane = lane};
    return plan->ncomms++;
}

static void join_comm(struct plan *plan, int comm, int rank)
{
    plan->comms[comm].members[plan->comms[comm].nmembers++] = rank;
}

/* Creations are called by the first thread. */
static void add_init(struct plan *plan, struct rng *rng, int comm)
{
    struct plan_comm *c = &plan->comms[comm];
    maker_next_step(plan);
    for (int i = 0; i < c->nmembers; i++) {
        struct act work = maker_act(ACT_COMPUTE), act = maker_call(comm, REC_COMM_INIT_RANK_CONFIG);
        work.ns = rng_in(rng, 100 * US, 40 * MS);
        act.count = (uint64_t)c->nmembers;
        act.peer = i;
        plan_add(plan, c->members[i], 0, &work);
        plan_add(plan, c->members[i], 0, &act);
    }
}

static void new_family(struct maker *m, int first, int lane)
{
    if (m->plan->ncomms == first || m->nfamilies == 16)
        return;
    m->families[m->nfamilies++] =
        (struct family){first, m->plan->ncomms - first, lane, lane * 4 + maker_pick(m, 0, 2)};
}

/* Splits a communicator by color_of; color -1 stays out. */
static void split(struct maker *m, int parent, const int *color_of)
{
    struct plan *plan = m->plan;
    int children[RANKS_MAX], first = plan->ncomms;
    for (int i = 0; i < RANKS_MAX; i++)
        children[i] = -1;
    maker_next_step(plan);
    int nmembers = plan->comms[parent].nmembers;
    for (int i = 0; i < nmembers; i++) {
        int rank = plan->comms[parent].members[i], color = color_of[i];
        struct act act = maker_call(parent, REC_COMM_SPLIT);
        act.peer = color;
        act.count = (uint64_t)i;
        if (color >= 0) {
            if (children[color] < 0)
                children[color] = new_comm(plan, REC_COMM_SPLIT, parent, color, 0);
            join_comm(plan, children[color], rank);
            act.child = (int16_t)children[color];
        }
        plan_add(plan, rank, 0, &act);
    }
    new_family(m, first, 0);
}

static void init_family(struct maker *m, const int *color_of, int lane)
{
    int children[RANKS_MAX], first = m->plan->ncomms;
    for (int i = 0; i < RANKS_MAX; i++)
        children[i] = -1;
    for (int r = 0; r < m->plan->nranks; r++) {
        int color = color_of[r];
        if (color < 0)
            continue;
        if (children[color] < 0)
            children[color] = new_comm(m->plan, REC_COMM_INIT_RANK_CONFIG, -1, color, lane);
        join_comm(m->plan, children[color], r);
    }
    for (int c = first; c < m->plan->ncomms; c++)
        add_init(m->plan, m->rng, c);
    new_family(m, first, lane);
}

/* Room for a communicator of every rank, and for the family. */
static bool has_room(const struct maker *m)
{
    return m->plan->ncomms + m->plan->nranks <= COMMS_MAX && m->nfamilies < FAMILIES_MAX;
}

static void random_subset(struct maker *m, int lane)
{
    int colors[RANKS_MAX], chosen = 0, n = m->plan->nranks;
    for (int r = 0; r < n; r++) {
        colors[r] = !m->plan->gone[r] && rng_chance(m->rng, 50) ? 0 : -1;
        chosen += colors[r] == 0;
    }
    for (int r = 0; chosen < 2 && r < n; r++)
        if (colors[r] < 0 && !m->plan->gone[r]) {
            colors[r] = 0;
            chosen++;
        }
    init_family(m, colors, lane);
}

static void grid(struct maker *m, bool splits, int world)
{
    int n = m->plan->nranks, width = maker_pick(m, 2, n > 2 ? n / 2 + 1 : 2);
    while (n % width && width < n)
        width++;
    int rows[RANKS_MAX], columns[RANKS_MAX];
    for (int r = 0; r < n; r++) {
        rows[r] = r / width;
        columns[r] = r % width;
    }
    if (splits) {
        split(m, world, rows);
        split(m, world, columns);
    } else {
        init_family(m, rows, 0);
        init_family(m, columns, 0);
    }
}

void maker_comms(struct maker *m)
{
    struct plan *plan = m->plan;
    int all[RANKS_MAX] = {0}, layout = maker_pick(m, 0, 6);
    if (layout != 4)
        init_family(m, all, 0);
    if (layout == 1)
        grid(m, true, 0);
    if (layout == 2 || layout == 4)
        grid(m, false, -1);
    if (layout == 3) { /* nested, some stay out */
        int colors[RANKS_MAX];
        for (int i = 0; i < plan->nranks; i++)
            colors[i] = i * 2 / plan->nranks;
        split(m, 0, colors);
        for (int i = 0; i < plan->comms[1].nmembers; i++)
            colors[i] = rng_chance(m->rng, 80) ? 0 : -1;
        colors[0] = 0;
        split(m, 1, colors);
    }
    if (layout == 5)
        for (int i = maker_pick(m, 1, 3); i > 0; i--)
            random_subset(m, 0);
    if (layout == 6)
        init_family(m, all, 0);
    if (rng_chance(m->rng, 25)) {
        if (rng_chance(m->rng, 50))
            init_family(m, all, 1);
        else
            random_subset(m, 1);
    }
}

/* ---- in the middle of the job ---- */

/* Every communicator of a family in two, each member by its place. */
static void split_family(struct maker *m, const struct family *f)
{
    for (int c = f->first; c < f->first + f->count && has_room(m); c++) {
        int colors[RANKS_MAX], n = m->plan->comms[c].nmembers;
        bool odd = rng_chance(m->rng, 50);
        for (int i = 0; i < n; i++)
            colors[i] = odd ? i % 2 : i * 2 / n;
        split(m, c, colors);
    }
}

bool maker_more_comms(struct maker *m)
{
    const struct family f = m->families[maker_pick(m, 0, m->nfamilies - 1)];
    if (!has_room(m))
        return false;
    if (f.lane || rng_chance(m->rng, 40))
        random_subset(m, 0);
    else
        split_family(m, &f);
    return true;
}

/* Exits when all its work is done, or a while later. */
static void leave(struct plan *plan, int rank, uint64_t idle)
{
    struct act sync = maker_act(ACT_SYNC), join = maker_act(ACT_JOIN), exit = maker_act(ACT_EXIT);
    struct act wait = maker_act(ACT_COMPUTE);
    wait.ns = idle;
    if (plan->lanes[rank][1].count) {
        plan_add(plan, rank, 1, &sync);
        plan_add(plan, rank, 0, &join);
    }
    plan_add(plan, rank, 0, &wait);
    plan_add(plan, rank, 0, &exit);
}

void maker_shrink(struct maker *m)
{
    struct plan *plan = m->plan;
    int parent = 0, n = plan->comms[0].nmembers;
    if (n < plan->nranks || n < 3 || !has_room(m))
        return;
    maker_add_all(plan, ACT_SYNC);
    int stay = maker_pick(m, 2, n - 1), child = new_comm(plan, REC_COMM_SHRINK, parent, -1, 0);
    uint64_t idle = rng_chance(m->rng, 60) ? MS : 3 * SEC;
    for (int i = 0, left = stay; i < n; i++) {
        bool stays = maker_pick(m, 0, n - i - 1) < left;
        left -= stays;
        plan->gone[i] = !stays;
        if (stays)
            join_comm(plan, child, i);
        else
            leave(plan, i, idle);
    }
    struct act act = maker_call(parent, REC_COMM_SHRINK);
    act.child = (int16_t)child;
    act.count = (uint64_t)(n - stay);
    act.peer = 0;
    maker_next_step(plan);
    for (int i = 0; i < stay; i++)
        plan_add(plan, plan->comms[child].members[i], 0, &act);
    m->nfamilies = 0;
    new_family(m, child, 0);
}
