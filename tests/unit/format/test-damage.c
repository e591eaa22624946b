/* Whatever happens to a file: no crash, and every whole piece before the damage and every whole
   segment after it comes back. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "format/crc.h"
#include "format/wire.h"

#define OPS 600

static struct bytes slice(struct bytes bytes, size_t size)
{
    /* Exactly as large as it claims to be, so that a sanitizer sees every byte read beyond. */
    struct bytes copy = {malloc(size ? size : 1), size};
    assert_non_null(copy.data);
    memcpy(copy.data, bytes.data, size);
    return copy;
}

/* Offsets of the pieces of an undamaged trace, ended by the end of the file; their op counts. */
struct layout {
    size_t count;
    size_t offset[512];
    uint32_t ops[512];
    bool segment[512];
};

static struct layout layout_of(struct bytes bytes)
{
    struct layout layout = {0};
    size_t at = rec_get32(bytes.data + 16) + rec_get32(bytes.data + 20);
    while (at < bytes.size) {
        bool segment = rec_get32(bytes.data + at) == REC_WIRE_SEGMENT;
        assert_in_range(layout.count, 0, 510);
        layout.offset[layout.count] = at;
        layout.ops[layout.count] = rec_get16(bytes.data + at + 18);
        layout.segment[layout.count++] = segment;
        at += (segment ? REC_WIRE_SEGMENT_BYTES : REC_WIRE_PIECE_BYTES) + rec_get24(bytes.data + at + 8);
    }
    layout.offset[layout.count] = bytes.size;
    return layout;
}

static void test_undamaged(void **state)
{
    struct bytes bytes = small_trace(*state, OPS);
    struct layout layout = layout_of(bytes);
    struct outcome outcome = read_bytes(bytes, SYNTH_TRAIN);
    assert_int_equal(outcome.ops, OPS);
    assert_true(outcome.ops_are_prefix);
    assert_true(outcome.stats.closed);
    assert_int_equal(outcome.stats.damages, 0);
    assert_int_equal(outcome.stats.damaged_bytes, 0);
    assert_int_equal(outcome.stats.file_bytes, bytes.size);
    assert_int_equal(outcome.stats.pieces, layout.count - 1); /* without the index */
    assert_in_range(outcome.stats.segments, 5, outcome.stats.pieces / 2);
    free(bytes.data);
}

static void test_cut_anywhere(void **state)
{
    struct bytes bytes = small_trace(*state, 250);
    struct layout layout = layout_of(bytes);
    size_t whole = 0;
    uint64_t ops = 0;
    for (size_t size = 0; size < bytes.size; size++) {
        struct bytes cut = slice(bytes, size);
        struct outcome outcome = read_bytes(cut, SYNTH_TRAIN);
        free(cut.data);
        if (size < layout.offset[0]) {
            assert_int_equal(outcome.code, size < 8 ? REC_ERR_FORMAT : REC_ERR_CORRUPT);
            continue;
        }
        while (layout.offset[whole + 1] <= size)
            ops += layout.ops[whole++];
        assert_int_equal(outcome.code, REC_OK);
        assert_int_equal(outcome.ops, ops);
        assert_true(outcome.ops_are_prefix);
        assert_false(outcome.stats.closed);
        assert_int_equal(outcome.stats.pieces, whole);
        assert_int_equal(outcome.stats.torn_tail, size != layout.offset[whole]);
        assert_int_equal(outcome.stats.damages, 0);
    }
    free(bytes.data);
}

static void test_zero_filled_tail(void **state)
{
    struct bytes bytes = small_trace(*state, OPS);
    struct layout layout = layout_of(bytes);
    uint64_t ops = 0;
    for (size_t i = 0; i + 1 < layout.count; i++) {
        /* The machine died: the size is there, what should be in it is not. */
        struct bytes torn = slice(bytes, bytes.size);
        size_t keep = layout.offset[i] + 30;
        memset(torn.data + keep, 0, torn.size - keep);
        struct outcome outcome = read_bytes(torn, SYNTH_TRAIN);
        assert_int_equal(outcome.ops, ops);
        assert_true(outcome.ops_are_prefix);
        assert_true(outcome.stats.torn_tail);
        assert_int_equal(outcome.stats.damages, 0);
        free(torn.data);
        ops += layout.ops[i];
    }
    free(bytes.data);
}

/* One broken byte costs that segment's rest at most, and the count of ops that it cost is exact. */
static void test_one_bad_byte(void **state)
{
    struct bytes bytes = small_trace(*state, OPS);
    struct layout layout = layout_of(bytes);
    for (size_t i = 0; i + 1 < layout.count; i++) {
        uint64_t lost = 0;
        for (size_t k = i; k == i || (k + 1 < layout.count && !layout.segment[k]); k++)
            lost += layout.ops[k];
        struct bytes bad = slice(bytes, bytes.size);
        bad.data[layout.offset[i + 1] - 1] ^= 0x10;
        struct outcome outcome = read_bytes(bad, SYNTH_TRAIN);
        assert_int_equal(outcome.ops, OPS - lost);
        assert_int_equal(outcome.lost[REC_LOSS_DAMAGED], lost);
        assert_int_equal(outcome.stats.damages, 1);
        assert_int_equal(outcome.stats.first_damage, layout.offset[i]);
        assert_true(outcome.stats.closed);
        assert_string_not_equal(outcome.stats.first_problem, "");
        free(bad.data);
    }
    free(bytes.data);
}

static void test_random_damage(void **state)
{
    struct bytes bytes = small_trace(*state, OPS);
    uint64_t random = 1;
    for (unsigned round = 0; round < 1500; round++) {
        struct bytes bad = slice(bytes, bytes.size);
        for (unsigned flips = 1 + round % 16; flips; flips--) {
            random += UINT64_C(0x9e3779b97f4a7c15);
            uint64_t r = rec_mix64(random);
            bad.data[r % bad.size] ^= (uint8_t)(1u << (r >> 32 & 7));
        }
        struct outcome outcome = read_bytes(bad, SYNTH_TRAIN);
        if (outcome.code == REC_OK) {
            assert_in_range(outcome.ops, 0, OPS);
            assert_true(outcome.stats.damages || outcome.stats.torn_tail);
        }
        free(bad.data);
    }
    free(bytes.data);
}

/* Damage behind the checksums: what a hostile writer could make. */
static void test_random_contents(void **state)
{
    struct bytes bytes = small_trace(*state, OPS);
    struct layout layout = layout_of(bytes);
    static struct rec_crc crc;
    rec_crc_init(&crc);
    uint64_t random = 7;
    for (unsigned round = 0; round < 1500; round++) {
        struct bytes bad = slice(bytes, bytes.size);
        for (unsigned flips = 1 + round % 4; flips; flips--) {
            random += UINT64_C(0x9e3779b97f4a7c15);
            uint64_t r = rec_mix64(random);
            size_t piece = r % layout.count, start = layout.offset[piece], end = layout.offset[piece + 1];
            size_t at = start + 8 + (r >> 20) % (end - start - 8);
            bad.data[at] ^= (uint8_t)(1u << (r >> 16 & 7));
            rec_put32(bad.data + start + 4, rec_crc_add(&crc, 0, bad.data + start + 8, end - start - 8));
        }
        struct outcome outcome = read_bytes(bad, SYNTH_TRAIN);
        assert_int_equal(outcome.code, REC_OK);
        free(bad.data);
    }
    free(bytes.data);
}

static void test_garbage_between_segments(void **state)
{
    struct bytes bytes = small_trace(*state, OPS);
    struct layout layout = layout_of(bytes);
    static const char garbage[] = "FRSG looks like one, FRPC FRIX but is none \0\0\xff";
    uint64_t places = 0;
    for (size_t i = 0; i < layout.count; i++) {
        if (!layout.segment[i])
            continue;
        size_t at = layout.offset[i];
        struct bytes bad = {malloc(bytes.size + sizeof(garbage)), bytes.size + sizeof(garbage)};
        assert_non_null(bad.data);
        memcpy(bad.data, bytes.data, at);
        memcpy(bad.data + at, garbage, sizeof(garbage));
        memcpy(bad.data + at + sizeof(garbage), bytes.data + at, bytes.size - at);
        struct outcome outcome = read_bytes(bad, SYNTH_TRAIN);
        assert_int_equal(outcome.ops, OPS);
        assert_true(outcome.ops_are_prefix);
        assert_int_equal(outcome.stats.damaged_bytes, sizeof(garbage));
        assert_int_equal(outcome.stats.first_damage, at);
        assert_int_equal(outcome.events[REC_EV_LOSS], 1);
        free(bad.data);
        places++;
    }
    assert_in_range(places, 5, 500);
    free(bytes.data);
}

static void test_duplicate_segment(void **state)
{
    struct bytes bytes = small_trace(*state, OPS);
    struct layout layout = layout_of(bytes);
    size_t from = layout.offset[0], to = 0;
    for (size_t i = 1; i < layout.count && !to; i++)
        if (layout.segment[i])
            to = layout.offset[i];
    struct bytes twice = {malloc(bytes.size + (to - from)), bytes.size + (to - from)};
    assert_non_null(twice.data);
    memcpy(twice.data, bytes.data, to);
    memcpy(twice.data + to, bytes.data + from, bytes.size - from);
    struct outcome outcome = read_bytes(twice, SYNTH_TRAIN);
    assert_int_equal(outcome.ops, OPS);
    assert_true(outcome.ops_are_prefix);
    assert_int_equal(outcome.stats.damaged_bytes, to - from);
    free(twice.data);
    free(bytes.data);
}

static void test_missing_piece(void **state)
{
    struct bytes bytes = small_trace(*state, OPS);
    struct layout layout = layout_of(bytes);
    /* The second piece of the first segment is cut out; the third cannot be decoded without it. */
    assert_false(layout.segment[1]);
    assert_false(layout.segment[2]);
    size_t gap = layout.offset[2] - layout.offset[1];
    struct bytes bad = slice(bytes, bytes.size - gap);
    memcpy(bad.data + layout.offset[1], bytes.data + layout.offset[2], bytes.size - layout.offset[2]);
    struct outcome outcome = read_bytes(bad, SYNTH_TRAIN);
    uint64_t kept = layout.ops[0];
    size_t i = 1;
    while (!layout.segment[i])
        i++;
    for (; i < layout.count; i++)
        kept += layout.ops[i];
    assert_int_equal(outcome.ops, kept);
    assert_int_equal(outcome.stats.damages, 1);
    free(bad.data);
    free(bytes.data);
}

static void test_damaged_header(void **state)
{
    struct bytes bytes = small_trace(*state, OPS);
    for (size_t i = 0; i < 120; i++) {
        struct bytes bad = slice(bytes, bytes.size);
        bad.data[i < 60 ? i : 0] ^= 0x40;
        if (i >= 60)
            memset(bad.data, 0, i); /* as a lost first block */
        struct outcome outcome = read_bytes(bad, SYNTH_TRAIN);
        assert_int_equal(outcome.code, REC_OK);
        assert_true(outcome.stats.damages >= 1);
        assert_in_range(outcome.ops, OPS / 2, OPS);
        free(bad.data);
    }
    struct bytes bad = slice(bytes, bytes.size);
    memset(bad.data, 0xff, REC_WIRE_HEADER_BYTES);
    struct rec_reader *reader;
    assert_int_equal(rec_reader_open_memory(bad.data, bad.size, "m", &reader, NULL), REC_OK);
    assert_string_equal(rec_reader_meta(reader), "{\"host\":\"testhost\",\"pid\":1}");
    assert_int_equal(rec_reader_tick_ns(reader), 64);
    rec_reader_close(reader);
    free(bad.data);
    free(bytes.data);
}

static void test_not_a_trace(void **state)
{
    (void)state;
    struct rec_reader *reader;
    struct rec_error err;
    static const char text[] = "#!/bin/sh\necho FRSG this is a script, not a trace\n";
    assert_int_equal(rec_reader_open_memory("", 0, "empty", &reader, &err), REC_ERR_FORMAT);
    assert_null(reader);
    assert_string_equal(err.text, "empty file");
    assert_string_equal(err.path, "empty");
    assert_int_equal(rec_reader_open_memory(text, sizeof(text), "script", &reader, &err), REC_ERR_FORMAT);
    assert_string_equal(err.text, "not a trace");
    assert_int_equal(rec_reader_open("/tmp", &reader, &err), REC_ERR_FORMAT);
    assert_string_equal(err.text, "not a regular file");
    assert_int_equal(rec_reader_open("/tmp/no such file", &reader, &err), REC_ERR_IO);
    assert_string_equal(err.path, "/tmp/no such file");
}

static void test_newer_version(void **state)
{
    struct bytes bytes = small_trace(*state, OPS);
    static struct rec_crc crc;
    struct rec_reader *reader;
    struct rec_error err;
    rec_crc_init(&crc);
    rec_put16(bytes.data + 8, REC_WIRE_MAJOR + 1);
    rec_put32(bytes.data + 60, rec_crc_add(&crc, 0, bytes.data, 60));
    assert_int_equal(rec_reader_open_memory(bytes.data, bytes.size, "newer", &reader, &err), REC_ERR_VERSION);
    assert_null(reader);
    assert_non_null(strstr(err.text, "newer"));
    /* A newer minor version is read. */
    rec_put16(bytes.data + 8, REC_WIRE_MAJOR);
    rec_put16(bytes.data + 10, REC_WIRE_MINOR + 1);
    rec_put32(bytes.data + 60, rec_crc_add(&crc, 0, bytes.data, 60));
    assert_int_equal(read_bytes(bytes, SYNTH_TRAIN).ops, OPS);
    free(bytes.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_undamaged, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_cut_anywhere, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_zero_filled_tail, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_one_bad_byte, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_random_damage, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_random_contents, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_garbage_between_segments, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_duplicate_segment, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_missing_piece, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_damaged_header, fixture_setup, fixture_teardown),
        cmocka_unit_test(test_not_a_trace),
        cmocka_unit_test_setup_teardown(test_newer_version, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
