/* Driver functions by name. Compiled twice, as queue.c is. */
#include "runtime.h"

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (flags == cudaEnableDefault && HG_DEFAULT_STREAM == CU_STREAM_PER_THREAD)
        flags = cudaEnablePerThreadDefaultStream;
    CUresult result = cuGetProcAddress(symbol, function, (int)version, flags, &found);
    if (status)
        *status = (enum cudaDriverEntryPointQueryResult)found;
    return hg_runtime_result(result);
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status)
{
    return cudaGetDriverEntryPointByVersion(symbol, function, CUDART_VERSION, flags, status);
}
