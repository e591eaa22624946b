/* Reading live regions: counters and open calls of processes that run on this host. */
#include "fr-top/top.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SLOTS_READ  8192                 /* finished calls looked at per refresh, to measure bytes */
#define LIFE_SIGN_NS    UINT64_C(1500000000) /* the drain thread wakes up every 250 ms */
#define LOOK_BACK_SLOTS 16

/* A counter of a table entry, which is used again for another communicator or thread. */
struct seen {
    uint32_t id;
    uint64_t count;
};

struct region {
    struct rec_live live;
    struct seen *ops;  /* of communicators, by table entry, as of the last reading */
    struct seen *lost; /* of threads */
    bool *busy;        /* by stream: launches are not over */
    uint64_t lost_by_threads;
    uint64_t newest_exit; /* raw; calls that returned later have not been measured yet */
    uint64_t alive_ns, alive_changed_ns;
    bool read_once, rated; /* a reading was made; rates are known */
};

enum rec_code top_region_open(struct top_probe *probe, struct rec_error *err)
{
    struct region *region = calloc(1, sizeof *region);
    if (region == NULL)
        return rec_error_set(err, REC_ERR_NOMEM, probe->path, 0, "no memory");
    enum rec_code code = rec_live_map(probe->path, false, &region->live, err);
    if (code != REC_OK) {
        free(region);
        return code;
    }
    const struct rec_live_header *header = region->live.header;
    region->ops = calloc(header->comm_count + 1u, sizeof *region->ops);
    region->lost = calloc(header->thread_count + 1u, sizeof *region->lost);
    region->busy = calloc(header->stream_count + 1u, sizeof *region->busy);
    if (region->ops == NULL || region->lost == NULL || region->busy == NULL) {
        probe->reader = region;
        top_region_close(probe);
        return rec_error_set(err, REC_ERR_NOMEM, probe->path, 0, "no memory");
    }
    struct top_process *process = &probe->process;
    *process = (struct top_process){.proc_uid = header->proc_uid,
                                    .pid = header->pid,
                                    .rank = TOP_NO_RANK,
                                    .world_size = -1,
                                    .local = true};
    memcpy(process->frec_dir, header->frec_dir, sizeof process->frec_dir - 1);
    uint32_t meta_bytes = atomic_load_explicit(&header->meta_bytes, memory_order_acquire);
    if (meta_bytes > 0 && meta_bytes <= sizeof header->meta)
        top_probe_meta(probe, header->meta, meta_bytes);
    if (process->job[0] == '\0') /* at least what records into one directory belongs together */
        memcpy(process->job, process->frec_dir, sizeof process->job - 1);
    probe->reader = region;
    return REC_OK;
}

void top_region_close(struct top_probe *probe)
{
    struct region *region = probe->reader;
    if (region == NULL)
        return;
    rec_live_unmap(&region->live);
    free(region->ops);
    free(region->lost);
    free(region->busy);
    free(region);
    probe->reader = NULL;
}

/* A whole copy of one communicator's definition; the version word is odd while it changes. */
static bool read_comm(const struct rec_live_comm *comm, const struct rec_clock *clock,
                      struct top_member *member)
{
    for (int tries = 0; tries < 100; tries++) {
        uint32_t version = atomic_load_explicit(&comm->version, memory_order_acquire);
        if (version == 0)
            return false;
        if (version & 1)
            continue;
        *member = (struct top_member){
            .state = atomic_load_explicit(&comm->state, memory_order_relaxed),
            .comm_id = atomic_load_explicit(&comm->id, memory_order_relaxed),
            .nranks = atomic_load_explicit(&comm->nranks, memory_order_relaxed),
            .uid = atomic_load_explicit(&comm->uid, memory_order_relaxed),
            .comm_rank = atomic_load_explicit(&comm->rank, memory_order_relaxed),
            .made_by = atomic_load_explicit(&comm->made_by, memory_order_relaxed),
            .parent_uid = atomic_load_explicit(&comm->parent_uid, memory_order_relaxed),
            .async_error = atomic_load_explicit(&comm->async_error, memory_order_relaxed),
            .created_ns = rec_clock_ns(clock, atomic_load_explicit(&comm->created, memory_order_relaxed)),
            .next_seq = atomic_load_explicit(&comm->next_seq, memory_order_relaxed),
            .p2p = atomic_load_explicit(&comm->p2p_entered, memory_order_relaxed),
            .lost = atomic_load_explicit(&comm->lost, memory_order_relaxed),
        };
        memcpy(member->name, comm->name, sizeof member->name);
        member->name[sizeof member->name - 1] = '\0';
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&comm->version, memory_order_relaxed) == version)
            return member->state != REC_LIVE_COMM_FREE;
    }
    return false;
}

/* What a counter rose by since the last reading; ids from 1. */
static uint64_t new_since(struct seen *seen, uint32_t id, uint64_t count)
{
    uint64_t before = seen->id == id ? seen->count : 0;
    *seen = (struct seen){.id = id, .count = count > before ? count : before};
    return count > before ? count - before : 0;
}

static void read_comms(struct top_probe *probe, struct region *region, const struct rec_clock *clock)
{
    probe->nmembers = 0;
    for (uint32_t i = 0; i < region->live.header->comm_count; i++) {
        struct top_member member, *kept;
        if (!read_comm(&region->live.comms[i], clock, &member))
            continue;
        uint64_t first = rec_first_seq(member.made_by);
        uint64_t ops = (member.next_seq > first ? member.next_seq - first : 0) + member.p2p;
        probe->process.ops += new_since(&region->ops[i], member.comm_id + 1, ops);
        kept = top_probe_member(probe);
        if (kept != NULL)
            *kept = member;
    }
}

static void read_threads(struct top_probe *probe, struct region *region, const struct rec_clock *clock)
{
    struct top_process *process = &probe->process;
    const struct rec_live *live = &region->live;
    process->nopen = 0;
    for (uint32_t t = 0; t < live->header->thread_count; t++) {
        uint32_t id = atomic_load_explicit(&live->threads[t].id, memory_order_acquire);
        if (id == 0)
            continue;
        uint64_t lost = atomic_load_explicit(&live->threads[t].lost, memory_order_relaxed);
        region->lost_by_threads += new_since(&region->lost[t], id, lost);
        struct rec_slot slot;
        if (!rec_live_open_op(live, t, &slot))
            continue;
        struct top_op open;
        rec_live_to_op(live, clock, id, &slot, &open.op);
        open.member = top_probe_find(probe, open.op.comm);
        open.since_ns = open.op.enter_ns;
        top_process_open(process, &open);
        if (open.op.enter_ns > process->last_call_ns)
            process->last_call_ns = open.op.enter_ns;
    }
    process->lost = region->lost_by_threads +
                    atomic_load_explicit(&live->header->unslotted, memory_order_relaxed) +
                    atomic_load_explicit(&live->header->file_lost, memory_order_relaxed);
}

/* ---- what the GPU is at ---- */

/* Notes the streams on which launches are not over, and counts those. */
static uint64_t find_busy_streams(struct region *region)
{
    const struct rec_live *live = &region->live;
    uint64_t pending = 0;
    bool marks = atomic_load_explicit(&live->header->gpu, memory_order_acquire) == REC_LIVE_GPU_MARKS;
    for (uint32_t s = 0; s < live->header->stream_count; s++) {
        /* The table is filled from the front. */
        if (!atomic_load_explicit(&live->streams[s].used, memory_order_acquire))
            break;
        struct rec_gpu gpu;
        uint64_t launched = atomic_load_explicit(&live->marks[s].launched, memory_order_relaxed);
        rec_live_gpu(live, s, &gpu);
        region->busy[s] = marks && launched > gpu.ended && (gpu.dropped == 0 || gpu.ended + 1 < gpu.dropped);
        pending += region->busy[s] ? launched - gpu.ended : 0;
    }
    return pending;
}

/* Is the thread still between this group's start and its end? */
static bool group_open(const struct region *region, uint32_t thread_id, uint32_t group)
{
    for (uint32_t t = 0; t < region->live.header->thread_count; t++) {
        const struct rec_live_thread *thread = &region->live.threads[t];
        if (atomic_load_explicit(&thread->id, memory_order_acquire) == thread_id)
            return atomic_load_explicit(&thread->group, memory_order_relaxed) == group;
    }
    return false;
}

static void set_state(const struct region *region, struct rec_op *op)
{
    /* Calls inside a group are launched by its end. */
    if (op->state == REC_STATE_IN_CALL && op->exit_ns != 0 && op->result == REC_RESULT_SUCCESS &&
        op->group != 0 && !group_open(region, op->thread, op->group))
        op->state = REC_STATE_ENQUEUED;
    struct rec_gpu gpu;
    rec_live_gpu(&region->live, op->stream, &gpu);
    top_op_gpu(op, &gpu);
}

/* Keeps the oldest call of this chunk that has been launched and is not over. */
static void find_pending(const struct region *region, const struct rec_clock *clock, uint32_t c,
                         struct rec_op *oldest)
{
    const struct rec_live_chunk *chunk = &region->live.chunks[c];
    uint64_t claim = atomic_load_explicit(&chunk->claim, memory_order_acquire);
    uint32_t done = atomic_load_explicit(&chunk->done, memory_order_acquire);
    struct rec_op found = *oldest;
    for (uint32_t i = 0; i < done && done <= REC_LIVE_CHUNK_SLOTS; i++) {
        struct rec_slot slot;
        struct rec_op op;
        rec_live_slot_load(&region->live.slots[(uint64_t)c * REC_LIVE_CHUNK_SLOTS + i], &slot);
        if (slot.launch == 0 || slot.flags & REC_OF_CAPTURED ||
            slot.stream >= region->live.header->stream_count || !region->busy[slot.stream])
            continue;
        rec_live_to_op(&region->live, clock, atomic_load_explicit(&chunk->thread_id, memory_order_relaxed),
                       &slot, &op);
        set_state(region, &op);
        if ((op.state == REC_STATE_ENQUEUED || op.state == REC_STATE_GPU_STARTED) &&
            (found.kind == REC_NONE || op.enter_ns < found.enter_ns))
            found = op;
    }
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&chunk->claim, memory_order_relaxed) == claim)
        *oldest = found;
}

/* What the GPU has come to, where marks tell it: that is what the process is at. */
static void read_gpu(struct top_probe *probe, struct region *region, const struct rec_clock *clock)
{
    struct top_process *process = &probe->process;
    struct rec_op oldest = {.kind = REC_NONE};
    process->pending = find_busy_streams(region);
    for (uint32_t c = 0; process->pending > 0 && c < region->live.header->chunk_count; c++)
        find_pending(region, clock, c, &oldest);
    if (oldest.kind != REC_NONE) {
        process->now.op = oldest;
        process->now.since_ns = oldest.enter_ns;
        process->now.member = top_probe_find(probe, oldest.comm);
    } else {
        set_state(region, &process->now.op);
    }
}

struct measured {
    uint64_t calls, bytes; /* data calls that returned since the last reading */
    uint64_t replayed;     /* calls in the graphs that were launched since */
    uint64_t newest;       /* raw exit time of the latest call */
    struct rec_slot last;  /* latest call that tells progress */
    uint32_t last_thread;
    struct top_kind_sum kinds[TOP_KINDS];
};

static void measure(const struct region *region, const struct rec_slot *slot, struct measured *sum)
{
    struct rec_op op = {.kind = slot->kind, .count = slot->count, .dtype = slot->dtype};
    uint32_t nranks = slot->comm < region->live.header->comm_count
                          ? atomic_load_explicit(&region->live.comms[slot->comm].nranks, memory_order_relaxed)
                          : 0;
    sum->calls++;
    sum->bytes += slot->count * rec_dtype_size(slot->dtype);
    top_kind_add(sum->kinds, &op, nranks);
}

/* Finished calls of one chunk, newest first, down to those that were measured before. */
static void read_chunk(const struct region *region, uint32_t c, struct measured *sum)
{
    struct rec_live_chunk *chunk = &region->live.chunks[c];
    uint64_t claim = atomic_load_explicit(&chunk->claim, memory_order_acquire);
    uint32_t done = atomic_load_explicit(&chunk->done, memory_order_acquire);
    struct measured mine = *sum;
    mine.last.exit = 0;
    if (done > REC_LIVE_CHUNK_SLOTS)
        return;
    for (uint32_t i = done; i-- > 0;) {
        struct rec_slot slot;
        rec_live_slot_load(&region->live.slots[(uint64_t)c * REC_LIVE_CHUNK_SLOTS + i], &slot);
        bool fresh = slot.exit > region->newest_exit;
        if (!fresh && (mine.last.exit != 0 || done - i > LOOK_BACK_SLOTS))
            break;
        if (slot.exit > mine.newest)
            mine.newest = slot.exit;
        bool placed = slot.comm != REC_LIVE_NONE16 || slot.kind == REC_GRAPH_LAUNCH;
        if (mine.last.exit == 0 && placed && top_tells_progress(slot.kind))
            mine.last = slot;
        if (fresh && slot.kind == REC_GRAPH_LAUNCH)
            mine.replayed += slot.count;
        if (fresh && rec_kind_flags(slot.kind) & REC_KF_DATA)
            measure(region, &slot, &mine);
    }
    mine.last_thread = atomic_load_explicit(&chunk->thread_id, memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&chunk->claim, memory_order_relaxed) != claim)
        return; /* a new owner has begun to overwrite it */
    if (mine.last.exit < sum->last.exit || mine.last.exit == 0) {
        mine.last = sum->last;
        mine.last_thread = sum->last_thread;
    }
    *sum = mine;
}

static void read_finished(struct top_probe *probe, struct region *region, const struct rec_clock *clock,
                          struct measured *sum)
{
    struct top_process *process = &probe->process;
    *sum = (struct measured){.newest = region->newest_exit};
    for (uint32_t c = 0; c < region->live.header->chunk_count && sum->calls < MAX_SLOTS_READ; c++)
        read_chunk(region, c, sum);
    process->ops += sum->replayed;
    if (sum->newest > 0) {
        uint64_t exit_ns = rec_clock_ns(clock, sum->newest);
        if (exit_ns > process->last_call_ns)
            process->last_call_ns = exit_ns;
    }
    if (sum->last.exit > 0) {
        rec_live_to_op(&region->live, clock, sum->last_thread, &sum->last, &process->now.op);
        process->now.since_ns = process->now.op.exit_ns;
    }
    process->now.member = top_probe_find(probe, process->now.op.comm);
    region->newest_exit = sum->newest;
}

static void read_life(struct top_probe *probe, struct region *region, uint64_t now_ns)
{
    struct top_process *process = &probe->process;
    struct rec_live_header *header = region->live.header;
    process->end.reason = atomic_load_explicit(&header->end.reason, memory_order_acquire);
    process->end.status = atomic_load_explicit(&header->end.status, memory_order_relaxed);
    process->end.signal = atomic_load_explicit(&header->end.signal, memory_order_relaxed);
    process->file_bytes = atomic_load_explicit(&header->file_bytes, memory_order_relaxed);
    process->file_error = atomic_load_explicit(&header->file_error, memory_order_relaxed);
    process->alive_ns = atomic_load_explicit(&header->alive_ns, memory_order_relaxed);
    if (process->alive_ns != region->alive_ns)
        region->alive_changed_ns = region->read_once ? now_ns : process->alive_ns;
    region->alive_ns = process->alive_ns;

    /* In another PID namespace /proc knows nothing of it, but the drain thread goes on writing. */
    bool signs = now_ns < region->alive_changed_ns + LIFE_SIGN_NS;
    enum rec_live_process state = rec_live_process(&region->live);
    bool runs = state == REC_LIVE_PROCESS_RUNS;
    if (state == REC_LIVE_PROCESS_REPLACED && process->end.reason == REC_END_NONE)
        process->end.reason = REC_END_EXEC;
    process->ended = process->end.reason != REC_END_NONE && !runs;
    process->vanished = process->end.reason == REC_END_NONE && !runs && !signs;
}

static void set_rates(struct top_probe *probe, struct region *region, const struct measured *sum,
                      uint64_t now_ns)
{
    struct top_process *process = &probe->process;
    process->ops_per_s = process->bytes_per_s = NAN;
    if (region->read_once && now_ns > probe->sampled_ns) {
        double seconds = (double)(now_ns - probe->sampled_ns) / 1e9;
        double ops = (double)(process->ops - probe->ops_base);
        process->ops_per_s = ops / seconds;
        /* Not every call may have been looked at: the rest counts as much as those on average. */
        double own = ops - (double)sum->replayed;
        double scale = sum->calls > 0 && own > (double)sum->calls ? own / (double)sum->calls : 1;
        process->bytes_per_s = (double)sum->bytes * scale / seconds;
        top_kind_update(process->kinds, sum->kinds, seconds, scale, !region->rated);
        region->rated = true;
    }
    probe->ops_base = process->ops;
    probe->sampled_ns = now_ns;
}

void top_region_read(struct top_probe *probe, uint64_t now_ns)
{
    struct region *region = probe->reader;
    struct top_process *process = &probe->process;
    struct rec_clock clock;
    struct measured sum;
    rec_live_clock_read(&region->live, &clock);
    read_comms(probe, region, &clock);
    read_threads(probe, region, &clock);
    read_finished(probe, region, &clock, &sum);
    read_gpu(probe, region, &clock);
    read_life(probe, region, now_ns);
    set_rates(probe, region, &sum, now_ns);
    process->in_call = process->nopen > 0;
    process->looked_ns = now_ns;
    if (process->ended || process->vanished) {
        process->ops_per_s = process->bytes_per_s = NAN;
        memset(process->kinds, 0, sizeof process->kinds);
    }
    if (process->in_call)
        process->now = process->open[0];
    region->read_once = true;
}
