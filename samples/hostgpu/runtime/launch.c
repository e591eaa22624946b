/* Launches of kernels, which do nothing. Compiled twice: the second time the names
 * have _ptsz or _ptds behind them, and the default stream is the calling thread's. */
#include "runtime.h"

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define __cudaLaunchKernel __cudaLaunchKernel_ptsz
#endif

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared_bytes, cudaStream_t stream);

static void do_nothing(void *user)
{
    (void)user;
}

static cudaError_t launch(cudaStream_t handle)
{
    CUstream stream;
    cudaError_t error = hg_runtime_stream(handle, &stream);
    return error == cudaSuccess ? hg_runtime_result(hg_submit_call(stream, do_nothing, NULL)) : error;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared_bytes, cudaStream_t stream)
{
    (void)kernel, (void)grid, (void)block, (void)arguments, (void)shared_bytes;
    return launch(stream);
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, cudaStream_t stream)
{
    (void)function, (void)grid, (void)block, (void)arguments, (void)shared_bytes;
    return launch(stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                                        size_t shared_bytes, cudaStream_t stream)
{
    return cudaLaunchKernel(function, grid, block, arguments, shared_bytes, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments)
{
    (void)function, (void)arguments;
    return config ? launch(config->stream) : hg_runtime_result(CUDA_ERROR_INVALID_VALUE);
}
