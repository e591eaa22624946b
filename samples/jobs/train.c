/*
 * fr-train: the communication of a training job, with numbers that can be checked.
 *
 * Ranks are laid out as data × tensor × pipeline parallel: neighbours form a tensor group,
 * pipeline stages are furthest apart. Each step runs micro-batches forward and backward
 * through the stages (grouped Send and Recv), AllReduces activations in the tensor group,
 * reduces gradients in the data group on a second stream (every other bucket as ReduceScatter
 * + AllGather) and the gradient norm over everybody. Every input is a function of (rank, op,
 * element), so every output is known beforehand; integers in floating point, hence exact.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "job.h"

enum group { WORLD, TENSOR, DATA, PIPELINE, NGROUPS };

#define MAX_BUCKETS 64

static struct {
    int dp, tp, pp;
    int steps, layers, microbatches, verify_every;
    uint64_t step_us;
    size_t buckets[MAX_BUCKETS], nbuckets, activation;
} options = {.dp = 0,
             .tp = 1,
             .pp = 1,
             .steps = 10,
             .layers = 2,
             .microbatches = 2,
             .verify_every = 1,
             .buckets = {4096, 65536, 1000},
             .nbuckets = 3,
             .activation = 2048};

/* A stream with the buffers of the ops on it, and host copies of both. */
struct lane {
    cudaStream_t stream;
    void *send, *recv;
    void *host;
};

static struct {
    ncclComm_t comms[NGROUPS];
    int *members[NGROUPS]; /* job ranks by comm rank */
    int size[NGROUPS], place[NGROUPS];
    struct lane lanes[2];
    cudaEvent_t ready;
    uint64_t ops, tag; /* data ops so far; tag makes the values of each op different */
    int step;
    bool verify;
    uint64_t checksum, wrong;
} train;

/* ---- data ---- */

static double value(int job_rank, uint64_t tag, size_t element)
{
    return (double)(((uint64_t)job_rank * 31 + tag * 7 + element) % 61);
}

static void put(void *buffer, ncclDataType_t dtype, size_t element, double number)
{
    if (dtype == ncclInt64)
        ((int64_t *)buffer)[element] = (int64_t)number;
    else
        ((float *)buffer)[element] = (float)number;
}

static double get(const void *buffer, ncclDataType_t dtype, size_t element)
{
    return dtype == ncclInt64 ? (double)((const int64_t *)buffer)[element]
                              : (double)((const float *)buffer)[element];
}

/* Elements that this rank gives to, and gets from, an op. */
static size_t in_count(const struct train_op *op)
{
    if (op->kind == OP_RECV)
        return 0;
    return op->kind == OP_REDUCE_SCATTER ? op->count * (size_t)train.size[op->group] : op->count;
}

static size_t out_count(const struct train_op *op)
{
    if (op->kind == OP_SEND)
        return 0;
    return op->kind == OP_ALL_GATHER ? op->count * (size_t)train.size[op->group] : op->count;
}

static double sum_of(const struct train_op *op, uint64_t tag, size_t element)
{
    double sum = 0;
    for (int member = 0; member < train.size[op->group]; member++)
        sum += value(train.members[op->group][member], tag, element);
    return sum;
}

static double expected(const struct train_op *op, uint64_t tag, size_t element)
{
    const int *members = train.members[op->group];
    switch (op->kind) {
    case OP_ALL_REDUCE:
    case OP_REDUCE:
        return sum_of(op, tag, element);
    case OP_REDUCE_SCATTER:
        return sum_of(op, tag, (size_t)train.place[op->group] * op->count + element);
    case OP_ALL_GATHER:
        return value(members[element / op->count], tag, element % op->count);
    default:
        return value(members[op->peer], tag, element);
    }
}

static void fill(const struct train_op *op, struct lane *lane)
{
    size_t count = in_count(op);
    for (size_t i = 0; i < count; i++)
        put(lane->host, op->dtype, i, value(job.rank, train.tag, i));
    if (!count)
        return;
    CUDA(cudaMemcpyAsync(lane->send, lane->host, count * job_dtype_size(op->dtype), cudaMemcpyHostToDevice,
                         lane->stream));
    CUDA(cudaStreamSynchronize(lane->stream)); /* lane->host is used again */
}

static void check(const struct train_op *op, struct lane *lane)
{
    size_t count = out_count(op), bad = 0;
    if (!count)
        return;
    CUDA(cudaMemcpyAsync(lane->host, lane->recv, count * job_dtype_size(op->dtype), cudaMemcpyDeviceToHost,
                         lane->stream));
    CUDA(cudaStreamSynchronize(lane->stream));
    for (size_t i = 0; i < count; i++) {
        double got = get(lane->host, op->dtype, i);
        bad += got != expected(op, train.tag, i);
        train.checksum = (train.checksum ^ (uint64_t)(int64_t)got) * 0x100000001b3u;
    }
    if (bad && !train.wrong)
        fprintf(stderr, "%s: rank %d: step %d: %zu of %zu results are wrong\n", job.program, job.rank,
                train.step, bad, count);
    train.wrong += bad;
}

/* ---- ops ---- */

static void call(const struct train_op *op, struct lane *lane)
{
    ncclComm_t comm = train.comms[op->group];
    const void *in = lane->send;
    void *out = lane->recv;
    switch (op->kind) {
    case OP_ALL_REDUCE:
        NCCL_COUNTED(ncclAllReduce(in, out, op->count, op->dtype, op->redop, comm, lane->stream));
        break;
    case OP_BROADCAST:
        NCCL_COUNTED(ncclBroadcast(in, out, op->count, op->dtype, op->peer, comm, lane->stream));
        break;
    case OP_REDUCE:
        NCCL_COUNTED(ncclReduce(in, out, op->count, op->dtype, op->redop, op->peer, comm, lane->stream));
        break;
    case OP_ALL_GATHER:
        NCCL_COUNTED(ncclAllGather(in, out, op->count, op->dtype, comm, lane->stream));
        break;
    case OP_REDUCE_SCATTER:
        NCCL_COUNTED(ncclReduceScatter(in, out, op->count, op->dtype, op->redop, comm, lane->stream));
        break;
    case OP_SEND:
        NCCL_COUNTED(ncclSend(in, op->count, op->dtype, op->peer, comm, lane->stream));
        break;
    case OP_RECV:
        NCCL_COUNTED(ncclRecv(out, op->count, op->dtype, op->peer, comm, lane->stream));
        break;
    }
}

static void issue(const struct train_op *op, struct lane *lane)
{
    struct train_op ops[FAULT_OPS_MAX];
    size_t count = fault_apply(op, train.ops++, ops);
    for (size_t i = 0; i < count; i++)
        call(&ops[i], lane);
}

/* One collective, checked at once in steps that verify. Groups of one rank have nothing to say. */
static void collective(struct train_op op, struct lane *lane)
{
    if (train.size[op.group] < 2)
        return;
    train.tag++;
    if (train.verify)
        fill(&op, lane);
    issue(&op, lane);
    if (train.verify)
        check(&op, lane);
}

/*
 * Micro-batch slot t of a pass in direction +1 (forward) or -1: send what the last slot made
 * to the next stage, receive the input of this one. Tags are the receiver's and sender's
 * common (pass, micro-batch), so that both know the values.
 */
static void exchange(int direction, int t, uint64_t pass_tag, struct lane *lane)
{
    int stage = train.place[PIPELINE], last = options.pp - 1;
    int next = stage + direction, previous = stage - direction;
    bool sends = t > 0 && next >= 0 && next <= last;
    bool receives = t < options.microbatches && previous >= 0 && previous <= last;
    struct train_op send = {OP_SEND, PIPELINE, options.activation, ncclFloat32, ncclSum, next};
    struct train_op recv = {OP_RECV, PIPELINE, options.activation, ncclFloat32, ncclSum, previous};
    if (!sends && !receives)
        return;
    if (train.verify && sends) {
        train.tag = pass_tag + (uint64_t)t - 1;
        fill(&send, lane);
    }
    NCCL(ncclGroupStart());
    if (sends)
        issue(&send, lane);
    if (receives)
        issue(&recv, lane);
    NCCL(ncclGroupEnd());
    if (train.verify && receives) {
        train.tag = pass_tag + (uint64_t)t;
        check(&recv, lane);
    }
}

static void pass(int direction)
{
    struct lane *lane = &train.lanes[0];
    uint64_t pass_tag = ((uint64_t)train.step * 2 + (direction < 0)) * 1000;
    for (int t = 0; t <= options.microbatches; t++) {
        exchange(direction, t, pass_tag, lane);
        train.tag = pass_tag + 500 + (uint64_t)(t * options.layers);
        for (int layer = 0; t < options.microbatches && layer < options.layers; layer++)
            collective((struct train_op){OP_ALL_REDUCE, TENSOR, options.activation, ncclFloat32, ncclSum, 0},
                       lane);
    }
}

static void reduce_gradients(void)
{
    struct lane *lane = &train.lanes[1];
    CUDA(cudaEventRecord(train.ready, train.lanes[0].stream));
    CUDA(cudaStreamWaitEvent(lane->stream, train.ready, 0));
    train.tag = (uint64_t)train.step * 2000 + 1;
    for (size_t b = 0; b < options.nbuckets; b++) {
        size_t count = options.buckets[b], shard = (count + (size_t)options.dp - 1) / (size_t)options.dp;
        struct train_op op = {OP_ALL_REDUCE, DATA, count, ncclFloat32, ncclSum, 0};
        if (b % 2) {
            op.count = shard;
            op.kind = OP_REDUCE_SCATTER;
            collective(op, lane);
            op.kind = OP_ALL_GATHER;
        }
        collective(op, lane);
    }
}

static void run_step(void)
{
    train.verify = options.verify_every && train.step % options.verify_every == 0;
    pass(+1);
    if (options.step_us)
        job_sleep_us(options.step_us);
    pass(-1);
    reduce_gradients();
    struct lane *lane = &train.lanes[1];
    train.tag = (uint64_t)train.step * 2000 + 999;
    collective((struct train_op){OP_ALL_REDUCE, WORLD, 1, ncclFloat32, ncclSum, 0}, lane);
    if (train.step % 10 == 9)
        collective((struct train_op){OP_BROADCAST, WORLD, 1, ncclInt64, ncclSum, job.world - 1}, lane);
    for (size_t i = 0; i < 2; i++)
        CUDA(cudaStreamSynchronize(train.lanes[i].stream));
}

/* ---- setup ---- */

static void add_members(enum group group, int first, int stride, int count)
{
    train.members[group] = calloc((size_t)count, sizeof(int));
    if (!train.members[group])
        job_fail(JOB_EXIT_USAGE, "no memory");
    train.size[group] = count;
    for (int i = 0; i < count; i++) {
        train.members[group][i] = first + i * stride;
        if (first + i * stride == job.rank)
            train.place[group] = i;
    }
}

static void make_communicators(void)
{
    int tp = options.tp, dp = options.dp, tensor = job.rank % tp, data = job.rank / tp % dp;
    add_members(WORLD, 0, 1, job.world);
    add_members(TENSOR, job.rank - tensor, 1, tp);
    add_members(DATA, job.rank - data * tp, tp, dp);
    add_members(PIPELINE, job.rank % (tp * dp), tp * dp, options.pp);

    ncclUniqueId id = job_unique_id("world", job.rank == 0);
    NCCL_COUNTED(ncclCommInitRank(&train.comms[WORLD], job.world, id, job.rank));
    static const char *const names[] = {"world", "tensor", "data", "pipeline"};
    for (int group = TENSOR; group < NGROUPS; group++) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
        config.commName = names[group];
#endif
        NCCL_COUNTED(ncclCommSplit(train.comms[WORLD], train.members[group][0], train.place[group],
                                   &train.comms[group], &config));
    }
}

static void make_buffers(void)
{
    size_t largest = options.activation;
    for (size_t b = 0; b < options.nbuckets; b++)
        largest = options.buckets[b] > largest ? options.buckets[b] : largest;
    size_t bytes = (largest + (size_t)options.dp) * sizeof(int64_t) * fault_growth(largest);
    for (size_t i = 0; i < 2; i++) {
        struct lane *lane = &train.lanes[i];
        CUDA(cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking));
        CUDA(cudaMalloc(&lane->send, bytes));
        CUDA(cudaMalloc(&lane->recv, bytes));
        CUDA(cudaMemset(lane->send, 0, bytes));
        lane->host = malloc(bytes);
        if (!lane->host)
            job_fail(JOB_EXIT_USAGE, "no memory");
    }
    CUDA(cudaEventCreateWithFlags(&train.ready, cudaEventDisableTiming));
}

static void tear_down(void)
{
    for (int group = NGROUPS - 1; group >= 0; group--) {
        NCCL(ncclCommDestroy(train.comms[group]));
        free(train.members[group]);
    }
    for (size_t i = 0; i < 2; i++) {
        CUDA(cudaFree(train.lanes[i].send));
        CUDA(cudaFree(train.lanes[i].recv));
        CUDA(cudaStreamDestroy(train.lanes[i].stream));
        free(train.lanes[i].host);
    }
    CUDA(cudaEventDestroy(train.ready));
}

/* ---- command line ---- */

static const char usage[] =
    "usage: fr-train [options]          (start all ranks with `launch`)\n"
    "      --dp N --tp N --pp N   data, tensor, pipeline parallel sizes; dp defaults to what is left\n"
    "      --steps N              training steps (10)\n"
    "      --sizes N,N,…          elements of the gradient buckets (4096,65536,1000)\n"
    "      --activation N         elements of an activation (2048)\n"
    "      --layers N             AllReduces per micro-batch and pass in the tensor group (2)\n"
    "      --microbatches N       per step (2)\n"
    "      --step-us N            compute time per step\n"
    "      --verify-every N       check the results of every N-th step (1); 0: never\n"
    "      --count-file PREFIX    count NCCL calls in PREFIX.RANK\n"
    "      --fault NAME:…         break something (fault.h), may be repeated\n"
    "Exit status: 0, 2 usage, 3 NCCL or CUDA error, 4 wrong results.\n";

static long number(const char *text, long low)
{
    char *end;
    long result = strtol(text, &end, 10);
    if (end == text || *end || result < low || result > INT32_MAX)
        job_fail(JOB_EXIT_USAGE, "%s is no number that fits here", text);
    return result;
}

static void parse_sizes(char *list)
{
    options.nbuckets = 0;
    for (char *item; (item = strsep(&list, ","));) {
        if (options.nbuckets == MAX_BUCKETS)
            job_fail(JOB_EXIT_USAGE, "--sizes: more than %d", MAX_BUCKETS);
        options.buckets[options.nbuckets++] = (size_t)number(item, 1);
    }
}

static void parse(int argc, char **argv)
{
    enum {
        DP,
        TP,
        PP,
        STEPS,
        SIZES,
        ACTIVATION,
        LAYERS,
        MICROBATCHES,
        STEP_US,
        VERIFY,
        COUNT_FILE,
        FAULT,
        HELP
    };
    static const struct option longs[] = {
        {"dp", 1, NULL, DP},           {"tp", 1, NULL, TP},
        {"pp", 1, NULL, PP},           {"steps", 1, NULL, STEPS},
        {"sizes", 1, NULL, SIZES},     {"activation", 1, NULL, ACTIVATION},
        {"layers", 1, NULL, LAYERS},   {"microbatches", 1, NULL, MICROBATCHES},
        {"step-us", 1, NULL, STEP_US}, {"verify-every", 1, NULL, VERIFY},
        {"fault", 1, NULL, FAULT},     {"count-file", 1, NULL, COUNT_FILE},
        {"help", 0, NULL, HELP},       {0}};
    int *const numbers[] = {[DP] = &options.dp,
                            [TP] = &options.tp,
                            [PP] = &options.pp,
                            [STEPS] = &options.steps,
                            [LAYERS] = &options.layers,
                            [MICROBATCHES] = &options.microbatches,
                            [VERIFY] = &options.verify_every};
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        switch (c) {
        case SIZES:
            parse_sizes(optarg);
            break;
        case ACTIVATION:
            options.activation = (size_t)number(optarg, 1);
            break;
        case STEP_US:
            options.step_us = (uint64_t)number(optarg, 0);
            break;
        case COUNT_FILE:
            job_count_open(optarg);
            break;
        case FAULT:
            fault_add(optarg);
            break;
        case HELP:
            fputs(usage, stdout);
            exit(0);
        case '?':
            fputs(usage, stderr);
            exit(JOB_EXIT_USAGE);
        default:
            *numbers[c] = (int)number(optarg, c == DP || c == TP || c == PP);
        }
    }
    if (optind < argc)
        job_fail(JOB_EXIT_USAGE, "what is %s?", argv[optind]);
    if (!options.dp)
        options.dp = job.world / (options.tp * options.pp);
    if (options.dp * options.tp * options.pp != job.world)
        job_fail(JOB_EXIT_USAGE, "%d × %d × %d is not the world size %d", options.dp, options.tp, options.pp,
                 job.world);
    if (options.microbatches > 400 || options.layers * options.microbatches > 400)
        job_fail(JOB_EXIT_USAGE, "too many layers × micro-batches");
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help")) {
            fputs(usage, stdout);
            return 0;
        }
    job_init("fr-train");
    parse(argc, argv);
    make_communicators();
    make_buffers();
    for (train.step = 0; train.step < options.steps; train.step++)
        run_step();
    tear_down();
    printf("fr-train: rank %d: %d steps, %" PRIu64 " ops, checksum %016" PRIx64 "\n", job.rank, options.steps,
           train.ops, train.checksum);
    return train.wrong ? JOB_EXIT_WRONG : 0;
}
