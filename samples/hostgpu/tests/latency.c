/* Small AllReduces in a loop among many processes: right results, little processor time. Prints figures. */
#include "harness.h"

#include <sys/resource.h>

struct plan {
    int steps;
    size_t count;
    bool wait_each;
};

static void loop(const struct rank_context *context)
{
    const struct plan *plan = context->argument;
    ncclComm_t comm = rank_comm(context);
    cudaStream_t stream = new_stream();
    float *data = device_alloc(plan->count * sizeof *data);
    for (size_t i = 0; i < plan->count; i++)
        data[i] = 1;
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
        printf("%d ranks, %zu floats, %s: %.1f us a step, %.3f s processor time of rank 0\n", context->nranks,
               plan->count, plan->wait_each ? "waiting for each" : "queued", took / plan->steps * 1e6,
               (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
                   (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    CHECK_CUDA(cudaFree(data));
    CHECK_NCCL(ncclCommDestroy(comm));
}

int main(void)
{
    ranks_run(2, loop, &(struct plan){2000, 16, true});
    ranks_run(4, loop, &(struct plan){2000, 16, true});
    ranks_run(4, loop, &(struct plan){2000, 16, false});
    ranks_run(8, loop, &(struct plan){500, 1 << 16, true});
    ranks_run(64, loop, &(struct plan){50, 256, true});
    return 0;
}
