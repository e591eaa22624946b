#include "fr-top/views.h"

const struct top_view *const top_views[TOP_TABLES] = {
    [TOP_VIEW_RANKS] = &top_view_ranks,
    [TOP_VIEW_COMMS] = &top_view_comms,
    [TOP_VIEW_HOSTS] = &top_view_hosts,
    [TOP_VIEW_KINDS] = &top_view_kinds,
};

uint32_t top_view_process(const struct top_snapshot *snapshot, unsigned view, size_t row)
{
    return row == TUI_NO_ROW ? TOP_NONE : top_views[view]->process(snapshot, (uint32_t)row);
}

uint32_t top_view_comm(const struct top_snapshot *snapshot, unsigned view, size_t row)
{
    bool none = row == TUI_NO_ROW || top_views[view]->comm == NULL;
    return none ? TOP_NONE : top_views[view]->comm(snapshot, (uint32_t)row);
}
