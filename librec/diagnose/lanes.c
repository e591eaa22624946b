#include "lanes.h"

#include <stdlib.h>

/* Differing hashes of one window that are looked at: more kinds of behaviour explain nothing. */
#define HASHES_MAX 32

void lanes_free(struct lanes *lanes)
{
    free(lanes->items);
    free(lanes->members);
    *lanes = (struct lanes){0};
}

bool lanes_from_tail(struct diag *d, struct rec_communicator *comm, uint64_t seq, struct lanes *lanes)
{
    *lanes = (struct lanes){.comm = comm, .seq = seq, .count = comm->nmembers};
    lanes->items = calloc(lanes->count, sizeof *lanes->items);
    lanes->members = malloc(lanes->count * sizeof(struct rec_member *));
    if (!lanes->items || !lanes->members) {
        d->oom = true;
        return false;
    }
    uint32_t base = d->member_base[comm->index];
    for (uint32_t i = 0; i < comm->nmembers; i++) {
        lanes->members[i] = comm->members[i];
        lanes->items[i].first_member = i;
        lanes->items[i].nmembers = 1;
    }
    for (uint32_t k = 0; k < LANE_OPS; k++) {
        uint32_t match = diag_match_find(d, comm, seq + k, -1, -1);
        if (match == DIAG_NONE)
            break;
        for (uint32_t i = d->matches[match].first_op; i != DIAG_NONE; i = d->ops[i].match_next) {
            struct lane *lane = &lanes->items[diag_member_id(d, d->ops[i].member) - base];
            if (lane->nops != k)
                continue;
            if (!k)
                lane->first = d->ops[i];
            if (rec_kind_flags(d->ops[i].op.kind) & REC_KF_CREATE)
                lane->creations |= UINT64_C(1) << k;
            lane->sigs[lane->nops++] = d->ops[i].sig;
        }
    }
    return true;
}

/* ---- from checkpoints ---- */

struct recovered {
    uint64_t first_seq;
    uint64_t sigs[REC_CHECKPOINT_OPS + LANE_OPS];
    struct diag_op ops[REC_CHECKPOINT_OPS];
    bool known[REC_CHECKPOINT_OPS + LANE_OPS];
};

static enum rec_code recover(struct diag *d, const struct rec_member *member, struct recovered *out)
{
    struct rec_scan *scan;
    enum rec_code code = rec_scan_open(d->job, member->process, NULL, &scan, d->err);
    if (code != REC_OK)
        return code;
    struct rec_event event;
    while ((code = rec_scan_next(scan, &event, d->err)) == REC_OK) {
        const struct rec_op *op = &event.u.op;
        if (event.type != REC_EV_OP || op->comm != member->comm_id ||
            !(rec_kind_flags(op->kind) & REC_KF_SEQ) || (op->flags & REC_OF_NO_SEQ) ||
            op->seq < out->first_seq || op->seq - out->first_seq >= REC_CHECKPOINT_OPS + LANE_OPS)
            continue;
        size_t at = (size_t)(op->seq - out->first_seq);
        out->sigs[at] = rec_process_signature(member->process, op);
        out->known[at] = true;
        if (at < REC_CHECKPOINT_OPS) {
            out->ops[at] = (struct diag_op){.op = *op,
                                            .sig = out->sigs[at],
                                            .member = rec_process_member(member->process, op->comm),
                                            .proc = diag_index(d, member->process),
                                            .unit = DIAG_NONE,
                                            .unit_next = DIAG_NONE,
                                            .match = DIAG_NONE,
                                            .match_next = DIAG_NONE};
        }
    }
    rec_scan_close(scan);
    return code == REC_END ? REC_OK : code;
}

struct hashed {
    uint64_t hash;
    struct rec_member *member;
};

static int by_hash(const void *a, const void *b)
{
    const struct hashed *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return x->member->comm_rank < y->member->comm_rank ? -1 : x->member->comm_rank > y->member->comm_rank;
}

static size_t sort_by_hash(const struct rec_communicator *comm, uint64_t window, struct hashed *hashed)
{
    size_t n = 0;
    for (uint32_t i = 0; i < comm->nmembers; i++) {
        struct rec_member *member = comm->members[i];
        if (window < member->nwindows && member->windows[window].known)
            hashed[n++] = (struct hashed){member->windows[window].hash, member};
    }
    qsort(hashed, n, sizeof *hashed, by_hash);
    return n;
}

/* The lowest place where two of the recovered sequences are known and differ. */
static size_t first_difference(const struct recovered *sequences, size_t count)
{
    for (size_t at = 0; at < REC_CHECKPOINT_OPS; at++)
        for (size_t i = 1; i < count; i++)
            if (sequences[0].known[at] && sequences[i].known[at] &&
                sequences[0].sigs[at] != sequences[i].sigs[at])
                return at;
    return REC_CHECKPOINT_OPS;
}

static void fill_lane(struct lane *lane, const struct recovered *sequence, size_t at)
{
    lane->first = sequence->ops[at];
    while (lane->nops < LANE_OPS && sequence->known[at + lane->nops]) {
        if (at + lane->nops < REC_CHECKPOINT_OPS &&
            (rec_kind_flags(sequence->ops[at + lane->nops].op.kind) & REC_KF_CREATE))
            lane->creations |= UINT64_C(1) << lane->nops;
        lane->sigs[lane->nops] = sequence->sigs[at + lane->nops];
        lane->nops++;
    }
}

static enum rec_code fill_from_hashes(struct diag *d, uint64_t window, struct hashed *hashed, size_t n,
                                      struct lanes *lanes)
{
    struct recovered *sequences = calloc(HASHES_MAX, sizeof *sequences);
    enum rec_code code = REC_OK;
    d->oom = d->oom || !sequences;
    for (size_t i = 0; i < n && !d->oom && code == REC_OK; i++) {
        lanes->members[i] = hashed[i].member;
        if (i && hashed[i].hash == hashed[i - 1].hash) {
            lanes->items[lanes->count - 1].nmembers++;
            continue;
        }
        if (lanes->count == HASHES_MAX)
            break;
        lanes->items[lanes->count] = (struct lane){.first_member = (uint32_t)i, .nmembers = 1};
        sequences[lanes->count].first_seq = window * REC_CHECKPOINT_OPS;
        code = recover(d, hashed[i].member, &sequences[lanes->count++]);
    }
    size_t at = d->oom || code != REC_OK ? REC_CHECKPOINT_OPS : first_difference(sequences, lanes->count);
    if (at == REC_CHECKPOINT_OPS)
        lanes->count = 0;
    for (size_t i = 0; i < lanes->count; i++)
        fill_lane(&lanes->items[i], &sequences[i], at);
    lanes->seq = window * REC_CHECKPOINT_OPS + at;
    free(sequences);
    return code;
}

enum rec_code lanes_from_checkpoint(struct diag *d, struct rec_communicator *comm, uint64_t window,
                                    struct lanes *lanes)
{
    *lanes = (struct lanes){.comm = comm, .from_checkpoint = true};
    struct hashed *hashed = malloc((comm->nmembers + 1) * sizeof *hashed);
    lanes->items = calloc(HASHES_MAX, sizeof *lanes->items);
    lanes->members = malloc((comm->nmembers + 1) * sizeof(struct rec_member *));
    if (!hashed || !lanes->items || !lanes->members) {
        free(hashed);
        d->oom = true;
        return REC_OK;
    }
    size_t n = sort_by_hash(comm, window, hashed);
    enum rec_code code = fill_from_hashes(d, window, hashed, n, lanes);
    free(hashed);
    return code;
}
