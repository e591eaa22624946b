/*
 * Proof that a layout is right for the running interpreter, before anything is read by it
 * without protection.
 */
#ifndef CALLSITE_PROOF_H
#define CALLSITE_PROOF_H

#include "stack.h"

enum proof { PROOF_OPEN, PROOF_GOOD, PROOF_BAD };

/*
 * Proof by structure, for the calling thread and its state: no lock needed. Finds and copies
 * the whole stack. PROOF_OPEN: no Python frame to look at yet. PROOF_BAD: *why tells.
 */
enum proof proof_by_structure(const struct py_api *api, const struct py_layout *layout,
                              uintptr_t thread_state, unsigned max, struct stack *stack, const char **why);

/*
 * Compares a stack, copied as a whole, with the interpreter's own answers. PROOF_OPEN: the calling thread
 * does not hold the interpreter's lock, or the interpreter lacks the functions.
 */
enum proof proof_by_interpreter(const struct py_api *api, uintptr_t thread_state, const struct stack *stack,
                                const char **why);

#endif
