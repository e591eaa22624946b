#include "inject.h"

#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum clock_source clock_source;

/* Wall clock and CLOCK_MONOTONIC at the start: later wall-clock times are the start plus elapsed
 * monotonic time, so a step of the wall clock cannot bend a trace. */
static uint64_t start_real_ns, start_monotonic_ns;

static uint64_t read_clock(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t real_now_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

uint64_t monotonic_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t trace_now_ns(void)
{
    return start_real_ns + (monotonic_now_ns() - start_monotonic_ns);
}

static enum clock_source choose(void)
{
#if defined(__x86_64__)
    /* Invariant TSC (AMD and Intel manuals: CPUID 80000007H, EDX bit 8): constant rate in all power
     * states and, in practice, one value on all CPUs. */
    unsigned eax, ebx, ecx, edx;
    if (__get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) && (edx & (1u << 8)))
        return CLOCK_SOURCE_TSC;
    return CLOCK_SOURCE_MONOTONIC;
#elif defined(__aarch64__)
    return CLOCK_SOURCE_CNTVCT;
#else
    return CLOCK_SOURCE_MONOTONIC;
#endif
}

const char *clock_source_name(void)
{
    static const char *const names[] = {
        [CLOCK_SOURCE_MONOTONIC] = "monotonic", [CLOCK_SOURCE_TSC] = "tsc", [CLOCK_SOURCE_CNTVCT] = "cntvct"};
    return names[clock_source];
}

/* The tightest of several readings: raw before and after bracket the other clock. */
static void read_pair(clockid_t id, uint64_t *raw, uint64_t *ns)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint64_t before = raw_now();
        uint64_t now = read_clock(id);
        uint64_t after = raw_now();
        if (after - before < best) {
            best = after - before;
            *raw = before + (after - before) / 2;
            *ns = now;
        }
    }
}

void clock_start(struct rec_live_clock *clock)
{
    clock_source = choose();
    uint64_t raw = 0;
    read_pair(CLOCK_MONOTONIC, &raw, &start_monotonic_ns);
    start_real_ns = real_now_ns() - (monotonic_now_ns() - start_monotonic_ns);
    atomic_store_explicit(&clock->raw0, raw, memory_order_relaxed);
    atomic_store_explicit(&clock->real0_ns, start_real_ns, memory_order_relaxed);
}

void clock_refresh(struct rec_live_clock *clock)
{
    uint64_t raw = 0, monotonic = 0;
    read_pair(CLOCK_MONOTONIC, &raw, &monotonic);
    uint64_t version = atomic_load_explicit(&clock->version, memory_order_relaxed);
    atomic_store_explicit(&clock->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&clock->raw1, raw, memory_order_relaxed);
    atomic_store_explicit(&clock->real1_ns, start_real_ns + (monotonic - start_monotonic_ns),
                          memory_order_relaxed);
    atomic_store_explicit(&clock->version, version + 2, memory_order_release);
}
