/* What classify.c and knot.c share. */
#ifndef DIAG_CLASSIFY_H
#define DIAG_CLASSIFY_H

#include "diag.h"

struct classify {
    struct diag *d;
    uint32_t *blamed;        /* by process: finding index + 1; 0 = none */
    uint32_t *reverse_start; /* by node */
    uint32_t *reverse_from;
    bool *reached; /* by node, scratch */
    uint32_t *queue;
};

/* Marks every node that waits, directly or not, for one of the given ones. */
void classify_reach(struct classify *c, const uint32_t *nodes, size_t count);
/* Adds the reached processes as victims, except its culprits and suspects. */
void classify_victims(struct classify *c, struct rec_finding *f);
/* "ranks 0-1,3 wait in AllReduce (…), op 7 of communicator … since 12:00:00 UTC" */
void classify_say_wait(struct classify *c, struct diag_text *t, const struct diag_wait *wait);
void classify_evidence_wait(struct classify *c, struct rec_finding *f, const struct diag_wait *wait);
/* Fills comm, seq and op. */
void classify_place(struct classify *c, struct rec_finding *f, const struct diag_wait *wait);
bool classify_is_culprit(const struct rec_finding *f, int32_t rank);

uint32_t classify_node(const struct diag *d, const struct diag_wait *wait);

/* ---- causes.c ---- */

/* Blames those of the partners that are concerned; who is blamed already only gets more victims. */
void classify_partners(struct classify *c, const struct diag_wait *wait, const struct diag_partner *partners,
                       size_t count);
/*
 * Did only a few enter, while the many absent ones have all gone on or ended well? Then the
 * few are wrong.
 */
bool classify_only_few(struct classify *c, const struct diag_wait *wait, const struct diag_partner *partners,
                       size_t count);
void classify_few(struct classify *c, const struct diag_wait *wait);
/*
 * One rank waits for one other, which has gone on or ended well: if the waiting one has left its
 * loop to come here and the other has not, the call was one too many. True when that was told.
 */
bool classify_one_too_many(struct classify *c, const struct diag_wait *wait,
                           const struct diag_partner *partners, size_t count);
void classify_more_victims(struct classify *c, const struct diag_wait *wait, uint32_t finding);

/*
 * Still at work when the recording ended, measured by the patience of those who wait: what it
 * has not done yet it may have done next.
 */
bool classify_busy(const struct diag *d, uint32_t proc, const struct diag_wait *wait);

/* ---- broken.c ---- */

void classify_failed(struct classify *c, const struct diag_wait *wait);
/* Does it follow a message of the same pair that does not fit? */
bool classify_shifted(const struct diag *d, const struct diag_wait *wait);
/* Send and Recv of different size. */
void classify_pair(struct classify *c, const struct diag_wait *wait);
/* Collectives that do not fit: diag_diverge has told it, only the victims are new. */
void classify_divergence(struct classify *c, const struct diag_wait *wait);
/* Everybody has launched it, it fits, and still it does not end. */
void classify_kernel(struct classify *c, const struct diag_wait *wait);
/* A creation or teardown that no known process could end. */
void classify_lonely(struct classify *c, const struct diag_wait *wait);

/* ---- knot.c ---- */

/* Knots: components of several nodes that depend on nothing else. */
void classify_knot(struct classify *c, uint32_t component);

#endif
