/* The forms of driver functions whose default stream is the calling thread's, under their real names: for the
 * second compilation of a file. cuda.h has this mapping for programs, but not together with all historical
 * forms. */
#ifndef HG_PER_THREAD_H
#define HG_PER_THREAD_H

#define cuMemcpy                  cuMemcpy_ptds
#define cuMemcpyHtoD_v2           cuMemcpyHtoD_v2_ptds
#define cuMemcpyDtoH_v2           cuMemcpyDtoH_v2_ptds
#define cuMemcpyDtoD_v2           cuMemcpyDtoD_v2_ptds
#define cuMemsetD8_v2             cuMemsetD8_v2_ptds
#define cuMemsetD32_v2            cuMemsetD32_v2_ptds
#define cuMemcpyAsync             cuMemcpyAsync_ptsz
#define cuMemcpyHtoDAsync_v2      cuMemcpyHtoDAsync_v2_ptsz
#define cuMemcpyDtoHAsync_v2      cuMemcpyDtoHAsync_v2_ptsz
#define cuMemcpyDtoDAsync_v2      cuMemcpyDtoDAsync_v2_ptsz
#define cuMemsetD8Async           cuMemsetD8Async_ptsz
#define cuMemsetD32Async          cuMemsetD32Async_ptsz
#define cuStreamQuery             cuStreamQuery_ptsz
#define cuStreamSynchronize       cuStreamSynchronize_ptsz
#define cuStreamGetFlags          cuStreamGetFlags_ptsz
#define cuStreamGetPriority       cuStreamGetPriority_ptsz
#define cuStreamGetId             cuStreamGetId_ptsz
#define cuStreamGetCtx            cuStreamGetCtx_ptsz
#define cuStreamGetDevice         cuStreamGetDevice_ptsz
#define cuStreamWaitEvent         cuStreamWaitEvent_ptsz
#define cuEventRecord             cuEventRecord_ptsz
#define cuEventRecordWithFlags    cuEventRecordWithFlags_ptsz
#define cuStreamAddCallback       cuStreamAddCallback_ptsz
#define cuLaunchKernel            cuLaunchKernel_ptsz
#define cuLaunchHostFunc          cuLaunchHostFunc_ptsz
#define cuStreamBeginCapture_v2   cuStreamBeginCapture_v2_ptsz
#define cuStreamEndCapture        cuStreamEndCapture_ptsz
#define cuStreamIsCapturing       cuStreamIsCapturing_ptsz
#define cuStreamGetCaptureInfo    cuStreamGetCaptureInfo_ptsz
#define cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v2_ptsz
#define cuStreamGetCaptureInfo_v3 cuStreamGetCaptureInfo_v3_ptsz
#define cuGraphUpload             cuGraphUpload_ptsz
#define cuGraphLaunch             cuGraphLaunch_ptsz
#define cuStreamWriteValue32      cuStreamWriteValue32_ptsz
#define cuStreamWriteValue64      cuStreamWriteValue64_ptsz
#define cuStreamWaitValue32       cuStreamWaitValue32_ptsz
#define cuStreamWaitValue64       cuStreamWaitValue64_ptsz
#define cuStreamBatchMemOp        cuStreamBatchMemOp_ptsz
#define cuStreamWriteValue32_v2   cuStreamWriteValue32_v2_ptsz
#define cuStreamWriteValue64_v2   cuStreamWriteValue64_v2_ptsz
#define cuStreamWaitValue32_v2    cuStreamWaitValue32_v2_ptsz
#define cuStreamWaitValue64_v2    cuStreamWaitValue64_v2_ptsz
#define cuStreamBatchMemOp_v2     cuStreamBatchMemOp_v2_ptsz

#endif
