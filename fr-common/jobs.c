#include <time.h>

#include "fr-common.h"

#define SIGN_OF_LIFE_S 60

int fr_choose_job(const char *path, const struct rec_job *job, const struct rec_error *err)
{
    int status = fr_errorf(path, "%s (--job ID, or --job latest)", err->text);
    size_t count;
    const struct rec_job_info *jobs = rec_job_candidates(job, &count);
    for (size_t i = 0; i < count; i++) {
        char id[512], source[128], start[64] = "unknown time";
        time_t seconds = (time_t)(jobs[i].start_ns / 1000000000u);
        struct tm tm;
        if (jobs[i].start_ns && gmtime_r(&seconds, &tm))
            strftime(start, sizeof(start), "%Y-%m-%d %H:%M:%S UTC", &tm);
        fprintf(stderr, "  %s  (%s, %s, %u %s)\n", fr_clean(id, sizeof(id), jobs[i].id),
                fr_clean(source, sizeof(source), jobs[i].source), start, jobs[i].processes,
                jobs[i].processes == 1 ? "process" : "processes");
    }
    return status;
}

bool fr_job_runs(const struct rec_job *job)
{
    size_t count;
    struct rec_process *const *processes = rec_job_processes(job, &count);
    uint64_t now_s = (uint64_t)time(NULL);
    for (size_t i = 0; i < count; i++) {
        const struct rec_process *p = processes[i];
        if (p->fate == REC_FATE_ALIVE ||
            (p->fate == REC_FATE_UNKNOWN && p->last_ns / 1000000000u + SIGN_OF_LIFE_S > now_s))
            return true;
    }
    return false;
}
