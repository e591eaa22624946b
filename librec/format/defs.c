#include "format/writer_state.h"

#include <string.h>

#include "rec/live.h"

void rec_defs_init(struct rec_defs *defs)
{
    memset(defs, 0, sizeof(*defs));
}

static struct rec_defs_comm *find_comm(struct rec_defs *defs, uint32_t id)
{
    for (uint32_t i = 0; i <= defs->comm_probe; i++) {
        struct rec_defs_comm *comm = &defs->comms[(id + i) % REC_DEFS_COMMS];
        if (comm->used && comm->def.id == id)
            return comm;
    }
    return NULL;
}

const struct rec_comm_def *rec_defs_find_comm(const struct rec_defs *defs, uint32_t id)
{
    const struct rec_defs_comm *comm = find_comm((struct rec_defs *)defs, id);
    return comm ? &comm->def : NULL;
}

static bool ended(const struct rec_defs_comm *comm)
{
    return comm->def.state == REC_LIVE_COMM_DESTROYED || comm->def.state == REC_LIVE_COMM_FAILED;
}

void rec_defs_comm(struct rec_defs *defs, const struct rec_comm_def *def)
{
    struct rec_defs_comm *comm = find_comm(defs, def->id);
    /* A free place if there is one near, else that of a communicator which has ended. */
    for (int pass = 0; pass < 2 && !comm; pass++) {
        for (uint32_t i = 0; i < REC_DEFS_COMMS && !comm; i++) {
            struct rec_defs_comm *place = &defs->comms[(def->id + i) % REC_DEFS_COMMS];
            if (pass == 0 ? place->used : !ended(place))
                continue;
            comm = place;
            memset(comm, 0, sizeof(*comm));
            if (i > defs->comm_probe)
                defs->comm_probe = i;
        }
    }
    if (!comm)
        return;
    comm->used = true;
    comm->def = *def;
}

void rec_defs_frontier(struct rec_defs *defs, uint64_t time_ns, const struct rec_frontier *frontier)
{
    struct rec_defs_comm *comm = find_comm(defs, frontier->comm);
    if (!comm)
        return;
    comm->frontier = *frontier;
    comm->frontier_ns = time_ns;
    comm->has_frontier = true;
}

void rec_defs_thread(struct rec_defs *defs, const struct rec_thread_def *def)
{
    struct rec_defs_thread *set = defs->threads[def->id % REC_DEFS_SETS];
    struct rec_defs_thread *place = &set[0];
    for (int i = 0; i < REC_DEFS_WAYS; i++) {
        if (set[i].used_at && set[i].def.id == def->id) {
            place = &set[i];
            break;
        }
        if (set[i].used_at < place->used_at)
            place = &set[i];
    }
    place->def = *def;
    place->used_at = ++defs->thread_clock;
}

void rec_defs_touch_thread(struct rec_defs *defs, uint32_t id)
{
    struct rec_defs_thread *set = defs->threads[id % REC_DEFS_SETS];
    for (int i = 0; i < REC_DEFS_WAYS; i++)
        if (set[i].used_at && set[i].def.id == id)
            set[i].used_at = ++defs->thread_clock;
}

void rec_defs_redop(struct rec_defs *defs, const struct rec_redop_def *def)
{
    uint32_t i = def->redop - REC_REDOP_USER;
    if (i >= REC_DEFS_REDOPS)
        return;
    defs->redops[i] = *def;
    defs->redop_used[i] = true;
}

bool rec_defs_redop_hash(const struct rec_defs *defs, uint8_t redop, uint64_t *hash)
{
    *hash = redop;
    if (redop < REC_REDOP_USER || redop == REC_REDOP_NONE)
        return true;
    if (!defs->redop_used[redop - REC_REDOP_USER])
        return false;
    *hash = defs->redops[redop - REC_REDOP_USER].hash;
    return true;
}

void rec_defs_stream(struct rec_defs *defs, const struct rec_stream_def *def)
{
    if (def->id >= REC_DEFS_STREAMS)
        return;
    defs->streams[def->id] = *def;
    defs->stream_used[def->id] = true;
}

void rec_defs_gpu(struct rec_defs *defs, uint64_t time_ns, const struct rec_gpu *gpu)
{
    if (gpu->stream >= REC_DEFS_STREAMS)
        return;
    defs->gpu[gpu->stream] = *gpu;
    defs->gpu_ns[gpu->stream] = time_ns;
}
