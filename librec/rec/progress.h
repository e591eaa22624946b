/*
 * Progress of what may take seconds: loading a large job and analyzing it.
 *
 * The function is called only by the thread that called rec_job_open or rec_analyze, some ten to
 * some thousand times in all: cheap calls, no drawing. It must not use the job.
 */
#ifndef REC_PROGRESS_H
#define REC_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum rec_phase {
    REC_PHASE_FIND,    /* looking for traces: done = files looked at, total = 0 (not known) */
    REC_PHASE_LOAD,    /* reading them: processes */
    REC_PHASE_ANALYZE, /* the diagnosis: steps of no particular length */
};

struct rec_progress {
    /* done never falls within a phase. False: give up, with REC_ERR_CANCELLED. */
    bool (*report)(void *context, enum rec_phase phase, uint64_t done, uint64_t total);
    void *context;
};

#endif
