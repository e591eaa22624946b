#include "sides.h"

/* An op issued so often is one of the loop's. */
#define USUAL_MIN 4
/* Members of a side whose past is looked at. */
#define LOOK_MAX 8
/* Communicators that did the same as far as can be seen, so many ops back, are siblings. */
#define SIBLING_OPS  3
#define SIBLING_LOOK 128
/* Where the beginning of both is not seen, they must have changed so often from one op to another to be in
 * step. */
#define SIBLING_TURNS 3
/* So many processes of siblings decide. */
#define SIBLINGS_MIN 2

/* user redops: equal definitions have equal hashes inside the signature */
unsigned diag_fields(const struct diag_op *a, const struct diag_op *b)
{
    const struct rec_op *x = &a->op, *y = &b->op;
    unsigned flags = rec_kind_flags(x->kind);
    if (rec_kind_canonical(x->kind) != rec_kind_canonical(y->kind))
        return FIELD_KIND;
    unsigned fields = 0;
    if (((flags & REC_KF_DATA) || rec_kind_canonical(x->kind) == REC_COMM_INIT_RANK) && x->count != y->count)
        fields |= FIELD_COUNT;
    if ((flags & REC_KF_DATA) && x->dtype != y->dtype)
        fields |= FIELD_DTYPE;
    if ((flags & REC_KF_ROOT) && x->peer != y->peer)
        fields |= FIELD_ROOT;
    bool user = x->redop >= REC_REDOP_USER && y->redop >= REC_REDOP_USER;
    if ((flags & REC_KF_REDOP) && (user ? !fields && a->sig != b->sig : x->redop != y->redop))
        fields |= FIELD_REDOP;
    return fields;
}

/* ---- the past of those who differ ---- */

/* The index of a lane's first op; DIAG_NONE when it lies before the window. */
static uint32_t first_op(const struct diag *d, const struct divergence *v, const struct lane *lane)
{
    uint32_t match = diag_match_find(d, v->lanes->comm, v->lanes->seq, -1, -1);
    for (uint32_t i = match == DIAG_NONE ? DIAG_NONE : d->matches[match].first_op; i != DIAG_NONE;
         i = d->ops[i].match_next)
        if (d->ops[i].proc == lane->first.proc)
            return i;
    return DIAG_NONE;
}

/* Have all of a side left their loops to issue this (left), or all kept to them? Looks at a few. */
static bool side_did(struct diag *d, const struct divergence *v, uint32_t class_id, bool left,
                     struct diag_departure *departure)
{
    uint32_t looked = 0;
    for (size_t i = 0; i < v->lanes->count && looked < LOOK_MAX; i++) {
        const struct lane *lane = &v->lanes->items[i];
        if (!lane->nops || lane->class_id != class_id)
            continue;
        struct diag_habit habit;
        uint32_t op = first_op(d, v, lane);
        if (op == DIAG_NONE)
            return false;
        struct diag_question asked = {.comm = v->lanes->comm};
        diag_habit(d, lane->first.proc, &asked, op, &habit);
        if (left ? !habit.left : habit.left || !habit.kept)
            return false;
        if (left)
            *departure = habit.departure;
        looked++;
    }
    return looked > 0;
}

/* How often did the rank of a lane issue such an op on this communicator, before this place or after it? */
static uint32_t seen(const struct diag *d, const struct lane *lane, uint64_t sig, bool before)
{
    const struct diag_proc *proc = &d->procs[lane->first.proc];
    uint32_t count = 0;
    for (uint32_t i = proc->first; i < proc->first + proc->count; i++)
        count += d->ops[i].member == lane->first.member && d->ops[i].sig == sig &&
                 (before ? d->ops[i].op.seq < lane->first.op.seq : d->ops[i].op.seq > lane->first.op.seq);
    return count;
}

/* What follows agrees as it stands; had one side left an op out, it would agree shifted. */
static bool in_step(const struct diag *d, const struct divergence *v)
{
    const struct lane *m = v->usual, *x = v->unusual;
    size_t shift;
    enum diag_split split = diag_align(m->sigs, m->nops, x->sigs, x->nops, &shift);
    return split == DIAG_SPLIT_OTHER &&
           diag_member_of(d, m->first.member)->next_seq == diag_member_of(d, x->first.member)->next_seq;
}

/* The same call with one argument that it used only this once, where both always used the other one. */
static bool new_argument(const struct diag *d, const struct lane *usual, const struct lane *unusual)
{
    uint64_t sig = usual->sigs[0], other = unusual->sigs[0];
    unsigned fields = diag_fields(&usual->first, &unusual->first);
    return !(fields & FIELD_KIND) && !(fields & (fields - 1)) && seen(d, usual, sig, true) >= USUAL_MIN &&
           seen(d, unusual, sig, true) >= USUAL_MIN && !seen(d, unusual, other, true) &&
           !seen(d, unusual, other, false);
}

/* ---- others in the same place ---- */

/* The signature that all of a communicator issued at a seq; 0 = none, or several. */
static uint64_t common_sig(const struct diag *d, const struct rec_communicator *comm, uint64_t seq,
                           uint32_t *count)
{
    uint32_t match = diag_match_find(d, comm, seq, -1, -1);
    uint64_t sig = 0;
    *count = 0;
    for (uint32_t i = match == DIAG_NONE ? DIAG_NONE : d->matches[match].first_op; i != DIAG_NONE;
         i = d->ops[i].match_next, (*count)++) {
        if (sig && d->ops[i].sig != sig)
            return 0;
        sig = d->ops[i].sig;
    }
    return sig;
}

/*
 * Made for the same purpose: as large, of other processes, and with the same calls at the same places as far
 * back as is looked at. A few will do from the beginning on, for children of one communicator even one; else
 * a row of equal ops does not tell whether one of the two is some ops ahead.
 */
static bool is_sibling(const struct diag *d, const struct rec_communicator *comm,
                       const struct rec_communicator *other, uint64_t seq)
{
    if (other == comm || other->nranks != comm->nranks || other->parent != comm->parent ||
        !diag_has(d, other) || diag_share_process(comm, other))
        return false;
    uint64_t same = 0, last = 0;
    uint32_t turns = 0;
    for (; same < SIBLING_LOOK && same < seq; same++) {
        uint32_t here, there;
        uint64_t sig = common_sig(d, comm, seq - same - 1, &here);
        if (sig != common_sig(d, other, seq - same - 1, &there) || (!sig && (here || there)))
            return false;
        if (!sig)
            break; /* before the window, or a child's own creation */
        turns += last && sig != last;
        last = sig;
    }
    bool from_start = same == seq || (comm->parent && same + 1 == seq);
    return from_start ? same >= (comm->parent ? 1 : SIBLING_OPS) : turns >= SIBLING_TURNS;
}

/*
 * Jobs do the same on many communicators. What several processes, and all who took part, issued at this
 * place of its siblings is right here, too. The side that agrees with them; 0 = they do not tell.
 */
static uint32_t sibling_class(const struct diag *d, const struct divergence *v)
{
    uint32_t usual = 0, unusual = 0;
    for (size_t c = 0; c < d->ncomms; c++) {
        uint32_t count;
        if (!is_sibling(d, v->lanes->comm, d->comms[c], v->lanes->seq))
            continue;
        uint64_t sig = common_sig(d, d->comms[c], v->lanes->seq, &count);
        usual += sig == v->usual->sigs[0] ? count : 0;
        unusual += sig == v->unusual->sigs[0] ? count : 0;
    }
    return usual >= SIBLINGS_MIN && !unusual   ? v->usual->class_id
           : unusual >= SIBLINGS_MIN && !usual ? v->unusual->class_id
                                               : 0;
}

/* The op of a process at a matching point; DIAG_NONE. */
static uint32_t op_of(const struct diag *d, uint32_t match, uint32_t proc)
{
    for (uint32_t i = match == DIAG_NONE ? DIAG_NONE : d->matches[match].first_op; i != DIAG_NONE;
         i = d->ops[i].match_next)
        if (d->ops[i].proc == proc)
            return i;
    return DIAG_NONE;
}

int diag_sibling_order(const struct diag *d, uint32_t own, uint32_t common)
{
    const struct diag_match *m = &d->matches[own];
    uint32_t before = 0, without = 0;
    for (size_t c = 0; m->src < 0 && c < d->ncomms; c++) {
        const struct rec_communicator *other = d->comms[c];
        if (other->parent != m->comm->parent || !is_sibling(d, m->comm, other, m->seq))
            continue;
        uint32_t there = diag_match_find(d, other, m->seq, -1, -1);
        for (uint32_t i = 0; i < other->nmembers; i++) {
            uint32_t proc = diag_index(d, other->members[i]->process), joined = op_of(d, common, proc);
            uint32_t same = op_of(d, there, proc);
            if (joined == DIAG_NONE || d->procs[proc].gap_ns)
                continue;
            if (same == DIAG_NONE && diag_member_of(d, other->members[i])->next_seq == m->seq)
                without++;
            else if (same != DIAG_NONE && d->ops[same].sig == d->ops[m->first_op].sig)
                *(same < joined ? &before : &without) += 1;
        }
    }
    return before >= SIBLINGS_MIN && !without ? 1 : without >= SIBLINGS_MIN && !before ? -1 : 0;
}

static void swap_sides(struct divergence *v)
{
    const struct lane *swap = v->usual;
    v->usual = v->unusual;
    v->unusual = swap;
    v->usual_class = v->usual->class_id;
}

/* One against one: who does other than its siblings, or left its own loop while the other kept to its own. */
static void break_tie(struct diag *d, struct divergence *v)
{
    uint32_t other = v->unusual->class_id, siblings = sibling_class(d, v);
    if (siblings) {
        if (siblings == other)
            swap_sides(v);
        v->tie = false;
        v->by_siblings = true;
        return;
    }
    bool by_argument = in_step(d, v) && new_argument(d, v->usual, v->unusual);
    if (!by_argument && in_step(d, v) && new_argument(d, v->unusual, v->usual)) {
        swap_sides(v);
        by_argument = true;
    }
    if (by_argument) {
        v->tie = false;
        return;
    }
    if (side_did(d, v, v->usual_class, false, NULL) && side_did(d, v, other, true, &v->departure)) {
        v->by_history = true;
    } else if (side_did(d, v, v->usual_class, true, &v->departure) && side_did(d, v, other, false, NULL)) {
        swap_sides(v);
        v->by_history = true;
    }
    v->tie = !v->by_history;
}

/* Where the past speaks against the larger side, and members are unknown, it is as good as a tie. */
static void check_majority(struct diag *d, struct divergence *v)
{
    struct divergence other = *v;
    break_tie(d, &other);
    v->tie = other.usual_class != v->usual_class;
}

/* ---- groups ---- */

static uint32_t number_classes(const struct divergence *v)
{
    struct lane *items = v->lanes->items;
    uint32_t classes = 0;
    for (size_t i = 0; i < v->lanes->count; i++) {
        if (!items[i].nops)
            continue;
        size_t j = 0;
        while (j < i && !(items[j].nops && items[j].sigs[0] == items[i].sigs[0]))
            j++;
        items[i].class_id = j < i ? items[j].class_id : ++classes;
    }
    return classes;
}

/* Members whose op at this place nobody knows, though they issued one or may have. */
static size_t hidden_members(const struct diag *d, const struct divergence *v)
{
    const struct rec_communicator *comm = v->lanes->comm;
    size_t absent = 0;
    for (uint32_t i = 0; i < comm->nmembers; i++)
        absent += diag_lacks(d, comm->members[i], v->lanes->seq);
    size_t told = v->known + absent;
    return comm->nranks > told ? comm->nranks - told : 0;
}

void diag_sides(struct diag *d, struct divergence *v)
{
    const struct lane *items = v->lanes->items;
    uint32_t classes = number_classes(v);
    size_t second = 0;
    for (uint32_t c = 1; c <= classes; c++) {
        size_t size = 0;
        const struct lane *longest = NULL;
        for (size_t i = 0; i < v->lanes->count; i++) {
            if (!items[i].nops || items[i].class_id != c)
                continue;
            size += items[i].nmembers;
            if (!longest || items[i].nops > longest->nops)
                longest = &items[i];
        }
        v->known += size;
        if (size > v->usual_count) {
            second = v->usual_count;
            v->usual_count = size;
            v->usual_class = c;
            v->usual = longest;
        } else if (size > second) {
            second = size;
        }
    }
    for (size_t i = 0; i < v->lanes->count; i++)
        if (items[i].nops && items[i].class_id != v->usual_class &&
            (!v->unusual || items[i].nops > v->unusual->nops))
            v->unusual = &items[i];
    size_t hidden = hidden_members(d, v);
    v->thin = hidden && second + hidden >= v->usual_count;
    v->tie = second == v->usual_count || (v->thin && second + hidden > v->usual_count);
    if (v->unusual && (v->tie || v->thin) && classes == 2 && !v->lanes->from_checkpoint)
        v->tie ? break_tie(d, v) : check_majority(d, v);
}
