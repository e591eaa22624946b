/*
 * The live region: DIR/frec-<uid>/<pid>-<start_ticks>.live, or anonymous memory when no file
 * can be made there.
 *
 * /dev/shm is writable by everybody, so the directory is trusted only when it is a real
 * directory of ours with mode 0700: nobody else can then plant a file or link in it.
 */
#include "inject.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

bool make_directories(const char *path)
{
    char part[REC_LIVE_PATH_BYTES];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof(part))
        return false;
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
            return false;
    }
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Opens DIR/frec-<uid>, making it; -1 when it is not safely ours. */
static int open_own_directory(void)
{
    char path[REC_LIVE_PATH_BYTES + 32];
    snprintf(path, sizeof(path), "%s/frec-%u", options.live_dir, (unsigned)geteuid());
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return -1;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

/* A region whose recorder has not shown life for a day is nobody's any more. alive_ns, not the
 * process number: containers may share the directory and not the numbers. */
#define KEEP_NS UINT64_C(86400000000000)

static void remove_when_old(int directory, const char *name)
{
    uint64_t magic = 0, alive = 0;
    const size_t length = strlen(name), suffix = strlen(".live");
    if (length <= suffix || strcmp(name + length - suffix, ".live") != 0)
        return;
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    bool known =
        pread(fd, &magic, sizeof(magic), offsetof(struct rec_live_header, magic)) == sizeof(magic) &&
        magic == REC_LIVE_MAGIC &&
        pread(fd, &alive, sizeof(alive), offsetof(struct rec_live_header, alive_ns)) == sizeof(alive);
    close(fd);
    if (known && alive != 0 && alive + KEEP_NS < recorder.start_ns)
        unlinkat(directory, name, 0);
}

static void remove_old_regions(int directory)
{
    int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = copy < 0 ? NULL : fdopendir(copy);
    if (!entries) {
        if (copy >= 0)
            close(copy);
        return;
    }
    for (struct dirent *entry; (entry = readdir(entries));)
        remove_when_old(directory, entry->d_name);
    closedir(entries);
}

static int create_file(int directory, char *name, size_t size)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    snprintf(name, size, "%d-%llu.live", (int)recorder.pid, (unsigned long long)recorder.start_ticks);
    int fd = openat(directory, name, flags, 0600);
    if (fd < 0 && errno == EEXIST) {
        /* Containers that share the directory may have equal pids and start times. */
        snprintf(name, size, "%d-%llu-%016llx.live", (int)recorder.pid,
                 (unsigned long long)recorder.start_ticks, (unsigned long long)recorder.proc_uid);
        fd = openat(directory, name, flags, 0600);
    }
    return fd;
}

static void *map_file(uint64_t bytes)
{
    int directory = open_own_directory();
    if (directory < 0)
        return NULL;
    remove_old_regions(directory);
    void *memory = MAP_FAILED;
    char name[96];
    int fd = create_file(directory, name, sizeof(name));
    if (fd >= 0) {
        /* Real blocks now: a full file system says so here instead of sending SIGBUS later. */
        int error = EINTR;
        for (int tries = 0; tries < 100 && error == EINTR; tries++)
            error = posix_fallocate(fd, 0, (off_t)bytes);
        if (error == 0)
            memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        else
            errno = error;
        if (memory == MAP_FAILED) {
            int saved = errno;
            unlinkat(directory, name, 0);
            errno = saved;
        }
        close(fd);
    }
    close(directory);
    if (memory == MAP_FAILED)
        return NULL;
    int n = snprintf(recorder.live_path, sizeof(recorder.live_path), "%s/frec-%u/%s", options.live_dir,
                     (unsigned)geteuid(), name);
    if (n < 0 || (size_t)n >= sizeof(recorder.live_path))
        recorder.live_path[0] = '\0';
    return memory;
}

/* Lays out, publishes the identity, and stores the magic last. */
static void fill(void *memory, const struct rec_live_config *layout)
{
    struct rec_live_header *header = memory;
    rec_live_layout(layout, header);
    rec_live_attach(&recorder.live, memory);
    header->proc_uid = recorder.proc_uid;
    header->pid = recorder.pid;
    header->start_ticks = recorder.start_ticks;
    clock_start(&header->clock);
    atomic_store_explicit(&header->alive_ns, real_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&header->next_thread_id, 1, memory_order_relaxed);
    meta_identity();
    atomic_thread_fence(memory_order_release);
    header->magic = REC_LIVE_MAGIC;
}

/*
 * Containers often have a small /dev/shm (Docker: 64 MiB), and NCCL itself needs it: what it cannot
 * get there makes the job fail. So one process takes a 64th of what is free, with a shorter ring, and
 * no file at all where even the shortest would take more than a 16th.
 */
#define SHORTEST_RING      2048
#define SMALLEST_CALLSITES (64u << 10)

static bool fit(struct rec_live_config *layout, struct rec_live_header *scratch)
{
    struct statvfs fs;
    if (options.slots_chosen || statvfs(options.live_dir, &fs) != 0)
        return true;
    uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
    while (rec_live_layout(layout, scratch) > available / 64 && layout->slots > SHORTEST_RING) {
        layout->slots /= 2;
        if (layout->callsite_bytes > SMALLEST_CALLSITES)
            layout->callsite_bytes /= 2;
    }
    errno = ENOSPC;
    return rec_live_layout(layout, scratch) <= available / 16;
}

bool region_make(void)
{
    struct rec_live_config layout = {
        .comms = REC_LIVE_DEFAULT_COMMS,
        .threads = REC_LIVE_DEFAULT_THREADS,
        .redops = REC_LIVE_DEFAULT_REDOPS,
        .streams = REC_LIVE_DEFAULT_STREAMS,
        .slots = options.slots,
        .tick_ns = options.tick_ns,
        .callsite_bytes = options.pyframes ? REC_LIVE_DEFAULT_CALLSITE_BYTES : 0,
    };
    static struct rec_live_header scratch; /* only for the size; too big for a stack we do not know */
    recorder.live_path[0] = '\0';
    void *memory = NULL;
    if (options.live_dir[0] && fit(&layout, &scratch))
        memory = map_file(rec_live_layout(&layout, &scratch));
    recorder.live_is_file = memory != NULL;
    if (!memory) {
        verbose("%s: no live region there (%s); fr-top will not see this process", options.live_dir,
                strerror(errno));
        layout.slots = options.slots;
        layout.callsite_bytes = options.pyframes ? REC_LIVE_DEFAULT_CALLSITE_BYTES : 0;
        memory = mmap(NULL, rec_live_layout(&layout, &scratch), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return false;
    }
    fill(memory, &layout);
    return true;
}
