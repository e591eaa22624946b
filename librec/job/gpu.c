/*
 * What the GPU has done, per stream of a process: the newest word of it decides the states of all
 * ops, and its history when an op was seen to begin and to end.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* History is kept for the newest launches: 17 minutes at four records a second. */
#define POINTS_PER_STREAM  4096
#define POINTS_PER_PROCESS 65536

static struct job_gpu *gpu_of(struct job_process *process, uint32_t stream, bool create)
{
    uint32_t at = job_map_get(&process->gpu_ids, stream);
    if (at != JOB_MAP_NONE)
        return &process->gpus[at];
    if (!create || process->ngpus >= JOB_MAX_STREAMS)
        return NULL;
    if (!job_grow(&process->gpus, &process->gpus_room, process->ngpus + 1, sizeof(*process->gpus)) ||
        !job_map_put(&process->gpu_ids, stream, (uint32_t)process->ngpus)) {
        process->no_memory = true;
        return NULL;
    }
    struct job_gpu *gpu = &process->gpus[process->ngpus++];
    *gpu = (struct job_gpu){.now.stream = stream};
    return gpu;
}

static void add_point(struct job_process *process, struct job_gpu *gpu, uint64_t time_ns)
{
    if (gpu->npoints == POINTS_PER_STREAM) {
        size_t half = gpu->npoints / 2;
        memmove(gpu->points, gpu->points + half, (gpu->npoints - half) * sizeof(*gpu->points));
        gpu->npoints -= half;
        process->gpu_points -= half;
        gpu->forgotten = true;
    }
    if (process->gpu_points == POINTS_PER_PROCESS) {
        gpu->forgotten = true;
        return;
    }
    if (!job_grow(&gpu->points, &gpu->points_room, gpu->npoints + 1, sizeof(*gpu->points))) {
        process->no_memory = true;
        return;
    }
    gpu->points[gpu->npoints++] = (struct job_gpu_point){time_ns, gpu->now.started, gpu->now.ended};
    process->gpu_points++;
}

/* Segments repeat what was known when they began: only what is new counts. time_ns 0: not known. */
void job_process_gpu(struct job_process *process, uint64_t time_ns, const struct rec_gpu *told)
{
    struct job_gpu *gpu = gpu_of(process, told->stream, true);
    if (!gpu)
        return;
    struct rec_gpu *now = &gpu->now;
    /* Where progress is not less, this was told later: launches without marks may have been passed. */
    if (told->started >= now->started && told->ended >= now->ended)
        now->dropped = told->dropped;
    if (told->error)
        now->error = told->error;
    if (told->started <= now->started && told->ended <= now->ended)
        return;
    now->started = told->started > now->started ? told->started : now->started;
    now->ended = told->ended > now->ended ? told->ended : now->ended;
    if (time_ns == 0)
        return;
    add_point(process, gpu, time_ns);
    if (time_ns > process->pub.last_gpu_ns)
        process->pub.last_gpu_ns = time_ns;
}

/* When launches up to number were first seen to have begun, or to be over; 0 = that is forgotten. */
static uint64_t seen_at(const struct job_gpu *gpu, uint64_t number, bool over)
{
    size_t low = 0, high = gpu->npoints;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct job_gpu_point *point = &gpu->points[middle];
        if ((over ? point->ended : point->started) < number)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == gpu->npoints || (low == 0 && gpu->forgotten))
        return 0;
    return gpu->points[low].time_ns;
}

/* Whoever looks takes the time before, so a fast op may seem to be over before it was called. */
static uint64_t not_before(const struct rec_op *op, uint64_t seen_ns)
{
    return seen_ns != 0 && seen_ns < op->enter_ns ? op->enter_ns : seen_ns;
}

void job_op_gpu(struct job_process *process, struct rec_op *op)
{
    if (op->launch == 0 || (op->flags & REC_OF_CAPTURED))
        return;
    const struct job_gpu *gpu = gpu_of(process, op->stream, false);
    if (!gpu)
        return;
    if (gpu->now.dropped != 0 && op->launch >= gpu->now.dropped && op->launch > gpu->now.ended) {
        op->launch = 0; /* nothing is known of it */
        return;
    }
    rec_op_gpu(op, &gpu->now);
    if (op->state == REC_STATE_GPU_STARTED || op->state == REC_STATE_COMPLETED)
        op->gpu_start_ns = not_before(op, seen_at(gpu, op->launch, false));
    if (op->state == REC_STATE_COMPLETED)
        op->gpu_end_ns = not_before(op, seen_at(gpu, op->launch, true));
}

void job_gpu_free(struct job_process *process)
{
    for (size_t i = 0; i < process->ngpus; i++)
        free(process->gpus[i].points);
    free(process->gpus);
    job_map_free(&process->gpu_ids);
}
