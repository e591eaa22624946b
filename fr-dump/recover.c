/*
 * Recovery: what a dead process left in its live region and not in its file becomes one more
 * file beside it. The region is only read, and removed once the new file is safe.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batch.h"
#include "dump.h"
#include "out.h"
#include "rec/live.h"
#include "rec/writer.h"

#define MAX_ATTEMPTS 100 /* recovered files of one process */

/* ---- from the scan to the writer ---- */

/* Records of the file (offset > 0) are there already. */
static bool copy_event(struct batch *batch, const struct rec_event *event)
{
    if (event->type == REC_EV_OP)
        return batch_add(batch, &event->u.op);
    if (event->offset)
        return true;
    batch_flush(batch);
    switch (event->type) {
    case REC_EV_COMM:
        rec_writer_comm(batch->writer, &event->u.comm);
        break;
    case REC_EV_THREAD:
        rec_writer_thread(batch->writer, &event->u.thread);
        break;
    case REC_EV_REDOP:
        rec_writer_redop(batch->writer, &event->u.redop);
        break;
    case REC_EV_STREAM:
        rec_writer_stream(batch->writer, &event->u.stream);
        break;
    case REC_EV_FRONTIER:
        rec_writer_frontier(batch->writer, event->time_ns, &event->u.frontier);
        break;
    case REC_EV_GPU:
        rec_writer_gpu(batch->writer, event->time_ns, &event->u.gpu);
        break;
    case REC_EV_OPEN:
        return batch_open(batch, event->time_ns, event->u.open.ops, event->u.open.count);
    case REC_EV_HEARTBEAT:
        rec_writer_heartbeat(batch->writer, event->time_ns);
        break;
    case REC_EV_END:
        rec_writer_end(batch->writer, event->time_ns, &event->u.end);
        break;
    default:
        break;
    }
    return true;
}

/* rec_callsite_source */
static bool give_callsite(void *context, uint32_t id, struct rec_callsite_def *def)
{
    const struct rec_callsite_def *known = rec_process_callsite(context, id);
    if (!known)
        return false;
    *def = *known;
    def->id = id;
    return true;
}

static enum rec_code copy_all(const struct rec_job *job, const struct rec_process *process,
                              struct rec_writer *writer, uint64_t *ops, struct rec_error *err)
{
    struct batch batch = {.writer = writer, .late_only = true};
    struct rec_scan *scan;
    struct rec_event event;
    enum rec_code code =
        rec_scan_open(job, process, &(struct rec_scan_filter){.as_recorded = true}, &scan, err);
    if (code != REC_OK)
        return code;
    rec_writer_callsites(writer, give_callsite, (void *)(uintptr_t)process);
    while ((code = rec_scan_next(scan, &event, err)) == REC_OK)
        if (!copy_event(&batch, &event)) {
            code = rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
            break;
        }
    rec_scan_close(scan);
    batch_flush(&batch);
    batch_fini(&batch);
    *ops = batch.total;
    return code == REC_END ? REC_OK : code;
}

/* ---- the new file ---- */

/*
 * The header of the new file: the process's own metadata, numbered, so that readers put this
 * part behind the others. A region whose process died before it had any gets the minimum.
 */
static char *recovered_meta(const struct rec_live_header *header, int number)
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
    if (meta && json_object_set_new(meta, "recovered", json_integer(number)) == 0)
        result = json_dumps(meta, JSON_COMPACT);
    json_decref(meta);
    return result;
}

/* "h1-123.frec" → "h1-123-recovered"; a process without a file is called by its pid. */
static void recovered_stem(const struct rec_live_header *header, int number, char *stem, size_t size)
{
    const char *name = header->frec_name;
    size_t length = strlen(name);
    char suffix[16] = "";
    if (number > 1)
        snprintf(suffix, sizeof(suffix), "-%d", number);
    if (length > 5 && length < 200 && strcmp(name + length - 5, ".frec") == 0 && !strchr(name, '/'))
        snprintf(stem, size, "%.*s-recovered%s", (int)length - 5, name, suffix);
    else
        snprintf(stem, size, "pid%d-%016llx-recovered%s", (int)header->pid,
                 (unsigned long long)header->proc_uid, suffix);
}

/* Opens the first name that is free: an earlier recovery may have been cut short. */
static enum rec_code open_file(struct rec_writer *writer, const struct rec_live_header *header,
                               const char *dir, char *path, size_t size, struct rec_error *err)
{
    for (int number = 1;; number++) {
        char stem[256];
        recovered_stem(header, number, stem, sizeof(stem));
        snprintf(path, size, "%s/%s.frec", dir, stem);
        if (number < MAX_ATTEMPTS && access(path, F_OK) == 0)
            continue;
        char *meta = recovered_meta(header, number);
        if (!meta)
            return rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
        enum rec_code code = rec_writer_open(writer, dir, stem, meta, strlen(meta), err);
        free(meta);
        return code;
    }
}

static enum rec_code sync_file(const char *path, struct rec_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0)
        close(fd);
    return ok ? REC_OK : rec_error_set(err, REC_ERR_IO, path, 0, "%s", strerror(error));
}

static enum rec_code write_file(const struct rec_job *job, const struct rec_process *process,
                                const struct rec_live_header *header, const char *dir, char *path,
                                size_t size, uint64_t *ops, struct rec_error *err)
{
    struct rec_writer_config config = {.tick_ns = header->tick_ns};
    void *memory = aligned_alloc(64, (rec_writer_bytes(&config) + 63) & ~(size_t)63);
    if (!memory)
        return rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
    struct rec_writer *writer = rec_writer_init(memory, &config);
    enum rec_code code = open_file(writer, header, dir, path, size, err);
    if (code == REC_OK) {
        code = copy_all(job, process, writer, ops, err);
        enum rec_code closed = rec_writer_close(writer, code == REC_OK ? err : NULL);
        code = code == REC_OK ? closed : code;
        if (code == REC_OK)
            code = sync_file(path, err);
        if (code != REC_OK)
            unlink(path);
    }
    free(memory);
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

static int recover_mapped(const struct rec_job *job, const struct rec_process *process,
                          const struct rec_live *live, const char *fallback)
{
    struct rec_error err = {0};
    char path[4096], clean[4096];
    uint64_t ops = 0;
    if (rec_live_process_alive(live))
        return fr_errorf(process->live_path, "process %d still runs; its recorder writes the trace",
                         (int)live->header->pid);
    char *dir = target_directory(process, live->header, fallback);
    if (!dir)
        return fr_errorf(process->live_path, "no memory");
    enum rec_code code = write_file(job, process, live->header, dir, path, sizeof(path), &ops, &err);
    free(dir);
    if (code != REC_OK)
        return fr_error(&err);
    if (unlink(process->live_path) != 0)
        return fr_errorf(process->live_path, "recovered, but not removed: %s", strerror(errno));
    out_format("%s: %llu %s recovered\n", fr_clean(clean, sizeof(clean), path), (unsigned long long)ops,
               ops == 1 ? "call" : "calls");
    return 0;
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

static int recover_process(const struct rec_job *job, const struct rec_process *process, const char *fallback)
{
    struct rec_live live;
    struct rec_error err = {0};
    int lock = lock_region(process->live_path);
    if (lock < 0)
        return fr_errorf(process->live_path, "gone, or somebody else is recovering it");
    int status;
    if (rec_live_map(process->live_path, false, &live, &err) != REC_OK) {
        status = fr_error(&err);
    } else {
        status = recover_mapped(job, process, &live, fallback);
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
        int result = recover_process(job, processes[i], options->paths[0]);
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
