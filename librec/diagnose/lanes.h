/*
 * Lanes: what the members of one communicator issued from one seq on, side by side. Members
 * that are known to have issued the same share a lane.
 */
#ifndef DIAG_LANES_H
#define DIAG_LANES_H

#include "diag.h"

#define LANE_OPS 48

struct lane {
    uint32_t first_member, nmembers; /* into lanes.members: who issued this */
    struct diag_op first;            /* the op at the first seq, of the first member */
    uint64_t sigs[LANE_OPS];
    uint64_t creations; /* bit k: op k makes a communicator */
    uint32_t nops;      /* known without a hole from the first seq on; 0 = nothing */
    uint32_t class_id;  /* lanes with the same op at the first seq */
};

struct lanes {
    struct rec_communicator *comm;
    uint64_t seq; /* of the first op */
    struct lane *items;
    size_t count;
    struct rec_member **members;
    bool from_checkpoint;
};

/* From the loaded windows. False without memory. */
bool lanes_from_tail(struct diag *d, struct rec_communicator *comm, uint64_t seq, struct lanes *lanes);

/*
 * From a checkpoint window whose hashes differ: reads one member per hash again and finds
 * the first seq where they disagree. lanes->count is 0 when the records do not show it.
 */
enum rec_code lanes_from_checkpoint(struct diag *d, struct rec_communicator *comm, uint64_t window,
                                    struct lanes *lanes);
void lanes_free(struct lanes *lanes);

#endif
