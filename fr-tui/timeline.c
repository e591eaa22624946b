#include "fr-tui/timeline.h"

#include <stdio.h>

void tui_timeline_open(struct tui_timeline *timeline, const struct tui_timeline_source *source, void *context)
{
    *timeline = (struct tui_timeline){.source = source, .context = context, .stick = true};
}

void tui_timeline_fit(uint64_t first, uint64_t last, int width, bool stick, uint64_t *from, uint64_t *span)
{
    uint64_t cells = width > 0 ? (uint64_t)width : 1;
    uint64_t distance = last >= first ? last - first : 0;
    uint64_t whole = distance / cells + 1; /* the smallest span with which the line fits */
    if (*span == 0 || *span > whole)
        *span = whole;
    uint64_t shown = (cells - 1) * *span;
    uint64_t farthest = distance > shown ? first + (distance - shown + *span - 1) / *span * *span : first;
    if (stick || *from > farthest)
        *from = farthest;
    if (*from < first)
        *from = first;
}

static void show_lane(struct tui_timeline *timeline)
{
    size_t lanes = timeline->source->lanes(timeline->context);
    size_t height = timeline->height > 0 ? (size_t)timeline->height : 1;
    if (timeline->lane >= lanes)
        timeline->lane = lanes > 0 ? lanes - 1 : 0;
    if (timeline->lane < timeline->top)
        timeline->top = timeline->lane;
    else if (timeline->lane >= timeline->top + height)
        timeline->top = timeline->lane - height + 1;
    if (timeline->top + height > lanes)
        timeline->top = lanes > height ? lanes - height : 0;
}

static void move_cursor(struct tui_timeline *timeline, int cells)
{
    uint64_t first, last, step = timeline->span > 0 ? timeline->span : 1;
    timeline->source->bounds(timeline->context, &first, &last);
    if (!timeline->has_cursor) {
        timeline->has_cursor = true;
        timeline->cursor = last;
    }
    if (timeline->cursor < first)
        timeline->cursor = first; /* the line moved on meanwhile */
    if (timeline->cursor > last)
        timeline->cursor = last;
    uint64_t distance = (uint64_t)(cells < 0 ? -cells : cells) * step;
    if (cells < 0)
        timeline->cursor = timeline->cursor - first > distance ? timeline->cursor - distance : first;
    else
        timeline->cursor = last - timeline->cursor > distance ? timeline->cursor + distance : last;
    timeline->stick = timeline->cursor == last;
    uint64_t width = timeline->width > 0 ? (uint64_t)timeline->width : 1;
    if (timeline->cursor < timeline->from)
        timeline->from = timeline->cursor;
    else if (timeline->cursor - timeline->from >= width * step)
        timeline->from = timeline->cursor - (width - 1) * step;
}

static void zoom(struct tui_timeline *timeline, bool in)
{
    uint64_t first, last, width = timeline->width > 0 ? (uint64_t)timeline->width : 1;
    timeline->source->bounds(timeline->context, &first, &last);
    uint64_t middle = timeline->has_cursor ? timeline->cursor : timeline->from + width * timeline->span / 2;
    timeline->span = in ? (timeline->span + 1) / 2 : timeline->span * 2;
    if (timeline->span == 0)
        timeline->span = 1;
    uint64_t half = width / 2 * timeline->span;
    timeline->from = middle > first + half ? middle - half : first;
    if (timeline->has_cursor)
        timeline->stick = timeline->cursor == last;
}

bool tui_timeline_command(struct tui_timeline *timeline, int command)
{
    size_t page = timeline->height > 1 ? (size_t)timeline->height - 1 : 1;
    switch (command) {
    case TUI_UP:
        timeline->lane -= timeline->lane > 0;
        break;
    case TUI_DOWN:
        timeline->lane++;
        break;
    case TUI_PAGE_UP:
        timeline->lane = timeline->lane > page ? timeline->lane - page : 0;
        break;
    case TUI_PAGE_DOWN:
        timeline->lane += page;
        break;
    case TUI_LEFT_COLUMN:
        move_cursor(timeline, -1);
        break;
    case TUI_RIGHT_COLUMN:
        move_cursor(timeline, 1);
        break;
    case TUI_FIRST:
        move_cursor(timeline, -(1 << 30));
        break;
    case TUI_LAST:
        move_cursor(timeline, 1 << 30);
        timeline->has_cursor = false;
        timeline->stick = true;
        break;
    case TUI_EXPAND:
        zoom(timeline, true);
        break;
    case TUI_COLLAPSE:
        zoom(timeline, false);
        break;
    default:
        return false;
    }
    show_lane(timeline);
    return true;
}

static void draw_axis(const struct tui_timeline *timeline, struct tui_rect place, int label_width,
                      uint64_t last)
{
    char text[32];
    tui_put(place.y, place.x, place.width, TUI_COLUMN, TUI_LEFT, "");
    for (int cell = 0; cell < timeline->width; cell += 12) {
        uint64_t at = timeline->from + (uint64_t)cell * timeline->span;
        if (at > last)
            break;
        timeline->source->position(timeline->context, at, text, sizeof text);
        int room = timeline->width - cell < 11 ? timeline->width - cell : 11;
        if (tui_text_cells(text, tui_utf8()) > (size_t)room)
            continue; /* half a number is none */
        tui_put(place.y, place.x + label_width + cell, room, TUI_COLUMN, TUI_LEFT, text);
    }
}

static void draw_lane(const struct tui_timeline *timeline, int y, int x, int label_width, size_t lane,
                      uint64_t last)
{
    char text[128];
    bool selected = lane == timeline->lane;
    text[0] = '\0';
    timeline->source->label(timeline->context, lane, text, sizeof text);
    tui_put(y, x, label_width - 1, selected ? TUI_SELECTED : TUI_NORMAL, TUI_LEFT, text);
    for (int cell = 0; cell < timeline->width; cell++) {
        uint64_t from = timeline->from + (uint64_t)cell * timeline->span;
        if (from > last)
            break;
        struct tui_mark mark = {.glyph = ' ', .ascii = ' ', .style = TUI_NORMAL};
        timeline->source->mark(timeline->context, lane, from, timeline->span, &mark);
        bool cursor =
            timeline->has_cursor && timeline->cursor >= from && timeline->cursor - from < timeline->span;
        char glyph[5];
        size_t n = tui_utf8_put(glyph, 4, tui_utf8() ? mark.glyph : mark.ascii);
        glyph[n] = '\0';
        tui_put(y, x + label_width + cell, 1, cursor ? TUI_SELECTED : mark.style, TUI_LEFT, glyph);
    }
}

void tui_timeline_draw(struct tui_timeline *timeline, struct tui_rect place, int label_width)
{
    if (place.height <= 0 || place.width <= 0)
        return;
    if (label_width > place.width / 2)
        label_width = place.width / 2;
    uint64_t first = 0, last = 0;
    timeline->source->bounds(timeline->context, &first, &last);
    timeline->height = place.height - 1;
    timeline->width = place.width - label_width;
    tui_timeline_fit(first, last, timeline->width, timeline->stick, &timeline->from, &timeline->span);
    show_lane(timeline);
    draw_axis(timeline, place, label_width, last);
    size_t lanes = timeline->source->lanes(timeline->context);
    for (int i = 0; i < timeline->height && timeline->top + (size_t)i < lanes; i++)
        draw_lane(timeline, place.y + 1 + i, place.x, label_width, timeline->top + (size_t)i, last);
}
