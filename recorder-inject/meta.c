/* Who this process is: the header of the trace and of the live region, as one JSON object. */
#include "inject.h"
#include "rec/callsite.h"
#include "rec-version.h"
#include "secrets.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

/* ---- a JSON writer; used >= size means that something did not fit ---------------------------- */

struct json {
    char *out;
    size_t size, used;
    bool first;
};

static void put(struct json *json, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct json *json, const char *format, ...)
{
    if (json->used >= json->size)
        return;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(json->out + json->used, json->size - json->used, format, args);
    va_end(args);
    json->used = n < 0 ? json->size : json->used + (size_t)n;
}

/* Length of the well-formed UTF-8 sequence at text; 0 when there is none. */
static size_t utf8_length(const unsigned char *text)
{
    static const struct {
        unsigned char low, high, second_low, second_high;
        size_t length;
    } forms[] = {
        {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
        {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
        {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (text[0] < forms[i].low || text[0] > forms[i].high)
            continue;
        if (text[1] < forms[i].second_low || text[1] > forms[i].second_high)
            return 0;
        for (size_t k = 2; k < forms[i].length; k++)
            if ((text[k] & 0xc0) != 0x80)
                return 0;
        return forms[i].length;
    }
    return 0;
}

static void put_string(struct json *json, const char *text)
{
    put(json, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        size_t length = *at < 0x80 ? 1 : utf8_length(at);
        if (*at == '"' || *at == '\\')
            put(json, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7f)
            put(json, "\\u%04x", *at);
        else if (length == 0)
            put(json, "\\ufffd");
        else
            put(json, "%.*s", (int)length, (const char *)at);
        at += length ? length : 1;
    }
    put(json, "\"");
}

static void put_key(struct json *json, const char *key)
{
    put(json, "%s\"%s\":", json->first ? "" : ",", key);
    json->first = false;
}

static void put_text(struct json *json, const char *key, const char *text)
{
    if (!text || !*text)
        return;
    put_key(json, key);
    put_string(json, text);
}

static void put_number(struct json *json, const char *key, uint64_t value)
{
    put_key(json, key);
    put(json, "%llu", (unsigned long long)value);
}

/* ---- facts ---------------------------------------------------------------------------------- */

static size_t read_file(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    if (fd >= 0)
        close(fd);
    size_t length = n > 0 ? (size_t)n : 0;
    out[length] = '\0';
    return length;
}

uint64_t meta_start_ticks(void)
{
    char text[1024];
    read_file("/proc/self/stat", text, sizeof(text));
    const char *field = strrchr(text, ')'); /* proc(5): the name before it may hold anything */
    for (int number = 2; number < 22 && field; number++) {
        field = strchr(field, ' ');
        if (field)
            field++;
    }
    return field ? strtoull(field, NULL, 10) : 0;
}

const char *meta_host(void)
{
    static char host[256];
    if (!host[0] && gethostname(host, sizeof(host) - 1) != 0)
        host[0] = '\0';
    if (!host[0])
        strcpy(host, "unknown");
    return host;
}

void meta_identity(void)
{
    struct rec_live_header *header = recorder.live.header;
    read_file("/proc/sys/kernel/random/boot_id", header->boot_id, sizeof(header->boot_id));
    header->boot_id[strcspn(header->boot_id, "\n")] = '\0';
    header->start_ticks = recorder.start_ticks;
}

/* ---- rank and job, in the order of preference -------------------------------------------------- */

static const char *const rank_names[] = {
    "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK", "PMIX_RANK", NULL};
static const char *const size_names[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "PMI_SIZE",
                                         NULL};
static const char *const local_names[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID",
                                          "MPI_LOCALRANKID", NULL};
static const char *const job_names[] = {"FREC_JOB_ID",
                                        "TORCHELASTIC_RUN_ID",
                                        "SLURM_JOB_ID",
                                        "PMIX_NAMESPACE",
                                        "OMPI_MCA_ess_base_jobid",
                                        "PBS_JOBID",
                                        "LSB_JOBID",
                                        NULL};
static const char *const restart_names[] = {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT", NULL};
static const char *const other_names[] = {"MASTER_ADDR",          "MASTER_PORT", "SLURM_STEP_ID",
                                          "SLURM_NODEID",         "GROUP_RANK",  "NCCL_COMM_ID",
                                          "CUDA_VISIBLE_DEVICES", NULL};

static const char *env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static const char *first_set(const char *const *names)
{
    for (; *names; names++)
        if (env(*names))
            return *names;
    return NULL;
}

static bool parse_number(const char *text, uint64_t *value)
{
    char *end;
    if (!text || *text < '0' || *text > '9')
        return false;
    *value = strtoull(text, &end, 10);
    return *end == '\0' && *value <= INT32_MAX;
}

static void put_rank(struct json *json, const char *key, const char *const *names, bool source)
{
    uint64_t value;
    for (; *names; names++)
        if (parse_number(env(*names), &value)) {
            put_number(json, key, value);
            if (source)
                put_text(json, "rank_source", *names);
            return;
        }
}

static void put_job(struct json *json)
{
    const char *source = NULL, *id = NULL;
    char address[512];
    for (const char *const *name = job_names; *name && !source; name++) {
        id = env(*name);
        /* torchrun's default run id says nothing. */
        if (id && !(strcmp(*name, "TORCHELASTIC_RUN_ID") == 0 && strcmp(id, "none") == 0))
            source = *name;
    }
    if (!source && env("MASTER_ADDR")) {
        const char *port = env("MASTER_PORT");
        snprintf(address, sizeof(address), "%s:%s", env("MASTER_ADDR"), port ? port : "");
        source = "MASTER_ADDR";
        id = address;
    }
    if (!source)
        return;
    put_key(json, "job");
    struct json inner = {.out = json->out, .size = json->size, .used = json->used, .first = true};
    put(&inner, "{");
    put_text(&inner, "source", source);
    put_text(&inner, "id", id);
    const char *restart = first_set(restart_names);
    put_text(&inner, "restart", restart ? env(restart) : NULL);
    put(&inner, "}");
    json->used = inner.used;
}

static void put_env(struct json *json)
{
    const char *const *const lists[] = {rank_names,    size_names,  local_names, job_names,
                                        restart_names, other_names, NULL};
    put_key(json, "env");
    struct json inner = {.out = json->out, .size = json->size, .used = json->used, .first = true};
    put(&inner, "{");
    for (size_t i = 0; lists[i]; i++)
        for (const char *const *name = lists[i]; *name; name++)
            put_text(&inner, *name, env(*name));
    put(&inner, "}");
    json->used = inner.used;
}

/* ---- the process ----------------------------------------------------------------------------- */

/* Elsewhere the pid names another process, or none: in the host's view of a container, and the reverse. */
static void put_pid_namespace(struct json *json)
{
    uint64_t number = rec_pid_namespace();
    if (number)
        put_number(json, "pid_ns", number);
}

static void put_exe(struct json *json)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    put_text(json, "exe", path);
}

static void put_cmdline(struct json *json)
{
    char text[2048], shown[2 * sizeof(text)];
    bool expected = false;
    size_t length = read_file("/proc/self/cmdline", text, sizeof(text));
    put_key(json, "cmdline");
    put(json, "[");
    for (size_t at = 0; at < length; at += strlen(text + at) + 1) {
        put(json, "%s", at ? "," : "");
        secrets_hide(text + at, &expected, shown, sizeof(shown));
        put_string(json, shown);
    }
    put(json, "]");
}

static void put_clock(struct json *json)
{
    const struct rec_live_clock *clock = &recorder.live.header->clock;
    put_key(json, "clock");
    put(json, "{\"raw0\":%llu,\"real0_ns\":%llu,\"source\":\"%s\"}",
        (unsigned long long)atomic_load_explicit(&clock->raw0, memory_order_relaxed),
        (unsigned long long)atomic_load_explicit(&clock->real0_ns, memory_order_relaxed),
        clock_source_name());
}

/* Which lines of code are recorded with the calls: those of Python, return addresses, none. */
static void put_callsites(struct json *json)
{
    const struct rec_callsite_header *sites = recorder.live.callsites;
    if (!sites) {
        put_text(json, "callsites", "off");
        return;
    }
    uint32_t python = atomic_load_explicit(&sites->python, memory_order_acquire);
    put_text(json, "callsites",
             python == REC_CALLSITE_PYTHON_NONE || python == REC_CALLSITE_PYTHON_OFF ? "native" : "python");
    if (python > REC_CALLSITE_PYTHON_PENDING)
        put_text(json, "python", sites->python_version);
    if (python == REC_CALLSITE_PYTHON_OFF)
        put_text(json, "callsites_reason", sites->reason);
}

/* A part that may be long: left out as a whole when it does not fit. */
static void put_or_leave(struct json *json, void (*part)(struct json *))
{
    struct json before = *json;
    part(json);
    if (json->used + sizeof("}") > json->size)
        *json = before;
}

size_t meta_write(char *out, size_t size)
{
    struct json json = {.out = out, .size = size, .first = true};
    char proc_uid[17];
    snprintf(proc_uid, sizeof(proc_uid), "%016llx", (unsigned long long)recorder.proc_uid);
    put(&json, "{");
    put_text(&json, "host", meta_host());
    put_text(&json, "boot_id", recorder.live.header->boot_id);
    put_number(&json, "pid", (uint64_t)recorder.pid);
    put_number(&json, "start_ticks", recorder.start_ticks);
    put_pid_namespace(&json);
    put_text(&json, "proc_uid", proc_uid);
    put_number(&json, "uid", (uint64_t)geteuid());
    put_rank(&json, "rank", rank_names, true);
    put_rank(&json, "world_size", size_names, false);
    put_rank(&json, "local_rank", local_names, false);
    put_job(&json);
    unsigned copy = real_path(0) ? 0 : 1; /* linked, or opened by the program */
    if (real_version(copy) > 0)
        put_number(&json, "nccl_version", (uint64_t)real_version(copy));
    put_text(&json, "nccl_path", real_path(copy));
    put_clock(&json);
    put_text(&json, "compressor", "zstd " ZSTD_VERSION_STRING);
    put_number(&json, "tick_ns", options.tick_ns);
    put_text(&json, "live", recorder.live_path);
    if (!recorder.live_is_file)
        put_text(&json, "live_error", "no file could be made in FREC_LIVE_DIR");
    put_callsites(&json);
    put_text(&json, "recorder_version", REC_PROJECT_VERSION);
    put_number(&json, "start_ns", recorder.start_ns);
    put_number(&json, "max_mb", options.max_bytes >> 20);
    put_or_leave(&json, put_env);
    put_or_leave(&json, put_exe);
    put_or_leave(&json, put_cmdline);
    put(&json, "}");
    return json.used < json.size ? json.used : 0;
}
