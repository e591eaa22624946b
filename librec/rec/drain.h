/*
 * From the live region into the file: what is new since the last step goes to a rec_writer.
 *
 * Two users: the recorder's drain thread, in the job, and recovery of a region whose process
 * is gone. A drain belongs to one thread; the region may be written by the job's threads
 * meanwhile. Nothing is allocated, no lock is taken, the only system calls are the writer's.
 * A region is not trusted beyond what rec_live_map checked: indices are checked here.
 *
 * What a step does to the region, and only after the writer's flush has succeeded:
 *   - raises chunk.drained;
 *   - sets full, drained chunks free (and the rest of a thread that has exited);
 *   - sets the entries of exited, drained threads free;
 *   - turns destroyed or failed communicators to REC_LIVE_COMM_FREE once no record that names
 *     them is left in the ring.
 * When the file cannot be written, the writer keeps what it was given and later ops stay in the
 * ring until a step finds that it works again. Under pressure the oldest chunks are given up,
 * so that the region always holds the newest ops.
 */
#ifndef REC_DRAIN_H
#define REC_DRAIN_H

#include "rec/live.h"
#include "rec/writer.h"

#pragma GCC visibility push(default)

struct rec_drain;

/* Bytes of 64-byte-aligned, zeroed memory that a drain of this region needs. */
size_t rec_drain_bytes(const struct rec_live *live);

/* live must stay mapped, and writable, as long as the drain is used. */
struct rec_drain *rec_drain_init(void *memory, const struct rec_live *live);

/*
 * Tells to which file an address of the recorded process belongs: fills file and offset of
 * *frame, whose text stays until the next call; false when nothing is known. Without such a
 * function native call sites have their address only.
 */
typedef bool rec_drain_resolve(void *context, uint64_t address, struct rec_source_frame *frame);
void rec_drain_resolver(struct rec_drain *drain, rec_drain_resolve *resolve, void *context);

/*
 * Takes the next launch whose exact time is known: it began, or was over, on the stream with this index of
 * the table. False: none is known that was not taken before; the next step asks again. Of launches that it
 * never names, and of all streams without such a function, the time is that of the step that found the marks
 * changed.
 */
struct rec_drain_time {
    uint32_t stream;
    bool ended;
    uint64_t launch, time_ns;
};
typedef bool rec_drain_take_time(struct rec_drain_time *time);
void rec_drain_times(struct rec_drain *drain, rec_drain_take_time *take);

struct rec_drain_result {
    uint64_t ops;         /* handed to the writer in this step */
    uint64_t given_up;    /* ops that left the ring without reaching the file */
    uint32_t free_chunks; /* after the step */
    uint32_t freed_chunks;
    bool freed_comms; /* at least one communicator entry became free */
};

/*
 * One step. time_ns is the wall clock now. writer may be NULL (no file could be made): the
 * ring is then only recycled. heartbeat asks for a heartbeat record. final says that no
 * thread will write any more, so that losses at the end of each thread are known too.
 * Returns the flush's result; result is always filled.
 */
enum rec_code rec_drain_step(struct rec_drain *drain, struct rec_writer *writer, uint64_t time_ns,
                             bool heartbeat, bool final, struct rec_drain_result *result,
                             struct rec_error *err);

#pragma GCC visibility pop

#endif
