/* What the tools share: untrusted text made harmless, lists of ranks, numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fr-common.h"

static void assert_clean(const char *text, const char *expected)
{
    char buffer[256];
    assert_string_equal(fr_clean(buffer, sizeof(buffer), text), expected);
}

static void test_clean(void **state)
{
    (void)state;
    assert_clean("plain text, ümlaut, 火", "plain text, ümlaut, 火");
    assert_clean("\x1b[31mred\r\n\t\x7f", "\\x1b[31mred\\x0d\\x0a\\x09\\x7f");
    assert_clean("\xc2\x9b"
                 "31m",
                 "\\u{009b}31m"); /* the eight-bit form of ESC [ */
    assert_clean("a\xe2\x80\xae"
                 "b",
                 "a\\u{202e}b"); /* right-to-left override */
    assert_clean("\xff\xc3(\xe2\x82", "\\xff\\xc3(\\xe2\\x82");
    assert_clean("\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80",
                 "\\xc0\\xaf\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80"); /* overlong, surrogate, too large */
    assert_clean("", "");
}

static void test_clean_is_bounded(void **state)
{
    (void)state;
    static const char text[] = "ab\x1b\xe7\x81\xab";
    for (size_t size = 1; size < 16; size++) {
        char *buffer = malloc(size); /* exactly, for the sanitizer */
        assert_non_null(buffer);
        fr_clean(buffer, size, text);
        assert_true(strlen(buffer) < size);
        assert_memory_equal(buffer, "ab\\x1b\xe7\x81\xab", strlen(buffer));
        assert_true(strlen(buffer) <= 2 || strlen(buffer) == 6 || strlen(buffer) == 9); /* nothing is cut */
        free(buffer);
    }
}

static void test_fold_ranks(void **state)
{
    (void)state;
    char text[8];
    static const int32_t ranks[] = {0, 1, 2, 4, 6, 7};
    assert_true(fr_fold_ranks(text, sizeof text, ranks, 4));
    assert_string_equal(text, "0-2,4");
    assert_false(fr_fold_ranks(text, sizeof text, ranks, 6));
    assert_string_equal(text, "0-2,…");
    int32_t mixed[] = {6, 0, 7, 2, 1};
    fr_fold_unsorted(text, sizeof text, mixed, 5);
    assert_string_equal(text, "0-2,6-7");
}

/* Wherever the last comma falls, and never with part of a number, which would be another rank's. */
static void test_fold_ranks_is_bounded(void **state)
{
    (void)state;
    int32_t ranks[100];
    char whole[512];
    for (int32_t i = 0; i < 100; i++)
        ranks[i] = 7 * i;
    assert_true(fr_fold_ranks(whole, sizeof whole, ranks, 100));
    for (size_t size = 4; size < strlen(whole); size++) {
        char *text = malloc(size); /* exactly, for the sanitizer */
        assert_non_null(text);
        assert_false(fr_fold_ranks(text, size, ranks, 100));
        size_t kept = strlen(text) - strlen("…");
        assert_true(strlen(text) < size);
        assert_string_equal(text + kept, "…");
        assert_memory_equal(text, whole, kept);
        assert_true(kept == 0 || text[kept - 1] == ',');
        free(text);
    }
}

static void test_ranges(void **state)
{
    (void)state;
    struct fr_ranges ranges = {0};
    assert_true(fr_ranges_parse("0-2,7", &ranges));
    assert_true(fr_ranges_parse("100", &ranges));
    static const uint32_t in[] = {0, 1, 2, 7, 100}, out[] = {3, 6, 8, 99, 101, UINT32_MAX};
    for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++)
        assert_true(fr_ranges_has(&ranges, in[i]));
    for (size_t i = 0; i < sizeof(out) / sizeof(out[0]); i++)
        assert_false(fr_ranges_has(&ranges, out[i]));
    static const char *const bad[] = {"",  ",",  "1,",          "-1",   "2-1", "1-",
                                      "a", "1 ", "99999999999", "1--2", "0x1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(fr_ranges_parse(bad[i], &ranges));
    fr_ranges_free(&ranges);
    assert_false(fr_ranges_has(&ranges, 0));
}

static void test_numbers(void **state)
{
    (void)state;
    uint64_t value;
    assert_true(fr_parse_u64("18446744073709551615", UINT64_MAX, &value) && value == UINT64_MAX);
    assert_true(fr_parse_u64("30", 30, &value) && value == 30);
    static const char *const bad[] = {"", "31", "-1", "+1", " 1", "1 ", "1.5", "18446744073709551616"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(fr_parse_u64(bad[i], i == 7 ? UINT64_MAX : 30, &value));
}

static void test_live_dir(void **state)
{
    (void)state;
    unsetenv("FREC_LIVE_DIR");
    assert_string_equal(fr_live_dir(NULL), "/dev/shm");
    setenv("FREC_LIVE_DIR", "/x", 1);
    assert_string_equal(fr_live_dir(NULL), "/x");
    assert_string_equal(fr_live_dir("/y"), "/y");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean),      cmocka_unit_test(test_clean_is_bounded),
        cmocka_unit_test(test_fold_ranks), cmocka_unit_test(test_fold_ranks_is_bounded),
        cmocka_unit_test(test_ranges),     cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_live_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
