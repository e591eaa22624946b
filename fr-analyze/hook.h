/*
 * The command of --on-fault, run by a child process: nobody waits for it. One runs at a
 * time; when another incident begins meanwhile, its command starts as soon as the first has
 * ended, and of several that wait only the newest is kept.
 *
 * Belongs to the main thread. SIGCHLD must be blocked; hook_reap is called when it arrives.
 */
#ifndef FR_HOOK_H
#define FR_HOOK_H

#include <sys/types.h>

#include "rec/verdict.h"

struct hook {
    const char *command; /* for sh -c; NULL = nothing is ever run */
    pid_t child;         /* 0 = none runs */
    struct hook_call *waiting;
};

/*
 * Runs the command, or lets it wait. It gets text (a JSON document) on standard input and in
 * its environment FREC_VERDICT, FREC_STATUS, FREC_CULPRIT_RANKS ("3,7") and
 * FREC_CULPRIT_HOSTS ("node1,node2"; characters that no host name has become "_"). Its
 * standard output is ours for errors, its process group its own, so that an interrupt from
 * the terminal ends the watch and not the remedy.
 */
void hook_run(struct hook *hook, const struct rec_job *job, const struct rec_verdict *verdict,
              const char *text);

/* Takes note of a child that ended, reports a failure, starts what waits. */
void hook_reap(struct hook *hook);

/* Forgets what waits; a command that runs goes on. */
void hook_fini(struct hook *hook);

#endif
