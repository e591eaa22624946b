#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct job job = {.program = "job", .world = 1};

void job_fail(int status, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s: rank %d: %s\n", job.program, job.rank, text);
    exit(status);
}

void job_check_nccl(ncclResult_t result, const char *call)
{
    if (result != ncclSuccess && result != ncclInProgress)
        job_fail(JOB_EXIT_NCCL, "%s: %s", call, ncclGetErrorString(result));
}

void job_check_cuda(cudaError_t result, const char *call)
{
    if (result != cudaSuccess)
        job_fail(JOB_EXIT_NCCL, "%s: %s", call, cudaGetErrorString(result));
}

static bool env_int(const char *name, int *value)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return false;
    char *end;
    long number = strtol(text, &end, 10);
    if (*end || number < 0 || number > 1 << 24)
        job_fail(JOB_EXIT_USAGE, "%s=%s is no rank or size", name, text);
    *value = (int)number;
    return true;
}

void job_init(const char *program)
{
    static const char *const names[][3] = {
        {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
        {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
        {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
        {"JOB_RANK", "JOB_SIZE", "JOB_LOCAL_RANK"},
    };
    job.program = program;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!env_int(names[i][0], &job.rank) || !env_int(names[i][1], &job.world))
            continue;
        if (!env_int(names[i][2], &job.local_rank))
            job.local_rank = job.rank;
        break;
    }
    job.rendezvous = getenv("JOB_RENDEZVOUS");
    if (job.world > 1 && !job.rendezvous)
        job_fail(JOB_EXIT_USAGE,
                 "JOB_RENDEZVOUS is not set: a directory that all ranks share, new for each job");
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    if (devices > 0)
        CUDA(cudaSetDevice(job.local_rank % devices));
}

void job_sleep_us(uint64_t us)
{
    struct timespec left = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

uint64_t job_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void rendezvous_path(char *path, size_t size, const char *kind, const char *name)
{
    if (snprintf(path, size, "%s/%s.%s", job.rendezvous ? job.rendezvous : "/tmp", kind, name) >= (int)size)
        job_fail(JOB_EXIT_USAGE, "rendezvous path too long");
}

static void publish(const char *path, const void *data, size_t bytes)
{
    char temporary[1100];
    snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || close(fd) || rename(temporary, path))
        job_fail(JOB_EXIT_USAGE, "%s: %s", path, strerror(errno));
}

void job_give_id(const char *name, const ncclUniqueId *id)
{
    char path[1024];
    rendezvous_path(path, sizeof path, "id", name);
    if (job.rendezvous)
        publish(path, id, sizeof *id);
}

ncclUniqueId job_unique_id(const char *name, bool creator)
{
    ncclUniqueId id;
    char path[1024];
    if (creator) {
        NCCL(ncclGetUniqueId(&id));
        job_give_id(name, &id);
        return id;
    }
    rendezvous_path(path, sizeof path, "id", name);
    for (;;) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            ssize_t got = read(fd, &id, sizeof id);
            close(fd);
            if (got == (ssize_t)sizeof id)
                return id;
        }
        job_sleep_us(1000);
    }
}

void job_meet(const char *name, int count)
{
    char path[1024], mine[1060];
    if (!job.rendezvous)
        return;
    rendezvous_path(path, sizeof path, "meet", name);
    snprintf(mine, sizeof mine, "%s.%d", path, job.rank);
    publish(mine, "", 0);
    for (int seen = 0; seen < count; job_sleep_us(seen < count ? 1000 : 0)) {
        seen = 0;
        for (int rank = 0; rank < job.world; rank++) {
            snprintf(mine, sizeof mine, "%s.%d", path, rank);
            seen += access(mine, F_OK) == 0;
        }
    }
}

static struct job_count *job_count;

void job_count_open(const char *prefix)
{
    char path[1024];
    snprintf(path, sizeof path, "%s.%d", prefix, job.rank);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *job_count))
        job_fail(JOB_EXIT_USAGE, "%s: %s", path, strerror(errno));
    job_count = mmap(NULL, sizeof *job_count, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (job_count == MAP_FAILED)
        job_fail(JOB_EXIT_USAGE, "%s: %s", path, strerror(errno));
    close(fd);
}

void job_count_enter(void)
{
    if (job_count)
        atomic_fetch_add(&job_count->entered, 1);
}

void job_count_leave(void)
{
    if (!job_count)
        return;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t n = atomic_load_explicit(&job_count->finished, memory_order_relaxed);
    atomic_store_explicit(&job_count->finished_ns[n % JOB_COUNT_RING],
                          (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, memory_order_relaxed);
    atomic_store(&job_count->finished, n + 1);
}

struct dtype_name {
    const char *name;
    const char *nccl_name;
    ncclDataType_t dtype;
    size_t size;
};

static const struct dtype_name dtype_names[] = {
    {"i8", "int8", ncclInt8, 1},       {"u8", "uint8", ncclUint8, 1},
    {"i32", "int32", ncclInt32, 4},    {"u32", "uint32", ncclUint32, 4},
    {"i64", "int64", ncclInt64, 8},    {"u64", "uint64", ncclUint64, 8},
    {"f16", "half", ncclFloat16, 2},   {"f32", "float", ncclFloat32, 4},
    {"f64", "double", ncclFloat64, 8}, {"bf16", "bfloat16", ncclBfloat16, 2},
};
#define NDTYPES (sizeof dtype_names / sizeof *dtype_names)

size_t job_dtype_size(ncclDataType_t dtype)
{
    for (size_t i = 0; i < NDTYPES; i++)
        if (dtype_names[i].dtype == dtype)
            return dtype_names[i].size;
    return 8;
}

bool job_dtype_parse(const char *name, ncclDataType_t *dtype)
{
    for (size_t i = 0; i < NDTYPES; i++)
        if (!strcmp(name, dtype_names[i].name) || !strcmp(name, dtype_names[i].nccl_name)) {
            *dtype = dtype_names[i].dtype;
            return true;
        }
    return false;
}

bool job_redop_parse(const char *name, ncclRedOp_t *redop)
{
    static const char *const names[] = {"sum", "prod", "max", "min", "avg"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) {
            *redop = (ncclRedOp_t)i;
            return true;
        }
    return false;
}
