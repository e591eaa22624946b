/*
 * Makes traces and live regions for the tests of job loading, through the interfaces that the
 * recorder uses. Everything fails the running test when it cannot.
 */
#ifndef MAKER_H
#define MAKER_H

#include "rec/live.h"
#include "rec/writer.h"

#define T0 (UINT64_C(1764476400) * 1000000000) /* when the tests' jobs start */
#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

/* A fresh directory; removed with all it holds by maker_clean. */
void maker_dir(char *path, size_t size);
void maker_clean(const char *path);

/* ---- files ---- */

struct maker {
    struct rec_writer *writer;
    void *memory;
    uint64_t now;
    uint64_t ordinal;
};
void maker_open(struct maker *maker, const char *dir, const char *stem, const char *meta, uint64_t max_bytes);
/* A thread 1 with this tid and a communicator with id 0. */
void maker_world(struct maker *maker, uint64_t uid, uint32_t nranks, uint32_t rank);
void maker_comm(struct maker *maker, uint32_t id, uint64_t uid, uint32_t nranks, uint32_t rank,
                uint64_t parent_uid);
/* count AllReduces of thread 1 on comm, seq as given, the maker's next ordinals. */
void maker_ops(struct maker *maker, uint32_t comm, uint64_t first_seq, size_t count);
void maker_frontier(struct maker *maker, uint32_t comm, uint64_t next_seq);
void maker_end(struct maker *maker, uint32_t reason, int status, int signal);
void maker_close(struct maker *maker);
/* The op that maker_ops writes at this place. */
struct rec_op maker_op(uint64_t ordinal, uint64_t seq, uint32_t comm, uint64_t now);

/* "{...}" with these members; rank < 0 leaves it out, so does a NULL. Static buffer. */
const char *maker_meta(uint64_t proc_uid, int rank, int world_size, const char *source, const char *id,
                       uint64_t start_ns);

/* ---- live regions ---- */

struct maker_region {
    char path[512];
    struct rec_live live;
    uint32_t next_chunk;
};
void maker_region(struct maker_region *region, const char *path, uint64_t proc_uid, int pid,
                  uint64_t start_ticks, const char *frec_dir, const char *meta);
void maker_region_comm(struct maker_region *region, uint32_t index, uint32_t id, uint64_t uid,
                       uint32_t nranks, uint32_t rank, uint64_t next_seq);
void maker_region_thread(struct maker_region *region, uint32_t index, uint32_t id);
/* Finished AllReduces of a thread from this ordinal on, in a new chunk; seq = ordinal. */
void maker_region_ops(struct maker_region *region, uint32_t thread_index, uint64_t first_ordinal,
                      uint32_t count);
/* An open AllReduce. */
void maker_region_open(struct maker_region *region, uint32_t thread_index, uint64_t ordinal);
void maker_region_close(struct maker_region *region);

uint64_t maker_start_ticks(int pid);

#endif
