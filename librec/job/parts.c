#include "parts.h"

#include <stdlib.h>
#include <unistd.h>

static enum rec_code no_memory(struct rec_error *err)
{
    return rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
}

/* With a time filter: begin at the first segment that can matter, stop behind the last. */
static void skip_segments(struct job_parts *parts)
{
    const struct rec_segment_info *segments;
    size_t count, first = 0;
    parts->stop_offset = 0;
    if ((parts->filter.from_ns == 0 && parts->filter.to_ns == 0) ||
        rec_reader_segments(parts->reader, &segments, &count, NULL) != REC_OK)
        return;
    while (first < count && segments[first].last_ns && segments[first].last_ns < parts->filter.from_ns)
        first++;
    size_t last = count;
    while (parts->filter.to_ns && last > first && segments[last - 1].first_ns > parts->filter.to_ns)
        last--;
    if (last < count)
        parts->stop_offset = segments[last].offset;
    if (first > 0 && first < count && rec_reader_seek(parts->reader, first, NULL) != REC_OK)
        parts->stop_offset = 0;
}

/* NULL = all that are known were read. */
static struct job_part *current_part(struct job_parts *parts)
{
    struct job_source *source = &parts->process->source;
    if (parts->part < source->nparts)
        return &source->parts[parts->part];
    return parts->in_following ? &parts->following : NULL;
}

static void leave_part(struct job_parts *parts)
{
    if (parts->part < parts->process->source.nparts)
        parts->part++;
    else
        parts->in_following = false;
}

/*
 * What was in the region when the job was opened may have been drained into a part that was
 * not there then. Loading adds it to the process; a scan, which changes nothing, keeps it to
 * itself. REC_END: there is none.
 */
static enum rec_code follow(struct job_parts *parts, struct rec_error *err)
{
    struct job_source *source = &parts->process->source;
    if (!source->live || source->nparts == 0)
        return REC_END;
    const struct job_part *last =
        parts->following.path ? &parts->following : &source->parts[source->nparts - 1];
    struct job_part next;
    if (last->number >= JOB_RECOVERED_PART)
        return REC_END;
    enum rec_code code = job_find_following(source, last, &next, err);
    if (code != REC_OK)
        return code;
    if (parts->loading) {
        if (job_source_append(source, &next))
            return REC_OK;
        free(next.path);
        return no_memory(err);
    }
    free(parts->following.path);
    parts->following = next;
    parts->in_following = true;
    return REC_OK;
}

static void note_stats(struct job_parts *parts)
{
    struct rec_reader_stats stats;
    struct job_process *process = parts->process;
    rec_reader_stats(parts->reader, &stats);
    const char *path = current_part(parts)->path;
    bool last = parts->part + 1 == process->source.nparts;
    if (stats.damages > 0) {
        process->pub.damaged = true;
        job_warn(&process->warnings, path, "%s",
                 stats.first_problem[0] ? stats.first_problem : "damaged; the rest was kept");
    }
    if (stats.torn_tail) {
        process->pub.torn_tail = true;
        if (!last)
            job_warn(&process->warnings, path, "ends inside a record although a later part exists");
    }
    if (stats.damages > 0 || stats.torn_tail)
        process->files_salvaged++;
}

static void close_part(struct job_parts *parts)
{
    if (parts->loading)
        note_stats(parts);
    rec_reader_close(parts->reader);
    parts->reader = NULL;
    leave_part(parts);
}

/*
 * A part that cannot be read, or not to its end. Loading remembers and warns; a scan passes
 * over what loading could not read, and over parts that rotation has removed since.
 */
static bool pass_over(struct job_parts *parts, const struct rec_error *problem)
{
    struct job_process *process = parts->process;
    struct job_part *part = current_part(parts);
    if (problem->code == REC_ERR_NOMEM)
        return false;
    if (!parts->loading)
        return part->broken || access(part->path, F_OK) != 0;
    job_warn(&process->warnings, part->path, "%s", problem->text);
    part->broken = true;
    return true;
}

/* Opens the current part, or passes over it (REC_END). */
static enum rec_code open_part(struct job_parts *parts, struct rec_error *err)
{
    struct job_process *process = parts->process;
    struct rec_error problem = {0};
    enum rec_code code = rec_reader_open(current_part(parts)->path, &parts->reader, &problem);
    if (code == REC_OK) {
        if (parts->loading)
            process->files_read++;
        skip_segments(parts);
        return REC_OK;
    }
    if (pass_over(parts, &problem)) {
        if (parts->loading) {
            process->files_unreadable++;
            process->pub.damaged = true; /* what it held is unknown */
        }
        leave_part(parts);
        return REC_END;
    }
    if (err)
        *err = problem;
    return code;
}

enum rec_code job_parts_next(struct job_parts *parts, struct rec_event *event, struct rec_error *err)
{
    for (;;) {
        if (!parts->reader) {
            enum rec_code code = current_part(parts) ? REC_OK : follow(parts, err);
            if (code != REC_OK)
                return code;
            code = open_part(parts, err);
            if (code == REC_END)
                continue;
            if (code != REC_OK)
                return code;
        }
        struct rec_error problem; /* filled on failure only: this loop is hot */
        enum rec_code code = rec_reader_next(parts->reader, event, &problem);
        if (code == REC_OK && !(parts->stop_offset && event->offset >= parts->stop_offset))
            return REC_OK;
        if (code != REC_OK && code != REC_END) {
            if (!pass_over(parts, &problem)) {
                if (err)
                    *err = problem;
                return code;
            }
            if (parts->loading)
                parts->process->pub.damaged = true;
        }
        close_part(parts);
    }
}

void job_parts_fini(struct job_parts *parts)
{
    rec_reader_close(parts->reader);
    free(parts->following.path);
    *parts = (struct job_parts){0};
}
