/*
 * Waits: the ops that logic says cannot have completed, grouped by where they wait, and
 * whether anything could still end the wait.
 */
#include "diag.h"

#include <signal.h>
#include <stdlib.h>

bool diag_got_over(const struct diag *d, const struct diag_op *op)
{
    const struct diag_proc *proc = &d->procs[op->proc];
    uint64_t aborted = diag_aborted_ns(d, op);
    for (uint32_t i = proc->first + proc->count; aborted && i-- > (uint32_t)(op - d->ops) + 1;) {
        const struct diag_op *later = &d->ops[i];
        if (later->op.enter_ns <= aborted)
            return false;
        if (later->unit != DIAG_NONE && later->op.thread == op->op.thread)
            return true;
    }
    return false;
}

/*
 * For how long op kept its process waiting. An abort ends a wait, whatever the process did then, and so
 * does the one for whom all waited, when it comes too late; who ended well without an abort has got what it
 * waited for.
 */
static uint64_t waited_ns(const struct diag *d, const struct diag_op *op)
{
    const struct diag_proc *proc = &d->procs[op->proc];
    uint64_t until = diag_aborted_ns(d, op), quiet = op->op.enter_ns;
    if (!until && proc->ended_well)
        return 0;
    for (uint32_t i = (uint32_t)(op - d->ops) + 1; i < proc->first + proc->count; i++) {
        const struct diag_op *later = &d->ops[i];
        if (later->unit == DIAG_NONE || later->op.thread != op->op.thread)
            continue;
        if (later->late && (!until || later->op.enter_ns < until))
            until = later->op.enter_ns;
        if (until && later->op.enter_ns >= until)
            break;
        quiet = later->op.enter_ns;
    }
    if (!until) {
        until = proc->life_ns;
        quiet = op->op.flags & REC_OF_OPEN ? op->op.enter_ns : diag_thread_quiet(d, op);
    }
    uint64_t came = diag_gpu_came(d, op);
    quiet = came > quiet ? came : quiet;
    return until > quiet ? until - quiet : 0;
}

static bool is_stale(const struct diag *d, const struct diag_op *op)
{
    return waited_ns(d, op) >= d->procs[op->proc].patience_ns;
}

static bool blocked(const struct diag_op *op)
{
    return op->active && !op->done;
}

/* ---- who is missing at a wait ---- */

struct partners {
    struct diag_partner *items;
    size_t count, capacity;
};

static void add_partner(struct diag *d, struct partners *list, struct rec_member *member, uint32_t proc,
                        enum diag_reason reason, uint32_t op)
{
    list->items = diag_grow(list->items, &list->capacity, list->count, sizeof *list->items, &d->oom);
    if (!d->oom)
        list->items[list->count++] = (struct diag_partner){proc, member, reason, op};
}

bool diag_died_inside(const struct diag *d, const struct diag_match *m, const struct diag_op *op)
{
    const struct diag_proc *proc = &d->procs[op->proc];
    if (proc->waits || proc->followed)
        return false;
    if (proc->early_dead)
        return true;
    if ((proc->p->fate != REC_FATE_EXITED && proc->p->fate != REC_FATE_SIGNALED) || proc->ended_well)
        return false;
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        const struct diag_proc *other = &d->procs[d->ops[i].proc];
        if (!d->ops[i].done && other->life_ns > proc->life_ns + other->patience_ns)
            return true;
    }
    return false;
}

static void posted_partners(struct diag *d, const struct diag_match *m, struct partners *list)
{
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        const struct diag_op *op = &d->ops[i];
        if (m->unfinished && !op->done && diag_died_inside(d, m, op))
            add_partner(d, list, op->member, op->proc, DIAG_ABSENT, i);
        else if (!d->units[op->unit].launched)
            add_partner(d, list, op->member, op->proc, DIAG_UNLAUNCHED, i);
        else if (!op->active)
            add_partner(d, list, op->member, op->proc, DIAG_BEHIND, i);
        else if (!m->compatible)
            add_partner(d, list, op->member, op->proc, DIAG_OTHER, i);
    }
}

static void message_partners(struct diag *d, const struct diag_match *m, struct partners *list)
{
    posted_partners(d, m, list);
    if (!m->absent || m->first_op == DIAG_NONE)
        return;
    bool send = diag_sends(&d->ops[m->first_op].op);
    struct rec_member *peer = diag_member_at(m->comm, send ? m->dst : m->src);
    if (peer)
        add_partner(d, list, peer, diag_index(d, peer->process), DIAG_ABSENT, DIAG_NONE);
}

static void guessed_partners(struct diag *d, const struct diag_match *m, struct partners *list)
{
    int32_t ranks[256];
    size_t count = diag_absent_ranks(d, m->comm, ranks, 256);
    /* Who has ended well is hardly meant, except where all are. */
    for (size_t i = 0; i < count && m->comm->nranks != d->expected; i++) {
        uint32_t proc = diag_proc_of_rank(d, ranks[i]);
        if (proc != DIAG_NONE && d->procs[proc].ended_well)
            return;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t proc = diag_proc_of_rank(d, ranks[i]);
        if (proc != DIAG_NONE)
            add_partner(d, list, NULL, proc, DIAG_ABSENT, DIAG_NONE);
    }
}

static void member_partners(struct diag *d, const struct diag_match *m, struct partners *list)
{
    posted_partners(d, m, list);
    bool without_left = diag_excluded(d, m).left;
    for (uint32_t i = 0; m->absent && i < m->comm->nmembers; i++)
        if (diag_lacks(d, m->comm->members[i], m->seq) &&
            !(without_left && diag_has_left(d, m->comm->members[i])))
            add_partner(d, list, m->comm->members[i], diag_index(d, m->comm->members[i]->process),
                        DIAG_ABSENT, DIAG_NONE);
    if (m->unseen && m->first_op != DIAG_NONE &&
        rec_kind_canonical(d->ops[m->first_op].op.kind) == REC_COMM_INIT_RANK)
        guessed_partners(d, m, list);
}

static void teardown_partners(struct diag *d, const struct diag_wait *wait, struct partners *list)
{
    for (uint32_t i = 0; i < wait->comm->nmembers; i++) {
        struct rec_member *member = wait->comm->members[i];
        if (member->teardown.kind == REC_NONE && !d->procs[diag_index(d, member->process)].cut)
            add_partner(d, list, member, diag_index(d, member->process), DIAG_ABSENT, DIAG_NONE);
    }
}

size_t diag_partners(struct diag *d, const struct diag_wait *wait, struct diag_partner **partners)
{
    struct partners list = {0};
    if (wait->kind == DIAG_WAIT_TEARDOWN)
        teardown_partners(d, wait, &list);
    else if (wait->kind == DIAG_WAIT_P2P)
        message_partners(d, &d->matches[wait->match], &list);
    else
        member_partners(d, &d->matches[wait->match], &list);
    *partners = list.items;
    return d->oom ? 0 : list.count;
}

/* ---- can it still end? ---- */

/*
 * The peer's group has a message of the awaited kind, but one that an earlier group of the waiter
 * took: the two are not in the same exchange.
 */
static bool shifted(const struct diag *d, const struct diag_wait *wait, const struct diag_op *peer)
{
    const struct diag_match *awaited = &d->matches[wait->match];
    uint32_t unit = d->ops[wait->op].unit;
    for (uint32_t i = d->units[peer->unit].first_op; i != DIAG_NONE; i = d->ops[i].unit_next) {
        const struct diag_match *m = d->ops[i].match != DIAG_NONE ? &d->matches[d->ops[i].match] : NULL;
        if (!m || m->comm != awaited->comm || m->src != awaited->src || m->dst != awaited->dst)
            continue;
        for (uint32_t j = m->first_op; j != DIAG_NONE; j = d->ops[j].match_next)
            if (d->ops[j].proc == d->ops[wait->op].proc && d->ops[j].unit != unit)
                return true;
    }
    return false;
}

/* The peer posted other messages of the same exchange, as a group or on its way to later work. */
static bool left_out(const struct diag *d, const struct diag_wait *wait, uint32_t peer_proc)
{
    const struct diag_unit *unit = &d->units[d->ops[wait->op].unit];
    for (uint32_t i = unit->first_op; i != DIAG_NONE; i = d->ops[i].unit_next) {
        const struct diag_op *op = &d->ops[i];
        if (op->match == DIAG_NONE || op->match == wait->match || d->matches[op->match].src < 0)
            continue;
        const struct diag_match *m = &d->matches[op->match];
        for (uint32_t j = m->first_op; j != DIAG_NONE; j = d->ops[j].match_next) {
            const struct diag_op *other = &d->ops[j];
            const struct diag_proc *peer = &d->procs[peer_proc];
            if (j == i || other->proc != peer_proc || !d->units[other->unit].launched || !m->compatible ||
                shifted(d, wait, other))
                continue;
            if (other->op.group || d->ops[peer->first + peer->count - 1].op.enter_ns > other->op.enter_ns)
                return true;
        }
    }
    return false;
}

bool diag_tore_down_before(const struct diag *d, const struct diag_wait *wait,
                           const struct rec_member *member)
{
    const struct rec_op *teardown = &member->teardown;
    if (teardown->kind == REC_NONE)
        return false;
    if (wait->kind == DIAG_WAIT_COLL && teardown->seq > d->matches[wait->match].seq)
        return false;
    /* Aborting is what one does after waiting in vain: then it is no cause. */
    bool abort = diag_aborts(teardown);
    uint64_t when = diag_common(&d->procs[diag_index(d, member->process)], teardown->enter_ns);
    return !abort || when < wait->since + d->procs[d->ops[wait->op].proc].patience_ns;
}

/* Did anybody else still wait when this process ended? */
static bool outwaited(const struct diag_wait *wait, uint32_t proc, uint64_t dead_ns)
{
    return wait->stopped[wait->last == proc] >= dead_ns;
}

/* Had the others waited longer before the death than after it, the death would not be what they waited for.
 */
static bool mostly_for_the_dead(const struct diag_wait *wait, const struct diag_proc *dead)
{
    if (dead->dead_ns <= wait->since + wait->patience_ns)
        return true;
    return wait->until > dead->dead_ns && wait->until - dead->dead_ns > dead->dead_ns - wait->since;
}

static enum diag_never never_joins(const struct diag *d, const struct diag_wait *wait,
                                   const struct diag_partner *partner)
{
    const struct diag_proc *proc = &d->procs[partner->proc];
    bool waited = proc->waits || (wait->over && proc->got_over_ns > wait->since);
    if (partner->reason != DIAG_ABSENT || diag_came_late(d, wait, partner->proc) != DIAG_NONE)
        return DIAG_NEVER_NO;
    if (wait->kind == DIAG_WAIT_P2P && !d->matches[wait->match].onesided && left_out(d, wait, partner->proc))
        return DIAG_NEVER_LEFT_OUT;
    bool outlasted = outwaited(wait, partner->proc, proc->dead_ns);
    if (proc->early_dead && !waited && !proc->followed && outlasted && mostly_for_the_dead(wait, proc))
        return DIAG_NEVER_DEAD;
    if (wait->kind != DIAG_WAIT_TEARDOWN && partner->member &&
        diag_tore_down_before(d, wait, partner->member) &&
        (!proc->works || diag_finished(&partner->member->teardown)))
        return DIAG_NEVER_TEARDOWN;
    /* Calls that match are counted where their records are lost; a teardown is not. */
    if (wait->kind == DIAG_WAIT_TEARDOWN && proc->gap_ns)
        return DIAG_NEVER_NO;
    if (proc->p->fate == REC_FATE_EXITED && !waited && !proc->followed && outlasted &&
        (proc->ended_well || mostly_for_the_dead(wait, proc)))
        return DIAG_NEVER_EXITED;
    return DIAG_NEVER_NO;
}

static void judge(struct diag *d, struct diag_wait *wait)
{
    if (wait->match != DIAG_NONE) {
        const struct diag_match *m = &d->matches[wait->match];
        if (m->failed_op != DIAG_NONE) {
            wait->never = DIAG_NEVER_FAILED;
            return;
        }
        if (!m->compatible) {
            wait->never = DIAG_NEVER_MISMATCH;
            return;
        }
    }
    struct diag_partner *partners;
    size_t count = diag_partners(d, wait, &partners);
    for (size_t i = 0; i < count; i++) {
        enum diag_never never = never_joins(d, wait, &partners[i]);
        d->procs[partners[i].proc].awaited |= never == DIAG_NEVER_DEAD;
        wait->never = wait->never == DIAG_NEVER_NO ? never : wait->never;
    }
    free(partners);
}

/* ---- collecting ---- */

static enum diag_wait_kind kind_of(const struct rec_op *op)
{
    unsigned flags = rec_kind_flags(op->kind);
    return flags & REC_KF_CREATE     ? DIAG_WAIT_CREATE
           : flags & REC_KF_HOST     ? DIAG_WAIT_HOST
           : flags & REC_KF_TEARDOWN ? DIAG_WAIT_TEARDOWN
           : diag_pairs(op)          ? DIAG_WAIT_P2P
                                     : DIAG_WAIT_COLL;
}

/* Without an end record, or a last sign of life that is the end of the recording, an end is only roughly
 * known. */
static void note_stopped(const struct diag *d, struct diag_wait *wait, const struct diag_op *op)
{
    const struct diag_proc *proc = &d->procs[op->proc];
    uint64_t aborted = diag_aborted_ns(d, op);
    bool exact = aborted || proc->p->fate == REC_FATE_EXITED || proc->p->fate == REC_FATE_SIGNALED;
    uint64_t stopped = (aborted ? aborted : proc->dead_ns) + (exact ? DIAG_ONE_END_NS : DIAG_MISSED_NS);
    if (wait->last == op->proc || stopped > wait->stopped[0]) {
        if (wait->last != op->proc)
            wait->stopped[1] = wait->stopped[0];
        wait->stopped[0] = stopped > wait->stopped[0] ? stopped : wait->stopped[0];
        wait->last = op->proc;
    } else if (stopped > wait->stopped[1]) {
        wait->stopped[1] = stopped;
    }
}

static void add_waiter(struct diag *d, struct diag_map *ids, uint32_t index)
{
    struct diag_op *op = &d->ops[index];
    bool teardown = kind_of(&op->op) == DIAG_WAIT_TEARDOWN;
    bool fresh;
    uint32_t *at = diag_map_put(
        ids, teardown ? diag_key(op->member->comm->index, 61, 0) : diag_key(op->match, 62, 0), &fresh);
    if (!at || !DIAG_ROOM(d, waits, d->nwaits)) {
        d->oom = true;
        return;
    }
    if (fresh) {
        *at = (uint32_t)d->nwaits;
        d->waits[d->nwaits++] = (struct diag_wait){.kind = kind_of(&op->op),
                                                   .comm = op->member->comm,
                                                   .match = op->match,
                                                   .op = index,
                                                   .since = op->op.enter_ns,
                                                   .last = DIAG_NONE,
                                                   .patience_ns = UINT64_MAX};
    }
    struct diag_wait *wait = &d->waits[*at];
    note_stopped(d, wait, op);
    const struct diag_proc *proc = &d->procs[op->proc];
    wait->waiters++;
    wait->stale = wait->stale || is_stale(d, op);
    if (proc->life_ns > wait->until) {
        wait->until = proc->life_ns;
        wait->until_clock = proc->clock;
    }
    wait->patience_ns = proc->patience_ns < wait->patience_ns ? proc->patience_ns : wait->patience_ns;
    if (op->op.enter_ns < wait->since) {
        wait->since = op->op.enter_ns;
        wait->op = index;
    }
    if (!DIAG_ROOM(d, edges, d->nedges))
        return;
    d->edges[d->nedges++] = (struct diag_edge){op->proc, (uint32_t)d->nprocs + *at, index, DIAG_WAITS};
}

/* An open finalize or destroy waits by itself only when no op of its communicator explains it. */
static bool teardown_waits(const struct diag *d, uint32_t index)
{
    const struct diag_op *op = &d->ops[index];
    if (!(rec_kind_flags(op->op.kind) & REC_KF_TEARDOWN) || !(op->op.flags & REC_OF_OPEN) || !op->member)
        return false;
    const struct diag_proc *proc = &d->procs[op->proc];
    for (uint32_t i = proc->first; i < proc->first + proc->count; i++)
        if (d->ops[i].member == op->member && d->ops[i].unit != DIAG_NONE && !d->ops[i].done)
            return false;
    return true;
}

/*
 * Who is blocked, and since when. Those who waited for the same lost patience when the first of them
 * did: programs of one job differ in their pauses by chance.
 */
static void note_waiters(struct diag *d)
{
    for (size_t i = 0; i < d->nedges; i++) {
        const struct diag_edge *edge = &d->edges[i];
        const struct diag_wait *wait = &d->waits[edge->to - d->nprocs];
        const struct diag_op *op = &d->ops[edge->op];
        struct diag_proc *proc = &d->procs[edge->from];
        bool ended = wait->stale && diag_ended_badly(proc) && waited_ns(d, op) >= wait->patience_ns;
        if (!ended && !is_stale(d, op))
            continue;
        if (diag_got_over(d, op)) {
            uint64_t aborted = diag_aborted_ns(d, op);
            proc->got_over_ns = aborted > proc->got_over_ns ? aborted : proc->got_over_ns;
            continue;
        }
        proc->waits = true;
        proc->gave_up = proc->gave_up || diag_ended_itself(proc);
        proc->works = proc->works || op->unit != DIAG_NONE;
    }
}

/* Have all who waited there aborted it, and some of them gone on? */
static void mark_over(struct diag *d)
{
    for (size_t i = 0; i < d->nedges; i++)
        if (diag_got_over(d, &d->ops[d->edges[i].op]))
            d->waits[d->edges[i].to - d->nprocs].over = true;
    for (size_t i = 0; i < d->nedges; i++)
        if (!diag_aborted_ns(d, &d->ops[d->edges[i].op]))
            d->waits[d->edges[i].to - d->nprocs].over = false;
}

/* When those gave up waiting that follow one clock. */
struct giving_up {
    uint64_t first_ns; /* UINT64_MAX: nobody did; also who was told to end */
    uint64_t last_ns;  /* 0: nobody ended itself */
};

static void find_giving_up(const struct diag *d, struct giving_up *by_clock)
{
    for (size_t i = 0; i <= d->nprocs; i++)
        by_clock[i] = (struct giving_up){UINT64_MAX, 0};
    for (size_t i = 0; i < d->nprocs; i++) {
        const struct diag_proc *proc = &d->procs[i];
        struct giving_up *at = &by_clock[proc->clock];
        if (proc->waits && diag_ended_badly(proc) && proc->dead_ns < at->first_ns)
            at->first_ns = proc->dead_ns;
        if (proc->gave_up && proc->dead_ns > at->last_ns)
            at->last_ns = proc->dead_ns;
    }
}

/*
 * What stood still before an end is its cause, and the end is how somebody gave up: a watchdog's abort, a
 * timeout that became an exception, a launcher that kills the rest. The ends after it follow from it.
 */
static void note_followers(struct diag *d, const struct giving_up *by_clock)
{
    for (size_t i = 0; i < d->nprocs; i++) {
        struct diag_proc *proc = &d->procs[i];
        uint64_t first = by_clock[proc->clock].first_ns;
        proc->followed = !proc->waits && first != UINT64_MAX && proc->dead_ns + DIAG_ONE_END_NS >= first;
    }
}

/* An abort() that no wait explains is a fault of its own. */
static void note_aborts(struct diag *d)
{
    for (size_t i = 0; i < d->nprocs; i++) {
        struct diag_proc *proc = &d->procs[i];
        if (proc->p->fate == REC_FATE_SIGNALED && proc->p->end.signal == SIGABRT && !proc->waits &&
            !proc->followed && !proc->struck)
            proc->early_dead = true;
    }
}

/* Did at least half of the job live on when this process was ended? */
static bool ended_alone(const struct diag *d, const struct diag_proc *dead)
{
    size_t with = 0;
    for (size_t i = 0; i < d->nprocs; i++)
        with += d->procs[i].cut ||
                (diag_ended_badly(&d->procs[i]) && d->procs[i].dead_ns < dead->dead_ns + DIAG_ONE_END_NS);
    size_t missing = d->expected > d->nprocs ? d->expected - d->nprocs : 0;
    return (with + missing) * 2 <= d->nprocs + missing;
}

/* Has it shown no sign of life when somebody who waited for it gave up? */
static bool silent_at_the_end(const struct diag_proc *proc, uint64_t end)
{
    bool open_end = proc->p->fate == REC_FATE_VANISHED || proc->p->fate == REC_FATE_UNKNOWN;
    return open_end && !proc->cut && end > proc->life_ns + DIAG_MISSED_NS;
}

/*
 * Who was told to end died early if others waited for it for long before they were told, too; so did who
 * was silent for long when they gave up.
 */
static void note_outlived(struct diag *d, const struct diag_wait *wait, const struct giving_up *by_clock)
{
    struct diag_partner *partners;
    size_t count = diag_partners(d, wait, &partners);
    uint32_t clock = d->procs[d->ops[wait->op].proc].clock;
    for (size_t i = 0; i < count; i++) {
        struct diag_proc *proc = &d->procs[partners[i].proc];
        if (partners[i].reason != DIAG_ABSENT || proc->early_dead || proc->waits)
            continue;
        bool told = proc->p->fate == REC_FATE_SIGNALED && proc->clock == clock &&
                    proc->clock == wait->until_clock && wait->until >= proc->dead_ns + wait->patience_ns &&
                    ended_alone(d, proc);
        proc->early_dead = told || silent_at_the_end(proc, by_clock[proc->clock].last_ns);
    }
    free(partners);
}

void diag_find_waits(struct diag *d)
{
    struct diag_map ids = {0};
    for (uint32_t i = 0; i < d->nops && !d->oom; i++) {
        struct diag_op *op = &d->ops[i];
        bool waits = op->unit != DIAG_NONE ? blocked(op) && op->match != DIAG_NONE &&
                                                 (!d->procs[op->proc].ended_well || diag_aborted_ns(d, op))
                                           : teardown_waits(d, i);
        if (!waits || !op->member || d->procs[op->proc].cut)
            continue; /* on whom it waits is not known; nor how a trace that is cut off went on */
        add_waiter(d, &ids, i);
    }
    diag_map_free(&ids);
    struct giving_up *by_clock = malloc((d->nprocs + 1) * sizeof *by_clock);
    d->oom = d->oom || !by_clock;
    if (!d->oom) {
        note_waiters(d);
        mark_over(d);
        find_giving_up(d, by_clock);
        note_followers(d, by_clock);
        note_aborts(d);
    }
    for (size_t i = 0; i < d->nwaits && !d->oom; i++)
        if (d->waits[i].stale)
            note_outlived(d, &d->waits[i], by_clock);
    free(by_clock);
    for (size_t i = 0; i < d->nwaits && !d->oom; i++)
        judge(d, &d->waits[i]);
}
