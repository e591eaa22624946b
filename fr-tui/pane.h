/*
 * A page of text: scrolls both ways, finds. The lines come from a callback, which is asked
 * only for what is visible (and for all when searching), so a page may have millions.
 */
#ifndef TUI_PANE_H
#define TUI_PANE_H

#include "fr-tui/term.h"

#define TUI_PANE_LINE 1024

struct tui_pane_source {
    size_t (*lines)(void *context);
    void (*line)(void *context, size_t index, char text[TUI_PANE_LINE], enum tui_style *style);
};

struct tui_pane {
    const struct tui_pane_source *source;
    void *context;
    char title[128];
    size_t top, from; /* first line and first cell shown */
    size_t match;     /* line of the last match; SIZE_MAX = none */
    int height;       /* lines of text in the last draw */
};

void tui_pane_open(struct tui_pane *pane, const struct tui_pane_source *source, void *context,
                   const char *title);
/* Does what an enum tui_command asks of a page; false when it is none of its own. */
bool tui_pane_command(struct tui_pane *pane, int command);
bool tui_pane_search(struct tui_pane *pane, const char *words, int direction, bool here);
void tui_pane_draw(struct tui_pane *pane, struct tui_rect place);

#endif
