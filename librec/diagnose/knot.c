/* Knots: processes that wait for each other in a circle. */
#include "classify.h"

#include <inttypes.h>
#include <stdlib.h>

struct knot {
    uint32_t component;
    uint64_t since;
    uint32_t collectives, messages, others; /* waits by kind */
    bool maybe;                             /* rests on guessed members */
    uint32_t hidden; /* members of its communicators that are not recorded: of the one that lacks most */
    const struct rec_communicator *first_comm;
    bool several_comms;
    const struct diag_wait *first;
};

static void survey(const struct diag *d, struct knot *k)
{
    k->since = UINT64_MAX;
    for (size_t i = 0; i < d->nwaits; i++) {
        const struct diag_wait *wait = &d->waits[i];
        if (!classify_inside(d, (uint32_t)(d->nprocs + i), k->component))
            continue;
        if (wait->kind == DIAG_WAIT_COLL)
            k->collectives++;
        else if (wait->kind == DIAG_WAIT_P2P)
            k->messages++;
        else
            k->others++;
        k->several_comms = k->several_comms || (k->first_comm && k->first_comm != wait->comm);
        k->first_comm = wait->comm;
        uint32_t hidden = diag_hidden(d, wait->comm);
        k->hidden = hidden > k->hidden ? hidden : k->hidden;
        if (wait->since < k->since) {
            k->since = wait->since;
            k->first = wait;
        }
    }
    for (size_t i = 0; i < d->nedges; i++)
        if (d->edges[i].reason == DIAG_MAYBE && classify_inside(d, d->edges[i].from, k->component))
            k->maybe = true;
}

/* ---- was it rather one op that a few left out? ---- */

/*
 * Did most come to this wait and few not? Half count as most when several ranks agreed to
 * enter the only collective of the knot and the others sit in messages between two.
 */
static bool lacks_few(const struct diag *d, const struct knot *k, const struct diag_wait *wait)
{
    if (wait->kind == DIAG_WAIT_P2P || wait->kind == DIAG_WAIT_TEARDOWN)
        return false;
    const struct diag_match *m = &d->matches[wait->match];
    uint32_t lacking = m->absent + m->unseen + m->unknown + m->posted - m->active,
             entered = m->active + m->assumed;
    if (lacking && lacking == entered)
        return entered > 1 && k->collectives == 1 && k->messages && !k->others;
    return lacking && lacking < entered;
}

/* Does a process of the knot wait for one of these? Then it may be only its victim. */
static bool waits_for_one(const struct diag *d, uint32_t proc, const struct classify_suspects *few)
{
    for (uint32_t e = d->edge_start[proc]; e < d->edge_start[proc + 1]; e++) {
        uint32_t wait = d->edges[e].to;
        for (uint32_t i = d->edge_start[wait]; i < d->edge_start[wait + 1]; i++)
            if (classify_is_named(few, d->edges[i].to))
                return true;
    }
    return false;
}

/* Does one process alone wait for one other there? */
static bool between_two(const struct diag *d, uint32_t wait)
{
    const struct diag_wait *w = &d->waits[wait - d->nprocs];
    if (w->kind == DIAG_WAIT_P2P)
        return true;
    return w->match != DIAG_NONE && !d->matches[w->match].unseen && w->waiters == 1 &&
           d->edge_start[wait + 1] - d->edge_start[wait] == 1;
}

/*
 * One that is absent because it waits for one of those that came: either may have left out its
 * part, so this is a circle of two and no exception.
 */
static bool one_against_one(const struct diag *d, const struct classify_suspects *few)
{
    if (few->count != 1)
        return false;
    for (uint32_t e = d->edge_start[few->procs[0]]; e < d->edge_start[few->procs[0] + 1]; e++)
        if (!between_two(d, d->edges[e].to))
            return false;
    return true;
}

/*
 * Those who are absent where most came, and wait for something to which few came: they took another
 * way. In a job that does the same on many communicators there are many such waits; then those absent
 * from them must be the fewer of all. The first of these waits; NULL when the circle is symmetric.
 */
static const struct diag_wait *lopsided(struct diag *d, const struct knot *k, struct classify_suspects *few)
{
    const struct diag_wait *first = NULL;
    size_t waits = 0, members = 0;
    few->count = few->nleft = 0;
    for (size_t i = 0; i < d->nwaits && few->count <= CLASSIFY_SUSPECTS_MAX; i++) {
        const struct diag_wait *wait = &d->waits[i];
        if (!classify_inside(d, (uint32_t)(d->nprocs + i), k->component) || !lacks_few(d, k, wait))
            continue;
        /* Who has it behind other work chose another order, but skipped nothing. */
        if (d->matches[wait->match].active < d->matches[wait->match].posted)
            return NULL;
        waits++;
        first = first && first->since <= wait->since ? first : wait;
        struct diag_partner *partners;
        for (size_t count = diag_partners(d, wait, &partners), j = 0; j < count; j++)
            if (partners[j].reason == DIAG_ABSENT && !classify_is_named(few, partners[j].proc) &&
                few->count++ < CLASSIFY_SUSPECTS_MAX)
                few->procs[few->count - 1] = partners[j].proc;
        free(partners);
    }
    for (uint32_t p = 0; p < d->nprocs; p++)
        members += classify_inside(d, p, k->component);
    if (!first || !few->count || few->count > CLASSIFY_SUSPECTS_MAX ||
        (waits > 1 && few->count * 2 >= members) || one_against_one(d, few))
        return NULL;
    /* They went together only if none of them just waits for another of them. */
    for (size_t i = 0; i < few->count; i++)
        if (waits_for_one(d, few->procs[i], few))
            return NULL;
    return first;
}

/* The first wait of the knot at which nobody but those named is absent: what they left out. */
static const struct diag_wait *left_out(struct diag *d, const struct knot *k,
                                        const struct classify_suspects *s)
{
    const struct diag_wait *best = NULL;
    for (size_t i = 0; i < d->nwaits; i++) {
        uint32_t node = (uint32_t)(d->nprocs + i);
        if (!classify_inside(d, node, k->component) || d->waits[i].never != DIAG_NEVER_NO)
            continue;
        bool all = d->edge_start[node] < d->edge_start[node + 1];
        for (uint32_t e = d->edge_start[node]; e < d->edge_start[node + 1] && all; e++)
            all = d->edges[e].reason == DIAG_ABSENT && classify_is_named(s, d->edges[e].to);
        if (all && (!best || d->waits[i].since < best->since))
            best = &d->waits[i];
    }
    return best;
}

/* What one process waits in, as a call; NULL when it waits in several. */
static const struct diag_op *waits_in(const struct diag *d, uint32_t proc)
{
    if (d->edge_start[proc] + 1 != d->edge_start[proc + 1])
        return NULL;
    uint32_t op = d->edges[d->edge_start[proc]].op;
    return op == DIAG_NONE ? NULL : &d->ops[op];
}

static bool one_place(const struct diag_op *a, const struct diag_op *b)
{
    return a->match == b->match && a->match != DIAG_NONE;
}

/* What so many do instead: "called … where it had always called …", or where they wait, if that is one place.
 */
static void say_instead(struct diag *d, struct diag_text *t, size_t count, const struct diag_op *instead,
                        const struct diag_departure *left)
{
    if (left && count == 1) {
        diag_printf(t, " called ");
        diag_say_call(t, &d->ops[left->op]);
        diag_say_place(t, d->procs[d->ops[left->op].proc].p, &d->ops[left->op].op);
        diag_printf(t, " where ");
        if (left->seen)
            diag_printf(t, "it had always called ");
        else
            diag_say_twin(d, t, left);
        diag_say_call(t, &d->ops[left->expected]);
    } else if (instead) {
        diag_printf(t, count == 1 ? " waits in " : " wait in ");
        if (count == 1)
            diag_say_call(t, instead);
        else
            diag_say_ops(t, &instead->op, instead->member ? instead->member->comm : NULL, -1, -1);
        diag_say_places(d, t, instead);
        if (instead->member) {
            diag_printf(t, " of ");
            diag_say_comm(t, instead->member->comm);
        }
        diag_printf(t, " instead");
    } else {
        diag_printf(t, count == 1 ? " waits elsewhere instead" : " wait elsewhere instead");
    }
}

static void evidence_instead(struct diag *d, struct rec_finding *f, uint32_t proc)
{
    for (uint32_t e = d->edge_start[proc]; e < d->edge_start[proc + 1]; e++)
        if (d->edges[e].op != DIAG_NONE && f->nevidence < 6)
            diag_evidence_op(d, f, &d->ops[d->edges[e].op], "waits instead in");
}

/* What decided between those who could have caused the knot. */
static void evidence_why(struct diag *d, struct rec_finding *f, const struct classify_suspects *s)
{
    size_t told = 0;
    if (s->by_siblings)
        diag_evidence(d, f, NULL, UINT64_MAX, 0,
                      "on communicators with the same calls up to there, all did what the others of the "
                      "circle did");
    for (size_t i = 0; s->nleft && i < s->count && told < 4; i++) {
        if (!s->left[i])
            continue;
        diag_evidence_departure(d, f, &s->what[i]);
        told++;
    }
}

static void blame_few_absent(struct classify *c, const struct diag_wait *wait,
                             const struct classify_suspects *s)
{
    struct diag *d = c->d;
    bool creation = wait->kind == DIAG_WAIT_CREATE && d->matches[wait->match].unseen;
    enum rec_verdict_type type = creation                      ? REC_VERDICT_INIT_INCOMPLETE
                                 : wait->kind == DIAG_WAIT_P2P ? REC_VERDICT_P2P_UNMATCHED
                                                               : REC_VERDICT_RANK_NOT_JOINED;
    struct rec_finding *f = diag_finding(d, type, REC_CONF_LIKELY, DIAG_TIER_ROOT, wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    struct diag_partner *partners;
    size_t count = diag_partners(d, wait, &partners);
    uint32_t only = DIAG_NONE;
    const struct diag_departure *left = NULL;
    const struct diag_op *instead = NULL;
    for (size_t i = 0; i < s->count; i++) {
        if (s->nleft && !s->left[i])
            continue;
        const struct diag_op *there = waits_in(d, s->procs[i]);
        instead = only == DIAG_NONE || (instead && there && one_place(instead, there)) ? there : NULL;
        only = s->procs[i];
        left = s->nleft ? &s->what[i] : NULL;
        diag_blame(d, f, DIAG_CULPRIT, d->procs[only].p->rank);
        c->blamed[only] = (uint32_t)d->nfindings;
    }
    diag_sort_ranks(f->culprits, &f->nculprits);
    struct diag_text t = {0};
    if (f->nculprits == 1)
        diag_say_proc(&t, d->procs[only].p);
    else
        diag_say_ranks(&t, f->culprits, f->nculprits);
    say_instead(d, &t, f->nculprits, instead, left);
    classify_say_while(c, &t, wait, 0);
    diag_summary(d, f, &t);
    for (size_t i = 0; i < count; i++)
        if (partners[i].reason == DIAG_ABSENT)
            evidence_instead(d, f, partners[i].proc);
    diag_evidence_op(d, f, &d->ops[wait->op], "waits in");
    evidence_why(d, f, s);
    free(partners);
    classify_waiting(c, f, wait);
}

/* ---- the circle ---- */

static void tell_cycle(struct classify *c, struct rec_finding *f, const struct knot *k, struct diag_text *t)
{
    struct diag *d = c->d;
    uint32_t path[CLASSIFY_CYCLE_MAX];
    uint32_t start = 0;
    while (start < d->nprocs && !classify_inside(d, start, k->component))
        start++;
    size_t length = classify_cycle(c, k->component, start, path, CLASSIFY_CYCLE_MAX);
    if (k->maybe) {
        diag_printf(t, ": each waits in the creation of a communicator (%s), since ",
                    rec_kind_name(d->ops[k->first->op].op.kind));
        diag_say_time(d, t, k->since);
        diag_printf(t, ", for a member that is itself inside another one");
        for (size_t i = 0; i < length; i++)
            if (d->edges[path[i]].op != DIAG_NONE && d->edges[path[i]].reason == DIAG_WAITS)
                diag_evidence_op(d, f, &d->ops[d->edges[path[i]].op], "waits in");
        return;
    }
    diag_printf(t, ": ");
    for (size_t i = 0; i < length; i++) {
        const struct diag_edge *edge = &d->edges[path[i]];
        if (edge->reason != DIAG_WAITS)
            continue;
        if (i < 12) {
            diag_printf(t, "rank %d → ", (int)d->procs[edge->from].p->rank);
            diag_say_call(t, &d->ops[edge->op]);
            if (k->several_comms && d->ops[edge->op].member) {
                diag_printf(t, " of ");
                diag_say_comm_name(t, d->ops[edge->op].member->comm);
            }
            diag_printf(t, " → ");
        } else if (i == 12 || i == 13) {
            diag_printf(t, "… → ");
        }
        diag_evidence_op(d, f, &d->ops[edge->op], "waits in");
    }
    diag_printf(t, "rank %d, ", (int)d->procs[start].p->rank);
    if (!k->several_comms) {
        diag_printf(t, "on ");
        diag_say_comm(t, k->first_comm);
        diag_printf(t, ", ");
    }
    diag_printf(t, "since ");
    diag_say_time(d, t, k->since);
}

/*
 * In a circle of collectives every process has one in front. Where one has most of the
 * processes in front of it, the others chose another order. Marks them in c->reached.
 */
static bool exceptions(struct classify *c, const struct knot *k)
{
    struct diag *d = c->d;
    uint32_t best = 0, members = 0, usual = 0;
    for (uint32_t p = 0; p < d->nprocs; p++)
        members += classify_inside(d, p, k->component);
    for (size_t i = 0; i < d->nwaits; i++) {
        uint32_t node = (uint32_t)(d->nprocs + i), fronts = 0;
        if (!classify_inside(d, node, k->component))
            continue;
        for (uint32_t r = c->reverse_start[node]; r < c->reverse_start[node + 1]; r++)
            fronts += classify_inside(d, c->reverse_from[r], k->component);
        if (fronts > best) {
            best = fronts;
            usual = node;
        }
    }
    if (best * 2 <= members + k->hidden)
        return false;
    for (uint32_t p = 0; p < d->nprocs; p++)
        c->reached[p] = classify_inside(d, p, k->component);
    for (uint32_t r = c->reverse_start[usual]; r < c->reverse_start[usual + 1]; r++)
        c->reached[c->reverse_from[r]] = false;
    return true;
}

/* Who is to blame, in c->reached; false: nobody is more so than the others of the knot. */
static bool choose(struct classify *c, const struct knot *k, bool order, const struct classify_suspects *s)
{
    struct diag *d = c->d;
    for (uint32_t p = 0; p < d->nprocs; p++)
        c->reached[p] = classify_inside(d, p, k->component) && (!s->count || classify_is_named(s, p));
    if (s->nleft || (s->alone && s->count == 1))
        return true;
    return !s->alone && order && exceptions(c, k);
}

static bool by_twins(const struct classify_suspects *s)
{
    for (size_t i = 0; s->nleft && i < s->count; i++)
        if (s->left[i])
            return !s->what[i].seen;
    return false;
}

static const char *knot_words(bool order, bool graphs, bool some, const struct classify_suspects *s)
{
    if (order && graphs)
        return some ? "launched graphs in another order than the others"
                    : "launched graphs in different orders and wait for each other";
    if (some && order)
        return "issued collectives of several communicators in another order than the others";
    if (some && by_twins(s))
        return "called something else than those with the same calls before, and now all wait for each other "
               "in a circle";
    if (some && s->nleft)
        return "left the loop of calls repeated before, and now all wait for each other in a circle";
    if (some)
        return "stands in every circle in which ranks wait for each other";
    return order ? "issued collectives of several communicators in different orders and wait for each other"
                 : "wait for each other in a circle";
}

static void suspect_hidden(struct diag *d, struct rec_finding *f, uint32_t component)
{
    for (size_t i = 0; i < d->nwaits; i++)
        if (classify_inside(d, (uint32_t)(d->nprocs + i), component))
            diag_suspect_hidden(d, f, d->waits[i].comm);
}

/* Who may be wrong in this knot, which is marked in c->reached, as culprits or as suspects. */
static void blame_knot(struct classify *c, struct rec_finding *f, const struct knot *k, enum diag_list list)
{
    struct diag *d = c->d;
    for (uint32_t p = 0; p < d->nprocs; p++) {
        if (!classify_inside(d, p, k->component))
            continue;
        c->blamed[p] = (uint32_t)d->nfindings;
        if (c->reached[p])
            diag_blame(d, f, list, d->procs[p].p->rank);
    }
    diag_sort_ranks(f->culprits, &f->nculprits);
}

/* The ranks of the knot, or only those that are marked; returns how many these are. */
static size_t say_knot(struct classify *c, struct diag_text *t, const struct knot *k, bool marked)
{
    struct diag *d = c->d;
    int32_t *ranks = NULL;
    size_t count = 0, capacity = 0;
    for (uint32_t p = 0; p < d->nprocs; p++) {
        if (!classify_inside(d, p, k->component) || (marked && !c->reached[p]))
            continue;
        ranks = diag_grow(ranks, &capacity, count, sizeof *ranks, &d->oom);
        if (!d->oom)
            ranks[count++] = d->procs[p].p->rank;
    }
    diag_sort_ranks(ranks, &count);
    diag_say_ranks(t, ranks, count);
    free(ranks);
    return count;
}

/* How far the records tell who is wrong, after a circle of so many. */
static void say_undecided(struct classify *c, struct diag_text *t, const struct knot *k, size_t count)
{
    struct diag_text some = {0};
    if (say_knot(c, &some, k, true) < count && some.data)
        diag_printf(t, "; one of %s is wrong, the records do not tell which", some.data);
    else
        diag_printf(t, "; the records do not tell who of them is wrong");
    t->oom = t->oom || some.oom;
    free(some.data);
}

/*
 * Where members of its communicators are not recorded, the fault may be theirs: one of them may have left out
 * a call or made one too many, and those who wait for each other are victims. Only the past of one that left
 * its loop, or a majority that counts them as well, speaks against a recorded one then. After choose().
 */
static bool may_be_hidden(struct classify *c, const struct knot *k, bool some, bool order,
                          const struct classify_suspects *s)
{
    if (!k->hidden)
        return false;
    return !some || (!s->nleft && s->alone && !(order && exceptions(c, k)));
}

static void tell_knot(struct classify *c, const struct knot *k, const struct classify_suspects *s)
{
    struct diag *d = c->d;
    bool order = !k->others && !k->messages && k->several_comms;
    bool graphs = d->ops[k->first->op].op.kind == REC_GRAPH_LAUNCH;
    bool some = choose(c, k, order, s);
    bool hidden = may_be_hidden(c, k, some, order, s);
    /* Where nothing decides, all but one may be innocent. */
    enum rec_confidence sure = !hidden && some ? REC_CONF_LIKELY : REC_CONF_POSSIBLE;
    struct rec_finding *f = diag_finding(d, order ? REC_VERDICT_ORDER_INVERSION : REC_VERDICT_DEADLOCK_CYCLE,
                                         sure, DIAG_TIER_ROOT, k->since);
    uint32_t *nodes = malloc((d->nprocs + 1) * sizeof *nodes);
    if (!f || !nodes) {
        d->oom = true;
        free(nodes);
        return;
    }
    classify_place(c, f, k->first);
    struct diag_text t = {0};
    blame_knot(c, f, k, hidden ? DIAG_SUSPECT : DIAG_CULPRIT);
    if (hidden)
        suspect_hidden(d, f, k->component);
    size_t said = say_knot(c, &t, k, some);
    diag_printf(&t, " %s", knot_words(order, graphs, some, s));
    tell_cycle(c, f, k, &t);
    if (hidden)
        diag_printf(
            &t,
            "; what other members of these communicators did is not recorded, so who is wrong is not known");
    else if (!some)
        say_undecided(c, &t, k, said);
    diag_summary(d, f, &t);
    evidence_why(d, f, s);
    size_t count = 0;
    for (uint32_t p = 0; p < d->nprocs; p++)
        if (classify_inside(d, p, k->component))
            nodes[count++] = p;
    classify_reach(c, nodes, count);
    classify_victims(c, f);
    free(nodes);
}

/*
 * A circle through a process of which calls are missing may be none, and neither is one whose processes
 * may still wait for somebody who died.
 */
static bool doubtful(struct classify *c, uint32_t component)
{
    struct diag *d = c->d;
    bool unsure = false;
    for (uint32_t p = 0; p < d->nprocs; p++)
        unsure = unsure ||
                 (classify_inside(d, p, component) && (d->procs[p].gap_ns || d->procs[p].cut ||
                                                       (c->first_death != DIAG_NONE && d->procs[p].held)));
    for (uint32_t p = 0; p < d->nprocs && unsure; p++)
        d->procs[p].suspect = d->procs[p].suspect || classify_inside(d, p, component);
    return unsure;
}

/* The one that stands in every circle is in a collective, while others wait for its message. */
static bool went_past(const struct diag *d, const struct classify_suspects *s, const struct diag_wait *wait)
{
    const struct diag_op *op = s->count == 1 ? waits_in(d, s->procs[0]) : NULL;
    return op && wait->kind == DIAG_WAIT_P2P && (rec_kind_flags(op->op.kind) & REC_KF_COLL);
}

/* ---- a process that waits for itself ---- */

static uint32_t only_process(const struct diag *d, uint32_t component)
{
    uint32_t only = DIAG_NONE;
    for (uint32_t p = 0; p < d->nprocs; p++) {
        if (!classify_inside(d, p, component))
            continue;
        if (only != DIAG_NONE)
            return DIAG_NONE;
        only = p;
    }
    return only;
}

/* One that has several comm ranks: it came as one of them, and not as another. */
static void tell_own(struct classify *c, const struct knot *k, uint32_t proc)
{
    struct diag *d = c->d;
    const struct diag_wait *wait = k->first;
    const struct diag_op *op = NULL;
    for (uint32_t e = d->edge_start[proc]; e < d->edge_start[proc + 1]; e++)
        if (d->edges[e].to == classify_node(d, wait) && d->edges[e].op != DIAG_NONE)
            op = &d->ops[d->edges[e].op];
    struct diag_partner *partners = NULL;
    const struct rec_member *other = NULL;
    for (size_t i = op ? diag_partners(d, wait, &partners) : 0; i-- > 0;)
        if (partners[i].proc == proc && partners[i].member != op->member)
            other = partners[i].member;
    free(partners);
    if (!other)
        return;
    uint32_t thread = op->op.thread;
    for (uint32_t i = d->procs[proc].first; i < d->procs[proc].first + d->procs[proc].count; i++)
        if (d->ops[i].member == other)
            thread = d->ops[i].op.thread;
    struct rec_finding *f =
        diag_finding(d, thread == op->op.thread ? REC_VERDICT_DEADLOCK_CYCLE : REC_VERDICT_RANK_NOT_JOINED,
                     REC_CONF_LIKELY, DIAG_TIER_ROOT, wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    diag_blame(d, f, DIAG_CULPRIT, d->procs[proc].p->rank);
    c->blamed[proc] = (uint32_t)d->nfindings;
    struct diag_text t = {0};
    diag_say_proc(&t, d->procs[proc].p);
    diag_printf(&t, " waits for itself: it called ");
    diag_say_call(&t, op);
    diag_say_place(&t, d->procs[proc].p, &op->op);
    diag_printf(&t, ", op %" PRIu64 " of ", op->op.seq);
    diag_say_comm(&t, wait->comm);
    diag_printf(&t, ", as comm rank %" PRIu32 " but not as comm rank %" PRIu32, op->member->comm_rank,
                other->comm_rank);
    diag_summary(d, f, &t);
    diag_evidence_op(d, f, op, "waits in");
    classify_waiting(c, f, wait);
}

void classify_knot(struct classify *c, uint32_t component)
{
    struct diag *d = c->d;
    struct knot k = {.component = component};
    survey(d, &k);
    if (!k.first || doubtful(c, component))
        return;
    uint32_t only = only_process(d, component);
    if (only != DIAG_NONE) {
        tell_own(c, &k, only);
        return;
    }
    struct classify_suspects s;
    classify_suspects(c, component, k.maybe, &s);
    if (s.count > 1)
        classify_departures(c, component, &s);
    classify_odd_sibling(c, component, &s);
    bool one = s.nleft || (s.alone && s.count == 1);
    struct classify_suspects few = s;
    const struct diag_wait *skipped = one ? left_out(d, &k, &s) : s.alone ? NULL : lopsided(d, &k, &few);
    if (skipped && !one)
        s = few;
    if (skipped && (s.nleft || lacks_few(d, &k, skipped) || (!k.hidden && went_past(d, &s, skipped))))
        blame_few_absent(c, skipped, &s);
    else
        tell_knot(c, &k, &s);
}
