#include "hook.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fr-common.h"

struct hook_call {
    int input; /* descriptor of the document */
    const char *verdict, *status;
    char *ranks, *hosts;
};

static void free_call(struct hook_call *call)
{
    if (!call)
        return;
    if (call->input >= 0)
        close(call->input);
    free(call->ranks);
    free(call->hosts);
    free(call);
}

/* In memory, so that nobody has to wait until the command reads it. */
static int make_input(const char *text)
{
    int fd = memfd_create("fr-verdict", MFD_CLOEXEC);
    size_t bytes = strlen(text);
    for (size_t at = 0; fd >= 0 && at < bytes;) {
        ssize_t n = write(fd, text + at, bytes - at);
        if (n > 0) {
            at += (size_t)n;
        } else if (errno != EINTR) {
            close(fd);
            fd = -1;
        }
    }
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

static char *join_ranks(const struct rec_finding *finding)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    for (size_t i = 0; i < finding->nculprits; i++)
        fprintf(out, "%s%d", i ? "," : "", (int)finding->culprits[i]);
    return fclose(out) == 0 ? text : NULL;
}

/* A trace is nobody's friend: scripts get no character that means something to a shell. */
static void put_host(FILE *out, const char *host)
{
    for (; *host; host++) {
        bool plain = (*host >= 'a' && *host <= 'z') || (*host >= 'A' && *host <= 'Z') ||
                     (*host >= '0' && *host <= '9') || strchr(".-_:", *host);
        fputc(plain ? *host : '_', out);
    }
}

static char *join_hosts(const struct rec_job *job, const struct rec_verdict *verdict)
{
    char *text = NULL;
    size_t size, count;
    const char **names = rec_finding_hosts(job, verdict, &verdict->findings[0], &count);
    FILE *out = names ? open_memstream(&text, &size) : NULL;
    for (size_t i = 0; out && i < count; i++) {
        fputs(i ? "," : "", out);
        put_host(out, names[i]);
    }
    free(names);
    return out && fclose(out) == 0 ? text : NULL;
}

static struct hook_call *make_call(const struct rec_job *job, const struct rec_verdict *verdict,
                                   const char *text)
{
    const struct rec_finding *finding = &verdict->findings[0];
    struct hook_call *call = calloc(1, sizeof *call);
    if (!call)
        return NULL;
    call->verdict = rec_verdict_type_name(finding->type);
    call->status = rec_status_name(verdict->status);
    call->ranks = join_ranks(finding);
    call->hosts = join_hosts(job, verdict);
    call->input = make_input(text);
    if (call->ranks && call->hosts && call->input >= 0)
        return call;
    free_call(call);
    return NULL;
}

/* In the child; the parent has no other threads at this time. */
static _Noreturn void become(const char *command, const struct hook_call *call)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    if (dup2(call->input, STDIN_FILENO) >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0 &&
        setenv("FREC_VERDICT", call->verdict, 1) == 0 && setenv("FREC_STATUS", call->status, 1) == 0 &&
        setenv("FREC_CULPRIT_RANKS", call->ranks, 1) == 0 &&
        setenv("FREC_CULPRIT_HOSTS", call->hosts, 1) == 0)
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static void start(struct hook *hook, struct hook_call *call)
{
    fflush(NULL); /* or the child would have our buffers, too */
    hook->child = fork();
    if (hook->child == 0)
        become(hook->command, call);
    if (hook->child < 0) {
        fr_errorf("--on-fault", "%s", strerror(errno));
        hook->child = 0;
    }
    free_call(call);
}

void hook_run(struct hook *hook, const struct rec_job *job, const struct rec_verdict *verdict,
              const char *text)
{
    if (!hook->command)
        return;
    struct hook_call *call = make_call(job, verdict, text);
    if (!call) {
        fr_errorf("--on-fault", "no memory");
    } else if (hook->child) {
        free_call(hook->waiting);
        hook->waiting = call;
    } else {
        start(hook, call);
    }
}

void hook_reap(struct hook *hook)
{
    int status;
    if (!hook->child || waitpid(hook->child, &status, WNOHANG) != hook->child)
        return;
    hook->child = 0;
    if (WIFSIGNALED(status))
        fr_errorf("--on-fault", "the command was killed by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status))
        fr_errorf("--on-fault", "the command ended with exit status %d", WEXITSTATUS(status));
    struct hook_call *next = hook->waiting;
    hook->waiting = NULL;
    if (next)
        start(hook, next);
}

void hook_fini(struct hook *hook)
{
    if (hook->waiting)
        fr_errorf("--on-fault", "not run for the last incident: the command before still runs");
    free_call(hook->waiting);
    hook->waiting = NULL;
}
