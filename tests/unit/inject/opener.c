/*
 * A program that is not linked to NCCL and opens it itself, as ctypes, XLA or CuPy do:
 * inject-opener NCCL [ANOTHER_NCCL]. Exit status 0 when all that it could see is right.
 */
#include <nccl.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

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

int main(int argc, char **argv)
{
    if (dlsym(RTLD_DEFAULT, "ncclAllReduce") || !dlsym(RTLD_DEFAULT, "printf") || dlsym(RTLD_NEXT, "main"))
        return 20;
    for (int i = 1; i < argc; i++) {
        int bad = use(argv[i], i - 1);
        if (bad)
            return bad;
    }
    return 0;
}
