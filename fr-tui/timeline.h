/*
 * A timeline: lanes (ranks) down, a number line (time or seq) across. Each screen cell
 * stands for a range of that line; a callback says what to show in it and is asked for
 * visible cells only, so neither lanes nor line need to be in memory.
 */
#ifndef TUI_TIMELINE_H
#define TUI_TIMELINE_H

#include <stdint.h>

#include "fr-tui/term.h"

struct tui_mark {
    uint32_t glyph; /* one code point, one cell wide; carries the meaning without colour */
    uint32_t ascii; /* the same without UTF-8 */
    enum tui_style style;
};

struct tui_timeline_source {
    size_t (*lanes)(void *context);
    void (*label)(void *context, size_t lane, char *text, size_t size);
    /* Bounds of the line, first <= last. */
    void (*bounds)(void *context, uint64_t *first, uint64_t *last);
    /* What happened in [from, from + span); glyph ' ' = nothing. */
    void (*mark)(void *context, size_t lane, uint64_t from, uint64_t span, struct tui_mark *mark);
    /* A position as text for the axis ("-30 s", "1024"). */
    void (*position)(void *context, uint64_t at, char *text, size_t size);
};

struct tui_timeline {
    const struct tui_timeline_source *source;
    void *context;
    uint64_t span;    /* units per cell, >= 1; 0 = choose so that everything fits */
    uint64_t from;    /* first unit shown */
    bool stick;       /* stays at the newest end while that moves */
    size_t lane, top; /* selected lane, first lane shown */
    uint64_t cursor;  /* selected unit */
    bool has_cursor;
    int height, width; /* lanes and cells in the last draw */
};

void tui_timeline_open(struct tui_timeline *timeline, const struct tui_timeline_source *source,
                       void *context);
/* TUI_EXPAND zooms in, TUI_COLLAPSE out; arrows move; TUI_FIRST and TUI_LAST jump along the line. */
bool tui_timeline_command(struct tui_timeline *timeline, int command);
void tui_timeline_draw(struct tui_timeline *timeline, struct tui_rect place, int label_width);

/*
 * Fits from and span to the bounds and a width, pure: span 0 becomes the smallest that shows
 * everything, from is moved so that no cell lies beyond the last unit without need.
 */
void tui_timeline_fit(uint64_t first, uint64_t last, int width, bool stick, uint64_t *from, uint64_t *span);

#endif
