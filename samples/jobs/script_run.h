/* What the commands of fr-script share (script.c). */
#ifndef SAMPLES_SCRIPT_RUN_H
#define SAMPLES_SCRIPT_RUN_H

#include "job.h"
#include "script.h"

/* A stream with its own send and receive buffers, made when first used. */
struct script_stream {
    cudaStream_t stream;
    void *send, *recv;
    size_t bytes;
};

struct script_comm {
    char name[32];
    ncclComm_t comm;
    unsigned made;       /* how often this name was created */
    ncclWindow_t window; /* of the last `window` on it, and its memory */
    void *memory;
};

/* Exits with the line and the reason. */
_Noreturn void script_wrong(const struct script_node *node, const char *what, const char *detail);

/* The text after KEY=; NULL when it was not given. */
const char *script_option(const struct script_node *node, const char *key);
long long script_option_value(const struct script_context *context, const struct script_node *node,
                              const char *key, long long otherwise);
/* The n-th argument, as a number, a communicator, a data type. Exits when it is none. */
long long script_argument(const struct script_context *context, const struct script_node *node, int n);
struct script_comm *script_find_comm(const struct script_node *node, int n);
ncclDataType_t script_dtype(const struct script_node *node, int n);
/* The entry for the communicator that argument 0 names, to be created. */
struct script_comm *script_new_comm(const struct script_node *node);

struct script_stream *script_stream_of(struct script_context *context, const struct script_node *node);
/*
 * The stream with buffers of at least `bytes`. Outgrown buffers stay: freeing one would wait for the
 * device.
 */
struct script_stream *script_stream_with(struct script_context *context, const struct script_node *node,
                                         size_t bytes);

/* Checks a call's result; with try=1 a failure is no reason to stop. */
void script_check(const struct script_node *node, ncclResult_t result);

#define COUNTED(node, call)                                                                                  \
    do {                                                                                                     \
        job_count_enter();                                                                                   \
        ncclResult_t counted_result_ = (call);                                                               \
        job_count_leave();                                                                                   \
        script_check(node, counted_result_);                                                                 \
    } while (0)

/* Calls of NCCL 2.29 and newer (script_newer.c). */
void script_grow(struct script_context *context, const struct script_node *node);
void script_window(struct script_context *context, const struct script_node *node);
void script_put(struct script_context *context, const struct script_node *node);
void script_signal(struct script_context *context, const struct script_node *node);
void script_wait_signal(struct script_context *context, const struct script_node *node);
void script_wait_signals(struct script_context *context, const struct script_node *node);

#endif
