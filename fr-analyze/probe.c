#include "probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rec/live.h"
#include "rec/reader.h"

/*
 * Living processes leave heartbeats every 2 s. Who has left none for so long may be gone: on a host of
 * others who do, or where clocks must be allowed to differ.
 */
#define QUIET_NS      UINT64_C(7000000000)
#define VERY_QUIET_NS UINT64_C(61000000000)

#define LOAD(word) atomic_load_explicit(&(word), memory_order_relaxed)

/* Order matters not: entries of a directory come in any. */
static uint64_t text_term(const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return rec_mix64(hash);
}

static uint64_t number_term(uint64_t term, uint64_t number)
{
    return rec_mix64(term ^ rec_mix64(number + UINT64_C(0x9e3779b97f4a7c15)));
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

/* What threads have entered and are inside of, and where GPUs are; readers need no order here, only news. */
static uint64_t region_term(const struct rec_live *live)
{
    const struct rec_live_header *header = live->header;
    uint64_t term = number_term(header->proc_uid, LOAD(header->end.reason));
    term = number_term(term, rec_live_process_alive(live));
    for (uint32_t i = 0; i < header->thread_count; i++) {
        const struct rec_live_thread *thread = &live->threads[i];
        if (LOAD(thread->id))
            term = number_term(term, LOAD(thread->ordinal) ^ LOAD(thread->open) << 32);
    }
    for (uint32_t i = 0; i < header->stream_count; i++)
        if (LOAD(live->streams[i].used))
            term = number_term(term, LOAD(live->marks[i].start) ^ LOAD(live->marks[i].end) << 32);
    return term;
}

static bool add_region(const char *path, struct probe_look *look)
{
    struct rec_live live;
    if (rec_live_map(path, false, &live, NULL) != REC_OK)
        return false;
    look->calls += region_term(&live);
    rec_live_unmap(&live);
    return true;
}

/* Stems of the files whose processes' live regions were read. */
struct stems {
    char **items;
    size_t count;
};

/* "/dir/h1-123.2.frec" → "h1-123"; a process without a file has none. */
static void add_stem(struct stems *stems, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (!ends_with(name, ".frec"))
        return;
    size_t length = strlen(name) - strlen(".frec"), digits = length;
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9')
        digits--;
    if (digits > 0 && digits < length && name[digits - 1] == '.')
        length = digits - 1;
    char **items = reallocarray(stems->items, stems->count + 1, sizeof *items);
    if (!items)
        return; /* its heartbeats count as changes then */
    stems->items = items;
    if ((items[stems->count] = strndup(name, length)))
        stems->count++;
}

static bool covered(const struct stems *stems, const char *name)
{
    for (size_t i = 0; i < stems->count; i++) {
        size_t length = strlen(stems->items[i]);
        if (strncmp(name, stems->items[i], length) == 0 && name[length] == '.')
            return true;
    }
    return false;
}

struct probe_file {
    uint64_t name; /* hash of its path */
    uint64_t inode, bytes;
    uint64_t offset; /* behind the last whole piece */
    uint64_t calls;  /* differs when there was more than heartbeats */
    uint64_t grew_ns;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The file's entry, made when new; NULL without memory. Files mostly come in the same order: *next is tried
 * first. */
static struct probe_file *file_of(struct probe *probe, uint64_t name, size_t *next)
{
    for (size_t i = 0; i < probe->count; i++) {
        size_t at = (*next + i) % probe->count;
        if (probe->files[at].name != name)
            continue;
        *next = at + 1;
        return &probe->files[at];
    }
    if (probe->count == probe->room) {
        size_t room = probe->room ? 2 * probe->room : 64;
        struct probe_file *files = reallocarray(probe->files, room, sizeof *files);
        if (!files)
            return NULL;
        probe->files = files;
        probe->room = room;
    }
    *next = probe->count + 1;
    probe->files[probe->count] = (struct probe_file){.name = name};
    return &probe->files[probe->count++];
}

/* Looks at what was appended. */
static void follow_file(struct probe_file *file, int dir, const char *name, const struct stat *info)
{
    uint64_t bytes = (uint64_t)info->st_size;
    if (file->inode == info->st_ino && file->bytes == bytes)
        return;
    if (file->inode != info->st_ino)
        file->offset = 0;
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum rec_news news = fd < 0 ? REC_NEWS_CALLS : rec_trace_news(fd, &file->offset);
    if (fd >= 0)
        close(fd);
    if (news == REC_NEWS_CALLS || file->inode != info->st_ino)
        file->calls = number_term(number_term(file->name, bytes), (uint64_t)info->st_ino);
    file->inode = (uint64_t)info->st_ino;
    file->bytes = bytes;
    file->grew_ns = now_ns();
}

static uint64_t quiet_level(const struct probe_file *file)
{
    uint64_t quiet = now_ns() - file->grew_ns;
    return quiet < QUIET_NS ? 0 : quiet < VERY_QUIET_NS ? 1 : 2;
}

static void add_file(struct probe *probe, int dir, const char *path, const char *name, size_t *next,
                     struct probe_look *look)
{
    struct stat info;
    uint64_t hash = number_term(text_term(path), text_term(name));
    struct probe_file *file = file_of(probe, hash, next);
    if (!file || fstatat(dir, name, &info, 0) != 0) {
        look->calls += hash;
        return;
    }
    follow_file(file, dir, name, &info);
    look->calls += file->calls;
    look->beats += number_term(hash, file->bytes);
    look->quiet += number_term(hash, quiet_level(file));
}

static void add_files(struct probe *probe, const char *path, const struct stems *stems,
                      struct probe_look *look)
{
    DIR *listing = opendir(path);
    struct dirent *entry;
    size_t next = 0;
    if (!listing)
        return;
    while ((entry = readdir(listing))) {
        if (!ends_with(entry->d_name, ".frec"))
            continue;
        if (covered(stems, entry->d_name))
            look->calls += text_term(entry->d_name);
        else
            add_file(probe, dirfd(listing), path, entry->d_name, &next, look);
    }
    closedir(listing);
}

/* Regions of processes that were not known at the last look. */
static void add_region_names(const char *live_dir, uint64_t *signature)
{
    char dir[4096];
    snprintf(dir, sizeof dir, "%s/frec-%u", live_dir, (unsigned)geteuid());
    DIR *listing = opendir(dir);
    struct dirent *entry;
    if (!listing)
        return;
    while ((entry = readdir(listing)))
        if (ends_with(entry->d_name, ".live"))
            *signature += text_term(entry->d_name);
    closedir(listing);
}

void probe_look(struct probe *probe, const char *const *dirs, size_t ndirs,
                const struct rec_job_options *options, const struct rec_job *job, struct probe_look *look)
{
    struct stems stems = {0};
    size_t count = 0;
    struct rec_process *const *processes = job ? rec_job_processes(job, &count) : NULL;
    *look = (struct probe_look){0};
    for (size_t i = 0; i < count; i++)
        if (processes[i]->has_live && processes[i]->live_path && add_region(processes[i]->live_path, look))
            add_stem(&stems, processes[i]->path);
    for (size_t i = 0; i < ndirs; i++)
        add_files(probe, dirs[i], &stems, look);
    if (!options->no_live && options->live_dir)
        add_region_names(options->live_dir, &look->calls);
    for (size_t i = 0; i < stems.count; i++)
        free(stems.items[i]);
    free(stems.items);
}

void probe_fini(struct probe *probe)
{
    free(probe->files);
    *probe = (struct probe){0};
}
