/* Inside of the table, shared by table.c (logic) and table_draw.c (screen). */
#ifndef TUI_TABLE_IMPL_H
#define TUI_TABLE_IMPL_H

#include "fr-tui/table.h"

#define TUI_MAX_COLUMNS 32

/* Open-addressing set of ids; key 0 is kept apart. */
struct tui_ids {
    uint64_t *slots;
    size_t capacity, count;
    bool zero;
};

struct tui_line_view {
    uint32_t row;
    uint32_t rails; /* bit d: an ancestor at depth d has further siblings below */
    uint8_t depth;
    bool parent, last, open;
};

struct tui_table {
    const struct tui_column *columns;
    const struct tui_source *source;
    void *context;
    unsigned ncolumns;
    unsigned sort;
    bool descending, tree, open_by_default, follow;
    bool moved; /* the user chose a line: from then on the selection stays with its id */
    char filter[128];

    struct tui_line_view *lines;
    size_t nlines;
    uint64_t selected_id;
    size_t selected; /* line */
    size_t top;      /* first line on screen */
    int scroll;      /* cells to the right */
    struct tui_ids tagged, toggled;

    uint32_t hidden;       /* bit c: the user does not want column c */
    struct tui_rect place; /* of the last draw */
    unsigned order[TUI_MAX_COLUMNS], shown, fit;
    int widths[TUI_MAX_COLUMNS], at[TUI_MAX_COLUMNS]; /* by column number; cells from the left */
    int total;
};

bool tui_ids_has(const struct tui_ids *ids, uint64_t id);
/* Scrolls so that the selected line is inside a window of height lines. */
void tui_table_show_selected(struct tui_table *table, size_t height);
/* How far the last draw can be scrolled to the right. */
int tui_table_farthest(const struct tui_table *table);

#endif
