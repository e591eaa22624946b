#include "support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct rec_writer_config largest = {.level = 9};

int fixture_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    if (!f)
        return -1;
    strcpy(f->dir, "/tmp/frec-test-XXXXXX");
    f->memory = aligned_alloc(64, rec_writer_bytes(&largest));
    if (!mkdtemp(f->dir) || !f->memory)
        return -1;
    *state = f;
    return 0;
}

int fixture_teardown(void **state)
{
    struct fixture *f = *state;
    DIR *dir = opendir(f->dir);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", f->dir, entry->d_name);
        unlink(path);
    }
    if (dir)
        closedir(dir);
    rmdir(f->dir);
    free(f->memory);
    free(f);
    return 0;
}

#define META "{\"host\":\"testhost\",\"pid\":1}"

void fixture_open(struct fixture *f, const char *stem, const struct rec_writer_config *config)
{
    static const struct rec_writer_config defaults = {0};
    struct rec_error err;
    f->writer = rec_writer_init(f->memory, config ? config : &defaults);
    assert_int_equal(rec_writer_open(f->writer, f->dir, stem, META, strlen(META), &err), REC_OK);
}

struct bytes fixture_read(const struct fixture *f, const char *name)
{
    char path[512];
    struct bytes bytes = {0};
    snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        return bytes;
    fseek(file, 0, SEEK_END);
    bytes.size = (size_t)ftell(file);
    rewind(file);
    bytes.data = malloc(bytes.size + 1);
    assert_non_null(bytes.data);
    assert_int_equal(fread(bytes.data, 1, bytes.size, file), bytes.size);
    fclose(file);
    return bytes;
}

void write_ops(struct rec_writer *writer, struct synth *synth, uint64_t count, uint64_t flush_every)
{
    struct rec_op ops[128];
    for (uint64_t done = 0; done < count;) {
        size_t n = 0;
        do {
            synth_op(synth, &ops[n++]);
            done++;
        } while (n < 128 && done < count && (!flush_every || done % flush_every));
        rec_writer_ops(writer, ops, n);
        if (flush_every && done % flush_every == 0)
            (void)rec_writer_flush(writer, NULL);
    }
}

struct bytes small_trace(struct fixture *f, uint64_t ops)
{
    struct rec_writer_config config = {.segment_bytes = 700};
    struct synth synth;
    fixture_open(f, "small", &config);
    synth_init(&synth, SYNTH_TRAIN, 0, 8);
    synth_define(&synth, f->writer);
    write_ops(f->writer, &synth, ops, 25);
    rec_writer_heartbeat(f->writer, synth.now_ns);
    assert_int_equal(rec_writer_close(f->writer, NULL), REC_OK);
    struct bytes bytes = fixture_read(f, "small.frec");
    assert_non_null(bytes.data);
    char path[512];
    snprintf(path, sizeof(path), "%s/small.frec", f->dir);
    unlink(path);
    return bytes;
}

uint64_t in_ticks(uint64_t ns)
{
    return ns / 64 * 64;
}

struct outcome read_bytes(struct bytes bytes, enum synth_pattern pattern)
{
    struct outcome outcome = {.ops_are_prefix = true};
    struct rec_reader *reader;
    struct rec_event event;
    struct synth synth;
    outcome.code = rec_reader_open_memory(bytes.data, bytes.size, "memory", &reader, NULL);
    if (outcome.code != REC_OK) {
        assert_null(reader);
        return outcome;
    }
    synth_init(&synth, pattern, 0, 8);
    while (rec_reader_next(reader, &event, NULL) == REC_OK) {
        assert_in_range(event.type, REC_EV_COMM, REC_EV_GPU);
        outcome.events[event.type]++;
        if (event.type == REC_EV_LOSS && event.u.loss.why <= REC_LOSS_TABLE_FULL)
            outcome.lost[event.u.loss.why] += event.u.loss.count;
        if (event.type != REC_EV_OP)
            continue;
        struct rec_op expected;
        synth_op(&synth, &expected);
        expected.enter_ns = in_ticks(expected.enter_ns);
        expected.exit_ns = in_ticks(expected.exit_ns);
        if (memcmp(&expected, &event.u.op, sizeof(expected)) != 0)
            outcome.ops_are_prefix = false;
        outcome.ops++;
    }
    /* The end is the end. */
    assert_int_equal(rec_reader_next(reader, &event, NULL), REC_END);
    rec_reader_stats(reader, &outcome.stats);
    assert_int_equal(outcome.stats.ops, outcome.ops);
    rec_reader_close(reader);
    return outcome;
}
