/*
 * A made-up job: what every thread of every rank does, in order. Legal by construction: steps
 * are appended to all their participants one after the other, so one global order exists that
 * every rank follows, and no member of a communicator ever issues something else than the rest.
 */
#ifndef PLAN_H
#define PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/model.h"

#define RANKS_MAX   24
#define COMMS_MAX   64
#define LANES       2 /* threads of a rank */
#define STREAMS_MAX 8
#define USER_REDOPS 3
#define US          UINT64_C(1000)
#define MS          UINT64_C(1000000)
#define SEC         UINT64_C(1000000000)

/* splitmix64 */
struct rng {
    uint64_t state;
};
uint64_t rng_next(struct rng *rng);
/* low … high, both included */
uint64_t rng_in(struct rng *rng, uint64_t low, uint64_t high);
bool rng_chance(struct rng *rng, unsigned percent);

enum act_kind {
    ACT_CALL, /* a call on a communicator */
    ACT_GROUP_START,
    ACT_GROUP_END,
    ACT_SYNC,    /* the host waits for the streams of its thread */
    ACT_COMPUTE, /* ns outside NCCL */
    ACT_GRAPH,   /* launches what was captured */
    ACT_SPAWN,   /* the second thread begins */
    ACT_JOIN,
    ACT_SLEEP, /* for ever */
    ACT_KILL,
    ACT_EXIT, /* with status count */
    ACT_HANG, /* a kernel that never ends */
};

/* What is not as usual with a call, or a time outside NCCL. */
enum oddity {
    ODD_NONE,
    ODD_NEVER_LAUNCHES, /* never returns, and nothing comes of it */
    ODD_NEVER_RETURNS,  /* launches and never returns */
    ODD_REFUSED,        /* NCCL finds the arguments wrong */
    ODD_LATE,
};

struct act {
    uint8_t what;         /* enum act_kind */
    uint8_t kind;         /* enum rec_kind */
    uint8_t dtype, redop; /* user operators are REC_REDOP_USER + 0 … USER_REDOPS-1, equal on all ranks */
    bool captured;
    uint8_t odd; /* enum oddity */
    int16_t comm, stream;
    int16_t child; /* made by a split; -1 */
    int32_t peer;
    uint64_t count;
    uint64_t ns;
    uint32_t step; /* equal for all that the ranks do together; 0: the fault, and the end */
};

struct lane {
    struct act *acts;
    size_t count, capacity;
};

struct plan_comm {
    unsigned made_by;
    int parent; /* -1 */
    int color;
    int lane;
    int members[RANKS_MAX], nmembers;
};

struct plan {
    int nranks, ncomms, nhosts;
    struct plan_comm comms[COMMS_MAX];
    struct lane lanes[RANKS_MAX][LANES];
    bool marks;           /* the GPU's progress is recorded */
    bool destroy_waits;   /* finalize is a barrier */
    uint64_t eager_bytes; /* smaller sends complete by themselves */
    bool nonblocking;     /* calls return before they are done */
    bool gone[RANKS_MAX]; /* has no part in what is added from here on */
    int queue_bound;      /* launches that a stream holds before the host blocks */
    uint32_t step, steps; /* the one that plan_add is at, and how many there are */
    size_t first_act[RANKS_MAX][LANES];
    size_t last_act[RANKS_MAX][LANES]; /* end of the loop */
};

void plan_make(struct plan *plan, struct rng *rng, int max_ranks);
void plan_free(struct plan *plan);
void plan_add(struct plan *plan, int rank, int lane, const struct act *act);
void plan_insert(struct plan *plan, int rank, int lane, size_t at, const struct act *act);
void plan_remove(struct plan *plan, int rank, int lane, size_t at);
/* Does it meet one other rank: a message, a signal, a wait for one? */
bool plan_pairs(const struct act *act);
/* Comm rank of a rank; -1 = no member. */
int plan_place(const struct plan_comm *comm, int rank);

/* One thing that one rank does wrong, or that befalls it. */
enum fault_kind {
    FAULT_NONE,
    FAULT_SKIP,
    FAULT_EXTRA,
    FAULT_COUNT,
    FAULT_FIELD, /* redop, root or dtype */
    FAULT_OTHER, /* another collective */
    FAULT_SWAP,  /* two calls in the wrong order */
    FAULT_SLEEP,
    FAULT_KILL,
    FAULT_EXIT,
    FAULT_NO_SPLIT, /* absent at the creation of a communicator, and never uses it */
    FAULT_TEARDOWN, /* destroys a communicator too early */
    FAULT_PEER,     /* a message goes to, or is awaited from, somebody else */
    FAULT_HANG,     /* a kernel that never ends in front of a call */
    FAULT_INSIDE,   /* never comes out of a call */
    FAULT_REFUSED,  /* a wrong argument; then it gives up, or takes no notice */
    FAULT_LATE,     /* comes, but long after the others */
    FAULT_KINDS
};
const char *fault_name(enum fault_kind kind);

struct fault {
    enum fault_kind kind;
    int rank, lane;
    size_t at;
    struct act act;     /* the call concerned, as it should have been */
    struct act other;   /* of a swap */
    bool pair, between; /* concerns one against one; concerns two communicators */
    char told[160];
};
/* False when the plan offers no place for such a fault of a rank other than this one; -1 = of any. */
bool fault_plant(struct plan *plan, struct rng *rng, enum fault_kind kind, int other_than,
                 struct fault *fault);

#endif
