/*
 * What the command line tools share: one way to report errors, to end, to decide about
 * colour and to print text that came from a trace.
 *
 * A tool's exit status: 0 fine, FR_EXIT_ERROR for usage and input/output errors; what 1 and 3
 * mean is the tool's own affair. Everything here belongs to the main thread.
 */
#ifndef FR_COMMON_H
#define FR_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "rec/error.h"
#include "rec/job.h"

#define FR_EXIT_ERROR 2

/*
 * Call first: remembers the tool's name for messages ("fr-dump") and restores SIGPIPE's
 * default, so that a closed pipe ends the tool quietly like any other filter.
 */
void fr_init(const char *tool);

/* "fr-dump: path: reason" on stderr, one line, control characters escaped. Returns FR_EXIT_ERROR. */
int fr_error(const struct rec_error *err);
/* The same from a format; path may be NULL. */
int fr_errorf(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What to say after REC_ERR_MIXED: "fr-dump: path: reason", then the jobs to choose from. Returns
 * FR_EXIT_ERROR. */
int fr_choose_job(const char *path, const struct rec_job *job, const struct rec_error *err);
/*
 * Does any process of the job run? Here one knows; of other hosts those count that have shown a
 * sign of life in the last minute.
 */
bool fr_job_runs(const struct rec_job *job);
/* "fr-dump: reason" and "Try 'fr-dump --help'." on stderr. Returns FR_EXIT_ERROR. */
int fr_usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/*
 * Says what is wrong with the option at which getopt_long stopped: c is what it returned, its list of
 * options begins with ':', and opterr is 0. Returns FR_EXIT_ERROR.
 */
int fr_bad_option(int c, char *const *argv);

/* What --version prints: "fr-dump (flight-recorder) 0.1.0". Returns 0. */
int fr_version(void);

/*
 * Flushes stdout and returns status, or reports why the output is incomplete (a full
 * disk) and returns FR_EXIT_ERROR. The last thing main does.
 */
int fr_finish(int status);

/* Colour on this stream: a terminal, NO_COLOR unset or empty, TERM not "dumb". */
bool fr_color(FILE *stream);

/* The terminal's width in columns; COLUMNS, else the terminal's own answer, else 0 (no terminal). */
int fr_columns(FILE *stream);

/* Where live regions lie: the option when given, else FREC_LIVE_DIR, else /dev/shm. */
const char *fr_live_dir(const char *option);

/*
 * Makes untrusted text fit for a terminal: valid UTF-8 passes, control characters and
 * invalid bytes become \xNN (C1 controls and bidirectional overrides \u{NNNN}). At most size - 1
 * bytes, always terminated and never cut inside a character. Returns buffer.
 */
char *fr_clean(char *buffer, size_t size, const char *text);

/* Length of the valid UTF-8 sequence at text[0…], 0 when there is none. */
size_t fr_utf8_length(const char *text, size_t bytes);

/*
 * "0-2,4-7" of ranks, in their order. What does not fit is cut at a comma, so that no number is: "0,2,4,…".
 * Room for four bytes at least. False when cut.
 */
bool fr_fold_ranks(char *buffer, size_t size, const int32_t *ranks, size_t count);
/* The same, sorted on the way. */
void fr_fold_unsorted(char *buffer, size_t size, int32_t *ranks, size_t count);

/* Decimal number, whole string; false on anything else or beyond max. */
bool fr_parse_u64(const char *text, uint64_t max, uint64_t *value);

/* A set of numbers as users write it: "3", "0-2,4-7". */
struct fr_range {
    uint32_t first, last;
};
struct fr_ranges {
    struct fr_range *items;
    size_t count;
};
bool fr_ranges_parse(const char *text, struct fr_ranges *ranges); /* adds; false on bad text */
bool fr_ranges_has(const struct fr_ranges *ranges, uint32_t value);
void fr_ranges_free(struct fr_ranges *ranges);

#endif
