/* What a process had launched and its GPU has not finished: read from the end of its trace, in steps. */
#ifndef PENDING_H
#define PENDING_H

#include "fr-analyze/tui/browser.h"

#define PENDING_SHOWN 8

struct pending {
    const struct rec_process *process; /* NULL = nothing is being read */
    struct rec_scan *scan;
    bool known;     /* something told how far the GPU had come */
    uint32_t count; /* of calls that are not over */
    struct rec_op oldest[PENDING_SHOWN];
};

void pending_start(struct pending *pending, const struct rec_job *job, const struct rec_process *process);
/* Reads until deadline_ns (monotonic); true = done. */
bool pending_step(struct pending *pending, uint64_t deadline_ns);
void pending_stop(struct pending *pending); /* what was found stays */

#endif
