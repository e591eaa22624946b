/*
 * The wait-for graph: processes and waits as nodes. A process points to the waits that it is
 * blocked in, a wait to the processes that must still do something. Strongly connected
 * components come in the order in which Tarjan's algorithm closes them: what a component
 * depends on has a smaller number.
 */
#include "diag.h"

#include <stdlib.h>
#include <string.h>

/* An unfinished creation whose absent members nobody can name: any process outside it may be one. */
static void add_guesses(struct diag *d, uint32_t wait_index)
{
    const struct diag_wait *wait = &d->waits[wait_index];
    size_t first = d->nedges;
    bool all_wait = true;
    for (uint32_t p = 0; p < d->nprocs && all_wait && !d->oom; p++) {
        bool member = false;
        for (uint32_t i = 0; i < d->procs[p].p->nmembers && !member; i++)
            member = d->procs[p].p->members[i]->comm == wait->comm;
        if (member)
            continue;
        all_wait = d->procs[p].waits;
        if (DIAG_ROOM(d, edges, d->nedges))
            d->edges[d->nedges++] =
                (struct diag_edge){(uint32_t)d->nprocs + wait_index, p, DIAG_NONE, DIAG_MAYBE};
    }
    uint32_t expected = d->expected;
    /* Only when each possible member is blocked itself does the knot follow. */
    if (!all_wait || (expected && d->nprocs < expected))
        d->nedges = first;
}

static void add_wait_edges(struct diag *d, uint32_t wait_index)
{
    const struct diag_wait *wait = &d->waits[wait_index];
    if (wait->never != DIAG_NEVER_NO)
        return; /* whatever the others do, it stays blocked: the graph ends here */
    struct diag_partner *partners;
    size_t count = diag_partners(d, wait, &partners);
    for (size_t i = 0; i < count && DIAG_ROOM(d, edges, d->nedges); i++)
        d->edges[d->nedges++] = (struct diag_edge){(uint32_t)d->nprocs + wait_index, partners[i].proc,
                                                   partners[i].op, partners[i].reason};
    free(partners);
    if (!count && wait->kind == DIAG_WAIT_CREATE && d->matches[wait->match].unseen)
        add_guesses(d, wait_index);
}

/*
 * What keeps a GPU from reaching an op may be another op, on another stream, in which the same process
 * waits. Then it does not wait in the first: those who do wait for it.
 */
static void turn_not_reached(struct diag *d)
{
    bool *waits = calloc(d->nprocs + 1, sizeof *waits);
    if (!waits) {
        d->oom = true;
        return;
    }
    for (size_t i = 0; i < d->nedges; i++)
        if (!diag_not_reached(d, &d->ops[d->edges[i].op]))
            waits[d->edges[i].from] = true;
    for (size_t i = 0; i < d->nedges; i++) {
        struct diag_edge *edge = &d->edges[i];
        if (waits[edge->from] && diag_not_reached(d, &d->ops[edge->op]))
            *edge = (struct diag_edge){edge->to, edge->from, edge->op, DIAG_BEHIND};
    }
    free(waits);
}

/* Who died inside is awaited where it came, and waits there no more. */
static void drop_the_dead(struct diag *d)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->nedges; i++) {
        const struct diag_edge *edge = &d->edges[i];
        const struct diag_wait *wait = edge->reason == DIAG_WAITS ? &d->waits[edge->to - d->nprocs] : NULL;
        const struct diag_match *m = wait && wait->never == DIAG_NEVER_NO && wait->match != DIAG_NONE
                                         ? &d->matches[wait->match]
                                         : NULL;
        const struct diag_op *op = &d->ops[edge->op];
        if (!m || !m->unfinished || op->done || !diag_died_inside(d, m, op))
            d->edges[kept++] = *edge;
    }
    d->nedges = kept;
}

/* In-flight work is no wait: only what is stale, or can never end, enters the graph. */
static bool enters(const struct diag_wait *wait)
{
    return wait->stale || wait->never != DIAG_NEVER_NO;
}

/* Did nobody wait at this wait for one that waited itself at the time? since: by process, of its first wait.
 */
static bool ends_here(struct diag *d, const struct diag_wait *wait, const uint64_t *since)
{
    struct diag_partner *partners;
    size_t count = wait->never == DIAG_NEVER_NO ? diag_partners(d, wait, &partners) : 0;
    bool leaf = true;
    for (size_t i = 0; i < count; i++)
        leaf = leaf && since[partners[i].proc] + DIAG_ONE_END_NS > wait->stopped[0];
    if (wait->never == DIAG_NEVER_NO)
        free(partners);
    return leaf;
}

/*
 * Waits that are over say nothing about who waits in the end, so their edges are set aside; but only if none
 * of them is explained by another one, for then they belong together.
 */
static void set_past_aside(struct diag *d)
{
    uint64_t *since = malloc((d->nprocs + 1) * sizeof *since);
    bool apart = true;
    d->past = malloc((d->nedges + 1) * sizeof *d->past);
    d->oom = d->oom || !since || !d->past;
    for (size_t p = 0; p < d->nprocs && !d->oom; p++)
        since[p] = UINT64_MAX - DIAG_ONE_END_NS;
    for (size_t i = 0; i < d->nedges && !d->oom; i++) {
        uint64_t began = d->ops[d->edges[i].op].op.enter_ns;
        if (began < since[d->edges[i].from])
            since[d->edges[i].from] = began;
    }
    for (size_t i = 0; i < d->nwaits && !d->oom && apart; i++)
        apart = !d->waits[i].over || !enters(&d->waits[i]) || ends_here(d, &d->waits[i], since);
    size_t kept = 0;
    for (size_t i = 0; i < d->nedges && !d->oom; i++) {
        struct diag_wait *wait = &d->waits[d->edges[i].to - d->nprocs];
        wait->over = wait->over && apart;
        if (wait->over)
            d->past[d->npast++] = d->edges[i];
        else
            d->edges[kept++] = d->edges[i];
    }
    d->nedges = kept;
    free(since);
}

static int by_from(const void *a, const void *b)
{
    const struct diag_edge *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

static bool index_edges(struct diag *d)
{
    size_t nodes = diag_nodes(d);
    d->edge_start = calloc(nodes + 1, sizeof *d->edge_start);
    if (!d->edge_start)
        return false;
    if (d->nedges)
        qsort(d->edges, d->nedges, sizeof *d->edges, by_from);
    for (size_t i = 0; i < d->nedges; i++)
        d->edge_start[d->edges[i].from + 1]++;
    for (size_t i = 0; i < nodes; i++)
        d->edge_start[i + 1] += d->edge_start[i];
    return true;
}

/* Tarjan without recursion. */
struct tarjan {
    uint32_t *index, *low, *next, *stack, *path;
    uint32_t counter, stacked, depth;
};

static void enter(struct diag *d, struct tarjan *t, uint32_t node)
{
    t->index[node] = t->low[node] = ++t->counter;
    t->next[node] = d->edge_start[node];
    t->stack[t->stacked++] = node;
    t->path[t->depth++] = node;
}

static void leave(struct diag *d, struct tarjan *t, uint32_t node)
{
    t->depth--;
    if (t->depth && t->low[node] < t->low[t->path[t->depth - 1]])
        t->low[t->path[t->depth - 1]] = t->low[node];
    if (t->low[node] != t->index[node])
        return;
    uint32_t member;
    do {
        member = t->stack[--t->stacked];
        d->component[member] = d->ncomponents;
    } while (member != node);
    d->ncomponents++;
}

static void components(struct diag *d, struct tarjan *t)
{
    for (uint32_t root = 0; root < diag_nodes(d); root++) {
        if (t->index[root])
            continue;
        enter(d, t, root);
        while (t->depth) {
            uint32_t node = t->path[t->depth - 1];
            if (t->next[node] == d->edge_start[node + 1]) {
                leave(d, t, node);
                continue;
            }
            uint32_t to = d->edges[t->next[node]++].to;
            if (!t->index[to])
                enter(d, t, to);
            else if (d->component[to] == DIAG_NONE && t->index[to] < t->low[node])
                t->low[node] = t->index[to];
        }
    }
}

void diag_build_graph(struct diag *d)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->nedges; i++)
        if (enters(&d->waits[d->edges[i].to - d->nprocs]))
            d->edges[kept++] = d->edges[i];
    d->nedges = kept;
    set_past_aside(d);
    turn_not_reached(d);
    drop_the_dead(d);
    for (uint32_t i = 0; i < d->nwaits && !d->oom; i++)
        if (enters(&d->waits[i]))
            add_wait_edges(d, i);
    size_t nodes = diag_nodes(d);
    d->component = malloc((nodes + 1) * sizeof *d->component);
    uint32_t *memory = calloc(nodes * 5 + 1, sizeof *memory);
    if (d->oom || !d->component || !memory || !index_edges(d)) {
        d->oom = true;
        free(memory);
        return;
    }
    memset(d->component, 0xff, (nodes + 1) * sizeof *d->component);
    struct tarjan t = {.index = memory,
                       .low = memory + nodes,
                       .next = memory + nodes * 2,
                       .stack = memory + nodes * 3,
                       .path = memory + nodes * 4};
    components(d, &t);
    free(memory);
}
