/* The verdict as JSON, schema fr-verdict/1 (docs/fr-verdict-1.schema.json). */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rec/verdict.h"

/*
 * jansson's *_new functions take over the reference of what they are given and do nothing
 * with NULL, so a failed allocation shows as one failing set: ok collects these.
 */
static void put(json_t *object, const char *key, json_t *value, bool *ok)
{
    if (json_object_set_new(object, key, value) != 0)
        *ok = false;
}

/* Names come from traces: what is no UTF-8 would be refused. */
static json_t *text_json(const char *text)
{
    json_t *value = json_string(text);
    if (value)
        return value;
    char ascii[1024];
    size_t n = 0;
    for (; text[n] && n + 1 < sizeof ascii; n++)
        ascii[n] = (unsigned char)text[n] < 0x80 ? text[n] : '?';
    ascii[n] = '\0';
    return json_string(ascii);
}

static void put_ranks(json_t *object, const char *key, const int32_t *ranks, size_t count, bool *ok)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        if (json_array_append_new(array, json_integer(ranks[i])) != 0)
            *ok = false;
    put(object, key, array, ok);
}

static void put_time(json_t *object, const char *key, uint64_t ns, bool *ok)
{
    char text[64], stem[32];
    time_t seconds = (time_t)(ns / 1000000000);
    struct tm tm;
    if (!ns || !gmtime_r(&seconds, &tm))
        return;
    strftime(stem, sizeof stem, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof text, "%s.%09" PRIu64 "Z", stem, ns % 1000000000);
    put(object, key, json_string(text), ok);
}

static json_t *comm_json(const struct rec_communicator *comm, bool *ok)
{
    if (!comm)
        return json_null();
    char uid[24];
    snprintf(uid, sizeof uid, "%016" PRIx64, comm->uid);
    json_t *object = json_object();
    put(object, "uid", json_string(uid), ok);
    put(object, "name", text_json(comm->name), ok);
    put(object, "nranks", json_integer(comm->nranks), ok);
    return object;
}

static json_t *op_json(const struct rec_op *op, bool *ok)
{
    json_t *object = json_object();
    unsigned flags = rec_kind_flags(op->kind);
    const char *name = rec_kind_name(op->kind), *dtype = rec_dtype_name(op->dtype),
               *redop = rec_redop_name(op->redop);
    if (name)
        put(object, "op", json_string(name), ok);
    if (flags & REC_KF_DATA)
        put(object, "count", json_integer((json_int_t)op->count), ok);
    if ((flags & REC_KF_DATA) && dtype)
        put(object, "datatype", json_string(dtype), ok);
    if ((flags & REC_KF_REDOP) && redop)
        put(object, "redop", json_string(redop), ok);
    if (flags & REC_KF_ROOT)
        put(object, "root", json_integer(op->peer), ok);
    if (flags & REC_KF_P2P)
        put(object, "peer", json_integer(op->peer), ok);
    return object;
}

static json_t *evidence_json(const struct rec_finding *f, bool *ok)
{
    json_t *array = json_array();
    for (size_t i = 0; i < f->nevidence; i++) {
        const struct rec_evidence *e = &f->evidence[i];
        json_t *object = json_object();
        put(object, "text", text_json(e->text), ok);
        if (e->rank >= 0)
            put(object, "rank", json_integer(e->rank), ok);
        if (e->seq != UINT64_MAX)
            put(object, "seq", json_integer((json_int_t)e->seq), ok);
        put_time(object, "time", e->time_ns, ok);
        if (e->file)
            put(object, "file", text_json(e->file), ok);
        if (json_array_append_new(array, object) != 0)
            *ok = false;
    }
    return array;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The hosts of the culprits, each once. */
static json_t *hosts_json(const struct rec_job *job, const struct rec_finding *f, bool *ok)
{
    json_t *array = json_array();
    size_t nprocs, count = 0, next = 0;
    struct rec_process *const *procs = rec_job_processes(job, &nprocs);
    const char **hosts = malloc((nprocs + 1) * sizeof *hosts);
    *ok = *ok && hosts;
    /* Processes and culprits are both sorted by rank. */
    for (size_t i = 0; hosts && i < nprocs; i++) {
        while (next < f->nculprits && f->culprits[next] < procs[i]->rank)
            next++;
        if (next < f->nculprits && f->culprits[next] == procs[i]->rank && procs[i]->host[0])
            hosts[count++] = procs[i]->host;
    }
    if (count)
        qsort(hosts, count, sizeof *hosts, compare_names);
    for (size_t i = 0; i < count; i++)
        if ((!i || strcmp(hosts[i], hosts[i - 1]) != 0) &&
            json_array_append_new(array, text_json(hosts[i])) != 0)
            *ok = false;
    free(hosts);
    return array;
}

static json_t *finding_json(const struct rec_job *job, const struct rec_finding *f, bool *ok)
{
    json_t *object = json_object();
    put(object, "type", json_string(rec_verdict_type_name(f->type)), ok);
    put(object, "confidence", json_string(rec_confidence_name(f->confidence)), ok);
    put(object, "summary", text_json(f->summary ? f->summary : ""), ok);
    put_ranks(object, "culprit_ranks", f->culprits, f->nculprits, ok);
    put(object, "culprit_hosts", hosts_json(job, f, ok), ok);
    put(object, "comm", comm_json(f->comm, ok), ok);
    put(object, "seq", f->seq == UINT64_MAX ? json_null() : json_integer((json_int_t)f->seq), ok);
    put(object, "evidence", evidence_json(f, ok), ok);
    put_ranks(object, "suspect_ranks", f->suspects, f->nsuspects, ok);
    put_ranks(object, "victim_ranks", f->victims, f->nvictims, ok);
    if (f->op.kind != REC_NONE)
        put(object, "op", op_json(&f->op, ok), ok);
    return object;
}

static json_t *ranks_json(const struct rec_job *job, bool *ok)
{
    size_t nprocs;
    struct rec_process *const *procs = rec_job_processes(job, &nprocs);
    uint32_t expected = rec_job_expected_ranks(job);
    json_t *object = json_object(), *present = json_array(), *missing = json_array(), *dead = json_array();
    int64_t before = -1;
    for (size_t i = 0; i < nprocs; i++) {
        const struct rec_process *p = procs[i];
        if (p->rank < 0)
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
    put(object, "expected", expected ? json_integer(expected) : json_null(), ok);
    put(object, "present", present, ok);
    put(object, "missing", missing, ok);
    put(object, "dead", dead, ok);
    return object;
}

static json_t *input_json(const struct rec_job *job, bool *ok)
{
    struct rec_job_input input;
    rec_job_input(job, &input);
    json_t *object = json_object();
    put(object, "files", json_integer(input.files), ok);
    put(object, "live_regions", json_integer(input.live), ok);
    put(object, "salvaged", json_integer(input.salvaged), ok);
    put(object, "unreadable", json_integer(input.unreadable), ok);
    put(object, "dropped_ops", json_integer((json_int_t)input.dropped_ops), ok);
    size_t count;
    const char *const *warnings = rec_job_warnings(job, &count);
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        if (json_array_append_new(array, text_json(warnings[i])) != 0)
            *ok = false;
    put(object, "warnings", array, ok);
    return object;
}

static json_t *job_json(const struct rec_job *job, bool *ok)
{
    const struct rec_job_info *info = rec_job_info(job);
    json_t *object = json_object();
    put(object, "id", text_json(info->id ? info->id : ""), ok);
    put_time(object, "start", info->start_ns, ok);
    put_time(object, "last", info->last_ns, ok);
    return object;
}

char *rec_verdict_json(const struct rec_job *job, const struct rec_verdict *verdict)
{
    bool ok = true;
    json_t *root = json_object(), *findings = json_array();
    put(root, "schema", json_string("fr-verdict/1"), &ok);
    put(root, "status", json_string(rec_status_name(verdict->status)), &ok);
    put(root, "job", job_json(job, &ok), &ok);
    put(root, "verdict", finding_json(job, &verdict->findings[0], &ok), &ok);
    for (size_t i = 0; i < verdict->nfindings; i++)
        if (json_array_append_new(findings, finding_json(job, &verdict->findings[i], &ok)) != 0)
            ok = false;
    put(root, "findings", findings, &ok);
    put(root, "ranks", ranks_json(job, &ok), &ok);
    put(root, "input", input_json(job, &ok), &ok);
    char *text = ok ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return text;
}
