/* What was appended, from the headers of pieces: heartbeats are told apart from all else. */
#include "support.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "rec/live.h"

#define T0 UINT64_C(1700000000000000000)
#define S  UINT64_C(1000000000)

static void flush(struct fixture *f)
{
    struct rec_error err;
    assert_int_equal(rec_writer_flush(f->writer, &err), REC_OK);
}

static int open_trace(struct fixture *f)
{
    char path[96];
    snprintf(path, sizeof path, "%s/t.frec", f->dir);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    return fd;
}

static struct rec_op call(uint64_t ordinal)
{
    return (struct rec_op){.ordinal = ordinal,
                           .enter_ns = T0 + ordinal * S,
                           .exit_ns = T0 + ordinal * S + 1000,
                           .count = 8,
                           .seq = ordinal,
                           .thread = 1,
                           .stream = REC_ID_NONE,
                           .peer = -1,
                           .kind = REC_ALL_REDUCE};
}

static void test_heartbeats_are_no_calls(void **state)
{
    struct fixture *f = *state;
    fixture_open(f, "t", &(struct rec_writer_config){0});
    int fd = open_trace(f);
    uint64_t offset = 0;
    struct rec_op first = call(0), second = call(1);
    rec_writer_ops(f->writer, &first, 1);
    flush(f);
    assert_int_equal(rec_trace_news(fd, &offset), REC_NEWS_CALLS);
    assert_int_equal(offset, lseek(fd, 0, SEEK_END));
    assert_int_equal(rec_trace_news(fd, &offset), REC_NEWS_NONE);
    for (uint64_t i = 0; i < 3; i++) {
        rec_writer_heartbeat(f->writer, T0 + (10 + 2 * i) * S);
        flush(f);
    }
    assert_int_equal(rec_trace_news(fd, &offset), REC_NEWS_ALIVE);
    rec_writer_heartbeat(f->writer, T0 + 20 * S);
    flush(f);
    rec_writer_ops(f->writer, &second, 1);
    flush(f);
    assert_int_equal(rec_trace_news(fd, &offset), REC_NEWS_CALLS);
    close(fd);
}

/* Everything that tells of the job, but no call: it may change a verdict. */
static void test_other_records(void **state)
{
    struct fixture *f = *state;
    fixture_open(f, "t", &(struct rec_writer_config){0});
    int fd = open_trace(f);
    uint64_t offset = 0, now = T0;
    struct rec_op open = call(3);
    for (int kind = 0; kind < 5; kind++) {
        rec_writer_heartbeat(f->writer, now += 2 * S);
        flush(f);
        rec_trace_news(fd, &offset);
        now += 2 * S;
        if (kind == 0)
            rec_writer_frontier(f->writer, now, &(struct rec_frontier){.comm = 0, .next_seq = 1});
        else if (kind == 1)
            rec_writer_gpu(f->writer, now, &(struct rec_gpu){.stream = 0, .started = 1});
        else if (kind == 2)
            rec_writer_open_ops(f->writer, now, &open, 1);
        else if (kind == 3)
            rec_writer_loss(f->writer, now, &(struct rec_loss){.thread = 1, .count = 1, .why = 1});
        else
            rec_writer_end(f->writer, now, &(struct rec_end){.reason = REC_END_EXIT});
        flush(f);
        assert_int_equal(rec_trace_news(fd, &offset), REC_NEWS_CALLS);
    }
    close(fd);
}

static void test_half_a_piece_waits(void **state)
{
    struct fixture *f = *state;
    fixture_open(f, "t", &(struct rec_writer_config){0});
    int fd = open_trace(f);
    uint64_t offset = 0;
    struct rec_op op = call(0);
    rec_writer_ops(f->writer, &op, 1);
    flush(f);
    off_t size = lseek(fd, 0, SEEK_END);
    assert_int_equal(ftruncate(fd, size - 3), 0);
    assert_int_equal(rec_trace_news(fd, &offset), REC_NEWS_NONE);
    assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(rec_trace_news(fd, &offset), REC_NEWS_CALLS);
    assert_int_equal(ftruncate(fd, 10), 0); /* replaced */
    assert_int_equal(rec_trace_news(fd, &offset), REC_NEWS_CALLS);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_heartbeats_are_no_calls, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_other_records, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_half_a_piece_waits, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
