/* Copies and what else of memory is in stream order. Compiled twice: the second time the names
 * have _ptsz or _ptds behind them, and the default stream is the calling thread's. */
#include "runtime.h"

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t handle)
{
    CUstream stream;
    if ((unsigned)kind > cudaMemcpyDefault)
        return hg_runtime_result((CUresult)cudaErrorInvalidMemcpyDirection);
    cudaError_t error = hg_runtime_stream(handle, &stream);
    return error == cudaSuccess ? hg_runtime_result(hg_submit_copy(stream, dst, src, bytes)) : error;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t count, cudaStream_t handle)
{
    CUstream stream;
    cudaError_t error = hg_runtime_stream(handle, &stream);
    return error == cudaSuccess ? hg_runtime_result(hg_submit_fill(stream, dst, (unsigned)value, 1, count))
                                : error;
}

/* Waits for what the calling thread has just put on the default stream. */
static cudaError_t finish(cudaError_t error)
{
    return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    return finish(cudaMemcpyAsync(dst, src, bytes, kind, NULL));
}

cudaError_t cudaMemset(void *dst, int value, size_t count)
{
    return finish(cudaMemsetAsync(dst, value, count, NULL));
}

/* Row by row. */
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    if (width > dst_pitch || width > src_pitch)
        return hg_runtime_result((CUresult)cudaErrorInvalidPitchValue);
    for (size_t row = 0; row < height && error == cudaSuccess; row++)
        error = cudaMemcpyAsync((char *)dst + row * dst_pitch, (const char *)src + row * src_pitch, width,
                                kind, stream);
    return error;
}

cudaError_t cudaMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                         size_t height, enum cudaMemcpyKind kind)
{
    return finish(cudaMemcpy2DAsync(dst, dst_pitch, src, src_pitch, width, height, kind, NULL));
}

static void release_memory(void *pointer)
{
    hg_memory_release(pointer);
}

cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    return cudaMalloc(pointer, bytes);
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t handle)
{
    CUstream stream;
    cudaError_t error = hg_runtime_stream(handle, &stream);
    return error == cudaSuccess ? hg_runtime_result(hg_submit_call(stream, release_memory, pointer)) : error;
}
