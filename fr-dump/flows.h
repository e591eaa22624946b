/*
 * Which calls belong together: those of one collective on all its ranks, a send and its
 * receive. A first walk over the calls notes of each such set who came first and who last; the
 * second is told what to draw. Memory is bounded: beyond FLOWS_MAX sets there are no arrows.
 */
#ifndef FR_DUMP_FLOWS_H
#define FR_DUMP_FLOWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/job.h"

#define FLOWS_MAX (1u << 20) /* about 80 MB */

struct flows {
    struct flow {
        uint64_t id; /* 0 = free */
        uint64_t first_ns, last_ns;
        uint32_t first_process, last_process;
        uint32_t count;
        bool began, ended; /* already drawn */
    } * items;
    size_t count, room;
    bool full; /* some sets were left out */
};

enum flow_phase { FLOW_NONE, FLOW_BEGIN, FLOW_STEP, FLOW_END };

/* Where on the call's slice the arrow is tied: at its beginning, for a receive at its end. */
uint64_t flow_time(const struct rec_process *process, const struct rec_op *op);

/* First walk; false without memory. */
bool flows_note(struct flows *flows, const struct rec_process *process, const struct rec_op *op);
/* Second walk. Exactly one call of a set begins its arrow, one ends it, and in the order of time. */
enum flow_phase flows_phase(struct flows *flows, const struct rec_process *process, const struct rec_op *op,
                            uint64_t *id);
void flows_fini(struct flows *flows);

#endif
