/*
 * launch: starts N processes of a job as a cluster launcher would, and leaves none behind.
 *
 * Every rank becomes a process group of its own. The launcher is a subreaper, so that
 * grandchildren whose parent died come to it and are killed too; should the launcher itself be
 * killed, the kernel kills the ranks (PR_SET_PDEATHSIG).
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_USAGE   2
#define EXIT_TIMEOUT 124

static const char usage[] =
    "usage: launch -n N [options] [--] PROGRAM [ARGUMENT…]\n"
    "Start N processes of a job with rank variables set, wait, say how each ended.\n"
    "\n"
    "  -n, --ranks N        number of processes\n"
    "  -t, --timeout S      kill all that still run after S seconds (may be a fraction)\n"
    "      --kill-signal N  signal for that (default 9)\n"
    "      --scheme NAME    whose variables: torchrun (default), slurm, ompi, pmi,\n"
    "                       own (JOB_RANK …, which only these programs know)\n"
    "      --job-id ID      job id (default: made up)\n"
    "      --shim FILE      preload FILE into every rank\n"
    "      --lib DIR        put DIR in front of LD_LIBRARY_PATH\n"
    "      --env [R:]K=V    set a variable, for rank R only if given\n"
    "  -q, --quiet          say nothing about ranks that ended well\n"
    "      --help           this text\n"
    "\n"
    "Exit status: 0 when every rank's was 0, 124 after the timeout, else that of the lowest\n"
    "rank that failed (128 + N for signal N), 2 for a wrong command line.\n";

struct options {
    int ranks;
    double timeout;
    int kill_signal;
    const char *scheme, *job_id, *shim, *lib;
    const char **env;
    int nenv;
    bool quiet;
    char **argv;
};

struct child {
    pid_t pid;
    bool running, killed;
    int status;
};

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "launch: %s: %s\n", what, why);
    exit(EXIT_USAGE);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the children's environment ---- */

static void set_int(const char *name, long value)
{
    char text[24];
    snprintf(text, sizeof text, "%ld", value);
    setenv(name, text, 1);
}

static void prepend(const char *name, const char *value)
{
    const char *old = getenv(name);
    char *joined;
    if (asprintf(&joined, "%s%s%s", value, old && *old ? ":" : "", old ? old : "") < 0)
        _exit(127);
    setenv(name, joined, 1);
    free(joined);
}

static const struct scheme {
    const char *name, *rank, *size, *local, *job;
} schemes[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID"},
    {"ompi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_MCA_ess_base_jobid"},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "FREC_JOB_ID"},
    {"own", "JOB_RANK", "JOB_SIZE", "JOB_LOCAL_RANK", "JOB_ID"}, /* no launcher that anybody knows */
};

static const struct scheme *find_scheme(const char *name)
{
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (!strcmp(schemes[i].name, name))
            return &schemes[i];
    fail(name, "no such scheme");
}

static void set_environment(const struct options *options, int rank, const char *rendezvous)
{
    const struct scheme *scheme = find_scheme(options->scheme);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        unsetenv(schemes[i].rank);
        unsetenv(schemes[i].job);
    }
    set_int(scheme->rank, rank);
    set_int(scheme->size, options->ranks);
    set_int(scheme->local, rank);
    setenv(scheme->job, options->job_id, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_int("MASTER_PORT", 29500 + getppid() % 1000);
    setenv("JOB_RENDEZVOUS", rendezvous, 1);
    if (options->lib)
        prepend("LD_LIBRARY_PATH", options->lib);
    for (int i = 0; i < options->nenv; i++) {
        const char *assignment = options->env[i];
        char *end;
        long only = strtol(assignment, &end, 10);
        if (end != assignment && *end == ':') {
            if (only != rank)
                continue;
            assignment = end + 1;
        }
        char *copy = strdup(assignment);
        char *equals = copy ? strchr(copy, '=') : NULL;
        if (!equals)
            _exit(127);
        *equals = 0;
        setenv(copy, equals + 1, 1);
        free(copy);
    }
    if (options->shim)
        prepend("LD_PRELOAD", options->shim);
}

static pid_t start_rank(const struct options *options, int rank, const char *rendezvous, const sigset_t *mask)
{
    pid_t launcher = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return -1;
    if (pid) {
        setpgid(pid, pid); /* also here: a kill that follows at once must find the group */
        return pid;
    }
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher)
        _exit(127);
    sigprocmask(SIG_SETMASK, mask, NULL);
    set_environment(options, rank, rendezvous);
    execvp(options->argv[0], options->argv);
    fprintf(stderr, "launch: %s: %s\n", options->argv[0], strerror(errno));
    _exit(127);
}

/* ---- waiting ---- */

static void reap(struct child *children, int n, int *running)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < n; i++)
            if (children[i].pid == pid) {
                children[i].running = false;
                children[i].status = status;
                --*running;
            }
}

static void signal_running(struct child *children, int n, int signal)
{
    for (int i = 0; i < n; i++)
        if (children[i].running) {
            children[i].killed = true;
            kill(-children[i].pid, signal);
        }
}

/* Waits until all ended or seconds passed (negative: for ever). False when a signal asks us to stop. */
static bool wait_all(struct child *children, int n, int *running, double seconds)
{
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGHUP);
    double end = now_s() + seconds;
    for (;;) {
        reap(children, n, running);
        if (!*running)
            return true;
        double left = seconds < 0 ? 3600 : end - now_s();
        if (left <= 0)
            return true;
        struct timespec wait = {.tv_sec = (time_t)left};
        wait.tv_nsec = (long)((left - (double)wait.tv_sec) * 1e9);
        int got = sigtimedwait(&wanted, NULL, &wait);
        if (got == SIGINT || got == SIGTERM || got == SIGHUP)
            return false;
    }
}

/* Kills what the ranks left behind: their groups, and orphans that came to us as subreaper. */
static void sweep(const struct child *children, int n)
{
    for (int i = 0; i < n; i++)
        kill(-children[i].pid, SIGKILL);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    for (int found = 1; found;) { /* killing one may hand us its children */
        FILE *list = fopen(path, "re");
        int pid;
        found = 0;
        while (list && fscanf(list, "%d", &pid) == 1) {
            kill(pid, SIGKILL);
            found++;
        }
        if (list)
            fclose(list);
        for (int i = 0; i < found; i++)
            waitpid(-1, NULL, 0);
    }
}

static int exit_code(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int report(const struct options *options, const struct child *children, bool timed_out)
{
    int result = 0;
    for (int i = 0; i < options->ranks; i++) {
        int status = children[i].status;
        if (WIFSIGNALED(status))
            fprintf(stderr, "launch: rank %d: %s signal %d (%s)\n", i,
                    children[i].killed ? "killed by the launcher with" : "died of", WTERMSIG(status),
                    strsignal(WTERMSIG(status)));
        else if (!options->quiet || WEXITSTATUS(status))
            fprintf(stderr, "launch: rank %d: exit status %d\n", i, WEXITSTATUS(status));
        if (!result)
            result = exit_code(status);
    }
    return timed_out ? EXIT_TIMEOUT : result;
}

static int remove_directory(const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--", path, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

static int run(const struct options *options)
{
    char rendezvous[PATH_MAX];
    const char *tmp = getenv("TMPDIR");
    snprintf(rendezvous, sizeof rendezvous, "%s/launch.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(rendezvous))
        fail(rendezvous, strerror(errno));
    struct child *children = calloc((size_t)options->ranks, sizeof *children);
    if (!children)
        fail("ranks", strerror(errno));

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t block, before;
    sigfillset(&block);
    sigprocmask(SIG_BLOCK, &block, &before);
    int running = 0;
    for (int i = 0; i < options->ranks; i++) {
        children[i].pid = start_rank(options, i, rendezvous, &before);
        if (children[i].pid < 0) {
            signal_running(children, i, SIGKILL);
            wait_all(children, i, &running, -1);
            remove_directory(rendezvous);
            fail("fork", strerror(EAGAIN));
        }
        children[i].running = true;
        running++;
    }
    bool go_on = wait_all(children, options->ranks, &running, options->timeout > 0 ? options->timeout : -1);
    bool timed_out = go_on && running;
    if (running) {
        signal_running(children, options->ranks, go_on ? options->kill_signal : SIGTERM);
        wait_all(children, options->ranks, &running, 5);
        signal_running(children, options->ranks, SIGKILL);
        wait_all(children, options->ranks, &running, -1);
    }
    sweep(children, options->ranks);
    remove_directory(rendezvous);
    int result = report(options, children, timed_out);
    free(children);
    return result;
}

/* ---- command line ---- */

static long number(const char *option, const char *text, long low, long high)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        fail(option, "not a sensible number");
    return value;
}

int main(int argc, char **argv)
{
    enum { KILL_SIGNAL = 256, SCHEME, JOB_ID, SHIM, LIB, ENV, HELP };
    static const struct option longs[] = {{"ranks", required_argument, NULL, 'n'},
                                          {"timeout", required_argument, NULL, 't'},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {"kill-signal", required_argument, NULL, KILL_SIGNAL},
                                          {"scheme", required_argument, NULL, SCHEME},
                                          {"job-id", required_argument, NULL, JOB_ID},
                                          {"shim", required_argument, NULL, SHIM},
                                          {"lib", required_argument, NULL, LIB},
                                          {"env", required_argument, NULL, ENV},
                                          {"help", no_argument, NULL, HELP},
                                          {0}};
    char made_up[64];
    snprintf(made_up, sizeof made_up, "launch-%ld-%d", (long)time(NULL), (int)getpid());
    struct options options = {.kill_signal = SIGKILL, .scheme = "torchrun", .job_id = made_up};
    options.env = calloc((size_t)argc, sizeof *options.env);
    if (!options.env)
        fail("options", strerror(errno));
    for (int c; (c = getopt_long(argc, argv, "+n:t:q", longs, NULL)) != -1;) {
        switch (c) {
        case 'n':
            options.ranks = (int)number("--ranks", optarg, 1, 4096);
            break;
        case 't':
            options.timeout = strtod(optarg, NULL);
            break;
        case 'q':
            options.quiet = true;
            break;
        case KILL_SIGNAL:
            options.kill_signal = (int)number("--kill-signal", optarg, 1, 64);
            break;
        case SCHEME:
            options.scheme = find_scheme(optarg)->name;
            break;
        case JOB_ID:
            options.job_id = optarg;
            break;
        case SHIM:
            options.shim = optarg;
            break;
        case LIB:
            options.lib = optarg;
            break;
        case ENV:
            if (!strchr(optarg, '='))
                fail("--env", "wants [R:]NAME=VALUE");
            options.env[options.nenv++] = optarg;
            break;
        case HELP:
            fputs(usage, stdout);
            return 0;
        default:
            return EXIT_USAGE;
        }
    }
    options.argv = argv + optind;
    if (!options.ranks || !*options.argv) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    int result = run(&options);
    free(options.env);
    return result;
}
