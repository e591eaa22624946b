#include "preloaded.h"

const char *recorder, *client, *opener, *nccl, *old_nccl, *other_nccl, *plugin, *told_nccl;
bool preloaded_sanitized;
char base[64], traces[96], live_dir[96], regions[128];
char output[65536];

void shell(const char *format, const char *argument)
{
    char command[256];
    snprintf(command, sizeof(command), format, argument);
    assert_int_equal(system(command), 0);
}

int set_up(void **state)
{
    (void)state;
    strcpy(base, "/tmp/test-inject-XXXXXX");
    if (!mkdtemp(base))
        return -1;
    snprintf(traces, sizeof(traces), "%s/traces", base);
    snprintf(live_dir, sizeof(live_dir), "%s/live", base);
    snprintf(regions, sizeof(regions), "%s/frec-%u", live_dir, (unsigned)geteuid());
    return mkdir(live_dir, 0700);
}

int tear_down(void **state)
{
    (void)state;
    shell("chmod -R u+rwx %s", base);
    shell("rm -rf %s", base);
    return 0;
}

bool preloaded_arguments(int argc, char **argv)
{
    const char **const paths[] = {&recorder, &client,     &opener, &nccl,
                                  &old_nccl, &other_nccl, &plugin, &told_nccl};
    if (argc != 10)
        return false;
    for (int i = 0; i < 8; i++)
        if (!(*paths[i] = realpath(argv[i + 1], NULL)))
            return false;
    preloaded_sanitized = strcmp(argv[9], "none") != 0;
    unsetenv("LD_LIBRARY_PATH");
    return true;
}

/* ---- running -------------------------------------------------------------------------------- */

void child_environment(const char *const *settings)
{
    setenv("LD_PRELOAD", recorder, 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
    setenv("FREC_DIR", traces, 1);
    setenv("FREC_LIVE_DIR", live_dir, 1);
    for (; settings && settings[0]; settings += 2)
        settings[1] ? setenv(settings[0], settings[1], 1) : unsetenv(settings[0]);
}

int run_program(const char *const *settings, const char *const *arguments)
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

int run_with(const char *const *settings, const char *what, const char *number)
{
    const char *const arguments[] = {client, what, number, NULL};
    return run_program(settings, arguments);
}

int run(const char *what, const char *number)
{
    return run_with(NULL, what, number);
}

void assert_exit(int status, int want)
{
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), want);
}

void assert_killed(int status, int want)
{
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), want);
}

/* ---- traces ---------------------------------------------------------------------------------- */

uint32_t count_files(const char *directory, const char *suffix, char *first, size_t size)
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

uint32_t count_traces(void)
{
    return count_files(traces, ".frec", NULL, 0);
}

uint32_t count_live(void)
{
    return count_files(regions, ".live", NULL, 0);
}

bool map_only_live(bool writable, struct rec_live *live)
{
    char path[256];
    return count_files(regions, ".live", path, sizeof(path)) == 1 &&
           rec_live_map(path, writable, live, NULL) == REC_OK;
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
        if (event->u.op.flags & REC_OF_NO_SEQ)
            trace->refused[event->u.op.kind]++;
        else
            trace->seqs[event->u.op.kind] = event->u.op.seq;
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
    case REC_EV_FRONTIER:
        trace->next_seq = event->u.frontier.next_seq;
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

struct trace *read_trace(const char *path)
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

struct trace *only_trace(void)
{
    char path[256];
    assert_int_equal(count_files(traces, ".frec", path, sizeof(path)), 1);
    return read_trace(path);
}
