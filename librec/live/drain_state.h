/*
 * Inside the drain. Nothing here is part of librec's interface.
 *
 * drain.c      a step: finished and open ops, counters, progress; then what of the region becomes free
 * drain_defs.c what ops name: communicators, threads, operators, streams, call sites
 */
#ifndef REC_LIVE_DRAIN_STATE_H
#define REC_LIVE_DRAIN_STATE_H

#include "rec/callsite.h"
#include "rec/drain.h"

/*
 * Threads: everything in struct rec_drain belongs to the draining thread. In the region,
 * application threads publish (release) and the drain takes (acquire): chunk.done,
 * thread.id, thread.exited, comm.version, redop.used, stream.used. In the other direction
 * the drain frees with release and the recorder's claim takes with acquire: chunk.owner,
 * thread.id, comm.state.
 */

struct comm_seen {
    uint32_t id;
    uint32_t version;
    uint32_t async_error;
    uint64_t next_seq, p2p_entered, lost;
    bool dying; /* this step began with the entry destroyed or failed */
    bool busy;  /* an open op names it */
};

struct thread_seen {
    uint32_t id;
    bool gone; /* this step began with the thread exited */
    bool owns; /* a chunk is still its */
    char name[16];
    uint64_t next; /* ordinal after the last op or loss given to the writer */
};

struct pending {
    uint64_t claim;
    uint32_t chunk;
    uint32_t done;
};

/* Of one stream. */
struct gpu_seen {
    struct rec_gpu given;    /* to the writer, last */
    bool again;              /* and that may be lost */
    bool timed;              /* exact times come */
    uint64_t started, ended; /* shown by the marks in the last step */
};

struct rec_drain {
    struct rec_live live;
    struct rec_clock clock;
    bool failing; /* the last flush failed: nothing is given until the writer works again */
    bool opens_written;
    uint64_t opens_key; /* of the open ops written last */
    uint64_t unslotted;
    uint64_t forgotten; /* ops of threads that are gone, never given because writing failed */
    struct comm_seen *comms;
    struct thread_seen *threads;
    uint8_t *redops, *streams;
    struct gpu_seen *gpu;
    rec_drain_take_time *take_time;
    uint32_t *given; /* per chunk: slots handed to the writer; drained follows when they are safe */
    struct pending *pending;
    uint32_t npending;
    uint64_t horizon; /* chunks claimed later wait for the next step */
    struct rec_op *opens;
    rec_drain_resolve *resolve;
    void *resolve_context;
    struct rec_live_callsite callsite; /* given to the writer last */
    struct rec_op batch[REC_LIVE_CHUNK_SLOTS];
};

/* Gives the writer the definitions that are new or have changed, and marks them as seen. */
void rec_drain_definitions(struct rec_drain *drain, struct rec_writer *writer);

#endif
