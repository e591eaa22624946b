#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "rec/live.h"

#define ACTS_MAX 24000 /* of all ranks together */

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

static void next_step(struct plan *plan)
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

static struct act new_act(enum act_kind what)
{
    return (struct act){.what = (uint8_t)what,
                        .comm = -1,
                        .child = -1,
                        .peer = -1,
                        .stream = -1,
                        .dtype = REC_DTYPE_NONE,
                        .redop = REC_REDOP_NONE};
}

static struct act new_call(int comm, unsigned kind)
{
    struct act act = new_act(ACT_CALL);
    act.comm = (int16_t)comm;
    act.kind = (uint8_t)kind;
    return act;
}

/* ---- communicators ---- */

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
    next_step(plan);
    for (int i = 0; i < c->nmembers; i++) {
        struct act work = new_act(ACT_COMPUTE), act = new_call(comm, REC_COMM_INIT_RANK_CONFIG);
        work.ns = rng_in(rng, 100 * US, 40 * MS);
        act.count = (uint64_t)c->nmembers;
        act.peer = i;
        plan_add(plan, c->members[i], 0, &work);
        plan_add(plan, c->members[i], 0, &act);
    }
}

/* Communicators that are used alike: rows, columns, stages. */
struct family {
    int first, count, lane, stream;
};

struct maker {
    struct plan *plan;
    struct rng *rng;
    struct family families[16];
    int nfamilies;
    bool any_stream;
};

static void new_family(struct maker *m, int first, int lane)
{
    if (m->plan->ncomms == first || m->nfamilies == 16)
        return;
    m->families[m->nfamilies++] =
        (struct family){first, m->plan->ncomms - first, lane, lane * 4 + pick(m->rng, 0, 2)};
}

/* Splits a communicator by color_of; color -1 stays out. */
static void split(struct maker *m, int parent, const int *color_of)
{
    struct plan *plan = m->plan;
    int children[RANKS_MAX], first = plan->ncomms;
    for (int i = 0; i < RANKS_MAX; i++)
        children[i] = -1;
    next_step(plan);
    int nmembers = plan->comms[parent].nmembers;
    for (int i = 0; i < nmembers; i++) {
        int rank = plan->comms[parent].members[i], color = color_of[i];
        struct act act = new_call(parent, REC_COMM_SPLIT);
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

static void random_subset(struct maker *m, int lane)
{
    int colors[RANKS_MAX], chosen = 0, n = m->plan->nranks;
    for (int r = 0; r < n; r++) {
        colors[r] = rng_chance(m->rng, 50) ? 0 : -1;
        chosen += colors[r] == 0;
    }
    for (int r = 0; chosen < 2 && r < n; r++)
        if (colors[r] < 0) {
            colors[r] = 0;
            chosen++;
        }
    init_family(m, colors, lane);
}

static void grid(struct maker *m, bool splits, int world)
{
    int n = m->plan->nranks, width = pick(m->rng, 2, n > 2 ? n / 2 + 1 : 2);
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

static void make_comms(struct maker *m)
{
    struct plan *plan = m->plan;
    int all[RANKS_MAX] = {0}, layout = pick(m->rng, 0, 6);
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
        for (int i = pick(m->rng, 1, 3); i > 0; i--)
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

/* ---- steps ---- */

enum step_kind { STEP_COLL, STEP_RING, STEP_CHAIN, STEP_PAIRS, STEP_UNEVEN, STEP_SIGNALS };

struct step {
    enum step_kind kind;
    int family;
    unsigned op;
    uint8_t dtype, redop;
    int root, stream;
    uint64_t count;
    uint32_t salt; /* of uneven sizes, and of signals */
};

struct body {
    struct step steps[12];
    int group_of[12]; /* equal and not 0: one group */
    int nsteps;
};

static struct step new_step(struct maker *m)
{
    static const uint8_t ops[] = {REC_ALL_REDUCE, REC_ALL_REDUCE, REC_ALL_REDUCE,     REC_BROADCAST,
                                  REC_REDUCE,     REC_ALL_GATHER, REC_REDUCE_SCATTER, REC_ALL_TO_ALL,
                                  REC_GATHER,     REC_SCATTER};
    static const uint8_t dtypes[] = {7, 7, 6, 9, 0, 4};
    struct step s = {.family = pick(m->rng, 0, m->nfamilies - 1),
                     .op = ops[pick(m->rng, 0, sizeof ops - 1)],
                     .dtype = dtypes[pick(m->rng, 0, sizeof dtypes - 1)],
                     .redop = (uint8_t)(rng_chance(m->rng, 70) ? 0 : pick(m->rng, 0, 4)),
                     .root = pick(m->rng, 0, 3),
                     .count = rng_in(m->rng, 1, 8) << rng_in(m->rng, 0, 14),
                     .salt = (uint32_t)rng_next(m->rng)};
    s.stream =
        m->any_stream ? m->families[s.family].lane * 4 + pick(m->rng, 0, 2) : m->families[s.family].stream;
    s.kind = rng_chance(m->rng, 70) ? STEP_COLL : (enum step_kind)pick(m->rng, STEP_RING, STEP_UNEVEN);
    if (s.kind != STEP_COLL && s.salt % 3 == 0)
        s.kind = STEP_SIGNALS;
    return s;
}

static void new_body(struct maker *m, struct body *body)
{
    body->nsteps = pick(m->rng, 1, 9);
    int group = 0;
    for (int i = 0; i < body->nsteps; i++) {
        body->steps[i] = new_step(m);
        bool collective = body->steps[i].kind == STEP_COLL || body->steps[i].kind == STEP_UNEVEN;
        bool joins = collective && i && body->group_of[i - 1] && rng_chance(m->rng, 60) &&
                     m->families[body->steps[i].family].lane == m->families[body->steps[i - 1].family].lane;
        body->group_of[i] = joins ? group : collective && rng_chance(m->rng, 15) ? ++group : 0;
    }
}

static void add_coll(struct maker *m, const struct step *s, int comm, bool captured)
{
    struct plan_comm *c = &m->plan->comms[comm];
    struct act act = new_call(comm, s->op);
    unsigned flags = rec_kind_flags(s->op);
    act.count = s->count;
    act.dtype = s->dtype;
    act.redop = flags & REC_KF_REDOP ? s->redop : REC_REDOP_NONE;
    act.peer = flags & REC_KF_ROOT ? s->root % c->nmembers : -1;
    act.stream = (int16_t)s->stream;
    act.captured = captured;
    next_step(m->plan);
    for (int i = 0; i < c->nmembers; i++)
        plan_add(m->plan, c->members[i], c->lane, &act);
}

static void add_message(struct maker *m, const struct step *s, int comm, int src, int dst, uint64_t count)
{
    struct plan_comm *c = &m->plan->comms[comm];
    struct act act = new_call(comm, REC_SEND);
    act.count = count;
    act.dtype = s->dtype;
    act.stream = (int16_t)s->stream;
    act.peer = dst;
    next_step(m->plan);
    plan_add(m->plan, c->members[src], c->lane, &act);
    act.kind = REC_RECV;
    act.peer = src;
    plan_add(m->plan, c->members[dst], c->lane, &act);
}

static void add_group(struct maker *m, int comm, enum act_kind what)
{
    struct act act = new_act(what);
    struct plan_comm *c = &m->plan->comms[comm];
    for (int i = 0; i < c->nmembers; i++)
        plan_add(m->plan, c->members[i], c->lane, &act);
}

static void add_messages(struct maker *m, const struct step *s, int comm, bool grouped)
{
    int n = m->plan->comms[comm].nmembers;
    if (n < 2)
        return;
    bool own_group = !grouped && (s->kind == STEP_RING || s->kind == STEP_UNEVEN);
    next_step(m->plan);
    uint32_t group = m->plan->step;
    if (own_group)
        add_group(m, comm, ACT_GROUP_START);
    for (int i = 0; i < n; i++) {
        if (s->kind == STEP_RING)
            add_message(m, s, comm, i, (i + 1) % n, s->count);
        if (s->kind == STEP_CHAIN && i + 1 < n)
            add_message(m, s, comm, i, i + 1, s->count);
        if (s->kind == STEP_PAIRS && i % 2 == 0 && i + 1 < n) {
            add_message(m, s, comm, i, i + 1, s->count);
            add_message(m, s, comm, i + 1, i, s->count);
        }
        for (int j = 0; s->kind == STEP_UNEVEN && j < n; j++)
            if (i != j)
                add_message(m, s, comm, i, j,
                            rec_mix64(s->salt + (uint64_t)(i * n + j)) % 5 * (s->count / 4 + 1));
    }
    m->plan->step = group;
    if (own_group)
        add_group(m, comm, ACT_GROUP_END);
}

/* Around the ring, one after another or in groups; a signal has a stream of its own. */
static void add_signals(struct maker *m, const struct step *s, int comm, bool grouped)
{
    struct plan_comm *c = &m->plan->comms[comm];
    int raised = 1 + (int)(s->salt >> 4) % 2;
    bool own_group = !grouped && (s->salt >> 5) % 2;
    struct act act = new_call(comm, (s->salt >> 6) % 2 ? REC_PUT_SIGNAL : REC_SIGNAL), wait = act;
    act.count = s->count;
    act.dtype = act.kind == REC_PUT_SIGNAL ? s->dtype : REC_DTYPE_NONE;
    act.signal = wait.signal = (uint8_t)((s->salt >> 8) % SIGNALS);
    act.stream = wait.stream = (int16_t)(m->any_stream ? s->stream / 4 * 4 + act.signal : s->stream);
    wait.kind = REC_WAIT_SIGNAL;
    wait.count = (uint64_t)raised;
    next_step(m->plan);
    uint32_t group = m->plan->step;
    if (own_group)
        add_group(m, comm, ACT_GROUP_START);
    for (int i = 0; i < c->nmembers && c->nmembers > 1; i++) {
        next_step(m->plan);
        act.peer = (i + 1) % c->nmembers;
        wait.peer = i;
        for (int k = 0; k < raised; k++)
            plan_add(m->plan, c->members[i], c->lane, &act);
        plan_add(m->plan, c->members[act.peer], c->lane, &wait);
    }
    m->plan->step = group;
    if (own_group)
        add_group(m, comm, ACT_GROUP_END);
}

static void add_step(struct maker *m, const struct step *s, bool grouped)
{
    const struct family *f = &m->families[s->family];
    for (int c = f->first; c < f->first + f->count; c++) {
        if (s->kind == STEP_COLL)
            add_coll(m, s, c, false);
        else if (s->kind == STEP_SIGNALS)
            add_signals(m, s, c, grouped);
        else
            add_messages(m, s, c, grouped);
    }
}

/* GroupStart or GroupEnd for everybody who has a part in the steps of this group. */
static void add_group_edge(struct maker *m, const struct body *body, int group, enum act_kind what)
{
    bool seen[RANKS_MAX] = {0};
    for (int i = 0; i < body->nsteps; i++) {
        const struct family *f = &m->families[body->steps[i].family];
        for (int c = f->first; body->group_of[i] == group && c < f->first + f->count; c++)
            for (int j = 0; j < m->plan->comms[c].nmembers; j++) {
                int rank = m->plan->comms[c].members[j];
                struct act act = new_act(what);
                if (!seen[rank])
                    plan_add(m->plan, rank, f->lane, &act);
                seen[rank] = true;
            }
    }
}

static void add_work(struct maker *m, uint64_t most)
{
    next_step(m->plan);
    for (int r = 0; r < m->plan->nranks; r++) {
        struct act act = new_act(ACT_COMPUTE);
        act.ns = rng_in(m->rng, most / 2, most);
        plan_add(m->plan, r, 0, &act);
    }
}

static void add_all(struct plan *plan, enum act_kind what)
{
    struct act act = new_act(what);
    next_step(plan);
    for (int r = 0; r < plan->nranks; r++)
        for (int l = 0; l < LANES; l++)
            if (l == 0 || plan->lanes[r][l].count)
                plan_add(plan, r, l, &act);
}

static void add_body(struct maker *m, const struct body *body, uint64_t work)
{
    uint32_t group_step = 0;
    for (int i = 0; i < body->nsteps; i++) {
        int group = body->group_of[i];
        bool begins = group && (!i || body->group_of[i - 1] != group);
        bool ends = group && (i + 1 == body->nsteps || body->group_of[i + 1] != group);
        if (!group || begins)
            add_work(m, work);
        if (begins) {
            next_step(m->plan);
            group_step = m->plan->step;
            add_group_edge(m, body, group, ACT_GROUP_START);
        }
        add_step(m, &body->steps[i], group != 0);
        if (ends) {
            m->plan->step = group_step;
            add_group_edge(m, body, group, ACT_GROUP_END);
        }
    }
}

static size_t all_acts(const struct plan *plan)
{
    size_t n = 0;
    for (int r = 0; r < plan->nranks; r++)
        for (int l = 0; l < LANES; l++)
            n += plan->lanes[r][l].count;
    return n;
}

/* A loop with now and then a pause of rank 0, an evaluation, a new phase. */
static void make_loop(struct maker *m)
{
    struct body body = {0}, evaluation = {0};
    new_body(m, &body);
    new_body(m, &evaluation);
    bool irregular = rng_chance(m->rng, 25);
    int sync_every = rng_chance(m->rng, 25) ? 0 : pick(m->rng, 1, 4);
    int evaluate_every = rng_chance(m->rng, 30) ? pick(m->rng, 3, 9) : 0;
    int pause_every = rng_chance(m->rng, 20) ? pick(m->rng, 3, 9) : 0;
    int iterations = pick(m->rng, 3, rng_chance(m->rng, 30) ? 120 : 40);
    uint64_t work = rng_in(m->rng, 1, 60) * 50 * US;
    for (int i = 0; i < iterations && all_acts(m->plan) < ACTS_MAX; i++) {
        if (irregular)
            new_body(m, &body);
        add_body(m, &body, work);
        if (sync_every && i % sync_every == 0)
            add_all(m->plan, ACT_SYNC);
        if (evaluate_every && i % evaluate_every == evaluate_every - 1)
            add_body(m, &evaluation, work);
        if (pause_every && i % pause_every == pause_every - 1) {
            struct act act = new_act(ACT_COMPUTE);
            act.ns = rng_in(m->rng, 20 * MS, 250 * MS);
            next_step(m->plan);
            plan_add(m->plan, 0, 0, &act);
        }
    }
}

/* Some ops are captured first and launched as a graph again and again. */
static void make_capture(struct maker *m)
{
    struct step s = new_step(m);
    const struct family *f = &m->families[s.family];
    if (f->lane)
        return;
    for (int c = f->first; c < f->first + f->count; c++)
        add_coll(m, &s, c, true);
    for (int i = pick(m->rng, 2, 30); i > 0; i--) {
        add_work(m, 2 * MS);
        for (int c = f->first; c < f->first + f->count; c++)
            for (int j = 0; j < m->plan->comms[c].nmembers; j++) {
                if (!j)
                    next_step(m->plan);
                struct act act = new_act(ACT_GRAPH);
                act.comm = (int16_t)c;
                act.stream = (int16_t)s.stream;
                plan_add(m->plan, m->plan->comms[c].members[j], 0, &act);
            }
    }
}

static void make_end(struct maker *m)
{
    struct plan *plan = m->plan;
    add_all(plan, ACT_SYNC);
    plan->step = 0;
    for (int r = 0; r < plan->nranks; r++) {
        struct act act = new_act(ACT_JOIN);
        if (plan->lanes[r][1].count)
            plan_add(plan, r, 0, &act);
    }
    int how = pick(m->rng, 0, 4);
    bool forward = rng_chance(m->rng, 50);
    for (int i = 0; how && i < plan->ncomms; i++) {
        int c = forward ? i : plan->ncomms - 1 - i;
        for (int pass = how == 2 ? 0 : 1; pass < 2; pass++) {
            struct act act = new_call(c, pass == 0  ? REC_COMM_FINALIZE
                                         : how == 3 ? REC_COMM_ABORT
                                                    : REC_COMM_DESTROY);
            next_step(plan);
            for (int j = 0; j < plan->comms[c].nmembers; j++)
                plan_add(plan, plan->comms[c].members[j], 0, &act);
        }
    }
    struct act act = new_act(ACT_EXIT);
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
    plan->eager_bytes = rng_chance(rng, 30) ? 16384 : 0;
    struct maker m = {.plan = plan, .rng = rng, .any_stream = rng_chance(rng, 15)};
    make_comms(&m);
    struct act spawn = new_act(ACT_SPAWN);
    plan->step = 0;
    for (int c = 0; c < plan->ncomms; c++)
        for (int i = 0; plan->comms[c].lane && i < plan->comms[c].nmembers; i++) {
            int rank = plan->comms[c].members[i];
            struct act begin = new_act(ACT_COMPUTE);
            begin.ns = rng_in(rng, 1, 900) * US;
            plan_add(plan, rank, 0, &spawn);
            plan_add(plan, rank, 1, &begin);
        }
    for (int r = 0; r < plan->nranks; r++)
        for (int l = 0; l < LANES; l++)
            plan->first_act[r][l] = plan->lanes[r][l].count;
    if (rng_chance(rng, 10))
        make_capture(&m);
    make_loop(&m);
    if (rng_chance(rng, 20))
        make_loop(&m);
    for (int r = 0; r < plan->nranks; r++)
        for (int l = 0; l < LANES; l++)
            plan->last_act[r][l] = plan->lanes[r][l].count;
    make_end(&m);
}
