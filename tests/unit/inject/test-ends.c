/*
 * However a program goes on or ends, its end stays as it was, and the trace tells it.
 */
#include "preloaded.h"

static void children_of_fork_start_afresh(void **state)
{
    (void)state;
    assert_exit(run("forks", NULL), 0);
    assert_int_equal(count_traces(), 2);
    assert_int_equal(count_live(), 0);
    DIR *dir = opendir(traces);
    uint64_t total = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[512];
        if (!strstr(entry->d_name, ".frec"))
            continue;
        snprintf(path, sizeof(path), "%s/%s", traces, entry->d_name);
        struct trace *trace = read_trace(path);
        assert_true(trace->closed);
        assert_int_equal(trace->end, REC_END_EXIT);
        assert_int_equal(trace->ops, trace->end_status == 5 ? 21 : 22);
        total += trace->ops;
    }
    closedir(dir);
    assert_int_equal(total, 43);
}

static void no_descriptor_reaches_a_new_program(void **state)
{
    (void)state;
    assert_exit(run("descriptors", NULL), 0);
}

static void a_fault_stays_a_fault(void **state)
{
    (void)state;
    assert_killed(run("fault", NULL), SIGSEGV);
    struct trace *trace = only_trace();
    assert_int_equal(trace->ops, 11);
    assert_int_equal(trace->end, REC_END_SIGNAL);
    assert_int_equal(trace->end_signal, SIGSEGV);
    assert_int_equal(trace->fault, 16);
    assert_true(trace->end_frames >= 3);
    assert_true(trace->closed);
}

static void a_handler_of_the_program_still_runs(void **state)
{
    (void)state;
    assert_exit(run("handled-fault", "1"), 42);
    assert_string_equal(output, "own handler\n");
    struct trace *trace = only_trace();
    assert_int_equal(trace->ops, 11);
    assert_int_equal(trace->end, REC_END_QUICK); /* the handler called _exit */
    assert_int_equal(trace->end_status, 42);
}

static void a_survived_fault_is_no_end(void **state)
{
    (void)state;
    assert_exit(run("recovers", NULL), 3);
    struct trace *trace = only_trace();
    assert_int_equal(trace->ops, 21);
    assert_int_equal(trace->end, REC_END_EXIT); /* the last END counts */
    assert_int_equal(trace->end_status, 3);
    assert_true(trace->closed);
    assert_int_equal(count_live(), 0);
}

static void a_later_handler_replaces_ours(void **state)
{
    (void)state;
    assert_exit(run("handled-fault", "0"), 42);
    assert_string_equal(output, "own handler\n");
    assert_int_equal(only_trace()->end_status, 42);
}

static void abort_and_signals_end_the_program_as_ever(void **state)
{
    (void)state;
    assert_killed(run("abort", NULL), SIGABRT);
    assert_int_equal(only_trace()->end_signal, SIGABRT);
    const char *const numbers[] = {"15", "2", "1", "3"};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        shell("rm -rf %s", traces);
        assert_killed(run("raise", numbers[i]), atoi(numbers[i]));
        assert_int_equal(only_trace()->end_signal, atoi(numbers[i]));
        assert_int_equal(only_trace()->ops, 11);
    }
    assert_int_equal(count_live(), 0);
}

static void quick_ends_are_complete(void **state)
{
    (void)state;
    assert_exit(run("_exit", "9"), 9);
    struct trace *trace = only_trace();
    assert_int_equal(trace->ops, 11);
    assert_int_equal(trace->end, REC_END_QUICK);
    assert_int_equal(trace->end_status, 9);
    shell("rm -rf %s", traces);
    assert_exit(run("quick_exit", "4"), 4);
    assert_int_equal(only_trace()->end, REC_END_QUICK);
    assert_int_equal(only_trace()->ops, 11);
}

static void sigkill_leaves_the_region(void **state)
{
    (void)state;
    struct rec_live live;
    assert_killed(run("raise", "9"), SIGKILL);
    assert_true(map_only_live(false, &live));
    assert_int_equal(atomic_load(&live.threads[0].ordinal), 11);
    assert_int_equal(atomic_load(&live.comms[0].next_seq), 11);
    assert_false(rec_live_process_alive(&live));
    assert_string_equal(live.header->frec_dir, traces);
    rec_live_unmap(&live);
}

/* Starts the client and lets it come to where it stays. */
static pid_t start_client(const char *const *settings, const char *what, const char *number, unsigned ms)
{
    pid_t child = fork();
    if (child == 0) {
        child_environment(settings);
        execl(client, client, what, number, (char *)NULL);
        _exit(127);
    }
    usleep(ms * 1000);
    return child;
}

/* Returns the wait status. */
static int kill_client(pid_t child)
{
    int status = -1;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return status;
}

/* Killed inside a call: the trace tells all that returned and what was open, and so does the region. */
static void a_kill_inside_a_call_shows_the_call(void **state)
{
    (void)state;
    const char *const settings[] = {"STUB_NCCL_BLOCK_MS", "60000", NULL};
    assert_killed(kill_client(start_client(settings, "stuck", NULL, 800)), SIGKILL);
    struct trace *trace = only_trace();
    assert_int_equal(trace->ops, 11);
    assert_int_equal(trace->open_calls, 1);
    assert_int_equal(trace->open_kind, REC_COMM_FINALIZE);
    assert_int_equal(trace->end, REC_END_NONE);

    struct rec_live live;
    struct rec_slot slot;
    assert_true(map_only_live(false, &live));
    assert_true(rec_live_open_op(&live, 0, &slot));
    assert_int_equal(slot.kind, REC_COMM_FINALIZE);
    assert_int_equal(slot.seq, 11);
    rec_live_unmap(&live);
}

/* Same pid, same start time, another program: the region tells that its recorder is gone. */
static void a_program_that_becomes_another_is_told_apart(void **state)
{
    (void)state;
    struct rec_live live;
    pid_t child = start_client(NULL, "becomes", NULL, 400);
    bool mapped = map_only_live(false, &live);
    enum rec_live_process before = REC_LIVE_PROCESS_GONE, after = before;
    if (mapped) {
        before = rec_live_process(&live);
        for (int i = 0; i < 100 && (after = rec_live_process(&live)) == REC_LIVE_PROCESS_RUNS; i++)
            usleep(100000);
    }
    kill_client(child);
    assert_true(mapped);
    assert_int_equal(before, REC_LIVE_PROCESS_RUNS);
    assert_int_equal(after, REC_LIVE_PROCESS_REPLACED);
    assert_int_equal(rec_live_process(&live), REC_LIVE_PROCESS_GONE);
    rec_live_unmap(&live);
}

static void a_stopped_program_still_runs(void **state)
{
    (void)state;
    struct rec_live live;
    pid_t child = start_client(NULL, "idle", "60", 400);
    kill(child, SIGSTOP);
    bool mapped = map_only_live(true, &live);
    if (mapped) /* as if it had stood still for an hour */
        atomic_fetch_sub(&live.header->alive_ns, UINT64_C(3600000000000));
    enum rec_live_process state_then = mapped ? rec_live_process(&live) : REC_LIVE_PROCESS_GONE;
    kill_client(child);
    assert_true(mapped);
    assert_int_equal(state_then, REC_LIVE_PROCESS_RUNS);
    rec_live_unmap(&live);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        PRELOADED(children_of_fork_start_afresh),
        PRELOADED(no_descriptor_reaches_a_new_program),
        PRELOADED(a_fault_stays_a_fault),
        PRELOADED(a_handler_of_the_program_still_runs),
        PRELOADED(a_survived_fault_is_no_end),
        PRELOADED(a_later_handler_replaces_ours),
        PRELOADED(abort_and_signals_end_the_program_as_ever),
        PRELOADED(quick_ends_are_complete),
        PRELOADED(sigkill_leaves_the_region),
        PRELOADED(a_kill_inside_a_call_shows_the_call),
        PRELOADED(a_program_that_becomes_another_is_told_apart),
        PRELOADED(a_stopped_program_still_runs),
    };
    const struct CMUnitTest sanitized[] = {
        PRELOADED(quick_ends_are_complete),
    };
    if (!preloaded_arguments(argc, argv))
        return 2;
    if (preloaded_sanitized)
        return cmocka_run_group_tests(sanitized, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
