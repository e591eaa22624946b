/*
 * For stub-nccl.c: collectives that tell a profiler plugin what NCCL 2.29 and later tell of them, from the
 * call to the two channels of the kernel. The plugin is the one of NCCL_PROFILER_PLUGIN (STATIC_PLUGIN or a
 * path).
 */
#ifndef STUB_TOLD_H
#define STUB_TOLD_H

#include <stddef.h>

/* One communicator, of rank 0 of 8. */
void told_comm(const void *id);
void told_all_reduce(size_t count, void *stream);
/* What NCCL's proxy thread does a little later: kernels began and ended. Returns how many. */
int told_report(void) __attribute__((visibility("default")));

#endif
