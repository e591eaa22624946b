/*
 * Meetings: calls of a communicator that are none of its sequence, but in which its members meet all the
 * same, in an order of their own. They become ops of a *meeting*, a communicator of our own with the members
 * of the real one, whose seq counts them. All later phases treat it as any other; at the end findings name
 * the real one.
 */
#ifndef DIAG_MEETINGS_H
#define DIAG_MEETINGS_H

#include "diag.h"

struct meeting_rule {
    uint64_t salt; /* tells rules apart */
    /*
     * How many such calls this member of the real communicator made, UINT64_MAX where records of some may
     * be missing; false: there is no meeting.
     */
    bool (*came)(const struct diag *d, const struct rec_member *real, uint64_t place, uint64_t *calls);
    bool teardown; /* tearing the communicator down ends it, too; the place is no seq */
};

/*
 * The membership in the meeting at this place of the real member's communicator, which is made when it is
 * first asked for. NULL: there is none, or no memory.
 */
struct rec_member *diag_meeting_member(struct diag *d, const struct rec_member *real,
                                       const struct meeting_rule *rule, uint64_t place);

/* ---- graphs.c, hostcalls.c: calls as ops of meetings, while loading ---- */
void diag_graphs(struct diag *d);
void diag_host_calls(struct diag *d);

#endif
