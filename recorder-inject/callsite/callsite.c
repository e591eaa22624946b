#include "callsite.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "contents.h"
#include "key.h"
#include "native.h"
#include "proof.h"
#include "store.h"

/*
 * Who owns what. All is written by callsite_init, while nobody captures. Later state.api is written by the
 * one thread that has taken the mode from MODE_LOOK, before it stores MODE_PENDING; state.layout and
 * state.key by the thread that holds state.locked while the mode is MODE_PENDING, before it stores
 * MODE_PYTHON; each of these stores is a release, and who reads has loaded the mode with acquire. The store,
 * what is known of frames and the contents (contents.h) are written under state.locked. Cache words are whole
 * in themselves; release and acquire on them carries the publication of the site to the thread that finds its
 * number.
 */
enum mode {
    MODE_OFF = 0, /* not started, or stopped */
    MODE_NATIVE,  /* return addresses only */
    MODE_LOOK,    /* the same, and a thread shall look for Python */
    MODE_PENDING, /* Python is there, its layout not proved yet */
    MODE_PYTHON,
};

/*
 * 512 sets of 8 numbers. A word holds the upper 44 bits of a key and a 20-bit site number; the set is
 * chosen by other bits, so 53 bits must agree. Full sets lose their oldest-looking word: the
 * stack then takes the slow path again and gets the same number.
 */
#define CACHE_SETS 512
#define CACHE_WAYS 8
#define SITE_BITS  20
#define SITE_MASK  ((UINT64_C(1) << SITE_BITS) - 1)
_Static_assert(REC_CALLSITE_MAX_SITES <= SITE_MASK, "a site number fits into a cache word");

/*
 * A new stack mostly consists of frames that were seen in others. What is known of them saves copying
 * them again, which takes some microseconds each.
 */
#define KNOWN_SETS 512
#define KNOWN_WAYS 4

struct known_frame {
    uint64_t key;
    uint32_t location; /* in the store, or HIDDEN_LOCATION */
    uint32_t unused;
};

#define HIDDEN_LOCATION UINT32_MAX /* a frame that is not shown */

#define DEFAULT_MISSES_PER_SECOND 1000
#define LOCK_TRIES                200

static struct {
    _Atomic unsigned mode;
    _Atomic unsigned frames;
    unsigned native_frames; /* written by callsite_init only */
    _Atomic unsigned locked;
    _Atomic unsigned confirmed; /* the interpreter was asked, and agreed */
    _Atomic int64_t miss_second;
    _Atomic unsigned misses_left;
    struct callsite_config config;
    struct py_api api;
    struct py_layout layout;
    key_function *key;
    void (*find)(struct callsite_symbols *symbols); /* written before MODE_LOOK is stored */
    _Atomic unsigned looked;                        /* for a Python that came late */
    struct store store;
    struct known_frame known[KNOWN_SETS][KNOWN_WAYS]; /* read, too, under locked */
    _Alignas(64) _Atomic uint64_t cache[CACHE_SETS][CACHE_WAYS];
} state;

/* ---- cache ---- */

static inline _Atomic uint64_t *cache_set(uint64_t key)
{
    return state.cache[key % CACHE_SETS];
}

static inline uint32_t cache_find(uint64_t key)
{
    const _Atomic uint64_t *set = cache_set(key);
    for (unsigned i = 0; i < CACHE_WAYS; i++) {
        uint64_t word = atomic_load_explicit(&set[i], memory_order_acquire);
        if (((word ^ key) & ~SITE_MASK) == 0)
            return (uint32_t)(word & SITE_MASK);
    }
    return 0;
}

/* Newest first, so that the stacks in use are found at once. A race loses an entry, no more. */
static void cache_insert(uint64_t key, uint32_t site)
{
    _Atomic uint64_t *set = cache_set(key);
    for (unsigned i = CACHE_WAYS - 1; i > 0; i--) {
        uint64_t word = atomic_load_explicit(&set[i - 1], memory_order_acquire);
        atomic_store_explicit(&set[i], word, memory_order_release);
    }
    atomic_store_explicit(&set[0], (key & ~SITE_MASK) | site, memory_order_release);
}

/* ---- slow path ---- */

static void bump(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* No number, for this reason. */
static uint32_t lost(_Atomic uint64_t *counter)
{
    bump(counter);
    return 0;
}

/* May one more slow path be taken in this second? Races allow a few more. */
static bool within_rate(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if (atomic_load_explicit(&state.miss_second, memory_order_relaxed) != now.tv_sec) {
        atomic_store_explicit(&state.miss_second, now.tv_sec, memory_order_relaxed);
        atomic_store_explicit(&state.misses_left, state.config.misses_per_second, memory_order_relaxed);
    }
    unsigned left = atomic_load_explicit(&state.misses_left, memory_order_relaxed);
    if (left == 0)
        return false;
    atomic_store_explicit(&state.misses_left, left - 1, memory_order_relaxed);
    return true;
}

/* Holders publish what is new of one stack, or prove the layout; after a few tries the caller does without.
 */
static bool try_lock(void)
{
    for (unsigned i = 0; i < LOCK_TRIES; i++) {
        unsigned expected = 0;
        if (atomic_compare_exchange_weak_explicit(&state.locked, &expected, 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    }
    bump(&state.store.header->lost_busy);
    return false;
}

static void unlock(void)
{
    atomic_store_explicit(&state.locked, 0, memory_order_release);
}

/* Python stacks are over; caller holds the lock. What is wrong while the interpreter ends proves nothing. */
static void python_off(const char *why)
{
    struct rec_callsite_header *header = state.store.header;
    if (atomic_load_explicit(&header->python, memory_order_relaxed) == REC_CALLSITE_PYTHON_OFF ||
        !state.api.is_initialized())
        return;
    if (why != NULL)
        snprintf(header->reason, sizeof(header->reason), "Python %s: %s", header->python_version, why);
    atomic_store_explicit(&header->python, REC_CALLSITE_PYTHON_OFF, memory_order_release);
    atomic_store_explicit(&state.mode, MODE_NATIVE, memory_order_release);
}

/* Caller holds the lock. */
static void find_known(struct stack *stack)
{
    for (unsigned i = 0; i < stack->count; i++) {
        struct stack_frame *frame = &stack->frames[i];
        const struct known_frame *set = state.known[frame->key % KNOWN_SETS];
        for (unsigned way = 0; way < KNOWN_WAYS; way++)
            if (set[way].key == frame->key)
                frame->location = set[way].location;
    }
}

/* Caller holds the lock. The newest goes first. */
static void add_known(uint64_t key, uint32_t location)
{
    struct known_frame *set = state.known[key % KNOWN_SETS];
    memmove(&set[1], &set[0], (KNOWN_WAYS - 1) * sizeof(set[0]));
    set[0] = (struct known_frame){.key = key, .location = location};
}

static uint32_t store_text(const struct stack *stack, struct stack_text text)
{
    return text.length > 0 ? store_string(&state.store, stack->text + text.at, text.length)
                           : store_string(&state.store, "?", 1);
}

/* Location of a copied frame; 0 = memory full. */
static uint32_t locate(const struct stack *stack, const struct stack_frame *frame)
{
    if (frame->hidden)
        return HIDDEN_LOCATION;
    uint32_t file = store_text(stack, frame->file), function = store_text(stack, frame->function);
    return file != 0 && function != 0 ? store_location(&state.store, file, function, frame->line) : 0;
}

/* Is there a frame that is not hidden? */
static bool shows(const struct stack *stack)
{
    for (unsigned i = 0; i < stack->count; i++)
        if (!stack->frames[i].hidden && stack->frames[i].location != HIDDEN_LOCATION)
            return true;
    return false;
}

/*
 * Caller holds the lock. Number of the stack, and its key goes into the cache. 0 = memory full, or so much
 * new text that some was cut: what was copied is then known, and the rest follows next time.
 * thread_state is the caller's own, or NULL for the stack of another thread.
 */
static uint32_t publish_python(struct stack *stack, const char *thread_state)
{
    uint32_t locations[REC_CALLSITE_MAX_FRAMES];
    unsigned count = 0, max = atomic_load_explicit(&state.frames, memory_order_relaxed);
    bool settled = true, cut = false;
    for (unsigned i = 0; i < stack->count; i++) {
        struct stack_frame *frame = &stack->frames[i];
        uint32_t location = frame->location;
        cut |= frame->cut;
        if (frame->cut)
            continue;
        if (location == 0) {
            location = locate(stack, frame);
            if (location == 0)
                return lost(&state.store.header->lost_full);
            if (!state.layout.by_version && thread_state != NULL && !frame->hidden)
                key_learn(&state.layout, frame);
            settled &= frame->settled || frame->hidden;
            if (frame->settled && frame->key > KEY_UNKNOWN)
                add_known(frame->key, location);
        }
        if (location != HIDDEN_LOCATION)
            locations[count++] = location;
    }
    if (cut)
        return lost(&state.store.header->lost_busy);
    uint32_t site = store_python(&state.store, locations, count);
    if (site == 0)
        return lost(&state.store.header->lost_full);
    if (thread_state == NULL) /* another thread's: its key is not for us to compute */
        return site;
    uint64_t key = state.key(&state.api, &state.layout, thread_state, max);
    if (settled && key > KEY_UNKNOWN)
        cache_insert(key, site);
    return site;
}

/* Caller holds the lock. Asks the interpreter once, when this thread happens to hold its lock. */
static bool confirm(uintptr_t thread_state, const struct stack *stack)
{
    const char *why;
    enum proof proof = proof_by_interpreter(&state.api, thread_state, stack, &why);
    if (proof == PROOF_BAD) {
        python_off(why);
        return false;
    }
    if (proof == PROOF_GOOD) {
        atomic_store_explicit(&state.confirmed, 1, memory_order_relaxed);
        atomic_store_explicit(&state.store.header->python, REC_CALLSITE_PYTHON_CONFIRMED,
                              memory_order_release);
    }
    return true;
}

/* First Python thread: chooses the layout and proves it. Caller holds the lock. True = stack is copied. */
static bool prove(uintptr_t thread_state, unsigned max, struct stack *stack)
{
    struct rec_callsite_header *header = state.store.header;
    const char *why;
    unsigned char probe;
    if (!py_peek(thread_state, &probe, sizeof(probe))) {
        char text[64];
        snprintf(header->reason, sizeof(header->reason), "process_vm_readv: %s",
                 strerror_r(errno, text, sizeof(text)));
        python_off(NULL);
        return false;
    }
    if (!py_choose_layout(&state.api, &state.layout, header->python_version, header->reason,
                          sizeof(header->reason))) {
        python_off(NULL);
        return false;
    }
    enum proof proof = proof_by_structure(&state.api, &state.layout, thread_state, max, stack, &why);
    if (proof == PROOF_BAD)
        python_off(why);
    if (proof != PROOF_GOOD)
        return false;
    atomic_store_explicit(&header->python, REC_CALLSITE_PYTHON_PROVED, memory_order_release);
    if (!confirm(thread_state, stack))
        return false;
    state.key = key_choose(&state.layout);
    atomic_store_explicit(&state.mode, MODE_PYTHON, memory_order_release);
    return true;
}

static bool may_miss(void)
{
    if (!within_rate()) {
        bump(&state.store.header->lost_rate);
        return false;
    }
    bump(&state.store.header->misses);
    return true;
}

/* Number of a native stack, or while there are too many new ones of its first address, if that has one. */
static uint32_t native_site(const void *return_address, const void *frame)
{
    struct native_stack stack;
    if (return_address == NULL)
        return 0;
    native_walk(return_address, frame, state.native_frames, &stack);
    uint32_t site = cache_find(native_key(&stack));
    if (site != 0)
        return site;
    if (!may_miss()) {
        stack.count = 1;
        return cache_find(native_key(&stack));
    }
    native_check(&stack);
    uint64_t key = native_key(&stack);
    site = cache_find(key);
    if (site != 0 || !try_lock())
        return site;
    site = store_native(&state.store, stack.addresses, stack.count);
    if (site != 0)
        cache_insert(key, site);
    unlock();
    return site != 0 ? site : lost(&state.store.header->lost_full);
}

/* Does the calling thread hold the interpreter's lock, so that the interpreter can be asked? */
static bool can_ask(const char *thread_state)
{
    return atomic_load_explicit(&state.confirmed, memory_order_relaxed) == 0 &&
           state.api.thread_state_unchecked != NULL && state.api.thread_state_unchecked() == thread_state;
}

/* Copies what is not known of the stack; false when anything disagrees. Takes the lock for a moment. */
static bool copy_new_frames(const char *thread_state, unsigned max, bool whole, struct stack *stack)
{
    key_frames(&state.api, &state.layout, thread_state, max, stack);
    if (!whole && try_lock()) {
        find_known(stack);
        unlock();
    }
    return stack_copy(&state.api, &state.layout, stack);
}

/*
 * Number of a stack that the cache does not know. Its frames cannot change: their own thread is
 * in here. So the copy is made without the lock, except while the layout is being proved.
 */
static __attribute__((noinline)) uint32_t python_site(char *thread_state, const void *return_address,
                                                      const void *frame)
{
    struct stack stack;
    unsigned max = atomic_load_explicit(&state.frames, memory_order_relaxed);
    unsigned mode = atomic_load_explicit(&state.mode, memory_order_acquire);
    bool ask = mode == MODE_PYTHON && can_ask(thread_state);
    bool good = mode == MODE_PYTHON && copy_new_frames(thread_state, max, ask, &stack);
    if (!state.api.is_initialized())
        return native_site(return_address, frame);
    if (!try_lock())
        return 0;
    if (mode == MODE_PYTHON && !good)
        python_off(stack.wrong);
    if (atomic_load_explicit(&state.mode, memory_order_relaxed) == MODE_PENDING)
        good = prove((uintptr_t)thread_state, max, &stack);
    else if (good && ask)
        good = confirm((uintptr_t)thread_state, &stack);
    uint32_t site = 0;
    good = good && atomic_load_explicit(&state.mode, memory_order_relaxed) == MODE_PYTHON && shows(&stack);
    if (good)
        site = publish_python(&stack, thread_state);
    unlock();
    return good ? site : native_site(return_address, frame);
}

/* ---- the interface ---- */

bool callsite_init(const struct callsite_config *config)
{
    atomic_store_explicit(&state.mode, MODE_OFF, memory_order_relaxed);
    memset(&state, 0, sizeof(state));
    contents_reset();
    native_reset();
    if (!store_init(&state.store, config->memory, config->bytes))
        return false;
    state.config = *config;
    if (state.config.misses_per_second == 0)
        state.config.misses_per_second = DEFAULT_MISSES_PER_SECOND;
    state.frames = config->frames < REC_CALLSITE_MAX_FRAMES ? config->frames : REC_CALLSITE_MAX_FRAMES;
    state.native_frames = config->native_frames < REC_CALLSITE_MAX_ADDRESSES ? config->native_frames
                                                                             : REC_CALLSITE_MAX_ADDRESSES;
    unsigned mode = MODE_NATIVE;
    if (state.frames > 0 && config->symbols != NULL && py_take(&state.api, config->symbols)) {
        mode = MODE_PENDING;
        atomic_store_explicit(&state.store.header->python, REC_CALLSITE_PYTHON_PENDING, memory_order_relaxed);
    }
    atomic_store_explicit(&state.mode, mode, memory_order_release);
    return true;
}

bool callsite_without_python(void)
{
    return atomic_load_explicit(&state.mode, memory_order_acquire) == MODE_NATIVE &&
           atomic_load_explicit(&state.frames, memory_order_relaxed) > 0 &&
           atomic_load_explicit(&state.looked, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&state.store.header->python, memory_order_relaxed) ==
               REC_CALLSITE_PYTHON_NONE;
}

void callsite_look_again(void (*find)(struct callsite_symbols *symbols))
{
    unsigned mode = MODE_NATIVE;
    if (!callsite_without_python() || atomic_exchange_explicit(&state.looked, 1, memory_order_relaxed))
        return;
    state.find = find;
    atomic_compare_exchange_strong_explicit(&state.mode, &mode, MODE_LOOK, memory_order_release,
                                            memory_order_relaxed);
}

void callsite_stop(void)
{
    atomic_store_explicit(&state.mode, MODE_OFF, memory_order_release);
}

void callsite_thread(struct callsite_thread *thread)
{
    *thread = (struct callsite_thread){.owner = (uint64_t)pthread_self()};
    if (state.native_frames > 1)
        native_thread();
    if (atomic_load_explicit(&state.mode, memory_order_acquire) >= MODE_PENDING)
        thread->state = state.api.this_thread_state();
}

/* One look at another thread's stack. */
static bool look_at(const struct callsite_thread *thread, unsigned max, struct stack *stack)
{
    uint64_t owner;
    uintptr_t at = (uintptr_t)thread->state;
    return state.api.is_initialized() && py_peek(at + state.layout.ts_thread, &owner, sizeof(owner)) &&
           owner == thread->owner && stack_find(&state.layout, at, max, stack) &&
           stack_copy(&state.api, &state.layout, stack);
}

static bool same_stack(const struct stack *a, const struct stack *b)
{
    if (a->count != b->count || a->used != b->used || memcmp(a->text, b->text, a->used) != 0)
        return false;
    for (unsigned i = 0; i < a->count; i++)
        if (a->frames[i].address != b->frames[i].address || a->frames[i].code != b->frames[i].code ||
            a->frames[i].offset != b->frames[i].offset || a->frames[i].line != b->frames[i].line)
            return false;
    return true;
}

uint32_t callsite_of_thread(const struct callsite_thread *thread)
{
    struct stack first, second;
    unsigned max = atomic_load_explicit(&state.frames, memory_order_relaxed);
    if (thread->state == NULL || atomic_load_explicit(&state.mode, memory_order_acquire) != MODE_PYTHON ||
        !look_at(thread, max, &first) || !look_at(thread, max, &second) || !same_stack(&first, &second) ||
        !shows(&first) || !try_lock())
        return 0;
    uint32_t site = publish_python(&first, NULL);
    unlock();
    return site;
}

static __attribute__((noinline)) uint32_t slow_path(char *thread_state, const void *return_address,
                                                    const void *frame)
{
    int error = errno;
    uint32_t site = 0;
    if (thread_state != NULL && may_miss())
        site = python_site(thread_state, return_address, frame);
    else if (thread_state == NULL || atomic_load_explicit(&state.mode, memory_order_relaxed) != MODE_PYTHON)
        site = native_site(return_address, frame);
    errno = error;
    return site;
}

/* The first thread to come here looks, and the others go on without; the mode to go on with. */
static __attribute__((noinline)) unsigned find_python(void)
{
    int error = errno;
    unsigned mode = MODE_LOOK;
    struct callsite_symbols symbols;
    /* Acquire: state.find. */
    if (!atomic_compare_exchange_strong_explicit(&state.mode, &mode, MODE_NATIVE, memory_order_acquire,
                                                 memory_order_relaxed))
        return MODE_NATIVE;
    state.find(&symbols);
    mode = MODE_NATIVE;
    if (py_take(&state.api, &symbols)) {
        atomic_store_explicit(&state.store.header->python, REC_CALLSITE_PYTHON_PENDING, memory_order_relaxed);
        /* Release: state.api. Not if captures were stopped meanwhile. */
        if (atomic_compare_exchange_strong_explicit(&state.mode, &mode, MODE_PENDING, memory_order_release,
                                                    memory_order_relaxed))
            mode = MODE_PENDING;
    }
    errno = error;
    return mode;
}

uint32_t callsite_capture_from(const void *return_address, const void *frame)
{
    unsigned mode = atomic_load_explicit(&state.mode, memory_order_acquire);
    if (mode == MODE_OFF)
        return 0;
    char *thread_state = NULL;
    if (__builtin_expect(mode == MODE_LOOK, false))
        mode = find_python();
    if (mode >= MODE_PENDING)
        thread_state = state.api.this_thread_state();
    uint64_t key = KEY_NONE;
    if (thread_state != NULL) {
        if (mode == MODE_PENDING)
            return slow_path(thread_state, return_address, frame);
        key = state.key(&state.api, &state.layout, thread_state,
                        atomic_load_explicit(&state.frames, memory_order_relaxed));
    }
    if (key == KEY_NONE) {
        if (return_address == NULL)
            return 0;
        struct native_stack stack;
        thread_state = NULL;
        native_walk(return_address, frame, state.native_frames, &stack);
        key = native_key(&stack);
    }
    uint32_t site = key != KEY_UNKNOWN ? cache_find(key) : 0;
    return site != 0 ? site : slow_path(thread_state, return_address, frame);
}
