/*
 * What recording costs. Runs itself with and without the recorder on a libnccl that does nothing
 * (stub-nccl.c) and prints the difference per call; then how fast the drain is.
 *
 *   bench-record RECORDER.so TOLD.so [SCRATCH_DIR]     the table; TOLD.so is stub-told.c's libnccl
 *   bench-record --calls N                     N AllReduce calls, for callgrind
 *
 * Figures of one run vary by a few ns with the machine's mood: medians over many short batches.
 */
#include <nccl.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rec/drain.h"
#include "stub-cuda.h"

#define BATCH   64
#define BATCHES 4000

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- what is measured ------------------------------------------------------------------------ */

static ncclComm_t comm;
static const cudaStream_t stream = (cudaStream_t)0x5000;

static void all_reduce(void)
{
    ncclAllReduce(NULL, NULL, 1024, ncclFloat, ncclSum, comm, stream);
}

static void send_recv(void)
{
    ncclSend(NULL, 1024, ncclFloat, 1, comm, stream);
}

static void group(void)
{
    ncclGroupStart();
    ncclSend(NULL, 1024, ncclFloat, 1, comm, stream);
    ncclRecv(NULL, 1024, ncclFloat, 1, comm, stream);
    ncclGroupEnd();
}

static void async_error(void)
{
    ncclResult_t error;
    ncclCommGetAsyncError(comm, &error);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"AllReduce", all_reduce},
    {"Send", send_recv},
    {"group of Send, Recv", group},
    {"CommGetAsyncError (no change)", async_error},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

/* told_report of stub-told.c, where that is what runs; and what one kernel's reports take it. */
static int (*report)(void);
static double reports_ns;

static void make_comm(void)
{
    stub_cuda.log = false; /* the driver is loaded */
    *(void **)&report = dlsym(RTLD_DEFAULT, "told_report");
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclCommInitRank(&comm, 8, id, 0);
}

static double median_ns(void (*run)(void))
{
    static double samples[BATCHES], reports[BATCHES];
    for (int i = 0; i < BATCHES; i++) {
        uint64_t from = now_ns();
        for (int k = 0; k < BATCH; k++)
            run();
        uint64_t ran = now_ns();
        samples[i] = (double)(ran - from) / BATCH;
        int reported = report ? report() : 0;
        reports[i] = reported ? (double)(now_ns() - ran) / reported : 0;
        /* Real jobs leave the drain time to keep up. */
        if (i % 64 == 63)
            nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    qsort(reports, BATCHES, sizeof(reports[0]), compare);
    reports_ns = reports[BATCHES / 2];
    qsort(samples, BATCHES, sizeof(samples[0]), compare);
    return samples[BATCHES / 2];
}

static void measure(void)
{
    make_comm();
    for (size_t i = 0; i < CASES; i++) {
        for (int warm = 0; warm < 1000; warm++)
            cases[i].run();
        if (report)
            report();
        double ns = median_ns(cases[i].run);
        printf("%.2f %.2f\n", ns, reports_ns);
    }
}

/* ---- for comparison: what no recorder can avoid ----------------------------------------------------- */

static uint64_t line[1 << 16][8] __attribute__((aligned(64)));

static uint64_t read_counter(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t count;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
#else
    return now_ns();
#endif
}

static void bare(void)
{
    static size_t at;
    volatile uint64_t *slot = line[at++ % (sizeof(line) / sizeof(line[0]))];
    slot[1] = read_counter();
    for (int i = 2; i < 8; i++)
        slot[i] = at;
    slot[0] = read_counter();
}

/* ---- running oneself with and without the recorder --------------------------------------------------- */

struct figures {
    double ns[CASES], reports[CASES];
};

/* variables: name and value by turns, NULL at the end. */
static bool run_child(const char *const *variables, const char *scratch, struct figures *figures)
{
    int ends[2];
    if (pipe(ends) != 0)
        return false;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        setenv("FREC_DIR", scratch, 1);
        for (size_t i = 0; variables[i]; i += 2)
            setenv(variables[i], variables[i + 1], 1);
        execl("/proc/self/exe", "bench-record", "--measure", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *in = fdopen(ends[0], "r");
    bool good = in != NULL && child > 0;
    for (size_t i = 0; good && i < CASES; i++)
        good = fscanf(in, "%lf %lf", &figures->ns[i], &figures->reports[i]) == 2;
    if (in)
        fclose(in);
    int status = -1;
    waitpid(child, &status, 0);
    return good && status == 0;
}

/* ---- the drain ------------------------------------------------------------------------------------------
 */

struct sink {
    struct rec_live live;
    struct rec_drain *drain;
    struct rec_writer *writer;
};

/* Fills all chunks with ops as a training loop makes them. */
static void fill(struct rec_live *live, uint64_t *ordinal)
{
    for (uint32_t i = 0; i < live->header->chunk_count; i++) {
        struct rec_live_chunk *chunk = &live->chunks[i];
        atomic_store(&chunk->owner, 1);
        atomic_store(&chunk->thread_id, 1);
        atomic_store(&chunk->claim, *ordinal + 1);
        for (uint32_t k = 0; k < REC_LIVE_CHUNK_SLOTS; k++, (*ordinal)++) {
            struct rec_slot slot = {
                .ordinal = *ordinal,
                .enter = *ordinal * 20000 + (rec_mix64(*ordinal) & 0xfff),
                .count = 1u << (10 + *ordinal % 7),
                .seq = *ordinal,
                .stream = 0,
                .peer = -1,
                .kind = REC_ALL_REDUCE,
                .dtype = 9,
            };
            slot.exit = slot.enter + 4000 + (rec_mix64(~*ordinal) & 0x3ff);
            memcpy(&live->slots[(uint64_t)i * REC_LIVE_CHUNK_SLOTS + k], &slot, sizeof(slot));
        }
        atomic_store(&chunk->done, REC_LIVE_CHUNK_SLOTS);
    }
    atomic_store(&live->header->next_claim, *ordinal);
}

static void measure_drain(const char *scratch)
{
    const struct rec_live_config layout = {
        .comms = 1024, .threads = 512, .redops = 250, .streams = 1024, .slots = 65536, .tick_ns = 64};
    const struct rec_writer_config settings = {0};
    struct rec_live_header *header = calloc(1, sizeof(*header));
    uint64_t bytes = rec_live_layout(&layout, header);
    struct sink sink;
    void *region = calloc(1, bytes);
    memcpy(region, header, sizeof(*header));
    rec_live_attach(&sink.live, region);
    atomic_store(&sink.live.threads[0].id, 1);
    atomic_store(&sink.live.comms[0].version, 2);
    sink.drain = rec_drain_init(calloc(1, rec_drain_bytes(&sink.live)), &sink.live);
    size_t writer_bytes = (rec_writer_bytes(&settings) + 63) & ~(size_t)63;
    sink.writer = rec_writer_init(aligned_alloc(64, writer_bytes), &settings);
    struct rec_error error;
    if (rec_writer_open(sink.writer, scratch, "bench-drain", "{}", 2, &error) != REC_OK) {
        fprintf(stderr, "bench-record: %s: %s\n", error.path, error.text);
        return;
    }
    uint64_t ordinal = 0, spent = 0;
    for (int round = 0; round < 20; round++) {
        struct rec_drain_result result;
        fill(&sink.live, &ordinal);
        uint64_t from = now_ns();
        rec_drain_step(sink.drain, sink.writer, from, false, false, &result, NULL);
        spent += now_ns() - from;
    }
    struct rec_writer_status status;
    rec_writer_close(sink.writer, NULL);
    rec_writer_status(sink.writer, &status);
    if (status.ops != ordinal) {
        fprintf(stderr, "bench-record: %llu of %llu ops drained\n", (unsigned long long)status.ops,
                (unsigned long long)ordinal);
        return;
    }
    printf("%-34s %9.2f million ops/s\n", "drain to file, one core", (double)ordinal * 1e3 / (double)spent);
    printf("%-34s %9.2f bytes/op\n", "trace size", (double)status.file_bytes / (double)ordinal);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--measure") == 0) {
        measure();
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "--calls") == 0) {
        make_comm();
        for (int i = atoi(argv[2]); i > 0; i--) {
            all_reduce();
            if (report && i % BATCH == 0)
                report();
        }
        return 0;
    }
    if (argc < 3 || argv[1][0] == '-') {
        fprintf(stderr, "usage: bench-record RECORDER.so TOLD.so [SCRATCH_DIR]\n");
        return 2;
    }
    const char *recorder = argv[1], *told = argv[2];
    char scratch[] = "/tmp/bench-record-XXXXXX", both[4096];
    const char *directory = argc > 3 ? argv[3] : mkdtemp(scratch);
    snprintf(both, sizeof(both), "%s:%s", recorder, told);
    const char *const off[] = {"FREC_GPU", "off", NULL};
    const char *const with_off[] = {"LD_PRELOAD", recorder, "FREC_GPU", "off", NULL};
    const char *const with_marks[] = {"LD_PRELOAD", recorder, "FREC_GPU", "marks", NULL};
    const char *const with_plugin[] = {"LD_PRELOAD",    both, "FREC_GPU", "plugin", "NCCL_PROFILER_PLUGIN",
                                       "STATIC_PLUGIN", NULL};
    const char *const by_plugin[] = {"LD_PRELOAD", told, "NCCL_PROFILER_PLUGIN", recorder, NULL};
    struct figures without, with, marks, plugin, alone;
    if (!directory || !run_child(off, directory, &without) || !run_child(with_off, directory, &with) ||
        !run_child(with_marks, directory, &marks) || !run_child(with_plugin, directory, &plugin) ||
        !run_child(by_plugin, directory, &alone)) {
        fprintf(stderr, "bench-record: a measurement failed\n");
        return 1;
    }
    if (plugin.reports[0] == 0 || alone.reports[0] == 0) {
        fprintf(stderr, "bench-record: the plugin followed no launch\n");
        return 1;
    }
    /* The stub's driver takes no time: what marks cost beyond what CUDA itself takes for two writes. */
    printf("%-34s %9s %9s %9s %9s\n", "ns per call, median", "without", "with", "added", "and marks");
    for (size_t i = 0; i < CASES; i++)
        printf("%-34s %9.1f %9.1f %9.1f %9.1f\n", cases[i].name, without.ns[i], with.ns[i],
               with.ns[i] - without.ns[i], marks.ns[i] - with.ns[i]);
    printf("%-34s %29.1f %9.1f\n", "AllReduce, as NCCL's plugin", plugin.ns[0] - without.ns[0],
           plugin.ns[0] - with.ns[0]);
    printf("%-34s %29.1f\n", "  and of a call not intercepted", alone.ns[0] - without.ns[0]);
    printf("%-34s %29.1f\n", "  NCCL's proxy thread, per kernel", plugin.reports[0]);
    printf("%-34s %29.1f\n", "two counter reads, 64 bytes stored", median_ns(bare));
    measure_drain(directory);
    if (argc <= 3) {
        char command[64];
        snprintf(command, sizeof(command), "rm -rf %s", scratch);
        return system(command) == 0 ? 0 : 1;
    }
    return 0;
}
