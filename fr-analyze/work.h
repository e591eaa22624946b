/*
 * Loading and analyzing a job, where that takes a while: in the thread that asks, with a line on
 * standard error, or in a thread of its own while somebody else paints.
 */
#ifndef FR_WORK_H
#define FR_WORK_H

#include <stdbool.h>

#include "rec/verdict.h"

struct work_order {
    const char *const *dirs;
    size_t ndirs;
    struct rec_job_options job; /* progress is set here */
    struct rec_analyze_options analyze;
};

/* What came of it. After REC_ERR_MIXED only job is set, to list what is there. */
struct work_result {
    enum rec_code code;
    struct rec_error err;
    struct rec_job *job;
    struct rec_verdict *verdict;
};
void work_result_fini(struct work_result *result);

/*
 * In the calling thread. What takes more than a second is told on standard error when that is a
 * terminal, in one line that goes away again.
 */
void work_do(const struct work_order *order, struct work_result *result);

struct work_state {
    bool over;
    enum rec_phase phase;
    uint64_t done, total; /* total 0 = not known */
};

/* In a thread of its own; order must live until work_end. NULL: there is no such thread to have. */
struct work;
struct work *work_start(const struct work_order *order);
void work_look(const struct work *work, struct work_state *state);
/* Waits for the end, and hastens it when the result is not wanted. Frees work. */
void work_end(struct work *work, bool wanted, struct work_result *result);

/* "Reading traces: 1,024 of 4,096 processes" */
void work_say(const struct work_state *state, char *text, size_t size);

#endif
