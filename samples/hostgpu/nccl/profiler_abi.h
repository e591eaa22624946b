/* The plugin interface's numbers and layouts (NCCL's src/include/plugin/nccl_profiler.h and
 * profiler_v4..6.h). Not shared with the recorder: the lab stands for NCCL, and a mistake in a common
 * header would show nowhere. */
#ifndef LAB_PROFILER_ABI_H
#define LAB_PROFILER_ABI_H

#include "compat.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EVENT_GROUP = 1 << 0,
    EVENT_COLL = 1 << 1,
    EVENT_P2P = 1 << 2,
    EVENT_KERNEL_CH = 1 << 6,
    EVENT_NET = 1 << 7,
    EVENT_GROUP_API = 1 << 8,
    EVENT_COLL_API = 1 << 9,
    EVENT_P2P_API = 1 << 10,
    EVENT_KERNEL_LAUNCH = 1 << 11,
    EVENTS_OF_PROXIES = 1 << 3 | 1 << 4,
    EVENTS_BELOW_TASK = EVENTS_OF_PROXIES | EVENT_KERNEL_CH | EVENT_NET,
};

enum { STATE_KERNEL_CH_STOP = 22, STATE_GROUP_START_API_STOP = 23, STATE_GROUP_END_API_START = 24 };

struct coll_descr {
    uint64_t seq_number;
    const char *func;
    const void *send;
    void *recv;
    size_t count;
    int root;
    const char *datatype;
    uint8_t nchannels, nwarps;
    const char *algo, *proto;
    void *parent_group; /* not in version 4 */
};

struct p2p_descr {
    const char *func;
    void *buffer;
    const char *datatype;
    size_t count;
    int peer;
    uint8_t nchannels;
    void *parent_group; /* not in version 4 */
};

union event_descr {
    struct {
        bool captured;
        int depth;
    } group_api;
    struct {
        const char *func;
        size_t count;
        const char *datatype;
        int root;
        void *stream;
        bool captured;
    } coll_api;
    struct {
        const char *func;
        size_t count;
        const char *datatype;
        void *stream;
        bool captured;
    } p2p_api;
    struct {
        void *stream;
    } kernel_launch;
    struct coll_descr coll;
    struct p2p_descr p2p;
    struct {
        uint8_t channel;
        uint64_t timer;
    } kernel_ch;
    uint64_t room[16]; /* version 6 describes more kinds of events */
};

/* Of versions 5 and 6, and of version 4. */
struct event {
    uint64_t type;
    void *parent;
    int rank;
    union event_descr descr;
};

struct event_v4 {
    uint8_t type;
    void *parent;
    int rank;
    union event_descr descr;
};

_Static_assert(offsetof(struct event, descr) == 24 && offsetof(struct event_v4, descr) == 24,
               "NCCL's layout");

union state_args {
    struct {
        uint64_t timer;
    } kernel_ch;
};

typedef void logger(int level, unsigned long flags, const char *file, int line, const char *format, ...);

struct plugin_v5 { /* and v6 */
    const char *name;
    ncclResult_t (*init)(void **context, uint64_t comm_id, int *mask, const char *comm_name, int nnodes,
                         int nranks, int rank, logger *log);
    ncclResult_t (*start_event)(void *context, void **handle, struct event *event);
    ncclResult_t (*stop_event)(void *handle);
    ncclResult_t (*record_event_state)(void *handle, int state, union state_args *args);
    ncclResult_t (*finalize)(void *context);
};

struct plugin_v4 {
    const char *name;
    ncclResult_t (*init)(void **context, int *mask, const char *comm_name, uint64_t comm_hash, int nnodes,
                         int nranks, int rank, logger *log);
    ncclResult_t (*start_event)(void *context, void **handle, struct event_v4 *event);
    ncclResult_t (*stop_event)(void *handle);
    ncclResult_t (*record_event_state)(void *handle, int state, union state_args *args);
    ncclResult_t (*finalize)(void *context);
};

#endif
