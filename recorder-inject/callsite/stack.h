/*
 * The slow path's view of a Python stack: text copied out of the interpreter by reads that
 * cannot fault, each object checked on the way.
 */
#ifndef CALLSITE_STACK_H
#define CALLSITE_STACK_H

#include "callsite.h"
#include "python.h"

#define STACK_TEXT_BYTES 6144

struct stack_text {
    uint16_t at, length; /* in stack.text; length 0 = could not be read */
};

struct stack_frame {
    uintptr_t address;
    uint64_t key;      /* identifies it, see key.h; 0 = not computed */
    uint32_t location; /* known already, of a frame with this key: not copied; 0 = copy it */
    bool hidden;       /* tracebacks do not show it: it has not begun, or is a helper of the interpreter */
    bool settled;      /* by version: it has one, so its key may be remembered */
    bool cut;          /* not copied as a whole: stack.text is full */
    /* The copy. */
    uintptr_t code;
    int64_t offset; /* of the instruction in bytes; negative = before the first */
    int32_t firstlineno;
    uint32_t line;
    uint32_t table_bytes; /* of the line table from which the line was found */
    struct stack_text file, function;
};

struct stack {
    const char *wrong; /* what disagreed with the layout; NULL = nothing */
    bool exact;        /* no text of a foreign str type was left out */
    unsigned count;
    struct stack_frame frames[REC_CALLSITE_MAX_FRAMES]; /* innermost first */
    size_t used;
    char text[STACK_TEXT_BYTES];
};

/*
 * Finds up to max frames of the calling thread, whose state is thread_state: the same that its key
 * covers (key.h). False and stack->wrong when memory is not what the layout says.
 */
bool stack_find(const struct py_layout *layout, uintptr_t thread_state, unsigned max, struct stack *stack);

/*
 * Copies the frames found that have no location. False and stack->wrong when something is not what
 * the layout says.
 */
bool stack_copy(const struct py_api *api, const struct py_layout *layout, struct stack *stack);

#endif
