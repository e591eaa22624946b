/* For the lab's own tests: a rank is a forked process. CUDA and NCCL are first used in the children. */
#ifndef LAB_TEST_HARNESS_H
#define LAB_TEST_HARNESS_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#define CHECK_NCCL(call)                                                                                     \
    do {                                                                                                     \
        ncclResult_t check_result = (call);                                                                  \
        if (check_result != ncclSuccess) {                                                                   \
            fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #call,                               \
                    ncclGetErrorString(check_result), ncclGetLastError(NULL));                               \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#define CHECK_CUDA(call) CHECK((call) == cudaSuccess)

struct rank_context {
    int rank, nranks;
    ncclUniqueId id;
    const void *argument;
};

/* A running set of rank processes. */
struct rank_set {
    int nranks;
    pid_t pids[128];
};

/* Forks nranks children that run rank_main and exit with 0, or with 1 from a failed CHECK. */
void ranks_start(struct rank_set *set, int nranks, void rank_main(const struct rank_context *),
                 const void *argument);
/* Waits for all; true if every rank exited with 0 within the time. Kills those that did not. */
bool ranks_succeed(struct rank_set *set, int timeout_s);
/* Waits until only so many are left running, and for_s more: true if they still are. They are then killed. */
bool ranks_hang(struct rank_set *set, int left, double for_s);
/* Start and succeed, or the test fails. */
void ranks_run(int nranks, void rank_main(const struct rank_context *), const void *argument);

/* A communicator of all ranks on device 0, and a stream. */
ncclComm_t rank_comm(const struct rank_context *context);
cudaStream_t new_stream(void);
/* Waits until the condition holds; the test fails if it takes longer than a machine under load would. */
#define WAIT_UNTIL(condition)                                                                                \
    do {                                                                                                     \
        double wait_end = now_s() + 30;                                                                      \
        while (!(condition)) {                                                                               \
            CHECK(now_s() < wait_end);                                                                       \
            sleep_s(0.001);                                                                                  \
        }                                                                                                    \
    } while (0)

/* Whether the stream comes to rest within the time. */
bool stream_finishes(cudaStream_t stream, double within_s);
void *device_alloc(size_t bytes);
double now_s(void);
void sleep_s(double s);

#endif
