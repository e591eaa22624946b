#include "fr-top/diagnosis.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_S    UINT64_C(1000000000)
#define REST_FACTOR 9              /* so much longer than an analysis is the pause behind it */
#define PAUSE_NS    (2 * NS_PER_S) /* at least */
#define CONFIRM_NS  (1 * NS_PER_S) /* between the two looks that make a bad verdict */
#define SETTLE_NS   (5 * NS_PER_S) /* after the last change nothing new can be found */

/* What to look at. */
struct question {
    char dirs[TOP_DIAGNOSIS_DIRS][REC_LIVE_PATH_BYTES];
    size_t ndirs;
    char job[160], job_id[128];
    uint64_t proc_uid;  /* a process of the job */
    uint64_t signature; /* differs when anything has happened */
};

struct answer {
    struct rec_job *job;
    struct rec_verdict *verdict;
    struct top_verdict told;
};

struct top_diagnosis {
    const struct top_options *options;
    pthread_t worker;
    pthread_mutex_t lock; /* for all below */
    pthread_cond_t wake;
    bool stop, asked, lent, at_work;
    struct question question;
    struct answer latest; /* of the last look */
    struct top_verdict believed;
    struct top_verdict shown; /* the copy of it that the screen holds; the screen's alone */

    /* the worker's own */
    uint64_t signature, changed_ns, looked_ns, next_ns;
    char job[160];
    bool unsure;
};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* ---- verdicts ---- */

enum rec_role top_role_of(const struct top_verdict *verdict, const struct top_process *process)
{
    if (verdict == NULL || verdict->serial == 0 || process->rank < 0 || process->past ||
        strcmp(verdict->job, process->job) != 0)
        return REC_ROLE_NONE;
    const struct rec_finding told = {.type = verdict->type,
                                     .culprits = verdict->culprits,
                                     .nculprits = verdict->nculprits,
                                     .suspects = verdict->suspects,
                                     .nsuspects = verdict->nsuspects,
                                     .victims = verdict->victims,
                                     .nvictims = verdict->nvictims};
    return rec_finding_role(&told, process->rank);
}

void top_verdict_clear(struct top_verdict *verdict)
{
    free(verdict->culprits);
    free(verdict->suspects);
    free(verdict->victims);
    *verdict = (struct top_verdict){0};
}

/* Without memory nobody is named, which the sentence still does. */
static int32_t *copy_ranks(const int32_t *ranks, size_t count, size_t *kept)
{
    int32_t *copy = count > 0 ? malloc(count * sizeof *copy) : NULL;
    *kept = copy != NULL ? count : 0;
    if (copy != NULL)
        memcpy(copy, ranks, count * sizeof *copy);
    return copy;
}

static void copy_verdict(struct top_verdict *to, const struct top_verdict *from)
{
    top_verdict_clear(to);
    *to = *from;
    to->culprits = copy_ranks(from->culprits, from->nculprits, &to->nculprits);
    to->suspects = copy_ranks(from->suspects, from->nsuspects, &to->nsuspects);
    to->victims = copy_ranks(from->victims, from->nvictims, &to->nvictims);
}

static void tell(struct top_verdict *told, const struct rec_verdict *verdict, const char *job, uint64_t at_ns)
{
    const struct rec_finding *f = &verdict->findings[0];
    *told = (struct top_verdict){
        .at_ns = at_ns, .status = verdict->status, .type = f->type, .confidence = f->confidence};
    snprintf(told->summary, sizeof told->summary, "%s", f->summary != NULL ? f->summary : "");
    snprintf(told->job, sizeof told->job, "%s", job);
    told->culprits = copy_ranks(f->culprits, f->nculprits, &told->nculprits);
    told->suspects = copy_ranks(f->suspects, f->nsuspects, &told->nsuspects);
    told->victims = copy_ranks(f->victims, f->nvictims, &told->nvictims);
}

static bool same_subject(const struct top_verdict *a, const struct top_verdict *b)
{
    return a->type == b->type && a->nculprits == b->nculprits && strcmp(a->job, b->job) == 0 &&
           (a->nculprits == 0 || memcmp(a->culprits, b->culprits, a->nculprits * sizeof *a->culprits) == 0);
}

/* ---- one look ---- */

static void drop_answer(struct answer *answer)
{
    rec_verdict_free(answer->verdict);
    rec_job_close(answer->job);
    top_verdict_clear(&answer->told);
    *answer = (struct answer){0};
}

static bool has_process(const struct rec_job *job, uint64_t proc_uid)
{
    size_t count;
    struct rec_process *const *processes = rec_job_processes(job, &count);
    for (size_t i = 0; i < count; i++) {
        if (processes[i]->proc_uid == proc_uid)
            return true;
    }
    return false;
}

/* The directories may hold several jobs, and several of one id: the one of the process asked about. */
static enum rec_code open_job(const struct top_options *options, const struct question *question,
                              struct rec_job **job, struct rec_error *err)
{
    const char *dirs[TOP_DIAGNOSIS_DIRS];
    const char *const ids[] = {NULL, question->job_id, "latest"};
    enum rec_code code = REC_ERR_EMPTY;
    for (size_t i = 0; i < question->ndirs; i++)
        dirs[i] = question->dirs[i];
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        struct rec_job_options opening = {
            .job_id = ids[i], .live_dir = options->live_dir, .analyze = true, .threads = 1};
        if (ids[i] != NULL && ids[i][0] == '\0')
            continue;
        code = rec_job_open(dirs, question->ndirs, &opening, job, err);
        if (code == REC_OK && has_process(*job, question->proc_uid))
            return REC_OK;
        if (code != REC_OK && code != REC_ERR_MIXED)
            return code;
        rec_job_close(*job);
        *job = NULL;
    }
    return code != REC_OK ? code
                          : rec_error_set(err, REC_ERR_MIXED, NULL, 0, "the job cannot be told from others");
}

/* False and a reason in told.problem. All by one thread: the host may be busy with the job itself. */
static bool look(const struct top_options *options, const struct question *question, struct answer *answer)
{
    struct rec_error err = {0};
    const struct rec_analyze_options how = {.stall_sec = options->stall_sec, .threads = 1};
    uint64_t now_ns = clock_ns(CLOCK_REALTIME);
    enum rec_code code = open_job(options, question, &answer->job, &err);
    if (code == REC_OK)
        code = rec_analyze(answer->job, &how, &answer->verdict, &err);
    if (code == REC_OK) {
        tell(&answer->told, answer->verdict, question->job, now_ns);
        return true;
    }
    drop_answer(answer);
    snprintf(answer->told.problem, sizeof answer->told.problem, "%.300s%s%.200s", err.path,
             err.path[0] != '\0' ? ": " : "", err.text);
    return false;
}

/* ---- what to look at ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return rec_mix64(hash ^ rec_mix64(value + UINT64_C(0x9e3779b97f4a7c15)));
}

static uint64_t process_term(const struct top_process *process)
{
    uint64_t term = mix(process->proc_uid, process->ops);
    term = mix(term, (uint64_t)process->state << 32 | process->nopen);
    return mix(term, process->pending);
}

/* One job; of several the one in which the worst state is. */
static const struct top_process *choose_process(const struct top_snapshot *snapshot)
{
    const struct top_process *worst = NULL;
    for (uint32_t i = 0; i < snapshot->nprocesses; i++) {
        if (worst == NULL || snapshot->processes[i].state < worst->state)
            worst = &snapshot->processes[i];
    }
    return worst;
}

static bool pose(struct question *question, const struct top_options *options,
                 const struct top_snapshot *snapshot)
{
    const struct top_process *chosen = choose_process(snapshot);
    *question = (struct question){0};
    if (chosen == NULL)
        return false;
    memcpy(question->job, chosen->job, sizeof question->job);
    memcpy(question->job_id, chosen->job_id, sizeof question->job_id);
    question->proc_uid = chosen->proc_uid;
    if (options->dir != NULL)
        snprintf(question->dirs[question->ndirs++], sizeof question->dirs[0], "%s", options->dir);
    for (uint32_t i = 0; i < snapshot->nprocesses; i++) {
        const struct top_process *process = &snapshot->processes[i];
        if (strcmp(process->job, chosen->job) != 0)
            continue;
        question->signature += process_term(process);
        bool known = options->dir != NULL || process->frec_dir[0] == '\0';
        for (size_t d = 0; d < question->ndirs && !known; d++)
            known = strcmp(question->dirs[d], process->frec_dir) == 0;
        if (!known && question->ndirs < TOP_DIAGNOSIS_DIRS)
            memcpy(question->dirs[question->ndirs++], process->frec_dir, sizeof question->dirs[0]);
    }
    return question->ndirs > 0;
}

/* ---- the worker ---- */

/* Takes the answer in, under the lock. */
static void believe(struct top_diagnosis *d, struct answer *answer, bool found)
{
    struct top_verdict *told = &answer->told;
    if (!found) {
        memcpy(d->believed.problem, told->problem, sizeof told->problem);
        top_verdict_clear(told);
        return;
    }
    bool bad = told->status != REC_STATUS_HEALTHY;
    bool again = d->latest.job != NULL && same_subject(&d->latest.told, told);
    d->unsure = bad && !again && !(d->believed.serial > 0 && same_subject(&d->believed, told));
    /* A job over which somebody bends is not taken away; the next look will bring another. */
    if (!d->unsure) {
        told->serial = d->believed.serial + 1;
        copy_verdict(&d->believed, told);
    }
    if (d->lent) {
        drop_answer(answer);
        return;
    }
    drop_answer(&d->latest);
    d->latest = *answer;
}

/* Is there anything new since the last look, and is it time? Otherwise *wait_ns says how long not. */
static bool due(struct top_diagnosis *d, uint64_t now_ns, uint64_t *wait_ns)
{
    if (d->question.signature != d->signature || strcmp(d->question.job, d->job) != 0) {
        d->signature = d->question.signature;
        memcpy(d->job, d->question.job, sizeof d->job);
        d->changed_ns = now_ns;
    }
    /* For some time after the last change verdicts may still come of age. */
    bool settled = !d->unsure && d->looked_ns > d->changed_ns + SETTLE_NS;
    if (!d->asked || d->lent || settled) {
        *wait_ns = NS_PER_S;
        return false;
    }
    if (now_ns < d->next_ns) {
        *wait_ns = d->next_ns - now_ns;
        return false;
    }
    return true;
}

static void wait_for(struct top_diagnosis *d, uint64_t ns)
{
    uint64_t until = clock_ns(CLOCK_MONOTONIC) + ns;
    struct timespec time = {(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};
    pthread_cond_timedwait(&d->wake, &d->lock, &time);
}

static void *work(void *context)
{
    struct top_diagnosis *d = context;
    struct question *question = malloc(sizeof *question);
    pthread_mutex_lock(&d->lock);
    while (!d->stop && question != NULL) {
        uint64_t wait_ns, began = clock_ns(CLOCK_MONOTONIC);
        if (!due(d, began, &wait_ns)) {
            wait_for(d, wait_ns);
            continue;
        }
        *question = d->question;
        d->at_work = true;
        pthread_mutex_unlock(&d->lock);
        struct answer answer = {0};
        bool found = look(d->options, question, &answer);
        pthread_mutex_lock(&d->lock);
        d->at_work = false;
        believe(d, &answer, found);
        uint64_t ended = clock_ns(CLOCK_MONOTONIC), rest = REST_FACTOR * (ended - began);
        uint64_t pause = d->unsure ? CONFIRM_NS : PAUSE_NS;
        d->looked_ns = ended;
        d->next_ns = ended + (rest > pause ? rest : pause);
    }
    pthread_mutex_unlock(&d->lock);
    free(question);
    return NULL;
}

static void destroy(struct top_diagnosis *d)
{
    drop_answer(&d->latest);
    top_verdict_clear(&d->believed);
    top_verdict_clear(&d->shown);
    pthread_cond_destroy(&d->wake);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

struct top_diagnosis *top_diagnosis_start(const struct top_options *options)
{
    struct top_diagnosis *d = calloc(1, sizeof *d);
    pthread_condattr_t attributes;
    sigset_t all, before;
    if (d == NULL)
        return NULL;
    d->options = options;
    pthread_mutex_init(&d->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&d->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    /* Signals are the screen's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&d->worker, NULL, work, d);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        return d;
    destroy(d);
    return NULL;
}

void top_diagnosis_stop(struct top_diagnosis *d)
{
    if (d == NULL)
        return;
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    bool at_work = d->at_work;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
    if (at_work) { /* nobody who quits wants to wait for it */
        pthread_detach(d->worker);
        return;
    }
    pthread_join(d->worker, NULL);
    destroy(d);
}

/* ---- the screen's side ---- */

void top_diagnosis_ask(struct top_diagnosis *d, const struct top_snapshot *snapshot)
{
    struct question *question = malloc(sizeof *question);
    bool posed = question != NULL && pose(question, d->options, snapshot);
    pthread_mutex_lock(&d->lock);
    bool news = posed && (!d->asked || question->signature != d->question.signature);
    if (posed)
        d->question = *question;
    d->asked = posed;
    if (news)
        pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
    free(question);
}

const struct top_verdict *top_diagnosis_get(struct top_diagnosis *d)
{
    pthread_mutex_lock(&d->lock);
    if (d->shown.serial != d->believed.serial)
        copy_verdict(&d->shown, &d->believed);
    memcpy(d->shown.problem, d->believed.problem, sizeof d->shown.problem);
    pthread_mutex_unlock(&d->lock);
    return &d->shown;
}

bool top_diagnosis_once(const struct top_options *options, const struct top_snapshot *snapshot,
                        struct top_verdict *verdict)
{
    struct question *question = malloc(sizeof *question);
    struct answer answer = {0};
    *verdict = (struct top_verdict){0};
    bool found = question != NULL && pose(question, options, snapshot) && look(options, question, &answer);
    copy_verdict(verdict, &answer.told);
    verdict->serial = found;
    drop_answer(&answer);
    free(question);
    return found;
}

bool top_diagnosis_borrow(struct top_diagnosis *d, const struct rec_job **job,
                          const struct rec_verdict **verdict)
{
    pthread_mutex_lock(&d->lock);
    d->lent = d->latest.job != NULL;
    *job = d->latest.job;
    *verdict = d->latest.verdict;
    pthread_mutex_unlock(&d->lock);
    return *job != NULL;
}

void top_diagnosis_return(struct top_diagnosis *d)
{
    pthread_mutex_lock(&d->lock);
    d->lent = false;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
}
