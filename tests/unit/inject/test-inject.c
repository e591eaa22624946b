/*
 * The recorder as a user meets it: preloaded into programs, judged by what they do and by the
 * traces they leave. Arguments: the recorder, client.c and opener.c as programs,
 * the stub NCCL, an older one and another one, plugin.c, and the sanitizer of the build ("none"): its runtime
 * cannot be preloaded into other programs, owns signals and memory, and does not survive a fork.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rec/live.h"
#include "rec/reader.h"

static const char *recorder, *client, *opener, *nccl, *old_nccl, *other_nccl, *plugin;
static char base[64], traces[96], live_dir[96];
static char output[65536];

static void shell(const char *format, const char *argument)
{
    char command[256];
    snprintf(command, sizeof(command), format, argument);
    assert_int_equal(system(command), 0);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(base, "/tmp/test-inject-XXXXXX");
    if (!mkdtemp(base))
        return -1;
    snprintf(traces, sizeof(traces), "%s/traces", base);
    snprintf(live_dir, sizeof(live_dir), "%s/live", base);
    return mkdir(live_dir, 0700);
}

static int tear_down(void **state)
{
    (void)state;
    shell("chmod -R u+rwx %s", base);
    shell("rm -rf %s", base);
    return 0;
}

/* ---- running -------------------------------------------------------------------------------- */

static void child_environment(const char *const *settings)
{
    setenv("LD_PRELOAD", recorder, 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
    setenv("FREC_DIR", traces, 1);
    setenv("FREC_LIVE_DIR", live_dir, 1);
    for (; settings && settings[0]; settings += 2)
        settings[1] ? setenv(settings[0], settings[1], 1) : unsetenv(settings[0]);
}

/* Runs a program with the recorder preloaded; settings are names and values, NULL unsets. What it
 * prints is in output. Returns the wait status. */
static int run_program(const char *const *settings, const char *const *arguments)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        for (int signal_number = 1; signal_number < NSIG; signal_number++)
            signal(signal_number, SIG_DFL); /* under nohup SIGHUP would be ignored */
        child_environment(settings);
        execv(arguments[0], (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n; (n = read(ends[0], output + used, sizeof(output) - 1 - used)) > 0;)
        used += (size_t)n;
    output[used] = '\0';
    close(ends[0]);
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

static int run_with(const char *const *settings, const char *what, const char *number)
{
    const char *const arguments[] = {client, what, number, NULL};
    return run_program(settings, arguments);
}

static int run(const char *what, const char *number)
{
    return run_with(NULL, what, number);
}

static void assert_exit(int status, int want)
{
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), want);
}

static void assert_killed(int status, int want)
{
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), want);
}

/* ---- traces ---------------------------------------------------------------------------------- */

struct trace {
    uint64_t ops, kinds[256], lost, checked_gaps, in_progress;
    uint32_t comms, threads, stalls, stall_frames;
    uint32_t end, end_frames;
    int32_t end_status, end_signal;
    uint64_t fault;
    uint32_t stall_why, stall_threads, open_calls;
    uint8_t open_kind;
    bool closed;
    char meta[REC_LIVE_META_BYTES];
    char comm_name[64];
    uint64_t uids[2048];
    uint32_t nuids;
};

static uint32_t count_files(const char *directory, const char *suffix, char *first, size_t size)
{
    DIR *dir = opendir(directory);
    uint32_t count = 0;
    if (!dir)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        if (length <= strlen(suffix) || strcmp(entry->d_name + length - strlen(suffix), suffix) != 0)
            continue;
        count++;
        if (first)
            snprintf(first, size, "%s/%s", directory, entry->d_name);
    }
    closedir(dir);
    return count;
}

static uint32_t count_traces(void)
{
    return count_files(traces, ".frec", NULL, 0);
}

static uint32_t count_live(void)
{
    char directory[128];
    snprintf(directory, sizeof(directory), "%s/frec-%u", live_dir, (unsigned)geteuid());
    return count_files(directory, ".live", NULL, 0);
}

static void note_comm(struct trace *trace, const struct rec_comm_def *def)
{
    for (uint32_t i = 0; i < trace->nuids; i++)
        if (trace->uids[i] == def->uid)
            return;
    if (trace->nuids < 2048)
        trace->uids[trace->nuids++] = def->uid;
    if (def->name[0])
        memcpy(trace->comm_name, def->name, sizeof(def->name));
}

static void take_event(struct trace *trace, const struct rec_event *event, uint64_t next[4096])
{
    switch (event->type) {
    case REC_EV_OP:
        trace->ops++;
        trace->kinds[event->u.op.kind]++;
        trace->in_progress += event->u.op.result == 7;
        if (event->u.op.thread < 4096) {
            trace->checked_gaps += event->u.op.ordinal != next[event->u.op.thread];
            next[event->u.op.thread] = event->u.op.ordinal + 1;
        }
        assert_true(event->u.op.exit_ns >= event->u.op.enter_ns);
        break;
    case REC_EV_COMM:
        trace->comms++;
        note_comm(trace, &event->u.comm);
        break;
    case REC_EV_THREAD:
        trace->threads++;
        break;
    case REC_EV_LOSS:
        trace->lost += event->u.loss.count;
        break;
    case REC_EV_STALL:
        trace->stalls++;
        trace->stall_why = event->u.stall.why;
        trace->stall_threads = event->u.stall.nthreads;
        for (uint32_t i = 0; i < event->u.stall.nthreads; i++)
            trace->stall_frames += event->u.stall.threads[i].nframes;
        break;
    case REC_EV_OPEN:
        trace->open_calls = event->u.open.count;
        trace->open_kind = event->u.open.count ? event->u.open.ops[0].kind : 0;
        break;
    case REC_EV_END:
        trace->end = event->u.end.reason;
        trace->end_status = event->u.end.status;
        trace->end_signal = event->u.end.signal;
        trace->fault = event->u.end.fault;
        trace->end_frames = event->u.end.nframes;
        break;
    default:
        break;
    }
}

static struct trace *read_trace(const char *path)
{
    static struct trace trace;
    static uint64_t next[4096];
    memset(&trace, 0, sizeof(trace));
    memset(next, 0, sizeof(next));
    struct rec_reader *reader;
    struct rec_error err = {0};
    struct rec_event event;
    assert_int_equal(rec_reader_open(path, &reader, &err), REC_OK);
    snprintf(trace.meta, sizeof(trace.meta), "%s", rec_reader_meta(reader));
    while (rec_reader_next(reader, &event, &err) == REC_OK)
        take_event(&trace, &event, next);
    struct rec_reader_stats stats;
    rec_reader_stats(reader, &stats);
    assert_int_equal(stats.damages, 0);
    trace.closed = stats.closed;
    rec_reader_close(reader);
    return &trace;
}

static struct trace *only_trace(void)
{
    char path[256];
    assert_int_equal(count_files(traces, ".frec", path, sizeof(path)), 1);
    return read_trace(path);
}

/* ---- tests ----------------------------------------------------------------------------------- */

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
    char directory[128], path[256];
    assert_killed(run("raise", "9"), SIGKILL);
    snprintf(directory, sizeof(directory), "%s/frec-%u", live_dir, (unsigned)geteuid());
    assert_int_equal(count_files(directory, ".live", path, sizeof(path)), 1);
    struct rec_live live;
    assert_int_equal(rec_live_map(path, false, &live, NULL), REC_OK);
    assert_int_equal(atomic_load(&live.threads[0].ordinal), 11);
    assert_int_equal(atomic_load(&live.comms[0].next_seq), 11);
    assert_false(rec_live_process_alive(&live));
    assert_string_equal(live.header->frec_dir, traces);
    rec_live_unmap(&live);
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

static void errno_comes_through(void **state)
{
    (void)state;
    assert_exit(run("errno", NULL), 0);
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

/* Killed inside a call: the trace tells all that returned and what was open, and so does the region. */
static void a_kill_inside_a_call_shows_the_call(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        const char *const settings[] = {"STUB_NCCL_BLOCK_MS", "60000", NULL};
        child_environment(settings);
        execl(client, client, "stuck", (char *)NULL);
        _exit(127);
    }
    usleep(800000);
    kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    assert_killed(status, SIGKILL);
    struct trace *trace = only_trace();
    assert_int_equal(trace->ops, 11);
    assert_int_equal(trace->open_calls, 1);
    assert_int_equal(trace->open_kind, REC_COMM_FINALIZE);
    assert_int_equal(trace->end, REC_END_NONE);

    char directory[128], path[256];
    struct rec_live live;
    struct rec_slot slot;
    snprintf(directory, sizeof(directory), "%s/frec-%u", live_dir, (unsigned)geteuid());
    assert_int_equal(count_files(directory, ".live", path, sizeof(path)), 1);
    assert_int_equal(rec_live_map(path, false, &live, NULL), REC_OK);
    assert_true(rec_live_open_op(&live, 0, &slot));
    assert_int_equal(slot.kind, REC_COMM_FINALIZE);
    assert_int_equal(slot.seq, 11);
    rec_live_unmap(&live);
}

/* Same pid, same start time, another program: the region tells that its recorder is gone. */
static void a_program_that_becomes_another_is_told_apart(void **state)
{
    (void)state;
    char directory[128], path[256];
    struct rec_live live;
    pid_t child = fork();
    if (child == 0) {
        child_environment(NULL);
        execl(client, client, "becomes", (char *)NULL);
        _exit(127);
    }
    usleep(400000);
    snprintf(directory, sizeof(directory), "%s/frec-%u", live_dir, (unsigned)geteuid());
    uint32_t count = count_files(directory, ".live", path, sizeof(path));
    enum rec_code mapped = rec_live_map(path, false, &live, NULL);
    enum rec_live_process before = REC_LIVE_PROCESS_GONE, after = before;
    if (mapped == REC_OK) {
        before = rec_live_process(&live);
        for (int i = 0; i < 100 && (after = rec_live_process(&live)) == REC_LIVE_PROCESS_RUNS; i++)
            usleep(100000);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(count, 1);
    assert_int_equal(mapped, REC_OK);
    assert_int_equal(before, REC_LIVE_PROCESS_RUNS);
    assert_int_equal(after, REC_LIVE_PROCESS_REPLACED);
    assert_int_equal(rec_live_process(&live), REC_LIVE_PROCESS_GONE);
    rec_live_unmap(&live);
}

static void a_stopped_program_still_runs(void **state)
{
    (void)state;
    char directory[128], path[256];
    struct rec_live live;
    pid_t child = fork();
    if (child == 0) {
        child_environment(NULL);
        execl(client, client, "idle", "60", (char *)NULL);
        _exit(127);
    }
    usleep(400000);
    kill(child, SIGSTOP);
    snprintf(directory, sizeof(directory), "%s/frec-%u", live_dir, (unsigned)geteuid());
    uint32_t count = count_files(directory, ".live", path, sizeof(path));
    enum rec_code mapped = rec_live_map(path, true, &live, NULL);
    if (mapped == REC_OK) /* as if it had stood still for an hour */
        atomic_fetch_sub(&live.header->alive_ns, UINT64_C(3600000000000));
    enum rec_live_process state_then = mapped == REC_OK ? rec_live_process(&live) : REC_LIVE_PROCESS_GONE;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(count, 1);
    assert_int_equal(mapped, REC_OK);
    assert_int_equal(state_then, REC_LIVE_PROCESS_RUNS);
    rec_live_unmap(&live);
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
    char path[160];
    snprintf(path, sizeof(path), "%s/frec-%u", live_dir, (unsigned)geteuid());
    shell("rm -rf %s", path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0777), 0);
    assert_exit(run("ops", "10"), 0);
    assert_non_null(strstr(only_trace()->meta, "live_error"));
    shell("rm -rf %s", traces);
    shell("rm -rf %s", path);
    assert_int_equal(symlink("/tmp", path), 0);
    assert_exit(run("ops", "10"), 0);
    assert_non_null(strstr(only_trace()->meta, "live_error"));
}

/* Killed processes leave regions; a later process clears away what is a day old and only that. */
static void old_regions_are_cleared_away(void **state)
{
    (void)state;
    char directory[128], path[256];
    assert_killed(run("raise", "9"), SIGKILL);
    assert_killed(run("raise", "9"), SIGKILL);
    snprintf(directory, sizeof(directory), "%s/frec-%u", live_dir, (unsigned)geteuid());
    assert_int_equal(count_files(directory, ".live", path, sizeof(path)), 2);
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
    char directory[128], path[256];
    struct rec_live live;
    int status = run("raise", "9");
    snprintf(directory, sizeof(directory), "%s/frec-%u", live_dir, (unsigned)geteuid());
    uint32_t count = count_files(directory, ".live", path, sizeof(path));
    enum rec_code mapped = rec_live_map(path, false, &live, NULL);
    uint64_t bytes = mapped == REC_OK ? live.bytes : 0;
    if (mapped == REC_OK)
        rec_live_unmap(&live);
    snprintf(command, sizeof(command), "mount -o remount,size=6m %s", live_dir);
    int shrunk = system(command);
    shell("rm -rf %s", traces);
    int status_small = run("ops", "10");
    shell("umount %s", live_dir);
    assert_killed(status, SIGKILL);
    assert_int_equal(count, 1);
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
    if (argc != 9)
        return 2;
    const char **const paths[] = {&recorder, &client, &opener, &nccl, &old_nccl, &other_nccl, &plugin};
    for (int i = 0; i < 7; i++)
        if (!(*paths[i] = realpath(argv[i + 1], NULL)))
            return 2;
    unsetenv("LD_LIBRARY_PATH");
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_run_leaves_one_closed_trace),
        TEST(secrets_of_the_command_line_stay_out),
        TEST(every_function_of_the_table_is_recorded),
        TEST(inert_without_nccl_calls),
        TEST(disabled_is_disabled),
        TEST(talks_only_when_asked),
        TEST(threads_come_and_go),
        TEST(communicators_come_and_go),
        TEST(a_full_ring_loses_and_counts),
        TEST(children_of_fork_start_afresh),
        TEST(no_descriptor_reaches_a_new_program),
        TEST(a_fault_stays_a_fault),
        TEST(a_handler_of_the_program_still_runs),
        TEST(a_survived_fault_is_no_end),
        TEST(a_later_handler_replaces_ours),
        TEST(abort_and_signals_end_the_program_as_ever),
        TEST(quick_ends_are_complete),
        TEST(sigkill_leaves_the_region),
        TEST(a_missing_function_fails_cleanly),
        TEST(libraries_opened_by_the_program_are_recorded),
        TEST(two_libraries_are_kept_apart),
        TEST(a_library_opened_after_fork_is_recorded),
        TEST(calls_past_the_recorder_are_told),
        TEST(ctypes_is_recorded),
        TEST(errno_comes_through),
        TEST(idleness_is_reported_once_with_stacks),
        TEST(a_call_that_does_not_return_is_reported_once),
        TEST(a_kill_inside_a_call_shows_the_call),
        TEST(a_program_that_becomes_another_is_told_apart),
        TEST(a_stopped_program_still_runs),
        TEST(unusable_directories_do_no_harm),
        TEST(old_regions_are_cleared_away),
        TEST(little_memory_is_left_to_others),
        TEST(relative_directories_mean_the_start),
        TEST(memory_stays_below_sixteen_mebibytes),
    };
    const struct CMUnitTest sanitized[] = {
        TEST(a_run_leaves_one_closed_trace),
        TEST(every_function_of_the_table_is_recorded),
        TEST(threads_come_and_go),
        TEST(communicators_come_and_go),
        TEST(a_full_ring_loses_and_counts),
        TEST(quick_ends_are_complete),
        TEST(errno_comes_through),
        TEST(idleness_is_reported_once_with_stacks),
        TEST(unusable_directories_do_no_harm),
    };
    if (strcmp(argv[8], "none") == 0)
        return cmocka_run_group_tests(tests, NULL, NULL);
    return cmocka_run_group_tests(sanitized, NULL, NULL);
}
