/* Inside the lab's NCCL: a communicator rank and the operations on it.
 *
 * Who owns what. A comm is made and torn down by host threads. Its launches run one after another on stream
 * worker threads, ordered by fences, so the fields under "launch side" have one user at a time without a
 * lock. Host collectives (split, finalize) run one after another in jobs. Everything shared with other ranks
 * is in the region (region.h).
 */
#ifndef LAB_COMM_H
#define LAB_COMM_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../engine/engine.h"
#include "config.h"
#include "profiler.h"
#include "region.h"

#define LAB_COMM_MAGIC UINT64_C(0x6c61622d636f6d6d)

/* A reduction as an operation carries it: a copy, because a user's operator may be destroyed before the
 * group that uses it ends. */
struct lab_redop {
    ncclRedOp_t fold;          /* ncclSum .. ncclAvg */
    bool premultiply;          /* by scalar, before folding */
    const void *device_scalar; /* read when the operation runs; NULL: `scalar` holds it */
    unsigned char scalar[8];   /* in the operation's datatype */
};

enum lab_kind {
    LAB_ALL_REDUCE = 1, /* part of what ranks compare: an untouched entry is 0 */
    LAB_BROADCAST,
    LAB_REDUCE,
    LAB_ALL_GATHER,
    LAB_REDUCE_SCATTER,
    LAB_ALL_TO_ALL, /* these three become sends and receives when they are launched */
    LAB_GATHER,
    LAB_SCATTER,
    LAB_SEND,
    LAB_RECV,
    LAB_PUT_SIGNAL, /* one-sided */
    LAB_SIGNAL,
    LAB_WAIT_SIGNAL,
};

struct lab_op {
    enum lab_kind kind;
    const void *send;
    void *recv;
    size_t count; /* of a wait: signals */
    ncclDataType_t datatype;
    struct lab_redop redop;
    int peer;         /* root of a rooted collective, peer of a send or receive */
    unsigned ordinal; /* position among the calls on this communicator, from 1; planned faults use it */

    unsigned window, signal, context; /* of a one-sided operation */
    size_t offset;                    /* into the window */
    CUevent launched;                 /* to record when it starts, or NULL */
    struct lab_op_events events;
};

/* State of one direction to one peer. */
struct lab_p2p_lane {
    uint64_t messages; /* finished */
    uint64_t chunks;   /* filled by a sender, drained by a receiver */
};

struct lab_p2p_buffer {
    bool used;
    int peer;
    uint64_t chunk; /* free again when the peer has drained beyond it */
};

struct lab_window {
    void *buffer;
    size_t bytes;
    uint32_t index; /* among all that the communicator ever had; equal on all ranks */
    struct lab_window *next;
};

/* Equal on all ranks. */
struct lab_identity {
    uint64_t id;    /* where ranks meet; no two communicators share it */
    uint64_t hash;  /* NCCL's commHash, by which other tools know it */
    uint64_t magic; /* of which the ids of grown communicators are made, as in NCCL */
};

struct ncclComm {
    uint64_t magic;
    atomic_uint refs; /* the program's handle, every queued launch, every running job */
    int rank, nranks, device;
    struct lab_identity identity;
    struct lab_config config; /* also for children that give none */
    bool connects_lazily;     /* see connect.c */
    struct lab_region region;
    atomic_bool is_mapped; /* the region is there and its bell can be rung */
    struct lab_profiler *profiler;

    atomic_bool aborted;                 /* all waits of this rank end */
    const _Atomic(bool) *parent_aborted; /* while a child is being made */
    _Atomic int async_result;            /* ncclResult_t, what ncclCommGetAsyncError tells */
    atomic_bool revoked, finalized, suspended;

    /* Host side, under lock. */
    pthread_mutex_t lock;
    pthread_cond_t idle;        /* no job is running */
    int jobs;                   /* running in the background */
    atomic_bool is_launching;   /* and that job only puts operations on streams */
    int graph_launches;         /* kept in graphs: ncclCommDestroy waits until these are gone */
    uint64_t last_stream;       /* id, of the latest launch */
    struct hg_fence *last_done; /* of the latest launch */
    unsigned op_count;
    struct lab_user_redop *redops; /* slots; a handle is ncclNumOps + index */
    int redop_count;
    int children;         /* split and grown so far */
    uint64_t shrinks;     /* so far */
    bool grow_id_pending; /* asked for and not used yet */

    /* Jobs, one after another. */
    uint64_t host_phase;

    /* Launch side. Replays of a graph and launches outside it are ordered by nobody, hence the lock. */
    pthread_mutex_t run_lock;
    uint64_t phase;                /* barriers passed */
    uint64_t collectives;          /* finished */
    const void **sources;          /* scratch for a fold, one per rank */
    struct lab_p2p_lane *out, *in; /* one per peer */
    struct lab_p2p_buffer buffers[LAB_P2P_BUFFERS];
    uint64_t (*signals_waited)[LAB_RMA_CONTEXTS][LAB_RMA_SIGNALS]; /* per peer, so far */

    /* One-sided writes into this rank's memory, see rma.c. The server is started by a job and ended with the
     * communicator. */
    pthread_mutex_t window_lock; /* guards the list */
    struct lab_window *windows;
    uint32_t next_window;
    bool has_server;
    pthread_t server;
    atomic_bool serve_ends;
};

struct lab_user_redop {
    bool used;
    ncclDataType_t datatype;
    struct lab_redop redop;
};

/* ---- comm.c ---- */

/* A comm with one reference; *out is NULL on failure. */
ncclResult_t lab_comm_new(ncclComm_t *out, int nranks, int rank, const struct lab_identity *identity,
                          const struct lab_config *config);
void lab_comm_ref(ncclComm_t comm);
void lab_comm_unref(ncclComm_t comm);
/* Maps the region and meets all other ranks. Blocks until they are here or the comm is aborted. */
ncclResult_t lab_comm_join(ncclComm_t comm);
bool lab_comm_is_aborted(const struct ncclComm *comm);
/* Aborted or revoked: operations end, host collectives end only when aborted. */
bool lab_comm_is_stopped(const struct ncclComm *comm);
/* Ends all waits of this rank. */
void lab_comm_abort(ncclComm_t comm);
/* Lets its operations end, for ever; it can still be split, shrunk and destroyed. Returns when none is being
 * launched any more; ncclInvalidArgument if the communicator is not ready, because another job is running. */
ncclResult_t lab_comm_stop(ncclComm_t comm, const char *name);
/* Counts a launch that a graph keeps; -1 when the graph lets it go. */
void lab_comm_count_graph_launch(ncclComm_t comm, int change);
/* Returns when no graph keeps a launch of the comm. */
void lab_comm_wait_graphs(ncclComm_t comm);
/* Returns when no background job is running on the comm. */
void lab_comm_wait_jobs(ncclComm_t comm);
/* Returns when the launches made so far are over, as they are soon after an abort. */
void lab_comm_drain(ncclComm_t comm);
/* ncclInvalidArgument if the handle is no communicator. `name` is the public function, for the message. */
ncclResult_t lab_comm_check(const struct ncclComm *comm, const char *name);
/* The same, and ncclInvalidArgument if a job is running: those on one communicator must not overlap. */
ncclResult_t lab_comm_check_idle(const struct ncclComm *comm, const char *name);
/* Barrier of host threads over all ranks, leaving each rank's two words in the region's host entry. */
bool lab_comm_host_barrier(ncclComm_t comm, int64_t first, int64_t second);

/* ---- error.c ---- */

/* Keeps the message for ncclGetLastError and returns result. */
ncclResult_t lab_error(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- wait.c: sleeping on the rank's bell ---- */

uint32_t lab_bell_read(struct ncclComm *comm);
/* Sleeps unless the bell has rung since lab_bell_read gave `seen`. */
void lab_bell_sleep(struct ncclComm *comm, uint32_t seen);
void lab_bell_ring(struct ncclComm *comm, int rank);
/* Returns only once the comm is stopped. */
void lab_hang_until_stopped(struct ncclComm *comm);

/* ---- collective.c and p2p.c: run on a stream's worker; they return early when the comm is stopped ---- */

void lab_run_collective(struct ncclComm *comm, const struct lab_op *op);
/* All of the batch progress at the same time; messages between one pair go in order. */
void lab_run_p2p(struct ncclComm *comm, const struct lab_op *ops, size_t n);

/* ---- rma.c ---- */

void lab_run_rma(struct ncclComm *comm, const struct lab_op *ops, size_t n); /* as the two above */
/* From now on peers may write into this rank's windows. */
ncclResult_t lab_rma_serve(struct ncclComm *comm);
void lab_rma_end(struct ncclComm *comm);

#endif
