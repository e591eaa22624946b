/*
 * What the diagnosis must know of all calls of a process, kept while they are loaded so that
 * nobody reads the traces twice: the last calls (the tail) and a few facts about the earlier ones.
 * Bounded, whatever the traces hold.
 *
 * Filled by the thread that loads the process, read-only afterwards, but for the tail: that is
 * large and wanted once, so it is given away.
 */
#ifndef REC_JOB_RECALL_H
#define REC_JOB_RECALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/job.h"

/* All tails together; 96 bytes an op. */
#define JOB_TAIL_OPS 1500000u
#define JOB_TAIL_MIN 256u
#define JOB_TAIL_MAX 8192u

/* How many ops of each of so many processes the diagnosis looks at. */
static inline size_t job_tail_size(size_t processes)
{
    size_t size = processes ? JOB_TAIL_OPS / processes : JOB_TAIL_MAX;
    return size > JOB_TAIL_MAX ? JOB_TAIL_MAX : size < JOB_TAIL_MIN ? JOB_TAIL_MIN : size;
}

/*
 * The last calls of those that the diagnosis looks at one by one, in the order of the stream, then
 * the open ones. A ring: entry i is ops[(first + i) % size].
 */
struct job_tail {
    struct rec_op *ops; /* NULL while size is 0 */
    size_t size, first, used;
    bool spilled; /* there were more */
};

/*
 * Gives up to size calls, from what loading kept; when that is too little, or was given before,
 * reads the traces again. May be called by several threads at once.
 */
enum rec_code job_tail_take(const struct rec_process *process, size_t size, struct job_tail *tail,
                            struct rec_error *err) REC_WARN_UNUSED;
void job_tail_free(struct job_tail *tail);

/* When a thread last entered or left a data or creation call, or the end of a group. */
struct job_work {
    uint32_t thread;
    uint64_t last_ns;
};

struct job_facts {
    uint64_t graph_ns;  /* last launch of a graph; 0 = none */
    bool device_comms;  /* it made some: kernels of it communicate by themselves */
    bool unseen_graphs; /* calls were captured where launches of graphs were not seen */
    uint64_t gap_ns;    /* since then some of its recent calls have no record; 0 = none is missing */
    const struct job_work *work;
    size_t nwork;
    const struct rec_op
        *creations; /* of communicators: those that returned, outside of groups, the first ones */
    size_t ncreations;
};
void job_facts(const struct rec_process *process, struct job_facts *facts);

/*
 * How many messages this comm rank entered towards (send) or from peer: the highest seq + 1.
 * UINT32_MAX: too many pairs to know.
 */
uint32_t job_messages(const struct rec_process *process, uint32_t comm_id, int32_t peer, bool send);
/*
 * Likewise how many of this signal. UINT32_MAX also where a graph raises it, or where signals are not
 * recorded in the same way: some are told and others not, as by a recorder before trace format 1.4.
 */
uint32_t job_signals(const struct rec_process *process, uint32_t comm_id, int32_t peer, bool send,
                     uint64_t signal);

/*
 * How many calls of a kind in which the members meet on the host (REC_KF_HOST) this comm rank made.
 * UINT32_MAX: too many kinds and pairs to know.
 */
uint32_t job_host_calls(const struct rec_process *process, uint32_t comm_id, unsigned kind);

/* The collectives of one communicator that were captured into one CUDA graph: some of seq first … last. */
struct job_captured {
    uint32_t graph; /* its number in the process */
    uint32_t comm_id;
    uint64_t first, last;
};
/* Those of one graph; they live as long as the process. Bounded: there may have been more. */
size_t job_captured(const struct rec_process *process, uint32_t graph, const struct job_captured **items);
/* The graph whose first collective of this communicator is the one at seq; 0 = there is none. */
uint32_t job_captured_first(const struct rec_process *process, uint32_t comm_id, uint64_t seq);
/* How often the graph was launched, as far as records tell. */
uint64_t job_graph_launches(const struct rec_process *process, uint64_t graph);

#endif
