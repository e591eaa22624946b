/* Streams, events, memory and stream memory operations, in one process. */
#include "harness.h"

#include <cuda.h>
#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A stream that stands still until released. */
static void hold(cudaStream_t stream, unsigned *word)
{
    *word = 0;
    CHECK(cuStreamWaitValue32(stream, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
}

static void let_go(unsigned *word)
{
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
}

static void open_gate_slowly(void *gate)
{
    sleep_s(0.05);
    let_go(gate);
}

static void events(void)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t start, end, untimed;
    CHECK_CUDA(cudaEventCreate(&start));
    CHECK_CUDA(cudaEventCreate(&end));
    CHECK_CUDA(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    unsigned *gate = device_alloc(sizeof *gate);
    int *data = device_alloc(4 * sizeof *data);
    memset(data, 0, 4 * sizeof *data);
    CHECK_CUDA(cudaEventQuery(start)); /* never recorded: nothing to wait for */

    hold(a, gate);
    CHECK_CUDA(cudaEventRecord(start, a));
    CHECK_CUDA(cudaMemsetAsync(data, 1, sizeof *data, a));
    CHECK_CUDA(cudaEventRecord(end, a));
    CHECK_CUDA(cudaStreamWaitEvent(b, end, 0));
    CHECK_CUDA(cudaMemcpyAsync(data + 1, data, sizeof *data, cudaMemcpyDeviceToDevice, b));
    CHECK(cudaEventQuery(end) == cudaErrorNotReady && cudaStreamQuery(b) == cudaErrorNotReady);
    float ms;
    CHECK(cudaEventElapsedTime(&ms, start, end) == cudaErrorNotReady);
    CHECK_CUDA(cudaPeekAtLastError());
    sleep_s(0.05);
    CHECK(data[0] == 0 && data[1] == 0);
    let_go(gate);
    CHECK_CUDA(cudaStreamSynchronize(b));
    CHECK(data[1] == 0x01010101);
    CHECK_CUDA(cudaEventQuery(end));
    CHECK_CUDA(cudaEventElapsedTime(&ms, start, end));
    CHECK(ms >= 0 && ms < 1000);
    CHECK_CUDA(cudaEventRecord(untimed, a));
    CHECK_CUDA(cudaEventSynchronize(untimed));
    CHECK(cudaEventElapsedTime(&ms, start, untimed) == cudaErrorInvalidResourceHandle);
    CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle && cudaGetLastError() == cudaSuccess);
    CHECK_CUDA(cudaStreamQuery(a));

    /* Destroyed with work in it: the work is done. */
    hold(a, gate);
    CHECK_CUDA(cudaMemsetAsync(data + 2, 2, sizeof *data, a));
    CHECK_CUDA(cudaEventRecord(end, a));
    CHECK_CUDA(cudaStreamDestroy(a));
    let_go(gate);
    CHECK_CUDA(cudaEventSynchronize(end));
    CHECK(data[2] == 0x02020202);
    /* Who waits for the device waits for a destroyed stream too. */
    cudaStream_t c = new_stream();
    hold(c, gate);
    CHECK_CUDA(cudaMemsetAsync(data + 3, 3, sizeof *data, c));
    CHECK_CUDA(cudaStreamDestroy(c));
    CHECK(cudaStreamQuery(c) == cudaErrorInvalidResourceHandle);
    CHECK_CUDA(cudaLaunchHostFunc(b, open_gate_slowly, gate));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(data[3] == 0x03030303);
    CHECK(cudaStreamSynchronize((cudaStream_t)&ms) == cudaErrorInvalidResourceHandle);
    CHECK_CUDA(cudaStreamDestroy(b));
    CHECK_CUDA(cudaEventDestroy(start));
    CHECK_CUDA(cudaEventDestroy(end));
    CHECK_CUDA(cudaEventDestroy(untimed));
    CHECK_CUDA(cudaFree(data));
    CHECK_CUDA(cudaFree(gate));
}

static void legacy_stream(void)
{
    cudaStream_t blocking, free_running = new_stream();
    CHECK_CUDA(cudaStreamCreate(&blocking));
    unsigned *gate = device_alloc(sizeof *gate);
    int *data = device_alloc(3 * sizeof *data);
    memset(data, 0, 3 * sizeof *data);
    hold(blocking, gate);
    CHECK_CUDA(cudaMemsetAsync(data, 1, sizeof *data, NULL)); /* waits for the blocking stream */
    CHECK_CUDA(cudaMemsetAsync(data + 1, 1, sizeof *data, free_running));
    CHECK_CUDA(cudaStreamSynchronize(free_running));
    CHECK(data[0] == 0 && data[1] == 0x01010101);
    let_go(gate);
    CHECK_CUDA(cudaStreamSynchronize(NULL));
    CHECK(data[0] == 0x01010101);
    hold(NULL, gate);
    CHECK_CUDA(cudaMemsetAsync(data + 2, 1, sizeof *data, blocking)); /* waits for the default stream */
    CHECK(!stream_finishes(blocking, 0.05));
    let_go(gate);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(data[2] == 0x01010101);
    CHECK_CUDA(cudaStreamDestroy(blocking));
    CHECK_CUDA(cudaStreamDestroy(free_running));
    CHECK_CUDA(cudaFree(data));
    CHECK_CUDA(cudaFree(gate));
}

static void append(void *user)
{
    char **end = user;
    *(*end)++ = 'h';
}

static void order(void)
{
    cudaStream_t stream = new_stream();
    char text[16] = "", *end = text;
    unsigned *gate = device_alloc(16 * sizeof *gate);
    uint64_t *wide = (uint64_t *)(void *)(gate + 8);
    memset(gate, 0, 16 * sizeof *gate);
    hold(stream, gate);
    for (int i = 0; i < 3; i++)
        CHECK_CUDA(cudaLaunchHostFunc(stream, append, &end));
    CHECK(cuStreamWriteValue32(stream, (CUdeviceptr)(gate + 1), 7, 0) == CUDA_SUCCESS);
    CHECK(cuStreamWriteValue64(stream, (CUdeviceptr)wide, UINT64_MAX - 1, 0) == CUDA_SUCCESS);
    CHECK(cuStreamWriteValue64(stream, (CUdeviceptr)wide + 4, 1, 0) == CUDA_ERROR_INVALID_VALUE);
    /* Cyclic comparison: 3 is ahead of -2. */
    CHECK(cuStreamWaitValue64(stream, (CUdeviceptr)wide, 3, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
    CHECK(!stream_finishes(stream, 0.05));
    CHECK(end == text && gate[1] == 0);
    let_go(gate);
    WAIT_UNTIL(__atomic_load_n(wide, __ATOMIC_ACQUIRE));
    CHECK(!stream_finishes(stream, 0.1));
    CHECK(gate[1] == 7 && *wide == UINT64_MAX - 1);
    __atomic_store_n(wide, 3, __ATOMIC_RELEASE);
    CHECK(stream_finishes(stream, 5));
    CHECK(!strcmp(text, "hhh"));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(gate));
}

static void memory(void)
{
    size_t before, after, total;
    char *pointer, *host, local[64];
    struct cudaPointerAttributes attributes;
    CHECK_CUDA(cudaSetDevice(3));
    CHECK_CUDA(cudaMemGetInfo(&before, &total));
    CHECK_CUDA(cudaMalloc((void **)&pointer, 100000));
    CHECK((uintptr_t)pointer % 4096 == 0);
    CHECK_CUDA(cudaMemGetInfo(&after, &total));
    CHECK(before - after == 100000);
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, pointer + 99999));
    CHECK(attributes.type == cudaMemoryTypeDevice && attributes.device == 3);
    CHECK_CUDA(cudaMallocHost((void **)&host, 64));
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, host));
    CHECK(attributes.type == cudaMemoryTypeHost);
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, local));
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    CHECK_CUDA(cudaHostRegister(local, sizeof local, cudaHostRegisterDefault));
    CHECK(cudaHostRegister(local, sizeof local, 0) == cudaErrorHostMemoryAlreadyRegistered);
    CHECK_CUDA(cudaHostUnregister(local));
    CHECK(cudaHostUnregister(local) == cudaErrorHostMemoryNotRegistered);
    memset(local, 'x', sizeof local);
    CHECK_CUDA(cudaMemcpy(pointer, local, sizeof local, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemset(pointer, 'y', 32));
    CHECK_CUDA(cudaMemcpy(host, pointer, 64, cudaMemcpyDeviceToHost));
    CHECK(host[31] == 'y' && host[32] == 'x');
    CHECK(cudaFree(local) == cudaErrorInvalidValue && cudaFreeHost(pointer) == cudaErrorInvalidValue);
    CHECK_CUDA(cudaFree(pointer));
    CHECK(cudaFree(pointer) == cudaErrorInvalidValue);
    CHECK_CUDA(cudaFree(NULL));
    CHECK_CUDA(cudaFreeHost(host));
    CHECK_CUDA(cudaMemGetInfo(&after, &total));
    CHECK(before == after);
    CHECK(cudaMalloc((void **)&pointer, total + 1) == cudaErrorMemoryAllocation);
    CHECK(cudaSetDevice(8) == cudaErrorInvalidDevice);
    CHECK_CUDA(cudaSetDevice(0));
    cudaGetLastError();
}

static char *filled;

static void fill_stream(const struct rank_context *context)
{
    (void)context;
    cudaStream_t stream = new_stream();
    unsigned *gate = device_alloc(2 * sizeof *gate);
    hold(stream, gate);
    for (int i = 1; i < 1024; i++)
        CHECK_CUDA(cudaMemsetAsync(gate + 1, 0, 1, stream));
    __atomic_store_n(filled, 1, __ATOMIC_RELEASE);
    CHECK_CUDA(cudaMemsetAsync(gate + 1, 0, 1, stream));
    *filled = 2;
}

/* A full launch queue makes the host wait. */
static void full_stream(void)
{
    struct rank_set set;
    filled = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(filled != MAP_FAILED);
    ranks_start(&set, 1, fill_stream, NULL);
    WAIT_UNTIL(__atomic_load_n(filled, __ATOMIC_ACQUIRE) == 1);
    CHECK(ranks_hang(&set, 1, 0.3));
    CHECK(*filled == 1);
    CHECK(!munmap(filled, 4096));
}

static void free_waits(const struct rank_context *context)
{
    (void)context;
    unsigned *gate = device_alloc(sizeof *gate);
    hold(new_stream(), gate);
    cudaFree(device_alloc(64));
}

/* ---- The exported interface ---- */

static void exports(void)
{
    /* libnccl: the weak name and the strong one are the same function. */
    CHECK(dlsym(RTLD_DEFAULT, "ncclAllReduce") == dlsym(RTLD_DEFAULT, "pncclAllReduce"));
    CHECK(dlsym(RTLD_DEFAULT, "ncclGroupStart") == dlsym(RTLD_DEFAULT, "pncclGroupStart"));
    CHECK(!dlsym(RTLD_DEFAULT, "lab_launch") && !dlsym(RTLD_DEFAULT, "ncclCommGrow"));
    CHECK(dlvsym(RTLD_DEFAULT, "cudaMalloc", "libcudart.so.13") == (void *)cudaMalloc);
    CHECK(dlvsym(RTLD_DEFAULT, "__cudaRegisterFatBinary", "libcudart.so.13"));
    void *function;
    CUdriverProcAddressQueryResult status;
    CHECK(cuGetProcAddress("cuStreamWriteValue32", &function, CUDA_VERSION, 0, &status) == CUDA_SUCCESS);
    CHECK(function == (void *)cuStreamWriteValue32 && status == CU_GET_PROC_ADDRESS_SUCCESS);
    CHECK(cuGetProcAddress("cuNoSuchThing", &function, CUDA_VERSION, 0, &status) == CUDA_SUCCESS);
    CHECK(!function && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CHECK(cuGetProcAddress("cuNoSuchThing", &function, CUDA_VERSION, 0, NULL) == CUDA_ERROR_NOT_FOUND);
}

/* ---- Where a planned block stops a stream that carries a recorder's marks ---- */

static void blocked_with_marks(const struct rank_context *context)
{
    setenv("HOSTGPU_BLOCK_STREAM_AT", context->argument, 1);
    unsigned long stop = strtoul(context->argument, NULL, 10);
    ncclComm_t comm = rank_comm(context);
    cudaStream_t stream = new_stream();
    unsigned *marks = device_alloc(8 * sizeof *marks);
    int *data = device_alloc(sizeof *data);
    memset(marks, 0, 8 * sizeof *marks);
    for (unsigned op = 1; op <= 4; op++) {
        CHECK(cuStreamWriteValue32(stream, (CUdeviceptr)marks, op, 0) == CUDA_SUCCESS);
        CHECK_NCCL(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, stream));
        CHECK(cuStreamWriteValue32(stream, (CUdeviceptr)(marks + 1), op, 0) == CUDA_SUCCESS);
        if (op < stop) {
            CHECK_CUDA(cudaStreamSynchronize(stream));
            CHECK(marks[1] == op);
        }
    }
    CHECK(!stream_finishes(stream, 0.2));
    CHECK(marks[0] == stop - 1 && marks[1] == stop - 1);
}

static void devices_from_environment(const struct rank_context *context)
{
    int count;
    CHECK(!setenv("HOSTGPU_DEVICES", context->argument, 1));
    CHECK_CUDA(cudaGetDeviceCount(&count));
    CHECK(count == (strcmp(context->argument, "3") ? 8 : 3));
    CHECK_CUDA(cudaSetDevice(count - 1));
    CHECK(cudaSetDevice(count) == cudaErrorInvalidDevice);
}

int main(void)
{
    ranks_run(1, devices_from_environment, "3");
    ranks_run(1, devices_from_environment, "3x");
    struct rank_set set;
    for (const char *stop = "1\0002\0004\0"; *stop; stop += 2)
        ranks_run(1, blocked_with_marks, stop);
    full_stream();
    ranks_start(&set, 1, free_waits, NULL);
    CHECK(ranks_hang(&set, 1, 0.3));
    events();
    legacy_stream();
    order();
    memory();
    exports();
    return 0;
}
