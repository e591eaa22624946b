/* The terminal browser of a verdict: fr-analyze --tui. */
#ifndef BROWSE_H
#define BROWSE_H

#include <stdbool.h>

#include "rec/verdict.h"

struct browse_options {
    bool mono, ascii;
};

/*
 * Runs until the user leaves; job and verdict stay the caller's. Returns the exit status:
 * the verdict's, or FR_EXIT_ERROR after a message when there is no usable terminal. A
 * fatal signal ends the process by that signal, with the terminal put back.
 */
int browse_run(const struct rec_job *job, const struct rec_verdict *verdict,
               const struct browse_options *options);

#endif
