/* One made-up job with its fault, its run, its recording, and what the analysis makes of it. */
#ifndef CASE_H
#define CASE_H

#include "rec/verdict.h"
#include "record.h"

/*
 * TIE: one against one, both are named. PEER: one against one, and by the rule of verdicts.md the
 * one that lacks the call is named as possible, with the other, who made one too many here, as a
 * suspect: no record differs. CYCLE: named with those that wait in a circle with it.
 */
enum outcome { RIGHT, TIE, PEER, CYCLE, QUIET, UNSURE, WRONG, OUTCOMES };
extern const char *const outcome_names[OUTCOMES];

struct made {
    struct plan plan;
    struct fault fault, second; /* of the second the kind is FAULT_NONE where there is only one */
    struct recording recording;
    struct run run;
    bool any_loss;
    uint64_t run_seed, record_seed;
    uint64_t until; /* a run that goes well is stopped here */
    uint64_t after; /* how long a run that is over is recorded further */
};

struct case_options {
    uint64_t seed;
    const char *fault; /* NULL: any */
    int losses;        /* -1: in half of the cases */
    int ranks;         /* at most */
};

/* Case number of a seed is always the same one. To be freed with case_free. */
void case_make(struct made *made, const struct case_options *options, uint64_t number);
/* Runs the plan, as it is now. */
void case_run(struct made *made);
/*
 * Records the run into dir and analyzes that. The verdict is the caller's to free; NULL when that
 * failed, which is WRONG. The files stay.
 */
enum outcome case_judge(const struct made *made, const char *dir, struct rec_verdict **verdict);
void case_remove_files(const char *dir);
void case_tell(const struct made *made, const struct rec_verdict *verdict, enum outcome outcome);
void case_free(struct made *made);

/*
 * Drops ranks, communicators, steps and losses as long as the verdict stays wrong. Expects a case
 * that has been run and is WRONG; dir is scratch.
 */
void case_minimise(struct made *made, const char *dir);
/* What every rank does, call by call. */
void case_print(const struct made *made);

#endif
