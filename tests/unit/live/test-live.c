#include "region.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];

static int make_directory(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/test-live-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", directory);
    return system(command);
}

static const char *write_file(const void *data, size_t bytes)
{
    static char path[96];
    snprintf(path, sizeof(path), "%s/x.live", directory);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), (ssize_t)bytes);
    close(fd);
    return path;
}

static void layout_is_ordered_and_aligned(void **state)
{
    (void)state;
    const struct rec_live_config config = {.comms = 3, .threads = 5, .redops = 7, .streams = 9, .slots = 129};
    struct rec_live_header *header = malloc(sizeof(*header));
    uint64_t bytes = rec_live_layout(&config, header);
    const uint64_t offsets[] = {header->header_bytes, header->comm_offset,   header->thread_offset,
                                header->redop_offset, header->stream_offset, header->mark_offset,
                                header->chunk_offset, header->slot_offset,   bytes};
    for (size_t i = 1; i < sizeof(offsets) / sizeof(offsets[0]); i++)
        assert_true(offsets[i] >= offsets[i - 1]);
    for (size_t i = 1; i + 1 < sizeof(offsets) / sizeof(offsets[0]); i++)
        assert_int_equal(offsets[i] % 64, 0);
    assert_int_equal(header->chunk_count, 2);
    assert_int_equal(bytes - header->slot_offset, 2 * REC_LIVE_CHUNK_SLOTS * 64);
    free(header);
}

static void maps_what_was_written(void **state)
{
    (void)state;
    struct rec_live live, mapped;
    void *memory = make_region(&small_region, &live);
    add_comm(&live, 2, 17, REC_LIVE_COMM_READY);
    struct rec_error err;
    assert_int_equal(rec_live_map(write_file(memory, live.bytes), false, &mapped, &err), REC_OK);
    assert_int_equal(atomic_load(&mapped.comms[2].id), 17);
    rec_live_unmap(&mapped);
    free(memory);
}

/* Every damage to the header is refused; none of it may fault. */
static void refuses_damaged_headers(void **state)
{
    (void)state;
    struct rec_live live, mapped;
    void *memory = make_region(&small_region, &live);
    struct rec_error err;
    struct {
        void *field;
        size_t size;
        enum rec_code code;
    } fields[] = {
        {&live.header->magic, 8, REC_ERR_FORMAT},
        {&live.header->version, 4, REC_ERR_VERSION},
        {&live.header->header_bytes, 4, REC_ERR_CORRUPT},
        {&live.header->total_bytes, 8, REC_ERR_CORRUPT},
        {&live.header->comm_count, 4, REC_ERR_CORRUPT},
        {&live.header->thread_count, 4, REC_ERR_CORRUPT},
        {&live.header->redop_count, 4, REC_ERR_CORRUPT},
        {&live.header->stream_count, 4, REC_ERR_CORRUPT},
        {&live.header->chunk_count, 4, REC_ERR_CORRUPT},
        {&live.header->chunk_slots, 4, REC_ERR_CORRUPT},
        {&live.header->comm_offset, 8, REC_ERR_CORRUPT},
        {&live.header->slot_offset, 8, REC_ERR_CORRUPT},
        {&live.header->meta_bytes, 4, REC_ERR_CORRUPT},
        {live.header->frec_dir, sizeof(live.header->frec_dir), REC_ERR_CORRUPT},
        {live.header->boot_id, sizeof(live.header->boot_id), REC_ERR_CORRUPT},
    };
    char kept[REC_LIVE_PATH_BYTES];
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        memcpy(kept, fields[i].field, fields[i].size);
        memset(fields[i].field, 0xff, fields[i].size);
        assert_int_equal(rec_live_map(write_file(memory, live.bytes), false, &mapped, &err), fields[i].code);
        assert_true(err.text[0] != '\0');
        memcpy(fields[i].field, kept, fields[i].size);
    }
    const size_t lengths[] = {0, 1, 100, sizeof(struct rec_live_header), live.bytes - 1};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        assert_int_not_equal(rec_live_map(write_file(memory, lengths[i]), false, &mapped, &err), REC_OK);
    assert_int_equal(rec_live_map(write_file(memory, live.bytes), false, &mapped, &err), REC_OK);
    rec_live_unmap(&mapped);
    free(memory);
}

static void refuses_links_and_strange_files(void **state)
{
    (void)state;
    struct rec_live live, mapped;
    void *memory = make_region(&small_region, &live);
    const char *path = write_file(memory, live.bytes);
    char link_path[96], fifo_path[96];
    struct rec_error err;
    snprintf(link_path, sizeof(link_path), "%s/link", directory);
    snprintf(fifo_path, sizeof(fifo_path), "%s/fifo", directory);
    assert_int_equal(symlink(path, link_path), 0);
    assert_int_equal(mkfifo(fifo_path, 0600), 0);
    assert_int_equal(rec_live_map(link_path, false, &mapped, &err), REC_ERR_IO);
    assert_int_equal(rec_live_map(fifo_path, false, &mapped, &err), REC_ERR_FORMAT);
    assert_int_not_equal(rec_live_map(directory, false, &mapped, &err), REC_OK);
    assert_int_equal(rec_live_map("/nowhere/at/all", false, &mapped, &err), REC_ERR_IO);
    free(memory);
}

/* Indices inside the tables are the process's own words: whatever they hold, reading stays inside. */
static void open_op_survives_hostile_indices(void **state)
{
    (void)state;
    struct rec_live live;
    void *memory = make_region(&small_region, &live);
    add_thread(&live, 0, 1);
    struct rec_slot slot;
    atomic_store(&live.threads[0].open, 1);
    const uint32_t chunks[] = {0, 5, 1000000, UINT32_MAX};
    for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
        atomic_store(&live.threads[0].chunk, chunks[i]);
        assert_false(rec_live_open_op(&live, 0, &slot));
    }
    atomic_store(&live.threads[0].chunk, 1);
    atomic_store(&live.chunks[0].done, UINT32_MAX);
    assert_false(rec_live_open_op(&live, 0, &slot));
    free(memory);
}

/* The moment in which a call is done and still told as open, of a thread's first call, too. */
static void a_call_that_returns_is_not_open(void **state)
{
    (void)state;
    struct rec_live live;
    void *memory = make_region(&small_region, &live);
    add_thread(&live, 0, 1);
    struct rec_slot slot;
    for (uint64_t open = 1; open <= 3; open++) {
        union rec_live_slot *own = open_op(&live, 0, 0);
        assert_true(rec_live_open_op(&live, 0, &slot));
        assert_int_equal(slot.ordinal, open - 1);
        close_op(&live, 0, own);
        atomic_store(&live.threads[0].open, open);
        assert_false(rec_live_open_op(&live, 0, &slot));
        atomic_store(&live.threads[0].open, 0);
    }
    free(memory);
}

struct race {
    struct rec_live live;
    _Atomic bool stop;
};

static void *keep_calling(void *argument)
{
    struct race *race = argument;
    while (!atomic_load(&race->stop)) {
        /* Chunks are emptied behind the writer's back, as a drain does; sometimes none is free. */
        run_ops(&race->live, 0, 0, 50);
        for (uint32_t i = 0; i < race->live.header->chunk_count; i++)
            if (atomic_load(&race->live.chunks[i].done) == REC_LIVE_CHUNK_SLOTS &&
                atomic_load(&race->live.threads[0].ordinal) % 100 < 50) {
                atomic_store(&race->live.chunks[i].done, 0);
                atomic_store(&race->live.chunks[i].owner, 0);
            }
    }
    return NULL;
}

/* A copy that is given out is whole: all fields belong to one op. */
static void open_op_is_never_torn(void **state)
{
    (void)state;
    struct race race = {.stop = false};
    void *memory = make_region(&small_region, &race.live);
    add_thread(&race.live, 0, 1);
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, keep_calling, &race), 0);
    unsigned seen = 0;
    for (unsigned i = 0; i < 400000 || (seen == 0 && i < 100000000); i++) {
        struct rec_slot slot;
        if (!rec_live_open_op(&race.live, 0, &slot))
            continue;
        seen++;
        assert_int_equal(slot.enter, 1000 + slot.ordinal * 10);
        assert_int_equal(slot.count, slot.ordinal * 3);
        assert_int_equal(slot.seq, slot.ordinal);
        assert_int_equal(slot.exit, 0);
        assert_int_equal(slot.kind, REC_ALL_REDUCE);
        assert_int_equal(slot.result, REC_RESULT_NONE);
    }
    atomic_store(&race.stop, true);
    pthread_join(writer, NULL);
    assert_true(seen > 0);
    free(memory);
}

static void clock_interpolates(void **state)
{
    (void)state;
    struct rec_live live;
    void *memory = make_region(&small_region, &live);
    struct rec_clock clock;
    rec_live_clock_read(&live, &clock);
    assert_int_equal(rec_clock_ns(&clock, 1005), UINT64_C(1700000000000000005)); /* one pair: 1 ns a count */
    atomic_store(&live.header->clock.raw1, 1000 + UINT64_C(3000000000) * 100);
    atomic_store(&live.header->clock.real1_ns, UINT64_C(1700000000000000000) + UINT64_C(100000000000));
    rec_live_clock_read(&live, &clock); /* 3 GHz over 100 s */
    uint64_t at = rec_clock_ns(&clock, 1000 + UINT64_C(3000000000) * 50);
    assert_true(at >= UINT64_C(1700000050000000000) - 20 && at <= UINT64_C(1700000050000000000));
    assert_int_equal(rec_clock_ns(&clock, 1000), UINT64_C(1700000000000000000));
    assert_true(rec_clock_ns(&clock, 0) < UINT64_C(1700000000000000000));
    free(memory);
}

static void states_are_never_guessed_upwards(void **state)
{
    (void)state;
    struct rec_live live;
    void *memory = make_region(&small_region, &live);
    struct rec_clock clock;
    rec_live_clock_read(&live, &clock);
    const struct {
        struct rec_slot slot;
        enum rec_state want;
    } cases[] = {
        {{.kind = REC_ALL_REDUCE, .result = REC_RESULT_NONE}, REC_STATE_IN_CALL},
        {{.kind = REC_ALL_REDUCE, .exit = 9, .result = 0}, REC_STATE_ENQUEUED},
        {{.kind = REC_ALL_REDUCE, .exit = 9, .result = 0, .group = 3}, REC_STATE_IN_CALL},
        {{.kind = REC_ALL_REDUCE, .exit = 9, .result = 7}, REC_STATE_IN_CALL},
        {{.kind = REC_ALL_REDUCE, .exit = 9, .result = 5}, REC_STATE_FAILED},
        {{.kind = REC_COMM_INIT_RANK, .exit = 9, .result = 0}, REC_STATE_COMPLETED},
        {{.kind = REC_GROUP_END, .exit = 9, .result = 0, .group = 3}, REC_STATE_COMPLETED},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rec_op op;
        rec_live_to_op(&live, &clock, 1, &cases[i].slot, &op);
        assert_int_equal(op.state, cases[i].want);
    }
    free(memory);
}

/* One-sided calls keep their signal where others have their position, also when they were refused. */
static void signals_are_no_positions(void **state)
{
    (void)state;
    struct rec_live live;
    void *memory = make_region(&small_region, &live);
    struct rec_clock clock;
    rec_live_clock_read(&live, &clock);
    uint64_t signal = rec_signal_id(2, 1);
    struct rec_slot slots[] = {{.kind = REC_SIGNAL, .exit = 9, .seq = signal},
                               {.kind = REC_SIGNAL, .exit = 9, .seq = signal, .flags = REC_OF_NO_SEQ},
                               {.kind = REC_ALL_REDUCE, .exit = 9, .seq = signal}};
    for (size_t i = 0; i < 3; i++) {
        struct rec_op op;
        rec_live_to_op(&live, &clock, 1, &slots[i], &op);
        assert_int_equal(op.signal, i < 2 ? signal : 0);
        assert_int_equal(op.seq, i < 2 ? 0 : signal);
    }
    assert_int_equal(rec_signal_index(signal), 2);
    assert_int_equal(rec_signal_context(signal), 1);
    assert_true(rec_signal_known(signal));
    assert_false(rec_signal_known(REC_SIGNAL_SEVERAL));
    assert_false(rec_signal_known(REC_SIGNAL_UNKNOWN));
    free(memory);
}

static void tells_the_living_from_the_dead(void **state)
{
    (void)state;
    struct rec_live live;
    void *memory = make_region(&small_region, &live);
    live.header->pid = getpid();
    live.header->start_ticks = 1; /* the pid is in use, but by a process that began at another time */
    assert_false(rec_live_process_alive(&live));
    live.header->pid = 0x7ffffff0;
    assert_false(rec_live_process_alive(&live));

    FILE *stat = fopen("/proc/self/stat", "r");
    char line[1024];
    assert_non_null(fgets(line, sizeof(line), stat));
    fclose(stat);
    unsigned long long ticks = 0;
    assert_int_equal(
        sscanf(strrchr(line, ')') + 2,
               "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &ticks),
        1);
    live.header->pid = getpid();
    live.header->start_ticks = ticks;
    assert_true(rec_live_process_alive(&live));
    strcpy(live.header->boot_id, "another boot");
    assert_false(rec_live_process_alive(&live));
    free(memory);
}

/* A slot holds the low bits of its launch's number; the last number given makes it whole. */
static void launch_numbers_are_whole_again(void **state)
{
    (void)state;
    static const struct {
        uint64_t launched;
        uint16_t low;
        uint64_t whole;
    } cases[] = {{1, 1, 1},
                 {70000, 70000 & 0xffff, 70000},
                 {65537, 0xffff, 65535},
                 {65537, 1, 65537},
                 {200000, 0, 0},
                 {3, 9, 0}, /* a number that was never given */
                 {131073, 2, 65538}};
    struct rec_live live;
    void *memory = make_region(&small_region, &live);
    struct rec_clock clock = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rec_slot slot = {.stream = 2, .launch = cases[i].low, .kind = REC_ALL_REDUCE};
        struct rec_op op;
        atomic_store(&live.marks[2].launched, cases[i].launched);
        rec_live_to_op(&live, &clock, 1, &slot, &op);
        assert_int_equal(op.launch, cases[i].whole);
    }
    free(memory);
}

static void marks_raise_states(void **state)
{
    (void)state;
    static const struct {
        enum rec_state before;
        uint64_t launch;
        enum rec_state after;
    } cases[] = {
        {REC_STATE_ENQUEUED, 5, REC_STATE_COMPLETED},      {REC_STATE_ENQUEUED, 6, REC_STATE_GPU_STARTED},
        {REC_STATE_ENQUEUED, 7, REC_STATE_ENQUEUED},       {REC_STATE_ENQUEUED, 0, REC_STATE_ENQUEUED},
        {REC_STATE_IN_CALL, 5, REC_STATE_COMPLETED},       {REC_STATE_IN_CALL, 6, REC_STATE_IN_CALL},
        {REC_STATE_UNKNOWN, 5, REC_STATE_COMPLETED},       {REC_STATE_FAILED, 5, REC_STATE_FAILED},
        {REC_STATE_GPU_STARTED, 7, REC_STATE_GPU_STARTED}, /* known otherwise: never lowered */
    };
    struct rec_live live;
    void *memory = make_region(&small_region, &live);
    struct rec_gpu gpu;
    atomic_store(&live.marks[1].start, 6);
    atomic_store(&live.marks[1].end, 5);
    rec_live_gpu(&live, 1, &gpu);
    assert_int_equal(gpu.started, 6);
    assert_int_equal(gpu.ended, 5);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rec_op op = {.state = (uint8_t)cases[i].before, .launch = cases[i].launch, .stream = 1};
        rec_op_gpu(&op, &gpu);
        assert_int_equal(op.state, cases[i].after);
    }
    gpu.dropped = 5;
    struct rec_op op = {.state = REC_STATE_ENQUEUED, .launch = 6};
    rec_op_gpu(&op, &gpu);
    assert_int_equal(op.state, REC_STATE_ENQUEUED);
    op.launch = 5; /* passed */
    rec_op_gpu(&op, &gpu);
    assert_int_equal(op.state, REC_STATE_COMPLETED);
    /* What has begun is behind all that was before it. */
    atomic_store(&live.marks[1].start, 9);
    rec_live_gpu(&live, 1, &gpu);
    assert_int_equal(gpu.started, 9);
    assert_int_equal(gpu.ended, 8);
    rec_live_gpu(&live, UINT32_MAX, &gpu); /* no such stream */
    assert_int_equal(gpu.started, 0);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_is_ordered_and_aligned),
        cmocka_unit_test(maps_what_was_written),
        cmocka_unit_test(refuses_damaged_headers),
        cmocka_unit_test(refuses_links_and_strange_files),
        cmocka_unit_test(open_op_survives_hostile_indices),
        cmocka_unit_test(a_call_that_returns_is_not_open),
        cmocka_unit_test(open_op_is_never_torn),
        cmocka_unit_test(clock_interpolates),
        cmocka_unit_test(states_are_never_guessed_upwards),
        cmocka_unit_test(signals_are_no_positions),
        cmocka_unit_test(launch_numbers_are_whole_again),
        cmocka_unit_test(marks_raise_states),
        cmocka_unit_test(tells_the_living_from_the_dead),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
