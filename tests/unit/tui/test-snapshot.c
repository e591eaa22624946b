/* Joining processes into ranks, communicators and hosts: what the screens of fr-top show. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fr-top/diagnosis.h"
#include "fr-top/lanes.h"
#include "fr-top/top.h"

#define S   UINT64_C(1000000000)
#define NOW (UINT64_C(1000000) * S)

static const struct top_options options = {.stall_sec = 30};

struct world {
    struct top_probe probes[16];
    struct top_probe *list[16];
    size_t count;
    struct top_snapshot snapshot;
};

static struct top_probe *add(struct world *world, const char *job, int rank)
{
    struct top_probe *probe = &world->probes[world->count];
    world->list[world->count] = probe;
    *probe = (struct top_probe){0};
    struct top_process *process = &probe->process;
    snprintf(process->job, sizeof process->job, "%s", job);
    snprintf(process->host, sizeof process->host, "node%d", rank / 2);
    process->rank = rank;
    process->world_size = 4;
    process->proc_uid = 100 + world->count++;
    process->local = true;
    process->start_ns = NOW - 100 * S;
    process->alive_ns = process->looked_ns = NOW;
    process->last_call_ns = NOW;
    process->ops_per_s = 10;
    process->bytes_per_s = NAN;
    return probe;
}

static void join(struct top_probe *probe, uint64_t uid, uint32_t comm_rank, uint64_t next_seq)
{
    struct top_member *member = top_probe_member(probe);
    assert_non_null(member);
    member->uid = uid;
    member->comm_id = (uint32_t)probe->nmembers - 1;
    member->nranks = 4;
    member->comm_rank = comm_rank;
    member->next_seq = next_seq;
    member->made_by = REC_COMM_INIT_RANK;
    member->created_ns = NOW - 50 * S + uid;
}

static const struct top_snapshot *build(struct world *world, const struct top_options *with)
{
    top_snapshot_clear(&world->snapshot);
    assert_true(top_snapshot_build(&world->snapshot, world->list, world->count, with, NOW));
    return &world->snapshot;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    top_snapshot_clear(&world->snapshot);
    for (size_t i = 0; i < world->count; i++)
        free(world->probes[i].members);
    free(world);
    return 0;
}

static int set_up(void **state)
{
    *state = calloc(1, sizeof(struct world));
    return *state == NULL;
}

static void test_empty(void **state)
{
    const struct top_snapshot *s = build(*state, &options);
    assert_int_equal(s->nprocesses + s->ncomms + s->nhosts + s->njobs, 0);
    assert_int_equal(s->oldest, TOP_NONE);
    assert_true(isnan(s->ops_per_s));
}

static void test_join(void **state)
{
    struct world *world = *state;
    for (int rank = 3; rank >= 0; rank--) {
        struct top_probe *probe = add(world, "job", rank);
        join(probe, 7, (uint32_t)rank, rank == 2 ? 90 : 100);
        join(probe, 8 + (uint64_t)rank % 2, (uint32_t)rank / 2, 5);
    }
    const struct top_snapshot *s = build(world, &options);
    assert_int_equal(s->nprocesses, 4);
    for (int32_t rank = 0; rank < 4; rank++)
        assert_int_equal(s->processes[rank].rank, rank);
    assert_int_equal(s->ncomms, 3);
    const struct top_comm *comm = &s->comms[0];
    assert_int_equal(comm->uid, 7);
    assert_int_equal(comm->nmembers, 4);
    assert_int_equal(comm->front, 100);
    assert_int_equal(comm->back, 90);
    assert_int_equal(comm->lagging, 1);
    for (uint32_t m = 0; m < 4; m++)
        assert_int_equal(s->members[comm->members[m]].comm_rank, m);
    assert_int_equal(s->processes[2].lag, 10);
    assert_int_equal(s->processes[1].lag, 0);
    assert_int_equal(s->nhosts, 2);
    assert_int_equal(s->hosts[1].lag, 10);
    assert_int_equal(s->world, 4);
    assert_true(fabs(s->ops_per_s - 40) < 1e-9);
    assert_true(isnan(s->bytes_per_s));
    assert_string_equal(s->job, "job");
}

static void test_lineage(void **state)
{
    struct world *world = *state;
    for (int rank = 0; rank < 2; rank++) {
        struct top_probe *probe = add(world, "job", rank);
        join(probe, 9, (uint32_t)rank, 5);
        join(probe, 30, (uint32_t)rank, 5);
        join(probe, 4, (uint32_t)rank, 5);
        probe->members[1].parent_uid = 9;
        probe->members[2].parent_uid = 30;
        probe->members[0].parent_uid = 1234; /* never seen */
    }
    const struct top_snapshot *s = build(world, &options);
    assert_int_equal(s->ncomms, 3);
    for (uint32_t c = 0; c < s->ncomms; c++) {
        const struct top_comm *comm = &s->comms[c];
        if (comm->uid == 9)
            assert_int_equal(comm->parent, TOP_NONE);
        else
            assert_int_equal(s->comms[comm->parent].uid, comm->uid == 30 ? 9 : 30);
    }
}

/* nccl-tests' doc/PERFORMANCE.md: what a size is, and the factors of the bus bandwidth. */
static void test_kinds(void **state)
{
    struct world *world = *state;
    static const struct {
        unsigned kind;
        double size, bus; /* of 1000 elements of 4 bytes, on 4 ranks */
    } cases[] = {
        {REC_ALL_REDUCE, 4000, 6000}, {REC_ALL_GATHER, 16000, 12000}, {REC_REDUCE_SCATTER, 16000, 12000},
        {REC_BROADCAST, 4000, 4000},  {REC_BCAST, 4000, 4000},        {REC_ALL_TO_ALL, 16000, 12000},
        {REC_SEND, 4000, 4000},       {REC_GATHER, 16000, 12000},     {REC_REDUCE, 4000, 4000}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct top_kind_sum sums[TOP_KINDS] = {0};
        struct rec_op op = {
            .kind = (uint8_t)cases[i].kind, .count = 1000, .dtype = 7, .gpu_start_ns = 5, .gpu_end_ns = 105};
        unsigned k = top_kind_index(op.kind);
        assert_true(k < TOP_KINDS);
        top_kind_add(sums, &op, 4);
        assert_true(fabs(sums[k].size - cases[i].size) < 1e-6);
        assert_true(fabs(sums[k].bus - cases[i].bus) < 1e-6);
        assert_true(fabs(sums[k].timed_bus - cases[i].bus) < 1e-6);
        assert_int_equal(sums[k].timed_ns, 100);
    }
    struct top_kind_sum other[TOP_KINDS] = {0};
    top_kind_add(other, &(struct rec_op){.kind = REC_COMM_SPLIT, .count = 9}, 4);
    top_kind_add(other, &(struct rec_op){.kind = 250, .count = 9}, 4);
    for (unsigned k = 0; k < TOP_KINDS; k++)
        assert_int_equal(other[k].calls, 0);

    /* Ten a second for a long time, then none: the mean falls to nothing, and the kind goes. */
    struct top_kind_rate *rates = add(world, "job", 0)->process.kinds;
    struct top_kind_sum sums[TOP_KINDS] = {[0] = {.calls = 10, .size = 40, .bus = 20}};
    for (int i = 0; i < 20; i++)
        top_kind_update(rates, sums, 1, 1, i == 0);
    add(world, "job", 1);
    const struct top_snapshot *s = build(world, &options);
    assert_int_equal(s->nkinds, 1);
    assert_int_equal(s->kinds[0].ranks, 1);
    assert_true(fabs(s->kinds[0].sum.calls - 10) < 1e-9 && fabs(s->kinds[0].sum.bus - 20) < 1e-9);
    memset(sums, 0, sizeof sums);
    top_kind_update(rates, sums, 1, 1, false);
    assert_true(rates[0].calls < 8 && rates[0].calls > 5);
    for (int i = 0; i < 60; i++)
        top_kind_update(rates, sums, 1, 1, false);
    assert_int_equal(build(world, &options)->nkinds, 0);
}

/* A trace file is always a little behind: a rank that moves is not behind because of that. */
static void test_moving(void **state)
{
    struct world *world = *state;
    for (int rank = 0; rank < 3; rank++)
        join(add(world, "job", rank), 7, (uint32_t)rank, 100 - (uint64_t)rank * 10);
    world->probes[2].members[0].moving = true;
    const struct top_snapshot *s = build(world, &options);
    assert_int_equal(s->processes[1].lag, 10);
    assert_int_equal(s->processes[2].lag, 0);
    assert_int_equal(s->comms[0].lagging, 1);
    assert_int_equal(s->comms[0].front - s->comms[0].back, 10);
    world->probes[0].members[0].moving = world->probes[1].members[0].moving = true;
    s = build(world, &options);
    assert_int_equal(s->comms[0].front - s->comms[0].back, 0);
}

/* Communicators whose uid is not known yet are nobody else's. */
static void test_unknown_uid(void **state)
{
    struct world *world = *state;
    join(add(world, "job", 0), 0, 0, 1);
    join(add(world, "job", 1), 0, 0, 9);
    const struct top_snapshot *s = build(world, &options);
    assert_int_equal(s->ncomms, 2);
    assert_int_equal(s->processes[0].lag, 0);
}

static enum top_state state_after(void (*change)(struct top_process *))
{
    struct world world = {0};
    struct top_probe *probe = add(&world, "job", 0);
    join(probe, 7, 0, 10);
    join(add(&world, "job", 1), 7, 1, 11);
    change(&probe->process);
    enum top_state found = build(&world, &options)->processes[0].state;
    top_snapshot_clear(&world.snapshot);
    free(world.probes[0].members);
    free(world.probes[1].members);
    return found;
}

static void runs(struct top_process *p)
{
    (void)p;
}
static void rests(struct top_process *p)
{
    p->ops_per_s = 0;
    p->last_call_ns = NOW - 20 * S;
}
static void waits_inside(struct top_process *p)
{
    p->in_call = true;
}
static void waits_long_inside(struct top_process *p)
{
    p->in_call = true;
    p->last_call_ns = NOW - 31 * S;
}
static void is_late(struct top_process *p)
{
    p->last_call_ns = NOW - 31 * S;
}
static void says_nothing(struct top_process *p)
{
    p->alive_ns = p->last_call_ns = NOW - 10 * S;
}
static void calls_only(struct top_process *p)
{
    p->alive_ns = NOW - 10 * S;
}
static void says_nothing_far_away(struct top_process *p)
{
    p->alive_ns = p->last_call_ns = NOW - 10 * S; /* a heartbeat may take that long to be seen */
    p->local = false;
}
static void vanishes(struct top_process *p)
{
    p->vanished = true;
}
static void crashes(struct top_process *p)
{
    p->ended = true;
    p->end = (struct rec_end){.reason = REC_END_SIGNAL, .signal = 11};
}
static void fails(struct top_process *p)
{
    p->ended = true;
    p->end = (struct rec_end){.reason = REC_END_EXIT, .status = 1};
}
static void finishes(struct top_process *p)
{
    p->ended = true;
    p->end = (struct rec_end){.reason = REC_END_EXIT};
}

static void test_states(void **state)
{
    (void)state;
    assert_int_equal(state_after(runs), TOP_RUNNING);
    assert_int_equal(state_after(rests), TOP_IDLE);
    assert_int_equal(state_after(waits_inside), TOP_IN_CALL);
    assert_int_equal(state_after(waits_long_inside), TOP_STALLED);
    assert_int_equal(state_after(is_late), TOP_LATE); /* the other member is ahead */
    assert_int_equal(state_after(says_nothing), TOP_SILENT);
    assert_int_equal(state_after(calls_only), TOP_RUNNING);
    assert_int_equal(state_after(says_nothing_far_away), TOP_RUNNING);
    assert_int_equal(state_after(vanishes), TOP_DEAD);
    assert_int_equal(state_after(crashes), TOP_CRASHED);
    assert_int_equal(state_after(fails), TOP_FAILED);
    assert_int_equal(state_after(finishes), TOP_EXITED);
}

/*
 * Rank 2 is outside NCCL. Rank 1 waits for it on their common communicator and therefore is
 * behind, too, on the one that it shares with rank 0: a victim.
 */
static void test_late_and_victims(void **state)
{
    struct world *world = *state;
    for (int rank = 0; rank < 3; rank++) {
        struct top_process *process = &add(world, "job", rank)->process;
        process->last_call_ns = NOW - 60 * S;
        process->now.op.kind = REC_ALL_REDUCE;
    }
    join(&world->probes[0], 7, 0, 50);
    join(&world->probes[1], 7, 1, 49);
    join(&world->probes[1], 8, 0, 21);
    join(&world->probes[2], 8, 1, 20);
    for (size_t i = 0; i < 3; i++) {
        for (size_t m = 0; m < world->probes[i].nmembers; m++)
            world->probes[i].members[m].nranks = 2;
    }
    world->probes[0].process.now.op.seq = 49;
    world->probes[1].process.now = (struct top_op){.op = {.kind = REC_ALL_REDUCE, .seq = 20}, .member = 1};
    world->probes[2].process.now.op.seq = 19;
    const struct top_snapshot *s = build(world, &options);
    assert_int_equal(s->processes[0].state, TOP_STALLED);
    assert_int_equal(s->processes[1].state, TOP_STALLED);
    assert_int_equal(s->processes[2].state, TOP_LATE);
    /* Rank 2 stalled after a Recv: it may be waiting for that, but nobody else can be late. */
    world->probes[2].process.now.op.kind = REC_RECV;
    assert_int_equal(build(world, &options)->processes[2].state, TOP_LATE);
    /* Inside a call it is not outside NCCL. */
    world->probes[2].process.in_call = true;
    assert_int_equal(build(world, &options)->processes[2].state, TOP_STALLED);
}

static void test_oldest_call(void **state)
{
    struct world *world = *state;
    for (int rank = 0; rank < 3; rank++) {
        struct top_process *process = &add(world, "job", rank)->process;
        process->in_call = rank > 0;
        process->now.since_ns = NOW - (uint64_t)rank * S;
    }
    const struct top_snapshot *s = build(world, &options);
    assert_int_equal(s->processes[s->oldest].rank, 2);
    assert_int_equal(s->oldest_gpu, TOP_NONE);
    for (int rank = 0; rank < 3; rank++) {
        world->probes[rank].process.in_call = false;
        world->probes[rank].process.pending = rank < 2 ? 3 : 0;
    }
    s = build(world, &options);
    assert_int_equal(s->oldest, TOP_NONE);
    assert_int_equal(s->processes[s->oldest_gpu].rank, 1);
}

static void test_restart(void **state)
{
    struct world *world = *state;
    for (int rank = 0; rank < 2; rank++) {
        struct top_process *old = &add(world, "job", rank)->process;
        old->vanished = true;
        old->start_ns = NOW - 200 * S;
    }
    add(world, "job", 0);
    const struct top_snapshot *s = build(world, &options);
    assert_int_equal(s->nprocesses, 2); /* the new rank 0, and rank 1 that has not come back */
    assert_int_equal(s->processes[0].state, TOP_STARTING);
    assert_int_equal(s->processes[1].state, TOP_DEAD);
}

/* The same job id was used before, with more ranks. */
static void test_earlier_run(void **state)
{
    struct world *world = *state;
    for (int rank = 0; rank < 4; rank++) {
        struct top_process *old = &add(world, "job", rank)->process;
        old->ended = true;
        old->start_ns = NOW - 5000 * S;
        old->last_call_ns = old->alive_ns = NOW - 4000 * S;
    }
    add(world, "job", 0);
    struct top_process *died = &add(world, "job", 1)->process;
    died->vanished = true;
    died->last_call_ns = died->alive_ns = NOW - 50 * S;
    const struct top_snapshot *s = build(world, &options);
    assert_int_equal(s->nprocesses, 2);
    assert_int_equal(s->processes[0].state, TOP_STARTING);
    assert_int_equal(s->processes[1].state, TOP_DEAD);
    world->probes[4].process.vanished = true; /* now all is over */
    assert_int_equal(build(world, &options)->nprocesses, 2);
    struct top_options all = options;
    all.all_runs = true;
    s = build(world, &all);
    assert_int_equal(s->nprocesses, 6);
    assert_int_equal(s->npast, 4);
    /* The verdict is about the present run: who was rank 1 before is not blamed for what rank 1 does now. */
    int32_t culprit = 1;
    struct top_verdict verdict = {
        .serial = 1, .type = REC_VERDICT_PROCESS_DEAD, .job = "job", .culprits = &culprit, .nculprits = 1};
    for (uint32_t i = 0; i < s->nprocesses; i++) {
        bool blamed = s->processes[i].rank == 1 && s->processes[i].proc_uid == died->proc_uid;
        assert_int_equal(top_role_of(&verdict, &s->processes[i]), blamed ? REC_ROLE_CULPRIT : REC_ROLE_NONE);
    }
}

static void test_jobs(void **state)
{
    struct world *world = *state;
    struct top_process *first = &add(world, "first", 0)->process;
    struct top_process *second = &add(world, "second", 0)->process;
    struct top_options one = options;
    second->start_ns = NOW - 10 * S;
    assert_int_equal(build(world, &options)->njobs, 2);
    assert_string_equal(world->snapshot.job, "2 jobs");
    one.job = "first";
    assert_int_equal(build(world, &one)->nprocesses, 1);
    one.job = "third";
    assert_int_equal(build(world, &one)->nprocesses, 0);
    /* What is over does not hide what runs; of what is over only the latest is shown. */
    second->vanished = true;
    build(world, &options);
    assert_string_equal(world->snapshot.job, "first");
    first->vanished = true;
    build(world, &options);
    assert_string_equal(world->snapshot.job, "second");
}

static void test_absent(void **state)
{
    struct world *world = *state;
    struct top_options whole = options;
    whole.dir = "/somewhere";
    for (int rank = 1; rank < 3; rank++)
        add(world, "job", rank);
    add(world, "job", TOP_NO_RANK);
    assert_int_equal(build(world, &options)->nabsent, 0); /* the others may be on other hosts */
    const struct top_snapshot *s = build(world, &whole);
    assert_int_equal(s->nabsent, 2);
    assert_int_equal(s->absent[0], 0);
    assert_int_equal(s->absent[1], 3);
    world->probes[0].process.world_size = INT32_MAX;
    assert_int_equal(build(world, &whole)->nabsent, 0);
}

static void test_write_error(void **state)
{
    struct world *world = *state;
    add(world, "job", 0);
    add(world, "job", 1)->process.file_error = ENOSPC;
    assert_string_equal(build(world, &options)->warning,
                        "rank 1 (node0) cannot write its trace: No space left on device");
}

static void test_derived_rank(void **state)
{
    struct world *world = *state;
    struct top_probe *probe = add(world, "job", TOP_NO_RANK);
    join(probe, 7, 3, 1);
    const struct top_snapshot *s = build(world, &options);
    char text[16];
    assert_int_equal(s->processes[0].rank, 3);
    top_text_rank(text, sizeof text, &s->processes[0]);
    assert_string_equal(text, "~3");
}

static void test_open_calls(void **state)
{
    (void)state;
    struct top_process process = {0};
    for (uint64_t i = 0; i < 20; i++) {
        struct top_op op = {.since_ns = (i * 7) % 20 + 1};
        top_process_open(&process, &op);
    }
    assert_int_equal(process.nopen, 20);
    for (uint64_t i = 0; i < TOP_MAX_OPEN; i++)
        assert_int_equal(process.open[i].since_ns, i + 1); /* the oldest, in order */
}

static void test_lanes(void **state)
{
    struct world *world = *state;
    struct top_lanes lanes = {0};
    struct tui_mark mark;
    uint64_t first, last;
    for (int i = 0; i < TUI_HISTORY + 5; i++) {
        if (i == 3)
            add(world, "job", 1);
        if (i == 0)
            add(world, "job", 0);
        if (i == TUI_HISTORY + 3)
            world->probes[0].process.vanished = true;
        top_lanes_push(&lanes, build(world, &options));
    }
    assert_int_equal(lanes.nlanes, 2);
    top_lanes_source.bounds(&lanes, &first, &last);
    assert_int_equal(last, TUI_HISTORY + 4);
    assert_int_equal(first, 5);
    top_lanes_source.mark(&lanes, 0, last, 1, &mark);
    assert_int_equal(mark.ascii, 'X');
    top_lanes_source.mark(&lanes, 0, last - 2, 1, &mark);
    assert_int_equal(mark.ascii, 'i');
    top_lanes_source.mark(&lanes, 0, last - 10, 11, &mark); /* the worst of several */
    assert_int_equal(mark.ascii, 'X');
    world->count = 0;
    top_lanes_push(&lanes, build(world, &options));
    assert_int_equal(lanes.nlanes, 0);
    top_lanes_clear(&lanes);
}

static void test_texts(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } counts[] = {{0, "0"},        {0.25, "0.2"},    {9, "9"},         {812, "812"},   {999.4, "999"},
                  {999.6, "1.0k"}, {12345, "12.3k"}, {123456, "123k"}, {1e18, "1.0E"}, {NAN, "-"}};
    static const struct {
        uint64_t ns;
        const char *text;
    } ages[] = {{0, "0ms"},         {999 * 1000000ull, "999ms"}, {12340 * 1000000ull, "12.3s"},
                {245 * S, "4m05s"}, {7380 * S, "2h03m"},         {273600 * S, "3d04h"}};
    char text[16];
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        top_text_count(text, sizeof text, counts[i].value);
        assert_string_equal(text, counts[i].text);
    }
    for (size_t i = 0; i < sizeof ages / sizeof ages[0]; i++) {
        top_text_age(text, sizeof text, ages[i].ns);
        assert_string_equal(text, ages[i].text);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_empty),       TEST(test_join),         TEST(test_unknown_uid),
        TEST(test_moving),      TEST(test_states),       TEST(test_late_and_victims),
        TEST(test_oldest_call), TEST(test_restart),      TEST(test_earlier_run),
        TEST(test_jobs),        TEST(test_derived_rank), TEST(test_absent),
        TEST(test_write_error), TEST(test_open_calls),   TEST(test_lanes),
        TEST(test_texts),       TEST(test_lineage),      TEST(test_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
