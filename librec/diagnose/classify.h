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

/* Knots: components of several nodes that depend on nothing else. */
void classify_knot(struct classify *c, uint32_t component);

#endif
