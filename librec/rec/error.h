/*
 * Errors of librec.
 *
 * A function that can fail returns an enum rec_code and, on failure, fills the
 * caller's struct rec_error (which may be NULL). Nothing is printed, errno is not
 * part of the contract, nothing is allocated. Thread safe; rec_error_set is
 * async-signal-safe as long as its format uses only %s, %d, %u and %llu-style
 * integers (it formats with vsnprintf, which glibc keeps free of locks for these).
 */
#ifndef REC_ERROR_H
#define REC_ERROR_H

#include <stdint.h>

#pragma GCC visibility push(default)

#define REC_WARN_UNUSED __attribute__((warn_unused_result))

enum rec_code {
    REC_OK = 0,
    REC_END,           /* not an error: an iterator has nothing more */
    REC_ERR_ARG,       /* the caller passed something impossible */
    REC_ERR_IO,        /* the operating system said no; text holds strerror */
    REC_ERR_NOMEM,     /* no memory */
    REC_ERR_FORMAT,    /* not one of our files at all */
    REC_ERR_VERSION,   /* ours, but of a newer major version */
    REC_ERR_CORRUPT,   /* ours, but damaged beyond use */
    REC_ERR_EMPTY,     /* no trace where one was expected */
    REC_ERR_MIXED,     /* several jobs where one was expected */
    REC_ERR_LIMIT,     /* a stated bound was reached */
    REC_ERR_CANCELLED, /* the caller gave up */
};

struct rec_error {
    enum rec_code code;
    uint64_t offset; /* bytes into path; 0 when it does not apply */
    char path[1024]; /* the file concerned, cut at the front when longer; may be empty */
    char text[256];  /* one line, no newline, no path */
};

/* Fills err (when not NULL) and returns code, so that `return rec_error_set(...)` works. */
enum rec_code rec_error_set(struct rec_error *err, enum rec_code code, const char *path, uint64_t offset,
                            const char *format, ...) __attribute__((format(printf, 5, 6)));

/* A short constant phrase for a code ("no memory"). */
const char *rec_code_name(enum rec_code code);

#pragma GCC visibility pop

#endif
