/*
 * Runs a plan: hosts that issue calls, streams that run launches in order, collectives that
 * begin when all members have reached them, messages that meet, hosts that block in creations,
 * full launch queues and syncs. What a broken plan can still do it does, and no more.
 */
#ifndef EXECUTE_H
#define EXECUTE_H

#include "plan.h"

#define ORIGIN UINT64_C(1700000000000000000) /* wall clock at time 0 */

/* A call that was made. Times are ns since the start; UINT64_MAX = not yet. */
struct call {
    struct act act;
    int lane;
    uint64_t ordinal, seq, enter, exit;
    uint64_t launch; /* number in its stream; 0 = none */
    uint32_t group;
};

/* When a stream had begun and finished how many launches. */
struct mark {
    uint64_t at;
    int stream;
    uint64_t started, ended;
};

struct rank_run {
    struct call *calls; /* in order of entry */
    size_t ncalls, calls_cap;
    struct mark *marks;
    size_t nmarks, marks_cap;
    uint64_t end; /* when the process ended by itself; UINT64_MAX */
    bool exited;  /* with status, else it vanished */
    int status;
    uint64_t made[COMMS_MAX]; /* when the communicator was ready here; UINT64_MAX */
    uint64_t stuck_since;     /* when it issued what it waits for in the end; UINT64_MAX: it does not wait */
};

struct run {
    struct rank_run ranks[RANKS_MAX];
    uint64_t last; /* time of the last event */
    bool stuck;    /* somebody waits for ever */
    bool was_stopped;
    uint64_t late_from, late_until; /* UINT64_MAX: nobody was late */
};

/* Runs until all is over, nothing moves any more, or time is up. */
void run_plan(const struct plan *plan, uint64_t seed, uint64_t until, struct run *run);
void run_free(struct run *run);

#endif
