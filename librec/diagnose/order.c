/*
 * Communicators whose collectives interleave in different orders on different processes. Nothing
 * need hang: what the GPU can run side by side completes in any order, until one day it cannot.
 *
 * The order of two communicators A and B on a process is told by the last op of A before each op
 * of B. Two processes agree where these are the same; where they are not, the later of the two
 * ops of A came before the op of B on one process and after it on the other. So one word per
 * (op of B, A) is enough to compare all processes, and only the communicators that a process used
 * last are looked at. Pairs of communicators that only one process uses need no words.
 */
#include "diag.h"

#include <stdlib.h>
#include <string.h>

#define RECENT_MAX     8u
#define WORDS_MAX      (1u << 20)
#define DIFFERENCE_MAX 16
#define NOBODY_ELSE    (DIAG_NONE - 1)

/* For one op of B: how far A had come before it, at least and at most. */
struct word {
    uint64_t least, most;       /* seq + 1; 0 = nothing in the window */
    uint32_t least_op, most_op; /* DIAG_NONE: nobody was here yet */
};

/* Communicators B and A. */
struct pair {
    uint32_t users; /* processes, or members of one */
    uint32_t words; /* where they begin, one for each seq of B's span; DIAG_NONE */
};

struct order {
    struct diag_map pair_ids, told;
    struct pair *pairs;
    size_t npairs, pairs_cap;
    struct word *words;
    size_t nwords, words_cap;
    bool counting; /* the first of two walks only counts the users of pairs */
    bool cut;      /* something was left out */
};

/* Communicators of a process and how far it has come on them. */
struct recent {
    struct used {
        const struct rec_communicator *comm;
        const struct rec_member *member;
        uint64_t next;
        bool several; /* members of one process */
        uint32_t
            pairs[RECENT_MAX]; /* this one as B and others as A; DIAG_NONE = not looked up, or NOBODY_ELSE */
    } used[RECENT_MAX];
    uint8_t order[RECENT_MAX]; /* of their last use, latest first */
    uint32_t count;
};

/* Takes a place for comm, in front; the one that was used longest ago gives way. */
static struct used *enter(struct recent *recent, const struct rec_communicator *comm)
{
    uint8_t at = (uint8_t)recent->count;
    if (recent->count == RECENT_MAX)
        at = recent->order[RECENT_MAX - 1];
    else
        recent->count++;
    memmove(&recent->order[1], &recent->order[0], recent->count - 1);
    recent->order[0] = at;
    for (uint32_t i = 0; i < RECENT_MAX; i++)
        recent->used[at].pairs[i] = recent->used[i].pairs[at] = DIAG_NONE;
    recent->used[at].comm = comm;
    recent->used[at].member = NULL;
    recent->used[at].next = 0;
    recent->used[at].several = false;
    return &recent->used[at];
}

static struct used *find(struct recent *recent, const struct rec_communicator *comm)
{
    for (uint32_t i = 0; i < recent->count; i++)
        if (recent->used[recent->order[i]].comm == comm)
            return &recent->used[recent->order[i]];
    return NULL;
}

/* The place of comm, now in front. */
static struct used *find_first(struct recent *recent, const struct rec_communicator *comm)
{
    struct used *used = find(recent, comm);
    if (!used)
        return enter(recent, comm);
    uint8_t at = (uint8_t)(used - recent->used);
    uint32_t i = 0;
    while (recent->order[i] != at)
        i++;
    memmove(&recent->order[1], &recent->order[0], i);
    recent->order[0] = at;
    return used;
}

/* Where process proc issued op seq of comm; DIAG_NONE: not in its window. */
static uint32_t op_of(const struct diag *d, const struct rec_communicator *comm, uint64_t seq, uint32_t proc)
{
    uint32_t match = diag_match_find(d, comm, seq, -1, -1);
    for (uint32_t i = match == DIAG_NONE ? DIAG_NONE : d->matches[match].first_op; i != DIAG_NONE;
         i = d->ops[i].match_next)
        if (d->ops[i].proc == proc)
            return i;
    return DIAG_NONE;
}

static void tell(struct diag *d, struct order *o, struct rec_census *census, const struct rec_communicator *a,
                 const struct word *word)
{
    const struct diag_op *before = &d->ops[word->most_op], *after = &d->ops[word->least_op];
    const struct rec_communicator *b = before->member->comm;
    if (!word->most)
        return;
    uint32_t there = op_of(d, a, word->most - 1, after->proc);
    /* Ops of a process are in the order of their launch; those of one group have none. */
    if (there == DIAG_NONE || there <= word->least_op)
        return;
    const struct diag_op *late = &d->ops[there];
    uint32_t here = op_of(d, a, word->most - 1, before->proc);
    if (late->unit == after->unit || here == DIAG_NONE || d->ops[here].unit == before->unit)
        return;
    uint32_t low = a->index < b->index ? a->index : b->index, high = a->index ^ b->index ^ low;
    bool fresh;
    if (census->ndifferences == DIFFERENCE_MAX || !diag_map_put(&o->told, diag_key(low, high, 94), &fresh) ||
        !fresh)
        return;
    census->differences[census->ndifferences++] =
        (struct rec_order_difference){.a = a,
                                      .b = b,
                                      .seq_a = word->most - 1,
                                      .seq_b = before->op.seq,
                                      .a_first = d->procs[before->proc].p,
                                      .b_first = d->procs[after->proc].p};
}

/* The pair's words, made when there are several users; NULL = none. */
static struct word *words_of(struct diag *d, struct order *o, struct pair *pair, const struct diag_span *span)
{
    if (pair->words != DIAG_NONE)
        return &o->words[pair->words];
    if (pair->users < 2)
        return NULL;
    if (!span->count || span->count > WORDS_MAX - o->nwords) {
        o->cut = true;
        return NULL;
    }
    pair->words = (uint32_t)o->nwords;
    while (o->nwords < pair->words + span->count) {
        o->words = diag_grow(o->words, &o->words_cap, o->nwords, sizeof *o->words, &d->oom);
        if (d->oom)
            return NULL;
        o->words[o->nwords++] = (struct word){0, 0, DIAG_NONE, DIAG_NONE};
    }
    return &o->words[pair->words];
}

static struct pair *pair_of(struct diag *d, struct order *o, struct used *b, uint32_t slot,
                            const struct rec_communicator *a)
{
    if (b->pairs[slot] != DIAG_NONE)
        return &o->pairs[b->pairs[slot]];
    bool fresh;
    uint32_t *at = diag_map_put(&o->pair_ids, diag_key(b->comm->index, a->index, 93), &fresh);
    o->pairs = diag_grow(o->pairs, &o->pairs_cap, o->npairs, sizeof *o->pairs, &d->oom);
    if (!at || d->oom) {
        d->oom = true;
        return NULL;
    }
    if (fresh) {
        *at = (uint32_t)o->npairs;
        o->pairs[o->npairs++] = (struct pair){.words = DIAG_NONE};
    }
    b->pairs[slot] = *at;
    struct pair *pair = &o->pairs[*at];
    pair->users += o->counting ? 1u + b->several : 0;
    return pair;
}

/* One op of B, where A stood at next. */
static void compare(struct diag *d, struct order *o, struct rec_census *census, uint32_t index,
                    struct pair *pair, const struct used *a)
{
    const struct diag_span *span = &d->spans[d->ops[index].member->comm->index];
    struct word *words = words_of(d, o, pair, span);
    if (!words)
        return;
    struct word *word = &words[d->ops[index].op.seq - span->first];
    if (word->least_op == DIAG_NONE) {
        *word = (struct word){a->next, a->next, index, index};
        return;
    }
    if (a->next == word->least || a->next == word->most)
        return;
    if (a->next < word->least) {
        word->least = a->next;
        word->least_op = index;
    } else if (a->next > word->most) {
        word->most = a->next;
        word->most_op = index;
    }
    tell(d, o, census, a->comm, word);
}

static bool concerns(const struct diag_op *op)
{
    return op->match != DIAG_NONE && (rec_kind_flags(op->op.kind) & REC_KF_COLL);
}

/*
 * All that the window holds, as far as there is room: on these it begins at nothing. True when all of
 * them had room, so that none is forgotten on the way.
 */
static bool begin(const struct diag *d, const struct diag_proc *proc, struct recent *recent)
{
    const struct rec_member *last = NULL;
    bool all = true;
    recent->count = 0;
    for (uint32_t i = proc->first; i < proc->first + proc->count && all; i++) {
        const struct diag_op *op = &d->ops[i];
        if (op->member == last || !concerns(op))
            continue;
        last = op->member;
        struct used *used = find(recent, last->comm);
        all = used || recent->count < RECENT_MAX;
        if (!used && all)
            used = enter(recent, last->comm);
        if (used) {
            used->several = used->several || (used->member && used->member != last);
            used->member = last;
        }
    }
    for (uint32_t i = 0; i < recent->count; i++) { /* the first one in front */
        recent->order[i] = (uint8_t)i;
        recent->used[i].member = NULL;
        recent->used[i].several = recent->used[i].several && all;
    }
    return all;
}

/* All pairs of the communicators of one process. */
static void count_pairs(struct diag *d, struct order *o, struct recent *recent)
{
    for (uint32_t b = 0; b < recent->count; b++)
        for (uint32_t a = 0; a < recent->count && !d->oom; a++)
            if (a != b)
                pair_of(d, o, &recent->used[b], a, recent->used[a].comm);
}

static void use(struct order *o, struct recent *recent, const struct diag_op *op)
{
    struct used *used = find_first(recent, op->member->comm);
    used->next = op->op.seq + 1;
    if (used->member && used->member != op->member && !used->several && o->counting) {
        used->several = true;
        for (uint32_t r = 0; r < recent->count; r++)
            if (used->pairs[r] != DIAG_NONE)
                o->pairs[used->pairs[r]].users++;
    }
    used->member = op->member;
}

static void walk(struct diag *d, struct order *o, struct rec_census *census, const struct diag_proc *proc)
{
    struct recent recent;
    if (begin(d, proc, &recent) && o->counting) {
        count_pairs(d, o, &recent);
        return;
    }
    for (uint32_t i = proc->first; i < proc->first + proc->count && !d->oom; i++) {
        const struct diag_op *op = &d->ops[i];
        if (!concerns(op))
            continue;
        struct used stranger, *b = find(&recent, op->member->comm);
        if (!b) {
            memset(stranger.pairs, 0xff, sizeof stranger.pairs);
            stranger.comm = op->member->comm;
            stranger.several = false;
            b = &stranger;
        }
        for (uint32_t r = 0; r < recent.count && !d->oom; r++) {
            uint32_t slot = recent.order[r];
            const struct used *a = &recent.used[slot];
            if (a == b || b->pairs[slot] == NOBODY_ELSE)
                continue;
            struct pair *pair = pair_of(d, o, b, slot, a->comm);
            if (pair && !o->counting)
                compare(d, o, census, i, pair, a);
            if (pair && !o->counting && pair->users < 2)
                b->pairs[slot] = NOBODY_ELSE;
        }
        use(o, &recent, op);
    }
}

void diag_order(struct diag *d, struct rec_census *census)
{
    struct order o = {.counting = true};
    census->differences = calloc(DIFFERENCE_MAX, sizeof *census->differences);
    d->oom = d->oom || !census->differences;
    census->whole = true;
    for (size_t p = 0; p < d->nprocs && !d->oom; p++)
        walk(d, &o, census, &d->procs[p]);
    o.counting = false;
    for (size_t p = 0; p < d->nprocs && !d->oom; p++) {
        walk(d, &o, census, &d->procs[p]);
        census->whole = census->whole && d->procs[p].whole;
    }
    if (o.cut)
        census->whole = false;
    diag_map_free(&o.pair_ids);
    diag_map_free(&o.told);
    free(o.pairs);
    free(o.words);
}
