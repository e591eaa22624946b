/* Keeping track of what there is to look at: processes appear, end and start again. */
#include "fr-top/top.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct top_watch {
    struct top_options options;
    char dir[REC_LIVE_PATH_BYTES]; /* real path of options.dir; "" */
    struct top_probe **probes;
    size_t nprobes, room;
    struct top_snapshot snapshot;
    char warning[256];
};

struct top_watch *top_watch_open(const struct top_options *options, struct rec_error *err)
{
    struct top_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL) {
        rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
        return NULL;
    }
    watch->options = *options;
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

static void free_probe(struct top_probe *probe)
{
    top_region_close(probe);
    free(probe->members);
    free(probe);
}

void top_watch_close(struct top_watch *watch)
{
    if (watch == NULL)
        return;
    for (size_t i = 0; i < watch->nprobes; i++)
        free_probe(watch->probes[i]);
    free(watch->probes);
    top_snapshot_clear(&watch->snapshot);
    free(watch);
}

static struct top_probe *find_probe(const struct top_watch *watch, const char *path)
{
    for (size_t i = 0; i < watch->nprobes; i++) {
        if (strcmp(watch->probes[i]->path, path) == 0)
            return watch->probes[i];
    }
    return NULL;
}

static void warn(struct top_watch *watch, const struct rec_error *err)
{
    if (watch->warning[0] == '\0')
        snprintf(watch->warning, sizeof watch->warning, "%.150s: %.100s", err->path, err->text);
}

static bool keep_probe(struct top_watch *watch, struct top_probe *probe)
{
    if (watch->nprobes == watch->room) {
        size_t room = watch->room > 0 ? watch->room * 2 : 64;
        struct top_probe **probes = realloc(watch->probes, room * sizeof *probes);
        if (probes == NULL)
            return false;
        watch->probes = probes;
        watch->room = room;
    }
    watch->probes[watch->nprobes++] = probe;
    return true;
}

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
    struct top_probe *probe = find_probe(watch, path);
    if (probe != NULL) {
        probe->seen = true;
        return;
    }
    probe = calloc(1, sizeof *probe);
    if (probe == NULL)
        return;
    snprintf(probe->path, sizeof probe->path, "%s", path);
    struct rec_error err;
    if (top_region_open(probe, &err) != REC_OK) {
        /* Being made just now, or gone again: no news. Another version or damage is. */
        if (err.code == REC_ERR_VERSION || err.code == REC_ERR_CORRUPT)
            warn(watch, &err);
        free_probe(probe);
        return;
    }
    probe->seen = true;
    if (!records_into(watch, probe) || !keep_probe(watch, probe))
        free_probe(probe);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

static void scan_regions(struct top_watch *watch, const char *dir)
{
    DIR *listing = opendir(dir);
    struct dirent *entry;
    if (listing == NULL) {
        if (errno != ENOENT && watch->warning[0] == '\0')
            snprintf(watch->warning, sizeof watch->warning, "%.180s: %s", dir, strerror(errno));
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
    if (geteuid() != 0) {
        snprintf(path, sizeof path, "%s/frec-%u", base, geteuid());
        scan_regions(watch, path);
        return;
    }
    DIR *listing = opendir(base);
    struct dirent *entry;
    if (listing == NULL)
        return;
    while ((entry = readdir(listing)) != NULL) {
        int n = snprintf(path, sizeof path, "%s/%s", base, entry->d_name);
        if (strncmp(entry->d_name, "frec-", 5) == 0 && n > 0 && (size_t)n < sizeof path)
            scan_regions(watch, path);
    }
    closedir(listing);
}

/* Returns false when the probe is of no more use. */
static bool read_probe(struct top_probe *probe, uint64_t now_ns)
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

enum rec_code top_watch_refresh(struct top_watch *watch, const struct top_snapshot **snapshot,
                                struct rec_error *err)
{
    struct timespec now;
    watch->warning[0] = '\0';
    for (size_t i = 0; i < watch->nprobes; i++)
        watch->probes[i]->seen = false;
    scan_live(watch);
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    size_t kept = 0;
    for (size_t i = 0; i < watch->nprobes; i++) {
        if (read_probe(watch->probes[i], now_ns))
            watch->probes[kept++] = watch->probes[i];
        else
            free_probe(watch->probes[i]);
    }
    watch->nprobes = kept;
    top_snapshot_clear(&watch->snapshot);
    if (!top_snapshot_build(&watch->snapshot, watch->probes, watch->nprobes, &watch->options, now_ns))
        return rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
    memcpy(watch->snapshot.warning, watch->warning, sizeof watch->warning);
    *snapshot = &watch->snapshot;
    return REC_OK;
}
