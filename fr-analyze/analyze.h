/* Parts of fr-analyze. */
#ifndef ANALYZE_H
#define ANALYZE_H

#include "rec/verdict.h"

/* The verdict for people, on stdout. */
void print_verdict(const struct rec_job *job, const struct rec_verdict *verdict);

#endif
