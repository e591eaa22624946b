#include <getopt.h>
#include <string.h>

#include "dump.h"
#include "out.h"

bool dump_stacks;

static const char help[] =
    "Usage: fr-dump [options] FILE|DIR...\n"
    "Print the NCCL calls in recorded traces: one process (FILE) or a whole job (DIR).\n"
    "\n"
    "What to do\n"
    "      --json          one JSON object per call and line\n"
    "      --csv           a table for spreadsheets\n"
    "      --perfetto      a timeline for ui.perfetto.dev\n"
    "      --verify        check the files and sum up what they hold; 1 when one is damaged\n"
    "      --anonymize OUTDIR\n"
    "                      copy the traces without names of hosts, programs, people\n"
    "      --recover       write the live regions of dead processes to their directory\n"
    "\n"
    "Which calls\n"
    "  -r, --rank LIST     of these ranks (0-3,8)\n"
    "  -c, --comm NAME     on this communicator: its name, or the first digits of its uid\n"
    "  -o, --op LIST       of these kinds (AllReduce,Send)\n"
    "      --from TIME     not before, --to TIME not after; TIME is 04:20:05.5, a date with\n"
    "                      it (2026-11-30T04:20:05), or seconds since the epoch\n"
    "  -j, --job ID        of this job when there are several; \"latest\" is the last one\n"
    "  -a, --all           with --json: also the records that are no calls\n"
    "  -s, --stack         with each call the lines of code that led to it\n"
    "  -S, --by-site       sums over the calls of each line of code, as a table or with --json\n"
    "\n"
    "Where from\n"
    "      --live-dir DIR  where live regions lie (FREC_LIVE_DIR, else /dev/shm)\n"
    "      --no-live       read files only\n"
    "\n"
    "  -h, --help          show this text\n"
    "      --version       show the version\n";

enum {
    OPT_JSON = 256,
    OPT_CSV,
    OPT_PERFETTO,
    OPT_VERIFY,
    OPT_RECOVER,
    OPT_ANONYMIZE,
    OPT_FROM,
    OPT_TO,
    OPT_LIVE_DIR,
    OPT_NO_LIVE,
    OPT_VERSION
};

static const struct option long_options[] = {
    {"json", no_argument, NULL, OPT_JSON},
    {"csv", no_argument, NULL, OPT_CSV},
    {"perfetto", no_argument, NULL, OPT_PERFETTO},
    {"verify", no_argument, NULL, OPT_VERIFY},
    {"recover", no_argument, NULL, OPT_RECOVER},
    {"anonymize", required_argument, NULL, OPT_ANONYMIZE},
    {"rank", required_argument, NULL, 'r'},
    {"comm", required_argument, NULL, 'c'},
    {"op", required_argument, NULL, 'o'},
    {"from", required_argument, NULL, OPT_FROM},
    {"to", required_argument, NULL, OPT_TO},
    {"job", required_argument, NULL, 'j'},
    {"all", no_argument, NULL, 'a'},
    {"stack", no_argument, NULL, 's'},
    {"by-site", no_argument, NULL, 'S'},
    {"live-dir", required_argument, NULL, OPT_LIVE_DIR},
    {"no-live", no_argument, NULL, OPT_NO_LIVE},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {0},
};

/* Names as NCCL's, with or without the prefix, any case. */
static int parse_ops(const char *list, struct dump_options *options)
{
    options->any_kind = false;
    while (*list) {
        size_t length = strcspn(list, ",");
        const char *name = list;
        size_t name_length = length;
        if (length > 4 && strncasecmp(name, "nccl", 4) == 0) {
            name += 4;
            name_length -= 4;
        }
        bool found = false;
        for (unsigned kind = 0; kind < 256; kind++) {
            const char *known = rec_kind_name(kind);
            if (known && strlen(known) == name_length && strncasecmp(known, name, name_length) == 0)
                options->kinds[kind] = found = true;
        }
        if (!found)
            return fr_usage_error("--op: no NCCL call is named %.*s", (int)length, list);
        list += length + (list[length] == ',');
    }
    return 0;
}

static int set_mode(struct dump_options *options, enum dump_mode mode)
{
    if (options->mode != DUMP_TEXT && options->mode != mode)
        return fr_usage_error("choose one of --json, --csv, --perfetto, --verify, --recover, --anonymize");
    options->mode = mode;
    return 0;
}

/* 0, or an exit status. */
static int take_option(int c, char *const *argv, struct dump_options *options)
{
    switch (c) {
    case OPT_JSON:
        return set_mode(options, DUMP_JSON);
    case OPT_CSV:
        return set_mode(options, DUMP_CSV);
    case OPT_PERFETTO:
        return set_mode(options, DUMP_PERFETTO);
    case OPT_VERIFY:
        return set_mode(options, DUMP_VERIFY);
    case OPT_RECOVER:
        return set_mode(options, DUMP_RECOVER);
    case OPT_ANONYMIZE:
        options->outdir = optarg;
        return set_mode(options, DUMP_ANONYMIZE);
    case 'r':
        return fr_ranges_parse(optarg, &options->ranks)
                   ? 0
                   : fr_usage_error("--rank: no list of ranks: %s", optarg);
    case 'c':
        options->comm = optarg;
        return 0;
    case 'o':
        return parse_ops(optarg, options);
    case OPT_FROM:
        options->from = optarg;
        return 0;
    case OPT_TO:
        options->to = optarg;
        return 0;
    case 'j':
        options->job.job_id = optarg;
        return 0;
    case 'a':
        options->all = true;
        return 0;
    case 's':
        dump_stacks = true;
        return 0;
    case 'S':
        options->by_site = true;
        return 0;
    case OPT_LIVE_DIR:
        options->job.live_dir = optarg;
        return 0;
    case OPT_NO_LIVE:
        options->job.no_live = true;
        return 0;
    default:
        return fr_bad_option(c, argv);
    }
}

static int run(struct dump_options *options)
{
    if (options->mode == DUMP_VERIFY)
        return dump_verify(options);
    if (options->mode == DUMP_RECOVER)
        return dump_recover(options);
    if (options->mode == DUMP_ANONYMIZE)
        return dump_anonymize(options);
    return dump_calls(options);
}

int main(int argc, char **argv)
{
    struct dump_options options = {.any_kind = true};
    int c, status = 0;
    fr_init("fr-dump");
    opterr = 0;
    while (status == 0 && (c = getopt_long(argc, argv, ":r:c:o:j:asSh", long_options, NULL)) != -1) {
        if (c == 'h') {
            out_text(help);
            return out_finish(0);
        }
        if (c == OPT_VERSION)
            return fr_finish(fr_version());
        status = take_option(c, argv, &options);
    }
    options.paths = (const char *const *)&argv[optind];
    options.npaths = (size_t)(argc - optind);
    options.job.live_dir = fr_live_dir(options.job.live_dir);
    if (status == 0 && options.by_site && options.mode != DUMP_TEXT && options.mode != DUMP_JSON)
        status = fr_usage_error("--by-site is a table, or JSON with --json");
    if (status == 0 && options.npaths == 0)
        status = fr_usage_error("no file or directory given");
    if (status == 0)
        status = out_finish(run(&options));
    fr_ranges_free(&options.ranks);
    return status;
}
