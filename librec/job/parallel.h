/*
 * Many independent pieces of work, done by a few threads: the caller's and at most
 * JOB_THREADS_MAX - 1 that live for the length of the call. What a piece fills must belong to it
 * alone; results are then the same for any number of threads.
 */
#ifndef REC_JOB_PARALLEL_H
#define REC_JOB_PARALLEL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "rec/error.h"

#define JOB_THREADS_MAX 16

struct job_parallel {
    size_t count;
    void (*work)(void *context, size_t index); /* each index once, in any order, on any of the threads */
    /*
     * In the caller's thread, between its pieces; done is how many are done. False: no more are
     * begun. NULL = nobody looks.
     */
    bool (*tick)(void *context, size_t done);
    void *context;
};

/*
 * threads: 0 = one for each online CPU. Without resources for a thread the others do its part.
 * Everything that work wrote is visible to the caller afterwards.
 */
void job_parallel(unsigned threads, const struct job_parallel *pieces);

/* The first thing that went wrong in any piece. */
struct job_first_error {
    pthread_mutex_t lock;   /* PTHREAD_MUTEX_INITIALIZER at first */
    struct rec_error error; /* code REC_OK: nothing did. Read when all threads are through */
};
/* From a piece of work. */
void job_note_error(struct job_first_error *first, const struct rec_error *error);

#endif
