/*
 * Checkpoints of the op sequences a process takes part in (rec/model.h): one track for each
 * communicator's collective sequence and one for each P2P pair and direction. A track sums
 * windows of REC_CHECKPOINT_OPS ops, whatever order threads report them in, and gives each
 * complete window once, in order of windows.
 *
 * Bounded: a track keeps REC_TRACK_WINDOWS open windows; when an op needs one more, the
 * oldest is given up, and from then on the prefix is unknown. Full tables simply have no
 * track for what comes next. Nothing allocates; one owner thread.
 */
#ifndef REC_FORMAT_CHECKPOINT_H
#define REC_FORMAT_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "rec/event.h"

#define REC_TRACK_WINDOWS 4
#define REC_COMM_TRACKS   2048 /* table slots, powers of two; used up to three quarters */
#define REC_PAIR_TRACKS   4096

struct rec_window {
    uint64_t index;
    uint64_t hash;
    uint32_t count; /* ops seen; 0 = this place is free */
    uint32_t expect;
};

struct rec_track {
    uint32_t comm; /* REC_ID_NONE = free slot */
    int32_t peer;  /* -1 = collective sequence */
    bool send;
    bool prefix_ok;
    uint64_t next; /* lowest window not yet given or given up */
    uint64_t prefix;
    struct rec_window windows[REC_TRACK_WINDOWS];
};

struct rec_tracks {
    uint32_t comm_count, pair_count;
    struct rec_track comms[REC_COMM_TRACKS];
    struct rec_track pairs[REC_PAIR_TRACKS];
};

typedef void rec_checkpoint_sink(void *context, const struct rec_checkpoint *checkpoint);

void rec_tracks_init(struct rec_tracks *tracks);

/*
 * Takes one op that has a place in a sequence; signature as in rec_signature, first_seq as
 * in rec_first_seq for the collective sequence and 0 for pairs. peer -1: collective.
 */
void rec_tracks_op(struct rec_tracks *tracks, uint32_t comm, int32_t peer, bool send, uint64_t first_seq,
                   uint64_t seq, uint64_t signature, rec_checkpoint_sink *sink, void *context);

/* The communicator ended: gives its complete windows and frees its tracks. */
void rec_tracks_end(struct rec_tracks *tracks, uint32_t comm, rec_checkpoint_sink *sink, void *context);

/* Gives the complete windows that wait for an earlier one. */
void rec_tracks_finish(struct rec_tracks *tracks, rec_checkpoint_sink *sink, void *context);

#endif
