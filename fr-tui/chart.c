#include "fr-tui/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void tui_history_push(struct tui_history *history, double value)
{
    history->values[history->count++ % TUI_HISTORY] = value;
}

double tui_history_get(const struct tui_history *history, size_t back)
{
    if (back >= history->count || back >= TUI_HISTORY)
        return NAN;
    return history->values[(history->count - 1 - back) % TUI_HISTORY];
}

double tui_history_max(const struct tui_history *history, size_t span)
{
    double max = 0;
    for (size_t i = 0; i < span && i < TUI_HISTORY; i++) {
        double value = tui_history_get(history, i);
        if (value > max)
            max = value;
    }
    return max;
}

int tui_bar_eighths(double value, double max, int row, int rows)
{
    if (!(value > 0) || !(max > 0) || rows <= 0)
        return 0;
    double filled = value >= max ? rows * 8.0 : ceil(value / max * rows * 8.0);
    double here = filled - row * 8.0;
    return here <= 0 ? 0 : here >= 8 ? 8 : (int)here;
}

void tui_history_draw(const struct tui_history *history, struct tui_rect place, double max,
                      enum tui_style style)
{
    static const char *const blocks[9] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                          "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char *const ascii[9] = {" ", "_", "_", ".", ".", ":", ":", "|", "|"};
    const char *const *glyphs = tui_utf8() ? blocks : ascii;
    int width = place.width < TUI_HISTORY ? place.width : TUI_HISTORY;
    if (width <= 0)
        return;
    if (!(max > 0))
        max = tui_history_max(history, (size_t)width);
    for (int row = 0; row < place.height; row++) {
        char text[TUI_HISTORY * 3 + 1];
        size_t used = 0;
        for (int i = width - 1; i >= 0; i--) {
            double value = tui_history_get(history, (size_t)i);
            const char *glyph = glyphs[tui_bar_eighths(value, max, row, place.height)];
            size_t length = strlen(glyph);
            memcpy(text + used, glyph, length);
            used += length;
        }
        text[used] = '\0';
        tui_put(place.y + place.height - 1 - row, place.x + place.width - width, width, style, TUI_LEFT,
                text);
    }
}

void tui_meter(int y, int x, int width, const char *label, double value, double max, enum tui_style fill,
               const char *text)
{
    int label_cells = tui_say(y, x, TUI_METER_LABEL, "%s", label);
    int inside = width - label_cells - 2;
    if (inside <= 0)
        return;
    if (inside > 200)
        inside = 200;
    char bar[201];
    double part = max > 0 && value > 0 ? value / max : 0;
    int filled = part >= 1 ? inside : (int)ceil(part * inside);
    memset(bar, '|', (size_t)filled);
    bar[filled] = '\0';
    x += label_cells;
    tui_put(y, x, 1, TUI_BOLD, TUI_LEFT, "[");
    tui_put(y, x + 1, inside, fill, TUI_LEFT, bar);
    int cells = (int)tui_text_cells(text, tui_utf8());
    if (cells > inside)
        cells = inside;
    tui_put(y, x + 1 + inside - cells, cells, TUI_BOLD, TUI_LEFT, text);
    tui_put(y, x + 1 + inside, 1, TUI_BOLD, TUI_LEFT, "]");
}
