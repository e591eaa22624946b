/*
 * Stream marks as the driver sees them: which writes, in which order around NCCL's launches, in
 * which context. Runs itself under the recorder given as argument, on stub-cuda.c and
 * marks-nccl.c, and looks into its own live region. The last test turns marks off for good.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../bench/stub-cuda.h"
#include "again.h"
#include "marks-nccl.h"
#include "rec/live.h"

static ncclComm_t comms[2];

static void *stream_on(int device, int number)
{
    return (void *)(uintptr_t)(0x100000 + device * 0x1000 + number * 0x10);
}

static void all_reduce(ncclComm_t comm, void *stream)
{
    errno = 77;
    assert_int_equal(ncclAllReduce(NULL, NULL, 8, ncclFloat, ncclSum, comm, stream), marks_nccl_result);
    assert_int_equal(errno, 77);
}

static struct rec_gpu progress(void *stream)
{
    struct rec_gpu gpu = {0};
    const struct rec_live *region = own_region();
    for (uint32_t i = 0; i < region->header->stream_count; i++)
        if (atomic_load(&region->streams[i].used) && region->streams[i].handle == (uint64_t)(uintptr_t)stream)
            rec_live_gpu(region, i, &gpu);
    return gpu;
}

static void forget_events(void)
{
    stub_cuda.events = 0;
}

static void check_event(int at, enum stub_what what, void *stream, uint64_t value, int device)
{
    assert_true(at < stub_cuda.events);
    const struct stub_event *event = &stub_cuda.event[at];
    assert_int_equal(event->what, what);
    assert_ptr_equal(event->stream, stream);
    assert_int_equal(event->value, value);
    assert_int_equal(event->device, device);
}

/* What the op in the last finished slot of this process is known to have become. */
static struct rec_op last_op(void)
{
    const struct rec_live *region = own_region();
    struct rec_op last = {0}, op;
    struct rec_clock clock;
    rec_live_clock_read(region, &clock);
    for (uint32_t i = 0; i < region->header->chunk_count; i++)
        for (uint32_t k = 0; k < atomic_load(&region->chunks[i].done); k++) {
            struct rec_slot slot;
            rec_live_slot_load(&region->slots[(size_t)i * REC_LIVE_CHUNK_SLOTS + k], &slot);
            rec_live_to_op(region, &clock, 1, &slot, &op);
            if (rec_kind_flags(op.kind) & REC_KF_STREAM && op.enter_ns >= last.enter_ns)
                last = op;
        }
    struct rec_gpu gpu;
    rec_live_gpu(region, last.stream, &gpu);
    rec_op_gpu(&last, &gpu);
    return last;
}

/* Before any launch, once for all communicators. */
static void registered_at_creation(void **state)
{
    (void)state;
    check_event(0, STUB_REGISTER, stub_cuda.event[0].stream, 0, 0);
    assert_int_equal(stub_cuda.events, 1);
    assert_int_equal(stub_cuda.registered_in, 2); /* relaxed: spoils no capture */
    assert_int_equal(stub_cuda.capture_mode, 0);  /* as it was */
}

static void before_and_behind_each_launch(void **state)
{
    (void)state;
    void *stream = stream_on(0, 1);
    all_reduce(comms[0], stream);
    all_reduce(comms[0], stream);
    for (int i = 0; i < 2; i++) {
        check_event(i * 3, STUB_WRITE, stream, (uint64_t)i + 1, 0);
        check_event(1 + i * 3, STUB_LAUNCH, stream, 0, 0);
        check_event(2 + i * 3, STUB_WRITE, stream, (uint64_t)i + 1, 0);
    }
    assert_int_equal(stub_cuda.events, 6);
    assert_true(stub_cuda.event[0].address != stub_cuda.event[2].address);
    assert_int_equal(progress(stream).started, 2);
    assert_int_equal(progress(stream).ended, 2);
    assert_int_equal(last_op().launch, 2);
    assert_int_equal(last_op().state, REC_STATE_COMPLETED);
}

static void a_group_marks_each_stream_once(void **state)
{
    (void)state;
    void *a = stream_on(0, 2), *b = stream_on(0, 3);
    ncclGroupStart();
    all_reduce(comms[0], a);
    ncclGroupStart();
    all_reduce(comms[0], b);
    all_reduce(comms[0], a);
    ncclGroupEnd();
    assert_int_equal(stub_cuda.events, 0);
    ncclGroupEnd();
    void *const order[] = {a, b, a, b, a, a, b};
    const enum stub_what what[] = {STUB_WRITE,  STUB_WRITE, STUB_LAUNCH, STUB_LAUNCH,
                                   STUB_LAUNCH, STUB_WRITE, STUB_WRITE};
    for (int i = 0; i < 7; i++)
        check_event(i, what[i], order[i], what[i] == STUB_WRITE, 0);
    assert_int_equal(stub_cuda.events, 7);
    assert_int_equal(progress(a).ended, 1);
    assert_int_equal(progress(b).ended, 1);
}

/* The context of the stream, not the current one; which is current again afterwards. */
static void another_device(void **state)
{
    (void)state;
    void *here = stream_on(0, 4), *there = stream_on(1, 4);
    ncclGroupStart();
    all_reduce(comms[0], here);
    all_reduce(comms[1], there);
    ncclGroupEnd();
    check_event(0, STUB_WRITE, here, 1, 0);
    check_event(1, STUB_WRITE, there, 1, 1);
    check_event(4, STUB_WRITE, here, 1, 0);
    check_event(5, STUB_WRITE, there, 1, 1);
    assert_int_equal(stub_device, 0);
}

/* NULL names another stream on each device: NCCL means the communicator's. */
static void default_streams(void **state)
{
    (void)state;
    all_reduce(comms[1], NULL);
    assert_int_equal(stub_cuda.events, 1); /* not current, so not known: the launch alone */
    stub_device = 1;
    forget_events();
    all_reduce(comms[1], NULL);
    check_event(0, STUB_WRITE, NULL, 1, 1);
    assert_int_equal(stub_cuda.events, 3);
    stub_device = 0;
}

static void captured_launches_get_no_marks(void **state)
{
    (void)state;
    void *stream = stream_on(0, 5), *other = stream_on(0, 6);
    stub_cuda.capturing = stream;
    all_reduce(comms[0], stream);
    assert_int_equal(stub_cuda.events, 1);
    assert_int_equal(last_op().launch, 0);
    assert_true(last_op().flags & REC_OF_CAPTURED);
    all_reduce(comms[0], other);
    assert_int_equal(stub_cuda.events, 4);
    stub_cuda.capturing = NULL;
}

static void in_progress_waits_for_the_poll(void **state)
{
    (void)state;
    void *stream = stream_on(0, 7);
    ncclResult_t error;
    marks_nccl_result = marks_nccl_async = ncclInProgress;
    all_reduce(comms[0], stream);
    assert_int_equal(progress(stream).started, 1);
    ncclCommGetAsyncError(comms[1], &error);
    ncclCommGetAsyncError(comms[0], &error);
    assert_int_equal(progress(stream).ended, 0);
    marks_nccl_result = marks_nccl_async = ncclSuccess;
    ncclCommGetAsyncError(comms[1], &error);
    assert_int_equal(progress(stream).ended, 0);
    ncclCommGetAsyncError(comms[0], &error);
    assert_int_equal(progress(stream).ended, 1);
    all_reduce(comms[0], stream);
    assert_int_equal(progress(stream).ended, 2);
}

/* The end comes when all communicators of the launch are through. */
static void a_group_in_progress(void **state)
{
    (void)state;
    void *stream = stream_on(0, 14);
    ncclResult_t error;
    ncclGroupStart();
    assert_int_equal(ncclAllReduce(NULL, NULL, 8, ncclFloat, ncclSum, comms[0], stream), ncclSuccess);
    assert_int_equal(ncclAllReduce(NULL, NULL, 8, ncclFloat, ncclSum, comms[1], stream), ncclSuccess);
    marks_nccl_result = ncclInProgress;
    ncclGroupEnd();
    marks_nccl_result = ncclSuccess;
    ncclCommGetAsyncError(comms[0], &error);
    assert_int_equal(progress(stream).started, 1);
    assert_int_equal(progress(stream).ended, 0);
    ncclCommGetAsyncError(comms[1], &error);
    assert_int_equal(progress(stream).ended, 1);
}

static void a_failed_launch_has_no_end(void **state)
{
    (void)state;
    void *stream = stream_on(0, 8);
    marks_nccl_result = ncclInvalidArgument;
    all_reduce(comms[0], stream);
    marks_nccl_result = ncclSuccess;
    assert_int_equal(progress(stream).ended, 0);
    assert_int_equal(last_op().state, REC_STATE_FAILED);
    all_reduce(comms[0], stream);
    assert_int_equal(progress(stream).ended, 2);
}

static void *use_per_thread_stream(void *unused)
{
    all_reduce(comms[0], (void *)2);
    return unused;
}

/* The per-thread stream of a second thread is another stream behind the same handle. */
static void per_thread_streams_do_not_mix(void **state)
{
    (void)state;
    pthread_t thread;
    use_per_thread_stream(NULL);
    assert_int_equal(stub_cuda.events, 3);
    forget_events();
    pthread_create(&thread, NULL, use_per_thread_stream, NULL);
    pthread_join(thread, NULL);
    assert_int_equal(stub_cuda.events, 1);
    use_per_thread_stream(NULL);
    assert_int_equal(progress((void *)2).ended, 2);
}

/* The low 16 bits of a number are never 0, and numbers are whole again when read. */
static void many_launches(void **state)
{
    (void)state;
    void *stream = stream_on(0, 9);
    stub_cuda.log = false;
    for (int i = 1; i <= 70000; i++) {
        all_reduce(comms[0], stream);
        if (i % 10000 == 0)
            usleep(300000); /* the ring shall not overflow */
    }
    stub_cuda.log = true;
    all_reduce(comms[0], stream);
    assert_int_equal(progress(stream).ended, 70002);
    assert_int_equal(last_op().launch, 70002);
    assert_int_equal(last_op().state, REC_STATE_COMPLETED);
}

static unsigned state_of(uint64_t launch, void *stream)
{
    struct rec_op op = {.state = REC_STATE_ENQUEUED, .launch = launch};
    struct rec_gpu gpu = progress(stream);
    rec_op_gpu(&op, &gpu);
    return op.state;
}

/* A stream has room for so much work only, and what is left is the program's: far ahead of the GPU few
 * launches have marks, and of the others is known only that they have been passed. */
static void a_stuck_stream_is_not_filled(void **state)
{
    (void)state;
    void *stream = stream_on(0, 13);
    all_reduce(comms[0], stream);
    _Atomic uint64_t *start = (_Atomic uint64_t *)(uintptr_t)stub_cuda.event[0].address;
    _Atomic uint64_t *end = (_Atomic uint64_t *)(uintptr_t)stub_cuda.event[2].address;
    stub_cuda.stuck = true;
    int marked = 0;
    for (int i = 0; i < 1000; i++) {
        stub_cuda.events = 0;
        all_reduce(comms[0], stream);
        marked += stub_cuda.events == 3;
        assert_true(stub_cuda.events == 3 || stub_cuda.events == 1);
    }
    assert_int_equal(marked, 240 + (768 - 240) / 16);
    assert_int_equal(last_op().launch, 1001);
    assert_int_equal(progress(stream).dropped, 242);
    atomic_store(start, 200); /* it moves on */
    assert_int_equal(state_of(199, stream), REC_STATE_COMPLETED);
    assert_int_equal(state_of(200, stream), REC_STATE_GPU_STARTED);
    assert_int_equal(state_of(201, stream), REC_STATE_ENQUEUED);
    atomic_store(start, 272); /* marks between many without */
    assert_int_equal(state_of(271, stream), REC_STATE_COMPLETED);
    assert_int_equal(state_of(273, stream), REC_STATE_ENQUEUED);
    stub_cuda.stuck = false;
    all_reduce(comms[0], stream); /* still far ahead, and without marks */
    assert_int_equal(state_of(1002, stream), REC_STATE_ENQUEUED);
    atomic_store(start, 768);
    atomic_store(end, 768);
    all_reduce(comms[0], stream); /* has marks, which are reached */
    assert_int_equal(last_op().launch, 1003);
    assert_int_equal(state_of(1002, stream), REC_STATE_COMPLETED);
    assert_int_equal(last_op().state, REC_STATE_COMPLETED);
    all_reduce(comms[0], stream);
    assert_int_equal(progress(stream).dropped, 0);
}

static void a_child_leaves_the_parents_marks_alone(void **state)
{
    (void)state;
    void *stream = stream_on(0, 10);
    all_reduce(comms[0], stream);
    pid_t child = fork();
    if (child == 0) {
        stub_cuda.no_context = 1; /* CUDA does not survive a fork */
        all_reduce(comms[0], stream);
        _exit(stub_cuda.events == 4 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(progress(stream).ended, 1);
}

static void a_refusal_ends_all_marks(void **state)
{
    (void)state;
    void *stream = stream_on(0, 11), *other = stream_on(0, 12);
    all_reduce(comms[0], stream);
    stub_cuda.fail = 709;
    all_reduce(comms[0], stream);
    stub_cuda.fail = 0;
    forget_events();
    all_reduce(comms[0], stream);
    all_reduce(comms[0], other);
    assert_int_equal(stub_cuda.events, 2);
    assert_int_equal(progress(stream).dropped, 2);
    assert_int_equal(progress(stream).error, 709);
    assert_int_equal(atomic_load(&own_region()->header->gpu), REC_LIVE_GPU_FAILED);
    assert_string_equal(own_region()->header->gpu_reason, "cuStreamWriteValue64: CUDA error 709");
}

static int prepare(void **state)
{
    (void)state;
    forget_events();
    return 0;
}

static int make_comms(void **state)
{
    (void)state;
    ncclUniqueId id;
    memset(&id, 1, sizeof(id));
    stub_cuda.log = true;
    for (int i = 0; i < 2; i++)
        if (ncclCommInitRank(&comms[i], 8, id, i) != ncclSuccess)
            return -1;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return run_again(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registered_at_creation), /* forgets no events: first */
        cmocka_unit_test_setup(before_and_behind_each_launch, prepare),
        cmocka_unit_test_setup(a_group_marks_each_stream_once, prepare),
        cmocka_unit_test_setup(another_device, prepare),
        cmocka_unit_test_setup(default_streams, prepare),
        cmocka_unit_test_setup(captured_launches_get_no_marks, prepare),
        cmocka_unit_test_setup(in_progress_waits_for_the_poll, prepare),
        cmocka_unit_test_setup(a_group_in_progress, prepare),
        cmocka_unit_test_setup(a_failed_launch_has_no_end, prepare),
        cmocka_unit_test_setup(per_thread_streams_do_not_mix, prepare),
        cmocka_unit_test_setup(many_launches, prepare),
        cmocka_unit_test_setup(a_stuck_stream_is_not_filled, prepare),
        cmocka_unit_test_setup(a_child_leaves_the_parents_marks_alone, prepare),
        cmocka_unit_test_setup(a_refusal_ends_all_marks, prepare),
    };
    return cmocka_run_group_tests(tests, make_comms, NULL);
}
