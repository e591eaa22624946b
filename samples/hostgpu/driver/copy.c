/* Copies and fills. Compiled twice: the second time the names
 * have _ptsz or _ptds behind them, and the default stream is the calling thread's. */
#include "driver.h"

static CUresult copy(CUstream handle, void *dst, const void *src, size_t bytes, bool wait)
{
    CUstream stream;
    CUresult result = hg_driver_stream(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = hg_submit_copy(stream, dst, src, bytes);
    if (result == CUDA_SUCCESS && wait)
        result = hg_stream_synchronize(stream);
    return result;
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    return copy(stream, (void *)dst, (const void *)src, bytes, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
    return copy(stream, (void *)dst, src, bytes, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    return copy(stream, dst, (const void *)src, bytes, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    return copy(stream, (void *)dst, (const void *)src, bytes, false);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    return copy(NULL, (void *)dst, (const void *)src, bytes, true);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes)
{
    return copy(NULL, (void *)dst, src, bytes, true);
}

CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)
{
    return copy(NULL, dst, (const void *)src, bytes, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    return copy(NULL, (void *)dst, (const void *)src, bytes, true);
}

static CUresult fill(CUstream handle, CUdeviceptr dst, unsigned value, unsigned width, size_t count,
                     bool wait)
{
    CUstream stream;
    CUresult result = hg_driver_stream(handle, &stream);
    if (result == CUDA_SUCCESS)
        result = hg_submit_fill(stream, (void *)dst, value, width, count);
    if (result == CUDA_SUCCESS && wait)
        result = hg_stream_synchronize(stream);
    return result;
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream)
{
    return fill(stream, dst, value, 1, count, false);
}

CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned value, size_t count, CUstream stream)
{
    return fill(stream, dst, value, 4, count, false);
}

CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t count)
{
    return fill(NULL, dst, value, 1, count, true);
}

CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned value, size_t count)
{
    return fill(NULL, dst, value, 4, count, true);
}
