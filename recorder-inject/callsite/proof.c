#include "proof.h"

#include <pthread.h>

#define MAX_INTERPRETERS 1024

/* Does the thread state belong to this thread and to a living interpreter? */
static const char *check_thread_state(const struct py_api *api, const struct py_layout *layout,
                                      uintptr_t state)
{
    uint64_t thread, interpreter;
    if (!py_peek(state + layout->ts_thread, &thread, sizeof(thread)) || thread != (uint64_t)pthread_self())
        return "the thread state does not hold this thread's id";
    if (!py_peek(state + layout->ts_interp, &interpreter, sizeof(interpreter)))
        return "a thread state that cannot be read";
    void *known = api->interpreter_head();
    for (unsigned i = 0; known != NULL && i < MAX_INTERPRETERS; i++) {
        if ((uintptr_t)known == interpreter)
            return NULL;
        known = api->interpreter_next(known);
    }
    return "the thread state does not name a known interpreter";
}

enum proof proof_by_structure(const struct py_api *api, const struct py_layout *layout,
                              uintptr_t thread_state, unsigned max, struct stack *stack, const char **why)
{
    *why = check_thread_state(api, layout, thread_state);
    if (*why != NULL)
        return PROOF_BAD;
    if (!stack_find(layout, thread_state, max, stack) || !stack_copy(api, layout, stack)) {
        *why = stack->wrong;
        return PROOF_BAD;
    }
    if (stack->count == 0)
        return PROOF_OPEN;
    if (!stack->exact) {
        *why = "names that are no plain str objects";
        return PROOF_BAD;
    }
    for (unsigned i = 0; i < stack->count; i++) {
        const struct stack_frame *frame = &stack->frames[i];
        if (frame->hidden)
            continue;
        if ((!frame->cut && (frame->file.length == 0 || frame->function.length == 0)) ||
            frame->firstlineno < 0)
            *why = "a code object without file, name or line";
        /* Who calls has run at least the instruction that loads the callee. */
        if (frame->offset <= 0)
            *why = "a caller that is at its first instruction";
    }
    return *why == NULL ? PROOF_GOOD : PROOF_BAD;
}

/* The line of the innermost frame by the interpreter; making its frame object must not start a collection. */
static int innermost_line(const struct py_api *api)
{
    int collecting = api->gc_disable != NULL && api->gc_enable != NULL ? api->gc_disable() : 0;
    void *frame = api->current_frame();
    int line = frame != NULL ? api->frame_line(frame) : -1;
    if (collecting)
        api->gc_enable();
    return line;
}

enum proof proof_by_interpreter(const struct py_api *api, uintptr_t thread_state, const struct stack *stack,
                                const char **why)
{
    if (api->thread_state_unchecked == NULL || api->addr_to_line == NULL || api->current_frame == NULL ||
        api->frame_line == NULL || (uintptr_t)api->thread_state_unchecked() != thread_state)
        return PROOF_OPEN;
    /* A frame that has not begun is hidden by the interpreter: nothing to compare with. */
    if (stack->count == 0 || stack->frames[0].hidden || stack->frames[0].offset < 0)
        return PROOF_OPEN;
    int innermost = innermost_line(api);
    if ((innermost > 0 ? (uint32_t)innermost : 0) != stack->frames[0].line) {
        *why = "the interpreter is in another line";
        return PROOF_BAD;
    }
    for (unsigned i = 0; i < stack->count; i++) {
        const struct stack_frame *frame = &stack->frames[i];
        if (frame->hidden || frame->offset < 0)
            continue;
        int line = api->addr_to_line((void *)frame->code, (int)frame->offset);
        if ((line > 0 ? (uint32_t)line : 0) != frame->line) {
            *why = "the interpreter decodes a line table differently";
            return PROOF_BAD;
        }
    }
    return PROOF_GOOD;
}
