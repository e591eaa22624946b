/*
 * Launches of CUDA graphs. A collective that was captured runs with each launch of its graph, so
 * all members of its communicator must launch the graphs that hold it, and each as often: the launches meet
 * like the calls of a communicator do. So they become one: a *meeting* is a communicator of our own,
 * whose seq counts launches and whose members are those of the real one. All later phases treat it as
 * any other; at the end findings name the real one.
 *
 * A meeting stands for the first collective of a communicator in a graph. Where a member captured that one
 * into another place, ran it, or is not known to have captured it, launches need not correspond: there is no
 * meeting then, and nothing is concluded.
 */
#include <stdlib.h>
#include <string.h>

#include "diag.h"
#include "job/recall.h"

/* Of all meetings together; about 500 bytes each. What is launched last has its meeting first. */
#define MEMBERS_MAX 65536

struct meeting {
    struct rec_communicator comm;
    struct rec_communicator *of;
    uint64_t seq; /* of the first captured collective there */
    bool apart;   /* the launches need not correspond */
    struct rec_member *members;
    struct rec_member **list;
};

struct diag_graphs {
    struct meeting **meetings;
    size_t nmeetings, meetings_cap;
    struct diag_map by_place; /* (communicator, seq) → meeting */
    size_t nmembers;
    struct rec_communicator **comms; /* the job's, then ours */
    size_t njob;                     /* of the job */
};

/* ---- meetings ---- */

static bool add_member(const struct diag *d, struct meeting *meeting, const struct rec_member *real)
{
    uint32_t graph = job_captured_first(real->process, real->comm_id, meeting->seq);
    uint32_t proc = diag_index(d, real->process);
    /* Without a graph it must not have come to that call at all. */
    if (proc == DIAG_NONE || (!graph && real->next_seq > meeting->seq))
        return false;
    uint64_t launches = graph ? job_graph_launches(real->process, graph) : 0;
    /* Who lacks recent records may have launched it more often. */
    if (d->procs[proc].gap_ns)
        launches = UINT64_MAX;
    struct rec_member *member = &meeting->members[meeting->comm.nmembers];
    *member = (struct rec_member){.comm = &meeting->comm,
                                  .process = real->process,
                                  .place = meeting->comm.nmembers,
                                  .comm_id = real->comm_id,
                                  .comm_rank = real->comm_rank,
                                  .def = real->def,
                                  .next_seq = launches,
                                  .finished = launches};
    meeting->list[meeting->comm.nmembers++] = member;
    return true;
}

static void fill(const struct diag *d, struct meeting *meeting)
{
    const struct rec_communicator *of = meeting->of;
    meeting->comm = (struct rec_communicator){
        .index = (uint32_t)(d->graphs->njob + d->graphs->nmeetings), .uid = of->uid, .nranks = of->nranks};
    memcpy(meeting->comm.name, of->name, sizeof of->name);
    for (uint32_t i = 0; i < of->nmembers && !meeting->apart; i++)
        meeting->apart = !add_member(d, meeting, of->members[i]);
    meeting->comm.members = meeting->list;
}

/* The meeting at op seq of a communicator; NULL: none, or no memory. */
static struct meeting *meeting_at(struct diag *d, struct rec_communicator *comm, uint64_t seq)
{
    struct diag_graphs *graphs = d->graphs;
    bool fresh;
    uint32_t *at = diag_map_put(&graphs->by_place, diag_key(comm->index, seq, 94), &fresh);
    d->oom = d->oom || !at;
    if (d->oom || (!fresh && *at == DIAG_NONE))
        return NULL;
    if (!fresh)
        return graphs->meetings[*at]->apart ? NULL : graphs->meetings[*at];
    if (graphs->nmembers + comm->nmembers > MEMBERS_MAX)
        return NULL;
    graphs->meetings = diag_grow(graphs->meetings, &graphs->meetings_cap, graphs->nmeetings,
                                 sizeof(struct meeting *), &d->oom);
    struct meeting *meeting = calloc(1, sizeof *meeting);
    d->oom = d->oom || !meeting;
    if (d->oom)
        return NULL;
    *at = (uint32_t)graphs->nmeetings;
    *meeting = (struct meeting){.of = comm, .seq = seq};
    meeting->members = calloc(comm->nmembers + 1, sizeof *meeting->members);
    meeting->list = calloc(comm->nmembers + 1, sizeof(struct rec_member *));
    d->oom = !meeting->members || !meeting->list;
    if (!d->oom)
        fill(d, meeting);
    graphs->meetings[graphs->nmeetings++] = meeting;
    graphs->nmembers += comm->nmembers;
    return d->oom || meeting->apart ? NULL : meeting;
}

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
        struct meeting *meeting = real ? meeting_at(d, real->comm, items[i].first) : NULL;
        if (meeting)
            members[found++] = meeting->list[real->place];
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

/* All tables that are indexed by communicator and member grow by the meetings. */
static bool extend_tables(struct diag *d)
{
    struct diag_graphs *graphs = d->graphs;
    size_t ncomms = graphs->njob + graphs->nmeetings, nmembers = d->nmembers;
    graphs->comms = malloc((ncomms + 1) * sizeof(struct rec_communicator *));
    uint32_t *bases = realloc(d->member_base, (ncomms + 1) * sizeof *bases);
    d->member_base = bases ? bases : d->member_base;
    uint64_t *aborts = realloc(d->abort_ns, (ncomms + 1) * sizeof *aborts);
    d->abort_ns = aborts ? aborts : d->abort_ns;
    struct diag_member *members = realloc(d->members, (nmembers + graphs->nmembers + 1) * sizeof *members);
    d->members = members ? members : d->members;
    if (!graphs->comms || !bases || !aborts || !members)
        return false;
    for (size_t i = 0; i < graphs->njob; i++)
        graphs->comms[i] = d->comms[i];
    for (size_t i = 0; i < graphs->nmeetings; i++) {
        struct meeting *meeting = graphs->meetings[i];
        meeting->comm.nmembers = meeting->apart ? 0 : meeting->comm.nmembers;
        graphs->comms[graphs->njob + i] = &meeting->comm;
        bases[graphs->njob + i] = (uint32_t)nmembers;
        for (uint32_t k = 0; k < meeting->comm.nmembers; k++)
            members[nmembers++] = (struct diag_member){meeting->list[k]->next_seq};
    }
    d->comms = graphs->comms;
    d->ncomms = ncomms;
    d->nmembers = nmembers;
    return true;
}

void diag_graphs(struct diag *d)
{
    if (!any_launch(d))
        return;
    d->graphs = calloc(1, sizeof *d->graphs);
    d->oom = d->oom || !d->graphs;
    if (d->oom)
        return;
    d->graphs->njob = d->ncomms;
    size_t extra = join_meetings(d);
    if (extra && extra <= EXTRA_MAX && d->nops + extra < DIAG_NONE)
        expand(d, extra);
    if (!d->oom)
        mark_replayed(d);
    d->oom = d->oom || !extend_tables(d);
}

/* ---- the end ---- */

static const struct meeting *meeting_of(const struct diag *d, const struct rec_communicator *comm)
{
    return d->graphs && comm && comm->index >= d->graphs->njob
               ? d->graphs->meetings[comm->index - d->graphs->njob]
               : NULL;
}

void diag_graphs_resolve(struct diag *d)
{
    for (size_t i = 0; i < d->nfindings; i++) {
        struct rec_finding *f = &d->findings[i];
        const struct meeting *meeting = meeting_of(d, f->comm);
        if (!meeting)
            continue;
        f->comm = meeting->of;
        f->seq = meeting->seq;
    }
}

void diag_graphs_fini(struct diag *d)
{
    struct diag_graphs *graphs = d->graphs;
    if (!graphs)
        return;
    for (size_t i = 0; i < graphs->nmeetings; i++) {
        free(graphs->meetings[i]->members);
        free(graphs->meetings[i]->list);
        free(graphs->meetings[i]);
    }
    free(graphs->meetings);
    free(graphs->comms);
    diag_map_free(&graphs->by_place);
    free(graphs);
}
