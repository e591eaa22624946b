/* History bars and meters. */
#ifndef TUI_CHART_H
#define TUI_CHART_H

#include "fr-tui/term.h"

#define TUI_HISTORY 512

/* The last TUI_HISTORY values of something. NAN = not known at that time. */
struct tui_history {
    double values[TUI_HISTORY];
    size_t count; /* ever pushed */
};

void tui_history_push(struct tui_history *history, double value);
/* The value `back` steps before the last one (0 = the last); NAN when there is none. */
double tui_history_get(const struct tui_history *history, size_t back);
/* Largest of the last `span` known values; 0 when there is none. */
double tui_history_max(const struct tui_history *history, size_t span);

/*
 * How much of cell `row` (0 = lowest of `rows`) a bar of value out of max fills, in eighths,
 * 0 … 8. A value above zero fills at least one eighth. Pure.
 */
int tui_bar_eighths(double value, double max, int row, int rows);

/* Bars, the newest value at the right; max 0 = the largest one shown. */
void tui_history_draw(const struct tui_history *history, struct tui_rect place, double max,
                      enum tui_style style);

/* "Label[|||||    text]" on one line, filled by value out of max. */
void tui_meter(int y, int x, int width, const char *label, double value, double max, enum tui_style fill,
               const char *text);

#endif
