/* Collectives through staging slots.
 *
 * A rank copies its part into its slot, enters a barrier, and reads the other slots. Barriers are numbered;
 * slot and barrier share parity. Two slots per rank suffice: who has passed barrier k+1 knows that all ranks
 * have finished reading what was staged for barrier k, and only then stages for k+2.
 *
 * Each rank leaves (kind, bytes) of its operation before its first barrier. Whoever finds another rank's
 * different sees what a GPU would run into, and hangs; so do all others, since all see the same words. Root,
 * reduction and datatype are not compared: as on a GPU, these differences complete with whatever data comes
 * out. For this, slices are cut in bytes and not in elements.
 */
#include "comm.h"

#include "reduce.h"

#include <string.h>

/* Up to this much over all ranks, every rank folds everything itself: one barrier less for a little more
 * arithmetic. */
#define DIRECT_BYTES ((size_t)64 << 10)

static bool all_arrived(struct ncclComm *c, int *from)
{
    /* Ranks before *from are known to have arrived. */
    for (; *from < c->nranks; ++*from)
        if (atomic_load(&lab_region_rank(&c->region, *from)->phase) < c->phase)
            return false;
    return true;
}

/* Enters the next barrier and returns when all ranks have; false if the comm was stopped. Only the last to
 * arrive rings: of two that arrive at once at least one sees all others, the stores and loads of `phase`
 * being sequentially consistent. */
static bool barrier(struct ncclComm *c)
{
    int from = 0;
    c->phase++;
    atomic_store(&lab_region_rank(&c->region, c->rank)->phase, c->phase);
    if (all_arrived(c, &from)) {
        for (int r = 0; r < c->nranks; r++)
            if (r != c->rank)
                lab_bell_ring(c, r);
        return true;
    }
    for (;;) {
        uint32_t seen = lab_bell_read(c);
        if (all_arrived(c, &from))
            return true;
        if (lab_comm_is_stopped(c))
            return false;
        lab_bell_sleep(c, seen);
    }
}

/* What the coming barrier's slot of a rank is. */
static char *slot(struct ncclComm *c, int rank)
{
    return lab_region_slot(&c->region, rank, (unsigned)(c->phase + 1) & 1);
}

/* After a barrier: the slot that was staged for it. */
static char *staged(struct ncclComm *c, int rank)
{
    return lab_region_slot(&c->region, rank, (unsigned)c->phase & 1);
}

static void announce(struct ncclComm *c, enum lab_kind kind, uint64_t bytes)
{
    struct lab_rank_words *me = lab_region_rank(&c->region, c->rank);
    unsigned parity = (unsigned)c->collectives & 1;
    atomic_store_explicit(&me->collective[parity].kind, (uint64_t)kind, memory_order_relaxed);
    atomic_store_explicit(&me->collective[parity].bytes, bytes, memory_order_relaxed);
    /* Published by the store to `phase` in the barrier. */
}

static bool all_agree(struct ncclComm *c, enum lab_kind kind, uint64_t bytes)
{
    unsigned parity = (unsigned)c->collectives & 1;
    for (int r = 0; r < c->nranks; r++) {
        struct lab_rank_words *words = lab_region_rank(&c->region, r);
        if (atomic_load_explicit(&words->collective[parity].kind, memory_order_relaxed) != (uint64_t)kind ||
            atomic_load_explicit(&words->collective[parity].bytes, memory_order_relaxed) != bytes)
            return false;
    }
    return true;
}

/* The barrier of one chunk; the first of an operation also compares it. */
static bool meet(struct ncclComm *c, const struct lab_op *op, size_t bytes, bool first)
{
    if (!barrier(c))
        return false;
    if (first && !all_agree(c, op->kind, bytes)) {
        lab_hang_until_stopped(c);
        return false;
    }
    return true;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Copies into a slot, multiplied first if the operator says so. */
static void stage(const struct lab_op *op, char *to, const char *from, size_t bytes)
{
    const struct lab_redop *redop = &op->redop;
    if (redop->premultiply)
        lab_scale(to, from, bytes / lab_type_size(op->datatype), op->datatype,
                  redop->device_scalar ? redop->device_scalar : redop->scalar);
    else
        memcpy(to, from, bytes);
}

/* Folds the bytes [at, at+bytes) of all staged slots. */
static void fold_staged(struct ncclComm *c, const struct lab_op *op, char *out, size_t at, size_t bytes)
{
    for (int r = 0; r < c->nranks; r++)
        c->sources[r] = staged(c, r) + at;
    lab_fold(out, c->sources, c->nranks, bytes / lab_type_size(op->datatype), op->datatype, op->redop.fold);
}

static void run_broadcast(struct ncclComm *c, const struct lab_op *op, size_t bytes)
{
    bool is_root = c->rank == op->peer;
    for (size_t at = 0; at < bytes; at += c->region.slot_bytes) {
        size_t n = smaller(bytes - at, c->region.slot_bytes);
        if (is_root)
            memcpy(slot(c, c->rank), (const char *)op->send + at, n);
        if (!meet(c, op, bytes, at == 0))
            return;
        if (!is_root || op->recv != op->send)
            memcpy((char *)op->recv + at, staged(c, op->peer), n);
    }
}

static void run_all_gather(struct ncclComm *c, const struct lab_op *op, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += c->region.slot_bytes) {
        size_t n = smaller(bytes - at, c->region.slot_bytes);
        memcpy(slot(c, c->rank), (const char *)op->send + at, n);
        if (!meet(c, op, bytes, at == 0))
            return;
        for (int r = 0; r < c->nranks; r++)
            memcpy((char *)op->recv + (size_t)r * bytes + at, staged(c, r), n);
    }
}

static void run_reduce(struct ncclComm *c, const struct lab_op *op, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += c->region.slot_bytes) {
        size_t n = smaller(bytes - at, c->region.slot_bytes);
        stage(op, slot(c, c->rank), (const char *)op->send + at, n);
        if (!meet(c, op, bytes, at == 0))
            return;
        if (c->rank == op->peer)
            fold_staged(c, op, (char *)op->recv + at, 0, n);
    }
}

/* A slot holds one slice for each rank. */
static void run_reduce_scatter(struct ncclComm *c, const struct lab_op *op, size_t bytes)
{
    size_t slice = c->region.slot_bytes / (size_t)c->nranks / 16 * 16;
    for (size_t at = 0; at < bytes; at += slice) {
        size_t n = smaller(bytes - at, slice);
        char *mine = slot(c, c->rank);
        for (int r = 0; r < c->nranks; r++)
            stage(op, mine + (size_t)r * slice, (const char *)op->send + (size_t)r * bytes + at, n);
        if (!meet(c, op, bytes, at == 0))
            return;
        fold_staged(c, op, (char *)op->recv + at, (size_t)c->rank * slice, n);
    }
}

/* Slice of a chunk that a rank folds for all, in bytes; multiples of 8, so that all datatypes cut alike. */
static void slice_of(const struct ncclComm *c, int rank, size_t chunk, size_t *at, size_t *bytes)
{
    size_t n = (size_t)c->nranks;
    size_t slice = ((chunk + n - 1) / n + 7) / 8 * 8;
    *at = smaller((size_t)rank * slice, chunk);
    *bytes = smaller(chunk - *at, slice);
}

/* Each rank folds its slice of the chunk, stages the result for a second barrier and collects the others'. */
static bool exchange_slices(struct ncclComm *c, const struct lab_op *op, char *out, size_t chunk)
{
    size_t at, n;
    slice_of(c, c->rank, chunk, &at, &n);
    fold_staged(c, op, slot(c, c->rank), at, n);
    if (!barrier(c))
        return false;
    for (int r = 0; r < c->nranks; r++) {
        slice_of(c, r, chunk, &at, &n);
        memcpy(out + at, staged(c, r), n);
    }
    return true;
}

static void run_all_reduce(struct ncclComm *c, const struct lab_op *op, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += c->region.slot_bytes) {
        size_t n = smaller(bytes - at, c->region.slot_bytes);
        stage(op, slot(c, c->rank), (const char *)op->send + at, n);
        if (!meet(c, op, bytes, at == 0))
            return;
        if (bytes * (size_t)c->nranks <= DIRECT_BYTES)
            fold_staged(c, op, (char *)op->recv + at, 0, n);
        else if (!exchange_slices(c, op, (char *)op->recv + at, n))
            return;
    }
}

void lab_run_collective(struct ncclComm *c, const struct lab_op *op)
{
    static void (*const run[])(struct ncclComm *, const struct lab_op *, size_t) = {
        [LAB_ALL_REDUCE] = run_all_reduce,
        [LAB_BROADCAST] = run_broadcast,
        [LAB_REDUCE] = run_reduce,
        [LAB_ALL_GATHER] = run_all_gather,
        [LAB_REDUCE_SCATTER] = run_reduce_scatter,
    };
    size_t bytes = op->count * lab_type_size(op->datatype);
    if (lab_comm_is_stopped(c))
        return;
    announce(c, op->kind, bytes);
    run[op->kind](c, op, bytes);
    c->collectives++;
}
