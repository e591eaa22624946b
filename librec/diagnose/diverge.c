/*
 * First divergence: the lowest seq of a communicator at which its members issued different
 * ops. Late in the trace the loaded windows show it, earlier the checkpoints do.
 */
#include "sides.h"

#include <inttypes.h>
#include <stdlib.h>

/* Windows of one communicator that are read again, and of all of them. */
#define WINDOWS_MAX 8
#define READS_MAX   64
/* Kinds of calls that a sentence tells. */
#define CLASSES_TOLD 5

/* ---- what differs ---- */

/* Is this op the one before on the other side, issued once more, or one of those that follow there? */
static bool seen_beside(const struct diag *d, const struct lane *where, uint64_t sig)
{
    for (uint32_t k = 1; k < where->nops; k++)
        if (where->sigs[k] == sig)
            return true;
    const struct diag_proc *proc = &d->procs[where->first.proc];
    for (uint32_t i = proc->first; i < proc->first + proc->count; i++)
        if (d->ops[i].member == where->first.member && d->ops[i].op.seq + 1 == where->first.op.seq &&
            (rec_kind_flags(d->ops[i].op.kind) & REC_KF_SEQ))
            return d->ops[i].sig == sig;
    return false;
}

/*
 * Ops that all look alike hide a shift, except at the end: when the many stand at one seq
 * and the one at another.
 */
static void shift_by_frontier(const struct diag *d, struct divergence *v)
{
    const struct lane *m = v->usual, *x = v->unusual;
    for (uint32_t k = 1; k < m->nops && k < x->nops; k++)
        if (m->sigs[k] != x->sigs[k])
            return;
    uint64_t usual = 0;
    for (size_t i = 0; i < v->lanes->count; i++) {
        const struct lane *lane = &v->lanes->items[i];
        for (uint32_t j = 0; lane->nops && lane->class_id == v->usual_class && j < lane->nmembers; j++) {
            uint64_t next = diag_member_of(d, v->lanes->members[lane->first_member + j])->next_seq;
            if (usual && next != usual)
                return;
            usual = next;
        }
    }
    uint64_t unusual = diag_member_of(d, v->lanes->members[x->first_member])->next_seq;
    size_t by = (size_t)(unusual > usual ? unusual - usual : usual - unusual);
    bool ahead = unusual > usual;
    const struct lane *longer = ahead ? x : m, *shorter = ahead ? m : x;
    if (!by || by >= longer->nops)
        return;
    for (size_t k = 0; k + by < longer->nops && k < shorter->nops; k++)
        if (longer->sigs[k + by] != shorter->sigs[k])
            return;
    v->split = ahead ? DIAG_SPLIT_EXTRA : DIAG_SPLIT_SKIP;
    v->shift = by;
}

/* [a, b, a] against [b, a] may be a swap of the first two or lack the first: then the end comes one sooner.
 */
static bool one_less(const struct diag *d, const struct divergence *v)
{
    const struct lane *m = v->usual, *x = v->unusual;
    for (uint32_t k = 0; k < x->nops; k++)
        if (k + 1 >= m->nops || m->sigs[k + 1] != x->sigs[k])
            return false;
    return diag_member_of(d, x->first.member)->next_seq + 1 == diag_member_of(d, m->first.member)->next_seq;
}

static void compare_lanes(const struct diag *d, struct divergence *v)
{
    const struct lane *m = v->usual, *x = v->unusual;
    v->split = diag_align(m->sigs, m->nops, x->sigs, x->nops, &v->shift);
    if (v->split == DIAG_SPLIT_OTHER && v->usual_count > 1)
        shift_by_frontier(d, v);
    if (v->split == DIAG_SPLIT_SWAP && one_less(d, v)) {
        v->split = DIAG_SPLIT_SKIP;
        v->shift = 1;
    }
    v->fields = diag_fields(&m->first, &x->first);
    v->equal_bytes = v->fields == (FIELD_COUNT | FIELD_DTYPE) || v->fields == FIELD_DTYPE
                         ? diag_bytes(&m->first.op) == diag_bytes(&x->first.op)
                         : false;
    if (v->split != DIAG_SPLIT_OTHER || (v->fields & FIELD_KIND))
        return;
    /* One argument that differs is a wrong argument; more than one is another op. */
    bool single = !(v->fields & (v->fields - 1)) || v->equal_bytes;
    if (single && !(v->fields == FIELD_COUNT && seen_beside(d, m, x->sigs[0])))
        v->split = DIAG_SPLIT_FIELD;
}

static bool is_creation(const struct lane *lane)
{
    return (rec_kind_flags(lane->first.op.kind) & REC_KF_CREATE) != 0;
}

/* A lane without its creations, or only these. */
static size_t sift(const struct lane *lane, bool creations, uint64_t *sigs)
{
    size_t n = 0;
    for (uint32_t k = 0; k < lane->nops; k++)
        if ((lane->creations >> k & 1) == creations)
            sigs[n++] = lane->sigs[k];
    return n;
}

/* NCCL orders creation and data ops of a communicator independently of each other. */
static bool harmless(const struct divergence *v)
{
    if (is_creation(v->usual) == is_creation(v->unusual))
        return false;
    for (int creations = 0; creations < 2; creations++) {
        uint64_t m[LANE_OPS], x[LANE_OPS];
        size_t nm = sift(v->usual, creations, m), nx = sift(v->unusual, creations, x);
        for (size_t k = 0; k < nm && k < nx; k++)
            if (m[k] != x[k])
                return false;
        if (creations && nm != nx)
            return false;
    }
    return true;
}

/*
 * Frameworks pass off what NCCL has no type for as another one, or as bytes. Where nothing is
 * computed, equal bytes are the same op.
 */
static bool same_bytes(const struct divergence *v)
{
    return v->split == DIAG_SPLIT_FIELD && v->equal_bytes &&
           !(rec_kind_flags(v->usual->first.op.kind) & REC_KF_REDOP);
}

/*
 * Creating is synchronous, data ops are not: who issued the data op has gone past the
 * creation, who creates can still come to the data op. Where most have gone past it, the few create alone;
 * where members that are not recorded could turn that, it is open.
 */
static bool skipped_creation(const struct divergence *v)
{
    return is_creation(v->usual) != is_creation(v->unusual) && (v->tie ? !v->thin : is_creation(v->usual));
}

/* ---- telling ---- */

static void say_fields(struct diag_text *t, const struct divergence *v)
{
    static const struct {
        unsigned field;
        const char *name;
    } names[] = {
        {FIELD_COUNT, "count"}, {FIELD_DTYPE, "datatype"}, {FIELD_REDOP, "redop"}, {FIELD_ROOT, "root"}};
    const char *separator = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!(v->fields & names[i].field))
            continue;
        bool size = names[i].field == FIELD_COUNT && diag_inits(&v->usual->first.op);
        diag_printf(t, "%s%s", separator, size ? "number of ranks" : names[i].name);
        separator = " and ";
    }
}

static bool on_side(const struct divergence *v, const struct lane *lane, bool usual)
{
    return lane->nops && (lane->class_id == v->usual_class) == usual;
}

/* With host and pid, if wanted, when it is one. Returns how many ranks these are. */
static size_t say_class(struct diag_text *t, const struct divergence *v, uint32_t class_id, bool in_full)
{
    int32_t *ranks = NULL;
    size_t count = 0, capacity = 0;
    bool oom = false;
    const struct rec_process *only = NULL;
    for (size_t i = 0; i < v->lanes->count; i++) {
        const struct lane *lane = &v->lanes->items[i];
        for (uint32_t j = 0; lane->nops && lane->class_id == class_id && j < lane->nmembers; j++) {
            only = v->lanes->members[lane->first_member + j]->process;
            ranks = diag_grow(ranks, &capacity, count, sizeof *ranks, &oom);
            if (!oom)
                ranks[count++] = only->rank;
        }
    }
    t->oom = t->oom || oom;
    diag_sort_ranks(ranks, &count);
    if (count == 1 && in_full)
        diag_say_proc(t, only);
    else
        diag_say_ranks(t, ranks, count);
    free(ranks);
    return count;
}

static void say_called(const struct diag *d, struct diag_text *t, const struct divergence *v,
                       const struct lane *lane)
{
    size_t count = say_class(t, v, lane->class_id, true);
    diag_printf(t, " called ");
    if (count > 1)
        diag_say_ops(t, &lane->first.op, NULL, -1, -1);
    else
        diag_say_call(t, &lane->first);
    diag_say_places(d, t, &lane->first);
}

/* Others that differ, each with what it called; returns how many kinds there are. */
static size_t say_other_classes(const struct diag *d, struct diag_text *t, const struct divergence *v)
{
    uint32_t told[CLASSES_TOLD] = {v->usual_class, v->unusual->class_id};
    size_t count = 2;
    for (size_t i = 0; i < v->lanes->count && count < CLASSES_TOLD; i++) {
        const struct lane *lane = &v->lanes->items[i];
        bool known = !lane->nops;
        for (size_t k = 0; k < count; k++)
            known = known || told[k] == lane->class_id;
        if (known)
            continue;
        told[count++] = lane->class_id;
        diag_printf(t, ", ");
        say_called(d, t, v, lane);
    }
    return count - 2;
}

static void say_split(struct diag_text *t, const struct divergence *v)
{
    const char *ops = v->shift > 1 ? "ops" : "op";
    if (v->split == DIAG_SPLIT_FIELD) {
        diag_printf(t, ": the ");
        say_fields(t, v);
        diag_printf(t, v->fields & (v->fields - 1) ? " differ" : " differs");
        return;
    }
    if (v->split != DIAG_SPLIT_SKIP && v->split != DIAG_SPLIT_EXTRA && v->split != DIAG_SPLIT_SWAP)
        return;
    diag_printf(t, v->split == DIAG_SPLIT_SWAP ? ": " : "; what follows shows that ");
    say_class(t, v, v->unusual->class_id, false);
    if (v->split == DIAG_SPLIT_SWAP)
        diag_printf(t, " called the same ops in another order");
    else
        diag_printf(t, v->split == DIAG_SPLIT_SKIP ? " skipped %zu %s" : " made %zu %s too many", v->shift,
                    v->split == DIAG_SPLIT_SKIP ? ops
                    : v->shift > 1              ? "calls"
                                                : "call");
}

static void say_divergence(const struct diag *d, struct diag_text *t, const struct divergence *v,
                           bool creation_skipped)
{
    bool swapped_sides = creation_skipped && is_creation(v->unusual);
    const struct lane *x = swapped_sides ? v->usual : v->unusual, *m = swapped_sides ? v->unusual : v->usual;
    say_called(d, t, v, x);
    size_t others = swapped_sides ? 0 : say_other_classes(d, t, v);
    if (diag_inits(&x->first.op))
        diag_printf(t, " in the creation of ");
    else
        diag_printf(t, " as op %" PRIu64 " of ", v->lanes->seq);
    diag_say_comm(t, v->lanes->comm);
    diag_printf(t, " where ");
    say_called(d, t, v, m);
    if (!creation_skipped && !others && (!v->tie || v->split == DIAG_SPLIT_FIELD))
        say_split(t, v);
    if (creation_skipped)
        diag_printf(t, ": the creation of a communicator was left out");
    else if (v->thin)
        diag_printf(t, "; what the other members called is not recorded, so either side may be wrong");
    else if (v->tie)
        diag_printf(t, "; it is a tie, so %s may be wrong", others ? "each" : "either side");
}

static enum rec_verdict_type type_of(const struct divergence *v, bool creation_skipped)
{
    if (creation_skipped)
        return REC_VERDICT_RANK_NOT_JOINED;
    if (diag_inits(&v->usual->first.op))
        return REC_VERDICT_INIT_INCOMPLETE;
    return v->split == DIAG_SPLIT_FIELD ? REC_VERDICT_SIGNATURE_MISMATCH : REC_VERDICT_OP_MISMATCH;
}

/* Do the two ops block each other, or do they complete with a wrong result? */
static bool blocks(const struct divergence *v)
{
    if (v->fields & FIELD_KIND)
        return true;
    if (rec_kind_flags(v->usual->first.op.kind) & REC_KF_DATA)
        return diag_bytes(&v->usual->first.op) != diag_bytes(&v->unusual->first.op);
    return v->fields != 0;
}

static bool lost_records(const struct rec_communicator *comm)
{
    for (uint32_t i = 0; i < comm->nmembers; i++)
        if (comm->members[i]->lost || comm->members[i]->process->damaged)
            return true;
    return false;
}

static enum rec_confidence confidence_of(const struct divergence *v)
{
    if (v->tie && v->thin)
        return REC_CONF_POSSIBLE;
    if (v->tie || v->thin || v->usual_count * 2 <= v->known || lost_records(v->lanes->comm))
        return REC_CONF_LIKELY;
    bool only_dtype = v->split == DIAG_SPLIT_FIELD && (v->fields & FIELD_DTYPE) && v->equal_bytes;
    return only_dtype ? REC_CONF_LIKELY : REC_CONF_CERTAIN;
}

static uint64_t onset_of(const struct lanes *lanes)
{
    uint64_t onset = UINT64_MAX;
    for (size_t i = 0; i < lanes->count; i++)
        if (lanes->items[i].nops && lanes->items[i].first.op.enter_ns < onset)
            onset = lanes->items[i].first.op.enter_ns;
    return onset;
}

static void blame_sides(struct diag *d, struct rec_finding *f, const struct divergence *v,
                        bool creation_skipped)
{
    for (size_t i = 0; i < v->lanes->count; i++) {
        const struct lane *lane = &v->lanes->items[i];
        if (!lane->nops)
            continue;
        bool wrong = creation_skipped ? !is_creation(lane) : v->tie || lane->class_id != v->usual_class;
        /* Of a tie that others might break who are not recorded nobody is the culprit. */
        bool open = v->tie && v->thin;
        enum diag_list list = wrong && !open ? DIAG_CULPRIT : DIAG_SUSPECT;
        for (uint32_t j = 0; (wrong || v->thin) && j < lane->nmembers; j++)
            diag_blame(d, f, list, v->lanes->members[lane->first_member + j]->process->rank);
    }
    diag_sort_ranks(f->culprits, &f->nculprits);
    diag_sort_ranks(f->suspects, &f->nsuspects);
    if (v->tie && v->thin)
        diag_suspect_hidden(d, f, v->lanes->comm);
}

/*
 * The call of the other side that NCCL had refused to this lane's rank just before; DIAG_NONE. In a row of
 * equal calls, one that was refused shows only at its end.
 */
static uint32_t refused_before(const struct diag *d, const struct lane *lane, uint64_t sig)
{
    const struct diag_proc *proc = &d->procs[lane->first.proc];
    for (uint32_t i = proc->first + proc->count; i-- > proc->first;) {
        const struct diag_op *op = &d->ops[i];
        if (op->member != lane->first.member)
            continue;
        if (op->failed && (op->op.flags & REC_OF_NO_SEQ) && op->sig == sig &&
            op->op.enter_ns <= lane->first.op.enter_ns)
            return i;
        bool counted = (rec_kind_flags(op->op.kind) & REC_KF_SEQ) && !(op->op.flags & REC_OF_NO_SEQ);
        if (counted && op->op.seq < lane->first.op.seq && op->sig != sig)
            return DIAG_NONE;
    }
    return DIAG_NONE;
}

/* One against one, where the other side's call was refused to one of them: that is why they differ. */
static bool report_refused(struct diag *d, const struct divergence *v)
{
    uint32_t usual = refused_before(d, v->usual, v->unusual->sigs[0]),
             unusual = refused_before(d, v->unusual, v->usual->sigs[0]);
    if ((usual == DIAG_NONE) == (unusual == DIAG_NONE))
        return false;
    const struct diag_op *op = &d->ops[usual == DIAG_NONE ? unusual : usual];
    struct rec_finding *f = diag_finding(d, REC_VERDICT_COMM_FAILED, confidence_of(v),
                                         blocks(v) ? DIAG_TIER_ROOT : DIAG_TIER_FAULT, op->op.enter_ns);
    if (!f)
        return true;
    f->comm = v->lanes->comm;
    f->seq = v->lanes->seq;
    f->op = op->op;
    diag_blame(d, f, DIAG_CULPRIT, d->procs[op->proc].p->rank);
    struct diag_text t = {0};
    diag_say_proc(&t, d->procs[op->proc].p);
    diag_say_refusal(d, &t, op);
    diag_printf(&t, " and went on, so that it stands at another op %" PRIu64 " of ", v->lanes->seq);
    diag_say_comm(&t, v->lanes->comm);
    diag_printf(&t, " than the others");
    diag_summary(d, f, &t);
    diag_evidence_op(d, f, op, "was refused");
    diag_evidence_op(d, f, &v->usual->first, "called");
    diag_evidence_op(d, f, &v->unusual->first, "called");
    return true;
}

static void report(struct diag *d, struct divergence *v)
{
    if (v->known == 2 && report_refused(d, v))
        return;
    bool creation_skipped = skipped_creation(v);
    enum rec_verdict_type type = type_of(v, creation_skipped);
    struct rec_finding *f = diag_finding(d, type, confidence_of(v),
                                         blocks(v) ? DIAG_TIER_ROOT : DIAG_TIER_FAULT, onset_of(v->lanes));
    if (!f)
        return;
    f->comm = v->lanes->comm;
    f->seq = v->lanes->seq;
    f->op = v->usual->first.op;
    struct diag_text t = {0};
    say_divergence(d, &t, v, creation_skipped);
    if (!blocks(v))
        diag_printf(&t, "; the op completes, but its result is wrong");
    diag_summary(d, f, &t);
    blame_sides(d, f, v, creation_skipped);
    uint32_t shown = 0;
    for (size_t i = 0; i < v->lanes->count && shown < 4; i++)
        if (on_side(v, &v->lanes->items[i], false)) {
            diag_evidence_op(d, f, &v->lanes->items[i].first, "called");
            shown++;
        }
    diag_evidence_op(d, f, &v->usual->first, "called");
    if (v->by_history)
        diag_evidence_departure(d, f, &v->departure);
    if (v->by_siblings)
        diag_evidence(d, f, NULL, v->lanes->seq, 0,
                      "on communicators with the same calls up to there, all called what the latter did");
    if (v->lanes->from_checkpoint)
        diag_evidence(d, f, NULL, v->lanes->seq, 0,
                      "all earlier ops of this communicator have equal checkpoints");
    if (lost_records(v->lanes->comm))
        diag_evidence(d, f, NULL, UINT64_MAX, 0,
                      "some records of this communicator were lost, which lowers the confidence");
}

/*
 * True when the lanes hold a fault; then it is reported. Else *past is the first seq that they
 * say nothing about.
 */
static bool examine(struct diag *d, struct lanes *lanes, uint64_t *past)
{
    struct divergence v = {.lanes = lanes};
    diag_sides(d, &v);
    *past = lanes->seq + 1;
    if (!v.usual || !v.unusual)
        return false;
    *past = lanes->seq + (v.usual->nops < v.unusual->nops ? v.usual->nops : v.unusual->nops);
    compare_lanes(d, &v);
    /* Those who create are right if they are as many, so it is open already where they may be. */
    v.tie = v.tie || (v.thin && is_creation(v.unusual) && !is_creation(v.usual));
    if (same_bytes(&v)) {
        *past = lanes->seq + 1;
        return false;
    }
    /* So early a call more may have stood in for a launch: what those were is not known any more. */
    bool shifted = v.split == DIAG_SPLIT_SKIP || v.split == DIAG_SPLIT_EXTRA;
    if (harmless(&v) || (lanes->from_checkpoint && shifted && diag_in_graphs(d, lanes->comm)))
        return false;
    report(d, &v);
    return true;
}

/* ---- finding the place ---- */

/* The first window from one on whose hashes differ; UINT64_MAX = none. */
static uint64_t bad_window(const struct rec_communicator *comm, uint64_t from)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < comm->nmembers; i++)
        if (comm->members[i]->nwindows > most)
            most = comm->members[i]->nwindows;
    for (uint64_t w = from; w < most; w++) {
        const struct rec_checkpoint_word *first = NULL;
        for (uint32_t i = 0; i < comm->nmembers; i++) {
            const struct rec_member *m = comm->members[i];
            if (w >= m->nwindows || !m->windows[w].known)
                continue;
            if (first && first->hash != m->windows[w].hash)
                return w;
            first = &m->windows[w];
        }
    }
    return UINT64_MAX;
}

struct place {
    uint32_t comm;
    uint64_t seq;
};

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->comm != y->comm)
        return x->comm < y->comm ? -1 : 1;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* All places in the windows where signatures differ, by communicator and seq. */
static struct place *differing_places(struct diag *d, size_t *count)
{
    struct place *places = NULL;
    size_t capacity = 0;
    *count = 0;
    for (size_t i = 0; i < d->nmatches && !d->oom; i++) {
        const struct diag_match *m = &d->matches[i];
        if (m->src >= 0 || !m->differs)
            continue;
        places = diag_grow(places, &capacity, *count, sizeof *places, &d->oom);
        if (!d->oom)
            places[(*count)++] = (struct place){m->comm->index, m->seq};
    }
    if (*count)
        qsort(places, *count, sizeof *places, by_place);
    return places;
}

/*
 * Windows before the loaded ops, from the first one that differs to the seq at which these take over.
 * What differs there may be harmless, or its records lost: then the next one is looked at.
 */
static enum rec_code examine_windows(struct diag *d, struct rec_communicator *comm, uint64_t until,
                                     uint32_t *reads, uint64_t *past, bool *found)
{
    enum rec_code code = REC_OK;
    uint64_t window = bad_window(comm, 0);
    for (uint32_t i = 0; i < WINDOWS_MAX && *reads && window != UINT64_MAX &&
                         until / REC_CHECKPOINT_OPS > window && code == REC_OK && !d->oom && !*found;
         i++) {
        struct lanes lanes;
        (*reads)--;
        code = lanes_from_checkpoint(d, comm, window, &lanes);
        *found = code == REC_OK && !d->oom && lanes.count && examine(d, &lanes, past);
        lanes_free(&lanes);
        window = bad_window(comm, window + 1);
    }
    return code;
}

enum rec_code diag_diverge(struct diag *d)
{
    size_t count;
    struct place *places = differing_places(d, &count);
    enum rec_code code = REC_OK;
    size_t next = 0;
    uint32_t reads = READS_MAX;
    for (uint32_t c = 0; c < d->ncomms && !d->oom && code == REC_OK; c++) {
        while (next < count && places[next].comm < c)
            next++;
        if (!diag_has(d, d->comms[c]))
            continue;
        bool tail = next < count && places[next].comm == c, found = false;
        uint64_t past = 0;
        code = examine_windows(d, d->comms[c], tail ? places[next].seq : UINT64_MAX, &reads, &past, &found);
        /* Harmless ones are passed over. */
        for (size_t i = next; code == REC_OK && !found && i < count && places[i].comm == c && !d->oom; i++) {
            struct lanes lanes;
            if (places[i].seq < past)
                continue;
            if (lanes_from_tail(d, d->comms[c], places[i].seq, &lanes))
                found = examine(d, &lanes, &past);
            lanes_free(&lanes);
        }
    }
    free(places);
    return code;
}
