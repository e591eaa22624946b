/*
 * The records of a process's file, part after part. Loading takes note of what is wrong with
 * each part and of parts that have come since they were listed; a scan changes nothing in the
 * process and passes over what loading could not read.
 */
#ifndef REC_JOB_PARTS_H
#define REC_JOB_PARTS_H

#include "internal.h"

struct job_parts {
    struct job_process *process;
    bool loading;
    struct rec_scan_filter filter; /* segments without wanted ops may be passed over */

    size_t part;
    struct job_part following; /* behind all that loading knew of; read when part is at their end */
    bool in_following;
    struct rec_reader *reader;
    uint64_t stop_offset; /* nothing wanted at or behind it; 0 = none */
};

/* The next record; REC_END when there is no more. The first three fields are set, the others zero, at first.
 */
enum rec_code job_parts_next(struct job_parts *parts, struct rec_event *event, struct rec_error *err);
void job_parts_fini(struct job_parts *parts);

#endif
