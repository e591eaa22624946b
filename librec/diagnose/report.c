/* Pieces of JSON reports. */
#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

void report_put(json_t *object, const char *key, json_t *value, bool *ok)
{
    if (json_object_set_new(object, key, value) != 0)
        *ok = false;
}

json_t *report_text(const char *text)
{
    json_t *value = json_string(text);
    if (value)
        return value;
    char ascii[1024];
    size_t n = 0;
    for (; text[n] && n + 1 < sizeof ascii; n++)
        ascii[n] = (unsigned char)text[n] < 0x80 ? text[n] : '?';
    ascii[n] = '\0';
    return json_string(ascii);
}

void report_ranks(json_t *object, const char *key, const int32_t *ranks, size_t count, bool *ok)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        if (json_array_append_new(array, json_integer(ranks[i])) != 0)
            *ok = false;
    report_put(object, key, array, ok);
}

void report_time(json_t *object, const char *key, uint64_t ns, bool *ok)
{
    char text[64], stem[32];
    time_t seconds = (time_t)(ns / 1000000000);
    struct tm tm;
    if (!ns || !gmtime_r(&seconds, &tm))
        return;
    strftime(stem, sizeof stem, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof text, "%s.%09" PRIu64 "Z", stem, ns % 1000000000);
    report_put(object, key, json_string(text), ok);
}
