#include "fr-tui/text.h"

#include <string.h>
#include <wctype.h>

#define REPLACEMENT 0xfffdu

static bool continuation(unsigned char byte)
{
    return (byte & 0xc0) == 0x80;
}

uint32_t tui_utf8_next(const char **text)
{
    const unsigned char *p = (const unsigned char *)*text;
    unsigned length = 0;
    uint32_t code = 0;
    if (p[0] < 0x80) {
        *text += p[0] != 0;
        return p[0];
    }
    if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        length = 2;
        code = p[0] & 0x1fu;
    } else if (p[0] >= 0xe0 && p[0] <= 0xef) {
        length = 3;
        code = p[0] & 0x0fu;
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        length = 4;
        code = p[0] & 0x07u;
    }
    for (unsigned i = 1; i < length; i++) {
        if (!continuation(p[i])) {
            length = 0;
            break;
        }
        code = code << 6 | (p[i] & 0x3fu);
    }
    bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    if (length == 0 || overlong || surrogate || code > 0x10ffff) {
        *text += 1;
        return REPLACEMENT;
    }
    *text += length;
    return code;
}

size_t tui_utf8_put(char *out, size_t room, uint32_t code)
{
    unsigned char bytes[4];
    size_t length;
    if (code < 0x80) {
        bytes[0] = (unsigned char)code;
        length = 1;
    } else if (code < 0x800) {
        bytes[0] = (unsigned char)(0xc0 | code >> 6);
        bytes[1] = (unsigned char)(0x80 | (code & 0x3f));
        length = 2;
    } else if (code < 0x10000) {
        bytes[0] = (unsigned char)(0xe0 | code >> 12);
        bytes[1] = (unsigned char)(0x80 | (code >> 6 & 0x3f));
        bytes[2] = (unsigned char)(0x80 | (code & 0x3f));
        length = 3;
    } else {
        bytes[0] = (unsigned char)(0xf0 | code >> 18);
        bytes[1] = (unsigned char)(0x80 | (code >> 12 & 0x3f));
        bytes[2] = (unsigned char)(0x80 | (code >> 6 & 0x3f));
        bytes[3] = (unsigned char)(0x80 | (code & 0x3f));
        length = 4;
    }
    if (code > 0x10ffff || length > room)
        return 0;
    memcpy(out, bytes, length);
    return length;
}

/* Characters that show nothing themselves but change how others are shown. */
static bool invisible_control(uint32_t code)
{
    return (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f) || code == 0xfeff || (code >= 0xfff9 && code <= 0xfffb) ||
           (code >= 0xe0000 && code <= 0xe0fff);
}

/*
 * The next character that may be shown, and its width in cells (0: combines with the one
 * before). 0 at the end.
 */
static uint32_t next_shown(const char **text, bool utf8, int *cells)
{
    for (;;) {
        uint32_t code = tui_utf8_next(text);
        *cells = 1;
        if (code == 0)
            return 0;
        if (code == '\t')
            return ' ';
        if (code < 0x20 || (code >= 0x7f && code < 0xa0))
            return '?';
        if (code < 0x7f)
            return code;
        if (!utf8)
            return '?';
        if (invisible_control(code))
            continue;
        int width = wcwidth((wchar_t)code);
        if (width < 0)
            return REPLACEMENT;
        *cells = width;
        return code;
    }
}

size_t tui_text_cells(const char *text, bool utf8)
{
    size_t total = 0;
    int cells;
    while (next_shown(&text, utf8, &cells) != 0)
        total += (size_t)cells;
    return total;
}

static wchar_t *pad(wchar_t *out, int count)
{
    for (int i = 0; i < count; i++)
        *out++ = L' ';
    return out;
}

/* Copies up to width cells; returns the cells used. At most two marks per character are kept. */
static int copy_cells(wchar_t **out, const char *text, int width, bool utf8)
{
    int used = 0, marks = 0, cells;
    uint32_t code;
    while ((code = next_shown(&text, utf8, &cells)) != 0) {
        if (cells == 0) {
            if (used > 0 && marks++ < 2)
                *(*out)++ = (wchar_t)code;
            continue;
        }
        if (used + cells > width)
            break;
        marks = 0;
        used += cells;
        *(*out)++ = (wchar_t)code;
    }
    return used;
}

void tui_text_field(wchar_t *out, const char *text, size_t from, int width, enum tui_align align, bool utf8)
{
    if (width < 0)
        width = 0;
    if (width > TUI_FIELD_CELLS)
        width = TUI_FIELD_CELLS;

    int lead = 0;
    for (int cells = 0; from > 0 && next_shown(&text, utf8, &cells) != 0;) {
        if ((size_t)cells > from)
            lead = cells - (int)from;
        from -= (size_t)cells < from ? (size_t)cells : from;
    }
    if (lead > width)
        lead = width;
    out = pad(out, lead);
    width -= lead;

    size_t have = tui_text_cells(text, utf8);
    if (have > (size_t)width && width > 0) {
        int used = copy_cells(&out, text, width - 1, utf8);
        *out++ = utf8 ? L'\u2026' : L'~';
        out = pad(out, width - 1 - used);
    } else if (align == TUI_RIGHT) {
        out = pad(out, width - (int)have);
        copy_cells(&out, text, width, utf8);
    } else if (width > 0) {
        int used = copy_cells(&out, text, width, utf8);
        out = pad(out, width - used);
    }
    *out = 0;
}

void tui_text_cut(wchar_t *field, int skip, int cells)
{
    wchar_t *out = field;
    const wchar_t *in = field;
    int at = 0, end = skip + cells;
    bool shown = false;
    for (; *in != 0; in++) {
        int width = wcwidth(*in);
        if (width <= 0) {
            if (shown)
                *out++ = *in;
            continue;
        }
        int left = at > skip ? at : skip;
        int right = at + width < end ? at + width : end;
        shown = right - left == width;
        if (shown) {
            *out++ = *in;
        } else {
            for (int i = left; i < right; i++)
                *out++ = L' ';
        }
        at += width;
        if (at >= end && wcwidth(in[1]) != 0)
            break;
    }
    *out = 0;
}

static bool contains(const char *text, const char *word, size_t length)
{
    for (; *text != '\0'; text++) {
        const char *a = text, *b = word;
        while (b < word + length && *a != '\0') {
            const char *next_a = a, *next_b = b;
            if (towlower(tui_utf8_next(&next_a)) != towlower(tui_utf8_next(&next_b)))
                break;
            a = next_a;
            b = next_b;
        }
        if (b >= word + length)
            return true;
    }
    return false;
}

bool tui_text_matches(const char *text, const char *words)
{
    bool any = false;
    while (*words != '\0') {
        size_t length = strcspn(words, "|");
        if (length > 0) {
            any = true;
            if (contains(text, words, length))
                return true;
        }
        words += length;
        words += *words == '|';
    }
    return !any;
}
