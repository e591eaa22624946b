/*
 * CUDA graphs with NCCL calls in them: which graph a captured call went into, and every launch of it.
 *
 * The CUDA runtime, shared or linked statically, gets the driver's functions from cuGetProcAddress, and that
 * one, as programs that open the driver themselves get all of them, from dlsym. So dlsym hands out our forms
 * of the few functions that make, replace, launch and destroy graphs. Each calls the driver's with the
 * caller's own arguments, once and unconditionally; until an NCCL call has been captured they do nothing
 * else.
 *
 * Graphs are numbered 1, 2, … in the order of their first captured NCCL call. What is instantiated from a
 * graph keeps its number. Numbers end at 65,535; later graphs, and those whose making was not seen
 * (clones, graphs inside graphs), have none, and their launches are not recorded.
 */
#ifndef INJECT_GRAPHS_H
#define INJECT_GRAPHS_H

#include <stdint.h>

/* What dlsym is to return for this function of the driver. Async-signal-safe, takes no lock. */
void *graphs_wrap(const char *symbol, void *found);

/* A call is being captured on this stream: the number of the graph it goes into; 0 = launches of it
 * will not be seen. */
uint16_t graphs_captured(void *stream);

void graphs_forget(void); /* child of a fork */

#endif
