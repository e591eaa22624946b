/*
 * Records other than ops as bytes. Each function appends one whole record at p and returns
 * the end; the caller has made room for REC_RECORD_ROOM bytes (rec_encode_stall, _end and
 * _open: for the limit given, to which they cut their lists). clock is the segment's running
 * time in ticks: times are stored as differences to the one before. Async-signal-safe.
 */
#ifndef REC_FORMAT_ENCODE_H
#define REC_FORMAT_ENCODE_H

#include <stddef.h>
#include <stdint.h>

#include "rec/event.h"

#define REC_RECORD_ROOM   512
#define REC_CALLSITE_ROOM 2048

struct rec_time {
    uint64_t clock;
    uint32_t tick_ns;
};

uint8_t *rec_encode_meta(uint8_t *p, const char *meta, size_t bytes);
uint8_t *rec_encode_comm(uint8_t *p, struct rec_time *time, const struct rec_comm_def *def);
uint8_t *rec_encode_thread(uint8_t *p, const struct rec_thread_def *def);
uint8_t *rec_encode_redop(uint8_t *p, const struct rec_redop_def *def);
uint8_t *rec_encode_stream(uint8_t *p, const struct rec_stream_def *def);
uint8_t *rec_encode_frontier(uint8_t *p, struct rec_time *time, uint64_t time_ns,
                             const struct rec_frontier *frontier);
uint8_t *rec_encode_gpu(uint8_t *p, struct rec_time *time, uint64_t time_ns, const struct rec_gpu *gpu);
uint8_t *rec_encode_checkpoint(uint8_t *p, struct rec_time *time, uint64_t time_ns,
                               const struct rec_checkpoint *checkpoint);
uint8_t *rec_encode_heartbeat(uint8_t *p, struct rec_time *time, uint64_t time_ns);
uint8_t *rec_encode_loss(uint8_t *p, struct rec_time *time, uint64_t time_ns, const struct rec_loss *loss);
uint8_t *rec_encode_open(uint8_t *p, size_t limit, struct rec_time *time, uint64_t time_ns,
                         const struct rec_op *ops, size_t count);
uint8_t *rec_encode_stall(uint8_t *p, size_t limit, struct rec_time *time, uint64_t time_ns,
                          const struct rec_stall *stall);
uint8_t *rec_encode_end(uint8_t *p, size_t limit, struct rec_time *time, uint64_t time_ns,
                        const struct rec_end *end);

/* length ≤ REC_WIRE_STRING_MAX, room for that and REC_RECORD_ROOM. */
uint8_t *rec_encode_text(uint8_t *p, const char *text, size_t length);

/* Numbers of a frame's texts in the segment; REC_ID_NONE = empty. */
struct rec_callsite_text {
    uint32_t file, second; /* second: function or build id */
};
/* texts[i] for the frames of def, count ≤ REC_CALLSITE_FRAMES of them; REC_CALLSITE_ROOM bytes. */
uint8_t *rec_encode_callsite(uint8_t *p, const struct rec_callsite_def *def,
                             const struct rec_callsite_text *texts, uint32_t count);

#endif
