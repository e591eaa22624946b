/*
 * Standard output with its own buffer: fast plain formatting and an error that is noticed.
 * After a failed write everything is dropped and out_failed tells, so that loops can end.
 */
#ifndef FR_DUMP_OUT_H
#define FR_DUMP_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void out_bytes(const char *bytes, size_t count);
void out_text(const char *text);
void out_char(char c);
void out_u64(uint64_t number);
void out_i64(int64_t number);
void out_hex(uint64_t number, unsigned digits); /* at least so many digits */
void out_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A JSON string with its quotes; invalid UTF-8 becomes U+FFFD. */
void out_json(const char *text);
/* A CSV field, quoted when it must be (RFC 4180), control characters escaped. */
void out_csv(const char *text);

bool out_failed(void);
/* Writes what is left; reports a failure once. Returns status, or FR_EXIT_ERROR. */
int out_finish(int status);

#endif
