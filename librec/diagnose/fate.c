/*
 * How processes ended, and which ends are causes. One process that dies makes the others
 * wait; a launcher that kills all of them at once tells nothing.
 */
#include "diag.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Signs of life reach the disk every 2 s, the live region every 250 ms. */
#define MARGIN_FILE (3 * NS_PER_S)
#define MARGIN_LIVE (2 * NS_PER_S) /* a starved thread shows life that late */
#define MARGIN_KILL (NS_PER_S / 3)
#define MARGIN_CUT  (1 * NS_PER_S)
#define MARGIN_END  (NS_PER_S / 2)     /* an end record has the exact time */
#define SILENT_NS   (NS_PER_S * 9 / 2) /* two heartbeats missed */
#define TIMEOUT_NS  NS_PER_S           /* no timeout is shorter */
#define BREAK_NS    (5 * NS_PER_S)     /* a connection breaks that long after its other end at most */

static bool own_fault(int signal)
{
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE ||
           signal == SIGABRT || signal == SIGTRAP || signal == SIGSYS;
}

static bool ended_well(const struct rec_process *p)
{
    return p->fate == REC_FATE_EXITED && p->end.reason != REC_END_EXEC && p->end.status == 0;
}

bool diag_ended_badly(const struct diag_proc *proc)
{
    return proc->p->fate == REC_FATE_SIGNALED || (proc->p->fate == REC_FATE_EXITED && !proc->ended_well);
}

bool diag_ended_itself(const struct diag_proc *proc)
{
    return diag_ended_badly(proc) && (proc->p->fate == REC_FATE_EXITED || proc->p->end.signal == SIGABRT);
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* When the typical process of one clock was last alive, by signs of life and by end records. */
struct crowd {
    uint64_t *lives, *ends, *well, *struck;
    size_t nlives, nends, nwell, nstruck; /* well: those who ended well; struck: by a watchdog */
    uint64_t failed_ns; /* the first end of one that did not end well, or may not have; UINT64_MAX */
    uint64_t margin;    /* what the clocks may differ by */
    uint64_t last_call_ns;
};

/* Did at least half of the values lie beyond the limit? They are sorted. */
static bool most_beyond(const uint64_t *values, size_t count, uint64_t limit)
{
    return count && values[count / 2] > limit;
}

/* How many of the values are less than the limit? They are sorted. */
static size_t below(const uint64_t *values, size_t count, uint64_t limit)
{
    size_t low = 0;
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        if (values[middle] < limit)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

/* A file that was damaged, copied while it grew, or on a full disk, ends like one whose writer was killed. */
static bool unreliable_end(const struct rec_process *p)
{
    return !p->saw_live && (p->damaged || p->torn_tail || p->unwritten);
}

static bool cut_off(const struct diag_proc *proc, const struct crowd *crowd)
{
    if (proc->p->unwritten || proc->outlived)
        return true;
    if (proc->p->end.reason != REC_END_NONE || proc->p->fate == REC_FATE_ALIVE || !unreliable_end(proc->p))
        return false;
    /* Where others went on after its last record it may have gone on too. */
    return crowd->lives[crowd->nlives - 1] > proc->life_ns + MARGIN_CUT ||
           crowd->last_call_ns > proc->life_ns + crowd->margin;
}

/* A watchdog aborts what has stood still for too long: that is how waiting ends, not why it began. */
static bool struck_by_watchdog(const struct diag_proc *proc)
{
    return proc->p->fate == REC_FATE_SIGNALED && proc->p->end.signal == SIGABRT && diag_stood_still(proc);
}

/* Where its last calls are not recorded it may have stood still like those who were struck with it. */
static bool struck_with_others(const struct diag_proc *proc, const struct crowd *crowd)
{
    const struct rec_process *p = proc->p;
    if (p->fate != REC_FATE_SIGNALED || p->end.signal != SIGABRT || (proc->last_call_ns && !proc->gap_ns))
        return false;
    uint64_t margin = MARGIN_END + crowd->margin;
    uint64_t from = proc->dead_ns > margin ? proc->dead_ns - margin : 0;
    return below(crowd->struck, crowd->nstruck, proc->dead_ns + margin) >
           below(crowd->struck, crowd->nstruck, from);
}

static bool died_early(const struct diag_proc *proc, const struct crowd *crowd)
{
    const struct rec_process *p = proc->p;
    if (struck_by_watchdog(proc))
        return false;
    if (p->fate == REC_FATE_SIGNALED && own_fault(p->end.signal))
        return true;
    if ((p->fate == REC_FATE_UNKNOWN || proc->outlived) && !unreliable_end(p))
        return most_beyond(crowd->lives, crowd->nlives, proc->life_ns + SILENT_NS + crowd->margin);
    if (p->fate != REC_FATE_SIGNALED && p->fate != REC_FATE_VANISHED)
        return false;
    /* Where most were told to end, a launcher did it, and not to all at the same moment. */
    if (p->fate == REC_FATE_VANISHED && unreliable_end(p))
        return false;
    /* Nobody kills one of a job whose others go on to end well, unless something had failed before. */
    if (crowd->nwell * 2 >= crowd->nlives && !crowd->margin && crowd->well[0] > proc->dead_ns &&
        crowd->failed_ns >= proc->dead_ns)
        return true;
    bool all_told = crowd->nends > 1 && crowd->nends * 2 >= crowd->nlives;
    uint64_t margin = p->fate == REC_FATE_SIGNALED && !all_told ? MARGIN_END
                      : p->saw_live                             ? MARGIN_LIVE
                                                                : MARGIN_FILE;
    if (most_beyond(crowd->lives, crowd->nlives, proc->dead_ns + margin + crowd->margin))
        return true;
    /* The others were told to end, this one is gone without a word and before them. */
    return p->fate == REC_FATE_VANISHED && all_told && !crowd->margin &&
           most_beyond(crowd->ends, crowd->nends,
                       proc->dead_ns > MARGIN_KILL ? proc->dead_ns - MARGIN_KILL : 0);
}

static void gather(const struct diag *d, struct crowd *crowd, uint32_t clock)
{
    crowd->nlives = crowd->nends = crowd->nwell = crowd->nstruck = 0;
    crowd->last_call_ns = 0;
    crowd->failed_ns = d->expected > d->nprocs ? 0 : UINT64_MAX;
    for (size_t i = 0; i < d->nprocs; i++) {
        const struct diag_proc *proc = &d->procs[i];
        if (clock != DIAG_NONE && proc->clock != clock)
            continue;
        crowd->lives[crowd->nlives++] = proc->life_ns;
        if (proc->last_call_ns > crowd->last_call_ns)
            crowd->last_call_ns = proc->last_call_ns;
        if (proc->p->fate == REC_FATE_SIGNALED)
            crowd->ends[crowd->nends++] = proc->dead_ns;
        if (proc->ended_well)
            crowd->well[crowd->nwell++] = proc->dead_ns;
        if (struck_by_watchdog(proc))
            crowd->struck[crowd->nstruck++] = proc->dead_ns;
        if (!proc->ended_well && proc->p->fate != REC_FATE_ALIVE && proc->dead_ns < crowd->failed_ns)
            crowd->failed_ns = proc->dead_ns;
    }
    qsort(crowd->well, crowd->nwell, sizeof *crowd->well, by_time);
    qsort(crowd->struck, crowd->nstruck, sizeof *crowd->struck, by_time);
    qsort(crowd->lives, crowd->nlives, sizeof *crowd->lives, by_time);
    qsort(crowd->ends, crowd->nends, sizeof *crowd->ends, by_time);
}

/* Aborting its communicators is part of the end. */
static bool after_standstill(const struct diag_proc *proc)
{
    return diag_ended_itself(proc) && proc->last_work_ns && proc->dead_ns > proc->last_work_ns + TIMEOUT_NS;
}

/*
 * Several that end themselves at once after a standstill have run into a timeout, however long they may
 * have paused before. Of two ranks only one can.
 */
static void note_timeouts(struct diag *d)
{
    uint64_t *ends = malloc((d->nprocs + 1) * sizeof *ends);
    size_t count = 0, several = d->nprocs > 2 ? 2 : 1;
    d->oom = d->oom || !ends;
    for (size_t i = 0; i < d->nprocs && !d->oom; i++)
        if (after_standstill(&d->procs[i]))
            ends[count++] = d->procs[i].dead_ns;
    if (count)
        qsort(ends, count, sizeof *ends, by_time);
    for (size_t i = 0; i < d->nprocs && count; i++) {
        struct diag_proc *proc = &d->procs[i];
        if (!after_standstill(proc) || proc->patience_ns <= TIMEOUT_NS)
            continue;
        if (below(ends, count, proc->dead_ns + MARGIN_END) - below(ends, count, proc->dead_ns - MARGIN_END) >=
            several)
            proc->patience_ns = TIMEOUT_NS;
    }
    free(ends);
}

/* ---- who was missed by others ---- */

/* By communicator the op that first told of a broken connection; DIAG_NONE. */
static uint32_t *find_broken(const struct diag *d)
{
    uint32_t *broken = malloc((d->ncomms + 1) * sizeof *broken);
    for (size_t c = 0; broken && c < d->ncomms; c++)
        broken[c] = DIAG_NONE;
    for (uint32_t i = 0; broken && i < d->nops; i++) {
        const struct diag_op *op = &d->ops[i];
        bool polled = op->op.kind == REC_COMM_GET_ASYNC_ERROR;
        if (!op->member || !diag_tells_of_others(polled ? (unsigned)op->op.count : op->op.result))
            continue;
        uint32_t *first = &broken[op->member->comm->index];
        if (*first == DIAG_NONE || op->op.exit_ns < d->ops[*first].op.exit_ns)
            *first = i;
    }
    return broken;
}

static bool broke_with(const struct diag *d, const struct diag_op *told, const struct diag_proc *proc)
{
    uint64_t when = told->op.exit_ns;
    if (d->procs[told->proc].clock != proc->clock || when < proc->dead_ns || when > proc->dead_ns + BREAK_NS)
        return false;
    const struct rec_communicator *comm = told->member->comm;
    for (uint32_t i = 0; i < comm->nmembers; i++)
        if (comm->members[i]->process == proc->p)
            return true;
    return false;
}

/* Few that are gone without a word, and whose connections broke just then, were what broke them. */
static void note_missed(struct diag *d)
{
    size_t vanished = 0;
    for (size_t i = 0; i < d->nprocs; i++)
        vanished += d->procs[i].p->fate == REC_FATE_VANISHED;
    uint32_t *broken = vanished && vanished * 2 < d->nprocs ? find_broken(d) : NULL;
    for (size_t i = 0; broken && i < d->nprocs; i++) {
        struct diag_proc *proc = &d->procs[i];
        if (proc->p->fate != REC_FATE_VANISHED || !proc->p->saw_live || unreliable_end(proc->p))
            continue;
        for (size_t c = 0; c < d->ncomms && !proc->early_dead; c++)
            proc->missed = proc->early_dead =
                broken[c] != DIAG_NONE && broke_with(d, &d->ops[broken[c]], proc);
    }
    free(broken);
}

/* Judges the processes that follow one clock, among themselves and roughly among all. */
static void judge_clock(struct diag *d, struct crowd *crowd, struct crowd *all, uint32_t clock)
{
    gather(d, crowd, clock);
    for (size_t i = 0; i < d->nprocs; i++) {
        struct diag_proc *proc = &d->procs[i];
        if (proc->clock != clock)
            continue;
        uint64_t typical = crowd->lives[crowd->nlives / 2];
        proc->silence_ns = typical > proc->life_ns ? typical - proc->life_ns : 0;
        proc->cut = cut_off(proc, crowd) || cut_off(proc, all);
        proc->struck = struck_with_others(proc, crowd) || struck_with_others(proc, all);
        proc->early_dead = !proc->struck &&
                           (died_early(proc, crowd) || (crowd->nlives < d->nprocs && died_early(proc, all)));
    }
}

/* Room for all processes. */
static void crowd_init(struct diag *d, struct crowd *crowd)
{
    uint64_t **lists[] = {&crowd->lives, &crowd->ends, &crowd->well, &crowd->struck};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        *lists[i] = malloc((d->nprocs + 1) * sizeof(uint64_t));
        d->oom = d->oom || !*lists[i];
    }
}

static void crowd_fini(struct crowd *crowd)
{
    free(crowd->lives);
    free(crowd->ends);
    free(crowd->well);
    free(crowd->struck);
}

void diag_fates(struct diag *d)
{
    struct crowd crowd = {0}, all = {.margin = DIAG_UNALIGNED_NS};
    crowd_init(d, &crowd);
    crowd_init(d, &all);
    for (size_t i = 0; i < d->nprocs && !d->oom; i++) {
        struct diag_proc *proc = &d->procs[i];
        const struct rec_process *p = proc->p;
        proc->ended_well = ended_well(p);
        proc->dead_ns = diag_common(proc, p->end_ns ? p->end_ns : p->last_ns);
    }
    if (!d->oom)
        diag_find_outlived(d, MARGIN_CUT);
    if (!d->oom) {
        note_timeouts(d);
        gather(d, &all, DIAG_NONE);
        uint32_t clocks = 0;
        for (size_t i = 0; i < d->nprocs; i++)
            clocks = d->procs[i].clock >= clocks ? d->procs[i].clock + 1 : clocks;
        for (uint32_t clock = 0; clock < clocks; clock++)
            judge_clock(d, &crowd, &all, clock);
        note_missed(d);
        diag_mark_late(d);
    }
    crowd_fini(&crowd);
    crowd_fini(&all);
}

const char *diag_signal_name(int signal)
{
    const char *name = sigabbrev_np(signal);
    return name ? name : "?";
}

void diag_say_end(const struct diag *d, struct diag_text *t, const struct diag_proc *proc)
{
    const struct rec_process *p = proc->p;
    if (p->fate == REC_FATE_SIGNALED) {
        int signal = (int)p->end.signal;
        diag_printf(t, "died of signal %d (SIG%s)", signal, diag_signal_name(signal));
    } else if (p->fate == REC_FATE_EXITED) {
        if (p->end.reason == REC_END_EXEC)
            diag_printf(t, "replaced itself by another program");
        else if (p->end.status)
            diag_printf(t, "exited with status %d", (int)p->end.status);
        else
            diag_printf(t, "finished and exited");
    } else if (p->fate == REC_FATE_ALIVE) {
        diag_printf(t, "is alive");
    } else {
        diag_printf(t, "vanished without a word (SIGKILL, out of memory, or its node was lost)");
    }
    diag_printf(t, p->fate == REC_FATE_VANISHED || p->fate == REC_FATE_ALIVE || p->fate == REC_FATE_UNKNOWN
                       ? ", last seen at "
                       : " at ");
    diag_say_time(d, t, proc->dead_ns);
}

void diag_evidence_end(struct diag *d, struct rec_finding *f, const struct diag_proc *proc)
{
    const struct rec_process *p = proc->p;
    struct diag_text t = {0};
    diag_say_proc(&t, p);
    diag_printf(&t, " ");
    diag_say_end(d, &t, proc);
    if (t.data)
        diag_evidence(d, f, p, UINT64_MAX, proc->dead_ns, "%s", t.data);
    free(t.data);
    diag_evidence_frames(d, f, p, p->end.modules, p->end.nmodules, p->end.frames, p->end.nframes);
}
