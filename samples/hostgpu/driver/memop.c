/* Stream memory operations: a word in memory that the stream itself writes or waits for. */
#include "driver.h"

#include <stdlib.h>
#include <time.h>

struct memop_work {
    struct hg_work base;
    CUdeviceptr address;
    uint64_t value;
    unsigned wait_flags;
    bool wide;
};

static void release(struct hg_work *work)
{
    free(work);
}

static void run_write(struct hg_work *work)
{
    struct memop_work *w = (struct memop_work *)work;
    /* Release: who reads the word sees what the stream did before it. */
    if (w->wide)
        atomic_store_explicit((_Atomic uint64_t *)w->address, w->value, memory_order_release);
    else
        atomic_store_explicit((_Atomic uint32_t *)w->address, (uint32_t)w->value, memory_order_release);
}

static bool is_met(const struct memop_work *w)
{
    uint64_t now, value = w->value;
    int64_t ahead;
    if (w->wide) {
        now = atomic_load_explicit((_Atomic uint64_t *)w->address, memory_order_acquire);
        ahead = (int64_t)(now - value);
    } else {
        now = atomic_load_explicit((_Atomic uint32_t *)w->address, memory_order_acquire);
        ahead = (int32_t)((uint32_t)now - (uint32_t)value);
    }
    uint64_t mask = w->wide ? UINT64_MAX : UINT32_MAX;
    switch (w->wait_flags & 3u) {
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
static void run_wait(struct hg_work *work)
{
    long ns = 20000;
    while (!is_met((struct memop_work *)work)) {
        nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
        ns = ns < 500000 ? ns * 2 : 1000000;
    }
}

static CUresult submit(CUstream handle, const struct memop_work *what)
{
    size_t width = what->wide ? 8 : 4;
    CUstream stream;
    CUresult result = hg_stream_resolve(handle, hg_current_device(), &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!what->address || what->address % width)
        return CUDA_ERROR_INVALID_VALUE;
    struct memop_work *w = malloc(sizeof *w);
    if (!w)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *w = *what;
    w->base.release = release;
    return hg_submit(stream, &w->base);
}

static CUresult submit_write(CUstream stream, CUdeviceptr address, uint64_t value, bool wide)
{
    struct memop_work what = {{.run = run_write, .kind = HG_WORK_MARK}, address, value, 0, wide};
    return submit(stream, &what);
}

static CUresult submit_wait(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags, bool wide)
{
    struct memop_work what = {{.run = run_wait, .kind = HG_WORK_PLAIN}, address, value, flags, wide};
    return submit(stream, &what);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)flags;
    return submit_write(stream, address, value, false);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    (void)flags;
    return submit_write(stream, address, value, true);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    return submit_wait(stream, address, value, flags, false);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    return submit_wait(stream, address, value, flags, true);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams *ops, unsigned flags)
{
    CUresult result = CUDA_SUCCESS;
    (void)flags;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        const CUstreamBatchMemOpParams *op = &ops[i];
        switch (op->operation) {
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            result = submit_write(stream, op->writeValue.address, op->writeValue.value, false);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            result = submit_write(stream, op->writeValue.address, op->writeValue.value64, true);
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            result =
                submit_wait(stream, op->waitValue.address, op->waitValue.value, op->waitValue.flags, false);
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            result =
                submit_wait(stream, op->waitValue.address, op->waitValue.value64, op->waitValue.flags, true);
            break;
        case CU_STREAM_MEM_OP_BARRIER:
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            break; /* a stream of the lab is one thread: its writes are in order anyway */
        default:
            result = CUDA_ERROR_INVALID_VALUE;
        }
    }
    return result;
}

HG_ALIAS(cuStreamWriteValue32, cuStreamWriteValue32_v2);
HG_ALIAS(cuStreamWriteValue64, cuStreamWriteValue64_v2);
HG_ALIAS(cuStreamWaitValue32, cuStreamWaitValue32_v2);
HG_ALIAS(cuStreamWaitValue64, cuStreamWaitValue64_v2);
HG_ALIAS(cuStreamBatchMemOp, cuStreamBatchMemOp_v2);
