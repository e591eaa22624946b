/*
 * Addresses of a trace → function names, from the modules' own ELF symbol tables.
 *
 * A frame's offset is one into the module's file (event.h), so the name can be
 * found on any machine that has the same build of the module. Reads .symtab and .dynsym of
 * 64-bit little-endian ELF files; every file is untrusted. Keeps the tables of the last
 * modules. One symbolizer belongs to one thread at a time.
 */
#ifndef REC_SYMBOLIZE_H
#define REC_SYMBOLIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/event.h"

#pragma GCC visibility push(default)

struct rec_symbolizer;

struct rec_symbolizer *rec_symbolizer_new(void); /* NULL without memory */
void rec_symbolizer_free(struct rec_symbolizer *symbolizer);

/*
 * "ncclAllReduce+0x1f" into buffer (cut when longer, always terminated). False, and "" in
 * buffer, when the module is not here, has no symbols, or none of them covers the offset.
 * For a return address pass the offset as recorded: the name is that of the call before it.
 */
bool rec_symbolize(struct rec_symbolizer *symbolizer, const char *module, uint64_t offset, char *buffer,
                   size_t size);

enum rec_symbol {
    REC_SYMBOL_NONE = 0,
    REC_SYMBOL_FOUND,
    REC_SYMBOL_OTHER_BUILD, /* the file under this path is another build: its names would be wrong */
};

/* The same for a native frame of a call site, and compares the build of the file where both have an id. */
enum rec_symbol rec_symbolize_frame(struct rec_symbolizer *symbolizer, const struct rec_source_frame *frame,
                                    char *buffer, size_t size);

#pragma GCC visibility pop

#endif
