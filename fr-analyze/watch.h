/*
 * fr-analyze --watch: keeps looking at a job that runs and tells what changes.
 *
 * An incident begins when a fault (or a standstill without an explanation) is seen at two
 * looks in a row, and ends when the job is healthy again. It is printed once, when it
 * begins; what becomes of it is printed as well, and the command is run only at its
 * beginning. A look costs an analysis only when something has changed that can matter
 * (probe.h), and analyses take at most about a quarter of the time.
 *
 * Belongs to the main thread, which has SIGCHLD, SIGINT and SIGTERM blocked meanwhile.
 */
#ifndef FR_WATCH_H
#define FR_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/verdict.h"

#define WATCH_DEFAULT_INTERVAL 2

struct watch_options {
    const char *const *dirs;
    size_t ndirs;
    struct rec_job_options job;
    struct rec_analyze_options analyze;
    bool json;
    uint32_t interval_sec; /* between looks */
    const char *on_fault;  /* shell command; NULL = none */
};

/*
 * Returns when the job has ended (its exit status is that of the final verdict), on SIGINT or
 * SIGTERM (that of the last verdict; FR_EXIT_ERROR when there was none), or after an error
 * that further looks cannot mend. Errors are reported.
 */
int watch_run(const struct watch_options *options);

#endif
