#include "job/recall.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

#define NS_PER_S      UINT64_C(1000000000)
#define GAP_SETTLED   (10 * NS_PER_S) /* what lies so long before the last call has settled */
#define MAX_GAPS      1024            /* of those that have not; more are joined */
#define MAX_CREATIONS 4096            /* of one process */
#define MAX_PAIRS     (1u << 20)

/* ---- which calls ---- */

/* Does the diagnosis look at such calls one by one? */
static bool wanted(const struct rec_op *op)
{
    return (rec_kind_flags(op->kind) &
            (REC_KF_COLL | REC_KF_P2P | REC_KF_RMA | REC_KF_CREATE | REC_KF_HOST | REC_KF_TEARDOWN)) ||
           op->kind == REC_GROUP_END || op->kind == REC_GRAPH_LAUNCH ||
           (op->kind == REC_COMM_GET_ASYNC_ERROR && op->count);
}

/* ---- messages, signals and calls on the host ---- */

/* A pair numbers its messages, and each of its signals. */
#define MESSAGES 0
static uint64_t numbered_by(uint64_t signal)
{
    return signal + 3; /* no signal gives 0 */
}

static uint64_t pair_key(uint32_t comm_id, int32_t peer, bool send, uint64_t what)
{
    uint64_t key = rec_mix64(((uint64_t)comm_id << 32 | (uint32_t)peer) + 0x51) ^ (send ? 0x100u : 0x200u);
    return what == MESSAGES ? key : rec_mix64(key + what);
}

static uint64_t host_key(uint32_t comm_id, unsigned kind)
{
    return rec_mix64(((uint64_t)comm_id << 32 | kind) + 0x52);
}

/* Next number of a pair; NULL without room: pairs->overflow or, without memory, not. */
static uint32_t *pair_of(struct job_pairs *pairs, uint64_t key)
{
    if (pairs->count && pairs->last_key == key)
        return &pairs->next[pairs->last];
    uint32_t at = job_map_get(&pairs->ids, key);
    if (at == JOB_MAP_NONE) {
        pairs->overflow = pairs->overflow || pairs->count == MAX_PAIRS;
        at = (uint32_t)pairs->count;
        if (pairs->count == MAX_PAIRS ||
            !job_grow(&pairs->next, &pairs->room, pairs->count + 1, sizeof(*pairs->next)) ||
            !job_map_put(&pairs->ids, key, at))
            return NULL;
        pairs->next[pairs->count++] = 0;
    }
    pairs->last_key = key;
    pairs->last = at;
    return &pairs->next[at];
}

static void pairs_free(struct job_pairs *pairs)
{
    free(pairs->next);
    job_map_free(&pairs->ids);
    *pairs = (struct job_pairs){0};
}

static uint32_t next_of(const struct job_pairs *pairs, uint64_t key)
{
    uint32_t at = job_map_get(&pairs->ids, key);
    if (at == JOB_MAP_NONE)
        return pairs->overflow ? UINT32_MAX : 0;
    return pairs->next[at];
}

uint32_t job_messages(const struct rec_process *process, uint32_t comm_id, int32_t peer, bool send)
{
    return next_of(&job_process_of(process)->recall.pairs, pair_key(comm_id, peer, send, MESSAGES));
}

uint32_t job_signals(const struct rec_process *process, uint32_t comm_id, int32_t peer, bool send,
                     uint64_t signal)
{
    const struct job_pairs *pairs = &job_process_of(process)->recall.pairs;
    if (rec_signal_known(signal) ? pairs->untold : pairs->told)
        return UINT32_MAX;
    return next_of(pairs, pair_key(comm_id, peer, send, numbered_by(signal)));
}

uint32_t job_host_calls(const struct rec_process *process, uint32_t comm_id, unsigned kind)
{
    return next_of(&job_process_of(process)->recall.pairs, host_key(comm_id, kind));
}

void job_pair_less(struct job_process *process, uint32_t comm_id, int32_t peer, bool send)
{
    struct job_pairs *pairs = &process->recall.pairs;
    uint32_t at = job_map_get(&pairs->ids, pair_key(comm_id, peer, send, false));
    if (at != JOB_MAP_NONE && pairs->next[at])
        pairs->next[at]--;
}

static bool count_message(struct job_pairs *pairs, const struct rec_op *op)
{
    if ((op->flags & REC_OF_NO_SEQ) || op->seq >= UINT32_MAX - 1)
        return true;
    uint32_t *next = pair_of(pairs, pair_key(op->comm, op->peer, op->kind == REC_SEND, MESSAGES));
    if (next && *next <= op->seq)
        *next = (uint32_t)op->seq + 1;
    return next || pairs->overflow;
}

/*
 * NCCL gives signals no number: each index in each context is counted by itself, one by one, waits by how
 * many they ask for. A wait for several signals or peers has no place among them, nor what a graph does.
 */
static bool number_signal(struct job_pairs *pairs, struct rec_op *op)
{
    if (op->flags & REC_OF_NO_SEQ)
        return true; /* refused */
    op->flags |= REC_OF_NO_SEQ;
    bool sends = op->kind == REC_PUT_SIGNAL || op->kind == REC_SIGNAL;
    uint64_t count = sends ? 1 : op->count;
    if (op->signal == REC_SIGNAL_SEVERAL || op->peer < 0 || !count || count >= UINT32_MAX)
        return true;
    pairs->told = pairs->told || rec_signal_known(op->signal);
    pairs->untold = pairs->untold || !rec_signal_known(op->signal);
    uint32_t *next = pair_of(pairs, pair_key(op->comm, op->peer, sends, numbered_by(op->signal)));
    if (!next)
        return pairs->overflow;
    /* One of a graph is raised with each launch: any number of them. */
    if (sends && (op->flags & REC_OF_CAPTURED))
        *next = UINT32_MAX;
    if ((op->flags & REC_OF_CAPTURED) || *next >= UINT32_MAX - count)
        return true;
    *next += (uint32_t)count;
    op->seq = *next - 1;
    op->flags &= (uint16_t)~REC_OF_NO_SEQ;
    return true;
}

/* Nor does it number these. One that it refuses was never in their order. */
static bool number_host_call(struct job_pairs *pairs, struct rec_op *op)
{
    bool refused = job_is_refused(op) || (op->flags & REC_OF_NO_SEQ);
    op->flags |= REC_OF_NO_SEQ;
    if (refused)
        return true;
    uint32_t *next = pair_of(pairs, host_key(op->comm, op->kind));
    if (!next)
        return pairs->overflow;
    if (*next == UINT32_MAX - 1)
        return true;
    op->seq = (*next)++;
    op->flags &= (uint16_t)~REC_OF_NO_SEQ;
    return true;
}

/* Gives a call of a known communicator the number that NCCL does not. */
static bool number(struct job_pairs *pairs, struct rec_op *op)
{
    unsigned flags = rec_kind_flags(op->kind);
    return flags & REC_KF_RMA ? number_signal(pairs, op)
                              : !(flags & REC_KF_HOST) || number_host_call(pairs, op);
}

/* ---- the tail ---- */

/* A mapping of its own: it goes back to the system as soon as it is given up, and costs what is used. */
static bool tail_make(struct job_tail *tail, size_t size)
{
    void *memory =
        mmap(NULL, size * sizeof(*tail->ops), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    *tail = (struct job_tail){.ops = memory, .size = size};
    return true;
}

void job_tail_free(struct job_tail *tail)
{
    if (tail->ops)
        munmap(tail->ops, tail->size * sizeof(*tail->ops));
    *tail = (struct job_tail){0};
}

static void tail_put(struct job_tail *tail, const struct rec_op *op)
{
    size_t at = tail->first;
    if (tail->used < tail->size) {
        at = tail->used++;
    } else {
        tail->first = at + 1 == tail->size ? 0 : at + 1;
        tail->spilled = true;
    }
    tail->ops[at] = *op;
}

/* Puts an op of a scan there; false without memory. */
static bool put_again(const struct rec_process *process, struct job_tail *tail, struct job_pairs *pairs,
                      const struct rec_op *op)
{
    struct rec_op numbered = *op;
    if (!wanted(op))
        return true;
    if (rec_process_member(process, op->comm) && !number(pairs, &numbered))
        return false;
    tail_put(tail, &numbered);
    return true;
}

/* The same ops as loading put there. */
static enum rec_code read_again(struct job_process *process, size_t size, struct job_tail *tail,
                                struct rec_error *err)
{
    struct rec_scan *scan;
    struct job_pairs pairs = {0};
    struct rec_event event;
    if (!tail_make(tail, size))
        return rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
    bool ok = true;
    enum rec_code code = job_scan_open(process, NULL, false, &scan, err);
    if (code != REC_OK)
        return code;
    while (ok && (code = rec_scan_next(scan, &event, err)) == REC_OK)
        if (event.type == REC_EV_OP)
            ok = put_again(&process->pub, tail, &pairs, &event.u.op);
    rec_scan_close(scan);
    for (size_t i = 0; ok && i < process->nopen; i++)
        ok = put_again(&process->pub, tail, &pairs, &process->pub.open[i]);
    pairs_free(&pairs);
    if (!ok)
        return rec_error_set(err, REC_ERR_NOMEM, NULL, 0, "no memory");
    return code == REC_END ? REC_OK : code;
}

/* A smaller tail is the end of a larger one. */
static void shorten(struct job_tail *tail, size_t size)
{
    if (tail->used <= size)
        return;
    tail->first = (tail->first + tail->used - size) % tail->size;
    tail->used = size;
    tail->spilled = true;
}

enum rec_code job_tail_take(const struct rec_process *process, size_t size, struct job_tail *tail,
                            struct rec_error *err)
{
    struct job_process *p = job_process_of(process);
    struct job_recall *recall = &p->recall;
    *tail = (struct job_tail){0};
    if (recall->size && !atomic_exchange_explicit(&recall->given, true, memory_order_relaxed)) {
        *tail = recall->tail;
        recall->tail = (struct job_tail){0};
        if (!tail->spilled || tail->size >= size) {
            shorten(tail, size);
            /* How far the GPU has come, and what NCCL refused, was not known yet while loading. */
            for (size_t i = 0; i < tail->used; i++) {
                struct rec_op *op = &tail->ops[(tail->first + i) % tail->size];
                job_refused_op(p, op);
                if (!(op->flags & REC_OF_OPEN))
                    job_op_gpu(p, op);
            }
            return REC_OK;
        }
        job_tail_free(tail);
    }
    enum rec_code code = read_again(p, size, tail, err);
    if (code != REC_OK)
        job_tail_free(tail);
    return code;
}

/* ---- facts ---- */

static void add_gap(struct job_process *process, uint64_t from_ns, uint64_t to_ns)
{
    struct job_recall *recall = &process->recall;
    from_ns = from_ns ? from_ns : 1;
    if (to_ns + GAP_SETTLED < process->pub.last_call_ns)
        return;
    /* Many at once: as if everything between the oldest two were missing. */
    if (recall->ngaps == MAX_GAPS) {
        struct job_gap *gaps = recall->gaps;
        gaps[1].from_ns = gaps[0].from_ns < gaps[1].from_ns ? gaps[0].from_ns : gaps[1].from_ns;
        memmove(&gaps[0], &gaps[1], --recall->ngaps * sizeof(*gaps));
    }
    if (!job_grow(&recall->gaps, &recall->gaps_room, recall->ngaps + 1, sizeof(*recall->gaps)))
        process->no_memory = true;
    else
        recall->gaps[recall->ngaps++] = (struct job_gap){from_ns, to_ns};
}

void job_recall_ordinals(struct job_process *process, struct job_thread *thread, const struct rec_op *ops,
                         size_t count)
{
    struct job_thread_recall *recall = &thread->recall;
    if (ops[0].ordinal < recall->next)
        return;
    if (ops[0].ordinal > recall->next)
        add_gap(process, recall->last_ns, ops[0].enter_ns);
    recall->next = ops[count - 1].ordinal + 1;
    recall->last_ns = ops[count - 1].enter_ns;
}

static void note_creation(struct job_process *process, const struct rec_op *op)
{
    struct job_recall *recall = &process->recall;
    if (op->group || op->result != REC_RESULT_SUCCESS || !op->exit_ns || recall->ncreations == MAX_CREATIONS)
        return;
    if (!job_grow(&recall->creations, &recall->creations_room, recall->ncreations + 1,
                  sizeof(*recall->creations)))
        process->no_memory = true;
    else
        recall->creations[recall->ncreations++] = *op;
}

void job_recall_op(struct job_process *process, struct job_thread *thread, bool known,
                   const struct rec_op *op)
{
    struct job_recall *recall = &process->recall;
    unsigned flags = rec_kind_flags(op->kind);
    if (thread && ((flags & (REC_KF_COLL | REC_KF_P2P | REC_KF_RMA | REC_KF_CREATE | REC_KF_HOST)) ||
                   op->kind == REC_GROUP_END || op->kind == REC_GRAPH_LAUNCH)) {
        uint64_t when = op->exit_ns > op->enter_ns ? op->exit_ns : op->enter_ns;
        thread->recall.works = true;
        if (when > thread->recall.work_ns)
            thread->recall.work_ns = when;
    }
    if (op->kind == REC_GRAPH_LAUNCH && op->enter_ns > recall->graph_ns)
        recall->graph_ns = op->enter_ns;
    recall->device_comms = recall->device_comms || op->kind == REC_DEV_COMM_CREATE;
    recall->unseen_graphs = recall->unseen_graphs || ((op->flags & REC_OF_CAPTURED) && !op->launch);
    if (!job_graphs_op(&recall->graphs, op))
        process->no_memory = true;
    if (known && (flags & REC_KF_CREATE))
        note_creation(process, op);
    struct rec_op numbered;
    if (known && (flags & (REC_KF_RMA | REC_KF_HOST))) {
        numbered = *op;
        if (!number(&recall->pairs, &numbered))
            process->no_memory = true;
        op = &numbered;
    } else if (known && (flags & REC_KF_P2P) && !count_message(&recall->pairs, op)) {
        process->no_memory = true;
    }
    if (!recall->size || !wanted(op))
        return;
    if (!recall->tail.ops && !tail_make(&recall->tail, recall->size))
        process->no_memory = true;
    else
        tail_put(&recall->tail, op);
}

void job_recall_loss(struct job_process *process, const struct rec_loss *loss, uint64_t when_ns)
{
    if (loss->thread == REC_ID_NONE) {
        if (loss->count)
            add_gap(process, when_ns > GAP_SETTLED ? when_ns - GAP_SETTLED : 1, when_ns);
        return;
    }
    struct job_thread *thread = job_process_thread(process, loss->thread, true);
    if (!thread || loss->first_ordinal + loss->count < thread->recall.lost_end)
        return;
    thread->recall.lost_end = loss->first_ordinal + loss->count;
    thread->recall.lost_ns = when_ns;
}

/* Losses behind the last record of a thread are gaps, too. Then what matters is when the first gap began. */
static void settle_gaps(struct job_process *process)
{
    struct job_recall *recall = &process->recall;
    for (size_t i = 0; i < process->nthreads; i++) {
        const struct job_thread_recall *thread = &process->threads[i].recall;
        if (thread->lost_end > thread->next)
            add_gap(process, thread->last_ns, thread->lost_ns);
    }
    /* That it aborted after a long wait makes no gap before the wait an old one. */
    uint64_t work_ns = 0;
    for (size_t i = 0; i < process->nthreads; i++)
        if (process->threads[i].recall.work_ns > work_ns)
            work_ns = process->threads[i].recall.work_ns;
    uint64_t last_ns = work_ns ? work_ns : process->pub.last_call_ns;
    for (size_t i = 0; i < recall->ngaps; i++) {
        const struct job_gap *gap = &recall->gaps[i];
        if (gap->to_ns + GAP_SETTLED >= last_ns && (!recall->gap_ns || gap->from_ns < recall->gap_ns))
            recall->gap_ns = gap->from_ns;
    }
    free(recall->gaps);
    recall->gaps = NULL;
    recall->ngaps = recall->gaps_room = 0;
}

void job_recall_settle(struct job_process *process)
{
    struct job_recall *recall = &process->recall;
    settle_gaps(process);
    if (!job_graphs_settle(&recall->graphs))
        process->no_memory = true;
    recall->work = calloc(process->nthreads + 1, sizeof(*recall->work));
    if (!recall->work) {
        process->no_memory = true;
        return;
    }
    for (size_t i = 0; i < process->nthreads; i++)
        if (process->threads[i].recall.works)
            recall->work[recall->nwork++] =
                (struct job_work){process->threads[i].id, process->threads[i].recall.work_ns};
}

void job_facts(const struct rec_process *process, struct job_facts *facts)
{
    const struct job_recall *recall = &job_process_of(process)->recall;
    *facts = (struct job_facts){.graph_ns = recall->graph_ns,
                                .device_comms = recall->device_comms,
                                .unseen_graphs = recall->unseen_graphs,
                                .gap_ns = recall->gap_ns,
                                .work = recall->work,
                                .nwork = recall->nwork,
                                .creations = recall->creations,
                                .ncreations = recall->ncreations};
}

void job_recall_fini(struct job_recall *recall)
{
    job_tail_free(&recall->tail);
    pairs_free(&recall->pairs);
    job_graphs_fini(&recall->graphs);
    free(recall->gaps);
    free(recall->work);
    free(recall->creations);
}
