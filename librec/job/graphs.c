/*
 * CUDA graphs of a process: which collectives went into each, and how often it was launched. Calls are
 * captured early and replayed for hours, so this must outlast the tail.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "job/recall.h"

#define MAX_GRAPHS   65536
#define MAX_CAPTURED (1u << 18)

static bool captured(struct job_graphs *graphs, const struct rec_op *op)
{
    uint32_t at = job_map_get(&graphs->ids, op->launch << 32 | op->comm);
    if (at != JOB_MAP_NONE) {
        struct job_captured *item = &graphs->items[at];
        item->first = op->seq < item->first ? op->seq : item->first;
        item->last = op->seq > item->last ? op->seq : item->last;
        return true;
    }
    if (graphs->count == MAX_CAPTURED)
        return true;
    if (!job_grow(&graphs->items, &graphs->room, graphs->count + 1, sizeof(*graphs->items)) ||
        !job_map_put(&graphs->ids, op->launch << 32 | op->comm, (uint32_t)graphs->count))
        return false;
    graphs->items[graphs->count++] = (struct job_captured){(uint32_t)op->launch, op->comm, op->seq, op->seq};
    return true;
}

static bool launched(struct job_graphs *graphs, const struct rec_op *op)
{
    uint32_t at = job_map_get(&graphs->launch_ids, (uint32_t)op->peer);
    if (at == JOB_MAP_NONE) {
        at = (uint32_t)graphs->nlaunches;
        if (!job_grow(&graphs->launches, &graphs->launches_room, at + 1, sizeof(*graphs->launches)) ||
            !job_map_put(&graphs->launch_ids, (uint32_t)op->peer, at))
            return false;
        graphs->launches[graphs->nlaunches++] = 0;
    }
    if (op->seq + 1 > graphs->launches[at])
        graphs->launches[at] = op->seq + 1;
    return true;
}

bool job_graphs_op(struct job_graphs *graphs, const struct rec_op *op)
{
    if (op->kind == REC_GRAPH_LAUNCH)
        return op->peer <= 0 || op->peer >= MAX_GRAPHS || launched(graphs, op);
    if (!(op->flags & REC_OF_CAPTURED) || (op->flags & REC_OF_NO_SEQ) || op->launch == 0 ||
        op->launch >= MAX_GRAPHS || op->comm == REC_ID_NONE || !(rec_kind_flags(op->kind) & REC_KF_COLL))
        return true;
    return captured(graphs, op);
}

static int by_graph(const void *a, const void *b)
{
    const struct job_captured *x = a, *y = b;
    if (x->graph != y->graph)
        return x->graph < y->graph ? -1 : 1;
    return x->comm_id < y->comm_id ? -1 : x->comm_id > y->comm_id;
}

static int by_first(const void *a, const void *b)
{
    const struct job_captured *x = a, *y = b;
    if (x->comm_id != y->comm_id)
        return x->comm_id < y->comm_id ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

bool job_graphs_settle(struct job_graphs *graphs)
{
    job_map_free(&graphs->ids);
    if (!graphs->count)
        return true;
    graphs->by_comm = malloc(graphs->count * sizeof(*graphs->by_comm));
    if (!graphs->by_comm)
        return false;
    memcpy(graphs->by_comm, graphs->items, graphs->count * sizeof(*graphs->by_comm));
    qsort(graphs->items, graphs->count, sizeof(*graphs->items), by_graph);
    qsort(graphs->by_comm, graphs->count, sizeof(*graphs->by_comm), by_first);
    return true;
}

size_t job_captured(const struct rec_process *process, uint32_t graph, const struct job_captured **items)
{
    const struct job_graphs *graphs = &job_process_of(process)->recall.graphs;
    size_t low = 0, high = graphs->count;
    *items = NULL;
    if (high == 0)
        return 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (graphs->items[middle].graph < graph)
            low = middle + 1;
        else
            high = middle;
    }
    *items = graphs->items + low;
    size_t count = 0;
    while (low + count < graphs->count && (*items)[count].graph == graph)
        count++;
    return count;
}

uint32_t job_captured_first(const struct rec_process *process, uint32_t comm_id, uint64_t seq)
{
    const struct job_graphs *graphs = &job_process_of(process)->recall.graphs;
    const struct job_captured key = {.comm_id = comm_id, .first = seq};
    const struct job_captured *found = NULL;
    if (graphs->by_comm)
        found = bsearch(&key, graphs->by_comm, graphs->count, sizeof(*graphs->by_comm), by_first);
    return found ? found->graph : 0;
}

uint64_t job_graph_launches(const struct rec_process *process, uint64_t graph)
{
    const struct job_graphs *graphs = &job_process_of(process)->recall.graphs;
    uint32_t at = job_map_get(&graphs->launch_ids, graph);
    return at == JOB_MAP_NONE ? 0 : graphs->launches[at];
}

void job_graphs_fini(struct job_graphs *graphs)
{
    free(graphs->items);
    free(graphs->by_comm);
    free(graphs->launches);
    job_map_free(&graphs->ids);
    job_map_free(&graphs->launch_ids);
}
