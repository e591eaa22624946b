#include "made_up.h"

void *memory;

void *zeroed(void)
{
    free(memory);
    memory = aligned_alloc(64, BYTES);
    assert_non_null(memory);
    return memset(memory, 0, BYTES);
}

int free_memory(void **unused)
{
    (void)unused;
    free(memory);
    return 0;
}

const struct rec_callsite_header *header(void)
{
    return memory;
}

struct rec_callsite_site site_of(uint32_t id)
{
    struct rec_callsite_reader reader;
    struct rec_callsite_site site;
    assert_true(rec_callsite_open(memory, BYTES, &reader));
    assert_true(rec_callsite_read(&reader, id, &site));
    return site;
}

const void *address(uintptr_t i)
{
    return (const void *)(i * 16 + 0x1000);
}

/* ---- the interpreter ---- */

struct python python;
char interpreter, str_type;
static char code_type, bytes_type;
static const char *version = "3.11.4 (made up)";
_Atomic int initialized = 1;
_Thread_local struct thread_state *own_state;

static int is_initialized(void)
{
    return initialized;
}

static void *this_thread_state(void)
{
    return own_state;
}

static const char *get_version(void)
{
    return version;
}

static void *interpreter_head(void)
{
    return &interpreter;
}

static void *interpreter_next(void *of)
{
    (void)of;
    return NULL;
}

static void *find(const char *name)
{
    const struct {
        const char *name;
        void (*function)(void);
        void *data;
    } symbols[] = {
        {"Py_IsInitialized", (void (*)(void))is_initialized, NULL},
        {"PyGILState_GetThisThreadState", (void (*)(void))this_thread_state, NULL},
        {"Py_GetVersion", (void (*)(void))get_version, NULL},
        {"PyInterpreterState_Head", (void (*)(void))interpreter_head, NULL},
        {"PyInterpreterState_Next", (void (*)(void))interpreter_next, NULL},
        {"PyCode_Type", NULL, &code_type},
        {"PyUnicode_Type", NULL, &str_type},
        {"PyBytes_Type", NULL, &bytes_type},
    };
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        if (strcmp(name, symbols[i].name) != 0)
            continue;
        void *symbol = symbols[i].data;
        if (symbols[i].function != NULL)
            memcpy(&symbol, &symbols[i].function, sizeof(symbol));
        return symbol;
    }
    return NULL;
}

const struct callsite_symbols *symbols(void)
{
    static struct callsite_symbols found;
    callsite_find(&found, find);
    return &found;
}

struct text make_text(const char *string)
{
    struct text text = {.object = {1, &str_type}, .length = (int64_t)strlen(string), .hash = -1};
    text.state = 0x20 | 0x40 | 1 << 2; /* compact, ASCII, one byte per character */
    strcpy(text.text, string);
    return text;
}

void make_python(void)
{
    static const char *const names[] = {"h", "g", "f"};
    memset(&python, 0, sizeof(python));
    python.state.interpreter = &interpreter;
    python.state.cframe = &python.cframe;
    python.state.thread = pthread_self();
    own_state = &python.state;
    python.cframe.frame = &python.frames[0];
    python.file = make_text("one.py");
    python.lines = (struct bytes){.object = {1, &bytes_type}, .length = 6, .hash = -1};
    memcpy(python.lines.data, (const unsigned char[]){0x87, 0, 0x87, 0, 0x83, 0}, 6);
    for (int i = 0; i < 3; i++) {
        python.name[i] = make_text(names[i]);
        python.code[i] = (struct code){.object = {1, &code_type}, .units = 20, .firstlineno = 3 - i};
        python.code[i].filename = &python.file;
        python.code[i].name = &python.name[i];
        python.code[i].linetable = &python.lines;
        python.frames[i].code = &python.code[i];
        python.frames[i].previous = i < 2 ? &python.frames[i + 1] : NULL;
        python.frames[i].previous_instruction = &python.code[i].instructions[5];
    }
}

void start(unsigned frames)
{
    struct callsite_config config = {.memory = zeroed(),
                                     .bytes = BYTES,
                                     .frames = frames,
                                     .misses_per_second = 1u << 30,
                                     .symbols = symbols()};
    assert_true(callsite_init(&config));
}

void check_stack(uint32_t id, unsigned count)
{
    static const char *const names[] = {"h", "g", "f"};
    struct rec_callsite_site site = site_of(id);
    assert_int_equal(site.kind, REC_CALLSITE_STACK);
    assert_int_equal(site.frame_count, count);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(site.frames[i].file_length, 6);
        assert_memory_equal(site.frames[i].file, "one.py", 6);
        assert_memory_equal(site.frames[i].function, names[i], 1);
        assert_int_equal(site.frames[i].line, 3 - i);
    }
}
