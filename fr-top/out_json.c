/* The snapshot as one JSON document, schema fr-top/1. A field that is unknown is absent. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "fr-top/diagnosis.h"
#include "fr-top/top.h"
#include "fr-common.h"

static json_t *text(const char *value)
{
    json_t *string = json_string(value);
    if (string != NULL)
        return string;
    char clean[2048]; /* no UTF-8 */
    return json_string(fr_clean(clean, sizeof clean, value));
}

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static void set_rate(json_t *object, const char *key, double value)
{
    if (!isnan(value))
        json_object_set_new(object, key, json_real(value));
}

static json_t *uid_text(uint64_t uid)
{
    char hex[20];
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)uid);
    return json_string(hex);
}

static void set_comm(json_t *object, const struct top_member *member)
{
    if (member->uid != 0)
        json_object_set_new(object, "comm", uid_text(member->uid));
    if (member->name[0] != '\0')
        json_object_set_new(object, "comm_name", text(member->name));
    if (member->comm_rank != REC_ID_NONE)
        json_object_set_new(object, "comm_rank", number(member->comm_rank));
    if (member->nranks != 0)
        json_object_set_new(object, "nranks", number(member->nranks));
}

static json_t *op_json(const struct top_snapshot *snapshot, const struct top_process *process,
                       const struct top_op *op, bool open)
{
    char name[32];
    json_t *object = json_object();
    top_text_op(name, sizeof name, &op->op);
    json_object_set_new(object, "op", text(name));
    if (op->member != TOP_NONE && op->member < process->nmembers) {
        set_comm(object, &snapshot->members[process->first_member + op->member]);
        json_object_set_new(object, "seq", number(op->op.seq));
    }
    if (rec_kind_flags(op->op.kind) & REC_KF_DATA)
        json_object_set_new(object, "count", number(op->op.count));
    const char *dtype = rec_dtype_name(op->op.dtype);
    if (dtype != NULL)
        json_object_set_new(object, "datatype", text(dtype));
    if (op->op.peer >= 0 && rec_kind_flags(op->op.kind) & (REC_KF_P2P | REC_KF_ROOT))
        json_object_set_new(object, rec_kind_flags(op->op.kind) & REC_KF_P2P ? "peer" : "root",
                            json_integer(op->op.peer));
    const char *state = rec_state_name(op->op.state);
    if (state != NULL && op->op.state != REC_STATE_UNKNOWN)
        json_object_set_new(object, "state", text(state));
    json_object_set_new(object, "enter_ns", number(op->op.enter_ns));
    if (!open)
        json_object_set_new(object, "exit_ns", number(op->op.exit_ns));
    return object;
}

static json_t *rank_json(const struct top_snapshot *snapshot, const struct top_process *process)
{
    char end[64];
    json_t *object = json_object();
    if (process->rank >= 0)
        json_object_set_new(object, "rank", json_integer(process->rank));
    if (process->derived_rank)
        json_object_set_new(object, "rank_derived", json_true());
    json_object_set_new(object, "host", text(process->host));
    json_object_set_new(object, "pid", json_integer(process->pid));
    json_object_set_new(object, "job", text(process->job));
    json_object_set_new(object, "state", text(top_state_name(process->state)));
    const char *role = rec_role_name(top_role_of(snapshot->verdict, process));
    if (role[0] != '\0')
        json_object_set_new(object, "role", text(role));
    top_text_end(end, sizeof end, process);
    if (end[0] != '\0')
        json_object_set_new(object, "end", text(end));
    if (process->alive_ns != 0)
        json_object_set_new(object, "alive_ns", number(process->alive_ns));
    if (process->last_call_ns != 0)
        json_object_set_new(object, "last_call_ns", number(process->last_call_ns));
    json_object_set_new(object, "ops", number(process->ops));
    json_object_set_new(object, "lost_ops", number(process->lost));
    json_object_set_new(object, "lag", number(process->lag));
    json_object_set_new(object, "gpu_pending", number(process->pending));
    set_rate(object, "ops_per_s", process->ops_per_s);
    set_rate(object, "bytes_per_s", process->bytes_per_s);
    if (process->file_error != 0)
        json_object_set_new(object, "trace_errno", number(process->file_error));
    json_t *open = json_array();
    uint32_t kept = process->nopen < TOP_MAX_OPEN ? process->nopen : TOP_MAX_OPEN;
    for (uint32_t i = 0; i < kept; i++)
        json_array_append_new(open, op_json(snapshot, process, &process->open[i], true));
    json_object_set_new(object, "open", open);
    if (!process->in_call && process->now.op.kind != REC_NONE)
        json_object_set_new(object, "last", op_json(snapshot, process, &process->now, false));
    return object;
}

static json_t *comm_json(const struct top_snapshot *snapshot, const struct top_comm *comm)
{
    json_t *object = json_object(), *members = json_array();
    if (comm->uid != 0)
        json_object_set_new(object, "comm", uid_text(comm->uid));
    if (comm->parent_uid != 0)
        json_object_set_new(object, "parent", uid_text(comm->parent_uid));
    if (comm->name[0] != '\0')
        json_object_set_new(object, "comm_name", text(comm->name));
    json_object_set_new(object, "nranks", number(comm->nranks));
    json_object_set_new(object, "front_seq", number(comm->front));
    json_object_set_new(object, "spread", number(comm->front - comm->back));
    json_object_set_new(object, "lagging", number(comm->lagging));
    for (uint32_t m = 0; m < comm->nmembers; m++) {
        const struct top_member *member = &snapshot->members[comm->members[m]];
        const struct top_process *process = &snapshot->processes[member->process];
        json_t *entry = json_object();
        if (process->rank >= 0)
            json_object_set_new(entry, "rank", json_integer(process->rank));
        json_object_set_new(entry, "pid", json_integer(process->pid));
        if (member->comm_rank != REC_ID_NONE)
            json_object_set_new(entry, "comm_rank", number(member->comm_rank));
        json_object_set_new(entry, "next_seq", number(member->next_seq));
        json_object_set_new(entry, "p2p", number(member->p2p));
        json_object_set_new(entry, "lag", number(member->lag));
        json_array_append_new(members, entry);
    }
    json_object_set_new(object, "members", members);
    return object;
}

static json_t *host_json(const struct top_host *host)
{
    json_t *object = json_object();
    json_object_set_new(object, "host", text(host->name));
    json_object_set_new(object, "processes", number(host->processes));
    json_object_set_new(object, "up", number(host->up));
    json_object_set_new(object, "stalled", number(host->stuck));
    json_object_set_new(object, "ended", number(host->ended));
    json_object_set_new(object, "lost_ops", number(host->lost));
    set_rate(object, "ops_per_s", host->ops_per_s);
    set_rate(object, "bytes_per_s", host->bytes_per_s);
    return object;
}

static json_t *ranks_json(const int32_t *ranks, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, json_integer(ranks[i]));
    return array;
}

static json_t *kind_json(const struct top_kind *kind)
{
    json_t *object = json_object();
    const char *name = rec_kind_name(kind->kind);
    json_object_set_new(object, "op", text(name != NULL ? name : "?"));
    json_object_set_new(object, "ranks", number(kind->ranks));
    set_rate(object, "calls_per_s", kind->sum.calls);
    set_rate(object, "mean_bytes", kind->sum.size / kind->sum.calls);
    set_rate(object, "alg_bytes_per_s", kind->sum.size / kind->ranks);
    set_rate(object, "bus_bytes_per_s", kind->sum.bus / kind->ranks);
    if (kind->sum.timed_s > 0)
        set_rate(object, "gpu_bus_bytes_per_s", kind->sum.timed_bus / kind->sum.timed_s);
    return object;
}

static json_t *verdict_json(const struct top_verdict *verdict)
{
    json_t *object = json_object();
    json_object_set_new(object, "status", text(rec_status_name(verdict->status)));
    json_object_set_new(object, "type", text(rec_verdict_type_name(verdict->type)));
    json_object_set_new(object, "confidence", text(rec_confidence_name(verdict->confidence)));
    json_object_set_new(object, "summary", text(verdict->summary));
    json_object_set_new(object, "job", text(verdict->job));
    json_object_set_new(object, "culprit_ranks", ranks_json(verdict->culprits, verdict->nculprits));
    json_object_set_new(object, "time_ns", number(verdict->at_ns));
    return object;
}

static json_t *totals_json(const struct top_snapshot *snapshot)
{
    json_t *totals = json_object(), *states = json_object();
    json_object_set_new(totals, "processes", number(snapshot->nprocesses));
    json_object_set_new(totals, "up", number(snapshot->up));
    json_object_set_new(totals, "stalled", number(snapshot->stuck));
    json_object_set_new(totals, "ended", number(snapshot->ended));
    if (snapshot->world > 0)
        json_object_set_new(totals, "expected_ranks", number(snapshot->world));
    for (enum top_state s = 0; s < TOP_STATES; s++)
        json_object_set_new(states, top_state_name(s), number(snapshot->states[s]));
    json_object_set_new(totals, "states", states);
    if (snapshot->absent != NULL) {
        json_t *absent = json_array();
        for (uint32_t i = 0; i < snapshot->nabsent; i++)
            json_array_append_new(absent, json_integer(snapshot->absent[i]));
        json_object_set_new(totals, "absent_ranks", absent);
    }
    json_object_set_new(totals, "lost_ops", number(snapshot->lost));
    set_rate(totals, "ops_per_s", snapshot->ops_per_s);
    set_rate(totals, "bytes_per_s", snapshot->bytes_per_s);
    if (snapshot->oldest_gpu != TOP_NONE)
        json_object_set_new(
            totals, "oldest_gpu_ns",
            number(snapshot->now_ns - snapshot->processes[snapshot->oldest_gpu].now.since_ns));
    if (snapshot->oldest != TOP_NONE)
        json_object_set_new(totals, "oldest_open_ns",
                            number(snapshot->now_ns - snapshot->processes[snapshot->oldest].now.since_ns));
    return totals;
}

int top_write_json(const struct top_snapshot *snapshot)
{
    json_t *root = json_object(), *ranks = json_array(), *comms = json_array(), *hosts = json_array();
    json_object_set_new(root, "schema", json_string("fr-top/1"));
    json_object_set_new(root, "time_ns", number(snapshot->now_ns));
    json_object_set_new(root, "job", text(snapshot->job));
    json_object_set_new(root, "totals", totals_json(snapshot));
    for (uint32_t i = 0; i < snapshot->nprocesses; i++)
        json_array_append_new(ranks, rank_json(snapshot, &snapshot->processes[i]));
    for (uint32_t i = 0; i < snapshot->ncomms; i++)
        json_array_append_new(comms, comm_json(snapshot, &snapshot->comms[i]));
    for (uint32_t i = 0; i < snapshot->nhosts; i++)
        json_array_append_new(hosts, host_json(&snapshot->hosts[i]));
    json_object_set_new(root, "ranks", ranks);
    json_object_set_new(root, "communicators", comms);
    json_object_set_new(root, "hosts", hosts);
    json_t *kinds = json_array();
    for (uint32_t i = 0; i < snapshot->nkinds; i++)
        json_array_append_new(kinds, kind_json(&snapshot->kinds[i]));
    json_object_set_new(root, "calls", kinds);
    if (snapshot->verdict != NULL && snapshot->verdict->serial > 0)
        json_object_set_new(root, "verdict", verdict_json(snapshot->verdict));
    if (snapshot->warning[0] != '\0')
        json_object_set_new(root, "warning", text(snapshot->warning));
    int failed = root == NULL || json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) != 0;
    json_decref(root);
    if (failed)
        return fr_errorf("standard output", "cannot write the document");
    putchar('\n');
    return 0;
}
