#include "fr-top/top.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct top_member *top_probe_member(struct top_probe *probe)
{
    if (probe->nmembers == probe->room) {
        size_t room = probe->room > 0 ? probe->room * 2 : 8;
        struct top_member *members = realloc(probe->members, room * sizeof *members);
        if (members == NULL)
            return NULL;
        probe->members = members;
        probe->room = room;
    }
    struct top_member *member = &probe->members[probe->nmembers++];
    *member = (struct top_member){.comm_rank = REC_ID_NONE};
    return member;
}

static void take_text(char *out, size_t size, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text != NULL)
        snprintf(out, size, "%s", text);
}

static int32_t take_rank(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    json_int_t number = json_integer_value(value);
    return json_is_integer(value) && number >= 0 && number <= INT32_MAX ? (int32_t)number : TOP_NO_RANK;
}

static uint64_t take_u64(const json_t *object, const char *key)
{
    json_int_t number = json_integer_value(json_object_get(object, key));
    return number > 0 ? (uint64_t)number : 0;
}

void top_probe_meta(struct top_probe *probe, const char *meta, size_t bytes)
{
    struct top_process *process = &probe->process;
    json_error_t error;
    json_t *root = json_loadb(meta, strnlen(meta, bytes), 0, &error);
    if (root == NULL)
        return;
    take_text(process->host, sizeof process->host, root, "host");
    take_text(process->exe, sizeof process->exe, root, "exe");
    const char *uid = json_string_value(json_object_get(root, "proc_uid"));
    if (process->proc_uid == 0 && uid != NULL)
        process->proc_uid = strtoull(uid, NULL, 16);
    const json_t *job = json_object_get(root, "job");
    take_text(process->job, sizeof process->job, job, "id");
    take_text(process->restart, sizeof process->restart, job, "restart");
    process->rank = take_rank(root, "rank");
    process->world_size = take_rank(root, "world_size");
    process->start_ns = take_u64(root, "start_ns");
    if (process->pid == 0)
        process->pid = take_rank(root, "pid");
    json_decref(root);
}
