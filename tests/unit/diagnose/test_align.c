#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "diag.h"

static enum diag_split align(const char *m, const char *x, size_t *shift)
{
    uint64_t a[64], b[64];
    for (size_t i = 0; m[i]; i++)
        a[i] = (uint64_t)m[i];
    for (size_t i = 0; x[i]; i++)
        b[i] = (uint64_t)x[i];
    return diag_align(a, strlen(m), b, strlen(x), shift);
}

static void finds_single_edits(void **state)
{
    (void)state;
    static const struct {
        const char *m, *x;
        enum diag_split split;
        size_t shift;
    } cases[] = {
        {"a", "x", DIAG_SPLIT_OTHER, 0},
        {"abcabc", "xbcabc", DIAG_SPLIT_OTHER, 0},
        {"abcdef", "bcdef", DIAG_SPLIT_SKIP, 1},
        {"abcdef", "cdef", DIAG_SPLIT_SKIP, 2},
        {"abcdef", "xabcdef", DIAG_SPLIT_EXTRA, 1},
        {"abcdef", "xyabcdef", DIAG_SPLIT_EXTRA, 2},
        {"abcdef", "bacdef", DIAG_SPLIT_SWAP, 0},
        {"ab", "ba", DIAG_SPLIT_SWAP, 0},
        {"ab", "b", DIAG_SPLIT_SKIP, 1},
        {"aaaa", "xaaa", DIAG_SPLIT_OTHER, 0},
        {"baaa", "aaaa", DIAG_SPLIT_OTHER, 0},
        {"baaa", "aaab", DIAG_SPLIT_SKIP, 1},
        {"", "x", DIAG_SPLIT_OTHER, 0},
        {"a", "", DIAG_SPLIT_OTHER, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t shift;
        enum diag_split split = align(cases[i].m, cases[i].x, &shift);
        if (split != cases[i].split || shift != cases[i].shift)
            fail_msg("%s / %s: %d by %zu", cases[i].m, cases[i].x, (int)split, shift);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_single_edits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
