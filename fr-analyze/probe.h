/*
 * Has anything changed since the last look? Answered without reading a trace: from the
 * counters in the live regions of this host, and for all other files from the headers of what was
 * appended. Heartbeats are told apart from calls.
 */
#ifndef FR_PROBE_H
#define FR_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include "rec/job.h"

/* What was known of the files at the last look; zeroed = nothing. */
struct probe {
    struct probe_file *files;
    size_t count, room;
};

/* Numbers that mean nothing but that they differ when something has happened. */
struct probe_look {
    uint64_t calls; /* calls began or returned, processes started or ended */
    uint64_t beats; /* files grew otherwise: heartbeats, where there is no live region to tell more */
    uint64_t quiet; /* a file stopped to grow, or does so again: somebody may be gone */
};

/* job is the one that was last opened, NULL = none yet. */
void probe_look(struct probe *probe, const char *const *dirs, size_t ndirs,
                const struct rec_job_options *options, const struct rec_job *job, struct probe_look *look);
void probe_fini(struct probe *probe);

#endif
