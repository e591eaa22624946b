/* What stands above all views: who runs, how fast, whom to look at first, the verdict. */
#ifndef TOP_HEADER_H
#define TOP_HEADER_H

#include "fr-top/top.h"
#include "fr-tui/chart.h"

struct top_header {
    const struct top_snapshot *snapshot;
    struct tui_history ops, bytes; /* per second, at the last refreshes */
    bool diagnosed;                /* there is, or will be, a verdict */
    bool all_runs;                 /* earlier runs of the job are shown */
};

/* Draws it at the top of a screen of this size. Returns the lines used. What does not fit is left out. */
int top_header_draw(const struct top_header *header, int rows, int columns);

#endif
