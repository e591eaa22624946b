/* Call sites of a job: kept once, found by op, and told as a user would tell them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "maker.h"
#include "rec/job.h"

#define SITE_PACKAGES "/usr/lib/python3.12/site-packages"

static void assert_place(const char *const files[], uint32_t count, const char *expected)
{
    struct rec_source_frame frames[8];
    char text[128];
    for (uint32_t i = 0; i < count; i++)
        frames[i] = (struct rec_source_frame){.file = files[i], .function = "f", .line = i + 1};
    struct rec_callsite_def site = {.kind = REC_CALLSITE_PYTHON, .nframes = count, .frames = frames};
    assert_true(rec_callsite_text(&site, NULL, text, sizeof(text)));
    assert_string_equal(text, expected);
}
#define PLACE(expected, ...)                                                                                 \
    assert_place((const char *const[]){__VA_ARGS__},                                                         \
                 sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), expected)

static void the_place_is_the_program_s(void **state)
{
    (void)state;
    PLACE("train.py:1 in f", "/home/me/train.py");
    PLACE("model.py:3 in f", SITE_PACKAGES "/torch/distributed/distributed_c10d.py",
          SITE_PACKAGES "/torch/distributed/c10d_logger.py", "/home/me/model.py", "/home/me/train.py");
    /* A program that is itself installed: the layers are skipped all the same. */
    PLACE("linear.py:4 in f", SITE_PACKAGES "/vllm/distributed/device_communicators/pynccl_wrapper.py",
          SITE_PACKAGES "/vllm/distributed/device_communicators/pynccl.py",
          SITE_PACKAGES "/vllm/distributed/parallel_state.py",
          SITE_PACKAGES "/vllm/model_executor/linear.py");
    /* Its main module is the program's own, however deep. */
    PLACE("serve.py:3 in f", SITE_PACKAGES "/vllm/distributed/parallel_state.py",
          SITE_PACKAGES "/vllm/model_executor/linear.py", "/home/me/serve.py");
    PLACE("train.py:2 in f", "<string>", "/home/me/train.py");
    PLACE("nccl.py:1 in f", SITE_PACKAGES "/torch/cuda/nccl.py");
}

static void texts_that_are_cut(void **state)
{
    (void)state;
    char buffer[16];
    struct rec_source_frame frame = {.file = "/a/long-module-name.so", .function = "", .offset = 0x1234};
    struct rec_callsite_def site = {.kind = REC_CALLSITE_NATIVE, .nframes = 1, .frames = &frame};
    for (size_t size = 1; size < sizeof(buffer); size++) {
        assert_true(rec_callsite_text(&site, NULL, buffer, size));
        assert_int_equal(strlen(buffer), size - 1);
        assert_memory_equal(buffer, "long-module-name.so+0x1234", size - 1);
    }
    frame.file = "";
    assert_true(rec_callsite_text(&site, NULL, buffer, sizeof(buffer)));
    assert_string_equal(buffer, "?+0x1234");
    site.nframes = 0;
    assert_false(rec_callsite_text(&site, NULL, buffer, sizeof(buffer)));
    assert_string_equal(buffer, "");
}

/* Site n: line n of step.py. Ids differ between the ranks. */
static bool step_site(void *shift, uint32_t id, struct rec_callsite_def *def)
{
    static struct rec_source_frame frames[2];
    frames[0] = (struct rec_source_frame){
        .file = "/app/step.py", .function = "step", .line = id + *(const uint32_t *)shift};
    frames[1] = (struct rec_source_frame){.file = "/app/main.py", .function = "main", .line = 9};
    *def = (struct rec_callsite_def){.id = id, .kind = REC_CALLSITE_PYTHON, .nframes = 2, .frames = frames};
    return id < 100;
}

static void kept_once_for_all_ranks(void **state)
{
    (void)state;
    char dir[64];
    maker_dir(dir, sizeof(dir));
    for (int rank = 0; rank < 2; rank++) {
        struct maker maker;
        maker_open(&maker, dir, rank ? "b" : "a",
                   maker_meta(0x10 + (uint64_t)rank, rank, 2, "FREC_JOB_ID", "x", T0), 0);
        uint32_t shift = 10 * (uint32_t)rank;
        rec_writer_callsites(maker.writer, step_site, &shift);
        maker_world(&maker, 0x100, 2, (uint32_t)rank);
        for (uint32_t i = 0; i < 30; i++) {
            struct rec_op op = maker_op(maker.ordinal++, i, 0, maker.now);
            op.callsite = i == 29 ? 500 : 1 + i;
            rec_writer_ops(maker.writer, &op, 1);
        }
        maker_close(&maker);
    }
    const char *dirs[] = {dir};
    struct rec_job *job;
    assert_int_equal(rec_job_open(dirs, 1, NULL, &job, NULL), REC_OK);
    size_t count;
    struct rec_process *const *processes = rec_job_processes(job, &count);
    assert_int_equal(count, 2);
    for (uint32_t id = 1; id < 30; id++) {
        const struct rec_callsite_def *site = rec_process_callsite(processes[0], id);
        assert_non_null(site);
        assert_int_equal(site->nframes, 2);
        assert_int_equal(site->frames[0].line, id);
        assert_string_equal(site->frames[0].file, "/app/step.py");
        assert_string_equal(site->frames[1].function, "main");
        /* The same line has another number on rank 1, and is the same site. */
        if (id > 10)
            assert_ptr_equal(rec_process_callsite(processes[1], id - 10), site);
    }
    assert_null(rec_process_callsite(processes[0], 0));
    assert_null(rec_process_callsite(processes[0], 500)); /* the writer was told nothing of it */
    assert_null(rec_process_callsite(processes[0], UINT32_MAX));
    rec_job_close(job);
    maker_clean(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_place_is_the_program_s),
        cmocka_unit_test(texts_that_are_cut),
        cmocka_unit_test(kept_once_for_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
