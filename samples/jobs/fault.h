/*
 * Faults of fr-train, given as text: NAME:rank=LIST,at=N[,every=M][,…]
 *
 *   count:factor=F | count:value=N   another number of elements
 *   op:to=AllGather                  another collective
 *   redop:to=max  root:to=1  dtype:to=bf16
 *   skip  extra  swap                leave it out, issue it twice, exchange it with the next one
 *   sleep:ms=N                       stay outside NCCL before it, as in a data loader; no ms: for ever
 *   kill:sig=N  crash  exit:status=N end the process before it
 *   leak                             use up all file descriptors
 *
 * at counts the data ops of the process from 0; every=M repeats the fault each M ops after
 * that. rank is FIRST or FIRST-LAST and all ranks when absent.
 */
#ifndef SAMPLES_FAULT_H
#define SAMPLES_FAULT_H

#include <stddef.h>
#include <stdint.h>

#include <nccl.h>

enum train_kind {
    OP_ALL_REDUCE,
    OP_BROADCAST,
    OP_REDUCE,
    OP_ALL_GATHER,
    OP_REDUCE_SCATTER,
    OP_SEND,
    OP_RECV
};

/* One data op of the training loop. */
struct train_op {
    enum train_kind kind;
    int group; /* index into the job's communicators */
    size_t count;
    ncclDataType_t dtype;
    ncclRedOp_t redop;
    int peer; /* root or peer, a comm rank */
};

#define FAULT_MAX     16
#define FAULT_OPS_MAX 3

/* Takes one fault from the command line; exits when it is wrong. */
void fault_add(const char *text);

/* The largest factor by which a fault of this rank makes an op bigger, at least 1. */
size_t fault_growth(size_t largest_count);

/*
 * What this process issues instead of its n-th op: fills ops and returns how many (0 to
 * FAULT_OPS_MAX). Faults that sleep or end the process do so here.
 */
size_t fault_apply(const struct train_op *op, uint64_t n, struct train_op ops[FAULT_OPS_MAX]);

#endif
