#include "comm.h"
#include "export.h"
#include "version.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local char last_message[512];

ncclResult_t lab_error(ncclResult_t result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_message, sizeof last_message, format, arguments);
    va_end(arguments);
    const char *debug = getenv("NCCL_DEBUG");
    if (debug && *debug)
        fprintf(stderr, "hostgpu: NCCL WARN %s\n", last_message);
    return result;
}

const char *pncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last_message;
}
LAB_EXPORT(ncclGetLastError);

const char *pncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {
        [ncclSuccess] = "no error",
        [ncclUnhandledCudaError] = "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        [ncclSystemError] = "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        [ncclInternalError] = "internal error - please report this issue to the NCCL developers",
        [ncclInvalidArgument] = "invalid argument (run with NCCL_DEBUG=WARN for details)",
        [ncclInvalidUsage] = "invalid usage (run with NCCL_DEBUG=WARN for details)",
        [ncclRemoteError] = "remote process exited or there was a network error",
        [ncclInProgress] = "NCCL operation in progress",
        [8] = "operation timed out", /* ncclTimeout, since 2.30.3 */
    };
    if ((unsigned)result < sizeof texts / sizeof *texts &&
        !(result == ncclTimeout && lab_nccl_version < 23003))
        return texts[result];
    return "unknown result code";
}
LAB_EXPORT(ncclGetErrorString);

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* by nccl.h, and yet exported */

/* The variables are read whenever they matter, so there is nothing to forget. */
void pncclResetDebugInit(void)
{
}
LAB_EXPORT(ncclResetDebugInit);
