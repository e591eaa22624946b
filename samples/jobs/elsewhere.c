/*
 * Preloaded before the recorder: the process seems to run on another host.
 *
 *   ELSEWHERE_HOST     the host's name; unset = nothing is changed
 *   ELSEWHERE_CLOCK_MS how far its wall clock is ahead (may be negative)
 *
 * The boot id, by which hosts are told apart, is made from the name. Only what goes through
 * libc's open, gethostname and clock_gettime is changed.
 */
#undef _FILE_OFFSET_BITS /* open and open64 are two names here */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int gethostname(char *name, size_t size)
{
    char text[65];
    const char *host = getenv("ELSEWHERE_HOST");
    if (!host) {
        FILE *file = fopen("/proc/sys/kernel/hostname", "re");
        if (!file || !fgets(text, sizeof text, file))
            text[0] = '\0';
        if (file)
            fclose(file);
        text[strcspn(text, "\n")] = '\0';
        host = text;
    }
    if (strlen(host) >= size) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(name, host);
    return 0;
}

EXPORT int clock_gettime(clockid_t id, struct timespec *time)
{
    if (syscall(SYS_clock_gettime, id, time) != 0)
        return -1;
    const char *host = getenv("ELSEWHERE_HOST"), *ahead = getenv("ELSEWHERE_CLOCK_MS");
    if (id == CLOCK_REALTIME && host && ahead) {
        long long ns = time->tv_nsec + atoll(ahead) % 1000 * 1000000;
        time->tv_sec += (time_t)(atoll(ahead) / 1000 + (ns < 0 ? -1 : ns / 1000000000));
        time->tv_nsec = (long)((ns + 1000000000) % 1000000000);
    }
    return 0;
}

static int open_boot_id(const char *host)
{
    unsigned long hash = 5381;
    for (const char *p = host; *p; p++)
        hash = hash * 33 + (unsigned char)*p;
    int fd = memfd_create("boot_id", MFD_CLOEXEC);
    if (fd >= 0)
        dprintf(fd, "00000000-0000-4000-8000-%012lx\n", hash & 0xffffffffffff);
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

static int open_any(const char *path, int flags, va_list more)
{
    const char *host = getenv("ELSEWHERE_HOST");
    if (host && !strcmp(path, "/proc/sys/kernel/random/boot_id"))
        return open_boot_id(host);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

EXPORT int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int fd = open_any(path, flags, more);
    va_end(more);
    return fd;
}

EXPORT int open64(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int fd = open_any(path, flags, more);
    va_end(more);
    return fd;
}
