#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rec/live.h"

uint64_t rec_pid_namespace(void)
{
    char text[64];
    ssize_t n = readlink("/proc/self/ns/pid", text, sizeof(text) - 1); /* "pid:[4026531836]" */
    text[n > 0 ? n : 0] = '\0';
    const char *digits = strchr(text, '[');
    return digits ? strtoull(digits + 1, NULL, 10) : 0;
}
