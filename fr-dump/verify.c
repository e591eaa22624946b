#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dump.h"
#include "out.h"
#include "rec/reader.h"

struct totals {
    uint64_t files, damaged, torn, ops, lost;
    uint64_t first_ns, last_ns;
};

/* What one file holds, by reading all of it. */
struct content {
    struct rec_reader_stats stats;
    uint64_t lost;
    uint64_t first_ns, last_ns;
    bool io_error;
};

static void note_time(uint64_t ns, uint64_t *first, uint64_t *last)
{
    if (ns && (*first == 0 || ns < *first))
        *first = ns;
    if (ns > *last)
        *last = ns;
}

static void read_content(struct rec_reader *reader, struct content *content, struct rec_error *err)
{
    struct rec_event event;
    enum rec_code code;
    while ((code = rec_reader_next(reader, &event, err)) == REC_OK) {
        if (event.type == REC_EV_OP)
            note_time(event.u.op.enter_ns, &content->first_ns, &content->last_ns);
        if (event.type == REC_EV_LOSS)
            content->lost += event.u.loss.count;
        note_time(event.time_ns, &content->first_ns, &content->last_ns);
    }
    content->io_error = code != REC_END;
    rec_reader_stats(reader, &content->stats);
}

static void print_content(const char *path, const struct content *content)
{
    const struct rec_reader_stats *stats = &content->stats;
    char name[4096], first[64], last[64], problem[256];
    const char *state = stats->damages     ? "damaged"
                        : stats->unwritten ? "cut"
                        : stats->closed    ? "ok"
                        : stats->torn_tail ? "torn"
                                           : "open";
    out_format("%-8s %10" PRIu64 " %8" PRIu64 " %5" PRIu64 " %-23s %-23s %s\n", state, stats->ops,
               content->lost, stats->segments, dump_date(content->first_ns, first, sizeof(first)),
               dump_date(content->last_ns, last, sizeof(last)), fr_clean(name, sizeof(name), path));
    if (stats->unwritten)
        out_format("         could not be written to its end%s%s; at least %" PRIu64 " calls are missing\n",
                   stats->write_error ? ": " : "", stats->write_error ? strerror(stats->write_error) : "",
                   stats->unwritten_ops);
    if (stats->damages)
        out_format("         %s; %" PRIu64 " bytes skipped in %u %s\n",
                   fr_clean(problem, sizeof(problem), stats->first_problem), stats->damaged_bytes,
                   stats->damages, stats->damages == 1 ? "place" : "places");
}

static int verify_file(const char *path, struct totals *totals)
{
    struct rec_reader *reader;
    struct rec_error err = {0};
    totals->files++;
    if (rec_reader_open(path, &reader, &err) != REC_OK) {
        totals->damaged++;
        fr_error(&err);
        return err.code == REC_ERR_IO || err.code == REC_ERR_NOMEM ? FR_EXIT_ERROR : 1;
    }
    struct content content = {0};
    read_content(reader, &content, &err);
    rec_reader_close(reader);
    print_content(path, &content);
    totals->ops += content.stats.ops;
    totals->lost += content.lost;
    totals->torn += content.stats.torn_tail;
    note_time(content.first_ns, &totals->first_ns, &totals->last_ns);
    note_time(content.last_ns, &totals->first_ns, &totals->last_ns);
    if (content.io_error)
        return fr_error(&err);
    totals->damaged += content.stats.damages > 0;
    return content.stats.damages > 0;
}

static int select_frec(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 5 && strcmp(entry->d_name + length - 5, ".frec") == 0;
}

static int verify_directory(const char *dir, struct totals *totals)
{
    struct dirent **entries;
    int status = 0, count = scandir(dir, &entries, select_frec, alphasort);
    if (count < 0)
        return fr_errorf(dir, "%s", strerror(errno));
    if (count == 0)
        status = fr_errorf(dir, "no trace (*.frec) found");
    for (int i = 0; i < count; i++) {
        char *path;
        int result = FR_EXIT_ERROR;
        if (asprintf(&path, "%s/%s", dir, entries[i]->d_name) >= 0) {
            result = verify_file(path, totals);
            free(path);
        }
        status = result > status ? result : status;
        free(entries[i]);
    }
    free(entries);
    return status;
}

int dump_verify(const struct dump_options *options)
{
    struct totals totals = {0};
    int status = 0;
    out_format("%-8s %10s %8s %5s %-23s %-23s %s\n", "STATE", "CALLS", "LOST", "SEGS", "FIRST", "LAST",
               "FILE");
    for (size_t i = 0; i < options->npaths; i++) {
        struct stat info;
        int result;
        if (stat(options->paths[i], &info) != 0)
            result = fr_errorf(options->paths[i], "%s", strerror(errno));
        else if (S_ISDIR(info.st_mode))
            result = verify_directory(options->paths[i], &totals);
        else
            result = verify_file(options->paths[i], &totals);
        status = result > status ? result : status;
    }
    char first[64], last[64];
    out_format("%-8s %10" PRIu64 " %8" PRIu64 " %5s %-23s %-23s %" PRIu64 " %s, %" PRIu64 " damaged\n",
               "total", totals.ops, totals.lost, "", dump_date(totals.first_ns, first, sizeof(first)),
               dump_date(totals.last_ns, last, sizeof(last)), totals.files,
               totals.files == 1 ? "file" : "files", totals.damaged);
    return status;
}
