#include "rec/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum rec_code rec_error_set(struct rec_error *err, enum rec_code code, const char *path, uint64_t offset,
                            const char *format, ...)
{
    if (!err)
        return code;
    err->code = code;
    err->offset = offset;
    err->path[0] = '\0';
    if (path) {
        /* The end of a path tells more than its beginning. */
        size_t length = strlen(path);
        size_t room = sizeof(err->path) - 1;
        memcpy(err->path, length > room ? path + (length - room) : path, (length > room ? room : length) + 1);
    }
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    return code;
}

const char *rec_code_name(enum rec_code code)
{
    static const char *const names[] = {
        [REC_OK] = "success",
        [REC_END] = "end",
        [REC_ERR_ARG] = "invalid argument",
        [REC_ERR_IO] = "input/output error",
        [REC_ERR_NOMEM] = "no memory",
        [REC_ERR_FORMAT] = "not a trace",
        [REC_ERR_VERSION] = "unsupported version",
        [REC_ERR_CORRUPT] = "damaged",
        [REC_ERR_EMPTY] = "no trace",
        [REC_ERR_MIXED] = "several jobs",
        [REC_ERR_LIMIT] = "limit reached",
        [REC_ERR_CANCELLED] = "cancelled",
    };
    return (size_t)code < sizeof(names) / sizeof(names[0]) ? names[code] : "unknown error";
}
