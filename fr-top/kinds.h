/*
 * How much of which kind of call: calls, sizes and bandwidths as nccl-tests defines them.
 * Pure; part of top.h.
 */
#ifndef TOP_KINDS_H
#define TOP_KINDS_H

#include <stdint.h>

#include "rec/event.h"

#define TOP_KINDS 11

/* 0 … TOP_KINDS-1 for kinds that move data (Bcast is a Broadcast), TOP_KINDS for others; and back. */
unsigned top_kind_index(unsigned kind);
unsigned top_kind_at(unsigned index);

/* What was seen between two readings of a process. */
struct top_kind_sum {
    uint64_t calls;
    double size, bus; /* bytes */
    double timed_bus; /* of the calls whose time on the GPU is known */
    uint64_t timed_ns;
};

/* Of the last seconds; all 0 where there was none. */
struct top_kind_rate {
    double calls, size, bus;   /* per second */
    double timed_bus, timed_s; /* per second, too: their quotient is the bandwidth while on the GPU */
};

/*
 * Adds a call that a member of a communicator of nranks (0 unknown) made. Its size is that of the
 * larger of the two buffers; its bus bytes are what the links of each rank must carry at least,
 * so that their rate can be compared with the hardware's whatever the collective and nranks.
 */
void top_kind_add(struct top_kind_sum sums[TOP_KINDS], const struct rec_op *op, uint32_t nranks);

/*
 * Takes sums over so many seconds into the rates: a mean in which the last seconds count most. A
 * part of the calls may have stood for all: scale. fresh = there is no earlier rate.
 */
void top_kind_update(struct top_kind_rate rates[TOP_KINDS], const struct top_kind_sum sums[TOP_KINDS],
                     double seconds, double scale, bool fresh);

#endif
