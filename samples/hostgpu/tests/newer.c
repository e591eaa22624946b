/* What releases after 2.28 added: growing, one-sided operations, giving memory back, configurations of single
 * calls. Linked to the library that speaks as 2.32. */
#include "../nccl/compat.h"
#include "harness.h"

#include <string.h>

static int sum_of_one(ncclComm_t comm, int value)
{
    cudaStream_t stream = new_stream();
    int *data = device_alloc(sizeof *data);
    *data = value;
    CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    int sum = *data;
    CHECK_CUDA(cudaFree(data));
    CHECK_CUDA(cudaStreamDestroy(stream));
    return sum;
}

/* ---- Growing ---- */

/* Ranks pass the id through a file of the test. */
struct exchange {
    ncclUniqueId id;
    char path[64];
};

static void put_id(const struct exchange *exchange, const ncclUniqueId *id)
{
    char temporary[80];
    snprintf(temporary, sizeof temporary, "%s.new", exchange->path);
    FILE *file = fopen(temporary, "w");
    CHECK(file && fwrite(id, sizeof *id, 1, file) == 1 && !fclose(file));
    CHECK(!rename(temporary, exchange->path));
}

static void get_id(const struct exchange *exchange, ncclUniqueId *id)
{
    FILE *file = NULL;
    WAIT_UNTIL((file = fopen(exchange->path, "r")) != NULL);
    CHECK(fread(id, sizeof *id, 1, file) == 1 && !fclose(file));
}

/* Ranks 0 and 1 begin, after a split; the others join them. */
static void grow(const struct rank_context *context)
{
    const struct exchange *exchange = context->argument;
    int n = context->nranks, me = context->rank, rank, count;
    ncclComm_t old = NULL, half = NULL, grown, none;
    ncclUniqueId id;
    if (me < 2) {
        CHECK_NCCL(ncclCommInitRank(&old, 2, exchange->id, me));
        CHECK_NCCL(ncclCommSplit(old, me, 0, &half, NULL));
    }
    if (me == 0) {
        CHECK_NCCL(ncclCommGetUniqueId(old, &id));
        ncclUniqueId second;
        CHECK(ncclCommGetUniqueId(old, &second) == ncclInvalidUsage); /* the first is not used yet */
        put_id(exchange, &id);
    }
    if (me >= 2)
        get_id(exchange, &id);
    CHECK_NCCL(ncclCommGrow(old, n, me == 1 ? NULL : &id, me < 2 ? -1 : me, &grown, NULL));
    CHECK_NCCL(ncclCommCount(grown, &count));
    CHECK_NCCL(ncclCommUserRank(grown, &rank));
    CHECK(count == n && rank == me);
    CHECK(sum_of_one(grown, 1) == n);
    if (old) {
        CHECK(sum_of_one(old, 1) == 2);
        CHECK(ncclCommGrow(old, 2, NULL, -1, &none, NULL) == ncclInvalidArgument);
        memset(&id, 7, sizeof id);
        CHECK(ncclCommGrow(old, n, &id, -1, &none, NULL) == ncclInvalidArgument);
    }
    CHECK(ncclCommGrow(NULL, n, NULL, 2, &none, NULL) == ncclInvalidArgument);
    CHECK_NCCL(ncclCommDestroy(grown));
    CHECK_NCCL(ncclCommDestroy(half));
    CHECK_NCCL(ncclCommDestroy(old));
}

static void grow_waits(const struct rank_context *context)
{
    ncclComm_t world = rank_comm(context), grown;
    ncclCommGrow(world, context->nranks + 1, NULL, -1, &grown, NULL); /* the new rank never comes */
}

/* ---- One-sided ---- */

enum { WORDS = 100000 }; /* several chunks */

/* Everybody writes its rank into its neighbour's memory and waits for the other neighbour's. */
static void put_ring(const struct rank_context *context)
{
    int n = context->nranks, me = context->rank, right = (me + 1) % n, left = (me + n - 1) % n;
    ncclComm_t world = rank_comm(context);
    cudaStream_t stream = new_stream();
    ncclWindow_t windows[2];
    int *source = device_alloc(WORDS * sizeof *source), *here[2];
    CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
        CHECK_NCCL(ncclMemAlloc((void **)&here[i], 2 * WORDS * sizeof **here));
        CHECK_NCCL(ncclCommWindowRegister(world, here[i], 2 * WORDS * sizeof **here, &windows[i],
                                          NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING));
        CHECK(!windows[i]); /* filled when the group ends */
    }
    CHECK_NCCL(ncclGroupEnd());
    for (int i = 0; i < 2; i++) {
        void *pointer;
        CHECK_NCCL(ncclWinGetUserPtr(world, windows[i], &pointer));
        CHECK(pointer == here[i]);
    }
    for (int round = 0; round < 20; round++) {
        ncclWindow_t window = windows[round % 2];
        int *target = here[round % 2] + WORDS;
        ncclWaitSignalDesc_t wait = {.opCnt = 2, .peer = left, .sigIdx = round % 3, .ctx = round % 2};
        for (int i = 0; i < WORDS; i++)
            source[i] = me * 1000 + round + i;
        CHECK_NCCL(ncclGroupStart());
        CHECK_NCCL(ncclWaitSignal(1, &wait, world, stream)); /* in a group the order does not matter */
        CHECK_NCCL(ncclPutSignal(source, WORDS, ncclInt32, right, window, WORDS * sizeof *source, round % 3,
                                 round % 2, 0, world, stream));
        CHECK_NCCL(ncclSignal(right, round % 3, round % 2, 0, world, stream));
        CHECK_NCCL(ncclGroupEnd());
        CHECK_CUDA(cudaStreamSynchronize(stream));
        for (int i = 0; i < WORDS; i++)
            CHECK(target[i] == left * 1000 + round + i);
        CHECK(sum_of_one(world, 1) == n); /* nobody writes before its neighbour has looked */
    }
    for (int i = 0; i < 2; i++)
        CHECK_NCCL(ncclCommWindowDeregister(world, windows[i]));
    CHECK_NCCL(ncclCommDestroy(world));
}

/* A wait blocks its stream until all the signals are there; those of another index do not count. */
static void wait_blocks(const struct rank_context *context)
{
    int me = context->rank;
    ncclComm_t world = rank_comm(context);
    cudaStream_t stream = new_stream();
    if (me == 0) {
        ncclWaitSignalDesc_t waits[2] = {{.opCnt = 3, .peer = 1}, {.opCnt = 1, .peer = 2, .sigIdx = 1}};
        CHECK_NCCL(ncclWaitSignal(2, waits, world, stream));
        CHECK(!stream_finishes(stream, 0.4));
        CHECK(stream_finishes(stream, 20));
        CHECK_NCCL(ncclSignal(1, 0, 0, 0, world, stream));
        CHECK_NCCL(ncclSignal(2, 0, 0, 0, world, stream));
    } else {
        ncclWaitSignalDesc_t wait = {.opCnt = 1, .peer = 0};
        CHECK_NCCL(ncclSignal(0, 0, 0, 0, world, stream));
        CHECK_NCCL(ncclSignal(0, 1, 0, 0, world, stream));
        CHECK_NCCL(ncclSignal(0, 0, 0, 0, world, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        sleep_s(1);
        CHECK_NCCL(ncclSignal(0, 0, 0, 0, world, stream));
        CHECK_NCCL(ncclWaitSignal(1, &wait, world, stream));
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_NCCL(ncclCommDestroy(world));
}

static void wait_for_nobody(const struct rank_context *context)
{
    ncclComm_t world = rank_comm(context);
    cudaStream_t stream = new_stream();
    ncclWaitSignalDesc_t wait = {.opCnt = 1, .peer = 1 - context->rank};
    CHECK_NCCL(ncclWaitSignal(1, &wait, world, stream));
    if (context->rank)
        CHECK_NCCL(ncclCommAbort(world)); /* ends it here, and not there */
    CHECK_CUDA(cudaStreamSynchronize(stream));
}

static void register_waits(const struct rank_context *context)
{
    ncclComm_t world = rank_comm(context);
    ncclWindow_t window;
    void *memory = device_alloc(4096);
    if (context->rank)
        CHECK_NCCL(ncclCommWindowRegister(world, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    else
        sleep_s(60);
}

static void onesided_errors(const struct rank_context *context)
{
    ncclComm_t comm = rank_comm(context);
    ncclWindow_t window;
    int *data = device_alloc(4096);
    CHECK(ncclCommWindowRegister(comm, data, 4096, &window, 0x10) == ncclInvalidArgument);
    CHECK(ncclCommWindowRegister(comm, NULL, 4096, &window, 0) == ncclInvalidArgument);
    CHECK(ncclPutSignal(data, 1, ncclInt32, 0, NULL, 0, 0, 0, 0, comm, NULL) == ncclInvalidArgument);
    CHECK(ncclSignal(1, 0, 0, 0, comm, NULL) == ncclInvalidArgument);
    CHECK(ncclSignal(0, 99, 0, 0, comm, NULL) == ncclInvalidArgument);
    CHECK(ncclWaitSignal(1, NULL, comm, NULL) == ncclInvalidArgument);
    CHECK_NCCL(ncclGroupStart());
    CHECK(ncclSignal(0, -1, 0, 0, comm, NULL) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);

    /* Beyond the window: nothing is written, and the owner is told. */
    ncclResult_t state = ncclSuccess;
    CHECK_NCCL(ncclCommWindowRegister(comm, data, 4096, &window, 0));
    data[1023] = 5;
    CHECK_NCCL(ncclPutSignal(data, 2, ncclInt32, 0, window, 4092, 0, 0, 0, comm, NULL));
    CHECK_CUDA(cudaStreamSynchronize(NULL));
    CHECK_NCCL(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclInvalidArgument && data[1023] == 5);
    CHECK_NCCL(ncclCommAbort(comm));
}

/* ---- The rest ---- */

static void suspend(const struct rank_context *context)
{
    ncclComm_t comm = rank_comm(context);
    uint64_t value, total;
    CHECK_NCCL(ncclCommMemStats(comm, ncclStatGpuMemTotal, &total));
    CHECK_NCCL(ncclCommMemStats(comm, ncclStatGpuMemSuspend, &value));
    CHECK(total > 0 && value == total);
    CHECK_NCCL(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &value));
    CHECK(value == 0 && ncclCommMemStats(comm, 9, &value) == ncclInvalidArgument);
    CHECK(ncclCommResume(comm) == ncclInvalidUsage && ncclCommSuspend(comm, 8) == ncclInvalidArgument);
    CHECK_NCCL(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
    CHECK(ncclCommSuspend(comm, NCCL_SUSPEND_MEM) == ncclInvalidUsage);
    CHECK_NCCL(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &value));
    CHECK(value == 1);
    CHECK(ncclAllReduce(&value, &value, 1, ncclInt8, ncclSum, comm, NULL) == ncclInvalidUsage);
    CHECK_NCCL(ncclCommResume(comm));
    CHECK(sum_of_one(comm, 1) == context->nranks);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void configured(const struct rank_context *context)
{
    int n = context->nranks, me = context->rank;
    ncclComm_t comm = rank_comm(context);
    cudaStream_t stream = new_stream();
    cudaEvent_t event;
    int *in = device_alloc((size_t)n * sizeof *in), *out = device_alloc((size_t)n * sizeof *out);
    ncclCollConfig_t config = {.size = sizeof config, .magic = LAB_API_MAGIC, .version = 23203};
    config.forceAlgSelection = 1;
    CHECK_CUDA(cudaEventCreate(&event));
    config.launchCompletionEvent = event;
    for (int i = 0; i < n; i++)
        in[i] = me + i;
    CHECK_NCCL(ncclAllReduceConfig(in, out, 1, ncclInt32, ncclSum, comm, stream, &config));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(out[0] == n * (n - 1) / 2);
    CHECK_CUDA(cudaEventQuery(event));
    CHECK_NCCL(ncclBroadcastConfig(in, out, 1, ncclInt32, n - 1, comm, stream, NULL));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(out[0] == n - 1);
    CHECK_NCCL(ncclReduceConfig(in, out, 1, ncclInt32, ncclMax, 0, comm, stream, &config));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(me || out[0] == n - 1);
    CHECK_NCCL(ncclAllGatherConfig(in, out, 1, ncclInt32, comm, stream, &config));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++)
        CHECK(out[i] == i);
    CHECK_NCCL(ncclReduceScatterConfig(in, out, 1, ncclInt32, ncclMin, comm, stream, &config));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(out[0] == me);
    CHECK_NCCL(ncclAlltoAllConfig(in, out, 1, ncclInt32, comm, stream, &config));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++)
        CHECK(out[i] == me + i);
    CHECK_NCCL(ncclGatherConfig(in, out, 1, ncclInt32, 0, comm, stream, &config));
    CHECK_NCCL(ncclScatterConfig(in, out + (me ? 0 : n - 1), 1, ncclInt32, 0, comm, stream, &config));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(out[me ? 0 : n - 1] == me);
    config.magic = 0;
    CHECK(ncclAllReduceConfig(in, out, 1, ncclInt32, ncclSum, comm, stream, &config) == ncclInvalidArgument);
    config.size = 8;
    CHECK(ncclGatherConfig(in, out, 1, ncclInt32, 0, comm, stream, &config) == ncclInvalidArgument);
    CHECK_CUDA(cudaEventDestroy(event));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void encryption(void)
{
    ncclEncryptionConfig_t config = {.size = sizeof config, .magic = LAB_API_MAGIC, .version = 23203};
    CHECK_NCCL(ncclSetEncryption(NULL));
    CHECK_NCCL(ncclSetEncryption(&config));
    config.mode = NCCL_ENCRYPTION_MODE_PSK;
    CHECK(ncclSetEncryption(&config) == ncclInvalidArgument);
    config.psk = "too short";
    CHECK(ncclSetEncryption(&config) == ncclInvalidArgument);
    config.psk = "0123456789abcdef0123456789abcdef";
    CHECK_NCCL(ncclSetEncryption(&config));
    config.magic = 0;
    CHECK(ncclSetEncryption(&config) == ncclInvalidArgument);
}

int main(void)
{
    struct rank_set set;
    struct exchange exchange;
    char directory[] = "/tmp/lab-newer-XXXXXX";
    CHECK(mkdtemp(directory));
    snprintf(exchange.path, sizeof exchange.path, "%s/id", directory);
    CHECK_NCCL(ncclGetUniqueId(&exchange.id));
    ranks_run(5, grow, &exchange);
    CHECK(!remove(exchange.path) && !remove(directory));
    ranks_start(&set, 2, grow_waits, NULL);
    CHECK(ranks_hang(&set, 2, 0.5));
    ranks_run(1, put_ring, NULL);
    ranks_run(4, put_ring, NULL);
    ranks_run(3, wait_blocks, NULL);
    ranks_start(&set, 2, wait_for_nobody, NULL);
    CHECK(ranks_hang(&set, 1, 0.5));
    ranks_start(&set, 2, register_waits, NULL);
    CHECK(ranks_hang(&set, 2, 0.5));
    ranks_run(1, onesided_errors, NULL);
    ranks_run(2, suspend, NULL);
    ranks_run(1, configured, NULL);
    ranks_run(3, configured, NULL);
    encryption();
    return 0;
}
