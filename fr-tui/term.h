/*
 * The terminal: one full-screen session, on ncursesw.
 *
 * There is one terminal per process, so the state is global and belongs to the thread that
 * called tui_open. The terminal is put back on every way out: tui_close, exit(), SIGTERM,
 * SIGINT, SIGHUP and SIGQUIT (told as TUI_EV_QUIT), crashes (the handler puts it back and
 * passes the signal on), ^Z and SIGSTOP (redrawn on return).
 */
#ifndef TUI_TERM_H
#define TUI_TERM_H

#include <stdbool.h>
#include <stddef.h>

#include "fr-tui/keys.h"
#include "fr-tui/text.h"

struct tui_options {
    bool mono;  /* no colours */
    bool ascii; /* nothing beyond ASCII */
};

/*
 * false and a reason when there is no usable terminal; nothing when it is open already. Calls
 * setlocale(LC_CTYPE, ""). ESCDELAY in the environment: milliseconds in which the rest of a key that
 * begins with ESC must come (20).
 */
bool tui_open(const struct tui_options *options, char *reason, size_t size);
void tui_close(void); /* harmless when not open */

/* May text beyond ASCII be shown here? After tui_open, its answer; before, the locale's. */
bool tui_utf8(void);
int tui_rows(void);
int tui_columns(void);

enum tui_event_type {
    TUI_EV_TIMEOUT,
    TUI_EV_KEY,
    TUI_EV_MOUSE,
    TUI_EV_RESIZE, /* also: back from suspension. Draw again */
    TUI_EV_QUIT,   /* a signal, or the terminal is gone */
};
enum tui_mouse { TUI_MOUSE_CLICK, TUI_MOUSE_DOUBLE, TUI_MOUSE_WHEEL_UP, TUI_MOUSE_WHEEL_DOWN };

struct tui_event {
    enum tui_event_type type;
    int key; /* enum tui_key or a code point */
    enum tui_mouse mouse;
    int y, x;
    int signal; /* with TUI_EV_QUIT; 0 = end of input */
};

/* Waits for the next event, timeout_ms at most. */
void tui_wait(int timeout_ms, struct tui_event *event);

/* What a piece of text is; the theme decides how that looks with and without colours. */
enum tui_style {
    TUI_NORMAL,
    TUI_DIM,
    TUI_BOLD,
    TUI_GOOD,
    TUI_WARN,
    TUI_BAD,
    TUI_ACCENT,
    TUI_COLUMN,       /* column heading */
    TUI_COLUMN_SORT,  /* heading of the sort column */
    TUI_SELECTED,     /* selected line */
    TUI_SELECTED_OFF, /* selected line of a list that has not the focus */
    TUI_TAGGED,
    TUI_MATCH,
    TUI_BAR_KEY,
    TUI_BAR_LABEL,
    TUI_METER_LABEL,
    TUI_METER_FILL,
    TUI_STYLES
};

struct tui_rect {
    int y, x, height, width;
};

void tui_begin(void);  /* a new frame, empty */
void tui_end(void);    /* show it */
void tui_redraw(void); /* the next frame is sent whole, whatever the terminal is believed to show */

/* Text in a field of width cells at y, x. Everything is clipped to the screen. */
void tui_put(int y, int x, int width, enum tui_style style, enum tui_align align, const char *text);
/* The same, beginning at cell `from` of the text. */
void tui_put_from(int y, int x, int width, enum tui_style style, const char *text, size_t from);
/* Cells skip … skip+cells-1 of a field of width cells; their place on the screen begins at x. */
void tui_put_part(int y, int x, int width, int skip, int cells, enum tui_style style, enum tui_align align,
                  const char *text);
/* Our own text: as tui_put, left-aligned, as wide as it is. Returns the cells used. */
int tui_say(int y, int x, enum tui_style style, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void tui_cursor(int y, int x); /* show the cursor there in this frame */

/* Says so when the screen is smaller; true = it is, draw nothing else. Works down to 1×1. */
bool tui_too_small(int rows, int columns);

#endif
