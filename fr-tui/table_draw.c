#include "fr-tui/table.h"
#include "fr-tui/table_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int least_width(const struct tui_column *column, bool tree)
{
    return tree && column->tree_width > column->width ? column->tree_width : column->width;
}

/* Of the columns that stand, the one that goes next; 0 = none but the first is left. */
static unsigned next_to_yield(const struct tui_column *columns, unsigned count, uint32_t gone)
{
    unsigned next = 0;
    for (unsigned c = 1; c < count; c++) {
        if (!(gone & 1u << c) && (next == 0 || columns[c].yields >= columns[next].yields))
            next = c;
    }
    return next;
}

unsigned tui_columns_layout(const struct tui_column *columns, unsigned count, uint32_t hidden, int viewport,
                            bool tree, unsigned *order, unsigned *fit, int *widths)
{
    unsigned shown = 0;
    int total = -1;
    hidden &= ~1u;
    for (unsigned c = 0; c < count; c++) {
        widths[c] = least_width(&columns[c], tree);
        total += hidden & 1u << c ? 0 : widths[c] + 1;
    }
    uint32_t gone = hidden;
    for (unsigned c; total > viewport && (c = next_to_yield(columns, count, gone)) > 0;) {
        gone |= 1u << c;
        total -= widths[c] + 1;
    }
    for (unsigned c = 0; c < count; c++) {
        if (!(gone & 1u << c))
            order[shown++] = c;
    }
    *fit = shown;
    for (unsigned c = 0; c < count; c++) {
        if (gone & ~hidden & 1u << c)
            order[shown++] = c;
    }
    /* A cell each in turn: every column that grows gets its fair share, and none too much. */
    for (bool grew = true; grew && total < viewport;) {
        grew = false;
        for (unsigned i = 0; i < *fit && total < viewport; i++) {
            if (widths[order[i]] < columns[order[i]].max_width) {
                widths[order[i]]++;
                total++;
                grew = true;
            }
        }
    }
    return shown;
}

/* Where the columns stand. Those that do not fit begin beyond the window, so that none is seen in part. */
static void lay_out(struct tui_table *table)
{
    int at = 0, width = table->place.width;
    /* Room for the sign that there is more at the right. */
    for (int room = width; room >= width - 2; room -= 2) {
        table->shown = tui_columns_layout(table->columns, table->ncolumns, table->hidden, room, table->tree,
                                          table->order, &table->fit, table->widths);
        if (table->shown == table->fit)
            break;
    }
    table->total = 0;
    for (unsigned i = 0; i < table->shown; i++) {
        unsigned c = table->order[i];
        if (i == table->fit && at < width + 1)
            at = width + 1;
        table->at[c] = at;
        table->total = at + table->widths[c];
        at += table->widths[c] + 1;
    }
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
    for (unsigned i = 0; i < table->shown; i++) {
        unsigned c = table->order[i];
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
            put_scrolled(table, place.y, table->widths[0], table->at[c], table->widths[c], style, align,
                         text);
    }
    if (table->total - table->scroll > place.width && place.width > table->widths[0])
        tui_put(place.y, place.x + place.width - 1, 1, TUI_COLUMN, TUI_LEFT, tui_utf8() ? "\u25b8" : ">");
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
    for (unsigned i = 0; i < table->shown; i++) {
        unsigned c = table->order[i];
        struct tui_cell cell = {.number = NAN, .style = TUI_NORMAL};
        table->source->cell(table->context, line->row, c, &cell);
        enum tui_style style = selected ? whole : tagged ? TUI_TAGGED : cell.style;
        enum tui_align align = align_of(table, c);
        int width = table->widths[c];
        if (c > 0) {
            put_scrolled(table, y, table->widths[0], table->at[c], width, style, align, cell.text);
        } else {
            char text[256], branch[96] = "";
            if (table->tree)
                draw_branch(line, branch, sizeof branch);
            snprintf(text, sizeof text, "%s%s%s", branch, tagged ? "*" : "", cell.text);
            tui_put(y, place.x, width < place.width ? width : place.width, style, align, text);
        }
    }
}

void tui_table_draw(struct tui_table *table, struct tui_rect place, bool focus)
{
    if (place.height <= 0 || place.width <= 0)
        return;
    bool resized = place.height != table->place.height;
    table->place = place;
    lay_out(table);
    if (table->scroll > tui_table_farthest(table))
        table->scroll = tui_table_farthest(table);
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
    for (unsigned i = 0; i < table->shown; i++) {
        unsigned c = table->order[i];
        if (cell > table->at[c] + table->widths[c])
            continue;
        const struct tui_column *column = &table->columns[c];
        bool again = c == table->sort;
        tui_table_sort(table, c, again ? !table->descending : column->numeric && !column->rising);
        return true;
    }
    return false;
}
