/*
 * Inside the diagnosis (docs/verdicts.md tells the method).
 *
 * A struct diag is one analysis of one job, used by one thread; only diag_load works on several
 * processes at a time. Its phases run in this order and each only reads what the earlier ones left:
 *
 *   diag_load      the last ops of every process, in launch order
 *   diag_fates     how each process ended, and which calls were made when others had given up
 *   diag_diverge   first disagreement of every communicator
 *   diag_simulate  which ops can have completed if streams are FIFOs
 *   diag_find_waits, diag_build_graph   who waits for whom, and the knots in that graph
 *   diag_classify  findings
 *
 * Ops, units, streams and matching points refer to each other by index (DIAG_NONE = none),
 * because their arrays move while they grow. An allocation that fails sets oom; every
 * phase then ends early and rec_analyze returns REC_ERR_NOMEM.
 */
#ifndef DIAG_H
#define DIAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/census.h"
#include "rec/job.h"
#include "rec/live.h"
#include "rec/verdict.h"

#include "util.h"

#define NS_PER_S UINT64_C(1000000000)

/* Times by which several phases judge. */
#define DIAG_MISSED_NS    (NS_PER_S * 5 / 2)  /* a heartbeat was due and did not come */
#define DIAG_ONE_END_NS   (NS_PER_S / 2)      /* a launcher signals one process after another within it */
#define DIAG_GPU_LAG_NS   (NS_PER_S * 3 / 10) /* the end of an op on the GPU is seen so much later at worst */
#define DIAG_GRAPH_NS     (NS_PER_S * 10)     /* a graph launched so long before has run */
#define DIAG_UNALIGNED_NS (NS_PER_S * 60)     /* clocks that nothing compares may differ by it */

/* ---- what an analysis holds ---- */

struct diag_op {
    struct rec_op op;
    uint64_t sig;
    struct rec_member *member; /* NULL: on no known communicator */
    uint32_t proc;             /* index into procs */
    uint32_t unit;             /* DIAG_NONE: a host call that belongs to no unit */
    uint32_t unit_next;        /* next op of the same unit */
    uint32_t match;            /* matching point; DIAG_NONE = needs no partner */
    uint32_t match_next;       /* next op of the same matching point */
    bool active;               /* at the front of its streams */
    bool done;                 /* completed, as far as logic tells */
    bool failed;               /* NCCL refused it */
    bool doubted;              /* not completed if nothing doubtful is */
    bool tail;                 /* nothing but what is among silent processes follows on its stream */
    bool late;     /* entered after the communicator was aborted elsewhere, or its members had given up */
    bool replayed; /* captured into a graph whose launches are ops of their own */
};

/* What is launched at once: one op, or all ops of a group. */
struct diag_unit {
    uint32_t proc;
    uint32_t first_op, last_op;
    uint32_t ops, left; /* all, not done */
    uint32_t first_slot;
    uint32_t queues, heads; /* streams it runs on, and those where it is at the front */
    uint32_t end;           /* op index of the GroupEnd; DIAG_NONE */
    bool launched;          /* false: the host is still between GroupStart and GroupEnd */
    bool active, done;
};

/* A unit's place in a stream. */
struct diag_slot {
    uint32_t unit, queue, next, unit_next;
};

struct diag_queue {
    uint32_t first, head, tail; /* slots; head moves on in the execution */
};

/* Where ops of several ranks meet: one seq of a communicator, or one message of a pair. */
struct diag_match {
    struct rec_communicator *comm;
    uint64_t seq;
    int32_t src, dst; /* comm ranks of a message or signal; -1 for collectives */
    bool onesided;    /* the pair's signal number seq of its kind, and the wait that it ends */
    uint64_t signal;  /* which, then */
    uint32_t first_op, last_op;
    uint32_t failed_op; /* a call that NCCL refused; DIAG_NONE */
    uint32_t posted, active;
    uint32_t absent;  /* present members that never entered it */
    uint32_t assumed; /* entered before our window: taken as fitting */
    uint32_t unseen;  /* members without a trace */
    uint32_t unknown; /* members whose trace is cut off before it */
    bool compatible;  /* the posted ops fit each other well enough to complete */
    bool differs;     /* they are not all the same */
    bool captures;    /* one was captured, perhaps all */
    bool captured;    /* some recorded it into a graph that was not launched since, others ran it */
    bool too_late;    /* messages: the other half came when the first had given up */
    bool doubtful;    /* complete only if what is not recorded went well */
    bool unfinished;  /* logic says complete, the GPU says no */
    bool inside;      /* a creation out of which nobody is known to have come */
    bool host_inside; /* somebody is in the call: what goes on in the background holds up no host */
    bool done;
};

/* The seqs of a communicator in the windows: seq first + i has its place at index at + i of span_matches. */
struct diag_span {
    uint64_t first;
    size_t at, count;
};

struct diag_proc {
    const struct rec_process *p;
    uint32_t first, count; /* its ops */
    uint32_t host;         /* processes with one clock have one number */
    uint32_t clock;        /* processes whose times can be compared have one number */
    int64_t offset_ns;     /* its clock minus that of the first host; all times here are without it */
    uint64_t life_ns;      /* last sign of life; now for a living process */
    uint64_t last_call_ns; /* when an NCCL call last began or returned; 0 */
    uint64_t last_work_ns; /* the same for data and creation calls alone */
    uint64_t patience_ns;  /* silence longer than this is no rhythm of this process any more */
    bool cut;              /* its trace ends early, perhaps only because the file is damaged */
    bool outlived;         /* it lived on for long after its last record, as those of others show */
    bool early_dead;       /* died while the others lived on */
    uint64_t silence_ns;   /* for how long it had shown no sign of life when the typical other did */
    uint64_t dead_ns;      /* its end, or the last sign of life */
    bool suspect;          /* others wait for it, but it may be blocked in something unrecorded */
    uint64_t gap_ns;       /* since then some of its recent calls have no record; 0 = none */
    bool doubtful;         /* may be blocked in something that no record shows */
    bool held;             /* may be blocked sooner than it seems, if what is doubtful did not complete */
    bool ended_well;       /* exit status 0 */
    bool whole;            /* the window holds everything it did */
    uint64_t graph_ns;     /* last launch of a graph */
    bool gpu_seen;         /* the progress of its GPU was recorded */
    uint64_t gpu_ns;       /* when its GPU was last seen to begin or end an op by itself; 0 */
    bool gpu_timed;        /* some ops of the window have times of the GPU */
    bool waits;            /* has been blocked for longer than its patience */
    bool works;            /* … in data or creation, not only in a teardown */
    uint64_t got_over_ns;  /* when it last aborted what it had been blocked in so, and went on; 0 = never */
    bool late;             /* some of its calls came too late */
    bool gave_up;          /* waited, and then ended itself */
    bool awaited;          /* died, and that is what others waited for */
    bool missed;           /* vanished just before connections to it broke */
    bool struck;           /* aborted with others that had stood still; its own last calls are unknown */
    bool followed;         /* ended when others that had waited ended, or later: no cause */
};

/* Per member, by diag_member_id. */
struct diag_member {
    uint64_t next_seq;   /* ops entered that count (not those after an abort elsewhere) */
    uint64_t aborted_ns; /* when its process ended the work of the communicator by an abort; 0 */
};

enum diag_wait_kind {
    DIAG_WAIT_COLL,
    DIAG_WAIT_P2P,
    DIAG_WAIT_CREATE,
    DIAG_WAIT_HOST, /* a call in which all members meet on the host */
    DIAG_WAIT_TEARDOWN,
};

/* Why a wait can never end, whatever else happens. */
enum diag_never {
    DIAG_NEVER_NO = 0,
    DIAG_NEVER_MISMATCH, /* what was posted does not fit */
    DIAG_NEVER_FAILED,   /* the call returned an error there */
    DIAG_NEVER_DEAD,     /* died, and that is what most of the waiting was for */
    DIAG_NEVER_EXITED,
    DIAG_NEVER_TEARDOWN, /* the communicator was destroyed there before this op */
    DIAG_NEVER_LEFT_OUT, /* P2P: the peer took part in the exchange without this message */
};

/* A blocked matching point (or teardown), with the ranks that wait at it. */
struct diag_wait {
    enum diag_wait_kind kind;
    enum diag_never never;
    struct rec_communicator *comm;
    uint32_t match;       /* DIAG_NONE for teardown */
    uint32_t op;          /* a waiter's op */
    uint64_t since;       /* when the first of the waiters came */
    uint64_t until;       /* last sign of life of the last one */
    uint32_t until_clock; /* which that is told by */
    uint64_t stopped[2];  /* when the last two processes stopped waiting, at the latest */
    uint32_t last;        /* the first of these two */
    uint64_t patience_ns; /* of the least patient */
    uint32_t waiters;
    bool stale; /* somebody has waited for too long */
    bool over;  /* all who waited there have aborted it, and some have gone on */
};

enum diag_reason {
    DIAG_WAITS = 0,  /* process → wait */
    DIAG_ABSENT,     /* wait → process that has not entered it */
    DIAG_BEHIND,     /* wait → process that entered it, but other work is in front of it */
    DIAG_UNLAUNCHED, /* wait → process that is inside an open group */
    DIAG_OTHER,      /* wait → process that posted something that does not fit */
    DIAG_MAYBE,      /* wait → process that may be the absent member */
};

/* Nodes: 0 … nprocs-1 processes, then waits. */
struct diag_edge {
    uint32_t from, to;
    uint32_t op; /* DIAG_NONE */
    enum diag_reason reason;
};

struct diag_progress {
    const struct rec_progress *told; /* NULL = nobody */
    uint64_t done, total;            /* steps */
};

struct diag {
    const struct rec_job *job;
    struct diag_progress progress;
    uint64_t now_ns, stall_ns;
    bool dated;       /* times are told with their dates: the job lasted from one day to another */
    unsigned threads; /* for job_parallel */
    bool oom;
    struct rec_error *err;

    const struct rec_census *census;
    uint32_t generation;  /* the one that is analyzed; nothing of the others is in here */
    uint32_t expected;    /* ranks it should have; 0 = unknown */
    uint32_t *proc_index; /* by index in the job: index into procs; DIAG_NONE = another generation's */
    struct diag_proc *procs;
    size_t nprocs;
    struct rec_communicator *const *comms; /* all of the job: see diag_has; then those of meetings.c */
    size_t ncomms;
    struct diag_meetings *meetings; /* NULL = there are none */
    uint32_t *member_base;          /* by communicator index */
    uint64_t *abort_ns;             /* by communicator index: first abort; UINT64_MAX = none */
    struct diag_member *members;
    size_t nmembers;
    struct diag_map rank_procs; /* job rank → process index, the latest of several */

    struct diag_op *ops;
    size_t nops;
    struct diag_unit *units;
    size_t nunits, units_cap;
    struct diag_slot *slots;
    size_t nslots, slots_cap;
    struct diag_queue *queues;
    size_t nqueues, queues_cap;
    struct diag_match *matches;
    size_t nmatches, matches_cap;
    struct diag_map match_ids; /* matching points of messages, and of collectives outside the spans */
    struct diag_span *spans;   /* by communicator index */
    uint32_t *span_matches;    /* matching points of collectives, DIAG_NONE = nobody there */

    struct diag_wait *waits;
    size_t nwaits, waits_cap;
    struct diag_edge *edges;
    size_t nedges, edges_cap;
    bool buffered;          /* some sends may have completed without their receives */
    struct diag_edge *past; /* to waits that are over, and explained without the rest of the graph */
    size_t npast;
    uint32_t *edge_start; /* by node, nodes + 1 entries, after diag_wait */
    uint32_t *component;  /* by node */
    uint32_t ncomponents;

    struct clocks *clocks;             /* clock.c */
    struct rec_symbolizer *symbolizer; /* made when the first stack is told */

    struct rec_finding *findings;
    size_t nfindings, findings_cap;
    uint64_t *onsets; /* beside findings */
    size_t onsets_cap;
    int *tiers; /* beside findings: enum diag_tier */
    size_t tiers_cap;
};

/*
 * Without an end record or a live region, a file that was cut short would look the same. That its death broke
 * the connections of others is inferred.
 */
static inline bool diag_sure_dead(const struct diag_proc *proc)
{
    return !proc->missed && (proc->p->fate == REC_FATE_SIGNALED || proc->p->saw_live);
}

/* Had it called nothing for longer than ever before when it ended? */
static inline bool diag_stood_still(const struct diag_proc *proc)
{
    return !proc->outlived && proc->last_call_ns && proc->dead_ns > proc->last_call_ns + proc->patience_ns;
}

/* An error of which the cause may be another process. */
static inline bool diag_tells_of_others(unsigned result)
{
    return result == REC_RESULT_REMOTE_ERROR || result == REC_RESULT_SYSTEM_ERROR;
}

/* Was the communicator given up with this teardown? */
static inline bool diag_aborts(const struct rec_op *teardown)
{
    return teardown->kind == REC_COMM_ABORT || teardown->kind == REC_COMM_REVOKE;
}

/* Or was its work waited for? When that returned, nothing of it is left. */
static inline bool diag_finishes(unsigned kind)
{
    return kind == REC_COMM_DESTROY || kind == REC_COMM_FINALIZE;
}
static inline bool diag_finished(const struct rec_op *teardown)
{
    return diag_finishes(teardown->kind) && teardown->exit_ns;
}

static inline size_t diag_nodes(const struct diag *d)
{
    return d->nprocs + d->nwaits;
}

/* A process of this generation by its index in procs. */
static inline uint32_t diag_index(const struct diag *d, const struct rec_process *process)
{
    return d->proc_index[process->index];
}
/* Does a communicator belong to this generation? */
static inline bool diag_has(const struct diag *d, const struct rec_communicator *comm)
{
    return comm->nmembers && diag_index(d, comm->members[0]->process) != DIAG_NONE;
}

/* ---- verdict.c ---- */
/* Is the result still wanted? For the thread of rec_analyze. */
bool diag_go_on(const struct diag *d);

/* ---- load.c ---- */
enum rec_code diag_load(struct diag *d);
static inline uint32_t diag_member_id(const struct diag *d, const struct rec_member *member)
{
    return d->member_base[member->comm->index] + member->place;
}
static inline struct diag_member *diag_member_of(const struct diag *d, const struct rec_member *member)
{
    return &d->members[diag_member_id(d, member)];
}
/* When the process of an op aborted its communicator, or shrank it with an abort; 0 = it did not. */
static inline uint64_t diag_aborted_ns(const struct diag *d, const struct diag_op *op)
{
    return op->member ? diag_member_of(d, op->member)->aborted_ns : 0;
}
/* Has it not come to the op at seq? Of a trace that is cut off nobody knows. */
static inline bool diag_lacks(const struct diag *d, const struct rec_member *member, uint64_t seq)
{
    return diag_member_of(d, member)->next_seq <= seq && !d->procs[diag_index(d, member->process)].cut;
}
/* The present member with this comm rank; NULL when it has no trace. */
struct rec_member *diag_member_at(const struct rec_communicator *comm, int64_t comm_rank);
/* The process of a job rank; DIAG_NONE. */
uint32_t diag_proc_of_rank(const struct diag *d, int64_t rank);
/*
 * Messages and signals: both have two ends. NCCL gives signals no number; they are counted here,
 * and so is what each wait asks for: it ends with the signal that its op.seq names.
 */
static inline bool diag_pairs(const struct rec_op *op)
{
    return (rec_kind_flags(op->kind) & (REC_KF_P2P | REC_KF_RMA)) != 0;
}
/* Does it create a communicator that has no parent? */
static inline bool diag_inits(const struct rec_op *op)
{
    return rec_kind_canonical(op->kind) == REC_COMM_INIT_RANK;
}
static inline bool diag_sends(const struct rec_op *op)
{
    return op->kind == REC_SEND || op->kind == REC_PUT_SIGNAL || op->kind == REC_SIGNAL;
}
/* When the thread that issued op last did something. */
uint64_t diag_thread_quiet(const struct diag *d, const struct diag_op *op);

/* ---- generation.c ---- */
/* Fills ngenerations, generations and generation_of; false without memory. */
bool diag_generations(const struct rec_job *job, struct rec_census *census);

/* ---- census.c, order.c ---- */
/* A row for each communicator, by its index; false without memory. */
bool diag_census_rows(const struct rec_job *job, struct rec_census *census);
/* Takes over what was counted for the communicators of one generation. */
void diag_census_fill(const struct diag *d, struct rec_census *census);
/* Fills differences from the window, after diag_simulate. */
void diag_order(struct diag *d, struct rec_census *census);
/* Adds a note and takes the text; false without memory. */
bool diag_census_note(struct rec_census *census, struct diag_text *text);
/* Sorts the rows and writes the notes; false without memory. */
bool diag_census_finish(struct rec_census *census);
void diag_census_free(struct rec_census *census); /* NULL is fine */

/* Notes which ranks do what no record shows. */
void diag_unseen(struct diag *d, struct rec_census *census);

/* ---- clock.c ---- */
uint32_t diag_host_of(struct diag *d, const struct rec_process *p);
/* A creation that returned, as a sample. */
void diag_clock_note(struct diag *d, uint32_t proc, const struct rec_communicator *comm,
                     const struct rec_op *op);
/* Moves all loaded times to the clock of the first host. */
void diag_clock_align(struct diag *d);
/* The hosts' clocks, for the census. */
void diag_clock_census(struct diag *d, struct rec_census *census);
/* Says in the verdict's evidence which clocks were off. */
void diag_clock_evidence(struct diag *d, struct rec_finding *f);
void diag_clock_fini(struct diag *d);
/* A time of this process's own records on the common clock. */
static inline uint64_t diag_common(const struct diag_proc *proc, uint64_t ns)
{
    return ns ? ns - (uint64_t)proc->offset_ns : 0;
}

/* ---- meetings.c ---- */
/* Launches of graphs and calls that meet on the host as ops of communicators of their own, while loading. */
void diag_meet(struct diag *d);
/* A communicator of that kind. */
struct diag_meeting {
    struct rec_communicator *comm, *of; /* ours; of no members where the calls need not correspond */
    uint64_t seq; /* launches of graphs: of the first captured collective; else UINT64_MAX */
};
bool diag_meeting(const struct diag *d, size_t index,
                  struct diag_meeting *out); /* false: there are no more */
/* Findings name real communicators again, and what was captured. */
void diag_meetings_resolve(struct diag *d);
void diag_meetings_fini(struct diag *d);

/* ---- replays.c ---- */

/* Renumbers ops that stand in for launches, or that were captured and never run; of the job's communicators.
 */
void diag_settle_replays(struct diag *d, size_t ncomms);
/* Are collectives of a communicator in graphs that were launched? */
bool diag_in_graphs(const struct diag *d, const struct rec_communicator *comm);

/* ---- simulate.c ---- */
void diag_simulate(struct diag *d);
uint32_t diag_match_find(const struct diag *d, const struct rec_communicator *comm, uint64_t seq, int32_t src,
                         int32_t dst);
uint64_t diag_bytes(const struct rec_op *op);
/* Launched, but its GPU, which would have told, has not come to it. */
bool diag_not_reached(const struct diag *d, const struct diag_op *op);
/*
 * Is the host still in the call that launches it, although nobody is missing? Connecting waits for others,
 * but then they wait there, too.
 */
bool diag_host_inside(const struct diag *d, const struct diag_op *op);
/*
 * When the GPU came to op, or was seen to move on in front of it: hosts run far ahead, and nobody waits in
 * what its GPU has not come to. 0 = not known.
 */
uint64_t diag_gpu_came(const struct diag *d, const struct diag_op *op);

static inline bool diag_captured(const struct diag_op *op)
{
    return (op->op.flags & REC_OF_CAPTURED) != 0;
}

/* ---- execution.c ---- */

/* Doubting: nothing completes for which records that are missing could be the reason that it does not. */
void diag_execute(struct diag *d, bool doubting);

/* ---- doubt.c ---- */

/* Marks the matching points whose completion nobody's records can show. */
void diag_mark_doubts(struct diag *d);
/* Marks what the last execution let complete although it may stand behind what it left open. */
bool diag_more_doubts(struct diag *d);
/* Is anything doubtful? If not, executing with and without doubts is the same. */
bool diag_doubts(const struct diag *d);
/* After the execution that trusts nothing doubtful: which processes may be blocked in it. */
void diag_note_doubts(struct diag *d);
/* After the execution that trusts it: who is blocked sooner without. */
void diag_note_held(struct diag *d);

/* ---- waits.c ---- */

/* Blocked ops as waits, and why each can never end. */
void diag_find_waits(struct diag *d);

/* Somebody on whom a wait depends. */
struct diag_partner {
    uint32_t proc;
    struct rec_member *member; /* NULL: only guessed to be meant */
    enum diag_reason reason;
    uint32_t op; /* what it posted; DIAG_NONE */
};
/*
 * Of an op that is not over: its kernel went with its process, so that for those who stayed it is as if it
 * had not come. Who ended when all gave up has waited like them.
 */
bool diag_died_inside(const struct diag *d, const struct diag_match *m, const struct diag_op *op);
/* Everybody on whom a wait depends; *partners is the caller's to free. */
size_t diag_partners(struct diag *d, const struct diag_wait *wait, struct diag_partner **partners);
/* Has this member torn the communicator down before it came there, and not for having waited itself? */
bool diag_tore_down_before(const struct diag *d, const struct diag_wait *wait,
                           const struct rec_member *member);
/* Has the thread of this op aborted its communicator and gone on to other work? */
bool diag_got_over(const struct diag *d, const struct diag_op *op);

/* ---- waitgraph.c ---- */
void diag_build_graph(struct diag *d);

/* ---- creation.c ---- */

/*
 * The job ranks behind the comm ranks of a communicator that never joined its creation, as
 * far as the ranks of the others tell. Returns how many were written (0: cannot be known).
 */
size_t diag_absent_ranks(const struct diag *d, const struct rec_communicator *comm, int32_t *ranks,
                         size_t max);

/* Members without a trace, and those whose trace is cut off: what they called in the end is unknown. */
uint32_t diag_hidden(const struct diag *d, const struct rec_communicator *comm);
/* Names them as suspects, as far as their ranks can be known. */
void diag_suspect_hidden(struct diag *d, struct rec_finding *f, const struct rec_communicator *comm);

/* Whom a shrink does not need: its record tells how many, not which. */
struct diag_excluded {
    uint64_t others; /* how many of the absent that live on; 0 also where it is no shrink */
    bool left;       /* and all of those for whom diag_has_left is true */
};
struct diag_excluded diag_excluded(const struct diag *d, const struct diag_match *m);
/* Has it died, exited, or torn this communicator down, for no wait of its own? */
bool diag_has_left(const struct diag *d, const struct rec_member *member);

/* Findings for communicators that two processes try to join as the same member. */
void diag_twins(struct diag *d);

/* ---- diverge.c ---- */

enum diag_split {
    DIAG_SPLIT_FIELD, /* same call, one argument differs */
    DIAG_SPLIT_OTHER, /* another call altogether */
    DIAG_SPLIT_SKIP,  /* the suspects left one op out */
    DIAG_SPLIT_EXTRA, /* the suspects issued one more */
    DIAG_SPLIT_SWAP,  /* the suspects exchanged two */
};

/* Findings for every communicator whose members disagree. */
enum rec_code diag_diverge(struct diag *d);

/* ---- align.c ---- */

/*
 * How sequence x came from m, both beginning at their first difference: the cheapest
 * explanation by one edit that makes the rest agree longest (DIAG_SPLIT_OTHER: none). shift
 * tells how many ops were skipped or added.
 */
enum diag_split diag_align(const uint64_t *m, size_t nm, const uint64_t *x, size_t nx, size_t *shift);

/* ---- outlived.c ---- */

/*
 * Marks the processes without an end record that lived on for longer than margin_ns after their last record,
 * by what others completed together with them, and extends their lives. After the ends are known.
 */
void diag_find_outlived(struct diag *d, uint64_t margin_ns);

/* ---- late.c ---- */

/* Marks the calls that were made when others had given up waiting there; after the fates are known. */
void diag_mark_late(struct diag *d);
/* Tells matching points of messages of their late halves; before whom they lack is counted. */
void diag_late_messages(struct diag *d);
/* The call with which this process came too late to the wait, in vain; DIAG_NONE. */
uint32_t diag_came_late(const struct diag *d, const struct diag_wait *wait, uint32_t proc);

/* ---- fate.c ---- */

/* Sets how each process ended, and marks calls that came too late; before diag_simulate. */
void diag_fates(struct diag *d);
/* Did its end say that something had gone wrong, by itself or because it was told to end? */
bool diag_ended_badly(const struct diag_proc *proc);
/* Did it end itself, as a watchdog does, or an exception? */
bool diag_ended_itself(const struct diag_proc *proc);
const char *diag_signal_name(int signal); /* SEGV */
/* "died of signal 11 (Segmentation fault) at 12:01:07 UTC" */
void diag_say_end(const struct diag *d, struct diag_text *t, const struct diag_proc *proc);
void diag_evidence_end(struct diag *d, struct rec_finding *f, const struct diag_proc *proc);

/* ---- failures.c ---- */

/* The first error that NCCL returned or reported. */
void diag_failures(struct diag *d);
/*
 * Was it refused for a peer that its communicator has not, while the split that made this made others of
 * another size? Then a wrong color of any rank explains it as well.
 */
bool diag_uneven_split(const struct diag *d, const struct diag_op *op);
void diag_say_uneven_split(struct diag_text *t);
/* " got InvalidArgument from AllReduce (14 × f32, sum)", or from the end of its group. */
void diag_say_refusal(const struct diag *d, struct diag_text *t, const struct diag_op *op);
/* An error that tells of others, where not all members are known to have been there: the culprits become
 * victims, and who may be gone a suspect. Says so, and whether. */
bool diag_excuse_failed(struct diag *d, struct rec_finding *f, const struct diag_op *op);
void diag_say_gone(struct diag_text *t, const struct rec_finding *f);

/* ---- classify.c, knot.c ---- */

/* Findings from the wait-for graph. */
void diag_classify(struct diag *d);

/* ---- siblings.c ---- */

bool diag_share_process(const struct rec_communicator *a, const struct rec_communicator *b);
/* Makes one finding of those that tell the same of several communicators. */
void diag_merge_siblings(struct diag *d);

/* ---- straggler.c ---- */

/* Advice about ranks that slow the others down. */
void diag_stragglers(struct diag *d);

/* ---- slow.c ---- */

/* Notes collectives that took long although nobody was late. */
void diag_slow(struct diag *d, struct rec_census *census);

/* ---- finding.c ---- */

/* Consequences name their ranks as victims, never as culprits. */
enum diag_tier { DIAG_TIER_ROOT, DIAG_TIER_FAULT, DIAG_TIER_CONSEQUENCE, DIAG_TIER_NOTE };
/* A new finding; NULL without memory. Valid until the next one is added. */
struct rec_finding *diag_finding(struct diag *d, enum rec_verdict_type type, enum rec_confidence confidence,
                                 enum diag_tier tier, uint64_t onset_ns);
void diag_finding_fini(struct rec_finding *f);
void diag_summary(struct diag *d, struct rec_finding *f, struct diag_text *text); /* takes the text */
void diag_evidence(struct diag *d, struct rec_finding *f, const struct rec_process *p, uint64_t seq,
                   uint64_t time_ns, const char *format, ...) __attribute__((format(printf, 6, 7)));
void diag_evidence_op(struct diag *d, struct rec_finding *f, const struct diag_op *op, const char *what);
/* One line per frame, with function names where the modules are at hand. */
void diag_evidence_frames(struct diag *d, struct rec_finding *f, const struct rec_process *p,
                          const char *const *modules, uint32_t nmodules, const struct rec_frame *frames,
                          uint32_t nframes);
enum diag_list { DIAG_CULPRIT, DIAG_SUSPECT, DIAG_VICTIM };
void diag_blame(struct diag *d, struct rec_finding *f, enum diag_list list, int32_t rank);
void diag_sort_ranks(int32_t *ranks, size_t *count); /* ascending, once each but for -1 (no rank) */
/* In any order, while a finding is being made; rec_has_rank() for one that is done. */
bool diag_lists_rank(const int32_t *ranks, size_t count, int32_t rank);

/* Words for reports. */
void diag_say_proc(struct diag_text *t, const struct rec_process *p);         /* rank 2 (host a, pid 7) */
void diag_say_ranks(struct diag_text *t, const int32_t *ranks, size_t count); /* rank 3 / ranks 0-2,5 */
/* "AllReduce (14 × f32, sum)", "Send to rank 3 (…)": the peer by its rank where comm (may be NULL) tells it.
 */
void diag_say_op(struct diag_text *t, const struct rec_op *op, const struct rec_communicator *comm);
void diag_say_call(struct diag_text *t, const struct diag_op *op); /* the same, on its own communicator */
/* What several ranks are in alike; src and dst: of the message that they are the two ends of, else -1. */
void diag_say_ops(struct diag_text *t, const struct rec_op *op, const struct rec_communicator *comm,
                  int64_t src, int64_t dst);
/* Which one it is of those before it on its communicator: "op 12 of ", "message 3 of ", "replay 5, on ". */
void diag_say_number(struct diag_text *t, const struct rec_op *op, uint64_t seq);
/* Where in the program's Python code: " at trainer.py:118 in save_checkpoint"; nothing when not known. */
void diag_say_place(struct diag_text *t, const struct rec_process *p, const struct rec_op *op);
/* The same for all ranks that called op, as far as they did so from one place. */
void diag_say_places(const struct diag *d, struct diag_text *t, const struct diag_op *op);
void diag_say_comm(struct diag_text *t,
                   const struct rec_communicator *comm); /* communicator "dp" (4 ranks) */
void diag_say_comm_name(struct diag_text *t, const struct rec_communicator *comm); /* "dp", or its uid */
/* "12:01:07 UTC", with its date in a job of several days. */
void diag_say_time(const struct diag *d, struct diag_text *t, uint64_t ns);
void diag_say_seconds(struct diag_text *t, uint64_t ns); /* 3.2 s */

#endif
