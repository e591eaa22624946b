/* The details of one process or one communicator, as a page of text that keeps itself up to date. */
#ifndef TOP_PAGE_H
#define TOP_PAGE_H

#include "fr-top/top.h"
#include "fr-tui/pane.h"

struct top_page {
    bool comm;   /* a communicator's page, else a process's */
    uint64_t id; /* uid or proc_uid */
    char **lines;
    enum tui_style *styles;
    size_t nlines, room;
};
extern const struct tui_pane_source top_page_source; /* context: struct top_page */

/* Writes the page anew; false (and an empty page) when the snapshot does not have the thing any more. */
bool top_page_fill(struct top_page *page, const struct top_snapshot *snapshot);
void top_page_clear(struct top_page *page);

#endif
