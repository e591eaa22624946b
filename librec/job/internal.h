/*
 * Inside job loading. Nothing here is part of librec's interface.
 *
 * find.c      directories → sources (one per process: parts of its file, its live region)
 * meta.c      header JSON → struct job_meta
 * snapshot.c  a private, consistent copy of a live region that may be changing
 * parts.c     the parts of one process's trace, one after another
 * scan.c      one process as one stream of events, file first, then the live region
 * load.c      that stream → struct rec_process with its members
 * callsites.c lines of code behind calls, kept once for all processes
 * site_text.c a call site in words
 * symbolize.c names of native code, from the modules' files
 * losses.c    ordinals of each thread: what is missing and why
 * gpu.c       how far the GPU has come on each stream
 * recall.c    what the diagnosis must know of all calls, kept while they are loaded
 * graphs.c    of these: which calls went into which CUDA graph
 * refused.c   calls of groups that NCCL refused: they have no place in the order
 * group.c     processes → jobs
 * rank.c      ranks, also derived ones, and the order of processes
 * fate.c      how each process ended
 * comms.c     members → communicators
 * parallel.c  the same for many processes, by several threads
 * util.c      containers
 * job.c       the interface
 */
#ifndef REC_JOB_INTERNAL_H
#define REC_JOB_INTERNAL_H

#include <pthread.h>

#include "job/recall.h"
#include "rec/callsite.h"
#include "rec/job.h"
#include "rec/live.h"
#include "rec/reader.h"

/* Bounds on what one process's untrusted trace can make us keep. */
#define JOB_LOW_COMMS          64
#define JOB_MAX_COMMS          65536   /* comm ranks of one process */
#define JOB_MAX_THREADS        65536   /* threads of one process */
#define JOB_MAX_STREAMS        65536   /* streams of one process */
#define JOB_MAX_CALLSITES      65536   /* call sites of one process */
#define JOB_MAX_OPEN           65536   /* calls open at once */
#define JOB_MAX_WINDOWS        4194304 /* checkpoint words of one process: 4e9 collectives */
#define JOB_MAX_STALL_FRAMES   65536   /* frames of one stall record, all threads */
#define JOB_MAX_RANKS          16777216
#define JOB_MAX_LIVE_BYTES     (UINT64_C(1) << 30)
#define JOB_MAX_CALLSITE_BYTES ((size_t)64 << 20) /* all call sites of all processes */

/* ---- containers (util.c) ---- */

/* Makes room for need items of size bytes; false without memory. */
bool job_grow(void *array, size_t *room, size_t need, size_t size) REC_WARN_UNUSED;

/* 64-bit key → 32-bit value, open addressing; zeroed is empty. */
struct job_map {
    struct job_map_slot {
        uint64_t key;
        uint32_t value_plus_1; /* 0 = free */
    } * slots;
    size_t room, count;
};
#define JOB_MAP_NONE UINT32_MAX
uint32_t job_map_get(const struct job_map *map, uint64_t key);
bool job_map_put(struct job_map *map, uint64_t key, uint32_t value) REC_WARN_UNUSED;
void job_map_free(struct job_map *map);

/* Disjoint ranges of ordinals; keeps at most JOB_MAX_SPANS and counts what did not fit. */
#define JOB_MAX_SPANS 1024
struct job_spans {
    struct job_span {
        uint64_t first, end; /* [first, end) */
    } * items;
    size_t count, room;
    uint64_t overflow; /* ordinals in ranges that were not kept */
};
void job_spans_add(struct job_spans *spans, uint64_t first, uint64_t end);
/* Ordinals of a that are not in b; ranges that were not kept count at their full size. */
uint64_t job_spans_minus(const struct job_spans *a, const struct job_spans *b);
void job_spans_free(struct job_spans *spans);

struct job_lines {
    char **items;
    size_t count, room;
};
/* Adds "path: reason"; what does not fit in memory is not said. At most 1,000 lines. */
void job_warn(struct job_lines *lines, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void job_lines_free(struct job_lines *lines);

/* ---- metadata (meta.c) ---- */

struct job_meta {
    bool valid;
    bool vanished;      /* a copy, made where the process was known to be gone without a word */
    bool saw_live;      /* a copy, made with what the live region held */
    uint32_t recovered; /* n-th file written from the live region after the end; 0 = by the process */
    char host[128];
    char boot_id[40];
    char exe[256];
    char job_source[64];
    char job_id[256];
    char restart[64]; /* restart counter of the launcher, "" = none */
    char step[32];    /* launch within the job (Slurm), "" = none */
    uint64_t proc_uid;
    uint64_t start_ns;
    uint64_t start_ticks;
    uint64_t pid_ns; /* namespace of pid, 0 = unknown */
    int32_t pid;
    int32_t rank, world_size, local_rank; /* -1 = unknown */
    uint32_t nccl_version;
};
/*
 * Everything in text is untrusted; what is missing, of the wrong type or absurd stays unknown.
 * live, when not NULL, takes the path of the live region, "" = none.
 */
void job_meta_parse(const char *text, struct job_meta *meta, char live[REC_LIVE_PATH_BYTES]);

/* ---- sources (find.c) ---- */

struct job_part {
    char *path;
    uint32_t number;
    bool broken; /* loading could not read it, or not to its end */
};

#define JOB_RECOVERED_PART (UINT32_MAX - 1000) /* numbers above are recovered files: behind all others */

/* One process's traces, as found. */
struct job_source {
    uint64_t proc_uid; /* 0 = not told: the file stands alone */
    struct job_meta meta;
    struct job_part *parts; /* ascending number */
    size_t nparts, parts_room;
    char *live;       /* NULL = none */
    bool orphan;      /* only the region is left of it: its trace was removed from the directory */
    char *named_live; /* what the metadata names, to be looked at; NULL = nothing */
};

struct job_sources {
    struct job_source *items;
    size_t count, room;
    struct job_map by_uid;
    uint32_t unreadable;
};

enum rec_code job_find(const char *const *dirs, size_t ndirs, const struct rec_job_options *options,
                       struct job_sources *sources, struct job_lines *warnings,
                       struct rec_error *err) REC_WARN_UNUSED;
/*
 * A process that runs may begin a new part at any time: the next one behind last, in *part,
 * whose path is the caller's to free. REC_END: there is none.
 */
enum rec_code job_find_following(const struct job_source *source, const struct job_part *last,
                                 struct job_part *part, struct rec_error *err) REC_WARN_UNUSED;
/* Takes over *part. False without memory: it stays the caller's. */
bool job_source_append(struct job_source *source, struct job_part *part) REC_WARN_UNUSED;
void job_source_fini(struct job_source *source);
void job_sources_fini(struct job_sources *sources);

/* /proc/sys/kernel/random/boot_id without its newline; "" when unreadable. */
void job_boot_id(char *buffer, size_t size);

/* ---- live regions (snapshot.c) ---- */

/*
 * A private copy of a region, as it was when its threads' ordinals were copied. Taken in this
 * order: counters, open calls, slots, definitions; so every call that a counter speaks of and
 * that is still in the region is in the copy, every slot finds its communicator, and what was
 * entered later is left out.
 */
struct job_snapshot {
    struct rec_live copy; /* into memory */
    void *memory;
    struct rec_clock clock;
    uint32_t *chunks; /* indices of the chunks in use, by thread, then age */
    uint32_t nchunks;
    struct rec_op *open;
    uint32_t nopen;
    bool alive;
};
enum rec_code job_snapshot_take(const char *path, struct job_snapshot **snapshot,
                                struct rec_error *err) REC_WARN_UNUSED;
void job_snapshot_free(struct job_snapshot *snapshot);
bool job_snapshot_comm(const struct job_snapshot *snapshot, uint32_t index, struct rec_comm_def *def);
bool job_snapshot_thread(const struct job_snapshot *snapshot, uint32_t index, struct rec_thread_def *def);
bool job_snapshot_redop(const struct job_snapshot *snapshot, uint32_t index, struct rec_redop_def *def);
bool job_snapshot_stream(const struct job_snapshot *snapshot, uint32_t index, struct rec_stream_def *def);

/* ---- call sites (callsites.c) ---- */

/* Equal ones are kept once: the ranks of a job run the same code. The lock is for loading. */
struct job_callsite;
struct job_callsites {
    pthread_mutex_t lock;
    struct job_map by_hash;
    struct job_callsite **items; /* chains of equal hash */
    size_t count, room, bytes;
};
void job_callsites_init(struct job_callsites *sites);
void job_callsites_fini(struct job_callsites *sites);

/* ---- processes ---- */

/* recall.c's own, of one thread. */
struct job_thread_recall {
    uint64_t next, last_ns;     /* as if no record were missing; the last call's time */
    uint64_t lost_end, lost_ns; /* as a loss record says */
    uint64_t work_ns;           /* when it last entered or left a data or creation call */
    bool works;
};

/* How far messages and signals have come, by pairs of comm rank and peer, and calls that meet on the host. */
struct job_pairs {
    struct job_map ids;
    uint32_t *next;
    size_t count, room;
    uint64_t last_key; /* the pair met last is likely to be met next */
    uint32_t last;
    bool overflow;     /* some pairs are not in here */
    bool told, untold; /* signals were recorded with what they are, or without */
};

/* graphs.c's own. */
struct job_graphs {
    struct job_map ids;           /* (graph, communicator) → item, while loading */
    struct job_captured *items;   /* loaded: sorted by graph */
    struct job_captured *by_comm; /* loaded: the same, sorted by communicator and first seq */
    size_t count, room;
    struct job_map launch_ids; /* graph → its launches */
    uint64_t *launches;
    size_t nlaunches, launches_room;
};

struct job_recall {
    size_t size; /* of the tail; 0 = it is not kept */
    struct job_tail tail;
    _Atomic bool given; /* whoever sets it takes the tail, whose content is older than the job */
    struct job_pairs pairs;
    struct job_gap {
        uint64_t from_ns, to_ns;
    } * gaps; /* calls without a record between two moments; empty once loaded */
    size_t ngaps, gaps_room;
    uint64_t gap_ns, graph_ns;
    bool device_comms, unseen_graphs;
    struct job_graphs graphs;
    struct job_work *work;
    size_t nwork;
    struct rec_op *creations;
    size_t ncreations, creations_room;
};

struct job_thread {
    uint32_t id;
    struct rec_thread_def def;
    uint64_t next;    /* ordinal after the last record */
    uint64_t end;     /* ordinals known to have been given out */
    uint64_t records; /* ops read */
    struct job_spans gaps;
    struct job_spans losses;
    struct job_thread_recall recall;
    bool damaged;          /* damage was reported since this thread's last record */
    uint64_t counted_lost; /* the live region's count of ops without a slot */
};

struct job_member {
    struct rec_member pub;
    size_t windows_room;
    uint64_t counter; /* next_seq by frontier records and live counters */
    uint64_t entered; /* next_seq by ops */
    uint64_t p2p_ops;
    bool any_seq;
    struct rec_checkpoint_word *words;
};

/* What the GPU has done on one stream. */
struct job_gpu {
    struct rec_gpu now; /* at the end of everything that was read */
    struct job_gpu_point {
        uint64_t time_ns, started, ended;
    } * points; /* how it came to that, oldest first */
    size_t npoints, points_room;
    bool forgotten; /* there were older points */
};

/* Places that calls of refused groups had taken in the sequence of a communicator or a pair. */
struct job_refused {
    struct job_place {
        uint32_t comm;
        int32_t peer; /* -1 where all take part */
        uint8_t way;  /* enum job_way */
        uint64_t seq;
    } * places; /* loaded: sorted, and only those that others came behind */
    size_t count, room;
    struct rec_op *open; /* loaded: the open calls, counted without them; NULL = there are none */
};
enum job_way { JOB_WAY_ALL, JOB_WAY_TO, JOB_WAY_FROM };

struct job_process {
    struct rec_process pub;
    struct job_source source;
    struct job_map member_ids;
    struct rec_member **members; /* each a struct job_member */
    size_t nmembers, members_room;
    struct job_map thread_ids;
    struct job_thread *threads;
    size_t nthreads, threads_room;
    struct job_map stream_ids;
    struct rec_stream_def *streams;
    size_t nstreams, streams_room;
    struct job_map gpu_ids;
    struct job_gpu *gpus;
    size_t ngpus, gpus_room, gpu_points;
    struct job_callsites *callsites; /* the job's; NULL = call sites are not kept */
    struct job_map site_ids;
    const struct rec_callsite_def **sites; /* shared ones */
    size_t nsites, sites_room;
    struct rec_redop_def *redops; /* entry i is redop REC_REDOP_USER + i; redop 0 = not defined */
    size_t nredops, redops_room;
    struct rec_op *open; /* as recorded */
    size_t nopen, open_room;
    struct job_recall recall;
    struct job_refused refused;
    void *stall_memory, *end_memory;
    size_t windows;          /* checkpoint words kept, all members */
    uint64_t anonymous_lost; /* losses of ops whose thread is not told */
    uint64_t unslotted;      /* calls that never got a thread or communicator entry */
    uint64_t unwritten;      /* calls of which only the file's header tells that they were */
    /* While loading: what was met last, for it is likely to be met next. */
    struct job_member *low_members[JOB_LOW_COMMS]; /* by comm id, as far as they are low */
    size_t last_thread;
    bool cut; /* scans end where loading ended */
    uint32_t files_read, files_salvaged, files_unreadable;
    bool live_read;
    bool comms_left_out;
    bool no_memory; /* something could not be kept: loading fails */
    bool live_alive;
    struct job_lines warnings;
    uint32_t group; /* job number while grouping */
};

static inline struct job_process *job_process_of(const struct rec_process *process)
{
    return (struct job_process *)(uintptr_t)process;
}
static inline struct job_member *job_member_of(const struct rec_member *member)
{
    return (struct job_member *)(uintptr_t)member;
}

/* scan.c: the whole stream of a process, also before it is part of a job. */
enum rec_code job_scan_open(struct job_process *process, const struct rec_scan_filter *filter, bool loading,
                            struct rec_scan **scan, struct rec_error *err) REC_WARN_UNUSED;
/*
 * While loading, after rec_scan_next gave an op: those that come next and are as they were written. All
 * of one thread; valid until the next call. NULL and 0 = ask rec_scan_next.
 */
const struct rec_op *job_scan_run(struct rec_scan *scan, size_t *count);
/* The snapshot behind a scan; NULL without a live region. */
const struct job_snapshot *job_scan_snapshot(const struct rec_scan *scan);

/* Asked now and then by whoever does something long; false = nobody wants it any more. */
struct job_beat {
    bool (*go_on)(void *context);
    void *context;
};
enum rec_code job_cancelled(struct rec_error *err);

/* load.c: takes over source. Problems with the input become warnings, only NOMEM and CANCELLED fail. */
enum rec_code job_process_load(struct job_process *process, const struct job_beat *beat,
                               struct rec_error *err) REC_WARN_UNUSED;
struct job_process *job_process_new(struct job_source *source);
void job_process_free(struct job_process *process);

/* callsites.c: the process's call site def->id is this one, unless it was told before. */
void job_process_callsite(struct job_process *process, const struct rec_callsite_def *def);

/* gpu.c: what a record or the region tells of a stream, and what that means for an op. */
void job_process_gpu(struct job_process *process, uint64_t time_ns, const struct rec_gpu *told);
void job_op_gpu(struct job_process *process, struct rec_op *op);
void job_gpu_free(struct job_process *process);

/* losses.c: keeps account of every thread's ordinals. */
struct job_thread *job_process_thread(struct job_process *process, uint32_t id, bool create);
void job_losses_ops(struct job_thread *thread, uint64_t first_ordinal, size_t count);
void job_losses_record(struct job_process *process, const struct rec_loss *loss);
void job_losses_live(struct job_process *process, const struct job_snapshot *snapshot);
void job_losses_sum(struct job_process *process);

/* recall.c: a call of this thread (NULL = too many); known = on a communicator that is kept. */
void job_recall_op(struct job_process *process, struct job_thread *thread, bool known,
                   const struct rec_op *op);
/* Calls of one thread with consecutive ordinals, each of which job_recall_op was told of. */
void job_recall_ordinals(struct job_process *process, struct job_thread *thread, const struct rec_op *ops,
                         size_t count);
void job_recall_loss(struct job_process *process, const struct rec_loss *loss, uint64_t when_ns);
/* Once everything was read and the last call is known. */
void job_recall_settle(struct job_process *process);
void job_recall_fini(struct job_recall *recall);

/* recall.c: one message of a pair less. */
void job_pair_less(struct job_process *process, uint32_t comm_id, int32_t peer, bool send);

/* refused.c: did NCCL look at this call's arguments and refuse it? */
bool job_is_refused(const struct rec_op *op);
/* While loading: a call of a group in which one was refused. */
void job_refused_note(struct job_process *process, const struct rec_op *op);
/* Once everything was read, last of all; sets no_memory. From then on: */
void job_refused_settle(struct job_process *process);
void job_refused_fini(struct job_refused *refused);
/* The number of a call, as it was recorded, without the refused ones; the flag for one of those. */
void job_refused_op(const struct job_process *process, struct rec_op *op);
/* The same for a position in the sequence of a communicator. */
uint64_t job_refused_seq(const struct job_process *process, uint32_t comm, uint64_t seq);

/* graphs.c: a call; false without memory. */
bool job_graphs_op(struct job_graphs *graphs, const struct rec_op *op);
bool job_graphs_settle(struct job_graphs *graphs);
void job_graphs_fini(struct job_graphs *graphs);

/* ---- jobs ---- */

struct rec_job {
    struct job_callsites callsites;
    struct job_process **all; /* of every job found */
    size_t nall;
    struct rec_process **processes; /* of the chosen one */
    size_t nprocesses;
    struct rec_communicator **communicators;
    size_t ncommunicators;
    struct job_map comm_uids;
    struct rec_job_info *candidates;
    char (*candidate_ids)[320];
    size_t ncandidates;
    const struct rec_job_info *info;
    uint32_t expected;
    struct rec_job_input input;
    struct job_lines warnings;
};

/* group.c: sets group of every process, fills job->candidates. */
enum rec_code job_group(struct rec_job *job, struct rec_error *err) REC_WARN_UNUSED;
/* rank.c: ranks of the chosen processes, derived where metadata has none, and the order of the list. */
enum rec_code job_rank(struct rec_job *job, struct rec_error *err) REC_WARN_UNUSED;
/* comms.c: joins the members of the chosen processes. */
enum rec_code job_join(struct rec_job *job, struct rec_error *err) REC_WARN_UNUSED;
/* fate.c: how each chosen process ended. */
enum rec_code job_fates(struct rec_job *job, struct rec_error *err) REC_WARN_UNUSED;

#endif
