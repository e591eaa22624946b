/* Connections made at first use, as NCCL 2.22 and later make them, if HOSTGPU_LAZY_CONNECT is set: the first
 * collective of a communicator waits for all ranks, the first message between two ranks for the peer, on the
 * host and inside the call. A rank that does not come leaves the others there, and not on the GPU.
 *
 * All of a group announces itself before any of it waits, because its ranks may be in one process. */
#include "group.h"

static bool uses_peer(const struct ncclComm *c, const struct lab_op *op, int peer, bool sends)
{
    switch (op->kind) {
    case LAB_ALL_TO_ALL:
        return true;
    case LAB_SEND:
    case LAB_RECV:
        return peer == op->peer && sends == (op->kind == LAB_SEND);
    case LAB_GATHER: /* all send to the root, which receives from all */
        return sends ? peer == op->peer : c->rank == op->peer;
    case LAB_SCATTER:
        return sends ? c->rank == op->peer : peer == op->peer;
    default:
        return false;
    }
}

static _Atomic uint32_t *my_word(struct ncclComm *c, int peer, bool sends)
{
    return sends ? &lab_region_out(&c->region, c->rank, peer)->connected
                 : &lab_region_in(&c->region, peer, c->rank)->connected;
}

static _Atomic uint32_t *peers_word(struct ncclComm *c, int peer, bool sends)
{
    return sends ? &lab_region_in(&c->region, c->rank, peer)->connected
                 : &lab_region_out(&c->region, peer, c->rank)->connected;
}

void lab_connect_announce(struct ncclComm *c, const struct lab_op *op)
{
    if (!c->connects_lazily)
        return;
    if (op->kind < LAB_ALL_TO_ALL) {
        if (!atomic_exchange(&lab_region_rank(&c->region, c->rank)->connected, 1))
            for (int r = 0; r < c->nranks; r++)
                lab_bell_ring(c, r);
        return;
    }
    for (int peer = 0; peer < c->nranks; peer++)
        for (int sends = 0; sends < 2; sends++)
            if (uses_peer(c, op, peer, sends) && !atomic_exchange(my_word(c, peer, sends), 1))
                lab_bell_ring(c, peer);
}

static bool is_connected(struct ncclComm *c, const struct lab_op *op)
{
    for (int peer = 0; peer < c->nranks; peer++) {
        if (op->kind < LAB_ALL_TO_ALL && !atomic_load(&lab_region_rank(&c->region, peer)->connected))
            return false;
        for (int sends = 0; sends < 2; sends++)
            if (uses_peer(c, op, peer, sends) && !atomic_load(peers_word(c, peer, sends)))
                return false;
    }
    return true;
}

ncclResult_t lab_connect_wait(struct ncclComm *c, const struct lab_op *op)
{
    if (!c->connects_lazily)
        return ncclSuccess;
    for (;;) {
        uint32_t seen = lab_bell_read(c);
        if (is_connected(c, op))
            return ncclSuccess;
        if (lab_comm_is_stopped(c))
            return lab_error(ncclInternalError, "aborted while connecting to other ranks");
        lab_bell_sleep(c, seen);
    }
}
