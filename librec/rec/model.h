/*
 * The model: NCCL's vocabulary as stable numbers, and the op that everything else
 * passes around.
 *
 * The numbers are part of the trace format and never change meaning. Data types,
 * builtin redops and results have NCCL's own values (nccl.h 2.18 to 2.32), so this
 * header needs no nccl.h. All functions here are pure, thread safe and
 * async-signal-safe.
 */
#ifndef REC_MODEL_H
#define REC_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* ---- op kinds ------------------------------------------------------------------ */

enum rec_kind_flags {
    REC_KF_COLL = 1 << 0,     /* data-moving collective: all members, same seq */
    REC_KF_P2P = 1 << 1,      /* send or recv: seq counts per (communicator, src, dst) */
    REC_KF_RMA = 1 << 2,      /* put, signal, wait-signal */
    REC_KF_CREATE = 1 << 3,   /* makes a communicator */
    REC_KF_TEARDOWN = 1 << 4, /* ends one; seq is that of the next op, not consumed */
    REC_KF_SEQ = 1 << 5,      /* consumes one seq of its communicator */
    REC_KF_DATA = 1 << 6,     /* has count and datatype */
    REC_KF_REDOP = 1 << 7,    /* has a redop */
    REC_KF_ROOT = 1 << 8,     /* peer holds the root */
    REC_KF_STREAM = 1 << 9,   /* runs on a CUDA stream */
    REC_KF_HOST = 1 << 10,    /* all members meet in it on the host; not in the sequence */
};

/*
 * X(number, ENUM, name, flags). The name is NCCL's without its prefix.
 * Creation of a communicator by init takes seq 0 of the new communicator; split,
 * shrink and grow take a seq of the parent, and the child starts at seq 1.
 */
#define REC_KIND_TABLE(X)                                                                                    \
    X(1, ALL_REDUCE, "AllReduce", REC_KF_COLL | REC_KF_SEQ | REC_KF_DATA | REC_KF_REDOP | REC_KF_STREAM)     \
    X(2, BROADCAST, "Broadcast", REC_KF_COLL | REC_KF_SEQ | REC_KF_DATA | REC_KF_ROOT | REC_KF_STREAM)       \
    X(3, REDUCE, "Reduce",                                                                                   \
      REC_KF_COLL | REC_KF_SEQ | REC_KF_DATA | REC_KF_REDOP | REC_KF_ROOT | REC_KF_STREAM)                   \
    X(4, ALL_GATHER, "AllGather", REC_KF_COLL | REC_KF_SEQ | REC_KF_DATA | REC_KF_STREAM)                    \
    X(5, REDUCE_SCATTER, "ReduceScatter",                                                                    \
      REC_KF_COLL | REC_KF_SEQ | REC_KF_DATA | REC_KF_REDOP | REC_KF_STREAM)                                 \
    X(6, ALL_TO_ALL, "AlltoAll", REC_KF_COLL | REC_KF_SEQ | REC_KF_DATA | REC_KF_STREAM)                     \
    X(7, GATHER, "Gather", REC_KF_COLL | REC_KF_SEQ | REC_KF_DATA | REC_KF_ROOT | REC_KF_STREAM)             \
    X(8, SCATTER, "Scatter", REC_KF_COLL | REC_KF_SEQ | REC_KF_DATA | REC_KF_ROOT | REC_KF_STREAM)           \
    X(9, BCAST, "Bcast", REC_KF_COLL | REC_KF_SEQ | REC_KF_DATA | REC_KF_ROOT | REC_KF_STREAM)               \
    X(16, SEND, "Send", REC_KF_P2P | REC_KF_DATA | REC_KF_STREAM)                                            \
    X(17, RECV, "Recv", REC_KF_P2P | REC_KF_DATA | REC_KF_STREAM)                                            \
    X(24, PUT_SIGNAL, "PutSignal", REC_KF_RMA | REC_KF_DATA | REC_KF_STREAM)                                 \
    X(25, SIGNAL, "Signal", REC_KF_RMA | REC_KF_STREAM)                                                      \
    X(26, WAIT_SIGNAL, "WaitSignal", REC_KF_RMA | REC_KF_STREAM)                                             \
    X(32, COMM_INIT_RANK, "CommInitRank", REC_KF_CREATE | REC_KF_SEQ)                                        \
    X(33, COMM_INIT_RANK_CONFIG, "CommInitRankConfig", REC_KF_CREATE | REC_KF_SEQ)                           \
    X(34, COMM_INIT_RANK_SCALABLE, "CommInitRankScalable", REC_KF_CREATE | REC_KF_SEQ)                       \
    X(35, COMM_INIT_ALL, "CommInitAll", REC_KF_CREATE | REC_KF_SEQ)                                          \
    X(36, COMM_SPLIT, "CommSplit", REC_KF_CREATE | REC_KF_SEQ)                                               \
    X(37, COMM_SHRINK, "CommShrink", REC_KF_CREATE | REC_KF_SEQ)                                             \
    X(38, COMM_GROW, "CommGrow", REC_KF_CREATE | REC_KF_SEQ)                                                 \
    X(48, COMM_FINALIZE, "CommFinalize", REC_KF_TEARDOWN)                                                    \
    X(49, COMM_DESTROY, "CommDestroy", REC_KF_TEARDOWN)                                                      \
    X(50, COMM_ABORT, "CommAbort", REC_KF_TEARDOWN)                                                          \
    X(51, COMM_REVOKE, "CommRevoke", REC_KF_TEARDOWN)                                                        \
    X(52, COMM_SUSPEND, "CommSuspend", REC_KF_HOST)                                                          \
    X(53, COMM_RESUME, "CommResume", REC_KF_HOST)                                                            \
    X(64, GROUP_END, "GroupEnd", 0)                                                                          \
    X(65, GROUP_SIMULATE_END, "GroupSimulateEnd", 0)                                                         \
    X(72, GET_UNIQUE_ID, "GetUniqueId", 0)                                                                   \
    X(73, COMM_GET_UNIQUE_ID, "CommGetUniqueId", 0)                                                          \
    X(74, COMM_GET_ASYNC_ERROR, "CommGetAsyncError", 0)                                                      \
    X(80, RED_OP_CREATE_PRE_MUL_SUM, "RedOpCreatePreMulSum", 0)                                              \
    X(81, RED_OP_DESTROY, "RedOpDestroy", 0)                                                                 \
    X(88, COMM_REGISTER, "CommRegister", 0)                                                                  \
    X(89, COMM_DEREGISTER, "CommDeregister", 0)                                                              \
    X(90, COMM_WINDOW_REGISTER, "CommWindowRegister", REC_KF_HOST)                                           \
    X(91, COMM_WINDOW_DEREGISTER, "CommWindowDeregister", 0)                                                 \
    X(92, MEM_ALLOC, "MemAlloc", 0)                                                                          \
    X(93, MEM_FREE, "MemFree", 0)                                                                            \
    X(94, DEV_COMM_CREATE, "DevCommCreate", REC_KF_HOST)                                                     \
    X(95, DEV_COMM_DESTROY, "DevCommDestroy", 0)                                                             \
    X(112, GRAPH_LAUNCH, "GraphLaunch", REC_KF_STREAM)

enum rec_kind {
    REC_NONE = 0,
#define X(number, id, name, flags) REC_##id = number,
    REC_KIND_TABLE(X)
#undef X
};

/* "AllReduce"; "Op<N>" cannot be named by a constant, so an unknown number gives NULL. */
const char *rec_kind_name(unsigned kind);
/* enum rec_kind_flags; 0 for an unknown kind. Asked several times an op: no call. */
#define REC_KIND_END 128 /* all known kinds are below */
extern const uint16_t rec_kind_flags_table[REC_KIND_END];
static inline unsigned rec_kind_flags(unsigned kind)
{
    return kind < REC_KIND_END ? rec_kind_flags_table[kind] : 0;
}
/* The kind that matching compares: Bcast is a Broadcast, every init is CommInitRank. */
enum rec_kind rec_kind_canonical(unsigned kind);

/* ---- data types, redops, results (NCCL's own values) ------------------------------ */

#define REC_DTYPE_NONE 0xff
/* "f16", "bf16", "i32" …; NULL when unknown. Sizes in bytes, 0 when unknown. */
const char *rec_dtype_name(unsigned dtype);
int rec_dtype_from_name(const char *name); /* -1 when unknown */
unsigned rec_dtype_size(unsigned dtype);

/*
 * redop: 0 sum, 1 prod, 2 max, 3 min, 4 avg; REC_REDOP_USER + i is the process's i-th
 * user-defined operator (index into its redop definitions), never comparable by number.
 */
#define REC_REDOP_USER 5
#define REC_REDOP_NONE 0xff
const char *rec_redop_name(unsigned redop); /* "sum"…"avg", "user" for all user operators, NULL for none */
int rec_redop_from_name(const char *name);

const char *rec_result_name(unsigned result); /* "Success", "RemoteError" …; NULL when unknown */
#define REC_RESULT_SUCCESS          0
#define REC_RESULT_SYSTEM_ERROR     2
#define REC_RESULT_INVALID_ARGUMENT 4 /* these two: NCCL looked at the call and refused it */
#define REC_RESULT_INVALID_USAGE    5
#define REC_RESULT_REMOTE_ERROR     6 /* "a network error or a remote process exiting prematurely" (nccl.h) */
#define REC_RESULT_IN_PROGRESS      7
#define REC_RESULT_NONE             0xff /* the call has not returned */

/* ---- states ----------------------------------------------------------------------- */

/* How far an op is known to have come. Never guessed upwards. */
enum rec_state {
    REC_STATE_UNKNOWN = 0,
    REC_STATE_NOT_ENTERED,
    REC_STATE_IN_CALL,  /* host inside NCCL, or inside a group that has not been launched */
    REC_STATE_ENQUEUED, /* the call (or the outermost GroupEnd) returned success */
    REC_STATE_GPU_STARTED,
    REC_STATE_COMPLETED,
    REC_STATE_FAILED,
    REC_STATE_ABORTED,
};
const char *rec_state_name(enum rec_state state); /* "in_call" … */

/* ---- an op ------------------------------------------------------------------------- */

enum rec_op_flags {
    REC_OF_OPEN = 1 << 0,        /* the call has not returned */
    REC_OF_CAPTURED = 1 << 1,    /* recorded into a CUDA graph, did not run */
    REC_OF_NONBLOCKING = 1 << 2, /* on a communicator with blocking=0 */
    REC_OF_NO_SEQ = 1 << 3,      /* seq is 0: it could not be counted, or NCCL refused the call */
    REC_OF_LATE = 1 << 4,        /* found only in the live region, not in the file */
    REC_OF_PART = 1 << 5,        /* no call: one of the signals that the WaitSignal before it waits for */
};

#define REC_ID_NONE UINT32_MAX

/*
 * Which signal of a pair of ranks a one-sided op raises or waits for, as one number: NCCL counts each index
 * (sigIdx) in each context (ctx) separately. The first releases with such ops take only 0 and 0.
 */
#define REC_SIGNAL_UNKNOWN UINT64_MAX
#define REC_SIGNAL_SEVERAL (UINT64_MAX - 1) /* a wait with several descriptions: REC_OF_PART tells each */
static inline uint64_t rec_signal_id(int index, int context)
{
    return (uint64_t)(uint32_t)context << 32 | (uint32_t)index;
}
static inline bool rec_signal_known(uint64_t signal)
{
    return signal < REC_SIGNAL_SEVERAL;
}
static inline unsigned rec_signal_index(uint64_t signal)
{
    return (uint32_t)signal;
}
static inline unsigned rec_signal_context(uint64_t signal)
{
    return (unsigned)(signal >> 32);
}

/*
 * One call, in process-local terms. Times are wall-clock ns since the epoch; 0 = unknown.
 * What the generic fields mean for calls that are no data ops:
 *   init kinds        count = nranks, peer = comm rank
 *   CommSplit         peer = color (-1 = NCCL_SPLIT_NOCOLOR), count = key as int32
 *   CommShrink        count = ranks excluded, peer = shrink flags
 *   CommGrow          count = new nranks, peer = new comm rank or -1
 *   GroupEnd          count = ops in the group
 *   WaitSignal        count = signals waited for, peer = from whom (-1 = several peers)
 *   CommGetAsyncError count = the asynchronous error (recorded when it changes)
 *   MemAlloc, CommRegister, CommWindowRegister   count = bytes
 *   GraphLaunch       peer = the graph, seq = earlier launches of it, count = calls captured into it
 * Graphs have numbers in their process. A call with REC_OF_CAPTURED runs when its graph is launched, not when
 * it is called: its launch is the number of the graph, or 0 where launches of graphs were not seen.
 */
struct rec_op {
    uint64_t ordinal; /* position among this thread's recorded calls, from 0, without holes unless records
                         were lost */
    uint64_t enter_ns;
    uint64_t exit_ns; /* 0 while REC_OF_OPEN */
    uint64_t gpu_start_ns;
    uint64_t gpu_end_ns;
    uint64_t count;  /* elements */
    uint64_t seq;    /* see enum rec_kind_flags; P2P: position in its (communicator, src, dst) */
    uint64_t launch; /* number of its launch among those of its stream; 0 = the GPU's progress is not known */
    uint64_t signal; /* one-sided ops: rec_signal_id; others: 0 */
    uint32_t thread; /* id of a thread definition */
    uint32_t comm;   /* id of a communicator definition of this process; REC_ID_NONE */
    uint32_t stream; /* id of a stream definition; REC_ID_NONE */
    uint32_t callsite; /* id of a call site definition; 0 = not recorded */
    uint32_t group;    /* 0 = not grouped; else unique within the thread, rising */
    int32_t peer;      /* root, peer or as above; -1 = none */
    uint8_t kind;      /* enum rec_kind, or a number of a newer version */
    uint8_t dtype;
    uint8_t redop;
    uint8_t result; /* ncclResult_t, REC_RESULT_NONE */
    uint8_t state;  /* enum rec_state */
    uint8_t reserved;
    uint16_t flags; /* enum rec_op_flags */
};

/* ---- signatures --------------------------------------------------------------------- */

/* A strong 64-bit mixer (the finalizer of splitmix64, public domain, S. Vigna). */
static inline uint64_t rec_mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 31;
    return x;
}

/*
 * The signature of an op: equal on all ranks at one seq when they agree. redop_hash is
 * redop for builtin operators and the hash of the definition (struct rec_redop_def) for
 * user operators, REC_REDOP_NONE where the kind has none. Root enters only for rooted
 * kinds, nranks (count) for init. Split, shrink and grow agree by kind alone: color and
 * key differ rightly. Send and Recv of one message have equal signatures.
 */
uint64_t rec_signature(unsigned kind, uint64_t count, unsigned dtype, uint64_t redop_hash, int32_t root);

/*
 * Checkpoints. The hash of window w of a communicator (seq w*1024 … w*1024+1023) is the
 * sum modulo 2^64 of rec_checkpoint_term over its ops: independent of the order in which
 * threads report them, dependent on every (seq, signature). Windows of a P2P pair likewise.
 * Window 0 of a child made by split, shrink or grow begins at seq 1, so it has one op less.
 */
#define REC_CHECKPOINT_OPS 1024
/* The first seq of a communicator made by this kind of call: 0 for init, 1 for the others. */
static inline uint64_t rec_first_seq(unsigned made_by)
{
    return made_by == REC_COMM_SPLIT || made_by == REC_COMM_SHRINK || made_by == REC_COMM_GROW;
}
static inline uint64_t rec_checkpoint_term(uint64_t seq, uint64_t signature)
{
    return rec_mix64(signature ^ rec_mix64(seq + 0x9e3779b97f4a7c15u));
}

#pragma GCC visibility pop

#endif
