/* The snapshot as OpenMetrics text, for a node exporter's textfile directory or any scraper. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fr-top/diagnosis.h"
#include "fr-top/top.h"
#include "fr-common.h"

static void label_value(FILE *out, const char *value)
{
    char clean[1024];
    for (const char *p = fr_clean(clean, sizeof clean, value); *p != '\0'; p++) {
        if (*p == '\\' || *p == '"')
            fputc('\\', out);
        fputc(*p, out);
    }
}

static void process_labels(FILE *out, const struct top_process *process)
{
    fputs("{job=\"", out);
    label_value(out, process->job);
    fputs("\",host=\"", out);
    label_value(out, process->host);
    fprintf(out, "\",pid=\"%d\",rank=\"", process->pid);
    if (process->rank >= 0)
        fprintf(out, "%d", process->rank);
    fputs("\"}", out);
}

static uint64_t age(const struct top_snapshot *snapshot, uint64_t since_ns)
{
    return since_ns != 0 && snapshot->now_ns > since_ns ? snapshot->now_ns - since_ns : 0;
}

static double rank_up(const struct top_snapshot *snapshot, const struct top_process *process)
{
    (void)snapshot;
    return !top_state_ended(process->state);
}

static double rank_stalled(const struct top_snapshot *snapshot, const struct top_process *process)
{
    (void)snapshot;
    return top_state_stuck(process->state);
}

static double rank_blamed(const struct top_snapshot *snapshot, const struct top_process *process)
{
    return top_role_of(snapshot->verdict, process) == REC_ROLE_CULPRIT;
}

static double rank_ops(const struct top_snapshot *snapshot, const struct top_process *process)
{
    (void)snapshot;
    return (double)process->ops;
}

static double rank_lost(const struct top_snapshot *snapshot, const struct top_process *process)
{
    (void)snapshot;
    return (double)process->lost;
}

static double rank_lag(const struct top_snapshot *snapshot, const struct top_process *process)
{
    (void)snapshot;
    return (double)process->lag;
}

static double rank_open(const struct top_snapshot *snapshot, const struct top_process *process)
{
    return process->in_call ? (double)age(snapshot, process->now.since_ns) / 1e9 : 0;
}

static double rank_quiet(const struct top_snapshot *snapshot, const struct top_process *process)
{
    return (double)age(snapshot, process->last_call_ns) / 1e9;
}

static double rank_trace(const struct top_snapshot *snapshot, const struct top_process *process)
{
    (void)snapshot;
    return (double)process->file_bytes;
}

/* One row per family of samples that every rank has. */
static const struct family {
    const char *name, *type, *unit, *help;
    double (*value)(const struct top_snapshot *snapshot, const struct top_process *process);
} families[] = {
    {"frec_rank_up", "gauge", NULL, "1 while the process of the rank runs.", rank_up},
    {"frec_rank_stalled", "gauge", NULL, "1 when no NCCL call began or returned for the stall time.",
     rank_stalled},
    {"frec_rank_blamed", "gauge", NULL, "1 when the verdict blames the rank.", rank_blamed},
    {"frec_ops", "counter", NULL, "Collective and point-to-point calls entered.", rank_ops},
    {"frec_lost_ops", "counter", NULL, "Calls that could not be recorded.", rank_lost},
    {"frec_lag_ops", "gauge", "ops", "Collective calls behind the front of the communicator, at most.",
     rank_lag},
    {"frec_open_call_seconds", "gauge", "seconds",
     "Age of the oldest call inside NCCL; 0 when there is none.", rank_open},
    {"frec_quiet_seconds", "gauge", "seconds", "Time since an NCCL call last began or returned.", rank_quiet},
    {"frec_trace_bytes", "counter", "bytes", "Written to the trace file.", rank_trace},
};

static void head(FILE *out, const char *name, const char *type, const char *unit, const char *help)
{
    fprintf(out, "# TYPE %s %s\n", name, type);
    if (unit != NULL)
        fprintf(out, "# UNIT %s %s\n", name, unit);
    fprintf(out, "# HELP %s %s\n", name, help);
}

static void rank_families(FILE *out, const struct top_snapshot *snapshot)
{
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
        const struct family *family = &families[f];
        head(out, family->name, family->type, family->unit, family->help);
        for (uint32_t i = 0; i < snapshot->nprocesses; i++) {
            fprintf(out, "%s%s", family->name, strcmp(family->type, "counter") == 0 ? "_total" : "");
            process_labels(out, &snapshot->processes[i]);
            fprintf(out, " %.17g\n", family->value(snapshot, &snapshot->processes[i]));
        }
    }
}

static void comm_families(FILE *out, const struct top_snapshot *snapshot)
{
    static const char *const names[2] = {"frec_comm_front_ops", "frec_comm_spread_ops"};
    static const char *const help[2] = {"Collective calls that the foremost member has entered.",
                                        "Collective calls between the foremost and the last member."};
    for (int f = 0; f < 2; f++) {
        head(out, names[f], "gauge", "ops", help[f]);
        for (uint32_t c = 0; c < snapshot->ncomms; c++) {
            const struct top_comm *comm = &snapshot->comms[c];
            if (comm->uid == 0)
                continue;
            fprintf(out, "%s{comm=\"%016llx\",comm_name=\"", names[f], (unsigned long long)comm->uid);
            label_value(out, comm->name);
            fprintf(out, "\"} %llu\n", (unsigned long long)(f == 0 ? comm->front : comm->front - comm->back));
        }
    }
}

static void kind_families(FILE *out, const struct top_snapshot *snapshot)
{
    static const char *const names[2] = {"frec_algorithm_bandwidth_bytes_per_second",
                                         "frec_bus_bandwidth_bytes_per_second"};
    static const char *const help[2] = {
        "Bytes of calls (nccl-tests: algbw) per rank, mean of the last seconds.",
        "Bytes that the links of a rank carried (busbw), mean of the last seconds."};
    for (int f = 0; f < 2; f++) {
        head(out, names[f], "gauge", "bytes_per_second", help[f]);
        for (uint32_t k = 0; k < snapshot->nkinds; k++) {
            const struct top_kind *kind = &snapshot->kinds[k];
            const char *name = rec_kind_name(kind->kind);
            fprintf(out, "%s{op=\"%s\"} %.17g\n", names[f], name != NULL ? name : "?",
                    (f == 0 ? kind->sum.size : kind->sum.bus) / kind->ranks);
        }
    }
}

static void verdict_family(FILE *out, const struct top_verdict *verdict)
{
    head(out, "frec_fault", "gauge", NULL,
         "1 when the verdict on the job is a fault or inconclusive, 0 when it is healthy.");
    if (verdict == NULL || verdict->serial == 0)
        return;
    fputs("frec_fault{job=\"", out);
    label_value(out, verdict->job);
    fprintf(out, "\",verdict=\"%s\",confidence=\"%s\"} %d\n", rec_verdict_type_name(verdict->type),
            rec_confidence_name(verdict->confidence), verdict->status != REC_STATUS_HEALTHY);
}

static void write_families(FILE *out, const struct top_snapshot *snapshot)
{
    verdict_family(out, snapshot->verdict);
    head(out, "frec_ranks", "gauge", NULL, "Recorded processes by state.");
    for (enum top_state s = 0; s < TOP_STATES; s++)
        fprintf(out, "frec_ranks{state=\"%s\"} %u\n", top_state_name(s), snapshot->states[s]);
    rank_families(out, snapshot);
    comm_families(out, snapshot);
    kind_families(out, snapshot);
    head(out, "frec_snapshot_timestamp_seconds", "gauge", "seconds", "When these figures were taken.");
    fprintf(out, "frec_snapshot_timestamp_seconds %.3f\n", (double)snapshot->now_ns / 1e9);
    fputs("# EOF\n", out);
}

enum rec_code top_write_metrics(const struct top_snapshot *snapshot, const char *path, struct rec_error *err)
{
    char temporary[4096];
    int n = snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    if (n < 0 || (size_t)n >= sizeof temporary)
        return rec_error_set(err, REC_ERR_ARG, path, 0, "%s", strerror(ENAMETOOLONG));
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return rec_error_set(err, REC_ERR_IO, path, 0, "%s", strerror(errno));
    /* Scrapers run as somebody else. */
    FILE *out = fchmod(fd, 0644) == 0 ? fdopen(fd, "w") : NULL;
    if (out == NULL) {
        int error = errno;
        close(fd);
        unlink(temporary);
        return rec_error_set(err, REC_ERR_IO, path, 0, "%s", strerror(error));
    }
    write_families(out, snapshot);
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0)
        failed = true;
    if (failed || rename(temporary, path) != 0) {
        int error = errno;
        unlink(temporary);
        return rec_error_set(err, REC_ERR_IO, path, 0, "%s", strerror(error));
    }
    return REC_OK;
}
