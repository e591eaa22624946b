#include "watch.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "analyze.h"
#include "fr-common.h"
#include "hook.h"
#include "probe.h"

#define NS_PER_S        UINT64_C(1000000000)
#define CONFIRM_NS      (1 * NS_PER_S) /* between the two looks that make an incident, and before the end */
#define UNSETTLED_LOOKS 3              /* a fault that looks different each time is one all the same */
#define ABSENT_NS       (10 * NS_PER_S) /* what ranks that never came may still take when the others have ended */
#define SILENT_NS       (60 * NS_PER_S) /* files that stay as they are: on other hosts nobody lives any more */
#define REST_FACTOR     3               /* so much longer than an analysis is the pause behind it */
#define MARGIN_NS       (NS_PER_S / 10) /* a moment is surely over */
#define AGED_NS         (5 * NS_PER_S)  /* beyond the stall time: heartbeats come every 2 s */

/* What makes two verdicts the same. */
struct subject {
    enum rec_verdict_type type;
    int32_t *culprits;
    size_t nculprits;
};

struct watch {
    const struct watch_options *options;
    struct rec_job_options job_options;
    struct hook hook;

    struct rec_job *job; /* of the last analysis; NULL = none yet */
    struct rec_verdict *verdict;
    char job_id[320];
    int status; /* of the last verdict */

    struct probe probe;
    struct probe_look last, judged; /* of the last look, and the one that led to an analysis */
    uint64_t changed_ns;            /* monotonic: when a look was last another than the one before */
    uint64_t called_ns;             /* monotonic: when calls were last seen to begin or return */
    uint64_t analyzed_ns;           /* monotonic: when the last analysis was over */
    uint64_t rest_ns;               /* no other one before this long, unless it is due */
    uint64_t due_ns;                /* wall clock: analyze then even when nothing changes; 0 = never */

    struct subject incident, candidate;
    unsigned bad_looks; /* in a row */
    unsigned incidents;
    bool in_incident;
    bool all_ended;
    bool said_waiting;
    char said[256]; /* the last problem told */
};

static uint64_t clock_now(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* ---- subjects ---- */

static bool same_subject(const struct subject *subject, const struct rec_finding *finding)
{
    return subject->type == finding->type && subject->nculprits == finding->nculprits &&
           (finding->nculprits == 0 || memcmp(subject->culprits, finding->culprits,
                                              finding->nculprits * sizeof *finding->culprits) == 0);
}

static void forget_subject(struct subject *subject)
{
    free(subject->culprits);
    *subject = (struct subject){0};
}

/* Without memory the subject equals no verdict with culprits, which costs a repetition at worst. */
static void set_subject(struct subject *subject, const struct rec_finding *finding)
{
    forget_subject(subject);
    subject->type = finding->type;
    if (finding->nculprits == 0 || !(subject->culprits = calloc(finding->nculprits, sizeof(int32_t))))
        return;
    memcpy(subject->culprits, finding->culprits, finding->nculprits * sizeof(int32_t));
    subject->nculprits = finding->nculprits;
}

/* ---- telling ---- */

static char *document(const struct watch *watch, const char *event)
{
    struct timespec now;
    struct tm tm;
    char date[32] = "", stamp[48];
    clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &tm))
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(stamp, sizeof stamp, "%s.%09ldZ", date, now.tv_nsec);

    char *text = rec_verdict_json(watch->job, watch->verdict), *line = NULL;
    json_t *root = text ? json_loads(text, 0, NULL) : NULL;
    json_t *told =
        json_pack("{s:s, s:s, s:i}", "event", event, "time", stamp, "incidents", (int)watch->incidents);
    if (root && told && json_object_set(root, "watch", told) == 0)
        line = json_dumps(root, JSON_COMPACT);
    json_decref(told);
    json_decref(root);
    free(text);
    return line;
}

static void print_heading(const char *text)
{
    time_t now = time(NULL);
    struct tm tm;
    char date[32] = "";
    if (gmtime_r(&now, &tm))
        strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S UTC", &tm);
    printf("%s  %s\n", date, text);
}

/* Also runs the command when the event is the beginning of an incident. */
static void tell(struct watch *watch, const char *event, const char *heading, bool whole, bool begins)
{
    char *line = watch->options->json || begins ? document(watch, event) : NULL;
    if (!line && (watch->options->json || begins))
        fr_errorf(NULL, "no memory");
    if (watch->options->json) {
        if (line)
            puts(line);
    } else {
        print_heading(heading);
        if (whole) {
            print_verdict(watch->job, watch->verdict);
            putchar('\n');
        }
    }
    fflush(stdout);
    if (begins && line)
        hook_run(&watch->hook, watch->job, watch->verdict, line);
    free(line);
}

static const char *bad_heading(const struct rec_verdict *verdict)
{
    return verdict->status == REC_STATUS_FAULT ? "fault found" : "the job stands still";
}

static void begin_incident(struct watch *watch)
{
    watch->in_incident = true;
    watch->incidents++;
    set_subject(&watch->incident, &watch->verdict->findings[0]);
}

static void end_incident(struct watch *watch)
{
    watch->in_incident = false;
    watch->bad_looks = 0;
    forget_subject(&watch->incident);
    forget_subject(&watch->candidate);
}

/* A bad verdict counts when it was seen twice in a row. */
static bool confirmed(struct watch *watch)
{
    const struct rec_finding *finding = &watch->verdict->findings[0];
    bool again = watch->bad_looks > 0 && same_subject(&watch->candidate, finding);
    watch->bad_looks++;
    if (again || (!watch->in_incident && watch->bad_looks >= UNSETTLED_LOOKS))
        return true;
    set_subject(&watch->candidate, finding);
    return false;
}

static void judge(struct watch *watch)
{
    const struct rec_verdict *verdict = watch->verdict;
    watch->status = (int)verdict->status;
    if (verdict->status == REC_STATUS_HEALTHY) {
        if (watch->in_incident)
            tell(watch, "healthy", "healthy again: the job makes progress", false, false);
        end_incident(watch);
    } else if (watch->in_incident && same_subject(&watch->incident, &verdict->findings[0])) {
        watch->bad_looks = 0;
    } else if (confirmed(watch)) {
        bool begins = !watch->in_incident;
        if (begins)
            begin_incident(watch);
        set_subject(&watch->incident, &verdict->findings[0]);
        watch->bad_looks = 0;
        tell(watch, begins ? "fault" : "changed", begins ? bad_heading(verdict) : "the verdict has changed",
             true, begins);
    }
}

/* The job has ended: the last word, and what never was an incident becomes one. */
static void conclude(struct watch *watch)
{
    const struct rec_finding *finding = &watch->verdict->findings[0];
    bool bad = watch->verdict->status != REC_STATUS_HEALTHY, begins = bad && !watch->in_incident;
    char heading[128] = "the job has ended";
    bool known = bad && !begins && same_subject(&watch->incident, finding);
    if (known)
        snprintf(heading, sizeof heading, "the job has ended, the verdict is the same: %s",
                 rec_verdict_type_name(finding->type));
    if (begins)
        begin_incident(watch);
    tell(watch, "ended", heading, !known, begins);
}

/* ---- looking ---- */

static void due_by(uint64_t since_ns, uint64_t wait_ns, uint64_t now_ns, uint64_t *due_ns)
{
    uint64_t at = since_ns + wait_ns + MARGIN_NS;
    if (since_ns && at > now_ns && (*due_ns == 0 || at < *due_ns))
        *due_ns = at;
}

static uint64_t stall_ns_of(const struct watch *watch)
{
    uint32_t seconds = watch->options->analyze.stall_sec;
    return (seconds ? seconds : REC_STALL_SEC) * NS_PER_S;
}

/* When will somebody have been silent for the stall time? Then the verdict may change by itself. */
static uint64_t next_due(const struct watch *watch)
{
    uint64_t stall_ns = stall_ns_of(watch);
    uint64_t now_ns = clock_now(CLOCK_REALTIME), due_ns = 0;
    size_t count;
    struct rec_process *const *processes = rec_job_processes(watch->job, &count);
    for (size_t i = 0; i < count; i++) {
        const struct rec_process *p = processes[i];
        if (p->fate != REC_FATE_ALIVE && p->fate != REC_FATE_UNKNOWN)
            continue;
        due_by(p->last_call_ns, stall_ns, now_ns, &due_ns);
        due_by(p->last_gpu_ns, stall_ns, now_ns, &due_ns);
        for (uint32_t k = 0; k < p->nopen; k++)
            due_by(p->open[k].enter_ns, stall_ns, now_ns, &due_ns);
        for (uint32_t k = 0; k < p->nmembers; k++)
            due_by(p->members[k]->last_ns, stall_ns, now_ns, &due_ns);
    }
    return due_ns;
}

static bool everybody_ended(const struct watch *watch)
{
    size_t count;
    struct rec_process *const *processes = rec_job_processes(watch->job, &count);
    bool silent = clock_now(CLOCK_MONOTONIC) - watch->changed_ns > SILENT_NS;
    for (size_t i = 0; i < count; i++) {
        enum rec_process_fate fate = processes[i]->fate;
        if (fate == REC_FATE_ALIVE || (fate == REC_FATE_UNKNOWN && !silent))
            return false;
    }
    return count > 0;
}

/* The directories that are there; those of other hosts may come later. */
static size_t present_dirs(const struct watch_options *options, const char **dirs)
{
    size_t count = 0;
    for (size_t i = 0; i < options->ndirs; i++)
        if (access(options->dirs[i], F_OK) == 0 || errno != ENOENT)
            dirs[count++] = options->dirs[i];
    return count;
}

static void say_waiting(struct watch *watch, const char *path, const char *reason)
{
    if (!watch->said_waiting)
        fr_errorf(path, "%s; waiting", reason);
    watch->said_waiting = true;
}

static void take_job(struct watch *watch, struct rec_job *job, struct rec_verdict *verdict)
{
    const char *id = rec_job_info(job)->id;
    rec_verdict_free(watch->verdict);
    rec_job_close(watch->job);
    watch->job = job;
    watch->verdict = verdict;
    if (watch->job_id[0] && strcmp(watch->job_id, id) != 0) {
        fr_errorf(NULL, "another job has begun: %s", id);
        end_incident(watch);
    }
    snprintf(watch->job_id, sizeof watch->job_id, "%s", id);
}

/* 0, or an exit status after an error that is not going to pass. */
static int report_problem(struct watch *watch, const struct rec_error *err)
{
    if (!watch->job && (err->code == REC_ERR_EMPTY || err->code == REC_ERR_MIXED)) {
        say_waiting(watch, err->path, err->text);
        return 0;
    }
    if (!watch->job || err->code == REC_ERR_NOMEM)
        return fr_error(err);
    if (strcmp(watch->said, err->text) != 0)
        fr_error(err);
    snprintf(watch->said, sizeof watch->said, "%s", err->text);
    return 0;
}

/* Reads the job and judges it. *fresh: there is a new verdict. */
static int analyze(struct watch *watch, bool *fresh)
{
    struct rec_error err = {0};
    struct rec_job *job = NULL;
    struct rec_verdict *verdict = NULL;
    const char **dirs = calloc(watch->options->ndirs, sizeof *dirs);
    if (!dirs)
        return fr_errorf(NULL, "no memory");
    size_t ndirs = present_dirs(watch->options, dirs);

    if (ndirs == 0) {
        free(dirs);
        say_waiting(watch, watch->options->dirs[0], "not there yet");
        return 0;
    }
    enum rec_code code = rec_job_open(dirs, ndirs, &watch->job_options, &job, &err);
    free(dirs);
    if (code == REC_OK)
        code = rec_analyze(job, &watch->options->analyze, &verdict, &err);
    if (code != REC_OK) {
        rec_job_close(job);
        return report_problem(watch, &err);
    }
    *fresh = true;
    take_job(watch, job, verdict);
    watch->due_ns = next_due(watch);
    return 0;
}

/*
 * A verdict comes of age while nobody calls: for a stall time after the last call, heartbeats
 * are reason enough to look at files again.
 */
static bool has_news(struct watch *watch, const struct probe_look *look, uint64_t now)
{
    uint64_t age_ns = stall_ns_of(watch) + AGED_NS;
    return look->calls != watch->judged.calls || look->quiet != watch->judged.quiet ||
           (look->beats != watch->judged.beats && now - watch->called_ns < age_ns);
}

static bool analysis_wanted(struct watch *watch)
{
    struct probe_look look;
    probe_look(&watch->probe, watch->options->dirs, watch->options->ndirs, &watch->options->job, watch->job,
               &look);
    uint64_t now = clock_now(CLOCK_MONOTONIC);
    bool due = watch->due_ns && clock_now(CLOCK_REALTIME) >= watch->due_ns, first = !watch->changed_ns;
    if (first || look.calls != watch->last.calls)
        watch->called_ns = now;
    if (watch->called_ns == now || look.beats != watch->last.beats)
        watch->changed_ns = now;
    watch->last = look;
    bool silent = now - watch->changed_ns > SILENT_NS && watch->analyzed_ns - watch->changed_ns <= SILENT_NS;
    bool news = first || has_news(watch, &look, now);
    if (!due && watch->bad_looks == 0 && !watch->all_ended && !(news ? now >= watch->rest_ns : silent))
        return false;
    watch->judged = look;
    return true;
}

/*
 * One look. *over: the job has ended, which is so when everybody has, and a later look, with
 * time for those who are missing, still says so.
 */
static int look(struct watch *watch, bool *over)
{
    bool fresh = false;
    if (!analysis_wanted(watch))
        return 0;
    uint64_t began = clock_now(CLOCK_MONOTONIC);
    int status = analyze(watch, &fresh);
    watch->analyzed_ns = clock_now(CLOCK_MONOTONIC);
    watch->rest_ns = watch->analyzed_ns + REST_FACTOR * (watch->analyzed_ns - began);
    if (status || !fresh)
        return status;
    bool ended_before = watch->all_ended;
    watch->all_ended = everybody_ended(watch);
    if (!watch->all_ended) {
        judge(watch);
        return 0;
    }
    size_t count;
    rec_job_processes(watch->job, &count);
    uint64_t patience = count < rec_job_expected_ranks(watch->job) ? ABSENT_NS : CONFIRM_NS;
    watch->status = (int)watch->verdict->status;
    *over = ended_before && watch->analyzed_ns - watch->changed_ns >= patience;
    return 0;
}

/* ---- the loop ---- */

static uint64_t pause_ns(const struct watch *watch)
{
    uint64_t pause = watch->options->interval_sec * NS_PER_S, now = clock_now(CLOCK_REALTIME);
    if ((watch->bad_looks > 0 || watch->all_ended) && pause > CONFIRM_NS)
        pause = CONFIRM_NS;
    if (watch->due_ns > now && watch->due_ns - now < pause)
        pause = watch->due_ns - now;
    return pause;
}

/* Sleeps; false when a signal asks for the end. */
static bool wait_for_next(struct watch *watch, const sigset_t *signals)
{
    uint64_t until = clock_now(CLOCK_MONOTONIC) + pause_ns(watch);
    for (;;) {
        uint64_t now = clock_now(CLOCK_MONOTONIC);
        uint64_t left = until > now ? until - now : 0;
        struct timespec timeout = {(time_t)(left / NS_PER_S), (long)(left % NS_PER_S)};
        int signal = sigtimedwait(signals, NULL, &timeout);
        if (signal == SIGINT || signal == SIGTERM)
            return false;
        if (signal == SIGCHLD)
            hook_reap(&watch->hook);
        else if (signal < 0 && errno == EAGAIN)
            return true;
    }
}

int watch_run(const struct watch_options *options)
{
    struct watch watch = {.options = options, .job_options = options->job, .status = FR_EXIT_ERROR};
    sigset_t signals, before;
    bool over = false, stopped = false;
    int status = 0;
    watch.hook.command = options->on_fault;
    if (!watch.job_options.job_id)
        watch.job_options.job_id = "latest";
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, &before);
    while (!stopped && !over && (status = look(&watch, &over)) == 0 && !ferror(stdout))
        if (!over)
            stopped = !wait_for_next(&watch, &signals);
    if (over)
        conclude(&watch);
    else if (stopped && !watch.job)
        fr_errorf(options->dirs[0], "no trace appeared");
    hook_fini(&watch.hook);
    probe_fini(&watch.probe);
    end_incident(&watch);
    rec_verdict_free(watch.verdict);
    rec_job_close(watch.job);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return fr_finish(status ? status : watch.status);
}
