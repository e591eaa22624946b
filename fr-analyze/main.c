#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analyze.h"
#include "fr-common.h"
#ifdef HAVE_BROWSER
#include "tui/browse.h"
#endif
#include "watch.h"

static const char help[] =
    "Usage: fr-analyze [options] DIR...\n"
    "Say what went wrong in a recorded NCCL job: which rank did not do what, and why.\n"
    "\n"
    "      --json            one JSON document (schema fr-verdict/1)\n"
    "      --census          list all communicators, runs and clocks of the job as well\n"
    "      --tui             browse the verdict, ranks and calls in the terminal\n"
    "  -C, --no-color        with --tui: monochrome (also: NO_COLOR)\n"
    "  -U, --no-unicode      with --tui: ASCII only\n"
    "  -j, --job ID          this job when there are several; \"latest\" is the last one\n"
    "      --stall-sec N     silence of a running job that counts as a hang (default 30)\n"
    "      --live-dir DIR    where live regions lie (FREC_LIVE_DIR, else /dev/shm)\n"
    "      --no-live         read files only\n"
    "      --watch           keep looking at a running job; tell of each fault, and of its end\n"
    "      --interval S      seconds between looks (default 2)\n"
    "      --on-fault CMD    run CMD when a fault is found; the verdict is its input\n"
    "  -h, --help            show this text\n"
    "      --version         show the version\n"
    "\n"
    "Exit status: 0 healthy, 1 fault found, 2 usage or input error, 3 inconclusive.\n";

enum {
    OPT_JSON = 256,
    OPT_CENSUS,
    OPT_TUI,
    OPT_STALL_SEC,
    OPT_LIVE_DIR,
    OPT_NO_LIVE,
    OPT_WATCH,
    OPT_INTERVAL,
    OPT_ON_FAULT,
    OPT_VERSION
};

static const struct option long_options[] = {
    {"json", no_argument, NULL, OPT_JSON},
    {"census", no_argument, NULL, OPT_CENSUS},
    {"tui", no_argument, NULL, OPT_TUI},
    {"no-color", no_argument, NULL, 'C'},
    {"no-unicode", no_argument, NULL, 'U'},
    {"job", required_argument, NULL, 'j'},
    {"stall-sec", required_argument, NULL, OPT_STALL_SEC},
    {"live-dir", required_argument, NULL, OPT_LIVE_DIR},
    {"no-live", no_argument, NULL, OPT_NO_LIVE},
    {"watch", no_argument, NULL, OPT_WATCH},
    {"interval", required_argument, NULL, OPT_INTERVAL},
    {"on-fault", required_argument, NULL, OPT_ON_FAULT},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {0},
};

struct options {
    bool json, census;
    bool tui, mono, ascii;
    bool watch;
    uint32_t interval_sec; /* 0 = not given */
    const char *on_fault;
    struct rec_job_options job;
    struct rec_analyze_options analyze;
};

static int print_json(const struct rec_job *job, const struct rec_verdict *verdict)
{
    char *text = rec_verdict_json(job, verdict);
    if (!text)
        return fr_errorf(NULL, "no memory");
    puts(text);
    free(text);
    return fr_finish((int)verdict->status);
}

/* Without a terminal the browser is the report. */
static int show(const struct rec_job *job, const struct rec_verdict *verdict, const struct options *options)
{
    if (options->tui && isatty(STDOUT_FILENO)) {
#ifdef HAVE_BROWSER
        struct browse_options browse = {.mono = options->mono, .ascii = options->ascii};
        return browse_run(job, verdict, &browse);
#else
        return fr_errorf(NULL, "built without ncursesw: no --tui");
#endif
    }
    print_verdict(job, verdict);
    if (options->census)
        print_census(verdict->census);
    return fr_finish((int)verdict->status);
}

static int analyze(const char *const *dirs, size_t ndirs, const struct options *options)
{
    struct rec_error err = {0};
    struct rec_job *job = NULL;
    struct rec_verdict *verdict = NULL;
    int status;
    enum rec_code code = rec_job_open(dirs, ndirs, &options->job, &job, &err);
    if (code == REC_ERR_MIXED && job)
        status = fr_choose_job(dirs[0], job, &err);
    else if (code != REC_OK || (code = rec_analyze(job, &options->analyze, &verdict, &err)) != REC_OK)
        status = fr_error(&err);
    else if (options->json)
        status = print_json(job, verdict);
    else
        status = show(job, verdict, options);
    rec_verdict_free(verdict);
    rec_job_close(job);
    return status;
}

static int watch(const char *const *dirs, size_t ndirs, const struct options *options)
{
    struct watch_options w = {.dirs = dirs,
                              .ndirs = ndirs,
                              .job = options->job,
                              .analyze = options->analyze,
                              .json = options->json,
                              .on_fault = options->on_fault};
    w.interval_sec = options->interval_sec ? options->interval_sec : WATCH_DEFAULT_INTERVAL;
    return watch_run(&w);
}

int main(int argc, char **argv)
{
    struct options options = {0};
    fr_init("fr-analyze");
    const char *live_dir = NULL;
    int c;
    while ((c = getopt_long(argc, argv, ":CUj:h", long_options, NULL)) != -1) {
        uint64_t seconds;
        switch (c) {
        case OPT_JSON:
            options.json = true;
            break;
        case OPT_CENSUS:
            options.census = true;
            break;
        case OPT_TUI:
            options.tui = true;
            break;
        case 'C':
            options.mono = true;
            break;
        case 'U':
            options.ascii = true;
            break;
        case 'j':
            options.job.job_id = optarg;
            break;
        case OPT_STALL_SEC:
            if (!fr_parse_u64(optarg, 86400, &seconds) || !seconds)
                return fr_usage_error("--stall-sec: no number of seconds: %s", optarg);
            options.analyze.stall_sec = (uint32_t)seconds;
            break;
        case OPT_LIVE_DIR:
            live_dir = optarg;
            break;
        case OPT_NO_LIVE:
            options.job.no_live = true;
            break;
        case OPT_WATCH:
            options.watch = true;
            break;
        case OPT_INTERVAL:
            if (!fr_parse_u64(optarg, 86400, &seconds) || !seconds)
                return fr_usage_error("--interval: no number of seconds: %s", optarg);
            options.interval_sec = (uint32_t)seconds;
            break;
        case OPT_ON_FAULT:
            options.on_fault = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            return fr_finish(0);
        case OPT_VERSION:
            fr_version();
            return fr_finish(0);
        case ':':
            return fr_usage_error("%s needs an argument", argv[optind - 1]);
        default:
            if (optopt && optopt < 256)
                return fr_usage_error("unknown option -%c", optopt);
            return fr_usage_error("unknown option %s", argv[optind - 1]);
        }
    }
    if (optind == argc)
        return fr_usage_error("name the directory of the traces (FREC_DIR)");
    options.job.live_dir = fr_live_dir(live_dir);
    options.job.analyze = true;
    if (options.watch && options.tui)
        return fr_usage_error("--watch and --tui exclude each other");
    if (options.watch)
        return watch((const char *const *)argv + optind, (size_t)(argc - optind), &options);
    if (options.interval_sec || options.on_fault)
        return fr_usage_error("%s needs --watch", options.on_fault ? "--on-fault" : "--interval");
    return analyze((const char *const *)argv + optind, (size_t)(argc - optind), &options);
}
