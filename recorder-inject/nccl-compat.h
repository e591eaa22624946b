/*
 * nccl.h, and what newer releases added to it that the intercepted functions need: so that one
 * build covers every NCCL that may be loaded. The layouts are NCCL's ABI (append only).
 */
#ifndef INJECT_NCCL_COMPAT_H
#define INJECT_NCCL_COMPAT_H

#include <nccl.h>

#include <stddef.h>

#if NCCL_VERSION_CODE < 22203
typedef struct ncclSimInfo_v22200 ncclSimInfo_t;
#endif
#if NCCL_VERSION_CODE < 22703
typedef struct ncclWindow *ncclWindow_t;
#endif
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
#define CONFIG_MAGIC        0xcafebeefu
#define CONFIG_VERSION_NAME 22700

#endif
