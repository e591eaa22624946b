/* A process measured by its own past, and by others that had called the same as it did. */
#ifndef DIAG_PAST_H
#define DIAG_PAST_H

#include "diag.h"

/* ---- history.c ---- */

/* Where a process did something else than what it had always done at that point, or than its twin there. */
struct diag_departure {
    uint32_t op;       /* what it did */
    uint32_t expected; /* the last time it did the usual thing; or what the twin did */
    uint32_t seen;     /* how often it had; 0: a twin's */
};
struct diag_habit {
    bool left;                       /* its loop */
    bool back;                       /* and came back to it behind one call */
    struct diag_departure departure; /* the first one */
    bool kept;                       /* the op at upto is what the loop foretold */
    bool due;                        /* what is asked for would have followed on its last calls */
};
/* What a departure must have to do with. */
struct diag_question {
    const struct rec_communicator *comm;
    bool message; /* of this kind and peer; else no message */
    uint8_t kind;
    int32_t peer;
};
/* The calls that are like op, or like what others should have called for it. */
struct diag_question diag_asks(const struct diag_op *op, bool counterpart);
/*
 * How a process behaved near its end, measured by its own past: departures that concern what is asked
 * for, by what it called or should have called, no later than with the op at upto.
 */
void diag_habit(struct diag *d, uint32_t proc, const struct diag_question *asked, uint32_t upto,
                struct diag_habit *habit);
void diag_evidence_departure(struct diag *d, struct rec_finding *f, const struct diag_departure *departure);

/* ---- twins.c ---- */

enum diag_twin { DIAG_TWIN_NONE, DIAG_TWIN_SAME, DIAG_TWIN_OTHER };
/*
 * What other processes say of this one, which had called the same as they did, call for call, on the same
 * communicators or with the same part in others of their kind: have they called the same up to the op at
 * upto, too? OTHER: no, and departure tells where. NONE: there is none, or they disagree. Those involved (by
 * process) are not asked.
 */
enum diag_twin diag_twins_tell(const struct diag *d, uint32_t upto, const bool *involved,
                               struct diag_departure *departure);
/* "rank 3 (host a, pid 7), which had called the same so far, called " */
void diag_say_twin(const struct diag *d, struct diag_text *t, const struct diag_departure *departure);

#endif
