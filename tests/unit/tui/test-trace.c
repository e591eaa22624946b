/* Watching trace files, as of other hosts: written here with the recorder's own writer. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fr-top/top.h"
#include "rec/writer.h"

#define S UINT64_C(1000000000)

struct place {
    char root[64], live[128];
    struct top_watch *watch;
    void *memory;
    struct rec_writer *writer;
    uint64_t ordinal;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * S + (uint64_t)now.tv_nsec;
}

static int set_up(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    if (place == NULL)
        return -1;
    strcpy(place->root, "/tmp/test-top-XXXXXX");
    if (mkdtemp(place->root) == NULL)
        return -1;
    snprintf(place->live, sizeof place->live, "%s/live", place->root);
    if (mkdir(place->live, 0700) != 0)
        return -1;
    struct top_options options = {.dir = place->root, .live_dir = place->live, .stall_sec = 30};
    struct rec_error err;
    place->watch = top_watch_open(&options, &err);
    *state = place;
    return place->watch == NULL;
}

static int tear_down(void **state)
{
    struct place *place = *state;
    char command[128];
    top_watch_close(place->watch);
    free(place->memory);
    snprintf(command, sizeof command, "rm -rf '%s'", place->root);
    int status = system(command);
    free(place);
    return status;
}

static void open_trace(struct place *place, const char *stem, int rank, const char *boot_id, int pid)
{
    struct rec_writer_config config = {0};
    struct rec_error err;
    char meta[512];
    free(place->memory);
    place->memory = aligned_alloc(64, (rec_writer_bytes(&config) + 63) / 64 * 64);
    assert_non_null(place->memory);
    place->writer = rec_writer_init(place->memory, &config);
    place->ordinal = 0;
    int n = snprintf(
        meta, sizeof meta,
        "{\"host\": \"far\", \"boot_id\": \"%s\", \"pid\": %d, \"proc_uid\": \"%016x\", \"rank\": %d, "
        "\"world_size\": 3, \"job\": {\"source\": \"PBS_JOBID\", \"id\": \"9\"}, \"start_ns\": %llu}",
        boot_id, pid, 0x1000 + rank, rank, (unsigned long long)(now_ns() - 100 * S));
    assert_int_equal(rec_writer_open(place->writer, place->root, stem, meta, (size_t)n, &err), REC_OK);
    struct rec_comm_def comm = {.state = REC_LIVE_COMM_READY,
                                .nranks = 3,
                                .rank = (uint32_t)rank,
                                .uid = 77,
                                .made_by = REC_COMM_INIT_RANK,
                                .name = "world"};
    struct rec_thread_def thread = {.id = 1, .tid = pid};
    rec_writer_comm(place->writer, &comm);
    rec_writer_thread(place->writer, &thread);
}

static void write_ops(struct place *place, uint64_t count, uint64_t at_ns)
{
    struct rec_frontier frontier = {.next_seq = place->ordinal + count};
    for (uint64_t i = 0; i < count; i++) {
        struct rec_op op = {.ordinal = place->ordinal,
                            .enter_ns = at_ns - 1000,
                            .exit_ns = at_ns,
                            .count = 250,
                            .seq = place->ordinal,
                            .thread = 1,
                            .stream = REC_ID_NONE,
                            .peer = -1,
                            .kind = REC_ALL_REDUCE,
                            .dtype = 7};
        rec_writer_ops(place->writer, &op, 1);
        place->ordinal++;
    }
    rec_writer_frontier(place->writer, at_ns, &frontier);
}

static void flush(struct place *place, uint64_t alive_ns)
{
    rec_writer_heartbeat(place->writer, alive_ns);
    assert_int_equal(rec_writer_flush(place->writer, NULL), REC_OK);
}

static void close_trace(struct place *place)
{
    assert_int_equal(rec_writer_close(place->writer, NULL), REC_OK);
}

static const struct top_snapshot *refresh(struct place *place)
{
    struct top_snapshot *snapshot = NULL;
    struct rec_error err;
    assert_int_equal(top_watch_refresh(place->watch, &snapshot, &err), REC_OK);
    return snapshot;
}

static void test_grows(void **state)
{
    struct place *place = *state;
    uint64_t now = now_ns();
    open_trace(place, "far-1", 1, "there", 1);
    write_ops(place, 100, now - 3 * S);
    flush(place, now - 3 * S);
    const struct top_snapshot *s = refresh(place);
    assert_int_equal(s->nprocesses, 1);
    assert_int_equal(s->processes[0].rank, 1);
    assert_int_equal(s->processes[0].ops, 100);
    assert_int_equal(s->processes[0].now.op.seq, 99);
    assert_string_equal(s->comms[0].name, "world");
    assert_int_equal(s->comms[0].front, 100);
    assert_int_equal(s->nabsent, 2);
    write_ops(place, 50, now - S);
    flush(place, now - S);
    s = refresh(place);
    assert_int_equal(s->processes[0].ops, 150);
    assert_true(fabs(s->ops_per_s - 25) < 1); /* 50 in two seconds of its own clock */
    assert_true(fabs(s->bytes_per_s - 25000) < 1000);
    assert_true(s->members[0].moving);
    flush(place, now);
    assert_false(refresh(place)->members[0].moving);
    close_trace(place);
}

/* Marks tell which of the launches the GPU has come to, in traces as in memory. */
static void test_gpu(void **state)
{
    struct place *place = *state;
    uint64_t now = now_ns();
    struct rec_stream_def stream = {.id = 0, .handle = 5};
    open_trace(place, "far-1", 1, "there", 1);
    rec_writer_stream(place->writer, &stream);
    for (uint64_t i = 1; i <= 4; i++) {
        struct rec_op op = {.ordinal = place->ordinal,
                            .enter_ns = now - (10 - i) * S,
                            .exit_ns = now - (10 - i) * S + 1000,
                            .count = 250,
                            .seq = place->ordinal++,
                            .launch = i,
                            .thread = 1,
                            .peer = -1,
                            .kind = REC_ALL_REDUCE,
                            .dtype = 7,
                            .state = REC_STATE_ENQUEUED};
        rec_writer_ops(place->writer, &op, 1);
    }
    struct rec_gpu gpu = {.started = 3, .ended = 2};
    rec_writer_gpu(place->writer, now - S, &gpu);
    flush(place, now - S);
    const struct top_process *process = &refresh(place)->processes[0];
    assert_int_equal(process->pending, 2);
    assert_int_equal(process->now.op.seq, 2);
    assert_int_equal(process->now.op.state, REC_STATE_GPU_STARTED);
    assert_string_equal(top_text_where(&process->now.op), "gpu");
    /* The last one has no marks, but waits behind one that has. */
    gpu.dropped = 4;
    rec_writer_gpu(place->writer, now - S, &gpu);
    flush(place, now - S);
    assert_int_equal(refresh(place)->processes[0].pending, 2);
    /* None behind the second has: they may be over. */
    gpu = (struct rec_gpu){.started = 2, .ended = 2, .dropped = 3};
    rec_writer_gpu(place->writer, now, &gpu);
    flush(place, now);
    process = &refresh(place)->processes[0];
    assert_int_equal(process->pending, 0);
    assert_int_equal(process->now.op.seq, 3);
    assert_string_equal(top_text_where(&process->now.op), "-");
    close_trace(place);
}

/* Two stalled ranks, one behind: only traces tell. The third is in an open call. */
static void test_late(void **state)
{
    struct place *place = *state;
    uint64_t now = now_ns();
    for (int rank = 0; rank < 3; rank++) {
        char stem[16];
        snprintf(stem, sizeof stem, "far-%d", rank + 1);
        open_trace(place, stem, rank, "there", rank + 1);
        write_ops(place, rank == 1 ? 9 : 10, now - 60 * S);
        if (rank == 2) {
            struct rec_op open = {.ordinal = 10,
                                  .enter_ns = now - 50 * S,
                                  .seq = 10,
                                  .thread = 1,
                                  .stream = REC_ID_NONE,
                                  .peer = -1,
                                  .kind = REC_BROADCAST,
                                  .dtype = 7,
                                  .flags = REC_OF_OPEN,
                                  .result = REC_RESULT_NONE};
            struct rec_frontier frontier = {.next_seq = 11};
            rec_writer_open_ops(place->writer, now - 50 * S, &open, 1);
            rec_writer_frontier(place->writer, now - 50 * S, &frontier);
        }
        flush(place, now - S);
    }
    const struct top_snapshot *s = refresh(place);
    assert_int_equal(s->nprocesses, 3);
    assert_int_equal(s->processes[0].lag, 1);
    assert_int_equal(s->processes[1].lag, 2);
    assert_int_equal(s->processes[1].state, TOP_LATE);
    assert_int_equal(s->processes[2].state, TOP_STALLED);
    assert_int_equal(s->processes[2].nopen, 1);
    assert_int_equal(s->oldest, 2);
    assert_int_equal(s->processes[2].now.op.kind, REC_BROADCAST);
}

static void test_end(void **state)
{
    struct place *place = *state;
    struct rec_end end = {.reason = REC_END_SIGNAL, .signal = 11};
    char text[64];
    open_trace(place, "far-1", 0, "there", 1);
    write_ops(place, 5, now_ns());
    rec_writer_end(place->writer, now_ns(), &end);
    close_trace(place);
    const struct top_snapshot *s = refresh(place);
    assert_int_equal(s->processes[0].state, TOP_CRASHED);
    assert_int_equal(s->processes[0].ops, 5);
    top_text_end(text, sizeof text, &s->processes[0]);
    assert_string_equal(text, "SIGSEGV");
}

/* On this host, and there is no such process. */
static void test_vanished(void **state)
{
    struct place *place = *state;
    char boot_id[40];
    top_boot_id(boot_id, sizeof boot_id);
    open_trace(place, "here-1", 0, boot_id, 0x7ffffff0);
    write_ops(place, 5, now_ns());
    flush(place, now_ns());
    assert_int_equal(refresh(place)->processes[0].state, TOP_DEAD);
    close_trace(place);
}

static void test_silent(void **state)
{
    struct place *place = *state;
    open_trace(place, "far-1", 0, "there", 1);
    write_ops(place, 5, now_ns() - 100 * S);
    flush(place, now_ns() - 100 * S);
    assert_int_equal(refresh(place)->processes[0].state, TOP_SILENT);
    flush(place, now_ns()); /* there it is again */
    assert_int_not_equal(refresh(place)->processes[0].state, TOP_SILENT);
    close_trace(place);
}

/* Its clock is an hour behind: what it says is as old as we see it written. */
static void test_other_clock(void **state)
{
    struct place *place = *state;
    uint64_t theirs = now_ns() - 3600 * S;
    open_trace(place, "far-1", 0, "there", 1);
    for (int i = 0; i < 3; i++) {
        write_ops(place, 5, theirs + (uint64_t)i * S);
        flush(place, theirs + (uint64_t)i * S);
        refresh(place);
    }
    const struct top_snapshot *s = refresh(place);
    assert_true(s->now_ns - s->processes[0].last_call_ns < 5 * S);
    assert_int_equal(s->processes[0].state, TOP_RUNNING);
    close_trace(place);
}

static void test_bad_files(void **state)
{
    struct place *place = *state;
    char path[128];
    open_trace(place, "far-1", 0, "there", 1);
    write_ops(place, 5, now_ns());
    close_trace(place);
    snprintf(path, sizeof path, "%s/bad.frec", place->root);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0 && write(fd, "no trace at all", 15) == 15);
    close(fd);
    const struct top_snapshot *s = refresh(place);
    assert_int_equal(s->nprocesses, 1);
    assert_non_null(strstr(s->warning, "bad.frec: "));
    /* Cut off in the middle of a piece: what is before it still counts. */
    snprintf(path, sizeof path, "%s/far-1.frec", place->root);
    struct stat st;
    assert_true(stat(path, &st) == 0 && truncate(path, st.st_size - 20) == 0);
    assert_int_equal(refresh(place)->processes[0].ops, 5);
}

/* Only the newest part of a rotated trace says where the process is. */
static void test_parts(void **state)
{
    struct place *place = *state;
    char from[128], to[128];
    open_trace(place, "far-1", 0, "there", 1);
    write_ops(place, 5, now_ns());
    close_trace(place);
    snprintf(from, sizeof from, "%s/far-1.frec", place->root);
    snprintf(to, sizeof to, "%s/far-1.11.frec", place->root);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(refresh(place)->processes[0].ops, 5);
    open_trace(place, "far-1", 0, "there", 1); /* an older part, found later */
    close_trace(place);
    const struct top_snapshot *s = refresh(place);
    assert_int_equal(s->nprocesses, 1);
    assert_int_equal(s->processes[0].ops, 5);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_gpu),         TEST(test_grows),     TEST(test_late),
        TEST(test_end),         TEST(test_vanished),  TEST(test_silent),
        TEST(test_other_clock), TEST(test_bad_files), TEST(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
