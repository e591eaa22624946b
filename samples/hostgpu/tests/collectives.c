/* Every reducing collective, datatype and operator against a plain reference, bit for bit, and the copying
 * collectives, for the number of ranks given. */
#include "harness.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { REDOPS = 6, PREMUL_SUM = 5 };

/* ---- Small floats by table: independent of the library's arithmetic ---- */

struct small_float {
    int bits, exponent_bits, mantissa_bits;
    bool saturates, only_ones_are_nan;
    float *values; /* of all non-negative patterns up to the largest finite one */
    unsigned max_finite;
};

static struct small_float halves = {16, 5, 10, false, false, NULL, 0};
static struct small_float bfloats = {16, 8, 7, false, false, NULL, 0};
static struct small_float e4m3s = {8, 4, 3, true, true, NULL, 0};
static struct small_float e5m2s = {8, 5, 2, true, false, NULL, 0};

static void make_table(struct small_float *f)
{
    unsigned top = (1u << f->exponent_bits) - 1, count = 1u << (f->bits - 1);
    int bias = (int)(top / 2);
    f->values = malloc(count * sizeof *f->values);
    CHECK(f->values);
    for (unsigned p = 0; p < count; p++) {
        unsigned e = p >> f->mantissa_bits, m = p & ((1u << f->mantissa_bits) - 1);
        if (f->only_ones_are_nan ? p == count - 1 : e == top)
            break;
        double fraction = m / pow(2, f->mantissa_bits);
        f->values[p] = (float)(e ? (1 + fraction) * pow(2, (int)e - bias) : fraction * pow(2, 1 - bias));
        f->max_finite = p;
    }
}

static float small_value(const struct small_float *f, unsigned pattern)
{
    unsigned sign = 1u << (f->bits - 1);
    float magnitude = f->values[pattern & (sign - 1)];
    return pattern & sign ? -magnitude : magnitude;
}

/* Nearest pattern, ties to the even one, by search. Inputs here never overflow by less than half a step. */
static unsigned small_pattern(const struct small_float *f, float value)
{
    unsigned sign = signbit(value) ? 1u << (f->bits - 1) : 0, low = 0, high = f->max_finite;
    float magnitude = fabsf(value);
    if (magnitude > f->values[high])
        return sign | (f->saturates ? high : high + 1);
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        *(f->values[middle] <= magnitude ? &low : &high) = middle;
    }
    double below = (double)magnitude - f->values[low], above = (double)f->values[high] - magnitude;
    bool up = above < below || (above == below && low & 1);
    return sign | (up ? high : low);
}

static const struct small_float *small_type(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat16:
        return &halves;
    case ncclBfloat16:
        return &bfloats;
    case ncclFloat8e4m3:
        return &e4m3s;
    case ncclFloat8e5m2:
        return &e5m2s;
    default:
        return NULL;
    }
}

/* ---- Elements ---- */

static const unsigned type_size[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

union element {
    int8_t i8;
    uint8_t u8;
    int32_t i32;
    uint32_t u32;
    int64_t i64;
    uint64_t u64;
    uint16_t u16;
    float f32;
    double f64;
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 32;
}

/* A float element holds quarters between -2 and 2, so that even products stay finite in 8 bits. */
static union element from_float(ncclDataType_t type, double value)
{
    union element e = {.u64 = 0};
    const struct small_float *f = small_type(type);
    if (type == ncclFloat64)
        e.f64 = value;
    else if (type == ncclFloat32)
        e.f32 = (float)value;
    else if (type_size[type] == 2)
        e.u16 = (uint16_t)small_pattern(f, (float)value);
    else
        e.u8 = (uint8_t)small_pattern(f, (float)value);
    return e;
}

static bool is_float(ncclDataType_t type)
{
    return type >= ncclFloat16;
}

static union element quarters[ncclNumTypes][17];

static void make_quarters(void)
{
    for (int type = ncclFloat16; type < ncclNumTypes; type++)
        for (int q = 0; q < 17; q++)
            quarters[type][q] = from_float((ncclDataType_t)type, (double)(q - 8) / 4);
}

static union element input(ncclDataType_t type, int rank, size_t i)
{
    uint64_t h = mix((uint64_t)rank * 1000003 + i + 1);
    if (is_float(type))
        return quarters[type][h % 17];
    return (union element){.u64 = h};
}

static union element scalar_of(ncclDataType_t type, int rank)
{
    if (is_float(type))
        return from_float(type, (double)(rank % 4 + 1) / 4);
    return (union element){.u64 = (uint64_t)rank + 1};
}

/* The value as the widest type that the library documents to fold in. */
static double float_value(ncclDataType_t type, union element e)
{
    const struct small_float *f = small_type(type);
    if (f)
        return small_value(f, f->bits == 16 ? e.u16 : e.u8);
    return type == ncclFloat32 ? e.f32 : e.f64;
}

static int64_t int_value(ncclDataType_t type, union element e)
{
    switch (type) {
    case ncclInt8:
        return e.i8;
    case ncclUint8:
        return e.u8;
    case ncclInt32:
        return e.i32;
    case ncclUint32:
        return e.u32;
    default:
        return e.i64;
    }
}

static union element fold_floats(ncclDataType_t type, int redop, int nranks, size_t i)
{
    double wide = 0;
    float narrow = 0;
    for (int r = 0; r < nranks; r++) {
        union element e = input(type, r, i);
        if (redop == PREMUL_SUM) {
            double product = float_value(type, e) * float_value(type, scalar_of(type, r));
            e = from_float(type, product);
        }
        double v = float_value(type, e);
        float n = (float)v;
        bool take = r == 0 || (redop == ncclMax && v > wide) || (redop == ncclMin && v < wide);
        if (redop == ncclMax || redop == ncclMin || r == 0) {
            wide = take ? v : wide;
            narrow = take ? n : narrow;
        } else {
            wide = redop == ncclProd ? wide * v : wide + v;
            narrow = redop == ncclProd ? narrow * n : narrow + n;
        }
    }
    if (redop == ncclAvg) {
        wide /= nranks;
        narrow /= (float)nranks;
    }
    return from_float(type, type == ncclFloat64 ? wide : (double)narrow);
}

static union element fold_ints(ncclDataType_t type, int redop, int nranks, size_t i)
{
    bool is_unsigned = type == ncclUint8 || type == ncclUint32 || type == ncclUint64;
    uint64_t acc = 0;
    for (int r = 0; r < nranks; r++) {
        uint64_t v = (uint64_t)int_value(type, input(type, r, i));
        bool less = is_unsigned ? v < acc : (int64_t)v < (int64_t)acc;
        if (redop == PREMUL_SUM) {
            union element product = {.u64 = v * ((uint64_t)r + 1)};
            v = (uint64_t)int_value(type, product);
        }
        if (r == 0)
            acc = v;
        else if (redop == ncclMax || redop == ncclMin)
            acc = less == (redop == ncclMin) ? v : acc;
        else
            acc = redop == ncclProd ? acc * v : acc + v;
    }
    union element e = {.u64 = acc};
    if (redop == ncclAvg) {
        int64_t sum = int_value(type, e);
        e.u64 = is_unsigned ? (uint64_t)sum / (uint64_t)nranks : (uint64_t)(sum / nranks);
    }
    return e;
}

static union element expected(ncclDataType_t type, int redop, int nranks, size_t i)
{
    return is_float(type) ? fold_floats(type, redop, nranks, i) : fold_ints(type, redop, nranks, i);
}

/* ---- One rank ---- */

struct bench {
    const struct rank_context *context;
    ncclComm_t comm;
    cudaStream_t stream;
    char *send, *recv;
};

#define MAX_BYTES ((size_t)8 << 20)
#define GUARD     0x5a

static void fill(const struct bench *b, char *buffer, ncclDataType_t type, size_t count)
{
    size_t size = type_size[type];
    for (size_t i = 0; i < count; i++) {
        union element e = input(type, b->context->rank, i);
        memcpy(buffer + i * size, &e, size);
    }
}

static void compare(const struct bench *b, const char *what, const char *got, ncclDataType_t type, int redop,
                    size_t count, size_t first)
{
    size_t size = type_size[type];
    for (size_t i = 0; i < count; i++) {
        union element want = expected(type, redop, b->context->nranks, first + i);
        if (memcmp(&want, got + i * size, size) != 0) {
            union element have = {.u64 = 0};
            memcpy(&have, got + i * size, size);
            fprintf(stderr, "%s type %d redop %d count %zu rank %d of %d: element %zu is %#llx, not %#llx\n",
                    what, (int)type, redop, count, b->context->rank, b->context->nranks, first + i,
                    (unsigned long long)have.u64, (unsigned long long)want.u64);
            exit(1);
        }
    }
    CHECK(got[count * size] == GUARD);
}

static void reset(const struct bench *b, size_t send_bytes, size_t recv_bytes)
{
    memset(b->send, GUARD, send_bytes + 1);
    memset(b->recv, GUARD, recv_bytes + 1);
}

static void wait(const struct bench *b)
{
    CHECK_CUDA(cudaStreamSynchronize(b->stream));
}

/* A handle for the operator on this type; PreMulSum scalars differ by rank, and live in host or device
 * memory in turn. */
static ncclRedOp_t make_redop(const struct bench *b, ncclDataType_t type, int redop, void *device_scalar)
{
    if (redop != PREMUL_SUM)
        return (ncclRedOp_t)redop;
    ncclRedOp_t made;
    union element scalar = scalar_of(type, b->context->rank);
    bool on_device = type % 2;
    memcpy(device_scalar, &scalar, sizeof scalar);
    CHECK_NCCL(ncclRedOpCreatePreMulSum(&made, on_device ? device_scalar : (void *)&scalar, type,
                                        on_device ? ncclScalarDevice : ncclScalarHostImmediate, b->comm));
    return made;
}

static void check_reductions(const struct bench *b, ncclDataType_t type, int redop, size_t count)
{
    size_t n = (size_t)b->context->nranks, bytes = count * type_size[type];
    size_t rank = (size_t)b->context->rank;
    int root = (int)(count % n);
    void *device_scalar = device_alloc(8);
    ncclRedOp_t op = make_redop(b, type, redop, device_scalar);

    reset(b, bytes, bytes);
    fill(b, b->send, type, count);
    CHECK_NCCL(ncclAllReduce(b->send, b->recv, count, type, op, b->comm, b->stream));
    wait(b);
    compare(b, "AllReduce", b->recv, type, redop, count, 0);
    CHECK_NCCL(ncclAllReduce(b->send, b->send, count, type, op, b->comm, b->stream));
    wait(b);
    compare(b, "AllReduce in place", b->send, type, redop, count, 0);

    reset(b, bytes, bytes);
    fill(b, b->send, type, count);
    CHECK_NCCL(ncclReduce(b->send, b->context->rank == root ? b->recv : NULL, count, type, op, root, b->comm,
                          b->stream));
    wait(b);
    if (b->context->rank == root)
        compare(b, "Reduce", b->recv, type, redop, count, 0);

    reset(b, n * bytes, bytes);
    fill(b, b->send, type, n * count);
    CHECK_NCCL(ncclReduceScatter(b->send, b->recv, count, type, op, b->comm, b->stream));
    wait(b);
    compare(b, "ReduceScatter", b->recv, type, redop, count, rank * count);
    CHECK_NCCL(ncclReduceScatter(b->send, b->send + rank * bytes, count, type, op, b->comm, b->stream));
    if (redop == PREMUL_SUM)
        CHECK_NCCL(ncclRedOpDestroy(op, b->comm));
    wait(b);
    char end = b->send[(rank + 1) * bytes];
    b->send[(rank + 1) * bytes] = GUARD;
    compare(b, "ReduceScatter in place", b->send + rank * bytes, type, redop, count, rank * count);
    b->send[(rank + 1) * bytes] = end;
    CHECK_CUDA(cudaFree(device_scalar));
}

/* A byte that tells source rank and position. */
static char mark(int rank, size_t i)
{
    return (char)mix((uint64_t)rank << 40 | i);
}

static void fill_marks(char *buffer, int rank, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        buffer[i] = mark(rank, i);
}

static void check_marks(const char *got, int rank, size_t first, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        CHECK(got[i] == mark(rank, first + i));
}

static void check_broadcast(const struct bench *b, size_t bytes, int root)
{
    int rank = b->context->rank;
    reset(b, bytes, bytes);
    fill_marks(b->send, rank, bytes);
    CHECK_NCCL(
        ncclBroadcast(rank == root ? b->send : NULL, b->recv, bytes, ncclInt8, root, b->comm, b->stream));
    CHECK_NCCL(ncclBcast(b->send, bytes, ncclUint8, root, b->comm, b->stream));
    wait(b);
    check_marks(b->recv, root, 0, bytes);
    check_marks(b->send, root, 0, bytes);
    CHECK(b->recv[bytes] == GUARD && b->send[bytes] == GUARD);
}

static void check_all_gather(const struct bench *b, size_t bytes)
{
    size_t n = (size_t)b->context->nranks, rank = (size_t)b->context->rank;
    reset(b, n * bytes, n * bytes);
    fill_marks(b->send, b->context->rank, bytes);
    memcpy(b->recv + rank * bytes, b->send, bytes);
    CHECK_NCCL(ncclAllGather(b->send, b->recv, bytes, ncclInt8, b->comm, b->stream));
    wait(b);
    for (size_t r = 0; r < n; r++)
        check_marks(b->recv + r * bytes, (int)r, 0, bytes);
    memset(b->recv, 0, n * bytes);
    memcpy(b->recv + rank * bytes, b->send, bytes);
    CHECK_NCCL(ncclAllGather(b->recv + rank * bytes, b->recv, bytes, ncclInt8, b->comm, b->stream));
    wait(b);
    for (size_t r = 0; r < n; r++)
        check_marks(b->recv + r * bytes, (int)r, 0, bytes);
    CHECK(b->recv[n * bytes] == GUARD);
}

static void check_personalised(const struct bench *b, size_t bytes, int root)
{
    size_t n = (size_t)b->context->nranks, rank = (size_t)b->context->rank;
    reset(b, n * bytes, n * bytes);
    fill_marks(b->send, b->context->rank, n * bytes);
    CHECK_NCCL(ncclAlltoAll(b->send, b->recv, bytes, ncclInt8, b->comm, b->stream));
    wait(b);
    for (size_t r = 0; r < n; r++)
        check_marks(b->recv + r * bytes, (int)r, rank * bytes, bytes);

    reset(b, n * bytes, n * bytes);
    fill_marks(b->send, b->context->rank, n * bytes);
    CHECK_NCCL(ncclGather(b->send, b->recv, bytes, ncclInt8, root, b->comm, b->stream));
    wait(b);
    for (size_t r = 0; r < n && b->context->rank == root; r++)
        check_marks(b->recv + r * bytes, (int)r, 0, bytes);

    reset(b, n * bytes, n * bytes);
    fill_marks(b->send, b->context->rank, n * bytes);
    CHECK_NCCL(ncclScatter(b->send, b->recv, bytes, ncclInt8, root, b->comm, b->stream));
    wait(b);
    check_marks(b->recv, root, rank * bytes, bytes);
    CHECK(b->recv[bytes] == GUARD);
}

static void one_rank(const struct rank_context *context)
{
    static const size_t counts[] = {1, 5, 257, 3001};
    /* Chunks are 256 KiB and ReduceScatter slices a part of it: these cross several, and none evenly. */
    static const size_t large[] = {65537, 150001};
    static const ncclDataType_t large_types[] = {ncclInt8, ncclBfloat16, ncclFloat32, ncclFloat64};
    struct bench b = {context, rank_comm(context), new_stream(), device_alloc(MAX_BYTES * 2),
                      device_alloc(MAX_BYTES * 2)};
    make_table(&halves);
    make_table(&bfloats);
    make_table(&e4m3s);
    make_table(&e5m2s);
    make_quarters();
    for (int type = 0; type < ncclNumTypes; type++)
        for (int redop = 0; redop < REDOPS; redop++)
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
                check_reductions(&b, (ncclDataType_t)type, redop, counts[i]);
    for (size_t t = 0; t < sizeof large_types / sizeof *large_types; t++)
        for (size_t i = 0; i < sizeof large / sizeof *large; i++)
            check_reductions(&b, large_types[t], (int)(t + i) % REDOPS, large[i]);
    static const size_t sizes[] = {1, 63, 4096, 300001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int root = (int)(i + 1) % context->nranks;
        check_broadcast(&b, sizes[i], root);
        check_all_gather(&b, sizes[i]);
        check_personalised(&b, sizes[i], root);
    }
    CHECK_NCCL(ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, b.comm, b.stream));
    wait(&b);
    CHECK_NCCL(ncclCommDestroy(b.comm));
    CHECK_CUDA(cudaFree(b.send));
    CHECK_CUDA(cudaFree(b.recv));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    ranks_run(atoi(argv[1]), one_rank, NULL);
    return 0;
}
