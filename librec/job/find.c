#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"
#include "job/parallel.h"

#define BATCH 256 /* headers that are read at a time */

struct finder {
    struct job_sources *sources;
    struct job_lines *warnings;
    struct rec_error *err;
    struct rec_error first; /* the first file that could not be read */
    unsigned threads;
    const struct rec_progress *progress;
    uint64_t looked_at; /* files */
};

static enum rec_code no_memory(struct rec_error *err)
{
    return rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
}

void job_source_fini(struct job_source *source)
{
    for (size_t i = 0; i < source->nparts; i++)
        free(source->parts[i].path);
    free(source->parts);
    free(source->live);
    free(source->named_live);
    *source = (struct job_source){0};
}

void job_sources_fini(struct job_sources *sources)
{
    for (size_t i = 0; i < sources->count; i++)
        job_source_fini(&sources->items[i]);
    free(sources->items);
    job_map_free(&sources->by_uid);
    *sources = (struct job_sources){0};
}

void job_boot_id(char *buffer, size_t size)
{
    buffer[0] = '\0';
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!file)
        return;
    if (fgets(buffer, (int)size, file))
        buffer[strcspn(buffer, "\n")] = '\0';
    fclose(file);
}

static bool has_suffix(const char *name, const char *suffix)
{
    size_t length = strlen(name), tail = strlen(suffix);
    return length > tail && strcmp(name + length - tail, suffix) == 0;
}

/* The source of this process, made when new; NULL without memory. */
static struct job_source *source_of(struct job_sources *sources, const struct job_meta *meta)
{
    uint32_t at = meta->proc_uid ? job_map_get(&sources->by_uid, meta->proc_uid) : JOB_MAP_NONE;
    if (at != JOB_MAP_NONE)
        return &sources->items[at];
    if (!job_grow(&sources->items, &sources->room, sources->count + 1, sizeof(*sources->items)))
        return NULL;
    if (meta->proc_uid && !job_map_put(&sources->by_uid, meta->proc_uid, (uint32_t)sources->count))
        return NULL;
    struct job_source *source = &sources->items[sources->count++];
    *source = (struct job_source){.proc_uid = meta->proc_uid, .meta = *meta};
    return source;
}

/* Two files claim to be the same part: the same file met twice, or a copy; the longer one wins. */
static bool replace_part(struct job_part *part, const char *path, struct job_lines *warnings)
{
    struct stat old, new;
    if (stat(part->path, &old) != 0 || stat(path, &new) != 0)
        return true;
    if (old.st_dev == new.st_dev && old.st_ino == new.st_ino)
        return true;
    job_warn(warnings, path, "a second copy of %s; the longer one is used", part->path);
    if (new.st_size <= old.st_size)
        return true;
    char *copy = strdup(path);
    if (!copy)
        return false;
    free(part->path);
    part->path = copy;
    return true;
}

static bool add_part(struct job_source *source, const char *path, uint32_t number, struct job_lines *warnings)
{
    size_t at = source->nparts;
    while (at > 0 && source->parts[at - 1].number >= number)
        at--;
    if (at < source->nparts && source->parts[at].number == number)
        return replace_part(&source->parts[at], path, warnings);
    if (!job_grow(&source->parts, &source->parts_room, source->nparts + 1, sizeof(*source->parts)))
        return false;
    char *copy = strdup(path);
    if (!copy)
        return false;
    memmove(&source->parts[at + 1], &source->parts[at], (source->nparts - at) * sizeof(*source->parts));
    source->parts[at] = (struct job_part){.path = copy, .number = number};
    source->nparts++;
    return true;
}

/* The number of a part named STEM.N.frec; 0 for any other name. */
static uint32_t part_of_name(const char *name, const char *stem, size_t length)
{
    char *end;
    if (strncmp(name, stem, length) != 0 || name[length] != '.' || name[length + 1] < '1' ||
        name[length + 1] > '9')
        return 0;
    unsigned long number = strtoul(name + length + 1, &end, 10);
    return strcmp(end, ".frec") == 0 && number < JOB_RECOVERED_PART ? (uint32_t)number : 0;
}

static bool same_process(const char *path, uint64_t proc_uid)
{
    struct rec_reader *reader;
    struct job_meta meta;
    if (rec_reader_open(path, &reader, NULL) != REC_OK)
        return false;
    job_meta_parse(rec_reader_meta(reader), &meta, NULL);
    rec_reader_close(reader);
    return meta.proc_uid == proc_uid;
}

enum rec_code job_find_following(const struct job_source *source, const struct job_part *last,
                                 struct job_part *part, struct rec_error *err)
{
    const char *slash = strrchr(last->path, '/');
    const char *name = slash ? slash + 1 : last->path;
    size_t directory = (size_t)(name - last->path), length = strlen(name) - strlen(".frec");
    char number[16] = "";
    if (last->number)
        snprintf(number, sizeof(number), ".%u", last->number);
    if (!has_suffix(name, ".frec") || length <= strlen(number))
        return REC_END;
    length -= strlen(number);
    if (strncmp(name + length, number, strlen(number)) != 0)
        return REC_END; /* renamed since it was recorded */
    char *dir = directory ? strndup(last->path, directory) : strdup(".");
    if (!dir)
        return no_memory(err);
    DIR *listing = opendir(dir);
    free(dir);
    *part = (struct job_part){0};
    const struct dirent *entry;
    while (listing && (entry = readdir(listing))) {
        uint32_t found = part_of_name(entry->d_name, name, length);
        if (found > last->number && (part->number == 0 || found < part->number))
            part->number = found;
    }
    if (listing)
        closedir(listing);
    if (part->number == 0)
        return REC_END;
    if (asprintf(&part->path, "%.*s.%u.frec", (int)(directory + length), last->path, part->number) < 0) {
        part->path = NULL;
        return no_memory(err);
    }
    if (same_process(part->path, source->proc_uid))
        return REC_OK;
    free(part->path);
    part->path = NULL;
    return REC_END;
}

bool job_source_append(struct job_source *source, struct job_part *part)
{
    if (!job_grow(&source->parts, &source->parts_room, source->nparts + 1, sizeof(*source->parts)))
        return false;
    source->parts[source->nparts++] = *part;
    *part = (struct job_part){0};
    return true;
}

/* What the header of one file says. */
struct header {
    char *path;
    enum rec_code code;
    struct rec_error problem;
    struct job_meta meta;
    char live[REC_LIVE_PATH_BYTES];
    uint32_t number; /* of the part */
};

static void read_header(struct header *header)
{
    struct rec_reader *reader;
    header->problem = (struct rec_error){0};
    header->code = rec_reader_open(header->path, &reader, &header->problem);
    if (header->code != REC_OK)
        return;
    job_meta_parse(rec_reader_meta(reader), &header->meta, header->live);
    header->number =
        header->meta.recovered ? JOB_RECOVERED_PART + header->meta.recovered : rec_reader_part(reader);
    rec_reader_close(reader);
}

/* only limits to one process, by its proc_uid; 0 takes any. An unreadable file is an error only when strict.
 */
static enum rec_code take_header(struct finder *f, const struct header *header, uint64_t only, bool strict)
{
    const char *path = header->path;
    enum rec_code code = header->code;
    if (code == REC_ERR_NOMEM || (code != REC_OK && strict)) {
        if (f->err)
            *f->err = header->problem;
        return code;
    }
    if (code != REC_OK) {
        const char *text = header->problem.text;
        job_warn(f->warnings, path, "%s", text[0] ? text : rec_code_name(code));
        if (f->sources->unreadable++ == 0)
            f->first = header->problem;
        return REC_OK;
    }
    if (only && header->meta.proc_uid != only)
        return REC_OK;
    if (!header->meta.valid)
        job_warn(f->warnings, path, "the header's metadata is no JSON object");
    struct job_source *source = source_of(f->sources, &header->meta);
    if (!source || !add_part(source, path, header->number, f->warnings))
        return no_memory(f->err);
    source->meta.saw_live |= header->meta.saw_live;
    if (header->live[0] == '/' && has_suffix(header->live, ".live") && !source->named_live &&
        !(source->named_live = strdup(header->live)))
        return no_memory(f->err);
    return REC_OK;
}

/* ---- directories ---- */

static int select_frec(const struct dirent *entry)
{
    return has_suffix(entry->d_name, ".frec");
}

static int select_live(const struct dirent *entry)
{
    return has_suffix(entry->d_name, ".live");
}

/* The paths of all entries that select accepts, in the order of names. */
static enum rec_code list_entries(const char *dir, int (*select)(const struct dirent *),
                                  struct job_lines *paths, struct rec_error *err)
{
    struct dirent **entries;
    int count = scandir(dir, &entries, select, alphasort);
    if (count < 0)
        return rec_error_set(err, errno == ENOMEM ? REC_ERR_NOMEM : REC_ERR_IO, dir, 0, "%s",
                             strerror(errno));
    bool ok = job_grow(&paths->items, &paths->room, (size_t)count, sizeof(char *));
    for (int i = 0; i < count; i++) {
        char *path = NULL;
        ok = ok && asprintf(&path, "%s/%s", dir, entries[i]->d_name) >= 0;
        if (ok)
            paths->items[paths->count++] = path;
        free(entries[i]);
    }
    free(entries);
    return ok ? REC_OK : no_memory(err);
}

static void read_one(void *context, size_t index)
{
    struct header *headers = context;
    read_header(&headers[index]);
}

static enum rec_code looked(struct finder *f, size_t count)
{
    f->looked_at += count;
    if (f->progress && !f->progress->report(f->progress->context, REC_PHASE_FIND, f->looked_at, 0))
        return job_cancelled(f->err);
    return REC_OK;
}

/* Headers are read by several threads, each into its own entry, and taken in the order of names. */
static enum rec_code take_traces(struct finder *f, const char *dir, uint64_t only)
{
    struct job_lines paths = {0};
    struct header *headers = malloc(BATCH * sizeof(*headers));
    enum rec_code code = headers ? list_entries(dir, select_frec, &paths, f->err) : no_memory(f->err);
    for (size_t first = 0, n; first < paths.count && code == REC_OK; first += n) {
        n = paths.count - first < BATCH ? paths.count - first : BATCH;
        for (size_t i = 0; i < n; i++)
            headers[i].path = paths.items[first + i];
        job_parallel(f->threads, &(struct job_parallel){n, read_one, NULL, headers});
        for (size_t i = 0; i < n && code == REC_OK; i++)
            code = take_header(f, &headers[i], only, false);
        if (code == REC_OK)
            code = looked(f, n);
    }
    free(headers);
    job_lines_free(&paths);
    return code;
}

static void copy_field(char *to, size_t size, const char *from, size_t from_size)
{
    size_t length = strnlen(from, from_size);
    length = length < size ? length : size - 1;
    memcpy(to, from, length);
    to[length] = '\0';
}

struct region {
    struct job_meta meta;
    char frec_dir[REC_LIVE_PATH_BYTES];
    bool had_file; /* a trace was made in frec_dir */
};

/* Reads who wrote a region. */
static enum rec_code region_read(const char *path, struct region *region, struct rec_error *err)
{
    struct rec_live live;
    enum rec_code code = rec_live_map(path, false, &live, err);
    if (code != REC_OK)
        return code;
    char text[REC_LIVE_META_BYTES] = "";
    if (atomic_load_explicit(&live.header->meta_bytes, memory_order_acquire) > 0)
        copy_field(text, sizeof(text), live.header->meta, sizeof(live.header->meta));
    job_meta_parse(text, &region->meta, NULL);
    copy_field(region->frec_dir, sizeof(region->frec_dir), live.header->frec_dir,
               sizeof(live.header->frec_dir));
    region->had_file = live.header->frec_name[0] != '\0';
    /* The header's own words are there before the metadata is. */
    region->meta.proc_uid = live.header->proc_uid;
    region->meta.pid = live.header->pid;
    region->meta.start_ticks = live.header->start_ticks;
    copy_field(region->meta.boot_id, sizeof(region->meta.boot_id), live.header->boot_id,
               sizeof(live.header->boot_id));
    rec_live_unmap(&live);
    return region->meta.proc_uid ? REC_OK
                                 : rec_error_set(err, REC_ERR_FORMAT, path, 0, "the region names no process");
}

static enum rec_code attach_region(struct finder *f, const char *path, const struct region *region)
{
    struct job_source *source = source_of(f->sources, &region->meta);
    if (!source)
        return no_memory(f->err);
    if (!source->live && !(source->live = strdup(path)))
        return no_memory(f->err);
    return REC_OK;
}

struct places {
    char **paths; /* real paths of the directories asked for */
    size_t count;
};

static enum rec_code take_region(struct finder *f, const char *path, const struct places *places)
{
    struct region region;
    enum rec_code code = region_read(path, &region, f->err);
    if (code != REC_OK) /* somebody else's affair, or gone meanwhile */
        return code == REC_ERR_NOMEM ? code : REC_OK;
    if (job_map_get(&f->sources->by_uid, region.meta.proc_uid) != JOB_MAP_NONE)
        return attach_region(f, path, &region);
    char *real = realpath(region.frec_dir, NULL);
    const char *dir = real ? real : region.frec_dir;
    bool wanted = false;
    for (size_t i = 0; i < places->count && !wanted; i++)
        wanted = strcmp(places->paths[i], dir) == 0;
    free(real);
    if (!wanted)
        return REC_OK;
    code = attach_region(f, path, &region);
    uint32_t at = job_map_get(&f->sources->by_uid, region.meta.proc_uid);
    if (code == REC_OK && at != JOB_MAP_NONE)
        f->sources->items[at].orphan = region.had_file;
    return code;
}

static enum rec_code take_live_argument(struct finder *f, const char *path)
{
    struct region region;
    enum rec_code code = region_read(path, &region, f->err);
    return code == REC_OK ? attach_region(f, path, &region) : code;
}

static enum rec_code take_file(struct finder *f, const char *path)
{
    struct header *header = malloc(sizeof(*header));
    if (!header)
        return no_memory(f->err);
    header->path = (char *)(uintptr_t)path;
    read_header(header);
    enum rec_code code = take_header(f, header, 0, true);
    free(header);
    return code;
}

/* One file named by the user stands for its process: the other parts beside it belong to it. */
static enum rec_code take_file_argument(struct finder *f, const char *path)
{
    if (has_suffix(path, ".live"))
        return take_live_argument(f, path);
    size_t before = f->sources->count;
    enum rec_code code = take_file(f, path);
    if (code != REC_OK || f->sources->count == before || f->sources->items[before].proc_uid == 0)
        return code;
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (!dir)
        return no_memory(f->err);
    uint64_t only = f->sources->items[before].proc_uid;
    struct job_lines ignored = {0};
    struct finder siblings = {.sources = f->sources,
                              .warnings = &ignored,
                              .err = f->err,
                              .threads = f->threads,
                              .progress = f->progress,
                              .looked_at = f->looked_at};
    uint32_t unreadable = f->sources->unreadable;
    code = take_traces(&siblings, dir, only);
    f->looked_at = siblings.looked_at;
    f->sources->unreadable = unreadable; /* strangers' files */
    job_lines_free(&ignored);
    free(dir);
    return code == REC_ERR_IO ? REC_OK : code;
}

static enum rec_code take_argument(struct finder *f, const char *path, struct places *places)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return rec_error_set(f->err, REC_ERR_IO, path, 0, "%s", strerror(errno));
    if (!S_ISDIR(status.st_mode))
        return take_file_argument(f, path);
    char *real = realpath(path, NULL);
    if (real)
        places->paths[places->count++] = real;
    return take_traces(f, path, 0);
}

/* The regions that traces name in their metadata: only of this boot of this host. */
static enum rec_code take_named_regions(struct finder *f)
{
    char boot_id[40];
    job_boot_id(boot_id, sizeof(boot_id));
    for (size_t i = 0; i < f->sources->count; i++) {
        struct job_source *source = &f->sources->items[i];
        struct region region;
        if (source->live || !source->named_live || boot_id[0] == '\0' ||
            strcmp(source->meta.boot_id, boot_id) != 0)
            continue;
        enum rec_code code = region_read(source->named_live, &region, f->err);
        if (code == REC_ERR_NOMEM)
            return code;
        if (code != REC_OK || region.meta.proc_uid != source->proc_uid)
            continue;
        source->live = source->named_live;
        source->named_live = NULL;
    }
    return REC_OK;
}

static enum rec_code take_live_dir(struct finder *f, const char *live_dir, struct places *places)
{
    char *dir;
    struct job_lines paths = {0};
    if (asprintf(&dir, "%s/frec-%u", live_dir, (unsigned)geteuid()) < 0)
        return no_memory(f->err);
    enum rec_code code = list_entries(dir, select_live, &paths, f->err);
    for (size_t i = 0; i < paths.count && code == REC_OK; i++)
        code = take_region(f, paths.items[i], places);
    job_lines_free(&paths);
    free(dir);
    return code == REC_ERR_IO ? REC_OK : code; /* nobody records here */
}

static enum rec_code report_nothing(const struct finder *f, const char *dir)
{
    const struct rec_error *first = &f->first;
    unsigned unreadable = f->sources->unreadable;
    if (unreadable == 0)
        return rec_error_set(f->err, REC_ERR_EMPTY, dir, 0, "no trace (*.frec) found");
    const char *reason = first->text[0] ? first->text : rec_code_name(first->code);
    if (unreadable == 1)
        return rec_error_set(f->err, REC_ERR_EMPTY, first->path, first->offset, "%.200s", reason);
    return rec_error_set(f->err, REC_ERR_EMPTY, first->path, first->offset, "%.150s (and %u more; no trace)",
                         reason, unreadable - 1);
}

enum rec_code job_find(const char *const *dirs, size_t ndirs, const struct rec_job_options *options,
                       struct job_sources *sources, struct job_lines *warnings, struct rec_error *err)
{
    struct finder f = {.sources = sources,
                       .warnings = warnings,
                       .err = err,
                       .threads = options->threads,
                       .progress = options->progress};
    struct places places = {.paths = calloc(ndirs + 1, sizeof(char *))};
    enum rec_code code = places.paths ? REC_OK : no_memory(err);
    for (size_t i = 0; i < ndirs && code == REC_OK; i++)
        code = take_argument(&f, dirs[i], &places);
    if (code == REC_OK && !options->no_live)
        code = take_named_regions(&f);
    if (code == REC_OK && !options->no_live && options->live_dir)
        code = take_live_dir(&f, options->live_dir, &places);
    for (size_t i = 0; i < places.count; i++)
        free(places.paths[i]);
    free(places.paths);
    return code == REC_OK && sources->count == 0 ? report_nothing(&f, dirs[0]) : code;
}
