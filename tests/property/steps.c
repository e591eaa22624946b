/* What is done on the communicators, again and again. */
#include "maker.h"

#include "rec/live.h"

enum step_kind { STEP_COLL, STEP_RING, STEP_CHAIN, STEP_PAIRS, STEP_UNEVEN, STEP_SIGNAL, STEP_WINDOW };

struct step {
    enum step_kind kind;
    int family;
    unsigned op;
    uint8_t dtype, redop;
    int root, stream;
    uint64_t count;
    uint32_t salt; /* of uneven sizes */
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
    struct step s = {
        .family = maker_pick(m, 0, m->nfamilies - 1),
        .op = ops[maker_pick(m, 0, sizeof ops - 1)],
        .dtype = dtypes[maker_pick(m, 0, sizeof dtypes - 1)],
        .redop = (uint8_t)(rng_chance(m->rng, 70) ? 0 : maker_pick(m, 0, REC_REDOP_USER + USER_REDOPS - 1)),
        .root = maker_pick(m, 0, 3),
        .count = rng_in(m->rng, 1, 8) << rng_in(m->rng, 0, 14),
        .salt = (uint32_t)rng_next(m->rng)};
    s.stream =
        m->any_stream ? m->families[s.family].lane * 4 + maker_pick(m, 0, 2) : m->families[s.family].stream;
    s.kind = rng_chance(m->rng, 70) ? STEP_COLL : (enum step_kind)maker_pick(m, STEP_RING, STEP_WINDOW);
    return s;
}

static void new_body(struct maker *m, struct body *body)
{
    body->nsteps = maker_pick(m, 1, 9);
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
    struct act act = maker_call(comm, s->op);
    unsigned flags = rec_kind_flags(s->op);
    act.count = s->count;
    act.dtype = s->dtype;
    act.redop = flags & REC_KF_REDOP ? s->redop : REC_REDOP_NONE;
    act.peer = flags & REC_KF_ROOT ? s->root % c->nmembers : -1;
    act.stream = (int16_t)s->stream;
    act.captured = captured;
    maker_next_step(m->plan);
    for (int i = 0; i < c->nmembers; i++)
        plan_add(m->plan, c->members[i], c->lane, &act);
}

static void add_message(struct maker *m, const struct step *s, int comm, int src, int dst, uint64_t count)
{
    struct plan_comm *c = &m->plan->comms[comm];
    struct act act = maker_call(comm, REC_SEND);
    act.count = count;
    act.dtype = s->dtype;
    act.stream = (int16_t)s->stream;
    act.peer = dst;
    maker_next_step(m->plan);
    plan_add(m->plan, c->members[src], c->lane, &act);
    act.kind = REC_RECV;
    act.peer = src;
    plan_add(m->plan, c->members[dst], c->lane, &act);
}

static void add_group(struct maker *m, int comm, enum act_kind what)
{
    struct act act = maker_act(what);
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
    maker_next_step(m->plan);
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

/* Everybody writes to the next one, which waits for the signal. */
static void add_signals(struct maker *m, const struct step *s, int comm)
{
    const struct plan_comm *c = &m->plan->comms[comm];
    bool data = s->salt % 3 != 0;
    maker_next_step(m->plan);
    for (int i = 0; i < c->nmembers && c->nmembers > 1; i++) {
        struct act act = maker_call(comm, data ? REC_PUT_SIGNAL : REC_SIGNAL);
        act.stream = (int16_t)s->stream;
        act.dtype = data ? s->dtype : REC_DTYPE_NONE;
        act.count = data ? s->count : 1;
        act.peer = (i + 1) % c->nmembers;
        plan_add(m->plan, c->members[i], c->lane, &act);
        act.kind = REC_WAIT_SIGNAL;
        act.dtype = REC_DTYPE_NONE;
        act.count = 1;
        act.peer = (i + c->nmembers - 1) % c->nmembers;
        plan_add(m->plan, c->members[i], c->lane, &act);
    }
}

static void add_window(struct maker *m, const struct step *s, int comm)
{
    struct act act = maker_call(comm, REC_COMM_WINDOW_REGISTER);
    act.count = s->count;
    maker_next_step(m->plan);
    for (int i = 0; i < m->plan->comms[comm].nmembers; i++)
        plan_add(m->plan, m->plan->comms[comm].members[i], m->plan->comms[comm].lane, &act);
}

static void add_step(struct maker *m, const struct step *s, bool grouped)
{
    const struct family *f = &m->families[s->family];
    for (int c = f->first; c < f->first + f->count; c++) {
        if (s->kind == STEP_COLL)
            add_coll(m, s, c, false);
        else if (s->kind == STEP_SIGNAL)
            add_signals(m, s, c);
        else if (s->kind == STEP_WINDOW)
            add_window(m, s, c);
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
                struct act act = maker_act(what);
                if (!seen[rank])
                    plan_add(m->plan, rank, f->lane, &act);
                seen[rank] = true;
            }
    }
}

static void add_body(struct maker *m, const struct body *body, uint64_t work)
{
    uint32_t group_step = 0;
    for (int i = 0; i < body->nsteps; i++) {
        int group = body->group_of[i];
        bool begins = group && (!i || body->group_of[i - 1] != group);
        bool ends = group && (i + 1 == body->nsteps || body->group_of[i + 1] != group);
        if (!group || begins)
            maker_add_work(m, work);
        if (begins) {
            maker_next_step(m->plan);
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
void maker_loop(struct maker *m)
{
    struct body body = {0}, evaluation = {0};
    new_body(m, &body);
    new_body(m, &evaluation);
    bool irregular = rng_chance(m->rng, 25);
    int sync_every = rng_chance(m->rng, 25) ? 0 : maker_pick(m, 1, 4);
    int evaluate_every = rng_chance(m->rng, 30) ? maker_pick(m, 3, 9) : 0;
    int pause_every = rng_chance(m->rng, 20) ? maker_pick(m, 3, 9) : 0;
    int iterations = maker_pick(m, 3, rng_chance(m->rng, 30) ? 120 : 40);
    uint64_t work = rng_in(m->rng, 1, 60) * 50 * US;
    for (int i = 0; i < iterations && all_acts(m->plan) < ACTS_MAX; i++) {
        if (irregular || (rng_chance(m->rng, 1) && maker_more_comms(m)))
            new_body(m, &body);
        add_body(m, &body, work);
        if (sync_every && i % sync_every == 0)
            maker_add_all(m->plan, ACT_SYNC);
        if (evaluate_every && i % evaluate_every == evaluate_every - 1)
            add_body(m, &evaluation, work);
        if (pause_every && i % pause_every == pause_every - 1) {
            struct act act = maker_act(ACT_COMPUTE);
            act.ns = rng_in(m->rng, 20 * MS, 250 * MS);
            maker_next_step(m->plan);
            plan_add(m->plan, 0, 0, &act);
        }
    }
}

/* Some ops are captured first and launched as a graph again and again. */
void maker_capture(struct maker *m)
{
    struct step s = new_step(m);
    const struct family *f = &m->families[s.family];
    if (f->lane)
        return;
    for (int c = f->first; c < f->first + f->count; c++)
        add_coll(m, &s, c, true);
    for (int i = maker_pick(m, 2, 30); i > 0; i--) {
        maker_add_work(m, 2 * MS);
        for (int c = f->first; c < f->first + f->count; c++)
            for (int j = 0; j < m->plan->comms[c].nmembers; j++) {
                if (!j)
                    maker_next_step(m->plan);
                struct act act = maker_act(ACT_GRAPH);
                act.comm = (int16_t)c;
                act.stream = (int16_t)s.stream;
                plan_add(m->plan, m->plan->comms[c].members[j], 0, &act);
            }
    }
}
