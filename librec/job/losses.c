/* The calls of each thread by their ordinals: which are here, which are missing, and why. */
#include "internal.h"

struct job_thread *job_process_thread(struct job_process *process, uint32_t id, bool create)
{
    if (create && process->last_thread < process->nthreads && process->threads[process->last_thread].id == id)
        return &process->threads[process->last_thread];
    uint32_t at = job_map_get(&process->thread_ids, id);
    if (create && at != JOB_MAP_NONE)
        process->last_thread = at;
    if (at != JOB_MAP_NONE)
        return &process->threads[at];
    if (!create || id == REC_ID_NONE || process->nthreads >= JOB_MAX_THREADS)
        return NULL;
    if (!job_grow(&process->threads, &process->threads_room, process->nthreads + 1,
                  sizeof(*process->threads)) ||
        !job_map_put(&process->thread_ids, id, (uint32_t)process->nthreads)) {
        process->no_memory = true;
        return NULL;
    }
    struct job_thread *thread = &process->threads[process->nthreads++];
    *thread = (struct job_thread){.id = id, .def = {.id = id, .tid = -1}};
    return thread;
}

void job_losses_ops(struct job_thread *thread, uint64_t first_ordinal, size_t count)
{
    /* What is missing across damage is explained by it. */
    if (first_ordinal > thread->next && !thread->damaged)
        job_spans_add(&thread->gaps, thread->next, first_ordinal);
    thread->damaged = false;
    thread->next = first_ordinal + count;
    thread->records += count;
}

void job_losses_record(struct job_process *process, const struct rec_loss *loss)
{
    if (loss->why == REC_LOSS_DAMAGED) {
        process->pub.damaged = true;
        for (size_t i = 0; i < process->nthreads; i++)
            process->threads[i].damaged = true;
    }
    if (loss->why == REC_LOSS_ROTATED)
        process->pub.rotated = true;
    if (loss->why == REC_LOSS_TABLE_FULL && loss->thread == REC_ID_NONE) {
        process->unslotted += loss->count;
        return;
    }
    struct job_thread *thread =
        loss->thread == REC_ID_NONE ? NULL : job_process_thread(process, loss->thread, true);
    if (!thread) {
        process->anonymous_lost += loss->count;
        return;
    }
    uint64_t end = loss->first_ordinal + loss->count;
    if (end < loss->first_ordinal)
        return; /* hostile numbers */
    job_spans_add(&thread->losses, loss->first_ordinal, end);
    if (end > thread->end)
        thread->end = end;
}

/* What the region's own counters say about calls that left no record. */
void job_losses_live(struct job_process *process, const struct job_snapshot *s)
{
    const struct rec_live_header *h = s->copy.header;
    for (uint32_t i = 0; i < h->thread_count; i++) {
        const struct rec_live_thread *live = &s->copy.threads[i];
        struct rec_thread_def def;
        if (!job_snapshot_thread(s, i, &def))
            continue;
        struct job_thread *thread = job_process_thread(process, def.id, true);
        if (!thread)
            continue;
        uint64_t entered = atomic_load_explicit(&live->ordinal, memory_order_relaxed);
        uint64_t open = atomic_load_explicit(&live->open, memory_order_relaxed);
        if (open && open <= entered)
            entered = open - 1;
        else if (s->alive && entered > thread->next)
            entered--; /* the call may have been on its way into its slot */
        if (entered > thread->end)
            thread->end = entered;
        thread->counted_lost = atomic_load_explicit(&live->lost, memory_order_relaxed);
    }
    uint64_t unslotted = atomic_load_explicit(&h->unslotted, memory_order_relaxed);
    if (unslotted > process->unslotted)
        process->unslotted = unslotted;
}

/*
 * Missing: ordinals given out without a record. Unaccounted: those of them that no loss
 * record, no damage, no rotation and no counter explains.
 */
void job_losses_sum(struct job_process *process)
{
    uint64_t missing = 0, unexplained = 0;
    for (size_t i = 0; i < process->nthreads; i++) {
        struct job_thread *thread = &process->threads[i];
        if (thread->end > thread->next)
            job_spans_add(&thread->gaps, thread->next, thread->end);
        uint64_t end = thread->end > thread->next ? thread->end : thread->next;
        missing += end - (thread->records < end ? thread->records : end);
        struct job_spans none = {0};
        uint64_t all = job_spans_minus(&thread->gaps, &none);
        uint64_t left = job_spans_minus(&thread->gaps, &thread->losses);
        uint64_t counted = thread->counted_lost > all - left ? thread->counted_lost - (all - left) : 0;
        unexplained += left > counted ? left - counted : 0;
    }
    struct rec_process *pub = &process->pub;
    if (unexplained > 0 && pub->rotated)
        unexplained = 0; /* the beginning of every thread may be in a part that is gone */
    unexplained = unexplained > process->anonymous_lost ? unexplained - process->anonymous_lost : 0;
    pub->unaccounted = unexplained;
    pub->dropped_ops = (missing > process->anonymous_lost ? missing : process->anonymous_lost) +
                       process->unslotted + process->unwritten;
}
