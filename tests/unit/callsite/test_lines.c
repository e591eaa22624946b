/* Line tables of each format, by hand; real ones are compared in check_python.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>

#include "lines.h"

static uint32_t line(enum py_lines format, const void *bytes, size_t length, int64_t offset)
{
    struct line_table table = {.address = (uintptr_t)bytes, .left = length};
    uint32_t found = line_of(format, &table, offset, 10);
    assert_false(table.unreadable);
    return found;
}

static void lnotab(void **unused)
{
    (void)unused;
    /* Offsets 0-5 line 10, 6-13 line 11, 14-… line 9; then 300 bytes and 200 lines in steps. */
    static const uint8_t bytes[] = {6, 1, 8, 0xfe, 255, 0, 45, 127, 0, 73};
    assert_int_equal(line(PY_LINES_LNOTAB, bytes, sizeof(bytes), -2), 10);
    assert_int_equal(line(PY_LINES_LNOTAB, bytes, sizeof(bytes), 0), 10);
    assert_int_equal(line(PY_LINES_LNOTAB, bytes, sizeof(bytes), 5), 10);
    assert_int_equal(line(PY_LINES_LNOTAB, bytes, sizeof(bytes), 6), 11);
    assert_int_equal(line(PY_LINES_LNOTAB, bytes, sizeof(bytes), 14), 9);
    assert_int_equal(line(PY_LINES_LNOTAB, bytes, sizeof(bytes), 313), 9);
    assert_int_equal(line(PY_LINES_LNOTAB, bytes, sizeof(bytes), 314), 209);
    assert_int_equal(line(PY_LINES_LNOTAB, bytes, 0, 4), 10);
    assert_int_equal(line(PY_LINES_LNOTAB, bytes, 3, 6), 11); /* half a pair at the end */
}

static void ranges(void **unused)
{
    (void)unused;
    /* 0-1 line 11, 2-3 none, 4-5 line 9; 0 bytes, +100; 6-9 line 119. */
    static const uint8_t bytes[] = {2, 1, 2, 0x80, 2, 0xfe, 0, 100, 4, 10};
    assert_int_equal(line(PY_LINES_RANGES, bytes, sizeof(bytes), -2), 10);
    assert_int_equal(line(PY_LINES_RANGES, bytes, sizeof(bytes), 0), 11);
    assert_int_equal(line(PY_LINES_RANGES, bytes, sizeof(bytes), 2), 0);
    assert_int_equal(line(PY_LINES_RANGES, bytes, sizeof(bytes), 4), 9);
    assert_int_equal(line(PY_LINES_RANGES, bytes, sizeof(bytes), 8), 119);
    assert_int_equal(line(PY_LINES_RANGES, bytes, sizeof(bytes), 10), 0);
}

static void locations(void **unused)
{
    (void)unused;
    static const uint8_t bytes[] = {
        0x80 | 0 << 3 | 1,  0x15,                      /* short form, 2 units: line 10 */
        0x80 | 12 << 3 | 0, 3,    4,                   /* one-line form, +2, 1 unit: line 12 */
        0x80 | 15 << 3 | 7,                            /* none, 8 units */
        0x80 | 13 << 3 | 0, 0x4d, 0x01,                /* no columns, 1 unit: signed varint 77 = -38 */
        0x80 | 14 << 3 | 0, 0x50, 0x4e, 0x03, 0, 1, 2, /* long form, 1 unit: 13200 = +6600 */
    };
    assert_int_equal(line(PY_LINES_LOCATIONS, bytes, sizeof(bytes), -2), 10);
    assert_int_equal(line(PY_LINES_LOCATIONS, bytes, sizeof(bytes), 0), 10);
    assert_int_equal(line(PY_LINES_LOCATIONS, bytes, sizeof(bytes), 2), 10);
    assert_int_equal(line(PY_LINES_LOCATIONS, bytes, sizeof(bytes), 4), 12);
    assert_int_equal(line(PY_LINES_LOCATIONS, bytes, sizeof(bytes), 6), 0);
    assert_int_equal(line(PY_LINES_LOCATIONS, bytes, sizeof(bytes), 20), 0);
    assert_int_equal(line(PY_LINES_LOCATIONS, bytes, 12, 22), 0); /* line 12 - 38 is none */
    assert_int_equal(line(PY_LINES_LOCATIONS, bytes, sizeof(bytes), 24), 12 - 38 + 6600);
    assert_int_equal(line(PY_LINES_LOCATIONS, bytes, sizeof(bytes), 26), 0);
    assert_int_equal(line(PY_LINES_LOCATIONS, bytes, 2, 4), 0);
}

/* Any bytes end, within any number of refills of the buffer. */
static void any_bytes(void **unused)
{
    (void)unused;
    static uint8_t bytes[5000];
    uint64_t random = 1;
    for (unsigned round = 0; round < 200; round++) {
        for (size_t i = 0; i < sizeof(bytes); i++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            bytes[i] = (uint8_t)(random >> 56);
        }
        for (int format = PY_LINES_LNOTAB; format <= PY_LINES_LOCATIONS; format++)
            assert_true(line((enum py_lines)format, bytes, sizeof(bytes) - round, INT32_MAX) <= INT32_MAX);
    }
    static uint8_t same[3000];
    memset(same, 0x80 | 10 << 3 | 0, sizeof(same)); /* entries without columns bytes, one unit each */
    same[2999] = 0x80 | 11 << 3 | 0;
    assert_int_equal(line(PY_LINES_LOCATIONS, same, sizeof(same), 2 * 2998), 10);
    assert_int_equal(line(PY_LINES_LOCATIONS, same, sizeof(same), 2 * 2999), 11);
}

static void unreadable(void **unused)
{
    (void)unused;
    char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    for (int format = PY_LINES_LNOTAB; format <= PY_LINES_LOCATIONS; format++) {
        struct line_table table = {.address = (uintptr_t)page, .left = 100};
        assert_int_equal(line_of((enum py_lines)format, &table, 4, 10), 0);
        assert_true(table.unreadable);
    }
    munmap(page, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lnotab),    cmocka_unit_test(ranges),     cmocka_unit_test(locations),
        cmocka_unit_test(any_bytes), cmocka_unit_test(unreadable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
