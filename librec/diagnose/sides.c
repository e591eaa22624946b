#include "sides.h"

/* An op issued so often is one of the loop's. */
#define USUAL_MIN 4
/* Members of a side whose past is looked at. */
#define LOOK_MAX 8

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
        diag_habit(d, lane->first.proc, v->lanes->comm, op, &habit);
        if (left ? !habit.left : habit.left || !habit.kept)
            return false;
        if (left)
            *departure = habit.departure;
        looked++;
    }
    return looked > 0;
}

/* How often did the rank of a lane issue such an op on this communicator before? */
static uint32_t seen_before(const struct diag *d, const struct lane *lane, uint64_t sig)
{
    const struct diag_proc *proc = &d->procs[lane->first.proc];
    uint32_t seen = 0;
    for (uint32_t i = proc->first; i < proc->first + proc->count; i++)
        seen += d->ops[i].member == lane->first.member && d->ops[i].sig == sig &&
                d->ops[i].op.seq < lane->first.op.seq;
    return seen;
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

/* The same call with an argument that it never used before, where both always used the other one. */
static bool new_argument(const struct diag *d, const struct lane *usual, const struct lane *unusual)
{
    return rec_kind_canonical(usual->first.op.kind) == rec_kind_canonical(unusual->first.op.kind) &&
           seen_before(d, usual, usual->sigs[0]) >= USUAL_MIN &&
           seen_before(d, unusual, usual->sigs[0]) >= USUAL_MIN &&
           seen_before(d, unusual, unusual->sigs[0]) == 0;
}

static void swap_sides(struct divergence *v)
{
    const struct lane *swap = v->usual;
    v->usual = v->unusual;
    v->unusual = swap;
    v->usual_class = v->usual->class_id;
}

/* One against one: who left its own loop, while the other kept to its own, is wrong. */
static void break_tie(struct diag *d, struct divergence *v)
{
    uint32_t other = v->unusual->class_id;
    bool by_argument = in_step(d, v) && new_argument(d, v->usual, v->unusual);
    if (!by_argument && in_step(d, v) && new_argument(d, v->unusual, v->usual)) {
        swap_sides(v);
        by_argument = true;
    }
    if (by_argument) {
        v->tie = v->thin = false;
        return;
    }
    if (side_did(d, v, v->usual_class, false, NULL) && side_did(d, v, other, true, &v->departure)) {
        v->by_history = true;
    } else if (side_did(d, v, v->usual_class, true, &v->departure) && side_did(d, v, other, false, NULL)) {
        swap_sides(v);
        v->by_history = true;
    }
    if (v->by_history)
        v->tie = v->thin = false;
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
        absent += diag_member_of(d, comm->members[i])->next_seq <= v->lanes->seq &&
                  !d->procs[diag_index(d, comm->members[i]->process)].cut;
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
    v->tie = second == v->usual_count;
    v->thin = second + hidden_members(d, v) >= v->usual_count;
    if (v->unusual && v->thin && classes == 2 && !v->lanes->from_checkpoint)
        break_tie(d, v);
}
