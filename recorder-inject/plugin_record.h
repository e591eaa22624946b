/*
 * Calls that only the plugin sees, recorded as the wrappers would. NCCL tells of them on the calling thread:
 * from the first call of a group to the end of ncclGroupEnd, a call alone being a group of its own. A
 * message's peer is known only when it is handed over; that is when messages are recorded. Results are not
 * told.
 *
 * Version 4 tells only of what was handed over to the GPU, without the stream: a call is recorded when it
 * is over, on a stream that stands for its communicator.
 */
#ifndef INJECT_PLUGIN_RECORD_H
#define INJECT_PLUGIN_RECORD_H

#include "hotpath.h"

/* What NCCL says of one call. */
struct told_op {
    unsigned kind, dtype;
    uint64_t count;
    int root_or_peer;
};

/* Is the thread inside one of our wrappers? Then the call has a record. */
static inline bool record_has_wrapper(const struct thread *thread)
{
    return thread->gate == GATE_INSIDE && !thread->by_plugin;
}

/* The communicator's rank has come to be. Returns its index; REC_LIVE_NONE16 = not recorded. */
uint16_t record_creation(uint64_t nccl_hash, const char *name, uint32_t nranks, uint32_t rank);
void record_end(uint16_t comm);

bool record_group_begins(bool alone);
void record_group_ends(void); /* ncclGroupEnd was called */
void record_group_ended(void);

/* Returns the index of the stream; *launch: its name or 0. */
uint16_t record_coll_begins(uint16_t comm, const struct told_op *op, void *stream, bool captured,
                            uint64_t *launch);
void record_coll_taken(void);
uint16_t record_p2p_taken(uint16_t comm, const struct told_op *op, void *stream, bool captured,
                          uint64_t *launch);
void record_p2p_handed_over(uint16_t comm, const struct told_op *op, uint16_t stream, uint64_t launch);

/* Version 4. */
uint64_t record_launch_begins(uint16_t comm);
void record_handed_over(uint16_t comm, const struct told_op *op, uint64_t launch);
void record_launch_ended(void);

void record_forget(void); /* child of a fork */

#endif
