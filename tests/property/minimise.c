/* The smallest plan whose verdict is still wrong, by leaving out one thing after the other. */
#include <stdlib.h>
#include <string.h>

#include "case.h"

struct minimiser {
    struct made *best;
    const char *dir;
};

static struct made *copy_of(const struct made *made)
{
    struct made *copy = malloc(sizeof *copy);
    if (!copy)
        abort();
    *copy = *made;
    copy->run = (struct run){0};
    for (int r = 0; r < RANKS_MAX; r++)
        for (int l = 0; l < LANES; l++) {
            struct lane *lane = &copy->plan.lanes[r][l];
            lane->capacity = lane->count;
            lane->acts = lane->count ? malloc(lane->count * sizeof *lane->acts) : NULL;
            if (lane->count && !lane->acts)
                abort();
            if (lane->count)
                memcpy(lane->acts, made->plan.lanes[r][l].acts, lane->count * sizeof *lane->acts);
        }
    return copy;
}

/* Takes the candidate over if its verdict is still wrong. */
static bool try(struct minimiser *m, struct made *candidate)
{
    struct rec_verdict *verdict;
    case_run(candidate);
    bool wrong = case_judge(candidate, m->dir, &verdict) == WRONG && verdict;
    rec_verdict_free(verdict);
    case_remove_files(m->dir);
    if (wrong) {
        struct made swap = *m->best;
        *m->best = *candidate;
        *candidate = swap;
    }
    case_free(candidate);
    free(candidate);
    return wrong;
}

/* ---- steps ---- */

static void drop_steps(struct plan *plan, uint32_t first, uint32_t last)
{
    for (int r = 0; r < plan->nranks; r++)
        for (int l = 0; l < LANES; l++) {
            struct lane *lane = &plan->lanes[r][l];
            size_t kept = 0;
            for (size_t i = 0; i < lane->count; i++) {
                const struct act *act = &lane->acts[i];
                /* Creations go with their communicator. */
                bool creates = act->what == ACT_CALL && (rec_kind_flags(act->kind) & REC_KF_CREATE) &&
                               plan->comms[act->comm].nmembers;
                if (creates || !act->step || act->step < first || act->step > last)
                    lane->acts[kept++] = *act;
            }
            lane->count = kept;
        }
}

static bool fewer_steps(struct minimiser *m)
{
    bool any = false;
    for (uint32_t size = m->best->plan.steps; size; size /= 2)
        for (uint32_t first = 1; first <= m->best->plan.steps; first += size) {
            struct made *candidate = copy_of(m->best);
            size_t before = 0, after = 0;
            for (int r = 0; r < RANKS_MAX * LANES; r++)
                before += candidate->plan.lanes[r / LANES][r % LANES].count;
            drop_steps(&candidate->plan, first, first + size - 1);
            for (int r = 0; r < RANKS_MAX * LANES; r++)
                after += candidate->plan.lanes[r / LANES][r % LANES].count;
            if (before == after) {
                case_free(candidate);
                free(candidate);
            } else {
                any = try(m, candidate) || any;
            }
        }
    return any;
}

/* ---- communicators ---- */

static void drop_comm(struct plan *plan, int comm)
{
    for (int r = 0; r < plan->nranks; r++)
        for (int l = 0; l < LANES; l++) {
            struct lane *lane = &plan->lanes[r][l];
            size_t kept = 0;
            for (size_t i = 0; i < lane->count; i++) {
                struct act act = lane->acts[i];
                if (act.comm == comm)
                    continue;
                if (act.child == comm) {
                    act.child = -1;
                    act.peer = -1;
                }
                lane->acts[kept++] = act;
            }
            lane->count = kept;
        }
    plan->comms[comm].nmembers = 0;
}

static bool fewer_comms(struct minimiser *m)
{
    bool any = false;
    for (int c = 0; c < m->best->plan.ncomms; c++) {
        bool parent =
            c == m->best->fault.act.comm || c == m->best->second.act.comm || !m->best->plan.comms[c].nmembers;
        for (int child = 0; child < m->best->plan.ncomms; child++)
            parent =
                parent || (m->best->plan.comms[child].parent == c && m->best->plan.comms[child].nmembers);
        if (parent)
            continue;
        struct made *candidate = copy_of(m->best);
        drop_comm(&candidate->plan, c);
        any = try(m, candidate) || any;
    }
    return any;
}

/* ---- ranks ---- */

/* Comm ranks behind the one that goes move up; what concerned it goes too. */
static void leave_comm(struct plan *plan, int comm, int place)
{
    struct plan_comm *c = &plan->comms[comm];
    int rank = c->members[place];
    memmove(c->members + place, c->members + place + 1,
            (size_t)(c->nmembers - place - 1) * sizeof *c->members);
    c->nmembers--;
    for (int r = 0; r < plan->nranks; r++)
        for (int l = 0; l < LANES; l++) {
            struct lane *lane = &plan->lanes[r][l];
            size_t kept = 0;
            for (size_t i = 0; i < lane->count; i++) {
                struct act act = lane->acts[i];
                unsigned flags = act.what == ACT_CALL && act.comm == comm ? rec_kind_flags(act.kind) : 0;
                bool place_matters = (flags & (REC_KF_P2P | REC_KF_RMA | REC_KF_ROOT)) ||
                                     (flags && act.kind == REC_COMM_INIT_RANK_CONFIG);
                if ((flags & (REC_KF_P2P | REC_KF_RMA)) && act.peer == place)
                    continue;
                if (place_matters && act.peer > place)
                    act.peer--;
                else if ((flags & REC_KF_ROOT) && act.peer == place)
                    act.peer = 0;
                if (flags && act.kind == REC_COMM_SHRINK && plan_place(&plan->comms[act.child], rank) < 0)
                    act.count--;
                if (flags && act.kind == REC_COMM_INIT_RANK_CONFIG)
                    act.count = (uint64_t)c->nmembers;
                lane->acts[kept++] = act;
            }
            lane->count = kept;
        }
}

static void move_losses(struct losses *l, int rank, int nranks)
{
    size_t behind = (size_t)(nranks - rank - 1);
    memmove(l->lost + rank, l->lost + rank + 1, behind * sizeof *l->lost);
    memmove(l->rotated + rank, l->rotated + rank + 1, behind * sizeof *l->rotated);
    memmove(l->no_trace + rank, l->no_trace + rank + 1, behind * sizeof *l->no_trace);
    memmove(l->keep_percent + rank, l->keep_percent + rank + 1, behind * sizeof *l->keep_percent);
}

static void drop_rank(struct made *made, int rank)
{
    struct plan *plan = &made->plan;
    for (int l = 0; l < LANES; l++)
        free(plan->lanes[rank][l].acts);
    memmove(plan->lanes + rank, plan->lanes + rank + 1,
            (size_t)(plan->nranks - rank - 1) * sizeof *plan->lanes);
    memset(plan->lanes + plan->nranks - 1, 0, sizeof *plan->lanes);
    move_losses(&made->recording.losses, rank, plan->nranks);
    plan->nranks--;
    for (int c = 0; c < plan->ncomms; c++) {
        int place = plan_place(&plan->comms[c], rank);
        if (place >= 0)
            leave_comm(plan, c, place);
        for (int i = 0; i < plan->comms[c].nmembers; i++)
            plan->comms[c].members[i] -= plan->comms[c].members[i] > rank;
    }
    made->fault.rank -= made->fault.rank > rank;
    made->second.rank -= made->second.rank > rank;
}

static bool fewer_ranks(struct minimiser *m)
{
    bool any = false;
    for (int r = m->best->plan.nranks - 1; r >= 0 && m->best->plan.nranks > 2; r--) {
        if ((m->best->fault.kind && r == m->best->fault.rank) ||
            (m->best->second.kind && r == m->best->second.rank))
            continue;
        struct made *candidate = copy_of(m->best);
        drop_rank(candidate, r);
        any = try(m, candidate) || any;
    }
    return any;
}

/* ---- the rest ---- */

static void without_loss(struct losses *l, int what)
{
    int rank = what / 4;
    if (what % 4 == 0)
        l->lost[rank] = false;
    else if (what % 4 == 1)
        l->rotated[rank] = false;
    else if (what % 4 == 2)
        l->no_trace[rank] = false;
    else
        l->keep_percent[rank] = 0;
}

static bool lacks(const struct losses *l, int what)
{
    int rank = what / 4;
    return what % 4 == 0   ? l->lost[rank]
           : what % 4 == 1 ? l->rotated[rank]
           : what % 4 == 2 ? l->no_trace[rank]
                           : l->keep_percent[rank] != 0;
}

static void simpler(struct minimiser *m)
{
    struct made *candidate = copy_of(m->best);
    candidate->plan.marks = false;
    try(m, candidate);
    candidate = copy_of(m->best);
    candidate->plan.nonblocking = false;
    try(m, candidate);
    candidate = copy_of(m->best);
    candidate->plan.eager_bytes = 0;
    try(m, candidate);
    candidate = copy_of(m->best);
    memset(candidate->recording.losses.skew_ns, 0, sizeof candidate->recording.losses.skew_ns);
    candidate->plan.nhosts = 1;
    try(m, candidate);
    candidate = copy_of(m->best);
    candidate->plan.queue_bound = 1024;
    try(m, candidate);
    candidate = copy_of(m->best);
    candidate->recording.watchdog_ns = 0;
    try(m, candidate);
    for (int what = 0; what < RANKS_MAX * 4; what++)
        if (lacks(&m->best->recording.losses, what)) {
            candidate = copy_of(m->best);
            without_loss(&candidate->recording.losses, what);
            try(m, candidate);
        }
}

void case_minimise(struct made *made, const char *dir)
{
    struct minimiser m = {made, dir};
    simpler(&m);
    bool any;
    do {
        any = fewer_steps(&m);
        any = fewer_comms(&m) || any;
        any = fewer_ranks(&m) || any;
    } while (any);
    simpler(&m);
    case_run(made);
}
