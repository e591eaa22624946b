/*
 * A job: everything that a set of directories tells about one run.
 *
 * rec_job_open finds the traces (*.frec and their parts) and live regions, groups them into
 * jobs, reads each process once as a stream and keeps what does not grow with the number of
 * ops: processes, communicators with members and lineage, frontiers, checkpoints (one word
 * per 1,024 ops), open calls, ends. Details are then streamed again with rec_scan_open.
 *
 * What makes one job: processes that share a communicator; processes with the same id of a
 * scheduler (and, in Slurm, of the same step or with another restart counter); processes with
 * the same weaker key (a rendezvous address, a run id that users choose, none at all) whose
 * lifetimes meet. A job is a picture of one moment: scans show no call that was not there
 * when it was opened.
 *
 * Everything belongs to the job and lives until rec_job_close. A job is read-only after
 * rec_job_open and may be shared between threads; scans are independent of each other.
 * Not async-signal-safe.
 */
#ifndef REC_JOB_H
#define REC_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/error.h"
#include "rec/event.h"
#include "rec/progress.h"
#include "rec/symbolize.h"

#pragma GCC visibility push(default)

struct rec_job;

struct rec_job_options {
    const char *job_id; /* choose this job of several ("latest" = the one that started last); NULL = there
                           must be one */
    const char *
        live_dir; /* where to look for live regions besides the paths that traces name; NULL = nowhere else */
    bool no_live; /* read files only */
    bool analyze; /* rec_analyze will follow: keep the last calls of all processes for it (some 150 MB; of
                     more than 5,800 processes 24 KiB each), which reads the traces again otherwise. The
                     verdict is the same */
    unsigned threads;                    /* at most so many, up to 16; 0 = one for each online CPU */
    const struct rec_progress *progress; /* must outlive the call; NULL = nobody wants to know */
};

/* ---- processes ---- */

enum rec_process_fate {
    REC_FATE_UNKNOWN = 0, /* no end record, and nothing shows that it is gone */
    REC_FATE_ALIVE,       /* runs on this host now */
    REC_FATE_EXITED,      /* end record: exit, status known or not */
    REC_FATE_SIGNALED,    /* end record: fatal signal */
    REC_FATE_VANISHED,    /* gone without an end record: SIGKILL, node lost */
};

struct rec_process {
    uint32_t index;     /* in the job's list, sorted by (rank, start) */
    int32_t rank;       /* job rank; -1 unknown. derived_rank tells when it was inferred */
    int32_t world_size; /* as the launcher said; -1 unknown */
    int32_t local_rank; /* -1 unknown */
    bool derived_rank;
    char restart[64]; /* the launcher's restart counter; "" = unknown */
    int32_t pid;
    uint64_t proc_uid;
    char host[128];
    char boot_id[40];
    char exe[256];
    uint32_t nccl_version; /* as ncclGetVersion gives it (22809 = 2.28.9); 0 unknown */
    uint64_t start_ns;     /* first record or header time */
    uint64_t last_ns;      /* last sign of life: any record, heartbeat or the live region's alive time */
    uint64_t last_call_ns; /* when an NCCL call last began or returned; 0 = never */
    uint64_t last_gpu_ns;  /* when its GPU was last seen to have begun or ended an op; 0 = never */
    enum rec_process_fate fate;
    struct rec_end end; /* reason REC_END_NONE when there is no end record */
    uint64_t end_ns;
    struct rec_stall stall; /* the last stall record; why = 0 when there is none */
    uint64_t stall_ns;

    uint64_t ops;         /* records */
    uint64_t dropped_ops; /* calls without a record: ring full, write failed, rotated away, damaged */
    uint64_t unaccounted; /* ordinals between records that nothing explains; part of dropped_ops */
    bool rotated;         /* old parts are gone: early ops are unknown, not missing */
    bool damaged;         /* something in the file was unreadable */
    bool torn_tail;
    bool unwritten; /* the file could not be written to its end, and nothing else is left of that */
    bool has_file, has_live;
    bool saw_live;         /* has_live, or its files hold what the region held: the end is known to 250 ms */
    const char *path;      /* of the first part, or of the live region */
    const char *live_path; /* of the live region; NULL = none found */

    uint32_t nopen; /* calls that had not returned at last_ns */
    const struct rec_op *open;
    uint32_t nmembers; /* this process's comm ranks, by comm id */
    struct rec_member *const *members;
};

/* ---- communicators ---- */

/* One comm rank of one process: a member of a communicator. */
struct rec_member {
    struct rec_communicator *comm;
    struct rec_process *process;
    uint32_t place;          /* in the communicator's list */
    uint32_t comm_id;        /* process-local */
    uint32_t comm_rank;      /* REC_ID_NONE = unknown */
    struct rec_comm_def def; /* last definition */
    uint64_t next_seq;       /* collective-like ops entered (the frontier) */
    uint64_t finished;       /* of these, all but the open ones: calls without a record have returned, too */
    uint64_t p2p_entered;
    uint64_t lost;        /* ops without a record */
    uint64_t collectives; /* records of collectives, sends, one-sided calls, and the bytes of all these */
    uint64_t sends, onesided, bytes;
    uint64_t first_seq;         /* lowest seq that has a record; > 0 after rotation */
    uint64_t first_ns, last_ns; /* first and last op on it */
    struct rec_op last_op;      /* latest data op entered; kind REC_NONE = none */
    struct rec_op teardown;     /* first finalize, destroy or abort; kind REC_NONE = none */
    uint64_t nwindows;          /* checkpoints of the collective sequence */
    const struct rec_checkpoint_word {
        uint64_t hash; /* of window w = index */
        bool known;    /* false: ops of this window were lost or rotated away */
    } * windows;
};

struct rec_communicator {
    uint32_t index;
    uint64_t uid;    /* 0: a creation that never told its uid (one communicator per such member) */
    char name[64];   /* config.commName, or "" */
    uint32_t nranks; /* as most members say; nranks_differ when they do not agree */
    bool nranks_differ;
    uint32_t made_by;    /* enum rec_kind */
    uint64_t parent_uid; /* 0 = none */
    uint64_t parent_seq;
    struct rec_communicator *parent; /* NULL = none, or never seen */
    uint32_t nmembers;               /* present members, sorted by comm_rank */
    struct rec_member *const *members;
};

/* ---- the job ---- */

struct rec_job_info {
    const char *id;     /* what --job takes */
    const char *source; /* which variable gave the id ("SLURM_JOB_ID"), or "start time" */
    uint64_t start_ns, last_ns;
    uint32_t processes;
};

enum rec_code rec_job_open(const char *const *dirs, size_t ndirs, const struct rec_job_options *options,
                           struct rec_job **job, struct rec_error *err) REC_WARN_UNUSED;
/*
 * After REC_ERR_MIXED from rec_job_open *job is still set, only to list what is there with
 * rec_job_candidates, and must be closed.
 */
const struct rec_job_info *rec_job_candidates(const struct rec_job *job, size_t *count);
const struct rec_job_info *rec_job_info(const struct rec_job *job);
void rec_job_close(struct rec_job *job);

struct rec_process *const *rec_job_processes(const struct rec_job *job, size_t *count);
struct rec_communicator *const *rec_job_communicators(const struct rec_job *job, size_t *count);
struct rec_communicator *rec_job_find_communicator(const struct rec_job *job, uint64_t uid);

/* Ranks the job should have: 0 … expected-1; 0 = unknown (no world size anywhere and no world communicator).
 */
uint32_t rec_job_expected_ranks(const struct rec_job *job);

struct rec_job_input {
    uint32_t files;      /* parts read */
    uint32_t live;       /* live regions read */
    uint32_t salvaged;   /* files with damage or a torn tail of which the rest was kept */
    uint32_t unreadable; /* files that gave nothing */
    uint64_t dropped_ops;
};
void rec_job_input(const struct rec_job *job, struct rec_job_input *input);
/* One line per thing that was wrong with the input ("PATH: reason"). */
const char *const *rec_job_warnings(const struct rec_job *job, size_t *count);

/*
 * Streams one process: .frec parts in order, then what only its live region holds. Every
 * op once, ops of a thread in ordinal order. Ops carry comm ids of the process; translate
 * with rec_process_member. filter (may be NULL): only ops it accepts are given, and parts of
 * the file that cannot hold such ops may be skipped. Of a process that runs with a size limit,
 * the oldest ops may be missing: rotation may have removed their part since the job was opened.
 */
struct rec_scan;
struct rec_scan_filter {
    uint64_t from_ns, to_ns; /* 0 = open end; ops that overlap */
    /*
     * Numbers of calls as they were recorded, for who writes them to a trace again. Else calls of groups
     * that NCCL refused have none, if others came behind, and those are counted without them.
     */
    bool as_recorded;
};
enum rec_code rec_scan_open(const struct rec_job *job, const struct rec_process *process,
                            const struct rec_scan_filter *filter, struct rec_scan **scan,
                            struct rec_error *err) REC_WARN_UNUSED;
enum rec_code rec_scan_next(struct rec_scan *scan, struct rec_event *event, struct rec_error *err);
void rec_scan_close(struct rec_scan *scan);

/* The member for a comm id of this process; NULL when unknown. */
struct rec_member *rec_process_member(const struct rec_process *process, uint32_t comm_id);

/* Definitions by their ids in ops; NULL when unknown. */
const struct rec_thread_def *rec_process_thread(const struct rec_process *process, uint32_t thread_id);
const struct rec_stream_def *rec_process_stream(const struct rec_process *process, uint32_t stream_id);

/*
 * The line of code behind an op, by op.callsite; NULL when it was not recorded. Kept once for
 * all processes: equal pointers mean equal code, and def.id is 0.
 */
const struct rec_callsite_def *rec_process_callsite(const struct rec_process *process, uint32_t callsite);

/*
 * The frame of a site that its user would name: the innermost one that belongs neither to a
 * communication layer (torch.distributed, pynccl …) nor, if there is any other, to an installed
 * package. NULL without frames.
 */
const struct rec_source_frame *rec_callsite_place(const struct rec_callsite_def *site);
/*
 * That frame in words, or false and "" when there is none; as below.
 */
bool rec_callsite_text(const struct rec_callsite_def *site, struct rec_symbolizer *symbolizer, char *buffer,
                       size_t size);
/*
 * A frame of a site in words: "trainer.py:118 in save_checkpoint"; native "step+0x4c in a.out", or
 * "a.out+0x1f3c" without symbols (symbolizer may be NULL) and where the file is another build, which
 * is told. Cut when longer.
 */
void rec_frame_text(const struct rec_callsite_def *site, const struct rec_source_frame *frame,
                    struct rec_symbolizer *symbolizer, char *buffer, size_t size);

/*
 * The signature of an op of this process, user redops by definition (model.h).
 */
uint64_t rec_process_signature(const struct rec_process *process, const struct rec_op *op);

#pragma GCC visibility pop

#endif
