#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define LOAD(word) atomic_load_explicit(&(word), memory_order_relaxed)

/* The region may change under us, and so might its header: everything is checked on the copy. */
static bool table_fits(uint64_t total, uint64_t offset, uint64_t count, uint64_t size)
{
    return offset % 8 == 0 && offset <= total && count <= (total - offset) / size;
}

static bool layout_fits(const struct rec_live_header *h, uint64_t total)
{
    return h->header_bytes >= sizeof(*h) && h->header_bytes <= total && h->chunk_slots > 0 &&
           h->chunk_slots <= 65536 &&
           table_fits(total, h->comm_offset, h->comm_count, sizeof(struct rec_live_comm)) &&
           table_fits(total, h->thread_offset, h->thread_count, sizeof(struct rec_live_thread)) &&
           table_fits(total, h->redop_offset, h->redop_count, sizeof(struct rec_live_redop)) &&
           table_fits(total, h->stream_offset, h->stream_count, sizeof(struct rec_live_stream)) &&
           table_fits(total, h->mark_offset, h->stream_count, sizeof(struct rec_live_mark)) &&
           table_fits(total, h->callsite_offset, h->callsite_bytes, 1) &&
           table_fits(total, h->chunk_offset, h->chunk_count, sizeof(struct rec_live_chunk)) &&
           table_fits(total, h->slot_offset, (uint64_t)h->chunk_count * h->chunk_slots,
                      sizeof(union rec_live_slot));
}

/* Word by word: a reader in another process than the writer, and the words change. */
static void copy_words(void *to, const void *from, size_t bytes)
{
    uint64_t *out = to;
    const _Atomic uint64_t *in = from;
    for (size_t i = 0; i < bytes / 8; i++)
        out[i] = atomic_load_explicit(&in[i], memory_order_relaxed);
}

static enum rec_code copy_header(const struct rec_live *live, const char *path, struct job_snapshot *s,
                                 struct rec_error *err)
{
    if (live->bytes > JOB_MAX_LIVE_BYTES)
        return rec_error_set(err, REC_ERR_LIMIT, path, 0, "the live region is larger than 1 GiB");
    /* Untouched pages of the copy cost nothing. */
    s->memory = calloc(1, live->bytes);
    if (!s->memory)
        return rec_error_set(err, REC_ERR_NOMEM, path, 0, "no memory");
    struct rec_live_header *header = s->memory;
    uint32_t reason = atomic_load_explicit(&live->header->end.reason, memory_order_acquire);
    uint32_t meta_bytes = atomic_load_explicit(&live->header->meta_bytes, memory_order_acquire);
    copy_words(header, live->header, sizeof(*header));
    atomic_store_explicit(&header->end.reason, reason, memory_order_relaxed);
    atomic_store_explicit(&header->meta_bytes, meta_bytes, memory_order_relaxed);
    if (!layout_fits(header, live->bytes))
        return rec_error_set(err, REC_ERR_CORRUPT, path, 0, "the live region's layout is damaged");
    header->frec_dir[REC_LIVE_PATH_BYTES - 1] = '\0';
    header->frec_name[REC_LIVE_PATH_BYTES - 1] = '\0';
    header->meta[REC_LIVE_META_BYTES - 1] = '\0';
    rec_live_attach(&s->copy, s->memory);
    s->copy.bytes = live->bytes;
    return REC_OK;
}

/*
 * Counters of communicators first, then those of threads: no counter speaks of a call that
 * the threads' ordinals, where this picture ends, do not cover.
 */
static void copy_counters(const struct rec_live *live, struct rec_live *copy)
{
    for (uint32_t i = 0; i < copy->header->comm_count; i++)
        copy_words(&copy->comms[i], &live->comms[i], sizeof(copy->comms[i]));
    atomic_thread_fence(memory_order_acquire);
    for (uint32_t i = 0; i < copy->header->thread_count; i++) {
        uint32_t id = atomic_load_explicit(&live->threads[i].id, memory_order_acquire);
        copy_words(&copy->threads[i], &live->threads[i], sizeof(copy->threads[i]));
        atomic_store_explicit(&copy->threads[i].id, id, memory_order_relaxed);
        copy->threads[i].name[sizeof(copy->threads[i].name) - 1] = '\0';
    }
}

/*
 * A definition under its seqlock; version becomes 0 in the copy when none is published or it
 * kept changing. An entry that was reused since its counters were copied loses them.
 */
static void copy_comm(const struct rec_live_comm *from, struct rec_live_comm *to)
{
    uint32_t counted_id = LOAD(to->id);
    atomic_store_explicit(&to->version, 0, memory_order_relaxed);
    for (int attempt = 0; attempt < 100; attempt++) {
        uint32_t version = atomic_load_explicit(&from->version, memory_order_acquire);
        if (version == 0)
            return;
        if (version & 1)
            continue;
        copy_words(to, from, offsetof(struct rec_live_comm, next_seq));
        atomic_thread_fence(memory_order_acquire);
        if (LOAD(from->version) == version)
            break;
        atomic_store_explicit(&to->version, 0, memory_order_relaxed);
    }
    to->name[sizeof(to->name) - 1] = '\0';
    if (LOAD(to->id) != counted_id)
        memset(&to->next_seq, 0, sizeof(*to) - offsetof(struct rec_live_comm, next_seq));
}

static void copy_definitions(const struct rec_live *live, struct rec_live *copy)
{
    const struct rec_live_header *h = copy->header;
    for (uint32_t i = 0; i < h->comm_count; i++)
        copy_comm(&live->comms[i], &copy->comms[i]);
    for (uint32_t i = 0; i < h->redop_count; i++)
        if (atomic_load_explicit(&live->redops[i].used, memory_order_acquire))
            copy_words(&copy->redops[i], &live->redops[i], sizeof(copy->redops[i]));
    for (uint32_t i = 0; i < h->stream_count; i++)
        if (atomic_load_explicit(&live->streams[i].used, memory_order_acquire))
            copy_words(&copy->streams[i], &live->streams[i], sizeof(copy->streams[i]));
    for (uint32_t i = 0; i < h->stream_count; i++)
        copy_words(&copy->marks[i], &live->marks[i], sizeof(copy->marks[i]));
}

/* The index first: a site that can be found there is complete in the arena, which is copied later. */
static void copy_callsites(const struct rec_live *live, struct rec_live *copy)
{
    uint64_t bytes = copy->header->callsite_bytes & ~UINT64_C(7);
    struct rec_callsite_header header;
    if (bytes < sizeof(header))
        return;
    copy_words(&header, live->callsites, sizeof(header));
    uint64_t index = header.arena_offset < bytes ? header.arena_offset & ~7u : 0;
    copy_words(copy->callsites, live->callsites, index);
    atomic_thread_fence(memory_order_acquire);
    const struct rec_callsite_header *now = live->callsites;
    uint64_t used = ((uint64_t)LOAD(now->used) + 7) & ~UINT64_C(7);
    used = used < bytes ? used : bytes;
    if (used > index)
        copy_words((char *)copy->callsites + index, (const char *)live->callsites + index, used - index);
}

/*
 * How many of count copied slots belong to the picture: chunks are copied one after the
 * other while threads go on, and what was entered after the counters were copied would leave
 * holes.
 */
static uint32_t trim(const union rec_live_slot *slots, uint32_t count, uint64_t entered)
{
    while (count > 0 && slots[count - 1].fields.ordinal >= entered)
        count--;
    return count;
}

/*
 * The finished slots of one chunk. A chunk that is freed or claimed anew meanwhile was fully
 * drained before, so its ops are in the file, which is read later: it is dropped here.
 */
static bool copy_chunk(const struct rec_live *live, struct rec_live *copy, uint32_t i)
{
    const struct rec_live_chunk *from = &live->chunks[i];
    struct rec_live_chunk *to = &copy->chunks[i];
    uint32_t slots = copy->header->chunk_slots;
    uint32_t owner = atomic_load_explicit(&from->owner, memory_order_acquire);
    if (owner == 0)
        return false;
    uint64_t claim = LOAD(from->claim), first = LOAD(from->first_ordinal);
    uint32_t thread_id = LOAD(from->thread_id);
    uint32_t done = atomic_load_explicit(&from->done, memory_order_acquire);
    if (done > slots || thread_id == 0 || owner > copy->header->thread_count ||
        LOAD(copy->threads[owner - 1].id) != thread_id)
        return false;
    for (uint32_t k = 0; k < done; k++) {
        struct rec_slot slot;
        rec_live_slot_load(&live->slots[(size_t)i * slots + k], &slot);
        copy->slots[(size_t)i * slots + k].fields = slot;
    }
    atomic_thread_fence(memory_order_acquire);
    if (LOAD(from->owner) != owner || LOAD(from->claim) != claim || LOAD(from->first_ordinal) != first ||
        LOAD(from->thread_id) != thread_id)
        return false;
    done = trim(&copy->slots[(size_t)i * slots], done, LOAD(copy->threads[owner - 1].ordinal));
    atomic_store_explicit(&to->owner, owner, memory_order_relaxed);
    atomic_store_explicit(&to->claim, claim, memory_order_relaxed);
    atomic_store_explicit(&to->first_ordinal, first, memory_order_relaxed);
    atomic_store_explicit(&to->thread_id, thread_id, memory_order_relaxed);
    atomic_store_explicit(&to->done, done, memory_order_relaxed);
    return done > 0;
}

static int by_thread_and_age(const void *a, const void *b, void *arg)
{
    const struct rec_live_chunk *chunks = arg;
    const struct rec_live_chunk *x = &chunks[*(const uint32_t *)a], *y = &chunks[*(const uint32_t *)b];
    if (LOAD(x->thread_id) != LOAD(y->thread_id))
        return LOAD(x->thread_id) < LOAD(y->thread_id) ? -1 : 1;
    if (LOAD(x->claim) != LOAD(y->claim))
        return LOAD(x->claim) < LOAD(y->claim) ? -1 : 1;
    return 0;
}

struct open_call {
    struct rec_slot slot;
    uint32_t thread_id;
};

/* Open calls while they are open; converted when the definitions are there. */
static uint32_t copy_open(const struct rec_live *live, const struct rec_live *copy, struct open_call *calls)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < copy->header->thread_count; i++) {
        uint32_t id = LOAD(copy->threads[i].id);
        if (id && rec_live_open_op(live, i, &calls[count].slot) &&
            calls[count].slot.ordinal < LOAD(copy->threads[i].ordinal))
            calls[count++].thread_id = id;
    }
    return count;
}

/* Calls that finished while the slots were copied are among the slots. */
static bool still_open(const struct job_snapshot *s, const struct rec_op *op)
{
    uint32_t slots = s->copy.header->chunk_slots;
    for (uint32_t i = 0; i < s->nchunks; i++) {
        const struct rec_live_chunk *chunk = &s->copy.chunks[s->chunks[i]];
        if (LOAD(chunk->thread_id) != op->thread)
            continue;
        uint32_t done = LOAD(chunk->done);
        if (s->copy.slots[(size_t)s->chunks[i] * slots + done - 1].fields.ordinal >= op->ordinal)
            return false;
    }
    return true;
}

static void convert_open(struct job_snapshot *s, const struct open_call *calls, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct rec_op *op = &s->open[s->nopen];
        rec_live_to_op(&s->copy, &s->clock, calls[i].thread_id, &calls[i].slot, op);
        op->flags |= REC_OF_OPEN | REC_OF_LATE;
        op->exit_ns = 0;
        if (still_open(s, op))
            s->nopen++;
    }
}

/* Nobody in the process could say it: exec leaves no time for that. */
static void note_exec(struct rec_live_end *end, uint64_t time_ns)
{
    if (LOAD(end->reason) != REC_END_NONE)
        return;
    atomic_store_explicit(&end->reason, REC_END_EXEC, memory_order_relaxed);
    atomic_store_explicit(&end->time_ns, time_ns, memory_order_relaxed);
}

static enum rec_code fill(const struct rec_live *live, const char *path, struct job_snapshot *s,
                          struct rec_error *err)
{
    enum rec_code code = copy_header(live, path, s, err);
    if (code != REC_OK)
        return code;
    const struct rec_live_header *h = s->copy.header;
    enum rec_live_process process = rec_live_process(&s->copy);
    s->alive = process == REC_LIVE_PROCESS_RUNS;
    if (process == REC_LIVE_PROCESS_REPLACED)
        note_exec(&s->copy.header->end, LOAD(s->copy.header->alive_ns));
    s->chunks = calloc((size_t)h->chunk_count + 1, sizeof(*s->chunks));
    s->open = calloc((size_t)h->thread_count + 1, sizeof(*s->open));
    struct open_call *calls = calloc((size_t)h->thread_count + 1, sizeof(*calls));
    if (!s->chunks || !s->open || !calls) {
        free(calls);
        return rec_error_set(err, REC_ERR_NOMEM, path, 0, "no memory");
    }
    copy_counters(live, &s->copy);
    uint32_t nopen = copy_open(live, &s->copy, calls);
    for (uint32_t i = 0; i < h->chunk_count; i++)
        if (copy_chunk(live, &s->copy, i))
            s->chunks[s->nchunks++] = i;
    qsort_r(s->chunks, s->nchunks, sizeof(*s->chunks), by_thread_and_age, s->copy.chunks);
    copy_definitions(live, &s->copy);
    if (s->copy.callsites)
        copy_callsites(live, &s->copy);
    rec_live_clock_read(live, &s->clock);
    convert_open(s, calls, nopen);
    free(calls);
    return REC_OK;
}

enum rec_code job_snapshot_take(const char *path, struct job_snapshot **snapshot, struct rec_error *err)
{
    struct rec_live live;
    enum rec_code code = rec_live_map(path, false, &live, err);
    if (code != REC_OK)
        return code;
    struct job_snapshot *s = calloc(1, sizeof(*s));
    code = s ? fill(&live, path, s, err) : rec_error_set(err, REC_ERR_NOMEM, path, 0, "no memory");
    rec_live_unmap(&live);
    if (code != REC_OK) {
        job_snapshot_free(s);
        return code;
    }
    *snapshot = s;
    return REC_OK;
}

void job_snapshot_free(struct job_snapshot *snapshot)
{
    if (!snapshot)
        return;
    free(snapshot->memory);
    free(snapshot->chunks);
    free(snapshot->open);
    free(snapshot);
}

bool job_snapshot_comm(const struct job_snapshot *snapshot, uint32_t index, struct rec_comm_def *def)
{
    const struct rec_live_comm *comm = &snapshot->copy.comms[index];
    if (LOAD(comm->version) == 0 || LOAD(comm->state) == REC_LIVE_COMM_FREE)
        return false;
    *def = (struct rec_comm_def){
        .id = LOAD(comm->id),
        .state = LOAD(comm->state),
        .nranks = LOAD(comm->nranks),
        .rank = LOAD(comm->rank),
        .uid = LOAD(comm->uid),
        .parent_uid = LOAD(comm->parent_uid),
        .parent_seq = LOAD(comm->parent_seq),
        .comm_hash = LOAD(comm->comm_hash),
        .handle = LOAD(comm->handle),
        .created_ns = LOAD(comm->created) ? rec_clock_ns(&snapshot->clock, LOAD(comm->created)) : 0,
        .device = LOAD(comm->device),
        .color = LOAD(comm->color),
        .made_by = LOAD(comm->made_by),
        .async_error = LOAD(comm->async_error),
    };
    memcpy(def->name, comm->name, sizeof(def->name));
    return true;
}

bool job_snapshot_thread(const struct job_snapshot *snapshot, uint32_t index, struct rec_thread_def *def)
{
    const struct rec_live_thread *thread = &snapshot->copy.threads[index];
    *def = (struct rec_thread_def){.id = LOAD(thread->id), .tid = LOAD(thread->tid)};
    memcpy(def->name, thread->name, sizeof(def->name));
    return def->id != 0;
}

bool job_snapshot_redop(const struct job_snapshot *snapshot, uint32_t index, struct rec_redop_def *def)
{
    const struct rec_live_redop *redop = &snapshot->copy.redops[index];
    *def = (struct rec_redop_def){
        .redop = REC_REDOP_USER + index,
        .dtype = redop->dtype,
        .residence = redop->residence,
        .comm = redop->comm_id,
        .scalar = redop->scalar,
        .hash = redop->hash,
    };
    return LOAD(redop->used) != 0 && index < 256 - REC_REDOP_USER;
}

bool job_snapshot_stream(const struct job_snapshot *snapshot, uint32_t index, struct rec_stream_def *def)
{
    const struct rec_live_stream *stream = &snapshot->copy.streams[index];
    *def = (struct rec_stream_def){.id = index, .device = stream->device, .handle = stream->handle};
    return LOAD(stream->used) != 0;
}
