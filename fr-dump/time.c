#include <stdio.h>
#include <string.h>
#include <time.h>

#include "dump.h"

#define NS_PER_S UINT64_C(1000000000)

/* A fraction ".25" of a second in ns; text moves behind it. */
static uint64_t parse_fraction(const char **text)
{
    uint64_t ns = 0, unit = NS_PER_S / 10;
    if (**text != '.')
        return 0;
    for (++*text; **text >= '0' && **text <= '9'; ++*text, unit /= 10)
        ns += (uint64_t)(**text - '0') * unit;
    return ns;
}

static bool parse_epoch(const char *text, uint64_t *ns)
{
    char whole[24];
    size_t length = strspn(text, "0123456789");
    uint64_t seconds;
    if (length == 0 || length >= sizeof(whole) || (text[length] != '\0' && text[length] != '.'))
        return false;
    memcpy(whole, text, length);
    whole[length] = '\0';
    text += length;
    if (!fr_parse_u64(whole, UINT64_MAX / NS_PER_S - 1, &seconds))
        return false;
    *ns = seconds * NS_PER_S + parse_fraction(&text);
    return *text == '\0';
}

bool dump_parse_time(const char *text, uint64_t day_ns, uint64_t *ns)
{
    if (parse_epoch(text, ns))
        return true;
    time_t day = (time_t)(day_ns / NS_PER_S);
    struct tm tm = {0}, today;
    const char *rest = strptime(text, "%Y-%m-%d", &tm);
    if (rest && (*rest == ' ' || *rest == 'T')) {
        rest = strptime(rest + 1, "%H:%M:%S", &tm);
    } else if (!rest && localtime_r(&day, &today)) {
        tm = today;
        tm.tm_sec = 0;
        rest = strptime(text, "%H:%M:%S", &tm);
    }
    if (!rest)
        return false;
    uint64_t fraction = parse_fraction(&rest);
    tm.tm_isdst = -1;
    time_t seconds = mktime(&tm);
    *ns = (uint64_t)seconds * NS_PER_S + fraction;
    return *rest == '\0' && seconds >= 0;
}

char *dump_date(uint64_t ns, char *buffer, size_t size)
{
    time_t seconds = (time_t)(ns / NS_PER_S);
    struct tm tm;
    char text[48];
    if (ns == 0 || !localtime_r(&seconds, &tm) || strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm) == 0)
        snprintf(buffer, size, "-");
    else
        snprintf(buffer, size, "%s.%03u", text, (unsigned)(ns % NS_PER_S / 1000000));
    return buffer;
}
