/* Watching live regions that the test itself writes: they appear, move, end, are damaged. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fr-top/top.h"

struct region {
    char path[256];
    struct rec_live live;
    uint64_t ordinal;
};

struct place {
    char root[64], live[128], out[128];
    struct region region;
    struct top_watch *watch;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t start_ticks(void)
{
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "r");
    size_t n = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    text[n] = '\0';
    const char *p = strrchr(text, ')');
    for (int field = 2; p != NULL && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p != NULL ? strtoull(p, NULL, 10) : 0;
}

/* The clock counts nanoseconds since the epoch, so that raw times are wall-clock times. */
static void make_region(struct place *place, struct region *region, const char *name, const char *meta)
{
    struct rec_live_config config = {
        .comms = 4, .threads = 4, .redops = 1, .streams = 1, .slots = 512, .tick_ns = 64};
    struct rec_live_header *header = calloc(1, sizeof *header);
    assert_non_null(header);
    uint64_t bytes = rec_live_layout(&config, header);
    snprintf(region->path, sizeof region->path, "%s/%s.live", place->live, name);
    int fd = open(region->path, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert_true(memory != MAP_FAILED);
    memcpy(memory, header, sizeof *header);
    free(header);
    rec_live_attach(&region->live, memory);
    region->live.bytes = bytes;

    header = region->live.header;
    header->proc_uid = rec_mix64((uint64_t)(uintptr_t)region);
    header->pid = getpid();
    header->start_ticks = start_ticks();
    snprintf(header->frec_dir, sizeof header->frec_dir, "%s", place->out);
    snprintf(header->frec_name, sizeof header->frec_name, "%s.frec", name);
    snprintf(header->meta, sizeof header->meta, "%s", meta);
    header->meta_bytes = (uint32_t)strlen(meta);
    header->clock.raw0 = header->clock.real0_ns = 1000;
    header->clock.raw1 = header->clock.real1_ns = now_ns();
    header->alive_ns = now_ns();
    header->version = REC_LIVE_VERSION;
    header->magic = REC_LIVE_MAGIC;
}

static void make_comm(struct region *region, uint32_t index, uint64_t uid, const char *name,
                      uint64_t next_seq)
{
    struct rec_live_comm *comm = &region->live.comms[index];
    comm->version = 1;
    comm->state = REC_LIVE_COMM_READY;
    comm->id = index;
    comm->nranks = 2;
    comm->rank = 1;
    comm->uid = uid;
    comm->made_by = REC_COMM_INIT_RANK;
    comm->created = now_ns();
    snprintf(comm->name, sizeof comm->name, "%s", name);
    comm->next_seq = next_seq;
    comm->version = 2;
}

static void put_slot(struct region *region, uint32_t at, const struct rec_slot *slot)
{
    uint64_t words[8];
    memcpy(words, slot, sizeof words);
    for (size_t i = 0; i < 8; i++)
        region->live.slots[at].words[i] = words[i];
}

static void enter(struct region *region, uint64_t age_ns)
{
    struct rec_live_thread *thread = &region->live.threads[0];
    struct rec_slot slot = {.ordinal = region->ordinal,
                            .enter = now_ns() - age_ns,
                            .count = 1000,
                            .seq = region->live.comms[0].next_seq++,
                            .kind = REC_ALL_REDUCE,
                            .dtype = 7, /* ncclFloat32 */
                            .peer = -1,
                            .stream = REC_LIVE_NONE16};
    region->live.chunks[0].owner = 1;
    region->live.chunks[0].thread_id = 1;
    region->live.chunks[0].claim = 1;
    thread->chunk = 1;
    thread->id = 1;
    put_slot(region, region->live.chunks[0].done, &slot);
    thread->open = ++region->ordinal;
}

static void leave(struct region *region)
{
    struct rec_live_thread *thread = &region->live.threads[0];
    struct rec_slot slot;
    uint32_t at = region->live.chunks[0].done;
    rec_live_slot_load(&region->live.slots[at], &slot);
    slot.exit = now_ns();
    put_slot(region, at, &slot);
    region->live.chunks[0].done = at + 1;
    thread->open = 0;
}

static void drop_region(struct region *region)
{
    unlink(region->path);
    rec_live_unmap(&region->live);
}

static const struct top_snapshot *refresh(struct place *place)
{
    struct top_snapshot *snapshot = NULL;
    struct rec_error err;
    assert_int_equal(top_watch_refresh(place->watch, &snapshot, &err), REC_OK);
    return snapshot;
}

static int set_up(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    if (place == NULL)
        return -1;
    strcpy(place->root, "/tmp/test-top-XXXXXX");
    if (mkdtemp(place->root) == NULL)
        return -1;
    snprintf(place->live, sizeof place->live, "%s/frec-%u", place->root, geteuid());
    snprintf(place->out, sizeof place->out, "%s/out", place->root);
    if (mkdir(place->live, 0700) != 0 || mkdir(place->out, 0700) != 0)
        return -1;
    struct top_options options = {.live_dir = place->root, .stall_sec = 30};
    struct rec_error err;
    place->watch = top_watch_open(&options, &err);
    *state = place;
    return place->watch == NULL;
}

static int tear_down(void **state)
{
    struct place *place = *state;
    top_watch_close(place->watch);
    rmdir(place->live);
    rmdir(place->out);
    rmdir(place->root);
    free(place);
    return 0;
}

static const char meta[] =
    "{\"host\": \"node7\", \"rank\": 3, \"world_size\": 8, \"pid\": 1, \"exe\": \"/bin/x\","
    " \"job\": {\"source\": \"SLURM_JOB_ID\", \"id\": \"4711\"}, \"start_ns\": 5}";

static void test_life(void **state)
{
    struct place *place = *state;
    struct region *region = &place->region;
    assert_int_equal(refresh(place)->nprocesses, 0);

    make_region(place, region, "1-1", meta);
    const struct top_snapshot *s = refresh(place);
    assert_int_equal(s->nprocesses, 1);
    assert_int_equal(s->processes[0].rank, 3);
    assert_string_equal(s->processes[0].host, "node7");
    assert_string_equal(s->job, "4711");
    assert_int_equal(s->processes[0].state, TOP_STARTING);
    assert_true(isnan(s->ops_per_s));

    make_comm(region, 0, 42, "world", 0);
    for (int i = 0; i < 100; i++) {
        enter(region, 0);
        leave(region);
    }
    s = refresh(place);
    assert_int_equal(s->processes[0].state, TOP_RUNNING);
    assert_int_equal(s->processes[0].ops, 100);
    assert_true(s->ops_per_s > 0);
    assert_true(fabs(s->bytes_per_s / s->ops_per_s - 4000) < 1); /* 1000 x f32 each */
    assert_int_equal(s->processes[0].now.op.seq, 99);
    assert_int_equal(s->nkinds, 1);
    assert_int_equal(s->kinds[0].kind, REC_ALL_REDUCE);
    assert_true(fabs(s->kinds[0].sum.size / s->kinds[0].sum.calls - 4000) < 1);
    assert_true(fabs(s->kinds[0].sum.bus / s->kinds[0].sum.size - 1) < 1e-9); /* 2 (n-1)/n, n = 2 */
    assert_int_equal(s->ncomms, 1);
    assert_string_equal(s->comms[0].name, "world");
    s = refresh(place);
    assert_true(s->ops_per_s < 1e-9 && s->bytes_per_s < 1e-9); /* nothing counts twice */

    enter(region, UINT64_C(40000000000));
    s = refresh(place);
    assert_int_equal(s->processes[0].nopen, 1);
    assert_int_equal(s->processes[0].now.op.seq, 100);
    assert_int_equal(s->oldest, 0);
    leave(region);

    region->live.header->end.reason = REC_END_EXIT;
    region->live.header->start_ticks++; /* the pid is somebody else's now */
    drop_region(region);
    s = refresh(place);
    assert_int_equal(s->nprocesses, 1);
    assert_int_equal(s->processes[0].state, TOP_EXITED);
    s = refresh(place);
    assert_int_equal(s->processes[0].state, TOP_EXITED); /* still known, though nothing is left */
}

static void set_launch(struct region *region, uint32_t at, uint16_t number)
{
    struct rec_slot slot;
    rec_live_slot_load(&region->live.slots[at], &slot);
    slot.stream = 0;
    slot.launch = number;
    put_slot(region, at, &slot);
}

/* The process is at the oldest call that the GPU has not finished, whatever the host issued behind it. */
static void test_gpu(void **state)
{
    struct place *place = *state;
    struct region *region = &place->region;
    make_region(place, region, "1-1", meta);
    make_comm(region, 0, 42, "world", 0);
    region->live.streams[0].used = 1;
    for (uint16_t i = 0; i < 4; i++) {
        enter(region, UINT64_C(4000000000) - i * UINT64_C(1000000000));
        leave(region);
        set_launch(region, i, (uint16_t)(i + 1));
    }
    struct rec_live_mark *mark = &region->live.marks[0];
    mark->launched = 4;
    mark->start = 3;
    mark->end = 2;
    const struct top_process *process = &refresh(place)->processes[0];
    assert_int_equal(process->pending, 0); /* nobody says that the marks are kept */
    assert_int_equal(process->now.op.seq, 3);

    region->live.header->gpu = REC_LIVE_GPU_MARKS;
    process = &refresh(place)->processes[0];
    assert_int_equal(process->pending, 2);
    assert_int_equal(process->now.op.seq, 2);
    assert_int_equal(process->now.op.state, REC_STATE_GPU_STARTED);
    mark->end = 3;
    process = &refresh(place)->processes[0];
    assert_int_equal(process->now.op.seq, 3);
    assert_string_equal(top_text_where(&process->now.op), "queue");
    mark->start = mark->end = 4;
    process = &refresh(place)->processes[0];
    assert_int_equal(process->pending, 0);
    assert_int_equal(process->now.op.seq, 3);
    assert_string_equal(top_text_where(&process->now.op), "done");

    /* A call inside a group is with the host until the group ends. */
    enter(region, 0);
    leave(region);
    struct rec_slot slot;
    rec_live_slot_load(&region->live.slots[4], &slot);
    slot.group = 7;
    put_slot(region, 4, &slot);
    set_launch(region, 4, 5);
    mark->launched = 5;
    region->live.threads[0].group = 7;
    assert_string_equal(top_text_where(&refresh(place)->processes[0].now.op), "host");
    region->live.threads[0].group = 0;
    assert_string_equal(top_text_where(&refresh(place)->processes[0].now.op), "queue");
    mark->start = 5;
    assert_string_equal(top_text_where(&refresh(place)->processes[0].now.op), "gpu");
    enter(region, 0);
    assert_string_equal(top_text_where(&refresh(place)->processes[0].now.op), "host");
    drop_region(region);
}

/* Inference replays graphs: each launch is progress, and counts for the calls in it. */
static void test_graph_launches(void **state)
{
    struct place *place = *state;
    struct region *region = &place->region;
    make_region(place, region, "1-1", meta);
    make_comm(region, 0, 42, "world", 3);
    refresh(place);
    for (uint32_t i = 0; i < 5; i++) {
        enter(region, 0);
        leave(region);
        region->live.comms[0].next_seq--;
        struct rec_slot slot;
        rec_live_slot_load(&region->live.slots[i], &slot);
        slot.kind = REC_GRAPH_LAUNCH;
        slot.comm = REC_LIVE_NONE16;
        slot.count = 20;
        slot.seq = i;
        put_slot(region, i, &slot);
    }
    const struct top_process *process = &refresh(place)->processes[0];
    assert_int_equal(process->ops, 3 + 100);
    assert_true(process->ops_per_s > 0);
    assert_int_equal(process->now.op.kind, REC_GRAPH_LAUNCH);
    assert_int_equal(process->now.op.seq, 4);
    assert_int_equal(process->state, TOP_RUNNING);
    assert_int_equal(refresh(place)->processes[0].ops, 103);
    drop_region(region);
}

static void test_killed(void **state)
{
    struct place *place = *state;
    struct region *region = &place->region;
    make_region(place, region, "1-1", meta);
    make_comm(region, 0, 42, "", 3);
    region->live.header->start_ticks++;
    region->live.header->alive_ns = now_ns() - UINT64_C(2000000000);
    assert_int_equal(refresh(place)->processes[0].state, TOP_DEAD);
    /* Recovered: the region is gone, and what is in the trace is not ours to show. */
    drop_region(region);
    assert_int_equal(refresh(place)->nprocesses, 0);
}

/* A process of another PID namespace: /proc does not know it, yet it writes. */
static void test_other_namespace(void **state)
{
    struct place *place = *state;
    make_region(place, &place->region, "1-1", meta);
    place->region.live.header->start_ticks++;
    assert_int_not_equal(refresh(place)->processes[0].state, TOP_DEAD);
    drop_region(&place->region);
}

static void test_reused_entry(void **state)
{
    struct place *place = *state;
    struct region *region = &place->region;
    make_region(place, region, "1-1", meta);
    make_comm(region, 0, 42, "old", 500);
    assert_int_equal(refresh(place)->processes[0].ops, 500);
    make_comm(region, 0, 43, "new", 7);
    region->live.comms[0].id = 9;
    const struct top_snapshot *s = refresh(place);
    assert_int_equal(s->processes[0].ops, 507);
    assert_string_equal(s->comms[0].name, "new");
    drop_region(region);
}

/* Whatever stands in the region: no crash, no endless loop, bounded text. */
static void test_nonsense(void **state)
{
    struct place *place = *state;
    struct region *region = &place->region;
    make_region(place, region, "1-1", "{\"host\": 5, \"rank\": -7, \"job\": [], \"world_size\": 1e300");
    struct rec_live_header keep = *region->live.header;
    unsigned random = 1;
    for (int round = 0; round < 50; round++) {
        unsigned char *bytes = (unsigned char *)region->live.header;
        for (uint64_t i = keep.header_bytes; i < region->live.bytes; i++) {
            random = random * 1103515245u + 12345u;
            bytes[i] = (unsigned char)(random >> 16);
        }
        memset(region->live.comms[round % 4].name, 'x', sizeof region->live.comms[0].name);
        const struct top_snapshot *s = refresh(place);
        assert_int_equal(s->nprocesses, 1);
        for (uint32_t m = 0; m < s->nmembers; m++)
            assert_true(strlen(s->members[m].name) < sizeof s->members[m].name);
    }
    drop_region(region);
}

static void test_not_ours(void **state)
{
    struct place *place = *state;
    char path[256];
    snprintf(path, sizeof path, "%s/2-2.live", place->live);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("not a region", file);
    fclose(file);
    const struct top_snapshot *s = refresh(place);
    assert_int_equal(s->nprocesses, 0);
    assert_string_equal(s->warning, ""); /* may be one that is just being made */
    make_region(place, &place->region, "1-1", meta);
    place->region.live.header->version = 999;
    s = refresh(place);
    assert_int_equal(s->nprocesses, 0);
    assert_non_null(strstr(s->warning, "version 999"));
    drop_region(&place->region);
    unlink(path);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_life),         TEST(test_killed),         TEST(test_other_namespace),
        TEST(test_reused_entry), TEST(test_nonsense),       TEST(test_not_ours),
        TEST(test_gpu),          TEST(test_graph_launches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
