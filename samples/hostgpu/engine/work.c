/* Copies, fills and host functions as stream work. */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

struct transfer_work {
    struct hg_work base;
    void *dst;
    const void *src;
    size_t count; /* bytes of a copy, elements of a fill */
    unsigned value;
    unsigned width; /* bytes of a filled element: 1, 2, 4 */
};

struct call_work {
    struct hg_work base;
    void (*function)(void *);
    void *user;
};

static void release(struct hg_work *work)
{
    free(work);
}

static void run_copy(struct hg_work *work)
{
    struct transfer_work *w = (struct transfer_work *)work;
    memmove(w->dst, w->src, w->count);
}

static void run_fill(struct hg_work *work)
{
    struct transfer_work *w = (struct transfer_work *)work;
    if (w->width == 1) {
        memset(w->dst, (int)w->value, w->count);
        return;
    }
    char *out = w->dst;
    for (size_t i = 0; i < w->count; i++)
        memcpy(out + i * w->width, &w->value,
               w->width); /* little-endian hosts only, as the lab's x86 and Arm */
}

static CUresult submit_transfer(CUstream stream, const struct transfer_work *what,
                                void (*run)(struct hg_work *))
{
    struct transfer_work *w = malloc(sizeof *w);
    if (!w)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *w = *what;
    w->base = (struct hg_work){.run = run, .release = release, .kind = HG_WORK_PLAIN};
    return hg_submit(stream, &w->base);
}

CUresult hg_submit_copy(CUstream stream, void *dst, const void *src, size_t bytes)
{
    struct transfer_work what = {.dst = dst, .src = src, .count = bytes};
    return submit_transfer(stream, &what, run_copy);
}

CUresult hg_submit_fill(CUstream stream, void *dst, unsigned value, unsigned width, size_t count)
{
    struct transfer_work what = {.dst = dst, .value = value, .width = width, .count = count};
    return submit_transfer(stream, &what, run_fill);
}

static void run_call(struct hg_work *work)
{
    struct call_work *w = (struct call_work *)work;
    w->function(w->user);
}

CUresult hg_submit_call(CUstream stream, void (*function)(void *), void *user)
{
    struct call_work *w = malloc(sizeof *w);
    if (!w)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *w = (struct call_work){{.run = run_call, .release = release, .kind = HG_WORK_PLAIN}, function, user};
    return hg_submit(stream, &w->base);
}
