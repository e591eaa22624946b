/*
 * A rank against its own past. Jobs are loops: where some ops were always followed by the
 * same op and then are not, the rank has left its loop. That decides who is wrong where the
 * others cannot: one against one, or in a circle.
 */
#include "past.h"

#include <stdlib.h>
#include <string.h>

#define CONTEXT     6  /* runs of equal ops, with their lengths, that predict the next op */
#define SEEN_MIN    4  /* how often they must have been followed by the same op */
#define RECENT      96 /* an older departure has nothing to do with how it ended */
#define THREADS_MAX 8

/* What followed a context; a loop may have a few ways to go on. */
#define WAYS 3
struct prediction {
    uint32_t seen;
    uint32_t nways; /* WAYS + 1: too many to tell anything */
    struct {
        uint64_t token;
        uint32_t op; /* where it was issued last */
        uint32_t seen;
    } ways[WAYS];
};

struct history {
    struct diag_map contexts, known;
    struct prediction *predictions;
    size_t count, predictions_cap;
};

struct recent {
    uint32_t thread;
    bool departed; /* with its last op, one that the process had never issued before */
    struct {
        uint64_t token;
        uint32_t length;
    } runs[CONTEXT]; /* the last one still grows */
    uint32_t filled; /* ops */
    uint32_t nruns;
};

static uint64_t token_of(const struct diag_op *op)
{
    uint64_t place = op->member ? op->member->comm->index : DIAG_NONE;
    bool message = diag_pairs(&op->op);
    uint64_t side = message ? (uint64_t)(uint32_t)op->op.peer << 8 | op->op.kind : 0;
    return diag_key(op->sig ^ rec_mix64(op->op.signal), place, side);
}

/*
 * Lengths count: a step is often the same op eight times and then another one. What comes after
 * the first run of all is not known, for its beginning may lie before the window.
 */
static uint64_t context_of(const struct recent *recent)
{
    uint64_t h = 91;
    for (uint32_t i = 0; i < CONTEXT; i++)
        h = rec_mix64(rec_mix64(h ^ recent->runs[i].token) + recent->runs[i].length);
    return recent->nruns > 1 && recent->filled >= CONTEXT ? h | 1 : 0;
}

static void push(struct recent *recent, uint64_t token)
{
    recent->filled++;
    if (recent->nruns && recent->runs[CONTEXT - 1].token == token) {
        recent->runs[CONTEXT - 1].length++;
        return;
    }
    memmove(recent->runs, recent->runs + 1, (CONTEXT - 1) * sizeof recent->runs[0]);
    recent->runs[CONTEXT - 1].token = token;
    recent->runs[CONTEXT - 1].length = 1;
    recent->nruns++;
}

/* One op with another argument, of which the peer is one: the same call on the same communicator. */
static bool same_call(const struct diag_op *a, const struct diag_op *b)
{
    return a->member == b->member && rec_kind_canonical(a->op.kind) == rec_kind_canonical(b->op.kind);
}

static struct recent *recent_of(struct recent *all, uint32_t thread)
{
    for (uint32_t i = 0; i < THREADS_MAX; i++) {
        if (!all[i].filled)
            all[i].thread = thread;
        if (all[i].thread == thread)
            return &all[i];
    }
    return NULL;
}

/* Notes that token followed; false when it had never before. */
static bool follow(struct prediction *p, uint64_t token, uint32_t op)
{
    p->seen++;
    for (uint32_t i = 0; i < p->nways && i < WAYS; i++) {
        if (p->ways[i].token == token) {
            p->ways[i].op = op;
            p->ways[i].seen++;
            return true;
        }
    }
    if (p->nways < WAYS) {
        p->ways[p->nways].token = token;
        p->ways[p->nways].op = op;
        p->ways[p->nways].seen = 1;
    }
    if (p->nways <= WAYS)
        p->nways++;
    return false;
}

static uint32_t most_usual(const struct prediction *p)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < p->nways && i < WAYS; i++)
        if (p->ways[i].seen > p->ways[best].seen)
            best = i;
    return best;
}

/* What the context up to here said of an op. */
struct foretold {
    bool known, usual; /* it was always followed by a few ways; this is one of them */
    bool fresh;        /* the process never issued such an op before */
    uint32_t expected; /* where it went the most usual way last */
    uint32_t seen;     /* how often it had */
};

static bool learn(struct diag *d, struct history *h, struct recent *recent, uint32_t index,
                  struct foretold *told)
{
    uint64_t token = token_of(&d->ops[index]), context = context_of(recent);
    bool fresh = false;
    uint32_t *known = diag_map_put(&h->known, token, &told->fresh);
    uint32_t *at = context ? diag_map_put(&h->contexts, context, &fresh) : NULL;
    h->predictions =
        diag_grow(h->predictions, &h->predictions_cap, h->count, sizeof *h->predictions, &d->oom);
    if (!known || (context && !at) || d->oom) {
        d->oom = true;
        return false;
    }
    if (at && fresh) {
        *at = (uint32_t)h->count;
        h->predictions[h->count++] = (struct prediction){0};
    }
    told->known = false;
    if (at) {
        struct prediction *p = &h->predictions[*at];
        uint32_t best = most_usual(p);
        told->known = p->seen >= SEEN_MIN && p->nways <= WAYS;
        told->expected = p->ways[best].op;
        told->seen = p->ways[best].seen;
        told->usual = follow(p, token, index);
    }
    push(recent, token);
    return true;
}

static bool taken_part(const struct diag *d, const struct diag_op *op)
{
    return op->done && op->match != DIAG_NONE && d->matches[op->match].posted > 1;
}

static bool done_again(const struct diag *d, uint32_t index)
{
    const struct diag_proc *p = &d->procs[d->ops[index].proc];
    for (uint32_t i = index + 1; i < p->first + p->count; i++)
        if (d->ops[i].member == d->ops[index].member && token_of(&d->ops[i]) == token_of(&d->ops[index]))
            return true;
    return false;
}

/* Has a departure to do with what is asked for? A message only with those of its kind and peer. */
static bool concerns(const struct diag_op *op, const struct diag_question *asked)
{
    if (!op->member || op->member->comm != asked->comm)
        return false;
    /* A write raises a signal like any other. */
    unsigned kind = op->op.kind == REC_PUT_SIGNAL ? REC_SIGNAL : op->op.kind;
    return asked->message ? kind == asked->kind && op->op.peer == asked->peer : !diag_pairs(&op->op);
}

struct diag_question diag_asks(const struct diag_op *op, bool counterpart)
{
    struct diag_question asked = {.comm = op->member->comm, .message = diag_pairs(&op->op)};
    asked.kind = op->op.kind;
    asked.peer = op->op.peer;
    if (counterpart && asked.message) {
        asked.kind = asked.kind == REC_SEND ? REC_RECV : asked.kind == REC_RECV ? REC_SEND : REC_SIGNAL;
        asked.peer = (int32_t)op->member->comm_rank;
    }
    return asked;
}

/* What the thread of an op called next, outside of its group; DIAG_NONE. */
static uint32_t next_of(const struct diag *d, uint32_t index)
{
    const struct diag_op *op = &d->ops[index];
    const struct diag_proc *p = &d->procs[op->proc];
    for (uint32_t i = index + 1; i < p->first + p->count; i++) {
        const struct diag_op *next = &d->ops[i];
        if (next->unit != DIAG_NONE && next->unit != op->unit && !next->late &&
            next->op.thread == op->op.thread)
            return i;
    }
    return DIAG_NONE;
}

static bool same_token(const struct diag *d, uint32_t a, uint32_t b)
{
    return b != DIAG_NONE && token_of(&d->ops[a]) == token_of(&d->ops[b]);
}

/*
 * Was it a call too many, or in the place of another one: does the loop go on behind it with what it had
 * foretold, or with what follows on that? A rank that is through with an inner loop goes on otherwise.
 */
static bool comes_back(const struct diag *d, const struct diag_departure *departure)
{
    uint32_t next = next_of(d, departure->op);
    return next == DIAG_NONE || same_token(d, next, departure->expected) ||
           same_token(d, next, next_of(d, departure->expected));
}

/* Did what was asked for always, or mostly, follow on what a thread called last? */
static bool was_due(const struct diag *d, const struct history *h, const struct recent *recent,
                    const struct diag_question *asked)
{
    for (uint32_t i = 0; i < THREADS_MAX; i++) {
        uint64_t context = context_of(&recent[i]);
        uint32_t at = context ? diag_map_get(&h->contexts, context) : DIAG_NONE;
        const struct prediction *p = at == DIAG_NONE ? NULL : &h->predictions[at];
        if (p && p->seen >= SEEN_MIN && p->nways <= WAYS &&
            concerns(&d->ops[p->ways[most_usual(p)].op], asked))
            return true;
    }
    return false;
}

void diag_habit(struct diag *d, uint32_t proc, const struct diag_question *asked, uint32_t upto,
                struct diag_habit *habit)
{
    const struct diag_proc *p = &d->procs[proc];
    struct history h = {0};
    struct recent recent[THREADS_MAX] = {0};
    *habit = (struct diag_habit){0};
    if (p->gap_ns)
        return; /* what is not recorded would look left out */
    for (uint32_t i = p->first; i < p->first + p->count && !d->oom; i++) {
        const struct diag_op *op = &d->ops[i];
        if (op->unit == DIAG_NONE || op->late)
            continue;
        struct recent *mine = recent_of(recent, op->op.thread);
        struct foretold told;
        if (!mine || !learn(d, &h, mine, i, &told))
            continue;
        /* Who left its loop comes back to it; what is new and followed by something new began another phase.
         */
        if (mine->departed && told.fresh)
            habit->left = false;
        mine->departed = false;
        if (!told.known || i > upto)
            continue;
        const struct diag_op *expected = &d->ops[told.expected];
        habit->kept = told.usual && i == upto;
        if (habit->left || told.usual || i + RECENT < p->first + p->count)
            continue;
        /* Something new altogether, or that it did again, or others with it, begins another phase. */
        if (told.fresh && (!same_call(op, expected) || done_again(d, i) || taken_part(d, op)))
            continue;
        habit->left = concerns(op, asked) || concerns(expected, asked);
        mine->departed = habit->left && told.fresh;
        habit->departure = (struct diag_departure){i, told.expected, told.seen};
    }
    habit->back = habit->left && comes_back(d, &habit->departure);
    habit->due = !d->oom && was_due(d, &h, recent, asked);
    diag_map_free(&h.contexts);
    diag_map_free(&h.known);
    free(h.predictions);
}

void diag_evidence_departure(struct diag *d, struct rec_finding *f, const struct diag_departure *departure)
{
    const struct diag_op *op = &d->ops[departure->op], *expected = &d->ops[departure->expected];
    struct diag_text t = {0};
    diag_say_proc(&t, d->procs[op->proc].p);
    diag_printf(&t, " called ");
    diag_say_call(&t, op);
    if (op->member) {
        diag_printf(&t, " of ");
        diag_say_comm(&t, op->member->comm);
    }
    diag_printf(&t, " at a point where ");
    if (departure->seen)
        diag_printf(&t, "it had called ");
    else
        diag_say_twin(d, &t, departure);
    diag_say_call(&t, expected);
    if (expected->member && (!op->member || expected->member->comm != op->member->comm)) {
        diag_printf(&t, " of ");
        diag_say_comm(&t, expected->member->comm);
    }
    if (departure->seen)
        diag_printf(&t, " %u times before", departure->seen);
    if (t.data)
        diag_evidence(d, f, d->procs[op->proc].p, op->op.seq, op->op.enter_ns, "%s", t.data);
    free(t.data);
}
