/* The verdict as JSON, schema fr-verdict/1 (docs/fr-verdict-1.schema.json). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report.h"

static json_t *comm_json(const struct rec_communicator *comm, bool *ok)
{
    if (!comm)
        return json_null();
    char uid[24];
    snprintf(uid, sizeof uid, "%016" PRIx64, comm->uid);
    json_t *object = json_object();
    report_put(object, "uid", json_string(uid), ok);
    report_put(object, "name", report_text(comm->name), ok);
    report_put(object, "nranks", json_integer(comm->nranks), ok);
    return object;
}

static json_t *op_json(const struct rec_op *op, bool *ok)
{
    json_t *object = json_object();
    unsigned flags = rec_kind_flags(op->kind);
    const char *name = rec_kind_name(op->kind), *dtype = rec_dtype_name(op->dtype),
               *redop = rec_redop_name(op->redop);
    if (name)
        report_put(object, "op", json_string(name), ok);
    if (flags & REC_KF_DATA)
        report_put(object, "count", json_integer((json_int_t)op->count), ok);
    if ((flags & REC_KF_DATA) && dtype)
        report_put(object, "datatype", json_string(dtype), ok);
    if ((flags & REC_KF_REDOP) && redop)
        report_put(object, "redop", json_string(redop), ok);
    if (flags & REC_KF_ROOT)
        report_put(object, "root", json_integer(op->peer), ok);
    if ((flags & (REC_KF_P2P | REC_KF_RMA)) && op->peer >= 0)
        report_put(object, "peer", json_integer(op->peer), ok);
    if ((flags & REC_KF_RMA) && rec_signal_known(op->signal)) {
        report_put(object, "signal", json_integer(rec_signal_index(op->signal)), ok);
        report_put(object, "context", json_integer(rec_signal_context(op->signal)), ok);
    }
    return object;
}

static json_t *evidence_json(const struct rec_finding *f, bool *ok)
{
    json_t *array = json_array();
    for (size_t i = 0; i < f->nevidence; i++) {
        const struct rec_evidence *e = &f->evidence[i];
        json_t *object = json_object();
        report_put(object, "text", report_text(e->text), ok);
        if (e->rank >= 0)
            report_put(object, "rank", json_integer(e->rank), ok);
        if (e->seq != UINT64_MAX)
            report_put(object, "seq", json_integer((json_int_t)e->seq), ok);
        report_time(object, "time", e->time_ns, ok);
        if (e->file)
            report_put(object, "file", report_text(e->file), ok);
        if (json_array_append_new(array, object) != 0)
            *ok = false;
    }
    return array;
}

static json_t *hosts_json(const struct rec_job *job, const struct rec_verdict *verdict,
                          const struct rec_finding *f, bool *ok)
{
    json_t *array = json_array();
    size_t count;
    const char **hosts = rec_finding_hosts(job, verdict, f, &count);
    *ok = *ok && hosts;
    for (size_t i = 0; hosts && i < count; i++)
        if (json_array_append_new(array, report_text(hosts[i])) != 0)
            *ok = false;
    free(hosts);
    return array;
}

static json_t *finding_json(const struct rec_job *job, const struct rec_verdict *verdict,
                            const struct rec_finding *f, bool *ok)
{
    json_t *object = json_object();
    report_put(object, "type", json_string(rec_verdict_type_name(f->type)), ok);
    report_put(object, "confidence", json_string(rec_confidence_name(f->confidence)), ok);
    report_put(object, "summary", report_text(f->summary ? f->summary : ""), ok);
    report_ranks(object, "culprit_ranks", f->culprits, f->nculprits, ok);
    report_put(object, "culprit_hosts", hosts_json(job, verdict, f, ok), ok);
    report_put(object, "comm", comm_json(f->comm, ok), ok);
    report_put(object, "seq", f->seq == UINT64_MAX ? json_null() : json_integer((json_int_t)f->seq), ok);
    report_put(object, "evidence", evidence_json(f, ok), ok);
    report_ranks(object, "suspect_ranks", f->suspects, f->nsuspects, ok);
    report_ranks(object, "victim_ranks", f->victims, f->nvictims, ok);
    if (f->op.kind != REC_NONE)
        report_put(object, "op", op_json(&f->op, ok), ok);
    return object;
}

/* Of the last generation. */
static json_t *ranks_json(const struct rec_job *job, const struct rec_census *census, bool *ok)
{
    size_t nprocs, last = census->ngenerations - 1;
    struct rec_process *const *procs = rec_job_processes(job, &nprocs);
    uint32_t expected = census->generations[last].expected;
    json_t *object = json_object(), *present = json_array(), *missing = json_array(), *dead = json_array();
    int64_t before = -1;
    for (size_t i = 0; i < nprocs; i++) {
        const struct rec_process *p = procs[i];
        if (p->rank < 0 || census->generation_of[p->index] != last)
            continue;
        for (int64_t rank = before + 1; rank < p->rank && rank < expected; rank++)
            if (json_array_append_new(missing, json_integer(rank)) != 0)
                *ok = false;
        if (p->rank != before && json_array_append_new(present, json_integer(p->rank)) != 0)
            *ok = false;
        before = p->rank;
        if ((p->fate == REC_FATE_SIGNALED || p->fate == REC_FATE_VANISHED) &&
            json_array_append_new(dead, json_integer(p->rank)) != 0)
            *ok = false;
    }
    for (int64_t rank = before + 1; rank < expected; rank++)
        if (json_array_append_new(missing, json_integer(rank)) != 0)
            *ok = false;
    report_put(object, "expected", expected ? json_integer(expected) : json_null(), ok);
    report_put(object, "present", present, ok);
    report_put(object, "missing", missing, ok);
    report_put(object, "dead", dead, ok);
    return object;
}

static json_t *input_json(const struct rec_job *job, bool *ok)
{
    struct rec_job_input input;
    rec_job_input(job, &input);
    json_t *object = json_object();
    report_put(object, "files", json_integer(input.files), ok);
    report_put(object, "live_regions", json_integer(input.live), ok);
    report_put(object, "salvaged", json_integer(input.salvaged), ok);
    report_put(object, "unreadable", json_integer(input.unreadable), ok);
    report_put(object, "dropped_ops", json_integer((json_int_t)input.dropped_ops), ok);
    size_t count;
    const char *const *warnings = rec_job_warnings(job, &count);
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        if (json_array_append_new(array, report_text(warnings[i])) != 0)
            *ok = false;
    report_put(object, "warnings", array, ok);
    return object;
}

static json_t *job_json(const struct rec_job *job, bool *ok)
{
    const struct rec_job_info *info = rec_job_info(job);
    json_t *object = json_object();
    report_put(object, "id", report_text(info->id ? info->id : ""), ok);
    report_time(object, "start", info->start_ns, ok);
    report_time(object, "last", info->last_ns, ok);
    return object;
}

char *rec_verdict_json(const struct rec_job *job, const struct rec_verdict *verdict)
{
    bool ok = true;
    json_t *root = json_object(), *findings = json_array();
    report_put(root, "schema", json_string("fr-verdict/1"), &ok);
    report_put(root, "status", json_string(rec_status_name(verdict->status)), &ok);
    report_put(root, "job", job_json(job, &ok), &ok);
    report_put(root, "verdict", finding_json(job, verdict, &verdict->findings[0], &ok), &ok);
    for (size_t i = 0; i < verdict->nfindings; i++)
        if (json_array_append_new(findings, finding_json(job, verdict, &verdict->findings[i], &ok)) != 0)
            ok = false;
    report_put(root, "findings", findings, &ok);
    report_put(root, "ranks", ranks_json(job, verdict->census, &ok), &ok);
    report_put(root, "input", input_json(job, &ok), &ok);
    report_census(root, verdict->census, &ok);
    char *text = ok ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return text;
}
