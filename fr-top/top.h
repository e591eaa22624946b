/*
 * What fr-top knows: probes (one recorded process each, kept from refresh to refresh) and
 * snapshots (everything at one moment, joined into ranks, communicators and hosts).
 *
 * A probe is filled by region.c from a live region of this host, or by trace.c from a
 * trace file; from there on it makes no difference where it came from. One thread.
 */
#ifndef TOP_H
#define TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fr-top/kinds.h"
#include "rec/error.h"
#include "rec/event.h"
#include "rec/live.h"

#define TOP_NO_RANK  (-1)
#define TOP_NONE     UINT32_MAX
#define TOP_MAX_OPEN 8 /* open calls kept per process; more are counted */

/* Worst first: also the order in which states sort. */
enum top_state {
    TOP_DEAD,     /* gone without a word: SIGKILL, node lost */
    TOP_CRASHED,  /* ended by a fatal signal */
    TOP_FAILED,   /* exited, status not 0 */
    TOP_LATE,     /* outside NCCL for long while other members of a communicator are ahead */
    TOP_STALLED,  /* no call began or returned for long */
    TOP_SILENT,   /* no sign of life, and nothing shows that it ended */
    TOP_IN_CALL,  /* inside an NCCL call */
    TOP_STARTING, /* no communicator yet */
    TOP_IDLE,     /* no call since the last refresh */
    TOP_RUNNING,
    TOP_EXITED, /* ended well */
    TOP_STATES
};
const char *top_state_name(enum top_state state);
bool top_state_ended(enum top_state state);
bool top_state_stuck(enum top_state state); /* late or stalled */

/* One comm rank of one process. */
struct top_member {
    uint64_t uid; /* 0 = not known yet */
    uint32_t comm_id;
    uint32_t state; /* enum rec_live_comm_state */
    uint32_t nranks;
    uint32_t comm_rank; /* REC_ID_NONE unknown */
    uint32_t made_by;
    uint32_t async_error;
    uint64_t parent_uid; /* 0 = none */
    uint64_t created_ns;
    uint64_t next_seq; /* collective-like ops entered */
    uint64_t p2p;
    uint64_t lost;
    uint64_t changed_ns; /* traces: when next_seq last changed, by the process's clock */
    bool moving;         /* traces: it changed so recently that next_seq is history by now */
    char name[64];
    /* set in a snapshot */
    uint32_t process, comm; /* indices */
    uint64_t lag;           /* ops behind the communicator's front; 0 while moving */
};

struct top_op {
    struct rec_op op;  /* kind REC_NONE = none known; its state is as of the last reading */
    uint32_t member;   /* index into the process's members; TOP_NONE */
    uint64_t since_ns; /* open: entered; else: returned */
};

struct top_process {
    uint64_t proc_uid;
    int32_t rank, world_size;
    bool derived_rank;
    int32_t pid;
    char host[128], exe[256], restart[32];
    char job_id[128]; /* as the launcher gave it; "" */
    char job[160];    /* what belongs together: id, or id.step of a Slurm job, or the trace directory */
    char boot_id[40];
    uint64_t pid_ns; /* namespace of pid, 0 = unknown */
    char frec_dir[REC_LIVE_PATH_BYTES];
    bool local; /* from a live region */

    enum top_state state;
    bool ended, vanished;
    struct rec_end end;                        /* reason, status, signal */
    uint64_t start_ns, alive_ns, last_call_ns; /* 0 unknown */
    uint64_t looked_ns;                        /* when this was read */
    uint64_t ops; /* collective-like and P2P calls entered, those of launched graphs too */
    uint64_t lost;
    uint64_t file_bytes;
    uint32_t file_error;
    double ops_per_s, bytes_per_s; /* NAN unknown */
    struct top_kind_rate kinds[TOP_KINDS];

    struct top_op
        now; /* the oldest open call, else the oldest that the GPU has not finished, else the last */
    bool in_call;
    uint32_t nopen;
    uint64_t pending; /* launches that its GPU has not finished; 0 also where that is not known */
    struct top_op open[TOP_MAX_OPEN];
    uint64_t lag;                    /* largest of its members */
    uint32_t first_member, nmembers; /* in the snapshot */
    uint32_t job_index;              /* there: from 0, in the order of their names */
    bool past;                       /* there: of an earlier run of the job */
};

/* This host's boot id; "" when unknown. */
void top_boot_id(char *out, size_t size);

/* ---- probes ---- */

struct top_probe {
    struct top_process process; /* as of the last reading */
    struct top_member *members;
    size_t nmembers, room;
    void *reader; /* region.c's or trace.c's own */
    char path[REC_LIVE_PATH_BYTES + 64];
    bool seen;         /* in the directory at the last scan */
    bool finished;     /* nothing more to read */
    uint64_t ops_base; /* what rates are computed from */
    uint64_t sampled_ns;
};

/* A new zeroed member at the end; NULL without memory. */
struct top_member *top_probe_member(struct top_probe *probe);
/* Index of the member with this process-local id; TOP_NONE. */
uint32_t top_probe_find(const struct top_probe *probe, uint32_t comm_id);
/* Counts an open call and keeps it among the oldest. */
void top_process_open(struct top_process *process, const struct top_op *op);
/* Is this a kind of call by which one sees how far a rank has come? */
bool top_tells_progress(unsigned kind);
/*
 * What its stream's marks tell of an op. A launch that has no marks, when all before it are over, may be
 * over, too: nothing is known of it, and its launch becomes 0.
 */
void top_op_gpu(struct rec_op *op, const struct rec_gpu *gpu);
/* The job and rank that the recorder's JSON tells (host, rank, job, start_ns …). */
void top_probe_meta(struct top_probe *probe, const char *meta, size_t bytes);

/* Live regions of this host. */
enum rec_code top_region_open(struct top_probe *probe, struct rec_error *err) REC_WARN_UNUSED;
void top_region_read(struct top_probe *probe, uint64_t now_ns);
void top_region_close(struct top_probe *probe);

/*
 * Trace files: processes of other hosts, and those that ended before anybody looked. The
 * probe's path is that of the first part, which may be gone. open reads only part's header; read looks at the
 * last segment, and only when the file has changed.
 */
enum rec_code top_trace_open(struct top_probe *probe, uint32_t part, struct rec_error *err) REC_WARN_UNUSED;
void top_trace_part(struct top_probe *probe, uint32_t part); /* this part exists */
void top_trace_read(struct top_probe *probe, uint64_t now_ns);
void top_trace_close(struct top_probe *probe);

/* ---- snapshots ---- */

struct top_comm {
    uint64_t uid;
    char name[64];
    uint32_t nranks, made_by;
    uint64_t parent_uid;
    uint32_t parent; /* index; TOP_NONE = none, or not seen */
    uint64_t created_ns;
    uint64_t front, back; /* highest and lowest next_seq of its members that are not moving */
    uint32_t nmembers;    /* present */
    uint32_t lagging;     /* members behind the front */
    uint32_t stuck, ended;
    uint32_t *members; /* indices into members, by comm rank; part of the snapshot's memory */
};

struct top_host {
    char name[128];
    uint32_t processes, up, stuck, ended;
    uint64_t lost, lag;
    double ops_per_s, bytes_per_s;
    uint64_t oldest_ns; /* oldest open call entered; 0 none */
};

/* A kind of call that was made in the last seconds, and the processes that made it. */
struct top_kind {
    unsigned kind; /* enum rec_kind */
    uint32_t ranks;
    struct top_kind_rate sum;
};
struct top_kind_rank {
    uint32_t kind, process; /* indices */
};

struct top_verdict;

struct top_snapshot {
    uint64_t now_ns;
    uint32_t nprocesses;
    struct top_process *processes; /* by (job, rank, start) */
    uint32_t nmembers;
    struct top_member *members; /* grouped by process */
    uint32_t ncomms;
    struct top_comm *comms; /* by creation */
    uint32_t nhosts;
    struct top_host *hosts; /* by name */
    uint32_t *comm_members;
    uint32_t nkinds;
    struct top_kind kinds[TOP_KINDS];
    uint32_t nkind_ranks;
    struct top_kind_rank *kind_ranks; /* grouped by kind */

    char job[160]; /* "" when none; "3 jobs" when several are shown */
    uint32_t njobs;
    uint32_t npast;   /* processes of earlier runs, whether shown or not */
    uint32_t world;   /* expected ranks, 0 unknown */
    uint32_t nabsent; /* of these, never seen; counted only when looking at a whole job's directory */
    int32_t *absent;  /* which, ascending */
    uint32_t up, stuck, ended, states[TOP_STATES];
    double ops_per_s, bytes_per_s; /* NAN unknown */
    uint64_t lost;
    uint32_t oldest;     /* process with the oldest open call; TOP_NONE */
    uint32_t oldest_gpu; /* process with the oldest call that its GPU has not finished; TOP_NONE */
    char warning[256];   /* something that could not be read; "" */
    const struct top_verdict *verdict; /* what the engine says (diagnosis.h), set by the program; NULL */
};

struct top_options {
    const char *dir;      /* only processes that record into it; NULL = all of this host */
    const char *live_dir; /* where live regions lie */
    const char *job;      /* only this job or job id; NULL */
    uint32_t stall_sec;
    uint32_t patience_ms; /* for opening trace files, per refresh; the rest comes later. 0 = all at once */
    bool all_runs;        /* also what ended before the present run of the job began */
};

struct top_watch;
struct top_watch *top_watch_open(const struct top_options *options, struct rec_error *err);
void top_watch_close(struct top_watch *watch);
/* Looks again; the snapshot is the watch's and lives until the next call. */
enum rec_code top_watch_refresh(struct top_watch *watch, struct top_snapshot **snapshot,
                                struct rec_error *err) REC_WARN_UNUSED;

/* As options.all_runs, from the next refresh on. */
void top_watch_all_runs(struct top_watch *watch, bool all);

/* Joins probes into a snapshot (zeroed before), and tells each whether it is past; false without memory. */
bool top_snapshot_build(struct top_snapshot *snapshot, struct top_probe *const *probes, size_t nprobes,
                        const struct top_options *options, uint64_t now_ns);
void top_snapshot_clear(struct top_snapshot *snapshot);

/* ---- text of values ---- */

void top_text_count(char *out, size_t size, double value); /* "812", "12.3k", "12.3M"; "-" for NAN */
void top_text_age(char *out, size_t size, uint64_t ns);    /* "12.3s", "4m05s" */
void top_text_comm(char *out, size_t size, const char *name, uint64_t uid);
void top_text_op(char *out, size_t size, const struct rec_op *op); /* "AllReduce", "Op200" */
/* Where a call is: "host" (inside NCCL), "queue" (launched, its turn has not come), "gpu", "done", "graph" …
 */
const char *top_text_where(const struct rec_op *op);
void top_text_rank(char *out, size_t size, const struct top_process *process);
/* "exit 1", "SIGSEGV", "gone": how it ended; "" while it runs. */
void top_text_end(char *out, size_t size, const struct top_process *process);

/* ---- outputs ---- */

int top_write_text(const struct top_snapshot *snapshot);
int top_write_json(const struct top_snapshot *snapshot);
/* Writes FILE anew by rename. */
enum rec_code top_write_metrics(const struct top_snapshot *snapshot, const char *path,
                                struct rec_error *err) REC_WARN_UNUSED;

struct top_screen_options {
    bool mono, ascii;
    uint32_t delay_ms;
    const char *metrics;                /* NULL */
    const struct top_options *diagnose; /* what the diagnosis is to look at; NULL = none wanted */
};
/* The screen, until the user quits. Returns the exit status. */
int top_screen_run(struct top_watch *watch, const struct top_screen_options *options);

#endif
