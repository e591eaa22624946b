/*
 * The regular ends of a process. exit(): the status becomes known in an on_exit handler, the
 * trace is finished in the library's destructor, after all the application's handlers and
 * destructors that may still call NCCL. _exit, _Exit and quick_exit run no destructors.
 */
#include "inject.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXIT_WAIT_MS  5000 /* a file system that hangs must not keep the job from ending */
#define QUICK_WAIT_MS 500

/* False in a vfork child, which shares our memory, and wherever nothing is recorded. */
static bool recording(void)
{
    return atomic_load_explicit(&recorder.state, memory_order_acquire) == RECORDER_ON &&
           getpid() == recorder.pid;
}

static void set_end(enum rec_end_reason reason, int status)
{
    struct rec_live_end *end = &recorder.live.header->end;
    atomic_store_explicit(&end->status, status, memory_order_relaxed);
    atomic_store_explicit(&end->tid, (int32_t)gettid(), memory_order_relaxed);
    atomic_store_explicit(&end->time_ns, real_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&end->reason, reason, memory_order_release);
}

static void stop(uint64_t wait_ms)
{
    int saved = errno;
    drain_finish(wait_ms);
    drain_finish_here();
    atomic_store_explicit(&recorder.state, RECORDER_OFF, memory_order_release);
    errno = saved;
}

static void at_exit(int status, void *unused)
{
    (void)unused;
    if (recording())
        set_end(REC_END_EXIT, status & 0xff);
}

static void at_quick_exit_handler(void)
{
    if (recording()) {
        set_end(REC_END_QUICK, -1); /* no handler of quick_exit learns the status */
        stop(QUICK_WAIT_MS);
    }
}

__attribute__((destructor)) static void unloaded(void)
{
    bypass_tell();
    if (recording())
        stop(EXIT_WAIT_MS);
}

PUBLIC _Noreturn void _exit(int status)
{
    if (recording()) {
        set_end(REC_END_QUICK, status & 0xff);
        stop(QUICK_WAIT_MS);
    }
    for (;;)
        syscall(SYS_exit_group, status);
}

PUBLIC _Noreturn void _Exit(int status);
PUBLIC _Noreturn void _Exit(int status)
{
    _exit(status);
}

void exit_hooks_install(void)
{
    static bool installed; /* inherited over fork, and so are the registrations */
    if (installed)
        return;
    installed = true;
    on_exit(at_exit, NULL);
    at_quick_exit(at_quick_exit_handler);
}
