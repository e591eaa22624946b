/*
 * A table: columns, sort, filter, search, tags, a tree when the data has parents, and a
 * selection that stays with its line (by id) while the data under it changes.
 *
 * The table does not own data: it asks a source. After the data changed, call
 * tui_table_update; between updates the source must answer the same. Drawing needs a
 * terminal (term.h), everything else does not. One thread.
 */
#ifndef TUI_TABLE_H
#define TUI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fr-tui/term.h"

#define TUI_NO_ROW SIZE_MAX

struct tui_cell {
    char text[128];
    double number; /* what a numeric column sorts by; NAN = unknown, sorts last always */
    enum tui_style style;
};

struct tui_column {
    const char *name;
    const char *help; /* shown in the sort menu; may be NULL */
    int width;        /* cells, at least */
    int max_width;    /* takes spare room up to this; 0 = does not grow */
    int tree_width;   /* at least this while the table is a tree; 0 = width */
    bool numeric;     /* sorts by number, large ones first, and stands at the right */
    bool rising;      /* numeric, but small ones first */
    bool left;        /* numeric, but stands at the left */
    int yields;       /* in a narrow window the largest goes first; equal ones from the right */
};

struct tui_source {
    size_t (*rows)(void *context);
    uint64_t (*id)(void *context, size_t row);   /* unique, the same row after row */
    size_t (*parent)(void *context, size_t row); /* a row, or TUI_NO_ROW; NULL = no tree */
    void (*cell)(void *context, size_t row, unsigned column, struct tui_cell *cell);
    bool (*inner)(void *context, size_t row); /* belongs into a tree only; NULL = what has a parent does */
};

struct tui_table;

/*
 * columns and source stay the caller's and must outlive the table. The first column stays
 * in place when scrolling sideways and carries the tree's branches. NULL without memory.
 */
struct tui_table *tui_table_new(const struct tui_column *columns, unsigned ncolumns,
                                const struct tui_source *source, void *context);
void tui_table_free(struct tui_table *table); /* NULL is fine */

/* Takes in changed data. Without memory the table keeps the lines that it had and is not safe to draw: false.
 */
bool tui_table_update(struct tui_table *table);

void tui_table_sort(struct tui_table *table, unsigned column, bool descending);
unsigned tui_table_sort_column(const struct tui_table *table);
bool tui_table_sort_descending(const struct tui_table *table);
/* Columns that the user does not want to see; the first one always stays. */
void tui_table_hide(struct tui_table *table, unsigned column, bool hide);
bool tui_table_hides(const struct tui_table *table, unsigned column);
unsigned tui_table_columns(const struct tui_table *table, const struct tui_column **columns);

/* Words as for tui_text_matches; "" = none. */
void tui_table_filter(struct tui_table *table, const char *words);
const char *tui_table_filter_words(const struct tui_table *table);

/* Selects the nearest line, from the selected one on (including it when `here`), that contains words. */
bool tui_table_search(struct tui_table *table, const char *words, int direction, bool here);

void tui_table_set_tree(struct tui_table *table, bool tree);
bool tui_table_is_tree(const struct tui_table *table);
/* Branches that were never touched are open; false = closed. */
void tui_table_set_open_by_default(struct tui_table *table, bool open);

/* The selected row of the source; TUI_NO_ROW when the table is empty. */
size_t tui_table_selected(const struct tui_table *table);
bool tui_table_select_id(struct tui_table *table, uint64_t id);
bool tui_table_tagged(const struct tui_table *table, uint64_t id);
bool tui_table_follows(const struct tui_table *table);

/* The lines in the window of the last draw. */
void tui_table_window(const struct tui_table *table, size_t *first, size_t *count);

/* Lines shown (after filter and closed branches), and the source's row of one of them. */
size_t tui_table_lines(const struct tui_table *table);
size_t tui_table_row_at(const struct tui_table *table, size_t line);

/* Does what an enum tui_command asks of a table; false when it is none of the table's. */
bool tui_table_command(struct tui_table *table, int command);

void tui_table_draw(struct tui_table *table, struct tui_rect place, bool focus);
/* A click inside the rectangle of the last draw: selects a line or sorts by a column. */
bool tui_table_click(struct tui_table *table, int y, int x);
void tui_table_wheel(struct tui_table *table, int direction);

/*
 * Which columns a viewport shows, and how wide, pure. Into order go the numbers of all that are
 * not hidden (bit c of hidden = column c): in their own order those that fit, then the others,
 * which one sees by scrolling to the right; *fit tells how many fit. Into widths, by column
 * number: minimum widths, and spare room shared by those that fit and grow. Returns how many
 * are in order.
 */
unsigned tui_columns_layout(const struct tui_column *columns, unsigned count, uint32_t hidden, int viewport,
                            bool tree, unsigned *order, unsigned *fit, int *widths);

#endif
