/* The census in the JSON report. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "report.h"

static json_t *uid_json(const struct rec_communicator *comm)
{
    char uid[24];
    snprintf(uid, sizeof uid, "%016" PRIx64, comm->uid);
    return json_string(uid);
}

static void append(json_t *array, json_t *value, bool *ok)
{
    if (json_array_append_new(array, value) != 0)
        *ok = false;
}

static json_t *past_json(const struct rec_generation *g, bool *ok)
{
    json_t *object = json_object();
    report_put(object, "type", json_string(g->type), ok);
    report_put(object, "summary", report_text(g->summary ? g->summary : ""), ok);
    report_ranks(object, "culprit_ranks", g->culprits, g->nculprits, ok);
    return object;
}

static json_t *generation_json(const struct rec_generation *g, bool *ok)
{
    json_t *object = json_object();
    if (g->restart[0])
        report_put(object, "restart", report_text(g->restart), ok);
    report_time(object, "start", g->start_ns, ok);
    report_time(object, "last", g->last_ns, ok);
    report_put(object, "processes", json_integer(g->processes), ok);
    report_put(object, "expected", g->expected ? json_integer(g->expected) : json_null(), ok);
    report_ranks(object, "ranks", g->ranks, g->nranks, ok);
    if (g->type)
        report_put(object, "verdict", past_json(g, ok), ok);
    return object;
}

static json_t *clock_json(const struct rec_host_clock *clock, bool *ok)
{
    json_t *object = json_object();
    report_put(object, "host", report_text(clock->host), ok);
    report_put(object, "offset_ns", clock->known ? json_integer(clock->offset_ns) : json_null(), ok);
    if (!clock->known)
        return object;
    report_put(object, "uncertainty_ns", json_integer((json_int_t)clock->uncertainty_ns), ok);
    report_put(object, "samples", json_integer(clock->samples), ok);
    return object;
}

/* The job ranks of the members, folded, in the order of their comm ranks: "0-3", "6,2,4". */
static json_t *members_json(const struct rec_comm_census *row, bool *ok)
{
    size_t count = 0, size = 64 + (size_t)row->comm->nmembers * 12;
    int32_t *ranks = malloc((row->comm->nmembers + 1) * sizeof *ranks);
    char *folded = malloc(size);
    for (uint32_t i = 0; ranks && i < row->comm->nmembers; i++)
        if (row->ranks[i] >= 0)
            ranks[count++] = row->ranks[i];
    json_t *value = NULL;
    if (ranks && folded) {
        rec_fold_ranks(folded, size, ranks, count);
        value = json_string(folded);
    }
    *ok = *ok && value;
    free(ranks);
    free(folded);
    return value;
}

static json_t *comm_json(const struct rec_comm_census *row, bool *ok)
{
    const struct rec_communicator *comm = row->comm;
    json_t *object = json_object();
    report_put(object, "uid", uid_json(comm), ok);
    report_put(object, "name", report_text(comm->name), ok);
    report_put(object, "nranks", json_integer(comm->nranks), ok);
    report_put(object, "members", json_integer(comm->nmembers), ok);
    report_put(object, "ranks", members_json(row, ok), ok);
    report_put(object, "generation", json_integer(row->generation), ok);
    report_time(object, "created", row->created_ns, ok);
    const char *made_by = rec_kind_name(comm->made_by);
    report_put(object, "made_by", made_by ? json_string(made_by) : json_null(), ok);
    if (comm->parent) {
        report_put(object, "parent", uid_json(comm->parent), ok);
        report_put(object, "parent_seq", json_integer((json_int_t)comm->parent_seq), ok);
    }
    report_put(object, "collectives", json_integer((json_int_t)row->collectives), ok);
    report_put(object, "sends", json_integer((json_int_t)row->sends), ok);
    report_put(object, "onesided", json_integer((json_int_t)row->onesided), ok);
    report_put(object, "bytes", json_integer((json_int_t)row->bytes), ok);
    report_put(object, "lost", json_integer((json_int_t)row->lost), ok);
    if (row->same_members)
        report_put(object, "same_members_as", uid_json(row->same_members), ok);
    return object;
}

static json_t *difference_json(const struct rec_order_difference *x, bool *ok)
{
    json_t *object = json_object();
    report_put(object, "a", uid_json(x->a), ok);
    report_put(object, "a_seq", json_integer((json_int_t)x->seq_a), ok);
    report_put(object, "b", uid_json(x->b), ok);
    report_put(object, "b_seq", json_integer((json_int_t)x->seq_b), ok);
    report_put(object, "a_first_rank", json_integer(x->a_first->rank), ok);
    report_put(object, "b_first_rank", json_integer(x->b_first->rank), ok);
    return object;
}

void report_census(json_t *root, const struct rec_census *census, bool *ok)
{
    json_t *generations = json_array(), *clocks = json_array(), *comms = json_array();
    json_t *differences = json_array(), *notes = json_array();
    for (size_t i = 0; i < census->ngenerations; i++)
        append(generations, generation_json(&census->generations[i], ok), ok);
    for (size_t i = 0; i < census->nclocks; i++)
        append(clocks, clock_json(&census->clocks[i], ok), ok);
    for (size_t i = 0; i < census->ncomms; i++)
        append(comms, comm_json(&census->comms[i], ok), ok);
    for (size_t i = 0; i < census->ndifferences; i++)
        append(differences, difference_json(&census->differences[i], ok), ok);
    for (size_t i = 0; i < census->nnotes; i++)
        append(notes, report_text(census->notes[i]), ok);
    report_put(root, "generations", generations, ok);
    report_put(root, "clocks", clocks, ok);
    report_put(root, "communicators", comms, ok);
    json_t *order = json_object();
    report_put(order, "whole", json_boolean(census->whole), ok);
    report_put(order, "differences", differences, ok);
    report_put(root, "order", order, ok);
    report_put(root, "notes", notes, ok);
}
