/* What plan.c, comms.c and steps.c share: a plan that is being made. */
#ifndef MAKER_H
#define MAKER_H

#include "plan.h"

#define ACTS_MAX     24000 /* of all ranks together */
#define FAMILIES_MAX 16

/* Communicators that are used alike: rows, columns, stages. */
struct family {
    int first, count, lane, stream;
};

struct maker {
    struct plan *plan;
    struct rng *rng;
    struct family families[FAMILIES_MAX];
    int nfamilies;
    bool any_stream;
};

/* ---- plan.c ---- */

int maker_pick(struct maker *m, int low, int high);
struct act maker_act(enum act_kind what);
struct act maker_call(int comm, unsigned kind);
void maker_next_step(struct plan *plan);
/* Everybody who has not left, every thread. */
void maker_add_all(struct plan *plan, enum act_kind what);
/* A time outside NCCL, another for each rank. */
void maker_add_work(struct maker *m, uint64_t most);

/* ---- comms.c ---- */

void maker_comms(struct maker *m);
/* In the middle of the job, by some ranks, while the others go on; false where no room is left. */
bool maker_more_comms(struct maker *m);
/* The job goes on with some of its ranks; the others leave, or stay idle until the end. */
void maker_shrink(struct maker *m);

/* ---- steps.c ---- */

void maker_loop(struct maker *m);
void maker_capture(struct maker *m);

#endif
