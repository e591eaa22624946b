#include "rec/event.h"
#include "rec/model.h"

#include <string.h>

static const char *const kinds[] = {
#define X(number, id, name, flags) [number] = name,
    REC_KIND_TABLE(X)
#undef X
};
#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

const uint16_t rec_kind_flags_table[REC_KIND_END] = {
#define X(number, id, name, flags) [number] = (flags),
    REC_KIND_TABLE(X)
#undef X
};

struct dtype_row {
    const char *name;
    unsigned size;
};

/* NCCL >= 2.24.3 for the two fp8 types. */
static const struct dtype_row dtypes[] = {
    {"i8", 1},  {"u8", 1},  {"i32", 4}, {"u32", 4},  {"i64", 8},    {"u64", 8},
    {"f16", 2}, {"f32", 4}, {"f64", 8}, {"bf16", 2}, {"f8e4m3", 1}, {"f8e5m2", 1},
};
#define DTYPE_COUNT (sizeof(dtypes) / sizeof(dtypes[0]))

static const char *const redops[] = {"sum", "prod", "max", "min", "avg"};
#define REDOP_COUNT (sizeof(redops) / sizeof(redops[0]))
_Static_assert(REDOP_COUNT == REC_REDOP_USER, "user operators follow the builtin ones");

/* NCCL >= 2.30.3 for Timeout. */
static const char *const results[] = {"Success",       "UnhandledCudaError", "SystemError",
                                      "InternalError", "InvalidArgument",    "InvalidUsage",
                                      "RemoteError",   "InProgress",         "Timeout"};
#define RESULT_COUNT (sizeof(results) / sizeof(results[0]))

static const char *const states[] = {"unknown",     "not_entered", "in_call", "enqueued",
                                     "gpu_started", "completed",   "failed",  "aborted"};
#define STATE_COUNT (sizeof(states) / sizeof(states[0]))

static int find(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    return -1;
}

const char *rec_kind_name(unsigned kind)
{
    return kind < KIND_COUNT ? kinds[kind] : NULL;
}

enum rec_kind rec_kind_canonical(unsigned kind)
{
    switch (kind) {
    case REC_BCAST:
        return REC_BROADCAST;
    case REC_COMM_INIT_RANK_CONFIG:
    case REC_COMM_INIT_RANK_SCALABLE:
    case REC_COMM_INIT_ALL:
        return REC_COMM_INIT_RANK;
    default:
        return (enum rec_kind)kind;
    }
}

const char *rec_dtype_name(unsigned dtype)
{
    return dtype < DTYPE_COUNT ? dtypes[dtype].name : NULL;
}

int rec_dtype_from_name(const char *name)
{
    for (size_t i = 0; i < DTYPE_COUNT; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return (int)i;
    return -1;
}

unsigned rec_dtype_size(unsigned dtype)
{
    return dtype < DTYPE_COUNT ? dtypes[dtype].size : 0;
}

const char *rec_redop_name(unsigned redop)
{
    if (redop == REC_REDOP_NONE)
        return NULL;
    return redop < REDOP_COUNT ? redops[redop] : "user";
}

int rec_redop_from_name(const char *name)
{
    return find(redops, REDOP_COUNT, name);
}

const char *rec_result_name(unsigned result)
{
    return result < RESULT_COUNT ? results[result] : NULL;
}

const char *rec_state_name(enum rec_state state)
{
    return (size_t)state < STATE_COUNT ? states[state] : "unknown";
}

uint64_t rec_signature(unsigned kind, uint64_t count, unsigned dtype, uint64_t redop_hash, int32_t root)
{
    unsigned canonical = rec_kind_canonical(kind);
    unsigned flags = rec_kind_flags(canonical);
    if (flags & REC_KF_P2P)
        canonical = REC_SEND;
    uint64_t h = rec_mix64(canonical + 1);
    if (canonical == REC_COMM_INIT_RANK || (flags & REC_KF_DATA))
        h = rec_mix64(h ^ rec_mix64(count + 0x51));
    if (flags & REC_KF_DATA)
        h = rec_mix64(h ^ (dtype + 0x100u));
    if (flags & REC_KF_REDOP)
        h = rec_mix64(h ^ rec_mix64(redop_hash + 0x200u));
    if (flags & REC_KF_ROOT)
        h = rec_mix64(h ^ ((uint64_t)(uint32_t)root + 0x300u));
    return h;
}

const char *rec_loss_why_name(unsigned why)
{
    static const char *const names[] = {
        [REC_LOSS_RING_FULL] = "ring_full",   [REC_LOSS_WRITE] = "write",
        [REC_LOSS_ROTATED] = "rotated",       [REC_LOSS_DAMAGED] = "damaged",
        [REC_LOSS_TABLE_FULL] = "table_full",
    };
    return why < sizeof(names) / sizeof(names[0]) ? names[why] : NULL;
}

void rec_op_gpu(struct rec_op *op, const struct rec_gpu *gpu)
{
    bool untold = gpu->dropped != 0 && op->launch >= gpu->dropped && op->launch > gpu->ended;
    if (op->launch == 0 || (op->flags & REC_OF_CAPTURED) || untold)
        return;
    /* The end mark is asked for only after the launch succeeded. A start mark may be reached while the
     * host is still busy launching. */
    bool open = op->state == REC_STATE_IN_CALL || op->state == REC_STATE_UNKNOWN;
    if (op->launch <= gpu->ended && (open || op->state == REC_STATE_ENQUEUED))
        op->state = REC_STATE_COMPLETED;
    else if (op->launch <= gpu->started && op->state == REC_STATE_ENQUEUED)
        op->state = REC_STATE_GPU_STARTED;
}
