/* Who differs from whom where the members of a communicator first disagree. */
#ifndef DIAG_SIDES_H
#define DIAG_SIDES_H

#include "lanes.h"
#include "past.h"

#define FIELD_KIND  1u
#define FIELD_COUNT 2u
#define FIELD_DTYPE 4u
#define FIELD_REDOP 8u
#define FIELD_ROOT  16u

struct divergence {
    const struct lanes *lanes;
    const struct lane *usual, *unusual; /* the most common op, and the first that differs */
    uint32_t usual_class;
    size_t usual_count, known;
    bool tie;         /* no side is the larger one for sure, and nothing else decides */
    bool thin;        /* members whose op nobody knows could make the smaller side as large, or larger */
    bool by_siblings; /* a tie that other communicators with the same calls decided */
    bool by_history;  /* a tie that the culprits' own past decided */
    struct diag_departure departure;
    enum diag_split split;
    size_t shift;
    unsigned fields;
    bool equal_bytes;
};

/* Arguments that differ, FIELD_KIND: another call. */
unsigned diag_fields(const struct diag_op *a, const struct diag_op *b);

/* Fills everything up to departure from lanes, and numbers their classes. */
void diag_sides(struct diag *d, struct divergence *v);

/*
 * Of the processes of the siblings of own's communicator that came to the other matching point: 1, all had
 * made the counterpart of the call at own before; -1, none of them has made it; 0, neither, or too few.
 */
int diag_sibling_order(const struct diag *d, uint32_t own, uint32_t common);

#endif
