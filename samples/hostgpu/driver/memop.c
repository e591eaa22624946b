/* Stream memory operations: a word in memory that the stream itself writes or waits for. Compiled twice, as
 * queue.c is. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_BATCH 255 /* operations in one call, by the documentation */

/* One operation, in the terms of all the calls. */
struct memop {
    CUdeviceptr address;
    uint64_t value;
    bool is_wait, wide;
    unsigned flags;
};

/* What one call asks for: in a graph, one node. */
struct memop_work {
    struct hg_work base;
    size_t n;
    struct memop ops[];
};

static void release(struct hg_work *work)
{
    free(work);
}

static void write_value(const struct memop *op)
{
    /* Release: who reads the word sees what the stream did before it. */
    if (op->wide)
        atomic_store_explicit((_Atomic uint64_t *)op->address, op->value, memory_order_release);
    else
        atomic_store_explicit((_Atomic uint32_t *)op->address, (uint32_t)op->value, memory_order_release);
}

static bool is_met(const struct memop *op)
{
    uint64_t now, value = op->value;
    int64_t ahead;
    if (op->wide) {
        now = atomic_load_explicit((_Atomic uint64_t *)op->address, memory_order_acquire);
        ahead = (int64_t)(now - value);
    } else {
        now = atomic_load_explicit((_Atomic uint32_t *)op->address, memory_order_acquire);
        ahead = (int32_t)((uint32_t)now - (uint32_t)value);
    }
    uint64_t mask = op->wide ? UINT64_MAX : UINT32_MAX;
    switch (op->flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return ahead >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & value) != 0;
    default:
        return (~(now | value) & mask) != 0;
    }
}

/* Nobody rings when an ordinary store changes the word, so look at growing intervals up to 1 ms. */
static void wait_value(const struct memop *op)
{
    long ns = 20000;
    while (!is_met(op)) {
        nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
        ns = ns < 500000 ? ns * 2 : 1000000;
    }
}

static void run(struct hg_work *work)
{
    const struct memop_work *w = (const struct memop_work *)work;
    for (size_t i = 0; i < w->n; i++)
        (w->ops[i].is_wait ? wait_value : write_value)(&w->ops[i]);
}

/* A GPU reaches only memory that CUDA knows, and managed memory is excluded by the documentation. */
static bool is_valid(const struct memop *op)
{
    size_t width = op->wide ? 8 : 4;
    unsigned known = op->is_wait ? CU_STREAM_WAIT_VALUE_NOR : CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
    struct hg_memory memory;
    return !(op->flags & ~known) && op->address % width == 0 &&
           hg_memory_find((void *)op->address, &memory) && memory.kind != HG_MEMORY_MANAGED &&
           memory.bytes - (op->address - (CUdeviceptr)memory.base) >= width;
}

static CUresult submit(CUstream handle, const struct memop *ops, size_t n)
{
    CUstream stream;
    bool waits = false;
    CUresult result = hg_driver_stream(handle, &stream);
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++) {
        waits |= ops[i].is_wait;
        if (ops[i].is_wait && ops[i].flags & CU_STREAM_WAIT_VALUE_FLUSH)
            result = CUDA_ERROR_NOT_SUPPORTED; /* as CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES says */
        else if (!is_valid(&ops[i]))
            result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS || n == 0)
        return result;
    struct memop_work *w = malloc(sizeof *w + n * sizeof *ops);
    if (!w)
        return CUDA_ERROR_OUT_OF_MEMORY;
    w->base = (struct hg_work){.run = run, .release = release, .kind = waits ? HG_WORK_PLAIN : HG_WORK_MARK};
    w->n = n;
    memcpy(w->ops, ops, n * sizeof *ops);
    return hg_submit(stream, &w->base);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    return submit(stream, &(struct memop){address, value, false, false, flags}, 1);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    return submit(stream, &(struct memop){address, value, false, true, flags}, 1);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    return submit(stream, &(struct memop){address, value, true, false, flags}, 1);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    return submit(stream, &(struct memop){address, value, true, true, flags}, 1);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams *params,
                               unsigned flags)
{
    struct memop ops[MAX_BATCH];
    size_t n = 0;
    if (flags || !count || count > MAX_BATCH || !params)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        const CUstreamBatchMemOpParams *p = &params[i];
        switch (p->operation) {
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            ops[n++] =
                (struct memop){p->writeValue.address, p->writeValue.value, false, false, p->writeValue.flags};
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            ops[n++] = (struct memop){p->writeValue.address, p->writeValue.value64, false, true,
                                      p->writeValue.flags};
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            ops[n++] =
                (struct memop){p->waitValue.address, p->waitValue.value, true, false, p->waitValue.flags};
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            ops[n++] =
                (struct memop){p->waitValue.address, p->waitValue.value64, true, true, p->waitValue.flags};
            break;
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            return CUDA_ERROR_NOT_SUPPORTED;
        case CU_STREAM_MEM_OP_BARRIER:
            break; /* a stream of the lab is one thread: its writes are in order anyway */
        default:
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return submit(stream, ops, n);
}

HG_ALIAS(cuStreamWriteValue32, cuStreamWriteValue32_v2);
HG_ALIAS(cuStreamWriteValue64, cuStreamWriteValue64_v2);
HG_ALIAS(cuStreamWaitValue32, cuStreamWaitValue32_v2);
HG_ALIAS(cuStreamWaitValue64, cuStreamWaitValue64_v2);
HG_ALIAS(cuStreamBatchMemOp, cuStreamBatchMemOp_v2);
