/*
 * Call sites in a live region: the memory into which a recorder puts the lines of code behind
 * calls, each once, and how to read it while that goes on. The recorder's side is
 * recorder-inject/callsite/callsite.h; what a site says is in event.h's terms only after
 * rec_live_callsite.
 */
#ifndef REC_CALLSITE_H
#define REC_CALLSITE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/event.h"
#include "rec/live.h"

#pragma GCC visibility push(default)

#define REC_CALLSITE_MAX_FRAMES    64
#define REC_CALLSITE_MAX_ADDRESSES 16 /* native */
#define REC_CALLSITE_MAX_SITES     0xfffffu
#define REC_CALLSITE_MAX_FILE      511 /* bytes of a file name that are kept: its end */
#define REC_CALLSITE_MAX_FUNCTION  255 /* bytes of a function name that are kept: its start */

#define REC_CALLSITE_MAGIC   UINT64_C(0x315449534c4c4143) /* "CALLSIT1" */
#define REC_CALLSITE_VERSION 1

enum rec_callsite_python {
    REC_CALLSITE_PYTHON_NONE = 0,  /* no interpreter in the process, or frames = 0 */
    REC_CALLSITE_PYTHON_PENDING,   /* there is one; no Python thread has made a call yet */
    REC_CALLSITE_PYTHON_PROVED,    /* layout proved by structure */
    REC_CALLSITE_PYTHON_CONFIRMED, /* and compared with the interpreter's own answers */
    REC_CALLSITE_PYTHON_OFF,       /* see reason */
};

struct rec_callsite_header {
    _Atomic uint64_t magic; /* stored last by callsite_init, release */
    uint32_t version;
    uint32_t bytes;
    uint32_t max_sites;
    uint32_t index_offset; /* max_sites + 1 words: offset of site i's record; 0 = none */
    uint32_t hash_offset;  /* hash_slots words, for the writer */
    uint32_t hash_slots;
    uint32_t arena_offset;
    _Atomic uint32_t sites; /* sites 1 … sites are published */
    _Atomic uint32_t used;  /* end of the arena's used part */
    _Atomic uint32_t python;
    _Atomic uint64_t misses;    /* slow paths taken */
    _Atomic uint64_t lost_full; /* captures without a number: memory full */
    _Atomic uint64_t lost_busy; /* another thread was publishing */
    _Atomic uint64_t lost_rate; /* more than misses_per_second */
    char python_version[32];    /* "3.11.7", valid once python is past PENDING (acquire) */
    char reason[136];           /* why Python stacks are off; valid once python is OFF (acquire) */
};

/*
 * A record lies in the arena, 4-byte aligned, and never changes once reachable: strings,
 * locations and sites, each stored once however often it is used. Offsets are from the start of the memory.
 *   string    count bytes, no terminator
 *   location  3 words: offset of the file's string, of the function's, line (0 = unknown)
 *   python    count words: offsets of locations, innermost first; id = site number
 *   native    2 words for each return address, low word first, innermost first; id = site number
 * Published by storing the offset in the index with release.
 */
enum rec_callsite_record_kind {
    REC_CALLSITE_STRING = 1,
    REC_CALLSITE_LOCATION,
    REC_CALLSITE_STACK,
    REC_CALLSITE_ADDRESS
};

struct rec_callsite_record {
    uint32_t hash;
    uint16_t kind;
    uint16_t count;
    uint32_t id;
};

struct rec_callsite_frame {
    const char *file; /* not terminated; UTF-8, "?" where it could not be read */
    const char *function;
    uint32_t file_length, function_length;
    uint32_t line; /* 0 = unknown */
};

struct rec_callsite_site {
    enum rec_callsite_record_kind kind;             /* REC_CALLSITE_STACK or REC_CALLSITE_ADDRESS */
    uint32_t frame_count;                           /* of frames or addresses */
    uint64_t addresses[REC_CALLSITE_MAX_ADDRESSES]; /* native */
    struct rec_callsite_frame frames[REC_CALLSITE_MAX_FRAMES]; /* innermost first */
};

struct rec_callsite_reader {
    const char *memory;
    uint32_t bytes, max_sites, index_offset;
};

/*
 * Points *reader at memory that another process may be writing. False when it is not a
 * call-site region of this version or does not fit into bytes.
 */
bool rec_callsite_open(const void *memory, size_t bytes, struct rec_callsite_reader *reader);

/*
 * Reads site id. False when there is none or its record is damaged; no content of the memory
 * makes it read outside. Strings point into the memory. Thread safe.
 */
bool rec_callsite_read(const struct rec_callsite_reader *reader, uint32_t id, struct rec_callsite_site *site);

/* A site in event.h's terms, with the memory for what it points to. */
struct rec_live_callsite {
    struct rec_callsite_def def;
    uint32_t naddresses; /* native: return addresses in the process; def has no frame yet */
    uint64_t addresses[REC_CALLSITE_MAX_ADDRESSES];
    struct rec_source_frame frames[REC_CALLSITE_MAX_FRAMES];
    char text[REC_CALLSITE_MAX_FRAMES * (REC_CALLSITE_MAX_FILE + REC_CALLSITE_MAX_FUNCTION + 2)];
};

/*
 * Reads call site id of a region. False when there is none. The content of the region is not
 * trusted; a native site comes without frames, for addresses mean something only together
 * with the process's mappings.
 */
bool rec_live_callsite(const struct rec_live *live, uint32_t id, struct rec_live_callsite *site);

/* Call sites 1 … n may exist. */
uint32_t rec_live_callsite_count(const struct rec_live *live);

#pragma GCC visibility pop

#endif
