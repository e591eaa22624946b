#include "drain_state.h"

static size_t align64(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

size_t rec_drain_bytes(const struct rec_live *live)
{
    const struct rec_live_header *header = live->header;
    return align64(sizeof(struct rec_drain)) + align64(sizeof(struct comm_seen) * header->comm_count) +
           align64(sizeof(struct thread_seen) * header->thread_count) + align64(header->redop_count) +
           align64(header->stream_count) + align64(sizeof(struct gpu_seen) * header->stream_count) +
           align64(sizeof(uint32_t) * header->chunk_count) +
           align64(sizeof(struct pending) * header->chunk_count) +
           align64(sizeof(struct rec_op) * header->thread_count);
}

static void *carve(unsigned char **at, size_t bytes)
{
    void *piece = *at;
    *at += align64(bytes);
    return piece;
}

struct rec_drain *rec_drain_init(void *memory, const struct rec_live *live)
{
    const struct rec_live_header *header = live->header;
    unsigned char *at = memory;
    struct rec_drain *drain = carve(&at, sizeof(*drain));
    drain->live = *live;
    drain->comms = carve(&at, sizeof(*drain->comms) * header->comm_count);
    drain->threads = carve(&at, sizeof(*drain->threads) * header->thread_count);
    drain->redops = carve(&at, header->redop_count);
    drain->streams = carve(&at, header->stream_count);
    drain->gpu = carve(&at, sizeof(*drain->gpu) * header->stream_count);
    drain->given = carve(&at, sizeof(*drain->given) * header->chunk_count);
    drain->pending = carve(&at, sizeof(*drain->pending) * header->chunk_count);
    drain->opens = carve(&at, sizeof(*drain->opens) * header->thread_count);
    for (uint32_t i = 0; i < header->chunk_count; i++)
        drain->given[i] = atomic_load_explicit(&live->chunks[i].drained, memory_order_relaxed);
    return drain;
}

void rec_drain_times(struct rec_drain *drain, rec_drain_take_time *take)
{
    drain->take_time = take;
}

/* ---- what this step may free: decided before anything is read ------------------------- */

static void note_departed(struct rec_drain *drain)
{
    const struct rec_live *live = &drain->live;
    for (uint32_t i = 0; i < live->header->thread_count; i++)
        drain->threads[i].gone = atomic_load_explicit(&live->threads[i].id, memory_order_acquire) != 0 &&
                                 atomic_load_explicit(&live->threads[i].exited, memory_order_acquire);
    for (uint32_t i = 0; i < live->header->comm_count; i++) {
        uint32_t state = atomic_load_explicit(&live->comms[i].state, memory_order_acquire);
        drain->comms[i].dying = state == REC_LIVE_COMM_DESTROYED || state == REC_LIVE_COMM_FAILED;
        drain->comms[i].busy = false;
    }
    /* After the states: an op that ended a communicator is either still open here, or closed
     * before, and then its chunk.done, loaded later, covers it. */
    for (uint32_t i = 0; i < live->header->thread_count; i++) {
        struct rec_slot slot;
        if (rec_live_open_op(live, i, &slot) && slot.comm < live->header->comm_count)
            drain->comms[slot.comm].busy = true;
    }
}

/* ---- finished slots ------------------------------------------------------------------- */

static void sort_pending(struct pending *list, uint32_t count)
{
    /* Shell sort: in place, no recursion, and the list is short and nearly sorted. */
    for (uint32_t gap = count / 2; gap > 0; gap /= 2)
        for (uint32_t i = gap; i < count; i++) {
            struct pending item = list[i];
            uint32_t j = i;
            for (; j >= gap && list[j - gap].claim > item.claim; j -= gap)
                list[j] = list[j - gap];
            list[j] = item;
        }
}

/*
 * A thread claims a chunk when its last one is full, perhaps after that one was looked at and before
 * the new one is. Then the new one must wait, or its ops would overtake the rest of the old. Acquire:
 * pairs with the claim, so that chunks within the horizon have all their predecessors full.
 */
static void set_horizon(struct rec_drain *drain, bool final)
{
    drain->horizon =
        final ? UINT64_MAX : atomic_load_explicit(&drain->live.header->next_claim, memory_order_acquire);
}

/*
 * Chunks with finished slots beyond those in the file, or beyond those given to the writer; oldest
 * claim first, so the ops of a thread come in order.
 */
static void find_pending(struct rec_drain *drain, bool not_given)
{
    const struct rec_live *live = &drain->live;
    drain->npending = 0;
    for (uint32_t i = 0; i < live->header->chunk_count; i++) {
        struct rec_live_chunk *chunk = &live->chunks[i];
        uint32_t owner = atomic_load_explicit(&chunk->owner, memory_order_acquire);
        uint32_t done = atomic_load_explicit(&chunk->done, memory_order_acquire);
        uint32_t from =
            not_given ? drain->given[i] : atomic_load_explicit(&chunk->drained, memory_order_relaxed);
        uint64_t claim = atomic_load_explicit(&chunk->claim, memory_order_relaxed);
        if (owner == 0 || owner > live->header->thread_count || done > REC_LIVE_CHUNK_SLOTS || done <= from ||
            claim > drain->horizon)
            continue;
        drain->pending[drain->npending++] = (struct pending){
            .claim = claim,
            .chunk = i,
            .done = done,
        };
    }
    sort_pending(drain->pending, drain->npending);
}

static void note_gap(struct rec_drain *drain, struct rec_writer *writer, uint64_t time_ns,
                     uint32_t thread_index, uint64_t ordinal)
{
    struct thread_seen *seen = &drain->threads[thread_index];
    if (ordinal > seen->next) {
        struct rec_loss loss = {
            .thread = seen->id,
            .first_ordinal = seen->next,
            .count = ordinal - seen->next,
            .why = REC_LOSS_RING_FULL,
        };
        rec_writer_loss(writer, time_ns, &loss);
        seen->next = ordinal;
    }
}

static uint64_t write_chunk(struct rec_drain *drain, struct rec_writer *writer, uint64_t time_ns,
                            const struct pending *item)
{
    const struct rec_live *live = &drain->live;
    const struct rec_live_chunk *chunk = &live->chunks[item->chunk];
    uint32_t thread_index = atomic_load_explicit(&chunk->owner, memory_order_relaxed) - 1;
    uint32_t thread_id = atomic_load_explicit(&chunk->thread_id, memory_order_relaxed);
    uint32_t from = drain->given[item->chunk];
    const union rec_live_slot *slots = &live->slots[(uint64_t)item->chunk * REC_LIVE_CHUNK_SLOTS];
    uint32_t count = 0;
    for (uint32_t i = from; i < item->done; i++) {
        struct rec_slot slot;
        rec_live_slot_load(&slots[i], &slot);
        rec_live_to_op(live, &drain->clock, thread_id, &slot, &drain->batch[count++]);
    }
    note_gap(drain, writer, time_ns, thread_index, drain->batch[0].ordinal);
    rec_writer_ops(writer, drain->batch, count);
    drain->threads[thread_index].next = drain->batch[count - 1].ordinal + 1;
    drain->given[item->chunk] = item->done;
    return count;
}

/* ---- open ops, counters, losses --------------------------------------------------------- */

static void write_opens(struct rec_drain *drain, struct rec_writer *writer, uint64_t time_ns, bool final)
{
    const struct rec_live *live = &drain->live;
    uint32_t count = 0;
    uint64_t key = 0;
    for (uint32_t i = 0; i < live->header->thread_count; i++) {
        uint32_t id = atomic_load_explicit(&live->threads[i].id, memory_order_acquire);
        struct rec_slot slot;
        if (id == 0 || id != drain->threads[i].id)
            continue;
        if (rec_live_open_op(live, i, &slot)) {
            rec_live_to_op(live, &drain->clock, id, &slot, &drain->opens[count++]);
            key = rec_mix64(key ^ rec_mix64(slot.ordinal + ((uint64_t)id << 40)));
            /* Finished slots were taken before, so what lies between is lost, unless the thread
             * went on in the meantime: then it is in its chunk and comes with the next step. */
            if (final)
                note_gap(drain, writer, time_ns, i, slot.ordinal);
        } else if (final || drain->threads[i].gone) {
            note_gap(drain, writer, time_ns, i,
                     atomic_load_explicit(&live->threads[i].ordinal, memory_order_relaxed));
        }
    }
    if (drain->opens_written && key == drain->opens_key)
        return;
    rec_writer_open_ops(writer, time_ns, drain->opens, count);
    drain->opens_key = key;
    drain->opens_written = true;
}

static void write_frontiers(struct rec_drain *drain, struct rec_writer *writer, uint64_t time_ns)
{
    const struct rec_live *live = &drain->live;
    for (uint32_t i = 0; i < live->header->comm_count; i++) {
        const struct rec_live_comm *comm = &live->comms[i];
        struct comm_seen *seen = &drain->comms[i];
        if (seen->version == 0)
            continue;
        struct rec_frontier frontier = {
            .comm = atomic_load_explicit(&comm->id, memory_order_relaxed),
            .next_seq = atomic_load_explicit(&comm->next_seq, memory_order_relaxed),
            .p2p_entered = atomic_load_explicit(&comm->p2p_entered, memory_order_relaxed),
            .lost = atomic_load_explicit(&comm->lost, memory_order_relaxed),
        };
        if (frontier.next_seq == seen->next_seq && frontier.p2p_entered == seen->p2p_entered &&
            frontier.lost == seen->lost)
            continue;
        rec_writer_frontier(writer, time_ns, &frontier);
        seen->next_seq = frontier.next_seq;
        seen->p2p_entered = frontier.p2p_entered;
        seen->lost = frontier.lost;
    }
}

static void give_gpu(struct rec_drain *drain, struct rec_writer *writer, uint64_t time_ns,
                     const struct rec_gpu *gpu)
{
    struct gpu_seen *seen = &drain->gpu[gpu->stream];
    if (!seen->again && gpu->started == seen->given.started && gpu->ended == seen->given.ended &&
        gpu->dropped == seen->given.dropped && gpu->error == seen->given.error)
        return;
    rec_writer_gpu(writer, time_ns, gpu);
    seen->given = *gpu;
    seen->again = false;
}

static void write_gpu_times(struct rec_drain *drain, struct rec_writer *writer)
{
    struct rec_drain_time time;
    while (drain->take_time && drain->take_time(&time)) {
        if (time.stream >= drain->live.header->stream_count || !drain->streams[time.stream])
            continue;
        struct gpu_seen *seen = &drain->gpu[time.stream];
        struct rec_gpu now = seen->given;
        now.stream = time.stream;
        seen->timed = true;
        if (time.ended && time.launch > now.ended)
            now.ended = time.launch;
        if (time.launch > now.started)
            now.started = time.launch;
        give_gpu(drain, writer, time.time_ns, &now);
    }
}

/*
 * How far the GPU has come: exact to this step's time, for nobody else looks at the marks. Where exact
 * times come, they are given a step's time to do so.
 */
static void write_gpu(struct rec_drain *drain, struct rec_writer *writer, uint64_t time_ns, bool final)
{
    if (atomic_load_explicit(&drain->live.header->gpu, memory_order_acquire) == REC_LIVE_GPU_NONE)
        return;
    write_gpu_times(drain, writer);
    for (uint32_t i = 0; i < drain->live.header->stream_count; i++) {
        struct gpu_seen *seen = &drain->gpu[i];
        struct rec_gpu now;
        if (!drain->streams[i])
            continue;
        rec_live_gpu(&drain->live, i, &now);
        uint64_t started = now.started, ended = now.ended;
        if (seen->timed && !final) {
            now.started = seen->started;
            now.ended = seen->ended;
        }
        if (now.started < seen->given.started)
            now.started = seen->given.started;
        if (now.ended < seen->given.ended)
            now.ended = seen->given.ended;
        seen->started = started;
        seen->ended = ended;
        give_gpu(drain, writer, time_ns, &now);
    }
}

static void write_forgotten(struct rec_drain *drain, struct rec_writer *writer, uint64_t time_ns)
{
    struct rec_loss loss = {.thread = REC_ID_NONE, .count = drain->forgotten, .why = REC_LOSS_WRITE};
    if (drain->forgotten)
        rec_writer_loss(writer, time_ns, &loss);
    drain->forgotten = 0;
}

static void write_unslotted(struct rec_drain *drain, struct rec_writer *writer, uint64_t time_ns)
{
    uint64_t unslotted = atomic_load_explicit(&drain->live.header->unslotted, memory_order_relaxed);
    if (unslotted <= drain->unslotted)
        return;
    struct rec_loss loss = {
        .thread = REC_ID_NONE,
        .count = unslotted - drain->unslotted,
        .why = REC_LOSS_TABLE_FULL,
    };
    rec_writer_loss(writer, time_ns, &loss);
    drain->unslotted = unslotted;
}

/* ---- after the flush -------------------------------------------------------------------- */

static void free_chunk(struct rec_drain *drain, uint32_t index, struct rec_drain_result *result)
{
    struct rec_live_chunk *chunk = &drain->live.chunks[index];
    drain->given[index] = 0;
    atomic_store_explicit(&chunk->done, 0, memory_order_relaxed);
    atomic_store_explicit(&chunk->drained, 0, memory_order_relaxed);
    /* Release: a claimer that sees owner 0 sees the counters at zero. */
    atomic_store_explicit(&chunk->owner, 0, memory_order_release);
    result->freed_chunks++;
}

/* A chunk is finished with when it is full, or when its thread had exited before this step began. */
static void free_chunks(struct rec_drain *drain, struct rec_drain_result *result)
{
    const struct rec_live *live = &drain->live;
    for (uint32_t i = 0; i < live->header->chunk_count; i++) {
        struct rec_live_chunk *chunk = &live->chunks[i];
        uint32_t owner = atomic_load_explicit(&chunk->owner, memory_order_acquire);
        if (owner == 0) {
            result->free_chunks++;
            continue;
        }
        if (owner > live->header->thread_count)
            continue;
        uint32_t done = atomic_load_explicit(&chunk->done, memory_order_acquire);
        if (done == atomic_load_explicit(&chunk->drained, memory_order_relaxed) &&
            (done == REC_LIVE_CHUNK_SLOTS || drain->threads[owner - 1].gone)) {
            free_chunk(drain, i, result);
            result->free_chunks++;
        }
    }
}

/* Ops that the thread has finished and that were not given to the writer. */
static uint64_t not_given(const struct rec_drain *drain, uint32_t index)
{
    const struct rec_live_thread *thread = &drain->live.threads[index];
    const struct thread_seen *seen = &drain->threads[index];
    uint32_t id = atomic_load_explicit(&thread->id, memory_order_acquire);
    if (id == 0)
        return 0;
    uint64_t open = atomic_load_explicit(&thread->open, memory_order_acquire);
    uint64_t end = atomic_load_explicit(&thread->ordinal, memory_order_relaxed);
    uint64_t next = id == seen->id ? seen->next : 0;
    if (open && open <= end)
        end = open - 1;
    return end > next ? end - next : 0;
}

static void free_threads(struct rec_drain *drain)
{
    const struct rec_live *live = &drain->live;
    for (uint32_t i = 0; i < live->header->thread_count; i++)
        drain->threads[i].owns = false;
    for (uint32_t i = 0; i < live->header->chunk_count; i++) {
        uint32_t owner = atomic_load_explicit(&live->chunks[i].owner, memory_order_relaxed);
        if (owner != 0 && owner <= live->header->thread_count)
            drain->threads[owner - 1].owns = true;
    }
    for (uint32_t i = 0; i < live->header->thread_count; i++) {
        struct thread_seen *seen = &drain->threads[i];
        if (!seen->gone || seen->owns)
            continue;
        drain->forgotten += drain->failing ? not_given(drain, i) : 0;
        *seen = (struct thread_seen){0};
        atomic_store_explicit(&live->threads[i].id, 0, memory_order_release);
    }
}

static void free_comms(struct rec_drain *drain, struct rec_drain_result *result)
{
    const struct rec_live *live = &drain->live;
    for (uint32_t i = 0; i < live->header->comm_count; i++)
        if (drain->comms[i].dying && !drain->comms[i].busy) {
            atomic_store_explicit(&live->comms[i].state, REC_LIVE_COMM_FREE, memory_order_release);
            result->freed_comms = true;
        }
}

/*
 * No file, or one that cannot be written: the region is all there is. Keep a quarter of the
 * ring free by giving up the oldest full chunks.
 */
static void recycle(struct rec_drain *drain, struct rec_drain_result *result)
{
    const struct rec_live *live = &drain->live;
    uint32_t want = live->header->chunk_count / 4;
    find_pending(drain, false);
    for (uint32_t i = 0; i < drain->npending && result->free_chunks < want; i++) {
        uint32_t chunk = drain->pending[i].chunk;
        uint32_t owner = atomic_load_explicit(&live->chunks[chunk].owner, memory_order_relaxed);
        if (drain->pending[i].done < REC_LIVE_CHUNK_SLOTS && !drain->threads[owner - 1].gone)
            continue;
        result->given_up += drain->pending[i].done - drain->given[chunk];
        free_chunk(drain, chunk, result);
        result->free_chunks++;
    }
}

/* Everything given is in the file now, or a LOSS record of the writer for it is. */
static void advance(struct rec_drain *drain)
{
    for (uint32_t i = 0; i < drain->live.header->chunk_count; i++) {
        struct rec_live_chunk *chunk = &drain->live.chunks[i];
        if (drain->given[i] > atomic_load_explicit(&chunk->drained, memory_order_relaxed))
            atomic_store_explicit(&chunk->drained, drain->given[i], memory_order_release);
    }
}

/* What was given in the failed step waits in the writer, or is on record as lost: ops are not given
 * twice. States and counters will have changed by the time it works again. */
static void forget(struct rec_drain *drain)
{
    drain->opens_written = false;
    for (uint32_t i = 0; i < drain->live.header->comm_count; i++)
        drain->comms[i].next_seq = UINT64_MAX;
    for (uint32_t i = 0; i < drain->live.header->stream_count; i++)
        drain->gpu[i].again = true;
}

/* For a file that stays as it is: how much of the trace only the region has, or nobody. */
static void tell_held(const struct rec_drain *drain, struct rec_writer *writer, uint64_t time_ns)
{
    uint64_t held = drain->forgotten;
    for (uint32_t i = 0; drain->failing && i < drain->live.header->thread_count; i++)
        held += not_given(drain, i);
    rec_writer_held(writer, time_ns, held);
}

enum rec_code rec_drain_step(struct rec_drain *drain, struct rec_writer *writer, uint64_t time_ns,
                             bool heartbeat, bool final, struct rec_drain_result *result,
                             struct rec_error *err)
{
    *result = (struct rec_drain_result){0};
    rec_live_clock_read(&drain->live, &drain->clock);
    note_departed(drain);
    set_horizon(drain, final);

    enum rec_code code = REC_OK;
    if (writer && drain->failing)
        code = rec_writer_flush(writer, err);
    if (writer && code == REC_OK) {
        /* Finished slots are found first, so every definition they name is seen below. */
        find_pending(drain, true);
        rec_drain_definitions(drain, writer);
        for (uint32_t i = 0; i < drain->npending; i++)
            result->ops += write_chunk(drain, writer, time_ns, &drain->pending[i]);
        write_opens(drain, writer, time_ns, final);
        write_frontiers(drain, writer, time_ns);
        write_gpu(drain, writer, time_ns, final);
        write_forgotten(drain, writer, time_ns);
        write_unslotted(drain, writer, time_ns);
        if (heartbeat)
            rec_writer_heartbeat(writer, time_ns);
        code = rec_writer_flush(writer, err);
    }
    drain->failing = code != REC_OK;
    if (writer && !drain->failing) {
        advance(drain);
        free_chunks(drain, result);
        free_comms(drain, result);
    } else {
        forget(drain);
        for (uint32_t i = 0; i < drain->live.header->chunk_count; i++)
            result->free_chunks +=
                atomic_load_explicit(&drain->live.chunks[i].owner, memory_order_relaxed) == 0;
        recycle(drain, result);
    }
    free_threads(drain);
    if (writer)
        tell_held(drain, writer, time_ns);
    return code;
}
