/* A profiler plugin that writes down what it is told, one line a call, in the file $LAB_PLUGIN_LOG.<rank>. */
#include "../nccl/profiler_abi.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct context {
    int fd;
};

struct handle {
    int id;
    const struct context *context;
    struct handle *next;
};

static struct handle *handles; /* all of them: children may come late, so none is freed */

static int last_id;

__attribute__((format(printf, 2, 3))) static void note(const struct context *context, const char *format, ...)
{
    char line[400];
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int n = snprintf(line, sizeof line, "%lld ", (long long)t.tv_sec * 1000000000 + t.tv_nsec);
    va_list arguments;
    va_start(arguments, format);
    n += vsnprintf(line + n, sizeof line - (size_t)n, format, arguments);
    va_end(arguments);
    if (write(context->fd, line, (size_t)n) != n) /* one write a line: threads do not mix */
        abort();
}

static ncclResult_t init(void **context, int version, uint64_t id, int *mask, const char *name, int nranks,
                         int rank)
{
    const char *log = getenv("LAB_PLUGIN_LOG"), *wanted = getenv("LAB_PLUGIN_MASK");
    char path[256];
    struct context *c = malloc(sizeof *c);
    snprintf(path, sizeof path, "%s.%d", log ? log : "/dev/null", rank);
    if (!c || (c->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) < 0)
        return ncclSystemError;
    __atomic_store_n(mask, wanted ? (int)strtol(wanted, NULL, 0) : 0xfff, __ATOMIC_RELAXED);
    *context = c;
    note(c, "init %d %llx %s %d %d\n", version, (unsigned long long)id, name ? name : "-", nranks, rank);
    return ncclSuccess;
}

static ncclResult_t start(const struct context *c, void **handle, int type, const void *parent, int rank,
                          const union event_descr *d)
{
    struct handle *h = malloc(sizeof *h);
    const char *func = "-", *datatype = "-";
    size_t count = 0;
    int peer = 0;
    unsigned long long number = 0;
    if (type == EVENT_COLL)
        func = d->coll.func, datatype = d->coll.datatype, count = d->coll.count, peer = d->coll.root,
        number = d->coll.seq_number;
    else if (type == EVENT_P2P)
        func = d->p2p.func, datatype = d->p2p.datatype, count = d->p2p.count, peer = d->p2p.peer;
    else if (type == EVENT_COLL_API)
        func = d->coll_api.func, count = d->coll_api.count, number = d->coll_api.captured;
    else if (type == EVENT_P2P_API)
        func = d->p2p_api.func, count = d->p2p_api.count, number = d->p2p_api.captured;
    else if (type == EVENT_GROUP_API)
        number = d->group_api.captured, peer = d->group_api.depth;
    if (!h)
        return ncclSystemError;
    *h = (struct handle){__atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED), c, NULL};
    h->next = __atomic_load_n(&handles, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&handles, &h->next, h, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
    *handle = h;
    note(c, "start %d %d %d %d %s %s %zu %d %llu\n", h->id, parent ? ((const struct handle *)parent)->id : 0,
         type, rank, func, datatype, count, peer, number);
    return ncclSuccess;
}

static ncclResult_t stop(void *handle)
{
    const struct handle *h = handle;
    note(h->context, "stop %d\n", h->id);
    return ncclSuccess;
}

static ncclResult_t state(void *handle, int what, union state_args *args)
{
    const struct handle *h = handle;
    note(h->context, "state %d %d %d\n", h->id, what, args && args->kernel_ch.timer);
    return ncclSuccess;
}

static ncclResult_t finalize(void *context)
{
    struct context *c = context;
    note(c, "finalize\n");
    return close(c->fd) ? ncclSystemError : ncclSuccess; /* late calls would fail to write */
}

static ncclResult_t init_v4(void **context, int *mask, const char *name, uint64_t id, int nnodes, int nranks,
                            int rank, logger *log)
{
    log(3, 0, __FILE__, __LINE__, "%d node", nnodes);
    return init(context, 4, id, mask, name, nranks, rank);
}

static ncclResult_t start_v4(void *context, void **handle, struct event_v4 *e)
{
    return start(context, handle, e->type, e->parent, e->rank, &e->descr);
}

extern const struct plugin_v4 ncclProfiler_v4 __attribute__((visibility("default")));
const struct plugin_v4 ncclProfiler_v4 = {"lab", init_v4, start_v4, stop, state, finalize};

#ifndef ONLY_V4
static ncclResult_t init_v5(void **context, uint64_t id, int *mask, const char *name, int nnodes, int nranks,
                            int rank, logger *log)
{
    log(3, 0, __FILE__, __LINE__, "%d node", nnodes);
    return init(context, 5, id, mask, name, nranks, rank);
}

static ncclResult_t init_v6(void **context, uint64_t id, int *mask, const char *name, int nnodes, int nranks,
                            int rank, logger *log)
{
    log(3, 0, __FILE__, __LINE__, "%d node", nnodes);
    return init(context, 6, id, mask, name, nranks, rank);
}

static ncclResult_t start_v5(void *context, void **handle, struct event *e)
{
    return start(context, handle, (int)e->type, e->parent, e->rank, &e->descr);
}

extern const struct plugin_v5 ncclProfiler_v5 __attribute__((visibility("default")));
const struct plugin_v5 ncclProfiler_v5 = {"lab", init_v5, start_v5, stop, state, finalize};
extern const struct plugin_v5 ncclProfiler_v6 __attribute__((visibility("default")));
const struct plugin_v5 ncclProfiler_v6 = {"lab", init_v6, start_v5, stop, state, finalize};
#endif
