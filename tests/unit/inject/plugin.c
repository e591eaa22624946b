/* A library that is linked to NCCL, for opener.c. */
#include <nccl.h>

#include <string.h>

__attribute__((visibility("default"))) int call_nccl(void);
__attribute__((visibility("default"))) int call_nccl(void)
{
    ncclUniqueId id;
    ncclComm_t comm;
    memset(&id, 9, sizeof(id));
    if (ncclCommInitRank(&comm, 2, id, 0) != ncclSuccess)
        return 51;
    for (int i = 0; i < 10; i++)
        if (ncclAllReduce(NULL, NULL, 1, ncclFloat, ncclSum, comm, NULL) != ncclSuccess)
            return 52;
    return 0;
}
