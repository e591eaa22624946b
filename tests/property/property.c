/*
 * The engine must never blame an innocent rank: made-up jobs, each with at most one fault of one
 * rank, are run, recorded, perhaps robbed of records, analyzed.
 *
 * usage: property [--seed N] [--cases M] [--case I] [--keep DIR] [--fault NAME] [--losses 0|1] [--ranks N]
 * FR_PROPERTY_CASES=M is the same as --cases M. Exit status 1: an innocent rank was blamed.
 */
#include <dirent.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rec/verdict.h"
#include "record.h"

#define SIMULATED_MAX (600 * SEC)

struct options {
    uint64_t seed, cases, only;
    const char *keep, *fault;
    int losses, ranks;
    bool verbose;
};

/*
 * TIE: one against one, both are named. PEER: one against one, and by the rule of verdicts.md the one
 * that lacks the call is named, though here the other made one too many: no record differs.
 * CYCLE: named with those that wait in a circle with it.
 */
enum outcome { RIGHT, TIE, PEER, CYCLE, QUIET, UNSURE, WRONG, OUTCOMES };
static const char *const outcome_names[OUTCOMES] = {"right",   "tie",          "peer", "cycle",
                                                    "healthy", "inconclusive", "WRONG"};

struct made {
    struct plan plan;
    struct fault fault;
    struct recording recording;
    struct run run;
    bool any_loss;
};

/* ---- making a case ---- */

static enum fault_kind choose_fault(const struct options *options, struct rng *rng)
{
    for (int k = 0; options->fault && k < FAULT_KINDS; k++)
        if (strcmp(options->fault, fault_name((enum fault_kind)k)) == 0)
            return (enum fault_kind)k;
    return rng_chance(rng, 20) ? FAULT_NONE : (enum fault_kind)rng_in(rng, 1, FAULT_KINDS - 1);
}

static void choose_losses(struct made *made, struct rng *rng)
{
    struct losses *l = &made->recording.losses;
    int n = made->plan.nranks;
    for (int h = 0; h < made->plan.nhosts && rng_chance(rng, 50); h++)
        l->skew_ns[h] = rng_in(rng, 0, 8 * SEC);
    for (int i = 0; i < n; i++) {
        unsigned kind = (unsigned)rng_in(rng, 0, 20);
        l->lost[i] = kind == 0;
        l->rotated[i] = kind == 1;
        l->no_trace[i] = kind == 2 && n > 2;
        l->keep_percent[i] = kind == 3 ? (unsigned)rng_in(rng, 30, 99) : 0;
        made->any_loss = made->any_loss || kind < 4;
    }
}

static void make_case(const struct options *options, uint64_t number, struct made *made)
{
    struct rng rng = {rec_mix64(options->seed * 1000003 + number)};
    *made = (struct made){0};
    plan_make(&made->plan, &rng, options->ranks);
    enum fault_kind kind = choose_fault(options, &rng);
    if (!fault_plant(&made->plan, &rng, kind, &made->fault))
        fault_plant(&made->plan, &rng, FAULT_NONE, &made->fault);
    uint64_t seed = rng_next(&rng);
    run_plan(&made->plan, seed, SIMULATED_MAX, &made->run);
    made->recording.terminated = rng_chance(&rng, 50);
    made->recording.end = made->run.last + SEC / 10;
    if (made->run.stuck)
        made->recording.end += rng_chance(&rng, 15) ? rng_in(&rng, 0, 4000) * MS : rng_in(&rng, 8, 45) * SEC;
    if (made->fault.kind == FAULT_NONE && rng_chance(&rng, 50)) {
        uint64_t until = rng_in(&rng, made->run.last / 10, made->run.last);
        run_free(&made->run);
        run_plan(&made->plan, seed, until, &made->run);
        made->recording.end = until;
    }
    bool lossy = rng_chance(&rng, 50);
    if (options->losses < 0 ? lossy : options->losses)
        choose_losses(made, &rng);
}

static void free_case(struct made *made)
{
    run_free(&made->run);
    plan_free(&made->plan);
}

/* ---- judging the verdict ---- */

static bool is_fault(enum rec_verdict_type type)
{
    static const bool faults[] = {
#define X(id, name, fault) [REC_VERDICT_##id] = fault,
        REC_VERDICT_TABLE(X)
#undef X
    };
    return faults[type];
}

/* A call too many that only one other rank of which there is a trace could have shared. */
static bool is_peer(const struct made *made, const struct rec_finding *f)
{
    const struct fault *fault = &made->fault;
    if (fault->kind != FAULT_EXTRA || fault->act.comm < 0 || f->nculprits != 1 ||
        f->confidence == REC_CONF_CERTAIN)
        return false;
    const struct plan_comm *comm = &made->plan.comms[fault->act.comm];
    if (rec_kind_flags(fault->act.kind) & REC_KF_P2P)
        return f->culprits[0] == comm->members[fault->act.peer];
    int others = 0;
    for (int i = 0; i < comm->nmembers; i++)
        others += comm->members[i] != fault->rank && !made->recording.losses.no_trace[comm->members[i]] &&
                  !made->recording.losses.keep_percent[comm->members[i]];
    return others == 1 && plan_place(comm, f->culprits[0]) >= 0;
}

/* Where the records of one against one, or of a circle, cannot tell, both sides may be named. */
static enum outcome judge_finding(const struct made *made, const struct rec_finding *f)
{
    bool guilty = false;
    for (size_t i = 0; i < f->nculprits; i++)
        guilty = guilty || (made->fault.kind && f->culprits[i] == made->fault.rank);
    if (!f->nculprits)
        return QUIET;
    if (!guilty)
        return is_peer(made, f) ? PEER : WRONG;
    if (f->nculprits == 1)
        return RIGHT;
    if (f->type == REC_VERDICT_DEADLOCK_CYCLE || f->type == REC_VERDICT_ORDER_INVERSION)
        return CYCLE;
    if (f->type == REC_VERDICT_P2P_MISMATCH && f->nculprits == 2)
        return TIE;
    return strstr(f->summary, "tie") ? TIE : WRONG;
}

static enum outcome judge(const struct made *made, const struct rec_verdict *verdict)
{
    enum outcome first = QUIET;
    for (size_t i = 0; i < verdict->nfindings; i++) {
        const struct rec_finding *f = &verdict->findings[i];
        if (!is_fault(f->type))
            continue;
        enum outcome outcome = judge_finding(made, f);
        if (outcome == WRONG || (made->fault.kind == FAULT_NONE && verdict->status == REC_STATUS_FAULT))
            return WRONG;
        if (i == 0)
            first = outcome;
    }
    if (first == QUIET && verdict->status != REC_STATUS_HEALTHY) {
        /* A whole recording of a job without a fault must be found healthy. */
        return made->fault.kind || made->any_loss || verdict->status == REC_STATUS_FAULT ? UNSURE : WRONG;
    }
    return first;
}

/* ---- files ---- */

static void remove_files(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char name[600];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        unlink(name);
    }
    if (dir)
        closedir(dir);
}

static void tell(const struct options *options, uint64_t number, const struct made *made,
                 const struct rec_verdict *verdict, enum outcome outcome)
{
    printf("case %" PRIu64 " (--seed %" PRIu64 " --case %" PRIu64 "): %s\n", number, options->seed, number,
           outcome_names[outcome]);
    const struct losses *l = &made->recording.losses;
    printf("  %d ranks on %d hosts, %d communicators%s%s, ran %.3f s, ended at %.3f s%s\n", made->plan.nranks,
           made->plan.nhosts, made->plan.ncomms, made->plan.marks ? ", GPU marks" : "",
           made->plan.eager_bytes ? ", eager sends" : "", (double)made->run.last / 1e9,
           (double)made->recording.end / 1e9, made->recording.terminated ? " by SIGTERM" : "");
    printf("  fault: %s\n", made->fault.kind ? made->fault.told : "none");
    for (int i = 0; i < made->plan.nranks; i++)
        if (l->lost[i] || l->rotated[i] || l->no_trace[i] || l->keep_percent[i])
            printf("  rank %d: %s\n", i,
                   l->lost[i]       ? "records lost"
                   : l->rotated[i]  ? "beginning rotated away"
                   : l->no_trace[i] ? "no trace"
                                    : "file cut");
    for (size_t i = 0; i < verdict->nfindings && i < 6; i++) {
        const struct rec_finding *f = &verdict->findings[i];
        char ranks[128];
        rec_fold_ranks(ranks, sizeof ranks, f->culprits, f->nculprits);
        printf("  %s %s [%s]: %s\n", rec_verdict_type_name(f->type), rec_confidence_name(f->confidence),
               ranks, f->summary);
    }
}

static bool check_case(const struct options *options, uint64_t number, const char *dir,
                       unsigned (*counts)[OUTCOMES])
{
    struct made *made = malloc(sizeof *made);
    if (!made)
        abort();
    make_case(options, number, made);
    struct rec_error err = {0};
    struct rec_job *job = NULL;
    struct rec_verdict *verdict = NULL;
    const char *dirs[] = {dir};
    struct rec_job_options how = {.no_live = true};
    struct rec_analyze_options now = {.now_ns = ORIGIN + 10 * SEC + made->recording.end};
    enum outcome outcome = WRONG;
    if (!record_run(&made->plan, &made->run, &made->recording, options->seed + number, dir))
        printf("case %" PRIu64 ": cannot write to %s\n", number, dir);
    else if (rec_job_open(dirs, 1, &how, &job, &err) != REC_OK ||
             rec_analyze(job, &now, &verdict, &err) != REC_OK)
        printf("case %" PRIu64 ": %s\n", number, err.text);
    else
        outcome = judge(made, verdict);
    if (verdict && (outcome == WRONG || options->only != UINT64_MAX || options->verbose))
        tell(options, number, made, verdict, outcome);
    counts[made->fault.kind][outcome]++;
    rec_verdict_free(verdict);
    rec_job_close(job);
    if (!options->keep)
        remove_files(dir);
    free_case(made);
    free(made);
    return outcome != WRONG;
}

static void print_table(unsigned (*counts)[OUTCOMES])
{
    printf("%-10s", "fault");
    for (int o = 0; o < OUTCOMES; o++)
        printf("%14s", outcome_names[o]);
    printf("\n");
    unsigned sum[OUTCOMES] = {0};
    for (int k = 0; k <= FAULT_KINDS; k++) {
        printf("%-10s", k < FAULT_KINDS ? fault_name((enum fault_kind)k) : "all");
        for (int o = 0; o < OUTCOMES; o++) {
            printf("%14u", k < FAULT_KINDS ? counts[k][o] : sum[o]);
            sum[o] += k < FAULT_KINDS ? counts[k][o] : 0;
        }
        printf("\n");
    }
}

static bool read_options(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {{"seed", 1, 0, 's'},  {"cases", 1, 0, 'n'},   {"case", 1, 0, 'c'},
                                          {"keep", 1, 0, 'k'},  {"fault", 1, 0, 'f'},   {"losses", 1, 0, 'l'},
                                          {"ranks", 1, 0, 'r'}, {"verbose", 0, 0, 'v'}, {0}};
    const char *cases = getenv("FR_PROPERTY_CASES");
    *options = (struct options){.seed = 1,
                                .cases = cases ? strtoull(cases, NULL, 10) : 600,
                                .only = UINT64_MAX,
                                .losses = -1,
                                .ranks = RANKS_MAX};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) >= 0;) {
        switch (c) {
        case 's':
            options->seed = strtoull(optarg, NULL, 10);
            break;
        case 'n':
            options->cases = strtoull(optarg, NULL, 10);
            break;
        case 'c':
            options->only = strtoull(optarg, NULL, 10);
            break;
        case 'k':
            options->keep = optarg;
            break;
        case 'f':
            options->fault = optarg;
            break;
        case 'l':
            options->losses = atoi(optarg);
            break;
        case 'r':
            options->ranks = atoi(optarg);
            break;
        case 'v':
            options->verbose = true;
            break;
        default:
            return false;
        }
    }
    return optind == argc && options->ranks >= 2;
}

int main(int argc, char **argv)
{
    struct options options;
    if (!read_options(argc, argv, &options)) {
        fprintf(stderr, "usage: property [--seed N] [--cases M] [--case I] [--keep DIR] [--fault NAME] "
                        "[--losses 0|1] [--ranks N] [--verbose]\n");
        return 2;
    }
    static unsigned counts[FAULT_KINDS][OUTCOMES];
    char place[64];
    snprintf(place, sizeof place, "%s/property-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    const char *dir = options.keep ? options.keep : mkdtemp(place);
    if (!dir) {
        perror(place);
        return 2;
    }
    bool one = options.only != UINT64_MAX, right = true;
    for (uint64_t i = one ? options.only : 0; i < (one ? options.only + 1 : options.cases); i++)
        right = check_case(&options, i, dir, counts) && right;
    if (!options.keep)
        rmdir(dir);
    if (!one)
        print_table(counts);
    return !right;
}
