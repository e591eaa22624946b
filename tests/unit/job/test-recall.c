/*
 * What loading keeps for the diagnosis: the same verdict whether it was kept or must be read again,
 * by any number of threads; and progress, which may end it all.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "maker.h"
#include "rec/verdict.h"

#define RANKS 6
#define LONG  12000 /* more calls than are kept of a process */

static char dir[64];

/* Messages and signals in a ring, a grouped pair now and then, some lost records; all by one thread. */
static void make_calls(struct maker *maker, uint32_t rank, size_t count)
{
    uint64_t sent = 0, received = 0;
    for (size_t i = 0; i < count; i++) {
        struct rec_op op = maker_op(maker->ordinal++, 0, 0, maker->now += MS);
        op.dtype = 7;
        op.redop = REC_REDOP_NONE;
        if (i % 3 == 0) {
            op.kind = REC_SEND;
            op.seq = sent++;
            op.peer = (int32_t)((rank + 1) % RANKS);
        } else if (i % 3 == 1) {
            op.kind = REC_RECV;
            op.seq = received++;
            op.peer = (int32_t)((rank + RANKS - 1) % RANKS);
        } else {
            op.kind = i % 2 ? REC_SIGNAL : REC_WAIT_SIGNAL;
            op.peer = (int32_t)((rank + (i % 2 ? 1 : RANKS - 1)) % RANKS);
            op.count = 1;
            op.seq = 0;
        }
        if (i % 997 == 0)
            maker->ordinal++; /* a hole */
        rec_writer_ops(maker->writer, &op, 1);
    }
}

static void make_job(void)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct maker maker;
        char stem[16];
        snprintf(stem, sizeof stem, "h-%u", rank);
        maker_open(&maker, dir, stem, maker_meta(0x10 + rank, (int)rank, RANKS, "FREC_JOB_ID", "x", T0), 0);
        maker_world(&maker, 0x100, RANKS, rank);
        maker_ops(&maker, 0, 0, LONG);
        make_calls(&maker, rank, 700);
        struct rec_op last = maker_op(maker.ordinal++, LONG, 0, maker.now += MS);
        if (rank == 4)
            last.kind = REC_ALL_GATHER;
        rec_writer_ops(maker.writer, &last, 1);
        rec_writer_heartbeat(maker.writer, maker.now + 60 * S);
        maker_close(&maker);
    }
}

static int setup(void **state)
{
    (void)state;
    maker_dir(dir, sizeof dir);
    make_job();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    maker_clean(dir);
    return 0;
}

/* The verdict as JSON; times times from one job. */
static char *verdict_of(bool keep, unsigned threads, int times)
{
    const char *dirs[] = {dir};
    struct rec_job_options how = {.no_live = true, .analyze = keep, .threads = threads};
    struct rec_analyze_options analysis = {.now_ns = T0 + 3600 * S, .threads = threads};
    struct rec_job *job;
    struct rec_verdict *verdict = NULL;
    struct rec_error err = {0};
    char *text = NULL;
    assert_int_equal(rec_job_open(dirs, 1, &how, &job, &err), REC_OK);
    for (int i = 0; i < times; i++) {
        free(text);
        assert_int_equal(rec_analyze(job, &analysis, &verdict, &err), REC_OK);
        text = rec_verdict_json(job, verdict);
        assert_non_null(text);
        rec_verdict_free(verdict);
    }
    rec_job_close(job);
    return text;
}

static void test_same_verdict(void **state)
{
    static const struct {
        bool keep;
        unsigned threads;
        int times; /* what was kept is given away the first time */
    } ways[] = {{true, 1, 1}, {false, 1, 1}, {true, 1, 2}, {true, 3, 1}, {false, 16, 1}, {true, 100, 3}};
    (void)state;
    char *first = verdict_of(ways[0].keep, ways[0].threads, ways[0].times);
    assert_non_null(strstr(first, "AllGather"));
    for (size_t i = 1; i < sizeof ways / sizeof *ways; i++) {
        char *other = verdict_of(ways[i].keep, ways[i].threads, ways[i].times);
        assert_string_equal(first, other);
        free(other);
    }
    free(first);
}

/* ---- progress ---- */

struct watcher {
    pthread_t caller;
    unsigned reports[REC_PHASE_ANALYZE + 1];
    enum rec_phase phase, stop_in;
    uint64_t done;
    bool ordered, stops;
    bool complete; /* every phase with a total came to it */
};

static bool watch(void *context, enum rec_phase phase, uint64_t done, uint64_t total)
{
    struct watcher *w = context;
    assert_true(pthread_equal(w->caller, pthread_self()));
    w->ordered = w->ordered && phase >= w->phase && (phase > w->phase || done >= w->done);
    w->ordered = w->ordered && (phase == REC_PHASE_FIND ? total == 0 : done <= total && total > 0);
    w->phase = phase;
    w->done = done;
    w->reports[phase]++;
    w->complete = phase == REC_PHASE_ANALYZE && done == total;
    return !(w->stops && phase == w->stop_in);
}

static enum rec_code run_watched(struct watcher *w)
{
    const char *dirs[] = {dir};
    const struct rec_progress progress = {watch, w};
    struct rec_job_options how = {.no_live = true, .analyze = true, .threads = 4, .progress = &progress};
    struct rec_analyze_options analysis = {.progress = &progress};
    struct rec_job *job;
    struct rec_verdict *verdict = NULL;
    struct rec_error err = {0};
    w->caller = pthread_self();
    w->ordered = true;
    enum rec_code code = rec_job_open(dirs, 1, &how, &job, &err);
    if (code != REC_OK) {
        assert_null(job);
        assert_int_equal(err.code, code);
        return code;
    }
    code = rec_analyze(job, &analysis, &verdict, &err);
    assert_true((code == REC_OK) == (verdict != NULL));
    rec_verdict_free(verdict);
    rec_job_close(job);
    return code;
}

static void test_progress(void **state)
{
    (void)state;
    struct watcher w = {0};
    assert_int_equal(run_watched(&w), REC_OK);
    assert_true(w.ordered && w.complete);
    for (size_t i = 0; i < sizeof w.reports / sizeof *w.reports; i++)
        assert_true(w.reports[i] > 0);
}

static void test_giving_up(void **state)
{
    (void)state;
    for (int phase = REC_PHASE_FIND; phase <= REC_PHASE_ANALYZE; phase++) {
        struct watcher w = {.stops = true, .stop_in = (enum rec_phase)phase};
        assert_int_equal(run_watched(&w), REC_ERR_CANCELLED);
        assert_int_equal(w.phase, phase);
        assert_int_equal(w.reports[phase], 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_verdict),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_giving_up),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
