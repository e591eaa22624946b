/*
 * How long loading and analyzing a large job take, and how much memory: traces of a data × tensor
 * parallel loop that hangs in the end because one rank stays away.
 *
 * usage: bench-analyze [RANKS [OPS [DIR]]], by default 1,024 ranks × 20,000 calls in a temporary
 * directory. RANKS must be a multiple of 8.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rec/live.h"
#include "rec/verdict.h"
#include "rec/writer.h"

#define START UINT64_C(1700000000000000000)
#define MS    UINT64_C(1000000)
#define TP    8

struct job {
    uint32_t ranks, ops, asleep;
    const char *dir;
    uint64_t bytes;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *what, const struct rec_error *err)
{
    fprintf(stderr, "bench-analyze: %s: %s\n", what, err->text);
    exit(2);
}

/* Communicator 0 is the world, 1 the row of 8, 2 the column. */
static void define(struct rec_writer *writer, const struct job *job, uint32_t rank)
{
    const uint64_t uids[] = {0xa000000, 0xb000000 + rank / TP, 0xc000000 + rank % TP};
    const uint32_t sizes[] = {job->ranks, TP, job->ranks / TP}, places[] = {rank, rank % TP, rank / TP};
    rec_writer_thread(writer, &(struct rec_thread_def){.id = 1, .tid = 1000});
    rec_writer_stream(writer, &(struct rec_stream_def){.id = 0});
    for (uint32_t i = 0; i < 3; i++)
        rec_writer_comm(writer, &(struct rec_comm_def){.id = i,
                                                       .state = REC_LIVE_COMM_READY,
                                                       .nranks = sizes[i],
                                                       .rank = places[i],
                                                       .uid = uids[i],
                                                       .made_by = REC_COMM_INIT_RANK,
                                                       .color = -1});
}

static struct rec_op make_op(const struct job *job, uint32_t rank, uint32_t i, uint64_t seqs[3])
{
    uint32_t comm = i < 3 ? i : i % 5 == 4 ? 0 : i % 5 >= 2 ? 2 : 1;
    bool init = i < 3;
    uint64_t enter = START + 100 * MS + i * MS / 2 + rec_mix64(rank * 131071u + i) % (MS / 4);
    struct rec_op op = {.ordinal = i,
                        .enter_ns = enter,
                        .exit_ns = enter + MS / 50,
                        .count = init ? (comm == 0   ? job->ranks
                                         : comm == 1 ? TP
                                                     : job->ranks / TP)
                                      : 1024u + i % 5,
                        .seq = seqs[comm]++,
                        .thread = 1,
                        .comm = comm,
                        .stream = init ? REC_ID_NONE : 0,
                        .peer = init ? (int32_t)rank : -1,
                        .kind = init ? REC_COMM_INIT_RANK : REC_ALL_REDUCE,
                        .dtype = init ? REC_DTYPE_NONE : 7,
                        .redop = init ? REC_REDOP_NONE : 0,
                        .state = init ? REC_STATE_COMPLETED : REC_STATE_ENQUEUED};
    return op;
}

static void write_rank(const struct job *job, void *memory, const struct rec_writer_config *config,
                       uint32_t rank)
{
    struct rec_writer *writer = rec_writer_init(memory, config);
    char meta[512], stem[32];
    int n = snprintf(
        meta, sizeof meta,
        "{\"host\":\"node-%u\",\"boot_id\":\"boot-%u\",\"pid\":%u,\"proc_uid\":\"%016x\",\"rank\":%u,"
        "\"world_size\":%u,\"start_ns\":%" PRIu64 ",\"job\":{\"source\":\"FREC_JOB_ID\",\"id\":\"bench\"}}",
        rank / TP, rank / TP, 1000 + rank, 1000 + rank, rank, job->ranks, START);
    snprintf(stem, sizeof stem, "node-%u", rank);
    struct rec_error err;
    if (rec_writer_open(writer, job->dir, stem, meta, (size_t)n, &err) != REC_OK)
        die("cannot write", &err);
    define(writer, job, rank);
    uint64_t seqs[3] = {0};
    uint32_t count = rank == job->asleep ? job->ops - 7 : job->ops;
    struct rec_op batch[500];
    for (uint32_t i = 0, used = 0; i < count; i++) {
        batch[used++] = make_op(job, rank, i, seqs);
        if (used == 500 || i + 1 == count) {
            rec_writer_ops(writer, batch, used);
            used = 0;
            if (rec_writer_flush(writer, &err) != REC_OK)
                die("cannot write", &err);
        }
    }
    uint64_t end = START + 40000 * MS + job->ops * MS / 2;
    for (uint32_t c = 0; c < 3; c++)
        rec_writer_frontier(writer, end, &(struct rec_frontier){.comm = c, .next_seq = seqs[c]});
    rec_writer_heartbeat(writer, end);
    if (rec_writer_flush(writer, &err) != REC_OK)
        die("cannot write", &err);
    rec_writer_abandon(writer);
}

static void write_all(struct job *job)
{
    struct rec_writer_config config = {0};
    void *memory = aligned_alloc(64, (rec_writer_bytes(&config) + 63) / 64 * 64);
    if (!memory)
        exit(2);
    for (uint32_t rank = 0; rank < job->ranks; rank++) {
        char path[512];
        struct stat status;
        write_rank(job, memory, &config, rank);
        snprintf(path, sizeof path, "%s/node-%u.frec", job->dir, rank);
        job->bytes += stat(path, &status) == 0 ? (uint64_t)status.st_size : 0;
    }
    free(memory);
}

static void analyze(const struct job *job, unsigned threads)
{
    const char *dirs[] = {job->dir};
    struct rec_job_options options = {.no_live = true, .analyze = true, .threads = threads};
    struct rec_analyze_options how = {.threads = threads};
    struct rec_job *loaded;
    struct rec_verdict *verdict;
    struct rec_error err;
    double start = now();
    if (rec_job_open(dirs, 1, &options, &loaded, &err) != REC_OK)
        die("cannot load", &err);
    double middle = now();
    if (rec_analyze(loaded, &how, &verdict, &err) != REC_OK)
        die("cannot analyze", &err);
    double end = now(), calls = (double)job->ranks * job->ops;
    printf("  load                %8.2f s  %8.1f million calls a second\n  analysis            %8.2f s\n",
           middle - start, calls / (middle - start) / 1e6, end - middle);
    printf("  verdict             %s: %.100s…\n", rec_verdict_type_name(verdict->findings[0].type),
           verdict->findings[0].summary);
    rec_verdict_free(verdict);
    rec_job_close(loaded);
}

/* In a process of its own, for its peak memory. */
static int measure(const struct job *job, unsigned threads)
{
    if (threads)
        printf("%u thread%s\n", threads, threads == 1 ? "" : "s");
    else
        printf("a thread for each of %ld CPUs\n", sysconf(_SC_NPROCESSORS_ONLN));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        analyze(job, threads);
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    struct rusage usage = {0};
    wait4(child, &status, 0, &usage);
    printf("  processor time      %8.2f s\n  peak memory         %8.1f MiB\n",
           (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6,
           (double)usage.ru_maxrss / 1024);
    return status != 0;
}

static void remove_all(const struct job *job)
{
    for (uint32_t rank = 0; rank < job->ranks; rank++) {
        char path[512];
        snprintf(path, sizeof path, "%s/node-%u.frec", job->dir, rank);
        unlink(path);
    }
    rmdir(job->dir);
}

int main(int argc, char **argv)
{
    char place[] = "/tmp/bench-analyze-XXXXXX";
    struct job job = {.ranks = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1024,
                      .ops = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 20000};
    if (argc > 4 || job.ranks < 2 * TP || job.ranks % TP || job.ops < 100) {
        fprintf(stderr, "usage: bench-analyze [RANKS [OPS [DIR]]], RANKS a multiple of %d\n", TP);
        return 2;
    }
    job.asleep = job.ranks / 3;
    job.dir = argc > 3 ? argv[3] : mkdtemp(place);
    if (!job.dir) {
        perror(place);
        return 2;
    }
    double start = now();
    write_all(&job);
    printf("ranks × calls         %u × %u\ntraces                %8.1f MiB\nwriting               %8.2f s\n",
           job.ranks, job.ops, (double)job.bytes / 1048576, now() - start);
    fflush(stdout);
    int status = measure(&job, 1);
    status |= measure(&job, 0);
    if (argc <= 3)
        remove_all(&job);
    return status;
}
