/*
 * Who is wrong at a wait that cannot end: those who came, or those who left without it? The
 * fewer are. Whoever is blocked elsewhere says nothing about it: it may still have come.
 */
#include "classify.h"

#include <stdlib.h>

#include "job/recall.h"

/* After so many calls on a communicator its members know which kinds of calls to expect. */
#define UNHEARD_MIN 8

static bool in_teardown(const struct rec_process *p)
{
    for (uint32_t i = 0; i < p->nopen; i++)
        if (diag_finishes(p->open[i].kind))
            return true;
    return false;
}

/* Its last op on this communicator; DIAG_NONE. */
static uint32_t last_on(const struct diag *d, uint32_t proc, const struct rec_member *member)
{
    const struct diag_proc *p = &d->procs[proc];
    for (uint32_t i = p->first + p->count; member && i-- > p->first;)
        if (d->ops[i].member == member)
            return i;
    return DIAG_NONE;
}

uint64_t classify_back_ns(const struct diag *d, uint32_t proc, const struct diag_wait *wait)
{
    const struct diag_proc *p = &d->procs[proc];
    uint64_t stopped = wait->stopped[wait->last == proc];
    if (p->dead_ns <= stopped || p->clock != d->procs[d->ops[wait->op].proc].clock)
        return 0;
    for (uint32_t i = p->first; i < p->first + p->count; i++) {
        const struct diag_op *op = &d->ops[i];
        if (op->op.enter_ns <= wait->since || (op->unit == DIAG_NONE && !diag_finishes(op->op.kind)))
            continue;
        return op->op.enter_ns > stopped ? op->op.enter_ns : 0;
    }
    return p->dead_ns;
}

/* Did the thread that works on this communicator go on with NCCL long after the others came? */
bool classify_went_on(const struct diag *d, const struct diag_partner *partner, const struct diag_wait *wait)
{
    const struct diag_proc *p = &d->procs[partner->proc];
    uint64_t limit = wait->since + p->patience_ns;
    uint32_t last = last_on(d, partner->proc, partner->member);
    if (p->clock != d->procs[d->ops[wait->op].proc].clock || classify_back_ns(d, partner->proc, wait))
        return false;
    return p->last_work_ns > limit && (last == DIAG_NONE || diag_thread_quiet(d, &d->ops[last]) > limit);
}

bool classify_gone(const struct diag *d, const struct diag_partner *partner, const struct diag_wait *wait)
{
    const struct diag_proc *proc = &d->procs[partner->proc];
    if (diag_came_late(d, wait, partner->proc) != DIAG_NONE)
        return false; /* it did want to take part */
    if (classify_back_ns(d, partner->proc, wait))
        return false;
    return partner->reason == DIAG_ABSENT &&
           (proc->ended_well || in_teardown(proc->p) ||
            (partner->member && diag_finishes(partner->member->teardown.kind)) ||
            classify_went_on(d, partner, wait));
}

/* Does one wait for one other, and nobody else is known to be concerned? */
static bool pair_wait(const struct diag *d, const struct diag_wait *wait)
{
    if (wait->kind == DIAG_WAIT_P2P)
        return true;
    const struct diag_match *m = &d->matches[wait->match];
    return (wait->comm->nranks == 2 && m->absent == 1) || m->unseen || m->unknown || m->assumed;
}

/* Died, or raised: no need to ask who is right. */
static bool failed_itself(const struct diag *d, const struct diag_wait *wait,
                          const struct diag_partner *partner)
{
    const struct diag_proc *proc = &d->procs[partner->proc];
    if (wait->never == DIAG_NEVER_DEAD)
        return proc->early_dead;
    return wait->never == DIAG_NEVER_EXITED && proc->p->fate == REC_FATE_EXITED && !proc->ended_well;
}

/* Is a call of this kind on this communicator new to its members, after many others of the window? */
static bool unheard(const struct diag *d, const struct diag_match *m)
{
    const struct diag_op *op = &d->ops[m->first_op];
    uint32_t others = 0;
    for (uint32_t i = 0; i < d->nops; i++) {
        const struct diag_op *before = &d->ops[i];
        if (before == op || before->match == DIAG_NONE || !before->member || before->member->comm != m->comm)
            continue;
        if (rec_kind_canonical(before->op.kind) == rec_kind_canonical(op->op.kind))
            return false;
        others += before->proc == op->proc;
    }
    return others >= UNHEARD_MIN;
}

enum classify_side classify_vote(const struct classify *c, const struct diag_wait *wait,
                                 const struct diag_partner *partners, size_t count, uint32_t *gone)
{
    const struct diag *d = c->d;
    *gone = 0;
    /* To other creations come members that were in no communicator yet, or not all members of one. */
    if (wait->kind == DIAG_WAIT_TEARDOWN ||
        (wait->kind == DIAG_WAIT_CREATE && d->ops[wait->op].op.kind != REC_COMM_SPLIT))
        return CLASSIFY_ABSENT;
    const struct diag_match *m = &d->matches[wait->match];
    uint32_t entered = m->posted + m->assumed, idle = 0;
    for (size_t i = 0; i < count; i++) {
        if (partners[i].reason != DIAG_ABSENT)
            continue;
        if (failed_itself(d, wait, &partners[i]))
            return CLASSIFY_ABSENT;
        bool waits = d->edge_start[partners[i].proc] != d->edge_start[partners[i].proc + 1];
        if (wait->never == DIAG_NEVER_LEFT_OUT || classify_gone(d, &partners[i], wait))
            (*gone)++;
        else if (!waits)
            idle++;
    }
    /* One call too many, while the others wait for this rank outside NCCL, looks like that. */
    if (wait->kind == DIAG_WAIT_COLL && wait->never == DIAG_NEVER_NO && entered == 1 && m->posted == 1 &&
        idle > entered + m->unseen + m->unknown && unheard(d, m))
        return CLASSIFY_ALONE;
    /*
     * Who sits outside NCCL and waits for nobody is wrong whoever is right about this op. At one that others
     * have left for good nobody has been looked at so closely.
     */
    uint32_t hidden = m->unseen + m->unknown; /* on either side, if they could turn it */
    if ((idle && wait->never == DIAG_NEVER_NO) || !*gone || entered > *gone + hidden)
        return CLASSIFY_ABSENT;
    /* Who creates could still have come to the end of the others, but not they to the creation (diverge.c).
     */
    bool creation = wait->kind == DIAG_WAIT_CREATE && wait->comm->nranks > 2;
    if (entered == *gone + hidden && (entered > *gone || creation))
        return CLASSIFY_NEARLY;
    if (creation && entered + hidden == *gone)
        return CLASSIFY_TIE;
    return entered < *gone && entered + hidden <= *gone ? CLASSIFY_FEW : CLASSIFY_TIE;
}

/* ---- ties ---- */

/* Not as many of both: then members that are not recorded could turn the majority. */
struct sides {
    uint32_t came, gone; /* one of each; DIAG_NONE */
    uint32_t ncame, ngone;
};

static struct sides sides_of(const struct classify *c, const struct diag_wait *wait,
                             const struct diag_partner *partners, size_t count)
{
    const struct diag *d = c->d;
    struct sides sides = {DIAG_NONE, DIAG_NONE, 0, 0};
    const struct diag_match *m = &d->matches[wait->match];
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        sides.came = d->ops[i].proc;
        sides.ncame++;
    }
    sides.ncame += m->assumed;
    for (size_t i = 0; i < count; i++) {
        if (partners[i].reason != DIAG_ABSENT ||
            (wait->never != DIAG_NEVER_LEFT_OUT && !classify_gone(d, &partners[i], wait)))
            continue;
        sides.gone = partners[i].proc;
        sides.ngone++;
    }
    return sides;
}

/* The finding whose culprit this process is, + 1; 0 = it is none. */
static uint32_t culprit_of(const struct classify *c, uint32_t proc)
{
    uint32_t finding = proc == DIAG_NONE ? 0 : c->blamed[proc];
    const struct rec_finding *f = finding ? &c->d->findings[finding - 1] : NULL;
    return f && diag_lists_rank(f->culprits, f->nculprits, c->d->procs[proc].p->rank) ? finding : 0;
}

/* The last op that it launched; DIAG_NONE. */
static uint32_t last_launched(const struct diag *d, uint32_t proc)
{
    for (uint32_t i = d->procs[proc].first + d->procs[proc].count; i-- > d->procs[proc].first;)
        if (d->ops[i].unit != DIAG_NONE && !d->ops[i].failed)
            return i;
    return DIAG_NONE;
}

/* Have the others of either side's kind done the same, and those of the other's not? As by_history(). */
static int by_twins(struct classify *c, uint32_t op, struct sides sides, enum diag_twin *came,
                    struct diag_departure *departure)
{
    struct diag *d = c->d;
    uint32_t last = last_launched(d, sides.gone);
    for (uint32_t p = 0; p < d->nprocs; p++)
        c->reached[p] = p == sides.came || p == sides.gone;
    struct diag_departure left;
    *came = diag_twins_tell(d, op, c->reached, departure);
    enum diag_twin gone = last == DIAG_NONE ? DIAG_TWIN_NONE : diag_twins_tell(d, last, c->reached, &left);
    return *came == DIAG_TWIN_OTHER && gone == DIAG_TWIN_SAME   ? 1
           : *came == DIAG_TWIN_SAME && gone == DIAG_TWIN_OTHER ? -1
                                                                : 0;
}

/* Has one of the two left its own loop on this communicator, and the other not? 1: who came, -1: who left. */
static int by_history(struct classify *c, const struct diag_wait *wait, struct sides sides,
                      struct diag_departure *departure)
{
    struct diag *d = c->d;
    struct diag_habit came, gone;
    enum diag_twin like;
    /* Creations are no part of a loop. */
    if (sides.ncame != 1 || sides.ngone != 1 || d->procs[sides.came].gap_ns || d->procs[sides.gone].gap_ns ||
        wait->kind == DIAG_WAIT_CREATE)
        return 0;
    uint32_t op = d->matches[wait->match].first_op,
             end = d->procs[sides.gone].first + d->procs[sides.gone].count;
    int twins = by_twins(c, op, sides, &like, departure);
    if (twins)
        return twins;
    struct diag_question call = diag_asks(&d->ops[op], false), counterpart = diag_asks(&d->ops[op], true);
    diag_habit(d, sides.came, &call, op, &came);
    diag_habit(d, sides.gone, &counterpart, end, &gone);
    *departure = came.left ? came.departure : gone.departure;
    came.left = came.left && like != DIAG_TWIN_SAME; /* what others did as well is how the program goes on */
    return came.left && came.back && !gone.left && !gone.due ? 1
           : gone.left && came.kept && !came.left            ? -1
                                                             : 0;
}

/*
 * How sure is it, where nothing decides? A majority that is none for sure names nobody. Messages go on from
 * rank to rank, so that one too many may follow from what a member did that is not recorded, unless it is
 * what the loop of the one that waits foretold.
 */
static enum classify_doubt undecided(struct diag *d, const struct diag_wait *wait, struct sides sides)
{
    if (sides.ncame != sides.ngone || classify_other_signal(d, wait))
        return CLASSIFY_OPEN;
    if (!pair_wait(d, wait))
        return CLASSIFY_EVEN;
    const struct diag_match *m = &d->matches[wait->match];
    if (wait->kind != DIAG_WAIT_P2P)
        return diag_hidden(d, wait->comm) || m->unseen || m->unknown || m->assumed ? CLASSIFY_OPEN
                                                                                   : CLASSIFY_PAIR;
    if (!diag_hidden(d, wait->comm))
        return CLASSIFY_PAIR;
    struct diag_question call = diag_asks(&d->ops[m->first_op], false);
    struct diag_habit came;
    diag_habit(d, sides.came, &call, m->first_op, &came);
    return came.kept && !came.left && !d->procs[sides.came].gap_ns ? CLASSIFY_PAIR : CLASSIFY_OPEN;
}

const struct diag_op *classify_other_signal(const struct diag *d, const struct diag_wait *wait)
{
    const struct diag_match *m = wait->kind == DIAG_WAIT_P2P ? &d->matches[wait->match] : NULL;
    const struct rec_member *from = m && m->onesided ? diag_member_at(m->comm, m->src) : NULL,
                            *to = from ? diag_member_at(m->comm, m->dst) : NULL;
    if (!to)
        return NULL;
    const struct diag_proc *proc = &d->procs[diag_index(d, from->process)];
    for (uint32_t i = proc->first; i < proc->first + proc->count; i++) {
        const struct diag_op *op = &d->ops[i];
        if (op->match != DIAG_NONE && op->member == from && d->matches[op->match].onesided &&
            diag_sends(&op->op) && op->op.peer == m->dst && op->op.signal != m->signal &&
            op->op.seq >= job_signals(to->process, to->comm_id, m->src, false, op->op.signal))
            return op;
    }
    return NULL;
}

/* Decided by what else was found: who is wrong elsewhere is wrong here. */
static bool attach(struct classify *c, const struct diag_wait *wait, struct sides sides)
{
    uint32_t finding = culprit_of(c, sides.gone);
    finding = finding ? finding : culprit_of(c, sides.came);
    if (finding)
        classify_more_victims(c, wait, finding - 1);
    return finding != 0;
}

static void decide_tie(struct classify *c, const struct diag_wait *wait, const uint32_t *tally)
{
    struct diag *d = c->d;
    struct diag_partner *partners;
    size_t count = diag_partners(d, wait, &partners);
    struct sides sides = sides_of(c, wait, partners, count);
    struct diag_departure departure;
    if (d->oom || sides.came == DIAG_NONE || sides.gone == DIAG_NONE || attach(c, wait, sides)) {
        free(partners);
        return;
    }
    int side = 0;
    if (sides.ncame == sides.ngone)
        side = (tally[sides.came] > tally[sides.gone]) - (tally[sides.came] < tally[sides.gone]);
    int history = side ? 0 : by_history(c, wait, sides, &departure);
    if (history > 0)
        classify_one_too_many(c, wait, sides.came, sides.gone, &departure);
    else if (side > 0)
        classify_few(c, wait, sides.ngone);
    else if (side < 0 || history < 0)
        classify_partners(c, wait, partners, count, CLASSIFY_RULED);
    else
        classify_partners(c, wait, partners, count, undecided(d, wait, sides));
    free(partners);
}

/* How many ties a process alone would explain. */
static void count_ties(struct classify *c, uint32_t *tally)
{
    for (size_t i = 0; i < c->nties && !c->d->oom; i++) {
        struct diag_partner *partners;
        const struct diag_wait *wait = &c->d->waits[c->ties[i]];
        size_t count = diag_partners(c->d, wait, &partners);
        struct sides sides = sides_of(c, wait, partners, count);
        if (sides.ncame == 1 && sides.ngone == 1 && sides.came != DIAG_NONE) {
            tally[sides.came]++;
            tally[sides.gone]++;
        }
        free(partners);
    }
}

void classify_ties(struct classify *c)
{
    uint32_t *tally = calloc(c->d->nprocs + 1, sizeof *tally);
    if (!tally) {
        c->d->oom = true;
        return;
    }
    count_ties(c, tally);
    for (size_t i = 0; i < c->nties && !c->d->oom; i++) {
        const struct diag_wait *wait = &c->d->waits[c->ties[i]];
        size_t before = c->d->nfindings;
        decide_tie(c, wait, tally);
        if (wait->over)
            classify_over(c->d, before);
    }
    free(tally);
}
