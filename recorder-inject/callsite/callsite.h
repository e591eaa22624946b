/*
 * The line of code behind a call: a number for the Python stack (or, without Python, the
 * return addresses: native.h) of the calling thread, cheap enough to be taken on every NCCL call.
 *
 * How it works. The thread that calls NCCL is the only one that changes its own Python
 * frames, and it is inside our wrapper, so it may walk them without the interpreter lock.
 * The fast path walks up to N frames, folds what identifies them into 64 bits and looks
 * that up in a process-wide cache: no lock, no allocation, no system call. Only a stack not
 * in the cache takes the slow path, which copies file, function and line of each frame
 * into the caller's memory (shared with other processes) and numbers the stack.
 *
 * What identifies a frame. Addresses alone do not: a code object can be freed and another
 * one be made at its address.
 *   CPython 3.12 and later: (number of the interpreter, address of the instruction, co_version).
 *     co_version is a number which an interpreter gives to one code object only; when its 32 bits are
 *     used up it stays 0, and such stacks always take the slow path. Free-threaded builds have copies of
 *     the instructions for each thread, which are freed at some time after its end: there the number of
 *     the thread state belongs to it as well.
 *   CPython 3.8 to 3.11: no address and no number, but contents, which are compared byte by byte with a
 *     copy of them (contents.h): offset of the instruction, first line, name, file name, and the line
 *     table as far as the line depends on it. Where more than 64 KiB would have to be compared the
 *     stack always takes the slow path.
 * Nothing of the interpreter is ever written. So an equal key means an equal answer, whatever was freed and
 * reused in between.
 *
 * Trust. The layout of each version is known beforehand (3.13 and later: told by the
 * interpreter itself), and is proved against the running interpreter before the fast path
 * reads anything: types, bounds, thread id, line tables, all through reads that cannot
 * fault. When the lock happens to be held by the calling thread, the interpreter's own
 * answers are compared as well. Any disagreement turns Python stacks off for good, with a
 * reason; return addresses go on being recorded.
 *
 * Known limits. Versions outside 3.8 … 3.15 are off, and the free-threaded 3.13. While Py_FinalizeEx
 * runs, captures do not look at Python; 3.8 frees the frames of daemon threads then, so
 * there a daemon thread preempted inside the walk during all of that could read freed
 * memory. Before 3.12 a thread inside a sub-interpreter is seen where it entered it.
 * From 3.12 on an interpreter that is initialized again after Py_FinalizeEx counts versions anew: where its
 * code lies as before, lines may be those of the code before.
 * A thread state must be used by the thread that it was made for, as everywhere in CPython
 * itself: an embedding program that lends states to other threads must set frames = 0.
 * The slow path uses up to 16 KiB of stack.
 */
#ifndef CALLSITE_H
#define CALLSITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/callsite.h"

#define CALLSITE_DEFAULT_FRAMES 16
#define CALLSITE_DEFAULT_NATIVE 8
#define CALLSITE_DEFAULT_BYTES  (1u << 20)
#define CALLSITE_MIN_BYTES      (16u << 10)

struct callsite_config {
    void *memory;    /* zeroed, 64-byte aligned; outlives the recorder's use */
    size_t bytes;    /* at least CALLSITE_MIN_BYTES, at most 1 GiB */
    unsigned frames; /* Python frames per stack, hidden ones included; at most REC_CALLSITE_MAX_FRAMES, 0 = no
                        Python */
    unsigned native_frames; /* return addresses where there is no Python; at most REC_CALLSITE_MAX_ADDRESSES;
                               0 is as 1 */
    unsigned misses_per_second; /* slow paths allowed; 0 = 1,000. One takes some 20 µs, more if all is new */
    const struct callsite_symbols *symbols; /* NULL = no Python; read by callsite_init only */
};

/* Of the interpreter, as found. */
struct callsite_symbols {
    void *found[20];
};

/*
 * Looks for Python. lookup finds a symbol of the process, NULL if there is none:
 * dlsym(RTLD_DEFAULT, name). Apart from callsite_init, so that it can be done under no lock of
 * the caller: the dynamic linker has locks of its own.
 */
void callsite_find(struct callsite_symbols *symbols, void *(*lookup)(const char *name));

/*
 * Starts capturing into config->memory. Returns false when the memory is too small. Called
 * by one thread while no other captures: at start, and in the child of a fork with new
 * memory (the parent's is shared).
 */
bool callsite_init(const struct callsite_config *config);

/* Is there no Python, though it is wanted, and has nobody been told to look again? */
bool callsite_without_python(void);

/*
 * There may be one by now: the next thread that captures calls find, under no lock, to look its symbols
 * up; find may block and allocate. Does nothing unless callsite_without_python, and only once. Any thread;
 * never blocks itself.
 */
void callsite_look_again(void (*find)(struct callsite_symbols *symbols));

/* From now on captures return 0 and write nothing. Async-signal-safe: for the child of a fork. */
void callsite_stop(void);

/*
 * The call site of the calling thread: 1, 2, … or 0 for none (not started, nothing known,
 * memory full, too many new stacks at once: see the counters in the header). The number
 * can be read by another process once the caller has published it with release.
 * return_address (__builtin_return_address(0) of the wrapper) stands in where the thread
 * has no Python frame; NULL for none. frame is the wrapper's __builtin_frame_address(0), from which
 * further return addresses are found (native.h); NULL for only the one.
 *
 * Any thread, with or without the interpreter lock. Never blocks, allocates or changes
 * errno; but once in a process it may call what callsite_look_again was given, which does. In a signal
 * handler that interrupted a capture it returns 0 at worst.
 */
uint32_t callsite_capture_from(const void *return_address, const void *frame);

static inline uint32_t callsite_capture(const void *return_address)
{
    return callsite_capture_from(return_address, NULL);
}

/*
 * The calling thread as Python knows it, for others to ask about. Native stacks are known of threads
 * that have called this; it may allocate.
 */
struct callsite_thread {
    const void *state; /* NULL = not a thread of Python */
    uint64_t owner;
};
void callsite_thread(struct callsite_thread *thread);

/*
 * The call site at which another thread stands that is blocked in the kernel: its stack is read
 * twice, by reads that cannot fault, and must not change in between. 0 when it has none, when that
 * is in doubt, or when the layout is not proved. By one thread at a time, of the same process.
 */
uint32_t callsite_of_thread(const struct callsite_thread *thread);

#endif
