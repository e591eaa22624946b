/*
 * A small job for a real GPU: one process, a communicator over all its GPUs (one is enough).
 *
 *   gpu-job loop N       N AllReduce, checked
 *   gpu-job graph N      three AllReduce captured into a graph, launched N times, checked
 *   gpu-job block N      N AllReduce, then the streams are blocked, then N more; waits to be killed
 *   gpu-job blockgraph N the same with launches of a graph
 *   gpu-job cost N       prints the time of a call, and of N calls with what the GPUs make of them
 *   gpu-job overlap N    N times two large AllReduce of two communicators on two streams; prints the time
 *
 * Prints "release NCCL CUDA-DRIVER GPUS" first. Exit status 0, or 1 and a line why.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_GPUS 16
#define ELEMENTS 4096

static _Noreturn void fail(const char *what, const char *why)
{
    printf("%s: %s\n", what, why);
    exit(1);
}

static void nccl(const char *what, ncclResult_t result)
{
    if (result != ncclSuccess)
        fail(what, ncclGetErrorString(result));
}

static void cuda(const char *what, cudaError_t error)
{
    if (error != cudaSuccess)
        fail(what, cudaGetErrorString(error));
}

static void driver(const char *what, CUresult error)
{
    const char *text = "unknown error";
    if (error != CUDA_SUCCESS) {
        cuGetErrorString(error, &text);
        fail(what, text);
    }
}

static int gpus;
static ncclComm_t comms[2][MAX_GPUS];
static cudaStream_t streams[2][MAX_GPUS];
static float *data[2][MAX_GPUS];

static void make(int set, size_t elements)
{
    nccl("ncclCommInitAll", ncclCommInitAll(comms[set], gpus, NULL));
    for (int i = 0; i < gpus; i++) {
        cuda("cudaSetDevice", cudaSetDevice(i));
        cuda("cudaStreamCreate", cudaStreamCreateWithFlags(&streams[set][i], cudaStreamNonBlocking));
        cuda("cudaMalloc", cudaMalloc((void **)&data[set][i], elements * sizeof(float)));
        cuda("cudaMemset", cudaMemsetAsync(data[set][i], 0, elements * sizeof(float), streams[set][i]));
    }
}

static void fill(int set)
{
    static float ones[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++)
        ones[i] = 1;
    for (int i = 0; i < gpus; i++)
        cuda("cudaMemcpy",
             cudaMemcpyAsync(data[set][i], ones, sizeof(ones), cudaMemcpyDefault, streams[set][i]));
}

/* The average keeps the ones of fill, whatever the number of GPUs and calls. */
static void all_reduce(int set, size_t elements)
{
    if (gpus > 1)
        nccl("ncclGroupStart", ncclGroupStart());
    for (int i = 0; i < gpus; i++)
        nccl("ncclAllReduce", ncclAllReduce(data[set][i], data[set][i], elements, ncclFloat, ncclAvg,
                                            comms[set][i], streams[set][i]));
    if (gpus > 1)
        nccl("ncclGroupEnd", ncclGroupEnd());
}

static void wait(int set)
{
    for (int i = 0; i < gpus; i++)
        cuda("cudaStreamSynchronize", cudaStreamSynchronize(streams[set][i]));
}

static void check(int set)
{
    static float result[ELEMENTS];
    for (int i = 0; i < gpus; i++) {
        cuda("cudaMemcpy",
             cudaMemcpyAsync(result, data[set][i], sizeof(result), cudaMemcpyDefault, streams[set][i]));
        cuda("cudaStreamSynchronize", cudaStreamSynchronize(streams[set][i]));
        for (int k = 0; k < ELEMENTS; k++)
            if (result[k] != 1.0f)
                fail("result", "wrong");
    }
}

/* In front of what comes next on the streams stands a wait for a value that nobody writes. */
static void block(void)
{
    uint32_t *word;
    CUdeviceptr address;
    cuda("cudaHostAlloc", cudaHostAlloc((void **)&word, 4096, cudaHostAllocMapped | cudaHostAllocPortable));
    memset(word, 0, 4096);
    for (int i = 0; i < gpus; i++) {
        cuda("cudaSetDevice", cudaSetDevice(i));
        driver("cuMemHostGetDevicePointer", cuMemHostGetDevicePointer(&address, word, 0));
        driver("cuStreamWaitValue32",
               cuStreamWaitValue32(streams[0][i], address, 1, CU_STREAM_WAIT_VALUE_EQ));
    }
}

static cudaGraphExec_t graphs[MAX_GPUS];

/* One graph per GPU, captured at once: NCCL's launches of a group belong together. */
static void capture(int times)
{
    for (int i = 0; i < gpus; i++)
        cuda("cudaStreamBeginCapture",
             cudaStreamBeginCapture(streams[0][i], cudaStreamCaptureModeThreadLocal));
    for (int n = 0; n < times; n++)
        all_reduce(0, ELEMENTS);
    for (int i = 0; i < gpus; i++) {
        cudaGraph_t graph;
        cuda("cudaStreamEndCapture", cudaStreamEndCapture(streams[0][i], &graph));
        cuda("cudaGraphInstantiate", cudaGraphInstantiate(&graphs[i], graph, 0));
        cuda("cudaGraphDestroy", cudaGraphDestroy(graph));
    }
}

static void launch_graphs(void)
{
    for (int i = 0; i < gpus; i++)
        cuda("cudaGraphLaunch", cudaGraphLaunch(graphs[i], streams[0][i]));
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void wait_for_the_end(void)
{
    printf("blocked\n");
    fflush(stdout);
    for (;;)
        pause();
}

static void cost(int times)
{
    for (int i = 0; i < 200; i++)
        all_reduce(0, ELEMENTS);
    wait(0);
    double calls = 0, begin = seconds();
    for (int i = 0; i < times; i++) {
        double before = seconds();
        all_reduce(0, ELEMENTS);
        calls += seconds() - before;
        if (i % 100 == 99) /* no queue may fill up */
            wait(0);
    }
    wait(0);
    printf("call_us %.3f\nround_us %.3f\n", calls / times * 1e6, (seconds() - begin) / times * 1e6);
}

static void overlap(int times)
{
    size_t elements = (size_t)16 << 20;
    make(0, elements);
    make(1, elements);
    for (int i = 0; i < 5; i++)
        for (int set = 0; set < 2; set++)
            all_reduce(set, elements);
    wait(0);
    wait(1);
    double begin = seconds();
    for (int i = 0; i < times; i++)
        for (int set = 0; set < 2; set++)
            all_reduce(set, elements);
    wait(0);
    wait(1);
    printf("round_us %.3f\n", (seconds() - begin) / times * 1e6);
}

int main(int argc, char **argv)
{
    int release, cuda_version;
    const char *what = argc == 3 ? argv[1] : "";
    int times = argc == 3 ? atoi(argv[2]) : 0;
    if (times <= 0)
        fail("usage", "gpu-job loop|graph|block|blockgraph|cost|overlap N");
    cuda("cudaGetDeviceCount", cudaGetDeviceCount(&gpus));
    gpus = gpus < MAX_GPUS ? gpus : MAX_GPUS;
    driver("cuDriverGetVersion", cuDriverGetVersion(&cuda_version));
    nccl("ncclGetVersion", ncclGetVersion(&release));
    printf("release %d %d %d\n", release, cuda_version, gpus);
    if (strcmp(what, "overlap") == 0) {
        overlap(times);
        return 0;
    }
    make(0, ELEMENTS);
    fill(0);
    wait(0);
    if (strcmp(what, "cost") == 0) {
        cost(times);
    } else if (strcmp(what, "loop") == 0 || strcmp(what, "block") == 0) {
        for (int i = 0; i < times; i++)
            all_reduce(0, ELEMENTS);
        check(0);
        if (strcmp(what, "block") == 0) {
            block();
            for (int i = 0; i < times; i++)
                all_reduce(0, ELEMENTS);
            wait_for_the_end();
        }
    } else if (strcmp(what, "graph") == 0 || strcmp(what, "blockgraph") == 0) {
        all_reduce(0, ELEMENTS); /* connections are made outside of the capture */
        capture(3);
        for (int i = 0; i < times; i++)
            launch_graphs();
        check(0);
        if (strcmp(what, "blockgraph") == 0) {
            block();
            for (int i = 0; i < times; i++)
                launch_graphs();
            wait_for_the_end();
        }
        for (int i = 0; i < gpus; i++)
            cuda("cudaGraphExecDestroy", cudaGraphExecDestroy(graphs[i]));
    } else {
        fail("usage", "gpu-job loop|graph|block|blockgraph|cost|overlap N");
    }
    for (int i = 0; i < gpus; i++)
        nccl("ncclCommDestroy", ncclCommDestroy(comms[0][i]));
    return 0;
}
