/* Editing one line of text: the prompt of search and filter. Drawing apart, pure. */
#ifndef TUI_LINE_H
#define TUI_LINE_H

#include "fr-tui/term.h"

struct tui_line {
    char text[128]; /* UTF-8 */
    size_t length, cursor;
};

void tui_line_set(struct tui_line *line, const char *text); /* cursor at the end */
/* true when the text changed. Keys that mean nothing here (Enter, Esc, F keys …) are ignored. */
bool tui_line_key(struct tui_line *line, int key);
/* Draws it and puts the screen's cursor there. */
void tui_line_draw(const struct tui_line *line, int y, int x, int width);

#endif
