/*
 * Text for a screen of character cells: decoding, sanitising, measuring, cutting.
 *
 * Whatever comes from a trace (host names, communicator names, paths) is untrusted: it
 * may hold escape sequences, broken UTF-8 or direction overrides. These functions let
 * none of it through. A wide character takes two cells and is never cut in half.
 * Pure, except that character widths come from the locale (wcwidth).
 */
#ifndef TUI_TEXT_H
#define TUI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

enum tui_align { TUI_LEFT, TUI_RIGHT };

#define TUI_FIELD_CELLS 1024                      /* a field is at most this wide */
#define TUI_FIELD_CHARS (TUI_FIELD_CELLS * 3 + 1) /* with up to two combining marks a cell, and the zero */

/* The next code point; U+FFFD for a broken byte; 0 at the end. */
uint32_t tui_utf8_next(const char **text);
/* Appends a code point; bytes written (0 when it does not fit or is none). */
size_t tui_utf8_put(char *out, size_t room, uint32_t code);

/* Cells that text takes once sanitised. utf8 false: everything beyond ASCII counts as one '?'. */
size_t tui_text_cells(const char *text, bool utf8);

/*
 * Lays text out in a field of exactly width cells, beginning at its cell `from`: padded by
 * align, cut with an ellipsis ('~' without UTF-8) when it is longer. out holds
 * TUI_FIELD_CHARS characters. width is clamped to 0 … TUI_FIELD_CELLS.
 */
void tui_text_field(wchar_t *out, const char *text, size_t from, int width, enum tui_align align, bool utf8);

/* Keeps cells skip … skip+cells-1 of a laid-out field, in place; half of a wide character becomes a space. */
void tui_text_cut(wchar_t *field, int skip, int cells);

/* Does text contain one of the '|'-separated words, letter case aside? No words match everything. */
bool tui_text_matches(const char *text, const char *words);

#endif
