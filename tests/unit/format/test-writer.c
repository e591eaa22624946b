/* The writer inside a hostile world: full disks, closed descriptors, limits, large tables. */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/wire.h"

/* ---- rotation ---- */

static uint64_t bytes_in(const struct fixture *f, unsigned *files)
{
    uint64_t total = 0;
    *files = 0;
    DIR *dir = opendir(f->dir);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[512];
        struct stat st;
        snprintf(path, sizeof(path), "%s/%s", f->dir, entry->d_name);
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
            total += (uint64_t)st.st_size;
            ++*files;
        }
    }
    closedir(dir);
    return total;
}

static void test_rotation(void **state)
{
    struct fixture *f = *state;
    struct rec_writer_config config = {.max_bytes = 1 << 20};
    struct synth synth;
    unsigned files;
    fixture_open(f, "rot", &config);
    synth_init(&synth, SYNTH_TRAIN, 0, 8);
    synth_define(&synth, f->writer);
    for (int i = 0; i < 160; i++) {
        write_ops(f->writer, &synth, 5000, 500);
        synth_frontiers(&synth, f->writer);
        assert_int_equal(rec_writer_flush(f->writer, NULL), REC_OK);
        assert_in_range(bytes_in(f, &files), 1, 1 << 20);
    }
    rec_writer_heartbeat(f->writer, synth.now_ns);
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    assert_in_range(bytes_in(f, &files), (1 << 20) / 2, 1 << 20);
    assert_in_range(files, 7, 12);

    struct rec_writer_status status;
    rec_writer_status(f->writer, &status);
    assert_int_equal(status.ops, 800000);
    assert_int_equal(status.lost_ops, 0);

    /* The kept parts follow each other without a hole up to the end, each stands alone, and what
       is gone was told: ops of the kept parts and of rotation losses before them give it all. */
    uint64_t next = 0, kept = 0, told = 0;
    uint32_t last_part = 0;
    for (uint32_t part = 0; part < 1000; part++) {
        char name[64];
        snprintf(name, sizeof(name), part ? "rot.%u.frec" : "rot.frec", part);
        struct bytes bytes = fixture_read(f, name);
        if (!bytes.data)
            continue;
        struct rec_reader *reader;
        struct rec_event event;
        bool comms[SYNTH_COMMS] = {0}, frontiers[SYNTH_COMMS] = {0};
        assert_int_equal(rec_reader_open_memory(bytes.data, bytes.size, name, &reader, NULL), REC_OK);
        assert_int_equal(rec_reader_part(reader), part);
        while (rec_reader_next(reader, &event, NULL) == REC_OK) {
            if (event.type == REC_EV_COMM)
                comms[event.u.comm.id] = true;
            if (event.type == REC_EV_FRONTIER)
                frontiers[event.u.frontier.comm] = true;
            if (event.type == REC_EV_LOSS) {
                assert_int_equal(event.u.loss.why, REC_LOSS_ROTATED);
                told += event.u.loss.count;
            }
            if (event.type != REC_EV_OP)
                continue;
            assert_true(comms[event.u.op.comm] && frontiers[event.u.op.comm]);
            if (kept++)
                assert_int_equal(event.u.op.ordinal, next);
            next = event.u.op.ordinal + 1;
        }
        rec_reader_close(reader);
        free(bytes.data);
        last_part = part;
    }
    assert_int_equal(next, 800000);
    assert_in_range(last_part, 12, 100);
    assert_in_range(told, 1, 800000 - kept);
}

static void test_no_rotation_without_limit(void **state)
{
    struct fixture *f = *state;
    struct synth synth;
    unsigned files;
    fixture_open(f, "one", NULL);
    synth_init(&synth, SYNTH_TRAIN, 0, 8);
    write_ops(f->writer, &synth, 600000, 0);
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    assert_in_range(bytes_in(f, &files), 1 << 20, 3 << 20);
    assert_int_equal(files, 1);
    struct bytes bytes = fixture_read(f, "one.frec");
    struct outcome outcome = read_bytes(bytes, SYNTH_TRAIN);
    assert_int_equal(outcome.ops, 600000);
    assert_true(outcome.ops_are_prefix);
    assert_in_range(outcome.stats.segments, 2, 4); /* it rolls without a flush, too */
    free(bytes.data);
}

/* ---- failing writes ---- */

/* A limit on file size stands for a full disk: exceeding it must neither kill nor tear. */
static void limit_file_size(uint64_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_full_and_free_again(void **state)
{
    struct fixture *f = *state;
    struct synth synth;
    struct rec_error err;
    struct rec_writer_status status;
    fixture_open(f, "full", NULL);
    synth_init(&synth, SYNTH_TRAIN, 0, 8);
    synth_define(&synth, f->writer);
    write_ops(f->writer, &synth, 1000, 100);
    rec_writer_status(f->writer, &status);
    assert_int_equal(status.ops, 1000);
    assert_int_equal(status.error, 0);
    uint64_t size = status.file_bytes;

    limit_file_size(size + 10);
    write_ops(f->writer, &synth, 3000, 100);
    assert_int_equal(rec_writer_flush(f->writer, &err), REC_ERR_IO);
    assert_string_equal(err.text, strerror(EFBIG));
    rec_writer_status(f->writer, &status);
    assert_int_equal(status.ops, 1000);
    assert_int_equal(status.lost_ops, 2900); /* the first piece that failed waits */
    assert_int_equal(status.error, EFBIG);
    struct bytes bytes = fixture_read(f, "full.frec");
    assert_int_equal(bytes.size, size);
    free(bytes.data);

    limit_file_size(RLIM_INFINITY);
    for (int i = 0; i < 40; i++) /* the writer waits longer and longer between attempts */
        (void)rec_writer_flush(f->writer, NULL);
    uint64_t resumed = synth.ordinal;
    write_ops(f->writer, &synth, 1000, 100);
    rec_writer_status(f->writer, &status);
    assert_int_equal(status.ops, 2100);
    assert_int_equal(status.error, 0);
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);

    struct rec_reader *reader;
    struct rec_event event;
    struct rec_reader_stats stats;
    uint64_t ops = 0, lost = 0, first_lost = UINT64_MAX;
    bytes = fixture_read(f, "full.frec");
    assert_int_equal(rec_reader_open_memory(bytes.data, bytes.size, "full", &reader, NULL), REC_OK);
    while (rec_reader_next(reader, &event, NULL) == REC_OK) {
        if (event.type == REC_EV_LOSS) {
            assert_int_equal(event.u.loss.why, REC_LOSS_WRITE);
            assert_int_equal(event.u.loss.thread, 1);
            first_lost = event.u.loss.first_ordinal;
            lost += event.u.loss.count;
        }
        if (event.type != REC_EV_OP)
            continue;
        assert_int_equal(event.u.op.ordinal, ops < 1100 ? ops : resumed + ops - 1100);
        ops++;
    }
    rec_reader_stats(reader, &stats);
    assert_int_equal(ops, 2100);
    assert_int_equal(lost, 2900);
    assert_int_equal(first_lost, 1100);
    assert_int_equal(stats.damages, 0);
    assert_true(stats.closed);
    assert_int_equal(stats.segments, 2);
    /* The index holds although a segment was given up half-way. */
    const struct rec_segment_info *segments;
    size_t count;
    assert_int_equal(rec_reader_segments(reader, &segments, &count, NULL), REC_OK);
    assert_int_equal(count, 2);
    assert_int_equal(segments[0].ops, 1100);
    rec_reader_close(reader);
    free(bytes.data);
}

/* A caller that keeps its records while the writer fails loses none. */
static void test_short_trouble_costs_nothing(void **state)
{
    struct fixture *f = *state;
    struct synth synth;
    struct rec_writer_status status;
    fixture_open(f, "short", NULL);
    synth_init(&synth, SYNTH_TRAIN, 0, 8);
    synth_define(&synth, f->writer);
    for (int i = 0; i < 20; i++) {
        write_ops(f->writer, &synth, 100, 0);
        rec_writer_status(f->writer, &status);
        limit_file_size(status.file_bytes + 1);
        assert_int_equal(rec_writer_flush(f->writer, NULL), REC_ERR_IO);
        assert_int_equal(rec_writer_flush(f->writer, NULL), REC_ERR_IO);
        limit_file_size(RLIM_INFINITY);
        int flushes = 0;
        while (rec_writer_flush(f->writer, NULL) != REC_OK)
            assert_in_range(++flushes, 0, 16);
    }
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    struct bytes bytes = fixture_read(f, "short.frec");
    struct outcome outcome = read_bytes(bytes, SYNTH_TRAIN);
    assert_int_equal(outcome.ops, 2000);
    assert_true(outcome.ops_are_prefix);
    assert_int_equal(outcome.events[REC_EV_LOSS], 0);
    assert_int_equal(outcome.stats.segments, 1);
    free(bytes.data);
}

static void test_no_room_from_the_start(void **state)
{
    struct fixture *f = *state;
    struct rec_writer_config config = {0};
    struct rec_error err;
    struct rec_writer_status status;
    f->writer = rec_writer_init(f->memory, &config);
    limit_file_size(10);
    assert_int_equal(rec_writer_open(f->writer, f->dir, "none", "{}", 2, &err), REC_ERR_IO);
    limit_file_size(RLIM_INFINITY);
    rec_writer_status(f->writer, &status);
    assert_int_equal(status.error, EFBIG);
    assert_null(fixture_read(f, "none.frec").data); /* no empty file stays behind */
    assert_int_equal(rec_writer_open(f->writer, f->dir, "none", "{}", 2, &err), REC_OK);
    assert_int_equal(rec_writer_close(f->writer, &err), REC_OK);
}

static void test_name_taken(void **state)
{
    struct fixture *f = *state;
    struct rec_writer_config config = {0};
    struct rec_error err;
    struct rec_writer_status status;
    char path[512], target[512];
    fixture_open(f, "taken", NULL);
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    f->writer = rec_writer_init(f->memory, &config);
    assert_int_equal(rec_writer_open(f->writer, f->dir, "taken", "{}", 2, &err), REC_ERR_IO);
    rec_writer_status(f->writer, &status);
    assert_int_equal(status.error, EEXIST);
    /* A link in the place of the file is not followed. */
    snprintf(path, sizeof(path), "%s/link.frec", f->dir);
    snprintf(target, sizeof(target), "%s/target", f->dir);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(rec_writer_open(f->writer, f->dir, "link", "{}", 2, &err), REC_ERR_IO);
    assert_int_equal(access(target, F_OK), -1);
    assert_int_equal(rec_writer_open(f->writer, "/no/such/dir", "x", "{}", 2, &err), REC_ERR_IO);
    assert_string_equal(err.text, strerror(ENOENT));
}

/* ---- descriptors that the job closes ---- */

static int descriptor_of(const char *path)
{
    struct stat want, st;
    assert_int_equal(stat(path, &want), 0);
    for (int fd = 0; fd < 4096; fd++)
        if (fstat(fd, &st) == 0 && st.st_ino == want.st_ino && st.st_dev == want.st_dev)
            return fd;
    fail();
    return -1;
}

static void test_descriptor_closed(void **state)
{
    struct fixture *f = *state;
    struct synth synth;
    char path[512];
    fixture_open(f, "closed", NULL);
    snprintf(path, sizeof(path), "%s/closed.frec", f->dir);
    int fd = descriptor_of(path);
    assert_in_range(fd, 100, 4096); /* out of the way of the job's own */
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    synth_init(&synth, SYNTH_TRAIN, 0, 8);
    write_ops(f->writer, &synth, 300, 100);
    close(fd);
    write_ops(f->writer, &synth, 300, 100);
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    struct bytes bytes = fixture_read(f, "closed.frec");
    struct outcome outcome = read_bytes(bytes, SYNTH_TRAIN);
    assert_int_equal(outcome.ops, 600);
    assert_true(outcome.ops_are_prefix);
    free(bytes.data);
}

static void test_descriptor_reused(void **state)
{
    struct fixture *f = *state;
    struct synth synth;
    char path[512], other[512];
    fixture_open(f, "reused", NULL);
    snprintf(path, sizeof(path), "%s/reused.frec", f->dir);
    snprintf(other, sizeof(other), "%s/theirs", f->dir);
    synth_init(&synth, SYNTH_TRAIN, 0, 8);
    write_ops(f->writer, &synth, 300, 100);
    /* The job puts a file of its own under our number. */
    int fd = descriptor_of(path);
    int theirs = open(other, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(theirs, "precious", 8), 8);
    assert_int_equal(dup2(theirs, fd), fd);
    write_ops(f->writer, &synth, 300, 100);
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    assert_true(fcntl(fd, F_GETFD) >= 0); /* and we did not close it either */
    close(fd);
    close(theirs);
    struct bytes bytes = fixture_read(f, "theirs");
    assert_int_equal(bytes.size, 8);
    assert_memory_equal(bytes.data, "precious", 8);
    free(bytes.data);
    bytes = fixture_read(f, "reused.frec");
    assert_int_equal(read_bytes(bytes, SYNTH_TRAIN).ops, 600);
    free(bytes.data);
}

static void test_file_removed(void **state)
{
    struct fixture *f = *state;
    struct synth synth;
    struct rec_writer_status status;
    char path[512];
    fixture_open(f, "gone", NULL);
    snprintf(path, sizeof(path), "%s/gone.frec", f->dir);
    synth_init(&synth, SYNTH_TRAIN, 0, 8);
    write_ops(f->writer, &synth, 100, 100);
    close(descriptor_of(path));
    unlink(path);
    FILE *impostor = fopen(path, "w");
    assert_non_null(impostor);
    fclose(impostor);
    write_ops(f->writer, &synth, 100, 100);
    rec_writer_status(f->writer, &status);
    assert_int_equal(status.error, ESTALE);
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_ERR_IO);
    rec_writer_status(f->writer, &status);
    assert_int_equal(status.ops, 100);
    assert_int_equal(status.lost_ops, 100);
    struct bytes bytes = fixture_read(f, "gone.frec");
    assert_int_equal(bytes.size, 0);
    free(bytes.data);
}

static void test_abandon(void **state)
{
    struct fixture *f = *state;
    struct synth synth;
    fixture_open(f, "fork", NULL);
    synth_init(&synth, SYNTH_TRAIN, 0, 8);
    write_ops(f->writer, &synth, 150, 100);
    rec_writer_abandon(f->writer);
    assert_int_equal(rec_writer_flush(f->writer, NULL), REC_ERR_ARG);
    write_ops(f->writer, &synth, 100, 0);
    struct bytes bytes = fixture_read(f, "fork.frec");
    struct outcome outcome = read_bytes(bytes, SYNTH_TRAIN);
    assert_int_equal(outcome.ops, 100);
    assert_false(outcome.stats.closed);
    assert_false(outcome.stats.torn_tail);
    free(bytes.data);
}

/* ---- size ---- */

/* More different calls than a segment's table holds, on more communicators than any table. */
static void test_endless_variety(void **state)
{
    struct fixture *f = *state;
    const uint64_t count = 60000;
    fixture_open(f, "variety", NULL);
    for (uint64_t i = 0; i < count; i++) {
        if (i % 20 == 0) {
            struct rec_comm_def comm = {
                .id = (uint32_t)i / 20, .state = 2, .nranks = 8, .rank = 1, .uid = i + 1, .device = -1};
            rec_writer_comm(f->writer, &comm);
        }
        struct rec_op op = {.ordinal = i,
                            .enter_ns = 6400 * (i + 1),
                            .exit_ns = 6400 * (i + 1) + 640,
                            .count = i,
                            .thread = 1,
                            .comm = (uint32_t)i / 20,
                            .stream = (uint32_t)i,
                            .peer = (int32_t)i,
                            .kind = REC_SEND};
        rec_writer_ops(f->writer, &op, 1);
    }
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    struct bytes bytes = fixture_read(f, "variety.frec");
    struct rec_reader *reader;
    struct rec_event event;
    struct rec_reader_stats stats;
    uint64_t ops = 0;
    uint32_t comm = 0;
    assert_int_equal(rec_reader_open_memory(bytes.data, bytes.size, "v", &reader, NULL), REC_OK);
    while (rec_reader_next(reader, &event, NULL) == REC_OK) {
        if (event.type == REC_EV_COMM && event.u.comm.id > comm)
            comm = event.u.comm.id;
        if (event.type != REC_EV_OP)
            continue;
        assert_int_equal(event.u.op.count, ops);
        assert_int_equal(event.u.op.peer, (int32_t)ops);
        assert_int_equal(event.u.op.enter_ns, 6400 * (ops + 1));
        assert_true(event.u.op.comm <= comm); /* its definition was there before it */
        ops++;
    }
    rec_reader_stats(reader, &stats);
    assert_int_equal(ops, count);
    assert_int_equal(stats.damages, 0);
    rec_reader_close(reader);
    free(bytes.data);
}

/* Counts that never repeat become a column and do not fill the segment's table. */
static void test_counts_that_vary(void **state)
{
    struct fixture *f = *state;
    struct synth synth;
    fixture_open(f, "moe", NULL);
    synth_init(&synth, SYNTH_MOE, 0, 8);
    synth_define(&synth, f->writer);
    write_ops(f->writer, &synth, 100000, 1000);
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    struct bytes bytes = fixture_read(f, "moe.frec");
    struct outcome outcome = read_bytes(bytes, SYNTH_MOE);
    assert_int_equal(outcome.ops, 100000);
    assert_true(outcome.ops_are_prefix);
    assert_int_equal(outcome.stats.segments, 1);
    assert_in_range(bytes.size / 100000, 1, 5);
    free(bytes.data);
}

static void test_bytes_per_op(void **state)
{
    struct fixture *f = *state;
    struct synth synth;
    fixture_open(f, "size", NULL);
    synth_init(&synth, SYNTH_TRAIN, 0, 8);
    synth_define(&synth, f->writer);
    write_ops(f->writer, &synth, 200000, 1000);
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    struct bytes bytes = fixture_read(f, "size.frec");
    assert_in_range(bytes.size, 200000, 200000 * 3); /* documented: under 4 bytes; 2.4 when written */
    free(bytes.data);
}

static long peak_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* Reading takes as much memory for a long trace as for a short one. */
static void test_memory_does_not_grow(void **state)
{
    struct fixture *f = *state;
    struct rec_reader *reader;
    struct rec_event event;
    struct synth synth;
    char path[512];
    long peak[2];
    uint64_t sizes[2] = {500000, 8000000};
    for (int i = 0; i < 2; i++) {
        char stem[16];
        snprintf(stem, sizeof(stem), "mem%d", i);
        fixture_open(f, stem, NULL);
        synth_init(&synth, SYNTH_TRAIN, 0, 8);
        write_ops(f->writer, &synth, sizes[i], 2500);
        assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
        snprintf(path, sizeof(path), "%s/%s.frec", f->dir, stem);
        assert_int_equal(rec_reader_open(path, &reader, NULL), REC_OK);
        uint64_t ops = 0;
        while (rec_reader_next(reader, &event, NULL) == REC_OK)
            ops += event.type == REC_EV_OP;
        rec_reader_close(reader);
        assert_int_equal(ops, sizes[i]);
        peak[i] = peak_kib();
        unlink(path);
    }
    assert_in_range(peak[1], 0, peak[0] + 8192); /* the file is 17 MB larger */
}

/* ---- definitions ---- */

static void test_threads_come_and_go(void **state)
{
    struct fixture *f = *state;
    struct rec_writer_config config = {.segment_bytes = 16 << 10};
    struct synth synth;
    fixture_open(f, "threads", &config);
    synth_init(&synth, SYNTH_TRAIN, 0, 8);
    synth_define(&synth, f->writer); /* thread 1: the one that works */
    for (uint32_t i = 2; i < 6000; i++) {
        struct rec_thread_def thread = {.id = i, .tid = (int32_t)i, .name = "worker"};
        rec_writer_thread(f->writer, &thread);
        write_ops(f->writer, &synth, 10, 10);
    }
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    struct bytes bytes = fixture_read(f, "threads.frec");
    struct rec_reader *reader;
    const struct rec_segment_info *segments;
    size_t count;
    assert_int_equal(rec_reader_open_memory(bytes.data, bytes.size, "t", &reader, NULL), REC_OK);
    assert_int_equal(rec_reader_segments(reader, &segments, &count, NULL), REC_OK);
    assert_in_range(count, 4, 1000);
    /* The last segment still knows the first thread, which never stopped working. */
    assert_int_equal(rec_reader_seek(reader, count - 1, NULL), REC_OK);
    struct rec_event event;
    bool known = false;
    unsigned threads = 0;
    while (rec_reader_next(reader, &event, NULL) == REC_OK) {
        if (event.type == REC_EV_THREAD) {
            threads++;
            known |= event.u.thread.id == 1;
        }
    }
    assert_true(known);
    assert_in_range(threads, 1000, 2000);
    rec_reader_close(reader);
    free(bytes.data);
}

static void test_levels(void **state)
{
    struct fixture *f = *state;
    for (int level = -5; level <= 9; level++) {
        struct rec_writer_config config = {.level = level};
        struct synth synth;
        char stem[16], name[32];
        snprintf(stem, sizeof(stem), "level%d", level);
        snprintf(name, sizeof(name), "%s.frec", stem);
        fixture_open(f, stem, &config);
        synth_init(&synth, SYNTH_TRAIN, 0, 8);
        write_ops(f->writer, &synth, 50000, 1000);
        assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
        struct bytes bytes = fixture_read(f, name);
        assert_int_equal(read_bytes(bytes, SYNTH_TRAIN).ops, 50000);
        free(bytes.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_memory_does_not_grow, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_rotation, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_no_rotation_without_limit, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_full_and_free_again, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_short_trouble_costs_nothing, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_no_room_from_the_start, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_name_taken, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_descriptor_closed, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_descriptor_reused, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_file_removed, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_abandon, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_endless_variety, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_counts_that_vary, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_bytes_per_op, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_threads_come_and_go, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_levels, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
