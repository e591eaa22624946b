/*
 * Processes that died while the others lived on. What dies with them in the same moment and the same
 * way, as when a node is lost, is one fault; who dies later dies of it.
 */
#include "classify.h"

#include <inttypes.h>
#include <string.h>

#define SAME_BLUR (NS_PER_S * 5 / 2) /* signs of life are that coarse */
#define SAME_LIFE (NS_PER_S / 4)     /* what is heard of a process comes so much later at worst */
#define TOLD_MAX  4

/* Did it wait, or stand still, before it died, as when a watchdog ends a job that hangs already? */
static bool died_waiting(const struct diag_proc *proc)
{
    return proc->waits || proc->followed || (diag_stood_still(proc) && !proc->awaited);
}

static bool exact(const struct diag_proc *proc)
{
    return proc->p->fate == REC_FATE_SIGNALED;
}

static bool same_end(const struct diag_proc *a, const struct diag_proc *b)
{
    return a->p->fate == b->p->fate && (!exact(a) || a->p->end.signal == b->p->end.signal);
}

static bool together(const struct diag_proc *a, const struct diag_proc *b)
{
    if (!same_end(a, b))
        return false;
    uint64_t apart = a->dead_ns > b->dead_ns ? a->dead_ns - b->dead_ns : b->dead_ns - a->dead_ns;
    return apart <= (a->clock != b->clock   ? DIAG_UNALIGNED_NS
                     : exact(a) && exact(b) ? DIAG_ONE_END_NS
                                            : SAME_BLUR);
}

void classify_find_deaths(struct classify *c)
{
    struct diag *d = c->d;
    uint32_t first = DIAG_NONE;
    for (uint32_t i = 0; i < d->nprocs; i++)
        if (d->procs[i].early_dead && !died_waiting(&d->procs[i]) &&
            (first == DIAG_NONE || d->procs[i].dead_ns < d->procs[first].dead_ns))
            first = i;
    uint64_t last = 0;
    for (uint32_t i = 0; i < d->nprocs && first != DIAG_NONE; i++) {
        c->first_dead[i] =
            d->procs[i].early_dead && !died_waiting(&d->procs[i]) && together(&d->procs[first], &d->procs[i]);
        if (c->first_dead[i] && d->procs[i].dead_ns > last)
            last = d->procs[i].dead_ns;
    }
    /* Whom nobody missed: gone without a word in that moment. */
    for (uint32_t i = 0; i < d->nprocs && first != DIAG_NONE; i++)
        if (!exact(&d->procs[i]) && !d->procs[i].cut && !d->procs[i].waits &&
            d->procs[i].dead_ns <= last + SAME_LIFE && together(&d->procs[first], &d->procs[i]))
            c->first_dead[i] = d->procs[i].early_dead = true;
    c->first_death = first;
}

/* " (all of host beta)" when the dead are all that ran on their hosts, and others ran elsewhere. */
static void say_hosts(const struct classify *c, struct diag_text *t)
{
    const struct diag *d = c->d;
    const char *hosts[3];
    size_t nhosts = 0;
    bool others = false;
    for (uint32_t i = 0; i < d->nprocs; i++) {
        const char *host = d->procs[i].p->host;
        if (!c->first_dead[i]) {
            others = true;
            continue;
        }
        size_t h = 0;
        while (h < nhosts && strcmp(hosts[h], host) != 0)
            h++;
        if (h == sizeof hosts / sizeof *hosts)
            return;
        if (h == nhosts)
            hosts[nhosts++] = host;
    }
    for (uint32_t i = 0; i < d->nprocs; i++)
        for (size_t h = 0; h < nhosts && !c->first_dead[i]; h++)
            if (strcmp(hosts[h], d->procs[i].p->host) == 0)
                return;
    for (size_t h = 0; h < nhosts && others; h++)
        diag_printf(t, "%s%s", h ? ", " : nhosts > 1 ? " (all of hosts " : " (all of host ", hosts[h]);
    if (others)
        diag_printf(t, ")");
}

static void say_dead(const struct classify *c, struct diag_text *t, const struct rec_finding *f)
{
    const struct diag_proc *first = &c->d->procs[c->first_death];
    if (f->nculprits > 1) {
        diag_say_ranks(t, f->culprits, f->nculprits);
        say_hosts(c, t);
    } else {
        diag_say_proc(t, first->p);
    }
    diag_printf(t, " ");
    diag_say_end(c->d, t, first);
}

static const struct diag_op *last_matched(const struct diag *d, uint32_t proc)
{
    const struct diag_proc *p = &d->procs[proc];
    for (uint32_t i = p->first + p->count; i-- > p->first;)
        if (d->ops[i].match != DIAG_NONE)
            return &d->ops[i];
    return NULL;
}

static void evidence_dead(struct classify *c, struct rec_finding *f)
{
    struct diag *d = c->d;
    uint32_t told = 0;
    for (uint32_t i = 0; i < d->nprocs && told < TOLD_MAX; i++) {
        if (!c->first_dead[i])
            continue;
        const struct diag_op *last = last_matched(d, i);
        if (last)
            diag_evidence_op(d, f, last, "last called");
        diag_evidence_end(d, f, &d->procs[i]);
        told++;
    }
}

static struct rec_finding *new_death(struct classify *c, uint64_t onset)
{
    struct diag *d = c->d;
    bool sure = true;
    for (uint32_t i = 0; i < d->nprocs; i++)
        sure = sure && (!c->first_dead[i] || diag_sure_dead(&d->procs[i]));
    struct rec_finding *f = diag_finding(d, REC_VERDICT_PROCESS_DEAD,
                                         sure ? REC_CONF_CERTAIN : REC_CONF_LIKELY, DIAG_TIER_ROOT, onset);
    for (uint32_t i = 0; i < d->nprocs && f; i++) {
        if (!c->first_dead[i])
            continue;
        diag_blame(d, f, DIAG_CULPRIT, d->procs[i].p->rank);
        c->blamed[i] = (uint32_t)d->nfindings;
    }
    if (f)
        diag_sort_ranks(f->culprits, &f->nculprits);
    return f;
}

void classify_death(struct classify *c, const struct diag_wait *wait)
{
    struct diag *d = c->d;
    if (c->first_death == DIAG_NONE)
        return;
    if (c->blamed[c->first_death]) {
        classify_more_victims(c, wait, c->blamed[c->first_death] - 1);
        return;
    }
    struct rec_finding *f = new_death(c, wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    struct diag_text t = {0};
    say_dead(c, &t, f);
    classify_say_while(c, &t, wait, 0);
    diag_summary(d, f, &t);
    evidence_dead(c, f);
    diag_evidence_op(d, f, &d->ops[wait->op], "waits in");
    classify_waiting(c, f, wait);
}

/* Had the job a fault before them? */
static bool after_fault(const struct classify *c)
{
    const struct diag *d = c->d;
    for (size_t i = 0; i < d->nfindings; i++)
        if (d->tiers[i] == DIAG_TIER_ROOT && d->onsets[i] < d->procs[c->first_death].dead_ns)
            return true;
    return false;
}

/* For whom nobody was seen to wait. */
static void tell_first(struct classify *c)
{
    struct diag *d = c->d;
    const struct diag_proc *proc = &d->procs[c->first_death];
    if (after_fault(c)) {
        for (uint32_t i = 0; i < d->nprocs; i++)
            c->first_dead[i] = false;
        return;
    }
    struct rec_finding *f = new_death(c, proc->dead_ns);
    if (!f)
        return;
    struct diag_text t = {0};
    say_dead(c, &t, f);
    diag_printf(&t, f->nculprits < d->nprocs ? " while the others lived on" : ", all at once");
    if (proc->last_work_ns) {
        diag_printf(&t, f->nculprits > 1 ? "; the last call of rank %d was at " : "; its last call was at ",
                    (int)proc->p->rank);
        diag_say_time(d, &t, proc->last_work_ns);
    }
    diag_summary(d, f, &t);
    const struct diag_op *last = last_matched(d, c->first_death);
    if (last) {
        f->comm = last->member->comm;
        f->seq = last->op.seq;
        f->op = last->op;
    }
    evidence_dead(c, f);
}

static bool died_later(const struct classify *c, uint32_t p, bool waiting)
{
    const struct diag_proc *proc = &c->d->procs[p];
    return proc->early_dead && !c->first_dead[p] && !c->blamed[p] && died_waiting(proc) == waiting;
}

/* Deaths that are consequences, after a long wait or after other deaths, in the way in which this one died.
 */
static void tell_later(struct classify *c, uint32_t first, bool waiting)
{
    struct diag *d = c->d;
    const struct diag_proc *one = &d->procs[first];
    struct rec_finding *f =
        diag_finding(d, REC_VERDICT_PROCESS_DEAD, REC_CONF_LIKELY, DIAG_TIER_CONSEQUENCE, one->dead_ns);
    if (!f)
        return;
    for (uint32_t i = first; i < d->nprocs; i++) {
        const struct diag_proc *proc = &d->procs[i];
        if (!died_later(c, i, waiting) || !same_end(one, proc))
            continue;
        diag_blame(d, f, DIAG_VICTIM, proc->p->rank);
        if (f->nevidence < TOLD_MAX)
            diag_evidence_end(d, f, proc);
    }
    diag_sort_ranks(f->victims, &f->nvictims);
    struct diag_text t = {0};
    if (f->nvictims > 1)
        diag_say_ranks(&t, f->victims, f->nvictims);
    else
        diag_say_proc(&t, one->p);
    diag_printf(&t, " ");
    diag_say_end(d, &t, one);
    diag_printf(&t, waiting ? ", after standing still" : ", after the fault");
    if (waiting && one->last_work_ns) {
        diag_printf(&t, " since ");
        diag_say_time(d, &t, one->last_work_ns);
    }
    diag_summary(d, f, &t);
}

/* One finding for each way to die, of the first that died in it. */
static void tell_all_later(struct classify *c, bool waiting)
{
    for (uint32_t i = 0; i < c->d->nprocs; i++) {
        bool told = !died_later(c, i, waiting);
        for (uint32_t k = 0; k < i && !told; k++)
            told = died_later(c, k, waiting) && same_end(&c->d->procs[k], &c->d->procs[i]);
        if (!told)
            tell_later(c, i, waiting);
    }
}

void classify_deaths(struct classify *c)
{
    if (c->first_death != DIAG_NONE && !c->blamed[c->first_death])
        tell_first(c);
    tell_all_later(c, true);
    tell_all_later(c, false);
}
