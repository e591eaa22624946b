/*
 * Communicators whose collectives interleave in different orders on different processes. Nothing
 * need hang: what the GPU can run side by side completes in any order, until one day it cannot.
 *
 * The order of two communicators A and B on a process is told by the last op of A before each op
 * of B. Two processes agree where these are the same; where they are not, the later of the two
 * ops of A came before the op of B on one process and after it on the other. So one word per
 * (op of B, A) is enough to compare all processes, and only the communicators that a process used
 * last are looked at.
 */
#include "diag.h"

#include <stdlib.h>
#include <string.h>

#define RECENT_MAX     8u
#define WORDS_MAX      (1u << 20)
#define DIFFERENCE_MAX 16

/* For one op of B: how far A had come before it, at least and at most. */
struct word {
    uint64_t least, most; /* seq + 1; 0 = nothing in the window */
    uint32_t least_op, most_op;
};

struct order {
    struct diag_map ids, told;
    struct word *words;
    size_t nwords, words_cap;
};

/* Communicators of a process and how far it has come on them; those it used last, latest first. */
struct recent {
    const struct rec_communicator *comm[RECENT_MAX];
    uint64_t next[RECENT_MAX];
    uint32_t count;
};

static void use(struct recent *recent, const struct rec_communicator *comm, uint64_t seq)
{
    uint32_t i = 0;
    while (i < recent->count && recent->comm[i] != comm)
        i++;
    if (i == recent->count)
        i = recent->count < RECENT_MAX ? recent->count++ : RECENT_MAX - 1;
    memmove(&recent->comm[1], &recent->comm[0], i * sizeof recent->comm[0]);
    memmove(&recent->next[1], &recent->next[0], i * sizeof recent->next[0]);
    recent->comm[0] = comm;
    recent->next[0] = seq + 1;
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

static void compare(struct diag *d, struct order *o, struct rec_census *census, uint32_t index,
                    const struct rec_communicator *a, uint64_t next)
{
    bool fresh;
    if (o->nwords == WORDS_MAX)
        return;
    uint32_t *at = diag_map_put(&o->ids, diag_key(d->ops[index].match, a->index, 93), &fresh);
    if (at)
        o->words = diag_grow(o->words, &o->words_cap, o->nwords, sizeof *o->words, &d->oom);
    if (!at || d->oom) {
        d->oom = true;
        return;
    }
    if (fresh) {
        *at = (uint32_t)o->nwords;
        o->words[o->nwords++] = (struct word){next, next, index, index};
        return;
    }
    struct word *word = &o->words[*at];
    if (next == word->least || next == word->most)
        return;
    if (next < word->least) {
        word->least = next;
        word->least_op = index;
    } else if (next > word->most) {
        word->most = next;
        word->most_op = index;
    }
    tell(d, o, census, a, word);
}

/* All that the window holds, as far as there is room: on these it begins at nothing. */
static void begin(const struct diag *d, uint32_t proc, struct recent *recent)
{
    const struct rec_communicator *last = NULL;
    recent->count = 0;
    for (uint32_t i = d->procs[proc].first; i < d->procs[proc].first + d->procs[proc].count; i++) {
        const struct diag_op *op = &d->ops[i];
        if (recent->count == RECENT_MAX)
            return;
        if (op->match == DIAG_NONE || op->member->comm == last ||
            !(rec_kind_flags(op->op.kind) & REC_KF_COLL))
            continue;
        last = op->member->comm;
        uint32_t r = 0;
        while (r < recent->count && recent->comm[r] != last)
            r++;
        if (r < recent->count)
            continue;
        recent->comm[r] = last;
        recent->next[r] = 0;
        recent->count++;
    }
}

void diag_order(struct diag *d, struct rec_census *census)
{
    struct order o = {0};
    census->differences = calloc(DIFFERENCE_MAX, sizeof *census->differences);
    d->oom = d->oom || !census->differences;
    census->whole = true;
    for (uint32_t p = 0; p < d->nprocs && !d->oom; p++) {
        struct recent recent;
        begin(d, p, &recent);
        census->whole = census->whole && d->procs[p].whole;
        for (uint32_t i = d->procs[p].first; i < d->procs[p].first + d->procs[p].count && !d->oom; i++) {
            const struct diag_op *op = &d->ops[i];
            if (op->match == DIAG_NONE || !(rec_kind_flags(op->op.kind) & REC_KF_COLL))
                continue;
            for (uint32_t r = 0; r < recent.count && !d->oom; r++)
                if (recent.comm[r] != op->member->comm)
                    compare(d, &o, census, i, recent.comm[r], recent.next[r]);
            use(&recent, op->member->comm, op->op.seq);
        }
    }
    if (o.nwords == WORDS_MAX)
        census->whole = false;
    diag_map_free(&o.ids);
    diag_map_free(&o.told);
    free(o.words);
}
