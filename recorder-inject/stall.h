/*
 * Standing still: one NCCL call that does not return, or no NCCL call at all while communicators
 * exist, for FREC_STALL_SEC. One record per incident. By the drain thread.
 */
#ifndef INJECT_STALL_H
#define INJECT_STALL_H

#include "stacks.h"

struct stall_watch {
    uint64_t activity;   /* rises when a call begins or returns */
    uint64_t changed_ns; /* monotonic time when that was last seen to change */
    bool idle_told;
    uint64_t told[REC_LIVE_DEFAULT_THREADS]; /* per thread entry: the open call already reported */
};

/* Is there a new incident? Then *stall says why, which thread and since when (wall clock). */
bool stall_check(struct stall_watch *watch, struct rec_stall *stall);

#endif
