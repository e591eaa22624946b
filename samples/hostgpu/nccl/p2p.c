/* Sends and receives.
 *
 * A message is a rendezvous: nothing moves before both sides have posted it, and nothing at all if their
 * byte counts differ. Then it goes in chunks through staging buffers of the sender, which only ever hold
 * data for a receiver that is there to take it: a few buffers serve any number of peers without deadlock.
 *
 * Two entries of bytes[] and buffer[] per lane suffice: a side posts message m+2 only after m+1 is finished,
 * for which the peer had to post m+1, for which it had finished m; and at most two chunks of a lane are
 * filled and not yet drained.
 *
 * All stores to counters are sequentially consistent: they publish the data before them and order against
 * the bell (wait.c).
 */
#include "comm.h"

#include "reduce.h"

#include <stdlib.h>
#include <string.h>

enum step { STEP_NONE, STEP_MOVED, STEP_DONE };

/* A message under way. Those of one direction to one peer form a list; only its head moves. */
struct transfer {
    const struct lab_op *op;
    size_t bytes, moved;
    bool posted;
    struct transfer *next;
};

struct lane_queue {
    struct transfer *head, **tail;
};

static struct lab_p2p_buffer *free_buffer(struct ncclComm *c)
{
    for (int i = 0; i < LAB_P2P_BUFFERS; i++) {
        struct lab_p2p_buffer *b = &c->buffers[i];
        if (!b->used || atomic_load(&lab_region_in(&c->region, c->rank, b->peer)->drained) > b->chunk)
            return b;
    }
    return NULL;
}

static bool fill_chunk(struct ncclComm *c, int peer, struct transfer *t)
{
    struct lab_lane_out *out = lab_region_out(&c->region, c->rank, peer);
    struct lab_lane_in *in = lab_region_in(&c->region, c->rank, peer);
    struct lab_p2p_lane *lane = &c->out[peer];
    if (lane->chunks - atomic_load(&in->drained) >= 2)
        return false;
    struct lab_p2p_buffer *buffer = free_buffer(c);
    if (!buffer)
        return false;
    unsigned index = (unsigned)(buffer - c->buffers);
    size_t left = t->bytes - t->moved, chunk = c->region.chunk_bytes, n = left < chunk ? left : chunk;
    memcpy(lab_region_p2p_buffer(&c->region, c->rank, index), (const char *)t->op->send + t->moved, n);
    t->moved += n;
    *buffer = (struct lab_p2p_buffer){true, peer, lane->chunks};
    atomic_store(&out->buffer[lane->chunks & 1], index);
    lane->chunks++;
    atomic_store(&out->filled, lane->chunks);
    return true;
}

static enum step step_send(struct ncclComm *c, int peer, struct transfer *t)
{
    struct lab_lane_out *out = lab_region_out(&c->region, c->rank, peer);
    struct lab_lane_in *in = lab_region_in(&c->region, c->rank, peer);
    uint64_t message = c->out[peer].messages;
    enum step step = STEP_NONE;
    if (!t->posted) {
        atomic_store(&out->bytes[message & 1], t->bytes);
        atomic_store(&out->posted, message + 1);
        t->posted = true;
        step = STEP_MOVED;
    }
    if (atomic_load(&in->posted) > message && atomic_load(&in->bytes[message & 1]) == t->bytes) {
        while (t->moved < t->bytes && fill_chunk(c, peer, t))
            step = STEP_MOVED;
        if (t->moved == t->bytes) {
            c->out[peer].messages++;
            step = STEP_DONE;
        }
    }
    if (step != STEP_NONE && peer != c->rank)
        lab_bell_ring(c, peer);
    return step;
}

static void drain_chunk(struct ncclComm *c, int peer, struct transfer *t)
{
    struct lab_lane_out *out = lab_region_out(&c->region, peer, c->rank);
    struct lab_lane_in *in = lab_region_in(&c->region, peer, c->rank);
    struct lab_p2p_lane *lane = &c->in[peer];
    size_t left = t->bytes - t->moved, chunk = c->region.chunk_bytes, n = left < chunk ? left : chunk;
    unsigned index = atomic_load(&out->buffer[lane->chunks & 1]);
    memcpy((char *)t->op->recv + t->moved, lab_region_p2p_buffer(&c->region, peer, index), n);
    t->moved += n;
    lane->chunks++;
    atomic_store(&in->drained, lane->chunks);
}

static enum step step_recv(struct ncclComm *c, int peer, struct transfer *t)
{
    struct lab_lane_out *out = lab_region_out(&c->region, peer, c->rank);
    struct lab_lane_in *in = lab_region_in(&c->region, peer, c->rank);
    uint64_t message = c->in[peer].messages;
    enum step step = STEP_NONE;
    if (!t->posted) {
        atomic_store(&in->bytes[message & 1], t->bytes);
        atomic_store(&in->posted, message + 1);
        t->posted = true;
        step = STEP_MOVED;
    }
    if (atomic_load(&out->posted) > message && atomic_load(&out->bytes[message & 1]) == t->bytes) {
        while (t->moved < t->bytes && atomic_load(&out->filled) > c->in[peer].chunks) {
            drain_chunk(c, peer, t);
            step = STEP_MOVED;
        }
        if (t->moved == t->bytes) {
            c->in[peer].messages++;
            step = STEP_DONE;
        }
    }
    if (step != STEP_NONE && peer != c->rank)
        lab_bell_ring(c, peer);
    return step;
}

/* One look at all queues. Returns whether anything moved; *left goes down as messages finish. */
static bool step_all(struct ncclComm *c, struct lane_queue *queues, size_t *left)
{
    bool moved = false;
    for (int peer = 0; peer < c->nranks; peer++) {
        for (int direction = 0; direction < 2; direction++) {
            struct lane_queue *q = &queues[2 * peer + direction];
            if (!q->head)
                continue;
            enum step step = direction ? step_recv(c, peer, q->head) : step_send(c, peer, q->head);
            moved |= step != STEP_NONE;
            if (step == STEP_DONE) {
                q->head = q->head->next;
                --*left;
            }
        }
    }
    return moved;
}

void lab_run_p2p(struct ncclComm *c, const struct lab_op *ops, size_t n)
{
    struct transfer *transfers = calloc(n, sizeof *transfers);
    struct lane_queue *queues = calloc(2 * (size_t)c->nranks, sizeof *queues);
    if (!transfers || !queues) {
        lab_error(ncclSystemError, "no memory for %zu sends and receives", n);
        atomic_store(&c->async_result, ncclSystemError);
        lab_hang_until_stopped(c);
    } else {
        for (size_t i = 0; i < n; i++) {
            struct lane_queue *q = &queues[2 * ops[i].peer + (ops[i].kind == LAB_RECV)];
            transfers[i].op = &ops[i];
            transfers[i].bytes = ops[i].count * lab_type_size(ops[i].datatype);
            if (!q->head)
                q->tail = &q->head;
            *q->tail = &transfers[i];
            q->tail = &transfers[i].next;
        }
        size_t left = n;
        while (left && !lab_comm_is_stopped(c)) {
            uint32_t seen = lab_bell_read(c);
            if (!step_all(c, queues, &left) && !lab_comm_is_stopped(c))
                lab_bell_sleep(c, seen);
        }
    }
    free(transfers);
    free(queues);
}
