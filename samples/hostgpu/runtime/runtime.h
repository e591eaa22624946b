/* Inside the runtime library: the calling thread's last error. */
#ifndef HG_RUNTIME_H
#define HG_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "../engine/engine.h"

/* The engine's numbers are the runtime's. Remembers a failure for cudaGetLastError and returns it;
 * cudaErrorNotReady is an answer, not a failure, and is not remembered. */
cudaError_t hg_runtime_result(CUresult result);
/* The stream behind a handle, on the current device for the default one. */
cudaError_t hg_runtime_resolve(cudaStream_t handle, CUstream *stream);

/*
 * A driver function from dlsym and cuGetProcAddress, the way by which the real runtime gets all of them: who
 * stands between the two on a GPU does so here. The version is the one that the real runtime asks for.
 */
void *hg_runtime_driver(const char *name, int version, unsigned flags);
#define HG_DRIVER(type, name, version, flags) ((type)(uintptr_t)hg_runtime_driver(name, version, flags))

/* In the second compilation of a file, cuda_runtime_api.h and cuda.h give the functions their other names. */
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define HG_DEFAULT_STREAM CU_STREAM_PER_THREAD
#define HG_DEFAULT_FLAG   CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
#else
#define HG_DEFAULT_STREAM CU_STREAM_LEGACY
#define HG_DEFAULT_FLAG   CU_GET_PROC_ADDRESS_DEFAULT
#endif

static inline cudaError_t hg_runtime_stream(cudaStream_t handle, CUstream *stream)
{
    return hg_runtime_resolve(handle ? handle : HG_DEFAULT_STREAM, stream);
}

#endif
