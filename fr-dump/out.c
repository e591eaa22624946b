#include "out.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fr-common.h"

static char buffer[1 << 16];
static size_t used;
static int error; /* errno of the failed write */

static void flush(void)
{
    for (size_t at = 0; at < used && !error;) {
        ssize_t n = write(STDOUT_FILENO, buffer + at, used - at);
        if (n > 0)
            at += (size_t)n;
        else if (n < 0 && errno != EINTR)
            error = errno;
    }
    used = 0;
}

void out_bytes(const char *bytes, size_t count)
{
    while (count > 0) {
        if (used == sizeof(buffer))
            flush();
        size_t part = sizeof(buffer) - used;
        part = count < part ? count : part;
        memcpy(buffer + used, bytes, part);
        used += part;
        bytes += part;
        count -= part;
    }
}

void out_text(const char *text)
{
    out_bytes(text, strlen(text));
}

void out_char(char c)
{
    if (used == sizeof(buffer))
        flush();
    buffer[used++] = c;
}

void out_u64(uint64_t number)
{
    char digits[20];
    size_t at = sizeof(digits);
    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    out_bytes(digits + at, sizeof(digits) - at);
}

void out_i64(int64_t number)
{
    if (number < 0)
        out_char('-');
    out_u64(number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

void out_hex(uint64_t number, unsigned digits)
{
    char text[16];
    size_t at = sizeof(text);
    while (at > 0 && (number || sizeof(text) - at < digits)) {
        text[--at] = "0123456789abcdef"[number & 15];
        number >>= 4;
    }
    out_bytes(text + at, sizeof(text) - at);
}

void out_format(const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (length > 0)
        out_bytes(text, (size_t)length < sizeof(text) ? (size_t)length : sizeof(text) - 1);
}

void out_json(const char *text)
{
    size_t bytes = strlen(text);
    out_char('"');
    for (size_t i = 0; i < bytes;) {
        unsigned char c = (unsigned char)text[i];
        size_t length = fr_utf8_length(text + i, bytes - i);
        if (length == 0)
            out_text("\\ufffd");
        else if (c == '"' || c == '\\')
            out_char('\\'), out_char((char)c);
        else if (c < 0x20 || c == 0x7f)
            out_text("\\u00"), out_hex(c, 2);
        else if (c == 0xc2 && (unsigned char)text[i + 1] < 0xa0) /* C1 controls: terminals obey them */
            out_text("\\u00"), out_hex((unsigned char)text[i + 1], 2);
        else
            out_bytes(text + i, length);
        i += length ? length : 1;
    }
    out_char('"');
}

void out_csv(const char *text)
{
    char clean[2048]; /* control characters gone, so only these two need quotes */
    fr_clean(clean, sizeof(clean), text);
    if (!strpbrk(clean, ",\"")) {
        out_text(clean);
        return;
    }
    out_char('"');
    for (const char *c = clean; *c; c++) {
        if (*c == '"')
            out_char('"');
        out_char(*c);
    }
    out_char('"');
}

bool out_failed(void)
{
    return error != 0;
}

int out_finish(int status)
{
    flush();
    return error ? fr_errorf("standard output", "%s", strerror(error)) : status;
}
