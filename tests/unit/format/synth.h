/*
 * Synthetic traces for tests and measurements: the calls of one rank of a training job, with
 * reproducible random times. Not a stand-in for recorded jobs; it feeds the writer directly.
 */
#ifndef REC_TESTS_SYNTH_H
#define REC_TESTS_SYNTH_H

#include <stdint.h>

#include "rec/event.h"
#include "rec/writer.h"

#define SYNTH_COMMS 4

enum synth_pattern {
    SYNTH_TRAIN, /* data × tensor × pipeline parallel steps of about 30 calls on 4 communicators */
    SYNTH_MOE,   /* uneven all-to-all by Send and Recv in groups, counts different every time */
    SYNTH_PLAIN, /* AllReduce of one size in a loop */
};

struct synth {
    enum synth_pattern pattern;
    uint32_t rank, nranks;
    uint64_t random;
    uint64_t now_ns;
    uint64_t ordinal;
    uint32_t position, group;
    uint64_t seq[SYNTH_COMMS];
    uint64_t sent[8], received[8];
    bool sites;
    uint64_t launched[4]; /* by stream */
    uint32_t launch_group[4];
};

#define SYNTH_START_NS UINT64_C(1700000000000000000)

void synth_init(struct synth *s, enum synth_pattern pattern, uint32_t rank, uint32_t nranks);

/* The definitions of this rank, as a recorder would give them. */
void synth_define(const struct synth *s, struct rec_writer *writer);

/*
 * A rec_callsite_source for any id below 60,000: even ones are stacks of Python whose outer
 * frames are shared, odd ones native. Calls of SYNTH_TRAIN name one per step when s->sites is set.
 */
bool synth_callsite(void *unused, uint32_t id, struct rec_callsite_def *def);

/*
 * The next finished call of thread 1: first the creation of the communicators, then the
 * pattern. All ranks agree, sends meet receives.
 */
void synth_op(struct synth *s, struct rec_op *op);

/* A number of the sequence that *random names. */
uint64_t synth_draw(uint64_t *random);

/* An op whose fields (but thread and ordinal) are anything at all, extremes often. */
void synth_any_op(uint64_t *random, struct rec_op *op);

/* How far each communicator has come. */
void synth_frontiers(const struct synth *s, struct rec_writer *writer);

#endif
