#include "secrets.h"

#include <ctype.h>
#include <string.h>

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

/* "max-tokens" and "tokenizer" are no secrets. */
static bool is_token(const char *name, size_t left)
{
    return left >= 5 && strncasecmp(name, "token", 5) == 0 && !(left > 5 && isalpha((unsigned char)name[5]));
}

static bool is_secret(const char *name, size_t length)
{
    static const char *const words[] = {"secret", "passw", "credential", "apikey", "api-key", "api_key"};
    for (size_t i = 0; i < length; i++) {
        if (is_token(name + i, length - i))
            return true;
        for (size_t k = 0; k < sizeof(words) / sizeof(words[0]); k++)
            if (length - i >= strlen(words[k]) && strncasecmp(name + i, words[k], strlen(words[k])) == 0)
                return true;
    }
    return false;
}

static const char *skip_spaces(const char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

/* Where the name ends that stands before at, perhaps in quotes; its length. */
static size_t name_before(const char *start, const char *at, const char **name)
{
    while (at > start && (at[-1] == ' ' || at[-1] == '"' || at[-1] == '\''))
        at--;
    const char *end = at;
    while (at > start && is_name(at[-1]))
        at--;
    *name = at;
    return (size_t)(end - at);
}

/* Behind the value that begins here: a quoted text, or a word. */
static const char *skip_value(const char *at)
{
    if (*at == '"' || *at == '\'') {
        const char *end = strchr(at + 1, *at);
        return end ? end + 1 : at + strlen(at);
    }
    return at + strcspn(at, " \t\n\"',;&)}");
}

/* Does a secret's value begin behind this character? Then where, else NULL. */
static const char *value_behind(const char *start, const char *at)
{
    const char *name, *value = skip_spaces(at + 1);
    size_t length = name_before(start, at, &name);
    if (*value == '\0' || !is_secret(name, length))
        return NULL;
    if (*at == '=' || *at == ':')
        return value;
    bool option = *at == ' ' && length > 1 && name[0] == '-';
    return option && !strchr("-=:|&;<>", *value) ? value : NULL;
}

void secrets_hide(const char *argument, bool *expected, char *out, size_t size)
{
    static const char hidden[] = "***";
    const char *at = argument;
    size_t used = 0;
    if (*expected && *at && *at != '-') {
        at += strlen(at);
        for (const char *star = hidden; *star && used + 1 < size; star++)
            out[used++] = *star;
    }
    while (*at && used + 1 < size) {
        const char *value = value_behind(argument, at);
        const char *end = value ? value : at + 1;
        while (at < end && used + 1 < size)
            out[used++] = *at++;
        if (!value)
            continue;
        at = skip_value(value);
        for (const char *star = hidden; *star && used + 1 < size; star++)
            out[used++] = *star;
    }
    out[used] = '\0';
    bool option = argument[0] == '-' && !argument[strcspn(argument, "=: \t")];
    *expected = option && is_secret(argument, strlen(argument));
}
