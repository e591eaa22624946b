/* Every kind of record comes back as it went in, extreme values included. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/decode.h"
#include "format/ops.h"
#include "rec/live.h"

/* Writes out what the fixture's writer has and opens it again. */
static struct rec_reader *reopen(struct fixture *f, const char *name)
{
    struct rec_reader *reader;
    struct rec_error err;
    char path[512];
    assert_int_equal(rec_writer_close(f->writer, &err), REC_OK);
    snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    assert_int_equal(rec_reader_open(path, &reader, &err), REC_OK);
    return reader;
}

static void expect(struct rec_reader *reader, enum rec_event_type type, struct rec_event *event)
{
    struct rec_error err;
    assert_int_equal(rec_reader_next(reader, event, &err), REC_OK);
    assert_int_equal(event->type, type);
}

static void finish(struct rec_reader *reader)
{
    struct rec_event event;
    struct rec_reader_stats stats;
    assert_int_equal(rec_reader_next(reader, &event, NULL), REC_END);
    rec_reader_stats(reader, &stats);
    assert_true(stats.closed);
    assert_false(stats.torn_tail);
    assert_int_equal(stats.damages, 0);
    assert_string_equal(stats.first_problem, "");
    rec_reader_close(reader);
}

static void test_header(void **state)
{
    struct fixture *f = *state;
    struct rec_writer_config config = {.tick_ns = 100};
    fixture_open(f, "header", &config);
    struct rec_reader *reader = reopen(f, "header.frec");
    assert_string_equal(rec_reader_meta(reader), "{\"host\":\"testhost\",\"pid\":1}");
    assert_int_equal(rec_reader_part(reader), 0);
    assert_int_equal(rec_reader_tick_ns(reader), 100);
    finish(reader);
}

static void test_definitions(void **state)
{
    struct fixture *f = *state;
    struct rec_writer_config config = {.tick_ns = 1};
    fixture_open(f, "defs", &config);
    struct rec_comm_def comms[] = {
        {.id = 0, .rank = REC_ID_NONE, .device = -1, .color = -1},
        {.id = UINT32_MAX,
         .state = UINT32_MAX,
         .nranks = UINT32_MAX,
         .rank = 0,
         .uid = UINT64_MAX,
         .parent_uid = UINT64_MAX,
         .parent_seq = UINT64_MAX,
         .comm_hash = 1,
         .handle = UINT64_MAX,
         .created_ns = UINT64_MAX,
         .device = INT32_MIN,
         .color = INT32_MAX,
         .made_by = UINT32_MAX,
         .async_error = UINT32_MAX},
    };
    memset(comms[1].name, 'x', sizeof(comms[1].name) - 1);
    struct rec_thread_def threads[] = {{.id = 1, .tid = 0, .name = ""},
                                       {.id = UINT32_MAX, .tid = INT32_MIN, .name = "fifteen letters"}};
    struct rec_redop_def redops[] = {{.redop = REC_REDOP_USER, .comm = REC_ID_NONE},
                                     {.redop = UINT32_MAX,
                                      .dtype = UINT32_MAX,
                                      .residence = UINT32_MAX,
                                      .scalar = UINT64_MAX,
                                      .hash = UINT64_MAX}};
    struct rec_stream_def streams[] = {{.id = 0, .device = -1},
                                       {.id = UINT32_MAX, .device = INT32_MAX, .handle = UINT64_MAX}};
    for (int i = 0; i < 2; i++) {
        rec_writer_comm(f->writer, &comms[i]);
        rec_writer_thread(f->writer, &threads[i]);
        rec_writer_redop(f->writer, &redops[i]);
        rec_writer_stream(f->writer, &streams[i]);
    }
    struct rec_reader *reader = reopen(f, "defs.frec");
    struct rec_event event;
    for (int i = 0; i < 2; i++) {
        expect(reader, REC_EV_COMM, &event);
        assert_memory_equal(&event.u.comm, &comms[i], sizeof(comms[i]));
        expect(reader, REC_EV_THREAD, &event);
        assert_memory_equal(&event.u.thread, &threads[i], sizeof(threads[i]));
        expect(reader, REC_EV_REDOP, &event);
        assert_memory_equal(&event.u.redop, &redops[i], sizeof(redops[i]));
        expect(reader, REC_EV_STREAM, &event);
        assert_memory_equal(&event.u.stream, &streams[i], sizeof(streams[i]));
    }
    finish(reader);
}

static void test_small_records(void **state)
{
    struct fixture *f = *state;
    struct rec_writer_config config = {.tick_ns = 1};
    fixture_open(f, "records", &config);
    struct rec_frontier frontier = {UINT32_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    struct rec_loss loss = {.thread = 7, .first_ordinal = UINT64_MAX, .count = 1, .why = REC_LOSS_RING_FULL};
    struct rec_loss nobody = {.thread = REC_ID_NONE, .count = UINT64_MAX, .why = REC_LOSS_TABLE_FULL};
    rec_writer_frontier(f->writer, UINT64_MAX, &frontier);
    struct rec_gpu gpu = {UINT32_MAX, UINT32_MAX, UINT64_MAX, UINT64_MAX - 1, UINT64_MAX};
    rec_writer_gpu(f->writer, 4, &gpu);
    rec_writer_heartbeat(f->writer, 1);
    rec_writer_heartbeat(f->writer, 0);
    rec_writer_loss(f->writer, 5, &loss);
    rec_writer_loss(f->writer, 6, &nobody);
    rec_writer_open_ops(f->writer, 9, NULL, 0);
    struct rec_reader *reader = reopen(f, "records.frec");
    struct rec_event event;
    expect(reader, REC_EV_FRONTIER, &event);
    assert_int_equal(event.time_ns, UINT64_MAX);
    assert_int_equal(event.u.frontier.comm, frontier.comm);
    assert_int_equal(event.u.frontier.next_seq, frontier.next_seq);
    assert_int_equal(event.u.frontier.p2p_entered, frontier.p2p_entered);
    assert_int_equal(event.u.frontier.lost, frontier.lost);
    expect(reader, REC_EV_GPU, &event);
    assert_int_equal(event.time_ns, 4);
    assert_int_equal(event.u.gpu.stream, gpu.stream);
    assert_int_equal(event.u.gpu.started, gpu.started);
    assert_int_equal(event.u.gpu.ended, gpu.ended);
    assert_int_equal(event.u.gpu.dropped, gpu.dropped);
    assert_int_equal(event.u.gpu.error, gpu.error);
    expect(reader, REC_EV_HEARTBEAT, &event);
    assert_int_equal(event.time_ns, 1);
    expect(reader, REC_EV_HEARTBEAT, &event);
    assert_int_equal(event.time_ns, 0);
    expect(reader, REC_EV_LOSS, &event);
    assert_int_equal(event.time_ns, 5);
    assert_int_equal(event.u.loss.thread, 7);
    assert_int_equal(event.u.loss.first_ordinal, UINT64_MAX);
    assert_int_equal(event.u.loss.why, REC_LOSS_RING_FULL);
    expect(reader, REC_EV_LOSS, &event);
    assert_int_equal(event.u.loss.thread, REC_ID_NONE);
    assert_int_equal(event.u.loss.count, UINT64_MAX);
    expect(reader, REC_EV_OPEN, &event);
    assert_int_equal(event.time_ns, 9);
    assert_int_equal(event.u.open.count, 0);
    finish(reader);
}

#define RANDOM_OPS 20000

static void test_any_ops(void **state)
{
    struct fixture *f = *state;
    struct rec_writer_config config = {.tick_ns = 1};
    struct rec_op *ops = calloc(RANDOM_OPS, sizeof(*ops));
    assert_non_null(ops);
    uint64_t random = 1;
    for (size_t i = 0; i < RANDOM_OPS; i++) {
        synth_any_op(&random, &ops[i]);
        ops[i].thread = 3;
        ops[i].ordinal = i;
    }
    fixture_open(f, "any", &config);
    for (size_t done = 0; done < RANDOM_OPS;) {
        size_t n = 1 + synth_draw(&random) % 700;
        n = n < RANDOM_OPS - done ? n : RANDOM_OPS - done;
        rec_writer_ops(f->writer, ops + done, n);
        done += n;
        if (synth_draw(&random) % 4 == 0)
            assert_int_equal(rec_writer_flush(f->writer, NULL), REC_OK);
    }
    struct rec_reader *reader = reopen(f, "any.frec");
    struct rec_event event;
    for (size_t i = 0; i < RANDOM_OPS;) {
        assert_int_equal(rec_reader_next(reader, &event, NULL), REC_OK);
        if (event.type == REC_EV_CHECKPOINT)
            continue;
        assert_int_equal(event.type, REC_EV_OP);
        assert_memory_equal(&event.u.op, &ops[i], sizeof(ops[i]));
        i++;
    }
    finish(reader);
    free(ops);
}

static void test_open_ops(void **state)
{
    struct fixture *f = *state;
    struct rec_writer_config config = {.tick_ns = 1};
    struct rec_op ops[100];
    uint64_t random = 2;
    for (int i = 0; i < 100; i++) {
        synth_any_op(&random, &ops[i]);
        ops[i].thread = (uint32_t)synth_draw(&random);
        ops[i].ordinal = synth_draw(&random);
        ops[i].launch = 0; /* says nothing of a call that has not returned */
    }
    fixture_open(f, "open", &config);
    rec_writer_open_ops(f->writer, 77, ops, 100);
    struct rec_reader *reader = reopen(f, "open.frec");
    struct rec_event event;
    expect(reader, REC_EV_OPEN, &event);
    assert_int_equal(event.time_ns, 77);
    assert_int_equal(event.u.open.count, 100);
    assert_memory_equal(event.u.open.ops, ops, sizeof(ops));
    finish(reader);
}

static void test_stall(void **state)
{
    struct fixture *f = *state;
    fixture_open(f, "stall", NULL);
    const char *modules[] = {"/usr/lib/libc.so.6", "", "/opt/ünï/libnccl.so.2"};
    struct rec_frame frames[] = {{0, 0x1234}, {2, UINT64_MAX}, {REC_ID_NONE, 0}};
    struct rec_stall_thread threads[] = {
        {.tid = 10, .state = 'S', .name = "python3", .where = "futex_wait", .nframes = 3, .frames = frames},
        {.tid = INT32_MAX, .state = 'D', .name = "", .where = "", .nframes = 0, .frames = NULL},
    };
    struct rec_stall stall = {.why = REC_STALL_OPEN_OP,
                              .thread = 1,
                              .since_ns = 6400,
                              .nmodules = 3,
                              .modules = modules,
                              .nthreads = 2,
                              .threads = threads};
    rec_writer_stall(f->writer, 12800, &stall);
    struct rec_reader *reader = reopen(f, "stall.frec");
    struct rec_event event;
    expect(reader, REC_EV_STALL, &event);
    assert_int_equal(event.time_ns, 12800);
    const struct rec_stall *got = &event.u.stall;
    assert_int_equal(got->why, REC_STALL_OPEN_OP);
    assert_int_equal(got->thread, 1);
    assert_int_equal(got->since_ns, 6400);
    assert_int_equal(got->nmodules, 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(got->modules[i], modules[i]);
    assert_int_equal(got->nthreads, 2);
    assert_string_equal(got->threads[0].name, "python3");
    assert_string_equal(got->threads[0].where, "futex_wait");
    assert_int_equal(got->threads[0].state, 'S');
    assert_int_equal(got->threads[0].nframes, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(got->threads[0].frames[i].module, frames[i].module);
        assert_int_equal(got->threads[0].frames[i].offset, frames[i].offset);
    }
    assert_int_equal(got->threads[1].tid, INT32_MAX);
    assert_int_equal(got->threads[1].nframes, 0);
    finish(reader);
}

static void test_large_stall_is_cut(void **state)
{
    struct fixture *f = *state;
    fixture_open(f, "large", NULL);
    static struct rec_frame frames[1000];
    static struct rec_stall_thread threads[1000];
    for (uint32_t i = 0; i < 1000; i++) {
        frames[i] = (struct rec_frame){0, UINT64_C(0x7fffffffffff)};
        threads[i] =
            (struct rec_stall_thread){.tid = (int32_t)i, .state = 'R', .nframes = 1000, .frames = frames};
    }
    const char *module = "/bin/true";
    struct rec_stall stall = {.why = REC_STALL_IDLE,
                              .thread = REC_ID_NONE,
                              .nmodules = 1,
                              .modules = &module,
                              .nthreads = 1000,
                              .threads = threads};
    rec_writer_stall(f->writer, 64, &stall);
    rec_writer_heartbeat(f->writer, 128);
    struct rec_reader *reader = reopen(f, "large.frec");
    struct rec_event event;
    expect(reader, REC_EV_STALL, &event);
    assert_in_range(event.u.stall.nthreads, 10, 999);
    for (uint32_t i = 0; i < event.u.stall.nthreads; i++)
        assert_int_equal(event.u.stall.threads[i].tid, i);
    assert_int_equal(event.u.stall.threads[0].nframes, 1000);
    expect(reader, REC_EV_HEARTBEAT, &event);
    assert_int_equal(event.time_ns, 128);
    finish(reader);
}

static void test_end(void **state)
{
    struct fixture *f = *state;
    fixture_open(f, "end", NULL);
    const char *module = "/usr/bin/python3";
    struct rec_frame frames[] = {{0, 1}, {5, 2}};
    struct rec_end end = {.reason = REC_END_SIGNAL,
                          .status = INT32_MIN,
                          .signal = 11,
                          .tid = 99,
                          .fault = UINT64_MAX,
                          .nmodules = 1,
                          .modules = &module,
                          .nframes = 2,
                          .frames = frames};
    rec_writer_end(f->writer, 6400, &end);
    struct rec_reader *reader = reopen(f, "end.frec");
    struct rec_event event;
    expect(reader, REC_EV_END, &event);
    const struct rec_end *got = &event.u.end;
    assert_int_equal(got->reason, REC_END_SIGNAL);
    assert_int_equal(got->status, INT32_MIN);
    assert_int_equal(got->signal, 11);
    assert_int_equal(got->tid, 99);
    assert_int_equal(got->fault, UINT64_MAX);
    assert_string_equal(got->modules[0], module);
    assert_int_equal(got->nframes, 2);
    assert_int_equal(got->frames[0].module, 0);
    assert_int_equal(got->frames[1].module, REC_ID_NONE); /* there is no module 5 */
    assert_int_equal(got->frames[1].offset, 2);
    finish(reader);
}

/* Each segment stands alone: read from any one on, everything that ops refer to is defined. */
static void test_segments_stand_alone(void **state)
{
    struct fixture *f = *state;
    struct bytes bytes = small_trace(f, 2000);
    struct rec_reader *reader;
    const struct rec_segment_info *segments;
    size_t count;
    assert_int_equal(rec_reader_open_memory(bytes.data, bytes.size, "m", &reader, NULL), REC_OK);
    assert_int_equal(rec_reader_segments(reader, &segments, &count, NULL), REC_OK);
    assert_in_range(count, 3, 1000);
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        struct rec_event event;
        uint64_t comms = 0, threads = 0, streams = 0, ops = 0;
        assert_int_equal(rec_reader_seek(reader, i, NULL), REC_OK);
        while (ops < segments[i].ops) {
            assert_int_equal(rec_reader_next(reader, &event, NULL), REC_OK);
            comms += event.type == REC_EV_COMM;
            threads += event.type == REC_EV_THREAD;
            streams += event.type == REC_EV_STREAM;
            if (event.type != REC_EV_OP)
                continue;
            if (ops++ == 0) {
                assert_int_equal(event.u.op.ordinal, total);
                assert_in_range(event.offset, segments[i].offset, segments[i].offset + segments[i].bytes - 1);
            }
            assert_in_range(event.u.op.enter_ns, in_ticks(segments[i].first_ns), segments[i].last_ns);
            assert_in_range(event.u.op.exit_ns, in_ticks(segments[i].first_ns), segments[i].last_ns);
        }
        total += ops;
        if (ops == 0)
            continue; /* a segment for a heartbeat only: nothing was read of it */
        assert_int_equal(comms, SYNTH_COMMS);
        assert_int_equal(threads, 1);
        assert_int_equal(streams, 3);
    }
    assert_int_equal(total, 2000);
    assert_int_equal(rec_reader_seek(reader, count, NULL), REC_ERR_ARG);
    rec_reader_close(reader);
    free(bytes.data);
}

/* Without the index the same is found by hopping, with times that are never too narrow. */
static void test_index_and_hopping_agree(void **state)
{
    struct fixture *f = *state;
    struct bytes bytes = small_trace(f, 2000);
    struct rec_reader *a, *b;
    const struct rec_segment_info *with, *without;
    size_t nwith, nwithout;
    assert_int_equal(rec_reader_open_memory(bytes.data, bytes.size, "a", &a, NULL), REC_OK);
    assert_int_equal(rec_reader_segments(a, &with, &nwith, NULL), REC_OK);
    assert_int_equal(rec_reader_open_memory(bytes.data, bytes.size - 1, "b", &b, NULL), REC_OK);
    assert_int_equal(rec_reader_segments(b, &without, &nwithout, NULL), REC_OK);
    assert_int_equal(nwith, nwithout);
    for (size_t i = 0; i < nwith; i++) {
        assert_int_equal(with[i].offset, without[i].offset);
        assert_int_equal(with[i].bytes, without[i].bytes);
        assert_int_equal(with[i].ops, without[i].ops);
        assert_true(without[i].first_ns <= with[i].first_ns);
        assert_true(without[i].last_ns >= with[i].last_ns);
        assert_true(without[i].last_ns - with[i].last_ns <= 1000000);
    }
    rec_reader_close(a);
    rec_reader_close(b);
    free(bytes.data);
}

/* Progress of the GPU in a trace of 1.1, which told no error. */
static void test_older_progress(void **state)
{
    static const uint8_t older[] = {REC_WIRE_GPU, 5, 0, 0, 2, 3, 5, 1, 0},
                         cut[] = {REC_WIRE_GPU, 4, 0, 0, 2, 3, 5, 1};
    static struct rec_decoder decoder;
    struct rec_event event;
    (void)state;
    rec_decoder_init(&decoder);
    rec_decoder_segment(&decoder, 64);
    rec_decoder_piece(&decoder, older, sizeof(older));
    assert_int_equal(rec_decoder_next(&decoder, &event), REC_OK);
    assert_int_equal(event.type, REC_EV_GPU);
    assert_int_equal(event.time_ns, 64);
    assert_int_equal(event.u.gpu.stream, 3);
    assert_int_equal(event.u.gpu.started, 6);
    assert_int_equal(event.u.gpu.ended, 5);
    assert_int_equal(event.u.gpu.error, 0);
    assert_int_equal(rec_decoder_next(&decoder, &event), REC_END);
    rec_decoder_piece(&decoder, cut, sizeof(cut));
    assert_int_equal(rec_decoder_next(&decoder, &event), REC_ERR_CORRUPT);
    rec_decoder_fini(&decoder);
}

/* One-sided ops of 1.3, which told no signals. */
static void test_older_signals(void **state)
{
    uint8_t piece[512], *p = piece;
    static struct rec_ops coder;
    static struct rec_decoder decoder;
    struct rec_event event;
    struct rec_time time = {.tick_ns = 1};
    struct rec_op op = {.enter_ns = 5, .exit_ns = 6, .kind = REC_SIGNAL, .signal = rec_signal_id(0, 0)};
    (void)state;
    rec_ops_reset(&coder);
    p = rec_ops_encode(&coder, p, &time, &op, 1);
    size_t bytes = (size_t)(p - piece), body = piece[1];
    assert_int_equal(piece[REC_WIRE_RECORD_BYTES + body - 1], REC_WIRE_SIGNAL); /* the template's last byte */
    for (int older = 0; older <= 1; older++) {
        if (older) {
            memmove(piece + REC_WIRE_RECORD_BYTES + body - 1, piece + REC_WIRE_RECORD_BYTES + body,
                    bytes - REC_WIRE_RECORD_BYTES - body);
            piece[1]--;
            bytes--;
        }
        rec_decoder_init(&decoder);
        rec_decoder_segment(&decoder, 1);
        rec_decoder_piece(&decoder, piece, bytes);
        assert_int_equal(rec_decoder_next(&decoder, &event), REC_OK);
        assert_int_equal(event.u.op.kind, REC_SIGNAL);
        assert_int_equal(event.u.op.exit_ns, 6);
        assert_int_equal(event.u.op.signal, older ? REC_SIGNAL_UNKNOWN : 0);
        assert_int_equal(rec_decoder_next(&decoder, &event), REC_END);
        rec_decoder_fini(&decoder);
    }

    p = rec_encode_open(piece, sizeof(piece), &time, 7, &op, 1);
    size_t list = 3; /* the count of two bytes, and one signal */
    for (int older = 0; older <= 1; older++) {
        piece[1] = (uint8_t)(piece[1] - (older ? list : 0));
        rec_decoder_init(&decoder);
        rec_decoder_segment(&decoder, 1);
        rec_decoder_piece(&decoder, piece, (size_t)(p - piece) - (older ? list : 0));
        assert_int_equal(rec_decoder_next(&decoder, &event), REC_OK);
        assert_int_equal(event.u.open.count, 1);
        assert_int_equal(event.u.open.ops[0].signal, older ? REC_SIGNAL_UNKNOWN : 0);
        assert_int_equal(rec_decoder_next(&decoder, &event), REC_END);
        rec_decoder_fini(&decoder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_header, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_definitions, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_small_records, fixture_setup, fixture_teardown),
        cmocka_unit_test(test_older_progress),
        cmocka_unit_test(test_older_signals),
        cmocka_unit_test_setup_teardown(test_any_ops, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_open_ops, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_stall, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_large_stall_is_cut, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_end, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_segments_stand_alone, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_index_and_hopping_agree, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
