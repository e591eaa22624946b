/*
 * The recorder keeps out of the way: of programs without NCCL, of full and forbidden places, of the memory
 * and the secrets of the job.
 */
#include "preloaded.h"

static void secrets_of_the_command_line_stay_out(void **state)
{
    (void)state;
    const char *const arguments[] = {client, "ops", "10", "--hf-token", "tok-one", "KEY_PASSWORD=tok-two",
                                     NULL};
    assert_exit(run_program(NULL, arguments), 0);
    struct trace *trace = only_trace();
    assert_non_null(strstr(trace->meta, "\"ops\",\"10\",\"--hf-token\",\"***\",\"KEY_PASSWORD=***\"]"));
    shell("! grep -rq tok- %s", base);
}

static void inert_without_nccl_calls(void **state)
{
    (void)state;
    assert_exit(run("nothing", NULL), 0);
    const char *const bash[] = {"/bin/sh", "-c", "echo $(echo hello | cat)", NULL};
    assert_exit(run_program(NULL, bash), 0);
    assert_string_equal(output, "hello\n");
    if (access("/usr/bin/python3", X_OK) == 0) {
        const char *const python[] = {"/usr/bin/python3", "-c",
                                      "import subprocess,threading; subprocess.run(['true']); "
                                      "print(threading.active_count())",
                                      NULL};
        assert_exit(run_program(NULL, python), 0);
        assert_string_equal(output, "1\n");
    }
    assert_int_equal(access(traces, F_OK), -1);
    assert_int_equal(count_live(), 0);
}

static void disabled_is_disabled(void **state)
{
    (void)state;
    const char *const settings[] = {"FREC_DISABLE", "1", NULL};
    assert_exit(run_with(settings, "ops", "10"), 0);
    assert_int_equal(access(traces, F_OK), -1);
    assert_int_equal(count_live(), 0);
}

static void talks_only_when_asked(void **state)
{
    (void)state;
    const char *const quiet[] = {"FREC_TICK_NS", "many", "FREC_DIR", "/proc/nowhere", NULL};
    assert_exit(run_with(quiet, "ops", "10"), 0);
    assert_string_equal(output, "");
    const char *const loud[] = {"FREC_TICK_NS", "many", "FREC_VERBOSE", "1", NULL};
    assert_exit(run_with(loud, "ops", "10"), 0);
    assert_non_null(strstr(output, "FREC_TICK_NS=many"));
    assert_int_equal(only_trace()->ops, 11);
}

static void errno_comes_through(void **state)
{
    (void)state;
    assert_exit(run("errno", NULL), 0);
}

static void unusable_directories_do_no_harm(void **state)
{
    (void)state;
    /* No trace: the region alone. */
    const char *const no_dir[] = {"FREC_DIR", "/proc/nowhere", NULL};
    assert_exit(run_with(no_dir, "ops", "100000"), 0);
    assert_int_equal(count_live(), 0);
    /* No region: the trace alone, which says so. */
    const char *const no_live[] = {"FREC_LIVE_DIR", "/proc/nowhere", NULL};
    assert_exit(run_with(no_live, "ops", "10"), 0);
    assert_int_equal(only_trace()->ops, 11);
    assert_non_null(strstr(only_trace()->meta, "live_error"));
    assert_null(strstr(only_trace()->meta, "\"live\":"));
    shell("rm -rf %s", traces);
    /* Neither. */
    const char *const neither[] = {"FREC_DIR", "/proc/nowhere", "FREC_LIVE_DIR", "/proc/nowhere", NULL};
    assert_exit(run_with(neither, "ops", "10"), 0);
    /* A directory of ours that others may write to, or that is a link, is not trusted. */
    shell("rm -rf %s", regions);
    assert_int_equal(mkdir(regions, 0700), 0);
    assert_int_equal(chmod(regions, 0777), 0);
    assert_exit(run("ops", "10"), 0);
    assert_non_null(strstr(only_trace()->meta, "live_error"));
    shell("rm -rf %s", traces);
    shell("rm -rf %s", regions);
    assert_int_equal(symlink("/tmp", regions), 0);
    assert_exit(run("ops", "10"), 0);
    assert_non_null(strstr(only_trace()->meta, "live_error"));
}

/* Killed processes leave regions; a later process clears away what is a day old and only that. */
static void old_regions_are_cleared_away(void **state)
{
    (void)state;
    char path[256];
    assert_killed(run("raise", "9"), SIGKILL);
    assert_killed(run("raise", "9"), SIGKILL);
    assert_int_equal(count_files(regions, ".live", path, sizeof(path)), 2);
    struct rec_live live;
    assert_int_equal(rec_live_map(path, true, &live, NULL), REC_OK);
    assert_true(atomic_load(&live.header->alive_ns) != 0);
    atomic_fetch_sub(&live.header->alive_ns, UINT64_C(90000000000000));
    rec_live_unmap(&live);
    assert_exit(run("ops", "1"), 0);
    assert_int_equal(count_live(), 1);
    assert_int_equal(access(path, F_OK), -1);
}

/* A small /dev/shm is left to NCCL: a shorter ring, or none. */
static void little_memory_is_left_to_others(void **state)
{
    (void)state;
    char command[256];
    snprintf(command, sizeof(command), "mount -t tmpfs -o size=64m none %s 2>/dev/null", live_dir);
    if (system(command) != 0)
        skip(); /* not root, or in a container that may not mount */
    struct rec_live live;
    int status = run("raise", "9");
    bool mapped = map_only_live(false, &live);
    uint64_t bytes = mapped ? live.bytes : 0;
    if (mapped)
        rec_live_unmap(&live);
    snprintf(command, sizeof(command), "mount -o remount,size=6m %s", live_dir);
    int shrunk = system(command);
    shell("rm -rf %s", traces);
    int status_small = run("ops", "10");
    shell("umount %s", live_dir);
    assert_killed(status, SIGKILL);
    assert_true(mapped);
    assert_true(bytes > 0 && bytes <= (1 << 20));
    assert_int_equal(shrunk, 0);
    assert_exit(status_small, 0);
    assert_non_null(strstr(only_trace()->meta, "live_error"));
    assert_int_equal(only_trace()->ops, 11);
}

static void relative_directories_mean_the_start(void **state)
{
    (void)state;
    char before[256];
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(base), 0);
    const char *const settings[] = {"FREC_DIR", NULL, NULL, NULL};
    int status = run_with(settings, "chdir", NULL);
    assert_int_equal(chdir(before), 0);
    assert_exit(status, 0);
    char path[128];
    struct stat st;
    snprintf(path, sizeof(path), "%s/frec", base);
    assert_int_equal(count_files(path, ".frec", NULL, 0), 1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void memory_stays_below_sixteen_mebibytes(void **state)
{
    (void)state;
    assert_exit(run("memory", "60000"), 0);
    long with = atol(output);
    const char *const settings[] = {"LD_PRELOAD", NULL, NULL, NULL};
    assert_exit(run_with(settings, "memory", "60000"), 0);
    long without = atol(output);
    /* The region counts in full, wherever its file system keeps it. */
    const struct rec_live_config layout = {REC_LIVE_DEFAULT_COMMS,         REC_LIVE_DEFAULT_THREADS,
                                           REC_LIVE_DEFAULT_REDOPS,        REC_LIVE_DEFAULT_STREAMS,
                                           REC_LIVE_DEFAULT_SLOTS,         64,
                                           REC_LIVE_DEFAULT_CALLSITE_BYTES};
    static struct rec_live_header header;
    long region = (long)(rec_live_layout(&layout, &header) / 1024);
    print_message("recorder's memory: %ld KiB private, %ld KiB region\n", with - without, region);
    assert_true(with - without > 0);
    assert_true(with - without + region < 16 * 1024);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        PRELOADED(secrets_of_the_command_line_stay_out),
        PRELOADED(inert_without_nccl_calls),
        PRELOADED(disabled_is_disabled),
        PRELOADED(talks_only_when_asked),
        PRELOADED(errno_comes_through),
        PRELOADED(unusable_directories_do_no_harm),
        PRELOADED(old_regions_are_cleared_away),
        PRELOADED(little_memory_is_left_to_others),
        PRELOADED(relative_directories_mean_the_start),
        PRELOADED(memory_stays_below_sixteen_mebibytes),
    };
    const struct CMUnitTest sanitized[] = {
        PRELOADED(errno_comes_through),
        PRELOADED(unusable_directories_do_no_harm),
    };
    if (!preloaded_arguments(argc, argv))
        return 2;
    if (preloaded_sanitized)
        return cmocka_run_group_tests(sanitized, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
