/* Which processes make one job, who has which rank, how each ended; and hostile metadata. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "internal.h"
#include "maker.h"
#include "recall.h"

static char dir[64];

static int setup(void **state)
{
    (void)state;
    maker_dir(dir, sizeof(dir));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    maker_clean(dir);
    return 0;
}

static enum rec_code try_open(const char *job_id, struct rec_job **job)
{
    const char *dirs[] = {dir};
    struct rec_job_options options = {.job_id = job_id};
    struct rec_error err = {0};
    return rec_job_open(dirs, 1, &options, job, &err);
}

static struct rec_job *open_job(void)
{
    struct rec_job *job;
    assert_int_equal(try_open(NULL, &job), REC_OK);
    return job;
}

static size_t count_processes(const struct rec_job *job)
{
    size_t count;
    rec_job_processes(job, &count);
    return count;
}

static const struct rec_process *process_at(const struct rec_job *job, size_t i)
{
    size_t count;
    struct rec_process *const *processes = rec_job_processes(job, &count);
    assert_true(i < count);
    return processes[i];
}

/* A process that lived from start for ten ops, 1 ms each. */
static void make_process(uint64_t proc_uid, int rank, const char *source, const char *id, uint64_t start,
                         uint64_t comm_uid)
{
    struct maker maker;
    char stem[32];
    snprintf(stem, sizeof(stem), "h1-%llx", (unsigned long long)proc_uid);
    maker_open(&maker, dir, stem, maker_meta(proc_uid, rank, 2, source, id, start), 0);
    maker.now = start;
    maker_world(&maker, comm_uid, 2, rank < 0 ? REC_ID_NONE : (uint32_t)rank);
    maker_ops(&maker, 0, 0, 10);
    maker_end(&maker, REC_END_EXIT, 0, 0);
    maker_close(&maker);
}

static void test_two_runs_of_one_address(void **state)
{
    (void)state;
    for (int run = 0; run < 2; run++)
        for (int rank = 0; rank < 2; rank++)
            make_process(0x10 + (uint64_t)(2 * run + rank), rank, "MASTER_ADDR:MASTER_PORT",
                         "127.0.0.1:29500", T0 + (uint64_t)run * S + (uint64_t)rank * MS,
                         0x100 + (uint64_t)run);
    struct rec_job *job;
    assert_int_equal(try_open(NULL, &job), REC_ERR_MIXED);
    size_t count;
    const struct rec_job_info *jobs = rec_job_candidates(job, &count);
    assert_int_equal(count, 2);
    assert_string_equal(jobs[0].id, "127.0.0.1:29500#1");
    assert_string_equal(jobs[1].id, "127.0.0.1:29500#2");
    assert_string_equal(jobs[0].source, "MASTER_ADDR:MASTER_PORT");
    assert_int_equal(jobs[0].processes, 2);
    assert_true(jobs[0].start_ns < jobs[1].start_ns);
    rec_job_close(job);

    assert_int_equal(try_open("latest", &job), REC_OK);
    assert_string_equal(rec_job_info(job)->id, "127.0.0.1:29500#2");
    assert_int_equal(count_processes(job), 2);
    assert_int_equal(process_at(job, 0)->proc_uid, 0x12);
    rec_job_close(job);
    assert_int_equal(try_open("127.0.0.1:29500#1", &job), REC_OK);
    assert_int_equal(process_at(job, 1)->proc_uid, 0x11);
    rec_job_close(job);
    assert_int_equal(try_open("127.0.0.1:29500", &job), REC_ERR_MIXED);
    rec_job_close(job);
    assert_int_equal(try_open("nonsense", &job), REC_ERR_MIXED);
    rec_job_close(job);
}

static void test_scheduler_job_with_restart(void **state)
{
    (void)state;
    for (int run = 0; run < 2; run++)
        for (int rank = 0; rank < 2; rank++)
            make_process(0x10 + (uint64_t)(2 * run + rank), rank, "SLURM_JOB_ID", "4242",
                         T0 + (uint64_t)run * 100 * S, 0x100 + (uint64_t)run);
    struct rec_job *job = open_job();
    assert_string_equal(rec_job_info(job)->id, "4242");
    assert_int_equal(count_processes(job), 4);
    assert_int_equal(rec_job_expected_ranks(job), 2);
    /* By rank, then by start. */
    assert_int_equal(process_at(job, 0)->rank, 0);
    assert_int_equal(process_at(job, 1)->rank, 0);
    assert_int_equal(process_at(job, 1)->proc_uid, 0x12);
    rec_job_close(job);
}

/* Two launches in one allocation are two runs, unless the job was requeued. */
static void test_slurm_steps(void **state)
{
    (void)state;
    for (int requeued = 0; requeued < 2; requeued++) {
        for (uint32_t step = 0; step < 2; step++)
            for (uint32_t rank = 0; rank < 2; rank++) {
                char stem[16], meta[512];
                struct maker maker;
                snprintf(stem, sizeof(stem), "p%u%u", step, rank);
                snprintf(
                    meta, sizeof(meta),
                    "{\"proc_uid\":\"%x\",\"rank\":%u,\"world_size\":2,\"job\":{\"source\":\"SLURM_JOB_ID\","
                    "\"id\":\"7\",\"restart\":\"%u\"},\"env\":{\"SLURM_STEP_ID\":\"%u\"}}",
                    0x10 + 2 * step + rank, rank, requeued ? step : 0, step);
                maker_open(&maker, dir, stem, meta, 0);
                maker.now = T0 + step * S;
                maker_world(&maker, 0x100 + step, 2, rank);
                maker_ops(&maker, 0, 0, 10);
                maker_close(&maker);
            }
        struct rec_job *job;
        assert_int_equal(try_open(NULL, &job), requeued ? REC_OK : REC_ERR_MIXED);
        size_t count;
        rec_job_candidates(job, &count);
        assert_int_equal(count, requeued ? 1 : 2);
        rec_job_close(job);
        maker_clean(dir);
        maker_dir(dir, sizeof(dir));
    }
}

static void test_shared_communicator_joins(void **state)
{
    (void)state;
    make_process(0x10, 0, "MASTER_ADDR:MASTER_PORT", "a:1", T0, 0x100);
    make_process(0x11, 1, "MASTER_ADDR:MASTER_PORT", "b:2", T0 + 50 * S, 0x100);
    struct rec_job *job = open_job();
    assert_int_equal(count_processes(job), 2);
    size_t count;
    struct rec_communicator *const *comms = rec_job_communicators(job, &count);
    assert_int_equal(count, 1);
    assert_int_equal(comms[0]->nmembers, 2);
    assert_ptr_equal(rec_job_find_communicator(job, 0x100), comms[0]);
    assert_null(rec_job_find_communicator(job, 0));
    rec_job_close(job);
}

static void test_without_job_id(void **state)
{
    (void)state;
    /* Two jobs at one time without any id: ranks say who belongs where. */
    make_process(0x10, 0, NULL, NULL, T0, 0x100);
    make_process(0x11, 1, NULL, NULL, T0, 0x100);
    make_process(0x20, 0, NULL, NULL, T0 + MS, 0x200);
    make_process(0x21, 1, NULL, NULL, T0 + MS, 0x200);
    struct rec_job *job;
    assert_int_equal(try_open(NULL, &job), REC_ERR_MIXED);
    size_t count;
    const struct rec_job_info *jobs = rec_job_candidates(job, &count);
    assert_int_equal(count, 2);
    assert_string_equal(jobs[0].source, "start time");
    assert_string_equal(jobs[0].id, "2025-11-30T04:20:00Z#1");
    rec_job_close(job);
    maker_clean(dir);
    maker_dir(dir, sizeof(dir));
    /* Two tensor-parallel pairs of one job share no communicator, but neither a rank. */
    make_process(0x10, 0, NULL, NULL, T0, 0x100);
    make_process(0x11, 1, NULL, NULL, T0, 0x100);
    make_process(0x20, 2, NULL, NULL, T0 + MS, 0x200);
    make_process(0x21, 3, NULL, NULL, T0 + MS, 0x200);
    job = open_job();
    assert_int_equal(count_processes(job), 4);
    rec_job_close(job);
}

static void test_derived_ranks(void **state)
{
    (void)state;
    static const uint32_t comm_ranks[] = {2, 0, 3};
    for (uint64_t i = 0; i < 3; i++) {
        struct maker maker;
        char stem[16];
        snprintf(stem, sizeof(stem), "p%d", (int)i);
        maker_open(&maker, dir, stem, maker_meta(0x10 + i, -1, 0, NULL, NULL, T0), 0);
        maker_world(&maker, 0x500 + i, 2, 0); /* a small one of its own comes first */
        maker_comm(&maker, 1, 0x100, 4, comm_ranks[i], 0);
        maker_ops(&maker, 1, 0, 3);
        maker_close(&maker);
    }
    struct rec_job *job = open_job();
    static const int ranks[] = {0, 2, 3};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(process_at(job, i)->rank, ranks[i]);
        assert_true(process_at(job, i)->derived_rank);
        assert_int_equal(process_at(job, i)->index, i);
    }
    assert_int_equal(rec_job_expected_ranks(job), 4);
    rec_job_close(job);
}

/* Two processes with four devices each: comm ranks are not job ranks. */
static void test_derived_ranks_of_several_devices(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < 2; p++) {
        struct maker maker;
        maker_open(&maker, dir, p ? "p1" : "p0", maker_meta(0x10 + p, -1, 0, NULL, NULL, T0), 0);
        maker_world(&maker, 0x100, 8, 4 * p);
        for (uint32_t k = 1; k < 4; k++)
            maker_comm(&maker, k, 0x100, 8, 4 * p + k, 0);
        maker_ops(&maker, 0, 0, 3);
        maker_close(&maker);
    }
    struct rec_job *job = open_job();
    assert_int_equal(process_at(job, 0)->rank, 0);
    assert_int_equal(process_at(job, 1)->rank, 1);
    assert_int_equal(rec_job_expected_ranks(job), 2);
    const struct rec_communicator *comm = rec_job_find_communicator(job, 0x100);
    assert_int_equal(comm->nmembers, 8);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(comm->members[i]->comm_rank, i);
    rec_job_close(job);
}

static void test_communicators(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct maker maker;
        maker_open(&maker, dir,
                   rank == 0   ? "a"
                   : rank == 1 ? "b"
                               : "c",
                   maker_meta(0x10 + rank, (int)rank, 3, "FREC_JOB_ID", "x", T0), 0);
        maker_world(&maker, 0x100, rank == 1 ? 8 : 3, rank);
        maker_comm(&maker, 1, 0x200, 3, rank, 0x100);
        maker_comm(&maker, 2, 0x300, 3, rank, 0x301); /* descend from each other: hostile */
        maker_comm(&maker, 3, 0x301, 3, rank, 0x300);
        maker_comm(&maker, 4, 0, 3, rank, 0); /* creation never told its uid */
        maker_ops(&maker, 0, 0, 5 + rank);
        maker_frontier(&maker, 0, 20 + rank);
        struct rec_op destroy = maker_op(maker.ordinal++, 20, 0, maker.now += MS);
        destroy.kind = REC_COMM_DESTROY;
        rec_writer_ops(maker.writer, &destroy, 1);
        maker_close(&maker);
    }
    struct rec_job *job = open_job();
    const struct rec_communicator *world = rec_job_find_communicator(job, 0x100);
    const struct rec_communicator *child = rec_job_find_communicator(job, 0x200);
    assert_int_equal(world->nranks, 3);
    assert_true(world->nranks_differ);
    assert_false(child->nranks_differ);
    assert_ptr_equal(child->parent, world);
    assert_null(world->parent);
    for (const struct rec_communicator *c = rec_job_find_communicator(job, 0x300); c; c = c->parent)
        assert_true(c->uid == 0x300 || c->uid == 0x301);
    size_t count;
    rec_job_communicators(job, &count);
    assert_int_equal(count, 4 + 3); /* each nameless member has its own */
    const struct rec_member *member = world->members[1];
    assert_int_equal(member->process->rank, 1);
    assert_ptr_equal(rec_process_member(member->process, 0), member);
    assert_null(rec_process_member(member->process, 77));
    assert_int_equal(member->next_seq, 21); /* the counter beats the records */
    assert_int_equal(member->last_op.seq, 5);
    assert_int_equal(member->teardown.kind, REC_COMM_DESTROY);
    assert_int_equal(child->members[0]->last_op.kind, REC_NONE);
    rec_job_close(job);
}

static void put_refused(struct maker *maker, unsigned kind)
{
    struct rec_op op = maker_op(maker->ordinal++, 0, 0, maker->now += MS);
    op.kind = (uint8_t)kind;
    op.peer = 1;
    op.count = 1;
    op.result = 4;
    op.state = REC_STATE_FAILED;
    op.flags = REC_OF_NO_SEQ;
    rec_writer_ops(maker->writer, &op, 1);
}

static struct rec_job *open_to_analyze(void)
{
    const char *dirs[] = {dir};
    struct rec_job_options how = {.no_live = true, .analyze = true};
    struct rec_job *job;
    struct rec_error err = {0};
    assert_int_equal(rec_job_open(dirs, 1, &how, &job, &err), REC_OK);
    return job;
}

/* A refused call has no place: neither the counter, which was seen with it, nor a signal counts it. */
static void test_refused(void **state)
{
    (void)state;
    struct maker maker;
    maker_open(&maker, dir, "a", maker_meta(0x10, 0, 2, "FREC_JOB_ID", "x", T0), 0);
    maker_world(&maker, 0x100, 2, 0);
    maker_ops(&maker, 0, 0, 5);
    maker_frontier(&maker, 0, 6);
    put_refused(&maker, REC_ALL_REDUCE);
    put_refused(&maker, REC_SIGNAL);
    maker_frontier(&maker, 0, 5);
    maker_close(&maker);
    struct rec_job *job = open_to_analyze();
    const struct rec_member *member = rec_job_find_communicator(job, 0x100)->members[0];
    assert_int_equal(member->next_seq, 5);
    assert_int_equal(member->last_op.kind, REC_SIGNAL);
    assert_int_equal(job_signals(member->process, 0, 1, true, 0), 0);
    rec_job_close(job);
}

static void put_grouped(struct maker *maker, unsigned kind, uint64_t seq, uint8_t result, uint32_t group)
{
    struct rec_op op = maker_op(maker->ordinal++, seq, 0, maker->now += MS);
    op.kind = (uint8_t)kind;
    op.comm = kind == REC_GROUP_END ? REC_ID_NONE : 0;
    op.peer = kind == REC_SEND ? 1 : -1;
    op.group = group;
    op.result = result;
    op.state = result ? REC_STATE_FAILED : REC_STATE_IN_CALL;
    rec_writer_ops(maker->writer, &op, 1);
}

/* Numbers of the calls on communicator 0 as a scan gives them, in order; NO_SEQ as 99. */
static size_t scan_numbers(const struct rec_job *job, const struct rec_scan_filter *filter, uint64_t *numbers)
{
    struct rec_scan *scan;
    struct rec_event event;
    size_t count = 0;
    assert_int_equal(rec_scan_open(job, process_at(job, 0), filter, &scan, NULL), REC_OK);
    while (rec_scan_next(scan, &event, NULL) == REC_OK)
        if (event.type == REC_EV_OP && event.u.op.kind != REC_GROUP_END)
            numbers[count++] = event.u.op.flags & REC_OF_NO_SEQ ? 99 : event.u.op.seq;
        else if (event.type == REC_EV_FRONTIER)
            numbers[count++] = event.u.frontier.next_seq + 1000;
    rec_scan_close(scan);
    return count;
}

/* Nor has a group one call of which was refused: what comes behind it is counted without it. */
static void test_refused_group(void **state)
{
    (void)state;
    struct maker maker;
    maker_open(&maker, dir, "a", maker_meta(0x10, 0, 2, "FREC_JOB_ID", "x", T0), 0);
    maker_world(&maker, 0x100, 2, 0);
    maker_ops(&maker, 0, 0, 2);
    put_grouped(&maker, REC_SEND, 0, 0, 1);
    put_grouped(&maker, REC_ALL_REDUCE, 2, 0, 1);
    put_grouped(&maker, REC_ALL_GATHER, 3, 4, 1);
    put_grouped(&maker, REC_GROUP_END, 0, 4, 1);
    maker_ops(&maker, 0, 4, 1);
    put_grouped(&maker, REC_SEND, 1, 0, 0);
    put_grouped(&maker, REC_ALL_REDUCE, 5, 5, 2); /* nothing comes behind this one */
    put_grouped(&maker, REC_GROUP_END, 0, 5, 2);
    maker_frontier(&maker, 0, 6);
    maker_close(&maker);
    struct rec_job *job = open_to_analyze();
    const struct rec_member *member = rec_job_find_communicator(job, 0x100)->members[0];
    assert_int_equal(member->next_seq, 4);
    assert_int_equal(member->last_op.seq, 3);
    assert_int_equal(job_messages(member->process, 0, 1, true), 1);
    uint64_t numbers[16];
    static const uint64_t counted[] = {0, 1, 99, 99, 99, 2, 0, 3, 1004},
                          recorded[] = {0, 1, 0, 2, 3, 4, 1, 5, 1006};
    assert_int_equal(scan_numbers(job, NULL, numbers), 9);
    assert_memory_equal(numbers, counted, sizeof(counted));
    assert_int_equal(scan_numbers(job, &(struct rec_scan_filter){.as_recorded = true}, numbers), 9);
    assert_memory_equal(numbers, recorded, sizeof(recorded));
    rec_job_close(job);
}

static void test_checkpoints(void **state)
{
    (void)state;
    struct maker maker;
    maker_open(&maker, dir, "a", maker_meta(0x10, 0, 1, NULL, NULL, T0), 0);
    maker_world(&maker, 0x100, 1, 0);
    maker_ops(&maker, 0, 0, 3000);
    maker_close(&maker);
    struct rec_job *job = open_job();
    const struct rec_process *process = process_at(job, 0);
    const struct rec_member *member = process->members[0];
    assert_int_equal(member->nwindows, 2);
    for (uint64_t window = 0; window < 2; window++) {
        uint64_t sum = 0;
        for (uint64_t seq = window * 1024; seq < (window + 1) * 1024; seq++) {
            struct rec_op op = maker_op(seq, seq, 0, 0);
            sum += rec_checkpoint_term(seq, rec_process_signature(process, &op));
        }
        assert_true(member->windows[window].known);
        assert_int_equal(member->windows[window].hash, sum);
    }
    rec_job_close(job);
}

static void test_user_redop_signature(void **state)
{
    (void)state;
    uint64_t signatures[2];
    for (uint32_t i = 0; i < 2; i++) { /* the same definition under different numbers */
        struct maker maker;
        maker_open(&maker, dir, "a", maker_meta(0x10, 0, 1, NULL, NULL, T0), 0);
        struct rec_redop_def def = {.redop = REC_REDOP_USER + i, .dtype = 7, .comm = 0, .hash = 0xabcdef};
        rec_writer_redop(maker.writer, &def);
        maker_world(&maker, 0x100, 1, 0);
        maker_close(&maker);
        struct rec_job *job = open_job();
        struct rec_op op = maker_op(0, 0, 0, T0);
        op.redop = (uint8_t)(REC_REDOP_USER + i);
        signatures[i] = rec_process_signature(process_at(job, 0), &op);
        rec_job_close(job);
        maker_clean(dir);
        maker_dir(dir, sizeof(dir));
    }
    assert_int_equal(signatures[0], signatures[1]);
}

/* How a process ended: its own word, else what the others' heartbeats tell. */
static void test_fates(void **state)
{
    (void)state;
    static const struct {
        uint32_t reason;
        int signal;
        uint64_t alive_ms;
        enum rec_process_fate fate;
    } cases[] = {
        {REC_END_EXIT, 0, 100, REC_FATE_EXITED},    {REC_END_SIGNAL, 11, 100, REC_FATE_SIGNALED},
        {REC_END_NONE, 0, 1000, REC_FATE_VANISHED}, /* the last one lived 29 s longer on this host */
        {REC_END_NONE, 0, 27000, REC_FATE_UNKNOWN}, {REC_END_NONE, 0, 30000, REC_FATE_UNKNOWN},
    };
    size_t n = sizeof(cases) / sizeof(cases[0]);
    for (size_t i = 0; i < n; i++) {
        struct maker maker;
        char stem[16], meta[512];
        snprintf(stem, sizeof(stem), "p%d", (int)i);
        snprintf(meta, sizeof(meta),
                 "{\"proc_uid\":\"%x\",\"rank\":%d,\"boot_id\":\"another\",\"host\":\"h1\",\"pid\":1,"
                 "\"start_ticks\":1,\"job\":{\"source\":\"FREC_JOB_ID\",\"id\":\"x\"}}",
                 0x10 + (int)i, (int)i);
        maker_open(&maker, dir, stem, meta, 0);
        maker_world(&maker, 0x100, (uint32_t)n, (uint32_t)i);
        maker_ops(&maker, 0, 0, 3);
        rec_writer_heartbeat(maker.writer, T0 + cases[i].alive_ms * MS);
        if (cases[i].reason)
            maker_end(&maker, cases[i].reason, 3, cases[i].signal);
        maker_close(&maker);
    }
    struct rec_job *job = open_job();
    for (size_t i = 0; i < n; i++)
        assert_int_equal(process_at(job, i)->fate, cases[i].fate);
    assert_int_equal(process_at(job, 0)->end.status, 3);
    assert_int_equal(process_at(job, 1)->end.signal, 11);
    assert_int_equal(process_at(job, 4)->last_ns, T0 + 30 * S);
    rec_job_close(job);
}

static void test_hostile_metadata(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "[1,2,3]",
        "not json",
        "{\"proc_uid\":12,\"rank\":\"seven\",\"job\":[],\"host\":{\"a\":1},\"live\":3}",
        "{\"proc_uid\":\"zz\",\"rank\":-9223372036854775808,\"world_size\":9223372036854775807}",
        "{\"proc_uid\":\"00000000000000001\",\"rank\":2147483648,\"world_size\":0,\"pid\":-5}",
        "{\"host\":\"\\u001b[31m\\n\",\"job\":{\"source\":1,\"id\":{}},\"live\":\"/x\",\"rank\":1e300}",
        "{\"rank\":16777216,\"local_rank\":4294967296,\"start_ns\":-1,\"exe\":null}",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct maker maker;
        char stem[16];
        snprintf(stem, sizeof(stem), "p%d", (int)i);
        maker_open(&maker, dir, stem, texts[i], 0);
        maker_world(&maker, 0x100, 0xfffffff0u, (uint32_t)i * 1000000000u);
        maker_ops(&maker, 0, UINT64_MAX - 3, 3);
        maker_comm(&maker, REC_ID_NONE - 1, 0x100, UINT32_MAX, 0, 0x100);
        maker_frontier(&maker, 123456, UINT64_MAX);
        maker_close(&maker);
    }
    struct rec_job *job = open_job();
    size_t count;
    struct rec_process *const *processes = rec_job_processes(job, &count);
    assert_int_equal(count, sizeof(texts) / sizeof(texts[0]));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(processes[i]->rank, -1); /* communicators of 4 billion ranks derive nothing */
        assert_int_equal(processes[i]->world_size, -1);
        assert_int_equal(processes[i]->ops, 3);
    }
    assert_int_equal(rec_job_expected_ranks(job), 0);
    rec_job_close(job);
}

static void test_spans(void **state)
{
    (void)state;
    struct job_spans a = {0}, b = {0}, none = {0};
    job_spans_add(&a, 10, 20);
    job_spans_add(&a, 30, 40);
    job_spans_add(&a, 20, 30); /* joins both */
    assert_int_equal(a.count, 1);
    job_spans_add(&a, 5, 5);
    assert_int_equal(job_spans_minus(&a, &none), 30);
    job_spans_add(&b, 0, 12);
    job_spans_add(&b, 15, 16);
    job_spans_add(&b, 39, 100);
    assert_int_equal(job_spans_minus(&a, &b), 30 - 2 - 1 - 1);
    assert_int_equal(job_spans_minus(&b, &a), 12 + 1 + 61 - 2 - 1 - 1);
    struct job_spans many = {0};
    for (uint64_t i = 0; i < 3000; i++)
        job_spans_add(&many, i * 10, i * 10 + 1);
    assert_int_equal(many.count, JOB_MAX_SPANS);
    assert_int_equal(job_spans_minus(&many, &none), 3000);
    job_spans_free(&a);
    job_spans_free(&b);
    job_spans_free(&many);
}

static void test_map(void **state)
{
    (void)state;
    struct job_map map = {0};
    assert_int_equal(job_map_get(&map, 7), JOB_MAP_NONE);
    for (uint32_t i = 0; i < 10000; i++)
        assert_true(job_map_put(&map, (uint64_t)i << 32, i));
    assert_true(job_map_put(&map, 0, 5));
    assert_int_equal(map.count, 10000);
    assert_int_equal(job_map_get(&map, 0), 5);
    for (uint32_t i = 1; i < 10000; i++)
        assert_int_equal(job_map_get(&map, (uint64_t)i << 32), i);
    assert_int_equal(job_map_get(&map, 1), JOB_MAP_NONE);
    job_map_free(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_two_runs_of_one_address, setup, teardown),
        cmocka_unit_test_setup_teardown(test_scheduler_job_with_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slurm_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shared_communicator_joins, setup, teardown),
        cmocka_unit_test_setup_teardown(test_without_job_id, setup, teardown),
        cmocka_unit_test_setup_teardown(test_derived_ranks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_derived_ranks_of_several_devices, setup, teardown),
        cmocka_unit_test_setup_teardown(test_communicators, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_group, setup, teardown),
        cmocka_unit_test_setup_teardown(test_checkpoints, setup, teardown),
        cmocka_unit_test_setup_teardown(test_user_redop_signature, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fates, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile_metadata, setup, teardown),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
