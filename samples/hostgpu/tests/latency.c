/* Small AllReduces in a loop among many processes: right results, little processor time. Prints figures. */
#include "harness.h"

#include <sys/resource.h>

struct plan {
    int steps;
    size_t count;
    bool wait_each;
    const double *started; /* when the ranks were forked */
};

static void loop(const struct rank_context *context)
{
    const struct plan *plan = context->argument;
    ncclComm_t comm = rank_comm(context);
    cudaStream_t stream = new_stream();
    float *data = device_alloc(plan->count * sizeof *data);
    for (size_t i = 0; i < plan->count; i++)
        data[i] = 1;
    double ready = now_s() - *plan->started;
    double start = now_s();
    for (int step = 0; step < plan->steps; step++) {
        CHECK_NCCL(ncclAllReduce(data, data, plan->count, ncclFloat32, ncclAvg, comm, stream));
        if (plan->wait_each)
            CHECK_CUDA(cudaStreamSynchronize(stream));
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
    double took = now_s() - start;
    for (size_t i = 0; i < plan->count; i++)
        CHECK(data[i] == 1);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    if (context->rank == 0)
        printf("%d ranks, %zu floats, %s: ready after %.0f ms, %.1f us a step, %.3f s processor time of rank "
               "0\n",
               context->nranks, plan->count, plan->wait_each ? "waiting for each" : "queued", ready * 1e3,
               took / plan->steps * 1e6,
               (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
                   (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    CHECK_CUDA(cudaFree(data));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void measure(int nranks, int steps, size_t count, bool wait_each)
{
    double started = now_s();
    ranks_run(nranks, loop, &(struct plan){steps, count, wait_each, &started});
}

int main(void)
{
    measure(2, 2000, 16, true);
    measure(4, 2000, 16, true);
    measure(4, 2000, 16, false);
    measure(8, 500, 1 << 16, true);
    measure(64, 50, 256, true);
    return 0;
}
