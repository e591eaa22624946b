/*
 * A program that is not linked to NCCL and opens it itself, as ctypes, XLA or CuPy do:
 * inject-opener NCCL [ANOTHER_NCCL]. With "threads" before them, threads use both in turns, and
 * their first calls come at once; with "fork", a child and then its parent open the library; with "plugin" or
 * "deepbind", it is a library that is linked to NCCL.
 * Exit status 0 when all that it could see is right.
 */
#include <nccl.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef ncclResult_t init_fn(ncclComm_t *, int, ncclUniqueId, int);
typedef ncclResult_t all_reduce_fn(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                   cudaStream_t);
typedef ncclResult_t count_fn(ncclComm_t, int *);

static int use(const char *path, int rank)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return 10;
    init_fn *init = (init_fn *)dlsym(library, "ncclCommInitRank");
    all_reduce_fn *all_reduce = (all_reduce_fn *)dlsym(library, "ncclAllReduce");
    count_fn *count = (count_fn *)dlsym(library, "ncclCommCount");
    if (!init || !all_reduce || !count)
        return 11;
    /* A function that this library lacks must not appear; the old stub has no AlltoAll. */
    dlerror();
    void *all_to_all = dlsym(library, "ncclAlltoAll");
    if (strstr(path, "old") ? all_to_all != NULL || !dlerror() : all_to_all == NULL)
        return 12;
    ncclUniqueId id;
    memset(&id, rank + 1, sizeof(id));
    ncclComm_t comm;
    int nranks = 0;
    if (init(&comm, 4 + rank, id, rank) != ncclSuccess || count(comm, &nranks) != ncclSuccess ||
        nranks != 4 + rank)
        return 13;
    for (int i = 0; i < 10; i++)
        all_reduce(NULL, NULL, 1, ncclFloat, ncclSum, comm, NULL);
    return 0;
}

/* ---- two libraries in turns ---- */

#define THREADS 8
#define TURNS   100

static struct side {
    init_fn *init;
    all_reduce_fn *all_reduce;
    ncclResult_t answer;
} sides[2];
static pthread_barrier_t together;

static void *take_turns(void *unused)
{
    (void)unused;
    ncclUniqueId id;
    ncclComm_t comms[2];
    memset(&id, 5, sizeof(id));
    pthread_barrier_wait(&together);
    for (int i = 0; i < 2; i++)
        if (sides[i].init(&comms[i], 2, id, i) != ncclSuccess)
            return "init";
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < 2; i++)
            if (sides[i].all_reduce(NULL, NULL, 1, ncclFloat, ncclSum, comms[i], NULL) != sides[i].answer)
                return "the other library";
    return NULL;
}

static int in_threads(const char *const *paths)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < 2; i++) {
        void *library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
        if (!library)
            return 10;
        sides[i].init = (init_fn *)dlsym(library, "ncclCommInitRank");
        sides[i].all_reduce = (all_reduce_fn *)dlsym(library, "ncclAllReduce");
        sides[i].answer = i ? ncclInProgress : ncclSuccess;
    }
    pthread_barrier_init(&together, NULL, THREADS);
    int bad = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, take_turns, NULL);
    for (int i = 0; i < THREADS; i++) {
        void *problem;
        pthread_join(threads[i], &problem);
        bad |= problem != NULL;
    }
    return bad ? 30 : 0;
}

static int after_fork(const char *path)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        int bad = use(path, 0);
        exit(bad);
    }
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status))
        return 40;
    return use(path, 1);
}

static int through_plugin(const char *path, int flags)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | flags);
    int (*call)(void) = library ? (int (*)(void))dlsym(library, "call_nccl") : NULL;
    return call ? call() : 50;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "plugin") == 0)
        return through_plugin(argv[2], 0);
    if (argc == 3 && strcmp(argv[1], "deepbind") == 0)
        return through_plugin(argv[2], RTLD_DEEPBIND);
    if (argc == 4 && strcmp(argv[1], "threads") == 0)
        return in_threads((const char *const *)argv + 2);
    if (argc == 3 && strcmp(argv[1], "fork") == 0)
        return after_fork(argv[2]);
    if (dlsym(RTLD_DEFAULT, "ncclAllReduce") || !dlsym(RTLD_DEFAULT, "printf") || dlsym(RTLD_NEXT, "main"))
        return 20;
    for (int i = 1; i < argc; i++) {
        int bad = use(argv[i], i - 1);
        if (bad)
            return bad;
    }
    return 0;
}
