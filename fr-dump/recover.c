#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dump.h"
#include "out.h"
#include "rec/drain.h"
#include "rec/live.h"
#include "rec/writer.h"

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/*
 * The header of the new file: the process's own metadata, marked, so that readers put this
 * part behind the others. A region whose process died before it had any gets the minimum.
 */
static char *recovered_meta(const struct rec_live_header *header)
{
    char text[REC_LIVE_META_BYTES + 1];
    memcpy(text, header->meta, REC_LIVE_META_BYTES);
    text[REC_LIVE_META_BYTES] = '\0';
    json_t *meta = json_loads(text, 0, NULL);
    if (!json_is_object(meta)) {
        char proc_uid[17];
        json_decref(meta);
        snprintf(proc_uid, sizeof(proc_uid), "%016llx", (unsigned long long)header->proc_uid);
        meta = json_pack("{s:s, s:s, s:i, s:I}", "proc_uid", proc_uid, "boot_id", header->boot_id, "pid",
                         (int)header->pid, "start_ticks", (json_int_t)header->start_ticks);
    }
    char *result = NULL;
    if (meta && json_object_set_new(meta, "recovered", json_true()) == 0)
        result = json_dumps(meta, JSON_COMPACT);
    json_decref(meta);
    return result;
}

/* "h1-123.frec" → "h1-123-recovered"; a process without a file is called by its pid. */
static void recovered_stem(const struct rec_live_header *header, char *stem, size_t size)
{
    const char *name = header->frec_name;
    size_t length = strlen(name);
    if (length > 5 && strcmp(name + length - 5, ".frec") == 0 && !strchr(name, '/'))
        snprintf(stem, size, "%.*s-recovered", (int)(length - 5 > 200 ? 200 : length - 5), name);
    else
        snprintf(stem, size, "pid%d-%016llx-recovered", (int)header->pid,
                 (unsigned long long)header->proc_uid);
}

static void write_end(struct rec_writer *writer, const struct rec_live_header *header)
{
    const struct rec_live_end *live = &header->end;
    struct rec_end end = {
        .reason = atomic_load_explicit(&live->reason, memory_order_acquire),
        .status = atomic_load_explicit(&live->status, memory_order_relaxed),
        .signal = atomic_load_explicit(&live->signal, memory_order_relaxed),
        .tid = atomic_load_explicit(&live->tid, memory_order_relaxed),
        .fault = atomic_load_explicit(&live->fault, memory_order_relaxed),
    };
    if (end.reason != REC_END_NONE)
        rec_writer_end(writer, atomic_load_explicit(&live->time_ns, memory_order_relaxed), &end);
}

static enum rec_code drain_all(const struct rec_live *live, struct rec_writer *writer, uint64_t *ops,
                               struct rec_error *err)
{
    size_t bytes = (rec_drain_bytes(live) + 63) & ~(size_t)63;
    void *memory = aligned_alloc(64, bytes);
    if (!memory)
        return rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
    memset(memory, 0, bytes);
    struct rec_drain *drain = rec_drain_init(memory, live);
    struct rec_drain_result result;
    /* Times in the file are those of the process: its last sign of life. */
    uint64_t last = atomic_load_explicit(&live->header->alive_ns, memory_order_relaxed);
    enum rec_code code;
    do {
        code = rec_drain_step(drain, writer, last ? last : now_ns(), false, true, &result, err);
        *ops += result.ops;
    } while (code == REC_OK && result.ops > 0);
    free(memory);
    return code;
}

static enum rec_code write_file(const struct rec_live *live, const char *dir, const char *stem, uint64_t *ops,
                                struct rec_error *err)
{
    struct rec_writer_config config = {.tick_ns = live->header->tick_ns};
    size_t bytes = (rec_writer_bytes(&config) + 63) & ~(size_t)63;
    void *memory = aligned_alloc(64, bytes);
    char *meta = recovered_meta(live->header);
    enum rec_code code = memory && meta ? REC_OK : rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
    if (code == REC_OK) {
        struct rec_writer *writer = rec_writer_init(memory, &config);
        code = rec_writer_open(writer, dir, stem, meta, strlen(meta), err);
        if (code == REC_OK) {
            code = drain_all(live, writer, ops, err);
            write_end(writer, live->header);
            enum rec_code closed = rec_writer_close(writer, code == REC_OK ? err : NULL);
            code = code == REC_OK ? closed : code;
        }
    }
    free(memory);
    free(meta);
    return code;
}

/* The directory of the trace: where the process's file lies, else the one it was told. */
static char *target_directory(const struct rec_process *process, const struct rec_live_header *header,
                              const char *fallback)
{
    struct stat info;
    const char *slash = strrchr(process->path, '/');
    if (process->has_file)
        return slash ? strndup(process->path, slash == process->path ? 1 : (size_t)(slash - process->path))
                     : strdup(".");
    if (stat(header->frec_dir, &info) == 0 && S_ISDIR(info.st_mode))
        return strdup(header->frec_dir);
    return strdup(fallback);
}

/* Two recoveries at once must not write the same thing twice: the region is locked meanwhile. */
static int lock_region(const char *path)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static int recover_mapped(const struct rec_process *process, const struct rec_live *live,
                          const char *fallback)
{
    const char *path = process->live_path;
    struct rec_error err = {0};
    char stem[256], clean[4096];
    uint64_t ops = 0;
    if (rec_live_process_alive(live))
        return fr_errorf(path, "process %d still runs; its recorder writes the trace",
                         (int)live->header->pid);
    char *dir = target_directory(process, live->header, fallback);
    if (!dir)
        return fr_errorf(path, "no memory");
    recovered_stem(live->header, stem, sizeof(stem));
    enum rec_code code = write_file(live, dir, stem, &ops, &err);
    int status = 0;
    if (code != REC_OK)
        status = fr_error(&err);
    else if (unlink(path) != 0)
        status = fr_errorf(path, "recovered, but not removed: %s", strerror(errno));
    else
        out_format("%s/%s.frec: %llu %s recovered\n", fr_clean(clean, sizeof(clean), dir), stem,
                   (unsigned long long)ops, ops == 1 ? "call" : "calls");
    free(dir);
    return status;
}

static int recover_process(const struct rec_process *process, const char *fallback)
{
    struct rec_live live;
    struct rec_error err = {0};
    int lock = lock_region(process->live_path);
    if (lock < 0)
        return fr_errorf(process->live_path, "gone, or somebody else is recovering it");
    int status;
    if (rec_live_map(process->live_path, true, &live, &err) != REC_OK) {
        status = fr_error(&err);
    } else {
        status = recover_mapped(process, &live, fallback);
        rec_live_unmap(&live);
    }
    close(lock);
    return status;
}

static int recover_job(const struct dump_options *options, const char *job_id, size_t *found)
{
    struct dump_options one = *options;
    one.job.job_id = job_id;
    struct rec_job *job = dump_open(&one);
    if (!job)
        return FR_EXIT_ERROR;
    size_t count;
    int status = 0;
    struct rec_process *const *processes = rec_job_processes(job, &count);
    for (size_t i = 0; i < count; i++) {
        if (!processes[i]->has_live)
            continue;
        ++*found;
        int result = recover_process(processes[i], options->paths[0]);
        status = result > status ? result : status;
    }
    rec_job_close(job);
    return status;
}

/* Every job of the directories, unless one is asked for. */
int dump_recover(const struct dump_options *options)
{
    struct rec_job *job;
    struct rec_error err = {0};
    size_t found = 0, count = 0;
    int status = 0;
    if (options->job.no_live)
        return fr_usage_error("--recover and --no-live exclude each other");
    enum rec_code code = rec_job_open(options->paths, options->npaths, &options->job, &job, &err);
    if (code != REC_OK && code != REC_ERR_MIXED)
        return fr_error(&err);
    const struct rec_job_info *jobs = rec_job_candidates(job, &count);
    if (code == REC_OK || options->job.job_id)
        status = recover_job(options, options->job.job_id, &found);
    else
        for (size_t i = 0; i < count; i++) {
            int result = recover_job(options, jobs[i].id, &found);
            status = result > status ? result : status;
        }
    rec_job_close(job);
    if (status == 0 && found == 0)
        out_text("nothing to recover: no live region belongs to these traces\n");
    return status;
}
