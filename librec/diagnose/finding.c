/* Findings and the words they are made of. */
#include "diag.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rec/symbolize.h"

#define EVIDENCE_MAX 32
#define FRAMES_MAX   12
#define FOLDED_FIRST 24 /* bytes of a list of ranks that is too long */

struct rec_finding *diag_finding(struct diag *d, enum rec_verdict_type type, enum rec_confidence confidence,
                                 enum diag_tier tier, uint64_t onset_ns)
{
    if (!DIAG_ROOM(d, findings, d->nfindings) || !DIAG_ROOM(d, onsets, d->nfindings) ||
        !DIAG_ROOM(d, tiers, d->nfindings))
        return NULL;
    d->onsets[d->nfindings] = onset_ns;
    d->tiers[d->nfindings] = (int)tier;
    struct rec_finding *f = &d->findings[d->nfindings++];
    *f = (struct rec_finding){.type = type, .confidence = confidence, .seq = UINT64_MAX};
    return f;
}

void diag_finding_fini(struct rec_finding *f)
{
    for (size_t i = 0; i < f->nevidence; i++)
        free(f->evidence[i].text);
    free(f->evidence);
    free(f->summary);
    free(f->culprits);
    free(f->suspects);
    free(f->victims);
}

void diag_summary(struct diag *d, struct rec_finding *f, struct diag_text *text)
{
    if (text->oom || !text->data)
        d->oom = true;
    free(f->summary);
    f->summary = text->data;
    *text = (struct diag_text){0};
}

void diag_evidence(struct diag *d, struct rec_finding *f, const struct rec_process *p, uint64_t seq,
                   uint64_t time_ns, const char *format, ...)
{
    if (f->nevidence >= EVIDENCE_MAX || d->oom)
        return;
    struct rec_evidence *grown = realloc(f->evidence, (f->nevidence + 1) * sizeof *grown);
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    if (grown)
        f->evidence = grown;
    if (!grown || !text) {
        free(text);
        d->oom = true;
        return;
    }
    f->evidence[f->nevidence++] = (struct rec_evidence){
        .text = text, .rank = p ? p->rank : -1, .seq = seq, .time_ns = time_ns, .file = p ? p->path : NULL};
}

static const struct rec_callsite_def *site_of(const struct rec_process *p, const struct rec_op *op)
{
    return op->callsite ? rec_process_callsite(p, op->callsite) : NULL;
}

/* In Python code, else in native code, for programs written in it. */
static void say_any_place(struct diag *d, struct diag_text *t, const struct rec_process *p,
                          const struct rec_op *op)
{
    const struct rec_callsite_def *site = site_of(p, op);
    char text[256];
    if (!d->symbolizer)
        d->symbolizer = rec_symbolizer_new();
    if (site && rec_callsite_text(site, d->symbolizer, text, sizeof text))
        diag_printf(t, " at %s", text);
}

void diag_evidence_op(struct diag *d, struct rec_finding *f, const struct diag_op *op, const char *what)
{
    const struct rec_process *p = d->procs[op->proc].p;
    struct diag_text t = {0};
    diag_say_proc(&t, p);
    diag_printf(&t, " %s ", what);
    diag_say_call(&t, op);
    say_any_place(d, &t, p, &op->op);
    if (op->member) {
        bool counted = (rec_kind_flags(op->op.kind) & (REC_KF_SEQ | REC_KF_P2P | REC_KF_RMA | REC_KF_HOST)) ||
                       op->op.kind == REC_GRAPH_LAUNCH;
        if (op->op.flags & REC_OF_NO_SEQ) {
            diag_printf(&t, " on ");
        } else {
            diag_printf(&t, counted ? " as " : " before ");
            diag_say_number(&t, &op->op, op->op.seq);
        }
        diag_say_comm(&t, op->member->comm);
    }
    diag_printf(&t, " at ");
    diag_say_time(d, &t, op->op.enter_ns);
    if (t.data && !t.oom)
        diag_evidence(d, f, p, rec_kind_flags(op->op.kind) & REC_KF_HOST ? UINT64_MAX : op->op.seq,
                      op->op.enter_ns, "%s", t.data);
    else
        d->oom = true;
    free(t.data);
}

void diag_evidence_frames(struct diag *d, struct rec_finding *f, const struct rec_process *p,
                          const char *const *modules, uint32_t nmodules, const struct rec_frame *frames,
                          uint32_t nframes)
{
    if (!d->symbolizer)
        d->symbolizer = rec_symbolizer_new();
    for (uint32_t i = 0; i < nframes && i < FRAMES_MAX; i++) {
        const char *module = frames[i].module < nmodules ? modules[frames[i].module] : NULL;
        const char *slash = module ? strrchr(module, '/') : NULL;
        const char *base = slash ? slash + 1 : module ? module : "?";
        char name[160] = "";
        if (d->symbolizer && module &&
            rec_symbolize(d->symbolizer, module, frames[i].offset, name, sizeof name))
            diag_evidence(d, f, p, UINT64_MAX, 0, "  #%" PRIu32 " %s (%s)", i, name, base);
        else
            diag_evidence(d, f, p, UINT64_MAX, 0, "  #%" PRIu32 " %s+0x%" PRIx64, i, base, frames[i].offset);
    }
}

void diag_blame(struct diag *d, struct rec_finding *f, enum diag_list list, int32_t rank)
{
    int32_t **ranks = list == DIAG_CULPRIT ? &f->culprits : list == DIAG_SUSPECT ? &f->suspects : &f->victims;
    size_t *count = list == DIAG_CULPRIT   ? &f->nculprits
                    : list == DIAG_SUSPECT ? &f->nsuspects
                                           : &f->nvictims;
    if (rank < 0 || d->oom)
        return;
    /* Capacity is the next power of two: a list has no room for a field of its own. */
    if (!(*count & (*count - 1))) {
        int32_t *grown = realloc(*ranks, (*count ? *count * 2 : 1) * sizeof *grown);
        if (!grown) {
            d->oom = true;
            return;
        }
        *ranks = grown;
    }
    (*ranks)[(*count)++] = rank;
}

static int compare_ranks(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

void diag_sort_ranks(int32_t *ranks, size_t *count)
{
    if (!*count)
        return;
    qsort(ranks, *count, sizeof *ranks, compare_ranks);
    size_t kept = 1;
    for (size_t i = 1; i < *count; i++)
        if (ranks[i] != ranks[kept - 1] || ranks[i] < 0)
            ranks[kept++] = ranks[i];
    *count = kept;
}

bool rec_has_rank(const int32_t *ranks, size_t count, int32_t rank)
{
    return count > 0 && bsearch(&rank, ranks, count, sizeof *ranks, compare_ranks) != NULL;
}

bool diag_lists_rank(const int32_t *ranks, size_t count, int32_t rank)
{
    for (size_t i = 0; i < count; i++)
        if (ranks[i] == rank)
            return true;
    return false;
}

enum rec_role rec_finding_role(const struct rec_finding *f, int32_t rank)
{
    if (rec_has_rank(f->culprits, f->nculprits, rank))
        return f->type == REC_VERDICT_STRAGGLER ? REC_ROLE_SLOW : REC_ROLE_CULPRIT;
    if (rec_has_rank(f->suspects, f->nsuspects, rank))
        return REC_ROLE_SUSPECT;
    return rec_has_rank(f->victims, f->nvictims, rank) ? REC_ROLE_VICTIM : REC_ROLE_NONE;
}

const char *rec_role_name(enum rec_role role)
{
    static const char *const words[] = {[REC_ROLE_NONE] = "",
                                        [REC_ROLE_CULPRIT] = "culprit",
                                        [REC_ROLE_SUSPECT] = "suspect",
                                        [REC_ROLE_VICTIM] = "waits",
                                        [REC_ROLE_SLOW] = "slow"};
    return words[role];
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char **rec_finding_hosts(const struct rec_job *job, const struct rec_verdict *verdict,
                               const struct rec_finding *f, size_t *count)
{
    const struct rec_census *census = verdict->census;
    size_t nprocs, kept = 0;
    struct rec_process *const *procs = rec_job_processes(job, &nprocs);
    const char **hosts = malloc((nprocs + 1) * sizeof *hosts);
    *count = 0;
    if (!hosts)
        return NULL;
    for (size_t i = 0; i < nprocs; i++)
        if (census->generation_of[i] + 1 == census->ngenerations && procs[i]->host[0] &&
            rec_has_rank(f->culprits, f->nculprits, procs[i]->rank))
            hosts[kept++] = procs[i]->host;
    if (kept)
        qsort(hosts, kept, sizeof *hosts, compare_texts);
    for (size_t i = 0; i < kept; i++)
        if (!i || strcmp(hosts[i], hosts[*count - 1]) != 0)
            hosts[(*count)++] = hosts[i];
    return hosts;
}

int rec_fold_ranks(char *buffer, size_t size, const int32_t *ranks, size_t count)
{
    size_t length = 0;
    if (size)
        buffer[0] = '\0';
    for (size_t i = 0; i < count;) {
        size_t last = i;
        while (last + 1 < count && ranks[last + 1] == ranks[last] + 1)
            last++;
        char *at = length < size ? buffer + length : NULL;
        size_t room = length < size ? size - length : 0;
        int n = last == i ? snprintf(at, room, "%s%d", i ? "," : "", (int)ranks[i])
                          : snprintf(at, room, "%s%d-%d", i ? "," : "", (int)ranks[i], (int)ranks[last]);
        length += n > 0 ? (size_t)n : 0;
        i = last + 1;
    }
    return (int)length;
}

/* ---- words ---- */

void diag_say_proc(struct diag_text *t, const struct rec_process *p)
{
    if (p->rank >= 0)
        diag_printf(t, "rank %d", (int)p->rank);
    else
        diag_printf(t, "a process without a rank");
    diag_printf(t, " (host %s, pid %d)", p->host[0] ? p->host : "unknown", (int)p->pid);
}

/* 25,503,912 */
static void say_count(struct diag_text *t, uint64_t value)
{
    char digits[32], out[48];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, value);
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    diag_printf(t, "%s", out);
}

void diag_say_ranks(struct diag_text *t, const int32_t *ranks, size_t count)
{
    char folded[72];
    if (!count) {
        diag_printf(t, "no rank");
        return;
    }
    size_t nameless = 0;
    while (nameless < count && ranks[nameless] < 0)
        nameless++;
    if (nameless) {
        if (nameless == 1)
            diag_printf(t, "a process without a rank");
        else
            diag_printf(t, "%zu processes without a rank", nameless);
        if (nameless == count)
            return;
        diag_printf(t, " and ");
        ranks += nameless;
        count -= nameless;
    }
    int needed = rec_fold_ranks(folded, sizeof folded, ranks, count);
    if (needed >= (int)sizeof folded) {
        /* The first ones will do; cut at a comma, so that no number is cut. */
        folded[FOLDED_FIRST] = '\0';
        char *comma = strrchr(folded, ',');
        if (comma)
            *comma = '\0';
        say_count(t, count);
        diag_printf(t, " ranks (%s,…)", folded);
        return;
    }
    diag_printf(t, "%s %s", count == 1 ? "rank" : "ranks", folded);
}

void diag_say_number(struct diag_text *t, const struct rec_op *op, uint64_t seq)
{
    unsigned flags = rec_kind_flags(op->kind);
    diag_printf(t,
                flags & REC_KF_P2P             ? "message %" PRIu64 " of "
                : flags & REC_KF_RMA           ? "signal %" PRIu64 " of "
                : flags & REC_KF_HOST          ? "number %" PRIu64 " on "
                : op->kind == REC_GRAPH_LAUNCH ? "replay %" PRIu64 ", on "
                                               : "op %" PRIu64 " of ",
                seq);
}

static void say_signal(struct diag_text *t, uint64_t signal)
{
    if (!rec_signal_known(signal) || signal == 0)
        return;
    diag_printf(t, " (index %u", rec_signal_index(signal));
    if (rec_signal_context(signal))
        diag_printf(t, ", context %u", rec_signal_context(signal));
    diag_printf(t, ")");
}

/* "rank 6", or "comm rank 2" when nobody knows whose that is, or it is one of several of its process. */
static void say_member(struct diag_text *t, const struct rec_communicator *comm, int32_t comm_rank)
{
    const struct rec_member *member = comm ? diag_member_at(comm, comm_rank) : NULL;
    bool alone = member && member->process->rank >= 0;
    for (uint32_t i = 0; alone && i < comm->nmembers; i++)
        alone = comm->members[i]->process != member->process || comm->members[i] == member;
    if (alone)
        diag_printf(t, "rank %d", (int)member->process->rank);
    else
        diag_printf(t, "comm rank %d", (int)comm_rank);
}

static void say_name(struct diag_text *t, const struct rec_op *op)
{
    const char *name = rec_kind_name(op->kind);
    if (name)
        diag_printf(t, "%s", name);
    else
        diag_printf(t, "call of kind %u", op->kind);
}

static void say_data(struct diag_text *t, const struct rec_op *op)
{
    unsigned flags = rec_kind_flags(op->kind);
    if (!(flags & REC_KF_DATA))
        return;
    diag_printf(t, " (");
    say_count(t, op->count);
    const char *dtype = rec_dtype_name(op->dtype);
    if (dtype)
        diag_printf(t, " × %s", dtype);
    else
        diag_printf(t, " elements of type %u", op->dtype);
    const char *redop = rec_redop_name(op->redop);
    if ((flags & REC_KF_REDOP) && redop)
        diag_printf(t, ", %s", redop);
    if (flags & REC_KF_ROOT)
        diag_printf(t, ", root %d", (int)op->peer);
    diag_printf(t, ")");
}

void diag_say_op(struct diag_text *t, const struct rec_op *op, const struct rec_communicator *comm)
{
    say_name(t, op);
    if (op->kind == REC_COMM_SPLIT && op->peer < 0)
        diag_printf(t, " with NCCL_SPLIT_NOCOLOR");
    if (diag_inits(op) && op->count)
        diag_printf(t, " (comm rank %d of %" PRIu64 ")", (int)op->peer, op->count);
    if (op->kind == REC_GRAPH_LAUNCH)
        diag_printf(t, " of graph %d (%" PRIu64 " NCCL call%s)", (int)op->peer, op->count,
                    op->count == 1 ? "" : "s");
    if (diag_pairs(op) && op->peer >= 0) {
        diag_printf(t, diag_sends(op) ? " to " : " from ");
        say_member(t, comm, op->peer);
    }
    if (rec_kind_flags(op->kind) & REC_KF_RMA)
        say_signal(t, op->signal);
    say_data(t, op);
}

void diag_say_call(struct diag_text *t, const struct diag_op *op)
{
    diag_say_op(t, &op->op, op->member ? op->member->comm : NULL);
}

void diag_say_ops(struct diag_text *t, const struct rec_op *op, const struct rec_communicator *comm,
                  int64_t src, int64_t dst)
{
    if (src >= 0 && dst >= 0) {
        diag_printf(t, "Send and Recv from ");
        say_member(t, comm, (int32_t)src);
        diag_printf(t, " to ");
        say_member(t, comm, (int32_t)dst);
        say_data(t, op);
    } else if (diag_inits(op) && op->count) {
        say_name(t, op);
        if (!comm || comm->nranks != op->count)
            diag_printf(t, " (%" PRIu64 " ranks)", op->count);
    } else {
        diag_say_op(t, op, comm);
    }
}

void diag_say_place(struct diag_text *t, const struct rec_process *p, const struct rec_op *op)
{
    const struct rec_callsite_def *site = site_of(p, op);
    char text[256];
    if (site && site->kind == REC_CALLSITE_PYTHON && rec_callsite_text(site, NULL, text, sizeof text))
        diag_printf(t, " at %s", text);
}

static bool same_place(const struct rec_callsite_def *a, const struct rec_callsite_def *b)
{
    const struct rec_source_frame *x = rec_callsite_place(a), *y = rec_callsite_place(b);
    return a == b || (x && y && x->line == y->line && strcmp(x->file, y->file) == 0 &&
                      strcmp(x->function, y->function) == 0);
}

void diag_say_places(const struct diag *d, struct diag_text *t, const struct diag_op *op)
{
    const struct rec_process *p = d->procs[op->proc].p;
    const struct rec_callsite_def *site = site_of(p, &op->op);
    if (!site || site->kind != REC_CALLSITE_PYTHON)
        return;
    diag_say_place(t, p, &op->op);
    uint32_t match = op->member ? diag_match_find(d, op->member->comm, op->op.seq, -1, -1) : DIAG_NONE;
    for (uint32_t i = match == DIAG_NONE ? DIAG_NONE : d->matches[match].first_op; i != DIAG_NONE;
         i = d->ops[i].match_next) {
        const struct diag_op *other = &d->ops[i];
        const struct rec_callsite_def *there = site_of(d->procs[other->proc].p, &other->op);
        if (other->sig == op->sig && there && !same_place(site, there)) {
            diag_printf(t, " (rank %d; not all from there)", (int)p->rank);
            return;
        }
    }
}

void diag_say_comm_name(struct diag_text *t, const struct rec_communicator *comm)
{
    if (comm->name[0])
        diag_printf(t, "\"%s\"", comm->name);
    else
        diag_printf(t, "%016" PRIx64, comm->uid);
}

void diag_say_comm(struct diag_text *t, const struct rec_communicator *comm)
{
    if (comm->name[0])
        diag_printf(t, "communicator \"%s\"", comm->name);
    else if (comm->uid)
        diag_printf(t, "communicator %016" PRIx64, comm->uid);
    else
        diag_printf(t, "a communicator being created");
    if (comm->nranks) {
        diag_printf(t, " (");
        say_count(t, comm->nranks);
        diag_printf(t, " ranks)");
    }
}

void diag_say_time(const struct diag *d, struct diag_text *t, uint64_t ns)
{
    time_t seconds = (time_t)(ns / NS_PER_S);
    struct tm tm;
    char text[48] = "an unknown time";
    if (ns && gmtime_r(&seconds, &tm))
        strftime(text, sizeof text, d->dated ? "%Y-%m-%d %H:%M:%S UTC" : "%H:%M:%S UTC", &tm);
    diag_printf(t, "%s", text);
}

void diag_say_seconds(struct diag_text *t, uint64_t ns)
{
    if (ns < NS_PER_S)
        diag_printf(t, "%.1f ms", (double)ns / 1e6);
    else if (ns < 120 * NS_PER_S)
        diag_printf(t, "%.1f s", (double)ns / 1e9);
    else
        diag_printf(t, "%" PRIu64 " min", ns / NS_PER_S / 60);
}
