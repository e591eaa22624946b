/*
 * The files of a trace: STEM.frec, then STEM.1.frec … . Appends whole blocks, and changes bytes of
 * the header in place; knows which parts still exist and removes the oldest. Runs inside the job:
 *
 *   - The descriptor may have been closed by the job and its number given to another file.
 *     Before each write fstat(2) must show our device and inode and all that we wrote; else
 *     the file is opened again by path, and taken only if it also begins as ours does (an
 *     inode number is soon used again when a file is removed). The number is kept high, away
 *     from what programs close wholesale. (Between fstat and pwrite another thread could
 *     still exchange the descriptor: a window of a microsecond that cannot be closed.)
 *   - Where RLIMIT_NOFILE allows no high number the job may need every descriptor it can have: the
 *     file is then opened for each write and closed at once.
 *   - RLIMIT_FSIZE is asked before each write, because exceeding it raises SIGXFSZ.
 *   - A block that fails half-way is truncated away, so the file ends with a whole block.
 *
 * System calls only; async-signal-safe. Errors are errno values, 0 = success.
 */
#ifndef REC_FORMAT_PART_H
#define REC_FORMAT_PART_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define REC_PARTS_KEPT 16
#define REC_PART_HEAD  64 /* the first block of a part has at least these bytes */

struct rec_part {
    uint32_t number;
    dev_t device;
    ino_t inode;
    uint64_t bytes;
    uint64_t ops;
};

struct rec_parts {
    char dir[PATH_MAX];
    char stem[NAME_MAX + 1];
    int fd;     /* of the current part; -1 = none */
    bool brief; /* it is open only while it is used */
    uint32_t count;
    struct rec_part parts[REC_PARTS_KEPT]; /* oldest first; the last is the current one */
    uint64_t written;                      /* bytes written to all parts */
    uint8_t head[REC_PART_HEAD];           /* how the current part begins: unlike any other file */
};

void rec_parts_init(struct rec_parts *parts);

/* ENAMETOOLONG when the names are. */
int rec_parts_name(struct rec_parts *parts, const char *dir, const char *stem);

/* Creates part number (it must not exist) and makes it the current one; the previous one is closed. */
int rec_parts_create(struct rec_parts *parts, uint32_t number);

/* Appends a block to the current part. */
int rec_parts_append(struct rec_parts *parts, const void *data, size_t bytes);

/* Writes over bytes of the current part that were written before. */
int rec_parts_overwrite(struct rec_parts *parts, uint64_t offset, const void *data, size_t bytes);

/*
 * Asks the system to begin writing to the disk or server what it still holds in memory, without
 * waiting: on a shared file system others see it only then. Failure does not matter.
 */
void rec_parts_push(const struct rec_parts *parts);

/* Bytes of all existing parts. */
uint64_t rec_parts_total(const struct rec_parts *parts);

/* Removes the oldest part unless it is the current one; the ops that went with it are added to *ops. */
bool rec_parts_drop_oldest(struct rec_parts *parts, uint64_t *ops);

/* Removes the current part (made a moment ago, header not written). */
void rec_parts_remove_current(struct rec_parts *parts);

/* Closes the descriptor if it still is ours. */
void rec_parts_close(struct rec_parts *parts);

static inline struct rec_part *rec_parts_current(struct rec_parts *parts)
{
    return &parts->parts[parts->count - 1];
}

#endif
