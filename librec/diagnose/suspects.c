/*
 * Which single process could be the reason of a knot? In a job without a fault nobody waits in a
 * circle, so one that is alone at fault stands in every circle: were it not there, all the others would
 * come free. Of a process with several waits on different streams or threads nobody knows which one
 * keeps it from the next call, so here one that comes free is enough.
 */
#include "classify.h"
#include "sides.h"

#include <stdlib.h>
#include <string.h>

/* ---- the circle ---- */

size_t classify_cycle(struct classify *c, uint32_t component, uint32_t start, uint32_t *path, size_t max)
{
    struct diag *d = c->d;
    size_t nodes = diag_nodes(d);
    uint32_t *via = malloc(nodes * sizeof *via);
    if (!via) {
        d->oom = true;
        return 0;
    }
    memset(via, 0xff, nodes * sizeof *via);
    size_t used = 0, length = 0;
    uint32_t closing = DIAG_NONE;
    c->queue[used++] = start;
    for (size_t at = 0; at < used && closing == DIAG_NONE; at++) {
        uint32_t node = c->queue[at];
        for (uint32_t e = d->edge_start[node]; e < d->edge_start[node + 1]; e++) {
            uint32_t to = d->edges[e].to;
            if (!classify_inside(d, to, component))
                continue;
            if (to == start) {
                closing = e;
                break;
            }
            if (via[to] == DIAG_NONE) {
                via[to] = e;
                c->queue[used++] = to;
            }
        }
    }
    for (uint32_t e = closing; e != DIAG_NONE && length < max; e = via[d->edges[e].from]) {
        path[length++] = e;
        if (d->edges[e].from == start)
            break;
    }
    free(via);
    for (size_t i = 0; i < length / 2; i++) {
        uint32_t swap = path[i];
        path[i] = path[length - 1 - i];
        path[length - 1 - i] = swap;
    }
    return length;
}

/* ---- who alone could have caused it ---- */

/* Work that is done before none is looked for: processes × edges. */
#define WORK_MAX 50000000u

/* Does it wait in more than one launch? */
static bool has_choice(const struct diag *d, uint32_t proc)
{
    uint32_t first = d->edge_start[proc];
    for (uint32_t e = first + 1; e < d->edge_start[proc + 1]; e++)
        if (d->edges[e].op == DIAG_NONE || d->edges[first].op == DIAG_NONE ||
            d->ops[d->edges[e].op].unit != d->ops[d->edges[first].op].unit)
            return true;
    return false;
}

/* Would everybody in the knot come free if this process did? need is scratch, by node. */
static bool frees_all(struct classify *c, uint32_t component, uint32_t proc, uint32_t *need)
{
    const struct diag *d = c->d;
    size_t used = 0, size = 0;
    for (uint32_t node = 0; node < diag_nodes(d); node++) {
        if (!classify_inside(d, node, component))
            continue;
        size++;
        need[node] =
            node < d->nprocs && has_choice(d, node) ? 1 : d->edge_start[node + 1] - d->edge_start[node];
    }
    need[proc] = 0;
    c->queue[used++] = proc;
    for (size_t at = 0; at < used; at++) {
        uint32_t node = c->queue[at];
        for (uint32_t r = c->reverse_start[node]; r < c->reverse_start[node + 1]; r++) {
            uint32_t from = c->reverse_from[r];
            if (classify_inside(d, from, component) && need[from] && !--need[from])
                c->queue[used++] = from;
        }
    }
    return used == size;
}

/* The processes of the knot, or only those on one circle where all circles are real. */
static size_t candidates(struct classify *c, uint32_t component, uint32_t *procs)
{
    struct diag *d = c->d;
    size_t count = 0;
    bool choice = false;
    for (uint32_t p = 0; p < d->nprocs; p++) {
        if (!classify_inside(d, p, component))
            continue;
        procs[count++] = p;
        choice = choice || has_choice(d, p);
    }
    uint32_t path[CLASSIFY_CYCLE_MAX];
    size_t length = choice || !count ? 0 : classify_cycle(c, component, procs[0], path, CLASSIFY_CYCLE_MAX);
    if (!length || length == CLASSIFY_CYCLE_MAX)
        return count;
    count = 0;
    for (size_t i = 0; i < length; i++)
        if (d->edges[path[i]].from < d->nprocs)
            procs[count++] = d->edges[path[i]].from;
    return count;
}

static void add_suspect(struct classify_suspects *s, uint32_t proc)
{
    if (s->count < CLASSIFY_SUSPECTS_MAX)
        s->procs[s->count] = proc;
    s->count++;
}

void classify_suspects(struct classify *c, uint32_t component, bool guessed, struct classify_suspects *s)
{
    struct diag *d = c->d;
    *s = (struct classify_suspects){0};
    uint32_t *procs = malloc((d->nprocs + 1) * sizeof *procs);
    uint32_t *need = malloc((diag_nodes(d) + 1) * sizeof *need);
    size_t count = procs && need && !guessed ? candidates(c, component, procs) : 0;
    d->oom = d->oom || !procs || !need;
    if (count * (d->nedges + diag_nodes(d)) < WORK_MAX)
        for (size_t i = 0; i < count && !d->oom; i++)
            if (frees_all(c, component, procs[i], need))
                add_suspect(s, procs[i]);
    s->alone = s->count > 0;
    for (uint32_t p = 0; p < d->nprocs && !s->alone; p++)
        if (classify_inside(d, p, component))
            add_suspect(s, p);
    if (s->count > CLASSIFY_SUSPECTS_MAX) {
        s->alone = false;
        s->count = 0;
    }
    free(procs);
    free(need);
}

/* ---- who does other than its siblings? ---- */

/* Each pair of so many is looked at. */
#define ODD_MAX 8

/* By what the siblings of a's communicators did at what b waits in, or the other way round; DIAG_NONE. */
static uint32_t odd_of_two(const struct diag *d, uint32_t component, uint32_t a, uint32_t b)
{
    for (uint32_t e = d->edge_start[a]; e < d->edge_start[a + 1]; e++)
        for (uint32_t f = d->edge_start[b]; f < d->edge_start[b + 1]; f++) {
            const struct diag_edge *own = &d->edges[e], *common = &d->edges[f];
            if (!classify_inside(d, own->to, component) || !classify_inside(d, common->to, component) ||
                own->op == DIAG_NONE || common->op == DIAG_NONE || d->ops[own->op].match == DIAG_NONE ||
                d->ops[common->op].match == DIAG_NONE)
                continue;
            int order = diag_sibling_order(d, d->ops[own->op].match, d->ops[common->op].match);
            if (order)
                return order < 0 ? a : b;
        }
    return DIAG_NONE;
}

void classify_odd_sibling(struct classify *c, uint32_t component, struct classify_suspects *s)
{
    const struct diag *d = c->d;
    uint32_t odd = DIAG_NONE;
    if (s->nleft || !s->alone || s->count < 2 || s->count > ODD_MAX)
        return;
    for (size_t i = 0; i < s->count; i++)
        for (size_t j = 0; j < s->count; j++) {
            uint32_t one = i == j ? DIAG_NONE : odd_of_two(d, component, s->procs[i], s->procs[j]);
            if (one != DIAG_NONE && odd != DIAG_NONE && one != odd)
                return;
            odd = one == DIAG_NONE ? odd : one;
        }
    if (odd == DIAG_NONE)
        return;
    s->procs[0] = odd;
    s->count = 1;
    s->by_siblings = true;
}

/* ---- who left its loop? ---- */

/* Departures count that have to do with what the process waits in, or what others wait for from it. */
static bool left_for(struct classify *c, uint32_t proc, uint32_t component, struct diag_departure *what,
                     bool *kept)
{
    struct diag *d = c->d;
    struct diag_habit habit;
    *kept = false;
    uint32_t upto = d->procs[proc].first + d->procs[proc].count;
    for (uint32_t e = d->edge_start[proc]; e < d->edge_start[proc + 1]; e++) {
        if (!classify_inside(d, d->edges[e].to, component))
            continue;
        if (d->edges[e].op == DIAG_NONE || !d->ops[d->edges[e].op].member)
            continue;
        struct diag_question asked = diag_asks(&d->ops[d->edges[e].op], false);
        diag_habit(d, proc, &asked, d->edges[e].op, &habit);
        *kept = *kept || habit.kept;
        if (habit.left) {
            *what = habit.departure;
            return true;
        }
    }
    for (uint32_t r = c->reverse_start[proc]; r < c->reverse_start[proc + 1]; r++) {
        uint32_t wait = c->reverse_from[r];
        if (!classify_inside(d, wait, component))
            continue;
        struct diag_question asked = diag_asks(&d->ops[d->waits[wait - d->nprocs].op], true);
        diag_habit(d, proc, &asked, upto, &habit);
        if (habit.left) {
            *what = habit.departure;
            return true;
        }
    }
    return false;
}

/* What a process of the knot waits in; DIAG_NONE. */
static uint32_t blocked_op(const struct diag *d, uint32_t proc, uint32_t component)
{
    for (uint32_t e = d->edge_start[proc]; e < d->edge_start[proc + 1]; e++)
        if (classify_inside(d, d->edges[e].to, component) && d->edges[e].op != DIAG_NONE)
            return d->edges[e].op;
    return DIAG_NONE;
}

/* Have some called something else than their twins outside the knot, and all others the same? */
static bool by_twins(struct classify *c, uint32_t component, struct classify_suspects *s,
                     enum diag_twin *twins)
{
    const struct diag *d = c->d;
    size_t same = 0;
    for (uint32_t p = 0; p < d->nprocs; p++)
        c->reached[p] = classify_inside(d, p, component);
    for (size_t i = 0; i < s->count; i++) {
        uint32_t op = blocked_op(d, s->procs[i], component);
        twins[i] = op == DIAG_NONE ? DIAG_TWIN_NONE : diag_twins_tell(d, op, c->reached, &s->what[i]);
        s->left[i] = twins[i] == DIAG_TWIN_OTHER;
        s->nleft += s->left[i];
        same += twins[i] == DIAG_TWIN_SAME;
    }
    return s->nleft && s->nleft + same == s->count;
}

void classify_departures(struct classify *c, uint32_t component, struct classify_suspects *s)
{
    bool all_kept = true;
    enum diag_twin twins[CLASSIFY_SUSPECTS_MAX];
    s->nleft = 0;
    if (by_twins(c, component, s, twins))
        return;
    s->nleft = 0;
    for (size_t i = 0; i < s->count; i++) {
        bool kept = false;
        bool left = twins[i] == DIAG_TWIN_OTHER || left_for(c, s->procs[i], component, &s->what[i], &kept);
        all_kept = all_kept && (left || kept);
        /* What its twins did as well is how the program goes on. */
        s->left[i] = left && twins[i] != DIAG_TWIN_SAME;
        s->nleft += s->left[i];
    }
    if (!all_kept || s->nleft * 2 > s->count)
        s->nleft = 0;
}

bool classify_is_named(const struct classify_suspects *s, uint32_t proc)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->procs[i] == proc && (!s->nleft || s->left[i]))
            return true;
    return false;
}
