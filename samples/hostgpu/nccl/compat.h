/* nccl.h, and what the releases up to 2.32 add to it: so that one build makes a library for each of them.
 *
 * Facts from nccl.h of NCCL 2.29 and 2.30, for 2.31 and 2.32 from its documentation. NCCL only ever appends
 * to these structures, and each tells its own size.
 */
#ifndef LAB_COMPAT_H
#define LAB_COMPAT_H

#include <limits.h>
#include <nccl.h>
#include <stdint.h>

#if NCCL_VERSION_CODE < 22809
#error "the lab needs nccl.h of NCCL 2.28.9 or newer"
#endif

#define LAB_API_MAGIC 0xcafebeefu /* of every structure below, in `magic` */

/* ---- 2.29 ---- */

#if NCCL_VERSION_CODE < 22902
typedef struct {
    int opCnt; /* signals to wait for */
    int peer;
    int sigIdx;
    int ctx;
} ncclWaitSignalDesc_t;

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                          ncclConfig_t *config);
ncclResult_t pncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                           ncclConfig_t *config);
ncclResult_t ncclPutSignal(const void *local, size_t count, ncclDataType_t type, int peer,
                           ncclWindow_t peer_window, size_t offset, int signal, int context, unsigned flags,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclPutSignal(const void *local, size_t count, ncclDataType_t type, int peer,
                            ncclWindow_t peer_window, size_t offset, int signal, int context, unsigned flags,
                            ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSignal(int peer, int signal, int context, unsigned flags, ncclComm_t comm,
                        cudaStream_t stream);
ncclResult_t pncclSignal(int peer, int signal, int context, unsigned flags, ncclComm_t comm,
                         cudaStream_t stream);
ncclResult_t ncclWaitSignal(int n, ncclWaitSignalDesc_t *what, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclWaitSignal(int n, ncclWaitSignalDesc_t *what, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void **pointer);
ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void **pointer);
#endif

#if NCCL_VERSION_CODE < 22907
#define NCCL_SUSPEND_MEM         0x01
#define NCCL_WIN_STRICT_ORDERING 0x02

typedef enum {
    ncclStatGpuMemSuspend = 0,   /* bytes that could be suspended */
    ncclStatGpuMemSuspended = 1, /* whether they are */
    ncclStatGpuMemPersist = 2,   /* bytes that cannot */
    ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t pncclCommResume(ncclComm_t comm);
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value);
ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value);
#endif

#if NCCL_VERSION_CODE < 23003
#define ncclTimeout ((ncclResult_t)8)
#endif

/* ---- 2.31: a configuration for one call ---- */

#if NCCL_VERSION_CODE < 23102
typedef struct ncclCollConfig_v23200 {
    size_t size; /* 64 in 2.31, which has no launchCompletionEvent */
    unsigned magic;
    unsigned version;
    void *ext;
    int minCTAs;
    int maxCTAs;
    int nvlsCTAs;
    int cgaClusterSize;
    const char *algSelection;
    int forceAlgSelection;
    int CTAPolicy;
    uint64_t userProfilerTag;
    cudaEvent_t launchCompletionEvent;
} ncclCollConfig_t;

ncclResult_t ncclAllReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                 ncclRedOp_t redop, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t *config);
ncclResult_t pncclAllReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclRedOp_t redop, ncclComm_t comm, cudaStream_t stream,
                                  const ncclCollConfig_t *config);
ncclResult_t ncclBroadcastConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t pncclBroadcastConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                  ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                              ncclRedOp_t redop, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t *config);
ncclResult_t pncclReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t redop, int root, ncclComm_t comm, cudaStream_t stream,
                               const ncclCollConfig_t *config);
ncclResult_t ncclAllGatherConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t pncclAllGatherConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclReduceScatterConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                     ncclRedOp_t redop, ncclComm_t comm, cudaStream_t stream,
                                     const ncclCollConfig_t *config);
ncclResult_t pncclReduceScatterConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                      ncclRedOp_t redop, ncclComm_t comm, cudaStream_t stream,
                                      const ncclCollConfig_t *config);
ncclResult_t ncclAlltoAllConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t pncclAlltoAllConfig(const void *send, void *recv, size_t count, ncclDataType_t type,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclGatherConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t pncclGatherConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclScatterConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t pncclScatterConfig(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
#endif

/* ---- 2.32 ---- */

#if NCCL_VERSION_CODE < 23203
#define NCCL_WIN_GIN_ONLY        0x04
#define NCCL_ENCRYPTION_MODE_PSK 1

typedef struct {
    size_t size;
    unsigned magic;
    unsigned version;
    int mode;
    const char *psk;
} ncclEncryptionConfig_t;

ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t *config);
ncclResult_t pncclSetEncryption(const ncclEncryptionConfig_t *config);
#endif

#endif
