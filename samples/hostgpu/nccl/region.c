#include "region.h"

#include "comm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PAGE        ((size_t)4096)
#define FILE_PREFIX "comm-"

/* Rank words, lanes, slots, buffers, each on a page of its own. Slots share a budget, so that a large
 * communicator does not fill a small /dev/shm; pages that nobody touches cost nothing. */
static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static size_t rank_area(int nranks)
{
    return round_up((size_t)nranks * sizeof(struct lab_rank_words), PAGE);
}

static size_t out_area(int nranks)
{
    return round_up((size_t)nranks * (size_t)nranks * sizeof(struct lab_lane_out), PAGE);
}

static size_t in_area(int nranks)
{
    return round_up((size_t)nranks * (size_t)nranks * sizeof(struct lab_lane_in), PAGE);
}

/* A rank's share of a budget of bytes, within limits. */
static size_t share(size_t budget, int nranks, size_t least, size_t most)
{
    size_t bytes = budget / (size_t)nranks;
    return round_up(bytes < least ? least : bytes > most ? most : bytes, PAGE);
}

static void measure(struct lab_region *r, int nranks)
{
    size_t n = (size_t)nranks;
    r->nranks = nranks;
    /* At least a slice for every rank, see collective.c. */
    size_t least = n * 64 > (32u << 10) ? n * 64 : 32u << 10;
    r->slot_bytes = share((size_t)4 << 20, nranks, least, 256u << 10);
    r->chunk_bytes = share((size_t)1 << 20, nranks, 8u << 10, 128u << 10);
    r->bytes = rank_area(nranks) + out_area(nranks) + in_area(nranks) +
               n * (2 * r->slot_bytes + (LAB_P2P_BUFFERS + 1) * r->chunk_bytes);
}

struct lab_rank_words *lab_region_rank(const struct lab_region *r, int rank)
{
    return (struct lab_rank_words *)(void *)r->base + rank;
}

struct lab_lane_out *lab_region_out(const struct lab_region *r, int from, int to)
{
    char *area = r->base + rank_area(r->nranks);
    return (struct lab_lane_out *)(void *)area + (size_t)from * (size_t)r->nranks + (size_t)to;
}

struct lab_lane_in *lab_region_in(const struct lab_region *r, int from, int to)
{
    char *area = r->base + rank_area(r->nranks) + out_area(r->nranks);
    return (struct lab_lane_in *)(void *)area + (size_t)to * (size_t)r->nranks + (size_t)from;
}

static char *data_area(const struct lab_region *r)
{
    return r->base + rank_area(r->nranks) + out_area(r->nranks) + in_area(r->nranks);
}

char *lab_region_slot(const struct lab_region *r, int rank, unsigned parity)
{
    return data_area(r) + (2 * (size_t)rank + parity) * r->slot_bytes;
}

char *lab_region_p2p_buffer(const struct lab_region *r, int rank, unsigned index)
{
    char *area = data_area(r) + 2 * (size_t)r->nranks * r->slot_bytes;
    return area + ((size_t)rank * (LAB_P2P_BUFFERS + 1) + index) * r->chunk_bytes;
}

/* ---- The directory where ranks meet ---- */

/* Opens and locks the directory; closing it unlocks. */
static ncclResult_t lock_directory(char *path, size_t size, int *fd)
{
    const char *chosen = getenv("HOSTGPU_DIR");
    *fd = -1;
    if (chosen && *chosen)
        snprintf(path, size, "%s", chosen);
    else
        snprintf(path, size, "/dev/shm/hostgpu-%u", (unsigned)getuid());
    if (mkdir(path, 0700) && errno != EEXIST)
        return lab_error(ncclSystemError, "%s: %s", path, strerror(errno));
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0)
        return lab_error(ncclSystemError, "%s: %s", path, strerror(errno));
    struct stat st;
    if (fstat(*fd, &st) || st.st_uid != getuid() || st.st_mode & 077) {
        close(*fd);
        return lab_error(ncclSystemError, "%s: not a directory of this user alone (mode 0700)", path);
    }
    while (flock(*fd, LOCK_EX)) {
        if (errno == EINTR)
            continue;
        close(*fd);
        return lab_error(ncclSystemError, "%s: %s", path, strerror(errno));
    }
    return ncclSuccess;
}

/* Every process that uses a file holds a shared lock on it, taken while it holds the directory's lock; the
 * kernel drops both when a process dies. So whoever gets a file's exclusive lock under the directory's lock
 * knows that the file is left over. */
static void remove_if_left_over(int directory, const char *name)
{
    int fd = openat(directory, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    if (!flock(fd, LOCK_EX | LOCK_NB))
        unlinkat(directory, name, 0);
    close(fd);
}

static void remove_left_overs(int directory)
{
    int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (!dir) {
        if (copy >= 0)
            close(copy);
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        if (!strncmp(entry->d_name, FILE_PREFIX, strlen(FILE_PREFIX)))
            remove_if_left_over(directory, entry->d_name);
    closedir(dir);
}

/* Opens the file, as its creator or as a later comer. The directory's lock is held. */
static int open_file(int directory, const char *name, size_t bytes)
{
    int fd = openat(directory, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        remove_left_overs(directory);
        fd = openat(directory, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        struct statvfs room;
        if (fd >= 0 && !fstatvfs(fd, &room) && room.f_bavail * room.f_frsize < bytes) {
            unlinkat(directory, name, 0);
            close(fd);
            errno = ENOSPC;
            return -1;
        }
        if (fd >= 0 && ftruncate(fd, (off_t)bytes)) {
            unlinkat(directory, name, 0);
            close(fd);
            return -1;
        }
    }
    if (fd >= 0 && flock(fd, LOCK_SH)) {
        close(fd);
        return -1;
    }
    return fd;
}

ncclResult_t lab_region_open(struct lab_region *r, uint64_t id, int nranks)
{
    char path[200];
    int directory;
    measure(r, nranks);
    r->fd = -1;
    ncclResult_t result = lock_directory(path, sizeof path, &directory);
    if (result != ncclSuccess)
        return result;
    snprintf(r->name, sizeof r->name, FILE_PREFIX "%016llx-%d", (unsigned long long)id, nranks);
    remove_if_left_over(directory, r->name);
    r->fd = open_file(directory, r->name, r->bytes);
    void *base = MAP_FAILED;
    if (r->fd >= 0)
        base = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
    int error = errno;
    close(directory);
    if (base == MAP_FAILED) {
        lab_region_close_file(r);
        return lab_error(ncclSystemError, "%s/%s: %s", path, r->name, strerror(error));
    }
    r->base = base;
    return ncclSuccess;
}

ncclResult_t lab_region_unlink(struct lab_region *r)
{
    char path[200];
    int directory;
    ncclResult_t result = lock_directory(path, sizeof path, &directory);
    if (result != ncclSuccess)
        return result;
    unlinkat(directory, r->name, 0);
    close(directory);
    return ncclSuccess;
}

void lab_region_close_file(struct lab_region *r)
{
    if (r->fd < 0)
        return;
    flock(r->fd, LOCK_UN); /* closing does not: the mapping keeps the open file alive, and its lock */
    close(r->fd);
    r->fd = -1;
}

void lab_region_abandon_file(struct lab_region *r)
{
    char path[200];
    int directory;
    lab_region_close_file(r);
    if (lock_directory(path, sizeof path, &directory) != ncclSuccess)
        return;
    remove_if_left_over(directory, r->name);
    close(directory);
}

void lab_region_unmap(struct lab_region *r)
{
    lab_region_close_file(r);
    if (r->base)
        munmap(r->base, r->bytes);
    r->base = NULL;
}
