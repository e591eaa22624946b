/* One-sided operations.
 *
 * A put goes chunk by chunk through a buffer of the sender; a thread of the target, which runs once the
 * communicator has a window, copies it to where it belongs, so the target's program takes no part. Then the
 * sender raises the signal: a counter in shared memory that the sender alone writes, and that a wait on the
 * target's stream looks at. What has been waited for is remembered on the target.
 *
 * A rank's puts run one after another, so one buffer is enough, and a descriptor is read before the next is
 * written: the sender waits for each chunk to be taken.
 */
#include "comm.h"
#include "reduce.h"

#include <signal.h>
#include <string.h>

/* ---- The target's side ---- */

/* The window may have been deregistered meanwhile: then the data is nobody's. */
static void take_chunk(struct ncclComm *c, int peer, const struct lab_lane_out *out)
{
    uint64_t offset = atomic_load_explicit(&out->put_offset, memory_order_relaxed);
    uint64_t bytes = atomic_load_explicit(&out->put_bytes, memory_order_relaxed);
    uint32_t index = atomic_load_explicit(&out->put_window, memory_order_relaxed);
    pthread_mutex_lock(&c->window_lock);
    struct lab_window *window = c->windows;
    while (window && window->index != index)
        window = window->next;
    bool fits = window && offset <= window->bytes && bytes <= window->bytes - offset;
    if (fits)
        memcpy((char *)window->buffer + offset, lab_region_p2p_buffer(&c->region, peer, LAB_RMA_BUFFER),
               bytes);
    else if (window)
        atomic_store(&c->async_result, ncclInvalidArgument);
    pthread_mutex_unlock(&c->window_lock);
}

static bool take_all(struct ncclComm *c)
{
    bool any = false;
    for (int peer = 0; peer < c->nranks; peer++) {
        struct lab_lane_out *out = lab_region_out(&c->region, peer, c->rank);
        struct lab_lane_in *in = lab_region_in(&c->region, peer, c->rank);
        uint64_t taken = atomic_load_explicit(&in->puts_taken, memory_order_relaxed); /* written here only */
        if (atomic_load(&out->puts) == taken)
            continue;
        take_chunk(c, peer, out);
        atomic_store(&in->puts_taken, taken + 1);
        lab_bell_ring(c, peer);
        any = true;
    }
    return any;
}

static void *serve_main(void *argument)
{
    struct ncclComm *c = argument;
    while (!atomic_load(&c->serve_ends)) {
        uint32_t seen = lab_bell_read(c);
        if (!take_all(c) && !atomic_load(&c->serve_ends))
            lab_bell_sleep(c, seen);
    }
    return NULL;
}

ncclResult_t lab_rma_serve(struct ncclComm *c)
{
    if (c->has_server)
        return ncclSuccess;
    sigset_t all, before;
    sigfillset(&all); /* signals belong to the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&c->server, NULL, serve_main, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    c->has_server = !error;
    return error ? lab_error(ncclSystemError, "no thread to serve a window") : ncclSuccess;
}

void lab_rma_end(struct ncclComm *c)
{
    if (!c->has_server)
        return;
    atomic_store(&c->serve_ends, true);
    lab_bell_ring(c, c->rank);
    pthread_join(c->server, NULL);
    c->has_server = false;
}

/* ---- The sender's side, and the wait: on a stream's worker ---- */

static bool sleep_until_taken(struct ncclComm *c, const struct lab_lane_in *in, uint64_t puts)
{
    for (;;) {
        uint32_t seen = lab_bell_read(c);
        if (atomic_load(&in->puts_taken) == puts)
            return true;
        if (lab_comm_is_stopped(c))
            return false;
        lab_bell_sleep(c, seen);
    }
}

static bool put(struct ncclComm *c, const struct lab_op *op)
{
    struct lab_lane_out *out = lab_region_out(&c->region, c->rank, op->peer);
    struct lab_lane_in *in = lab_region_in(&c->region, c->rank, op->peer);
    size_t bytes = op->count * lab_type_size(op->datatype), chunk = c->region.chunk_bytes;
    for (size_t at = 0; at < bytes; at += chunk) {
        size_t n = bytes - at < chunk ? bytes - at : chunk;
        uint64_t puts = atomic_load_explicit(&out->puts, memory_order_relaxed) + 1; /* written here only */
        memcpy(lab_region_p2p_buffer(&c->region, c->rank, LAB_RMA_BUFFER), (const char *)op->send + at, n);
        atomic_store_explicit(&out->put_window, op->window, memory_order_relaxed);
        atomic_store_explicit(&out->put_offset, op->offset + at, memory_order_relaxed);
        atomic_store_explicit(&out->put_bytes, n, memory_order_relaxed);
        atomic_store(&out->puts, puts); /* publishes all of it */
        lab_bell_ring(c, op->peer);
        if (!sleep_until_taken(c, in, puts))
            return false;
    }
    return true;
}

static void raise_signal(struct ncclComm *c, const struct lab_op *op)
{
    struct lab_lane_out *out = lab_region_out(&c->region, c->rank, op->peer);
    atomic_fetch_add(&out->signals[op->context][op->signal], 1);
    lab_bell_ring(c, op->peer);
}

static void wait_signal(struct ncclComm *c, const struct lab_op *op)
{
    struct lab_lane_out *out = lab_region_out(&c->region, op->peer, c->rank);
    struct lab_lane_in *in = lab_region_in(&c->region, op->peer, c->rank);
    uint64_t *waited = &c->signals_waited[op->peer][op->context][op->signal];
    for (;;) {
        uint32_t seen = lab_bell_read(c);
        if (atomic_load(&out->signals[op->context][op->signal]) - *waited >= op->count)
            break;
        if (lab_comm_is_stopped(c))
            return;
        lab_bell_sleep(c, seen);
    }
    *waited += op->count;
    (void)atomic_load(&in->puts_taken); /* what this rank's server has written is seen by who waited */
}

void lab_run_rma(struct ncclComm *c, const struct lab_op *ops, size_t n)
{
    /* All of a group progress at the same time: what waits must not hold up what others wait for. */
    for (size_t i = 0; i < n && !lab_comm_is_stopped(c); i++)
        if (ops[i].kind == LAB_SIGNAL || (ops[i].kind == LAB_PUT_SIGNAL && put(c, &ops[i])))
            raise_signal(c, &ops[i]);
    for (size_t i = 0; i < n && !lab_comm_is_stopped(c); i++)
        if (ops[i].kind == LAB_WAIT_SIGNAL)
            wait_signal(c, &ops[i]);
}
