/* Faults: one rank does one thing wrong, the rest of its program stays as it was. */
#include <stdio.h>
#include <string.h>

#include "plan.h"

static const char *const names[FAULT_KINDS] = {"none", "skip",  "extra",  "count",   "field",    "other",
                                               "swap", "sleep", "kill",   "exit",    "no_split", "teardown",
                                               "peer", "hang",  "inside", "refused", "late"};

const char *fault_name(enum fault_kind kind)
{
    return names[kind];
}

static bool is_data(const struct act *act)
{
    return act->what == ACT_CALL && (rec_kind_flags(act->kind) & (REC_KF_COLL | REC_KF_P2P)) != 0;
}

/* Has others that need it: leaving it out, or one too many, is a fault. */
static bool is_shared(const struct act *act)
{
    return is_data(act) || (act->what == ACT_CALL && ((rec_kind_flags(act->kind) & REC_KF_RMA) ||
                                                      act->kind == REC_COMM_WINDOW_REGISTER));
}

static bool is_coll(const struct act *act)
{
    return act->what == ACT_CALL && (rec_kind_flags(act->kind) & REC_KF_COLL) != 0;
}

static bool same_call(const struct act *a, const struct act *b)
{
    return a->comm == b->comm && a->kind == b->kind && a->count == b->count && a->dtype == b->dtype &&
           a->redop == b->redop && a->peer == b->peer;
}

static bool in_group(const struct lane *lane, size_t at)
{
    int depth = 0;
    for (size_t i = 0; i <= at; i++)
        depth += (lane->acts[i].what == ACT_GROUP_START) - (lane->acts[i].what == ACT_GROUP_END);
    return depth > 0;
}

/* The next call on the way, not behind a sync; 0 = none. */
static size_t next_call(const struct lane *lane, size_t at)
{
    for (size_t i = at + 1; i < lane->count; i++) {
        if (is_coll(&lane->acts[i]))
            return i;
        if (lane->acts[i].what != ACT_COMPUTE)
            return 0;
    }
    return 0;
}

/* Is there a creation among the next calls on the same communicator? */
static bool creates_soon(const struct lane *lane, size_t at)
{
    int seen = 0;
    for (size_t i = at + 1; i < lane->count && seen < 12; i++) {
        const struct act *act = &lane->acts[i];
        if (act->what != ACT_CALL || act->comm != lane->acts[at].comm)
            continue;
        if (rec_kind_flags(act->kind) & REC_KF_CREATE)
            return true;
        seen++;
    }
    return false;
}

static bool suits(const struct plan *plan, const struct fault *fault, const struct lane *lane, size_t at)
{
    const struct act *act = &lane->acts[at];
    const struct plan_comm *comm = act->comm >= 0 ? &plan->comms[act->comm] : NULL;
    switch (fault->kind) {
    case FAULT_SLEEP:
    case FAULT_KILL:
    case FAULT_EXIT:
    case FAULT_LATE:
        return true;
    case FAULT_INSIDE:
        return act->what == ACT_CALL ? !is_data(act) || !in_group(lane, at) : act->what == ACT_GROUP_END;
    case FAULT_HANG:
        return is_data(act) && comm->nmembers > 1 && act->count && !act->captured && !in_group(lane, at);
    case FAULT_REFUSED:
        return is_data(act) && comm->nmembers > 1 && act->count && !act->captured;
    case FAULT_PEER:
        return is_data(act) && !is_coll(act) && comm->nmembers > 2;
    case FAULT_SKIP:
        /* Of one against one who creates is right by rule: whether it left out the call before is not seen.
         */
        return is_shared(act) && comm->nmembers > 1 && act->count && !act->captured &&
               !creates_soon(lane, at);
    case FAULT_EXTRA:
        return is_shared(act) && comm->nmembers > 1 && act->count && !act->captured;
    case FAULT_COUNT:
        return is_data(act) && comm->nmembers > 1 && act->count && !act->captured;
    case FAULT_FIELD:
    case FAULT_OTHER:
        return is_coll(act) && comm->nmembers > 1 && act->count && !act->captured;
    case FAULT_SWAP: {
        size_t next = next_call(lane, at);
        return is_coll(act) && !act->captured && comm->nmembers > 1 && next &&
               plan->comms[lane->acts[next].comm].nmembers > 1 && !same_call(act, &lane->acts[next]) &&
               !in_group(lane, at);
    }
    case FAULT_NO_SPLIT:
        return act->what == ACT_CALL && act->child >= 0 && comm->nmembers > 1;
    case FAULT_TEARDOWN:
        return is_data(act) && comm->nmembers > 1 && !act->captured && !in_group(lane, at);
    default:
        return false;
    }
}

static void change_field(struct rng *rng, struct act *act, int nmembers)
{
    unsigned flags = rec_kind_flags(act->kind);
    uint64_t which = rng_in(rng, 0, 2);
    if (which == 0 && (flags & REC_KF_ROOT))
        act->peer = (act->peer + 1) % nmembers;
    else if (which <= 1 && (flags & REC_KF_REDOP))
        act->redop = (uint8_t)((act->redop + 1) % (REC_REDOP_USER + USER_REDOPS));
    else
        act->dtype = act->dtype == 7   ? 2
                     : act->dtype == 6 ? 9
                     : act->dtype == 9 ? 6
                     : act->dtype == 4 ? 8
                                       : 1;
}

/* Everything on these communicators from here on goes. */
static void forget_comms(struct plan *plan, int rank, size_t from[LANES], const bool *gone)
{
    for (int l = 0; l < LANES; l++)
        for (size_t i = plan->lanes[rank][l].count; i-- > from[l];) {
            int comm = plan->lanes[rank][l].acts[i].comm;
            if (comm >= 0 && gone[comm])
                plan_remove(plan, rank, l, i);
        }
}

static void without_children(struct plan *plan, int rank, size_t at)
{
    bool gone[COMMS_MAX] = {0};
    gone[plan->lanes[rank][0].acts[at].child] = true;
    for (int c = 0; c < plan->ncomms; c++)
        if (plan->comms[c].parent >= 0 && gone[plan->comms[c].parent])
            gone[c] = true;
    plan_remove(plan, rank, 0, at);
    size_t from[LANES] = {at, 0};
    forget_comms(plan, rank, from, gone);
}

static void destroy_early(struct plan *plan, int rank, int lane, size_t at)
{
    bool gone[COMMS_MAX] = {0};
    struct act act = plan->lanes[rank][lane].acts[at];
    gone[act.comm] = true;
    size_t from[LANES] = {plan->lanes[rank][0].count, plan->lanes[rank][1].count};
    from[lane] = at;
    if (lane)
        from[0] = plan->last_act[rank][0];
    forget_comms(plan, rank, from, gone);
    act.kind = REC_COMM_DESTROY;
    act.child = -1;
    act.peer = -1;
    act.count = 0;
    act.step = 0;
    plan_insert(plan, rank, lane, at, &act);
}

/* The wrong argument poisons its group; then the program raises, or does not look at the result. */
static void refuse(struct plan *plan, struct rng *rng, const struct fault *fault)
{
    struct lane *lane = &plan->lanes[fault->rank][fault->lane];
    bool grouped = in_group(lane, fault->at);
    size_t at = fault->at;
    lane->acts[at].odd = ODD_REFUSED;
    while (grouped && lane->acts[at].what != ACT_GROUP_END)
        at++;
    lane->acts[at].odd = ODD_REFUSED;
    if (rng_chance(rng, 25))
        return;
    struct act work = {.what = ACT_COMPUTE,
                       .comm = -1,
                       .child = -1,
                       .ns = rng_in(rng, 1, rng_chance(rng, 50) ? 10 : 3000) * MS};
    struct act exit = {.what = ACT_EXIT, .comm = -1, .child = -1, .count = 1};
    plan_insert(plan, fault->rank, fault->lane, at + 1, &exit);
    plan_insert(plan, fault->rank, fault->lane, at + 1, &work);
}

static void end_here(struct plan *plan, struct rng *rng, const struct fault *fault)
{
    struct act act = {.what = fault->kind == FAULT_SLEEP  ? ACT_SLEEP
                              : fault->kind == FAULT_KILL ? ACT_KILL
                                                          : ACT_EXIT,
                      .comm = -1,
                      .child = -1,
                      .count = rng_chance(rng, 50)};
    plan_insert(plan, fault->rank, fault->lane, fault->at, &act);
}

static const char *say_act(const struct act *act, char *text, size_t size)
{
    const char *name = act->what == ACT_CALL ? rec_kind_name(act->kind) : "other";
    snprintf(text, size, "%s comm %d count %llu peer %d", name, act->comm, (unsigned long long)act->count,
             (int)act->peer);
    return text;
}

static void change(struct plan *plan, struct rng *rng, struct fault *fault)
{
    struct lane *lane = &plan->lanes[fault->rank][fault->lane];
    struct act *act = &lane->acts[fault->at];
    switch (fault->kind) {
    case FAULT_SKIP:
        plan_remove(plan, fault->rank, fault->lane, fault->at);
        break;
    case FAULT_EXTRA: {
        struct act again = *act;
        again.step = 0;
        plan_insert(plan, fault->rank, fault->lane, fault->at, &again);
        break;
    }
    case FAULT_COUNT:
        act->count = rng_chance(rng, 50) ? act->count * 2 : act->count + 1;
        break;
    case FAULT_FIELD:
        change_field(rng, act, plan->comms[act->comm].nmembers);
        break;
    case FAULT_OTHER:
        act->kind = act->kind == REC_ALL_GATHER ? REC_ALL_TO_ALL : REC_ALL_GATHER;
        act->redop = REC_REDOP_NONE;
        act->peer = -1;
        break;
    case FAULT_SWAP: {
        size_t next = next_call(lane, fault->at);
        fault->other = lane->acts[next];
        lane->acts[next] = *act;
        *act = fault->other;
        fault->between = fault->other.comm != fault->act.comm;
        break;
    }
    case FAULT_NO_SPLIT:
        without_children(plan, fault->rank, fault->at);
        break;
    case FAULT_TEARDOWN:
        destroy_early(plan, fault->rank, fault->lane, fault->at);
        break;
    case FAULT_PEER: {
        int n = plan->comms[act->comm].nmembers, self = plan_place(&plan->comms[act->comm], fault->rank);
        do
            act->peer = (act->peer + 1) % n;
        while (act->peer == self);
        break;
    }
    case FAULT_HANG: {
        /* Whose host is stuck in a full queue, and whose GPU behind it, looks alike without marks. */
        plan->queue_bound = plan->marks ? plan->queue_bound : 1024;
        struct act hang = {.what = ACT_HANG, .comm = -1, .child = -1, .stream = act->stream};
        plan_insert(plan, fault->rank, fault->lane, fault->at, &hang);
        break;
    }
    case FAULT_INSIDE:
        act->odd = rng_chance(rng, 50) ? ODD_NEVER_LAUNCHES : ODD_NEVER_RETURNS;
        break;
    case FAULT_REFUSED:
        refuse(plan, rng, fault);
        break;
    case FAULT_LATE: {
        struct act late = {.what = ACT_COMPUTE, .odd = ODD_LATE, .comm = -1, .child = -1};
        late.ns = rng_in(rng, 3, rng_chance(rng, 50) ? 15 : 90) * SEC;
        plan_insert(plan, fault->rank, fault->lane, fault->at, &late);
        break;
    }
    default:
        end_here(plan, rng, fault);
        break;
    }
}

bool fault_plant(struct plan *plan, struct rng *rng, enum fault_kind kind, int other_than,
                 struct fault *fault)
{
    *fault = (struct fault){.kind = kind};
    if (kind == FAULT_NONE)
        return true;
    for (int tries = 0; tries < 200; tries++) {
        fault->rank = (int)rng_in(rng, 0, (uint64_t)plan->nranks - 1);
        fault->lane = rng_chance(rng, 25) ? 1 : 0;
        const struct lane *lane = &plan->lanes[fault->rank][fault->lane];
        size_t first = kind == FAULT_NO_SPLIT ? 0 : plan->first_act[fault->rank][fault->lane];
        size_t last = plan->last_act[fault->rank][fault->lane];
        if (first >= last || fault->rank == other_than)
            continue;
        fault->at = (size_t)rng_in(rng, first, last - 1);
        if (!suits(plan, fault, lane, fault->at))
            continue;
        fault->act = lane->acts[fault->at];
        fault->pair = fault->act.comm >= 0 && (plan->comms[fault->act.comm].nmembers == 2 ||
                                               (rec_kind_flags(fault->act.kind) & REC_KF_P2P));
        char what[96];
        snprintf(fault->told, sizeof fault->told, "%s: rank %d lane %d act %zu (%s%s)", fault_name(kind),
                 fault->rank, fault->lane, fault->at, say_act(&fault->act, what, sizeof what),
                 in_group(lane, fault->at) ? ", grouped" : "");
        change(plan, rng, fault);
        return true;
    }
    fault->kind = FAULT_NONE;
    return false;
}
