/*
 * Has anything changed since the last look? Answered without reading a trace: from the
 * counters in the live regions of this host, and for all other files from names, sizes and
 * times. Heartbeats are no change where a live region tells more than they do.
 */
#ifndef FR_PROBE_H
#define FR_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include "rec/job.h"

/*
 * A number that differs when calls began or returned, processes started or ended, or files
 * grew. job is the one that was last opened, NULL = none yet.
 */
uint64_t probe_signature(const char *const *dirs, size_t ndirs, const struct rec_job_options *options,
                         const struct rec_job *job);

#endif
