/*
 * Following the chain of frames costs one load-to-use latency per frame, more than all other
 * work together. So each thread remembers the chain that it saw last and goes on from the
 * remembered address while the true one is still being loaded; comparing the two is a branch
 * that the processor predicts. From the first frame that differs the rest is followed
 * plainly. The products of the frames are independent of each other and summed, each
 * salted by its depth, so that no multiplication waits for another.
 */
#include "key.h"

#include <string.h>

#include "layouts.h"

/* Addresses remembered by each thread: the default depth, with C code between some frames. */
#define REMEMBERED 24

struct walk {
    uint64_t sum, salt;
    uint32_t left; /* frames to go */
};

static inline const char *load_pointer(const char *base, size_t offset)
{
    const char *value;
    memcpy(&value, base + offset, sizeof(value));
    return value;
}

static inline uint64_t load_word(const char *base, size_t offset)
{
    uint64_t value;
    memcpy(&value, base + offset, sizeof(value));
    return value;
}

static inline uint32_t load_int(const char *base, size_t offset)
{
    uint32_t value;
    memcpy(&value, base + offset, sizeof(value));
    return value;
}

#define INLINE static inline __attribute__((always_inline))

/* Every byte counts, and its place: 16 of them in a few cycles, independent of the others. */
static inline uint64_t digest(const char *data, uint64_t bytes)
{
    uint64_t sum = bytes * KEY_SALT, salt = 0;
    for (; bytes >= 16; bytes -= 16, data += 16) {
        salt += KEY_SALT;
        sum += key_fold(load_word(data, 0) ^ salt, load_word(data, 8) ^ KEY_SECRET);
    }
    if (bytes > 0) {
        uint64_t rest[2] = {0, 0};
        memcpy(rest, data, bytes);
        sum += key_fold(rest[0] ^ (salt + KEY_SALT), rest[1] ^ KEY_SECRET);
    }
    return sum;
}

static inline uint64_t at_most(uint64_t value, uint64_t limit)
{
    return value < limit ? value : limit;
}

/* By the hash where the interpreter has computed it, as it does of all names, else by contents. */
static inline uint64_t digest_str(const struct py_layout *layout, const char *object)
{
    /* Relaxed: the interpreter may be storing it. */
    uint64_t hash = __atomic_load_n((const uint64_t *)(const void *)(object + PY_HASH), __ATOMIC_RELAXED);
    uint32_t state = load_int(object, PY_STR_STATE);
    if (hash != UINT64_MAX)
        return hash;
    if ((state & 0x20) == 0) /* its text lies elsewhere; such a frame is not remembered */
        return (uintptr_t)object;
    const char *text = object + ((state & 0x40) != 0 ? layout->ascii_data : layout->compact_data);
    return digest(text, at_most(load_word(object, PY_LENGTH) * (state >> 2 & 7), KEY_CONTENTS_MAX));
}

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

INLINE void add_contents(const struct py_layout *layout, struct walk *walk, const char *frame)
{
    const char *code = load_pointer(frame, layout->frame_code);
    uint64_t offset = layout->instr_unit == 0 ? load_word(frame, layout->frame_instr) - (uintptr_t)code
                                              : load_int(frame, layout->frame_instr);
    const char *table = load_pointer(code, layout->code_linetable);
    uint64_t file = digest_str(layout, load_pointer(code, layout->code_filename));
    uint64_t name = digest_str(layout, load_pointer(code, layout->code_name));
    uint64_t lines = digest(table + PY_BYTES_DATA, at_most(load_word(table, PY_LENGTH), KEY_CONTENTS_MAX));
    uint64_t place = (offset << 32 ^ load_int(code, layout->code_firstlineno)) * KEY_SALT;
    walk->left--;
    walk->salt += KEY_SALT;
    walk->sum += key_fold(lines ^ walk->salt, file ^ (name << 32 | name >> 32) ^ place);
}

INLINE void add(const struct py_layout *layout, struct walk *walk, const char *frame)
{
    if (layout->by_version)
        add_versioned(layout, walk, frame);
    else
        add_contents(layout, walk, frame);
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

INLINE const char *innermost_frame(const struct py_api *api, const struct py_layout *layout,
                                   const char *thread_state, uint64_t *interpreter)
{
    /* Versions are counted by each interpreter of the process. */
    *interpreter = layout->by_version ? load_word(thread_state, layout->ts_interp) : 0;
    const char *frame = pointer_of_state(api, thread_state, layout->ts_frame);
    if (frame == NULL || layout->cframe_frame == PY_NOT_THERE)
        return frame;
    return pointer_of_state(api, frame, layout->cframe_frame); /* the outermost cframe lies in the state */
}

/* At most twice max steps, as frames of C code do not count. Inlined for each layout. */
INLINE uint64_t walk_stack(const struct py_api *api, const struct py_layout *layout, const char *thread_state,
                           unsigned max)
{
    static _Thread_local __attribute__((tls_model("initial-exec"))) const char *remembered[REMEMBERED];
    struct walk walk = {.left = max};
    uint64_t interpreter;
    const char *frame = innermost_frame(api, layout, thread_state, &interpreter);
    const unsigned steps = 2 * max, guessed = steps < REMEMBERED ? steps : REMEMBERED;
    unsigned step = 0;
    while (frame != NULL && walk.left > 0 && step < guessed) {
        add(layout, &walk, frame);
        const char *previous = load_pointer(frame, layout->frame_previous);
        const char *guess = remembered[step];
        const char *next = guess;
        /* Keeps the compiler from going on from previous, once it knows that they are equal. */
        __asm__("" : "+r"(next));
        if (previous != guess) {
            frame = previous;
            break;
        }
        frame = next;
        step++;
    }
    for (; frame != NULL && walk.left > 0 && step < steps; step++) {
        if (step < REMEMBERED)
            remembered[step] = frame;
        add(layout, &walk, frame);
        frame = load_pointer(frame, layout->frame_previous);
    }
    return walk.salt == 0 ? KEY_NONE : key_finish(walk.sum, interpreter);
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
        add(layout, &one, frame);
        if (one.left == 0)
            stack->frames[stack->count++] =
                (struct stack_frame){.address = (uintptr_t)frame, .key = key_finish(one.sum, interpreter)};
        frame = load_pointer(frame, layout->frame_previous);
    }
}

key_function *key_choose(const struct py_layout *layout)
{
    const struct {
        const struct py_layout *layout;
        key_function *function;
    } known[] = {
        {&py_3_8, key_3_8},   {&py_3_10, key_3_10}, {&py_3_11, key_3_11},
        {&py_3_12, key_3_12}, {&py_3_13, key_3_13}, {&py_3_14, key_3_14},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (memcmp(layout, known[i].layout, sizeof(*layout)) == 0)
            return known[i].function;
    return key_any;
}
