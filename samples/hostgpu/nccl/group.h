/* Groups: what a thread has called between its outermost ncclGroupStart and ncclGroupEnd. A call outside a
 * group is a group of one. */
#ifndef LAB_GROUP_H
#define LAB_GROUP_H

#include "comm.h"

/* Something that needs other ranks on the host: making, splitting or ending a communicator. */
struct lab_job {
    ncclResult_t (*run)(struct lab_job *job); /* may block; on a thread of its own in a group */
    struct ncclComm *state; /* whose asynchronous result tells how the job goes; the job holds a reference */
    int device;             /* current device of the thread that called */
    struct lab_job *next;
    struct lab_job
        *then; /* the next job of the group on the same communicator: jobs on one must not overlap */
    ncclResult_t result; /* of the whole chain */

    /* Used by the jobs of init.c. */
    struct ncclComm *comm;   /* to join, or to end */
    struct ncclComm *parent; /* to split or to shrink */
    ncclComm_t *newcomm;     /* filled when the child is ready */
    int color, key;
    int nranks, rank;
    uint64_t id;
    ncclConfig_t config;
};

/* Enters an implicit group around one call; lab_group_leave with the call's result ends it. The result of
 * leaving is what the public function returns. */
void lab_group_enter(void);
ncclResult_t lab_group_leave(ncclResult_t result);

/* Adds an operation. The stream has been resolved. */
ncclResult_t lab_group_add_op(ncclComm_t comm, CUstream stream, const struct lab_op *op);
/* Adds a job, a malloc'd copy of which the group owns. */
ncclResult_t lab_group_add_job(const struct lab_job *job);

/* connect.c: what a first operation does on the host, in two steps; the second blocks until the peers are
 * there too, or fails when the comm is stopped. */
void lab_connect_announce(ncclComm_t comm, const struct lab_op *op);
ncclResult_t lab_connect_wait(ncclComm_t comm, const struct lab_op *op);

/* launch.c: queues the operations on their streams, all of one communicator. */
ncclResult_t lab_launch(ncclComm_t comm, const struct lab_op *ops, const CUstream *streams, size_t n);

#endif
