/* What nvcc's host code calls. Kernels do nothing: they are accepted, in stream order, and that is all. */
#include "runtime.h"

struct call_configuration {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
};

/* Between the launch syntax's push and the stub's pop nothing else runs on the thread, so one is enough. */
static _Thread_local struct call_configuration configuration;
static void *module_handle;

void **__cudaRegisterFatBinary(void *fat_binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *name,
                            int thread_limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid,
                            int *warp_size);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t bytes,
                       int constant, int global);
void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext,
                              size_t bytes, int constant, int global);
char __cudaInitModule(void **handle);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host_function);

void **__cudaRegisterFatBinary(void *fat_binary)
{
    (void)fat_binary;
    return &module_handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *name,
                            int thread_limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp_size)
{
    (void)handle, (void)host_function, (void)device_function, (void)name, (void)thread_limit;
    (void)tid, (void)bid, (void)block, (void)grid, (void)warp_size;
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t bytes,
                       int constant, int global)
{
    (void)handle, (void)host, (void)device, (void)name, (void)ext, (void)bytes, (void)constant, (void)global;
}

void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext,
                              size_t bytes, int constant, int global)
{
    (void)handle, (void)host, (void)device, (void)name, (void)ext, (void)bytes, (void)constant, (void)global;
}

char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream)
{
    configuration = (struct call_configuration){grid, block, shared_bytes, stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream)
{
    *grid = configuration.grid;
    *block = configuration.block;
    *shared_bytes = configuration.shared_bytes;
    *(cudaStream_t *)stream = configuration.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host_function)
{
    *kernel = (cudaKernel_t)(uintptr_t)host_function;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    (void)function;
    if (!attributes)
        return hg_runtime_result(CUDA_ERROR_INVALID_VALUE);
    *attributes = (struct cudaFuncAttributes){.maxThreadsPerBlock = 1024, .numRegs = 1};
    return cudaSuccess;
}
