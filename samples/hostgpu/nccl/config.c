#include "config.h"

#include "comm.h"
#include "export.h"
#include "version.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ncclConfig_t of 2.32; the one of any release is a prefix of it. */
struct layout {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
    int collnet_enable, cta_policy, shrink_share, nvls_ctas;
    int channels_per_net_peer, nvlink_centric_sched;
    int graph_usage_mode, rma_contexts;
    int max_p2p_peers;
    int graph_stream_ordering;
    int launch_order_implicit, rma_signals, rma_eager_init, host_cft_mode;
    int nvls_host_mode;
};

/* ncclCollConfig_t of 2.32; that of 2.31 ends before the event. */
struct coll_layout {
    size_t size;
    unsigned magic, version;
    const void *extensions;
    int min_ctas, max_ctas, nvls_ctas, cga_cluster_size;
    const char *algorithms;
    int force_algorithms, cta_policy;
    uint64_t profiler_tag;
    cudaEvent_t launch_completion_event;
};

/* sizeof(ncclConfig_t), from which release on. */
static const struct {
    int since;
    size_t bytes;
} known[] = {
    {21700, 48},  /* to split_share */
    {22703, 72},  /* to nvls_ctas */
    {22803, 80},  /* to nvlink_centric_sched */
    {22902, 88},  /* to rma_contexts */
    {23003, 96},  /* to max_p2p_peers, then graph_stream_ordering */
    {23102, 112}, /* to host_cft_mode */
    {23203, 120}, /* to nvls_host_mode */
};

_Static_assert(offsetof(struct layout, comm_name) == 48 && offsetof(struct layout, nvls_host_mode) == 112 &&
                   sizeof(struct layout) == 120,
               "ncclConfig_t as NCCL lays it out");
_Static_assert(offsetof(struct coll_layout, launch_completion_event) == 64 &&
                   sizeof(struct coll_layout) == 72,
               "ncclCollConfig_t as NCCL lays it out");

static size_t known_bytes(void)
{
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known && known[i].since <= lab_nccl_version; i++)
        bytes = known[i].bytes;
    return bytes;
}

ncclResult_t lab_config_read(const ncclConfig_t *from, const struct lab_config *inherited,
                             struct lab_config *to)
{
    *to = inherited ? *inherited : (struct lab_config){.nonblocking = false};
    if (!from)
        return ncclSuccess;
    struct layout config = {.blocking = NCCL_CONFIG_UNDEF_INT};
    size_t size, bytes = known_bytes();
    memcpy(&size, from, sizeof size);
    if (size < offsetof(struct layout, blocking))
        return lab_error(ncclInvalidArgument, "ncclConfig_t of %zu bytes", size);
    memcpy(&config, from, size < bytes ? size : bytes);
    if (config.magic != LAB_API_MAGIC)
        return lab_error(ncclInvalidArgument,
                         "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    if (config.blocking != NCCL_CONFIG_UNDEF_INT && config.blocking != 0 && config.blocking != 1)
        return lab_error(ncclInvalidArgument, "Invalid config blocking attribute value %d", config.blocking);
    to->nonblocking = config.blocking == 0; /* undefined means blocking */
    snprintf(to->name, sizeof to->name, "%s", config.comm_name ? config.comm_name : "");
    return ncclSuccess;
}

ncclResult_t lab_coll_config_read(const ncclCollConfig_t *from, cudaEvent_t *event, const char *name)
{
    const size_t first_bytes = offsetof(struct coll_layout, launch_completion_event);
    struct coll_layout config = {.size = 0};
    *event = NULL;
    if (!from)
        return ncclSuccess;
    memcpy(&config.size, from, sizeof config.size);
    if (config.size < first_bytes)
        return lab_error(ncclInvalidArgument, "%s : ncclCollConfig_t size %zu too small", name, config.size);
    bool has_event = lab_nccl_version >= 23203 && config.size >= sizeof config;
    memcpy(&config, from, has_event ? sizeof config : first_bytes);
    if (config.magic != LAB_API_MAGIC)
        return lab_error(ncclInvalidArgument, "%s : ncclCollConfig_t was not initialised", name);
    if (config.force_algorithms != 0 && config.force_algorithms != 1)
        return lab_error(ncclInvalidArgument, "%s : forceAlgSelection is %d", name, config.force_algorithms);
    *event = config.launch_completion_event;
    return ncclSuccess;
}

/* There are no sockets to encrypt: only the configuration is checked. */
ncclResult_t pncclSetEncryption(const ncclEncryptionConfig_t *config)
{
    if (!config || config->size <= offsetof(ncclEncryptionConfig_t, mode))
        return config ? lab_error(ncclInvalidArgument, "ncclSetEncryption : config is too small")
                      : ncclSuccess;
    if (config->magic != LAB_API_MAGIC)
        return lab_error(ncclInvalidArgument, "ncclSetEncryption : config was not initialised");
    if (config->mode == 0)
        return ncclSuccess;
    if (config->mode != NCCL_ENCRYPTION_MODE_PSK || config->size < sizeof *config)
        return lab_error(ncclInvalidArgument, "ncclSetEncryption : mode %d", config->mode);
    if (!config->psk || strlen(config->psk) < 32)
        return lab_error(ncclInvalidArgument, "ncclSetEncryption : a key of at least 32 bytes is needed");
    return ncclSuccess;
}
LAB_EXPORT(ncclSetEncryption);
