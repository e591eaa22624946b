/*
 * Frames of CPython 3.8 to 3.11 told apart by contents. There a code object has no number of its own,
 * and its address, and those of its name, file name and line table, are used again once they are freed.
 * So each frame that was seen is kept as a copy of everything from which its line was
 * found: offset of the instruction, first line, function, file name, and the line table as far as it was read
 * to get there. A frame is the one seen before if all of that is equal, byte by byte (the function's
 * name by the interpreter's 64-bit hash of it, where that is computed). Nothing else is trusted: neither an
 * address nor a guess from the last call, which only say what to compare with. So memory that
 * is freed and used again cannot give an old answer: either its bytes differ, or they lead to the same line.
 *
 * Copies are never changed or freed while captures go on, and are made by one thread at a time; a
 * reader needs no lock. They take a fixed memory; when it is full, frames that are new stay unknown.
 */
#ifndef CALLSITE_CONTENTS_H
#define CALLSITE_CONTENTS_H

#include <stdatomic.h>
#include <string.h>

#include "python.h"

/* Bytes of a text or of a line table that are compared; a frame that needs more is never known. */
#define CONTENTS_MAX (64u << 10)

/* Bytes of an object that must be equal: those from its offset at on, to those of the copy. */
struct contents_piece {
    uint64_t last, last_mask; /* up to 8 bytes: 8 that end with the piece, and which of them belong to it */
    const char *copy;         /* 16-byte aligned */
    uint32_t bytes, at;
};

struct contents {
    uint64_t id; /* of these contents only; never 0 */
    const struct contents *next;
    uint64_t probe;
    uint64_t name_hash, name_length, file_length, table_length;
    uint32_t name_state, file_state;
    uint32_t instr; /* of the frame, as contents_instr gives it */
    uint32_t firstlineno;
    struct contents_piece file, table, name; /* name: without bytes where the hash stands for it */
};

/* Changes when all copies become void: what a thread has remembered of them is no longer valid. */
extern _Atomic uint32_t contents_generation;

/* Forgets everything. While no other thread captures. */
void contents_reset(void);

/*
 * Copies what tells a frame. table_bytes: how much of the line table its line depends on. NULL when
 * that is too much, cannot be read, or the memory is full. By one thread at a time, the frame's own.
 */
const struct contents *contents_learn(const struct py_layout *layout, const char *code, uint32_t instr,
                                      uint32_t table_bytes);

/* Equal to nothing. */
extern const struct contents contents_none;

/* The contents that a frame with this code object stands at, NULL = unknown. Searches all that is known. */
const struct contents *contents_find(const struct py_layout *layout, const char *code, uint32_t instr);

#define CONTENTS_INLINE static inline __attribute__((always_inline))

CONTENTS_INLINE const char *load_pointer(const char *base, size_t offset)
{
    const char *value;
    memcpy(&value, base + offset, sizeof(value));
    return value;
}

CONTENTS_INLINE uint64_t load_word(const char *base, size_t offset)
{
    uint64_t value;
    memcpy(&value, base + offset, sizeof(value));
    return value;
}

CONTENTS_INLINE uint32_t load_int(const char *base, size_t offset)
{
    uint32_t value;
    memcpy(&value, base + offset, sizeof(value));
    return value;
}

/* Of PY_STR_STATE: what says where the text lies and how long it is. Whether it is interned may change. */
#define CONTENTS_STR_STATE 0x7cu
#define CONTENTS_COMPACT   0x20u
#define CONTENTS_ASCII     0x40u

/* Relaxed: the interpreter may be storing it. */
CONTENTS_INLINE uint64_t contents_hash(const char *object)
{
    return __atomic_load_n((const uint64_t *)(const void *)(object + PY_HASH), __ATOMIC_RELAXED);
}

/* As contents_differ, for more than 8 bytes. */
bool contents_differ_long(const char *data, const struct contents_piece *piece);

/* Do the data of an object and the copy differ? They begin at least 8 bytes within an object. */
CONTENTS_INLINE bool contents_differ(const char *data, const struct contents_piece *piece)
{
    if (piece->bytes > 8)
        return contents_differ_long(data, piece);
    return ((load_word(data + piece->bytes - 8, 0) ^ piece->last) & piece->last_mask) != 0;
}

/*
 * Is this what the frame stands at? file and file_is: the file name found equal last, so that frames of one
 * file need not compare it again; it cannot be freed meanwhile, a frame of this thread has it.
 */
CONTENTS_INLINE bool contents_equal(const struct py_layout *layout, const struct contents *known,
                                    const char *code, uint32_t instr, const char **file, const char **file_is)
{
    const char *file_now = load_pointer(code, layout->code_filename);
    const char *name = load_pointer(code, layout->code_name);
    const char *table = load_pointer(code, layout->code_linetable);
    uint64_t hash = contents_hash(name);
    if (known->instr != instr || known->firstlineno != load_int(code, layout->code_firstlineno) ||
        known->name_hash != hash || known->table_length != load_word(table, PY_LENGTH) ||
        contents_differ(table + PY_BYTES_DATA, &known->table))
        return false;
    if (hash == UINT64_MAX && (known->name_state != (load_int(name, PY_STR_STATE) & CONTENTS_STR_STATE) ||
                               known->name_length != load_word(name, PY_LENGTH) ||
                               contents_differ(name + known->name.at, &known->name)))
        return false;
    if (file_now == *file && known->file.copy == *file_is)
        return true;
    if (known->file_length != load_word(file_now, PY_LENGTH) ||
        known->file_state != (load_int(file_now, PY_STR_STATE) & CONTENTS_STR_STATE) ||
        contents_differ(file_now + known->file.at, &known->file))
        return false;
    *file = file_now;
    *file_is = known->file.copy;
    return true;
}

#endif
