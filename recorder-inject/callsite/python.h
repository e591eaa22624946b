/*
 * CPython seen from outside: where things lie in each version, and the functions of the
 * running interpreter that may be called without its lock. No Python.h, no libpython.
 */
#ifndef CALLSITE_PYTHON_H
#define CALLSITE_PYTHON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define PY_NOT_THERE UINT16_MAX

enum py_lines {
    PY_LINES_LNOTAB,    /* 3.8, 3.9: co_lnotab */
    PY_LINES_RANGES,    /* 3.10: co_linetable, PEP 626 */
    PY_LINES_LOCATIONS, /* 3.11 and later: co_linetable, PEP 657 */
};

/* Offsets in bytes. str and bytes are equal enough in all versions: see PY_LENGTH … below. */
struct py_layout {
    uint8_t lines;
    uint8_t by_version; /* frames are identified by co_version, else by contents */
    uint8_t header;     /* by which the head of an object is longer: not 0 in a free-threaded build */
    uint8_t instr_unit; /* bytes per unit of f_lasti; 0: the frame holds a pointer */
    uint16_t ts_interp, ts_thread;
    uint16_t ts_frame;     /* the innermost frame, or the cframe */
    uint16_t cframe_frame; /* 3.11, 3.12: the frame in the cframe */
    uint16_t frame_code, frame_previous, frame_instr;
    uint16_t frame_owner; /* 3.11 and later */
    uint16_t frame_copy;  /* free-threaded: which copy of the instructions, an index into the code's array */
    uint16_t code_size, code_firstlineno, code_filename, code_name, code_linetable;
    uint16_t
        code_bytecode; /* before 3.11: of the pointer to the bytes object; since: of the first instruction */
    uint16_t code_version;
    uint16_t code_copies;              /* free-threaded: of the pointer to the array of copies */
    uint16_t code_firsttraceable;      /* units of instructions before which a frame has not begun */
    uint16_t ascii_data, compact_data; /* start of the text in a str that is / is not ASCII */
};
_Static_assert(sizeof(struct py_layout) == 4 + 20 * 2, "no padding");

/* PyObject, PyVarObject, PyASCIIObject and PyBytesObject of 3.8 … 3.15, 64-bit, without layout.header. */
#define PY_TYPE         8
#define PY_LENGTH       16
#define PY_HASH         24 /* of str and of bytes; -1 = not computed */
#define PY_STR_STATE    32 /* u32: kind in bits 2-4, compact bit 5, ascii bit 6 */
#define PY_BYTES_DATA   32
#define PY_OBJECT_BYTES 40

/* Every member of a frame that is used ends here at most; likewise for code objects. */
#define PY_FRAME_BYTES 128
#define PY_CODE_BYTES  256

/* Frames of generators have begun once they exist. */
#define PY_OWNER_GENERATOR 1
/* Frames with this owner and above stand for C code between Python frames (3.12 and later). */
#define PY_OWNER_C 3

/* Low bits of f_executable are a tag since 3.14. */
#define PY_TAG_BITS UINT64_C(3)

struct py_api {
    int (*is_initialized)(void);
    void *(*this_thread_state)(
        void); /* PyGILState_GetThisThreadState: thread-local, NULL for foreign threads */
    const char *(*get_version)(void);
    void *(*interpreter_head)(void);
    void *(*interpreter_next)(void *interpreter);
    int64_t (*interpreter_id)(void *interpreter); /* PyInterpreterState_GetID: only reads; 3.7 and later */
    uint64_t (*thread_state_id)(void *state);     /* PyThreadState_GetID: only reads; 3.9 and later */
    uintptr_t code_type, str_type, bytes_type;
    const void *runtime; /* _PyRuntime */
    /* For the comparison with the lock held; any may be missing. */
    void *(*thread_state_unchecked)(void);
    int (*addr_to_line)(void *code, int offset);
    void *(*current_frame)(void);
    int (*frame_line)(void *frame);
    int (*gc_disable)(void);
    int (*gc_enable)(void);
};

/* Fills *api. False when the process has no CPython. */
struct callsite_symbols;
bool py_take(struct py_api *api, const struct callsite_symbols *symbols);

/*
 * Chooses the layout for the running version. On failure returns false and a reason, which
 * fits into reason_bytes. Copies the version ("3.11.7") into version.
 */
bool py_choose_layout(const struct py_api *api, struct py_layout *layout, char version[32], char *reason,
                      size_t reason_bytes);

/*
 * Copy memory of this process; false where it cannot be accessed. Addresses may be any numbers: never
 * fault. py_peekv gathers count pieces of together bytes. The process is the one that
 * called py_take last: to be called again after a fork.
 */
bool py_peek(uintptr_t address, void *to, size_t bytes);
bool py_peekv(struct iovec *from, unsigned count, void *to, size_t bytes);

#endif
