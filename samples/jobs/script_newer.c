/*
 * Commands for calls that newer releases of NCCL have: looked up at run time, so that the same
 * program runs on older ones. Signatures as in nccl.h of NCCL 2.29.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "script_run.h"

struct wait_description {
    int count, peer, index, context;
};

typedef ncclResult_t grow_function(ncclComm_t, int, const ncclUniqueId *, int, ncclComm_t *, ncclConfig_t *);
typedef ncclResult_t unique_id_function(ncclComm_t, ncclUniqueId *);
typedef ncclResult_t put_function(const void *, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int,
                                  unsigned, ncclComm_t, cudaStream_t);
typedef ncclResult_t signal_function(int, int, int, unsigned, ncclComm_t, cudaStream_t);
typedef ncclResult_t wait_function(int, struct wait_description *, ncclComm_t, cudaStream_t);

/* A function of the library, as a pointer of the type that `into` points to. */
static void find(const struct script_node *node, const char *name, void *into)
{
    void *function = dlsym(RTLD_DEFAULT, name);
    if (!function)
        script_wrong(node, "this NCCL has no", name);
    *(void **)into = function;
}

/* NAME PARENT NRANKS: on those who join, PARENT is "none" and rank= their place. */
void script_grow(struct script_context *context, const struct script_node *node)
{
    bool joins = !strcmp(node->args[1], "none");
    struct script_comm *parent = joins ? NULL : script_find_comm(node, 1), *entry = script_new_comm(node);
    int nranks = (int)script_argument(context, node, 2);
    bool creator = !joins && script_option_value(context, node, "creator", 0) == job.rank;
    grow_function *grow;
    find(node, "ncclCommGrow", &grow);
    char key[64];
    snprintf(key, sizeof key, "%s.%u", entry->name, entry->made++);
    ncclUniqueId id;
    if (creator) {
        unique_id_function *unique_id;
        find(node, "ncclCommGetUniqueId", &unique_id);
        script_check(node, unique_id(parent->comm, &id));
        job_give_id(key, &id);
    } else if (joins) {
        id = job_unique_id(key, false);
    }
    int rank = joins ? (int)script_option_value(context, node, "rank", job.rank) : -1;
    COUNTED(node, grow(parent ? parent->comm : NULL, nranks, creator || joins ? &id : NULL, rank,
                       &entry->comm, NULL));
}

void script_window(struct script_context *context, const struct script_node *node)
{
    struct script_comm *comm = script_find_comm(node, 0);
    size_t bytes = (size_t)script_argument(context, node, 1);
    CUDA(cudaMalloc(&comm->memory, bytes));
    script_check(node, ncclCommWindowRegister(comm->comm, comm->memory, bytes, &comm->window, 0));
}

static int index_of(const struct script_context *context, const struct script_node *node)
{
    return (int)script_option_value(context, node, "index", 0);
}

static int context_of(const struct script_context *context, const struct script_node *node)
{
    return (int)script_option_value(context, node, "context", 0);
}

void script_put(struct script_context *context, const struct script_node *node)
{
    struct script_comm *comm = script_find_comm(node, 0);
    size_t count = (size_t)script_argument(context, node, 2);
    ncclDataType_t dtype = script_dtype(node, 3);
    struct script_stream *s = script_stream_with(context, node, count * job_dtype_size(dtype));
    put_function *put;
    find(node, "ncclPutSignal", &put);
    script_check(node, put(s->send, count, dtype, (int)script_argument(context, node, 1), comm->window,
                           (size_t)script_argument(context, node, 4), index_of(context, node),
                           context_of(context, node), 0, comm->comm, s->stream));
}

void script_signal(struct script_context *context, const struct script_node *node)
{
    struct script_comm *comm = script_find_comm(node, 0);
    signal_function *send_signal;
    find(node, "ncclSignal", &send_signal);
    script_check(node, send_signal((int)script_argument(context, node, 1), index_of(context, node),
                                   context_of(context, node), 0, comm->comm,
                                   script_stream_of(context, node)->stream));
}

void script_wait_signal(struct script_context *context, const struct script_node *node)
{
    struct script_comm *comm = script_find_comm(node, 0);
    struct wait_description what = {.count = 1, .peer = (int)script_argument(context, node, 1)};
    what.index = index_of(context, node);
    what.context = context_of(context, node);
    if (node->nargs > 2)
        what.count = (int)script_argument(context, node, 2);
    wait_function *wait_signal;
    find(node, "ncclWaitSignal", &wait_signal);
    script_check(node, wait_signal(1, &what, comm->comm, script_stream_of(context, node)->stream));
}

/* COMM, then PEER COUNT INDEX of each description. */
void script_wait_signals(struct script_context *context, const struct script_node *node)
{
    struct script_comm *comm = script_find_comm(node, 0);
    struct wait_description what[SCRIPT_ARGS / 3];
    int n = (node->nargs - 1) / 3;
    for (int i = 0; i < n; i++)
        what[i] = (struct wait_description){.peer = (int)script_argument(context, node, 3 * i + 1),
                                            .count = (int)script_argument(context, node, 3 * i + 2),
                                            .index = (int)script_argument(context, node, 3 * i + 3),
                                            .context = context_of(context, node)};
    wait_function *wait_signal;
    find(node, "ncclWaitSignal", &wait_signal);
    script_check(node, wait_signal(n, what, comm->comm, script_stream_of(context, node)->stream));
}
