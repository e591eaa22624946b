/*
 * The engine must never blame an innocent rank: made-up jobs, each with at most one fault of one
 * rank (some with a second of another), are run, recorded, perhaps robbed of records, analyzed.
 *
 * usage: property [--seed N] [--cases M] [--case I [--minimise]] [--keep DIR] [--fault NAME]
 *                 [--losses 0|1] [--ranks N] [--verbose]
 * FR_PROPERTY_CASES=M is the same as --cases M. --minimise leaves out of a case whatever is not needed
 * for its wrong verdict, and prints the rest. Exit status 1: an innocent rank was blamed.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "case.h"

#define TWO FAULT_KINDS /* row of the table: two faults */

struct options {
    struct case_options made;
    uint64_t cases, only;
    const char *keep;
    bool verbose, minimise;
};

static void minimise(struct made *made, const char *dir)
{
    struct rec_verdict *verdict;
    case_remove_files(dir);
    case_minimise(made, dir);
    enum outcome outcome = case_judge(made, dir, &verdict);
    printf("smallest\n");
    case_tell(made, verdict, outcome);
    case_print(made);
    rec_verdict_free(verdict);
}

static bool check_case(const struct options *options, uint64_t number, const char *dir,
                       unsigned (*counts)[OUTCOMES])
{
    struct made *made = malloc(sizeof *made);
    if (!made)
        abort();
    case_make(made, &options->made, number);
    struct rec_verdict *verdict;
    enum outcome outcome = case_judge(made, dir, &verdict);
    if (outcome == WRONG || options->only != UINT64_MAX || options->verbose) {
        printf("case %" PRIu64 " (--seed %" PRIu64 " --case %" PRIu64 ")\n", number, options->made.seed,
               number);
        case_tell(made, verdict, outcome);
    }
    counts[made->second.kind ? TWO : made->fault.kind][outcome]++;
    if (options->minimise && outcome == WRONG && verdict)
        minimise(made, dir);
    rec_verdict_free(verdict);
    if (!options->keep)
        case_remove_files(dir);
    case_free(made);
    free(made);
    return outcome != WRONG;
}

/* By fault; the last line tells the share of each answer to jobs with a fault that showed. */
static void print_table(unsigned (*counts)[OUTCOMES])
{
    printf("%-10s", "fault");
    for (int o = 0; o < OUTCOMES; o++)
        printf("%14s", outcome_names[o]);
    printf("\n");
    unsigned sum[OUTCOMES] = {0}, faulty[OUTCOMES] = {0}, shown = 0;
    for (int k = 0; k <= TWO; k++) {
        printf("%-10s", k == TWO ? "two" : fault_name((enum fault_kind)k));
        for (int o = 0; o < OUTCOMES; o++) {
            printf("%14u", counts[k][o]);
            sum[o] += counts[k][o];
            faulty[o] += k != FAULT_NONE ? counts[k][o] : 0;
        }
        printf("\n");
    }
    printf("%-10s", "all");
    for (int o = 0; o < OUTCOMES; o++)
        printf("%14u", sum[o]);
    printf("\n");
    for (int o = 0; o < OUTCOMES; o++)
        shown += o != QUIET ? faulty[o] : 0;
    printf("%-10s", "share");
    for (int o = 0; o < OUTCOMES; o++) {
        if (o == QUIET)
            printf("%14s", "");
        else
            printf("%13.2f%%", shown ? 100.0 * faulty[o] / shown : 0);
    }
    printf("\n");
}

static bool read_options(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {{"seed", 1, 0, 's'},     {"cases", 1, 0, 'n'},
                                          {"case", 1, 0, 'c'},     {"keep", 1, 0, 'k'},
                                          {"fault", 1, 0, 'f'},    {"losses", 1, 0, 'l'},
                                          {"ranks", 1, 0, 'r'},    {"verbose", 0, 0, 'v'},
                                          {"minimise", 0, 0, 'm'}, {0}};
    const char *cases = getenv("FR_PROPERTY_CASES");
    *options = (struct options){.made = {.seed = 1, .losses = -1, .ranks = RANKS_MAX},
                                .cases = cases ? strtoull(cases, NULL, 10) : 600,
                                .only = UINT64_MAX};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) >= 0;) {
        switch (c) {
        case 's':
            options->made.seed = strtoull(optarg, NULL, 10);
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
            options->made.fault = optarg;
            break;
        case 'l':
            options->made.losses = atoi(optarg);
            break;
        case 'r':
            options->made.ranks = atoi(optarg);
            break;
        case 'm':
            options->minimise = true;
            break;
        case 'v':
            options->verbose = true;
            break;
        default:
            return false;
        }
    }
    return optind == argc && options->made.ranks >= 2;
}

int main(int argc, char **argv)
{
    struct options options;
    if (!read_options(argc, argv, &options)) {
        fprintf(stderr, "usage: property [--seed N] [--cases M] [--case I [--minimise]] [--keep DIR] "
                        "[--fault NAME] [--losses 0|1] [--ranks N] [--verbose]\n");
        return 2;
    }
    static unsigned counts[FAULT_KINDS + 1][OUTCOMES];
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
