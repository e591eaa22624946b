/*
 * Diagnosis: from a job to a verdict (docs/verdicts.md).
 *
 * rec_analyze works on a loaded job: on checkpoints, frontiers and the last calls of every rank. It
 * streams a trace again only where these do not reach back far enough, or were not kept
 * (rec_job_options). Memory is proportional to communicators and ranks, never to ops. The result
 * owns its memory (rec_verdict_free) but refers to the job, which must outlive it.
 */
#ifndef REC_VERDICT_H
#define REC_VERDICT_H

#include <stddef.h>
#include <stdint.h>

#include "rec/census.h"
#include "rec/error.h"
#include "rec/job.h"

#pragma GCC visibility push(default)

/* X(ENUM, stable name, is it a fault that makes fr-analyze exit with 1?) */
#define REC_VERDICT_TABLE(X)                                                                                 \
    X(HEALTHY, "healthy", 0)                                                                                 \
    X(SIGNATURE_MISMATCH, "signature_mismatch", 1)                                                           \
    X(OP_MISMATCH, "op_mismatch", 1)                                                                         \
    X(RANK_NOT_JOINED, "rank_not_joined", 1)                                                                 \
    X(PROCESS_DEAD, "process_dead", 1)                                                                       \
    X(TRACE_MISSING, "trace_missing", 0)                                                                     \
    X(STUCK_OUTSIDE_NCCL, "stuck_outside_nccl", 1)                                                           \
    X(STUCK_IN_CALL, "stuck_in_call", 1)                                                                     \
    X(GPU_NOT_REACHED, "gpu_not_reached", 1)                                                                 \
    X(STUCK_IN_KERNEL, "stuck_in_kernel", 1)                                                                 \
    X(P2P_UNMATCHED, "p2p_unmatched", 1)                                                                     \
    X(P2P_MISMATCH, "p2p_mismatch", 1)                                                                       \
    X(DEADLOCK_CYCLE, "deadlock_cycle", 1)                                                                   \
    X(ORDER_INVERSION, "order_inversion", 1)                                                                 \
    X(INIT_INCOMPLETE, "init_incomplete", 1)                                                                 \
    X(TEARDOWN_STUCK, "teardown_stuck", 1)                                                                   \
    X(COMM_FAILED, "comm_failed", 1)                                                                         \
    X(COMM_ABORTED, "comm_aborted", 1)                                                                       \
    X(CAPTURE_MISMATCH, "capture_mismatch", 1)                                                               \
    X(STRAGGLER, "straggler", 0)                                                                             \
    X(INCONCLUSIVE, "inconclusive", 0)

enum rec_verdict_type {
#define X(id, name, fault) REC_VERDICT_##id,
    REC_VERDICT_TABLE(X)
#undef X
};
const char *rec_verdict_type_name(enum rec_verdict_type type);

enum rec_confidence { REC_CONF_UNKNOWN, REC_CONF_POSSIBLE, REC_CONF_LIKELY, REC_CONF_CERTAIN };
const char *rec_confidence_name(enum rec_confidence confidence);

enum rec_status { /* fr-analyze's exit status */
                  REC_STATUS_HEALTHY = 0,
                  REC_STATUS_FAULT = 1,
                  REC_STATUS_INCONCLUSIVE = 3,
};
const char *rec_status_name(enum rec_status status); /* "healthy", "fault", "inconclusive" */

/* One line of evidence; the fields say where it comes from, text is complete by itself. */
struct rec_evidence {
    char *text;
    int32_t rank;     /* -1 = no single rank */
    uint64_t seq;     /* UINT64_MAX = none */
    uint64_t time_ns; /* 0 = none */
    const char *file; /* NULL = none; belongs to the job */
};

struct rec_finding {
    enum rec_verdict_type type;
    enum rec_confidence confidence;
    char *summary;     /* one sentence: rank, host, pid, op, communicator, what it did instead */
    int32_t *culprits; /* job ranks, ascending */
    size_t nculprits;
    int32_t *suspects; /* possible only, never blamed */
    size_t nsuspects;
    int32_t *victims; /* ranks that wait because of it */
    size_t nvictims;
    const struct rec_communicator *comm; /* NULL = none */
    uint64_t seq;                        /* UINT64_MAX = none */
    struct rec_op op; /* the op concerned, as the majority or the waiters issued it; kind REC_NONE = none */
    struct rec_evidence *evidence;
    size_t nevidence;
};

/* What a finding says of a rank. The ranks that a straggler's finding names are slow, not to blame. */
enum rec_role { REC_ROLE_NONE, REC_ROLE_CULPRIT, REC_ROLE_SUSPECT, REC_ROLE_VICTIM, REC_ROLE_SLOW };
enum rec_role rec_finding_role(const struct rec_finding *finding, int32_t rank);
const char *rec_role_name(enum rec_role role); /* "", "culprit", "suspect", "waits", "slow" */

struct rec_verdict {
    enum rec_status status;
    size_t nfindings; /* at least 1; [0] is the verdict, causes before consequences, advice last */
    struct rec_finding *findings;
    struct rec_census *census;
};

#define REC_STALL_SEC 30

/*
 * The hosts of a finding's culprits in the run that the verdict is about, each once, by name. A
 * malloc'ed array of count names, which belong to the job; NULL without memory.
 */
const char **rec_finding_hosts(const struct rec_job *job, const struct rec_verdict *verdict,
                               const struct rec_finding *finding, size_t *count) REC_WARN_UNUSED;

struct rec_analyze_options {
    uint64_t now_ns;    /* for living processes; 0 = the clock */
    uint32_t stall_sec; /* a living job is stuck when nothing moved for so long; 0 = REC_STALL_SEC */
    unsigned threads;   /* at most so many, up to 16; 0 = one for each online CPU. The verdict is the same */
    const struct rec_progress *progress; /* must outlive the call; NULL = nobody wants to know */
};

enum rec_code rec_analyze(const struct rec_job *job, const struct rec_analyze_options *options,
                          struct rec_verdict **verdict, struct rec_error *err) REC_WARN_UNUSED;
void rec_verdict_free(struct rec_verdict *verdict);

/* The whole answer as JSON, schema fr-verdict/1; a malloc'ed string, NULL without memory. */
char *rec_verdict_json(const struct rec_job *job, const struct rec_verdict *verdict);

/* Is the rank one of these? ranks ascending. */
bool rec_has_rank(const int32_t *ranks, size_t count, int32_t rank);

/* "0-2,4-7" into buffer, always terminated; returns what snprintf would. ranks ascending. */
int rec_fold_ranks(char *buffer, size_t size, const int32_t *ranks, size_t count);

#pragma GCC visibility pop

#endif
