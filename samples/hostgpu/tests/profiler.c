/* profiler PLUGIN VERSION: what a profiler plugin is told, and when. The plugin (profiler_plugin.c) is in
 * this program or in the library PLUGIN; VERSION is what the libnccl in use should take of it. */
#include "../nccl/profiler_abi.h"
#include "harness.h"

#include <string.h>
#include <unistd.h>

static int version;

/* One line of the log. */
struct line {
    long long ns;
    char what[12];
    int id, parent, type, rank; /* state: parent is the state, type whether it has a time */
    char func[20], datatype[20];
    size_t count;
    int peer;
    unsigned long long number;
};

struct log {
    struct line lines[400];
    size_t n;
};

static void read_log(struct log *log, int rank)
{
    char path[300], text[400];
    snprintf(path, sizeof path, "%s.%d", getenv("LAB_PLUGIN_LOG"), rank);
    FILE *file = fopen(path, "r");
    CHECK(file);
    for (log->n = 0; fgets(text, sizeof text, file); log->n++) {
        struct line *l = &log->lines[log->n];
        CHECK(log->n < sizeof log->lines / sizeof *log->lines);
        *l = (struct line){.ns = 0};
        CHECK(sscanf(text, "%lld %11s %d %d %d %d %19s %19s %zu %d %llu", &l->ns, l->what, &l->id, &l->parent,
                     &l->type, &l->rank, l->func, l->datatype, &l->count, &l->peer, &l->number) >= 2);
    }
    fclose(file);
}

/* The nth start of an event of this kind; -1 if there is none. */
static int find_start(const struct log *log, int type, const char *func, int nth)
{
    for (size_t i = 0; i < log->n; i++)
        if (!strcmp(log->lines[i].what, "start") && log->lines[i].type == type &&
            (!func || !strcmp(log->lines[i].func, func)) && nth-- == 0)
            return (int)i;
    return -1;
}

static int find(const struct log *log, const char *what, int id, int state)
{
    for (size_t i = 0; i < log->n; i++)
        if (!strcmp(log->lines[i].what, what) && log->lines[i].id == id &&
            (strcmp(what, "state") || log->lines[i].parent == state))
            return (int)i;
    return -1;
}

static int stop_of(const struct log *log, int start)
{
    return find(log, "stop", log->lines[start].id, 0);
}

static int child_of(const struct log *log, int start, int type)
{
    for (size_t i = 0; i < log->n; i++)
        if (!strcmp(log->lines[i].what, "start") && log->lines[i].type == type &&
            log->lines[i].parent == log->lines[start].id)
            return (int)i;
    return -1;
}

static double seconds(const struct log *log, int from, int to)
{
    CHECK(from >= 0 && to >= 0);
    return (double)(log->lines[to].ns - log->lines[from].ns) / 1e9;
}

static cudaStream_t stream;
static int *data;

static void run_ops(ncclComm_t comm, int me, int n)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    if (me == 0)
        sleep_s(0.4);
    CHECK_NCCL(ncclAllReduce(data, data, 3, ncclInt32, ncclSum, comm, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclSend(data, 5, ncclInt8, (me + 1) % n, comm, stream));
    CHECK_NCCL(ncclRecv(data + 8, 5, ncclInt8, (me + n - 1) % n, comm, stream));
    CHECK_NCCL(ncclGroupEnd());
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_NCCL(ncclBroadcast(data, data, 7, ncclFloat64, 1, comm, stream));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 2; i++)
        CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_NCCL(ncclAlltoAll(data, data + 16, 1, ncclInt32, comm, stream));
    CHECK_NCCL(ncclAllReduce(data, data, 4, ncclInt32, ncclSum, comm, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
}

static void check_all_reduce(const struct log *log, int me)
{
    int coll = find_start(log, EVENT_COLL, "AllReduce", 0),
        later = find_start(log, EVENT_COLL, "AllReduce", 1);
    CHECK(coll > 0 && later > coll);
    const struct line *l = &log->lines[coll];
    CHECK(l->count == 3 && !strcmp(l->datatype, "ncclInt32") && l->number == 0 && l->rank == me);
    CHECK(log->lines[later].number == 1 && log->lines[later].count == 4);
    int kernel = child_of(log, coll, EVENT_KERNEL_CH), stop = stop_of(log, kernel);
    int ends = find(log, "state", log->lines[kernel].id, STATE_KERNEL_CH_STOP);
    CHECK(kernel > 0 && kernel < ends && ends < stop && log->lines[ends].type == 1);
    CHECK(stop_of(log, coll) > coll);
    size_t channels = 0;
    for (size_t i = 0; i < log->n; i++)
        channels += !strcmp(log->lines[i].what, "start") && log->lines[i].type == EVENT_KERNEL_CH &&
                    log->lines[i].parent == l->id;
    CHECK(channels == 2);
    /* The host is through at once; the kernel of who came early waits for the other. */
    CHECK(seconds(log, coll, stop_of(log, coll)) < 0.2);
    CHECK(me ? seconds(log, kernel, stop) > 0.3 : seconds(log, kernel, stop) < 0.3);
    if (version == 4) {
        CHECK(log->lines[find_start(log, EVENT_GROUP, NULL, 0)].id == l->parent);
        CHECK(find_start(log, EVENT_COLL_API, NULL, 0) < 0 &&
              find_start(log, EVENT_KERNEL_LAUNCH, NULL, 0) < 0);
        return;
    }
    int group = find_start(log, EVENT_GROUP_API, NULL, 0),
        api = find_start(log, EVENT_COLL_API, "AllReduce", 0);
    int launch = find_start(log, EVENT_KERNEL_LAUNCH, NULL, 0);
    CHECK(group < api && log->lines[group].peer == 1 && l->parent == log->lines[api].id);
    CHECK(log->lines[api].parent == log->lines[group].id &&
          log->lines[launch].parent == log->lines[group].id);
    int begins = find(log, "state", log->lines[group].id, STATE_GROUP_START_API_STOP);
    int closes = find(log, "state", log->lines[group].id, STATE_GROUP_END_API_START);
    CHECK(group < begins && begins < api && api < stop_of(log, api) && stop_of(log, api) < closes);
    CHECK(closes < launch && stop_of(log, launch) < stop_of(log, group));
}

static void check_messages(const struct log *log, int me, int n)
{
    int send = find_start(log, EVENT_P2P, "Send", 0), recv = find_start(log, EVENT_P2P, "Recv", 0);
    CHECK(send > 0 && recv > 0);
    CHECK(log->lines[send].count == 5 && log->lines[send].peer == (me + 1) % n);
    CHECK(!strcmp(log->lines[recv].datatype, "ncclInt8") && log->lines[recv].peer == (me + n - 1) % n);
    CHECK(child_of(log, send, EVENT_KERNEL_CH) > 0 && child_of(log, recv, EVENT_KERNEL_CH) > 0);
    if (version > 4) {
        int api = find_start(log, EVENT_P2P_API, "Recv", 0),
            group = find_start(log, EVENT_GROUP_API, NULL, 1);
        CHECK(log->lines[api].parent == log->lines[group].id &&
              log->lines[recv].parent == log->lines[api].id);
        /* The message of the group, and those of AlltoAll. */
        CHECK(find_start(log, EVENT_P2P_API, "Send", n) > 0 &&
              find_start(log, EVENT_P2P_API, "Send", n + 1) < 0);
    }
    CHECK(find_start(log, EVENT_P2P, "Send", n) > 0 && find_start(log, EVENT_P2P, "Send", n + 1) < 0);
}

/* Handed over at each replay, and not when it was captured. */
static void check_graph(const struct log *log)
{
    int first = find_start(log, EVENT_COLL, "Broadcast", 0),
        second = find_start(log, EVENT_COLL, "Broadcast", 1);
    CHECK(first > 0 && second > first && find_start(log, EVENT_COLL, "Broadcast", 2) < 0);
    CHECK(log->lines[first].peer == 1 && child_of(log, first, EVENT_KERNEL_CH) > first);
    CHECK(child_of(log, second, EVENT_KERNEL_CH) > second);
    int api = find_start(log, EVENT_COLL_API, "Broadcast", 0);
    CHECK(version == 4 || (log->lines[api].number == 1 && log->lines[first].parent == log->lines[api].id));
}

static void watched(const struct rank_context *context)
{
    int me = context->rank, n = context->nranks;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm;
    config.commName = "pipeline";
    CHECK_NCCL(ncclCommInitRankConfig(&comm, n, context->id, me, &config));
    stream = new_stream();
    data = device_alloc(64 * sizeof *data);
    run_ops(comm, me, n);
    CHECK_NCCL(ncclCommDestroy(comm));
    struct log log;
    read_log(&log, me);
    char path[300], text[400], want[100], name[20];
    unsigned long long id;
    int got, nranks, rank;
    snprintf(path, sizeof path, "%s.%d", getenv("LAB_PLUGIN_LOG"), me);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(text, sizeof text, file) && !fclose(file));
    snprintf(want, sizeof want, "%%*d init %%d %%llx %%19s %%d %%d");
    CHECK(sscanf(text, want, &got, &id, name, &nranks, &rank) == 5);
    CHECK(got == version && id && !strcmp(name, "pipeline") && nranks == n && rank == me);
    check_all_reduce(&log, me);
    check_messages(&log, me, n);
    check_graph(&log);
    CHECK(!strcmp(log.lines[log.n - 1].what, "finalize"));
    for (size_t i = 0; i < log.n; i++)
        CHECK(strcmp(log.lines[i].what, "start") || stop_of(&log, (int)i) > (int)i);
    CHECK(!unlink(path));
}

/* An operation that hangs has started and not stopped; abort ends it, and nothing comes after finalize. */
static void hanging(const struct rank_context *context)
{
    struct log log;
    CHECK(!setenv("HOSTGPU_SILENT_AT", "1", 1));
    ncclComm_t comm = rank_comm(context);
    stream = new_stream();
    data = device_alloc(sizeof *data);
    CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, stream));
    int kernel;
    WAIT_UNTIL((read_log(&log, context->rank), kernel = find_start(&log, EVENT_KERNEL_CH, NULL, 0)) > 0);
    CHECK(stop_of(&log, kernel) < 0);
    CHECK_NCCL(ncclCommAbort(comm));
    CHECK(stream_finishes(stream, 5));
    read_log(&log, context->rank);
    CHECK(!strcmp(log.lines[log.n - 1].what, "finalize"));
}

static void one_all_reduce(const struct rank_context *context, struct log *log)
{
    ncclComm_t comm = rank_comm(context);
    stream = new_stream();
    data = device_alloc(sizeof *data);
    CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, stream));
    CHECK_NCCL(ncclCommDestroy(comm));
    read_log(log, context->rank);
}

/* Only what the mask asks for, and what these need as parents. */
static void masked(const struct rank_context *context)
{
    struct log log;
    one_all_reduce(context, &log);
    CHECK(find_start(&log, EVENT_COLL, NULL, 0) > 0);
    CHECK(find_start(&log, EVENT_KERNEL_CH, NULL, 0) < 0 &&
          find_start(&log, EVENT_KERNEL_LAUNCH, NULL, 0) < 0);
}

/* One rank alone copies: no kernel, and nothing is told. */
static void alone(const struct rank_context *context)
{
    struct log log;
    one_all_reduce(context, &log);
    CHECK(log.n == 2 && !strcmp(log.lines[0].what, "init") && !strcmp(log.lines[1].what, "finalize"));
}

int main(int argc, char **argv)
{
    char directory[] = "/tmp/lab-profiler-XXXXXX", log[100];
    CHECK(argc == 3);
    version = atoi(argv[2]);
    CHECK(mkdtemp(directory));
    snprintf(log, sizeof log, "%s/log", directory);
    CHECK(!setenv("NCCL_PROFILER_PLUGIN", argv[1], 1) && !setenv("LAB_PLUGIN_LOG", log, 1));
    ranks_run(2, watched, NULL);
    ranks_run(2, hanging, NULL);
    CHECK(!setenv("LAB_PLUGIN_MASK", "2", 1));
    snprintf(log, sizeof log, "%s/masked", directory);
    CHECK(!setenv("LAB_PLUGIN_LOG", log, 1));
    ranks_run(2, masked, NULL);
    snprintf(log, sizeof log, "%s/alone", directory);
    CHECK(!setenv("LAB_PLUGIN_LOG", log, 1));
    ranks_run(1, alone, NULL);
    char command[150];
    snprintf(command, sizeof command, "rm -r %s", directory);
    CHECK(!system(command));
    return 0;
}
