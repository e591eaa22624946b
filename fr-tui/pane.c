#include "fr-tui/pane.h"

#include <stdint.h>
#include <stdio.h>

void tui_pane_open(struct tui_pane *pane, const struct tui_pane_source *source, void *context,
                   const char *title)
{
    *pane = (struct tui_pane){.source = source, .context = context, .match = SIZE_MAX};
    snprintf(pane->title, sizeof pane->title, "%s", title);
}

static size_t last_top(const struct tui_pane *pane)
{
    size_t lines = pane->source->lines(pane->context);
    size_t height = pane->height > 0 ? (size_t)pane->height : 1;
    return lines > height ? lines - height : 0;
}

static void scroll_to(struct tui_pane *pane, size_t top)
{
    size_t last = last_top(pane);
    pane->top = top < last ? top : last;
}

bool tui_pane_command(struct tui_pane *pane, int command)
{
    size_t page = pane->height > 1 ? (size_t)pane->height - 1 : 1;
    switch (command) {
    case TUI_UP:
        scroll_to(pane, pane->top > 0 ? pane->top - 1 : 0);
        return true;
    case TUI_DOWN:
        scroll_to(pane, pane->top + 1);
        return true;
    case TUI_PAGE_UP:
        scroll_to(pane, pane->top > page ? pane->top - page : 0);
        return true;
    case TUI_PAGE_DOWN:
    case TUI_TAG: /* the space bar, as in a pager */
        scroll_to(pane, pane->top + page);
        return true;
    case TUI_FIRST:
        scroll_to(pane, 0);
        return true;
    case TUI_LAST:
        scroll_to(pane, SIZE_MAX);
        return true;
    case TUI_LEFT_COLUMN:
        pane->from = pane->from > 8 ? pane->from - 8 : 0;
        return true;
    case TUI_RIGHT_COLUMN:
        if (pane->from + 8 < TUI_PANE_LINE)
            pane->from += 8;
        return true;
    default:
        return false;
    }
}

bool tui_pane_search(struct tui_pane *pane, const char *words, int direction, bool here)
{
    size_t n = pane->source->lines(pane->context);
    if (words[0] == '\0' || n == 0)
        return false;
    size_t start = pane->match < n ? pane->match : pane->top;
    for (size_t step = here ? 0 : 1; step <= n; step++) {
        size_t index = direction > 0 ? (start + step) % n : (start + n - step % n) % n;
        char text[TUI_PANE_LINE];
        enum tui_style style = TUI_NORMAL;
        pane->source->line(pane->context, index, text, &style);
        if (!tui_text_matches(text, words))
            continue;
        pane->match = index;
        size_t height = pane->height > 0 ? (size_t)pane->height : 1;
        if (index < pane->top || index >= pane->top + height)
            scroll_to(pane, index > height / 2 ? index - height / 2 : 0);
        return true;
    }
    return false;
}

void tui_pane_draw(struct tui_pane *pane, struct tui_rect place)
{
    if (place.height <= 0 || place.width <= 0)
        return;
    pane->height = place.height - 1;
    scroll_to(pane, pane->top);
    size_t lines = pane->source->lines(pane->context);
    char title[192];
    size_t last = pane->top + (size_t)pane->height;
    if (lines > (size_t)pane->height)
        snprintf(title, sizeof title, "%s  (lines %zu-%zu of %zu)", pane->title, pane->top + 1,
                 last < lines ? last : lines, lines);
    else
        snprintf(title, sizeof title, "%s", pane->title);
    tui_put(place.y, place.x, place.width, TUI_COLUMN, TUI_LEFT, title);
    for (int i = 0; i < pane->height && pane->top + (size_t)i < lines; i++) {
        char text[TUI_PANE_LINE];
        enum tui_style style = TUI_NORMAL;
        size_t index = pane->top + (size_t)i;
        text[0] = '\0';
        pane->source->line(pane->context, index, text, &style);
        tui_put_from(place.y + 1 + i, place.x, place.width, index == pane->match ? TUI_MATCH : style, text,
                     pane->from);
    }
}
