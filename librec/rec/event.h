/*
 * What a trace consists of, decoded: the records that the writer takes and the reader
 * gives. Ids are local to one process. Times are wall-clock ns since the epoch of the
 * recording host, 0 = unknown. Strings are UTF-8, zero terminated, never NULL.
 */
#ifndef REC_EVENT_H
#define REC_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "rec/model.h"

#pragma GCC visibility push(default)

struct rec_comm_def {
    uint32_t id;     /* order of creation in the process */
    uint32_t state;  /* enum rec_live_comm_state at the time of the record */
    uint32_t nranks; /* 0 = unknown */
    uint32_t rank;   /* comm rank; REC_ID_NONE = unknown */
    uint64_t uid;    /* equal on all members; 0 = not known (creation incomplete) */
    uint64_t parent_uid;
    uint64_t parent_seq;
    uint64_t comm_hash;
    uint64_t handle;
    uint64_t created_ns;
    int32_t device;
    int32_t color;
    uint32_t made_by; /* enum rec_kind */
    uint32_t async_error;
    char name[64];
};

struct rec_thread_def {
    uint32_t id;
    int32_t tid;
    char name[16];
};

struct rec_redop_def {
    uint32_t redop; /* REC_REDOP_USER + i */
    uint32_t dtype;
    uint32_t residence;
    uint32_t comm; /* id; REC_ID_NONE */
    uint64_t scalar;
    uint64_t hash;
};

struct rec_stream_def {
    uint32_t id;
    int32_t device;
    uint64_t handle;
};

/*
 * The line of code behind a call: the Python stack of the thread, or where it has none the
 * address that the call returns to. Evidence only: sites are never compared between ranks.
 */
#define REC_CALLSITE_FRAMES 64

enum rec_callsite_kind {
    REC_CALLSITE_PYTHON = 1,
    REC_CALLSITE_NATIVE = 2,
};

struct rec_source_frame {
    const char *file;     /* Python: as the interpreter names it. Native: path of the module, "" = none */
    const char *function; /* Python; "" = unknown */
    uint32_t line;        /* Python; 0 = unknown */
    uint64_t offset;      /* native: as in struct rec_frame */
    const char *build_id; /* native: of the module, in hex; "" or NULL = unknown */
};

struct rec_callsite_def {
    uint32_t id;   /* 1, 2, … */
    uint32_t kind; /* enum rec_callsite_kind, or a number of a newer version */
    uint32_t nframes;
    const struct rec_source_frame *frames; /* innermost first; NULL without frames */
};

/*
 * What the GPU had done on a stream at this moment: of the launches with number 1, 2, …, on the
 * stream (rec_op.launch), the first started had begun, the first ended were over.
 */
struct rec_gpu {
    uint32_t stream; /* id */
    uint32_t error;  /* CUresult for which marks ended; 0 = they have not, or not for that */
    uint64_t started, ended;
    uint64_t dropped; /* of launches from this number on nothing is known but that the first ended
                         are over; 0 = all have marks */
};

/* A communicator's counters at this moment; exact even where op records were lost. */
struct rec_frontier {
    uint32_t comm;
    uint64_t next_seq; /* ops entered */
    uint64_t p2p_entered;
    uint64_t lost; /* ops of this communicator without a record */
};

/* Hash of one window of REC_CHECKPOINT_OPS ops (model.h). */
struct rec_checkpoint {
    uint32_t comm;
    int32_t peer;    /* -1 = the collective sequence; else a P2P pair with this comm rank */
    bool send;       /* the pair's direction as seen from here */
    bool prefix_ok;  /* prefix is known: no op of this sequence was lost before */
    uint64_t window; /* covers seq window*1024 … window*1024+1023 */
    uint64_t hash;   /* of this window */
    uint64_t prefix; /* sum of all windows up to this one */
};

struct rec_loss {
    uint32_t thread; /* id; REC_ID_NONE when not known per thread */
    uint64_t first_ordinal;
    uint64_t count;
    uint32_t why; /* enum rec_loss_why */
};
enum rec_loss_why {
    REC_LOSS_RING_FULL = 1,  /* no free slot: the drain thread fell behind */
    REC_LOSS_WRITE = 2,      /* the file could not be written (disk full …) */
    REC_LOSS_ROTATED = 3,    /* older segments were deleted by FREC_MAX_MB */
    REC_LOSS_DAMAGED = 4,    /* reader: file damaged here */
    REC_LOSS_TABLE_FULL = 5, /* more communicators or threads than the tables hold */
};
const char *rec_loss_why_name(unsigned why); /* "ring_full" …; NULL when unknown */

struct rec_frame {
    uint32_t module; /* index into rec_stall.modules; REC_ID_NONE = not in any file */
    uint64_t offset; /* into the module's file: offset of its mapping + (address - start of the mapping); an
                        ELF virtual address follows from the program headers. Without module: the address */
};

struct rec_stall_thread {
    int32_t tid;
    char state; /* of /proc: R S D … */
    char name[16];
    char where[64]; /* wchan or system call, as text; may be empty */
    uint32_t nframes;
    const struct rec_frame *frames; /* innermost first */
    uint32_t callsite;              /* its Python stack; 0 = none, or not known */
};

enum rec_stall_why {
    REC_STALL_OPEN_OP = 1, /* one call has not returned for FREC_STALL_SEC */
    REC_STALL_IDLE = 2,    /* no NCCL call began or returned for FREC_STALL_SEC while communicators exist */
};

struct rec_stall {
    uint32_t why;
    uint32_t thread; /* thread id of the open op; REC_ID_NONE */
    uint64_t since_ns;
    uint32_t nmodules;
    const char *const *modules; /* paths */
    uint32_t nthreads;
    const struct rec_stall_thread *threads;
};

struct rec_end {
    uint32_t reason; /* enum rec_end_reason (live.h) */
    int32_t status;
    int32_t signal;
    int32_t tid;
    uint64_t fault;
    uint32_t nmodules;
    const char *const *modules;
    uint32_t nframes;
    const struct rec_frame *frames;
};

enum rec_event_type {
    REC_EV_COMM = 1,
    REC_EV_THREAD,
    REC_EV_REDOP,
    REC_EV_STREAM,
    REC_EV_OP,   /* a finished call */
    REC_EV_OPEN, /* the calls open at time_ns; replaces every earlier OPEN of the process */
    REC_EV_FRONTIER,
    REC_EV_CHECKPOINT,
    REC_EV_HEARTBEAT, /* the process lived at time_ns */
    REC_EV_LOSS,
    REC_EV_STALL,
    REC_EV_END, /* the process said how it ended */
    REC_EV_CALLSITE,
    REC_EV_GPU, /* of one stream; replaces every earlier one */
};

/* Pointers inside are valid until the next call on the same reader. */
struct rec_event {
    enum rec_event_type type;
    uint64_t time_ns; /* of the record; for ops the exit time */
    uint64_t offset;  /* where in the file the piece that holds it begins; 0 = live region */
    bool notice;      /* told by the file's header in place of records that could not be written: the live
                         region, if there is one, knows it better */
    union {
        struct rec_comm_def comm;
        struct rec_thread_def thread;
        struct rec_redop_def redop;
        struct rec_stream_def stream;
        struct rec_op op;
        struct {
            const struct rec_op *ops;
            uint32_t count;
        } open;
        struct rec_frontier frontier;
        struct rec_checkpoint checkpoint;
        struct rec_loss loss;
        struct rec_stall stall;
        struct rec_end end;
        struct rec_callsite_def callsite;
        struct rec_gpu gpu;
    } u;
};

/*
 * Raises the state of an op of this stream to what its marks show: gpu_started of enqueued ones,
 * completed. Never lowers it, and leaves failed ones alone.
 */
void rec_op_gpu(struct rec_op *op, const struct rec_gpu *gpu);

#pragma GCC visibility pop

#endif
