#include "format/part.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* High enough to stay clear of loops over "all" descriptors and of programs that expect low ones free. */
#define LOWEST_FD 900

#define SUFFIX_ROOM 24 /* "/", ".4294967295.frec" and the end */

struct path {
    char text[PATH_MAX + NAME_MAX + SUFFIX_ROOM];
};

void rec_parts_init(struct rec_parts *parts)
{
    *parts = (struct rec_parts){.fd = -1};
}

int rec_parts_name(struct rec_parts *parts, const char *dir, const char *stem)
{
    size_t dir_bytes = strlen(dir), stem_bytes = strlen(stem);
    if (dir_bytes >= sizeof(parts->dir) || stem_bytes + SUFFIX_ROOM > NAME_MAX)
        return ENAMETOOLONG;
    memcpy(parts->dir, dir, dir_bytes + 1);
    memcpy(parts->stem, stem, stem_bytes + 1);
    return 0;
}

static char *append(char *p, const char *s)
{
    size_t n = strlen(s);
    memcpy(p, s, n + 1);
    return p + n;
}

/* Not snprintf: this must work inside a signal handler. */
static void make_path(const struct rec_parts *parts, uint32_t number, struct path *path)
{
    char *p = append(append(append(path->text, parts->dir), "/"), parts->stem);
    if (number) {
        char digits[11];
        int i = sizeof(digits) - 1;
        digits[i] = '\0';
        for (; number; number /= 10)
            digits[--i] = (char)('0' + number % 10);
        p = append(append(p, "."), digits + i);
    }
    append(p, ".frec");
}

static bool is_part(int fd, const struct rec_part *part)
{
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_dev == part->device &&
           st.st_ino == part->inode && (uint64_t)st.st_size >= part->bytes;
}

static void take_fd(struct rec_parts *parts, int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_FD);
    parts->brief = high < 0 && errno == EINVAL; /* RLIMIT_NOFILE is lower */
    parts->fd = high < 0 ? fd : high;
    if (high >= 0)
        close(fd);
}

void rec_parts_close(struct rec_parts *parts)
{
    if (parts->count && is_part(parts->fd, rec_parts_current(parts)))
        close(parts->fd);
    parts->fd = -1;
}

int rec_parts_create(struct rec_parts *parts, uint32_t number)
{
    if (parts->count == REC_PARTS_KEPT)
        return ENOSPC;
    struct path path;
    make_path(parts, number, &path);
    int fd = open(path.text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    struct stat st;
    if (fstat(fd, &st) != 0) {
        int error = errno;
        close(fd);
        unlink(path.text);
        return error;
    }
    rec_parts_close(parts);
    take_fd(parts, fd);
    parts->parts[parts->count++] =
        (struct rec_part){.number = number, .device = st.st_dev, .inode = st.st_ino};
    return 0;
}

static bool begins_as_ours(const struct rec_parts *parts, int fd)
{
    uint8_t head[REC_PART_HEAD];
    return pread(fd, head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
           memcmp(head, parts->head, sizeof(head)) == 0;
}

static int reopen(struct rec_parts *parts)
{
    /* Whatever has our number now is somebody else's: it is left alone. */
    parts->fd = -1;
    struct rec_part *part = rec_parts_current(parts);
    struct path path;
    make_path(parts, part->number, &path);
    int fd = open(path.text, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno;
    if (!is_part(fd, part) || !begins_as_ours(parts, fd)) {
        close(fd);
        return ESTALE; /* removed or replaced */
    }
    take_fd(parts, fd);
    return 0;
}

/* Makes sure that fd is the current part's and that writing up to end raises no signal. */
static int ready(struct rec_parts *parts, uint64_t end)
{
    if (parts->count == 0)
        return EBADF;
    if (!is_part(parts->fd, rec_parts_current(parts))) {
        int error = reopen(parts);
        if (error)
            return error;
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && end > limit.rlim_cur)
        return EFBIG;
    return 0;
}

static void release(struct rec_parts *parts)
{
    if (!parts->brief)
        return;
    rec_parts_push(parts);
    rec_parts_close(parts);
}

/* *done is how far it came. */
static int write_at(int fd, uint64_t offset, const void *data, size_t bytes, size_t *done)
{
    const char *p = data;
    for (*done = 0; *done < bytes;) {
        ssize_t n = pwrite(fd, p + *done, bytes - *done, (off_t)(offset + *done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ENOSPC;
        *done += (size_t)n;
    }
    return 0;
}

int rec_parts_overwrite(struct rec_parts *parts, uint64_t offset, const void *data, size_t bytes)
{
    size_t done;
    int error = ready(parts, offset + bytes);
    if (!error)
        error = write_at(parts->fd, offset, data, bytes, &done);
    release(parts);
    return error;
}

int rec_parts_append(struct rec_parts *parts, const void *data, size_t bytes)
{
    if (parts->count == 0)
        return EBADF;
    struct rec_part *part = rec_parts_current(parts);
    int error = ready(parts, part->bytes + bytes);
    size_t done = 0;
    if (!error)
        error = write_at(parts->fd, part->bytes, data, bytes, &done);
    if (error && done && ftruncate(parts->fd, (off_t)part->bytes) != 0) {
        /* The torn block stays; the next one overwrites it, and readers step over it. */
    }
    if (!error) {
        if (part->bytes == 0)
            memcpy(parts->head, data, sizeof(parts->head));
        part->bytes += bytes;
        parts->written += bytes;
    }
    release(parts);
    return error;
}

void rec_parts_push(const struct rec_parts *parts)
{
    (void)sync_file_range(parts->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

uint64_t rec_parts_total(const struct rec_parts *parts)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < parts->count; i++)
        total += parts->parts[i].bytes;
    return total;
}

static void unlink_part(const struct rec_parts *parts, const struct rec_part *part)
{
    struct path path;
    struct stat st;
    make_path(parts, part->number, &path);
    if (lstat(path.text, &st) == 0 && st.st_dev == part->device && st.st_ino == part->inode)
        unlink(path.text);
}

bool rec_parts_drop_oldest(struct rec_parts *parts, uint64_t *ops)
{
    if (parts->count < 2)
        return false;
    unlink_part(parts, &parts->parts[0]);
    *ops += parts->parts[0].ops;
    memmove(&parts->parts[0], &parts->parts[1], --parts->count * sizeof(parts->parts[0]));
    return true;
}

void rec_parts_remove_current(struct rec_parts *parts)
{
    if (parts->count == 0)
        return;
    unlink_part(parts, rec_parts_current(parts));
    rec_parts_close(parts);
    parts->count--;
}
