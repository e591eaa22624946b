#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

/*
 * A living process leaves a heartbeat every 2 s. One whose last sign is this much older than
 * the latest sign of the others is gone: on one host the clock is one clock; between hosts
 * clocks and copies of directories differ.
 */
#define SILENT_SAME_HOST_NS  (6 * UINT64_C(1000000000))
#define SILENT_OTHER_HOST_NS (60 * UINT64_C(1000000000))

struct here {
    char boot_id[40];
    char host[128];
    uint64_t pid_ns;
};

static bool is_here(const struct here *here, const struct job_process *process)
{
    uint64_t pid_ns = process->source.meta.pid_ns;
    if (pid_ns && here->pid_ns && pid_ns != here->pid_ns)
        return false;
    return here->boot_id[0] && strcmp(here->boot_id, process->pub.boot_id) == 0 &&
           strcmp(here->host, process->pub.host) == 0; /* a container sees other pids under another name */
}

static uint64_t boot_key(const struct rec_process *process)
{
    uint64_t key = 0;
    for (const char *text = process->boot_id; *text; text++)
        key = rec_mix64(key ^ (uint8_t)*text) + 1;
    return key;
}

/* The last sign of life of anybody on any host, and by boot. */
struct signs {
    uint64_t latest_ns;
    struct job_map boots; /* boot → index into last_ns */
    uint64_t *last_ns;
};

static bool collect_signs(const struct rec_job *job, struct signs *signs)
{
    *signs = (struct signs){.last_ns = calloc(job->nprocesses + 1, sizeof(*signs->last_ns))};
    bool ok = signs->last_ns != NULL;
    for (size_t i = 0; i < job->nprocesses && ok; i++) {
        const struct rec_process *process = job->processes[i];
        if (process->last_ns > signs->latest_ns)
            signs->latest_ns = process->last_ns;
        if (!process->boot_id[0])
            continue;
        uint32_t at = job_map_get(&signs->boots, boot_key(process));
        if (at == JOB_MAP_NONE) {
            at = (uint32_t)signs->boots.count;
            ok = job_map_put(&signs->boots, boot_key(process), at);
        }
        if (ok && process->last_ns > signs->last_ns[at])
            signs->last_ns[at] = process->last_ns;
    }
    return ok;
}

static bool fell_silent(const struct signs *signs, const struct job_process *process)
{
    uint64_t last = process->pub.last_ns;
    if (signs->latest_ns > last && signs->latest_ns - last > SILENT_OTHER_HOST_NS)
        return true;
    if (!process->pub.boot_id[0])
        return false;
    uint64_t there = signs->last_ns[job_map_get(&signs->boots, boot_key(&process->pub))];
    return there > last && there - last > SILENT_SAME_HOST_NS;
}

static enum rec_process_fate fate_of(const struct signs *signs, const struct here *here,
                                     const struct job_process *process)
{
    switch (process->pub.end.reason) {
    case REC_END_SIGNAL:
        return REC_FATE_SIGNALED;
    case REC_END_EXIT:
    case REC_END_QUICK:
    case REC_END_EXEC:
        return REC_FATE_EXITED;
    default:
        break;
    }
    if (process->source.meta.vanished)
        return REC_FATE_VANISHED;
    if (process->live_read)
        return process->live_alive ? REC_FATE_ALIVE : REC_FATE_VANISHED;
    if (is_here(here, process) && process->pub.pid > 0 && process->source.meta.start_ticks)
        return rec_process_runs(process->pub.pid, process->source.meta.start_ticks) ? REC_FATE_ALIVE
                                                                                    : REC_FATE_VANISHED;
    return fell_silent(signs, process) ? REC_FATE_VANISHED : REC_FATE_UNKNOWN;
}

enum rec_code job_fates(struct rec_job *job, struct rec_error *err)
{
    struct here here = {0};
    struct signs signs;
    job_boot_id(here.boot_id, sizeof(here.boot_id));
    here.pid_ns = rec_pid_namespace();
    gethostname(here.host, sizeof(here.host) - 1);
    bool ok = collect_signs(job, &signs);
    for (size_t i = 0; i < job->nprocesses && ok; i++)
        job->processes[i]->fate = fate_of(&signs, &here, job_process_of(job->processes[i]));
    free(signs.last_ns);
    job_map_free(&signs.boots);
    return ok ? REC_OK : rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
}
