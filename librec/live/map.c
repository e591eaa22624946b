#include "rec/live.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Far above anything the recorder makes; keeps all size arithmetic away from overflow. */
#define MAX_ENTRIES        (UINT32_C(1) << 16)
#define MAX_CHUNKS         (UINT32_C(1) << 20)
#define MAX_CALLSITE_BYTES (UINT32_C(1) << 30)

static bool terminated(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

/* Everything later code relies on: the layout is the one this version makes, strings end. */
static enum rec_code check_header(const struct rec_live_header *header, uint64_t file_bytes, const char *path,
                                  struct rec_error *err)
{
    if (header->magic != REC_LIVE_MAGIC)
        return rec_error_set(err, REC_ERR_FORMAT, path, 0, "not a live region (or not finished being made)");
    if (header->version != REC_LIVE_VERSION)
        return rec_error_set(err, REC_ERR_VERSION, path, 0,
                             "live region of version %u; this program reads %u", header->version,
                             REC_LIVE_VERSION);
    if (header->comm_count > MAX_ENTRIES || header->thread_count > MAX_ENTRIES ||
        header->redop_count > MAX_ENTRIES || header->stream_count > MAX_ENTRIES ||
        header->chunk_count > MAX_CHUNKS || header->callsite_bytes > MAX_CALLSITE_BYTES)
        return rec_error_set(err, REC_ERR_CORRUPT, path, 0, "impossible table sizes");

    struct rec_live_config config = {
        .comms = header->comm_count,
        .threads = header->thread_count,
        .redops = header->redop_count,
        .streams = header->stream_count,
        .slots = header->chunk_count * REC_LIVE_CHUNK_SLOTS,
        .tick_ns = header->tick_ns,
        .callsite_bytes = (uint32_t)header->callsite_bytes,
    };
    struct rec_live_header *want = malloc(sizeof(*want));
    if (!want)
        return rec_error_set(err, REC_ERR_NOMEM, path, 0, "no memory");
    uint64_t bytes = rec_live_layout(&config, want);
    bool same =
        header->header_bytes == want->header_bytes && header->chunk_slots == want->chunk_slots &&
        header->comm_offset == want->comm_offset && header->thread_offset == want->thread_offset &&
        header->redop_offset == want->redop_offset && header->stream_offset == want->stream_offset &&
        header->mark_offset == want->mark_offset && header->callsite_offset == want->callsite_offset &&
        header->callsite_bytes == want->callsite_bytes && header->chunk_offset == want->chunk_offset &&
        header->slot_offset == want->slot_offset && header->total_bytes == bytes;
    free(want);
    if (!same)
        return rec_error_set(err, REC_ERR_CORRUPT, path, 0, "the layout contradicts itself");
    if (file_bytes < bytes)
        return rec_error_set(err, REC_ERR_CORRUPT, path, file_bytes, "%llu bytes long, should be %llu",
                             (unsigned long long)file_bytes, (unsigned long long)bytes);
    if (!terminated(header->boot_id, sizeof(header->boot_id)) ||
        !terminated(header->frec_dir, sizeof(header->frec_dir)) ||
        !terminated(header->frec_name, sizeof(header->frec_name)) ||
        atomic_load_explicit(&header->meta_bytes, memory_order_acquire) > REC_LIVE_META_BYTES)
        return rec_error_set(err, REC_ERR_CORRUPT, path, 0, "a text in the header has no end");
    return REC_OK;
}

static enum rec_code map_file(int fd, const char *path, bool writable, struct rec_live *live,
                              struct rec_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return rec_error_set(err, REC_ERR_IO, path, 0, "%s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return rec_error_set(err, REC_ERR_FORMAT, path, 0, "not a regular file");
    if (geteuid() != 0 && st.st_uid != geteuid())
        return rec_error_set(err, REC_ERR_ARG, path, 0, "belongs to another user");
    if ((uint64_t)st.st_size < sizeof(struct rec_live_header))
        return rec_error_set(err, REC_ERR_FORMAT, path, 0, "too short for a live region");

    uint64_t bytes = (uint64_t)st.st_size;
    void *memory = mmap(NULL, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return rec_error_set(err, REC_ERR_IO, path, 0, "%s", strerror(errno));
    enum rec_code code = check_header(memory, bytes, path, err);
    if (code != REC_OK) {
        munmap(memory, bytes);
        return code;
    }
    rec_live_attach(live, memory);
    live->bytes = bytes;
    return REC_OK;
}

enum rec_code rec_live_map(const char *path, bool writable, struct rec_live *live, struct rec_error *err)
{
    /* O_NONBLOCK: a FIFO planted under this name must not block us. */
    int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return rec_error_set(err, REC_ERR_IO, path, 0, "%s", strerror(errno));
    enum rec_code code = map_file(fd, path, writable, live, err);
    close(fd);
    return code;
}

void rec_live_unmap(struct rec_live *live)
{
    if (live->header)
        munmap(live->header, live->bytes);
    *live = (struct rec_live){0};
}

static bool read_text(const char *path, char *buffer, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, buffer, size - 1);
    close(fd);
    if (n <= 0)
        return false;
    buffer[n] = '\0';
    return true;
}

bool rec_process_runs(int32_t pid, uint64_t start_ticks)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (!read_text(path, text, sizeof(text)))
        return false;
    /* proc(5): field 2 is in parentheses and may hold anything, so count from the last one. */
    const char *field = strrchr(text, ')');
    if (!field || field[1] != ' ')
        return false;
    char state = field[2];
    if (state == 'Z' || state == 'X')
        return false;
    field += 2;
    for (int number = 3; number < 22 && field; number++) {
        field = strchr(field, ' ');
        if (field)
            field++;
    }
    return field && strtoull(field, NULL, 10) == start_ticks;
}

static bool runs(const struct rec_live_header *header)
{
    char boot_id[64];
    if (!read_text("/proc/sys/kernel/random/boot_id", boot_id, sizeof(boot_id)))
        return false;
    boot_id[strcspn(boot_id, "\n")] = '\0';
    return (!header->boot_id[0] || strcmp(boot_id, header->boot_id) == 0) &&
           rec_process_runs(header->pid, header->start_ticks);
}

/* The region is known by the name that its metadata tells. Not to be seen is no answer. */
static bool is_unmapped(const struct rec_live_header *header)
{
    char path[64], name[96];
    snprintf(path, sizeof(path), "/proc/%d/maps", header->pid);
    snprintf(name, sizeof(name), "/%d-%llu.live", header->pid, (unsigned long long)header->start_ticks);
    if (!memmem(header->meta, sizeof(header->meta), name, strlen(name)))
        snprintf(name, sizeof(name), "/%d-%llu-%016llx.live", header->pid,
                 (unsigned long long)header->start_ticks, (unsigned long long)header->proc_uid);
    if (!memmem(header->meta, sizeof(header->meta), name, strlen(name)))
        return false;
    FILE *maps = fopen(path, "re");
    if (!maps)
        return false;
    char *line = NULL;
    size_t room = 0;
    bool any = false, found = false;
    while (!found && getline(&line, &room, maps) > 0) {
        any = true;
        found = strstr(line, name) != NULL;
    }
    free(line);
    fclose(maps);
    return any && !found;
}

/* The drain thread shows life four times a second; only who has not for long is looked at closely. */
#define SILENT_NS UINT64_C(3000000000)

static bool is_silent(const struct rec_live_header *header)
{
    struct timespec now;
    uint64_t alive = atomic_load_explicit(&header->alive_ns, memory_order_relaxed);
    clock_gettime(CLOCK_REALTIME, &now);
    return alive != 0 &&
           (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec > alive + SILENT_NS;
}

static bool is_foreign(const struct rec_live_header *header)
{
    static const char key[] = "\"pid_ns\":";
    char number[24] = ""; /* what is behind the metadata must not be read as a part of it */
    const char *at = memmem(header->meta, sizeof(header->meta) - sizeof(number), key, sizeof(key) - 1);
    uint64_t here = rec_pid_namespace();
    if (!at || !here)
        return false;
    memcpy(number, at + sizeof(key) - 1, sizeof(number) - 1);
    return strtoull(number, NULL, 10) != here;
}

enum rec_live_process rec_live_process(const struct rec_live *live)
{
    if (is_foreign(live->header)) /* its pid is of no use, but its drain thread goes on writing */
        return is_silent(live->header) ? REC_LIVE_PROCESS_GONE : REC_LIVE_PROCESS_RUNS;
    if (!runs(live->header))
        return REC_LIVE_PROCESS_GONE;
    return is_silent(live->header) && is_unmapped(live->header) ? REC_LIVE_PROCESS_REPLACED
                                                                : REC_LIVE_PROCESS_RUNS;
}

bool rec_live_process_alive(const struct rec_live *live)
{
    return rec_live_process(live) == REC_LIVE_PROCESS_RUNS;
}
