/*
 * nccl.h, and what newer releases added to it that the intercepted functions need: so that one
 * build covers every NCCL that may be loaded. The layouts are NCCL's ABI (append only).
 */
#ifndef INJECT_NCCL_COMPAT_H
#define INJECT_NCCL_COMPAT_H

#include <nccl.h>

#include <stddef.h>
#include <stdint.h>

#if NCCL_VERSION_CODE < 22203
typedef struct ncclSimInfo_v22200 ncclSimInfo_t;
#endif
#if NCCL_VERSION_CODE < 22703
typedef struct ncclWindow *ncclWindow_t;
#endif
/* nccl_device.h, which is for kernels, declares these. */
typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
#if NCCL_VERSION_CODE < 22902
typedef struct ncclWaitSignalDesc ncclWaitSignalDesc_t;
#endif
#if NCCL_VERSION_CODE < 23102
typedef struct ncclCollConfig ncclCollConfig_t;
#endif

/*
 * The fields of ncclConfig_t that are read, at their places in every layout since 2.14
 * (blocking) and 2.27 (commName). config->size says how far the caller's struct reaches.
 */
struct config_prefix {
    size_t size;
    unsigned int magic; /* CONFIG_MAGIC */
    unsigned int version;
    int blocking;
    int cga_cluster_size;
    int min_ctas;
    int max_ctas;
    const char *net_name;
    int split_share;
    int traffic_class;     /* 2.26 */
    const char *comm_name; /* 2.27 */
};
/* ncclWaitSignalDesc_t, 2.29. */
struct wait_signal {
    int signals;
    int peer;
    int signal_index;
    int context;
};

/* All signals that the descriptions name. */
static inline uint64_t wait_signal_count(int n, const void *descriptions)
{
    const struct wait_signal *what = descriptions;
    uint64_t count = 0;
    for (int i = 0; what && i < n; i++)
        count += what[i].signals > 0 ? (uint64_t)what[i].signals : 0;
    return count;
}

/* From whom they come; -1 from several. */
static inline int wait_signal_peer(int n, const void *descriptions)
{
    const struct wait_signal *what = descriptions;
    int peer = what && n > 0 ? what[0].peer : -1;
    for (int i = 1; peer >= 0 && i < n; i++)
        if (what[i].peer != peer)
            return -1;
    return peer;
}

#define CONFIG_MAGIC        0xcafebeefu
#define CONFIG_VERSION_NAME 22700

#endif
