#include <stdio.h>
#include <string.h>

#include "rec/job.h"

/*
 * Layers between a program and NCCL. Their frames are part of every stack and say nothing about
 * which of the program's calls it was. Parts of paths as the frameworks install them.
 */
static const char *const layers[] = {
    "/torch/distributed/",
    "/torch/cuda/nccl",
    "/torch/nn/parallel/",
    "/torch/_ops.py",
    "/torch/autograd/",
    "/torch/utils/_contextlib",
    "/pynccl",
    "/cupy/",
    "/cupy_backends/",
    "/deepspeed/comm/",
    "/vllm/distributed/",
    "/sglang/srt/distributed/",
};

static bool of_layer(const char *file)
{
    for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++)
        if (strstr(file, layers[i]))
            return true;
    return file[0] == '<'; /* generated code */
}

/* The standard library and what pip installs. */
static bool of_packages(const char *file)
{
    return strstr(file, "/site-packages/") || strstr(file, "/dist-packages/") || strstr(file, "/lib/python3");
}

const struct rec_source_frame *rec_callsite_place(const struct rec_callsite_def *site)
{
    if (site->nframes == 0)
        return NULL;
    for (uint32_t i = 0; i < site->nframes; i++)
        if (!of_packages(site->frames[i].file) && !of_layer(site->frames[i].file))
            return &site->frames[i];
    for (uint32_t i = 0; i < site->nframes; i++)
        if (!of_layer(site->frames[i].file))
            return &site->frames[i];
    return &site->frames[0];
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void native_text(const struct rec_source_frame *frame, struct rec_symbolizer *symbolizer, char *buffer,
                        size_t size)
{
    char name[160];
    const char *file = frame->file[0] ? base_name(frame->file) : "?";
    enum rec_symbol symbol =
        symbolizer ? rec_symbolize_frame(symbolizer, frame, name, sizeof(name)) : REC_SYMBOL_NONE;
    if (symbol == REC_SYMBOL_FOUND)
        snprintf(buffer, size, "%s in %s", name, file);
    else
        snprintf(buffer, size, "%s+0x%llx%s", file, (unsigned long long)frame->offset,
                 symbol == REC_SYMBOL_OTHER_BUILD ? " (another build is here)" : "");
}

void rec_frame_text(const struct rec_callsite_def *site, const struct rec_source_frame *frame,
                    struct rec_symbolizer *symbolizer, char *buffer, size_t size)
{
    if (site->kind != REC_CALLSITE_PYTHON)
        native_text(frame, symbolizer, buffer, size);
    else if (frame->function[0])
        snprintf(buffer, size, "%s:%u in %s", base_name(frame->file), frame->line, frame->function);
    else
        snprintf(buffer, size, "%s:%u", base_name(frame->file), frame->line);
}

bool rec_callsite_text(const struct rec_callsite_def *site, struct rec_symbolizer *symbolizer, char *buffer,
                       size_t size)
{
    const struct rec_source_frame *frame = rec_callsite_place(site);
    if (size)
        buffer[0] = '\0';
    if (frame)
        rec_frame_text(site, frame, symbolizer, buffer, size);
    return frame != NULL;
}
