/* Every allocation fails once: an error or a smaller result, never a crash (or a leak, with a sanitizer). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "maker.h"
#include "rec/job.h"

/* Linked with --wrap: librec's calls come here. Loading has worker threads, so the count is atomic. */
static _Atomic long countdown = -1; /* allocations until the one that fails; < 0: none fails */

static bool fails(void)
{
    return atomic_load(&countdown) >= 0 && atomic_fetch_sub(&countdown, 1) == 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_reallocarray(void *old, size_t count, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
    return fails() ? NULL : __real_reallocarray(old, count, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

static void make_job(const char *dir)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct maker maker;
        maker_open(&maker, dir, rank ? "b" : "a", maker_meta(0x10 + rank, -1, 2, "FREC_JOB_ID", "x", T0), 0);
        maker_world(&maker, 0x100, 2, rank);
        maker_comm(&maker, 1, 0x200, 2, rank, 0x100);
        struct rec_redop_def redop = {.redop = REC_REDOP_USER + 1, .hash = 5};
        rec_writer_redop(maker.writer, &redop);
        maker_ops(&maker, 0, 0, 2100);
        struct rec_op op = maker_op(maker.ordinal++, 2100, 0, maker.now);
        op.group = 1;
        rec_writer_ops(maker.writer, &op, 1);
        maker_end(&maker, REC_END_EXIT, 0, 0);
        maker_close(&maker);
    }
    char path[192];
    struct maker_region region;
    snprintf(path, sizeof(path), "%s/frec-%u", dir, (unsigned)geteuid());
    assert_int_equal(mkdir(path, 0700), 0);
    strcat(path, "/1.live");
    maker_region(&region, path, 0x10, 1, 1, dir, "{}");
    maker_region_comm(&region, 0, 0, 0x100, 2, 0, 2105);
    maker_region_thread(&region, 0, 1);
    maker_region_ops(&region, 0, 2101, 3);
    maker_region_open(&region, 0, 2104);
    maker_region_close(&region);
}

/* Opens the job and scans all of it, as far as memory goes. */
static enum rec_code use_job(const char *dir, uint64_t *ops)
{
    const char *dirs[] = {dir};
    struct rec_job_options options = {.live_dir = dir};
    struct rec_job *job;
    struct rec_error err = {0};
    enum rec_code code = rec_job_open(dirs, 1, &options, &job, &err);
    if (code != REC_OK) {
        rec_job_close(job);
        return code;
    }
    size_t count;
    struct rec_process *const *processes = rec_job_processes(job, &count);
    for (size_t i = 0; i < count && code == REC_OK; i++) {
        struct rec_scan *scan;
        struct rec_event event;
        code = rec_scan_open(job, processes[i], NULL, &scan, &err);
        if (code != REC_OK)
            break;
        while ((code = rec_scan_next(scan, &event, &err)) == REC_OK)
            *ops += event.type == REC_EV_OP;
        rec_scan_close(scan);
        code = code == REC_END ? REC_OK : code;
    }
    rec_job_close(job);
    return code;
}

static void test_every_allocation(void **state)
{
    (void)state;
    char dir[64];
    uint64_t ops = 0;
    maker_dir(dir, sizeof(dir));
    make_job(dir);
    assert_int_equal(use_job(dir, &ops), REC_OK);
    assert_int_equal(ops, 2 * 2101 + 3);
    size_t errors = 0;
    long n = 0;
    for (bool failed = true; failed; n++) {
        ops = 0;
        atomic_store(&countdown, n);
        enum rec_code code = use_job(dir, &ops);
        failed = atomic_load(&countdown) < 0;
        atomic_store(&countdown, -1);
        assert_true(code == REC_OK || code == REC_ERR_NOMEM);
        if (code == REC_OK)
            assert_int_equal(ops, 2 * 2101 + 3);
        errors += code == REC_ERR_NOMEM;
        assert_true(n < 10000);
    }
    assert_true(n > 50);
    assert_true(errors > 40);
    maker_clean(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
