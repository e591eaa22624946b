#include "region.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

#include "rec/drain.h"
#include "rec/reader.h"

#define NOW UINT64_C(1700000001000000000)

struct fixture {
    char directory[64];
    void *region, *drain_memory, *writer_memory;
    struct rec_live live;
    struct rec_drain *drain;
    struct rec_writer *writer;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    strcpy(f->directory, "/tmp/test-drain-XXXXXX");
    if (!mkdtemp(f->directory))
        return -1;
    f->region = make_region(&small_region, &f->live);
    f->drain_memory = calloc(1, rec_drain_bytes(&f->live));
    f->drain = rec_drain_init(f->drain_memory, &f->live);
    const struct rec_writer_config config = {0};
    size_t bytes = (rec_writer_bytes(&config) + 63) & ~(size_t)63;
    f->writer_memory = aligned_alloc(64, bytes);
    memset(f->writer_memory, 0, bytes);
    f->writer = rec_writer_init(f->writer_memory, &config);
    *state = f;
    return rec_writer_open(f->writer, f->directory, "t", "{}", 2, NULL) == REC_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", f->directory);
    int rc = system(command);
    free(f->region);
    free(f->drain_memory);
    free(f->writer_memory);
    free(f);
    return rc;
}

static struct rec_drain_result step(struct fixture *f, bool final)
{
    struct rec_drain_result result;
    assert_int_equal(rec_drain_step(f->drain, f->writer, NOW, false, final, &result, NULL), REC_OK);
    return result;
}

struct content {
    uint64_t ops, next_ordinal[8], lost, loss_first;
    uint32_t loss_thread;
    uint32_t comms, last_comm_state, threads, open;
    uint64_t frontier;
    uint32_t gpus; /* progress records */
    struct rec_gpu gpu;
    uint64_t gpu_ns[8]; /* of the first of them */
    bool in_order;
};

static struct content read_back(struct fixture *f)
{
    char path[96];
    struct content content = {.in_order = true};
    struct rec_reader *reader;
    struct rec_event event;
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    snprintf(path, sizeof(path), "%s/t.frec", f->directory);
    assert_int_equal(rec_reader_open(path, &reader, NULL), REC_OK);
    while (rec_reader_next(reader, &event, NULL) == REC_OK) {
        switch (event.type) {
        case REC_EV_OP:
            content.ops++;
            assert_in_range(event.u.op.thread, 1, 7);
            content.in_order &= event.u.op.ordinal >= content.next_ordinal[event.u.op.thread];
            content.next_ordinal[event.u.op.thread] = event.u.op.ordinal + 1;
            assert_int_equal(event.u.op.count, event.u.op.ordinal * 3);
            break;
        case REC_EV_LOSS:
            content.lost += event.u.loss.count;
            content.loss_first = event.u.loss.first_ordinal;
            content.loss_thread = event.u.loss.thread;
            break;
        case REC_EV_COMM:
            content.comms++;
            content.last_comm_state = event.u.comm.state;
            break;
        case REC_EV_THREAD:
            content.threads++;
            break;
        case REC_EV_OPEN:
            content.open = event.u.open.count;
            break;
        case REC_EV_FRONTIER:
            content.frontier = event.u.frontier.next_seq;
            break;
        case REC_EV_GPU:
            content.gpu_ns[content.gpus & 7] = event.time_ns;
            content.gpus++;
            content.gpu = event.u.gpu;
            break;
        default:
            break;
        }
    }
    rec_reader_close(reader);
    return content;
}

static void everything_arrives_once(void **state)
{
    struct fixture *f = *state;
    add_comm(&f->live, 0, 0, REC_LIVE_COMM_READY);
    add_thread(&f->live, 0, 1);
    add_thread(&f->live, 1, 2);
    for (int round = 0; round < 40; round++) {
        run_ops(&f->live, 0, 0, 37);
        run_ops(&f->live, 1, 0, 5);
        assert_int_equal(step(f, false).ops, 42);
    }
    assert_int_equal(step(f, true).ops, 0);
    struct content content = read_back(f);
    assert_int_equal(content.ops, 40 * 42);
    assert_int_equal(content.next_ordinal[1], 40 * 37);
    assert_int_equal(content.next_ordinal[2], 40 * 5);
    assert_true(content.in_order);
    assert_int_equal(content.lost, 0);
    assert_int_equal(content.comms, 1);
    assert_int_equal(content.threads, 2);
}

static void progress_is_told_when_there_is_some(void **state)
{
    struct fixture *f = *state;
    struct rec_live_mark *mark = &f->live.marks[3];
    step(f, false);
    atomic_store(&f->live.streams[3].used, 1);
    atomic_store(&f->live.header->gpu, REC_LIVE_GPU_MARKS);
    step(f, false);
    atomic_store(&mark->start, 7);
    atomic_store(&mark->end, 6);
    step(f, false);
    step(f, false);
    atomic_store(&mark->end, 7);
    atomic_store(&mark->dropped, 8);
    f->live.header->gpu_error = 700;
    atomic_store(&f->live.header->gpu, REC_LIVE_GPU_FAILED);
    step(f, false);
    step(f, true);
    struct content content = read_back(f);
    assert_int_equal(content.gpus, 2);
    assert_int_equal(content.gpu.stream, 3);
    assert_int_equal(content.gpu.started, 7);
    assert_int_equal(content.gpu.ended, 7);
    assert_int_equal(content.gpu.dropped, 8);
    assert_int_equal(content.gpu.error, 700);
}

static struct rec_drain_time exact[8];
static size_t nexact, taken;

static bool take_exact(struct rec_drain_time *time)
{
    if (taken == nexact)
        return false;
    *time = exact[taken++];
    return true;
}

/* Where exact times come, the marks wait a step for them; what never comes is told by the marks. */
static void exact_times_come_before_the_marks(void **state)
{
    struct fixture *f = *state;
    struct rec_live_mark *mark = &f->live.marks[3];
    atomic_store(&f->live.streams[3].used, 1);
    atomic_store(&f->live.header->gpu, REC_LIVE_GPU_MARKS);
    rec_drain_times(f->drain, take_exact);
    taken = nexact = 0;
    step(f, false);
    exact[nexact++] = (struct rec_drain_time){.stream = 3, .launch = 1, .time_ns = NOW - 640};
    exact[nexact++] = (struct rec_drain_time){.stream = 3, .launch = 1, .ended = true, .time_ns = NOW - 128};
    exact[nexact++] = (struct rec_drain_time){.stream = 2, .launch = 1, .time_ns = NOW}; /* not in use */
    exact[nexact++] = (struct rec_drain_time){.stream = UINT32_MAX, .launch = 1, .time_ns = NOW};
    atomic_store(&mark->start, 1);
    atomic_store(&mark->end, 1);
    step(f, false);
    step(f, false);
    atomic_store(&mark->start, 2);
    step(f, false);
    exact[nexact++] = (struct rec_drain_time){.stream = 3, .launch = 2, .time_ns = NOW - 64};
    step(f, false);
    atomic_store(&mark->end, 2); /* nobody tells when */
    step(f, false);
    step(f, false);
    atomic_store(&mark->start, 3);
    step(f, true);
    struct content content = read_back(f);
    static const uint64_t expected[] = {NOW - 640, NOW - 128, NOW - 64, NOW, NOW};
    assert_int_equal(content.gpus, 5);
    assert_memory_equal(content.gpu_ns, expected, sizeof(expected));
    assert_int_equal(content.gpu.started, 3);
    assert_int_equal(content.gpu.ended, 2);
}

static void drained_follows_the_flush_and_full_chunks_become_free(void **state)
{
    struct fixture *f = *state;
    add_comm(&f->live, 0, 0, REC_LIVE_COMM_READY);
    add_thread(&f->live, 0, 1);
    run_ops(&f->live, 0, 0, REC_LIVE_CHUNK_SLOTS + 10);
    struct rec_drain_result result = step(f, false);
    assert_int_equal(result.freed_chunks, 1);
    assert_int_equal(result.free_chunks, 3);
    uint32_t chunk = atomic_load(&f->live.threads[0].chunk) - 1;
    assert_int_equal(atomic_load(&f->live.chunks[chunk].drained), 10);
    assert_int_equal(atomic_load(&f->live.chunks[chunk].done), 10);
}

static void a_full_ring_counts_the_exact_gap(void **state)
{
    struct fixture *f = *state;
    add_comm(&f->live, 0, 0, REC_LIVE_COMM_READY);
    add_thread(&f->live, 0, 1);
    run_ops(&f->live, 0, 0, 4 * REC_LIVE_CHUNK_SLOTS + 33);
    assert_int_equal(atomic_load(&f->live.threads[0].lost), 33);
    step(f, false);
    run_ops(&f->live, 0, 0, 7);
    step(f, false);
    struct content content = read_back(f);
    assert_int_equal(content.ops, 4 * REC_LIVE_CHUNK_SLOTS + 7);
    assert_int_equal(content.lost, 33);
    assert_int_equal(content.loss_first, 4 * REC_LIVE_CHUNK_SLOTS);
    assert_int_equal(content.loss_thread, 1);
}

static void losses_at_the_end_are_told_by_the_final_step(void **state)
{
    struct fixture *f = *state;
    add_comm(&f->live, 0, 0, REC_LIVE_COMM_READY);
    add_thread(&f->live, 0, 1);
    run_ops(&f->live, 0, 0, 4 * REC_LIVE_CHUNK_SLOTS + 3);
    step(f, true);
    struct content content = read_back(f);
    assert_int_equal(content.lost, 3);
    assert_int_equal(content.loss_first, 4 * REC_LIVE_CHUNK_SLOTS);
}

static void open_ops_come_with_the_step(void **state)
{
    struct fixture *f = *state;
    add_comm(&f->live, 0, 0, REC_LIVE_COMM_READY);
    add_thread(&f->live, 0, 1);
    add_thread(&f->live, 1, 2);
    run_ops(&f->live, 0, 0, 3);
    open_op(&f->live, 0, 0);
    open_op(&f->live, 1, 0);
    step(f, false);
    struct content content = read_back(f);
    assert_int_equal(content.ops, 3);
    assert_int_equal(content.open, 2);
}

static void a_gone_thread_gives_back_entry_and_chunk(void **state)
{
    struct fixture *f = *state;
    add_comm(&f->live, 0, 0, REC_LIVE_COMM_READY);
    for (uint32_t id = 1; id <= 6; id++) {
        add_thread(&f->live, 0, id);
        run_ops(&f->live, 0, 0, 5);
        atomic_store(&f->live.threads[0].exited, 1);
        step(f, false);
        assert_int_equal(atomic_load(&f->live.threads[0].id), 0);
        assert_int_equal(step(f, false).free_chunks, 4);
    }
    struct content content = read_back(f);
    assert_int_equal(content.ops, 30);
    assert_int_equal(content.threads, 6);
    assert_int_equal(content.lost, 0);
}

static void a_destroyed_communicator_waits_for_its_open_call(void **state)
{
    struct fixture *f = *state;
    add_comm(&f->live, 3, 9, REC_LIVE_COMM_READY);
    add_thread(&f->live, 0, 1);
    union rec_live_slot *slot = open_op(&f->live, 0, 3);
    add_comm(&f->live, 3, 9, REC_LIVE_COMM_DESTROYED);
    assert_false(step(f, false).freed_comms);
    assert_int_equal(atomic_load(&f->live.comms[3].state), REC_LIVE_COMM_DESTROYED);
    close_op(&f->live, 0, slot);
    assert_true(step(f, false).freed_comms);
    assert_int_equal(atomic_load(&f->live.comms[3].state), REC_LIVE_COMM_FREE);
    struct content content = read_back(f);
    assert_int_equal(content.last_comm_state, REC_LIVE_COMM_DESTROYED);
}

static void without_a_file_the_newest_ops_are_kept(void **state)
{
    struct fixture *f = *state;
    add_comm(&f->live, 0, 0, REC_LIVE_COMM_READY);
    add_thread(&f->live, 0, 1);
    for (int round = 0; round < 20; round++) {
        struct rec_drain_result result;
        run_ops(&f->live, 0, 0, REC_LIVE_CHUNK_SLOTS);
        assert_int_equal(rec_drain_step(f->drain, NULL, NOW, false, false, &result, NULL), REC_OK);
        assert_true(result.free_chunks >= 1);
    }
    assert_int_equal(atomic_load(&f->live.threads[0].lost), 0);
    uint64_t newest = 0;
    for (uint32_t i = 0; i < 4; i++)
        if (atomic_load(&f->live.chunks[i].owner))
            newest = atomic_load(&f->live.chunks[i].first_ordinal) > newest
                         ? atomic_load(&f->live.chunks[i].first_ordinal)
                         : newest;
    assert_int_equal(newest, 19 * REC_LIVE_CHUNK_SLOTS);
}

/* The disk is full for a while: nothing is lost, nothing comes twice. */
static void a_failing_file_recovers(void **state)
{
    struct fixture *f = *state;
    struct rec_drain_result result;
    struct rlimit old, none = {0, 0};
    add_comm(&f->live, 0, 0, REC_LIVE_COMM_READY);
    add_thread(&f->live, 0, 1);
    run_ops(&f->live, 0, 0, 10);
    step(f, false);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    none.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_FSIZE, &none);
    run_ops(&f->live, 0, 0, 20);
    assert_int_not_equal(rec_drain_step(f->drain, f->writer, NOW, false, false, &result, NULL), REC_OK);
    run_ops(&f->live, 0, 0, 30);
    assert_int_not_equal(rec_drain_step(f->drain, f->writer, NOW, false, false, &result, NULL), REC_OK);
    assert_int_equal(atomic_load(&f->live.chunks[0].drained), 10);
    setrlimit(RLIMIT_FSIZE, &old);
    int tries = 0;
    while (rec_drain_step(f->drain, f->writer, NOW, false, false, &result, NULL) != REC_OK)
        assert_true(++tries < 100);
    assert_int_equal(atomic_load(&f->live.chunks[0].drained), 60);
    run_ops(&f->live, 0, 0, 5);
    step(f, true);
    struct content content = read_back(f);
    assert_int_equal(content.ops, 65);
    assert_int_equal(content.lost, 0);
    assert_int_equal(content.next_ordinal[1], 65);
    assert_true(content.in_order);
}

/* A region to be recovered may hold anything in its tables. */
static void hostile_indices_are_harmless(void **state)
{
    struct fixture *f = *state;
    add_thread(&f->live, 0, 1);
    for (uint32_t i = 0; i < 4; i++) {
        atomic_store(&f->live.chunks[i].owner, i == 0 ? UINT32_MAX : i);
        atomic_store(&f->live.chunks[i].done, i == 1 ? UINT32_MAX : 100);
        atomic_store(&f->live.chunks[i].drained, i == 2 ? UINT32_MAX : 0);
    }
    for (uint64_t i = 0; i < 4 * REC_LIVE_CHUNK_SLOTS; i++)
        for (int word = 0; word < 8; word++)
            atomic_store(&f->live.slots[i].words[word], UINT64_MAX - i);
    for (uint32_t i = 0; i < 8; i++)
        atomic_store(&f->live.comms[i].version, i);
    atomic_store(&f->live.threads[0].chunk, UINT32_MAX);
    atomic_store(&f->live.threads[0].open, 77);
    struct rec_drain_result result;
    enum rec_code code = rec_drain_step(f->drain, f->writer, NOW, true, true, &result, NULL);
    assert_int_equal(code, REC_OK);
    assert_true(result.ops <= 400);
}

struct race {
    struct rec_live *live;
    uint32_t index;
    _Atomic uint32_t *running;
};

static void *call_a_lot(void *argument)
{
    struct race *race = argument;
    run_ops(race->live, race->index, 0, 20000);
    atomic_store(&race->live->threads[race->index].exited, 1);
    atomic_fetch_sub(race->running, 1);
    return NULL;
}

/* Threads call while the drain runs: what arrives and what is lost add up, nothing comes twice. */
static void concurrent_threads_add_up(void **state)
{
    struct fixture *f = *state;
    _Atomic uint32_t running = 3;
    struct race races[3];
    pthread_t threads[3];
    add_comm(&f->live, 0, 0, REC_LIVE_COMM_READY);
    for (uint32_t i = 0; i < 3; i++) {
        add_thread(&f->live, i, i + 1);
        races[i] = (struct race){&f->live, i, &running};
    }
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_a_lot, &races[i]), 0);
    while (atomic_load(&running))
        step(f, false);
    for (uint32_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    step(f, true);
    struct content content = read_back(f);
    assert_true(content.in_order);
    assert_int_equal(content.ops + content.lost, 60000);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(everything_arrives_once),
        TEST(progress_is_told_when_there_is_some),
        TEST(exact_times_come_before_the_marks),
        TEST(drained_follows_the_flush_and_full_chunks_become_free),
        TEST(a_full_ring_counts_the_exact_gap),
        TEST(losses_at_the_end_are_told_by_the_final_step),
        TEST(open_ops_come_with_the_step),
        TEST(a_gone_thread_gives_back_entry_and_chunk),
        TEST(a_destroyed_communicator_waits_for_its_open_call),
        TEST(without_a_file_the_newest_ops_are_kept),
        TEST(a_failing_file_recovers),
        TEST(hostile_indices_are_harmless),
        TEST(concurrent_threads_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
