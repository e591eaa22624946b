#include "stub-told.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "inject.h"
#include "plugin-abi.h"

#define CHANNELS 2

static const struct plugin_v5 *plugin;
static void *context;
static int mask;
static void *tasks[4096];
static int ntasks;

/* Of the recorder's identity.c, which knows how NCCL hashes an id; only one thread is here. */
void slow_lock(void)
{
}

void slow_unlock(void)
{
}

void told_comm(const void *id)
{
    const char *name = getenv("NCCL_PROFILER_PLUGIN");
    void *library = name ? dlopen(strcasecmp(name, "STATIC_PLUGIN") ? name : NULL, RTLD_NOW) : NULL;
    plugin = library ? dlsym(library, "ncclProfiler_v6") : NULL;
    if (plugin)
        plugin->init(&context, nccl_hash_init(22900, id), &mask, NULL, 1, 8, 0, NULL);
}

static void *start(struct plugin_descr *descr)
{
    void *handle = NULL;
    plugin->start_event(context, &handle, descr);
    return handle;
}

static void stop(void *handle)
{
    if (handle)
        plugin->stop_event(handle);
}

static void state(void *handle, int what, union plugin_state_args *args)
{
    if (handle)
        plugin->record_event_state(handle, what, args);
}

void told_all_reduce(size_t count, void *stream)
{
    if (!plugin || !mask)
        return;
    struct plugin_descr descr = {.type = PLUGIN_GROUP_API, .group_api.depth = 1};
    void *group = start(&descr);
    state(group, PLUGIN_STATE_GROUP_END_API_START - 1, NULL);
    memset(&descr, 0, sizeof(descr));
    descr.type = PLUGIN_COLL_API;
    descr.parent = group;
    descr.coll_api.func = "AllReduce";
    descr.coll_api.count = count;
    descr.coll_api.datatype = "ncclFloat32";
    descr.coll_api.stream = stream;
    void *api = start(&descr);
    stop(api);
    state(group, PLUGIN_STATE_GROUP_END_API_START, NULL);
    memset(&descr, 0, sizeof(descr));
    descr.type = PLUGIN_GROUP;
    stop(start(&descr));
    memset(&descr, 0, sizeof(descr));
    descr.type = PLUGIN_COLL;
    descr.parent = api;
    descr.coll.func = "AllReduce";
    descr.coll.count = count;
    descr.coll.datatype = "ncclFloat32";
    descr.coll.nchannels = CHANNELS;
    void *task = start(&descr);
    stop(task);
    if (task && ntasks < (int)(sizeof(tasks) / sizeof(tasks[0])))
        tasks[ntasks++] = task;
    stop(group);
}

static uint64_t timer(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int told_report(void)
{
    int reported = ntasks;
    for (int i = 0; i < ntasks; i++) {
        void *kernels[CHANNELS];
        for (uint8_t c = 0; c < CHANNELS; c++) {
            struct plugin_descr descr = {.type = PLUGIN_KERNEL_CH, .parent = tasks[i]};
            descr.kernel_ch.channel = c;
            descr.kernel_ch.timer = timer();
            kernels[c] = start(&descr);
        }
        for (int c = 0; c < CHANNELS; c++) {
            union plugin_state_args args = {.kernel_ch.timer = timer()};
            state(kernels[c], PLUGIN_STATE_KERNEL_CH_STOP, &args);
            stop(kernels[c]);
        }
    }
    ntasks = 0;
    return reported;
}
