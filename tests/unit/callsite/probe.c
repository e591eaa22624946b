/*
 * The call-site recorder as a shared library for ctypes: what the tests and the benchmark
 * call from a real interpreter. Loaded with ctypes.PyDLL the calls keep the interpreter's
 * lock, with ctypes.CDLL they run without it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "callsite.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int probe_init(unsigned bytes, unsigned frames, const char *lie);
EXPORT unsigned probe_capture(void);
EXPORT unsigned probe_capture_native(unsigned long long address);
EXPORT unsigned probe_capture_many(unsigned times);
EXPORT int probe_errno_kept(void);
EXPORT unsigned probe_foreign_thread(unsigned long long address);
EXPORT int probe_callback_thread(void *callback);
EXPORT double probe_time(unsigned times);
EXPORT double probe_time_cold(void);
EXPORT long probe_instructions(void);
EXPORT long probe_describe(unsigned id, char *out, size_t room);
EXPORT void probe_status(char *out, size_t room);
EXPORT unsigned long long probe_counter(const char *name);
EXPORT const void *probe_memory(void);

static void *memory;
static const char *lie_about = "";

static const char *claimed_version(void)
{
    return lie_about; /* "3.99.0 …" */
}

static void *no_thread_state(void)
{
    static char zeros[4096];
    return zeros;
}

static void *function_address(void (*function)(void))
{
    void *symbol;
    memcpy(&symbol, &function, sizeof(symbol));
    return symbol;
}

/* dlsym, or a lie that makes one check of the proof fail. */
static void *lookup(const char *name)
{
    static const struct {
        const char *lie, *name, *instead;
    } lies[] = {
        {"code-type", "PyCode_Type", "PyLong_Type"},
        {"str-type", "PyUnicode_Type", "PyLong_Type"},
        {"bytes-type", "PyBytes_Type", "PyLong_Type"},
        {"runtime", "_PyRuntime", "PyLong_Type"},
        /* Functions of the same shape, whose answers are no lines. */
        {"frame-line", "PyFrame_GetLineNumber", "PyObject_IsTrue"},
    };
    if (strcmp(lie_about, "no-python") == 0)
        return NULL;
    if (lie_about[0] == '3' && strcmp(name, "Py_GetVersion") == 0)
        return function_address((void (*)(void))claimed_version);
    if (lie_about[0] == '3' && strcmp(name, "_Py_HashBytes") == 0)
        return function_address((void (*)(void))claimed_version); /* the wrong layout must not get so far */
    if (strcmp(lie_about, "thread-state") == 0 && strcmp(name, "PyGILState_GetThisThreadState") == 0)
        return function_address((void (*)(void))no_thread_state);
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
        if (strcmp(lie_about, lies[i].lie) == 0 && strcmp(name, lies[i].name) == 0)
            return dlsym(RTLD_DEFAULT, lies[i].instead);
    return dlsym(RTLD_DEFAULT, name);
}

int probe_init(unsigned bytes, unsigned frames, const char *lie)
{
    static char lie_copy[32];
    snprintf(lie_copy, sizeof(lie_copy), "%s", lie);
    lie_about = lie_copy;
    callsite_stop();
    free(memory);
    memory = aligned_alloc(64, bytes);
    if (memory == NULL)
        return 0;
    memset(memory, 0, bytes);
    struct callsite_symbols symbols;
    callsite_find(&symbols, lookup);
    struct callsite_config config = {.memory = memory,
                                     .bytes = bytes,
                                     .frames = frames,
                                     .misses_per_second = 1u << 30,
                                     .symbols = &symbols};
    return callsite_init(&config);
}

unsigned probe_capture(void)
{
    return callsite_capture(NULL);
}

unsigned probe_capture_native(unsigned long long address)
{
    return callsite_capture((const void *)(uintptr_t)address);
}

/* Number that all captures agreed on; 0 when they did not. */
unsigned probe_capture_many(unsigned times)
{
    unsigned id = callsite_capture(NULL);
    for (unsigned i = 1; i < times; i++)
        if (callsite_capture(NULL) != id)
            return 0;
    return id;
}

int probe_errno_kept(void)
{
    errno = ENOTTY;
    callsite_capture(__builtin_return_address(0));
    return errno == ENOTTY;
}

static void *capture_in_thread(void *address)
{
    *(unsigned long long *)address =
        callsite_capture((const void *)(uintptr_t)(*(unsigned long long *)address));
    return NULL;
}

/* Captures in a thread that Python does not know. */
unsigned probe_foreign_thread(unsigned long long address)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, capture_in_thread, &address) != 0)
        return 0;
    pthread_join(thread, NULL);
    return (unsigned)address;
}

static void *call_in_thread(void *callback)
{
    void (*function)(void);
    memcpy(&function, &callback, sizeof(function));
    function();
    return NULL;
}

/* Calls back into Python from a thread that Python does not know. */
int probe_callback_thread(void *callback)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, call_in_thread, callback) != 0)
        return 0;
    pthread_join(thread, NULL);
    return 1;
}

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

double probe_time(unsigned times)
{
    double start = now_ns();
    for (unsigned i = 0; i < times; i++)
        callsite_capture(NULL);
    return (now_ns() - start) / times;
}

/* Median of captures between which other work has used the first two levels of cache. */
double probe_time_cold(void)
{
    enum { SAMPLES = 301, OTHER_WORK = 4 << 20 };
    static unsigned char other[OTHER_WORK];
    double samples[SAMPLES];
    for (unsigned i = 0; i < SAMPLES; i++) {
        for (size_t at = 0; at < OTHER_WORK; at += 64)
            other[at]++;
        double start = now_ns();
        callsite_capture(NULL);
        samples[i] = now_ns() - start;
    }
    qsort(samples, SAMPLES, sizeof(samples[0]), by_value);
    return samples[SAMPLES / 2];
}

/* Single steps of a child until its next signal, or -1. */
static long count_steps(pid_t child)
{
    for (long steps = 0;; steps++) {
        int status;
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0 || waitpid(child, &status, 0) != child)
            return -1;
        if (!WIFSTOPPED(status))
            return -1;
        if (WSTOPSIG(status) == SIGUSR1)
            return steps;
    }
}

/* Instructions that one capture takes, counted in a child that is stepped; -1 where that is not allowed. */
long probe_instructions(void)
{
    int status;
    callsite_capture(NULL);
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGUSR1);
        raise(SIGUSR1); /* the cost of this alone */
        callsite_capture(NULL);
        raise(SIGUSR1);
        _exit(0);
    }
    long nothing = -1, capture = -1;
    if (child > 0 && waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        nothing = count_steps(child);
        capture = nothing >= 0 ? count_steps(child) : -1;
    }
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
    }
    return capture >= 0 ? capture - nothing : -1;
}

/* Lines "file\tfunction\tline\n", innermost first, or "native\taddress\n". Bytes written, -1 = no such site.
 */
long probe_describe(unsigned id, char *out, size_t room)
{
    struct rec_callsite_reader reader;
    struct rec_callsite_site site;
    if (!rec_callsite_open(memory, ((const struct rec_callsite_header *)memory)->bytes, &reader) ||
        !rec_callsite_read(&reader, id, &site))
        return -1;
    if (site.kind == REC_CALLSITE_ADDRESS)
        return snprintf(out, room, "native\t%llu\n", (unsigned long long)site.addresses[0]);
    size_t used = 0;
    for (unsigned i = 0; i < site.frame_count && used < room; i++) {
        const struct rec_callsite_frame *frame = &site.frames[i];
        used += (size_t)snprintf(out + used, room - used, "%.*s\t%.*s\t%u\n", (int)frame->file_length,
                                 frame->file, (int)frame->function_length, frame->function, frame->line);
    }
    return used < room ? (long)used : -1;
}

void probe_status(char *out, size_t room)
{
    static const char *const names[] = {"none", "pending", "proved", "confirmed", "off"};
    const struct rec_callsite_header *header = memory;
    snprintf(out, room, "%s|%s|%s", names[atomic_load(&header->python)], header->python_version,
             header->reason);
}

unsigned long long probe_counter(const char *name)
{
    const struct rec_callsite_header *header = memory;
    if (strcmp(name, "sites") == 0)
        return atomic_load(&header->sites);
    if (strcmp(name, "misses") == 0)
        return atomic_load(&header->misses);
    if (strcmp(name, "lost_full") == 0)
        return atomic_load(&header->lost_full);
    if (strcmp(name, "lost_busy") == 0)
        return atomic_load(&header->lost_busy);
    return atomic_load(&header->lost_rate);
}

const void *probe_memory(void)
{
    return memory;
}
