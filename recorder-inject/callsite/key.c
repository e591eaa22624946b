/*
 * Following the chain of frames costs one load-to-use latency per frame, more than all other
 * work together. So each thread remembers the chain that it saw last and goes on from the
 * remembered address while the true one is still being loaded; comparing the two is a branch
 * that the processor predicts. From the first frame that differs the rest is followed
 * plainly. CPython 3.12 and later: the products of the frames are independent of each other and
 * summed, each salted by its depth, so that no multiplication waits for another. Before: the contents at
 * which a frame stood are remembered with its address, and are compared first.
 */
#include "key.h"

#include "contents.h"
#include "layouts.h"

/*
 * Steps remembered by each thread: the default depth, with C code between some frames. Not more, for
 * static thread-local memory is scarce where the recorder is loaded late, as a plugin.
 */
#define REMEMBERED 24

struct step {
    const char *frame;
    const struct contents *contents; /* at which it stood */
};

struct walk {
    uint64_t sum, salt;
    uint32_t left;              /* frames to go */
    const char *file, *file_is; /* the file name that was compared last, and its copy */
};

#define INLINE static inline __attribute__((always_inline))

INLINE void add_versioned(const struct py_layout *layout, struct walk *walk, const char *frame)
{
    if (frame[layout->frame_owner] >= PY_OWNER_C)
        return;
    const char *code = (const char *)((uintptr_t)load_pointer(frame, layout->frame_code) & ~PY_TAG_BITS);
    walk->left--;
    walk->salt += KEY_SALT;
    walk->sum += key_fold(load_word(frame, layout->frame_instr) ^ walk->salt,
                          load_int(code, layout->code_version) ^ KEY_SECRET);
}

/* As contents.h has it: what tells the instruction without the address of its code. */
INLINE uint32_t instr_of(const struct py_layout *layout, const char *frame, const char *code)
{
    return layout->instr_unit == 0 ? (uint32_t)(load_word(frame, layout->frame_instr) - (uintptr_t)code)
                                   : load_int(frame, layout->frame_instr);
}

/* False when the frame is not known by its contents. */
INLINE bool add_contents(const struct py_layout *layout, struct walk *walk, const char *frame,
                         const struct contents **remembered)
{
    const char *code = load_pointer(frame, layout->frame_code);
    uint32_t instr = instr_of(layout, frame, code);
    const struct contents *known = *remembered;
    if (__builtin_expect(!contents_equal(layout, known, code, instr, &walk->file, &walk->file_is), false)) {
        known = contents_find(layout, code, instr);
        if (known == NULL)
            return false;
        *remembered = known;
    }
    walk->left--;
    walk->sum = (walk->sum ^ known->id) * KEY_SALT; /* numbers are random: nothing needs to be mixed */
    return true;
}

INLINE bool add(const struct py_layout *layout, struct walk *walk, const char *frame,
                const struct contents **remembered)
{
    if (!layout->by_version)
        return add_contents(layout, walk, frame, remembered);
    add_versioned(layout, walk, frame);
    return true;
}

/*
 * Py_FinalizeEx first says that the interpreter is no longer initialized and then frees the states of all
 * other threads, but not their frames (3.8 does). So a pointer out of a state may be followed if
 * the interpreter is still initialized after it was read; else NULL.
 */
INLINE const char *pointer_of_state(const struct py_api *api, const char *base, size_t offset)
{
    const char *value = __atomic_load_n((const char *const *)(const void *)(base + offset), __ATOMIC_ACQUIRE);
    return api->is_initialized() ? value : NULL;
}

/*
 * Versions are counted by each interpreter of the process. Its number is its own; its address is used
 * again for the next one, which then compiles other code at the same places with the same versions.
 */
INLINE const char *innermost_frame(const struct py_api *api, const struct py_layout *layout,
                                   const char *thread_state, uint64_t *interpreter)
{
    *interpreter = 0;
    if (layout->by_version) {
        const char *state = pointer_of_state(api, thread_state, layout->ts_interp);
        if (state == NULL)
            return NULL;
        *interpreter = (uint64_t)api->interpreter_id((void *)(uintptr_t)state);
        /*
         * Each thread has copies of the instructions of its own, from the first use to its end. (CPython's
         * source says so, 3.14 and 3.15; the interpreter does not.)
         */
        if (layout->header != 0)
            *interpreter += api->thread_state_id((void *)(uintptr_t)thread_state) * KEY_SALT;
    }
    const char *frame = pointer_of_state(api, thread_state, layout->ts_frame);
    if (frame == NULL || layout->cframe_frame == PY_NOT_THERE)
        return frame;
    return pointer_of_state(api, frame, layout->cframe_frame); /* the outermost cframe lies in the state */
}

static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
    struct step steps[REMEMBERED];
    uint32_t generation; /* of the contents in them */
} own;

INLINE void forget_void_contents(void)
{
    uint32_t generation = atomic_load_explicit(&contents_generation, memory_order_relaxed);
    if (__builtin_expect(own.generation == generation, true))
        return;
    for (unsigned i = 0; i < REMEMBERED; i++)
        own.steps[i].contents = &contents_none;
    own.generation = generation;
}

/* From the frame on that is not the one remembered for its step. */
INLINE bool walk_rest(const struct py_layout *layout, struct walk *walk, const char *frame, unsigned at,
                      unsigned steps)
{
    struct step beyond = {.contents = &contents_none};
    for (; frame != NULL && walk->left > 0 && at < steps; at++) {
        struct step *step = at < REMEMBERED ? &own.steps[at] : &beyond;
        if (!add(layout, walk, frame, &step->contents))
            return false;
        step->frame = frame = load_pointer(frame, layout->frame_previous);
    }
    return true;
}

/* One for all layouts: inlined it would take the registers of what comes before it. */
static __attribute__((noinline)) bool walk_contents(const struct py_layout *layout, struct walk *walk,
                                                    const char *frame, unsigned at, unsigned steps)
{
    return walk_rest(layout, walk, frame, at, steps);
}

/*
 * At most twice max steps where frames of C code are among them, which do not count. Inlined for each
 * layout.
 */
INLINE uint64_t walk_stack(const struct py_api *api, const struct py_layout *layout, const char *thread_state,
                           unsigned max)
{
    struct walk walk = {.left = max};
    uint64_t interpreter;
    const char *frame = innermost_frame(api, layout, thread_state, &interpreter);
    const unsigned steps = layout->by_version ? 2 * max : max;
    struct step *step = own.steps, *end = step + (steps < REMEMBERED ? steps : REMEMBERED);
    if (!layout->by_version)
        forget_void_contents();
    while (frame != NULL && step < end && (!layout->by_version || walk.left > 0)) {
        if (!add(layout, &walk, frame, &step->contents))
            return KEY_UNKNOWN;
        const char *previous = load_pointer(frame, layout->frame_previous);
        const char *guess = step++->frame;
        const char *next = guess;
        /* Keeps the compiler from going on from previous, once it knows that they are equal. */
        __asm__("" : "+r"(next));
        if (previous != guess) {
            step[-1].frame = previous;
            frame = previous;
            break;
        }
        frame = next;
    }
    const unsigned at = (unsigned)(step - own.steps);
    if (frame == NULL || at == steps || walk.left == 0)
        return walk.left == max ? KEY_NONE : key_finish(walk.sum, interpreter);
    struct walk rest = walk; /* so that walk itself stays in registers */
    if (!(layout->by_version ? walk_rest(layout, &rest, frame, at, steps)
                             : walk_contents(layout, &rest, frame, at, steps)))
        return KEY_UNKNOWN;
    return key_finish(rest.sum, interpreter);
}

#define KEY_FUNCTION(version)                                                                                \
    static uint64_t key_##version(const struct py_api *api, const struct py_layout *layout,                  \
                                  const char *thread_state, unsigned max)                                    \
    {                                                                                                        \
        (void)layout;                                                                                        \
        return walk_stack(api, &py_##version, thread_state, max);                                            \
    }
KEY_FUNCTION(3_8)
KEY_FUNCTION(3_10)
KEY_FUNCTION(3_11)
KEY_FUNCTION(3_12)
KEY_FUNCTION(3_13)
KEY_FUNCTION(3_14)
KEY_FUNCTION(3_15)
KEY_FUNCTION(3_14t)
KEY_FUNCTION(3_15t)

static uint64_t key_any(const struct py_api *api, const struct py_layout *layout, const char *thread_state,
                        unsigned max)
{
    return walk_stack(api, layout, thread_state, max);
}

void key_frames(const struct py_api *api, const struct py_layout *layout, const char *thread_state,
                unsigned max, struct stack *stack)
{
    uint64_t interpreter;
    const char *frame = innermost_frame(api, layout, thread_state, &interpreter);
    stack->count = 0;
    for (unsigned step = 0; frame != NULL && stack->count < max && step < 2 * max; step++) {
        struct walk one = {.left = 1};
        const struct contents *nothing = &contents_none;
        bool known = add(layout, &one, frame, &nothing);
        if (one.left == 0 || !known)
            stack->frames[stack->count++] = (struct stack_frame){
                .address = (uintptr_t)frame, .key = known ? key_finish(one.sum, interpreter) : KEY_UNKNOWN};
        frame = load_pointer(frame, layout->frame_previous);
    }
}

void key_learn(const struct py_layout *layout, struct stack_frame *frame)
{
    const char *code = (const char *)frame->code;
    struct walk one = {.left = 1};
    uint32_t instr = instr_of(layout, (const char *)frame->address, code);
    const struct contents *learned = contents_learn(layout, code, instr, frame->table_bytes);
    if (learned != NULL && add_contents(layout, &one, (const char *)frame->address, &learned))
        frame->key = key_finish(one.sum, 0);
}

key_function *key_choose(const struct py_layout *layout)
{
    const struct {
        const struct py_layout *layout;
        key_function *function;
    } known[] = {
        {&py_3_8, key_3_8},   {&py_3_10, key_3_10},   {&py_3_11, key_3_11},
        {&py_3_12, key_3_12}, {&py_3_13, key_3_13},   {&py_3_14, key_3_14},
        {&py_3_15, key_3_15}, {&py_3_14t, key_3_14t}, {&py_3_15t, key_3_15t},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (memcmp(layout, known[i].layout, sizeof(*layout)) == 0)
            return known[i].function;
    return key_any;
}
