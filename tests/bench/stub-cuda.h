/*
 * A libcuda.so.1 of the few functions that the recorder calls, whose streams run everything at
 * once: for measuring what marks cost and for unit tests of them. Streams are numbers; bits 12
 * to 15 of one name its device. A context is a device.
 */
#ifndef STUB_CUDA_H
#define STUB_CUDA_H

#include <stdbool.h>
#include <stdint.h>

enum stub_what { STUB_WRITE = 1, STUB_LAUNCH, STUB_REGISTER };

struct stub_event {
    enum stub_what what;
    void *stream;
    uint64_t address, value; /* of a write */
    int device;              /* current at that moment */
};

#define STUB_EVENTS 256

struct stub_cuda {
    bool log;          /* keep events; the bench does not */
    int fail;          /* result of writes */
    bool stuck;        /* streams take work and do not run it */
    int no_context;    /* no thread has a current context */
    void *capturing;   /* the stream being captured */
    int capture_mode;  /* of the thread that registers */
    int registered_in; /* capture mode while memory was registered; -1 = never */
    int events;
    struct stub_event event[STUB_EVENTS];
};
extern struct stub_cuda stub_cuda;
extern _Thread_local int stub_device;

void stub_note(enum stub_what what, void *stream, uint64_t address, uint64_t value);

#endif
