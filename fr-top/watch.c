/* Keeping track of what there is to look at: processes appear, end and start again. */
#include "fr-top/top.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TRACE_SCAN_NS UINT64_C(2000000000) /* directories of traces may be far away: not at every refresh */
#define MAX_DIRS      16                   /* directories that live regions name */

/* A list, and a table to find them by path: directories may hold a trace of 100,000 ranks. */
struct probes {
    struct top_probe **items;
    size_t count, room;
    uint32_t *slots; /* index + 1; 0 = free. A power of two of them, at least twice as many as room */
};

struct top_watch {
    struct top_options options;
    char dir[REC_LIVE_PATH_BYTES]; /* real path of options.dir; "" */
    char boot_id[40];
    struct probes regions, traces;
    uint64_t traces_scanned_ns;
    size_t next_trace; /* to be read first in the next refresh */
    struct top_snapshot snapshot;
    char warning[256];
};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct top_watch *top_watch_open(const struct top_options *options, struct rec_error *err)
{
    struct top_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL) {
        rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
        return NULL;
    }
    watch->options = *options;
    top_boot_id(watch->boot_id, sizeof watch->boot_id);
    if (options->dir == NULL)
        return watch;
    char *real = realpath(options->dir, NULL);
    struct stat st;
    int error = real == NULL || stat(real, &st) != 0 ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
    if (error == 0 && strlen(real) >= sizeof watch->dir)
        error = ENAMETOOLONG;
    if (error != 0) {
        rec_error_set(err, REC_ERR_IO, options->dir, 0, "%s", strerror(error));
        free(real);
        free(watch);
        return NULL;
    }
    memcpy(watch->dir, real, strlen(real) + 1);
    free(real);
    return watch;
}

static void free_probe(struct top_probe *probe, void (*close_reader)(struct top_probe *))
{
    close_reader(probe);
    free(probe->members);
    free(probe);
}

void top_watch_close(struct top_watch *watch)
{
    if (watch == NULL)
        return;
    for (size_t i = 0; i < watch->regions.count; i++)
        free_probe(watch->regions.items[i], top_region_close);
    for (size_t i = 0; i < watch->traces.count; i++)
        free_probe(watch->traces.items[i], top_trace_close);
    free(watch->regions.items);
    free(watch->traces.items);
    free(watch->regions.slots);
    free(watch->traces.slots);
    top_snapshot_clear(&watch->snapshot);
    free(watch);
}

static uint64_t path_hash(const char *path)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (; *path != '\0'; path++)
        hash = (hash ^ (unsigned char)*path) * UINT64_C(0x100000001b3);
    return rec_mix64(hash);
}

/* Where this path stands in the table, or would. */
static size_t slot_of(const struct probes *probes, const char *path)
{
    size_t mask = probes->room * 2 - 1, slot = (size_t)path_hash(path) & mask;
    while (probes->slots[slot] != 0 && strcmp(probes->items[probes->slots[slot] - 1]->path, path) != 0)
        slot = (slot + 1) & mask;
    return slot;
}

static struct top_probe *find_probe(const struct probes *probes, const char *path)
{
    uint32_t found = probes->room > 0 ? probes->slots[slot_of(probes, path)] : 0;
    return found != 0 ? probes->items[found - 1] : NULL;
}

/* After the list has changed otherwise than at its end. */
static void rebuild_slots(struct probes *probes)
{
    if (probes->room > 0)
        memset(probes->slots, 0, probes->room * 2 * sizeof *probes->slots);
    for (size_t i = 0; i < probes->count; i++)
        probes->slots[slot_of(probes, probes->items[i]->path)] = (uint32_t)i + 1;
}

/* NULL without memory. */
static struct top_probe *new_probe(const char *path)
{
    struct top_probe *probe = calloc(1, sizeof *probe);
    if (probe != NULL)
        snprintf(probe->path, sizeof probe->path, "%s", path);
    return probe;
}

static bool keep_probe(struct probes *probes, struct top_probe *probe)
{
    if (probes->count == probes->room) {
        size_t room = probes->room > 0 ? probes->room * 2 : 64;
        struct top_probe **items = realloc(probes->items, room * sizeof *items);
        if (items != NULL)
            probes->items = items;
        uint32_t *slots = items != NULL ? calloc(room * 2, sizeof *slots) : NULL;
        if (slots == NULL)
            return false;
        free(probes->slots);
        probes->slots = slots;
        probes->room = room;
        rebuild_slots(probes);
    }
    probes->items[probes->count++] = probe;
    probes->slots[slot_of(probes, probe->path)] = (uint32_t)probes->count;
    return true;
}

static void warn(struct top_watch *watch, const char *path, const char *text)
{
    if (watch->warning[0] == '\0')
        snprintf(watch->warning, sizeof watch->warning, "%.150s: %.100s", path, text);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

/* ---- live regions ---- */

/* The trace directory as the process named it may be another path to the same place. */
static bool records_into(const struct top_watch *watch, const struct top_probe *probe)
{
    if (watch->dir[0] == '\0' || strcmp(probe->process.frec_dir, watch->dir) == 0)
        return true;
    char *real = realpath(probe->process.frec_dir, NULL);
    bool same = real != NULL && strcmp(real, watch->dir) == 0;
    free(real);
    return same;
}

static void add_region(struct top_watch *watch, const char *path)
{
    struct top_probe *probe = find_probe(&watch->regions, path);
    if (probe != NULL) {
        probe->seen = true;
        return;
    }
    probe = new_probe(path);
    if (probe == NULL)
        return;
    struct rec_error err;
    if (top_region_open(probe, &err) != REC_OK) {
        /* Being made just now, or gone again: no news. Another version or damage is. */
        if (err.code == REC_ERR_VERSION || err.code == REC_ERR_CORRUPT)
            warn(watch, err.path, err.text);
        free_probe(probe, top_region_close);
        return;
    }
    probe->seen = true;
    if (!records_into(watch, probe) || !keep_probe(&watch->regions, probe))
        free_probe(probe, top_region_close);
}

static void scan_regions(struct top_watch *watch, const char *dir)
{
    DIR *listing = opendir(dir);
    struct dirent *entry;
    if (listing == NULL) {
        if (errno != ENOENT)
            warn(watch, dir, strerror(errno));
        return;
    }
    while ((entry = readdir(listing)) != NULL) {
        char path[REC_LIVE_PATH_BYTES + 64];
        int n = snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (ends_with(entry->d_name, ".live") && n > 0 && (size_t)n < sizeof path)
            add_region(watch, path);
    }
    closedir(listing);
}

/* The user's own regions; everybody's for root. */
static void scan_live(struct top_watch *watch)
{
    char path[REC_LIVE_PATH_BYTES];
    const char *base = watch->options.live_dir;
    DIR *listing = opendir(base);
    struct dirent *entry;
    if (listing == NULL) {
        warn(watch, base, strerror(errno));
        return;
    }
    if (geteuid() != 0) {
        closedir(listing);
        snprintf(path, sizeof path, "%s/frec-%u", base, geteuid());
        scan_regions(watch, path);
        return;
    }
    while ((entry = readdir(listing)) != NULL) {
        int n = snprintf(path, sizeof path, "%s/%s", base, entry->d_name);
        if (strncmp(entry->d_name, "frec-", 5) == 0 && n > 0 && (size_t)n < sizeof path)
            scan_regions(watch, path);
    }
    closedir(listing);
}

/* Returns false when the probe is of no more use. */
static bool read_region(struct top_probe *probe, uint64_t now_ns)
{
    if (probe->finished)
        return true;
    top_region_read(probe, now_ns);
    if (probe->seen)
        return true;
    /* Unlinked: a clean end, or someone recovered what a dead process had left behind. */
    if (!probe->process.ended && !probe->process.vanished)
        return true;
    top_region_close(probe);
    probe->finished = true;
    probe->process.ops_per_s = probe->process.bytes_per_s = NAN;
    return probe->process.ended;
}

static void read_regions(struct top_watch *watch, uint64_t now_ns)
{
    struct probes *regions = &watch->regions;
    size_t kept = 0;
    for (size_t i = 0; i < regions->count; i++)
        regions->items[i]->seen = false;
    scan_live(watch);
    for (size_t i = 0; i < regions->count; i++) {
        if (read_region(regions->items[i], now_ns))
            regions->items[kept++] = regions->items[i];
        else
            free_probe(regions->items[i], top_region_close);
    }
    regions->count = kept;
    rebuild_slots(regions);
}

/* ---- trace files ---- */

/* STEM.frec and STEM.N.frec are parts of one trace: path becomes that of STEM.frec. */
static uint32_t split_part(char *path)
{
    size_t end = strlen(path) - strlen(".frec"), at = end;
    while (at > 0 && isdigit((unsigned char)path[at - 1]))
        at--;
    if (at == end || at == 0 || path[at - 1] != '.' || end - at > 9)
        return 0;
    uint32_t part = (uint32_t)strtoul(path + at, NULL, 10);
    memcpy(path + at - 1, ".frec", sizeof ".frec");
    return part;
}

static void add_trace(struct top_watch *watch, char *path)
{
    uint32_t part = split_part(path);
    struct top_probe *probe = find_probe(&watch->traces, path);
    if (probe != NULL) {
        probe->seen = true;
        top_trace_part(probe, part);
        return;
    }
    probe = new_probe(path);
    if (probe == NULL)
        return;
    struct rec_error err;
    if (top_trace_open(probe, part, &err) != REC_OK) {
        if (strcmp(err.text, strerror(ENOENT)) != 0) /* gone again is no news */
            warn(watch, err.path, err.text);
        free_probe(probe, top_trace_close);
        return;
    }
    probe->seen = true;
    if (!keep_probe(&watch->traces, probe))
        free_probe(probe, top_trace_close);
}

static bool in_time(const struct top_watch *watch, uint64_t started_ns)
{
    uint64_t patience_ns = watch->options.patience_ms * UINT64_C(1000000);
    return patience_ns == 0 || clock_ns(CLOCK_MONOTONIC) - started_ns < patience_ns;
}

static void scan_traces(struct top_watch *watch, const char *dir, uint64_t started_ns)
{
    DIR *listing = opendir(dir);
    struct dirent *entry;
    if (listing == NULL)
        return;
    while ((entry = readdir(listing)) != NULL && in_time(watch, started_ns)) {
        char path[REC_LIVE_PATH_BYTES + 64];
        int n = snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (ends_with(entry->d_name, ".frec") && n > 0 && (size_t)n < sizeof path)
            add_trace(watch, path);
    }
    closedir(listing);
}

/* The directory asked for, else those into which processes of this host record. */
static void scan_trace_dirs(struct top_watch *watch, uint64_t started_ns)
{
    const char *dirs[MAX_DIRS];
    size_t ndirs = 0;
    if (watch->dir[0] != '\0') {
        scan_traces(watch, watch->dir, started_ns);
        return;
    }
    for (size_t i = 0; i < watch->regions.count && ndirs < MAX_DIRS; i++) {
        const char *dir = watch->regions.items[i]->process.frec_dir;
        bool known = dir[0] == '\0';
        for (size_t d = 0; d < ndirs && !known; d++)
            known = strcmp(dirs[d], dir) == 0;
        if (!known)
            dirs[ndirs++] = dir;
    }
    for (size_t d = 0; d < ndirs; d++)
        scan_traces(watch, dirs[d], started_ns);
}

static bool has_region(const struct top_watch *watch, uint64_t proc_uid)
{
    for (size_t i = 0; i < watch->regions.count; i++) {
        if (watch->regions.items[i]->process.proc_uid == proc_uid)
            return true;
    }
    return false;
}

/* Shown are traces of processes that no live region tells more about; without DIR, of this host only. */
static bool wanted(const struct top_watch *watch, const struct top_probe *probe)
{
    return !has_region(watch, probe->process.proc_uid) &&
           (watch->dir[0] != '\0' || strcmp(probe->process.boot_id, watch->boot_id) == 0);
}

static void read_traces(struct top_watch *watch, uint64_t now_ns)
{
    struct probes *traces = &watch->traces;
    uint64_t started_ns = clock_ns(CLOCK_MONOTONIC);
    if (watch->traces_scanned_ns == 0 || started_ns - watch->traces_scanned_ns >= TRACE_SCAN_NS) {
        scan_trace_dirs(watch, started_ns);
        watch->traces_scanned_ns = started_ns;
    }
    for (size_t i = 0; i < traces->count && in_time(watch, started_ns); i++) {
        struct top_probe *probe = traces->items[watch->next_trace++ % traces->count];
        if (wanted(watch, probe))
            top_trace_read(probe, now_ns);
    }
}

/* ---- */

void top_watch_all_runs(struct top_watch *watch, bool all)
{
    watch->options.all_runs = all;
}

enum rec_code top_watch_refresh(struct top_watch *watch, struct top_snapshot **snapshot,
                                struct rec_error *err)
{
    watch->warning[0] = '\0';
    uint64_t now_ns = clock_ns(CLOCK_REALTIME);
    read_regions(watch, now_ns);
    read_traces(watch, now_ns);

    struct probes shown = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < watch->regions.count; i++)
        ok = keep_probe(&shown, watch->regions.items[i]);
    for (size_t i = 0; ok && i < watch->traces.count; i++) {
        if (wanted(watch, watch->traces.items[i]))
            ok = keep_probe(&shown, watch->traces.items[i]);
    }
    top_snapshot_clear(&watch->snapshot);
    ok = ok && top_snapshot_build(&watch->snapshot, shown.items, shown.count, &watch->options, now_ns);
    free(shown.items);
    free(shown.slots);
    if (!ok)
        return rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
    if (watch->warning[0] != '\0')
        memcpy(watch->snapshot.warning, watch->warning, sizeof watch->warning);
    *snapshot = &watch->snapshot;
    return REC_OK;
}
