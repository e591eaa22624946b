/*
 * A process against others that had called the same as it did. Pipelines, replicas and tensor pairs work side
 * by side: where a process that went in step with one of another pipeline, call for call, does something else
 * than that one did there, it is the exception; where both did the same, this is how the program goes on,
 * however new it is to both of them.
 */
#include "past.h"

#define IN_STEP   12  /* calls in a row that agree make two processes go in step */
#define LOOK      96  /* last calls of the one that is asked about */
#define TWIN_LOOK 512 /* and of the others */
#define TRY_MAX   256 /* processes */
#define TELL_MAX  4   /* so many will do */
#define COMMS_MAX 16

/* Which communicator of the twin stands for which of the process. */
struct pairing {
    const struct rec_communicator *here[COMMS_MAX], *there[COMMS_MAX];
    size_t count;
};

static bool pair_up(struct pairing *pairs, const struct rec_communicator *here,
                    const struct rec_communicator *there)
{
    for (size_t i = 0; i < pairs->count; i++)
        if (pairs->here[i] == here || pairs->there[i] == there)
            return pairs->here[i] == here && pairs->there[i] == there;
    if (pairs->count == COMMS_MAX)
        return false;
    pairs->here[pairs->count] = here;
    pairs->there[pairs->count++] = there;
    return true;
}

/*
 * The same call at the same place: a collective of one communicator, or any call with the same part in
 * another communicator of its kind. Members of one exchange messages in patterns of their own.
 */
static bool corresponds(struct pairing *pairs, const struct diag_op *a, const struct diag_op *b)
{
    if (a->op.seq != b->op.seq || a->sig != b->sig || !a->member || !b->member ||
        rec_kind_canonical(a->op.kind) != rec_kind_canonical(b->op.kind))
        return false;
    const struct rec_communicator *here = a->member->comm, *there = b->member->comm;
    bool message = diag_pairs(&a->op);
    if (here == there ? message
                      : here->nranks != there->nranks || here->parent != there->parent ||
                            a->member->comm_rank != b->member->comm_rank)
        return false;
    return (!message || a->op.peer == b->op.peer) && pair_up(pairs, here, there);
}

static bool counts(const struct diag_op *op, uint32_t thread)
{
    return op->op.thread == thread && op->unit != DIAG_NONE && !op->late && !op->failed;
}

/* The next call of the same thread, up to the op at last; DIAG_NONE. */
static uint32_t next_of(const struct diag *d, uint32_t op, uint32_t last)
{
    for (uint32_t i = op + 1; i <= last; i++)
        if (counts(&d->ops[i], d->ops[op].op.thread))
            return i;
    return DIAG_NONE;
}

/*
 * Would such a call on the side of a twin be made on the other side, too? Where the steps before have shown
 * that its communicator has a counterpart there, and for a message another one.
 */
static bool comparable(const struct diag_op *op, const struct rec_communicator *const *mine,
                       const struct rec_communicator *const *other, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (op->member && op->member->comm == mine[i])
            return mine[i] != other[i] || !diag_pairs(&op->op);
    return false;
}

/* Follows both from a place that agrees. */
static enum diag_twin follow(const struct diag *d, uint32_t here, uint32_t upto, uint32_t there,
                             struct diag_departure *departure)
{
    const struct diag_proc *twin = &d->procs[d->ops[there].proc];
    uint32_t last = twin->first + twin->count - 1, steps = 0;
    struct pairing pairs = {.count = 0};
    while (corresponds(&pairs, &d->ops[here], &d->ops[there])) {
        steps++;
        if (here == upto)
            return steps >= IN_STEP ? DIAG_TWIN_SAME : DIAG_TWIN_NONE;
        here = next_of(d, here, upto);
        there = next_of(d, there, last);
        if (here == DIAG_NONE || there == DIAG_NONE)
            return DIAG_TWIN_NONE;
    }
    *departure = (struct diag_departure){.op = here, .expected = there};
    return steps >= IN_STEP && comparable(&d->ops[here], pairs.here, pairs.there, pairs.count) &&
                   comparable(&d->ops[there], pairs.there, pairs.here, pairs.count)
               ? DIAG_TWIN_OTHER
               : DIAG_TWIN_NONE;
}

static enum diag_twin compare(const struct diag *d, const uint32_t *starts, size_t nstarts, uint32_t upto,
                              const struct diag_proc *twin, struct diag_departure *departure)
{
    uint32_t end = twin->first + twin->count, first = twin->count > TWIN_LOOK ? end - TWIN_LOOK : twin->first;
    for (size_t s = 0; s < nstarts; s++) {
        for (uint32_t i = end; i-- > first;) {
            struct pairing pairs = {.count = 0};
            if (!counts(&d->ops[i], d->ops[i].op.thread) ||
                !corresponds(&pairs, &d->ops[starts[s]], &d->ops[i]))
                continue;
            enum diag_twin told = follow(d, starts[s], upto, i, departure);
            if (told != DIAG_TWIN_NONE)
                return told;
        }
    }
    return DIAG_TWIN_NONE;
}

enum diag_twin diag_twins_tell(const struct diag *d, uint32_t upto, const bool *involved,
                               struct diag_departure *departure)
{
    const struct diag_op *op = &d->ops[upto];
    const struct diag_proc *proc = &d->procs[op->proc];
    uint32_t starts[LOOK / IN_STEP], tried = 0, told = 0;
    size_t nstarts = 0, seen = 0;
    for (uint32_t i = upto + 1; i-- > proc->first && seen < LOOK;) {
        if (!counts(&d->ops[i], op->op.thread))
            continue;
        if (++seen % IN_STEP == 0)
            starts[nstarts++] = i;
    }
    /* The earliest place at which they agree is the best one. */
    for (size_t i = 0; i < nstarts / 2; i++) {
        uint32_t swap = starts[i];
        starts[i] = starts[nstarts - 1 - i];
        starts[nstarts - 1 - i] = swap;
    }
    enum diag_twin all = DIAG_TWIN_NONE;
    for (uint32_t p = 0; p < d->nprocs && tried < TRY_MAX && told < TELL_MAX && !proc->gap_ns; p++) {
        struct diag_departure where;
        if (involved[p] || p == op->proc || d->procs[p].gap_ns || !d->procs[p].count)
            continue;
        tried++;
        enum diag_twin one = compare(d, starts, nstarts, upto, &d->procs[p], &where);
        if (one == DIAG_TWIN_NONE)
            continue;
        if (told++ && one != all)
            return DIAG_TWIN_NONE;
        all = one;
        *departure = where;
    }
    return all;
}

void diag_say_twin(const struct diag *d, struct diag_text *t, const struct diag_departure *departure)
{
    diag_say_proc(t, d->procs[d->ops[departure->expected].proc].p);
    diag_printf(t, ", which had called the same so far, called ");
}
