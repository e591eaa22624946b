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
    bool ends_parent; /* a shrink with abort */
    struct lab_identity identity;
    struct lab_config config;
    struct lab_window *window; /* to register; the job's until it runs */
    ncclWindow_t *new_window;
};

/* Enters an implicit group around one call; lab_group_leave with the call's result ends it. The result of
 * leaving is what the public function returns. */
void lab_group_enter(void);
ncclResult_t lab_group_leave(ncclResult_t result);
/* For a call that is wrong before it can be added: inside a group, the group fails too. */
ncclResult_t lab_group_refuse(ncclResult_t result);

/* ops.c: a call, which is n operations (more than one only for a wait). */
ncclResult_t lab_enqueue(ncclComm_t comm, struct lab_op *ops, size_t n, ncclRedOp_t redop,
                         cudaStream_t stream, const char *name);

/* Adds an operation. The stream has been resolved. */
ncclResult_t lab_group_add_op(ncclComm_t comm, CUstream stream, const struct lab_op *op);
/* Adds a job, a malloc'd copy of which the group owns. */
ncclResult_t lab_group_add_job(const struct lab_job *job);
/* What a call on a non-blocking communicator returns, asked through the public name as the real library does:
 * an interposer sees the question. */
ncclResult_t lab_settle(ncclComm_t comm, ncclResult_t result);

/* init.c: a rank that has no communicator yet joins one; call it inside a group. */
ncclResult_t lab_init_rank(ncclComm_t *newcomm, int nranks, int rank, const struct lab_identity *identity,
                           const ncclConfig_t *config, const char *name);

/* connect.c: what a first operation does on the host, in two steps; the second blocks until the peers are
 * there too, or fails when the comm is stopped. */
void lab_connect_announce(ncclComm_t comm, const struct lab_op *op);
ncclResult_t lab_connect_wait(ncclComm_t comm, const struct lab_op *op);

/* launch.c: queues the operations on their streams, all of one communicator. */
ncclResult_t lab_launch(ncclComm_t comm, const struct lab_op *ops, const CUstream *streams, size_t n);

#endif
