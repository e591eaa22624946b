/*
 * The parts of the JSON report (docs/fr-verdict-1.schema.json).
 *
 * jansson's *_new functions take over the reference of what they are given and do nothing
 * with NULL, so a failed allocation shows as one failing set: ok collects these.
 */
#ifndef REPORT_H
#define REPORT_H

#include <jansson.h>

#include "rec/verdict.h"

void report_put(json_t *object, const char *key, json_t *value, bool *ok);
/* A string; names come from traces, and what is no UTF-8 would be refused. */
json_t *report_text(const char *text);
void report_ranks(json_t *object, const char *key, const int32_t *ranks, size_t count, bool *ok);
void report_time(json_t *object, const char *key, uint64_t ns, bool *ok); /* nothing when unknown */

/* report_census.c: generations, clocks, communicators, order_differences, notes. */
void report_census(json_t *root, const struct rec_census *census, bool *ok);

#endif
