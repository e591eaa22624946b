/*
 * Launches of CUDA graphs. A collective that was captured runs with each launch of its graph, so
 * all members of its communicator must launch the graphs that hold it, and each as often: the launches meet
 * like the calls of a communicator do (meetings.h), and their seq counts them.
 *
 * A meeting stands for the first collective of a communicator in a graph. Where a member captured that one
 * into another place, ran it, or is not known to have captured it, launches need not correspond: there is no
 * meeting then, and nothing is concluded.
 */
#include <stdlib.h>

#include "job/recall.h"
#include "meetings.h"

/* ---- meetings ---- */

static bool came(const struct diag *d, const struct rec_member *real, uint64_t seq, uint64_t *launches)
{
    uint32_t graph = job_captured_first(real->process, real->comm_id, seq);
    /* Without a graph it must not have come to that call at all. */
    if (!graph && real->next_seq > seq)
        return false;
    *launches = graph ? job_graph_launches(real->process, graph) : 0;
    /* Who lacks recent records may have launched it more often. */
    if (d->procs[diag_index(d, real->process)].gap_ns)
        *launches = UINT64_MAX;
    return true;
}

static const struct meeting_rule replays = {.salt = 94, .came = came};

/* ---- launches as ops of meetings ---- */

/*
 * The memberships with which this process launches a graph, at most `max`: one for each communicator that has
 * collectives in it. Returns their number.
 */
static size_t memberships(struct diag *d, const struct rec_process *p, uint32_t graph,
                          struct rec_member **members, size_t max)
{
    const struct job_captured *items;
    size_t count = job_captured(p, graph, &items), found = 0;
    for (size_t i = 0; i < count && found < max; i++) {
        const struct rec_member *real = rec_process_member(p, items[i].comm_id);
        struct rec_member *member = real ? diag_meeting_member(d, real, &replays, items[i].first) : NULL;
        if (member)
            members[found++] = member;
    }
    return found;
}

#define COMMS_MAX 16 /* of one graph; its launches are not compared over further ones */
/* Ops that stand for launches beside the first; with more, only that one does. */
#define EXTRA_MAX (1u << 20)

static bool is_launch(const struct diag_op *op)
{
    return op->op.kind == REC_GRAPH_LAUNCH && op->op.peer > 0;
}

static size_t memberships_of(struct diag *d, const struct diag_op *op, struct rec_member *members[COMMS_MAX])
{
    return memberships(d, d->procs[op->proc].p, (uint32_t)op->op.peer, members, COMMS_MAX);
}

/* Each launch as an op of its first meeting; returns how many more ops the others take. */
static size_t join_meetings(struct diag *d)
{
    struct rec_member *members[COMMS_MAX];
    size_t extra = 0;
    for (size_t i = 0; i < d->nops && !d->oom; i++) {
        struct diag_op *op = &d->ops[i];
        size_t count = is_launch(op) ? memberships_of(d, op, members) : 0;
        if (!count)
            continue;
        op->member = members[0];
        op->sig = 0; /* numbers of graphs differ rightly */
        extra += count - 1;
    }
    return extra;
}

/* Launches of graphs with several communicators become as many ops, one behind another. */
static void expand(struct diag *d, size_t extra)
{
    struct rec_member *members[COMMS_MAX];
    struct diag_op *ops = realloc(d->ops, (d->nops + extra + 1) * sizeof *ops);
    d->oom = d->oom || !ops;
    if (d->oom)
        return;
    d->ops = ops;
    size_t from = d->nops, to = d->nops + extra;
    d->nops = to;
    for (size_t p = d->nprocs; p-- > 0;) {
        struct diag_proc *proc = &d->procs[p];
        size_t end = to;
        for (uint32_t i = 0; i < proc->count; i++) {
            const struct diag_op op = ops[--from];
            size_t count = is_launch(&op) ? memberships_of(d, &op, members) : 0;
            for (size_t k = count ? count : 1; k-- > 0;) {
                ops[--to] = op;
                ops[to].member = count ? members[k] : op.member;
            }
        }
        proc->first = (uint32_t)to;
        proc->count = (uint32_t)(end - to);
    }
}

/* Calls that were captured into a graph whose launches are compared need no doubts of their own. */
static void mark_replayed(struct diag *d)
{
    for (size_t i = 0; i < d->nops; i++) {
        struct diag_op *op = &d->ops[i];
        struct rec_member *member;
        if (diag_captured(op) && op->op.launch && op->member)
            op->replayed = memberships(d, op->member->process, (uint32_t)op->op.launch, &member, 1) != 0;
    }
}

static bool any_launch(const struct diag *d)
{
    for (size_t i = 0; i < d->nops; i++)
        if (d->ops[i].op.kind == REC_GRAPH_LAUNCH)
            return true;
    return false;
}

void diag_graphs(struct diag *d)
{
    if (!any_launch(d))
        return;
    size_t extra = join_meetings(d);
    if (extra && extra <= EXTRA_MAX && d->nops + extra < DIAG_NONE)
        expand(d, extra);
    if (!d->oom)
        mark_replayed(d);
}
