/* Checkpoints: equal for equal sequences whatever the order of reports, different otherwise,
   silent where something is missing. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>

#include "format/checkpoint.h"

struct sink {
    struct rec_checkpoint got[64];
    size_t count;
};

static void keep(void *context, const struct rec_checkpoint *checkpoint)
{
    struct sink *sink = context;
    assert_in_range(sink->count, 0, 63);
    sink->got[sink->count++] = *checkpoint;
}

static int setup(void **state)
{
    *state = malloc(sizeof(struct rec_tracks));
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static uint64_t signature(uint64_t seq)
{
    return rec_signature(REC_ALL_REDUCE, 1000 + seq % 7, 7, 0, -1);
}

static uint64_t window_hash(uint64_t first, uint64_t end)
{
    uint64_t hash = 0;
    for (uint64_t seq = first; seq < end; seq++)
        hash += rec_checkpoint_term(seq, signature(seq));
    return hash;
}

static void run(struct rec_tracks *tracks, uint32_t comm, int32_t peer, uint64_t first_seq, uint64_t from,
                uint64_t to, struct sink *sink)
{
    for (uint64_t seq = from; seq < to; seq++)
        rec_tracks_op(tracks, comm, peer, peer >= 0, first_seq, seq, signature(seq), keep, sink);
}

static void test_in_order(void **state)
{
    struct sink sink = {0};
    rec_tracks_init(*state);
    run(*state, 5, -1, 0, 0, 3 * 1024 + 10, &sink);
    assert_int_equal(sink.count, 3);
    uint64_t prefix = 0;
    for (uint64_t w = 0; w < 3; w++) {
        prefix += window_hash(w * 1024, w * 1024 + 1024);
        assert_int_equal(sink.got[w].comm, 5);
        assert_int_equal(sink.got[w].peer, -1);
        assert_int_equal(sink.got[w].window, w);
        assert_int_equal(sink.got[w].hash, window_hash(w * 1024, w * 1024 + 1024));
        assert_int_equal(sink.got[w].prefix, prefix);
        assert_true(sink.got[w].prefix_ok);
    }
}

static void test_child_begins_at_one(void **state)
{
    struct sink sink = {0};
    rec_tracks_init(*state);
    run(*state, 1, -1, 1, 1, 1024, &sink);
    assert_int_equal(sink.count, 1);
    assert_int_equal(sink.got[0].hash, window_hash(1, 1024));
    run(*state, 1, -1, 1, 1024, 2048, &sink);
    assert_int_equal(sink.count, 2);
    assert_true(sink.got[1].prefix_ok);
}

/* Two threads whose ops arrive in blocks, out of order over three windows. */
static void test_out_of_order(void **state)
{
    struct sink sink = {0};
    rec_tracks_init(*state);
    run(*state, 1, -1, 0, 1024, 3072, &sink);
    assert_int_equal(sink.count, 0); /* window 0 is still missing */
    run(*state, 1, -1, 0, 512, 1024, &sink);
    run(*state, 1, -1, 0, 0, 512, &sink);
    assert_int_equal(sink.count, 3);
    for (uint64_t w = 0; w < 3; w++) {
        assert_int_equal(sink.got[w].window, w);
        assert_int_equal(sink.got[w].hash, window_hash(w * 1024, w * 1024 + 1024));
        assert_true(sink.got[w].prefix_ok);
    }
    assert_int_equal(sink.got[2].prefix, window_hash(0, 3072));
}

static void test_lost_op(void **state)
{
    struct sink sink = {0};
    rec_tracks_init(*state);
    run(*state, 1, -1, 0, 0, 1500, &sink);
    run(*state, 1, -1, 0, 1501, 8 * 1024, &sink);
    rec_tracks_finish(*state, keep, &sink);
    assert_int_equal(sink.count, 7); /* all windows but the second */
    assert_true(sink.got[0].prefix_ok);
    for (size_t i = 1; i < 7; i++) {
        uint64_t w = i + 1;
        assert_int_equal(sink.got[i].window, w);
        assert_int_equal(sink.got[i].hash, window_hash(w * 1024, w * 1024 + 1024));
        assert_false(sink.got[i].prefix_ok);
        assert_int_equal(sink.got[i].prefix, 0);
    }
}

static void test_starts_late(void **state)
{
    struct sink sink = {0};
    rec_tracks_init(*state);
    run(*state, 1, -1, 0, 10 * 1024 + 1, 13 * 1024, &sink);
    rec_tracks_finish(*state, keep, &sink);
    assert_int_equal(sink.count, 2);
    assert_int_equal(sink.got[0].window, 11);
    assert_false(sink.got[0].prefix_ok);
    assert_int_equal(sink.got[1].window, 12);
}

static void test_pairs_are_separate(void **state)
{
    struct sink sink = {0};
    rec_tracks_init(*state);
    struct rec_tracks *tracks = *state;
    for (uint64_t seq = 0; seq < 1024; seq++) {
        rec_tracks_op(tracks, 1, 3, true, 0, seq, signature(seq), keep, &sink);
        rec_tracks_op(tracks, 1, 3, false, 0, seq, signature(seq + 1), keep, &sink);
        rec_tracks_op(tracks, 1, 4, true, 0, seq, signature(seq + 2), keep, &sink);
        rec_tracks_op(tracks, 1, -1, false, 0, seq, signature(seq + 3), keep, &sink);
    }
    assert_int_equal(sink.count, 4);
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(sink.got[i].hash, sink.got[k].hash);
    assert_true(sink.got[0].send);
    assert_false(sink.got[1].send);
    assert_int_equal(sink.got[2].peer, 4);
    assert_int_equal(sink.got[3].peer, -1);
}

/* More pairs than places: no checkpoint for the rest, and places come back when communicators end. */
static void test_full_table(void **state)
{
    struct sink sink = {0};
    struct rec_tracks *tracks = *state;
    rec_tracks_init(tracks);
    for (uint32_t comm = 0; comm < 100; comm++)
        for (int32_t peer = 0; peer < 100; peer++)
            rec_tracks_op(tracks, comm, peer, true, 0, 0, 1, keep, &sink);
    assert_int_equal(tracks->pair_count, REC_PAIR_TRACKS / 4 * 3);
    run(tracks, 1000, 1, 0, 0, 1024, &sink);
    assert_int_equal(sink.count, 0);
    for (uint32_t comm = 0; comm < 50; comm++)
        rec_tracks_end(tracks, comm, keep, &sink);
    run(tracks, 1000, 1, 0, 0, 1024, &sink);
    assert_int_equal(sink.count, 1);
    for (uint32_t comm = 0; comm < 2000; comm++)
        rec_tracks_end(tracks, comm, keep, &sink);
    assert_int_equal(tracks->pair_count, 0);
    for (uint32_t i = 0; i < REC_PAIR_TRACKS; i++)
        assert_int_equal(tracks->pairs[i].comm, REC_ID_NONE);
}

/* Through a file: two ranks that did the same agree; one differing op shows in its window only. */
static void checkpoints_of(struct fixture *f, const char *stem, uint64_t odd, struct sink *sink)
{
    struct synth synth;
    struct rec_reader *reader;
    struct rec_event event;
    char path[512];
    fixture_open(f, stem, NULL);
    synth_init(&synth, SYNTH_PLAIN, 0, 8);
    synth_define(&synth, f->writer);
    for (uint64_t i = 0; i < 5000; i++) {
        struct rec_op op;
        synth_op(&synth, &op);
        op.count += op.ordinal == odd;
        rec_writer_ops(f->writer, &op, 1);
    }
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    snprintf(path, sizeof(path), "%s/%s.frec", f->dir, stem);
    assert_int_equal(rec_reader_open(path, &reader, NULL), REC_OK);
    while (rec_reader_next(reader, &event, NULL) == REC_OK)
        if (event.type == REC_EV_CHECKPOINT)
            keep(sink, &event.u.checkpoint);
    rec_reader_close(reader);
}

static void test_through_a_file(void **state)
{
    struct sink a = {0}, b = {0}, c = {0};
    checkpoints_of(*state, "a", UINT64_MAX, &a);
    checkpoints_of(*state, "b", UINT64_MAX, &b);
    checkpoints_of(*state, "c", 3000, &c);
    assert_int_equal(a.count, 4);
    assert_int_equal(b.count, 4);
    assert_int_equal(c.count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(a.got[i].window, i);
        assert_int_equal(a.got[i].hash, b.got[i].hash);
        assert_int_equal(a.got[i].prefix, b.got[i].prefix);
        assert_true(a.got[i].prefix_ok && c.got[i].prefix_ok);
        assert_int_equal(a.got[i].hash == c.got[i].hash, i != 3000 / 1024);
        assert_int_equal(a.got[i].prefix == c.got[i].prefix, i < 3000 / 1024);
    }
}

/* A definition overtakes the last ops of its communicator: their window is still completed. */
static void test_destroyed_before_last_ops(void **state)
{
    struct fixture *f = *state;
    struct rec_reader *reader;
    struct rec_event event;
    char path[512];
    struct rec_op ops[2048];
    fixture_open(f, "late", NULL);
    struct rec_comm_def comm = {.id = 0, .state = 2, .nranks = 2, .uid = 1, .made_by = REC_COMM_INIT_RANK};
    for (uint32_t i = 0; i < 2048; i++)
        ops[i] = (struct rec_op){.ordinal = i,
                                 .enter_ns = 6400 * (i + 1),
                                 .exit_ns = 6400 * (i + 1),
                                 .count = 1,
                                 .seq = i,
                                 .thread = 1,
                                 .kind = REC_ALL_REDUCE,
                                 .peer = -1};
    rec_writer_comm(f->writer, &comm);
    rec_writer_ops(f->writer, ops, 1500);
    comm.state = 4;
    rec_writer_comm(f->writer, &comm);
    assert_int_equal(rec_writer_flush(f->writer, NULL), REC_OK);
    rec_writer_ops(f->writer, ops + 1500, 548);
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    snprintf(path, sizeof(path), "%s/late.frec", f->dir);
    assert_int_equal(rec_reader_open(path, &reader, NULL), REC_OK);
    uint64_t windows = 0;
    while (rec_reader_next(reader, &event, NULL) == REC_OK) {
        if (event.type != REC_EV_CHECKPOINT)
            continue;
        assert_int_equal(event.u.checkpoint.window, windows++);
        assert_true(event.u.checkpoint.prefix_ok);
    }
    assert_int_equal(windows, 2);
    rec_reader_close(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_child_begins_at_one, setup, teardown),
        cmocka_unit_test_setup_teardown(test_out_of_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_op, setup, teardown),
        cmocka_unit_test_setup_teardown(test_starts_late, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pairs_are_separate, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_table, setup, teardown),
        cmocka_unit_test_setup_teardown(test_through_a_file, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_destroyed_before_last_ops, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
