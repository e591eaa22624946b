/*
 * Writes synthetic traces of a job: one .frec per rank, all of one job, made with the real
 * writer. For tests of readers and tools that need traces of a certain size or shape.
 *
 * usage: frec-gen [options] DIR
 *   --ranks N        processes (default 4)
 *   --ops N          calls per rank (default 1000; the first four create communicators)
 *   --pattern P      train (steps of 30 calls on four communicators), moe (uneven all-to-all
 *                    by Send and Recv), plain (AllReduce in a loop), any (every type of record
 *                    with fields of any value: for readers, makes no sense as a job);
 *                    default train
 *   --flush N        calls per piece (default 250)
 *   --max-bytes N    rotate (default: no)
 *   --segment-bytes N
 *   --stop R:N       rank R ends after N calls without an end record
 *   --odd R:N        the count of rank R's call N is one too high
 *   --loss R:N       rank R's call N and the nine after it are lost (ring full)
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rec/live.h"
#include "synth.h"

#define RUN 128 /* calls given at once */

struct at {
    uint32_t rank;
    uint64_t op;
};

struct options {
    uint32_t ranks;
    uint64_t ops, flush;
    enum synth_pattern pattern;
    bool any;
    struct rec_writer_config config;
    struct at stop, odd, loss;
    const char *dir;
};

static void heartbeat(struct rec_writer *writer, const struct synth *synth)
{
    synth_frontiers(synth, writer);
    rec_writer_heartbeat(writer, synth->now_ns);
}

static void lose(struct rec_writer *writer, struct synth *synth)
{
    struct rec_op op;
    struct rec_loss loss = {
        .thread = 1, .first_ordinal = synth->ordinal, .count = 10, .why = REC_LOSS_RING_FULL};
    for (uint64_t i = 0; i < loss.count; i++)
        synth_op(synth, &op);
    rec_writer_loss(writer, synth->now_ns, &loss);
}

static enum rec_code write_job(const struct options *o, uint32_t rank, struct rec_writer *writer,
                               struct rec_error *err)
{
    enum rec_code code;
    struct synth synth;
    synth_init(&synth, o->pattern, rank, o->ranks);
    synth_define(&synth, writer);
    rec_writer_callsites(writer, synth_callsite, NULL);
    uint64_t count = o->stop.rank == rank && o->stop.op < o->ops ? o->stop.op : o->ops;
    struct rec_op ops[RUN];
    while (synth.ordinal < count) {
        if (o->loss.rank == rank && synth.ordinal == o->loss.op)
            lose(writer, &synth);
        /* Up to the next piece or the place of a loss, as a drain thread would find them. */
        size_t n = 0;
        do {
            synth_op(&synth, &ops[n]);
            if (o->odd.rank == rank && ops[n].ordinal == o->odd.op)
                ops[n].count++;
            n++;
        } while (n < RUN && synth.ordinal < count && synth.ordinal % o->flush != 0 &&
                 !(o->loss.rank == rank && synth.ordinal == o->loss.op));
        rec_writer_ops(writer, ops, n);
        if (synth.ordinal % o->flush == 0) {
            heartbeat(writer, &synth);
            code = rec_writer_flush(writer, err);
            if (code != REC_OK)
                return code;
        }
    }
    heartbeat(writer, &synth);
    if (o->stop.rank == rank) {
        code = rec_writer_flush(writer, err);
        rec_writer_abandon(writer);
        return code;
    }
    struct rec_end end = {.reason = REC_END_EXIT};
    rec_writer_end(writer, synth.now_ns, &end);
    return rec_writer_close(writer, err);
}

static void write_stall(uint64_t *random, struct rec_writer *writer)
{
    static const char *const modules[] = {"/usr/lib/libc.so.6", "/opt/\xc3\xbcml\xc3\xa4ut.so", ""};
    struct rec_frame frames[40];
    struct rec_stall_thread threads[5];
    for (uint32_t i = 0; i < 40; i++)
        frames[i] = (struct rec_frame){i % 4 == 3 ? REC_ID_NONE : i % 4, synth_draw(random) >> i};
    for (uint32_t i = 0; i < 5; i++)
        threads[i] = (struct rec_stall_thread){.tid = (int32_t)synth_draw(random),
                                               .state = "RSDTZ"[i],
                                               .name = "python3",
                                               .where = "futex_wait_queue",
                                               .nframes = i * 10,
                                               .callsite = i * 1000,
                                               .frames = frames};
    struct rec_stall stall = {.why = REC_STALL_OPEN_OP,
                              .thread = 1,
                              .since_ns = synth_draw(random),
                              .nmodules = 3,
                              .modules = modules,
                              .nthreads = 5,
                              .threads = threads};
    rec_writer_stall(writer, synth_draw(random), &stall);
    struct rec_end end = {.reason = REC_END_SIGNAL,
                          .status = -1,
                          .signal = 11,
                          .tid = 4242,
                          .fault = synth_draw(random),
                          .nmodules = 3,
                          .modules = modules,
                          .nframes = 40,
                          .frames = frames};
    rec_writer_end(writer, synth_draw(random), &end);
}

/* Every type of record, fields of any value. */
static enum rec_code write_anything(const struct options *o, uint32_t rank, struct rec_writer *writer,
                                    struct rec_error *err)
{
    struct rec_op ops[RUN];
    uint64_t random = rank;
    struct synth synth;
    synth_init(&synth, SYNTH_TRAIN, rank, o->ranks);
    synth_define(&synth, writer);
    rec_writer_callsites(writer, synth_callsite, NULL);
    for (uint64_t done = 0; done < o->ops;) {
        size_t n = 1 + synth_draw(&random) % RUN;
        for (size_t i = 0; i < n; i++) {
            synth_any_op(&random, &ops[i]);
            ops[i].thread = 1;
            ops[i].ordinal = done++;
        }
        rec_writer_ops(writer, ops, n);
        if (synth_draw(&random) % 4)
            continue;
        struct rec_redop_def redop = {.redop = REC_REDOP_USER + (uint32_t)(synth_draw(&random) % 250),
                                      .dtype = 7,
                                      .comm = REC_ID_NONE,
                                      .scalar = synth_draw(&random),
                                      .hash = synth_draw(&random)};
        struct rec_loss loss = {
            .thread = REC_ID_NONE, .count = synth_draw(&random), .why = REC_LOSS_TABLE_FULL};
        rec_writer_redop(writer, &redop);
        rec_writer_loss(writer, synth_draw(&random), &loss);
        struct rec_gpu gpu = {.stream = (uint32_t)(synth_draw(&random) % 2000),
                              .ended = synth_draw(&random) >> 1};
        gpu.started = gpu.ended + synth_draw(&random) % 1000;
        gpu.dropped = synth_draw(&random) % 2 ? synth_draw(&random) : 0;
        gpu.error = (uint32_t)synth_draw(&random) % 1000;
        rec_writer_gpu(writer, synth_draw(&random), &gpu);
        rec_writer_open_ops(writer, synth_draw(&random), ops, n % 5);
        heartbeat(writer, &synth);
        enum rec_code code = rec_writer_flush(writer, err);
        if (code != REC_OK)
            return code;
    }
    write_stall(&random, writer);
    return rec_writer_close(writer, err);
}

static enum rec_code write_rank(const struct options *o, uint32_t rank, void *memory, struct rec_error *err)
{
    char stem[64], meta[1024];
    snprintf(stem, sizeof(stem), "node%u-%u", rank / 8, 1000 + rank);
    int meta_bytes = snprintf(
        meta, sizeof(meta),
        "{\"host\":\"node%u\",\"boot_id\":\"synthetic\",\"pid\":%u,\"start_ticks\":%u,"
        "\"proc_uid\":\"%016" PRIx64 "\",\"uid\":1000,\"exe\":\"/usr/bin/train\","
        "\"cmdline\":[\"train\",\"--synthetic\"],\"rank\":%u,\"world_size\":%u,\"local_rank\":%u,"
        "\"rank_source\":\"RANK\",\"job\":{\"source\":\"FREC_JOB_ID\",\"id\":\"synthetic\"},"
        "\"nccl_version\":22809,\"compressor\":\"zstd\",\"tick_ns\":64,\"start_ns\":%" PRIu64 "}",
        rank / 8, 1000 + rank, 5000 + rank, rec_mix64(rank + 1), rank, o->ranks, rank % 8, SYNTH_START_NS);
    struct rec_writer *writer = rec_writer_init(memory, &o->config);
    enum rec_code code = rec_writer_open(writer, o->dir, stem, meta, (size_t)meta_bytes, err);
    if (code != REC_OK)
        return code;
    return o->any ? write_anything(o, rank, writer, err) : write_job(o, rank, writer, err);
}

static int usage(void)
{
    fprintf(
        stderr,
        "usage: frec-gen [--ranks N] [--ops N] [--pattern train|moe|plain|any] [--flush N] [--max-bytes N] "
        "[--segment-bytes N] [--stop R:N] [--odd R:N] [--loss R:N] DIR\n");
    return 2;
}

static struct at parse_at(const char *text)
{
    struct at at = {UINT32_MAX, 0};
    if (sscanf(text, "%" SCNu32 ":%" SCNu64, &at.rank, &at.op) != 2)
        exit(usage());
    return at;
}

static void parse_pattern(const char *text, struct options *o)
{
    o->any = strcmp(text, "any") == 0;
    if (o->any)
        return;
    static const char *const names[] = {
        [SYNTH_TRAIN] = "train", [SYNTH_MOE] = "moe", [SYNTH_PLAIN] = "plain"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], text) == 0) {
            o->pattern = (enum synth_pattern)i;
            return;
        }
    exit(usage());
}

static void parse(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {
        {"ranks", 1, NULL, 'r'}, {"ops", 1, NULL, 'n'},       {"pattern", 1, NULL, 'p'},
        {"flush", 1, NULL, 'f'}, {"max-bytes", 1, NULL, 'm'}, {"segment-bytes", 1, NULL, 's'},
        {"stop", 1, NULL, 'S'},  {"odd", 1, NULL, 'O'},       {"loss", 1, NULL, 'L'},
        {NULL, 0, NULL, 0},
    };
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 'r':
            o->ranks = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'n':
            o->ops = strtoull(optarg, NULL, 10);
            break;
        case 'p':
            parse_pattern(optarg, o);
            break;
        case 'f':
            o->flush = strtoull(optarg, NULL, 10);
            break;
        case 'm':
            o->config.max_bytes = strtoull(optarg, NULL, 10);
            break;
        case 's':
            o->config.segment_bytes = strtoull(optarg, NULL, 10);
            break;
        case 'S':
            o->stop = parse_at(optarg);
            break;
        case 'O':
            o->odd = parse_at(optarg);
            break;
        case 'L':
            o->loss = parse_at(optarg);
            break;
        default:
            exit(usage());
        }
    }
    if (optind + 1 != argc || !o->ranks || !o->flush)
        exit(usage());
    o->dir = argv[optind];
}

int main(int argc, char **argv)
{
    struct options o = {.ranks = 4,
                        .ops = 1000,
                        .flush = 250,
                        .stop = {UINT32_MAX, 0},
                        .odd = {UINT32_MAX, 0},
                        .loss = {UINT32_MAX, 0}};
    parse(argc, argv, &o);
    void *memory = aligned_alloc(64, rec_writer_bytes(&o.config));
    if (!memory)
        return 1;
    for (uint32_t rank = 0; rank < o.ranks; rank++) {
        struct rec_error err;
        if (write_rank(&o, rank, memory, &err) != REC_OK) {
            fprintf(stderr, "frec-gen: %s: %s\n", err.path, err.text);
            return 1;
        }
    }
    free(memory);
    return 0;
}
