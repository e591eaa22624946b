/*
 * fr-script: runs a job described by a small script (script.h), the same file on every rank.
 * Made for reproducing bugs: each rank does exactly what its lines say, in that order, with
 * buffers of its own, and nothing is verified.
 */
#include "script.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job.h"
#include "script_run.h"

#define MAX_COMMS   256
#define MAX_NAMES   64
#define MAX_STREAMS 16
#define MAX_THREADS 16

/* One thread of execution. Only its own thread touches it. */
struct script_context {
    long long i;
    struct script_stream streams[MAX_STREAMS];
    pthread_t threads[MAX_THREADS];
    int nthreads;
    const struct script_node *body; /* of a thread block */
    int device;
};

/* What names mean in this process; several threads may look up and add. */
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;
static struct script_comm comms[MAX_COMMS];
static struct named_redop {
    char name[32];
    ncclRedOp_t redop;
} redops[MAX_NAMES];
static struct named_graph {
    char name[32];
    cudaGraphExec_t graph;
} graphs[MAX_NAMES];

static void execute(struct script_context *context, const struct script_node *node);

/* ---- arguments ---- */

const char *script_option(const struct script_node *node, const char *key)
{
    size_t length = strlen(key);
    for (int n = 0; n < node->noptions; n++)
        if (!strncmp(node->options[n], key, length) && node->options[n][length] == '=')
            return node->options[n] + length + 1;
    return NULL;
}

long long script_argument(const struct script_context *context, const struct script_node *node, int n)
{
    return script_value(node, node->args[n], context->i);
}

long long script_option_value(const struct script_context *context, const struct script_node *node,
                              const char *key, long long otherwise)
{
    const char *text = script_option(node, key);
    return text ? script_value(node, text, context->i) : otherwise;
}

_Noreturn void script_wrong(const struct script_node *node, const char *what, const char *detail)
{
    job_fail(JOB_EXIT_USAGE, "script line %d: %s: %s", node->line, what, detail);
}

/* The entry called name, or a free one when `add`; NULL when there is none. */
static struct script_comm *comm_entry(const char *name, bool add)
{
    struct script_comm *found = NULL;
    pthread_mutex_lock(&names_lock);
    for (int n = 0; n < MAX_COMMS && !found; n++) {
        if (!strcmp(comms[n].name, name))
            found = &comms[n];
        else if (!comms[n].name[0] && add) {
            found = &comms[n];
            snprintf(found->name, sizeof found->name, "%s", name);
        } else if (!comms[n].name[0])
            break;
    }
    pthread_mutex_unlock(&names_lock);
    return found;
}

struct script_comm *script_new_comm(const struct script_node *node)
{
    struct script_comm *entry = comm_entry(node->args[0], true);
    if (!entry)
        script_wrong(node, "too many communicators", node->args[0]);
    entry->comm = NULL;
    return entry;
}

struct script_comm *script_find_comm(const struct script_node *node, int n)
{
    struct script_comm *entry = comm_entry(node->args[n], false);
    if (!entry || !entry->comm)
        script_wrong(node, "no such communicator here", node->args[n]);
    return entry;
}

ncclDataType_t script_dtype(const struct script_node *node, int n)
{
    ncclDataType_t dtype;
    if (!job_dtype_parse(node->args[n], &dtype))
        script_wrong(node, "no data type", node->args[n]);
    return dtype;
}

static ncclRedOp_t redop_argument(const struct script_node *node, int n)
{
    ncclRedOp_t redop;
    if (job_redop_parse(node->args[n], &redop))
        return redop;
    for (int k = 0; k < MAX_NAMES; k++)
        if (redops[k].name[0] && !strcmp(redops[k].name, node->args[n]))
            return redops[k].redop;
    script_wrong(node, "no reduction", node->args[n]);
}

struct script_stream *script_stream_of(struct script_context *context, const struct script_node *node)
{
    long long n = script_option_value(context, node, "stream", 0);
    if (n < 0 || n >= MAX_STREAMS)
        script_wrong(node, "no such stream", script_option(node, "stream"));
    struct script_stream *stream = &context->streams[n];
    if (!stream->stream)
        CUDA(cudaStreamCreateWithFlags(&stream->stream, cudaStreamNonBlocking));
    return stream;
}

/* The stream with buffers of at least `bytes`. Outgrown buffers stay: freeing one would wait for the device.
 */
struct script_stream *script_stream_with(struct script_context *context, const struct script_node *node,
                                         size_t bytes)
{
    struct script_stream *stream = script_stream_of(context, node);
    if (stream->bytes < bytes || !stream->bytes) {
        size_t size = bytes < 65536 ? 65536 : bytes;
        CUDA(cudaMalloc(&stream->send, size));
        CUDA(cudaMalloc(&stream->recv, size));
        stream->bytes = size;
    }
    return stream;
}

/* Checks a call's result; with try=1 a failure is no reason to stop. */
void script_check(const struct script_node *node, ncclResult_t result)
{
    if (result != ncclSuccess && result != ncclInProgress && !script_option(node, "try"))
        job_fail(JOB_EXIT_NCCL, "script line %d: %s: %s", node->line, node->command->name,
                 ncclGetErrorString(result));
}

/* ---- communicators ---- */

/* Members of a list of job ranks; gives their number and this process's place (-1: not in it). */
static int place_in_list(const struct script_node *node, const char *list, int *place, int *first)
{
    int count = 0;
    *place = *first = -1;
    for (const char *p = list; *p;) {
        char *end;
        long from = strtol(p, &end, 10), to = from;
        if (end != p && *end == '-')
            to = strtol(end + 1, &end, 10);
        if (end == p || from < 0 || to < from || (*end && *end != ','))
            script_wrong(node, "no list of ranks", list);
        for (long rank = from; rank <= to; rank++, count++) {
            if (*first < 0)
                *first = (int)rank;
            if (rank == job.rank)
                *place = count;
        }
        p = *end ? end + 1 : end;
    }
    return count;
}

static ncclConfig_t config_of(const struct script_context *context, const struct script_node *node)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (script_option(node, "blocking"))
        config.blocking = (int)script_option_value(context, node, "blocking", 1);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    if (script_option(node, "name"))
        config.commName = script_option(node, "name");
#endif
    return config;
}

static void run_init(struct script_context *context, const struct script_node *node)
{
    struct script_comm *entry = script_new_comm(node);
    int place = job.rank, first = 0, count = job.world;
    if (script_option(node, "ranks"))
        count = place_in_list(node, script_option(node, "ranks"), &place, &first);
    if (place < 0)
        script_wrong(node, "this rank is not in", script_option(node, "ranks"));
    const char *id_name = script_option(node, "id");
    char key[64];
    snprintf(key, sizeof key, "%s.%u", id_name ? id_name : entry->name, entry->made++);
    ncclUniqueId id = job_unique_id(key, script_option_value(context, node, "creator", first) == job.rank);
    ncclConfig_t config = config_of(context, node);
    int nranks = (int)script_option_value(context, node, "nranks", count);
    int rank = (int)script_option_value(context, node, "rank", place);
    COUNTED(node, ncclCommInitRankConfig(&entry->comm, nranks, id, rank, &config));
}

static void run_split(struct script_context *context, const struct script_node *node)
{
    struct script_comm *parent = script_find_comm(node, 1), *entry = script_new_comm(node);
    int color = strcmp(node->args[2], "none") ? (int)script_argument(context, node, 2) : NCCL_SPLIT_NOCOLOR;
    int key = node->nargs > 3 ? (int)script_argument(context, node, 3) : job.rank;
    ncclConfig_t config = config_of(context, node);
    COUNTED(node, ncclCommSplit(parent->comm, color, key, &entry->comm, &config));
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
static void run_shrink(struct script_context *context, const struct script_node *node)
{
    struct script_comm *parent = script_find_comm(node, 1), *entry = script_new_comm(node);
    int excluded = (int)script_argument(context, node, 2);
    int flags = script_option_value(context, node, "abort", 0) ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT;
    COUNTED(node, ncclCommShrink(parent->comm, &excluded, 1, &entry->comm, NULL, flags));
}
#endif

static void run_destroy(struct script_context *context, const struct script_node *node)
{
    (void)context;
    struct script_comm *entry = script_find_comm(node, 0);
    COUNTED(node, ncclCommDestroy(entry->comm));
    entry->comm = NULL;
}

static void run_finalize(struct script_context *context, const struct script_node *node)
{
    (void)context;
    COUNTED(node, ncclCommFinalize(script_find_comm(node, 0)->comm));
}

static void run_abort(struct script_context *context, const struct script_node *node)
{
    (void)context;
    struct script_comm *entry = script_find_comm(node, 0);
    COUNTED(node, ncclCommAbort(entry->comm));
    entry->comm = NULL;
}

static void run_redop(struct script_context *context, const struct script_node *node)
{
    ncclDataType_t dtype = script_dtype(node, 2);
    union {
        float f32;
        double f64;
        int64_t i64;
        int32_t i32;
        uint8_t bytes[8];
    } scalar = {.i64 = script_argument(context, node, 3)};
    if (dtype == ncclFloat32)
        scalar.f32 = (float)script_argument(context, node, 3);
    else if (dtype == ncclFloat64)
        scalar.f64 = (double)script_argument(context, node, 3);
    int n = 0;
    while (n < MAX_NAMES && redops[n].name[0])
        n++;
    if (n == MAX_NAMES)
        script_wrong(node, "too many reductions", node->args[0]);
    snprintf(redops[n].name, sizeof redops[n].name, "%s", node->args[0]);
    COUNTED(node, ncclRedOpCreatePreMulSum(&redops[n].redop, &scalar, dtype, ncclScalarHostImmediate,
                                           script_find_comm(node, 1)->comm));
}

/* ---- data ---- */

enum collective { ALLREDUCE, BROADCAST, REDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL, GATHER, SCATTER };

/* COMM COUNT DTYPE, then what the kind needs: REDOP, ROOT. */
static void run_collective(struct script_context *context, const struct script_node *node,
                           enum collective kind)
{
    ncclComm_t comm = script_find_comm(node, 0)->comm;
    size_t count = (size_t)script_argument(context, node, 1);
    ncclDataType_t dtype = script_dtype(node, 2);
    bool reduces = kind == ALLREDUCE || kind == REDUCE || kind == REDUCESCATTER;
    bool rooted = kind == BROADCAST || kind == REDUCE || kind == GATHER || kind == SCATTER;
    ncclRedOp_t redop = reduces ? redop_argument(node, 3) : ncclSum;
    int root = rooted ? (int)script_argument(context, node, reduces ? 4 : 3) : 0;
    bool whole = kind == ALLREDUCE || kind == BROADCAST || kind == REDUCE;
    struct script_stream *s =
        script_stream_with(context, node, count * job_dtype_size(dtype) * (whole ? 1 : (size_t)job.world));
    switch (kind) {
    case ALLREDUCE:
        COUNTED(node, ncclAllReduce(s->send, s->recv, count, dtype, redop, comm, s->stream));
        break;
    case BROADCAST:
        COUNTED(node, ncclBroadcast(s->send, s->recv, count, dtype, root, comm, s->stream));
        break;
    case REDUCE:
        COUNTED(node, ncclReduce(s->send, s->recv, count, dtype, redop, root, comm, s->stream));
        break;
    case ALLGATHER:
        COUNTED(node, ncclAllGather(s->send, s->recv, count, dtype, comm, s->stream));
        break;
    case REDUCESCATTER:
        COUNTED(node, ncclReduceScatter(s->send, s->recv, count, dtype, redop, comm, s->stream));
        break;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    case ALLTOALL:
        COUNTED(node, ncclAlltoAll(s->send, s->recv, count, dtype, comm, s->stream));
        break;
    case GATHER:
        COUNTED(node, ncclGather(s->send, s->recv, count, dtype, root, comm, s->stream));
        break;
    case SCATTER:
        COUNTED(node, ncclScatter(s->send, s->recv, count, dtype, root, comm, s->stream));
        break;
#else
    default:
        script_wrong(node, "needs NCCL 2.28", node->command->name);
#endif
    }
}

#define COLLECTIVE(name, kind)                                                                               \
    static void run_##name(struct script_context *context, const struct script_node *node)                   \
    {                                                                                                        \
        run_collective(context, node, kind);                                                                 \
    }
COLLECTIVE(allreduce, ALLREDUCE)
COLLECTIVE(broadcast, BROADCAST)
COLLECTIVE(reduce, REDUCE)
COLLECTIVE(allgather, ALLGATHER)
COLLECTIVE(reducescatter, REDUCESCATTER)
COLLECTIVE(alltoall, ALLTOALL)
COLLECTIVE(gather, GATHER)
COLLECTIVE(scatter, SCATTER)

static void run_send(struct script_context *context, const struct script_node *node)
{
    size_t count = (size_t)script_argument(context, node, 2);
    ncclDataType_t dtype = script_dtype(node, 3);
    struct script_stream *s = script_stream_with(context, node, count * job_dtype_size(dtype));
    COUNTED(node, ncclSend(s->send, count, dtype, (int)script_argument(context, node, 1),
                           script_find_comm(node, 0)->comm, s->stream));
}

static void run_recv(struct script_context *context, const struct script_node *node)
{
    size_t count = (size_t)script_argument(context, node, 2);
    ncclDataType_t dtype = script_dtype(node, 3);
    struct script_stream *s = script_stream_with(context, node, count * job_dtype_size(dtype));
    COUNTED(node, ncclRecv(s->recv, count, dtype, (int)script_argument(context, node, 1),
                           script_find_comm(node, 0)->comm, s->stream));
}

static void run_group(struct script_context *context, const struct script_node *node)
{
    script_check(node, ncclGroupStart());
    execute(context, node->body);
    script_check(node, ncclGroupEnd());
}

static void run_groupstart(struct script_context *context, const struct script_node *node)
{
    (void)context;
    script_check(node, ncclGroupStart());
}

static void run_groupend(struct script_context *context, const struct script_node *node)
{
    (void)context;
    script_check(node, ncclGroupEnd());
}

static void run_sync(struct script_context *context, const struct script_node *node)
{
    CUDA(cudaStreamSynchronize(script_stream_of(context, node)->stream));
}

/* Waits as a watchdog does: until the stream is done, the communicator has an error, or MS passed. */
static void run_watch(struct script_context *context, const struct script_node *node)
{
    ncclComm_t comm = script_find_comm(node, 0)->comm;
    cudaStream_t stream = script_stream_of(context, node)->stream;
    uint64_t end = job_now_us() + (uint64_t)script_argument(context, node, 1) * 1000;
    while (job_now_us() < end) {
        ncclResult_t error = ncclSuccess;
        script_check(node, ncclCommGetAsyncError(comm, &error));
        if (error != ncclSuccess && error != ncclInProgress)
            return;
        if (error != ncclInProgress && cudaStreamQuery(stream) == cudaSuccess)
            return;
        job_sleep_us(1000);
    }
}

static void run_capture(struct script_context *context, const struct script_node *node)
{
    cudaStream_t stream = script_stream_with(context, node, 1 << 20)->stream;
    cudaGraph_t graph;
    int n = 0;
    while (n < MAX_NAMES && graphs[n].name[0])
        n++;
    if (n == MAX_NAMES)
        script_wrong(node, "too many graphs", node->args[0]);
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    execute(context, node->body);
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&graphs[n].graph, graph, 0));
    snprintf(graphs[n].name, sizeof graphs[n].name, "%s", node->args[0]);
}

static void run_replay(struct script_context *context, const struct script_node *node)
{
    for (int n = 0; n < MAX_NAMES; n++)
        if (!strcmp(graphs[n].name, node->args[0])) {
            CUDA(cudaGraphLaunch(graphs[n].graph, script_stream_of(context, node)->stream));
            return;
        }
    script_wrong(node, "no such graph", node->args[0]);
}

/* ---- flow ---- */

static void run_repeat(struct script_context *context, const struct script_node *node)
{
    long long before = context->i, times = script_argument(context, node, 0);
    for (context->i = 0; context->i < times; context->i++)
        execute(context, node->body);
    context->i = before;
}

static void *thread_main(void *argument)
{
    struct script_context *context = argument;
    CUDA(cudaSetDevice(context->device));
    execute(context, context->body);
    free(context);
    return NULL;
}

static void run_thread(struct script_context *context, const struct script_node *node)
{
    struct script_context *child = calloc(1, sizeof *child);
    if (!child || context->nthreads == MAX_THREADS)
        script_wrong(node, "too many", "threads");
    child->i = context->i;
    child->body = node->body;
    child->device = context->device;
    int error = pthread_create(&context->threads[context->nthreads], NULL, thread_main, child);
    if (error)
        script_wrong(node, "thread", strerror(error));
    context->nthreads++;
}

static void run_join(struct script_context *context, const struct script_node *node)
{
    (void)node;
    while (context->nthreads)
        pthread_join(context->threads[--context->nthreads], NULL);
}

static void run_meet(struct script_context *context, const struct script_node *node)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%lld", node->args[0], context->i);
    job_meet(name, (int)script_option_value(context, node, "count", job.world));
}

/* Named after what it stands for: a rank that waits for data is to be seen as such in its stack. */
__attribute__((noinline)) static void data_loader_wait(uint64_t us)
{
    job_sleep_us(us);
    __asm__ volatile("" ::: "memory"); /* no tail call: the frame stays */
}

static void run_sleep(struct script_context *context, const struct script_node *node)
{
    data_loader_wait((uint64_t)script_argument(context, node, 0) * 1000);
}

static void run_device(struct script_context *context, const struct script_node *node)
{
    context->device = (int)script_argument(context, node, 0);
    CUDA(cudaSetDevice(context->device));
}

static void run_kill(struct script_context *context, const struct script_node *node)
{
    int number = (int)script_argument(context, node, 0);
    if (kill(getpid(), number))
        script_wrong(node, "kill", strerror(errno));
}

__attribute__((no_sanitize("undefined"))) static void run_crash(struct script_context *context,
                                                                const struct script_node *node)
{
    (void)context;
    (void)node;
    volatile int *volatile nowhere = NULL;
    *nowhere = 1;
}

static void run_exit(struct script_context *context, const struct script_node *node)
{
    exit((int)script_argument(context, node, 0));
}

static void run_quit(struct script_context *context, const struct script_node *node)
{
    _exit((int)script_argument(context, node, 0));
}

static const struct script_command commands[] = {
    {"init", 1, 1, false, run_init},
    {"split", 3, 4, false, run_split},
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    {"shrink", 3, 3, false, run_shrink},
#endif
    {"grow", 3, 3, false, script_grow},
    {"destroy", 1, 1, false, run_destroy},
    {"finalize", 1, 1, false, run_finalize},
    {"abort", 1, 1, false, run_abort},
    {"redop", 4, 4, false, run_redop},
    {"allreduce", 4, 4, false, run_allreduce},
    {"broadcast", 4, 4, false, run_broadcast},
    {"reduce", 5, 5, false, run_reduce},
    {"allgather", 3, 3, false, run_allgather},
    {"reducescatter", 4, 4, false, run_reducescatter},
    {"alltoall", 3, 3, false, run_alltoall},
    {"gather", 4, 4, false, run_gather},
    {"scatter", 4, 4, false, run_scatter},
    {"send", 4, 4, false, run_send},
    {"recv", 4, 4, false, run_recv},
    {"window", 2, 2, false, script_window},
    {"put", 5, 5, false, script_put},
    {"signal", 2, 2, false, script_signal},
    {"waitsignal", 2, 3, false, script_wait_signal},
    {"waitsignals", 4, 10, false, script_wait_signals},
    {"group", 0, 0, true, run_group},
    {"groupstart", 0, 0, false, run_groupstart},
    {"groupend", 0, 0, false, run_groupend},
    {"sync", 0, 0, false, run_sync},
    {"watch", 2, 2, false, run_watch},
    {"capture", 1, 1, true, run_capture},
    {"replay", 1, 1, false, run_replay},
    {"repeat", 1, 1, true, run_repeat},
    {"thread", 0, 0, true, run_thread},
    {"join", 0, 0, false, run_join},
    {"meet", 1, 1, false, run_meet},
    {"sleep", 1, 1, false, run_sleep},
    {"device", 1, 1, false, run_device},
    {"kill", 1, 1, false, run_kill},
    {"crash", 0, 0, false, run_crash},
    {"exit", 1, 1, false, run_exit},
    {"quit", 1, 1, false, run_quit},
    {0},
};

static void execute(struct script_context *context, const struct script_node *node)
{
    for (; node; node = node->next) {
        if (job.rank >= SCRIPT_RANKS || !node->only[job.rank])
            continue;
        if (node->command)
            node->command->run(context, node);
        else
            execute(context, node->body);
    }
}

int main(int argc, char **argv)
{
    const char *count_file = NULL, *path = NULL;
    for (int n = 1; n < argc; n++) {
        if (!strcmp(argv[n], "--count-file") && n + 1 < argc)
            count_file = argv[++n];
        else if (argv[n][0] != '-' && !path)
            path = argv[n];
        else
            path = NULL, n = argc;
    }
    if (!path) {
        fputs("usage: fr-script [--count-file PREFIX] SCRIPT\n"
              "Run this rank's lines of SCRIPT; start all ranks with `launch`.\n"
              "The language: samples/jobs/README.md.\n",
              stderr);
        return JOB_EXIT_USAGE;
    }
    job_init("fr-script");
    if (count_file)
        job_count_open(count_file);
    struct script_node *script = script_parse(path, commands);
    struct script_context context = {0};
    CUDA(cudaGetDevice(&context.device));
    execute(&context, script);
    run_join(&context, script);
    script_free(script);
    return 0;
}
