/* NCCL's profiler plugin interface, as a client of plugins: versions 4 (2.27), 5 (2.28.3) and 6 (2.29.2).
 *
 * NCCL_PROFILER_PLUGIN names the plugin; without it there is none, and nothing here does anything. The calls:
 *
 *   GroupApi             from the first operation of a group to the end of its ncclGroupEnd
 *     CollApi, P2pApi    while one operation is taken into the group
 *     KernelLaunch       while a launch is put on its stream
 *   Group                around the next two, for each launch
 *     Coll, P2p          the host has handed the operation over (children of the Api events since version 5)
 *       KernelCh         on each channel, from the true start to the true end of the operation, called on the
 *                        stream's thread
 *
 * The operations of a graph are handed over again at each replay, on the stream's thread. There are no
 * proxies here, hence no events of theirs.
 */
#ifndef LAB_PROFILER_H
#define LAB_PROFILER_H

#include <stdbool.h>
#include <stddef.h>

struct ncclComm;
struct lab_op;
struct lab_profiler; /* one communicator's context of the plugin; NULL without a plugin */

#define LAB_PROFILER_CHANNELS 2

/* What an operation carries of its events: the plugin's handles, NULL where it has none. */
struct lab_op_events {
    int mask; /* what the plugin wanted when the operation was called */
    void *group_api, *api, *task, *kernels[LAB_PROFILER_CHANNELS];
};

/* Makes the communicator known to the plugin, which is loaded at the first. */
void lab_profiler_open(struct ncclComm *comm);
/* After this the plugin hears no more of the communicator. */
void lab_profiler_close(struct ncclComm *comm);
void lab_profiler_free(struct ncclComm *comm);

/* On the calling thread. depth is that of the group. */
void lab_profiler_call_starts(struct ncclComm *comm, struct lab_op *op, void *stream, bool captured,
                              int depth);
void lab_profiler_call_stops(struct ncclComm *comm, struct lab_op *op);
void lab_profiler_group_ends(void);
void lab_profiler_group_ended(void);

/* Around putting a launch on its stream. */
void *lab_profiler_launch_starts(struct ncclComm *comm, const struct lab_op *ops, void *stream);
void lab_profiler_launch_stops(struct ncclComm *comm, void *launch);
/* The operations of a launch are handed over. */
void lab_profiler_tasks(struct ncclComm *comm, struct lab_op *const *classes, const size_t *n,
                        size_t nclasses, bool captured);
/* They run. */
void lab_profiler_kernels_start(struct ncclComm *comm, struct lab_op *ops, size_t n);
void lab_profiler_kernels_stop(struct ncclComm *comm, struct lab_op *ops, size_t n);

#endif
