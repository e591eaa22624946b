/*
 * Line tables of code objects. Formats: Objects/lnotab_notes.txt (3.8, 3.9: lnotab; 3.10: line
 * ranges, PEP 626) and InternalDocs/code_objects.md (3.11 and later, PEP 657) of CPython.
 */
#ifndef CALLSITE_LINES_H
#define CALLSITE_LINES_H

#include "python.h"

/* A table of this process, read piecewise through py_peek. */
struct line_table {
    uintptr_t address;
    uint64_t left; /* bytes not yet read */
    uint32_t at, have;
    bool unreadable;
    uint8_t buffer[512];
};

/*
 * Line of the instruction at offset (in bytes; negative: before the first). 0 = the table gives none, or
 * it is unreadable (see table->unreadable).
 */
uint32_t line_of(enum py_lines format, struct line_table *table, int64_t offset, int firstlineno);

/* Of a table of length bytes: how many of its first ones the line depends on. */
static inline uint32_t line_table_used(const struct line_table *table, uint64_t length)
{
    return (uint32_t)(length - table->left) - (table->have - table->at);
}

#endif
