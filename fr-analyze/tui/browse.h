/* The terminal browser of a verdict: fr-analyze --tui. */
#ifndef BROWSE_H
#define BROWSE_H

#include <stdbool.h>

#include "rec/verdict.h"

/* How to look again at a job that runs. Called by the thread that browses. */
struct browse_again {
    void *context;
    /* Called some times a second. True: *job and *verdict are newer than those that are shown. */
    bool (*look)(void *context, const struct rec_job **job, const struct rec_verdict **verdict);
    void (*keep)(void *context); /* after that, when nothing refers to the old ones any more */
};

struct browse_options {
    bool mono, ascii;
    const struct browse_again *again; /* NULL = a picture of one moment */
};

/* What is done before there is something to browse. */
struct browse_progress {
    bool over;
    double part; /* 0 … 1; negative = not known */
    char text[128];
};

enum browse_wait {
    BROWSE_READY,       /* it is over; the terminal stays open for browse_run, or until browse_close */
    BROWSE_LEFT,        /* the user left before: signo is 0, or the signal that told so */
    BROWSE_NO_TERMINAL, /* after a message */
};

/* Opens the terminal and shows what is being done until it is over. look is called often. */
enum browse_wait browse_wait(const struct browse_options *options, const char *title,
                             void (*look)(void *context, struct browse_progress *progress), void *context,
                             int *signo);
void browse_close(void);
/* Ends the process by this signal, as it would have without a browser; returns for 0 and SIGINT. */
void browse_pass_on(int signo);

/*
 * Runs until the user leaves; job and verdict stay the caller's. Returns the exit status: that of
 * the verdict shown last, or FR_EXIT_ERROR after a message when there is no usable terminal. A
 * fatal signal ends the process by that signal, with the terminal put back.
 */
int browse_run(const struct rec_job *job, const struct rec_verdict *verdict,
               const struct browse_options *options);

#endif
