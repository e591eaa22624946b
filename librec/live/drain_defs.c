#include <string.h>

#include "drain_state.h"

void rec_drain_resolver(struct rec_drain *drain, rec_drain_resolve *resolve, void *context)
{
    drain->resolve = resolve;
    drain->resolve_context = context;
}

static bool read_comm(const struct rec_live_comm *comm, uint32_t *version, struct rec_comm_def *def,
                      const struct rec_clock *clock)
{
    for (int tries = 0; tries < 64; tries++) {
        *version = atomic_load_explicit(&comm->version, memory_order_acquire);
        if (*version == 0)
            return false;
        if (*version & 1)
            continue;
        *def = (struct rec_comm_def){
            .id = atomic_load_explicit(&comm->id, memory_order_relaxed),
            .state = atomic_load_explicit(&comm->state, memory_order_relaxed),
            .nranks = atomic_load_explicit(&comm->nranks, memory_order_relaxed),
            .rank = atomic_load_explicit(&comm->rank, memory_order_relaxed),
            .uid = atomic_load_explicit(&comm->uid, memory_order_relaxed),
            .parent_uid = atomic_load_explicit(&comm->parent_uid, memory_order_relaxed),
            .parent_seq = atomic_load_explicit(&comm->parent_seq, memory_order_relaxed),
            .comm_hash = atomic_load_explicit(&comm->comm_hash, memory_order_relaxed),
            .handle = atomic_load_explicit(&comm->handle, memory_order_relaxed),
            .created_ns = rec_clock_ns(clock, atomic_load_explicit(&comm->created, memory_order_relaxed)),
            .device = atomic_load_explicit(&comm->device, memory_order_relaxed),
            .color = atomic_load_explicit(&comm->color, memory_order_relaxed),
            .made_by = atomic_load_explicit(&comm->made_by, memory_order_relaxed),
            .async_error = atomic_load_explicit(&comm->async_error, memory_order_relaxed),
        };
        /* The name is written once, before the first version is published. */
        memcpy(def->name, comm->name, sizeof(def->name) - 1);
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&comm->version, memory_order_relaxed) == *version)
            return true;
    }
    return false;
}

static void write_comms(struct rec_drain *drain, struct rec_writer *writer)
{
    const struct rec_live *live = &drain->live;
    for (uint32_t i = 0; i < live->header->comm_count; i++) {
        const struct rec_live_comm *comm = &live->comms[i];
        struct comm_seen *seen = &drain->comms[i];
        uint32_t version = atomic_load_explicit(&comm->version, memory_order_relaxed);
        uint32_t error = atomic_load_explicit(&comm->async_error, memory_order_relaxed);
        if (version == seen->version && error == seen->async_error)
            continue;
        struct rec_comm_def def;
        if (!read_comm(comm, &version, &def, &drain->clock))
            continue;
        if (def.state == REC_LIVE_COMM_FREE)
            def.state = REC_LIVE_COMM_DESTROYED;
        rec_writer_comm(writer, &def);
        if (def.id != seen->id || seen->version == 0)
            *seen = (struct comm_seen){.id = def.id, .dying = seen->dying, .busy = seen->busy};
        seen->version = version;
        seen->async_error = def.async_error;
    }
}

static void write_threads(struct rec_drain *drain, struct rec_writer *writer)
{
    const struct rec_live *live = &drain->live;
    for (uint32_t i = 0; i < live->header->thread_count; i++) {
        const struct rec_live_thread *thread = &live->threads[i];
        struct thread_seen *seen = &drain->threads[i];
        uint32_t id = atomic_load_explicit(&thread->id, memory_order_acquire);
        if (id == 0 || (id == seen->id && memcmp(seen->name, thread->name, sizeof(seen->name)) == 0))
            continue;
        struct rec_thread_def def = {
            .id = id,
            .tid = atomic_load_explicit(&thread->tid, memory_order_relaxed),
        };
        memcpy(def.name, thread->name, sizeof(def.name) - 1);
        rec_writer_thread(writer, &def);
        if (id != seen->id)
            seen->next = 0;
        seen->id = id;
        memcpy(seen->name, thread->name, sizeof(seen->name));
    }
}

static void write_redops(struct rec_drain *drain, struct rec_writer *writer)
{
    const struct rec_live *live = &drain->live;
    for (uint32_t i = 0; i < live->header->redop_count; i++) {
        const struct rec_live_redop *redop = &live->redops[i];
        if (drain->redops[i] || !atomic_load_explicit(&redop->used, memory_order_acquire))
            continue;
        struct rec_redop_def def = {
            .redop = REC_REDOP_USER + i,
            .dtype = redop->dtype,
            .residence = redop->residence,
            .comm = redop->comm_id,
            .scalar = redop->scalar,
            .hash = redop->hash,
        };
        rec_writer_redop(writer, &def);
        drain->redops[i] = 1;
    }
}

static void write_streams(struct rec_drain *drain, struct rec_writer *writer)
{
    const struct rec_live *live = &drain->live;
    for (uint32_t i = 0; i < live->header->stream_count; i++) {
        const struct rec_live_stream *stream = &live->streams[i];
        if (drain->streams[i] || !atomic_load_explicit(&stream->used, memory_order_acquire))
            continue;
        struct rec_stream_def def = {.id = i, .device = stream->device, .handle = stream->handle};
        rec_writer_stream(writer, &def);
        drain->streams[i] = 1;
    }
}

/* The writer asks for the call sites of the ops that it is given. */
static bool find_callsite(void *context, uint32_t id, struct rec_callsite_def *def)
{
    struct rec_drain *drain = context;
    struct rec_live_callsite *site = &drain->callsite;
    if (!rec_live_callsite(&drain->live, id, site))
        return false;
    if (site->def.kind == REC_CALLSITE_NATIVE) {
        for (uint32_t i = 0; i < site->naddresses; i++) {
            struct rec_source_frame *frame = &site->frames[i];
            *frame = (struct rec_source_frame){.file = "", .function = "", .offset = site->addresses[i]};
            if (drain->resolve)
                (void)drain->resolve(drain->resolve_context, site->addresses[i], frame);
        }
        site->def.nframes = site->naddresses;
        site->def.frames = site->frames;
    }
    *def = site->def;
    return true;
}

void rec_drain_definitions(struct rec_drain *drain, struct rec_writer *writer)
{
    write_comms(drain, writer);
    write_threads(drain, writer);
    write_redops(drain, writer);
    write_streams(drain, writer);
    rec_writer_callsites(writer, find_callsite, drain);
}
