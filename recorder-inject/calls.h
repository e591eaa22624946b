/*
 * Calls with semantics of their own: creation and teardown of communicators, waits for signals, groups,
 * asynchronous errors, operators. Each has an open half before and a close half after NCCL's.
 */
#ifndef INJECT_CALLS_H
#define INJECT_CALLS_H

#include "hotpath.h"
#include "nccl-compat.h"

/* copy: which libnccl, see real.c. */
void init_open(struct thread *thread, struct call *call, unsigned copy, unsigned kind, int nranks,
               const ncclUniqueId *id, int rank, const ncclConfig_t *settings);
void init_close(struct thread *thread, struct call *call, ncclComm_t *out, ncclResult_t result);

void init_all_open(struct thread *thread, struct call *call, unsigned copy, int ndev, const int *devices);
void init_all_close(struct thread *thread, struct call *call, ncclComm_t *out, int ndev, ncclResult_t result);

/* A call on a parent that makes a child; shared by split, shrink and grow. */
struct child {
    struct call call;
    uint64_t uid, hash, magic;
    uint32_t made_by;
    int32_t color;
    bool member; /* this rank becomes a member */
};
void split_open(struct thread *thread, struct child *child, ncclComm_t parent, int color, int key);
void shrink_open(struct thread *thread, struct child *child, ncclComm_t parent, const int *excluded,
                 int count, int flags);
void child_close(struct thread *thread, struct child *child, ncclComm_t *out, const ncclConfig_t *settings,
                 ncclResult_t result);

/* Ranks that join have no parent: handle is NULL, and the communicator is made as by an init. */
void grow_open(struct thread *thread, struct child *child, unsigned copy, ncclComm_t handle, int nranks,
               const ncclUniqueId *id, int rank, const ncclConfig_t *settings);
void grow_close(struct thread *thread, struct child *child, ncclComm_t handle, ncclComm_t *out,
                const ncclConfig_t *settings, ncclResult_t result);

/* One record for the call, and where it waits for several signals, one for each of them behind it. */
void wait_close(struct thread *thread, struct call *call, int n, const ncclWaitSignalDesc_t *descriptions,
                ncclResult_t result);

void release_open(struct thread *thread, struct call *call, unsigned kind, ncclComm_t comm);
void release_close(struct thread *thread, struct call *call, ncclComm_t comm, ncclResult_t result);

void async_error_open(struct thread *thread, struct call *call);
void async_error_close(struct thread *thread, struct call *call, ncclComm_t comm, const ncclResult_t *error,
                       ncclResult_t result);

void group_start_open(struct thread *thread);
void group_start_close(struct thread *thread, ncclResult_t result);
void group_end_open(struct thread *thread, struct call *call, unsigned kind);
void group_end_close(struct thread *thread, struct call *call, ncclResult_t result);

void redop_create_close(struct thread *thread, struct call *call, const ncclRedOp_t *op, const void *scalar,
                        ncclDataType_t dtype, ncclScalarResidence_t residence, ncclResult_t result);

#endif
