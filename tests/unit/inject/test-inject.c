/*
 * What is recorded of a program's calls, in whatever way it came to its NCCL.
 */
#include "preloaded.h"

static void a_run_leaves_one_closed_trace(void **state)
{
    (void)state;
    assert_exit(run("ops", "1000"), 0);
    assert_string_equal(output, "");
    struct trace *trace = only_trace();
    assert_int_equal(trace->ops, 1001);
    assert_int_equal(trace->kinds[REC_ALL_REDUCE], 1000);
    assert_int_equal(trace->checked_gaps, 0);
    assert_int_equal(trace->end, REC_END_EXIT);
    assert_int_equal(trace->end_status, 0);
    assert_true(trace->closed);
    assert_non_null(strstr(trace->meta, "\"nccl_version\":22809"));
    assert_int_equal(count_live(), 0);
}

static void every_function_of_the_table_is_recorded(void **state)
{
    (void)state;
    assert_exit(run("everything", NULL), 0);
    struct trace *trace = only_trace();
    for (unsigned kind = 1; kind < 256; kind++) {
        /* Not in the table, made by another call, or only recorded when something changes. */
        static const unsigned char absent[] = {REC_GRAPH_LAUNCH, REC_COMM_GET_ASYNC_ERROR,
                                               REC_COMM_INIT_RANK};
        if (!rec_kind_name(kind) || memchr(absent, (int)kind, sizeof(absent)))
            continue;
        unsigned flags = rec_kind_flags(kind);
        uint64_t want = 1;
        if (kind == REC_COMM_INIT_ALL)
            want = 3; /* one for each of its communicators */
        else if (kind == REC_COMM_DESTROY)
            want = 5;
        else if (kind == REC_COMM_GROW || (flags & REC_KF_COLL && kind != REC_BCAST))
            want = 2; /* from old and new ranks; with and without a configuration */
        if (trace->kinds[kind] != want)
            fail_msg("%s: %llu records", rec_kind_name(kind), (unsigned long long)trace->kinds[kind]);
    }
    assert_string_equal(trace->comm_name, "named");
    /* InitRankConfig and Scalable share an id, the two grown ones are the same communicator. */
    assert_int_equal(trace->nuids, 5);
}

static void a_refused_call_takes_no_place(void **state)
{
    (void)state;
    assert_exit(run("refused", NULL), 0);
    struct trace *trace = only_trace();
    assert_int_equal(trace->kinds[REC_BROADCAST], 2);
    assert_int_equal(trace->refused[REC_BROADCAST], 1);
    assert_int_equal(trace->seqs[REC_BROADCAST], 4); /* in a group the call has one */
    assert_int_equal(trace->seqs[REC_ALL_REDUCE], 5);
    assert_int_equal(trace->next_seq, 6);
    assert_int_equal(trace->refused[REC_SEND], 1);
    assert_int_equal(trace->seqs[REC_SEND], 1);
    assert_int_equal(trace->refused[REC_RECV], 1);
    assert_int_equal(trace->seqs[REC_RECV], 0);
}

static void threads_come_and_go(void **state)
{
    (void)state;
    assert_exit(run("threads", "40"), 0);
    struct trace *trace = only_trace();
    assert_int_equal(trace->ops + trace->lost, 40 * 8 * 1001);
    assert_int_equal(trace->lost, 0);
    assert_int_equal(trace->checked_gaps, 0);
    assert_true(trace->threads >= 320);
}

static void communicators_come_and_go(void **state)
{
    (void)state;
    assert_exit(run("churn", "1500"), 0); /* more than the table holds */
    struct trace *trace = only_trace();
    assert_int_equal(trace->kinds[REC_COMM_INIT_RANK], 1500);
    assert_int_equal(trace->kinds[REC_SEND], 1500);
    assert_int_equal(trace->lost, 0);
    assert_true(trace->comms >= 1500);
}

static void a_full_ring_loses_and_counts(void **state)
{
    (void)state;
    const char *const settings[] = {"FREC_RING_SLOTS", "128", NULL};
    assert_exit(run_with(settings, "ops", "100000"), 0);
    struct trace *trace = only_trace();
    assert_int_equal(trace->ops + trace->lost, 100001);
    assert_true(trace->lost > 0);
}

static void a_missing_function_fails_cleanly(void **state)
{
    (void)state;
    char library_path[512];
    snprintf(library_path, sizeof(library_path), "%s/old", base);
    assert_int_equal(mkdir(library_path, 0700), 0);
    snprintf(library_path, sizeof(library_path), "%s/old/libnccl.so.2", base);
    assert_int_equal(symlink(old_nccl, library_path), 0);
    /* Before the linked one: a preload comes first in the search order. */
    char preload[1024];
    snprintf(preload, sizeof(preload), "%s:%s", recorder, library_path);
    const char *const settings[] = {"LD_PRELOAD", preload, NULL};
    assert_exit(run_with(settings, "missing", NULL), 0);
    assert_int_equal(only_trace()->kinds[REC_ALL_TO_ALL], 0);
    assert_int_equal(only_trace()->kinds[REC_ALL_REDUCE], 1);
}

static void libraries_opened_by_the_program_are_recorded(void **state)
{
    (void)state;
    const char *const one[] = {opener, nccl, NULL};
    assert_exit(run_program(NULL, one), 0);
    struct trace *trace = only_trace();
    assert_int_equal(trace->kinds[REC_ALL_REDUCE], 10);
    assert_int_equal(trace->kinds[REC_COMM_INIT_RANK], 1);
    assert_non_null(strstr(trace->meta, nccl));
    shell("rm -rf %s", traces);
    const char *const two[] = {opener, nccl, old_nccl, NULL};
    assert_exit(run_program(NULL, two), 0);
    trace = only_trace();
    assert_int_equal(trace->kinds[REC_ALL_REDUCE], 20);
    assert_int_equal(trace->kinds[REC_COMM_INIT_RANK], 2);
}

/* Several threads begin at once, each with communicators of both libraries: each call comes to its own. */
static void two_libraries_are_kept_apart(void **state)
{
    (void)state;
    const char *const arguments[] = {opener, "threads", nccl, other_nccl, NULL};
    assert_exit(run_program(NULL, arguments), 0);
    struct trace *trace = only_trace();
    assert_int_equal(trace->kinds[REC_COMM_INIT_RANK], 16);
    assert_int_equal(trace->kinds[REC_ALL_REDUCE], 1600);
    assert_int_equal(trace->in_progress, 800);
    assert_int_equal(trace->lost, 0);
    assert_int_equal(trace->checked_gaps, 0);
}

static void a_library_opened_after_fork_is_recorded(void **state)
{
    (void)state;
    const char *const arguments[] = {opener, "fork", nccl, NULL};
    assert_exit(run_program(NULL, arguments), 0);
    assert_int_equal(count_traces(), 2);
    assert_int_equal(count_live(), 0);
}

/* With RTLD_DEEPBIND nothing can be recorded; who asks is told why there is no trace. */
static void calls_past_the_recorder_are_told(void **state)
{
    (void)state;
    const char *const loud[] = {"FREC_VERBOSE", "1", NULL};
    const char *const linked[] = {opener, "plugin", plugin, NULL};
    assert_exit(run_program(loud, linked), 0);
    assert_int_equal(only_trace()->kinds[REC_ALL_REDUCE], 10);
    assert_null(strstr(output, "past the recorder"));
    shell("rm -rf %s", traces);
    const char *const deepbind[] = {opener, "deepbind", plugin, NULL};
    assert_exit(run_program(loud, deepbind), 0);
    assert_int_equal(access(traces, F_OK), -1);
    const char *told = strstr(output, "inject-plugin.so calls nccl");
    assert_non_null(told);
    assert_non_null(strstr(told, "past the recorder"));
    assert_exit(run_program(NULL, deepbind), 0);
    assert_string_equal(output, "");
}

static void ctypes_is_recorded(void **state)
{
    (void)state;
    if (access("/usr/bin/python3", X_OK) != 0)
        skip();
    char script[1024];
    snprintf(script, sizeof(script),
             "import ctypes\n"
             "l = ctypes.CDLL('%s')\n"
             "class Id(ctypes.Structure): _fields_ = [('b', ctypes.c_byte * 128)]\n"
             "i = Id(); c = ctypes.c_void_p()\n"
             "l.ncclGetUniqueId(ctypes.byref(i))\n"
             "l.ncclCommInitRank(ctypes.byref(c), 2, i, 1)\n"
             "for k in range(5): l.ncclAllReduce(None, None, ctypes.c_size_t(k), 7, 0, c, None)\n",
             nccl);
    const char *const python[] = {"/usr/bin/python3", "-c", script, NULL};
    assert_exit(run_program(NULL, python), 0);
    assert_string_equal(output, "");
    assert_int_equal(only_trace()->kinds[REC_ALL_REDUCE], 5);
    assert_int_equal(only_trace()->kinds[REC_GET_UNIQUE_ID], 1);
}

static void idleness_is_reported_once_with_stacks(void **state)
{
    (void)state;
    const char *const settings[] = {"FREC_STALL_SEC", "1", NULL};
    assert_exit(run_with(settings, "idle", "3"), 0);
    struct trace *trace = only_trace();
    assert_int_equal(trace->stalls, 1);
    assert_true(trace->stall_frames >= 3);
    assert_int_equal(trace->ops, 11);
}

/* Where nobody but NCCL tells of the calls, the stack of a thread that computes is found as well. */
static void a_busy_thread_shows_where_it_called(void **state)
{
    (void)state;
    const char *const settings[][7] = {
        {"FREC_STALL_SEC", "1", NULL},
        {"FREC_STALL_SEC", "1", "LD_PRELOAD", told_nccl, "NCCL_PROFILER_PLUGIN", recorder, NULL},
    };
    for (int i = 0; i < 2; i++) {
        assert_exit(run_with(settings[i], "busy", "3"), 0);
        struct trace *trace = only_trace();
        assert_int_equal(trace->stalls, 1);
        assert_int_equal(trace->stall_threads, 1);
        assert_true(trace->stall_frames >= 2);
        shell("rm -r %s", traces);
    }
}

static void a_call_that_does_not_return_is_reported_once(void **state)
{
    (void)state;
    const char *const settings[] = {"FREC_STALL_SEC", "1", "STUB_NCCL_BLOCK_MS", "3500", NULL};
    assert_exit(run_with(settings, "stuck", NULL), 0);
    struct trace *trace = only_trace();
    assert_int_equal(trace->stalls, 1);
    assert_int_equal(trace->stall_why, REC_STALL_OPEN_OP);
    assert_int_equal(trace->stall_threads, 2);
    assert_int_equal(trace->kinds[REC_COMM_FINALIZE], 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        PRELOADED(a_run_leaves_one_closed_trace),
        PRELOADED(every_function_of_the_table_is_recorded),
        PRELOADED(a_refused_call_takes_no_place),
        PRELOADED(threads_come_and_go),
        PRELOADED(communicators_come_and_go),
        PRELOADED(a_full_ring_loses_and_counts),
        PRELOADED(a_missing_function_fails_cleanly),
        PRELOADED(libraries_opened_by_the_program_are_recorded),
        PRELOADED(two_libraries_are_kept_apart),
        PRELOADED(a_library_opened_after_fork_is_recorded),
        PRELOADED(calls_past_the_recorder_are_told),
        PRELOADED(ctypes_is_recorded),
        PRELOADED(idleness_is_reported_once_with_stacks),
        PRELOADED(a_busy_thread_shows_where_it_called),
        PRELOADED(a_call_that_does_not_return_is_reported_once),
    };
    const struct CMUnitTest sanitized[] = {
        PRELOADED(a_run_leaves_one_closed_trace), PRELOADED(every_function_of_the_table_is_recorded),
        PRELOADED(threads_come_and_go),           PRELOADED(communicators_come_and_go),
        PRELOADED(a_full_ring_loses_and_counts),  PRELOADED(idleness_is_reported_once_with_stacks),
    };
    if (!preloaded_arguments(argc, argv))
        return 2;
    if (preloaded_sanitized)
        return cmocka_run_group_tests(sanitized, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
