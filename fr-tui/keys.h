/*
 * Keys, commands, and the table that joins them.
 *
 * A screen has one keymap: the bindings that all screens share plus its own. The function
 * bar and the help page are generated from it, so they cannot disagree with what the keys
 * do. Nothing here draws or needs a terminal.
 */
#ifndef TUI_KEYS_H
#define TUI_KEYS_H

#include <stdbool.h>
#include <stddef.h>

/* A key: a Unicode code point, or one of these. */
enum tui_key {
    TUI_KEY_NONE = 0,
    TUI_KEY_TAB = 9,
    TUI_KEY_ENTER = 13, /* also line feed */
    TUI_KEY_ESC = 27,
    TUI_KEY_BACKSPACE = 127, /* also ^H */
    TUI_KEY_UP = 0x110000,
    TUI_KEY_DOWN,
    TUI_KEY_LEFT,
    TUI_KEY_RIGHT,
    TUI_KEY_HOME,
    TUI_KEY_END,
    TUI_KEY_PAGE_UP,
    TUI_KEY_PAGE_DOWN,
    TUI_KEY_DELETE,
    TUI_KEY_BACK_TAB,
    TUI_KEY_F0, /* F1 is TUI_KEY_F0 + 1, up to 24 */
    TUI_KEY_F_LAST = TUI_KEY_F0 + 24,
};
#define TUI_CTRL(letter) ((letter)&0x1f)
#define TUI_F(n)         (TUI_KEY_F0 + (n))

enum tui_command {
    TUI_NONE = 0,
    TUI_HELP,
    TUI_SEARCH,
    TUI_SEARCH_NEXT,
    TUI_SEARCH_PREVIOUS,
    TUI_FILTER,
    TUI_TREE,
    TUI_SORT_MENU,
    TUI_SORT_INVERT,
    TUI_SETUP,
    TUI_SETUP_DONE, /* no key has it: the shell says that the user has chosen other columns */
    TUI_QUIT,
    TUI_BACK,
    TUI_OPEN,
    TUI_TAG,
    TUI_UNTAG_ALL,
    TUI_FOLLOW,
    TUI_PAUSE,
    TUI_REDRAW,
    TUI_EXPAND,
    TUI_COLLAPSE,
    TUI_UP,
    TUI_DOWN,
    TUI_LEFT_COLUMN,
    TUI_RIGHT_COLUMN,
    TUI_PAGE_UP,
    TUI_PAGE_DOWN,
    TUI_FIRST,
    TUI_LAST,
    TUI_APP = 64, /* a program's own commands begin here */
};

struct tui_binding {
    int command;
    int keys[6];       /* TUI_KEY_NONE terminates when fewer */
    const char *label; /* for the function bar; NULL = not shown there. The bar needs an F key among keys */
    const char *help;  /* one line; NULL = not in the help */
};

/* What a screen shows, each with the keys of those before it. */
enum tui_rows { TUI_ROWS_NONE, TUI_ROWS_LINES, TUI_ROWS_TABLE, TUI_ROWS_TREE };

struct tui_keymap {
    const struct tui_binding *own; /* looked up first */
    size_t nown;
    enum tui_rows rows; /* which groups of the shared bindings apply */
    bool pause;
};

/* The command of a key, TUI_NONE when it has none. */
int tui_keymap_command(const struct tui_keymap *map, int key);

/* "F5", "Space", "^L", "PgUp", "q": at most 15 bytes. */
void tui_key_name(int key, char *out, size_t size);

/*
 * The entries of the function bar, in order of F keys, and their number. start and width are
 * an entry's place in a bar of `columns` cells. Where they do not fit, the last but one goes first.
 */
struct tui_bar_item {
    int command;
    int fkey; /* 1 … 24 */
    const char *label;
    int start, width;
};
#define TUI_BAR_ITEMS 12
size_t tui_keymap_bar(const struct tui_keymap *map, int columns, struct tui_bar_item items[TUI_BAR_ITEMS]);

/* Line i of the help page: "keys" and "what they do"; false past the end. */
bool tui_keymap_help(const struct tui_keymap *map, size_t line, char *keys, size_t size, const char **help);

#endif
