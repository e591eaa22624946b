/* The tables of the screen: ranks, communicators, hosts, kinds of calls. Each can be a tree. */
#ifndef TOP_VIEWS_H
#define TOP_VIEWS_H

#include "fr-top/top.h"
#include "fr-tui/table.h"

enum { TOP_VIEW_RANKS, TOP_VIEW_COMMS, TOP_VIEW_HOSTS, TOP_VIEW_KINDS, TOP_TABLES };

/* What the sources of all views read; set before tui_table_update. */
struct top_view_data {
    const struct top_snapshot *snapshot;
};

struct top_view {
    const char *name;
    const struct tui_column *columns;
    unsigned ncolumns;
    struct tui_source source;
    /* Which process or communicator a row stands for; TOP_NONE. comm may be NULL: none ever. */
    uint32_t (*process)(const struct top_snapshot *snapshot, uint32_t row);
    uint32_t (*comm)(const struct top_snapshot *snapshot, uint32_t row);
};
extern const struct top_view top_view_ranks, top_view_comms, top_view_hosts, top_view_kinds;
extern const struct top_view *const top_views[TOP_TABLES];

enum tui_style top_state_style(enum top_state state);

/* Which process, if any, a row of a view stands for; TOP_NONE. */
uint32_t top_view_process(const struct top_snapshot *snapshot, unsigned view, size_t row);
/* Likewise the communicator (for a communicator's row, or a membership). */
uint32_t top_view_comm(const struct top_snapshot *snapshot, unsigned view, size_t row);

#endif
