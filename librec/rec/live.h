/*
 * The live region: one shared file per recorded process, written by the recorder inside
 * the job and readable by any other process at any moment. It outlives the process.
 *
 * Layout, all offsets in the header, everything 64-byte aligned, native byte order (it never
 * leaves its host):
 *
 *   header | communicator table | thread table | redop table | stream table | stream marks |
 *   call sites | chunk headers | op slots
 *
 * Writers and readers.
 *   - A *chunk* is REC_LIVE_CHUNK_SLOTS op slots owned by one application thread, which alone
 *     writes them; so no two threads ever share a slot and the hot path needs no atomic
 *     read-modify-write. A full chunk is replaced by a free one.
 *   - An op is written into slot [done] of its thread's chunk when the call is entered and
 *     thread.open is set to ordinal + 1 (release): the open slot *is* the activity slot. On
 *     return exit and result are filled in, chunk.done is raised (release), thread.open is
 *     cleared. A reader that loads done with acquire may read slots below it.
 *     To read an open op: load open (acquire), copy the slot, fence (acquire), load open
 *     again (relaxed); equal and non-zero means the copy is whole. Clearing open is ordered
 *     before the next op's slot stores by a release fence.
 *   - Without a free chunk the op is written to thread.spill instead (visible while open),
 *     its ordinal is consumed and the loss is counted: never wait.
 *   - The drain thread alone writes chunk.drained: the slots below it are in the .frec file
 *     (write(2) has returned). A fully drained full chunk is set free again.
 *   - Definitions (communicators, threads, redops, streams) are published by storing their
 *     state or version word with release after the other fields.
 * All words that a reader may see while they change are accessed with relaxed atomics at
 * least; see recorder-inject for who calls what.
 */
#ifndef REC_LIVE_H
#define REC_LIVE_H

#include <stdatomic.h>
#include <stdint.h>

#include "rec/error.h"
#include "rec/event.h"
#include "rec/model.h"

#pragma GCC visibility push(default)

#define REC_LIVE_MAGIC       UINT64_C(0x314556494c434552) /* "RECLIVE1" */
#define REC_LIVE_VERSION     4 /* changes when the layout does; readers take only their own */
#define REC_LIVE_CHUNK_SLOTS 128
#define REC_LIVE_META_BYTES  16384
#define REC_LIVE_PATH_BYTES  1024
#define REC_LIVE_CRASH_PCS   32

/* 64 bytes: one cache line. Times are raw counter values (see struct rec_live_clock). */
struct rec_slot {
    uint64_t ordinal;
    uint64_t enter;
    uint64_t exit; /* 0 while open */
    uint64_t count;
    uint64_t seq;    /* one-sided ops: the signal, for NCCL numbers none of them */
    uint16_t comm;   /* index into the communicator table, 0xffff = none */
    uint16_t stream; /* index into the stream table, 0xffff = none */
    uint32_t callsite;
    int32_t peer;
    uint32_t group;
    uint8_t kind;
    uint8_t dtype;
    uint8_t redop;
    uint8_t result;
    uint16_t flags;
    uint16_t launch; /* low bits of the number of its launch on the stream; 0 = has no marks. Captured: its
                        graph */
};
#define REC_LIVE_NONE16 0xffff

/* A slot as the eight words in which it is stored and loaded (relaxed). */
union rec_live_slot {
    struct rec_slot fields;
    _Atomic uint64_t words[8];
};
_Static_assert(sizeof(union rec_live_slot) == 64, "one cache line");

struct rec_live_chunk {
    _Atomic uint32_t owner;         /* thread table index + 1; 0 = free */
    _Atomic uint32_t done;          /* finished slots; written by the owner */
    _Atomic uint32_t drained;       /* slots safe in the file; written by the drain thread */
    _Atomic uint32_t thread_id;     /* rec_live_thread.id of the owner: table entries are reused */
    _Atomic uint64_t first_ordinal; /* ordinal of slot 0 */
    _Atomic uint64_t claim;         /* rises with every claim in the process; orders chunks by age */
    uint8_t pad[32];
};
_Static_assert(sizeof(struct rec_live_chunk) == 64, "one cache line");

struct rec_live_thread {
    _Atomic uint32_t id;      /* 1, 2, … unique in the process and never reused; 0 = entry free. Release */
    _Atomic int32_t tid;      /* kernel thread id */
    _Atomic uint64_t open;    /* ordinal + 1 of the op being inside NCCL; 0 = none */
    _Atomic uint32_t chunk;   /* index + 1 of the chunk in use; 0 = none */
    _Atomic uint32_t spilled; /* 1: the open op is in spill, not in the chunk */
    _Atomic uint64_t ordinal; /* ordinal of the next op = calls entered so far */
    _Atomic uint64_t lost;    /* ops that got no slot */
    _Atomic uint32_t group;   /* open outermost group; 0 = none */
    _Atomic uint32_t exited;  /* 1: the thread is gone; the entry is reused once drained */
    char name[16];
    union rec_live_slot spill;
    uint8_t pad[64];
};
_Static_assert(sizeof(struct rec_live_thread) == 192, "whole cache lines");

enum rec_live_comm_state {
    REC_LIVE_COMM_FREE = 0,
    REC_LIVE_COMM_CREATING, /* the creating call has not succeeded yet */
    REC_LIVE_COMM_READY,
    REC_LIVE_COMM_FAILED,    /* creation failed */
    REC_LIVE_COMM_DESTROYED, /* destroyed or aborted; the entry is reused once drained */
};

struct rec_live_comm {
    /* line 0-2: the definition; written under the recorder's slow-path lock */
    _Atomic uint32_t version; /* odd while being changed, 0 = never used; raised by 2 per change. Release */
    _Atomic uint32_t state;   /* enum rec_live_comm_state */
    _Atomic uint32_t id;      /* 0, 1, … in order of creation in this process, never reused */
    _Atomic uint32_t nranks;
    _Atomic uint64_t uid; /* equal on all members; 0 while unknown (split in progress) */
    _Atomic uint64_t parent_uid;
    _Atomic uint64_t parent_seq; /* seq on the parent of the split, shrink or grow that made it */
    _Atomic uint64_t comm_hash;  /* NCCL's own hash where it can be recomputed, else 0 */
    _Atomic uint64_t handle;     /* ncclComm_t as a number */
    _Atomic uint64_t created;    /* raw counter */
    _Atomic uint32_t rank;
    _Atomic int32_t device;   /* -1 unknown */
    _Atomic int32_t color;    /* of the split; -1 */
    _Atomic uint32_t made_by; /* enum rec_kind */
    char name[64];            /* config.commName, zero terminated; may be empty */
    uint8_t pad0[40];
    /* line 3: counters, written on the hot path by whoever calls NCCL on this communicator */
    _Alignas(64) _Atomic uint64_t next_seq; /* of the next collective-like op = entered, less those refused */
    _Atomic uint64_t lost;                  /* ops of this communicator that got no slot */
    _Atomic uint64_t p2p_entered;           /* sends and recvs entered */
    _Atomic uint32_t async_error;           /* last value of CommGetAsyncError seen */
    uint32_t pad1;
    uint8_t pad2[32];
};
_Static_assert(sizeof(struct rec_live_comm) == 256, "whole cache lines");

struct rec_live_redop {    /* entry i defines redop REC_REDOP_USER + i */
    _Atomic uint32_t used; /* release */
    uint32_t dtype;
    uint32_t residence; /* ncclScalarResidence_t */
    uint32_t comm_id;
    uint64_t scalar; /* bits of a host scalar, for display only; 0 = unknown */
    uint64_t hash;   /* of (pre-mul-sum, dtype): what signatures use */
};

struct rec_live_stream {
    _Atomic uint32_t used; /* release */
    int32_t device;
    uint64_t handle; /* cudaStream_t as a number */
};

/*
 * What the GPU has done, one per stream. Launches (single ops, or whole groups) are numbered 1, 2, …,
 * leaving out multiples of 65,536. The GPU itself writes the number to start when the stream
 * has come to the launch, and to end when it is over: both only rise.
 */
struct rec_live_mark {
    _Atomic uint64_t start, end;
    _Atomic uint64_t launched; /* last number given; by the launching thread, before the op is published */
    /* There are launches without marks from this number on, so that of those behind end nothing is
     * known; 0 = none. It falls back to 0 when the GPU has passed those. Release */
    _Atomic uint64_t dropped;
};

enum rec_live_gpu {
    REC_LIVE_GPU_NONE = 0, /* not asked for, or no CUDA yet */
    REC_LIVE_GPU_MARKS,    /* launches have marks */
    REC_LIVE_GPU_FAILED,   /* they had, or should have had; gpu_reason says why not any more */
};

/* Reads the same instant twice: raw counter and wall clock. Seqlock: version odd while changing. */
struct rec_live_clock {
    _Atomic uint64_t version;
    _Atomic uint64_t raw0, real0_ns; /* pair taken at the start */
    _Atomic uint64_t raw1, real1_ns; /* latest pair, or 0 */
};

enum rec_end_reason {
    REC_END_NONE = 0, /* running, or vanished without a word (SIGKILL, node lost) */
    REC_END_EXIT,     /* exit() or return from main; status is known */
    REC_END_QUICK,    /* _exit, _Exit, quick_exit */
    REC_END_SIGNAL,   /* a fatal signal */
    REC_END_EXEC,     /* the process image was replaced */
};

struct rec_live_end {
    _Atomic uint32_t reason; /* enum rec_end_reason; release, stored last */
    _Atomic int32_t status;  /* exit status */
    _Atomic int32_t signal;
    _Atomic int32_t tid;
    _Atomic uint64_t fault; /* address of a memory fault */
    _Atomic uint64_t time_ns;
    _Atomic uint32_t npcs;
    uint32_t pad;
    _Atomic uint64_t pcs[REC_LIVE_CRASH_PCS]; /* return addresses, innermost first */
};

struct rec_live_header {
    uint64_t magic; /* stored last when the region is made */
    uint32_t version;
    uint32_t header_bytes;
    uint64_t total_bytes;
    uint64_t proc_uid; /* random; also in the .frec metadata: joins the two */
    int32_t pid;
    uint32_t tick_ns;
    uint64_t start_ticks; /* field 22 of /proc/PID/stat: tells a reused pid */
    uint64_t frec_flags;
    char boot_id[40];
    uint32_t comm_count, thread_count, redop_count, stream_count, chunk_count, chunk_slots;
    uint64_t comm_offset, thread_offset, redop_offset, stream_offset, mark_offset, chunk_offset, slot_offset;
    uint64_t callsite_offset, callsite_bytes; /* a memory of its own layout (callsite.h); 0 bytes = none */

    _Alignas(64) struct rec_live_clock clock;
    _Alignas(64) _Atomic uint64_t alive_ns; /* wall clock of the drain thread's last wake-up */
    _Atomic uint64_t file_bytes;            /* written to the .frec so far */
    _Atomic uint64_t file_lost;             /* ops that could not be written to the file */
    _Atomic uint32_t file_error;            /* errno of the last failed write; 0 */
    _Atomic uint32_t next_comm_id, next_thread_id;
    _Atomic uint32_t next_claim_hint;
    _Atomic uint64_t next_claim;
    _Atomic uint64_t unslotted; /* calls that could not even get a thread entry */

    _Atomic uint32_t gpu; /* enum rec_live_gpu; release */
    uint32_t gpu_error;   /* CUresult behind FAILED */
    char gpu_reason[88];

    struct rec_live_end end;
    _Atomic uint32_t meta_bytes;         /* release; 0 = not yet written */
    char frec_dir[REC_LIVE_PATH_BYTES];  /* FREC_DIR, absolute */
    char frec_name[REC_LIVE_PATH_BYTES]; /* file name of the trace in it; empty = could not be made */
    char meta[REC_LIVE_META_BYTES];      /* the .frec header's JSON */
};

/* Sizes for rec_live_layout. */
struct rec_live_config {
    uint32_t comms, threads, redops, streams;
    uint32_t slots; /* rounded up to whole chunks */
    uint32_t tick_ns;
    uint32_t callsite_bytes; /* rounded up to 64 */
};
#define REC_LIVE_DEFAULT_COMMS          1024
#define REC_LIVE_DEFAULT_THREADS        512
#define REC_LIVE_DEFAULT_REDOPS         250
#define REC_LIVE_DEFAULT_STREAMS        1024
#define REC_LIVE_DEFAULT_SLOTS          65536
#define REC_LIVE_DEFAULT_CALLSITE_BYTES (1u << 20)

/*
 * Computes sizes and offsets into *header (everything else zero) and returns the bytes
 * the region needs. Pure.
 */
uint64_t rec_live_layout(const struct rec_live_config *config, struct rec_live_header *header);

/* A mapped region. Plain pointers into the mapping, valid until rec_live_unmap. */
struct rec_live {
    struct rec_live_header *header;
    struct rec_live_comm *comms;
    struct rec_live_thread *threads;
    struct rec_live_redop *redops;
    struct rec_live_stream *streams;
    struct rec_live_mark *marks;
    void *callsites; /* NULL = none */
    struct rec_live_chunk *chunks;
    union rec_live_slot *slots; /* chunk i owns slots[i * chunk_slots …] */
    uint64_t bytes;
};

/* Points *live into memory that holds a laid-out header; no checks. Async-signal-safe. */
void rec_live_attach(struct rec_live *live, void *memory);

/*
 * Maps a region of another process read-only (or read-write for recovery), after checking
 * magic, version, sizes and offsets against the file's real size: a hostile or torn file
 * gives REC_ERR_FORMAT, REC_ERR_VERSION or REC_ERR_CORRUPT, never a fault. Follows no link,
 * takes only regular files of the caller's own uid (or any owner for root).
 */
enum rec_code rec_live_map(const char *path, bool writable, struct rec_live *live,
                           struct rec_error *err) REC_WARN_UNUSED;
void rec_live_unmap(struct rec_live *live);

/* Relaxed copy of a finished slot (index below an acquired done), or of any slot. */
void rec_live_slot_load(const union rec_live_slot *slot, struct rec_slot *out);

/* Copies thread t's open op; false when there is none or it kept changing. */
bool rec_live_open_op(const struct rec_live *live, uint32_t thread_index, struct rec_slot *out);

/*
 * Raw counter → wall clock. mult is ns per count, as fixed point over 2^32; computed from
 * the two pairs, 1 ns as long as there is only one.
 */
struct rec_clock {
    uint64_t raw0, real0_ns;
    uint64_t mult;
};
void rec_live_clock_read(const struct rec_live *live, struct rec_clock *clock);
uint64_t rec_clock_ns(const struct rec_clock *clock, uint64_t raw);

/*
 * Slot → op in definitions' terms (comm table index → comm id, raw → ns, state by result and flags,
 * launch number whole again). What the GPU has done of it: rec_op_gpu with rec_live_gpu.
 */
void rec_live_to_op(const struct rec_live *live, const struct rec_clock *clock, uint32_t thread_id,
                    const struct rec_slot *slot, struct rec_op *op);

/* What the GPU has done on a stream of the table; all zero when it has no marks. */
void rec_live_gpu(const struct rec_live *live, uint32_t stream, struct rec_gpu *gpu);

/*
 * What has become of the process that wrote this region: compares boot id, pid and start time. Seen
 * from another PID namespace it runs as long as its drain thread has shown life within 3 s.
 * A process that runs another program since (exec) keeps all three; its recorder shows no life
 * any more and the region is not mapped.
 */
enum rec_live_process { REC_LIVE_PROCESS_GONE, REC_LIVE_PROCESS_RUNS, REC_LIVE_PROCESS_REPLACED };
enum rec_live_process rec_live_process(const struct rec_live *live);

/* Does it still run here, and the recorder in it? */
bool rec_live_process_alive(const struct rec_live *live);

/*
 * Is there a process in the caller's PID namespace with this pid and start time (field 22 of
 * /proc/PID/stat) that has not ended?
 */
bool rec_process_runs(int32_t pid, uint64_t start_ticks);

/* The caller's PID namespace, as /proc tells it; 0 = unknown. Pids of another one mean nothing here. */
uint64_t rec_pid_namespace(void);

#pragma GCC visibility pop

#endif
