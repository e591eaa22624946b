/* What every process was doing at the last refreshes: the data of the history view. */
#ifndef TOP_LANES_H
#define TOP_LANES_H

#include "fr-top/top.h"
#include "fr-tui/chart.h"
#include "fr-tui/timeline.h"

struct top_lane {
    uint64_t proc_uid;
    uint64_t first;              /* refresh at which the lane begins */
    uint8_t states[TUI_HISTORY]; /* enum top_state + 1 at refresh n % TUI_HISTORY; 0 = not seen */
};

struct top_lanes {
    struct top_lane *lanes; /* by proc_uid */
    size_t nlanes;
    uint64_t refreshes;  /* so far */
    double seconds_each; /* between refreshes */
    const struct top_snapshot *snapshot;
};
extern const struct tui_timeline_source top_lanes_source; /* context: struct top_lanes */

/* Adds a refresh. Without memory the lanes stay as they are. */
void top_lanes_push(struct top_lanes *lanes, const struct top_snapshot *snapshot);
void top_lanes_clear(struct top_lanes *lanes);

/* The mark of a state: a letter where it matters, so that colour adds nothing but comfort. */
struct tui_mark top_state_mark(enum top_state state);

#endif
