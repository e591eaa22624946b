/*
 * What an analysis learned about a job besides its findings: the runs it consists of, its
 * hosts' clocks, and its communicators. Part of a verdict (verdict.h), with its lifetime;
 * refers to the job.
 */
#ifndef REC_CENSUS_H
#define REC_CENSUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/job.h"

#pragma GCC visibility push(default)

/*
 * A run of the job's processes. A launcher that restarts a failed job (torchrun --max-restarts,
 * Slurm --requeue) makes one job of several generations. Findings are about the last one.
 */
struct rec_generation {
    const char *restart;        /* the launcher's restart counter; "" = unknown */
    uint64_t start_ns, last_ns; /* first process began, last sign of life */
    uint32_t processes;
    uint32_t expected; /* ranks it should have; 0 = unknown */
    int32_t *ranks;    /* present job ranks, ascending, each once */
    size_t nranks;
    /* How it ended, for all generations but the last; NULL = not examined (too many of them). */
    const char *type; /* stable name of the verdict */
    char *summary;
    int32_t *culprits;
    size_t nculprits;
};

/*
 * A host's clock against that of the job's first host, which is the first entry. The true
 * difference lies within offset ± uncertainty. Hosts that share no communicator with others
 * have no known offset.
 */
struct rec_host_clock {
    const char *host;
    bool known;
    int64_t offset_ns;       /* to be subtracted from its times */
    uint64_t uncertainty_ns; /* 0 on the first host only */
    uint32_t samples;        /* calls that it rests on */
};

struct rec_comm_census {
    const struct rec_communicator *comm;
    uint32_t generation;                         /* index */
    uint64_t created_ns;                         /* common clock; 0 = unknown */
    uint64_t ended_ns;                           /* when the last member tore it down; 0 = not all did */
    uint64_t collectives;                        /* data-moving ones of the rank that entered most */
    uint64_t sends;                              /* of all present members */
    uint64_t onesided;                           /* puts, signals and waits of all present members */
    uint64_t bytes;                              /* payload handed to recorded calls, all present members */
    uint64_t lost;                               /* calls without a record, not part of the figures above */
    int32_t *ranks;                              /* job ranks of present members, by comm rank; -1 unknown */
    const struct rec_communicator *same_members; /* the first one over the same members; NULL = this is it */
    bool shares; /* its members used another one over the same members at the same time */
};

/*
 * Two communicators whose collectives some processes issued in different orders. On different
 * streams that may go well for long, and deadlocks when the GPU has no room for both.
 */
struct rec_order_difference {
    const struct rec_communicator *a, *b;
    uint64_t seq_a, seq_b;
    const struct rec_process *a_first, *b_first; /* issued a's op first; b's op first */
};

struct rec_census {
    size_t ngenerations; /* at least 1 */
    struct rec_generation *generations;
    uint32_t *generation_of; /* by process index */
    size_t nclocks;
    struct rec_host_clock *clocks;
    uint32_t *clock_of; /* by process index: its entry in clocks; REC_ID_NONE = its host was not compared */
    size_t ncomms;      /* in the order of creation */
    struct rec_comm_census *comms;
    size_t ndifferences; /* one for each pair of communicators, at most 16 */
    struct rec_order_difference *differences;
    bool whole;    /* the differences are those of all calls, not only of each process's last ones */
    size_t nnotes; /* what is remarkable, a sentence without full stop each */
    char **notes;
};

#pragma GCC visibility pop

#endif
