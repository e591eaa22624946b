#include <string.h>

#include "dump.h"
#include "out.h"

#define MAX_WARNINGS 20

struct rec_job *dump_open(const struct dump_options *options)
{
    struct rec_job *job;
    struct rec_error err = {0};
    enum rec_code code = rec_job_open(options->paths, options->npaths, &options->job, &job, &err);
    if (code == REC_OK)
        return job;
    if (code != REC_ERR_MIXED) {
        fr_error(&err);
        return NULL;
    }
    fr_choose_job(options->paths[0], job, &err);
    rec_job_close(job);
    return NULL;
}

static bool comm_wanted(const char *wanted, const struct rec_process *process, uint32_t comm_id)
{
    const struct rec_member *member = rec_process_member(process, comm_id);
    if (!member)
        return false;
    const char *name = member->comm->name;
    if (name[0] && strcmp(name, wanted) == 0)
        return true;
    char uid[17];
    size_t length = strlen(wanted);
    snprintf(uid, sizeof(uid), "%016llx", (unsigned long long)member->def.uid);
    return member->def.uid && length >= 4 && strncasecmp(uid, wanted, length) == 0;
}

static bool op_wanted(const struct dump_options *options, const struct rec_process *process,
                      const struct rec_op *op)
{
    return (options->any_kind || options->kinds[op->kind]) &&
           (!options->comm || comm_wanted(options->comm, process, op->comm));
}

static bool open_wanted(const struct dump_options *options, const struct rec_process *process,
                        const struct rec_scan_filter *filter, uint32_t i)
{
    return op_wanted(options, process, &process->open[i]) &&
           (filter->to_ns == 0 || process->open[i].enter_ns <= filter->to_ns);
}

/* Open calls come at the end of their process, from what the job found. */
static void print_open(const struct dump_options *options, const struct dump_printer *printer,
                       const struct rec_process *process, const struct rec_scan_filter *filter)
{
    for (uint32_t i = 0; i < process->nopen; i++)
        if (open_wanted(options, process, filter, i))
            printer->op(process, &process->open[i]);
}

/* The calls that print_process is going to print. */
static int survey_process(const struct dump_options *options, const struct dump_printer *printer,
                          const struct rec_job *job, const struct rec_process *process,
                          const struct rec_scan_filter *filter)
{
    struct rec_scan *scan;
    struct rec_error err = {0};
    struct rec_event event;
    bool ok = true;
    if (rec_scan_open(job, process, filter, &scan, &err) != REC_OK)
        return fr_error(&err);
    enum rec_code code = REC_END;
    while (ok && (code = rec_scan_next(scan, &event, &err)) == REC_OK)
        if (event.type == REC_EV_OP && op_wanted(options, process, &event.u.op))
            ok = printer->survey(process, &event.u.op);
    for (uint32_t i = 0; ok && i < process->nopen; i++)
        if (open_wanted(options, process, filter, i))
            ok = printer->survey(process, &process->open[i]);
    rec_scan_close(scan);
    if (!ok)
        return fr_errorf(NULL, "no memory");
    return code == REC_END ? 0 : fr_error(&err);
}

static int print_process(const struct dump_options *options, const struct dump_printer *printer,
                         const struct rec_job *job, const struct rec_process *process,
                         const struct rec_scan_filter *filter)
{
    struct rec_scan *scan;
    struct rec_error err = {0};
    struct rec_event event;
    if (rec_scan_open(job, process, filter, &scan, &err) != REC_OK)
        return fr_error(&err);
    if (printer->process)
        printer->process(job, process);
    enum rec_code code;
    while ((code = rec_scan_next(scan, &event, &err)) == REC_OK && !out_failed()) {
        if (event.type == REC_EV_OP) {
            if (op_wanted(options, process, &event.u.op))
                printer->op(process, &event.u.op);
        } else if ((options->all || printer->records) && printer->record) {
            printer->record(process, &event);
        }
    }
    if (code == REC_END || code == REC_OK)
        print_open(options, printer, process, filter);
    rec_scan_close(scan);
    return code == REC_OK || code == REC_END ? 0 : fr_error(&err);
}

static int parse_filter(const struct dump_options *options, const struct rec_job *job,
                        struct rec_scan_filter *filter)
{
    uint64_t day = rec_job_info(job)->start_ns;
    *filter = (struct rec_scan_filter){0};
    if (options->from && !dump_parse_time(options->from, day, &filter->from_ns))
        return fr_usage_error("--from: not a time: %s", options->from);
    if (options->to && !dump_parse_time(options->to, day, &filter->to_ns))
        return fr_usage_error("--to: not a time: %s", options->to);
    return 0;
}

bool dump_rank_wanted(const struct dump_options *options, const struct rec_process *process)
{
    return options->ranks.count == 0 ||
           (process->rank >= 0 && fr_ranges_has(&options->ranks, (uint32_t)process->rank));
}

/* What was wrong with the input goes to stderr and stops nothing. */
static void print_warnings(const struct rec_job *job)
{
    size_t count;
    const char *const *warnings = rec_job_warnings(job, &count);
    for (size_t i = 0; i < count && i < MAX_WARNINGS; i++)
        fr_errorf(NULL, "%s", warnings[i]);
    if (count > MAX_WARNINGS)
        fr_errorf(NULL, "%zu more warnings like these", count - MAX_WARNINGS);
}

int dump_calls(const struct dump_options *options)
{
    static const struct dump_printer *const printers[] = {[DUMP_TEXT] = &dump_text,
                                                          [DUMP_JSON] = &dump_json,
                                                          [DUMP_CSV] = &dump_csv,
                                                          [DUMP_PERFETTO] = &dump_perfetto};
    const struct dump_printer *printer = printers[options->mode];
    if (options->by_site)
        printer = options->mode == DUMP_JSON ? &dump_sites_json : &dump_sites;
    struct rec_job *job = dump_open(options);
    if (!job)
        return FR_EXIT_ERROR;
    print_warnings(job);
    struct rec_scan_filter filter;
    int status = parse_filter(options, job, &filter);
    size_t count;
    struct rec_process *const *processes = rec_job_processes(job, &count);
    bool any = false;
    if (status == 0 && printer->begin)
        printer->begin(job);
    for (size_t i = 0; printer->survey && i < count && status == 0; i++)
        if (dump_rank_wanted(options, processes[i]))
            status = survey_process(options, printer, job, processes[i], &filter);
    for (size_t i = 0; i < count && status == 0 && !out_failed(); i++) {
        if (!dump_rank_wanted(options, processes[i]))
            continue;
        any = true;
        status = print_process(options, printer, job, processes[i], &filter);
    }
    if (status == 0 && any && printer->finish)
        status = printer->finish();
    if (status == 0 && !any)
        status = fr_errorf(options->paths[0], "no trace of these ranks");
    rec_job_close(job);
    return status;
}
