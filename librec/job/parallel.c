#include "job/parallel.h"

#include <stdatomic.h>
#include <unistd.h>

/*
 * next and done are counters and nothing else: which piece a thread takes says nothing about the
 * others' results, and those are read after joining.
 */
struct crew {
    const struct job_parallel *pieces;
    _Atomic size_t next, done;
    _Atomic bool stop;
};

static bool take_one(struct crew *crew)
{
    if (atomic_load_explicit(&crew->stop, memory_order_relaxed))
        return false;
    size_t index = atomic_fetch_add_explicit(&crew->next, 1, memory_order_relaxed);
    if (index >= crew->pieces->count)
        return false;
    crew->pieces->work(crew->pieces->context, index);
    atomic_fetch_add_explicit(&crew->done, 1, memory_order_relaxed);
    return true;
}

static void *help(void *arg)
{
    while (take_one(arg))
        ;
    return NULL;
}

static unsigned online(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return cpus < 1 ? 1 : cpus > JOB_THREADS_MAX ? JOB_THREADS_MAX : (unsigned)cpus;
}

void job_parallel(unsigned threads, const struct job_parallel *pieces)
{
    struct crew crew = {.pieces = pieces};
    pthread_t helpers[JOB_THREADS_MAX];
    size_t wanted = threads ? threads : online(), started = 0;
    wanted = wanted > JOB_THREADS_MAX ? JOB_THREADS_MAX : wanted;
    wanted = wanted > pieces->count ? pieces->count : wanted;
    while (started + 1 < wanted && pthread_create(&helpers[started], NULL, help, &crew) == 0)
        started++;
    while (take_one(&crew)) {
        size_t done = atomic_load_explicit(&crew.done, memory_order_relaxed);
        if (pieces->tick && !pieces->tick(pieces->context, done))
            atomic_store_explicit(&crew.stop, true, memory_order_relaxed);
    }
    for (size_t i = 0; i < started; i++)
        pthread_join(helpers[i], NULL);
}

void job_note_error(struct job_first_error *first, const struct rec_error *error)
{
    pthread_mutex_lock(&first->lock);
    if (first->error.code == REC_OK)
        first->error = *error;
    pthread_mutex_unlock(&first->lock);
}
