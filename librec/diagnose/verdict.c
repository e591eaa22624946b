/* rec_analyze: the phases in order, what remains when nothing is wrong, and the order of findings. */
#include "diag.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "job/internal.h"
#include "rec/symbolize.h"

#define STEPS      5  /* of one analysis, for progress */
#define PAST_MAX   16 /* earlier generations that are examined, the latest ones */
#define DAY_NS     (NS_PER_S * 60 * 60 * 24)
#define BACKLOG_NS (NS_PER_S * 4) /* a host may wait so long for what its GPU has still to do */

struct type_row {
    const char *name;
    int fault;
};

static const struct type_row types[] = {
#define X(id, name, fault) [REC_VERDICT_##id] = {name, fault},
    REC_VERDICT_TABLE(X)
#undef X
};

const char *rec_verdict_type_name(enum rec_verdict_type type)
{
    return (size_t)type < sizeof types / sizeof *types ? types[type].name : "unknown";
}

const char *rec_confidence_name(enum rec_confidence confidence)
{
    static const char *const names[] = {"unknown", "possible", "likely", "certain"};
    return (size_t)confidence < 4 ? names[confidence] : "unknown";
}

const char *rec_status_name(enum rec_status status)
{
    return status == REC_STATUS_HEALTHY ? "healthy" : status == REC_STATUS_FAULT ? "fault" : "inconclusive";
}

/* ---- traces that should be there ---- */

/* Ranks without a trace, and those whose trace is damaged and ends early. */
static size_t missing_ranks(struct diag *d, int32_t **ranks)
{
    uint32_t expected = d->expected;
    size_t count = 0, capacity = 0;
    *ranks = NULL;
    for (uint32_t rank = 0; rank < expected && !d->oom; rank++) {
        uint32_t proc = diag_proc_of_rank(d, rank);
        if (proc != DIAG_NONE && !d->procs[proc].cut)
            continue;
        *ranks = diag_grow(*ranks, &capacity, count, sizeof **ranks, &d->oom);
        if (!d->oom)
            (*ranks)[count++] = (int32_t)rank;
    }
    return count;
}

/* " up to the end; 3 of them ended well, 1 was killed" */
static void say_ends(struct diag_text *t, size_t well, size_t killed, size_t failed)
{
    diag_printf(t, " up to the end;");
    if (well)
        diag_printf(t, " %zu of them ended well%s", well, killed || failed ? "," : "");
    if (killed)
        diag_printf(t, " %zu %s killed%s", killed, killed == 1 ? "was" : "were", failed ? "," : "");
    if (failed)
        diag_printf(t, " %zu exited with an error", failed);
}

static void say_healthy(struct diag *d, struct diag_text *t)
{
    size_t well = 0, killed = 0, failed = 0, alive = 0;
    for (size_t i = 0; i < d->nprocs; i++) {
        failed += d->procs[i].p->fate == REC_FATE_EXITED && !d->procs[i].ended_well &&
                  d->procs[i].p->end.reason != REC_END_EXEC;
        well += d->procs[i].ended_well;
        killed += d->procs[i].p->fate == REC_FATE_SIGNALED || d->procs[i].p->fate == REC_FATE_VANISHED;
        alive += d->procs[i].p->fate == REC_FATE_ALIVE;
    }
    if (d->nprocs == 1)
        diag_printf(t, "the calls of the only process match");
    else
        diag_printf(t, "the calls of all %zu processes match", d->nprocs);
    if (well == d->nprocs)
        diag_printf(t, d->nprocs == 1 ? " and it ended well" : " and all of them ended well");
    else if (alive)
        diag_printf(t, " and nobody has been silent for long");
    else if (killed && !well && !failed)
        diag_printf(t, " up to the end; the job was killed while it was running");
    else if (killed || failed)
        say_ends(t, well, killed, failed);
}

/* healthy: nothing else is wrong, so this is the verdict. */
static void report_missing(struct diag *d, const int32_t *missing, size_t count, bool healthy)
{
    struct rec_finding *f =
        count ? diag_finding(d, REC_VERDICT_TRACE_MISSING, REC_CONF_CERTAIN, DIAG_TIER_NOTE, 0) : NULL;
    if (!f)
        return;
    struct diag_text t = {0};
    diag_printf(&t, "there is no whole trace of ");
    diag_say_ranks(&t, missing, count);
    diag_printf(&t, " of %" PRIu32 ": what %s did in the end is unknown", d->expected,
                count == 1 ? "it" : "they");
    if (healthy) {
        diag_printf(&t, "; ");
        say_healthy(d, &t);
    }
    diag_summary(d, f, &t);
}

/* ---- nothing found ---- */

/* When it called something last; that it aborted when it gave up is no such call. */
static uint64_t last_ns(const struct diag_proc *proc)
{
    return proc->gave_up && proc->last_work_ns ? proc->last_work_ns : proc->last_call_ns;
}

/* For how long neither the host nor the GPU did anything. */
static uint64_t stillness_ns(const struct diag_proc *proc)
{
    uint64_t last = proc->gpu_ns > last_ns(proc) ? proc->gpu_ns : last_ns(proc);
    return proc->life_ns > last ? proc->life_ns - last : 0;
}

static bool stands_still(const struct diag_proc *proc)
{
    return !proc->outlived && (proc->gave_up || proc->p->fate != REC_FATE_EXITED) && last_ns(proc) &&
           stillness_ns(proc) && stillness_ns(proc) >= proc->patience_ns;
}

/* Who stands still, who was at work, who showed no sign of life any more when the recording ended. */
struct rest {
    size_t still, working, silent;
    size_t over;                  /* who aborted what it had waited in for too long, and went on */
    uint64_t last_ns, longest_ns; /* the last call of those who stand still; the longest silence */
    const struct diag_proc *sample;
};

static bool suspected(const struct diag *d)
{
    for (size_t i = 0; i < d->nprocs; i++)
        if (d->procs[i].suspect)
            return true;
    return false;
}

/* Nobody aborts itself after a standstill without a reason. */
static bool given_up(const struct diag *d)
{
    for (size_t i = 0; i < d->nprocs; i++) {
        const struct diag_proc *proc = &d->procs[i];
        bool aborted = proc->p->fate == REC_FATE_SIGNALED && proc->p->end.signal == SIGABRT;
        if (proc->gave_up || (aborted && diag_stood_still(proc)))
            return true;
    }
    return false;
}

static struct rest survey_rest(struct diag *d)
{
    struct rest rest = {0};
    for (size_t i = 0; i < d->nprocs; i++) {
        struct diag_proc *proc = &d->procs[i];
        bool ended = proc->p->fate == REC_FATE_EXITED || proc->p->fate == REC_FATE_SIGNALED;
        rest.over += proc->got_over_ns != 0;
        if (!ended && proc->silence_ns > DIAG_MISSED_NS) {
            proc->suspect = true;
            rest.silent++;
        } else if (!stands_still(proc)) {
            rest.working += !ended;
        } else {
            rest.still++;
            if (stillness_ns(proc) > rest.longest_ns)
                rest.longest_ns = stillness_ns(proc);
            if (last_ns(proc) > rest.last_ns) {
                rest.last_ns = last_ns(proc);
                rest.sample = proc;
            }
        }
    }
    return rest;
}

/* Is it inside a call, or lacks one of its calls a counterpart? */
static bool may_wait(const struct diag *d, const struct diag_proc *proc)
{
    bool lacks = proc->p->nopen > 0;
    for (uint32_t i = proc->first; i < proc->first + proc->count && !lacks; i++) {
        const struct diag_match *m = d->ops[i].match == DIAG_NONE ? NULL : &d->matches[d->ops[i].match];
        lacks = m && (m->absent || m->unseen || m->unknown);
    }
    return lacks;
}

/* Where all others have ended well and come to all its calls, nothing of NCCL can hold up the one left. */
static bool last_one(const struct diag *d, const struct rest *rest)
{
    size_t well = 0;
    for (size_t i = 0; i < d->nprocs; i++)
        well += d->procs[i].ended_well;
    return rest->still == 1 && well && well + 1 == d->nprocs && d->nprocs == d->expected &&
           !may_wait(d, rest->sample);
}

static void say_rest(struct diag_text *t, const struct diag *d, const struct rest *rest,
                     const struct rec_finding *f, size_t nmissing)
{
    if (rest->over) {
        diag_printf(t, "%zu of %zu processes had waited for long in what they aborted then, and went on",
                    rest->over, d->nprocs);
    } else {
        diag_printf(t, "%zu of %zu processes made no NCCL call since ", rest->still, d->nprocs);
        diag_say_time(d, t, rest->last_ns);
    }
    if (f->nsuspects) {
        diag_printf(t, "; who is awaited may be ");
        diag_say_ranks(t, f->suspects, f->nsuspects);
        diag_printf(t, nmissing ? ", whose trace is missing or cut off: nothing recorded shows it"
                       : rest->silent
                           ? ", without a sign of life at the end: nothing recorded shows it"
                           : ", but what was not recorded, calls or the progress of GPUs, may hide what "
                             "these wait for themselves");
    } else {
        diag_printf(t, ", but all recorded calls match: nothing shows who is late");
    }
    if (rest->working)
        diag_printf(t, "; %zu others were still at work", rest->working);
}

/* Healthy or inconclusive; true when healthy. */
static bool report_rest(struct diag *d, const int32_t *missing, size_t nmissing)
{
    struct rest rest = survey_rest(d);
    struct diag_text t = {0};
    if (!rest.over && (!rest.still || last_one(d, &rest) ||
                       (!nmissing && !suspected(d) && !given_up(d) && rest.longest_ns < BACKLOG_NS))) {
        struct rec_finding *f =
            nmissing ? NULL : diag_finding(d, REC_VERDICT_HEALTHY, REC_CONF_CERTAIN, DIAG_TIER_FAULT, 0);
        if (f) {
            say_healthy(d, &t);
            diag_summary(d, f, &t);
        }
        return true;
    }
    struct rec_finding *f = diag_finding(d, REC_VERDICT_INCONCLUSIVE, REC_CONF_UNKNOWN, DIAG_TIER_FAULT, 0);
    if (!f)
        return false;
    for (size_t i = 0; i < nmissing; i++)
        diag_blame(d, f, DIAG_SUSPECT, missing[i]);
    for (size_t i = 0; i < d->nprocs; i++)
        if (d->procs[i].suspect)
            diag_blame(d, f, DIAG_SUSPECT, d->procs[i].p->rank);
    diag_sort_ranks(f->suspects, &f->nsuspects);
    say_rest(&t, d, &rest, f, nmissing);
    diag_summary(d, f, &t);
    if (rest.sample && rest.sample->count)
        diag_evidence_op(d, f, &d->ops[rest.sample->first + rest.sample->count - 1], "last called");
    return false;
}

/* ---- the end ---- */

struct place {
    int tier;
    uint64_t onset;
    uint32_t index;
};

static int by_importance(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->tier != y->tier)
        return x->tier < y->tier ? -1 : 1;
    if (x->onset != y->onset)
        return x->onset < y->onset ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static struct rec_verdict *conclude(struct diag *d)
{
    struct rec_verdict *verdict = calloc(1, sizeof *verdict);
    struct place *places = malloc((d->nfindings + 1) * sizeof *places);
    struct rec_finding *sorted = malloc((d->nfindings + 1) * sizeof *sorted);
    if (!verdict || !places || !sorted) {
        free(verdict);
        free(places);
        free(sorted);
        d->oom = true;
        return NULL;
    }
    for (uint32_t i = 0; i < d->nfindings; i++)
        places[i] = (struct place){d->tiers[i], d->onsets[i], i};
    qsort(places, d->nfindings, sizeof *places, by_importance);
    verdict->status = REC_STATUS_HEALTHY;
    for (size_t i = 0; i < d->nfindings; i++) {
        sorted[i] = d->findings[places[i].index];
        if (types[sorted[i].type].fault && places[i].tier < DIAG_TIER_CONSEQUENCE)
            verdict->status = REC_STATUS_FAULT;
        else if (sorted[i].type == REC_VERDICT_INCONCLUSIVE && verdict->status != REC_STATUS_FAULT)
            verdict->status = REC_STATUS_INCONCLUSIVE;
    }
    free(places);
    verdict->findings = sorted;
    verdict->nfindings = d->nfindings;
    d->nfindings = 0;
    return verdict;
}

static bool any_fault(const struct diag *d)
{
    for (size_t i = 0; i < d->nfindings; i++)
        if (types[d->findings[i].type].fault && d->tiers[i] < DIAG_TIER_CONSEQUENCE)
            return true;
    return false;
}

/* One step is done: is the result still wanted? */
static enum rec_code step(struct diag *d)
{
    d->progress.done++;
    return diag_go_on(d) ? REC_OK : job_cancelled(d->err);
}

bool diag_go_on(const struct diag *d)
{
    const struct diag_progress *p = &d->progress;
    return !p->told || p->told->report(p->told->context, REC_PHASE_ANALYZE, p->done, p->total);
}

static enum rec_code run(struct diag *d)
{
    diag_fates(d);
    diag_simulate(d);
    enum rec_code code = d->oom ? REC_OK : step(d);
    if (code == REC_OK && !d->oom)
        code = diag_diverge(d);
    if (code == REC_OK && !d->oom)
        code = step(d);
    if (code != REC_OK || d->oom)
        return code;
    diag_find_waits(d);
    diag_build_graph(d);
    code = step(d);
    if (code != REC_OK)
        return code;
    if (!d->oom)
        diag_classify(d);
    if (!d->oom)
        diag_twins(d);
    diag_merge_siblings(d);
    if (!d->oom)
        diag_failures(d);
    int32_t *missing;
    size_t nmissing = missing_ranks(d, &missing);
    bool healthy = !any_fault(d) && report_rest(d, missing, nmissing);
    report_missing(d, missing, nmissing, healthy);
    if (healthy)
        diag_stragglers(d);
    diag_meetings_resolve(d);
    free(missing);
    return REC_OK;
}

static void diag_fini(struct diag *d)
{
    for (size_t i = 0; i < d->nfindings; i++)
        diag_finding_fini(&d->findings[i]);
    free(d->findings);
    free(d->onsets);
    free(d->tiers);
    free(d->procs);
    free(d->proc_index);
    free(d->member_base);
    free(d->abort_ns);
    free(d->members);
    free(d->ops);
    free(d->units);
    free(d->slots);
    free(d->queues);
    free(d->matches);
    free(d->waits);
    free(d->edges);
    free(d->past);
    free(d->edge_start);
    free(d->component);
    rec_symbolizer_free(d->symbolizer);
    diag_clock_fini(d);
    diag_meetings_fini(d);
    diag_map_free(&d->rank_procs);
    diag_map_free(&d->match_ids);
    free(d->spans);
    free(d->span_matches);
}

static uint64_t wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static enum rec_code analyze(const struct rec_job *job, const struct rec_analyze_options *options,
                             struct rec_census *census, uint32_t generation, struct rec_verdict **verdict,
                             struct rec_error *err)
{
    uint64_t examined = census->ngenerations > PAST_MAX ? PAST_MAX + 1u : census->ngenerations;
    uint64_t first_step = STEPS * (generation + examined - census->ngenerations);
    struct diag d = {.job = job, .err = err, .census = census, .generation = generation};
    bool last = generation + 1 == census->ngenerations;
    d.expected = census->generations[generation].expected;
    const struct rec_job_info *info = rec_job_info(job);
    d.dated = info->start_ns / DAY_NS != info->last_ns / DAY_NS;
    d.threads = options->threads;
    d.now_ns = options->now_ns ? options->now_ns : wall_clock();
    d.stall_ns = (options->stall_sec ? options->stall_sec : REC_STALL_SEC) * NS_PER_S;
    *verdict = NULL;
    d.progress = (struct diag_progress){options->progress, first_step, STEPS * examined};
    enum rec_code code = diag_go_on(&d) ? diag_load(&d) : job_cancelled(err);
    if (code == REC_OK && !d.oom)
        code = step(&d);
    if (code == REC_OK && !d.oom)
        code = run(&d);
    if (code == REC_OK && !d.oom) {
        diag_census_fill(&d, census);
        if (last) {
            diag_order(&d, census);
            diag_slow(&d, census);
            diag_unseen(&d, census);
            diag_clock_census(&d, census);
        }
    }
    if (code == REC_OK && !d.oom)
        code = step(&d);
    if (code == REC_OK && !d.oom)
        *verdict = conclude(&d);
    if (*verdict && last)
        diag_clock_evidence(&d, &(*verdict)->findings[0]);
    if (code == REC_OK && d.oom)
        code = rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory for the analysis");
    diag_fini(&d);
    return code;
}

/* How an earlier generation ended: its verdict, when it had been the whole job. */
static enum rec_code examine_past(const struct rec_job *job, const struct rec_analyze_options *options,
                                  struct rec_census *census, uint32_t number, struct rec_error *err)
{
    struct rec_verdict *verdict;
    enum rec_code code = analyze(job, options, census, number, &verdict, err);
    if (!verdict)
        return code;
    struct rec_generation *generation = &census->generations[number];
    struct rec_finding *f = &verdict->findings[0];
    generation->type = rec_verdict_type_name(f->type);
    generation->summary = f->summary;
    generation->culprits = f->culprits;
    generation->nculprits = f->nculprits;
    f->summary = NULL;
    f->culprits = NULL;
    rec_verdict_free(verdict);
    return code;
}

enum rec_code rec_analyze(const struct rec_job *job, const struct rec_analyze_options *options,
                          struct rec_verdict **verdict, struct rec_error *err)
{
    static const struct rec_analyze_options defaults;
    if (!options)
        options = &defaults;
    *verdict = NULL;
    enum rec_code code = REC_OK;
    struct rec_census *census = calloc(1, sizeof *census);
    bool ok = census && diag_generations(job, census) && diag_census_rows(job, census);
    uint32_t last = ok ? (uint32_t)census->ngenerations - 1 : 0;
    for (uint32_t g = last > PAST_MAX ? last - PAST_MAX : 0; ok && g < last && code == REC_OK; g++)
        code = examine_past(job, options, census, g, err);
    if (ok && code == REC_OK)
        code = analyze(job, options, census, last, verdict, err);
    if (*verdict && diag_census_finish(census)) {
        (*verdict)->census = census;
        return REC_OK;
    }
    if (code == REC_OK)
        code = rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory for the analysis");
    rec_verdict_free(*verdict);
    *verdict = NULL;
    diag_census_free(census);
    return code;
}

void rec_verdict_free(struct rec_verdict *verdict)
{
    if (!verdict)
        return;
    for (size_t i = 0; i < verdict->nfindings; i++)
        diag_finding_fini(&verdict->findings[i]);
    free(verdict->findings);
    diag_census_free(verdict->census);
    free(verdict);
}
