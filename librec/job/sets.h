/*
 * Disjoint sets of the numbers 0 … n - 1 (union-find). The caller's array has parent[i] == i at first.
 * The root of a set is its smallest member, whatever the order in which it was united.
 */
#ifndef REC_JOB_SETS_H
#define REC_JOB_SETS_H

#include <stdint.h>

static inline uint32_t job_set_root(uint32_t *parent, uint32_t i)
{
    while (parent[i] != i)
        i = parent[i] = parent[parent[i]];
    return i;
}

static inline void job_set_unite(uint32_t *parent, uint32_t a, uint32_t b)
{
    a = job_set_root(parent, a);
    b = job_set_root(parent, b);
    parent[a > b ? a : b] = a > b ? b : a;
}

#endif
