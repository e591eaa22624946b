/* Inside the runtime library: the calling thread's last error. */
#ifndef HG_RUNTIME_H
#define HG_RUNTIME_H

#include <cuda_runtime_api.h>

#include "../engine/engine.h"

/* The engine's numbers are the runtime's. Remembers a failure for cudaGetLastError and returns it;
 * cudaErrorNotReady is an answer, not a failure, and is not remembered. */
cudaError_t hg_runtime_result(CUresult result);
/* The stream behind a handle, on the current device for the default one. */
cudaError_t hg_runtime_stream(cudaStream_t handle, CUstream *stream);

#endif
