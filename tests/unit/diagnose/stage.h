/* The traces of a story while it is told: one writer for each rank. */
#ifndef STAGE_H
#define STAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "rec/writer.h"

#define RANKS_MAX   80
#define COMMS_MAX   24
#define PAIRS_MAX   128
#define THREADS_MAX 4
#define GRAPHS_MAX  16
#define MS          UINT64_C(1000000)
#define START       UINT64_C(1700000000000000000)

struct pair {
    int comm, peer, send;
    uint64_t next;
};

struct teller {
    void *memory;
    struct rec_writer *writer;
    bool over, losing, no_trace, unreadable, capturing;
    unsigned graph; /* captured into; 0 = its launches are not seen */
    uint64_t launches, replays[GRAPHS_MAX];
    struct rec_gpu gpu;
    uint64_t skew_ns; /* its clock is so much ahead */
    long ends_at;     /* the file is cut here; 0 */
    uint64_t stop_ns; /* when it stopped to show signs of life; 0 */
    char path[160];
    uint64_t ordinal[THREADS_MAX];
    uint64_t lost[COMMS_MAX], lost_total;
    uint64_t seq[COMMS_MAX], p2p[COMMS_MAX];
    int comm_rank[COMMS_MAX]; /* -1: no member */
    struct pair pairs[PAIRS_MAX];
    int npairs;
    uint32_t group, groups;
    int group_thread;
    uint64_t group_ops;
    struct rec_op open[8];
    uint32_t nopen;
};

struct comm {
    char name[16];
    int members[RANKS_MAX], nmembers;
    uint32_t parent; /* index + 1 */
};

struct stage {
    struct teller ranks[RANKS_MAX];
    int nranks;
    struct comm comms[COMMS_MAX];
    int ncomms;
    uint64_t now;
    bool marks; /* launches have marks */
};

struct call {
    struct rec_op op;
    int thread;
    bool open;
    bool started, done; /* as the GPU's marks say */
};

/* The time on a rank's own clock. */
uint64_t stage_clock_of(const struct stage *stage, int rank);
/* A rank's file; what is still open is written when it is closed. */
void stage_open_trace(struct stage *stage, int rank, const char *dir);
void stage_close_trace(struct stage *stage, int rank);
/* Says in a rank's file that a communicator is being made, or ready. */
void stage_define_comm(struct stage *stage, int rank, int comm, uint32_t made_by, uint32_t state,
                       uint32_t nranks);
struct call stage_new_call(int comm, unsigned kind);
/* Records a call, with its number and time. */
void stage_issue(struct stage *stage, int rank, struct call *call);

#endif
