#include "engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct hg_fault_plan plan;
static pthread_once_t plan_once = PTHREAD_ONCE_INIT;

static unsigned long number_from(const char *name)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return 0;
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end || strchr(text, '-')) {
        fprintf(stderr, "hostgpu: %s=%s: not a number, ignored\n", name, text);
        return 0;
    }
    return value;
}

static void read_plan(void)
{
    plan.block_stream_at = number_from("HOSTGPU_BLOCK_STREAM_AT");
    plan.silent_at = number_from("HOSTGPU_SILENT_AT");
    plan.async_err_at = number_from("HOSTGPU_ASYNC_ERR_AT");
    plan.slow_us = number_from("HOSTGPU_SLOW_US");
}

const struct hg_fault_plan *hg_fault_plan(void)
{
    pthread_once(&plan_once, read_plan);
    return &plan;
}

void hg_hang(void)
{
    for (;;)
        pause();
}
