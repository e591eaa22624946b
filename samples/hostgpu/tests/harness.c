#include "harness.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void sleep_s(double s)
{
    struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&t, NULL);
}

void ranks_start(struct rank_set *set, int nranks, void rank_main(const struct rank_context *),
                 const void *argument)
{
    struct rank_context context = {.nranks = nranks, .argument = argument};
    CHECK(nranks <= 128);
    CHECK_NCCL(ncclGetUniqueId(&context.id));
    set->nranks = nranks;
    for (int r = 0; r < nranks; r++) {
        context.rank = r;
        set->pids[r] = fork();
        CHECK(set->pids[r] >= 0);
        if (set->pids[r] == 0) {
            rank_main(&context);
            exit(0);
        }
    }
}

static void kill_all(struct rank_set *set)
{
    for (int r = 0; r < set->nranks; r++)
        if (set->pids[r] > 0) {
            kill(set->pids[r], SIGKILL);
            waitpid(set->pids[r], NULL, 0);
            set->pids[r] = 0;
        }
}

/* Reaps what has ended until at most `left` run or time is up. Returns how many still run. */
static int reap(struct rank_set *set, int left, double until, bool *all_well)
{
    for (;;) {
        int running = 0;
        for (int r = 0; r < set->nranks; r++) {
            int status;
            if (set->pids[r] <= 0)
                continue;
            if (waitpid(set->pids[r], &status, WNOHANG) == 0) {
                running++;
                continue;
            }
            if (status) {
                fprintf(stderr, "rank %d of %d: status %#x\n", r, set->nranks, (unsigned)status);
                *all_well = false;
            }
            set->pids[r] = 0;
        }
        if (running <= left || now_s() > until || !*all_well)
            return running;
        sleep_s(0.002);
    }
}

bool ranks_succeed(struct rank_set *set, int timeout_s)
{
    bool all_well = true;
    int running = reap(set, 0, now_s() + timeout_s, &all_well);
    if (running && all_well)
        fprintf(stderr, "%d of %d ranks still running after %d s\n", running, set->nranks, timeout_s);
    kill_all(set);
    return all_well && !running;
}

bool ranks_hang(struct rank_set *set, int left, double for_s)
{
    bool all_well = true;
    reap(set, left, now_s() + 30, &all_well);
    sleep_s(for_s);
    int running = reap(set, set->nranks, 0, &all_well);
    kill_all(set);
    return running == left;
}

void ranks_run(int nranks, void rank_main(const struct rank_context *), const void *argument)
{
    struct rank_set set;
    ranks_start(&set, nranks, rank_main, argument);
    CHECK(ranks_succeed(&set, 60));
}

ncclComm_t rank_comm(const struct rank_context *context)
{
    ncclComm_t comm;
    CHECK_NCCL(ncclCommInitRank(&comm, context->nranks, context->id, context->rank));
    return comm;
}

cudaStream_t new_stream(void)
{
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

bool stream_finishes(cudaStream_t stream, double within_s)
{
    double until = now_s() + within_s;
    while (cudaStreamQuery(stream) == cudaErrorNotReady) {
        if (now_s() > until)
            return false;
        sleep_s(0.001);
    }
    return true;
}

void *device_alloc(size_t bytes)
{
    void *pointer;
    CHECK_CUDA(cudaMalloc(&pointer, bytes ? bytes : 1));
    return pointer;
}
