/* What the tests of the format share: a directory, a writer, files as bytes, events counted. */
#ifndef REC_TESTS_FORMAT_SUPPORT_H
#define REC_TESTS_FORMAT_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/reader.h"
#include "rec/writer.h"
#include "synth.h"

/* cmocka wants these first. */
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

struct fixture {
    char dir[64];
    void *memory;
    struct rec_writer *writer;
};

/* A fresh directory and a writer that is not open yet. */
int fixture_setup(void **state);
int fixture_teardown(void **state);

/* Sets the writer up again with this configuration and opens DIR/STEM.frec. */
void fixture_open(struct fixture *f, const char *stem, const struct rec_writer_config *config);

struct bytes {
    uint8_t *data;
    size_t size;
};

/* A whole file of the fixture's directory; the caller frees data. data NULL = there is none. */
struct bytes fixture_read(const struct fixture *f, const char *name);

/* A small closed trace with several segments and pieces, as bytes. */
struct bytes small_trace(struct fixture *f, uint64_t ops);

/* What came out of a trace. */
struct outcome {
    uint64_t ops;
    bool ops_are_prefix; /* ordinals 0, 1, 2 … without a hole, exactly as synth makes them */
    uint64_t events[REC_EV_GPU + 1];
    uint64_t lost[REC_LOSS_TABLE_FULL + 1]; /* by reason */
    struct rec_reader_stats stats;
    enum rec_code code; /* of opening */
};

/* Reads everything; the ops are compared with the pattern. */
struct outcome read_bytes(struct bytes bytes, enum synth_pattern pattern);

/* count synthetic calls of thread 1, in runs, a piece every flush_every calls (0 = none). */
void write_ops(struct rec_writer *writer, struct synth *synth, uint64_t count, uint64_t flush_every);

/* What the file can hold of a time. */
uint64_t in_ticks(uint64_t ns);

#endif
