#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned long hg_number_from_environment(const char *name, unsigned long fallback)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return fallback;
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end || strchr(text, '-')) {
        fprintf(stderr, "hostgpu: %s=%s: not a number, ignored\n", name, text);
        return fallback;
    }
    return value;
}
