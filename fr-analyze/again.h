/*
 * Looking again at a job that runs, for the browser: loads and analyzes it anew in a thread of
 * its own when something has changed, and for a stall time after that, since a verdict may come of
 * age; at most about a quarter of the time. Belongs to the main thread.
 */
#ifndef FR_AGAIN_H
#define FR_AGAIN_H

#include "work.h"

struct again;

/* Takes the result over, which is shown at first. NULL without memory, and the result stays the caller's. */
struct again *again_new(const struct work_order *order, const struct work_result *result);
/* The functions of struct browse_again. */
bool again_look(void *again, const struct rec_job **job, const struct rec_verdict **verdict);
void again_keep(void *again);
/* Frees all that it holds. Returns the last verdict's exit status. */
int again_free(struct again *again);

#endif
