/*
 * One call as named fields: the table behind JSON lines and CSV. The names and their order
 * are documented in fr-dump(1) and do not change.
 */
#ifndef FR_DUMP_ROW_H
#define FR_DUMP_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "rec/job.h"

/* X(ENUM, name) */
#define ROW_FIELDS(X)                                                                                        \
    X(OP, "op")                                                                                              \
    X(RANK, "rank")                                                                                          \
    X(PID, "pid")                                                                                            \
    X(HOST, "host")                                                                                          \
    X(COMM, "comm")                                                                                          \
    X(COMM_NAME, "comm_name")                                                                                \
    X(COMM_RANK, "comm_rank")                                                                                \
    X(NRANKS, "nranks")                                                                                      \
    X(SEQ, "seq")                                                                                            \
    X(COUNT, "count")                                                                                        \
    X(BYTES, "bytes")                                                                                        \
    X(DATATYPE, "datatype")                                                                                  \
    X(REDOP, "redop")                                                                                        \
    X(ROOT, "root")                                                                                          \
    X(PEER, "peer")                                                                                          \
    X(SIGNAL, "signal")                                                                                      \
    X(CONTEXT, "context")                                                                                    \
    X(COLOR, "color")                                                                                        \
    X(KEY, "key")                                                                                            \
    X(GROUP, "group")                                                                                        \
    X(STREAM, "stream")                                                                                      \
    X(THREAD, "thread")                                                                                      \
    X(ENTER_NS, "enter_ns")                                                                                  \
    X(EXIT_NS, "exit_ns")                                                                                    \
    X(GPU_START_NS, "gpu_start_ns")                                                                          \
    X(GPU_END_NS, "gpu_end_ns")                                                                              \
    X(RESULT, "result")                                                                                      \
    X(ASYNC_ERROR, "async_error")                                                                            \
    X(STATE, "state")                                                                                        \
    X(CAPTURED, "captured")                                                                                  \
    X(PART, "part")                                                                                          \
    X(GRAPH, "graph")                                                                                        \
    X(REPLAY, "replay")                                                                                      \
    X(SITE, "site")

enum row_field {
#define X(id, name) ROW_##id,
    ROW_FIELDS(X)
#undef X
        ROW_NFIELDS
};

extern const char *const row_names[ROW_NFIELDS];

struct row_value {
    enum { ROW_ABSENT, ROW_NUMBER, ROW_SIGNED, ROW_TEXT, ROW_UID, ROW_HANDLE, ROW_TRUE } type;
    union {
        uint64_t number;
        int64_t signed_number;
        const char *text;
    } u;
};

struct row {
    struct row_value values[ROW_NFIELDS];
    char op_name[16]; /* of a kind that this version does not know */
    char result_name[16];
    const struct rec_callsite_def *callsite; /* NULL = not known */
};

/* Pointers in row go to process, to op's constants and to row itself. */
void row_fill(struct row *row, const struct rec_process *process, const struct rec_op *op);

/* Made on first use, and never freed; NULL without memory. */
struct rec_symbolizer *row_symbolizer(void);

/* A call site in words; "" for NULL. The text lives until many other sites have been asked for. */
const char *row_site(const struct rec_callsite_def *site);

/* Bytes of a call's count elements; false for calls that move no data. */
bool row_op_bytes(const struct rec_op *op, uint64_t *bytes);

/* The op's name; buffer serves for kinds that have none here ("Op113"). */
const char *row_op_name(unsigned kind, char *buffer, size_t size);

#endif
