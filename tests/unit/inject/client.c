/* Small NCCL programs for test-inject.c: inject-client WHAT [N]. */
#include "nccl-compat.h"

#include <errno.h>
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Newer than the nccl.h that this may be built with. */
#define NCCL_API(name, since, params, args, role) ncclResult_t name params;
#include "nccl-api.def"
#undef NCCL_API

static const cudaStream_t stream = (cudaStream_t)0x7000;

static ncclComm_t make_comm(int rank)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    memset(&id, 7, sizeof(id));
    ncclCommInitRank(&comm, 4, id, rank);
    return comm;
}

static void calls(ncclComm_t comm, int count)
{
    for (int i = 0; i < count; i++)
        ncclAllReduce(NULL, NULL, (size_t)i, ncclFloat, ncclSum, comm, stream);
}

static int ops(int count)
{
    calls(make_comm(0), count);
    return 0;
}

/* Every function of the table once, in an order that makes sense. */
static int everything(int unused)
{
    (void)unused;
    ncclUniqueId id;
    ncclComm_t comm, child, all[3], shrunk, grown, joined;
    ncclResult_t error;
    ncclRedOp_t op;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    ncclWindow_t window = NULL;
    void *memory = NULL, *handle = NULL;
    float scalar = 2;
    int excluded[] = {3, 1};
    ncclGetUniqueId(&id);
    memset(&id, 9, sizeof(id));
    config.commName = "named";
    ncclCommInitRankConfig(&comm, 4, id, 2, &config);
    ncclCommInitRankScalable(&child, 4, 2, 1, &id, NULL);
    ncclCommAbort(child);
    ncclCommInitAll(all, 3, NULL);
    ncclCommSplit(comm, 5, 0, &child, NULL);
    ncclCommShrink(comm, excluded, 2, &shrunk, NULL, NCCL_SHRINK_DEFAULT);
    ncclMemAlloc(&memory, 4096);
    ncclCommRegister(comm, memory, 4096, &handle);
    ncclCommWindowRegister(comm, memory, 4096, &window, 0);
    ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, comm);
    ncclAllReduce(NULL, NULL, 1, ncclFloat, op, comm, stream);
    ncclRedOpDestroy(op, comm);
    ncclBroadcast(NULL, NULL, 2, ncclFloat, 1, comm, stream);
    ncclBcast(NULL, 3, ncclFloat, 1, comm, stream);
    ncclReduce(NULL, NULL, 4, ncclFloat, ncclMax, 1, comm, stream);
    ncclAllGather(NULL, NULL, 5, ncclFloat, comm, stream);
    ncclReduceScatter(NULL, NULL, 6, ncclFloat, ncclMin, comm, stream);
    ncclAlltoAll(NULL, NULL, 7, ncclFloat, comm, stream);
    ncclGather(NULL, NULL, 8, ncclFloat, 1, comm, stream);
    ncclScatter(NULL, NULL, 9, ncclFloat, 1, comm, stream);
    ncclGroupStart();
    ncclGroupStart();
    ncclSend(NULL, 10, ncclFloat, 1, comm, stream);
    ncclRecv(NULL, 11, ncclFloat, 3, comm, NULL);
    ncclGroupEnd();
    ncclGroupEnd();
    ncclAllReduceConfig(NULL, NULL, 1, ncclFloat, ncclSum, comm, stream, NULL);
    ncclBroadcastConfig(NULL, NULL, 2, ncclFloat, 1, comm, stream, NULL);
    ncclReduceConfig(NULL, NULL, 4, ncclFloat, ncclMax, 1, comm, stream, NULL);
    ncclAllGatherConfig(NULL, NULL, 5, ncclFloat, comm, stream, NULL);
    ncclReduceScatterConfig(NULL, NULL, 6, ncclFloat, ncclMin, comm, stream, NULL);
    ncclAlltoAllConfig(NULL, NULL, 7, ncclFloat, comm, stream, NULL);
    ncclGatherConfig(NULL, NULL, 8, ncclFloat, 1, comm, stream, NULL);
    ncclScatterConfig(NULL, NULL, 9, ncclFloat, 1, comm, stream, NULL);
    ncclPutSignal(NULL, 12, ncclFloat, 1, window, 0, 0, 0, 0, comm, stream);
    ncclSignal(1, 0, 0, 0, comm, stream);
    ncclWaitSignal(2, NULL, comm, stream);
    ncclCommSuspend(comm, 0);
    ncclCommResume(comm);
    ncclCommGetUniqueId(comm, &id);
    ncclCommGrow(comm, 6, &id, -1, &grown, NULL);
    ncclCommGrow(NULL, 6, &id, 5, &joined, NULL);
    ncclGroupStart();
    ncclGroupSimulateEnd(&info);
    ncclCommGetAsyncError(comm, &error);
    ncclCommWindowDeregister(comm, window);
    ncclCommDeregister(comm, handle);
    ncclDevCommCreate(comm, NULL, NULL);
    ncclDevCommDestroy(comm, NULL);
    ncclMemFree(memory);
    ncclCommRevoke(comm, 0);
    ncclCommFinalize(comm);
    ncclCommDestroy(child);
    ncclCommDestroy(shrunk);
    ncclCommDestroy(grown);
    ncclCommDestroy(joined);
    ncclCommDestroy(comm);
    return 0;
}

/* What NCCL refuses, alone and in a group, among what it takes. */
static int refused(int unused)
{
    (void)unused;
    const ncclDataType_t strange = (ncclDataType_t)99;
    ncclComm_t comm = make_comm(0);
    calls(comm, 2);
    ncclBroadcast(NULL, NULL, 1, strange, 1, comm, stream);
    calls(comm, 1);
    ncclSend(NULL, 1, ncclFloat, 1, comm, stream);
    ncclSend(NULL, 1, strange, 1, comm, stream);
    ncclSend(NULL, 1, ncclFloat, 1, comm, stream);
    ncclRecv(NULL, 1, strange, 1, comm, stream);
    ncclRecv(NULL, 1, ncclFloat, 1, comm, stream);
    ncclGroupStart();
    ncclBroadcast(NULL, NULL, 1, strange, 1, comm, stream);
    ncclGroupEnd();
    calls(comm, 1);
    return 0;
}

static void *thread_main(void *count)
{
    calls(make_comm(1), *(int *)count);
    return NULL;
}

static int threads(int count)
{
    int each = 1000;
    for (int round = 0; round < count; round++) {
        pthread_t threads[8];
        for (int i = 0; i < 8; i++)
            pthread_create(&threads[i], NULL, thread_main, &each);
        for (int i = 0; i < 8; i++)
            pthread_join(threads[i], NULL);
        usleep(20000);
    }
    return 0;
}

static int churn(int count)
{
    for (int i = 0; i < count; i++) {
        ncclComm_t comm = make_comm(0);
        calls(comm, 2);
        ncclSend(NULL, 1, ncclFloat, i % 4, comm, stream);
        ncclCommDestroy(comm);
        if (i % 100 == 99)
            usleep(300000);
    }
    return 0;
}

static int end_child(pid_t child, int want)
{
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == want ? 0 : 1;
}

/* Three children: one goes on calling NCCL, one ends at once, one becomes another program. */
static int forks(int unused)
{
    (void)unused;
    calls(make_comm(0), 10);
    pid_t child = fork();
    if (child == 0) {
        calls(make_comm(1), 20);
        exit(5);
    }
    int bad = end_child(child, 5);
    child = fork();
    if (child == 0)
        _exit(6);
    bad |= end_child(child, 6);
    child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(7);
    }
    bad |= end_child(child, 0);
    child = vfork();
    if (child == 0)
        _exit(8);
    bad |= end_child(child, 8);
    calls(make_comm(0), 10);
    return bad;
}

static int count_descriptors(int unused)
{
    (void)unused;
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

/* Descriptors in a program that this one starts, compared with one that never called NCCL. */
static int descriptors(int unused)
{
    (void)unused;
    int counts[2];
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", "inject-client", "count-descriptors", (char *)NULL);
            _exit(99);
        }
        int status;
        waitpid(child, &status, 0);
        counts[i] = WEXITSTATUS(status);
        calls(make_comm(0), 10);
    }
    return counts[0] == counts[1] ? 0 : 1;
}

/* Runs another program in its place, as wrappers and supervisors do. */
static int becomes(int unused)
{
    (void)unused;
    calls(make_comm(0), 10);
    usleep(600000);
    execl("/bin/sleep", "sleep", "60", (char *)NULL);
    return 1;
}

static void own_handler(int number)
{
    (void)number;
    static const char text[] = "own handler\n";
    if (write(STDOUT_FILENO, text, sizeof(text) - 1) < 0)
        _exit(98);
    _exit(42);
}

static void fall(void)
{
    static int *volatile nowhere = (int *)16;
    *nowhere = 1;
}

static int fault(int unused)
{
    (void)unused;
    calls(make_comm(0), 10);
    fall();
    return 0;
}

static int handled_fault(int early)
{
    if (early)
        signal(SIGSEGV, own_handler);
    calls(make_comm(0), 10);
    if (!early)
        signal(SIGSEGV, own_handler);
    fall();
    return 0;
}

static sigjmp_buf safe;

static void jump_back(int number)
{
    (void)number;
    siglongjmp(safe, 1);
}

/* A fault that the program expects and survives. */
static int recovers(int unused)
{
    (void)unused;
    signal(SIGSEGV, jump_back);
    ncclComm_t comm = make_comm(0);
    calls(comm, 10);
    if (sigsetjmp(safe, 1) == 0)
        fall();
    sleep(3);
    calls(comm, 10);
    return 3;
}

static int aborted(int unused)
{
    (void)unused;
    calls(make_comm(0), 10);
    abort();
}

static int raised(int number)
{
    calls(make_comm(0), 10);
    raise(number);
    pause();
    return 0;
}

static int quick(int status)
{
    calls(make_comm(0), 10);
    _exit(status);
}

static int quickest(int status)
{
    calls(make_comm(0), 10);
    quick_exit(status);
}

static int missing(int unused)
{
    (void)unused;
    ncclComm_t comm = make_comm(0);
    ncclResult_t result = ncclAlltoAll(NULL, NULL, 7, ncclFloat, comm, stream);
    calls(comm, 1);
    return result == ncclInvalidUsage ? 0 : 1;
}

static int keeps_errno(int unused)
{
    (void)unused;
    errno = 123;
    ncclComm_t comm = make_comm(0);
    calls(comm, 1000);
    ncclSend(NULL, 1, ncclFloat, 1, comm, stream);
    ncclCommDestroy(comm);
    return errno == 123 ? 0 : 1;
}

static int idle(int seconds)
{
    calls(make_comm(0), 10);
    sleep((unsigned)seconds);
    return 0;
}

/* Computes; a thread on a processor shows no registers. */
static int busy(int seconds)
{
    calls(make_comm(0), 10);
    for (time_t end = time(NULL) + seconds; time(NULL) < end;)
        ;
    return 0;
}

/* Stands in a call for as long as the stub blocks, another thread meanwhile outside NCCL. */
static void *wait_outside(void *unused)
{
    pause();
    return unused;
}

static int stuck(int unused)
{
    (void)unused;
    pthread_t other;
    ncclComm_t comm = make_comm(0);
    calls(comm, 10);
    pthread_create(&other, NULL, wait_outside, NULL);
    ncclCommFinalize(comm);
    return 0;
}

/* Prints resident private kilobytes. */
static int memory(int count)
{
    calls(make_comm(0), count);
    usleep(400000);
    calls(make_comm(0), count);
    char line[256];
    long total = 0, kb;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof(line), status))
        if (sscanf(line, "RssAnon: %ld", &kb) == 1)
            total += kb;
    fclose(status);
    printf("%ld\n", total);
    return 0;
}

static int change_directory(int unused)
{
    (void)unused;
    if (chdir("/") != 0)
        return 1;
    return ops(10);
}

static int nothing(int unused)
{
    (void)unused;
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int);
    } programs[] = {
        {"ops", ops},
        {"everything", everything},
        {"refused", refused},
        {"threads", threads},
        {"churn", churn},
        {"forks", forks},
        {"descriptors", descriptors},
        {"becomes", becomes},
        {"count-descriptors", count_descriptors},
        {"fault", fault},
        {"handled-fault", handled_fault},
        {"recovers", recovers},
        {"abort", aborted},
        {"raise", raised},
        {"_exit", quick},
        {"quick_exit", quickest},
        {"missing", missing},
        {"errno", keeps_errno},
        {"idle", idle},
        {"busy", busy},
        {"stuck", stuck},
        {"memory", memory},
        {"chdir", change_directory},
        {"nothing", nothing},
    };
    for (size_t i = 0; argc > 1 && i < sizeof(programs) / sizeof(programs[0]); i++)
        if (strcmp(argv[1], programs[i].name) == 0)
            return programs[i].run(argc > 2 ? atoi(argv[2]) : 0);
    fprintf(stderr, "inject-client: no such program\n");
    return 97;
}
