/* From a run to the .frec files that the recorder would have left of it. */
#ifndef RECORD_H
#define RECORD_H

#include "execute.h"

/* What the recording lacks. */
struct losses {
    uint64_t skew_ns[RANKS_MAX]; /* clock offset, by host */
    bool lost[RANKS_MAX];        /* some bursts of records */
    bool rotated[RANKS_MAX];     /* the beginning is gone: so little is kept that the writer rotates */
    bool no_trace[RANKS_MAX];
    unsigned keep_percent[RANKS_MAX]; /* of the file; 0 = all */
};

struct recording {
    uint64_t end;    /* when the job was ended from outside; what ended before is not touched */
    bool terminated; /* by SIGTERM, which leaves an end record; else by SIGKILL */
    /* Who has waited for so long aborts, and the launcher terminates the others soon after; 0 = nobody. */
    uint64_t watchdog_ns;
    bool aborts; /* the communicators, and exits; else by abort() */
    struct losses losses;
};

/* Writes a file for every rank into dir. Returns false when that fails. */
bool record_run(const struct plan *plan, const struct run *run, const struct recording *recording,
                uint64_t seed, const char *dir);
/* The host of a rank, 0 … plan->nhosts-1. */
int host_of(const struct plan *plan, int rank);

#endif
