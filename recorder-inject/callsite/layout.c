#include "python.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "callsite.h"
#include "layouts.h"

static const struct release {
    uint8_t minor;
    const struct py_layout *layout, *free_threaded;
} releases[] = {
    {8, &py_3_8, NULL},   {9, &py_3_8, NULL},   {10, &py_3_10, NULL},      {11, &py_3_11, NULL},
    {12, &py_3_12, NULL}, {13, &py_3_13, NULL}, {14, &py_3_14, &py_3_14t}, {15, &py_3_15, &py_3_15t},
};

/* _Py_DebugOffsets at the start of _PyRuntime: 64-bit words; each version had more of them. */
#define DEBUG_COOKIE "xdebugpy"
enum { DEBUG_VERSION = 1, DEBUG_FREE_THREADED = 2 };

static const struct debug_words {
    uint8_t minor;
    uint8_t thread, frame, code, object, str; /* word in which each structure's part begins: its size */
    uint8_t thread_id;                        /* its word within thread's part */
    uint8_t words;
} debug_words[] = {
    {13, 19, 28, 34, 44, 67, 5, 71},
    {14, 22, 31, 39, 50, 77, 5, 81},
    {15, 22, 39, 47, 58, 89, 8, 93},
};
#define MAX_DEBUG_WORDS 93
/* Order of the words within each part. */
enum { THREAD_INTERP = 3, THREAD_FRAME };
enum { FRAME_PREVIOUS = 1, FRAME_EXECUTABLE, FRAME_INSTR, FRAME_OWNER = 5, FRAME_COPY = 7 };
enum { CODE_SIZE, CODE_FILENAME, CODE_NAME, CODE_LINETABLE = 4, CODE_FIRSTLINENO };
enum { CODE_ADAPTIVE = 9, CODE_COPIES };
enum { OBJECT_TYPE = 1 };
enum { STR_STATE = 1, STR_LENGTH, STR_ASCII_SIZE };

/* Whose memory is read: getpid() is a system call of its own. 0 = not yet known. */
static _Atomic pid_t own_pid;

static pid_t self(void)
{
    pid_t pid = atomic_load_explicit(&own_pid, memory_order_relaxed);
    return pid != 0 ? pid : getpid();
}

bool py_peekv(struct iovec *from, unsigned count, void *to, size_t bytes)
{
    struct iovec local = {to, bytes};
    return process_vm_readv(self(), &local, 1, from, count, 0) == (ssize_t)bytes;
}

bool py_peek(uintptr_t address, void *to, size_t bytes)
{
    struct iovec remote = {(void *)address, bytes};
    return py_peekv(&remote, 1, to, bytes);
}

static const struct {
    const char *name, *since_3_13; /* where it has been renamed */
    size_t member;
} symbols_wanted[] = {
    {"Py_IsInitialized", NULL, offsetof(struct py_api, is_initialized)}, /* first: is this Python at all? */
    {"_PyRuntime", NULL, offsetof(struct py_api, runtime)},
    {"PyGILState_GetThisThreadState", NULL, offsetof(struct py_api, this_thread_state)},
    {"Py_GetVersion", NULL, offsetof(struct py_api, get_version)},
    {"PyInterpreterState_Head", NULL, offsetof(struct py_api, interpreter_head)},
    {"PyInterpreterState_Next", NULL, offsetof(struct py_api, interpreter_next)},
    {"PyInterpreterState_GetID", NULL, offsetof(struct py_api, interpreter_id)},
    {"PyThreadState_GetID", NULL, offsetof(struct py_api, thread_state_id)},
    {"PyCode_Addr2Line", NULL, offsetof(struct py_api, addr_to_line)},
    {"PyEval_GetFrame", NULL, offsetof(struct py_api, current_frame)},
    {"PyFrame_GetLineNumber", NULL, offsetof(struct py_api, frame_line)},
    {"PyGC_Disable", NULL, offsetof(struct py_api, gc_disable)},
    {"PyGC_Enable", NULL, offsetof(struct py_api, gc_enable)},
    {"_PyThreadState_UncheckedGet", "PyThreadState_GetUnchecked",
     offsetof(struct py_api, thread_state_unchecked)},
    {"PyCode_Type", NULL, offsetof(struct py_api, code_type)},
    {"PyUnicode_Type", NULL, offsetof(struct py_api, str_type)},
    {"PyBytes_Type", NULL, offsetof(struct py_api, bytes_type)},
};
#define SYMBOLS_WANTED (sizeof(symbols_wanted) / sizeof(symbols_wanted[0]))
_Static_assert(SYMBOLS_WANTED <= sizeof(((struct callsite_symbols *)0)->found) / sizeof(void *),
               "the caller's memory holds them");

void callsite_find(struct callsite_symbols *symbols, void *(*lookup)(const char *name))
{
    *symbols = (struct callsite_symbols){0};
    for (size_t i = 0; i < SYMBOLS_WANTED && (i == 0 || symbols->found[0]); i++) {
        symbols->found[i] = lookup(symbols_wanted[i].name);
        if (symbols->found[i] == NULL && symbols_wanted[i].since_3_13 != NULL)
            symbols->found[i] = lookup(symbols_wanted[i].since_3_13);
    }
}

bool py_take(struct py_api *api, const struct callsite_symbols *symbols)
{
    atomic_store_explicit(&own_pid, getpid(), memory_order_relaxed);
    for (size_t i = 0; i < SYMBOLS_WANTED; i++)
        memcpy((char *)api + symbols_wanted[i].member, &symbols->found[i], sizeof(void *));
    return api->is_initialized != NULL && api->this_thread_state != NULL && api->get_version != NULL &&
           api->interpreter_head != NULL && api->interpreter_next != NULL && api->code_type != 0 &&
           api->str_type != 0 && api->bytes_type != 0;
}

/*
 * Takes the offsets that the interpreter tells about itself; a reason when they make no sense. It
 * does not tell code_version, code_firsttraceable and compact_data: right when code and str objects have the
 * size they were measured for.
 */
static const char *take_debug_offsets(const struct py_api *api, const struct release *release,
                                      struct py_layout *layout)
{
    const struct debug_words *at = NULL;
    for (size_t i = 0; i < sizeof(debug_words) / sizeof(debug_words[0]); i++)
        if (debug_words[i].minor == release->minor)
            at = &debug_words[i];
    uint64_t words[MAX_DEBUG_WORDS];
    if (at == NULL || api->runtime == NULL ||
        !py_peek((uintptr_t)api->runtime, words, at->words * sizeof(words[0])))
        return "no debug offsets";
    if (memcmp(&words[0], DEBUG_COOKIE, 8) != 0 || words[DEBUG_VERSION] >> 16 != (0x300u | release->minor))
        return "debug offsets of another version";
    if (words[DEBUG_FREE_THREADED] != 0) {
        if (release->free_threaded == NULL || api->thread_state_id == NULL)
            return "free-threaded build";
        *layout = *release->free_threaded;
    }
    const uint64_t *thread = &words[at->thread], *frame = &words[at->frame], *code = &words[at->code];
    const uint64_t *str = &words[at->str];
    const struct {
        uint16_t *to;
        uint64_t offset, end; /* the member must end here at most */
    } offsets[] = {
        {&layout->ts_interp, thread[THREAD_INTERP], 4096},
        {&layout->ts_thread, thread[at->thread_id], 4096},
        {&layout->ts_frame, thread[THREAD_FRAME], 4096},
        {&layout->frame_code, frame[FRAME_EXECUTABLE], PY_FRAME_BYTES},
        {&layout->frame_previous, frame[FRAME_PREVIOUS], PY_FRAME_BYTES},
        {&layout->frame_instr, frame[FRAME_INSTR], PY_FRAME_BYTES},
        {&layout->frame_owner, frame[FRAME_OWNER], PY_FRAME_BYTES},
        {&layout->code_firstlineno, code[CODE_FIRSTLINENO], layout->code_size},
        {&layout->code_filename, code[CODE_FILENAME], layout->code_size},
        {&layout->code_name, code[CODE_NAME], layout->code_size},
        {&layout->code_linetable, code[CODE_LINETABLE], layout->code_size},
        {&layout->code_bytecode, code[CODE_ADAPTIVE], layout->code_size},
        {&layout->ascii_data, str[STR_ASCII_SIZE], 64},
        /* The rest of a free-threaded build. */
        {&layout->frame_copy, frame[FRAME_COPY], PY_FRAME_BYTES},
        {&layout->code_copies, code[CODE_COPIES], layout->code_size},
    };
    const size_t count = sizeof(offsets) / sizeof(offsets[0]) - (layout->header != 0 ? 0 : 2);
    for (size_t i = 0; i < count; i++) {
        if (offsets[i].offset > offsets[i].end - sizeof(uint64_t))
            return "debug offsets out of range";
        *offsets[i].to = (uint16_t)offsets[i].offset;
    }
    if (code[CODE_SIZE] != layout->code_size ||
        words[at->object + OBJECT_TYPE] != (uint64_t)layout->header + PY_TYPE ||
        str[STR_STATE] != (uint64_t)layout->header + PY_STR_STATE ||
        str[STR_LENGTH] != (uint64_t)layout->header + PY_LENGTH)
        return "code or str objects of unknown layout";
    return NULL;
}

bool py_choose_layout(const struct py_api *api, struct py_layout *layout, char version[32], char *reason,
                      size_t reason_bytes)
{
    const char *text = api->get_version();
    size_t length = strcspn(text, " ");
    snprintf(version, 32, "%.*s", (int)(length < 31 ? length : 31), text);
    char *end;
    long major = strtol(version, &end, 10);
    long minor = *end == '.' ? strtol(end + 1, NULL, 10) : -1;
    const struct release *known = NULL;
    for (size_t i = 0; i < sizeof(releases) / sizeof(releases[0]); i++)
        if (major == 3 && releases[i].minor == minor)
            known = &releases[i];
    const char *why = NULL;
    if (known == NULL || sizeof(void *) != 8) {
        why = "version not known";
    } else {
        *layout = *known->layout;
        if (minor >= 13)
            why = take_debug_offsets(api, known, layout);
        if (why == NULL && layout->by_version && api->interpreter_id == NULL)
            why = "no numbers of interpreters";
    }
    if (why != NULL)
        snprintf(reason, reason_bytes, "Python %s: %s", version, why);
    return why == NULL;
}
