#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static void take_string(const json_t *object, const char *key, char *buffer, size_t size)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text)
        return;
    size_t length = strnlen(text, size - 1);
    memcpy(buffer, text, length);
    buffer[length] = '\0';
}

static void take_number(const json_t *object, const char *key, json_int_t min, json_int_t max,
                        json_int_t *value)
{
    const json_t *item = json_object_get(object, key);
    if (json_is_integer(item) && json_integer_value(item) >= min && json_integer_value(item) <= max)
        *value = json_integer_value(item);
}

static json_int_t number_or(const json_t *object, const char *key, json_int_t max, json_int_t missing)
{
    json_int_t value = missing;
    take_number(object, key, 0, max, &value);
    return value;
}

static uint64_t take_hex(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text || strlen(text) > 16 || strspn(text, "0123456789abcdefABCDEF") != strlen(text))
        return 0;
    return strtoull(text, NULL, 16);
}

void job_meta_parse(const char *text, struct job_meta *meta, char live[REC_LIVE_PATH_BYTES])
{
    *meta = (struct job_meta){.rank = -1, .world_size = -1, .local_rank = -1, .pid = -1};
    json_t *root = json_loads(text, 0, NULL);
    meta->valid = json_is_object(root);
    meta->recovered = (uint32_t)number_or(root, "recovered", 1000, 0);
    take_string(root, "host", meta->host, sizeof(meta->host));
    take_string(root, "boot_id", meta->boot_id, sizeof(meta->boot_id));
    take_string(root, "exe", meta->exe, sizeof(meta->exe));
    if (live) {
        live[0] = '\0';
        take_string(root, "live", live, REC_LIVE_PATH_BYTES);
    }
    const char *fate = json_string_value(json_object_get(root, "fate"));
    meta->vanished = fate && strcmp(fate, "vanished") == 0;
    meta->saw_live = meta->recovered || json_is_true(json_object_get(root, "saw_live"));
    meta->proc_uid = take_hex(root, "proc_uid");
    meta->start_ns = (uint64_t)number_or(root, "start_ns", INT64_MAX, 0);
    meta->start_ticks = (uint64_t)number_or(root, "start_ticks", INT64_MAX, 0);
    meta->pid_ns = (uint64_t)number_or(root, "pid_ns", INT64_MAX, 0);
    meta->pid = (int32_t)number_or(root, "pid", INT32_MAX, -1);
    meta->rank = (int32_t)number_or(root, "rank", JOB_MAX_RANKS - 1, -1);
    meta->world_size = (int32_t)number_or(root, "world_size", JOB_MAX_RANKS, -1);
    if (meta->world_size == 0)
        meta->world_size = -1;
    meta->local_rank = (int32_t)number_or(root, "local_rank", JOB_MAX_RANKS - 1, -1);
    meta->nccl_version = (uint32_t)number_or(root, "nccl_version", INT32_MAX, 0);
    const json_t *job = json_object_get(root, "job");
    take_string(job, "source", meta->job_source, sizeof(meta->job_source));
    take_string(job, "id", meta->job_id, sizeof(meta->job_id));
    take_string(job, "restart", meta->restart, sizeof(meta->restart));
    take_string(json_object_get(root, "env"), "SLURM_STEP_ID", meta->step, sizeof(meta->step));
    json_decref(root);
}
