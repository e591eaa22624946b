/* Parts of fr-analyze. */
#ifndef ANALYZE_H
#define ANALYZE_H

#include "rec/verdict.h"

/* The verdict for people, on stdout. */
void print_verdict(const struct rec_job *job, const struct rec_verdict *verdict);

/* All communicators, runs and clocks of the job, on stdout. */
void print_census(const struct rec_census *census);
/* What of it is worth a line in every report. */
void print_remarkable(const struct rec_census *census);

/* "2026-11-30 08:00:22 to 08:00:31 UTC", with a second date when it is another one; "?" for unknown times. */
void format_span(char *buffer, size_t size, uint64_t start_ns, uint64_t last_ns);

/* text.c: untrusted text, broken at blanks; continuation lines are indented by hang. */
void print_wrapped(const char *text, size_t indent, size_t hang);

#endif
