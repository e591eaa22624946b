#include "fr-tui/line.h"

#include <stdio.h>
#include <string.h>

void tui_line_set(struct tui_line *line, const char *text)
{
    snprintf(line->text, sizeof line->text, "%s", text);
    line->length = line->cursor = strlen(line->text);
}

static size_t before(const struct tui_line *line, size_t at)
{
    while (at > 0 && ((unsigned char)line->text[--at] & 0xc0) == 0x80)
        ;
    return at;
}

static size_t after(const struct tui_line *line, size_t at)
{
    const char *p = line->text + at;
    tui_utf8_next(&p);
    return (size_t)(p - line->text);
}

static bool erase_range(struct tui_line *line, size_t from, size_t to)
{
    if (from >= to)
        return false;
    memmove(line->text + from, line->text + to, line->length - to + 1);
    line->length -= to - from;
    line->cursor = from;
    return true;
}

static bool insert(struct tui_line *line, int key)
{
    char bytes[4];
    size_t n = tui_utf8_put(bytes, sizeof bytes, (uint32_t)key);
    if (n == 0 || line->length + n >= sizeof line->text)
        return false;
    memmove(line->text + line->cursor + n, line->text + line->cursor, line->length - line->cursor + 1);
    memcpy(line->text + line->cursor, bytes, n);
    line->length += n;
    line->cursor += n;
    return true;
}

static size_t word_start(const struct tui_line *line)
{
    size_t at = line->cursor;
    while (at > 0 && line->text[at - 1] == ' ')
        at--;
    while (at > 0 && line->text[at - 1] != ' ')
        at--;
    return at;
}

bool tui_line_key(struct tui_line *line, int key)
{
    switch (key) {
    case TUI_KEY_LEFT:
    case TUI_CTRL('b'):
        line->cursor = before(line, line->cursor);
        return false;
    case TUI_KEY_RIGHT:
    case TUI_CTRL('f'):
        line->cursor = after(line, line->cursor);
        return false;
    case TUI_KEY_HOME:
    case TUI_CTRL('a'):
        line->cursor = 0;
        return false;
    case TUI_KEY_END:
    case TUI_CTRL('e'):
        line->cursor = line->length;
        return false;
    case TUI_KEY_BACKSPACE:
        return erase_range(line, before(line, line->cursor), line->cursor);
    case TUI_KEY_DELETE:
    case TUI_CTRL('d'):
        return erase_range(line, line->cursor, after(line, line->cursor));
    case TUI_CTRL('u'):
        return erase_range(line, 0, line->cursor);
    case TUI_CTRL('w'):
        return erase_range(line, word_start(line), line->cursor);
    case TUI_CTRL('k'):
        return erase_range(line, line->cursor, line->length);
    default:
        return key >= 0x20 && key <= 0x10ffff && (key < 0x7f || key >= 0xa0) && insert(line, key);
    }
}

void tui_line_draw(const struct tui_line *line, int y, int x, int width)
{
    char head[sizeof line->text];
    memcpy(head, line->text, line->cursor);
    head[line->cursor] = '\0';
    size_t cells = tui_text_cells(head, tui_utf8());
    size_t from = width > 1 && cells >= (size_t)width ? cells - (size_t)width + 1 : 0;
    tui_put_from(y, x, width, TUI_BAR_LABEL, line->text, from);
    tui_cursor(y, x + (int)(cells - from));
}
