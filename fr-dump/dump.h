/*
 * What the parts of fr-dump share: the choices of the command line and the walk over
 * processes and their calls.
 */
#ifndef FR_DUMP_H
#define FR_DUMP_H

#include <stdbool.h>
#include <stdint.h>

#include "fr-common.h"
#include "rec/job.h"

struct row;

enum dump_mode { DUMP_TEXT, DUMP_JSON, DUMP_CSV, DUMP_PERFETTO, DUMP_VERIFY, DUMP_RECOVER, DUMP_ANONYMIZE };

struct dump_options {
    enum dump_mode mode;
    const char *const *paths;
    size_t npaths;
    struct rec_job_options job;
    struct fr_ranges ranks; /* empty = all */
    const char *comm;       /* name, or the first digits of a uid; NULL = all */
    bool kinds[256];        /* wanted ops; all when any_kind */
    bool any_kind;
    const char *from, *to; /* as given; NULL = open end */
    bool all;              /* records other than calls, too */
    bool by_site;          /* sums over the calls of each line of code */
    const char *outdir;    /* of the anonymous copies */
};

/* How one mode prints. Functions may be NULL. */
struct dump_printer {
    void (*begin)(const struct rec_job *job);
    /* Sees every wanted call of every process before anything is printed; false without memory. */
    bool (*survey)(const struct rec_process *process, const struct rec_op *op);
    void (*process)(const struct rec_job *job, const struct rec_process *process);
    void (*op)(const struct rec_process *process, const struct rec_op *op);
    void (*record)(const struct rec_process *process, const struct rec_event *event);
    bool records;        /* record is called without --all, too */
    int (*finish)(void); /* exit status; has reported its errors */
};

extern const struct dump_printer dump_text, dump_json, dump_csv, dump_perfetto, dump_sites, dump_sites_json;

/* With --stack: text and JSON give the stack of every call. */
extern bool dump_stacks;

/* One call as a JSON object. */
void dump_put_row(const struct row *row);

/* A stack as lines of text; as a further member of a JSON object. */
void dump_text_stack(const struct rec_callsite_def *site);
void dump_json_stack(const struct rec_callsite_def *site);

/* Three or four figures and a unit: "12.3us", "1.23ms", "45.6s". Returns buffer. */
const char *dump_duration(uint64_t ns, char *buffer, size_t size);

/* Each returns the exit status and has reported its errors. */
int dump_calls(const struct dump_options *options);
int dump_verify(const struct dump_options *options);
int dump_recover(const struct dump_options *options);
int dump_anonymize(const struct dump_options *options);

/* Was this rank asked for? */
bool dump_rank_wanted(const struct dump_options *options, const struct rec_process *process);

/* Opens the job; lists the candidates when there are several. NULL after an error. */
struct rec_job *dump_open(const struct dump_options *options);

/*
 * A moment as users write it: seconds since the epoch ("1764476405.25"), a local date and
 * time ("2026-11-30 04:20:05.25" or with T), or a time of the day on which day_ns lies.
 */
bool dump_parse_time(const char *text, uint64_t day_ns, uint64_t *ns);

/* "2026-11-30 04:20:05.123" in local time; "-" for 0. Returns buffer. */
char *dump_date(uint64_t ns, char *buffer, size_t size);

#endif
