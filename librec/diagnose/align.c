#include "diag.h"

/* Shifts beyond this are no shift any more. */
#define SHIFT_MAX 8

static size_t run(const uint64_t *a, size_t na, const uint64_t *b, size_t nb)
{
    size_t n = 0;
    while (n < na && n < nb && a[n] == b[n])
        n++;
    return n;
}

enum diag_split diag_align(const uint64_t *m, size_t nm, const uint64_t *x, size_t nx, size_t *shift)
{
    *shift = 0;
    enum diag_split best = DIAG_SPLIT_OTHER;
    size_t agreed = nm && nx ? run(m + 1, nm - 1, x + 1, nx - 1) : 0;
    if (nm > 1 && nx > 1 && x[0] == m[1] && x[1] == m[0]) {
        size_t n = 2 + run(m + 2, nm - 2, x + 2, nx - 2);
        if (n > agreed) {
            agreed = n;
            best = DIAG_SPLIT_SWAP;
        }
    }
    for (size_t by = 1; by <= SHIFT_MAX; by++) {
        size_t skipped = by < nm ? run(m + by, nm - by, x, nx) : 0;
        size_t extra = by < nx ? run(m, nm, x + by, nx - by) : 0;
        /* A longer shift must explain more than it costs. */
        if (skipped > agreed + (by - 1)) {
            agreed = skipped;
            best = DIAG_SPLIT_SKIP;
            *shift = by;
        }
        if (extra > agreed + (by - 1)) {
            agreed = extra;
            best = DIAG_SPLIT_EXTRA;
            *shift = by;
        }
    }
    return best;
}
