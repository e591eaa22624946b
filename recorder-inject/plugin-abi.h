/*
 * NCCL's profiler plugin interface, versions 4 (NCCL 2.27), 5 (2.28) and 6 (2.29 and later), as far as it is
 * used here: numbers and layouts after NCCL's src/include/plugin/nccl_profiler.h and profiler/profiler_v4.h
 * to profiler_v6.h (releases 2.27.3 to 2.30.7). What is used of a descriptor lies at the same place in all
 * three, except that the type has one byte in version 4 and eight later.
 */
#ifndef INJECT_PLUGIN_ABI_H
#define INJECT_PLUGIN_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum plugin_event_type {
    PLUGIN_GROUP = 1 << 0,     /* one launch is handed over. Around its COLL and P2P */
    PLUGIN_COLL = 1 << 1,      /* a collective is handed over to the GPU */
    PLUGIN_P2P = 1 << 2,       /* a message is */
    PLUGIN_KERNEL_CH = 1 << 6, /* one channel of the kernel runs; by the proxy's thread */
    PLUGIN_GROUP_API =
        1 << 8,               /* since version 5: from the first call of a group to the end of ncclGroupEnd */
    PLUGIN_COLL_API = 1 << 9, /* a call takes a collective into the group */
    PLUGIN_P2P_API = 1 << 10, /* a call takes a message into it */
};

enum { PLUGIN_STATE_KERNEL_CH_STOP = 22, PLUGIN_STATE_GROUP_END_API_START = 24 };

struct plugin_descr {
    uint64_t type; /* version 4: only the first byte */
    void *parent;
    int rank;
    union {
        struct {
            bool captured;
            int depth; /* 1: the group that a single call makes for itself */
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
            uint64_t seq_number;
            const char *func;
            const void *send;
            void *recv;
            size_t count;
            int root;
            const char *datatype;
            uint8_t nchannels;
        } coll;
        struct {
            const char *func;
            void *buffer;
            const char *datatype;
            size_t count;
            int peer;
            uint8_t nchannels;
        } p2p;
        struct {
            uint8_t channel;
            uint64_t timer; /* the GPU's globaltimer, ns */
        } kernel_ch;
    };
};
_Static_assert(offsetof(struct plugin_descr, parent) == 8 && offsetof(struct plugin_descr, coll) == 24,
               "NCCL's layout");

union plugin_state_args {
    struct {
        uint64_t timer;
    } kernel_ch;
};

typedef void plugin_logger(int level, unsigned long flags, const char *file, int line, const char *format,
                           ...);

/* All return ncclResult_t. NCCL calls them from many threads at once. */
struct plugin_v4 {
    const char *name;
    int (*init)(void **context, int *mask, const char *comm_name, uint64_t comm_hash, int nnodes, int nranks,
                int rank, plugin_logger *log);
    int (*start_event)(void *context, void **handle, struct plugin_descr *descr);
    int (*stop_event)(void *handle);
    int (*record_event_state)(void *handle, int state, union plugin_state_args *args);
    int (*finalize)(void *context);
};

struct plugin_v5 { /* and version 6 */
    const char *name;
    int (*init)(void **context, uint64_t comm_hash, int *mask, const char *comm_name, int nnodes, int nranks,
                int rank, plugin_logger *log);
    int (*start_event)(void *context, void **handle, struct plugin_descr *descr);
    int (*stop_event)(void *handle);
    int (*record_event_state)(void *handle, int state, union plugin_state_args *args);
    int (*finalize)(void *context);
};

#endif
