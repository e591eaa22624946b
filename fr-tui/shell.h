/*
 * What every screen of ours has around its data: a body (table or timeline), pages over it
 * (help, details), the prompts of search and filter, the menus of sort and setup, the function bar.
 *
 * The program draws its own header, gives the rest of the screen to tui_shell_draw, and
 * passes every event to tui_shell_event, which hands back the commands that are not its own.
 */
#ifndef TUI_SHELL_H
#define TUI_SHELL_H

#include "fr-tui/line.h"
#include "fr-tui/pane.h"
#include "fr-tui/table.h"
#include "fr-tui/timeline.h"

enum tui_mode { TUI_MODE_BROWSE, TUI_MODE_SEARCH, TUI_MODE_FILTER, TUI_MODE_SORT, TUI_MODE_SETUP };

struct tui_shell {
    /* set by the program */
    const char *name; /* of the program, for the help page */
    struct tui_keymap keymap;
    const char *const *notes; /* further lines of the help page, NULL-terminated; may be NULL */
    struct tui_table *table;  /* the body: a table, or */
    struct tui_timeline *timeline;
    char status[160]; /* shown at the right of the function bar */

    /* the shell's own */
    enum tui_mode mode;
    struct tui_line input;
    char words[128]; /* last search */
    bool not_found, paused;
    bool page_open;
    struct tui_pane page;
    unsigned menu_line;
    bool chose; /* the setup menu has changed something */
    int menu_width;
    struct tui_rect body;
    int bar_y;
};

/* Opens a page over the body; it closes with Esc or q. */
void tui_shell_page(struct tui_shell *shell, const struct tui_pane_source *source, void *context,
                    const char *title);
void tui_shell_draw(struct tui_shell *shell, struct tui_rect place);
/* TUI_NONE, or a command for the program (its own, TUI_QUIT, TUI_OPEN, TUI_BACK, TUI_SETUP_DONE …). */
int tui_shell_event(struct tui_shell *shell, const struct tui_event *event);

#endif
