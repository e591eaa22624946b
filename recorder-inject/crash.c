/*
 * Fatal signals. The handler notes what it knows in the live region, asks the drain thread to
 * bring everything to the file, waits for at most half a second, puts the previous handling back
 * and lets the signal happen again: what the program would have died of, it still dies of, with
 * the same status, core dump and messages.
 *
 * Faults and abort are always hooked; TERM, INT, HUP and QUIT only where nobody handles or ignores
 * them. A handler that the program installs later simply replaces ours.
 */
#include "inject.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define CRASH_WAIT_MS 500

static struct hook {
    int signal;
    bool fault;  /* the instruction itself raises it: returning raises it again */
    bool always; /* chain to a handler of the program */
    bool installed;
    struct sigaction previous;
} hooks[] = {
    {.signal = SIGSEGV, .fault = true, .always = true},
    {.signal = SIGBUS, .fault = true, .always = true},
    {.signal = SIGFPE, .fault = true, .always = true},
    {.signal = SIGILL, .fault = true, .always = true},
    {.signal = SIGABRT, .always = true},
    {.signal = SIGTERM},
    {.signal = SIGINT},
    {.signal = SIGHUP},
    {.signal = SIGQUIT},
};
#define HOOKS (sizeof(hooks) / sizeof(hooks[0]))

static _Atomic bool noted; /* the first thread to die tells why */

static void registers(void *context, uint64_t *pc, uint64_t *sp)
{
    const ucontext_t *user = context;
    *pc = *sp = 0;
    if (!user)
        return;
#if defined(__x86_64__)
    *pc = (uint64_t)user->uc_mcontext.gregs[REG_RIP];
    *sp = (uint64_t)user->uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
    *pc = user->uc_mcontext.pc;
    *sp = user->uc_mcontext.sp;
#endif
}

static void note(int signal_number, const siginfo_t *info, void *context, bool fault)
{
    struct rec_live_end *end = &recorder.live.header->end;
    uint64_t pc, sp;
    registers(context, &pc, &sp);
    atomic_store_explicit(&end->signal, signal_number, memory_order_relaxed);
    atomic_store_explicit(&end->status, 128 + signal_number, memory_order_relaxed);
    atomic_store_explicit(&end->tid, (int32_t)gettid(), memory_order_relaxed);
    atomic_store_explicit(&end->fault, fault && info ? (uint64_t)(uintptr_t)info->si_addr : 0,
                          memory_order_relaxed);
    atomic_store_explicit(&end->time_ns, real_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&end->pcs[0], pc, memory_order_relaxed);
    atomic_store_explicit(&end->npcs, pc != 0, memory_order_relaxed);
    drain_note_stack(pc, sp);
    atomic_store_explicit(&end->reason, REC_END_SIGNAL, memory_order_release);
}

static bool is_default(const struct sigaction *action)
{
    return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == SIG_DFL;
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    struct hook *hook = hooks;
    while (hook->signal != number)
        hook++;
    bool fault = hook->fault && info && info->si_code > 0;

    if (atomic_load_explicit(&recorder.state, memory_order_acquire) == RECORDER_ON &&
        getpid() == recorder.pid) {
        if (!atomic_exchange_explicit(&noted, true, memory_order_acq_rel))
            note(number, info, context, fault);
        /* A handler of the program may repair the fault and go on: then recording goes on too. */
        if (is_default(&hook->previous))
            drain_finish(CRASH_WAIT_MS);
        else
            drain_flush(CRASH_WAIT_MS);
    }
    sigaction(number, &hook->previous, NULL);
    /* Sent, not raised by an instruction: send it to this thread again, as it was. It waits until
     * this handler returns. */
    if (!fault && syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), number, info) != 0)
        syscall(SYS_tgkill, getpid(), gettid(), number);
    errno = saved;
}

static bool is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == on_signal;
}

void crash_hooks_install(void)
{
    for (size_t i = 0; i < HOOKS; i++) {
        struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
        action.sa_sigaction = on_signal;
        sigfillset(&action.sa_mask);
        struct hook *hook = &hooks[i];
        if (hook->installed || sigaction(hook->signal, NULL, &hook->previous) != 0 ||
            is_ours(&hook->previous) || hook->previous.sa_handler == SIG_IGN ||
            (!hook->always && !is_default(&hook->previous)))
            continue;
        hook->installed = sigaction(hook->signal, &action, NULL) == 0;
    }
}

void crash_hooks_forget(void)
{
    for (size_t i = 0; i < HOOKS; i++) {
        struct sigaction now;
        if (hooks[i].installed && sigaction(hooks[i].signal, NULL, &now) == 0 && is_ours(&now))
            sigaction(hooks[i].signal, &hooks[i].previous, NULL);
        hooks[i].installed = false;
    }
    atomic_store_explicit(&noted, false, memory_order_relaxed);
}

void crash_survived(void)
{
    struct rec_live_end *end = &recorder.live.header->end;
    atomic_store_explicit(&end->reason, REC_END_NONE, memory_order_release);
    atomic_store_explicit(&noted, false, memory_order_release);
}
