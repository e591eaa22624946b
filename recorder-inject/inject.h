/*
 * librecorder-inject.so: what its files share. Nothing here is public; the library exports
 * the functions of nccl-api.def and the few libc functions named in meson.build.
 *
 * Who runs what:
 *   - application threads run wrappers.c, calls.c and, at the first call, start.c;
 *   - one drain thread (drain_thread.c) owns the writer, the file and the drain state;
 *   - the slow lock (registry.c) serialises changes of the tables in the live region; it is
 *     never held across foreign code and never taken by the drain thread.
 */
#ifndef INJECT_H
#define INJECT_H

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "callsite/callsite.h"
#include "map.h"
#include "rec/live.h"

#define PUBLIC      __attribute__((visibility("default")))
#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Until the end of the block: the application's errno comes through unharmed. */
#define KEEP_ERRNO __attribute__((cleanup(restore_errno), unused)) const int kept_errno = errno
static inline void restore_errno(const int *kept)
{
    errno = *kept;
}

/* ---- config.c: the environment, read once at the first NCCL call ----------------------- */

enum gpu_mode {
    GPU_OFF = 0, /* CUDA is never called */
    GPU_CAPTURE, /* it is only asked whether a stream is being captured */
    GPU_MARKS,   /* and launches get stream marks */
};

struct options {
    bool disable, verbose;
    enum gpu_mode gpu;                  /* of communicators of which NCCL does not tell (plugin.h) */
    bool slots_chosen;                  /* slots are the user's choice */
    char dir[REC_LIVE_PATH_BYTES];      /* absolute */
    char live_dir[REC_LIVE_PATH_BYTES]; /* absolute */
    uint64_t max_bytes;                 /* 0 = no limit */
    uint32_t slots, tick_ns, stall_sec;
    uint32_t pyframes; /* of a call site; 0 = no call sites */
    uint32_t native_frames;
};
extern struct options options;

void config_note_cwd(void); /* at load: relative directories mean the directory the program started in */
void config_read(void);
bool config_wants_plugin(void); /* are we to be NCCL's profiler plugin? Before config_read too */
bool config_verbose(void);      /* also before config_read */
/* To stderr, only with FREC_VERBOSE. Not for hot paths or signal handlers. */
void verbose(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- clock.c ------------------------------------------------------------------------- */

enum clock_source {
    CLOCK_SOURCE_MONOTONIC = 0, /* raw counts are ns of CLOCK_MONOTONIC */
    CLOCK_SOURCE_TSC,
    CLOCK_SOURCE_CNTVCT,
};
extern enum clock_source clock_source; /* constant after clock_start */

void clock_start(struct rec_live_clock *clock);
/* A second pair beside the first; by the drain thread. Async-signal-safe. */
void clock_refresh(struct rec_live_clock *clock);
const char *clock_source_name(void);
uint64_t real_now_ns(void);
uint64_t trace_now_ns(void); /* wall clock as traces count it: no steps. After clock_start */
uint64_t monotonic_now_ns(void);

static inline uint64_t raw_now(void)
{
#if defined(__x86_64__)
    if (likely(clock_source == CLOCK_SOURCE_TSC))
        return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    if (likely(clock_source == CLOCK_SOURCE_CNTVCT)) {
        uint64_t count;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
        return count;
    }
#endif
    return monotonic_now_ns();
}

/* ---- start.c: the recorder as a whole -------------------------------------------------- */

enum recorder_state {
    RECORDER_NEW = 0, /* no NCCL call yet */
    RECORDER_ON,
    RECORDER_OFF, /* disabled, nothing could be mapped, or the end record is written */
};

struct recorder {
    _Atomic int state;
    pid_t pid;
    struct rec_live live;
    bool live_is_file;
    char live_path[REC_LIVE_PATH_BYTES]; /* empty when the region is anonymous */
    uint64_t proc_uid;
    uint64_t start_ticks;
    uint64_t start_ns;
};
extern struct recorder recorder;

/* Starts the recorder unless it is running; true when calls are to be recorded. Any app thread. */
bool recorder_start(void);
/* In the child of a fork: forget everything of the parent without touching its region or file. */
void recorder_forget(void);

/* ---- region.c ------------------------------------------------------------------------ */

/* Maps and lays out the live region (file or anonymous); false when nothing can be mapped. */
bool region_make(void);
/* mkdir -p; what is created gets mode 0700. */
bool make_directories(const char *path);

/* ---- meta.c -------------------------------------------------------------------------- */

/* Fills identity fields of the region's header and writes its JSON; returns its length. */
void meta_identity(void);
size_t meta_write(char *out, size_t size);
const char *meta_host(void);
uint64_t meta_start_ticks(void); /* field 22 of /proc/self/stat */

/* ---- real.c: the intercepted library ---------------------------------------------------- */

enum api {
#define NCCL_API(name, since, params, args, role) API_##name,
#include "nccl-api.def"
#undef NCCL_API
    API_COUNT
};
extern const char *const api_names[API_COUNT];

#define REAL_COPIES 4 /* libraries told apart; further ones are not recorded */
extern _Atomic(void *) real_functions[REAL_COPIES][API_COUNT];

/* The real function; NULL when the loaded NCCL lacks it. Opens libnccl.so.2 when nobody has. */
void *real_resolve(unsigned copy, enum api api);
bool real_exists(enum api api); /* in copy 0, without opening anything */
/* Any other symbol of a copy, or NULL. */
void *real_symbol(unsigned copy, const char *name);
int real_copy_of(void *function);        /* -1 = not recorded */
bool real_contains(const void *address); /* is this code inside a libnccl? */
bool real_is_ours(const void *address);
const char *real_path(unsigned copy);
int real_version(unsigned copy); /* as ncclGetVersion; 0 = unknown */

typedef void *real_dlsym_fn(void *handle, const char *name);
real_dlsym_fn *real_dlsym_address(void);
void *real_dlsym(void *handle, const char *name);

void *wrapper_address(unsigned copy, enum api api); /* wrappers.c */

static inline void *real_function(unsigned copy, enum api api)
{
    void *function = atomic_load_explicit(&real_functions[copy][api], memory_order_relaxed);
    return likely(function != NULL) ? function : real_resolve(copy, api);
}

/* ---- threads.c ----------------------------------------------------------------------- */

enum gate {
    GATE_NEW = 0, /* this thread is not known yet */
    GATE_OPEN,    /* outside NCCL: the next call is recorded */
    GATE_INSIDE,  /* inside NCCL: libnccl calls its own public functions */
};

/* What a thread keeps of itself; the rest is in the live region. */
struct thread {
    enum gate gate;
    uint32_t used; /* slots of the chunk written so far; REC_LIVE_CHUNK_SLOTS = take another */
    struct rec_live_thread *entry;
    struct rec_live_chunk *chunk;
    union rec_live_slot *slots;
    uint32_t callsite; /* of the call being made; 0 = none */
    uint16_t launch;   /* low bits of its launch's number; 0 = no marks */
    bool by_plugin;    /* in a group of which only NCCL tells (plugin_record.h) */
    uint64_t told;     /* launch of which NCCL tells (launches.h); 0 = none */
    uint64_t ordinal;
    uint32_t group_depth, group, groups, group_ops;
    uint32_t group_created; /* communicators whose creation ends with this group */
    uint32_t index;
    bool spilled;
};
extern _Thread_local struct thread self_thread __attribute__((tls_model("initial-exec")));

/* First call of a thread: starts the recorder if need be and takes a thread entry. False: do
 * not record this call. caller is the return address of the wrapper. */
bool thread_join(struct thread *thread, const void *caller);
/* The chunk is full: takes another. False: none is free. */
bool thread_next_chunk(struct thread *thread);
void threads_forget(void); /* child of a fork */
extern _Atomic uint32_t free_chunks;

/* Per thread entry: where the stack stood at the last call. A line each: written at every call. */
struct thread_mark {
    _Alignas(64) _Atomic uint64_t stack;
    struct callsite_thread python; /* written before the entry's id is published */
};
extern struct thread_mark thread_marks[REC_LIVE_DEFAULT_THREADS];
/* Those of the living thread with this tid; NULL = it has made no call. Any thread. */
struct thread_mark *thread_mark_of(int32_t tid);

/* ---- registry.c: communicators --------------------------------------------------------- */

struct comm_slot {
    uint16_t index; /* REC_LIVE_NONE16 = unknown */
    uint16_t flags; /* enum rec_op_flags that every op on it carries */
};

/* What is kept about a communicator outside the region. */
struct comm_private {
    _Atomic(_Atomic uint64_t *) p2p; /* 2 counters per peer: sends, receives */
    _Atomic uint64_t p2p_bytes;
    _Atomic uint32_t children, shrinks; /* splits and grows; NCCL counts shrinks apart, or not at all */
    void *out;                          /* where NCCL will put the handle; NULL = nothing pending */
    uint32_t thread; /* thread id and group whose end completes the creation; group 0 = none */
    uint32_t group;
    uint16_t parent; /* index; REC_LIVE_NONE16 */
    uint16_t next;   /* next of one CommInitAll; REC_LIVE_NONE16 */
    uint64_t magic;  /* NCCL's own: what a later grow is derived from; 0 = unknown */
    uint8_t copy;    /* of libnccl */
    bool nonblocking;
    _Atomic bool told; /* NCCL tells of its launches (plugin.h) */
};
extern struct comm_private comm_private[REC_LIVE_DEFAULT_COMMS];

struct comm_start {
    uint32_t made_by;
    uint32_t nranks; /* 0 = unknown */
    uint32_t rank;   /* REC_ID_NONE = unknown */
    int32_t color;
    uint16_t parent; /* index */
    uint64_t parent_seq;
    uint64_t uid, comm_hash, magic;
    uint64_t first_seq;
    unsigned copy; /* of libnccl */
    bool nonblocking;
    char name[64];
};

/* A new table entry in state CREATING; REC_LIVE_NONE16 when the table is full (counted). */
uint16_t comm_create(const struct comm_start *start);
/* Creation has succeeded with this handle: asks NCCL for rank, size and device. */
void comm_ready(uint16_t index, void *handle);
/* The handle is known but creation goes on (non-blocking). */
void comm_known(uint16_t index, void *handle);
void comm_failed(uint16_t index);
/* Creation goes on: NCCL will store the handle through out. */
void comm_pend(uint16_t index, void *out, uint32_t thread, uint32_t group);
/* The outermost group of this thread has ended. */
void comm_group_ended(uint32_t thread, uint32_t group, unsigned result);
/* NCCL told this asynchronous state of the communicator with this handle. */
void comm_async(uint16_t index, unsigned error);
/* From here on the handle means nothing; the entry stays. */
void comm_detach(uint16_t index, void *handle);
void comm_reattach(uint16_t index, void *handle); /* the destroying call failed */
void comm_destroyed(uint16_t index);
/* Not in the hash: perhaps a pending creation has finished meanwhile. */
struct comm_slot comm_find_slow(void *handle);
/* Sends to or receives from peer so far; NULL when they cannot be counted. */
_Atomic uint64_t *comm_p2p_counter(uint16_t index, int peer, bool receive);
/* Position of the next send to or receive from peer; false when it cannot be counted. */
bool comm_p2p_seq(uint16_t index, int peer, bool receive, uint64_t *seq);
/* Gives memory of free entries back; by the drain thread. */
void comm_release_freed(void);
void registry_forget(void);
extern _Atomic uint32_t comms_pending;

/* handle → index, and flags above it: lock-free to read, written under the slow lock. */
extern struct map_entry comm_entries[1 << 12];
static inline struct map comm_handles(void)
{
    return (struct map){comm_entries, 12};
}

static inline struct comm_slot comm_find(void *handle)
{
    const struct map handles = comm_handles();
    uint32_t value = map_find(&handles, (uintptr_t)handle);
    if (likely(value != MAP_NONE))
        return (struct comm_slot){(uint16_t)value, (uint16_t)(value >> 16)};
    if (unlikely(atomic_load_explicit(&comms_pending, memory_order_relaxed) != 0) && handle)
        return comm_find_slow(handle);
    return (struct comm_slot){REC_LIVE_NONE16, 0};
}

/* ---- identity.c: equal on all members of a communicator ------------------------------------ */

uint64_t identity_init(const void *unique_id, uint32_t nranks, uint32_t rank);
uint64_t identity_init_all(uint64_t process, uint32_t ordinal, const int *devices, int count);
uint64_t identity_split(uint64_t parent, uint32_t ordinal, int32_t color);
uint64_t identity_shrink(uint64_t parent, uint32_t ordinal, const int *excluded, int count);
uint64_t identity_grow(uint64_t magic, uint32_t nranks);
uint64_t identity_told(uint64_t nccl_hash, uint32_t nranks, uint32_t rank); /* of NCCL's own hash alone */
/* NCCL's own commHash, by NCCL version; 0 = not known. */
uint64_t nccl_hash_init(int version, const void *unique_id);
uint64_t nccl_hash_split(int version, uint64_t parent, int ordinal, int color);
uint64_t nccl_magic(const void *unique_id);
uint64_t nccl_hash_combine(uint64_t a, uint64_t b);
void identity_forget(void);

/* ---- tables.c: streams and operators -------------------------------------------------------- */

uint16_t stream_index(void *handle, uint16_t comm); /* on the communicator's device */
uint16_t stream_index_on(void *handle, int32_t device);
uint8_t redop_code_user(uint16_t comm, int op);
void redop_created(uint16_t comm, int op, unsigned dtype, unsigned residence, uint64_t scalar);
void redop_destroyed(uint16_t comm, int op);
void tables_forget(void);

void slow_lock(void);
void slow_unlock(void);
void slow_lock_forget(void);

/* ---- drain_thread.c ------------------------------------------------------------------------ */

/* Maps the writer, opens the file, starts the thread. */
void drain_start(void);
/* The following wait for the thread, wait_ms at most; nothing happens when there is no thread.
 * Async-signal-safe. */
void drain_finish(uint64_t wait_ms); /* last drain, END record, close */
void drain_flush(uint64_t wait_ms);  /* drain and a provisional END record */
/* What drain_finish does, in the calling thread, when there is no drain thread. */
void drain_finish_here(void);
/* Registers of the thread that got a fatal signal. Async-signal-safe; before end.reason is set. */
void drain_note_stack(uint64_t pc, uint64_t sp);
void drain_forget(void);

/* ---- crash.c -------------------------------------------------------------------------------- */

void crash_hooks_install(void);
void crash_hooks_forget(void); /* child of a fork: as if never installed */
void crash_survived(void);     /* the program handled the signal and goes on */

/* ---- exit.c -------------------------------------------------------------------------------- */

void exit_hooks_install(void);

/* ---- bypass.c ---- */

/* With FREC_VERBOSE: which libraries have called NCCL past the recorder. */
void bypass_tell(void);

/* ---- fork.c -------------------------------------------------------------------------------- */

void fork_hooks_install(void);

#endif
