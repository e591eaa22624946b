/*
 * What fr-analyze would say of the job now: the same engine, at work beside the screen.
 *
 * One worker thread opens the job and analyzes it when top_diagnosis_ask has told it of
 * something new; it takes at most about a tenth of the time. A bad verdict is believed when two
 * looks in a row give it, as by fr-analyze --watch. Everything here is called by one thread, the
 * screen's; the worker touches nothing but its own job and, under a lock, the result.
 */
#ifndef TOP_DIAGNOSIS_H
#define TOP_DIAGNOSIS_H

#include "fr-top/top.h"
#include "rec/verdict.h"

#define TOP_DIAGNOSIS_DIRS 16

struct top_verdict {
    uint64_t serial; /* rises with every new verdict; 0 = none yet */
    uint64_t at_ns;  /* wall clock: when the job was looked at */
    enum rec_status status;
    enum rec_verdict_type type;
    enum rec_confidence confidence;
    char summary[1024];
    char job[160];     /* as in top_process.job */
    int32_t *culprits; /* job ranks, ascending; the verdict's own memory */
    size_t nculprits;
    int32_t *suspects;
    size_t nsuspects;
    int32_t *victims;
    size_t nvictims;
    char problem[512]; /* why there is no newer one; "" */
};

/* What the verdict says of a process; NONE for those of other jobs and earlier runs, and without a verdict.
 */
enum rec_role top_role_of(const struct top_verdict *verdict, const struct top_process *process);

struct top_diagnosis;

/* NULL without memory or threads. options must outlive it. */
struct top_diagnosis *top_diagnosis_start(const struct top_options *options);
/* For the end of the program: an analysis that is at work is left to itself. NULL is fine. */
void top_diagnosis_stop(struct top_diagnosis *diagnosis);

/* The job to look at, of the snapshot's: the only one, else the one with the worst state. */
void top_diagnosis_ask(struct top_diagnosis *diagnosis, const struct top_snapshot *snapshot);
/* The verdict that is believed now. Belongs to the diagnosis, valid until the next call of it. */
const struct top_verdict *top_diagnosis_get(struct top_diagnosis *diagnosis);

/* One analysis now, by the calling thread, for output that waits for it. */
bool top_diagnosis_once(const struct top_options *options, const struct top_snapshot *snapshot,
                        struct top_verdict *verdict);
void top_verdict_clear(struct top_verdict *verdict);

/*
 * The job as it was when the last verdict about it was found, to browse; until
 * top_diagnosis_return the worker leaves it alone. False: there is none yet.
 */
bool top_diagnosis_borrow(struct top_diagnosis *diagnosis, const struct rec_job **job,
                          const struct rec_verdict **verdict);
void top_diagnosis_return(struct top_diagnosis *diagnosis);

#endif
