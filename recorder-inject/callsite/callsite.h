/*
 * The line of code behind a call: a number for the Python stack (or, without Python, the
 * return address) of the calling thread, cheap enough to be taken on every NCCL call.
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
 *   CPython 3.12 and later: (interpreter, address of the instruction, co_version). co_version is a
 *     number which an interpreter gives to one code object only; when its 32 bits are used up it
 *     stays 0, and such stacks always take the slow path.
 *   CPython 3.8 to 3.11: no address at all, but contents: (offset of the instruction, first
 *     line, hash of the name, hash of the file name, hash of the line table). These are
 *     the 64-bit hashes that str and bytes objects cache in themselves. Where one is not yet
 *     computed the slow path computes it with the interpreter's own _Py_HashBytes and stores it
 *     as the interpreter would: the only words of the interpreter that are ever written.
 *     Storing needs no lock: the object is kept alive by our own frame, the word is aligned,
 *     and whoever else writes it writes the same value.
 * So an equal key means an equal answer, whatever was freed and reused in between.
 *
 * Trust. The layout of each version is known beforehand (3.13 and later: told by the
 * interpreter itself), and is proved against the running interpreter before the fast path
 * reads anything: types, bounds, thread id, line tables, all through reads that cannot
 * fault. When the lock happens to be held by the calling thread, the interpreter's own
 * answers are compared as well. Any disagreement turns Python stacks off for good, with a
 * reason; return addresses go on being recorded.
 *
 * Known limits. Free-threaded builds and versions outside 3.8 … 3.14 are off. While Py_FinalizeEx
 * runs, captures do not look at Python; 3.8 frees the frames of daemon threads then, so
 * there a daemon thread preempted inside the walk during all of that could read freed
 * memory. Before 3.12 a thread inside a sub-interpreter is seen where it entered it.
 * A thread state must be used by the thread that it was made for, as everywhere in CPython
 * itself: an embedding program that lends states to other threads must set frames = 0.
 * The slow path uses up to 16 KiB of stack.
 */
#ifndef CALLSITE_H
#define CALLSITE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CALLSITE_MAX_FRAMES     64
#define CALLSITE_DEFAULT_FRAMES 16
#define CALLSITE_DEFAULT_BYTES  (1u << 20)
#define CALLSITE_MIN_BYTES      (16u << 10)
#define CALLSITE_MAX_SITES      0xfffffu
#define CALLSITE_MAX_FILE       511 /* bytes of a file name that are kept: its end */
#define CALLSITE_MAX_FUNCTION   255 /* bytes of a function name that are kept: its start */

/* ---- the recorder's side ---- */

struct callsite_config {
    void *memory;    /* zeroed, 64-byte aligned; outlives the recorder's use */
    size_t bytes;    /* at least CALLSITE_MIN_BYTES, at most 1 GiB */
    unsigned frames; /* Python frames per stack, hidden ones included; at most CALLSITE_MAX_FRAMES, 0 = no
                        Python */
    unsigned misses_per_second; /* slow paths allowed; 0 = 1,000. One takes some 20 µs, more if all is new */
    /* Finds a symbol of the process, NULL if there is none: dlsym(RTLD_DEFAULT, name). */
    void *(*lookup)(const char *name);
};

/*
 * Starts capturing into config->memory. Returns false when the memory is too small. Called
 * by one thread while no other captures: at start, and in the child of a fork with new
 * memory (the parent's is shared). Looks for Python here, once: an interpreter that is
 * loaded later is not seen.
 */
bool callsite_init(const struct callsite_config *config);

/* From now on captures return 0 and write nothing. Async-signal-safe: for the child of a fork. */
void callsite_stop(void);

/*
 * The call site of the calling thread: 1, 2, … or 0 for none (not started, nothing known,
 * memory full, too many new stacks at once: see the counters in the header). The number
 * can be read by another process once the caller has published it with release.
 * return_address (__builtin_return_address(0) of the wrapper) stands in where the thread
 * has no Python frame; NULL for none.
 *
 * Any thread, with or without the interpreter lock. Never blocks, allocates or changes
 * errno. In a signal handler that interrupted a capture it returns 0 at worst.
 */
uint32_t callsite_capture(const void *return_address);

/* ---- the memory, readable by any process ---- */

#define CALLSITE_MAGIC   UINT64_C(0x315449534c4c4143) /* "CALLSIT1" */
#define CALLSITE_VERSION 1

enum callsite_python {
    CALLSITE_PYTHON_NONE = 0,  /* no interpreter in the process, or frames = 0 */
    CALLSITE_PYTHON_PENDING,   /* there is one; no Python thread has made a call yet */
    CALLSITE_PYTHON_PROVED,    /* layout proved by structure */
    CALLSITE_PYTHON_CONFIRMED, /* and compared with the interpreter's own answers */
    CALLSITE_PYTHON_OFF,       /* see reason */
};

struct callsite_header {
    _Atomic uint64_t magic; /* stored last by callsite_init, release */
    uint32_t version;
    uint32_t bytes;
    uint32_t max_sites;
    uint32_t index_offset; /* max_sites + 1 words: offset of site i's record; 0 = none */
    uint32_t hash_offset;  /* hash_slots words, for the writer */
    uint32_t hash_slots;
    uint32_t arena_offset;
    _Atomic uint32_t sites; /* sites 1 … sites are published */
    _Atomic uint32_t used;  /* end of the arena's used part */
    _Atomic uint32_t python;
    _Atomic uint64_t misses;    /* slow paths taken */
    _Atomic uint64_t lost_full; /* captures without a number: memory full */
    _Atomic uint64_t lost_busy; /* another thread was publishing */
    _Atomic uint64_t lost_rate; /* more than misses_per_second */
    char python_version[32];    /* "3.11.7", valid once python is past PENDING (acquire) */
    char reason[136];           /* why Python stacks are off; valid once python is OFF (acquire) */
};

/*
 * A record lies in the arena, 4-byte aligned, and never changes once reachable: strings,
 * locations and sites, each stored once however often it is used. Offsets are from the start of the memory.
 *   string    count bytes, no terminator
 *   location  3 words: offset of the file's string, of the function's, line (0 = unknown)
 *   python    count words: offsets of locations, innermost first; id = site number
 *   native    2 words: return address, low word first; id = site number
 * Published by storing the offset in the index with release.
 */
enum callsite_kind { CALLSITE_STRING = 1, CALLSITE_LOCATION, CALLSITE_PYTHON, CALLSITE_NATIVE };

struct callsite_record {
    uint32_t hash;
    uint16_t kind;
    uint16_t count;
    uint32_t id;
};

struct callsite_frame {
    const char *file; /* not terminated; UTF-8, "?" where it could not be read */
    const char *function;
    uint32_t file_length, function_length;
    uint32_t line; /* 0 = unknown */
};

struct callsite_site {
    enum callsite_kind kind; /* CALLSITE_PYTHON or CALLSITE_NATIVE */
    uint32_t frame_count;
    uint64_t return_address;
    struct callsite_frame frames[CALLSITE_MAX_FRAMES]; /* innermost first */
};

struct callsite_reader {
    const char *memory;
    uint32_t bytes, max_sites, index_offset;
};

/*
 * Points *reader at memory that another process may be writing. False when it is not a
 * call-site region of this version or does not fit into bytes.
 */
bool callsite_open(const void *memory, size_t bytes, struct callsite_reader *reader);

/*
 * Reads site id. False when there is none or its record is damaged; no content of the memory
 * makes it read outside. Strings point into the memory. Thread safe.
 */
bool callsite_read(const struct callsite_reader *reader, uint32_t id, struct callsite_site *site);

#endif
