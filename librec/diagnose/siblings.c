/*
 * Jobs do the same on many communicators at once. What is wrong in the same way at the same place of
 * several that have no process in common, as the pairs of one split, is one fault.
 */
#include "diag.h"

#include <inttypes.h>
#include <string.h>

/* Such faults begin together. */
#define TOGETHER_NS NS_PER_S

bool diag_share_process(const struct rec_communicator *a, const struct rec_communicator *b)
{
    for (uint32_t i = 0; i < a->nmembers; i++)
        for (uint32_t j = 0; j < b->nmembers; j++)
            if (a->members[i]->process == b->members[j]->process)
                return true;
    return false;
}

static bool one_fault(const struct diag *d, size_t a, size_t b)
{
    const struct rec_finding *x = &d->findings[a], *y = &d->findings[b];
    uint64_t from = d->onsets[a] < d->onsets[b] ? d->onsets[a] : d->onsets[b];
    uint64_t to = d->onsets[a] < d->onsets[b] ? d->onsets[b] : d->onsets[a];
    return x->type == y->type && d->tiers[a] == DIAG_TIER_ROOT && d->tiers[b] == DIAG_TIER_ROOT &&
           x->confidence == y->confidence && x->nculprits && y->nculprits && x->comm && y->comm &&
           x->comm != y->comm && x->comm->nranks == y->comm->nranks && x->comm->parent == y->comm->parent &&
           x->seq == y->seq && x->op.kind == y->op.kind && x->op.count == y->op.count &&
           x->op.dtype == y->op.dtype && to - from < TOGETHER_NS && !diag_share_process(x->comm, y->comm);
}

static void take_ranks(struct diag *d, struct rec_finding *into, enum diag_list list, const int32_t *ranks,
                       size_t count)
{
    for (size_t i = 0; i < count; i++)
        diag_blame(d, into, list, ranks[i]);
}

static void without_culprits(const struct rec_finding *f, int32_t *ranks, size_t *count)
{
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++)
        if (!diag_lists_rank(f->culprits, f->nculprits, ranks[i]))
            ranks[kept++] = ranks[i];
    *count = kept;
}

static void merge(struct diag *d, size_t into, size_t from)
{
    struct rec_finding *f = &d->findings[into], gone = d->findings[from];
    struct diag_text t = {0};
    diag_printf(&t, "%s; likewise ", f->summary ? f->summary : "");
    diag_say_ranks(&t, gone.culprits, gone.nculprits);
    diag_printf(&t, " in ");
    diag_say_comm(&t, gone.comm);
    diag_summary(d, f, &t);
    take_ranks(d, f, DIAG_CULPRIT, gone.culprits, gone.nculprits);
    take_ranks(d, f, DIAG_SUSPECT, gone.suspects, gone.nsuspects);
    take_ranks(d, f, DIAG_VICTIM, gone.victims, gone.nvictims);
    diag_sort_ranks(f->culprits, &f->nculprits);
    diag_sort_ranks(f->suspects, &f->nsuspects);
    diag_sort_ranks(f->victims, &f->nvictims);
    without_culprits(f, f->suspects, &f->nsuspects);
    without_culprits(f, f->victims, &f->nvictims);
    diag_finding_fini(&gone);
    size_t behind = d->nfindings - from - 1;
    memmove(d->findings + from, d->findings + from + 1, behind * sizeof *d->findings);
    memmove(d->onsets + from, d->onsets + from + 1, behind * sizeof *d->onsets);
    memmove(d->tiers + from, d->tiers + from + 1, behind * sizeof *d->tiers);
    d->nfindings--;
}

void diag_merge_siblings(struct diag *d)
{
    for (size_t i = 0; i < d->nfindings && !d->oom; i++)
        for (size_t j = d->nfindings; j-- > i + 1 && !d->oom;)
            if (one_fault(d, i, j))
                merge(d, i, j);
}
