#include "probe.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rec/live.h"

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

/* What a thread has entered and what it is inside of; readers need no order here, only news. */
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
    return term;
}

static bool add_region(const char *path, uint64_t *signature)
{
    struct rec_live live;
    if (rec_live_map(path, false, &live, NULL) != REC_OK)
        return false;
    *signature += region_term(&live);
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

static void add_files(const char *dir, const struct stems *stems, uint64_t *signature)
{
    DIR *listing = opendir(dir);
    struct dirent *entry;
    struct stat info;
    if (!listing)
        return;
    while ((entry = readdir(listing))) {
        if (!ends_with(entry->d_name, ".frec"))
            continue;
        uint64_t term = text_term(entry->d_name);
        if (!covered(stems, entry->d_name) && fstatat(dirfd(listing), entry->d_name, &info, 0) == 0)
            term = number_term(number_term(term, (uint64_t)info.st_size), (uint64_t)info.st_ino);
        *signature += term;
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

uint64_t probe_signature(const char *const *dirs, size_t ndirs, const struct rec_job_options *options,
                         const struct rec_job *job)
{
    uint64_t signature = 0;
    struct stems stems = {0};
    size_t count = 0;
    struct rec_process *const *processes = job ? rec_job_processes(job, &count) : NULL;
    for (size_t i = 0; i < count; i++)
        if (processes[i]->has_live && processes[i]->live_path &&
            add_region(processes[i]->live_path, &signature))
            add_stem(&stems, processes[i]->path);
    for (size_t i = 0; i < ndirs; i++)
        add_files(dirs[i], &stems, &signature);
    if (!options->no_live && options->live_dir)
        add_region_names(options->live_dir, &signature);
    for (size_t i = 0; i < stems.count; i++)
        free(stems.items[i]);
    free(stems.items);
    return signature;
}
