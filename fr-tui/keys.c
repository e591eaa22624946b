#include "fr-tui/keys.h"

#include <stdio.h>
#include <string.h>

/* What htop has, where it has it. */
static const struct tui_binding general_bindings[] = {
    {TUI_HELP, {TUI_F(1), 'h', '?'}, "Help", "this help"},
    {TUI_QUIT, {TUI_F(10), 'q'}, "Quit", "quit"},
    {TUI_BACK, {TUI_KEY_ESC}, NULL, "back: close a page, drop search and filter"},
    {TUI_UP, {TUI_KEY_UP, 'k', TUI_CTRL('p')}, NULL, "one line up"},
    {TUI_DOWN, {TUI_KEY_DOWN, 'j', TUI_CTRL('n')}, NULL, "one line down"},
    {TUI_LEFT_COLUMN, {TUI_KEY_LEFT}, NULL, "scroll to the left"},
    {TUI_RIGHT_COLUMN, {TUI_KEY_RIGHT}, NULL, "scroll to the right"},
    {TUI_PAGE_UP, {TUI_KEY_PAGE_UP, TUI_CTRL('b')}, NULL, "one page up"},
    {TUI_PAGE_DOWN, {TUI_KEY_PAGE_DOWN, TUI_CTRL('f')}, NULL, "one page down"},
    {TUI_FIRST, {'g', TUI_KEY_HOME}, NULL, "to the first line"},
    {TUI_LAST, {'G', TUI_KEY_END}, NULL, "to the last line"},
    {TUI_REDRAW, {TUI_CTRL('l')}, NULL, "draw the screen anew"},
};

static const struct tui_binding line_bindings[] = {
    {TUI_SEARCH, {TUI_F(3), '/'}, "Search", "search: moves to the next line that contains the text"},
    {TUI_SEARCH_NEXT, {'n'}, NULL, "next match"},
    {TUI_SEARCH_PREVIOUS, {'N', TUI_F(15)}, NULL, "previous match"},
    {TUI_FILTER, {TUI_F(4), '\\'}, "Filter", "filter: shows only lines that contain the text (a|b: either)"},
    {TUI_OPEN, {TUI_KEY_ENTER}, NULL, "go to what the selected line is about"},
};

static const struct tui_binding table_bindings[] = {
    {TUI_SETUP, {TUI_F(2), 'C'}, "Setup", "setup: choose the columns; kept for the next time"},
    {TUI_SORT_MENU, {TUI_F(6), '<', '>', ',', '.'}, "SortBy", "choose the column to sort by"},
    {TUI_SORT_INVERT, {'I'}, NULL, "invert the sort order"},
    {TUI_TAG, {' '}, NULL, "tag the selected line"},
    {TUI_UNTAG_ALL, {'U'}, NULL, "untag all lines"},
};

static const struct tui_binding tree_bindings[] = {
    {TUI_TREE, {TUI_F(5), 't'}, "Tree", "tree or flat list"},
    {TUI_EXPAND, {'+', '='}, NULL, "open a branch of the tree"},
    {TUI_COLLAPSE, {'-'}, NULL, "close a branch of the tree"},
    {TUI_FOLLOW, {'F'}, NULL, "follow: the screen scrolls with the selected line"},
};

static const struct tui_binding pause_bindings[] = {
    {TUI_PAUSE, {'Z', 'p'}, NULL, "pause and resume the updates"},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

#define GROUPS 6
struct group {
    const struct tui_binding *bindings;
    size_t count;
};

static size_t groups_of(const struct tui_keymap *map, struct group groups[GROUPS])
{
    size_t n = 0;
    groups[n++] = (struct group){map->own, map->nown};
    if (map->rows >= TUI_ROWS_LINES)
        groups[n++] = (struct group){line_bindings, COUNT(line_bindings)};
    if (map->rows >= TUI_ROWS_TABLE)
        groups[n++] = (struct group){table_bindings, COUNT(table_bindings)};
    if (map->rows >= TUI_ROWS_TREE)
        groups[n++] = (struct group){tree_bindings, COUNT(tree_bindings)};
    if (map->pause)
        groups[n++] = (struct group){pause_bindings, COUNT(pause_bindings)};
    groups[n++] = (struct group){general_bindings, COUNT(general_bindings)};
    return n;
}

static const struct tui_binding *binding_at(const struct tui_keymap *map, size_t index)
{
    struct group groups[GROUPS];
    size_t n = groups_of(map, groups);
    for (size_t i = 0; i < n; i++) {
        if (index < groups[i].count)
            return &groups[i].bindings[index];
        index -= groups[i].count;
    }
    return NULL;
}

int tui_keymap_command(const struct tui_keymap *map, int key)
{
    const struct tui_binding *binding;
    if (key == TUI_KEY_NONE)
        return TUI_NONE;
    for (size_t i = 0; (binding = binding_at(map, i)) != NULL; i++) {
        for (size_t k = 0; k < COUNT(binding->keys) && binding->keys[k] != TUI_KEY_NONE; k++) {
            if (binding->keys[k] == key)
                return binding->command;
        }
    }
    return TUI_NONE;
}

void tui_key_name(int key, char *out, size_t size)
{
    static const struct {
        int key;
        const char *name;
    } names[] = {
        {TUI_KEY_TAB, "Tab"},
        {TUI_KEY_ENTER, "Enter"},
        {TUI_KEY_ESC, "Esc"},
        {TUI_KEY_BACKSPACE, "Backspace"},
        {' ', "Space"},
        {TUI_KEY_UP, "Up"},
        {TUI_KEY_DOWN, "Down"},
        {TUI_KEY_LEFT, "Left"},
        {TUI_KEY_RIGHT, "Right"},
        {TUI_KEY_HOME, "Home"},
        {TUI_KEY_END, "End"},
        {TUI_KEY_PAGE_UP, "PgUp"},
        {TUI_KEY_PAGE_DOWN, "PgDn"},
        {TUI_KEY_DELETE, "Del"},
        {TUI_KEY_BACK_TAB, "Shift-Tab"},
    };
    for (size_t i = 0; i < COUNT(names); i++) {
        if (names[i].key == key) {
            snprintf(out, size, "%s", names[i].name);
            return;
        }
    }
    if (key > TUI_F(12) && key <= TUI_KEY_F_LAST)
        snprintf(out, size, "Shift-F%d", key - TUI_F(12));
    else if (key > TUI_KEY_F0 && key <= TUI_F(12))
        snprintf(out, size, "F%d", key - TUI_KEY_F0);
    else if (key > 0 && key < 32)
        snprintf(out, size, "^%c", key + '@');
    else
        snprintf(out, size, "%c", key > 32 && key < 127 ? key : '?');
}

static int bar_fkey(const struct tui_binding *binding)
{
    if (binding->label == NULL)
        return 0;
    for (size_t k = 0; k < COUNT(binding->keys); k++) {
        int n = binding->keys[k] - TUI_KEY_F0;
        if (n >= 1 && n <= 12)
            return n;
    }
    return 0;
}

static int item_width(const struct tui_bar_item *item, int label_cells)
{
    return (item->fkey > 9 ? 3 : 2) + label_cells;
}

size_t tui_keymap_bar(const struct tui_keymap *map, int columns, struct tui_bar_item items[TUI_BAR_ITEMS])
{
    const struct tui_binding *binding;
    size_t n = 0;
    for (int f = 1; f <= 12 && n < TUI_BAR_ITEMS; f++) {
        for (size_t i = 0; (binding = binding_at(map, i)) != NULL; i++) {
            if (bar_fkey(binding) == f) {
                items[n++] =
                    (struct tui_bar_item){.command = binding->command, .fkey = f, .label = binding->label};
                break;
            }
        }
    }
    int total = 0;
    for (size_t i = 0; i < n; i++) {
        items[i].width = item_width(&items[i], (int)strlen(items[i].label));
        total += items[i].width;
    }
    /* Too narrow: the entry before the last goes first, so that Help and Quit stay longest. */
    while (n > 0 && total > columns) {
        size_t drop = n >= 3 ? n - 2 : n - 1;
        total -= items[drop].width;
        memmove(&items[drop], &items[drop + 1], (n - drop - 1) * sizeof items[0]);
        n--;
    }
    /* Room to spare: even labels, as htop has them. */
    for (size_t i = 0; i < n; i++) {
        int want = item_width(&items[i], 6);
        if (items[i].width < want && total + want - items[i].width <= columns) {
            total += want - items[i].width;
            items[i].width = want;
        }
    }
    int at = 0;
    for (size_t i = 0; i < n; i++) {
        items[i].start = at;
        at += items[i].width;
    }
    return n;
}

bool tui_keymap_help(const struct tui_keymap *map, size_t line, char *keys, size_t size, const char **help)
{
    const struct tui_binding *binding;
    for (size_t i = 0; (binding = binding_at(map, i)) != NULL; i++) {
        if (binding->help == NULL)
            continue;
        if (line-- > 0)
            continue;
        size_t used = 0;
        keys[0] = '\0';
        for (size_t k = 0; k < COUNT(binding->keys) && binding->keys[k] != TUI_KEY_NONE; k++) {
            char name[16];
            tui_key_name(binding->keys[k], name, sizeof name);
            int n = snprintf(keys + used, size - used, "%s%s", k > 0 ? " " : "", name);
            if (n < 0 || (size_t)n >= size - used)
                break;
            used += (size_t)n;
        }
        *help = binding->help;
        return true;
    }
    return false;
}
