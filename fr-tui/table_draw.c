#include "fr-tui/table.h"
#include "fr-tui/table_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int tui_columns_layout(const struct tui_column *columns, unsigned count, int viewport, bool tree, int *widths)
{
    int total = count > 0 ? (int)count - 1 : 0;
    for (unsigned c = 0; c < count; c++) {
        bool wide = tree && columns[c].tree_width > columns[c].width;
        widths[c] = wide ? columns[c].tree_width : columns[c].width;
        total += widths[c];
    }
    /* A cell each in turn: every column that grows gets its fair share, and none too much. */
    for (bool grew = true; grew && total < viewport;) {
        grew = false;
        for (unsigned c = 0; c < count && total < viewport; c++) {
            if (widths[c] < columns[c].max_width) {
                widths[c]++;
                total++;
                grew = true;
            }
        }
    }
    return total;
}

/* One field of the scrolled part: at cell `at` of the line, `fixed` cells of the window are taken. */
static void put_scrolled(const struct tui_table *table, int y, int fixed, int at, int width,
                         enum tui_style style, enum tui_align align, const char *text)
{
    int x = at - table->scroll;
    int skip = x < fixed ? fixed - x : 0;
    int cells = width - skip;
    if (x + width > table->place.width)
        cells -= x + width - table->place.width;
    if (cells > 0)
        tui_put_part(y, table->place.x + x + skip, width, skip, cells, style, align, text);
}

/* The column with the branches of a tree stands at the left, whatever is in it. */
static enum tui_align align_of(const struct tui_table *table, unsigned c)
{
    const struct tui_column *column = &table->columns[c];
    bool branches = c == 0 && table->tree;
    return column->numeric && !column->left && !branches ? TUI_RIGHT : TUI_LEFT;
}

static void draw_heading(const struct tui_table *table)
{
    struct tui_rect place = table->place;
    tui_put(place.y, place.x, place.width, TUI_COLUMN, TUI_LEFT, "");
    int at = 0;
    for (unsigned c = 0; c < table->ncolumns; c++) {
        const struct tui_column *column = &table->columns[c];
        bool sorted = c == table->sort;
        char text[64];
        const char *arrow = "";
        if (sorted)
            arrow = table->descending ? (tui_utf8() ? "\u25bd" : "v") : (tui_utf8() ? "\u25b3" : "^");
        snprintf(text, sizeof text, "%s%s", column->name, arrow);
        enum tui_style style = sorted ? TUI_COLUMN_SORT : TUI_COLUMN;
        enum tui_align align = align_of(table, c);
        if (c == 0)
            tui_put(place.y, place.x, table->widths[0] < place.width ? table->widths[0] : place.width, style,
                    align, text);
        else
            put_scrolled(table, place.y, table->widths[0], at, table->widths[c], style, align, text);
        at += table->widths[c] + 1;
    }
}

/* "│  ├─ " before the first column's text. */
static void draw_branch(const struct tui_line_view *line, char *out, size_t size)
{
    bool utf8 = tui_utf8();
    size_t used = 0;
    out[0] = '\0';
    for (unsigned d = 1; d <= line->depth && used + 8 < size; d++) {
        const char *piece;
        if (d < line->depth)
            piece = line->rails & 1u << d ? (utf8 ? "\u2502 " : "| ") : "  ";
        else
            piece = line->last ? (utf8 ? "\u2514\u2500" : "`-") : (utf8 ? "\u251c\u2500" : "|-");
        used += (size_t)snprintf(out + used, size - used, "%s", piece);
    }
    if (line->parent)
        snprintf(out + used, size - used, "%s", line->open ? "-" : "+");
    else if (line->depth > 0)
        snprintf(out + used, size - used, " ");
}

static void draw_line(const struct tui_table *table, int y, size_t index, bool focus)
{
    const struct tui_line_view *line = &table->lines[index];
    struct tui_rect place = table->place;
    bool selected = index == table->selected;
    bool tagged = tui_ids_has(&table->tagged, table->source->id(table->context, line->row));
    enum tui_style whole = selected ? (focus ? TUI_SELECTED : TUI_SELECTED_OFF) : TUI_NORMAL;
    tui_put(y, place.x, place.width, whole, TUI_LEFT, "");
    int at = 0;
    for (unsigned c = 0; c < table->ncolumns; c++) {
        struct tui_cell cell = {.number = NAN, .style = TUI_NORMAL};
        table->source->cell(table->context, line->row, c, &cell);
        enum tui_style style = selected ? whole : tagged ? TUI_TAGGED : cell.style;
        enum tui_align align = align_of(table, c);
        int width = table->widths[c];
        if (c > 0) {
            put_scrolled(table, y, table->widths[0], at, width, style, align, cell.text);
        } else {
            char text[256], branch[96] = "";
            if (table->tree)
                draw_branch(line, branch, sizeof branch);
            snprintf(text, sizeof text, "%s%s%s", branch, tagged ? "*" : "", cell.text);
            tui_put(y, place.x, width < place.width ? width : place.width, style, align, text);
        }
        at += width + 1;
    }
}

void tui_table_draw(struct tui_table *table, struct tui_rect place, bool focus)
{
    if (place.height <= 0 || place.width <= 0)
        return;
    bool resized = place.height != table->place.height;
    table->place = place;
    int total = tui_columns_layout(table->columns, table->ncolumns, place.width, table->tree, table->widths);
    int spare = total > place.width ? total - place.width : 0;
    if (table->scroll > spare)
        table->scroll = spare;
    size_t height = (size_t)(place.height - 1);
    if (resized)
        tui_table_show_selected(table, height);
    if (table->top + height > table->nlines)
        table->top = table->nlines > height ? table->nlines - height : 0;
    draw_heading(table);
    for (size_t i = 0; i < height && table->top + i < table->nlines; i++)
        draw_line(table, place.y + 1 + (int)i, table->top + i, focus);
}

bool tui_table_click(struct tui_table *table, int y, int x)
{
    struct tui_rect place = table->place;
    if (y < place.y || y >= place.y + place.height || x < place.x || x >= place.x + place.width)
        return false;
    if (y > place.y) {
        size_t line = table->top + (size_t)(y - place.y - 1);
        size_t row = tui_table_row_at(table, line);
        return row != TUI_NO_ROW && tui_table_select_id(table, table->source->id(table->context, row));
    }
    int cell = x - place.x;
    if (cell >= table->widths[0])
        cell += table->scroll;
    int at = 0;
    for (unsigned c = 0; c < table->ncolumns; c++) {
        at += table->widths[c] + 1;
        if (cell >= at)
            continue;
        const struct tui_column *column = &table->columns[c];
        bool again = c == table->sort;
        tui_table_sort(table, c, again ? !table->descending : column->numeric && !column->rising);
        return true;
    }
    return false;
}
