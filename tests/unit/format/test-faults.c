/*
 * Writes that fail in every way: short, interrupted, torn, refused, with and without the
 * possibility to truncate. pwrite and ftruncate are replaced by ones that fail at random.
 * Whatever happens, each op is in the file or told as lost, exactly once.
 */
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    bool on;
    bool truncate_fails;
    off_t full_at; /* nothing can be written beyond; 0 = no such limit */
    uint64_t random;
    uint64_t faults;
} plan;

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    static const int errors[] = {ENOSPC, EIO, EDQUOT, EBADF};
    if (plan.full_at && offset + (off_t)bytes > plan.full_at) {
        errno = ENOSPC;
        return -1;
    }
    if (plan.on) {
        uint64_t r = synth_draw(&plan.random);
        switch (r % 16) {
        case 0:
            plan.faults++;
            errno = errors[r >> 8 & 3];
            return -1;
        case 1:
            errno = EINTR;
            return -1;
        case 2:
            plan.faults++;
            return 0;
        case 3:
        case 4:
        case 5:
            bytes = 1 + (r >> 16) % bytes; /* the rest fails or succeeds later */
            break;
        }
    }
    return syscall(SYS_pwrite64, fd, data, bytes, offset);
}

int ftruncate(int fd, off_t size)
{
    if (plan.on && plan.truncate_fails) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_ftruncate, fd, size);
}

#define THREADS   3
#define OPS       20000
#define TOTAL_OPS (THREADS * OPS)

/* Ops of several threads in runs, a flush now and then. */
static void write_threads(struct rec_writer *writer, uint64_t seed)
{
    struct rec_op ops[50];
    uint64_t next[THREADS] = {0}, random = seed;
    for (uint64_t done = 0; done < TOTAL_OPS;) {
        uint64_t thread = synth_draw(&random) % THREADS;
        size_t n = 1 + synth_draw(&random) % 50;
        if (n > OPS - next[thread])
            n = OPS - next[thread];
        if (n == 0)
            continue;
        for (size_t i = 0; i < n; i++) {
            synth_any_op(&random, &ops[i]);
            ops[i].thread = (uint32_t)thread;
            ops[i].ordinal = next[thread]++;
        }
        rec_writer_ops(writer, ops, n);
        done += n;
        if (synth_draw(&random) % 8 == 0)
            (void)rec_writer_flush(writer, NULL);
    }
}

/* Marks ordinals first … first+count-1 of a thread; each may be marked once. */
static void mark(uint8_t *seen, uint64_t thread, uint64_t first, uint64_t count)
{
    assert_in_range(thread, 0, THREADS - 1);
    for (uint64_t i = first; i < first + count; i++) {
        assert_in_range(i, 0, OPS - 1);
        assert_int_equal(seen[thread * OPS + i], 0);
        seen[thread * OPS + i] = 1;
    }
}

static void run(struct fixture *f, uint64_t seed, bool truncate_fails)
{
    struct rec_writer_status status;
    struct rec_error err;
    fixture_open(f, "faults", NULL);
    plan.random = seed;
    plan.truncate_fails = truncate_fails;
    plan.faults = 0;
    plan.on = true;
    write_threads(f->writer, seed);
    plan.on = false;
    assert_true(plan.faults > 10);
    assert_int_equal(rec_writer_close(f->writer, &err), REC_OK);
    rec_writer_status(f->writer, &status);
    assert_int_equal(status.ops + status.lost_ops, TOTAL_OPS);
    assert_true(status.ops > 0 && status.lost_ops > 0);

    struct bytes bytes = fixture_read(f, "faults.frec");
    uint8_t *seen = calloc(TOTAL_OPS, 1);
    struct rec_reader *reader;
    struct rec_event event;
    struct rec_reader_stats stats;
    uint64_t ops = 0, lost = 0;
    assert_non_null(seen);
    assert_int_equal(rec_reader_open_memory(bytes.data, bytes.size, "faults", &reader, NULL), REC_OK);
    while (rec_reader_next(reader, &event, NULL) == REC_OK) {
        if (event.type == REC_EV_OP) {
            mark(seen, event.u.op.thread, event.u.op.ordinal, 1);
            ops++;
        } else if (event.type == REC_EV_LOSS) {
            assert_int_equal(event.u.loss.why, REC_LOSS_WRITE);
            mark(seen, event.u.loss.thread, event.u.loss.first_ordinal, event.u.loss.count);
            lost += event.u.loss.count;
        }
    }
    rec_reader_stats(reader, &stats);
    assert_int_equal(ops, status.ops);
    assert_int_equal(lost, status.lost_ops);
    assert_int_equal(stats.damages, 0);
    if (!truncate_fails) {
        assert_true(stats.closed);
        assert_int_equal(stats.file_bytes, status.file_bytes);
    }
    rec_reader_close(reader);
    free(seen);
    free(bytes.data);
    char path[512];
    snprintf(path, sizeof(path), "%s/faults.frec", f->dir);
    unlink(path);
}

static void test_faults(void **state)
{
    for (uint64_t seed = 1; seed <= 6; seed++)
        run(*state, seed, false);
}

static void test_faults_without_truncation(void **state)
{
    for (uint64_t seed = 1; seed <= 6; seed++)
        run(*state, seed, true);
}

/* ---- a disk that stays full ---- */

/* So many ops fit; the writer keeps 70 more, and 30 wait outside. */
static void fill_disk(struct fixture *f, struct synth *synth, uint64_t fitting)
{
    struct rec_writer_status status;
    fixture_open(f, "full", NULL);
    synth_init(synth, SYNTH_TRAIN, 0, 8);
    synth_define(synth, f->writer);
    write_ops(f->writer, synth, fitting, 100);
    rec_writer_status(f->writer, &status);
    plan.full_at = (off_t)status.file_bytes;
    write_ops(f->writer, synth, 70, 70);
    rec_writer_held(f->writer, synth->now_ns, 30);
}

static struct rec_reader *reopen_full(struct fixture *f, struct bytes *bytes)
{
    struct rec_reader *reader;
    plan.full_at = 0;
    *bytes = fixture_read(f, "full.frec");
    assert_int_equal(rec_reader_open_memory(bytes->data, bytes->size, "full", &reader, NULL), REC_OK);
    return reader;
}

/* Reads all; the loss and end that are told in place of records come out. */
struct told {
    uint64_t ops, lost;
    struct rec_end end;
    uint64_t end_ns, last_ns;
    struct rec_reader_stats stats;
};

static struct told read_told(struct rec_reader *reader)
{
    struct told told = {0};
    struct rec_event event;
    for (int pass = 0; pass < 2; pass++) { /* the same again after going back */
        told = (struct told){0};
        while (rec_reader_next(reader, &event, NULL) == REC_OK) {
            told.ops += event.type == REC_EV_OP;
            told.lost += event.type == REC_EV_LOSS ? event.u.loss.count : 0;
            if (event.type == REC_EV_LOSS || event.type == REC_EV_END)
                assert_true(event.notice);
            if (event.type == REC_EV_END) {
                told.end = event.u.end;
                told.end_ns = event.time_ns;
            }
            told.last_ns = event.time_ns > told.last_ns ? event.time_ns : told.last_ns;
        }
        rec_reader_stats(reader, &told.stats);
        if (pass == 0)
            assert_int_equal(rec_reader_seek(reader, 0, NULL), REC_OK);
    }
    assert_false(told.stats.torn_tail);
    return told;
}

static void test_full_to_the_end(void **state)
{
    struct fixture *f = *state;
    struct synth synth;
    struct bytes bytes;
    fill_disk(f, &synth, 1000);
    write_ops(f->writer, &synth, 7, 0); /* not given while flushes fail by those who keep them: lost */
    const struct rec_end end = {.reason = 1, .status = 7, .tid = 42};
    rec_writer_end(f->writer, synth.now_ns + 1000, &end);
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_ERR_IO);
    struct rec_reader *reader = reopen_full(f, &bytes);
    struct told told = read_told(reader);
    assert_int_equal(told.ops, 1000);
    assert_int_equal(told.lost, 107);
    assert_int_equal(told.end.reason, 1);
    assert_int_equal(told.end.status, 7);
    assert_int_equal(told.end.tid, 42);
    assert_int_equal(told.end_ns, synth.now_ns + 1000);
    assert_true(told.stats.unwritten);
    assert_int_equal(told.stats.write_error, ENOSPC);
    assert_int_equal(told.stats.unwritten_ops, 107);
    assert_int_equal(told.stats.damages, 0);
    rec_reader_close(reader);

    /* A notice whose bytes are not whole is none, and the rest of the file is as good as ever. */
    bytes.data[80] ^= 1;
    assert_int_equal(rec_reader_open_memory(bytes.data, bytes.size, "full", &reader, NULL), REC_OK);
    told = read_told(reader);
    assert_int_equal(told.ops, 1000);
    assert_int_equal(told.lost, 0);
    assert_false(told.stats.unwritten);
    assert_int_equal(told.stats.damages, 1);
    assert_string_equal(told.stats.first_problem, "notice in the header damaged");
    rec_reader_close(reader);
    free(bytes.data);
}

/* The writer's process is killed: what was told until then stays. */
static void test_full_and_killed(void **state)
{
    struct fixture *f = *state;
    struct synth synth;
    struct bytes bytes;
    fill_disk(f, &synth, 500);
    rec_writer_abandon(f->writer);
    struct rec_reader *reader = reopen_full(f, &bytes);
    struct told told = read_told(reader);
    assert_int_equal(told.ops, 500);
    assert_int_equal(told.lost, 100);
    assert_int_equal(told.end.reason, 0);
    assert_int_equal(told.last_ns, synth.now_ns);
    rec_reader_close(reader);
    free(bytes.data);
}

/* Room again: the notice goes, with it what it told, which is in the file now. */
static void test_full_for_a_while(void **state)
{
    struct fixture *f = *state;
    struct synth synth;
    struct bytes bytes;
    fill_disk(f, &synth, 500);
    bytes = fixture_read(f, "full.frec");
    struct bytes before = bytes;
    plan.full_at = 0;
    while (rec_writer_flush(f->writer, NULL) != REC_OK)
        ;
    rec_writer_held(f->writer, synth.now_ns, 0);
    write_ops(f->writer, &synth, 30, 30);
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    struct rec_reader *reader = reopen_full(f, &bytes);
    struct told told = read_told(reader);
    assert_int_equal(told.ops, 600);
    assert_int_equal(told.lost, 0);
    assert_false(told.stats.unwritten);
    assert_true(told.stats.closed);
    rec_reader_close(reader);

    /* Killed between writing the piece and taking the notice away: the piece counts. */
    memcpy(bytes.data + 64, before.data + 64, 64);
    assert_int_equal(rec_reader_open_memory(bytes.data, bytes.size, "full", &reader, NULL), REC_OK);
    told = read_told(reader);
    assert_int_equal(told.ops, 600);
    assert_int_equal(told.lost, 0);
    assert_false(told.stats.unwritten);
    rec_reader_close(reader);
    free(before.data);
    free(bytes.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_faults, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_faults_without_truncation, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_full_to_the_end, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_full_and_killed, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_full_for_a_while, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
