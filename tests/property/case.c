#include "case.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rec/live.h"

#define SIMULATED_MAX (600 * SEC)

const char *const outcome_names[OUTCOMES] = {"right",   "tie",          "peer", "cycle",
                                             "healthy", "inconclusive", "WRONG"};

/* ---- making a case ---- */

static enum fault_kind choose_fault(const struct case_options *options, struct rng *rng)
{
    for (int k = 0; options->fault && k < FAULT_KINDS; k++)
        if (strcmp(options->fault, fault_name((enum fault_kind)k)) == 0)
            return (enum fault_kind)k;
    return rng_chance(rng, 20) ? FAULT_NONE : (enum fault_kind)rng_in(rng, 1, FAULT_KINDS - 1);
}

static enum fault_kind choose_second(const struct made *made, struct rng *rng)
{
    enum fault_kind kind;
    do
        kind = (enum fault_kind)rng_in(rng, 1, FAULT_KINDS - 1);
    while (kind == FAULT_HANG && !made->plan.marks);
    return kind;
}

/* A job without a fault is cut off anywhere, one that is late while it is, or a little after. */
static void choose_end(struct made *made, struct rng *rng)
{
    uint64_t until = SIMULATED_MAX, from = made->run.late_from, late = made->run.late_until - from;
    if (made->fault.kind == FAULT_NONE && rng_chance(rng, 50))
        until = rng_in(rng, made->run.last / 10, made->run.last);
    else if (from != UINT64_MAX && rng_chance(rng, 70))
        until = from + rng_in(rng, late / 4, late + 2 * SEC);
    if (until >= made->run.last)
        return;
    made->until = until;
    made->after = 0;
    case_run(made);
}

static void choose_losses(struct made *made, struct rng *rng)
{
    struct losses *l = &made->recording.losses;
    int n = made->plan.nranks;
    int gone = made->plan.nhosts > 1 && rng_chance(rng, 5) ? (int)rng_in(rng, 0, 2) % made->plan.nhosts : -1;
    for (int i = 0; i < n; i++) {
        unsigned kind = (unsigned)rng_in(rng, 0, 20);
        l->lost[i] = kind == 0;
        l->no_trace[i] = (kind == 2 && n > 2) || host_of(&made->plan, i) == gone;
        l->rotated[i] = kind == 1 && !l->no_trace[i];
        l->keep_percent[i] = kind == 3 ? (unsigned)rng_in(rng, 30, 99) : 0;
        made->any_loss = made->any_loss || kind < 4 || gone >= 0;
    }
}

void case_run(struct made *made)
{
    run_free(&made->run);
    run_plan(&made->plan, made->run_seed, made->until, &made->run);
    made->recording.end = made->run.was_stopped ? made->until : made->run.last + made->after;
}

void case_make(struct made *made, const struct case_options *options, uint64_t number)
{
    struct rng rng = {rec_mix64(options->seed * 1000003 + number)};
    *made = (struct made){.until = SIMULATED_MAX, .record_seed = options->seed + number};
    plan_make(&made->plan, &rng, options->ranks);
    enum fault_kind kind = choose_fault(options, &rng);
    fault_plant(&made->plan, &rng, kind, -1, &made->fault);
    /* What an unseen hang does beside another fault, nobody can tell from the other's work. */
    bool seen = made->fault.kind && (made->fault.kind != FAULT_HANG || made->plan.marks);
    if (seen && rng_chance(&rng, 10))
        fault_plant(&made->plan, &rng, choose_second(made, &rng), made->fault.rank, &made->second);
    made->run_seed = rng_next(&rng);
    case_run(made);
    made->recording.terminated = rng_chance(&rng, 50);
    made->after = SEC / 10;
    if (made->run.stuck)
        made->after += rng_chance(&rng, 15) ? rng_in(&rng, 0, 4000) * MS : rng_in(&rng, 8, 45) * SEC;
    choose_end(made, &rng);
    made->recording.end = made->run.was_stopped ? made->until : made->run.last + made->after;
    for (int h = 0; h < made->plan.nhosts && rng_chance(&rng, 50); h++)
        made->recording.losses.skew_ns[h] = rng_in(&rng, 0, 8 * SEC);
    bool lossy = rng_chance(&rng, 50);
    if (options->losses < 0 ? lossy : options->losses)
        choose_losses(made, &rng);
    if (made->run.stuck && !made->run.was_stopped && rng_chance(&rng, 25)) {
        made->recording.watchdog_ns = rng_in(&rng, 5000, 20000) * MS;
        made->recording.aborts = rng_chance(&rng, 50);
        made->after += made->recording.watchdog_ns;
        made->recording.end += made->recording.watchdog_ns;
    }
}

void case_free(struct made *made)
{
    run_free(&made->run);
    plan_free(&made->plan);
}

/* ---- judging the verdict ---- */

static bool is_fault(enum rec_verdict_type type)
{
    static const bool faults[] = {
#define X(id, name, fault) [REC_VERDICT_##id] = fault,
        REC_VERDICT_TABLE(X)
#undef X
    };
    return faults[type];
}

static bool is_guilty(const struct made *made, int rank)
{
    return (made->fault.kind && made->fault.rank == rank) || (made->second.kind && made->second.rank == rank);
}

static bool any_guilty(const struct made *made, const int32_t *ranks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_guilty(made, ranks[i]))
            return true;
    return false;
}

static bool all_guilty(const struct made *made, const int32_t *ranks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!is_guilty(made, ranks[i]))
            return false;
    return true;
}

/* Somebody is asked for what it never meant to do. */
static bool asks_in_vain(enum fault_kind kind)
{
    return kind == FAULT_EXTRA || kind == FAULT_PEER;
}

/* A call too many that only one other rank could have shared, which is named; the guilty one is a suspect. */
static bool is_peer(const struct made *made, const struct rec_finding *f)
{
    bool one_too_many = asks_in_vain(made->fault.kind) || asks_in_vain(made->second.kind);
    return one_too_many && f->nculprits == 1 && f->confidence == REC_CONF_POSSIBLE &&
           any_guilty(made, f->suspects, f->nsuspects);
}

/* Was the only thing wrong that somebody was late, and is it seen that the job went on? */
static bool was_resumed(const struct made *made)
{
    return made->fault.kind == FAULT_LATE && !made->second.kind && !made->any_loss &&
           made->recording.end > made->run.late_until + SEC && !made->recording.watchdog_ns;
}

/* Where the records of one against one, or of a circle, cannot tell, both sides may be named. */
static enum outcome judge_finding(const struct made *made, const struct rec_finding *f)
{
    if (!f->nculprits)
        return QUIET;
    if (!any_guilty(made, f->culprits, f->nculprits))
        return is_peer(made, f) ? PEER : WRONG;
    if (was_resumed(made))
        return WRONG;
    if (all_guilty(made, f->culprits, f->nculprits))
        return RIGHT;
    if (f->type == REC_VERDICT_DEADLOCK_CYCLE || f->type == REC_VERDICT_ORDER_INVERSION)
        return CYCLE;
    if (f->type == REC_VERDICT_P2P_MISMATCH && f->nculprits == 2)
        return TIE;
    return strstr(f->summary, "tie") ? TIE : WRONG;
}

static enum outcome judge(const struct made *made, const struct rec_verdict *verdict)
{
    enum outcome first = QUIET;
    for (size_t i = 0; i < verdict->nfindings; i++) {
        const struct rec_finding *f = &verdict->findings[i];
        if (!is_fault(f->type))
            continue;
        enum outcome outcome = judge_finding(made, f);
        if (outcome == WRONG || (made->fault.kind == FAULT_NONE && verdict->status == REC_STATUS_FAULT))
            return WRONG;
        if (i == 0)
            first = outcome;
    }
    if (first == QUIET && verdict->status != REC_STATUS_HEALTHY) {
        /* A whole recording of a job without a fault must be found healthy. */
        return made->fault.kind || made->any_loss || verdict->status == REC_STATUS_FAULT ? UNSURE : WRONG;
    }
    return first;
}

enum outcome case_judge(const struct made *made, const char *dir, struct rec_verdict **verdict)
{
    struct rec_error err = {0};
    struct rec_job *job = NULL;
    const char *dirs[] = {dir};
    struct rec_job_options how = {.no_live = true};
    struct rec_analyze_options now = {.now_ns = ORIGIN + 10 * SEC + made->recording.end};
    enum outcome outcome = WRONG;
    *verdict = NULL;
    if (!record_run(&made->plan, &made->run, &made->recording, made->record_seed, dir))
        printf("cannot write to %s\n", dir);
    else if (rec_job_open(dirs, 1, &how, &job, &err) != REC_OK)
        outcome = made->any_loss ? UNSURE : WRONG; /* where nothing is left there is nothing to tell */
    else if (rec_analyze(job, &now, verdict, &err) == REC_OK)
        outcome = judge(made, *verdict);
    if (outcome == WRONG && !*verdict)
        printf("%s\n", err.text);
    rec_job_close(job);
    return outcome;
}

void case_remove_files(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char name[600];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        unlink(name);
    }
    if (dir)
        closedir(dir);
}

/* ---- telling ---- */

void case_tell(const struct made *made, const struct rec_verdict *verdict, enum outcome outcome)
{
    const struct losses *l = &made->recording.losses;
    printf("  %s: %d ranks on %d hosts, %d communicators%s%s, ran %.3f s, ended at %.3f s%s\n",
           outcome_names[outcome], made->plan.nranks, made->plan.nhosts, made->plan.ncomms,
           made->plan.marks ? ", GPU marks" : "", made->plan.eager_bytes ? ", eager sends" : "",
           (double)made->run.last / 1e9, (double)made->recording.end / 1e9,
           made->recording.terminated ? " by SIGTERM" : "");
    if (made->recording.watchdog_ns)
        printf("  watchdogs after %.3f s%s\n", (double)made->recording.watchdog_ns / 1e9,
               made->recording.aborts ? ", which abort the communicators" : "");
    printf("  fault: %s\n", made->fault.kind ? made->fault.told : "none");
    if (made->second.kind)
        printf("  second fault: %s\n", made->second.told);
    for (int i = 0; i < made->plan.nranks; i++)
        if (l->lost[i] || l->rotated[i] || l->no_trace[i] || l->keep_percent[i])
            printf("  rank %d: %s\n", i,
                   l->lost[i]       ? "records lost"
                   : l->rotated[i]  ? "beginning rotated away"
                   : l->no_trace[i] ? "no trace"
                                    : "file cut");
    for (size_t i = 0; verdict && i < verdict->nfindings && i < 6; i++) {
        const struct rec_finding *f = &verdict->findings[i];
        char culprits[128], suspects[128];
        rec_fold_ranks(culprits, sizeof culprits, f->culprits, f->nculprits);
        rec_fold_ranks(suspects, sizeof suspects, f->suspects, f->nsuspects);
        printf("  %s %s [%s] suspects [%s]: %s\n", rec_verdict_type_name(f->type),
               rec_confidence_name(f->confidence), culprits, suspects, f->summary);
    }
}

static void print_act(const struct made *made, int rank, const struct act *act)
{
    static const char *const names[] = {"call",  "{",    "}",     "sync", "compute", "graph",
                                        "spawn", "join", "sleep", "kill", "exit",    "hang"};
    if (act->what != ACT_CALL) {
        printf(" %s;", names[act->what]);
        return;
    }
    printf(" %s c%d", rec_kind_name(act->kind), act->comm);
    if (act->child >= 0)
        printf(" → c%d", act->child);
    if (rec_kind_flags(act->kind) & REC_KF_P2P)
        printf(" rank %d", made->plan.comms[act->comm].members[act->peer]);
    if (rec_kind_flags(act->kind) & REC_KF_DATA)
        printf(" %" PRIu64 "×%u s%d", act->count, act->dtype, act->stream);
    printf(is_guilty(made, rank) && (!act->step || act->odd) ? " ←;" : ";");
}

void case_print(const struct made *made)
{
    for (int c = 0; c < made->plan.ncomms; c++) {
        const struct plan_comm *comm = &made->plan.comms[c];
        for (int i = 0; i < comm->nmembers; i++)
            printf(i ? " %d" : "  c%d: %d", i ? comm->members[i] : c, comm->members[0]);
        if (comm->nmembers)
            printf("\n");
    }
    for (int r = 0; r < made->plan.nranks; r++)
        for (int l = 0; l < LANES; l++) {
            const struct lane *lane = &made->plan.lanes[r][l];
            if (!lane->count)
                continue;
            printf("  rank %d%s:", r, l ? " (2nd thread)" : "");
            for (size_t i = 0; i < lane->count; i++)
                if (lane->acts[i].what != ACT_COMPUTE)
                    print_act(made, r, &lane->acts[i]);
            printf("\n");
        }
}
