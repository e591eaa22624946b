#include "maker.h"

#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

void maker_dir(char *path, size_t size)
{
    snprintf(path, size, "/tmp/rec-job-XXXXXX");
    assert_non_null(mkdtemp(path));
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    return remove(path);
}

void maker_clean(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

void maker_open(struct maker *maker, const char *dir, const char *stem, const char *meta, uint64_t max_bytes)
{
    struct rec_writer_config config = {.max_bytes = max_bytes, .segment_bytes = max_bytes ? 65536 : 0};
    struct rec_error err = {0};
    *maker = (struct maker){.now = T0};
    maker->memory = aligned_alloc(64, (rec_writer_bytes(&config) + 63) & ~(size_t)63);
    assert_non_null(maker->memory);
    maker->writer = rec_writer_init(maker->memory, &config);
    if (rec_writer_open(maker->writer, dir, stem, meta, strlen(meta), &err) != REC_OK)
        fail_msg("%s/%s: %s", dir, stem, err.text);
}

void maker_comm(struct maker *maker, uint32_t id, uint64_t uid, uint32_t nranks, uint32_t rank,
                uint64_t parent_uid)
{
    struct rec_comm_def def = {
        .id = id,
        .state = REC_LIVE_COMM_READY,
        .nranks = nranks,
        .rank = rank,
        .uid = uid,
        .parent_uid = parent_uid,
        .created_ns = maker->now,
        .device = 0,
        .color = -1,
        .made_by = parent_uid ? REC_COMM_SPLIT : REC_COMM_INIT_RANK,
    };
    rec_writer_comm(maker->writer, &def);
}

void maker_world(struct maker *maker, uint64_t uid, uint32_t nranks, uint32_t rank)
{
    struct rec_thread_def thread = {.id = 1, .tid = 4711, .name = "main"};
    rec_writer_thread(maker->writer, &thread);
    maker_comm(maker, 0, uid, nranks, rank, 0);
}

struct rec_op maker_op(uint64_t ordinal, uint64_t seq, uint32_t comm, uint64_t now)
{
    return (struct rec_op){
        .ordinal = ordinal,
        .enter_ns = now,
        .exit_ns = now + 10240,
        .count = 1024,
        .seq = seq,
        .thread = 1,
        .comm = comm,
        .stream = REC_ID_NONE,
        .peer = -1,
        .kind = REC_ALL_REDUCE,
        .dtype = 7,
        .redop = 0,
        .result = REC_RESULT_SUCCESS,
        .state = REC_STATE_ENQUEUED,
    };
}

void maker_ops(struct maker *maker, uint32_t comm, uint64_t first_seq, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct rec_op op = maker_op(maker->ordinal++, first_seq + i, comm, maker->now);
        maker->now += MS;
        rec_writer_ops(maker->writer, &op, 1);
    }
}

void maker_frontier(struct maker *maker, uint32_t comm, uint64_t next_seq)
{
    struct rec_frontier frontier = {.comm = comm, .next_seq = next_seq};
    rec_writer_frontier(maker->writer, maker->now, &frontier);
}

void maker_end(struct maker *maker, uint32_t reason, int status, int signal)
{
    struct rec_end end = {.reason = reason, .status = status, .signal = signal};
    rec_writer_end(maker->writer, maker->now, &end);
}

void maker_close(struct maker *maker)
{
    struct rec_error err = {0};
    if (rec_writer_close(maker->writer, &err) != REC_OK)
        fail_msg("close: %s", err.text);
    free(maker->memory);
}

const char *maker_meta(uint64_t proc_uid, int rank, int world_size, const char *source, const char *id,
                       uint64_t start_ns)
{
    static char text[1024];
    char ranks[64] = "", job[256] = "";
    if (rank >= 0)
        snprintf(ranks, sizeof(ranks), ",\"rank\":%d,\"world_size\":%d", rank, world_size);
    if (source)
        snprintf(job, sizeof(job), ",\"job\":{\"source\":\"%s\",\"id\":\"%s\"}", source, id);
    snprintf(text, sizeof(text),
             "{\"proc_uid\":\"%016llx\",\"host\":\"h1\",\"pid\":%d,\"start_ns\":%llu%s%s}",
             (unsigned long long)proc_uid, 1000 + rank, (unsigned long long)start_ns, ranks, job);
    return text;
}

/* ---- live regions ---- */

uint64_t maker_start_ticks(int pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    assert_true(n > 0);
    text[n] = '\0';
    char *field = strrchr(text, ')') + 2;
    for (int i = 3; i < 22; i++)
        field = strchr(field, ' ') + 1;
    return strtoull(field, NULL, 10);
}

void maker_region(struct maker_region *region, const char *path, uint64_t proc_uid, int pid,
                  uint64_t start_ticks, const char *frec_dir, const char *meta)
{
    struct rec_live_config config = {.comms = 16,
                                     .threads = 16,
                                     .redops = 8,
                                     .streams = 8,
                                     .slots = 16 * REC_LIVE_CHUNK_SLOTS,
                                     .tick_ns = 64};
    struct rec_live_header layout;
    uint64_t bytes = rec_live_layout(&config, &layout);
    *region = (struct maker_region){0};
    snprintf(region->path, sizeof(region->path), "%s", path);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert_true(memory != MAP_FAILED);
    memcpy(memory, &layout, sizeof(layout));
    rec_live_attach(&region->live, memory);
    region->live.bytes = bytes;
    struct rec_live_header *header = region->live.header;
    header->proc_uid = proc_uid;
    header->pid = pid;
    header->start_ticks = start_ticks;
    int boot = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    assert_true(boot >= 0 && read(boot, header->boot_id, 36) == 36);
    close(boot);
    snprintf(header->frec_dir, sizeof(header->frec_dir), "%s", frec_dir);
    snprintf(header->meta, sizeof(header->meta), "%s", meta);
    atomic_store(&header->meta_bytes, (uint32_t)strlen(meta));
    atomic_store(&header->clock.raw0, 1000); /* raw counts are ns, from T0 on */
    atomic_store(&header->clock.real0_ns, T0);
    atomic_store(&header->alive_ns, T0 + S);
    header->magic = REC_LIVE_MAGIC;
}

void maker_region_comm(struct maker_region *region, uint32_t index, uint32_t id, uint64_t uid,
                       uint32_t nranks, uint32_t rank, uint64_t next_seq)
{
    struct rec_live_comm *comm = &region->live.comms[index];
    atomic_store(&comm->id, id);
    atomic_store(&comm->state, REC_LIVE_COMM_READY);
    atomic_store(&comm->uid, uid);
    atomic_store(&comm->nranks, nranks);
    atomic_store(&comm->rank, rank);
    atomic_store(&comm->color, -1);
    atomic_store(&comm->made_by, REC_COMM_INIT_RANK);
    atomic_store(&comm->next_seq, next_seq);
    atomic_store_explicit(&comm->version, 2, memory_order_release);
}

void maker_region_thread(struct maker_region *region, uint32_t index, uint32_t id)
{
    struct rec_live_thread *thread = &region->live.threads[index];
    atomic_store(&thread->tid, 4711);
    strcpy(thread->name, "main");
    atomic_store_explicit(&thread->id, id, memory_order_release);
}

static void put_slot(union rec_live_slot *slot, uint64_t ordinal, bool open)
{
    slot->fields = (struct rec_slot){
        .ordinal = ordinal,
        .enter = 1000 + ordinal * MS,
        .exit = open ? 0 : 1000 + ordinal * MS + 10240,
        .count = 1024,
        .seq = ordinal,
        .comm = 0,
        .stream = REC_LIVE_NONE16,
        .peer = -1,
        .kind = REC_ALL_REDUCE,
        .dtype = 7,
        .result = open ? REC_RESULT_NONE : REC_RESULT_SUCCESS,
    };
}

static struct rec_live_chunk *claim_chunk(struct maker_region *region, uint32_t thread_index,
                                          uint64_t ordinal)
{
    struct rec_live_chunk *chunk = &region->live.chunks[region->next_chunk];
    atomic_store(&chunk->claim, region->next_chunk + 1);
    atomic_store(&chunk->first_ordinal, ordinal);
    atomic_store(&chunk->thread_id, atomic_load(&region->live.threads[thread_index].id));
    atomic_store(&chunk->owner, thread_index + 1);
    atomic_store(&region->live.threads[thread_index].chunk, region->next_chunk + 1);
    region->next_chunk++;
    return chunk;
}

void maker_region_ops(struct maker_region *region, uint32_t thread_index, uint64_t first_ordinal,
                      uint32_t count)
{
    size_t base = (size_t)region->next_chunk * REC_LIVE_CHUNK_SLOTS;
    struct rec_live_chunk *chunk = claim_chunk(region, thread_index, first_ordinal);
    for (uint32_t i = 0; i < count; i++)
        put_slot(&region->live.slots[base + i], first_ordinal + i, false);
    atomic_store_explicit(&chunk->done, count, memory_order_release);
    atomic_store(&region->live.threads[thread_index].ordinal, first_ordinal + count);
}

void maker_region_open(struct maker_region *region, uint32_t thread_index, uint64_t ordinal)
{
    struct rec_live_thread *thread = &region->live.threads[thread_index];
    put_slot(&thread->spill, ordinal, true);
    atomic_store(&thread->spilled, 1);
    atomic_store(&thread->ordinal, ordinal + 1);
    atomic_store_explicit(&thread->open, ordinal + 1, memory_order_release);
}

void maker_region_close(struct maker_region *region)
{
    munmap(region->live.header, region->live.bytes);
}
