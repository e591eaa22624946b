/* Element arithmetic for every NCCL datatype.
 *
 * Integers wrap around. The 16- and 8-bit floats are folded in float and rounded once, to nearest even; the
 * 8-bit ones saturate at their largest finite value. ncclAvg divides the sum by the number of ranks, integers
 * toward zero.
 */
#ifndef LAB_REDUCE_H
#define LAB_REDUCE_H

#include "compat.h"
#include <stddef.h>

/* Bytes of one element; 0 for a number that is no datatype. */
size_t lab_type_size(ncclDataType_t type);

/* out[i] = fold over r of sources[r][i], in rank order. out may be one of the sources. */
void lab_fold(void *out, const void *const *sources, int nsources, size_t count, ncclDataType_t type,
              ncclRedOp_t fold);

/* out[i] = in[i] * scalar. out may be in. */
void lab_scale(void *out, const void *in, size_t count, ncclDataType_t type, const void *scalar);

#endif
