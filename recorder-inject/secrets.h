/*
 * Command lines go into the trace, and people put tokens and passwords into them. A value is
 * taken for a secret by the name it is given to: as NAME=VALUE, NAME: VALUE or --NAME VALUE,
 * where NAME has "secret", "passw", "credential", "api-key" or the word "token" in it.
 */
#ifndef INJECT_SECRETS_H
#define INJECT_SECRETS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Copies one argument with "***" in place of secret values; cut when longer than size. Set
 * *expected to false before the first argument: it carries --NAME over to the next one.
 */
void secrets_hide(const char *argument, bool *expected, char *out, size_t size);

#endif
