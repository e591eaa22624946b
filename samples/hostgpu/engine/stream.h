/* Inside the engine: what a device and a stream are made of. */
#ifndef HG_STREAM_H
#define HG_STREAM_H

#include "engine.h"

#include <pthread.h>

struct CUstream_st {
    /* Written once, before anybody else sees the stream. */
    struct hg_device *device;
    unsigned flags;
    int priority;
    uint64_t id;

    /* Under the device's lock. A destroyed stream stays in the list until its work is done: who waits for the
     * device waits for it too. */
    struct CUstream_st *next;
    bool is_gone; /* destroyed: no longer a valid handle */

    pthread_mutex_t lock; /* guards all below; taken after the device's lock, never before */
    pthread_cond_t filled;
    pthread_cond_t room; /* fewer than HG_MAX_QUEUED are queued */
    struct hg_work *head;
    struct hg_work **tail;
    struct hg_capture *capture; /* NULL unless the stream is captured */
    uint64_t submitted;
    uint64_t completed;
    bool has_worker;
    bool destroyed; /* the worker ends, and frees the stream, once the queue is empty */
    bool ended;     /* it has: nothing will run any more */

    /* Only the worker uses these. */
    unsigned long nccl_done;  /* operations finished */
    unsigned long marks_seen; /* stream memory writes since the last of them */
};

struct hg_device {
    int index;
    pthread_mutex_t lock; /* guards the list of streams and the order of submissions between them */
    struct CUstream_st *streams;
    struct CUstream_st *default_stream;
};

/* Appends to the capture's graph if the stream is captured; false if it is not. Takes ownership only if it
 * is. Stream lock held. */
bool hg_capture_take(struct CUstream_st *stream, struct hg_work *work);
/* Makes the end of the stream's capture, if there is one, fail. */
void hg_capture_invalidate(struct CUstream_st *stream);

/* NULL if there is no such device. */
struct hg_device *hg_device_get(int index);

#endif
