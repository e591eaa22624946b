/*
 * The recorder as NCCL's own profiler plugin, where FREC_GPU=plugin asks for it, or NCCL_PROFILER_PLUGIN
 * names our file: NCCL tells of calls, of what it hands over to the GPU, and, on its proxy threads, when each
 * kernel really begins and ends.
 *
 * Calls that went through our wrappers are recorded there, and only their launches are followed here. Calls
 * of an NCCL that cannot be intercepted (linked statically, or the recorder is not preloaded) are recorded
 * here (plugin_record.h). Where nobody asks, the exported tables do nothing, and our dlsym hides them, so
 * that somebody else's static plugin is found.
 */
#ifndef INJECT_PLUGIN_H
#define INJECT_PLUGIN_H

#include <stdbool.h>
#include <stdint.h>

#include "inject.h"

/* Does NCCL tell of this communicator's launches? */
static inline bool plugin_tells(uint16_t comm)
{
    return comm != REC_LIVE_NONE16 && atomic_load_explicit(&comm_private[comm].told, memory_order_relaxed);
}

/* NCCL has made us its plugin, for one communicator at least. */
bool plugin_in_use(void);
/* The rank and size of this communicator are known: joins it with what NCCL has told of it. */
void plugin_adopt(uint16_t comm);
/* dlsym for the names of plugins' tables. */
bool plugin_is_table(const char *name);
void *plugin_table(void *handle, const char *name);
void plugin_forget(void); /* child of a fork */

#endif
