#include "engine.h"

#include <pthread.h>
#include <unistd.h>

static struct hg_fault_plan plan;
static pthread_once_t plan_once = PTHREAD_ONCE_INIT;

static void read_plan(void)
{
    plan.block_stream_at = hg_number_from_environment("HOSTGPU_BLOCK_STREAM_AT", 0);
    plan.silent_at = hg_number_from_environment("HOSTGPU_SILENT_AT", 0);
    plan.stuck_at = hg_number_from_environment("HOSTGPU_STUCK_AT", 0);
    plan.async_err_at = hg_number_from_environment("HOSTGPU_ASYNC_ERR_AT", 0);
    plan.slow_us = hg_number_from_environment("HOSTGPU_SLOW_US", 0);
    plan.register_ms = hg_number_from_environment("HOSTGPU_REGISTER_MS", 0);
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
