/*
 * CUDA graphs with NCCL calls in them, by every way to the driver that is recorded. Runs itself under the
 * recorder given as argument, on the host lab, and looks into its own live region.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <nccl.h>
#include <stdio.h>
#include <unistd.h>

#include "again.h"
#include "rec/live.h"

#define CHECK_CUDA(call) assert_int_equal(call, cudaSuccess)

static ncclComm_t comm;
static cudaStream_t stream;
static float *data;
static void *driver; /* as a program opens it */

/* ---- what was recorded ---- */

static struct rec_op ops[256];
static int count, seen; /* seen: when the test began */

static void read_ops(void)
{
    const struct rec_live *live = own_region();
    struct rec_clock clock;
    rec_live_clock_read(live, &clock);
    count = 0;
    for (uint32_t i = 0; i < live->header->chunk_count; i++)
        for (uint32_t k = 0; k < atomic_load(&live->chunks[i].done) && count < 256; k++) {
            struct rec_slot slot;
            rec_live_slot_load(&live->slots[(size_t)i * REC_LIVE_CHUNK_SLOTS + k], &slot);
            rec_live_to_op(live, &clock, 1, &slot, &ops[count++]);
        }
    /* A single thread, fewer calls than a chunk holds: they stand in order. */
    assert_in_range(count, 0, REC_LIVE_CHUNK_SLOTS - 1);
}

/* The n-th call since the test began. */
static const struct rec_op *call(int n)
{
    read_ops();
    assert_in_range(seen + n, 0, count - 1);
    return &ops[seen + n];
}

static int calls(void)
{
    read_ops();
    return count - seen;
}

static void check_launch(int n, uint64_t graph, uint64_t replay)
{
    const struct rec_op *op = call(n);
    assert_int_equal(op->kind, REC_GRAPH_LAUNCH);
    assert_int_equal(op->peer, graph);
    assert_int_equal(op->seq, replay);
    assert_int_equal(op->group, 0);
    assert_int_equal(op->result, REC_RESULT_SUCCESS);
}

/* ---- graphs ---- */

static void all_reduce(cudaStream_t where)
{
    assert_int_equal(ncclAllReduce(data, data, 8, ncclFloat, ncclSum, comm, where), ncclSuccess);
}

/* What a test leaves is destroyed behind it. */
static cudaGraph_t graphs[4];
static cudaGraphExec_t execs[4];

static void **place_of(void **places, void *what)
{
    for (int i = 0; i < 4; i++)
        if (places[i] == what)
            return &places[i];
    fail_msg("more of them than a test needs, or an unknown one");
    return NULL;
}

static void destroy_graph(cudaGraph_t graph)
{
    *place_of((void **)graphs, graph) = NULL;
    CHECK_CUDA(cudaGraphDestroy(graph));
}

static void destroy_exec(cudaGraphExec_t exec)
{
    *place_of((void **)execs, exec) = NULL;
    CHECK_CUDA(cudaGraphExecDestroy(exec));
}

static cudaGraph_t capture(int calls_in_it)
{
    cudaGraph_t graph;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(cudaMemsetAsync(data, 0, 8, stream));
    for (int i = 0; i < calls_in_it; i++)
        all_reduce(stream);
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    *place_of((void **)graphs, NULL) = graph;
    return graph;
}

static cudaGraphExec_t instantiate(cudaGraph_t graph)
{
    cudaGraphExec_t exec;
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    *place_of((void **)execs, NULL) = exec;
    return exec;
}

static void launches_are_counted(void **state)
{
    (void)state;
    cudaGraph_t graph = capture(2);
    uint64_t number = call(0)->launch;
    assert_int_not_equal(number, 0);
    assert_int_equal(call(1)->launch, number);
    assert_true(call(1)->flags & REC_OF_CAPTURED);
    cudaGraphExec_t exec = instantiate(graph), twin = instantiate(graph);
    for (int i = 0; i < 3; i++) {
        errno = 77;
        CHECK_CUDA(cudaGraphLaunch(i == 1 ? twin : exec, stream));
        assert_int_equal(errno, 77);
        check_launch(2 + i, number, (uint64_t)i);
        assert_int_equal(call(2 + i)->count, 2);
        assert_int_not_equal(call(2 + i)->launch, 0); /* it has marks */
    }
    destroy_graph(graph);
    CHECK_CUDA(cudaGraphLaunch(exec, stream)); /* what was instantiated lives on */
    check_launch(5, number, 3);
    destroy_exec(exec);
    destroy_exec(twin);
}

/* A graph without NCCL calls is nobody's business, even where it gets a former one's handles. */
static void others_are_left_alone(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        cudaGraph_t graph = capture(0);
        cudaGraphExec_t exec = instantiate(graph);
        CHECK_CUDA(cudaGraphLaunch(exec, stream));
        destroy_graph(graph);
        destroy_exec(exec);
        assert_int_equal(calls(), i);
        graph = capture(1);
        destroy_graph(graph);
    }
}

static void an_update_changes_the_graph(void **state)
{
    (void)state;
    cudaGraph_t first = capture(1), second = capture(1), plain = capture(0);
    cudaGraphExec_t exec = instantiate(first);
    cudaGraphExecUpdateResultInfo info;
    uint64_t numbers[] = {call(0)->launch, call(1)->launch};
    assert_int_not_equal(numbers[0], numbers[1]);
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    check_launch(2, numbers[0], 0);
    CHECK_CUDA(cudaGraphExecUpdate(exec, second, &info));
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    check_launch(3, numbers[1], 0);
    CHECK_CUDA(cudaGraphExecUpdate(exec, plain, &info));
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    assert_int_equal(calls(), 4);
}

/* XLA and others ask for the driver's functions themselves. */
static void by_name(void **state)
{
    (void)state;
    cudaGraphExec_t exec = instantiate(capture(1));
    uint64_t number = call(0)->launch;
    PFN_cuGraphLaunch_v10000 launch = (PFN_cuGraphLaunch_v10000)dlsym(driver, "cuGraphLaunch");
    CHECK_CUDA((int)launch(exec, stream));
    check_launch(1, number, 0);
    PFN_cuGetProcAddress_v12000 get = (PFN_cuGetProcAddress_v12000)dlsym(driver, "cuGetProcAddress_v2");
    void *ours = NULL, *newer = NULL, *again = NULL;
    CHECK_CUDA((int)get("cuGraphLaunch", &ours, 12000, 0, NULL));
    assert_ptr_equal(ours, launch);
    /* What a later CUDA means by a name is not known. */
    CHECK_CUDA((int)get("cuGraphLaunch", &newer, 20000, 0, NULL));
    assert_ptr_not_equal(newer, launch);
    assert_ptr_not_equal(newer, NULL);
    CHECK_CUDA((int)get("cuGetProcAddress", &again, 12000, 0, NULL));
    assert_ptr_equal(again, get);
    PFN_cuGetProcAddress_v11030 old = (PFN_cuGetProcAddress_v11030)dlsym(driver, "cuGetProcAddress");
    CHECK_CUDA((int)old("cuGraphLaunch", &again, 11030, 0));
    assert_ptr_equal(again, launch);
    assert_int_not_equal(get("cuNoSuchFunction", &again, 12000, 0, NULL), CUDA_SUCCESS);
    assert_int_not_equal(launch(NULL, stream), CUDA_SUCCESS);
    assert_int_equal(calls(), 2);
}

static void the_threads_own_stream(void **state)
{
    (void)state;
    cudaGraphExec_t exec = instantiate(capture(1));
    PFN_cuGetProcAddress_v12000 get = (PFN_cuGetProcAddress_v12000)dlsym(driver, "cuGetProcAddress_v2");
    void *launch = NULL;
    CHECK_CUDA(
        (int)get("cuGraphLaunch", &launch, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
    assert_ptr_not_equal(launch, dlsym(driver, "cuGraphLaunch"));
    assert_ptr_equal(launch, dlsym(driver, "cuGraphLaunch_ptsz"));
    CHECK_CUDA((int)((PFN_cuGraphLaunch_v10000)launch)(exec, NULL));
    CHECK_CUDA((int)((PFN_cuGraphLaunch_v10000)launch)(exec, CU_STREAM_PER_THREAD));
    CHECK_CUDA(cudaGraphLaunch(exec, NULL));
    assert_int_equal(call(1)->stream, call(2)->stream);
    assert_int_not_equal(call(1)->stream, call(3)->stream);
}

static void no_part_of_a_group(void **state)
{
    (void)state;
    cudaGraphExec_t exec = instantiate(capture(1));
    uint64_t number = call(0)->launch;
    ncclGroupStart();
    all_reduce(stream);
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    all_reduce(stream);
    ncclGroupEnd();
    check_launch(2, number, 0);
    assert_int_not_equal(call(1)->group, 0);
    assert_int_equal(call(1)->group, call(3)->group);
    assert_int_equal(call(1)->launch, call(3)->launch);
    assert_int_equal(call(4)->kind, REC_GROUP_END);
    assert_int_equal(call(4)->count, 2);
}

/* Launched into a capture it becomes a part of another graph, which is no launch. */
static void into_a_capture(void **state)
{
    (void)state;
    cudaGraphExec_t exec = instantiate(capture(1));
    cudaGraph_t outer;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaStreamEndCapture(stream, &outer));
    assert_int_equal(calls(), 1);
    CHECK_CUDA(cudaGraphDestroy(outer));
}

/* ---- the whole ---- */

static int begin(void **state)
{
    (void)state;
    read_ops();
    seen = count;
    return 0;
}

static int end(void **state)
{
    (void)state;
    bool idle = cudaStreamSynchronize(stream) == cudaSuccess;
    for (int i = 0; i < 4; i++) {
        if (graphs[i])
            destroy_graph(graphs[i]);
        if (execs[i])
            destroy_exec(execs[i]);
    }
    return idle ? 0 : -1;
}

static int make_comm(void **state)
{
    (void)state;
    ncclUniqueId id;
    driver = dlopen("libcuda.so.1", RTLD_LAZY);
    if (!driver || ncclGetUniqueId(&id) != ncclSuccess || ncclCommInitRank(&comm, 1, id, 0) != ncclSuccess)
        return -1;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        return -1;
    return cudaMalloc((void **)&data, 4096) == cudaSuccess ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return run_again(argv);
#define TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(launches_are_counted),
        TEST(others_are_left_alone),
        TEST(an_update_changes_the_graph),
        TEST(by_name),
        TEST(the_threads_own_stream),
        TEST(no_part_of_a_group),
        TEST(into_a_capture),
    };
    return cmocka_run_group_tests(tests, make_comm, NULL);
}
