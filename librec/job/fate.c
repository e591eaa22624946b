#include <stdio.h>
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
};

static bool is_here(const struct here *here, const struct job_process *process)
{
    return here->boot_id[0] && strcmp(here->boot_id, process->pub.boot_id) == 0 &&
           strcmp(here->host, process->pub.host) == 0; /* a container sees other pids under another name */
}

/* proc(5): the start time is field 22, counted behind the last parenthesis. */
static bool runs(const struct job_process *process)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", process->pub.pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *field = strrchr(text, ')');
    if (!field || field[1] != ' ' || field[2] == 'Z' || field[2] == 'X')
        return false;
    field += 2;
    for (int number = 3; number < 22; number++) {
        field = strchr(field, ' ');
        if (!field)
            return false;
        field++;
    }
    return strtoull(field, NULL, 10) == process->source.meta.start_ticks;
}

static bool fell_silent(const struct rec_job *job, const struct job_process *process, uint64_t latest)
{
    uint64_t last = process->pub.last_ns;
    if (latest > last && latest - last > SILENT_OTHER_HOST_NS)
        return true;
    for (size_t i = 0; i < job->nprocesses; i++) {
        const struct rec_process *other = job->processes[i];
        if (other->boot_id[0] && strcmp(other->boot_id, process->pub.boot_id) == 0 && other->last_ns > last &&
            other->last_ns - last > SILENT_SAME_HOST_NS)
            return true;
    }
    return false;
}

static enum rec_process_fate fate_of(const struct rec_job *job, const struct here *here,
                                     const struct job_process *process, uint64_t latest)
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
        return runs(process) ? REC_FATE_ALIVE : REC_FATE_VANISHED;
    return fell_silent(job, process, latest) ? REC_FATE_VANISHED : REC_FATE_UNKNOWN;
}

void job_fates(struct rec_job *job)
{
    struct here here = {0};
    job_boot_id(here.boot_id, sizeof(here.boot_id));
    gethostname(here.host, sizeof(here.host) - 1);
    uint64_t latest = 0;
    for (size_t i = 0; i < job->nprocesses; i++)
        if (job->processes[i]->last_ns > latest)
            latest = job->processes[i]->last_ns;
    for (size_t i = 0; i < job->nprocesses; i++)
        job->processes[i]->fate = fate_of(job, &here, job_process_of(job->processes[i]), latest);
}
