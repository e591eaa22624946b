#include "work.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define QUIET_NS  UINT64_C(1000000000) /* what is over so soon need not be told */
#define REPEAT_NS UINT64_C(100000000)

/* ---- what is told ---- */

/* 1234567 → "1,234,567" */
static void group_digits(uint64_t number, char text[32])
{
    char plain[24];
    int length = snprintf(plain, sizeof plain, "%" PRIu64, number), out = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            text[out++] = ',';
        text[out++] = plain[i];
    }
    text[out] = '\0';
}

void work_say(const struct work_state *state, char *text, size_t size)
{
    char done[32], total[32];
    group_digits(state->done, done);
    group_digits(state->total, total);
    switch (state->phase) {
    case REC_PHASE_FIND:
        snprintf(text, size, "Looking for traces: %s files", done);
        break;
    case REC_PHASE_LOAD:
        snprintf(text, size, "Reading traces: %s of %s processes", done, total);
        break;
    case REC_PHASE_ANALYZE:
        snprintf(text, size, "Comparing the ranks: step %s of %s", done, total);
        break;
    }
}

/* ---- the work itself ---- */

static void do_all(const struct work_order *order, const struct rec_progress *progress,
                   struct work_result *result)
{
    struct rec_job_options job = order->job;
    struct rec_analyze_options analyze = order->analyze;
    job.analyze = true;
    job.progress = analyze.progress = progress;
    *result = (struct work_result){0};
    result->code = rec_job_open(order->dirs, order->ndirs, &job, &result->job, &result->err);
    if (result->code == REC_OK)
        result->code = rec_analyze(result->job, &analyze, &result->verdict, &result->err);
}

void work_result_fini(struct work_result *result)
{
    rec_verdict_free(result->verdict);
    rec_job_close(result->job);
    result->verdict = NULL;
    result->job = NULL;
}

/* ---- with a line on standard error ---- */

struct line {
    uint64_t begun_ns, told_ns;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static bool tell_line(void *context, enum rec_phase phase, uint64_t done, uint64_t total)
{
    struct line *line = context;
    struct work_state state = {.phase = phase, .done = done, .total = total};
    uint64_t now = now_ns();
    char text[128];
    if (now - line->begun_ns < QUIET_NS || now - line->told_ns < REPEAT_NS)
        return true;
    line->told_ns = now;
    work_say(&state, text, sizeof text);
    fprintf(stderr, "\r%s\033[K", text);
    return true;
}

void work_do(const struct work_order *order, struct work_result *result)
{
    struct line line = {.begun_ns = now_ns()};
    const struct rec_progress progress = {tell_line, &line};
    do_all(order, isatty(STDERR_FILENO) ? &progress : NULL, result);
    if (line.told_ns)
        fputs("\r\033[K", stderr);
}

/* ---- in a thread of its own ---- */

/*
 * The worker owns result until over is set (release), which whoever paints reads (acquire). The
 * other words are news and nothing else: a picture of one moment or two makes no difference.
 */
struct work {
    const struct work_order *order;
    struct work_result result;
    pthread_t thread;
    _Atomic bool over, unwanted;
    _Atomic int phase;
    _Atomic uint64_t done, total;
};

static bool note(void *context, enum rec_phase phase, uint64_t done, uint64_t total)
{
    struct work *work = context;
    atomic_store_explicit(&work->phase, (int)phase, memory_order_relaxed);
    atomic_store_explicit(&work->total, total, memory_order_relaxed);
    atomic_store_explicit(&work->done, done, memory_order_relaxed);
    return !atomic_load_explicit(&work->unwanted, memory_order_relaxed);
}

static void *run(void *arg)
{
    struct work *work = arg;
    const struct rec_progress progress = {note, work};
    do_all(work->order, &progress, &work->result);
    atomic_store_explicit(&work->over, true, memory_order_release);
    return NULL;
}

struct work *work_start(const struct work_order *order)
{
    struct work *work = calloc(1, sizeof *work);
    if (!work)
        return NULL;
    work->order = order;
    /* Signals are the caller's affair, but for those of a crash. */
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    sigset_t others, before;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        sigdelset(&others, crashes[i]);
    pthread_sigmask(SIG_SETMASK, &others, &before);
    bool runs = pthread_create(&work->thread, NULL, run, work) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (runs)
        return work;
    free(work);
    return NULL;
}

void work_look(const struct work *work, struct work_state *state)
{
    *state = (struct work_state){
        .over = atomic_load_explicit(&work->over, memory_order_acquire),
        .phase = (enum rec_phase)atomic_load_explicit(&work->phase, memory_order_relaxed),
        .done = atomic_load_explicit(&work->done, memory_order_relaxed),
        .total = atomic_load_explicit(&work->total, memory_order_relaxed),
    };
}

void work_end(struct work *work, bool wanted, struct work_result *result)
{
    if (!wanted)
        atomic_store_explicit(&work->unwanted, true, memory_order_relaxed);
    pthread_join(work->thread, NULL);
    *result = work->result;
    free(work);
}
