#include "reduce.h"

#include "version.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

size_t lab_type_size(ncclDataType_t type)
{
    static const unsigned char sizes[ncclNumTypes] = {
        [ncclInt8] = 1,    [ncclUint8] = 1,    [ncclInt32] = 4,      [ncclUint32] = 4,
        [ncclInt64] = 8,   [ncclUint64] = 8,   [ncclFloat16] = 2,    [ncclFloat32] = 4,
        [ncclFloat64] = 8, [ncclBfloat16] = 2, [ncclFloat8e4m3] = 1, [ncclFloat8e5m2] = 1,
    };
    unsigned known =
        lab_nccl_version < 22403 ? ncclFloat8e4m3 : ncclNumTypes; /* 8-bit floats: since 2.24.3 */
    return (unsigned)type < known ? sizes[type] : 0;
}

/* ---- Small floats ---- */

struct small_float {
    int mantissa_bits, bias, max_exponent; /* largest biased exponent of a finite number */
    unsigned max_finite, nan, infinity;    /* bit patterns without sign; infinity: what overflow becomes */
};

static const struct small_float half = {10, 15, 30, 0x7bff, 0x7e00, 0x7c00};
static const struct small_float e5m2 = {2, 15, 30, 0x7b, 0x7f, 0x7b};
/* No infinities, and the top exponent holds numbers: only all ones is not one. */
static const struct small_float e4m3 = {3, 7, 15, 0x7e, 0x7f, 0x7e};

static float decode(unsigned bits, unsigned sign_bit, const struct small_float *f)
{
    unsigned magnitude = bits & (sign_bit - 1);
    unsigned exponent = magnitude >> f->mantissa_bits;
    unsigned mantissa = magnitude & ((1u << f->mantissa_bits) - 1);
    float value;
    if (magnitude > f->max_finite)
        value = magnitude == (f->max_finite + 1) && f != &e4m3 ? INFINITY : NAN;
    else if (exponent == 0)
        value = ldexpf((float)mantissa, 1 - f->bias - f->mantissa_bits);
    else
        value =
            ldexpf((float)(mantissa | 1u << f->mantissa_bits), (int)exponent - f->bias - f->mantissa_bits);
    return bits & sign_bit ? -value : value;
}

static unsigned encode(float value, unsigned sign_bit, const struct small_float *f)
{
    unsigned sign = signbit(value) ? sign_bit : 0;
    if (isnan(value))
        return sign | f->nan;
    value = fabsf(value);
    if (isinf(value))
        return sign | f->infinity;
    int exponent;
    frexpf(value, &exponent); /* value = m * 2^exponent, 0.5 <= m < 1 */
    exponent--;
    if (exponent < 1 - f->bias)
        exponent = 1 - f->bias; /* subnormal: the spacing no longer shrinks */
    /* In units of the last place; exact, so nearbyintf rounds once, to even. */
    unsigned units = (unsigned)nearbyintf(ldexpf(value, f->mantissa_bits - exponent));
    unsigned hidden = 1u << f->mantissa_bits;
    /* A carry out of the mantissa lands in the exponent, which is right. */
    unsigned bits =
        units < hidden ? units : ((unsigned)(exponent + f->bias) << f->mantissa_bits) + (units - hidden);
    return sign | (bits > f->max_finite ? f->infinity : bits);
}

static float from_half(uint16_t v)
{
    return decode(v, 0x8000, &half);
}

static uint16_t to_half(float v)
{
    return (uint16_t)encode(v, 0x8000, &half);
}

static float from_e4m3(uint8_t v)
{
    return decode(v, 0x80, &e4m3);
}

static uint8_t to_e4m3(float v)
{
    return (uint8_t)encode(v, 0x80, &e4m3);
}

static float from_e5m2(uint8_t v)
{
    return decode(v, 0x80, &e5m2);
}

static uint8_t to_e5m2(float v)
{
    return (uint8_t)encode(v, 0x80, &e5m2);
}

static float from_bfloat(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t to_bfloat(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (isnan(v))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- One set of functions per datatype ---- */

#define BLOCK 256

#define AS_IS(v) (v)

/* SUM and PRODUCT differ because signed integers must wrap. DIVIDE works on the stored type's range. */
#define DEFINE_TYPE(suffix, stored, wide, LOAD, STORE, SUM, PRODUCT)                                         \
    static void combine_##suffix(wide *acc, const stored *in, size_t n, ncclRedOp_t fold)                    \
    {                                                                                                        \
        switch (fold) {                                                                                      \
        case ncclProd:                                                                                       \
            for (size_t i = 0; i < n; i++)                                                                   \
                acc[i] = PRODUCT(wide, acc[i], LOAD(in[i]));                                                 \
            break;                                                                                           \
        case ncclMax:                                                                                        \
            for (size_t i = 0; i < n; i++)                                                                   \
                acc[i] = acc[i] < LOAD(in[i]) ? LOAD(in[i]) : acc[i];                                        \
            break;                                                                                           \
        case ncclMin:                                                                                        \
            for (size_t i = 0; i < n; i++)                                                                   \
                acc[i] = LOAD(in[i]) < acc[i] ? LOAD(in[i]) : acc[i];                                        \
            break;                                                                                           \
        default:                                                                                             \
            for (size_t i = 0; i < n; i++)                                                                   \
                acc[i] = SUM(wide, acc[i], LOAD(in[i]));                                                     \
        }                                                                                                    \
    }                                                                                                        \
    static void fold_##suffix(void *out, const void *const *sources, int nsources, size_t count,             \
                              ncclRedOp_t fold)                                                              \
    {                                                                                                        \
        wide acc[BLOCK];                                                                                     \
        for (size_t at = 0; at < count; at += BLOCK) {                                                       \
            size_t n = count - at < BLOCK ? count - at : BLOCK;                                              \
            const stored *first = (const stored *)sources[0] + at;                                           \
            for (size_t i = 0; i < n; i++)                                                                   \
                acc[i] = LOAD(first[i]);                                                                     \
            for (int r = 1; r < nsources; r++)                                                               \
                combine_##suffix(acc, (const stored *)sources[r] + at, n, fold);                             \
            stored *result = (stored *)out + at;                                                             \
            if (fold == ncclAvg)                                                                             \
                for (size_t i = 0; i < n; i++)                                                               \
                    acc[i] = (wide)(AVERAGED_##suffix(acc[i])) / (wide)nsources;                             \
            for (size_t i = 0; i < n; i++)                                                                   \
                result[i] = STORE(acc[i]);                                                                   \
        }                                                                                                    \
    }                                                                                                        \
    static void scale_##suffix(void *out, const void *in, size_t count, const void *scalar)                  \
    {                                                                                                        \
        stored factor;                                                                                       \
        memcpy(&factor, scalar, sizeof factor);                                                              \
        for (size_t i = 0; i < count; i++)                                                                   \
            ((stored *)out)[i] = STORE(PRODUCT(wide, LOAD(((const stored *)in)[i]), LOAD(factor)));          \
    }

#define WRAP_SUM(wide, a, b)      ((wide)((uint64_t)(a) + (uint64_t)(b)))
#define WRAP_PRODUCT(wide, a, b)  ((wide)((uint64_t)(a) * (uint64_t)(b)))
#define FLOAT_SUM(wide, a, b)     ((a) + (b))
#define FLOAT_PRODUCT(wide, a, b) ((a) * (b))

/* An integer sum wraps in its own type before it is divided. */
#define AVERAGED_i8(v)   ((int8_t)(v))
#define AVERAGED_u8(v)   ((uint8_t)(v))
#define AVERAGED_i32(v)  ((int32_t)(v))
#define AVERAGED_u32(v)  ((uint32_t)(v))
#define AVERAGED_i64(v)  (v)
#define AVERAGED_u64(v)  (v)
#define AVERAGED_f16(v)  (v)
#define AVERAGED_bf16(v) (v)
#define AVERAGED_f32(v)  (v)
#define AVERAGED_f64(v)  (v)
#define AVERAGED_e4m3(v) (v)
#define AVERAGED_e5m2(v) (v)

DEFINE_TYPE(i8, int8_t, int64_t, AS_IS, (int8_t), WRAP_SUM, WRAP_PRODUCT)
DEFINE_TYPE(u8, uint8_t, uint64_t, AS_IS, (uint8_t), WRAP_SUM, WRAP_PRODUCT)
DEFINE_TYPE(i32, int32_t, int64_t, AS_IS, (int32_t), WRAP_SUM, WRAP_PRODUCT)
DEFINE_TYPE(u32, uint32_t, uint64_t, AS_IS, (uint32_t), WRAP_SUM, WRAP_PRODUCT)
DEFINE_TYPE(i64, int64_t, int64_t, AS_IS, AS_IS, WRAP_SUM, WRAP_PRODUCT)
DEFINE_TYPE(u64, uint64_t, uint64_t, AS_IS, AS_IS, WRAP_SUM, WRAP_PRODUCT)
DEFINE_TYPE(f16, uint16_t, float, from_half, to_half, FLOAT_SUM, FLOAT_PRODUCT)
DEFINE_TYPE(bf16, uint16_t, float, from_bfloat, to_bfloat, FLOAT_SUM, FLOAT_PRODUCT)
DEFINE_TYPE(f32, float, float, AS_IS, AS_IS, FLOAT_SUM, FLOAT_PRODUCT)
DEFINE_TYPE(f64, double, double, AS_IS, AS_IS, FLOAT_SUM, FLOAT_PRODUCT)
DEFINE_TYPE(e4m3, uint8_t, float, from_e4m3, to_e4m3, FLOAT_SUM, FLOAT_PRODUCT)
DEFINE_TYPE(e5m2, uint8_t, float, from_e5m2, to_e5m2, FLOAT_SUM, FLOAT_PRODUCT)

static const struct {
    void (*fold)(void *, const void *const *, int, size_t, ncclRedOp_t);
    void (*scale)(void *, const void *, size_t, const void *);
} types[ncclNumTypes] = {
    [ncclInt8] = {fold_i8, scale_i8},           [ncclUint8] = {fold_u8, scale_u8},
    [ncclInt32] = {fold_i32, scale_i32},        [ncclUint32] = {fold_u32, scale_u32},
    [ncclInt64] = {fold_i64, scale_i64},        [ncclUint64] = {fold_u64, scale_u64},
    [ncclFloat16] = {fold_f16, scale_f16},      [ncclFloat32] = {fold_f32, scale_f32},
    [ncclFloat64] = {fold_f64, scale_f64},      [ncclBfloat16] = {fold_bf16, scale_bf16},
    [ncclFloat8e4m3] = {fold_e4m3, scale_e4m3}, [ncclFloat8e5m2] = {fold_e5m2, scale_e5m2},
};

void lab_fold(void *out, const void *const *sources, int nsources, size_t count, ncclDataType_t type,
              ncclRedOp_t fold)
{
    types[type].fold(out, sources, nsources, count, fold);
}

void lab_scale(void *out, const void *in, size_t count, ncclDataType_t type, const void *scalar)
{
    types[type].scale(out, in, count, scalar);
}
