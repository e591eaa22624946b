/* Call sites: defined in each segment before the ops that name them, and hostile definitions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/decode.h"
#include "support.h"

static void assert_site(const struct rec_callsite_def *got, uint32_t id)
{
    struct rec_callsite_def want;
    assert_true(synth_callsite(NULL, id, &want));
    assert_int_equal(got->id, id);
    assert_int_equal(got->kind, want.kind);
    assert_int_equal(got->nframes, want.nframes);
    for (uint32_t i = 0; i < want.nframes; i++) {
        assert_string_equal(got->frames[i].file, want.frames[i].file);
        assert_string_equal(got->frames[i].function, want.frames[i].function);
        assert_int_equal(got->frames[i].line, want.frames[i].line);
        assert_int_equal(got->frames[i].offset, want.frames[i].offset);
    }
}

/* Ops with call sites first, first + 1 … */
static void write_sites(struct rec_writer *writer, uint32_t first, uint32_t count, uint64_t *ordinal)
{
    for (uint32_t i = 0; i < count; i++) {
        struct rec_op op = {.ordinal = (*ordinal)++,
                            .enter_ns = SYNTH_START_NS + *ordinal * 64000,
                            .exit_ns = SYNTH_START_NS + *ordinal * 64000 + 6400,
                            .thread = 1,
                            .comm = 0,
                            .stream = REC_ID_NONE,
                            .kind = REC_ALL_REDUCE,
                            .dtype = 7,
                            .peer = -1,
                            .callsite = first + i};
        rec_writer_ops(writer, &op, 1);
    }
}

static struct rec_reader *reopen(struct fixture *f, const char *name, struct bytes *bytes)
{
    struct rec_reader *reader;
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    *bytes = fixture_read(f, name);
    assert_int_equal(rec_reader_open_memory(bytes->data, bytes->size, name, &reader, NULL), REC_OK);
    return reader;
}

static void finish(struct rec_reader *reader, struct bytes *bytes)
{
    struct rec_reader_stats stats;
    rec_reader_stats(reader, &stats);
    assert_int_equal(stats.damages, 0);
    rec_reader_close(reader);
    free(bytes->data);
}

/* Every segment defines what its ops name, before they name it, once, and nothing else. */
static void test_each_segment(void **state)
{
    struct fixture *f = *state;
    struct rec_writer_config config = {.segment_bytes = 4096};
    uint64_t ordinal = 0;
    fixture_open(f, "sites", &config);
    rec_writer_callsites(f->writer, synth_callsite, NULL);
    for (uint32_t round = 0; round < 200; round++) {
        write_sites(f->writer, 1 + round * 7 % 90, 40, &ordinal);
        assert_int_equal(rec_writer_flush(f->writer, NULL), REC_OK);
    }
    struct bytes bytes;
    struct rec_reader *reader = reopen(f, "sites.frec", &bytes);
    const struct rec_segment_info *segments;
    size_t count;
    assert_int_equal(rec_reader_segments(reader, &segments, &count, NULL), REC_OK);
    assert_true(count > 3);
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        bool told[200] = {0}, used[200] = {0};
        struct rec_event event;
        assert_int_equal(rec_reader_seek(reader, i, NULL), REC_OK);
        for (uint64_t ops = 0; ops < segments[i].ops;) {
            assert_int_equal(rec_reader_next(reader, &event, NULL), REC_OK);
            if (event.type == REC_EV_CALLSITE) {
                assert_true(event.u.callsite.id < 200 && !told[event.u.callsite.id]);
                assert_site(&event.u.callsite, event.u.callsite.id);
                told[event.u.callsite.id] = true;
            } else if (event.type == REC_EV_OP) {
                assert_true(told[event.u.op.callsite]);
                used[event.u.op.callsite] = true;
                ops++;
                total++;
            }
        }
        assert_memory_equal(told, used, sizeof(told));
    }
    assert_int_equal(total, ordinal);
    finish(reader, &bytes);
}

/* A part tells all call sites that its ops name, although the parts before it have gone. */
static void test_parts(void **state)
{
    struct fixture *f = *state;
    struct rec_writer_config config = {.max_bytes = 1 << 20};
    uint64_t ordinal = 0, random = 1;
    fixture_open(f, "parts", &config);
    rec_writer_callsites(f->writer, synth_callsite, NULL);
    for (uint32_t round = 0; round < 20000; round++) {
        write_sites(f->writer, 1 + (uint32_t)(synth_draw(&random) % 300), 40, &ordinal);
        if (round % 50 == 0)
            assert_int_equal(rec_writer_flush(f->writer, NULL), REC_OK);
    }
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    uint32_t parts = 0;
    for (uint32_t part = 1; part < 100; part++) {
        char name[32];
        bool told[400] = {0};
        struct rec_event event;
        struct rec_reader *reader;
        snprintf(name, sizeof(name), "parts.%u.frec", part);
        struct bytes bytes = fixture_read(f, name);
        if (!bytes.data)
            continue;
        parts++;
        assert_int_equal(rec_reader_open_memory(bytes.data, bytes.size, name, &reader, NULL), REC_OK);
        while (rec_reader_next(reader, &event, NULL) == REC_OK) {
            if (event.type == REC_EV_CALLSITE)
                told[event.u.callsite.id] = true;
            assert_true(event.type != REC_EV_OP || told[event.u.op.callsite]);
        }
        finish(reader, &bytes);
    }
    assert_null(fixture_read(f, "parts.frec").data);
    assert_true(parts > 3);
}

/* The call that hangs is the one whose line matters. */
static void test_open_ops(void **state)
{
    struct fixture *f = *state;
    fixture_open(f, "open", NULL);
    rec_writer_callsites(f->writer, synth_callsite, NULL);
    struct rec_op op = {.thread = 1, .enter_ns = SYNTH_START_NS, .flags = REC_OF_OPEN, .callsite = 42};
    rec_writer_open_ops(f->writer, SYNTH_START_NS, &op, 1);
    struct bytes bytes;
    struct rec_reader *reader = reopen(f, "open.frec", &bytes);
    struct rec_event event;
    bool told = false;
    while (rec_reader_next(reader, &event, NULL) == REC_OK && event.type != REC_EV_OPEN)
        if (event.type == REC_EV_CALLSITE) {
            assert_site(&event.u.callsite, 42);
            told = true;
        }
    assert_int_equal(event.type, REC_EV_OPEN);
    assert_int_equal(event.u.open.ops[0].callsite, 42);
    assert_true(told);
    finish(reader, &bytes);
}

/* A stalled thread's Python stack, beside its native one. */
static void test_stall(void **state)
{
    struct fixture *f = *state;
    fixture_open(f, "stall", NULL);
    rec_writer_callsites(f->writer, synth_callsite, NULL);
    struct rec_stall_thread threads[] = {{.tid = 7, .state = 'S', .callsite = 12}, {.tid = 8, .state = 'R'}};
    struct rec_stall stall = {.why = REC_STALL_IDLE,
                              .thread = REC_ID_NONE,
                              .since_ns = SYNTH_START_NS,
                              .nthreads = 2,
                              .threads = threads};
    rec_writer_stall(f->writer, SYNTH_START_NS, &stall);
    struct bytes bytes;
    struct rec_reader *reader = reopen(f, "stall.frec", &bytes);
    struct rec_event event;
    bool told = false;
    while (rec_reader_next(reader, &event, NULL) == REC_OK && event.type != REC_EV_STALL)
        if (event.type == REC_EV_CALLSITE) {
            assert_site(&event.u.callsite, 12);
            told = true;
        }
    assert_true(told);
    assert_int_equal(event.type, REC_EV_STALL);
    assert_int_equal(event.u.stall.nthreads, 2);
    assert_int_equal(event.u.stall.threads[0].callsite, 12);
    assert_int_equal(event.u.stall.threads[1].callsite, 0);
    finish(reader, &bytes);
}

static bool long_texts(void *unused, uint32_t id, struct rec_callsite_def *def)
{
    static char file[8192], function[8192];
    static struct rec_source_frame frames[2 * REC_CALLSITE_FRAMES];
    (void)unused;
    memset(file, 'a', sizeof(file) - 1);
    memset(function, 'b', sizeof(function) - 1);
    snprintf(file, 16, "%u", id); /* every site brings texts of its own */
    file[strlen(file)] = '/';
    for (uint32_t i = 0; i < 2 * REC_CALLSITE_FRAMES; i++)
        frames[i] = (struct rec_source_frame){.file = file, .function = function, .line = UINT32_MAX};
    *def = (struct rec_callsite_def){
        .id = id, .kind = REC_CALLSITE_PYTHON, .nframes = 2 * REC_CALLSITE_FRAMES, .frames = frames};
    return true;
}

/* Too long, too deep, too many: what does not fit is cut or left out, and no op is lost. */
static void test_limits(void **state)
{
    struct fixture *f = *state;
    uint64_t ordinal = 0;
    fixture_open(f, "limits", NULL);
    write_sites(f->writer, 1, 3, &ordinal); /* nobody to ask */
    rec_writer_callsites(f->writer, long_texts, NULL);
    write_sites(f->writer, 65530, 12, &ordinal);
    write_sites(f->writer, 1, 400, &ordinal);
    write_sites(f->writer, UINT32_MAX, 1, &ordinal);
    struct bytes bytes;
    struct rec_reader *reader = reopen(f, "limits.frec", &bytes);
    struct rec_event event;
    uint64_t ops = 0, sites = 0;
    while (rec_reader_next(reader, &event, NULL) == REC_OK) {
        ops += event.type == REC_EV_OP;
        if (event.type != REC_EV_CALLSITE)
            continue;
        sites++;
        assert_true(event.u.callsite.id < 65536);
        assert_int_equal(event.u.callsite.nframes, REC_CALLSITE_FRAMES);
        assert_int_equal(strlen(event.u.callsite.frames[0].file), REC_WIRE_STRING_MAX);
        assert_int_equal(event.u.callsite.frames[63].line, UINT32_MAX);
    }
    assert_int_equal(ops, ordinal);
    assert_in_range(sites, 6, 300); /* then a MiB of texts is full */
    finish(reader, &bytes);
}

/* ---- hostile records ---- */

struct records {
    uint8_t data[1 << 20];
    size_t used;
};

static void add(struct records *records, enum rec_wire_type type, const void *body, size_t bytes)
{
    uint8_t *p = records->data + records->used;
    assert_true(records->used + bytes + REC_WIRE_RECORD_BYTES <= sizeof(records->data));
    p[0] = (uint8_t)type;
    rec_put24(p + 1, (uint32_t)bytes);
    memcpy(p + REC_WIRE_RECORD_BYTES, body, bytes);
    records->used += bytes + REC_WIRE_RECORD_BYTES;
}

/* What decoding ends with, and the call sites that came before that. */
static enum rec_code decode(const struct records *records, uint32_t *sites)
{
    static struct rec_decoder decoder;
    struct rec_event event;
    enum rec_code code;
    uint8_t *exact = malloc(records->used + 1); /* for a sanitizer to see reads beyond */
    assert_non_null(exact);
    memcpy(exact, records->data, records->used);
    rec_decoder_init(&decoder);
    rec_decoder_segment(&decoder, 64);
    rec_decoder_piece(&decoder, exact, records->used);
    *sites = 0;
    while ((code = rec_decoder_next(&decoder, &event)) == REC_OK) {
        assert_int_equal(event.type, REC_EV_CALLSITE);
        assert_true(event.u.callsite.nframes == 0 || event.u.callsite.frames != NULL);
        for (uint32_t i = 0; i < event.u.callsite.nframes; i++)
            assert_true(strlen(event.u.callsite.frames[i].file) <= REC_WIRE_STRING_MAX);
        ++*sites;
    }
    rec_decoder_fini(&decoder);
    free(exact);
    return code;
}

static void expect_bytes(const char *body, size_t bytes, enum rec_code code, uint32_t sites)
{
    struct records *records = calloc(1, sizeof(*records));
    uint32_t got;
    add(records, REC_WIRE_TEXT, "a.py", 4);
    add(records, REC_WIRE_CALLSITE, body, bytes);
    assert_int_equal(decode(records, &got), code);
    assert_int_equal(got, sites);
    free(records);
}
#define EXPECT(body, code, sites) expect_bytes(body, sizeof(body) - 1, code, sites)

static void test_hostile_sites(void **state)
{
    (void)state;
    /* id, kind, frames, then per frame text + 1 of file, text + 1 of function, line */
    EXPECT("\x05\x01\x01\x01\x01\x07", REC_END, 1);
    EXPECT("\x05\x01\x01\x01\x00\x07 more of a newer version", REC_END, 1);
    EXPECT("\x05\x09\x01\x01\x02\x07", REC_END, 1);         /* kind of a newer version */
    EXPECT("\x05\x01\x01\x02\x01\x07", REC_ERR_CORRUPT, 0); /* no second text */
    EXPECT("\x05\x02\x01\x02\x07", REC_ERR_CORRUPT, 0);
    EXPECT("\x05\x01\x02\x01\x01\x07", REC_ERR_CORRUPT, 0); /* one frame is missing */
    EXPECT("\x05\x01\xff\xff\xff\xff\x0f\x01\x01\x07", REC_ERR_CORRUPT, 0);
    EXPECT("\x05\x01", REC_ERR_CORRUPT, 0);
    EXPECT("", REC_ERR_CORRUPT, 0);
    char deep[3 + 65 * 3];
    memset(deep, 1, sizeof(deep));
    deep[2] = 65;
    expect_bytes(deep, sizeof(deep), REC_ERR_CORRUPT, 0);
    deep[2] = 64;
    expect_bytes(deep, sizeof(deep), REC_END, 1);
}

static void test_hostile_texts(void **state)
{
    (void)state;
    struct records *records = calloc(1, sizeof(*records));
    char text[REC_WIRE_STRING_MAX + 1] = "x";
    uint32_t sites;
    add(records, REC_WIRE_TEXT, text, sizeof(text)); /* too long */
    assert_int_equal(decode(records, &sites), REC_ERR_CORRUPT);
    records->used = 0;
    for (int i = 0; i < REC_WIRE_TEXTS_MAX; i++)
        add(records, REC_WIRE_TEXT, "", 0);
    add(records, REC_WIRE_CALLSITE, "\x01\x01\x01\x80\x40\x01\x07", 7); /* the last one */
    assert_int_equal(decode(records, &sites), REC_END);
    assert_int_equal(sites, 1);
    add(records, REC_WIRE_TEXT, "", 0); /* one too many */
    assert_int_equal(decode(records, &sites), REC_ERR_CORRUPT);
    free(records);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_segment, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_parts, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_open_ops, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_stall, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_limits, fixture_setup, fixture_teardown),
        cmocka_unit_test(test_hostile_sites),
        cmocka_unit_test(test_hostile_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
