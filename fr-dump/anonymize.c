/*
 * Copies of traces that tell what happened and not where: the calls with their order, times
 * and arguments, the names of everything replaced, the same text by the same name in all files
 * of the copy. Of the metadata only what is known to be harmless is taken over, so that a key
 * of a newer recorder cannot slip through.
 */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alias.h"
#include "batch.h"
#include "dump.h"
#include "out.h"
#include "rec/live.h"
#include "rec/reader.h"
#include "rec/writer.h"

#define MAX_ATTEMPTS  100  /* files of one host and pid */
#define PAGE          4096 /* addresses below are no addresses but what is left of a null pointer */
#define DEFAULT_LEVEL 3    /* made once, sent by mail */

struct anonymizer {
    const char *outdir;
    uint64_t key; /* random: nobody finds the old ids by trying */
    struct aliases hosts, boots, programs, jobs, comms, threads, modules, files, functions, handles,
        variables;
    size_t nfiles;
};

static void anonymizer_init(struct anonymizer *a, const char *outdir)
{
    *a = (struct anonymizer){
        .outdir = outdir,
        .hosts.prefix = "host",
        .boots.prefix = "boot",
        .programs.prefix = "program",
        .jobs.prefix = "job",
        .comms.prefix = "comm",
        .threads.prefix = "thread",
        .modules.prefix = "module",
        .files = {.prefix = "file", .suffix = ".py"},
        .functions.prefix = "function",
        .handles.prefix = "", /* only their numbers count */
        .variables.prefix = "variable",
    };
}

static void anonymizer_fini(struct anonymizer *a)
{
    struct aliases *all[] = {&a->hosts,   &a->boots, &a->programs,  &a->jobs,    &a->comms,    &a->threads,
                             &a->modules, &a->files, &a->functions, &a->handles, &a->variables};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        aliases_fini(all[i]);
}

/* ---- values ---- */

/* Ids that join records keep joining them. */
static uint64_t hide_id(const struct anonymizer *a, uint64_t id)
{
    uint64_t hidden = rec_mix64(id ^ a->key);
    return id == 0 ? 0 : hidden ? hidden : 1;
}

/* Addresses and handles become small numbers, 4096 times their place in the order they are met. */
static bool hide_address(struct anonymizer *a, uint64_t *address)
{
    char text[24];
    if (*address < PAGE)
        return true;
    snprintf(text, sizeof(text), "%llx", (unsigned long long)*address);
    *address = alias_number(&a->handles, text) * PAGE;
    return *address != 0;
}

static bool hide_text(struct aliases *aliases, char *buffer, size_t size)
{
    buffer[size - 1] = '\0';
    const char *name = alias_of(aliases, buffer);
    if (!name)
        return false;
    snprintf(buffer, size, "%s", name);
    return true;
}

/* ---- metadata ---- */

/* The recorder's own list; anything else is somebody's text. */
static bool is_known_variable(const char *text)
{
    static const char *const known[] = {"RANK",
                                        "OMPI_COMM_WORLD_RANK",
                                        "SLURM_PROCID",
                                        "PMI_RANK",
                                        "PMIX_RANK",
                                        "FREC_JOB_ID",
                                        "MASTER_ADDR",
                                        "TORCHELASTIC_RUN_ID",
                                        "SLURM_JOB_ID",
                                        "PMIX_NAMESPACE",
                                        "OMPI_MCA_ess_base_jobid",
                                        "PBS_JOBID",
                                        "LSB_JOBID"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i], text) == 0)
            return true;
    return false;
}

static bool set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

static bool copy_number(json_t *to, const json_t *from, const char *key)
{
    const json_t *value = json_object_get(from, key);
    return !json_is_integer(value) || set(to, key, json_integer(json_integer_value(value)));
}

static bool set_alias(json_t *to, const char *key, struct aliases *aliases, const char *text)
{
    const char *name = alias_of(aliases, text ? text : "");
    return name && (!*name || set(to, key, json_string(name)));
}

static bool set_source(struct anonymizer *a, json_t *to, const char *key, const char *text)
{
    if (text && is_known_variable(text))
        return set(to, key, json_string(text));
    return set_alias(to, key, &a->variables, text);
}

static bool set_digits(json_t *to, const json_t *from, const char *key)
{
    const char *text = json_string_value(json_object_get(from, key));
    if (!text || strlen(text) > 9 || strspn(text, "0123456789") != strlen(text))
        return true;
    return set(to, key, json_string(text));
}

static bool set_job(struct anonymizer *a, json_t *to, const json_t *meta)
{
    const json_t *from = json_object_get(meta, "job");
    if (!json_is_object(from))
        return true;
    json_t *job = json_object();
    if (!set(to, "job", job))
        return false;
    return set_source(a, job, "source", json_string_value(json_object_get(from, "source"))) &&
           set_alias(job, "id", &a->jobs, json_string_value(json_object_get(from, "id"))) &&
           set_digits(job, from, "restart");
}

/* The step of a Slurm job tells runs apart. */
static bool set_step(json_t *to, const json_t *meta)
{
    json_t *env = json_object();
    return set(to, "env", env) && set_digits(env, json_object_get(meta, "env"), "SLURM_STEP_ID");
}

static bool set_proc_uid(const struct anonymizer *a, json_t *to, const struct rec_process *process)
{
    char text[17];
    snprintf(text, sizeof(text), "%016llx", (unsigned long long)hide_id(a, process->proc_uid));
    return !process->proc_uid || set(to, "proc_uid", json_string(text));
}

static bool fill_meta(struct anonymizer *a, json_t *to, const json_t *from, const struct rec_process *process)
{
    static const char *const numbers[] = {"pid",          "rank",    "world_size", "local_rank",
                                          "nccl_version", "tick_ns", "start_ns",   "max_mb"};
    bool ok = set_alias(to, "host", &a->hosts, process->host) &&
              set_alias(to, "boot_id", &a->boots, process->boot_id) &&
              set_alias(to, "exe", &a->programs, process->exe) && set_proc_uid(a, to, process) &&
              set_source(a, to, "rank_source", json_string_value(json_object_get(from, "rank_source"))) &&
              set_job(a, to, from) && set_step(to, from);
    for (size_t i = 0; ok && i < sizeof(numbers) / sizeof(numbers[0]); i++)
        ok = copy_number(to, from, numbers[i]);
    /* What only its own host could know. */
    if (ok && process->fate == REC_FATE_VANISHED)
        ok = set(to, "fate", json_string("vanished"));
    if (ok && process->saw_live)
        ok = set(to, "saw_live", json_true());
    return ok;
}

/* The process's own metadata; an empty object when it has none that can be read. */
static json_t *read_meta(const struct rec_process *process, uint32_t *tick_ns)
{
    struct rec_reader *reader;
    struct rec_live live;
    char text[REC_LIVE_META_BYTES + 1] = "";
    json_t *meta = NULL;
    if (process->has_file && rec_reader_open(process->path, &reader, NULL) == REC_OK) {
        *tick_ns = rec_reader_tick_ns(reader);
        meta = json_loads(rec_reader_meta(reader), 0, NULL);
        rec_reader_close(reader);
    } else if (process->live_path && rec_live_map(process->live_path, false, &live, NULL) == REC_OK) {
        *tick_ns = live.header->tick_ns;
        memcpy(text, live.header->meta, REC_LIVE_META_BYTES);
        meta = json_loads(text, 0, NULL);
        rec_live_unmap(&live);
    }
    if (json_is_object(meta))
        return meta;
    json_decref(meta);
    return json_object();
}

/* malloc'ed; NULL without memory. */
static char *make_meta(struct anonymizer *a, const struct rec_process *process, uint32_t *tick_ns)
{
    json_t *from = read_meta(process, tick_ns), *to = json_object();
    char *text = fill_meta(a, to, from, process) ? json_dumps(to, JSON_COMPACT) : NULL;
    json_decref(from);
    json_decref(to);
    return text;
}

/* ---- records ---- */

struct copy {
    struct anonymizer *a;
    const struct rec_process *process;
    struct batch batch;
    struct rec_source_frame frames[REC_CALLSITE_FRAMES];
};

static bool copy_comm(struct copy *copy, struct rec_comm_def def)
{
    struct anonymizer *a = copy->a;
    def.uid = hide_id(a, def.uid);
    def.parent_uid = hide_id(a, def.parent_uid);
    def.comm_hash = hide_id(a, def.comm_hash);
    if (!hide_address(a, &def.handle) || !hide_text(&a->comms, def.name, sizeof(def.name)))
        return false;
    rec_writer_comm(copy->batch.writer, &def);
    return true;
}

static bool copy_thread(struct copy *copy, struct rec_thread_def def)
{
    if (!hide_text(&copy->a->threads, def.name, sizeof(def.name)))
        return false;
    rec_writer_thread(copy->batch.writer, &def);
    return true;
}

static bool copy_stream(struct copy *copy, struct rec_stream_def def)
{
    if (!hide_address(copy->a, &def.handle))
        return false;
    rec_writer_stream(copy->batch.writer, &def);
    return true;
}

static void copy_redop(struct copy *copy, struct rec_redop_def def)
{
    def.scalar = 0; /* the user's number; the hash that is compared says nothing of it */
    rec_writer_redop(copy->batch.writer, &def);
}

/* Addresses in no module are the process's own, those in one are the same wherever it runs. */
static bool hide_frames(struct copy *copy, struct rec_frame *to, const struct rec_frame *from, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        to[i] = from[i];
        if (to[i].module == REC_ID_NONE && !hide_address(copy->a, &to[i].offset))
            return false;
    }
    return true;
}

/* The array is malloc'ed, the names are not; NULL without memory. */
static const char **hide_modules(struct copy *copy, const char *const *modules, uint32_t count)
{
    const char **names = calloc(count + 1u, sizeof(*names));
    for (uint32_t i = 0; names && i < count; i++)
        if (!(names[i] = alias_of(&copy->a->modules, modules[i]))) {
            free(names);
            return NULL;
        }
    return names;
}

static bool copy_end(struct copy *copy, uint64_t time_ns, struct rec_end end)
{
    const char **modules = hide_modules(copy, end.modules, end.nmodules);
    struct rec_frame *frames = calloc(end.nframes + 1u, sizeof(*frames));
    bool ok = modules && frames && hide_frames(copy, frames, end.frames, end.nframes) &&
              hide_address(copy->a, &end.fault);
    end.modules = modules;
    end.frames = frames;
    if (ok)
        rec_writer_end(copy->batch.writer, time_ns, &end);
    free(modules);
    free(frames);
    return ok;
}

/* System calls and kernel functions; whatever else a trace may claim to be one is made harmless. */
static void clean_where(char *where)
{
    for (; *where; where++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789_, ", *where))
            *where = '_';
}

static bool hide_stall_thread(struct copy *copy, struct rec_stall_thread *thread, struct rec_frame *frames)
{
    if (!hide_frames(copy, frames, thread->frames, thread->nframes) ||
        !hide_text(&copy->a->threads, thread->name, sizeof(thread->name)))
        return false;
    thread->where[sizeof(thread->where) - 1] = '\0';
    clean_where(thread->where);
    thread->frames = frames;
    return true;
}

static bool copy_stall(struct copy *copy, uint64_t time_ns, struct rec_stall stall)
{
    size_t nframes = 0;
    for (uint32_t i = 0; i < stall.nthreads; i++)
        nframes += stall.threads[i].nframes;
    const char **modules = hide_modules(copy, stall.modules, stall.nmodules);
    struct rec_stall_thread *threads = calloc(stall.nthreads + 1u, sizeof(*threads));
    struct rec_frame *frames = calloc(nframes + 1, sizeof(*frames)), *next = frames;
    bool ok = modules && threads && frames;
    for (uint32_t i = 0; ok && i < stall.nthreads; i++) {
        threads[i] = stall.threads[i];
        ok = hide_stall_thread(copy, &threads[i], next);
        next += threads[i].nframes;
    }
    stall.modules = modules;
    stall.threads = threads;
    if (ok)
        rec_writer_stall(copy->batch.writer, time_ns, &stall);
    free(modules);
    free(threads);
    free(frames);
    return ok;
}

/* rec_callsite_source: Python files and functions, or the module. */
static bool give_callsite(void *context, uint32_t id, struct rec_callsite_def *def)
{
    struct copy *copy = context;
    const struct rec_callsite_def *known = rec_process_callsite(copy->process, id);
    if (!known || known->nframes > REC_CALLSITE_FRAMES)
        return false;
    bool python = known->kind == REC_CALLSITE_PYTHON;
    for (uint32_t i = 0; i < known->nframes; i++) {
        struct rec_source_frame *frame = &copy->frames[i];
        *frame = known->frames[i];
        frame->build_id = ""; /* it would tell which program this is */
        frame->file = alias_of(python ? &copy->a->files : &copy->a->modules, frame->file);
        frame->function = alias_of(&copy->a->functions, frame->function);
        if (!frame->file || !frame->function || (!*frame->file && !hide_address(copy->a, &frame->offset)))
            return false; /* the op keeps its number, without a line */
    }
    *def = *known;
    def->id = id;
    def->frames = copy->frames;
    return true;
}

static bool copy_event(struct copy *copy, const struct rec_event *event)
{
    struct rec_writer *writer = copy->batch.writer;
    if (event->type == REC_EV_OP)
        return batch_add(&copy->batch, &event->u.op);
    batch_flush(&copy->batch);
    switch (event->type) {
    case REC_EV_COMM:
        return copy_comm(copy, event->u.comm);
    case REC_EV_THREAD:
        return copy_thread(copy, event->u.thread);
    case REC_EV_REDOP:
        copy_redop(copy, event->u.redop);
        break;
    case REC_EV_STREAM:
        return copy_stream(copy, event->u.stream);
    case REC_EV_OPEN:
        return batch_open(&copy->batch, event->time_ns, event->u.open.ops, event->u.open.count);
    case REC_EV_FRONTIER:
        rec_writer_frontier(writer, event->time_ns, &event->u.frontier);
        break;
    case REC_EV_GPU:
        rec_writer_gpu(writer, event->time_ns, &event->u.gpu);
        break;
    case REC_EV_HEARTBEAT:
        rec_writer_heartbeat(writer, event->time_ns);
        break;
    case REC_EV_LOSS:
        rec_writer_loss(writer, event->time_ns, &event->u.loss);
        break;
    case REC_EV_STALL:
        return copy_stall(copy, event->time_ns, event->u.stall);
    case REC_EV_END:
        return copy_end(copy, event->time_ns, event->u.end);
    case REC_EV_OP:
    case REC_EV_CHECKPOINT: /* the writer makes its own */
    case REC_EV_CALLSITE:   /* and asks for these */
        break;
    }
    return true;
}

static enum rec_code copy_all(struct anonymizer *a, const struct rec_job *job,
                              const struct rec_process *process, struct rec_writer *writer, uint64_t *ops,
                              struct rec_error *err)
{
    struct copy copy = {.a = a, .process = process, .batch.writer = writer};
    struct rec_scan *scan;
    struct rec_event event;
    enum rec_code code =
        rec_scan_open(job, process, &(struct rec_scan_filter){.as_recorded = true}, &scan, err);
    if (code != REC_OK)
        return code;
    rec_writer_callsites(writer, give_callsite, &copy);
    if (process->rotated) { /* readers see it by the numbers of the parts, which are one now */
        struct rec_loss loss = {.thread = REC_ID_NONE, .why = REC_LOSS_ROTATED};
        rec_writer_loss(writer, process->start_ns, &loss);
    }
    while ((code = rec_scan_next(scan, &event, err)) == REC_OK)
        if (!copy_event(&copy, &event)) {
            code = rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
            break;
        }
    rec_scan_close(scan);
    batch_flush(&copy.batch);
    rec_writer_callsites(writer, NULL, NULL); /* ours ends here */
    batch_fini(&copy.batch);
    *ops = copy.batch.total;
    return code == REC_END ? REC_OK : code;
}

/* ---- files ---- */

static enum rec_code open_file(struct anonymizer *a, const struct rec_process *process,
                               struct rec_writer *writer, const char *meta, char *path, size_t size,
                               struct rec_error *err)
{
    const char *host = alias_of(&a->hosts, process->host);
    char stem[128], suffix[16] = "";
    for (int number = 1;; number++) {
        if (number > 1)
            snprintf(suffix, sizeof(suffix), "-%d", number);
        snprintf(stem, sizeof(stem), "%s-%d%s", host && *host ? host : "host-0", (int)process->pid, suffix);
        snprintf(path, size, "%s/%s.frec", a->outdir, stem);
        if (number == MAX_ATTEMPTS || access(path, F_OK) != 0)
            return rec_writer_open(writer, a->outdir, stem, meta, strlen(meta), err);
    }
}

static enum rec_code write_file(struct anonymizer *a, const struct rec_job *job,
                                const struct rec_process *process, char *path, size_t size, uint64_t *ops,
                                struct rec_error *err)
{
    struct rec_writer_config config = {.level = DEFAULT_LEVEL};
    char *meta = make_meta(a, process, &config.tick_ns);
    void *memory = meta ? aligned_alloc(64, (rec_writer_bytes(&config) + 63) & ~(size_t)63) : NULL;
    if (!memory) {
        free(meta);
        return rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
    }
    struct rec_writer *writer = rec_writer_init(memory, &config);
    enum rec_code code = open_file(a, process, writer, meta, path, size, err);
    if (code == REC_OK) {
        code = copy_all(a, job, process, writer, ops, err);
        enum rec_code closed = rec_writer_close(writer, code == REC_OK ? err : NULL);
        code = code == REC_OK ? closed : code;
        if (code != REC_OK)
            unlink(path);
    }
    free(memory);
    free(meta);
    return code;
}

static int anonymize_job(struct anonymizer *a, const struct dump_options *options, const char *job_id)
{
    struct dump_options one = *options;
    one.job.job_id = job_id;
    struct rec_job *job = dump_open(&one);
    if (!job)
        return FR_EXIT_ERROR;
    size_t count;
    int status = 0;
    struct rec_process *const *processes = rec_job_processes(job, &count);
    for (size_t i = 0; i < count && status == 0; i++) {
        char path[4096], clean[4096];
        struct rec_error err = {0};
        uint64_t ops = 0;
        if (!dump_rank_wanted(options, processes[i]))
            continue;
        if (write_file(a, job, processes[i], path, sizeof(path), &ops, &err) != REC_OK) {
            status = fr_error(&err);
            continue;
        }
        a->nfiles++;
        out_format("%s: %llu %s\n", fr_clean(clean, sizeof(clean), path), (unsigned long long)ops,
                   ops == 1 ? "call" : "calls");
    }
    rec_job_close(job);
    return status;
}

/* A directory with traces of something else would mix its host-1 with ours. */
static int prepare_directory(const char *path)
{
    if (mkdir(path, 0777) == 0)
        return 0;
    if (errno != EEXIST)
        return fr_errorf(path, "%s", strerror(errno));
    DIR *listing = opendir(path);
    if (!listing)
        return fr_errorf(path, "%s", strerror(errno));
    const struct dirent *entry;
    bool taken = false;
    while ((entry = readdir(listing))) {
        size_t length = strlen(entry->d_name);
        taken = taken || (length > 5 && strcmp(entry->d_name + length - 5, ".frec") == 0);
    }
    closedir(listing);
    return taken ? fr_errorf(path, "has traces already; name a new directory") : 0;
}

/* For whoever sends the copy and gets an answer about host-3. */
static void print_names(const struct aliases *aliases)
{
    char clean[1024];
    for (size_t i = 0; i < aliases->count; i++)
        out_format("%s = %s\n", aliases->items[i]->name,
                   fr_clean(clean, sizeof(clean), aliases->items[i]->text));
}

static int anonymize_all(struct anonymizer *a, const struct dump_options *options)
{
    struct rec_job *job;
    struct rec_error err = {0};
    size_t count = 0;
    int status = 0;
    enum rec_code code = rec_job_open(options->paths, options->npaths, &options->job, &job, &err);
    if (code != REC_OK && code != REC_ERR_MIXED)
        return fr_error(&err);
    const struct rec_job_info *jobs = rec_job_candidates(job, &count);
    if (code == REC_OK || options->job.job_id)
        status = anonymize_job(a, options, options->job.job_id);
    else
        for (size_t i = 0; i < count && status == 0; i++)
            status = anonymize_job(a, options, jobs[i].id);
    rec_job_close(job);
    if (status == 0 && a->nfiles == 0)
        status = fr_errorf(options->paths[0], "no trace of these ranks");
    return status;
}

int dump_anonymize(const struct dump_options *options)
{
    struct anonymizer a;
    int status = prepare_directory(options->outdir);
    if (status)
        return status;
    anonymizer_init(&a, options->outdir);
    if (getrandom(&a.key, sizeof(a.key), 0) != (ssize_t)sizeof(a.key))
        status = fr_errorf(NULL, "no random numbers: %s", strerror(errno));
    else
        status = anonymize_all(&a, options);
    if (status == 0) {
        print_names(&a.hosts);
        print_names(&a.comms);
    }
    anonymizer_fini(&a);
    return status;
}
