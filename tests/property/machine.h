/* What execute.c and device.c share: the state of a run. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdlib.h>

#include "execute.h"

#define NONE  UINT32_MAX
#define NEVER UINT64_MAX

/* Room for one more in an array. */
#define GROW(array, count, capacity)                                                                         \
    do {                                                                                                     \
        if ((count) == (capacity)) {                                                                         \
            (capacity) = (capacity) ? (capacity)*2 : 64;                                                     \
            (array) = realloc((array), (capacity) * sizeof *(array));                                        \
            if (!(array))                                                                                    \
                abort();                                                                                     \
        }                                                                                                    \
    } while (0)

/* Where members meet: a collective, a message, a creation, a graph, a finalize. */
struct meeting {
    int needed, posted, active;
    struct act first;
    bool fits, done, scheduled;
    uint32_t parts; /* list of (op) through op.next */
};

/* A call's work on the device. */
struct op {
    int rank;
    uint32_t part, meeting, next;
    uint32_t delivers; /* of a send that ends by itself: where the message goes; NONE */
    bool done;
};

/* One communicator's share of a launch. */
struct part {
    int rank;
    uint32_t first_op, nops, left; /* first_op NONE: not NCCL's, and it never ends */
    unsigned streams;              /* bits */
    int heads, wants;
    bool active;
    uint64_t posted;
};

struct stream {
    uint32_t *parts;
    size_t count, capacity, head;
    uint64_t launches, started, ended;
    uint64_t *launch_of; /* by position in parts; 0 = not ours, and never over */
    size_t launch_cap;
};

enum wait_kind { WAIT_NONE, WAIT_TIME, WAIT_MEETING, WAIT_SYNC, WAIT_QUEUE, WAIT_JOIN, WAIT_OVER };

struct thread {
    size_t pc;
    enum wait_kind wait;
    uint32_t meeting;
    size_t call;                 /* the call it is inside */
    size_t targets[STREAMS_MAX]; /* of a sync */
    uint64_t ordinal;
    uint32_t group, groups;
    size_t group_first; /* first call of the open group */
    int depth;
    bool started;
};

struct host {
    struct thread threads[LANES];
    struct stream streams[STREAMS_MAX];
    uint64_t seq[COMMS_MAX], data[COMMS_MAX], created[COMMS_MAX], graphs[COMMS_MAX];
    uint64_t messages[COMMS_MAX][RANKS_MAX][2], signals[COMMS_MAX][RANKS_MAX][2], windows[COMMS_MAX];
    bool dead;
};

enum event_kind { EV_THREAD, EV_MEETING };
struct event {
    uint64_t at, order;
    enum event_kind kind;
    uint32_t a, b;
};

struct machine {
    const struct plan *plan;
    struct run *run;
    struct rng rng;
    struct host *hosts;
    uint64_t now, order;
    struct event *heap;
    size_t nheap, heap_cap;
    struct meeting *meetings;
    size_t nmeetings, meetings_cap;
    struct op *ops;
    size_t nops, ops_cap;
    struct part *parts;
    size_t nparts, parts_cap;
    uint64_t *keys; /* hash of meetings */
    uint32_t *values;
    size_t map_size, map_used;
};

/* ---- device.c ---- */

/* The next thing that happens; there must be one. */
struct event machine_next(struct machine *m);
/* A thread goes on after so long. */
void machine_wake(struct machine *m, int rank, int lane, uint64_t after);
uint64_t machine_bytes(const struct act *act);
/*
 * Where a call meets its counterparts. Classes: 1 data, 2 creation, 3 graph, 4 finalize, 5 messages,
 * 6 a send that needs nobody, 7 signals, 8 writes that need nobody, 9 registrations.
 */
uint32_t machine_meet(struct machine *m, int class_id, const struct act *act, uint64_t number, int src,
                      int dst, int needed);
/* Schedules its end if all have come. */
void machine_try(struct machine *m, uint32_t index);
/* Everybody's work at a meeting is done. */
void machine_end_meeting(struct machine *m, uint32_t index);
void machine_note_marks(struct machine *m, int rank, int stream);
/* The launch at the front of a stream begins when it is at the front of all its streams. */
void machine_check_head(struct machine *m, int rank, int stream);

/* ---- execute.c ---- */

/* Lets the threads of a rank go on whose wait is over. */
void machine_poll(struct machine *m, int rank);

#endif
