#include "fr-tui/shell.h"

#include <stdio.h>
#include <string.h>

void tui_shell_page(struct tui_shell *shell, const struct tui_pane_source *source, void *context,
                    const char *title)
{
    tui_pane_open(&shell->page, source, context, title);
    shell->page_open = true;
    shell->mode = TUI_MODE_BROWSE;
}

/* ---- help ---- */

static size_t help_bindings(const struct tui_shell *shell)
{
    char keys[64];
    const char *help;
    size_t n = 0;
    while (tui_keymap_help(&shell->keymap, n, keys, sizeof keys, &help))
        n++;
    return n;
}

static size_t help_lines(void *context)
{
    const struct tui_shell *shell = context;
    size_t n = help_bindings(shell);
    for (size_t i = 0; shell->notes != NULL && shell->notes[i] != NULL; i++)
        n++;
    return n;
}

static void help_line(void *context, size_t index, char text[TUI_PANE_LINE], enum tui_style *style)
{
    const struct tui_shell *shell = context;
    char keys[64];
    const char *help;
    size_t bindings = help_bindings(shell);
    *style = TUI_NORMAL;
    if (index >= bindings)
        snprintf(text, TUI_PANE_LINE, "%s", shell->notes[index - bindings]);
    else if (tui_keymap_help(&shell->keymap, index, keys, sizeof keys, &help))
        snprintf(text, TUI_PANE_LINE, "%18s  %s", keys, help);
}

static const struct tui_pane_source help_source = {help_lines, help_line};

static void open_help(struct tui_shell *shell)
{
    char title[128];
    snprintf(title, sizeof title, "%s: keys (Esc closes this page)", shell->name);
    tui_shell_page(shell, &help_source, shell, title);
}

/* ---- drawing ---- */

static bool menu_open(const struct tui_shell *shell)
{
    return (shell->mode == TUI_MODE_SORT || shell->mode == TUI_MODE_SETUP) && shell->table != NULL;
}

static void draw_menu(struct tui_shell *shell, struct tui_rect place)
{
    const struct tui_column *columns;
    unsigned count = tui_table_columns(shell->table, &columns);
    bool setup = shell->mode == TUI_MODE_SETUP;
    tui_put(place.y, place.x, place.width, TUI_COLUMN, TUI_LEFT, setup ? "Columns" : "Sort by");
    int room = place.height - 1;
    unsigned top = room > 0 && shell->menu_line >= (unsigned)room ? shell->menu_line - (unsigned)room + 1 : 0;
    for (int i = 0; i < room && top + (unsigned)i < count; i++) {
        unsigned c = top + (unsigned)i;
        char text[64];
        const char *box = !setup ? "" : tui_table_hides(shell->table, c) ? "[ ] " : "[x] ";
        snprintf(text, sizeof text, "%s%s", box, columns[c].name);
        tui_put(place.y + 1 + i, place.x, place.width, c == shell->menu_line ? TUI_SELECTED : TUI_NORMAL,
                TUI_LEFT, text);
    }
}

static void draw_body(struct tui_shell *shell)
{
    struct tui_rect place = shell->body;
    if (shell->page_open) {
        tui_pane_draw(&shell->page, place);
        return;
    }
    if (menu_open(shell)) {
        struct tui_rect menu = place;
        int width = shell->mode == TUI_MODE_SETUP ? 18 : 14;
        menu.width = place.width < 2 * width ? place.width / 2 : width;
        shell->menu_width = menu.width;
        draw_menu(shell, menu);
        place.x += menu.width + 1;
        place.width -= menu.width + 1;
    }
    if (shell->timeline != NULL)
        tui_timeline_draw(shell->timeline, place, place.width >= 120 ? 28 : 14);
    else if (shell->table != NULL)
        tui_table_draw(shell->table, place, !menu_open(shell));
}

static int put_hint(int y, int x, const char *key, const char *label)
{
    int cells = tui_say(y, x, TUI_BAR_KEY, "%s", key);
    cells += tui_say(y, x + cells, TUI_BAR_LABEL, "%s ", label);
    return cells;
}

static void draw_prompt(const struct tui_shell *shell)
{
    int y = shell->bar_y, x = 0;
    bool search = shell->mode == TUI_MODE_SEARCH;
    if (tui_columns() >= 40) {
        if (search)
            x += put_hint(y, x, "F3", "Next");
        x += put_hint(y, x, "Enter", "Done");
        x += put_hint(y, x, "Esc", search ? "Cancel" : "Clear");
    }
    x += tui_say(y, x, TUI_BAR_KEY, search ? "Search: " : "Filter: ");
    int room = tui_columns() - x;
    int note = shell->not_found && room > 24 ? 12 : 0;
    tui_line_draw(&shell->input, y, x, room - note);
    if (note > 0)
        tui_put(y, x + room - note, note, TUI_BAD, TUI_LEFT, " not found");
}

/* Labels that tell the state, as htop's do. */
static const char *bar_label(const struct tui_shell *shell, const struct tui_bar_item *item)
{
    if (shell->table != NULL && item->command == TUI_FILTER &&
        tui_table_filter_words(shell->table)[0] != '\0')
        return "FILTER";
    if (shell->table != NULL && item->command == TUI_TREE && tui_table_is_tree(shell->table))
        return "List";
    return item->label;
}

/* What the column under the menu's cursor is. */
static void put_column_help(const struct tui_shell *shell, int y, int x)
{
    const struct tui_column *columns;
    unsigned count = tui_table_columns(shell->table, &columns);
    int room = tui_columns() - x - 1;
    if (shell->menu_line < count && columns[shell->menu_line].help != NULL && room > 5)
        tui_put(y, x + 1, room, TUI_NORMAL, TUI_LEFT, columns[shell->menu_line].help);
}

static void draw_bar(const struct tui_shell *shell)
{
    int y = shell->bar_y, end = 0;
    if (shell->mode == TUI_MODE_SEARCH || shell->mode == TUI_MODE_FILTER) {
        draw_prompt(shell);
        return;
    }
    if (shell->mode == TUI_MODE_SORT) {
        end += put_hint(y, end, "Enter", "Sort");
        end += put_hint(y, end, "Esc", "Cancel");
        put_column_help(shell, y, end);
        return;
    } else if (shell->mode == TUI_MODE_SETUP) {
        end += put_hint(y, end, "Space", "On/off");
        end += put_hint(y, end, "Esc", "Done");
        put_column_help(shell, y, end);
        return;
    } else {
        struct tui_bar_item items[TUI_BAR_ITEMS];
        size_t n = tui_keymap_bar(&shell->keymap, tui_columns(), items);
        for (size_t i = 0; i < n; i++) {
            int key = tui_say(y, items[i].start, TUI_BAR_KEY, "F%d", items[i].fkey);
            end = items[i].start + items[i].width;
            tui_put(y, items[i].start + key, items[i].width - key, TUI_BAR_LABEL, TUI_LEFT,
                    bar_label(shell, &items[i]));
        }
    }
    char text[sizeof shell->status + 32];
    snprintf(text, sizeof text, "%s%s%s%s", shell->paused ? "PAUSED " : "",
             shell->table != NULL && tui_table_follows(shell->table) ? "FOLLOW " : "",
             shell->not_found ? "not found " : "", shell->status);
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ')
        text[--length] = '\0';
    int room = tui_columns() - end - 1;
    if (room > 5)
        tui_put(y, end + 1, room, TUI_BOLD, TUI_LEFT, text);
    else if (shell->paused)
        tui_put(y, tui_columns() - 6, 6, TUI_WARN, TUI_LEFT, "PAUSED");
}

void tui_shell_draw(struct tui_shell *shell, struct tui_rect place)
{
    shell->body = place;
    shell->body.height--;
    shell->bar_y = place.y + place.height - 1;
    draw_body(shell);
    draw_bar(shell);
}

/* ---- events ---- */

static bool search(struct tui_shell *shell, int direction, bool here)
{
    bool found = false;
    if (shell->page_open)
        found = tui_pane_search(&shell->page, shell->words, direction, here);
    else if (shell->table != NULL && shell->timeline == NULL)
        found = tui_table_search(shell->table, shell->words, direction, here);
    shell->not_found = !found && shell->words[0] != '\0';
    return found;
}

static void search_key(struct tui_shell *shell, int key)
{
    if (key == TUI_KEY_ENTER || key == TUI_KEY_ESC) {
        shell->mode = TUI_MODE_BROWSE;
        shell->not_found = false;
    } else if (key == TUI_F(3)) {
        search(shell, 1, false);
    } else if (key == TUI_F(15)) {
        search(shell, -1, false);
    } else if (tui_line_key(&shell->input, key)) {
        memcpy(shell->words, shell->input.text, sizeof shell->words);
        search(shell, 1, true);
    }
}

static void filter_key(struct tui_shell *shell, int key)
{
    if (key == TUI_KEY_ENTER) {
        shell->mode = TUI_MODE_BROWSE;
    } else if (key == TUI_KEY_ESC) {
        shell->mode = TUI_MODE_BROWSE;
        tui_table_filter(shell->table, "");
    } else if (tui_line_key(&shell->input, key)) {
        tui_table_filter(shell->table, shell->input.text);
    } else {
        int command = tui_keymap_command(&shell->keymap, key);
        if (key >= TUI_KEY_UP &&
            (command == TUI_UP || command == TUI_DOWN || command == TUI_PAGE_UP || command == TUI_PAGE_DOWN))
            tui_table_command(shell->table, command);
    }
}

static void choose_sort(struct tui_shell *shell)
{
    const struct tui_column *columns;
    tui_table_columns(shell->table, &columns);
    const struct tui_column *column = &columns[shell->menu_line];
    tui_table_sort(shell->table, shell->menu_line, column->numeric && !column->rising);
    shell->mode = TUI_MODE_BROWSE;
}

static void toggle_column(struct tui_shell *shell)
{
    if (shell->menu_line == 0)
        return; /* without it nobody knows what a line is about */
    tui_table_hide(shell->table, shell->menu_line, !tui_table_hides(shell->table, shell->menu_line));
    shell->chose = true;
}

static int close_setup(struct tui_shell *shell)
{
    shell->mode = TUI_MODE_BROWSE;
    return shell->chose ? TUI_SETUP_DONE : TUI_NONE;
}

static int menu_key(struct tui_shell *shell, int key)
{
    const struct tui_column *columns;
    unsigned count = tui_table_columns(shell->table, &columns);
    int command = tui_keymap_command(&shell->keymap, key);
    bool setup = shell->mode == TUI_MODE_SETUP;
    if (setup && (key == ' ' || key == TUI_KEY_ENTER))
        toggle_column(shell);
    else if (key == TUI_KEY_ENTER)
        choose_sort(shell);
    else if (command == TUI_BACK || command == TUI_QUIT || command == (setup ? TUI_SETUP : TUI_SORT_MENU))
        return close_setup(shell);
    else if (command == TUI_UP)
        shell->menu_line -= shell->menu_line > 0;
    else if (command == TUI_DOWN)
        shell->menu_line += shell->menu_line + 1 < count;
    else if (command == TUI_FIRST)
        shell->menu_line = 0;
    else if (command == TUI_LAST)
        shell->menu_line = count - 1;
    return TUI_NONE;
}

static void open_menu(struct tui_shell *shell, enum tui_mode mode)
{
    shell->mode = mode;
    shell->chose = false;
    shell->menu_line = mode == TUI_MODE_SORT ? tui_table_sort_column(shell->table) : 0;
}

static void start_prompt(struct tui_shell *shell, enum tui_mode mode)
{
    shell->mode = mode;
    shell->not_found = false;
    tui_line_set(&shell->input, mode == TUI_MODE_FILTER ? tui_table_filter_words(shell->table) : "");
}

/* Commands while a page is open; everything that is no page's business closes nothing. */
static int page_command(struct tui_shell *shell, int command)
{
    if (tui_pane_command(&shell->page, command))
        return TUI_NONE;
    switch (command) {
    case TUI_BACK:
    case TUI_QUIT:
    case TUI_OPEN:
    case TUI_HELP:
        shell->page_open = false;
        return TUI_NONE;
    case TUI_SEARCH:
        start_prompt(shell, TUI_MODE_SEARCH);
        return TUI_NONE;
    case TUI_SEARCH_NEXT:
    case TUI_SEARCH_PREVIOUS:
        search(shell, command == TUI_SEARCH_NEXT ? 1 : -1, false);
        return TUI_NONE;
    case TUI_PAUSE:
        shell->paused = !shell->paused;
        return TUI_NONE;
    default:
        return command >= TUI_APP ? command : TUI_NONE;
    }
}

static int body_command(struct tui_shell *shell, int command)
{
    struct tui_table *table = shell->timeline == NULL ? shell->table : NULL;
    if (shell->timeline != NULL ? tui_timeline_command(shell->timeline, command)
                                : table != NULL && tui_table_command(table, command))
        return TUI_NONE;
    switch (command) {
    case TUI_HELP:
        open_help(shell);
        return TUI_NONE;
    case TUI_PAUSE:
        shell->paused = !shell->paused;
        return TUI_NONE;
    case TUI_SEARCH:
        if (table != NULL)
            start_prompt(shell, TUI_MODE_SEARCH);
        return TUI_NONE;
    case TUI_SEARCH_NEXT:
    case TUI_SEARCH_PREVIOUS:
        search(shell, command == TUI_SEARCH_NEXT ? 1 : -1, false);
        return TUI_NONE;
    case TUI_FILTER:
        if (table != NULL)
            start_prompt(shell, TUI_MODE_FILTER);
        return TUI_NONE;
    case TUI_SORT_MENU:
    case TUI_SETUP:
        if (table != NULL)
            open_menu(shell, command == TUI_SETUP ? TUI_MODE_SETUP : TUI_MODE_SORT);
        return TUI_NONE;
    case TUI_BACK:
        if (table == NULL || tui_table_filter_words(table)[0] == '\0')
            return command;
        tui_table_filter(table, "");
        return TUI_NONE;
    default:
        return command;
    }
}

static int run(struct tui_shell *shell, int command)
{
    shell->not_found = false;
    if (command == TUI_REDRAW) {
        tui_redraw();
        return TUI_NONE;
    }
    return shell->page_open ? page_command(shell, command) : body_command(shell, command);
}

static int bar_click(const struct tui_shell *shell, int x)
{
    struct tui_bar_item items[TUI_BAR_ITEMS];
    size_t n = tui_keymap_bar(&shell->keymap, tui_columns(), items);
    for (size_t i = 0; i < n; i++) {
        if (x >= items[i].start && x < items[i].start + items[i].width)
            return items[i].command;
    }
    return TUI_NONE;
}

static int click(struct tui_shell *shell, const struct tui_event *event)
{
    if (event->y == shell->bar_y)
        return shell->mode == TUI_MODE_BROWSE ? run(shell, bar_click(shell, event->x)) : TUI_NONE;
    if (shell->page_open || shell->timeline != NULL || shell->table == NULL)
        return TUI_NONE;
    if (menu_open(shell) && event->x < shell->body.x + shell->menu_width) {
        const struct tui_column *columns;
        int line = event->y - shell->body.y - 1;
        if (line >= 0 && (unsigned)line < tui_table_columns(shell->table, &columns)) {
            shell->menu_line = (unsigned)line;
            if (shell->mode == TUI_MODE_SETUP)
                toggle_column(shell);
            else
                choose_sort(shell);
        }
        return TUI_NONE;
    }
    bool hit = tui_table_click(shell->table, event->y, event->x);
    return hit && event->mouse == TUI_MOUSE_DOUBLE ? TUI_OPEN : TUI_NONE;
}

static int mouse(struct tui_shell *shell, const struct tui_event *event)
{
    if (event->mouse == TUI_MOUSE_CLICK || event->mouse == TUI_MOUSE_DOUBLE)
        return click(shell, event);
    int direction = event->mouse == TUI_MOUSE_WHEEL_UP ? -1 : 1;
    if (!shell->page_open && shell->timeline == NULL && shell->table != NULL) {
        tui_table_wheel(shell->table, direction);
        return TUI_NONE;
    }
    for (int i = 0; i < 3; i++)
        run(shell, direction < 0 ? TUI_UP : TUI_DOWN);
    return TUI_NONE;
}

int tui_shell_event(struct tui_shell *shell, const struct tui_event *event)
{
    switch (event->type) {
    case TUI_EV_QUIT:
        return TUI_QUIT;
    case TUI_EV_MOUSE:
        return mouse(shell, event);
    case TUI_EV_KEY:
        break;
    default:
        return TUI_NONE;
    }
    switch (shell->mode) {
    case TUI_MODE_SEARCH:
        search_key(shell, event->key);
        return TUI_NONE;
    case TUI_MODE_FILTER:
        filter_key(shell, event->key);
        return TUI_NONE;
    case TUI_MODE_SORT:
    case TUI_MODE_SETUP:
        return menu_key(shell, event->key);
    default:
        return run(shell, tui_keymap_command(&shell->keymap, event->key));
    }
}
