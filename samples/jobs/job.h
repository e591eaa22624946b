/*
 * What the sample jobs share: who am I, how do we meet, what have I called.
 *
 * Rank variables are taken from whichever launcher started the process (torchrun, Open MPI,
 * Slurm, PMI). Processes meet in a rendezvous directory (JOB_RENDEZVOUS, made by `launch`):
 * one file per unique id, written under a temporary name and renamed, so that a reader sees
 * all of it or nothing. No function here returns after an error: it says why and exits.
 */
#ifndef SAMPLES_JOB_H
#define SAMPLES_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

#define JOB_EXIT_USAGE 2 /* bad command line, script or environment */
#define JOB_EXIT_NCCL  3 /* NCCL or CUDA reported an error */
#define JOB_EXIT_WRONG 4 /* a result was not what it had to be */

struct job {
    const char *program;
    int rank, world, local_rank;
    const char *rendezvous; /* NULL: none, enough for one process */
};
extern struct job job;

/* Reads the environment and chooses the device: local_rank modulo the number of devices. */
void job_init(const char *program);

/* "program: rank R: message" on stderr, then exit. */
_Noreturn void job_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
void job_check_nccl(ncclResult_t result, const char *call);
void job_check_cuda(cudaError_t result, const char *call);
#define CUDA(call) job_check_cuda((call), #call)

/* The unique id called name: made by the process that passes creator, awaited by the others. */
ncclUniqueId job_unique_id(const char *name, bool creator);
/* Publishes an id that was made in another way. */
void job_give_id(const char *name, const ncclUniqueId *id);

/* Returns when count processes, this one included, have called with the same name. */
void job_meet(const char *name, int count);

void job_sleep_us(uint64_t us);
uint64_t job_now_us(void); /* since some moment before the start */

/*
 * The job's own count of its NCCL calls, in a shared file that survives SIGKILL: what a
 * recorder claims is checked against it. One writer per file; entered is raised before a
 * call, finished after it, with the time of the last JOB_COUNT_RING finished calls.
 */
#define JOB_COUNT_RING 16384
struct job_count {
    _Atomic uint64_t entered;
    _Atomic uint64_t finished;
    _Atomic uint64_t
        finished_ns[JOB_COUNT_RING]; /* CLOCK_REALTIME; call n (from 0) is in n % JOB_COUNT_RING */
};
void job_count_open(const char *prefix); /* file PREFIX.RANK */
void job_count_enter(void);
void job_count_leave(void);

/* An NCCL call that is counted and checked. Non-blocking communicators may be in progress. */
#define NCCL_COUNTED(call)                                                                                   \
    do {                                                                                                     \
        job_count_enter();                                                                                   \
        ncclResult_t nccl_result_ = (call);                                                                  \
        job_count_leave();                                                                                   \
        job_check_nccl(nccl_result_, #call);                                                                 \
    } while (0)
#define NCCL(call) job_check_nccl((call), #call)

size_t job_dtype_size(ncclDataType_t dtype);
/* "f32", "i64", … (and NCCL's "float", "half"); false when unknown. */
bool job_dtype_parse(const char *name, ncclDataType_t *dtype);
bool job_redop_parse(const char *name, ncclRedOp_t *redop);

#endif
