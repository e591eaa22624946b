/*
 * What a timeline shows of one lane: a cell for each position of the window. Strips are
 * filled in steps, only for the window that is shown, and kept while it stays the same.
 */
#ifndef STRIP_H
#define STRIP_H

#include "fr-analyze/tui/browser.h"

enum strip_flags {
    STRIP_BEGIN = 1 << 0,   /* an op was entered here */
    STRIP_MIXED = 1 << 1,   /* ops of several kinds */
    STRIP_CALL = 1 << 2,    /* the host was inside NCCL */
    STRIP_OPEN = 1 << 3,    /* inside a call that never returned */
    STRIP_GPU = 1 << 4,     /* the GPU worked on an op */
    STRIP_FAILED = 1 << 5,  /* NCCL returned an error */
    STRIP_DIVERGE = 1 << 6, /* the op that a finding is about, on a rank that it blames */
    STRIP_ALIVE = 1 << 7,   /* the process lived */
};

struct strip_cell {
    uint64_t seq, enter_ns; /* of the first op entered here; common clock */
    uint32_t comm;          /* its comm id */
    int32_t peer;
    uint16_t count; /* ops entered here, as far as can be counted */
    uint8_t kind;
    uint8_t flags;
};

struct strip_window {
    bool by_seq;
    const struct rec_communicator *comm; /* only its ops; NULL = all */
    uint64_t from, span;
    int width;
};

#define STRIPS 256 /* lanes kept */

struct strip {
    uint32_t process; /* BROWSE_NONE = unused */
    struct strip_window window;
    bool complete;
    struct strip_cell *cells;
    int room;
};

struct strips {
    const struct browse_data *data;
    struct strip strips[STRIPS];
    /* The one being filled. */
    struct strip *filling;
    struct rec_scan *scan;
    struct seek seek;
    uint32_t comm_id; /* of the window's communicator in this process; REC_ID_NONE = every one */
};

/* The strip if it is complete for this window, else NULL. */
const struct strip *strips_get(const struct strips *strips, uint32_t process,
                               const struct strip_window *window);
/* Works on it until deadline_ns; true = complete. False also without memory: it stays empty. */
bool strips_fill(struct strips *strips, uint32_t process, const struct strip_window *window,
                 uint64_t deadline_ns);
/*
 * Is the process blamed in a finding about an op of this communicator with a seq in
 * [from, from + span)? Messages have seqs of their own and do not count.
 */
bool strips_blamed(const struct strips *strips, uint32_t process, const struct rec_communicator *comm,
                   uint64_t from, uint64_t span);
/* Forgets what was read. */
void strips_drop(struct strips *strips);
void strips_free(struct strips *strips);

#endif
