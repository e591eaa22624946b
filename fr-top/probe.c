#include "fr-top/top.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void top_boot_id(char *out, size_t size)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, size - 1) : -1;
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    if (fd >= 0)
        close(fd);
}

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

uint32_t top_probe_find(const struct top_probe *probe, uint32_t comm_id)
{
    for (size_t i = 0; comm_id != REC_ID_NONE && i < probe->nmembers; i++) {
        if (probe->members[i].comm_id == comm_id)
            return (uint32_t)i;
    }
    return TOP_NONE;
}

void top_process_open(struct top_process *process, const struct top_op *op)
{
    uint32_t at = process->nopen < TOP_MAX_OPEN ? process->nopen : TOP_MAX_OPEN;
    process->nopen++;
    while (at > 0 && process->open[at - 1].since_ns > op->since_ns)
        at--;
    if (at >= TOP_MAX_OPEN)
        return;
    size_t behind = (process->nopen < TOP_MAX_OPEN ? process->nopen : TOP_MAX_OPEN) - at - 1;
    memmove(&process->open[at + 1], &process->open[at], behind * sizeof process->open[0]);
    process->open[at] = *op;
}

bool top_tells_progress(unsigned kind)
{
    return kind == REC_GRAPH_LAUNCH || (rec_kind_flags(kind) & (REC_KF_COLL | REC_KF_P2P | REC_KF_RMA |
                                                                REC_KF_CREATE | REC_KF_TEARDOWN)) != 0;
}

void top_op_gpu(struct rec_op *op, const struct rec_gpu *gpu)
{
    bool untold = gpu->dropped != 0 && gpu->ended + 1 >= gpu->dropped;
    rec_op_gpu(op, gpu);
    if (untold && op->launch > gpu->ended && !(op->flags & REC_OF_CAPTURED))
        op->launch = 0;
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
    take_text(process->boot_id, sizeof process->boot_id, root, "boot_id");
    json_int_t pid_ns = json_integer_value(json_object_get(root, "pid_ns"));
    process->pid_ns = pid_ns > 0 ? (uint64_t)pid_ns : 0;
    const char *uid = json_string_value(json_object_get(root, "proc_uid"));
    if (process->proc_uid == 0 && uid != NULL)
        process->proc_uid = strtoull(uid, NULL, 16);
    const json_t *job = json_object_get(root, "job");
    take_text(process->job_id, sizeof process->job_id, job, "id");
    /* srun may be called several times in one allocation, even at once. */
    const char *source = json_string_value(json_object_get(job, "source"));
    char step[24] = "";
    if (source != NULL && strcmp(source, "SLURM_JOB_ID") == 0)
        take_text(step, sizeof step, json_object_get(root, "env"), "SLURM_STEP_ID");
    snprintf(process->job, sizeof process->job, "%s%s%s", process->job_id, step[0] != '\0' ? "." : "", step);
    take_text(process->restart, sizeof process->restart, job, "restart");
    process->rank = take_rank(root, "rank");
    process->world_size = take_rank(root, "world_size");
    process->start_ns = take_u64(root, "start_ns");
    if (process->pid == 0)
        process->pid = take_rank(root, "pid");
    json_decref(root);
}
