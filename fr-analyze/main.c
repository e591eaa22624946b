#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "again.h"
#include "analyze.h"
#include "fr-common.h"
#ifdef HAVE_BROWSER
#include "tui/browse.h"
#endif
#include "watch.h"
#include "work.h"

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

static int report(const struct work_result *result, const struct options *options)
{
    if (options->json)
        return print_json(result->job, result->verdict);
    print_verdict(result->job, result->verdict);
    if (options->census)
        print_census(result->verdict->census);
    return fr_finish((int)result->verdict->status);
}

static int complain(const struct work_order *order, const struct work_result *result)
{
    if (result->code == REC_ERR_MIXED && result->job)
        return fr_choose_job(order->dirs[0], result->job, &result->err);
    return fr_error(&result->err);
}

#ifdef HAVE_BROWSER
/* The job may run on: the browser then goes with it. */
static int browse_live(const struct work_order *order, struct work_result *result,
                       const struct browse_options *how)
{
    struct browse_again looking = {.look = again_look, .keep = again_keep};
    struct browse_options following = *how;
    struct again *again = again_new(order, result);
    if (!again)
        return browse_run(result->job, result->verdict, how);
    looking.context = again;
    following.again = &looking;
    int status = browse_run(result->job, result->verdict, &following);
    again_free(again);
    *result = (struct work_result){0};
    return status;
}

static void look(void *work, struct browse_progress *progress)
{
    struct work_state state;
    work_look(work, &state);
    progress->over = state.over;
    progress->part = state.total ? (double)state.done / (double)state.total : -1;
    work_say(&state, progress->text, sizeof progress->text);
}

/* The terminal's thread paints while another one works. */
static int browse(const struct work_order *order, const struct options *options)
{
    const struct browse_options how = {.mono = options->mono, .ascii = options->ascii};
    struct work_result result;
    int signo, status;
    struct work *work = work_start(order);
    if (!work)
        return fr_errorf(NULL, "cannot start a thread");
    enum browse_wait came = browse_wait(&how, order->dirs[0], look, work, &signo);
    work_end(work, came == BROWSE_READY, &result);
    if (came == BROWSE_LEFT) {
        browse_pass_on(signo);
        status = REC_STATUS_INCONCLUSIVE;
    } else if (came == BROWSE_NO_TERMINAL) {
        status = FR_EXIT_ERROR;
    } else if (result.code == REC_OK) {
        status = fr_job_runs(result.job) ? browse_live(order, &result, &how)
                                         : browse_run(result.job, result.verdict, &how);
    } else {
        browse_close();
        status = complain(order, &result);
    }
    work_result_fini(&result);
    return status;
}
#else
static int browse(const struct work_order *order, const struct options *options)
{
    (void)order;
    (void)options;
    return fr_errorf(NULL, "built without ncursesw: no --tui");
}
#endif

static int analyze(const char *const *dirs, size_t ndirs, const struct options *options)
{
    const struct work_order order = {
        .dirs = dirs, .ndirs = ndirs, .job = options->job, .analyze = options->analyze};
    struct work_result result;
    /* Without a terminal the browser is the report. */
    if (options->tui && !options->json && isatty(STDOUT_FILENO))
        return browse(&order, options);
    work_do(&order, &result);
    int status = result.code == REC_OK ? report(&result, options) : complain(&order, &result);
    work_result_fini(&result);
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
    w.job.analyze = true;
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
        default:
            return fr_bad_option(c, argv);
        }
    }
    if (optind == argc)
        return fr_usage_error("name the directory of the traces (FREC_DIR)");
    options.job.live_dir = fr_live_dir(live_dir);
    if (options.watch && options.tui)
        return fr_usage_error("--watch and --tui exclude each other");
    if (options.watch)
        return watch((const char *const *)argv + optind, (size_t)(argc - optind), &options);
    if (options.interval_sec || options.on_fault)
        return fr_usage_error("%s needs --watch", options.on_fault ? "--on-fault" : "--interval");
    return analyze((const char *const *)argv + optind, (size_t)(argc - optind), &options);
}
