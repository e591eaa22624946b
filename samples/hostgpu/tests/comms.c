/* Making, splitting, shrinking and ending communicators; groups and their errors; several ranks in one
 * process. */
#include "harness.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

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

static void check_place(ncclComm_t comm, int rank, int nranks)
{
    int got_rank, got_nranks, device;
    CHECK_NCCL(ncclCommUserRank(comm, &got_rank));
    CHECK_NCCL(ncclCommCount(comm, &got_nranks));
    CHECK_NCCL(ncclCommCuDevice(comm, &device));
    CHECK(got_rank == rank && got_nranks == nranks && device == 0);
}

static void split(const struct rank_context *context)
{
    int n = context->nranks, me = context->rank;
    ncclComm_t world = rank_comm(context);
    for (int round = 0; round < 3; round++) {
        /* Colours by parity, ranks in reverse; the last rank stays out in round 1. */
        bool out = round == 1 && me == n - 1;
        int members = 0, place = 0;
        for (int r = 0; r < n; r++)
            if (r % 2 == me % 2 && !(round == 1 && r == n - 1)) {
                members++;
                place += r > me;
            }
        ncclComm_t child = (ncclComm_t)&members;
        CHECK_NCCL(ncclCommSplit(world, out ? NCCL_SPLIT_NOCOLOR : me % 2, -me, &child, NULL));
        CHECK(out == (child == NULL));
        if (out)
            continue;
        check_place(child, place, members);
        CHECK(sum_of_one(child, 1) == members);
        CHECK_NCCL(ncclCommDestroy(child));
    }
    /* Two splits in one group: the children are there when the group ends. */
    ncclComm_t pair[2] = {NULL, NULL}, third;
    ncclComm_t second;
    CHECK_NCCL(ncclCommSplit(world, 0, me, &second, NULL));
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclCommSplit(world, 0, me, &pair[0], NULL));
    CHECK_NCCL(ncclCommSplit(second, 0, -me, &pair[1], NULL));
    CHECK_NCCL(ncclCommSplit(world, me % 2, me, &third, NULL)); /* the same parent again */
    CHECK(!pair[0] && !pair[1]);
    CHECK_NCCL(ncclGroupEnd());
    check_place(pair[0], me, n);
    check_place(third, me / 2, (n + 1 - me % 2) / 2);
    CHECK_NCCL(ncclCommDestroy(third));
    check_place(pair[1], n - 1 - me, n);
    CHECK_NCCL(ncclCommFinalize(world));
    CHECK(ncclAllReduce(NULL, NULL, 1, ncclInt8, ncclSum, world, NULL) == ncclInvalidUsage);
    CHECK_NCCL(ncclCommDestroy(world));
    CHECK(sum_of_one(pair[0], 1) == n);
    CHECK_NCCL(ncclCommDestroy(second));
    CHECK_NCCL(ncclCommDestroy(pair[0]));
    CHECK_NCCL(ncclCommDestroy(pair[1]));
}

static void split_waits(const struct rank_context *context)
{
    ncclComm_t world = rank_comm(context), child;
    if (context->rank == 0)
        sleep_s(60);
    ncclCommSplit(world, 0, 0, &child, NULL);
}

static void finalize(const struct rank_context *context)
{
    const char *barrier = context->argument;
    setenv("HOSTGPU_FINALIZE_BARRIER", barrier, 1);
    ncclComm_t world = rank_comm(context);
    if (context->rank == 0)
        sleep_s(60);
    CHECK_NCCL(ncclCommFinalize(world));
    CHECK_NCCL(ncclCommDestroy(world));
}

static void shrink(const struct rank_context *context)
{
    int me = context->rank, excluded[] = {1};
    ncclComm_t world = rank_comm(context), child;
    cudaStream_t stream = new_stream();
    int *data = device_alloc(sizeof *data);
    if (me == 1)
        exit(0);
    /* The operation waits for a rank that is gone; shrinking with abort ends it. */
    CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, world, stream));
    CHECK(!stream_finishes(stream, 0.1));
    CHECK_NCCL(ncclCommShrink(world, excluded, 1, &child, NULL, NCCL_SHRINK_ABORT));
    CHECK(stream_finishes(stream, 5));
    check_place(child, me ? me - 1 : 0, context->nranks - 1);
    CHECK(sum_of_one(child, 1) == context->nranks - 1);
    CHECK_NCCL(ncclCommDestroy(world));
    int self = me ? me - 1 : 0;
    CHECK(ncclCommShrink(child, &self, 1, &world, NULL, NCCL_SHRINK_DEFAULT) == ncclInvalidArgument);
    CHECK_NCCL(ncclCommDestroy(child));
}

static void revoke_all(const struct rank_context *context)
{
    ncclComm_t world = rank_comm(context), child;
    cudaStream_t stream = new_stream();
    int *data = device_alloc(sizeof *data);
    if (context->rank)
        CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, world, stream));
    CHECK(stream_finishes(stream, 0.1) == !context->rank);
    CHECK_NCCL(ncclCommRevoke(world, NCCL_REVOKE_DEFAULT));
    CHECK(stream_finishes(stream, 5));
    CHECK(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, world, stream) == ncclInvalidUsage);
    CHECK_NCCL(ncclCommSplit(world, 0, context->rank, &child, NULL));
    CHECK(sum_of_one(child, 1) == context->nranks);
    CHECK_NCCL(ncclCommDestroy(child));
    CHECK_NCCL(ncclCommDestroy(world));
}

static void scalable(const struct rank_context *context)
{
    ncclUniqueId ids[2] = {context->id, context->id};
    ids[1].internal[100] = 1;
    ncclComm_t comm;
    CHECK_NCCL(ncclCommInitRankScalable(&comm, context->nranks, context->rank, 2, ids, NULL));
    CHECK(sum_of_one(comm, context->rank) == context->nranks * (context->nranks - 1) / 2);
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* One id for every communicator of the job, as NCCL_COMM_ID makes it. */
static void fixed_id(const struct rank_context *context)
{
    ncclUniqueId id;
    CHECK(!setenv("NCCL_COMM_ID", "127.0.0.1:5000", 1));
    for (int i = 0; i < 20; i++) {
        ncclComm_t comm;
        CHECK_NCCL(ncclGetUniqueId(&id));
        CHECK_NCCL(ncclCommInitRank(&comm, context->nranks, id, (context->rank + i) % context->nranks));
        CHECK(sum_of_one(comm, 1) == context->nranks);
        CHECK_NCCL(ncclCommDestroy(comm));
    }
}

/* ---- Several ranks in one process ---- */

static void init_all(const struct rank_context *context)
{
    enum { DEVICES = 4 };
    (void)context;
    ncclComm_t comms[DEVICES];
    int *data[DEVICES];
    int current, alone = 3;
    CHECK_CUDA(cudaSetDevice(2));
    CHECK_NCCL(ncclCommInitAll(comms, 1, &alone));
    CHECK_CUDA(cudaGetDevice(&current));
    CHECK(current == 2);
    CHECK_NCCL(ncclCommDestroy(comms[0]));
    CHECK_NCCL(ncclCommInitAll(comms, DEVICES, NULL));
    for (int i = 0; i < DEVICES; i++) {
        int device;
        CHECK_NCCL(ncclCommCuDevice(comms[i], &device));
        CHECK(device == i);
        data[i] = device_alloc(sizeof(int));
        *data[i] = i + 1;
    }
    /* The default stream is that of each communicator's device, whichever device the thread is on. */
    CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < DEVICES; i++)
        CHECK_NCCL(ncclAllReduce(data[i], data[i], 1, ncclInt32, ncclSum, comms[i], NULL));
    CHECK_NCCL(ncclGroupEnd());
    for (int i = 0; i < DEVICES; i++) {
        CHECK_CUDA(cudaSetDevice(i));
        CHECK_CUDA(cudaStreamSynchronize(NULL));
        CHECK(*data[i] == 10);
    }
    for (int i = 0; i < DEVICES; i++)
        CHECK_NCCL(ncclCommDestroy(comms[i]));
}

static void init_in_group(const struct rank_context *context)
{
    enum { LOCAL = 3 };
    ncclComm_t comms[LOCAL];
    int n = context->nranks * LOCAL;
    CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < LOCAL; i++)
        CHECK_NCCL(ncclCommInitRank(&comms[i], n, context->id, context->rank * LOCAL + i));
    CHECK_NCCL(ncclGroupEnd());
    cudaStream_t streams[LOCAL];
    int *data = device_alloc(LOCAL * sizeof(int));
    CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < LOCAL; i++) {
        streams[i] = new_stream();
        data[i] = 1;
        CHECK_NCCL(ncclGroupStart());
        CHECK_NCCL(ncclAllReduce(&data[i], &data[i], 1, ncclInt32, ncclSum, comms[i], streams[i]));
        CHECK_NCCL(ncclGroupEnd());
    }
    CHECK_NCCL(ncclGroupEnd());
    for (int i = 0; i < LOCAL; i++) {
        CHECK_CUDA(cudaStreamSynchronize(streams[i]));
        CHECK(data[i] == n);
        CHECK_NCCL(ncclCommDestroy(comms[i]));
    }
}

static const struct rank_context *thread_context;

static void *thread_rank(void *argument)
{
    int rank = *(int *)argument;
    ncclComm_t comm;
    /* On one device, one thread's cudaFree would wait for another's operation, and that for this thread. */
    CHECK_CUDA(cudaSetDevice(rank));
    CHECK_NCCL(ncclCommInitRank(&comm, 4, thread_context->id, rank));
    for (int i = 0; i < 20; i++)
        CHECK(sum_of_one(comm, rank) == 6);
    CHECK_NCCL(ncclCommDestroy(comm));
    return NULL;
}

static void init_in_threads(const struct rank_context *context)
{
    pthread_t threads[4];
    int ranks[4] = {0, 1, 2, 3};
    thread_context = context;
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, thread_rank, &ranks[i]));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

/* ---- Groups and errors ---- */

static void errors(const struct rank_context *context)
{
    ncclComm_t comm = rank_comm(context), other;
    int *data = device_alloc(sizeof *data);
    *data = 1;
    cudaStream_t stream = new_stream();
    CHECK(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, NULL, stream) == ncclInvalidArgument);
    CHECK(ncclAllReduce(data, data, 1, ncclNumTypes, ncclSum, comm, stream) == ncclInvalidArgument);
    CHECK(ncclAllReduce(data, data, 1, ncclInt32, (ncclRedOp_t)7, comm, stream) == ncclInvalidArgument);
    CHECK(ncclReduce(data, data, 1, ncclInt32, ncclSum, 2, comm, stream) == ncclInvalidArgument);
    CHECK(ncclSend(data, 1, ncclInt32, -1, comm, stream) == ncclInvalidArgument);
    CHECK(strlen(ncclGetLastError(comm)) > 0);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    CHECK(ncclCommInitRank(&other, 2, context->id, 2) == ncclInvalidArgument);
    CHECK(ncclRedOpDestroy(ncclSum, comm) == ncclInvalidArgument);

    /* An error inside a group surfaces at its outermost end, and nothing of the group is launched. */
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, stream));
    CHECK(ncclReduce(data, data, 1, ncclInt32, ncclSum, 9, comm, stream) == ncclInvalidArgument);
    CHECK_NCCL(ncclGroupEnd());
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(*data == 1);

    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, stream));
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    CHECK_NCCL(ncclGroupSimulateEnd(&info));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(*data == 1 && ncclGroupEnd() == ncclInvalidUsage);

    /* An operator may be destroyed before the group that uses it ends. */
    ncclRedOp_t redop;
    int factor = 5;
    CHECK_NCCL(ncclRedOpCreatePreMulSum(&redop, &factor, ncclInt32, ncclScalarHostImmediate, comm));
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, redop, comm, stream));
    CHECK_NCCL(ncclRedOpDestroy(redop, comm));
    CHECK_NCCL(ncclGroupEnd());
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(*data == 10);
    CHECK(ncclAllReduce(data, data, 1, ncclInt32, redop, comm, stream) == ncclInvalidArgument);

    int version;
    CHECK_NCCL(ncclGetVersion(&version));
    CHECK(version == 22809);
    CHECK(!strcmp(ncclGetErrorString(ncclSuccess), "no error"));
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* Two streams of one rank: its operations still run in the order of the calls. */
static void two_streams(const struct rank_context *context)
{
    ncclComm_t comm = rank_comm(context);
    cudaStream_t streams[2] = {new_stream(), new_stream()};
    int *data = device_alloc(2 * sizeof *data);
    for (int step = 0; step < 200; step++) {
        data[0] = data[1] = 1;
        /* The other order of streams on the other rank does not matter. */
        CHECK_NCCL(
            ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, streams[(step + context->rank) % 2]));
        CHECK_NCCL(ncclAllReduce(data + 1, data + 1, 1, ncclInt32, ncclProd, comm, streams[step % 2]));
        CHECK_CUDA(cudaDeviceSynchronize());
        CHECK(data[0] == context->nranks && data[1] == 1);
    }
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, streams[0]));
    CHECK_NCCL(ncclAllReduce(data + 1, data + 1, 1, ncclInt32, ncclSum, comm, streams[1]));
    CHECK_NCCL(ncclGroupEnd());
    CHECK_CUDA(cudaStreamSynchronize(streams[1]));
    CHECK(data[0] == context->nranks * context->nranks && data[1] == context->nranks);
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* ---- Files ---- */

static void unusable_directory(const struct rank_context *context)
{
    static const char *const paths[] = {"/proc/nowhere", "/dev/null", "/"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        ncclComm_t comm = (ncclComm_t)&comm;
        setenv("HOSTGPU_DIR", paths[i], 1);
        CHECK(ncclCommInitRank(&comm, 1, context->id, 0) == ncclSystemError);
        CHECK(!comm && strstr(ncclGetLastError(NULL), paths[i]));
    }
}

static int files_in(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    CHECK(dir);
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void wait_alone(const struct rank_context *context)
{
    ncclComm_t comm;
    ncclCommInitRank(&comm, 2, context->id, 0);
}

static void check_files(void)
{
    const char *path = getenv("HOSTGPU_DIR");
    CHECK(files_in(path) == 0);
    struct rank_set set;
    ranks_start(&set, 1, wait_alone, NULL);
    WAIT_UNTIL(files_in(path) == 1);
    CHECK(ranks_hang(&set, 1, 0));
    CHECK(files_in(path) == 1); /* killed while it waited */
    ranks_run(2, scalable, NULL);
    CHECK(files_in(path) == 0); /* cleaned by those who came later */
}

int main(void)
{
    char directory[] = "/tmp/lab-comms-XXXXXX";
    CHECK(mkdtemp(directory));
    CHECK(!setenv("HOSTGPU_DIR", directory, 1));
    ranks_run(1, split, NULL);
    ranks_run(5, split, NULL);
    struct rank_set set;
    ranks_start(&set, 3, split_waits, NULL);
    CHECK(ranks_hang(&set, 3, 0.5));
    ranks_start(&set, 3, finalize, "1");
    CHECK(ranks_hang(&set, 3, 0.5));
    ranks_start(&set, 3, finalize, "0");
    CHECK(ranks_hang(&set, 1, 0.5));
    ranks_run(4, shrink, NULL);
    ranks_run(3, revoke_all, NULL);
    ranks_run(4, scalable, NULL);
    ranks_run(4, fixed_id, NULL);
    ranks_run(1, init_all, NULL);
    ranks_run(2, init_in_group, NULL);
    ranks_run(1, init_in_threads, NULL);
    ranks_run(2, errors, NULL);
    ranks_run(2, two_streams, NULL);
    ranks_run(1, unusable_directory, NULL);
    check_files();
    CHECK(!rmdir(directory));
    return 0;
}
