/*
 * Stream marks: what the GPU has really done.
 *
 * Around every launch the recorder asks the stream itself to write the launch's number into the live
 * region (cuStreamWriteValue64): into mark.start before the launch, into mark.end behind it.
 * Launches of a stream are numbered 1, 2, …; a launch is one op, or a whole outermost group
 * on each of its streams. Nobody asks CUDA anything later, and the words survive the process.
 *
 * All of it runs in the application's thread, inside its own NCCL call, between the times when NCCL
 * launches there itself; nothing waits for the GPU. The driver is called under no lock of ours.
 *
 * A stream's marks belong to one thread from the claim to the end mark, for numbers must reach
 * the stream in order: another thread that launches there meanwhile gets no number (0), and its op
 * is told as enqueued. Where the driver refuses anything, marks stop for good.
 */
#ifndef INJECT_MARKS_H
#define INJECT_MARKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct thread;

/* One launch on one stream. */
struct mark {
    uint64_t number;  /* 0 = no marks */
    uint64_t told;    /* NCCL tells when it runs (launches.h): no marks are put. 0 = the GPU does */
    uint64_t address; /* of the stream's marks; 0 = this launch has none */
    void *stream;
    void *context;
    uint16_t index; /* of the stream */
};

/* What a stream op of this thread is about to do. */
enum mark_stream {
    MARK_STREAM_UNKNOWN = 0, /* no driver, or it will not say */
    MARK_STREAM_RUNS,
    MARK_STREAM_CAPTURED, /* recorded into a graph: nothing runs now */
};
enum mark_stream marks_ask(void *stream);

/*
 * A communicator came to be: lets the driver write to the marks now. Whoever launches while another
 * thread does that gets no marks, so it had better be done before the first launches.
 */
void marks_prepare(void);

/*
 * The launch's number, or 0. A single op: fills *mark, which goes to marks_start before and to
 * marks_end after NCCL's call. In a group *mark stays empty, and the group's calls below do it for
 * all its streams. thread->told is the launch's name where NCCL tells of the communicator's launches.
 * marks_end is false where it turns out that nobody will tell of this one.
 */
void marks_claim(struct thread *thread, struct mark *mark, uint16_t index, void *stream, uint16_t comm);
void marks_start(const struct mark *mark);
bool marks_end(const struct mark *mark, uint16_t comm, unsigned result);
/* The launch of which NCCL tells that the thread's open call, or group, makes on this communicator; 0 = none.
 */
uint64_t marks_told(const struct thread *thread, uint16_t comm);

void marks_group_begin(struct thread *thread);
void marks_group_start(struct thread *thread); /* before the outermost ncclGroupEnd */
void marks_group_end(struct thread *thread, unsigned result);

/* Non-blocking communicators: a launch whose call returned ncclInProgress gets its end mark
 * when ncclCommGetAsyncError tells another state of all its communicators. */
extern _Atomic uint32_t marks_pending;
void marks_async(uint16_t comm, unsigned error);

void marks_thread_exit(struct thread *thread);
void marks_forget(void); /* child of a fork */

#endif
