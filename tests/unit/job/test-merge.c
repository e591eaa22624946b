/* Merging files and live regions: every call once, in order, and what is missing is known. */
#include <pthread.h>
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

static char dir[64];

static int setup(void **state)
{
    (void)state;
    maker_dir(dir, sizeof(dir));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    maker_clean(dir);
    return 0;
}

static struct rec_job *open_job(const char *live_dir)
{
    const char *dirs[] = {dir};
    struct rec_job_options options = {.live_dir = live_dir};
    struct rec_job *job;
    struct rec_error err = {0};
    if (rec_job_open(dirs, 1, &options, &job, &err) != REC_OK)
        fail_msg("%s: %s", err.path, err.text);
    return job;
}

static const struct rec_process *only_process(const struct rec_job *job)
{
    size_t count;
    struct rec_process *const *processes = rec_job_processes(job, &count);
    assert_int_equal(count, 1);
    return processes[0];
}

struct seen {
    uint64_t ops, late, next;
    uint64_t jumps; /* ordinals that were passed over */
    uint32_t open;
};

/* Scans a process of one thread and checks that ordinals rise. */
static struct seen scan(const struct rec_job *job, const struct rec_process *process,
                        const struct rec_scan_filter *filter)
{
    struct seen seen = {0};
    struct rec_scan *s;
    struct rec_event event;
    struct rec_error err = {0};
    assert_int_equal(rec_scan_open(job, process, filter, &s, &err), REC_OK);
    while (rec_scan_next(s, &event, &err) == REC_OK) {
        if (event.type == REC_EV_OPEN)
            seen.open = event.u.open.count;
        if (event.type != REC_EV_OP)
            continue;
        assert_true(event.u.op.ordinal >= seen.next);
        seen.jumps += event.u.op.ordinal - seen.next;
        seen.next = event.u.op.ordinal + 1;
        seen.ops++;
        seen.late += (event.u.op.flags & REC_OF_LATE) != 0;
    }
    rec_scan_close(s);
    return seen;
}

static void make_region_dir(char *path, size_t size)
{
    snprintf(path, size, "%s/frec-%u", dir, (unsigned)geteuid());
    assert_int_equal(mkdir(path, 0700), 0);
}

static void test_file_and_region(void **state)
{
    (void)state;
    struct maker maker;
    maker_open(&maker, dir, "h1-1", maker_meta(0xa1, 0, 2, NULL, NULL, T0), 0);
    maker_world(&maker, 0x77, 2, 0);
    maker_ops(&maker, 0, 0, 10);
    maker_close(&maker);

    char live_dir[128], path[192];
    struct maker_region region;
    make_region_dir(live_dir, sizeof(live_dir));
    snprintf(path, sizeof(path), "%s/1.live", live_dir);
    maker_region(&region, path, 0xa1, 1, 1, dir, maker_meta(0xa1, 0, 2, NULL, NULL, T0));
    maker_region_comm(&region, 0, 0, 0x77, 2, 0, 16);
    maker_region_thread(&region, 0, 1);
    maker_region_ops(&region, 0, 5, 10); /* 5…14: five of them are in the file */
    maker_region_open(&region, 0, 15);

    struct rec_job *job = open_job(dir);
    const struct rec_process *process = only_process(job);
    assert_true(process->has_file);
    assert_true(process->has_live);
    assert_string_equal(process->live_path, path);
    assert_int_equal(process->ops, 15);
    assert_int_equal(process->unaccounted, 0);
    assert_int_equal(process->dropped_ops, 0);
    assert_int_equal(process->nopen, 1);
    assert_int_equal(process->open[0].ordinal, 15);
    assert_int_equal(process->open[0].state, REC_STATE_IN_CALL);
    assert_int_equal(process->fate, REC_FATE_VANISHED); /* pid 1 began at another time */
    assert_int_equal(process->members[0]->next_seq, 16);
    assert_int_equal(process->members[0]->finished, 15);
    assert_int_equal(process->members[0]->last_op.ordinal, 15);
    struct seen seen = scan(job, process, NULL);
    assert_int_equal(seen.ops, 15);
    assert_int_equal(seen.late, 5);
    assert_int_equal(seen.jumps, 0);
    assert_int_equal(seen.open, 1);
    rec_job_close(job);

    /* The region of another run of the recorder is not this process's. */
    region.live.header->proc_uid = 0xbad;
    snprintf(region.live.header->frec_dir, REC_LIVE_PATH_BYTES, "/elsewhere");
    job = open_job(dir);
    assert_int_equal(only_process(job)->ops, 10);
    assert_false(only_process(job)->has_live);
    rec_job_close(job);
    maker_region_close(&region);
}

/* A process rolls over into a new part after the job was opened: the scan shows the same picture. */
static void test_region_of_a_removed_trace(void **state)
{
    (void)state;
    /* The directory was emptied and used again; the region of the killed run before is still there. */
    struct maker maker;
    maker_open(&maker, dir, "h1-2", maker_meta(0xb2, 0, 1, NULL, NULL, T0 + 100 * UINT64_C(1000000000)), 0);
    maker.now = T0 + 100 * UINT64_C(1000000000);
    maker_world(&maker, 0x78, 1, 0);
    maker_ops(&maker, 0, 0, 10);
    maker_close(&maker);
    char live_dir[128], path[192];
    struct maker_region region;
    make_region_dir(live_dir, sizeof(live_dir));
    snprintf(path, sizeof(path), "%s/1.live", live_dir);
    maker_region(&region, path, 0xa1, 1, 1, dir, maker_meta(0xa1, 0, 1, NULL, NULL, T0));
    maker_region_thread(&region, 0, 1);
    maker_region_comm(&region, 0, 0, 0x77, 1, 0, 5);
    maker_region_ops(&region, 0, 0, 5);
    snprintf(region.live.header->frec_name, sizeof(region.live.header->frec_name), "h1-1.frec");

    struct rec_job *job = open_job(dir);
    assert_int_equal(only_process(job)->proc_uid, 0xb2);
    size_t count;
    const char *const *warnings = rec_job_warnings(job, &count);
    assert_int_equal(count, 1);
    assert_non_null(strstr(warnings[0], "its traces were removed"));
    rec_job_close(job);

    /* A process that never could make a file is no leftover: then there are two jobs. */
    region.live.header->frec_name[0] = '\0';
    const char *dirs[] = {dir};
    struct rec_job_options options = {.live_dir = dir};
    assert_int_equal(rec_job_open(dirs, 1, &options, &job, NULL), REC_ERR_MIXED);
    rec_job_close(job);

    /* Alone it is all there is, file or not. */
    snprintf(region.live.header->frec_name, sizeof(region.live.header->frec_name), "h1-1.frec");
    snprintf(path, sizeof(path), "%s/h1-2.frec", dir);
    assert_int_equal(unlink(path), 0);
    job = open_job(dir);
    assert_int_equal(only_process(job)->proc_uid, 0xa1);
    rec_job_close(job);
    maker_region_close(&region);
}

static void test_part_that_came_later(void **state)
{
    (void)state;
    struct maker maker;
    maker_open(&maker, dir, "h1-1", maker_meta(0xa1, 0, 1, NULL, NULL, T0), 0);
    maker_world(&maker, 0x77, 1, 0);
    maker_ops(&maker, 0, 0, 10);
    maker_close(&maker);
    char live_dir[128], path[192];
    struct maker_region region;
    make_region_dir(live_dir, sizeof(live_dir));
    snprintf(path, sizeof(path), "%s/1.live", live_dir);
    maker_region(&region, path, 0xa1, 1, 1, dir, maker_meta(0xa1, 0, 1, NULL, NULL, T0));
    maker_region_comm(&region, 0, 0, 0x77, 1, 0, 20);
    maker_region_thread(&region, 0, 1);
    maker_region_ops(&region, 0, 10, 10);
    struct rec_job *job = open_job(dir);
    const struct rec_process *process = only_process(job);
    assert_int_equal(process->ops, 20);

    for (int part = 1; part <= 3; part += 2) { /* numbers may have holes */
        char stem[16];
        snprintf(stem, sizeof(stem), "h1-1.%d", part);
        maker_open(&maker, dir, stem, maker_meta(0xa1, 0, 1, NULL, NULL, T0), 0);
        maker.ordinal = part == 1 ? 10 : 16;
        maker_world(&maker, 0x77, 1, 0);
        maker_ops(&maker, 0, maker.ordinal, part == 1 ? 6 : 50);
        maker_close(&maker);
    }
    atomic_store(&region.live.chunks[0].owner, 0); /* drained, and given back */
    struct seen all = scan(job, process, NULL);
    assert_int_equal(all.ops, 20); /* not what came after */
    assert_int_equal(all.jumps, 0);
    maker_region_close(&region); /* the process has ended */
    all = scan(job, process, NULL);
    assert_int_equal(all.ops, 20);
    rec_job_close(job);
}

static void test_region_alone(void **state)
{
    (void)state;
    char live_dir[128], path[192];
    struct maker_region region;
    make_region_dir(live_dir, sizeof(live_dir));
    snprintf(path, sizeof(path), "%s/2.live", live_dir);
    maker_region(&region, path, 0xa2, getpid(), maker_start_ticks(getpid()), dir,
                 maker_meta(0xa2, 3, 8, NULL, NULL, T0));
    maker_region_comm(&region, 0, 0, 0x77, 8, 3, 300);
    maker_region_thread(&region, 0, 1);
    maker_region_ops(&region, 0, 0, 128);
    maker_region_ops(&region, 0, 128, 128);
    maker_region_ops(&region, 0, 266, 34); /* ten ordinals before it are nowhere */
    struct rec_job *job = open_job(dir);
    const struct rec_process *process = only_process(job);
    assert_false(process->has_file);
    assert_int_equal(process->fate, REC_FATE_ALIVE);
    assert_int_equal(process->rank, 3);
    assert_int_equal(process->ops, 290);
    assert_int_equal(process->unaccounted, 10);
    rec_job_close(job);

    /* The recorder's own count of calls without a slot explains them. */
    atomic_store(&region.live.threads[0].lost, 10);
    job = open_job(dir);
    assert_int_equal(only_process(job)->unaccounted, 0);
    assert_int_equal(only_process(job)->dropped_ops, 10);
    rec_job_close(job);

    /* Damage to the region is survived: it is left out. */
    region.live.header->chunk_offset = 1 << 30;
    const char *dirs[] = {dir};
    struct rec_job_options options = {.live_dir = dir};
    struct rec_error err = {0};
    assert_int_equal(rec_job_open(dirs, 1, &options, &job, &err), REC_ERR_EMPTY);
    maker_region_close(&region);
}

static void test_gaps(void **state)
{
    (void)state;
    struct maker maker;
    maker_open(&maker, dir, "h1-1", maker_meta(0xa1, 0, 1, NULL, NULL, T0), 0);
    maker_world(&maker, 0x77, 1, 0);
    maker_ops(&maker, 0, 0, 10);
    maker.ordinal += 4; /* no loss record speaks of these */
    maker_ops(&maker, 0, 14, 6);
    struct rec_loss loss = {.thread = 1, .first_ordinal = 20, .count = 7, .why = REC_LOSS_RING_FULL};
    rec_writer_loss(maker.writer, maker.now, &loss);
    maker.ordinal += 7;
    maker_ops(&maker, 0, 27, 3);
    maker_close(&maker);
    struct rec_job *job = open_job(NULL);
    const struct rec_process *process = only_process(job);
    assert_int_equal(process->ops, 19);
    assert_int_equal(process->dropped_ops, 11);
    assert_int_equal(process->unaccounted, 4);
    assert_int_equal(process->members[0]->next_seq, 30);
    size_t warnings;
    const char *const *lines = rec_job_warnings(job, &warnings);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(lines[0], "h1-1.frec: 4 calls are missing"));
    rec_job_close(job);
}

static void test_duplicate_file(void **state)
{
    (void)state;
    struct maker maker;
    for (int i = 0; i < 2; i++) {
        maker_open(&maker, dir, i ? "copy" : "h1-1", maker_meta(0xa1, 0, 1, NULL, NULL, T0), 0);
        maker_world(&maker, 0x77, 1, 0);
        maker_ops(&maker, 0, 0, i ? 500 : 10);
        maker_close(&maker);
    }
    struct rec_job *job = open_job(NULL);
    assert_int_equal(only_process(job)->ops, 500); /* the longer one */
    rec_job_close(job);
    const char *twice[] = {dir, dir};
    struct rec_error err;
    assert_int_equal(rec_job_open(twice, 2, NULL, &job, &err), REC_OK);
    assert_int_equal(only_process(job)->ops, 500);
    rec_job_close(job);
}

static void test_parts(void **state)
{
    (void)state;
    struct maker maker;
    maker_open(&maker, dir, "h1-1", maker_meta(0xa1, 0, 1, NULL, NULL, T0), 1 << 20);
    maker_world(&maker, 0x77, 1, 0);
    struct rec_error err;
    for (int i = 0; i < 400; i++) {
        for (int k = 0; k < 2000; k++) { /* counts that do not compress */
            struct rec_op op = maker_op(maker.ordinal++, (uint64_t)i * 2000 + (uint64_t)k, 0, maker.now);
            op.count = rec_mix64(op.seq + 1) >> 20;
            maker.now += 1000 + (op.count & 1023) * 64;
            rec_writer_ops(maker.writer, &op, 1);
        }
        assert_int_equal(rec_writer_flush(maker.writer, &err), REC_OK);
    }
    maker_close(&maker);
    char first[96];
    snprintf(first, sizeof(first), "%s/h1-1.frec", dir);
    assert_int_not_equal(access(first, F_OK), 0); /* rotated away */
    struct rec_job *job = open_job(NULL);
    const struct rec_process *process = only_process(job);
    assert_true(process->rotated);
    assert_true(process->ops > 1000 && process->ops < 800000);
    assert_int_equal(process->ops + process->dropped_ops, 800000);
    assert_int_equal(process->unaccounted, 0);
    assert_int_equal(process->members[0]->first_seq, 800000 - process->ops);
    assert_int_equal(process->members[0]->next_seq, 800000);
    struct seen all = scan(job, process, NULL);
    assert_int_equal(all.ops, process->ops);
    assert_int_equal(all.jumps, process->dropped_ops);
    /* A window of time gives its ops and only those. */
    struct rec_scan_filter filter = {.from_ns = maker.now - 20 * MS, .to_ns = maker.now - 10 * MS};
    struct seen some = scan(job, process, &filter);
    assert_true(some.ops > 100 && some.ops < 2000);
    rec_job_close(job);
}

/* Calls inside a group are launched, or fail, with the end of their group. */
static void test_group_states(void **state)
{
    (void)state;
    struct maker maker;
    maker_open(&maker, dir, "h1-1", maker_meta(0xa1, 0, 1, NULL, NULL, T0), 0);
    maker_world(&maker, 0x77, 1, 0);
    static const uint8_t results[] = {REC_RESULT_SUCCESS, 5, REC_RESULT_NONE};
    for (uint32_t group = 1; group <= 3; group++) {
        for (int i = 0; i < 3; i++) {
            struct rec_op op = maker_op(maker.ordinal, maker.ordinal, 0, maker.now += MS);
            maker.ordinal++;
            op.group = group;
            op.state = REC_STATE_IN_CALL;
            rec_writer_ops(maker.writer, &op, 1);
        }
        struct rec_op end = maker_op(maker.ordinal++, 0, REC_ID_NONE, maker.now += MS);
        end.kind = REC_GROUP_END;
        end.group = group;
        end.result = results[group - 1];
        if (end.result != REC_RESULT_NONE) /* the last group never ends */
            rec_writer_ops(maker.writer, &end, 1);
    }
    maker_close(&maker);
    struct rec_job *job = open_job(NULL);
    struct rec_scan *s;
    struct rec_event event;
    struct rec_error err;
    static const uint8_t expected[] = {REC_STATE_ENQUEUED, REC_STATE_FAILED, REC_STATE_IN_CALL};
    size_t ops = 0;
    assert_int_equal(rec_scan_open(job, only_process(job), NULL, &s, &err), REC_OK);
    while (rec_scan_next(s, &event, &err) == REC_OK)
        if (event.type == REC_EV_OP && event.u.op.kind == REC_ALL_REDUCE) {
            assert_int_equal(event.u.op.state, expected[event.u.op.group - 1]);
            assert_true(event.offset > 0);
            ops++;
        }
    assert_int_equal(ops, 9);
    rec_scan_close(s);
    rec_job_close(job);
}

static void test_truncated(void **state)
{
    (void)state;
    struct maker maker;
    struct rec_error err;
    maker_open(&maker, dir, "h1-1", maker_meta(0xa1, 0, 1, NULL, NULL, T0), 0);
    maker_world(&maker, 0x77, 1, 0);
    for (int i = 0; i < 50; i++) {
        maker_ops(&maker, 0, (uint64_t)i * 10, 10);
        assert_int_equal(rec_writer_flush(maker.writer, &err), REC_OK);
    }
    maker_close(&maker);
    char path[96];
    struct stat info;
    snprintf(path, sizeof(path), "%s/h1-1.frec", dir);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size / 2), 0);
    struct rec_job *job = open_job(NULL);
    const struct rec_process *process = only_process(job);
    assert_true(process->ops > 0 && process->ops < 500);
    assert_true(process->torn_tail || process->damaged);
    struct rec_job_input input;
    rec_job_input(job, &input);
    assert_int_equal(input.salvaged, 1);
    rec_job_close(job);

    /* Nothing but the beginning of a header: the file gives nothing, and there is no other. */
    assert_int_equal(truncate(path, 10), 0);
    const char *dirs[] = {dir};
    assert_int_equal(rec_job_open(dirs, 1, NULL, &job, &err), REC_ERR_EMPTY);
    assert_null(job);
    const char *file[] = {path};
    assert_int_not_equal(rec_job_open(file, 1, NULL, &job, &err), REC_OK);
    assert_string_equal(err.path, path);
}

/* What is missing across damage is known to be missing and why. */
static void test_damaged(void **state)
{
    (void)state;
    struct maker maker;
    struct rec_error err;
    maker_open(&maker, dir, "h1-1", maker_meta(0xa1, 0, 1, NULL, NULL, T0), 0);
    maker_world(&maker, 0x77, 1, 0);
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < 2000; k++) { /* counts that do not compress: several segments */
            struct rec_op op =
                maker_op(maker.ordinal++, (uint64_t)i * 2000 + (uint64_t)k, 0, maker.now += 1000);
            op.count = rec_mix64(op.seq + 1) >> 20;
            rec_writer_ops(maker.writer, &op, 1);
        }
        assert_int_equal(rec_writer_flush(maker.writer, &err), REC_OK);
    }
    maker_close(&maker);
    char path[96];
    struct stat info;
    snprintf(path, sizeof(path), "%s/h1-1.frec", dir);
    FILE *file = fopen(path, "r+e");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &info), 0);
    assert_int_equal(fseek(file, info.st_size / 2, SEEK_SET), 0);
    assert_int_equal(fwrite("\xde\xad\xbe\xef", 1, 4, file), 4);
    fclose(file);
    struct rec_job *job = open_job(NULL);
    const struct rec_process *process = only_process(job);
    assert_true(process->damaged);
    assert_true(process->ops > 100000 && process->ops < 400000);
    assert_int_equal(process->ops + process->dropped_ops, 400000);
    assert_int_equal(process->unaccounted, 0);
    struct seen seen = scan(job, process, NULL);
    assert_int_equal(seen.ops, process->ops);
    assert_int_equal(seen.jumps, process->dropped_ops);
    assert_int_equal(seen.next, 400000);
    rec_job_close(job);
}

/* A scan shows the picture that loading saw, though the job goes on. */
static void test_growing(void **state)
{
    (void)state;
    struct maker maker;
    struct rec_error err;
    maker_open(&maker, dir, "h1-1", maker_meta(0xa1, 0, 1, NULL, NULL, T0), 0);
    maker_world(&maker, 0x77, 1, 0);
    maker_ops(&maker, 0, 0, 100);
    assert_int_equal(rec_writer_flush(maker.writer, &err), REC_OK);
    struct rec_job *job = open_job(NULL);
    maker_ops(&maker, 0, 100, 100);
    assert_int_equal(rec_writer_flush(maker.writer, &err), REC_OK);
    assert_int_equal(only_process(job)->ops, 100);
    assert_int_equal(scan(job, only_process(job), NULL).ops, 100);
    rec_job_close(job);
    job = open_job(NULL);
    assert_int_equal(scan(job, only_process(job), NULL).ops, 200);
    /* Rotation may remove a part at any time. */
    char path[96];
    snprintf(path, sizeof(path), "%s/h1-1.frec", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(scan(job, only_process(job), NULL).ops, 0);
    rec_job_close(job);
    maker_close(&maker);
}

static void *scan_in_thread(void *arg)
{
    const struct rec_job *job = arg;
    struct rec_scan *s;
    struct rec_event event;
    struct rec_error err;
    uintptr_t ops = 0;
    size_t count;
    const struct rec_process *process = rec_job_processes(job, &count)[0];
    if (rec_scan_open(job, process, NULL, &s, &err) != REC_OK)
        return NULL;
    while (rec_scan_next(s, &event, &err) == REC_OK)
        ops += event.type == REC_EV_OP && rec_process_member(process, event.u.op.comm) != NULL;
    rec_scan_close(s);
    return (void *)ops;
}

/* A job may be shared between threads. */
static void test_scans_in_parallel(void **state)
{
    (void)state;
    struct maker maker;
    maker_open(&maker, dir, "h1-1", maker_meta(0xa1, 0, 1, NULL, NULL, T0), 0);
    maker_world(&maker, 0x77, 1, 0);
    maker_ops(&maker, 0, 0, 5000);
    maker_close(&maker);
    struct rec_job *job = open_job(NULL);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, scan_in_thread, job), 0);
    for (int i = 0; i < 4; i++) {
        void *ops;
        assert_int_equal(pthread_join(threads[i], &ops), 0);
        assert_int_equal((uintptr_t)ops, 5000);
    }
    rec_job_close(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_file_and_region, setup, teardown),
        cmocka_unit_test_setup_teardown(test_part_that_came_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_region_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_region_of_a_removed_trace, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gaps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_duplicate_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_group_states, setup, teardown),
        cmocka_unit_test_setup_teardown(test_truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_growing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_scans_in_parallel, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
