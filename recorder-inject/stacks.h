/*
 * Stacks of threads of this process, taken without stopping them, without a signal and without a
 * lock: the kernel tells where a blocked thread stands, and its stack memory is searched for
 * return addresses. Frames can therefore be superfluous (a stale return address) but a blocked
 * thread's callers are all among them, innermost first, up to the limits.
 *
 * Memory is read through process_vm_readv, so nothing here can fault. Used by the drain thread
 * alone; one struct holds the result until the next use.
 */
#ifndef INJECT_STACKS_H
#define INJECT_STACKS_H

#include "inject.h"
#include "live/buildid.h"
#include "rec/event.h"

#define STACKS_FRAMES  32
#define STACKS_THREADS 512
#define STACKS_RANGES  4096
#define STACKS_MODULES 512
#define STACKS_BYTES   (64u << 10) /* of one stack that are searched */

/* An executable mapping. */
struct code_range {
    uint64_t start, end, offset; /* offset: of start, in the file */
    uint64_t head;               /* where the start of the file is mapped; 0 = nowhere */
    uint32_t module;             /* 1 + index once it is used in a frame; 0 = not yet */
    uint32_t path;               /* offset into paths; 0 = no file */
};

#define STACKS_BUILD_IDS 64

struct stacks {
    struct code_range ranges[STACKS_RANGES];
    uint32_t nranges;
    char paths[128u << 10];
    uint32_t paths_used;
    const char *modules[STACKS_MODULES];
    uint32_t nmodules;
    /* Of the files asked about last, by where they are mapped. */
    struct build_id {
        uint64_t head;
        char text[REC_BUILD_ID_TEXT];
    } build_ids[STACKS_BUILD_IDS];
    uint32_t next_build_id;
    /* While the mappings are read. */
    struct {
        uint64_t start, device, inode;
    } head;
    struct rec_frame frames[STACKS_THREADS][STACKS_FRAMES];
    struct rec_stall_thread threads[STACKS_THREADS];
    uint64_t words[STACKS_BYTES / 8];
    char text[16384];
};

/* Reads /proc/self/maps; forgets the modules of an earlier use. */
void stacks_read_maps(struct stacks *stacks);

/*
 * The file that an address belongs to: its path, the offset in it, and the build id of what is mapped
 * ("" = it has none). False when there is none. The texts hold until the mappings are read again
 * or STACKS_BUILD_IDS other files have been asked about.
 */
bool stacks_locate(struct stacks *stacks, uint64_t address, struct rec_source_frame *frame);

/* Path of a file with code whose name begins like this, NULL = none; holds as above. */
const char *stacks_find_file(const struct stacks *stacks, const char *name);

/*
 * Frames from pc (0 = unknown) and from the words at sp upwards; at most STACKS_FRAMES. pcs, when
 * not NULL, takes the addresses themselves. Returns their number.
 */
uint32_t stacks_scan(struct stacks *stacks, uint64_t pc, uint64_t sp, struct rec_frame *frames,
                     uint64_t *pcs);

/* All threads of the process but skip; returns their number (stacks->threads). */
uint32_t stacks_read_threads(struct stacks *stacks, int skip);

#endif
