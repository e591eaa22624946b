#include "fr-top/kinds.h"

#include <math.h>
#include <string.h>

#define MEAN_S 3.0 /* what lies so far back counts for a third */

static const uint8_t kinds[TOP_KINDS] = {REC_ALL_REDUCE, REC_ALL_GATHER, REC_REDUCE_SCATTER, REC_BROADCAST,
                                         REC_REDUCE,     REC_ALL_TO_ALL, REC_GATHER,         REC_SCATTER,
                                         REC_SEND,       REC_RECV,       REC_PUT_SIGNAL};

unsigned top_kind_index(unsigned kind)
{
    unsigned index = 0, same = rec_kind_canonical(kind);
    while (index < TOP_KINDS && kinds[index] != same)
        index++;
    return index;
}

unsigned top_kind_at(unsigned index)
{
    return kinds[index];
}

/* The count is that of one of as many parts as there are ranks. */
static bool counts_part(unsigned kind)
{
    return kind == REC_ALL_GATHER || kind == REC_REDUCE_SCATTER || kind == REC_ALL_TO_ALL ||
           kind == REC_GATHER || kind == REC_SCATTER;
}

/* Bus bytes per byte of count x size. Of nccl-tests, doc/PERFORMANCE.md. */
static double bus_factor(unsigned kind, double n)
{
    if (kind == REC_ALL_REDUCE)
        return 2 * (n - 1) / n;
    return counts_part(kind) ? n - 1 : 1;
}

void top_kind_add(struct top_kind_sum sums[TOP_KINDS], const struct rec_op *op, uint32_t nranks)
{
    unsigned index = top_kind_index(op->kind);
    if (index == TOP_KINDS)
        return;
    struct top_kind_sum *sum = &sums[index];
    double n = nranks > 0 ? nranks : 1, bytes = (double)op->count * rec_dtype_size(op->dtype);
    double bus = bytes * bus_factor(kinds[index], n);
    sum->calls++;
    sum->size += counts_part(kinds[index]) ? bytes * n : bytes;
    sum->bus += bus;
    if (op->gpu_start_ns != 0 && op->gpu_end_ns > op->gpu_start_ns) {
        sum->timed_bus += bus;
        sum->timed_ns += op->gpu_end_ns - op->gpu_start_ns;
    }
}

static void follow(double *mean, double now, double weight)
{
    *mean += weight * (now - *mean);
}

void top_kind_update(struct top_kind_rate rates[TOP_KINDS], const struct top_kind_sum sums[TOP_KINDS],
                     double seconds, double scale, bool fresh)
{
    double weight = fresh ? 1 : 1 - exp(-seconds / MEAN_S);
    for (unsigned k = 0; k < TOP_KINDS && seconds > 0; k++) {
        struct top_kind_rate *rate = &rates[k];
        follow(&rate->calls, (double)sums[k].calls * scale / seconds, weight);
        follow(&rate->size, sums[k].size * scale / seconds, weight);
        follow(&rate->bus, sums[k].bus * scale / seconds, weight);
        follow(&rate->timed_bus, sums[k].timed_bus * scale / seconds, weight);
        follow(&rate->timed_s, (double)sums[k].timed_ns / 1e9 * scale / seconds, weight);
        if (rate->calls < 0.005) /* long ago */
            memset(rate, 0, sizeof *rate);
    }
}
