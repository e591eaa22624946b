#include <errno.h>
#include <getopt.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fr-top/diagnosis.h"
#include "fr-top/top.h"
#include "fr-common.h"

enum { OPT_ONCE = 256, OPT_JSON, OPT_METRICS, OPT_LIVE_DIR, OPT_JOB, OPT_STALL, OPT_NO_VERDICT };

static const char usage[] =
    "usage: fr-top [options] [DIR]\n"
    "\n"
    "Live monitor of recorded NCCL jobs: every rank of this host, or with DIR only the\n"
    "processes that record into that directory.\n"
    "\n"
    "  -d, --delay SECS        time between refreshes (default 1)\n"
    "      --once              print one snapshot as text and exit\n"
    "      --json              print one snapshot as a JSON document and exit\n"
    "      --openmetrics FILE  write the figures to FILE at each refresh (with --once: once)\n"
    "      --job ID            only this job\n"
    "      --stall SECS        a rank is stalled after so long without a call (default 30)\n"
    "      --no-verdict        only what counters tell, no diagnosis (fr-analyze's)\n"
    "      --live-dir DIR      where live regions lie (default $FREC_LIVE_DIR or /dev/shm)\n"
    "  -C, --no-color          monochrome (also: NO_COLOR)\n"
    "  -U, --no-unicode        ASCII only\n"
    "  -h, --help              this text\n"
    "      --version           version\n"
    "\n"
    "Without a terminal on standard output one snapshot is printed, as with --once.\n"
    "Exit status: 0, or 2 for usage and input errors.\n";

struct arguments {
    struct top_options watch;
    struct top_screen_options screen;
    bool once, json, no_verdict;
};

static bool parse_seconds(const char *text, double least, double most, double *seconds)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !(value >= least && value <= most))
        return false;
    *seconds = value;
    return true;
}

/* 0 = go on, else the exit status + 1. */
static int parse(int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = {
        {"delay", required_argument, NULL, 'd'},
        {"once", no_argument, NULL, OPT_ONCE},
        {"json", no_argument, NULL, OPT_JSON},
        {"openmetrics", required_argument, NULL, OPT_METRICS},
        {"job", required_argument, NULL, OPT_JOB},
        {"stall", required_argument, NULL, OPT_STALL},
        {"no-verdict", no_argument, NULL, OPT_NO_VERDICT},
        {"live-dir", required_argument, NULL, OPT_LIVE_DIR},
        {"no-color", no_argument, NULL, 'C'},
        {"no-unicode", no_argument, NULL, 'U'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {0},
    };
    const char *live_dir = NULL;
    double seconds;
    int option;
    *arguments = (struct arguments){.watch.stall_sec = REC_STALL_SEC, .screen.delay_ms = 1000};
    while ((option = getopt_long(argc, argv, "d:CUh", options, NULL)) != -1) {
        switch (option) {
        case 'd':
            if (!parse_seconds(optarg, 0.1, 3600, &seconds))
                return fr_usage_error("--delay: '%s' is no number of seconds from 0.1 to 3600", optarg) + 1;
            arguments->screen.delay_ms = (uint32_t)(seconds * 1000);
            break;
        case OPT_STALL:
            if (!parse_seconds(optarg, 1, 1e6, &seconds))
                return fr_usage_error("--stall: '%s' is no number of seconds from 1 on", optarg) + 1;
            arguments->watch.stall_sec = (uint32_t)seconds;
            break;
        case OPT_ONCE:
            arguments->once = true;
            break;
        case OPT_JSON:
            arguments->json = true;
            break;
        case OPT_METRICS:
            arguments->screen.metrics = optarg;
            break;
        case OPT_JOB:
            arguments->watch.job = optarg;
            break;
        case OPT_NO_VERDICT:
            arguments->no_verdict = true;
            break;
        case OPT_LIVE_DIR:
            live_dir = optarg;
            break;
        case 'C':
            arguments->screen.mono = true;
            break;
        case 'U':
            arguments->screen.ascii = true;
            break;
        case 'h':
            fputs(usage, stdout);
            return fr_finish(0) + 1;
        case 'V':
            return fr_finish(fr_version()) + 1;
        default:
            fputs("Try 'fr-top --help'.\n", stderr);
            return FR_EXIT_ERROR + 1;
        }
    }
    if (argc - optind > 1)
        return fr_usage_error("one directory at most") + 1;
    arguments->watch.dir = argv[optind];
    arguments->watch.live_dir = fr_live_dir(live_dir);
    return 0;
}

static void pause_ms(uint32_t ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

/* An exporter on each host must not read all traces of a job on a shared file system. */
static bool wants_verdict(const struct arguments *arguments)
{
    return !arguments->no_verdict && (arguments->screen.metrics == NULL || arguments->watch.dir != NULL);
}

/* One snapshot; two looks a moment apart, so that there are rates. */
static int run_once(struct top_watch *watch, const struct arguments *arguments, struct top_verdict *verdict)
{
    struct top_snapshot *snapshot = NULL;
    struct rec_error err;
    if (top_watch_refresh(watch, &snapshot, &err) != REC_OK)
        return fr_error(&err);
    if (snapshot->up > 0) {
        pause_ms(250);
        if (top_watch_refresh(watch, &snapshot, &err) != REC_OK)
            return fr_error(&err);
    }
    if (wants_verdict(arguments)) {
        top_diagnosis_once(&arguments->watch, snapshot, verdict);
        snapshot->verdict = verdict;
    }
    if (snapshot->warning[0] != '\0')
        fr_errorf(NULL, "%s", snapshot->warning);
    if (arguments->screen.metrics != NULL &&
        top_write_metrics(snapshot, arguments->screen.metrics, &err) != REC_OK)
        return fr_error(&err);
    if (arguments->json)
        return fr_finish(top_write_json(snapshot));
    if (arguments->screen.metrics == NULL || arguments->once)
        return fr_finish(top_write_text(snapshot));
    return 0;
}

static volatile sig_atomic_t stop;

static void on_stop(int signo)
{
    (void)signo;
    stop = 1;
}

/* No screen: keeps the metrics file up to date until a signal ends it. */
static int run_exporter(struct top_watch *watch, const struct arguments *arguments)
{
    struct sigaction action = {.sa_handler = on_stop};
    struct top_diagnosis *diagnosis =
        wants_verdict(arguments) ? top_diagnosis_start(&arguments->watch) : NULL;
    struct rec_error err;
    enum rec_code code = REC_OK;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    while (!stop && code == REC_OK) {
        struct top_snapshot *snapshot = NULL;
        code = top_watch_refresh(watch, &snapshot, &err);
        if (code == REC_OK && diagnosis != NULL) {
            top_diagnosis_ask(diagnosis, snapshot);
            snapshot->verdict = top_diagnosis_get(diagnosis);
        }
        if (code == REC_OK)
            code = top_write_metrics(snapshot, arguments->screen.metrics, &err);
        if (code == REC_OK)
            pause_ms(arguments->screen.delay_ms);
    }
    top_diagnosis_stop(diagnosis);
    return code == REC_OK ? 0 : fr_error(&err);
}

int main(int argc, char **argv)
{
    static struct arguments arguments; /* a diagnosis that is at work may outlive main */
    struct rec_error err = {0};
    fr_init("fr-top");
    setlocale(LC_CTYPE, "");
    int done = parse(argc, argv, &arguments);
    if (done != 0)
        return done - 1;
    bool screen = !arguments.once && !arguments.json && isatty(STDOUT_FILENO);
    arguments.watch.patience_ms = screen ? 200 : 0;
    arguments.screen.diagnose = arguments.no_verdict ? NULL : &arguments.watch;
    struct top_watch *watch = top_watch_open(&arguments.watch, &err);
    if (watch == NULL)
        return fr_error(&err);
    int status;
    if (screen)
        status = top_screen_run(watch, &arguments.screen);
    else if (arguments.screen.metrics != NULL && !arguments.once && !arguments.json)
        status = run_exporter(watch, &arguments);
    else {
        struct top_verdict verdict = {0};
        status = run_once(watch, &arguments, &verdict);
        top_verdict_clear(&verdict);
    }
    top_watch_close(watch);
    return status;
}
