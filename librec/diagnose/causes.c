/* What an awaited process did instead, and who is wrong: it or those who wait. */
#include "classify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MANNERS_TOLD  3  /* of those who did not come */
#define PYTHON_FRAMES 12 /* of a stalled thread that are told */

/* ---- one cause at one wait ---- */

/* The last call that a process made, as far as the window tells. */
static const struct diag_op *last_op(const struct diag *d, uint32_t proc)
{
    const struct diag_proc *p = &d->procs[proc];
    return p->count ? &d->ops[p->first + p->count - 1] : NULL;
}

static void evidence_last(struct diag *d, struct rec_finding *f, uint32_t proc)
{
    const struct diag_op *op = last_op(d, proc);
    if (op)
        diag_evidence_op(d, f, op, "last called");
    else
        diag_evidence(d, f, d->procs[proc].p, UINT64_MAX, 0, "rank %d made no call that could match",
                      (int)d->procs[proc].p->rank);
}

/* The thread of a stall record that tells most: the one that called NCCL last, else the main one. */
static const struct rec_stall_thread *stalled_thread(const struct diag *d, uint32_t proc)
{
    const struct rec_process *p = d->procs[proc].p;
    const struct diag_op *last = last_op(d, proc);
    const struct rec_thread_def *caller = last ? rec_process_thread(p, last->op.thread) : NULL;
    const struct rec_stall_thread *main_thread = NULL;
    for (uint32_t i = 0; i < p->stall.nthreads; i++) {
        if (caller && p->stall.threads[i].tid == caller->tid)
            return &p->stall.threads[i];
        if (p->stall.threads[i].tid == p->pid)
            main_thread = &p->stall.threads[i];
    }
    return main_thread || !p->stall.nthreads ? main_thread : &p->stall.threads[0];
}

/* Where its Python code stood when it was found to have stalled; NULL = not known. */
static const struct rec_callsite_def *stalled_at(const struct diag *d, uint32_t proc)
{
    const struct rec_stall_thread *thread = d->procs[proc].p->stall.why ? stalled_thread(d, proc) : NULL;
    return thread && thread->callsite ? rec_process_callsite(d->procs[proc].p, thread->callsite) : NULL;
}

static void evidence_stack(struct diag *d, struct rec_finding *f, uint32_t proc)
{
    const struct rec_process *p = d->procs[proc].p;
    const struct rec_stall *stall = &p->stall;
    const struct rec_stall_thread *thread = stall->why ? stalled_thread(d, proc) : NULL;
    if (!thread)
        return;
    diag_evidence(d, f, p, UINT64_MAX, p->stall_ns, "stack of rank %d, thread %d \"%s\"%s%s%s:", (int)p->rank,
                  (int)thread->tid, thread->name, thread->where[0] ? " (" : "", thread->where,
                  thread->where[0] ? ")" : "");
    const struct rec_callsite_def *python = stalled_at(d, proc);
    for (uint32_t i = 0; python && i < python->nframes && i < PYTHON_FRAMES; i++)
        diag_evidence(d, f, p, UINT64_MAX, 0, "  #%" PRIu32 " %s:%" PRIu32 " in %s", i,
                      python->frames[i].file, python->frames[i].line, python->frames[i].function);
    if (!python)
        diag_evidence_frames(d, f, p, stall->modules, stall->nmodules, thread->frames, thread->nframes);
}

bool classify_busy(const struct diag *d, uint32_t proc, const struct diag_wait *wait)
{
    const struct diag_proc *p = &d->procs[proc];
    uint64_t patience = d->procs[d->ops[wait->op].proc].patience_ns;
    if (diag_came_late(d, wait, proc) != DIAG_NONE)
        return false;
    return p->p->fate != REC_FATE_EXITED && p->last_call_ns && p->life_ns < p->last_call_ns + patience;
}

static bool in_open_group(const struct diag *d, uint32_t proc)
{
    for (uint32_t i = d->procs[proc].first; i < d->procs[proc].first + d->procs[proc].count; i++)
        if (d->ops[i].unit != DIAG_NONE && !d->units[d->ops[i].unit].launched)
            return true;
    return false;
}

/* The call that an otherwise idle process has been inside for too long; NULL = outside NCCL. */
static const struct rec_op *stuck_call(const struct diag *d, uint32_t proc)
{
    const struct diag_proc *p = &d->procs[proc];
    for (uint32_t i = 0; i < p->p->nopen; i++)
        if (p->life_ns >= diag_common(p, p->p->open[i].enter_ns) + p->patience_ns)
            return &p->p->open[i];
    return NULL;
}

struct cause {
    enum rec_verdict_type type;
    enum rec_confidence confidence;
    bool several;         /* did so, in the same manner */
    struct diag_text why; /* predicate after the culprits' names */
};

static const char *teardown_name(const struct rec_member *member)
{
    const char *name = member ? rec_kind_name(member->teardown.kind) : NULL;
    return name ? name : "teardown";
}

/* It came, but only when the others had given up. */
static void cause_of_late(struct diag *d, const struct diag_proc *p, uint64_t back, struct cause *cause)
{
    uint64_t before = diag_common(p, p->p->start_ns), came = 0;
    for (uint32_t i = p->first; i < p->first + p->count && !came; i++) {
        if (d->ops[i].late || (back && d->ops[i].op.enter_ns >= back))
            came = d->ops[i].op.enter_ns;
        else if (d->ops[i].unit != DIAG_NONE)
            before = d->ops[i].op.enter_ns;
    }
    cause->type = REC_VERDICT_STUCK_OUTSIDE_NCCL;
    diag_printf(&cause->why, "made no NCCL call from ");
    diag_say_time(d, &cause->why, before);
    diag_printf(&cause->why, " to ");
    diag_say_time(d, &cause->why, came);
    diag_printf(&cause->why, ", when %s came too late,", cause->several ? "they" : "it");
}

/* Where it stands, or when it called NCCL last, if that is known as a line of Python; nothing else. */
static struct diag_text place_outside(struct diag *d, uint32_t proc, bool several)
{
    const struct diag_op *last = last_op(d, proc);
    const struct rec_callsite_def *stands = stalled_at(d, proc);
    struct diag_text text = {0}, place = {0};
    char where[256];
    if (last)
        diag_say_place(&place, d->procs[proc].p, &last->op);
    if (stands && rec_callsite_text(stands, NULL, where, sizeof where))
        diag_printf(&text, " and %s at %s", several ? "stand" : "stands", where);
    else if (place.data)
        diag_printf(&text, ", when %s called %s%s,", several ? "they" : "it", rec_kind_name(last->op.kind),
                    place.data);
    free(place.data);
    return text;
}

static void cause_of_outside(struct diag *d, uint32_t proc, struct cause *cause)
{
    const struct diag_proc *p = &d->procs[proc];
    cause->type = REC_VERDICT_STUCK_OUTSIDE_NCCL;
    diag_printf(&cause->why, "made no NCCL call since ");
    diag_say_time(d, &cause->why, p->last_work_ns ? p->last_work_ns : diag_common(p, p->p->start_ns));
    struct diag_text place = place_outside(d, proc, cause->several);
    diag_printf(&cause->why, "%s", place.data ? place.data : "");
    free(place.data);
    if (in_open_group(d, proc))
        diag_printf(&cause->why, " (between ncclGroupStart and ncclGroupEnd)");
    if (p->p->stall.why == REC_STALL_IDLE || p->life_ns - p->last_work_ns >= d->stall_ns)
        cause->confidence = REC_CONF_CERTAIN;
}

static void cause_of_idle(struct classify *c, const struct diag_partner *partner,
                          const struct diag_wait *wait, struct cause *cause)
{
    struct diag *d = c->d;
    uint32_t proc = partner->proc;
    const struct diag_proc *p = &d->procs[proc];
    const struct rec_op *call = stuck_call(d, proc);
    cause->confidence = REC_CONF_LIKELY;
    if (wait->kind == DIAG_WAIT_CREATE && d->matches[wait->match].unseen) {
        cause->type = REC_VERDICT_INIT_INCOMPLETE;
        diag_printf(&cause->why, "never joined");
        return;
    }
    uint64_t back = classify_back_ns(d, proc, wait);
    if ((back && back <= p->last_work_ns) || diag_came_late(d, wait, proc) != DIAG_NONE) {
        cause_of_late(d, p, back, cause);
        return;
    }
    if (call) {
        cause->type = rec_kind_flags(call->kind) & REC_KF_TEARDOWN ? REC_VERDICT_TEARDOWN_STUCK
                                                                   : REC_VERDICT_STUCK_IN_CALL;
        diag_printf(&cause->why, cause->several ? "have been inside " : "has been inside ");
        const struct rec_member *inside = rec_process_member(p->p, call->comm);
        if (cause->several)
            diag_say_ops(&cause->why, call, inside ? inside->comm : NULL, -1, -1);
        else
            diag_say_op(&cause->why, call, inside ? inside->comm : NULL);
        diag_say_place(&cause->why, p->p, call);
        diag_printf(&cause->why, " since ");
        diag_say_time(d, &cause->why, diag_common(p, call->enter_ns));
        diag_printf(&cause->why,
                    cause->several ? " although they wait for nobody" : " although it waits for nobody");
        return;
    }
    if (classify_went_on(d, partner, wait)) {
        cause->type = wait->kind == DIAG_WAIT_P2P ? REC_VERDICT_P2P_UNMATCHED : REC_VERDICT_RANK_NOT_JOINED;
        diag_printf(&cause->why, "went on with other calls until ");
        diag_say_time(d, &cause->why, p->last_work_ns);
        diag_printf(&cause->why, " and skipped it");
        return;
    }
    cause_of_outside(d, proc, cause);
}

static void cause_of_never(struct classify *c, const struct diag_partner *partner,
                           const struct diag_wait *wait, struct cause *cause)
{
    const struct diag_proc *proc = &c->d->procs[partner->proc];
    cause->confidence = partner->member ? REC_CONF_CERTAIN : REC_CONF_LIKELY; /* only guessed to be meant */
    switch (wait->never) {
    case DIAG_NEVER_EXITED:
        cause->type = wait->kind == DIAG_WAIT_P2P      ? REC_VERDICT_P2P_UNMATCHED
                      : wait->kind == DIAG_WAIT_CREATE ? REC_VERDICT_INIT_INCOMPLETE
                                                       : REC_VERDICT_RANK_NOT_JOINED;
        if (wait->kind == DIAG_WAIT_CREATE && partner->member)
            cause->type = REC_VERDICT_RANK_NOT_JOINED;
        diag_say_end(c->d, &cause->why, proc);
        break;
    case DIAG_NEVER_TEARDOWN:
        cause->type = wait->kind == DIAG_WAIT_P2P ? REC_VERDICT_P2P_UNMATCHED : REC_VERDICT_RANK_NOT_JOINED;
        diag_printf(&cause->why, "called %s instead at ", teardown_name(partner->member));
        diag_say_time(c->d, &cause->why,
                      partner->member ? diag_common(proc, partner->member->teardown.enter_ns) : 0);
        break;
    case DIAG_NEVER_LEFT_OUT:
        cause->type = REC_VERDICT_P2P_UNMATCHED;
        diag_printf(&cause->why, "posted its part of the exchange without the matching %s",
                    c->d->ops[wait->op].op.kind == REC_SEND ? "Recv" : "Send");
        break;
    case DIAG_NEVER_NO:
    case DIAG_NEVER_MISMATCH:
    case DIAG_NEVER_FAILED:
    case DIAG_NEVER_DEAD:
        break;
    }
}

static void cause_of(struct classify *c, const struct diag_partner *partner, const struct diag_wait *wait,
                     struct cause *cause)
{
    if (wait->never != DIAG_NEVER_NO)
        cause_of_never(c, partner, wait, cause);
    else
        cause_of_idle(c, partner, wait, cause);
}

/* Adds to a finding about those who did not come what speaks against those who came. */
static void doubt_partners(struct classify *c, struct rec_finding *f, const struct diag_wait *wait,
                           enum classify_doubt doubt, struct diag_text *why)
{
    if (doubt == CLASSIFY_DECIDED || doubt == CLASSIFY_RULED)
        return;
    const struct diag *d = c->d;
    f->confidence = REC_CONF_POSSIBLE;
    int32_t *came = NULL;
    size_t count = 0, capacity = 0;
    for (uint32_t i = d->matches[wait->match].first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        uint32_t proc = d->ops[i].proc;
        diag_blame(c->d, f, doubt == CLASSIFY_EVEN ? DIAG_CULPRIT : DIAG_SUSPECT, d->procs[proc].p->rank);
        if (doubt == CLASSIFY_EVEN)
            c->blamed[proc] = (uint32_t)d->nfindings;
        came = diag_grow(came, &capacity, count, sizeof *came, &c->d->oom);
        if (!d->oom)
            came[count++] = d->procs[proc].p->rank;
    }
    if (doubt == CLASSIFY_OPEN)
        diag_suspect_hidden(c->d, f, wait->comm);
    diag_sort_ranks(came, &count);
    diag_printf(why, doubt == CLASSIFY_EVEN ? "; it is a tie: " : "; or ");
    diag_say_ranks(why, came, count);
    free(came);
    bool other = classify_other_signal(d, wait) != NULL;
    diag_printf(why,
                other ? " may wait for another signal than it should" : " may have made a call too many");
    if (doubt == CLASSIFY_OPEN && !other)
        diag_printf(why, ": members that are not recorded might tell");
}

/* Some of those who did not come to a shrink are those it excludes. */
static void doubt_excluded(const struct diag *d, struct rec_finding *f, const struct diag_wait *wait,
                           struct diag_text *why)
{
    uint64_t others = diag_excluded(d, &d->matches[wait->match]).others;
    f->confidence = REC_CONF_POSSIBLE;
    diag_printf(why,
                "; %" PRIu64 " of those who did not come %s excluded by it; the records do not tell which",
                others, others == 1 ? "is" : "are");
}

/* What must be equal for one sentence to be true of several. */
static struct diag_text manner_of(struct classify *c, const struct diag_partner *partner,
                                  const struct diag_wait *wait)
{
    struct diag *d = c->d;
    const struct rec_process *p = d->procs[partner->proc].p;
    struct diag_text manner = {0};
    if (wait->never == DIAG_NEVER_EXITED)
        diag_printf(&manner, "%d %d %d %d", (int)p->fate, (int)p->end.reason, (int)p->end.status,
                    (int)p->end.signal);
    else if (wait->never == DIAG_NEVER_TEARDOWN)
        diag_printf(&manner, "%s", teardown_name(partner->member));
    else if (wait->never == DIAG_NEVER_NO) {
        const struct rec_op *call = stuck_call(d, partner->proc);
        struct diag_text place = place_outside(d, partner->proc, true);
        diag_printf(&manner, "%d %d %d %d %s", call ? (int)call->kind : -1,
                    diag_came_late(d, wait, partner->proc) != DIAG_NONE, classify_went_on(d, partner, wait),
                    in_open_group(d, partner->proc), place.data ? place.data : "");
        free(place.data);
    } else {
        diag_printf(&manner, "left out");
    }
    d->oom = d->oom || manner.oom || !manner.data;
    return manner;
}

/* Those whom the last finding blames, each with the number of the manner that is its own. */
struct manners {
    const struct diag_partner **partners;
    uint32_t *number;
    size_t count;
    uint32_t different;
};

static void manners_fini(struct manners *m)
{
    free(m->partners);
    free(m->number);
}

/* Of the first so many: what is beyond them is counted as one more. */
static struct manners sort_manners(struct classify *c, const struct diag_wait *wait,
                                   const struct diag_partner *partners, size_t count)
{
    struct diag_text seen[MANNERS_TOLD] = {{0}};
    struct manners m = {.partners = malloc((count + 1) * sizeof(struct diag_partner *)),
                        .number = malloc((count + 1) * sizeof(uint32_t))};
    c->d->oom = c->d->oom || !m.partners || !m.number;
    for (size_t i = 0; i < count && !c->d->oom; i++) {
        if (c->blamed[partners[i].proc] != (uint32_t)c->d->nfindings)
            continue;
        struct diag_text manner = manner_of(c, &partners[i], wait);
        uint32_t n = 0;
        while (n < m.different && n < MANNERS_TOLD && manner.data && strcmp(seen[n].data, manner.data) != 0)
            n++;
        m.different = n == m.different ? n + 1 : m.different;
        m.partners[m.count] = &partners[i];
        m.number[m.count++] = n;
        if (n < MANNERS_TOLD && !seen[n].data)
            seen[n] = manner;
        else
            free(manner.data);
    }
    for (size_t n = 0; n < MANNERS_TOLD; n++)
        free(seen[n].data);
    return m;
}

/* "rank 2 (host a, pid 1) exited …", "ranks 6-7 made …": those of one manner, and how sure that is. */
static enum rec_confidence say_manner(struct classify *c, struct diag_text *t, const struct diag_wait *wait,
                                      const struct manners *m, uint32_t number)
{
    struct diag *d = c->d;
    int32_t *ranks = NULL;
    size_t count = 0, capacity = 0;
    const struct diag_partner *first = NULL;
    for (size_t i = 0; i < m->count; i++) {
        if (m->number[i] != number)
            continue;
        first = first ? first : m->partners[i];
        ranks = diag_grow(ranks, &capacity, count, sizeof *ranks, &d->oom);
        if (!d->oom)
            ranks[count++] = d->procs[m->partners[i]->proc].p->rank;
    }
    diag_sort_ranks(ranks, &count);
    struct cause cause = {.several = count > 1};
    if (first && !d->oom) {
        cause_of(c, first, wait, &cause);
        if (count > 1)
            diag_say_ranks(t, ranks, count);
        else
            diag_say_proc(t, d->procs[first->proc].p);
        diag_printf(t, " %s", cause.why.data ? cause.why.data : "");
    }
    t->oom = t->oom || cause.why.oom;
    free(cause.why.data);
    free(ranks);
    return cause.confidence;
}

/* "rank 2 (host a, pid 1) <why> while ranks 0-1,3 wait in …" */
static void summarize(struct classify *c, struct rec_finding *f, const struct diag_wait *wait,
                      const struct diag_partner *partners, size_t count, enum classify_doubt doubt)
{
    struct diag_text t = {0};
    struct manners m = sort_manners(c, wait, partners, count);
    for (uint32_t n = 0; n < m.different && n < MANNERS_TOLD; n++) {
        diag_printf(&t, n ? ", " : "");
        enum rec_confidence confidence = say_manner(c, &t, wait, &m, n);
        f->confidence = confidence < f->confidence ? confidence : f->confidence;
    }
    if (m.different > MANNERS_TOLD)
        diag_printf(&t, ", others in other ways,");
    manners_fini(&m);
    classify_say_while(c, &t, wait, 0);
    if (doubt == CLASSIFY_SOME)
        doubt_excluded(c->d, f, wait, &t);
    else
        doubt_partners(c, f, wait, doubt, &t);
    diag_summary(c->d, f, &t);
}

void classify_few(struct classify *c, const struct diag_wait *wait, uint32_t gone)
{
    struct diag *d = c->d;
    const struct diag_match *m = &d->matches[wait->match];
    enum rec_verdict_type type =
        wait->kind == DIAG_WAIT_P2P ? REC_VERDICT_P2P_UNMATCHED : REC_VERDICT_RANK_NOT_JOINED;
    struct rec_finding *f = diag_finding(d, type, REC_CONF_LIKELY, DIAG_TIER_ROOT, wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    for (uint32_t i = m->first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
        diag_blame(d, f, DIAG_CULPRIT, d->procs[d->ops[i].proc].p->rank);
        c->blamed[d->ops[i].proc] = (uint32_t)d->nfindings;
    }
    diag_sort_ranks(f->culprits, &f->nculprits);
    struct diag_text t = {0};
    diag_printf(&t, "only ");
    if (f->nculprits == 1)
        diag_say_proc(&t, d->procs[d->ops[m->first_op].proc].p);
    else
        diag_say_ranks(&t, f->culprits, f->nculprits);
    diag_printf(&t, " entered ");
    classify_say_awaited(d, &t, wait, f->nculprits > 1);
    diag_printf(&t, ", at ");
    diag_say_time(d, &t, wait->since);
    diag_printf(&t,
                gone == 1 ? "; %" PRIu32 " other went on or ended without it"
                          : "; %" PRIu32 " others went on or ended without it",
                gone);
    diag_summary(d, f, &t);
    for (uint32_t i = m->first_op; i != DIAG_NONE && f->nevidence < 4; i = d->ops[i].match_next)
        diag_evidence_op(d, f, &d->ops[i], "called");
    classify_waiting(c, f, wait);
}

void classify_alone(struct classify *c, const struct diag_wait *wait, const struct diag_partner *partners,
                    size_t count)
{
    struct diag *d = c->d;
    const struct diag_op *op = &d->ops[d->matches[wait->match].first_op];
    struct rec_finding *f =
        diag_finding(d, REC_VERDICT_RANK_NOT_JOINED, REC_CONF_POSSIBLE, DIAG_TIER_ROOT, wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    diag_blame(d, f, DIAG_CULPRIT, d->procs[op->proc].p->rank);
    c->blamed[op->proc] = (uint32_t)d->nfindings;
    for (size_t i = 0; i < count; i++)
        if (partners[i].reason == DIAG_ABSENT)
            diag_blame(d, f, DIAG_SUSPECT, d->procs[partners[i].proc].p->rank);
    diag_sort_ranks(f->suspects, &f->nsuspects);
    struct diag_text t = {0};
    diag_printf(&t, "only ");
    diag_say_proc(&t, d->procs[op->proc].p);
    diag_printf(&t, " entered ");
    diag_say_call(&t, op);
    diag_say_place(&t, d->procs[op->proc].p, &op->op);
    diag_printf(&t, ", ");
    diag_say_number(&t, &f->op, f->seq);
    diag_say_comm(&t, f->comm);
    diag_printf(&t, ", at ");
    diag_say_time(d, &t, wait->since);
    diag_printf(&t, ", and nobody had called %s there %s; or ", rec_kind_name(op->op.kind),
                d->procs[op->proc].whole ? "before" : "in the last calls before");
    diag_say_ranks(&t, f->suspects, f->nsuspects);
    diag_printf(&t, ", outside NCCL, should have come");
    diag_summary(d, f, &t);
    diag_evidence_op(d, f, op, "called");
    for (size_t i = 0; i < count && f->nevidence < 4; i++)
        evidence_last(d, f, partners[i].proc);
    classify_waiting(c, f, wait);
}

void classify_one_too_many(struct classify *c, const struct diag_wait *wait, uint32_t came, uint32_t gone,
                           const struct diag_departure *departure)
{
    struct diag *d = c->d;
    const struct diag_op *op = &d->ops[d->matches[wait->match].first_op];
    struct rec_finding *f =
        diag_finding(d, wait->kind == DIAG_WAIT_P2P ? REC_VERDICT_P2P_UNMATCHED : REC_VERDICT_RANK_NOT_JOINED,
                     REC_CONF_LIKELY, DIAG_TIER_ROOT, wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    diag_blame(d, f, DIAG_CULPRIT, d->procs[came].p->rank);
    c->blamed[came] = (uint32_t)d->nfindings;
    struct diag_text t = {0};
    diag_say_proc(&t, d->procs[came].p);
    diag_printf(&t, " called ");
    classify_say_awaited(d, &t, wait, false);
    diag_printf(&t, ", at ");
    diag_say_time(d, &t, wait->since);
    diag_printf(&t, ", for which ");
    diag_say_proc(&t, d->procs[gone].p);
    if (departure->seen)
        diag_printf(&t,
                    " has no counterpart: rank %d left the loop of calls repeated before, rank %d did not",
                    (int)d->procs[came].p->rank, (int)d->procs[gone].p->rank);
    else
        diag_printf(&t,
                    " has no counterpart: others whose calls were the same so far did not call it either");
    diag_summary(d, f, &t);
    diag_evidence_departure(d, f, departure);
    diag_evidence_op(d, f, op, "waits in");
    evidence_last(d, f, gone);
    classify_waiting(c, f, wait);
}

/* Is the partner one that this wait's ending depends on by the wait's own reason? */
static bool concerned(const struct classify *c, const struct diag_wait *wait,
                      const struct diag_partner *partner)
{
    const struct diag_proc *proc = &c->d->procs[partner->proc];
    if (partner->reason != DIAG_ABSENT)
        return false;
    switch (wait->never) {
    case DIAG_NEVER_EXITED:
        return proc->p->fate == REC_FATE_EXITED && !proc->waits && !proc->followed;
    case DIAG_NEVER_TEARDOWN:
        return (partner->member && diag_tore_down_before(c->d, wait, partner->member)) ||
               classify_gone(c->d, partner, wait);
    default:
        return true;
    }
}

void classify_more_victims(struct classify *c, const struct diag_wait *wait, uint32_t finding)
{
    classify_waiting(c, &c->d->findings[finding], wait);
    if (c->d->findings[finding].nevidence < 6)
        classify_evidence_wait(c, &c->d->findings[finding], wait);
}

static void evidence_partners(struct classify *c, struct rec_finding *f, const struct diag_wait *wait,
                              const struct diag_partner *partners, size_t count)
{
    struct diag *d = c->d;
    for (size_t i = 0; i < count && f->nevidence < 8; i++) {
        const struct diag_proc *proc = &d->procs[partners[i].proc];
        if (c->blamed[partners[i].proc] != (uint32_t)d->nfindings)
            continue;
        evidence_last(d, f, partners[i].proc);
        if (proc->p->fate != REC_FATE_ALIVE && f->type != REC_VERDICT_STUCK_OUTSIDE_NCCL)
            diag_evidence_end(d, f, proc);
    }
    diag_evidence_op(d, f, &d->ops[wait->op], "waits in");
}

void classify_partners(struct classify *c, const struct diag_wait *wait, const struct diag_partner *partners,
                       size_t count, enum classify_doubt doubt)
{
    struct diag *d = c->d;
    const struct diag_partner *first = NULL;
    uint32_t known = 0;
    for (size_t i = 0; i < count; i++) {
        if (!concerned(c, wait, &partners[i]))
            continue;
        if (c->blamed[partners[i].proc])
            known = c->blamed[partners[i].proc];
        else if (!first)
            first = &partners[i];
    }
    if (!first) {
        if (known)
            classify_more_victims(c, wait, known - 1);
        return;
    }
    struct cause cause = {0};
    cause_of(c, first, wait, &cause);
    free(cause.why.data);
    if (doubt == CLASSIFY_RULED && cause.confidence > REC_CONF_LIKELY)
        cause.confidence = REC_CONF_LIKELY;
    struct rec_finding *f = diag_finding(d, cause.type, cause.confidence, DIAG_TIER_ROOT, wait->since);
    if (!f)
        return;
    classify_place(c, f, wait);
    for (size_t i = 0; i < count; i++) {
        if (!concerned(c, wait, &partners[i]) || c->blamed[partners[i].proc])
            continue;
        diag_blame(d, f, doubt >= CLASSIFY_OPEN ? DIAG_SUSPECT : DIAG_CULPRIT,
                   d->procs[partners[i].proc].p->rank);
        c->blamed[partners[i].proc] = (uint32_t)d->nfindings;
    }
    diag_sort_ranks(f->culprits, &f->nculprits);
    diag_sort_ranks(f->suspects, &f->nsuspects);
    summarize(c, f, wait, partners, count, doubt);
    evidence_partners(c, f, wait, partners, count);
    const struct diag_op *other = classify_other_signal(d, wait);
    if (other)
        diag_evidence_op(d, f, other, "raised what nobody waits for in");
    if (f->type == REC_VERDICT_STUCK_OUTSIDE_NCCL)
        evidence_stack(d, f, first->proc);
    classify_waiting(c, f, wait);
}
