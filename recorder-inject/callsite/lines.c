#include "lines.h"

/* Next byte, -1 at the end. */
static int next_byte(struct line_table *table)
{
    if (table->at == table->have) {
        uint32_t want = table->left < sizeof(table->buffer) ? (uint32_t)table->left : sizeof(table->buffer);
        if (want == 0)
            return -1;
        if (!py_peek(table->address, table->buffer, want)) {
            table->unreadable = true;
            table->left = 0;
            return -1;
        }
        table->address += want;
        table->left -= want;
        table->at = 0;
        table->have = want;
    }
    return table->buffer[table->at++];
}

/* Pairs (bytes until the next line starts, signed change of line). */
static int64_t line_lnotab(struct line_table *table, int64_t offset, int64_t line)
{
    int64_t start = 0;
    for (;;) {
        int bytes = next_byte(table);
        int change = next_byte(table);
        if (change < 0 || (start += bytes) > offset)
            return line;
        line += (int8_t)change;
    }
}

/* Pairs (bytes of the range, signed change of line before it; -128 = the range has no line). */
static int64_t line_ranges(struct line_table *table, int64_t offset, int64_t line)
{
    int64_t end = 0;
    for (;;) {
        int bytes = next_byte(table);
        int change = next_byte(table);
        if (change < 0)
            return 0;
        bool none = (int8_t)change == -128;
        if (!none)
            line += (int8_t)change;
        end += bytes;
        if (offset < end)
            return none ? 0 : line;
    }
}

/* Little-endian groups of 6 bits; bit 6 set when another follows. */
static uint64_t read_varint(struct line_table *table)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 36; shift += 6) {
        int byte = next_byte(table);
        if (byte < 0)
            break;
        value |= (uint64_t)(byte & 63) << shift;
        if ((byte & 64) == 0)
            break;
    }
    return value;
}

static int64_t read_signed_varint(struct line_table *table)
{
    uint64_t value = read_varint(table);
    return (value & 1) != 0 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

/* Entries: a byte with bit 7 set (bits 3-6 form, bits 0-2 code units - 1), then bytes without bit 7. */
static int64_t line_locations(struct line_table *table, int64_t offset, int64_t line)
{
    enum { FORM_ONE_LINE = 10, FORM_ONE_LINE_LAST = 12, FORM_NO_COLUMNS, FORM_LONG, FORM_NONE };
    int64_t end = 0;
    int first = next_byte(table);
    while (first >= 0) {
        int form = first >> 3 & 15;
        if (form >= FORM_ONE_LINE && form <= FORM_ONE_LINE_LAST)
            line += form - FORM_ONE_LINE;
        else if (form == FORM_NO_COLUMNS || form == FORM_LONG)
            line += read_signed_varint(table);
        end += 2 * ((first & 7) + 1);
        if (offset < end)
            return form == FORM_NONE ? 0 : line;
        do {
            first = next_byte(table);
        } while (first >= 0 && first < 128);
    }
    return 0;
}

uint32_t line_of(enum py_lines format, struct line_table *table, int64_t offset, int firstlineno)
{
    int64_t line = firstlineno;
    if (offset >= 0) {
        switch (format) {
        case PY_LINES_LNOTAB:
            line = line_lnotab(table, offset, line);
            break;
        case PY_LINES_RANGES:
            line = line_ranges(table, offset, line);
            break;
        case PY_LINES_LOCATIONS:
            line = line_locations(table, offset, line);
            break;
        }
    }
    return line > 0 && line <= INT32_MAX && !table->unreadable ? (uint32_t)line : 0;
}
