#include "again.h"

#include <stdlib.h>
#include <time.h>

#include "fr-common.h"
#include "probe.h"

#define NS_PER_S    UINT64_C(1000000000)
#define PAUSE_NS    (2 * NS_PER_S) /* between two loads, at least */
#define REST_FACTOR 3              /* so much longer than a load is the pause behind it */
#define AGE_NS      (5 * NS_PER_S) /* beyond the stall time: then a standstill has its verdict */

struct again {
    const struct work_order *order;
    struct work_result shown, next;
    struct work *work; /* NULL = nothing is being loaded */
    uint64_t began_ns, earliest_ns;
    struct probe probe;
    struct probe_look last;
    uint64_t changed_ns;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

struct again *again_new(const struct work_order *order, const struct work_result *result)
{
    struct again *again = calloc(1, sizeof *again);
    if (!again)
        return NULL;
    again->order = order;
    again->shown = *result;
    again->changed_ns = now_ns();
    again->earliest_ns = again->changed_ns + PAUSE_NS;
    return again;
}

static bool wanted(struct again *again)
{
    uint64_t now = now_ns();
    if (now < again->earliest_ns || !fr_job_runs(again->shown.job))
        return false;
    struct probe_look look;
    probe_look(&again->probe, again->order->dirs, again->order->ndirs, &again->order->job, again->shown.job,
               &look);
    if (look.calls != again->last.calls || look.quiet != again->last.quiet)
        again->changed_ns = now;
    again->last = look;
    again->earliest_ns = now + PAUSE_NS; /* also the probe costs something */
    uint64_t stall = again->order->analyze.stall_sec ? again->order->analyze.stall_sec : REC_STALL_SEC;
    return now - again->changed_ns < stall * NS_PER_S + AGE_NS;
}

bool again_look(void *context, const struct rec_job **job, const struct rec_verdict **verdict)
{
    struct again *again = context;
    struct work_state state;
    if (!again->work) {
        if (!again->next.job && wanted(again)) {
            again->began_ns = now_ns();
            again->work = work_start(again->order);
        }
        return false;
    }
    work_look(again->work, &state);
    if (!state.over)
        return false;
    work_end(again->work, true, &again->next);
    again->work = NULL;
    uint64_t now = now_ns(), rest = REST_FACTOR * (now - again->began_ns);
    again->earliest_ns = now + (rest > PAUSE_NS ? rest : PAUSE_NS);
    if (again->next.code != REC_OK) { /* files come and go: the next look will tell */
        work_result_fini(&again->next);
        again->next = (struct work_result){0};
        return false;
    }
    *job = again->next.job;
    *verdict = again->next.verdict;
    return true;
}

void again_keep(void *context)
{
    struct again *again = context;
    work_result_fini(&again->shown);
    again->shown = again->next;
    again->next = (struct work_result){0};
}

int again_free(struct again *again)
{
    int status = (int)again->shown.verdict->status;
    if (again->work)
        work_end(again->work, false, &again->next);
    work_result_fini(&again->next);
    work_result_fini(&again->shown);
    probe_fini(&again->probe);
    free(again);
    return status;
}
