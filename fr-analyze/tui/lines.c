#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fr-analyze/tui/browser.h"

#define WIDTH_MAX 110 /* longer lines do not read well */
#define WIDTH_MIN 20

static size_t rows(void *context)
{
    return ((const struct lines *)context)->count;
}

static uint64_t id(void *context, size_t row)
{
    (void)context;
    return row + 1;
}

static void cell(void *context, size_t row, unsigned column, struct tui_cell *out)
{
    const struct lines *lines = context;
    out->number = (double)row;
    if (column > 0)
        return;
    snprintf(out->text, sizeof out->text, "%s", lines->lines[row].text);
    out->style = lines->lines[row].style;
}

const struct tui_source lines_source = {.rows = rows, .id = id, .cell = cell};

void lines_clear(struct lines *lines)
{
    free(lines->lines);
    *lines = (struct lines){.width = lines->width};
}

static void add_line(struct lines *lines, enum tui_style style, const struct place *target, const char *text,
                     size_t bytes, int indent)
{
    if (lines->count == lines->room) {
        size_t room = lines->room > 0 ? lines->room * 2 : 64;
        struct line *grown = realloc(lines->lines, room * sizeof *grown);
        if (grown == NULL) {
            lines->oom = true;
            return;
        }
        lines->lines = grown;
        lines->room = room;
    }
    struct line *line = &lines->lines[lines->count++];
    *line = (struct line){.style = style, .has_target = target != NULL, .about = lines->about};
    if (target != NULL)
        line->target = *target;
    snprintf(line->text, sizeof line->text, "%*s%.*s", indent, "", (int)bytes, text);
}

/* Bytes of text that fit into cells, up to a blank where there is one. */
static size_t fitting(const char *text, int cells)
{
    size_t blank = 0, bytes = 0;
    for (int n = 0; text[bytes] != '\0' && n < cells && bytes < sizeof((struct line *)0)->text - 16; n++) {
        const char *next = text + bytes;
        if (text[bytes] == ' ' && n > 0)
            blank = bytes;
        tui_utf8_next(&next);
        bytes = (size_t)(next - text);
    }
    if (text[bytes] == '\0' || text[bytes] == ' ' || blank == 0)
        return bytes;
    return blank;
}

void lines_add(struct lines *lines, enum tui_style style, int hang, const struct place *target,
               const char *format, ...)
{
    char *raw = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&raw, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : malloc((size_t)n * 3 + 1);
    if (text == NULL) {
        if (n >= 0)
            free(raw);
        lines->oom = true;
        return;
    }
    word_plain(text, (size_t)n * 3 + 1, raw);
    free(raw);
    int width = lines->width > WIDTH_MAX ? WIDTH_MAX : lines->width < WIDTH_MIN ? WIDTH_MIN : lines->width;
    if (hang < 0)
        width = INT_MAX;
    if (hang > width / 2)
        hang = width / 2;
    const char *at = text;
    int indent = 0;
    do {
        size_t bytes = fitting(at, width - indent);
        add_line(lines, style, target, at, bytes, indent);
        at += bytes;
        while (indent + hang > 0 && *at == ' ')
            at++;
        indent = hang;
        if (bytes == 0 || hang < 0)
            break;
    } while (*at != '\0');
    free(text);
}

bool lines_target(const struct lines *lines, size_t row, struct place *target)
{
    if (row >= lines->count || !lines->lines[row].has_target)
        return false;
    *target = lines->lines[row].target;
    return true;
}
