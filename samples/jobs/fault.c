#include "fault.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job.h"

enum fault_what { COUNT, OP, REDOP, ROOT, DTYPE, SKIP, EXTRA, SWAP, SLEEP, KILL, CRASH, EXIT, LEAK };

static const char *const what_names[] = {"count", "op",    "redop", "root",  "dtype", "skip", "extra",
                                         "swap",  "sleep", "kill",  "crash", "exit",  "leak"};

static struct fault {
    enum fault_what what;
    long first_rank, last_rank;
    uint64_t at, every;
    long number; /* factor, root, milliseconds, signal, status; -1 not given */
    uint64_t value;
    enum train_kind kind;
    ncclDataType_t dtype;
    ncclRedOp_t redop;
} faults[FAULT_MAX];
static size_t nfaults;

static struct train_op held; /* by swap, until the next op */
static bool holding;

static bool parse_kind(const char *name, enum train_kind *kind)
{
    static const char *const names[] = {"AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) {
            *kind = (enum train_kind)i;
            return true;
        }
    return false;
}

static bool parse_to(struct fault *fault, const char *value)
{
    switch (fault->what) {
    case OP:
        return parse_kind(value, &fault->kind);
    case REDOP:
        return job_redop_parse(value, &fault->redop);
    case DTYPE:
        return job_dtype_parse(value, &fault->dtype);
    case ROOT:
        fault->number = strtol(value, NULL, 10);
        return true;
    default:
        return false;
    }
}

static bool parse_field(struct fault *fault, const char *key, const char *value)
{
    char *end;
    if (!strcmp(key, "to"))
        return parse_to(fault, value);
    long number = strtol(value, &end, 10);
    if (end == value || number < 0)
        return false;
    if (!strcmp(key, "rank")) {
        fault->first_rank = fault->last_rank = number;
        if (*end == '-')
            fault->last_rank = strtol(end + 1, &end, 10);
    } else if (!strcmp(key, "at")) {
        fault->at = (uint64_t)number;
    } else if (!strcmp(key, "every")) {
        fault->every = (uint64_t)number;
    } else if (!strcmp(key, "value")) {
        fault->value = (uint64_t)number;
    } else if (!strcmp(key, "factor") || !strcmp(key, "ms") || !strcmp(key, "sig") ||
               !strcmp(key, "status")) {
        fault->number = number;
    } else {
        return false;
    }
    return *end == 0;
}

void fault_add(const char *text)
{
    struct fault fault = {.last_rank = 1 << 24, .number = -1};
    char *copy = strdup(text), *rest = copy;
    if (!copy || nfaults == FAULT_MAX)
        job_fail(JOB_EXIT_USAGE, "--fault %s: too many", text);
    const char *name = strsep(&rest, ":");
    size_t what = 0, count = sizeof what_names / sizeof *what_names;
    while (what < count && strcmp(name, what_names[what]))
        what++;
    if (what == count)
        job_fail(JOB_EXIT_USAGE, "--fault %s: unknown fault", text);
    fault.what = (enum fault_what)what;
    for (char *field; (field = strsep(&rest, ","));) {
        const char *key = strsep(&field, "=");
        if (!field || !parse_field(&fault, key, field))
            job_fail(JOB_EXIT_USAGE, "--fault %s: what is %s?", text, key);
    }
    free(copy);
    faults[nfaults++] = fault;
}

static bool mine(const struct fault *fault)
{
    return job.rank >= fault->first_rank && job.rank <= fault->last_rank;
}

size_t fault_growth(size_t largest_count)
{
    size_t growth = 1;
    for (size_t i = 0; i < nfaults; i++) {
        const struct fault *fault = &faults[i];
        if (!mine(fault) || fault->what != COUNT)
            continue;
        size_t by = fault->value ? (size_t)fault->value / largest_count + 1 : (size_t)fault->number;
        growth = by > growth ? by : growth;
    }
    return growth;
}

/* Named after what it stands for: a rank that waits for data is to be seen as such in its stack. */
__attribute__((noinline)) static void data_loader_wait(long ms)
{
    do
        job_sleep_us(ms < 0 ? 1000000 : (uint64_t)ms * 1000);
    while (ms < 0);
    __asm__ volatile("" ::: "memory"); /* no tail call: the frame stays */
}

__attribute__((no_sanitize("undefined"))) static void crash(void)
{
    volatile int *volatile nowhere = NULL;
    *nowhere = 1;
}

/* Changes ops in place; returns their new number. */
static size_t apply_one(const struct fault *fault, struct train_op *ops, size_t n)
{
    struct train_op *op = &ops[0];
    switch (fault->what) {
    case COUNT:
        op->count = fault->value ? (size_t)fault->value : op->count * (size_t)fault->number;
        return n;
    case OP:
        op->kind = fault->kind;
        return n;
    case REDOP:
        op->redop = fault->redop;
        return n;
    case ROOT:
        op->peer = (int)fault->number;
        return n;
    case DTYPE:
        op->dtype = fault->dtype;
        return n;
    case SKIP:
        return 0;
    case EXTRA:
        ops[1] = *op;
        return 2;
    case SWAP:
        held = *op;
        holding = true;
        return 0;
    case SLEEP:
        data_loader_wait(fault->number);
        return n;
    case KILL:
        kill(getpid(), fault->number < 0 ? SIGKILL : (int)fault->number);
        return n;
    case CRASH:
        crash();
        return n;
    case LEAK:
        while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0)
            ;
        return n;
    case EXIT:
        exit(fault->number < 0 ? 0 : (int)fault->number);
    }
    return n;
}

size_t fault_apply(const struct train_op *op, uint64_t n, struct train_op ops[FAULT_OPS_MAX])
{
    size_t count = 1;
    bool release = holding;
    ops[0] = *op;
    for (size_t i = 0; i < nfaults && count; i++) {
        const struct fault *fault = &faults[i];
        bool now = fault->every ? n >= fault->at && (n - fault->at) % fault->every == 0 : n == fault->at;
        if (mine(fault) && now)
            count = apply_one(fault, ops, count);
    }
    if (release) {
        ops[count++] = held;
        holding = false;
    }
    return count;
}
