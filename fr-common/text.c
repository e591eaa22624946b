#include "fr-common.h"

#include <stdlib.h>
#include <string.h>

#include "rec/verdict.h"

/* RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. */
size_t fr_utf8_length(const char *text, size_t bytes)
{
    const unsigned char *s = (const unsigned char *)text;
    if (bytes == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || bytes < length)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return length;
}

static uint32_t decode(const char *text, size_t length)
{
    const unsigned char *s = (const unsigned char *)text;
    if (length == 1)
        return s[0];
    uint32_t point = s[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++)
        point = point << 6 | (s[i] & 0x3fu);
    return point;
}

/* What could move the cursor or change how the rest of the line reads. */
static bool deceptive(uint32_t point)
{
    return (point >= 0x80 && point < 0xa0) || (point >= 0x200b && point <= 0x200f) ||
           (point >= 0x2028 && point <= 0x202e) || (point >= 0x2060 && point <= 0x2069) || point == 0xfeff;
}

char *fr_clean(char *buffer, size_t size, const char *text)
{
    size_t out = 0, bytes = strlen(text);
    for (size_t in = 0; in < bytes;) {
        char escape[16];
        size_t length = fr_utf8_length(text + in, bytes - in);
        uint32_t point = length ? decode(text + in, length) : 0;
        size_t need = length;
        const char *from = text + in;
        if (length == 0 || point < 0x20 || point == 0x7f) {
            need = (size_t)snprintf(escape, sizeof(escape), "\\x%02x", (unsigned char)text[in]);
            from = escape;
        } else if (deceptive(point)) {
            need = (size_t)snprintf(escape, sizeof(escape), "\\u{%04x}", point);
            from = escape;
        }
        if (out + need + 1 > size)
            break;
        memcpy(buffer + out, from, need);
        out += need;
        in += length ? length : 1;
    }
    if (size)
        buffer[out] = '\0';
    return buffer;
}

static bool parse_number(const char **text, uint32_t *value)
{
    if (**text < '0' || **text > '9')
        return false;
    uint64_t number = 0;
    for (; **text >= '0' && **text <= '9'; ++*text) {
        number = number * 10 + (uint64_t)(**text - '0');
        if (number > INT32_MAX)
            return false;
    }
    *value = (uint32_t)number;
    return true;
}

bool fr_ranges_parse(const char *text, struct fr_ranges *ranges)
{
    for (;;) {
        struct fr_range range;
        if (!parse_number(&text, &range.first))
            return false;
        range.last = range.first;
        if (*text == '-') {
            text++;
            if (!parse_number(&text, &range.last) || range.last < range.first)
                return false;
        }
        struct fr_range *items = realloc(ranges->items, (ranges->count + 1) * sizeof(*items));
        if (!items)
            return false;
        ranges->items = items;
        items[ranges->count++] = range;
        if (*text == '\0')
            return true;
        if (*text++ != ',')
            return false;
    }
}

bool fr_ranges_has(const struct fr_ranges *ranges, uint32_t value)
{
    for (size_t i = 0; i < ranges->count; i++)
        if (value >= ranges->items[i].first && value <= ranges->items[i].last)
            return true;
    return false;
}

void fr_ranges_free(struct fr_ranges *ranges)
{
    free(ranges->items);
    ranges->items = NULL;
    ranges->count = 0;
}

static int compare_ranks(const void *left, const void *right)
{
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return (a > b) - (a < b);
}

bool fr_fold_ranks(char *buffer, size_t size, const int32_t *ranks, size_t count)
{
    static const char more[] = ",…";
    if (rec_fold_ranks(buffer, size, ranks, count) < (int)size)
        return true;
    char *comma = strrchr(buffer, ',');
    while (comma && (size_t)(comma - buffer) + sizeof more > size) {
        *comma = '\0';
        comma = strrchr(buffer, ',');
    }
    strcpy(comma ? comma : buffer, comma ? more : more + 1);
    return false;
}

void fr_fold_unsorted(char *buffer, size_t size, int32_t *ranks, size_t count)
{
    if (count > 0)
        qsort(ranks, count, sizeof *ranks, compare_ranks);
    fr_fold_ranks(buffer, size, ranks, count);
}
