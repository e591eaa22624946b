#include "callsite/callsite.h"
#include "inject.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

struct options options;

static char start_cwd[REC_LIVE_PATH_BYTES];

void verbose(const char *format, ...)
{
    if (!options.verbose)
        return;
    int saved = errno;
    char line[1024];
    int prefix = snprintf(line, sizeof(line), "recorder-inject[%d]: ", (int)getpid());
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + prefix, sizeof(line) - (size_t)prefix - 1, format, args);
    va_end(args);
    size_t length = (size_t)prefix + (n > 0 ? (size_t)n : 0);
    if (length > sizeof(line) - 2)
        length = sizeof(line) - 2;
    line[length++] = '\n';
    /* One write, so that lines of several processes do not mix. */
    ssize_t ignored = write(STDERR_FILENO, line, length);
    (void)ignored;
    errno = saved;
}

void config_note_cwd(void)
{
    int saved = errno;
    if (!getcwd(start_cwd, sizeof(start_cwd)))
        start_cwd[0] = '\0';
    errno = saved;
}

/* Non-zero numbers and words that mean yes; unset, empty, 0, no, off, false mean no. */
static bool read_flag(const char *name)
{
    const char *text = getenv(name);
    return text && *text && strcmp(text, "0") != 0 && strcasecmp(text, "no") != 0 &&
           strcasecmp(text, "off") != 0 && strcasecmp(text, "false") != 0;
}

static uint64_t read_number(const char *name, uint64_t fallback, uint64_t low, uint64_t high)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return fallback;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < low || value > high) {
        verbose("%s=%s: not a number from %llu to %llu; using %llu", name, text, (unsigned long long)low,
                (unsigned long long)high, (unsigned long long)fallback);
        return fallback;
    }
    return value;
}

static void read_directory(const char *name, const char *fallback, char *out, size_t size)
{
    const char *text = getenv(name);
    if (!text || !*text)
        text = fallback;
    int n;
    if (text[0] == '/')
        n = snprintf(out, size, "%s", text);
    else
        n = snprintf(out, size, "%s/%s", start_cwd, text);
    if (n < 0 || (size_t)n >= size || out[0] != '/') {
        verbose("%s=%s: no usable absolute path", name, text);
        out[0] = '\0';
    }
}

static bool is_this_library(const char *path)
{
    Dl_info info;
    struct stat here, there;
    return dladdr(&options, &info) && info.dli_fname && stat(info.dli_fname, &here) == 0 &&
           stat(path, &there) == 0 && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/* FREC_GPU=plugin, or NCCL was told to load us. */
bool config_wants_plugin(void)
{
    const char *mode = getenv("FREC_GPU"), *plugin = getenv("NCCL_PROFILER_PLUGIN");
    if (read_flag("FREC_DISABLE"))
        return false;
    if (mode && *mode && strcmp(mode, "auto") != 0)
        return strcmp(mode, "plugin") == 0;
    return plugin && strchr(plugin, '/') && is_this_library(plugin);
}

/*
 * With CUDA_DEVICE_MAX_CONNECTIONS=1 all streams share one queue to the device, and a memory write
 * in front of one stream's kernel may hold back another's: then only who asks for marks gets them.
 */
static enum gpu_mode read_gpu_mode(void)
{
    const char *text = getenv("FREC_GPU"), *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (text && strcmp(text, "off") == 0)
        return GPU_OFF;
    if (text && strcmp(text, "marks") == 0)
        return GPU_MARKS;
    if (text && *text && strcmp(text, "auto") != 0 && strcmp(text, "plugin") != 0)
        verbose("FREC_GPU=%s: not marks, plugin, off or auto; using auto", text);
    return connections && strcmp(connections, "1") == 0 ? GPU_CAPTURE : GPU_MARKS;
}

bool config_verbose(void)
{
    return read_flag("FREC_VERBOSE");
}

void config_read(void)
{
    options.verbose = config_verbose();
    options.disable = read_flag("FREC_DISABLE");
    options.gpu = read_gpu_mode();
    read_directory("FREC_DIR", "frec", options.dir, sizeof(options.dir));
    read_directory("FREC_LIVE_DIR", "/dev/shm", options.live_dir, sizeof(options.live_dir));
    options.max_bytes = read_number("FREC_MAX_MB", 0, 0, UINT64_C(1) << 40) << 20;
    options.slots_chosen = getenv("FREC_RING_SLOTS") != NULL;
    options.slots = (uint32_t)read_number("FREC_RING_SLOTS", REC_LIVE_DEFAULT_SLOTS, REC_LIVE_CHUNK_SLOTS,
                                          UINT32_C(1) << 24);
    options.tick_ns = (uint32_t)read_number("FREC_TICK_NS", 64, 1, 1000000);
    options.pyframes =
        (uint32_t)read_number("FREC_PYFRAMES", CALLSITE_DEFAULT_FRAMES, 0, REC_CALLSITE_MAX_FRAMES);
    options.native_frames =
        (uint32_t)read_number("FREC_NATIVE_FRAMES", CALLSITE_DEFAULT_NATIVE, 1, REC_CALLSITE_MAX_ADDRESSES);
    options.stall_sec = (uint32_t)read_number("FREC_STALL_SEC", 30, 0, 86400);
}
