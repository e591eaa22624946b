#include "comm.h"

#include "../engine/futex.h"

/* A waiter counts itself among the sleepers before the kernel compares the bell; a ringer increments the
 * bell before it looks for sleepers. All four are sequentially consistent, so either the ringer sees the
 * sleeper and wakes it, or the kernel sees the new bell and does not let it sleep. */

uint32_t lab_bell_read(struct ncclComm *comm)
{
    return atomic_load(&lab_region_rank(&comm->region, comm->rank)->bell);
}

void lab_bell_sleep(struct ncclComm *comm, uint32_t seen)
{
    struct lab_rank_words *me = lab_region_rank(&comm->region, comm->rank);
    atomic_fetch_add(&me->sleepers, 1);
    hg_futex_wait(&me->bell, seen);
    atomic_fetch_sub(&me->sleepers, 1);
}

void lab_bell_ring(struct ncclComm *comm, int rank)
{
    struct lab_rank_words *words = lab_region_rank(&comm->region, rank);
    atomic_fetch_add(&words->bell, 1);
    if (atomic_load(&words->sleepers))
        hg_futex_wake_all(&words->bell);
}

void lab_hang_until_stopped(struct ncclComm *comm)
{
    for (;;) {
        uint32_t seen = lab_bell_read(comm);
        if (lab_comm_is_stopped(comm))
            return;
        lab_bell_sleep(comm, seen);
    }
}
