#ifndef MARKS_NCCL_H
#define MARKS_NCCL_H

#include <nccl.h>

extern ncclResult_t marks_nccl_result; /* of launches */
extern ncclResult_t marks_nccl_async;  /* what ncclCommGetAsyncError tells */

#endif
