/* Memory that the ranks of one communicator share.
 *
 * No locks: every word has one writer, except the bells, which anybody may increment. So a rank that is
 * killed leaves nothing half-done, and its peers simply go on waiting, as peers of a dead GPU do.
 *
 * The region is a file that exists only while ranks meet: it is unlinked before any of them leaves
 * initialisation. All-zero bytes are the valid initial state.
 */
#ifndef LAB_REGION_H
#define LAB_REGION_H

#include "compat.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* One per rank; written by that rank alone, but for bell and, in bell_ring, nothing else. */
struct lab_rank_words {
    _Alignas(64) _Atomic uint32_t bell; /* futex word, incremented by whoever has news for this rank */
    _Atomic uint32_t sleepers;          /* threads of this rank that sleep, or are about to, on the bell */

    _Alignas(64) _Atomic uint32_t joined; /* 1: here; 2, rank 0 only: the file is gone, all may leave */
    _Atomic uint32_t connected;           /* by a first collective, see connect.c */
    _Atomic uint64_t host_phase;          /* host barriers entered */
    struct {
        _Atomic int64_t first, second;
    } host[2]; /* of the host barrier with that parity */

    _Alignas(64) _Atomic uint64_t phase; /* stream barriers entered */
    struct {
        _Atomic uint64_t kind, bytes;
    } collective[2]; /* of the collective with that parity */
};

/* What a rank can be signalled with, see rma.c. */
#define LAB_RMA_CONTEXTS 2
#define LAB_RMA_SIGNALS  4

/* One direction between two ranks. Two entries each: see p2p.c. */
struct lab_lane_out {
    _Alignas(64) _Atomic uint64_t posted; /* messages announced */
    _Atomic uint64_t bytes[2];
    _Atomic uint64_t filled;    /* chunks ever */
    _Atomic uint32_t buffer[2]; /* of the sender, in which a chunk lies */
    _Atomic uint32_t connected; /* see connect.c */

    _Alignas(
        64) _Atomic uint64_t puts; /* chunks for a window, ever; the next words say where the last goes */
    _Atomic uint64_t put_offset, put_bytes;
    _Atomic uint32_t put_window;
    _Atomic uint64_t signals[LAB_RMA_CONTEXTS][LAB_RMA_SIGNALS]; /* raised, ever */
};

struct lab_lane_in {
    _Alignas(64) _Atomic uint64_t posted;
    _Atomic uint64_t bytes[2];
    _Atomic uint64_t drained;
    _Atomic uint32_t connected;
    _Atomic uint64_t puts_taken;
};

struct lab_region {
    int nranks;
    size_t bytes;       /* of the mapping */
    size_t slot_bytes;  /* of one staging slot */
    size_t chunk_bytes; /* of one staging buffer for messages */
    char *base;
    int fd;        /* open while ranks meet, else -1 */
    char name[64]; /* of the file, in the directory where ranks meet */
};

/* Maps the region of the communicator `id`; ranks that disagree about nranks never meet. ncclSystemError
 * with a message if the directory or the memory cannot be had. */
ncclResult_t lab_region_open(struct lab_region *region, uint64_t id, int nranks);
/* Removes the file; for one rank, when all are here. */
ncclResult_t lab_region_unlink(struct lab_region *region);
/* Gives up the file descriptor and with it the claim that somebody still needs the file. */
void lab_region_close_file(struct lab_region *region);
/* The same for a rank that gives up waiting: also removes the file if nobody else is there. */
void lab_region_abandon_file(struct lab_region *region);
void lab_region_unmap(struct lab_region *region);

struct lab_rank_words *lab_region_rank(const struct lab_region *region, int rank);
struct lab_lane_out *lab_region_out(const struct lab_region *region, int from, int to);
struct lab_lane_in *lab_region_in(const struct lab_region *region, int from, int to);
/* Staging slot of a rank for barriers of that parity. */
char *lab_region_slot(const struct lab_region *region, int rank, unsigned parity);
/* A sender's staging buffer for messages; the one behind those is for puts. */
#define LAB_P2P_BUFFERS 8
#define LAB_RMA_BUFFER  LAB_P2P_BUFFERS
char *lab_region_p2p_buffer(const struct lab_region *region, int rank, unsigned index);

#endif
