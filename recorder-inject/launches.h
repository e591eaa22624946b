/*
 * Launches of which NCCL itself tells when they run (plugin.h). They are numbered and published like those
 * with stream marks (marks.h), but here the proxy thread's reports raise the words, not the GPU.
 *
 * A launch is held by the host from launch_open to launch_close, and by every task that NCCL hands over
 * meanwhile (one collective or message) until all channels of the task's kernel have ended. When nobody holds
 * it any more, the launch is over. Names of launches and tasks are numbers that are never used twice for
 * long: a report about one that is over finds nothing and does nothing.
 *
 * Any thread. Nothing blocks, allocates or calls the system.
 */
#ifndef INJECT_LAUNCHES_H
#define INJECT_LAUNCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/drain.h"

#define LAUNCH_BITS 40 /* of a name; 0 = none */
#define TASK_BITS   60

uint64_t launch_open(uint16_t stream, uint64_t number);
/* The host is through with it. False: nothing was handed over, so nobody will ever tell of it. */
bool launch_close(uint64_t launch);
/* An op has this launch's number, and nobody will tell of it: readers must not wait. */
void launch_unmarked(uint16_t stream, uint64_t number);
uint64_t launch_number(uint64_t launch); /* 0 = it is over */

/* channels 0: NCCL does not say how many. owner: for tasks_drop. 0 = not followed. */
uint64_t task_open(uint64_t launch, unsigned channels, uint16_t owner);
/* A channel of its kernel began, or ended, at this wall-clock time. */
void task_began(uint64_t task, uint64_t real_ns);
void task_ended(uint64_t task, uint64_t real_ns);
bool task_owner(uint64_t task, uint16_t *owner); /* false: it is over */
/* No more will be told of the owner's tasks: their launches are not known to be over. */
void tasks_drop(uint16_t owner);

/* By the drain thread alone: the next report. */
bool launch_take_time(struct rec_drain_time *time);

void launches_forget(void); /* child of a fork */

#endif
