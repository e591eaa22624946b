/*
 * The writer takes no memory after rec_writer_init and asks the system for nothing but its own
 * files. malloc and its relatives are replaced here by ones that count; a seccomp filter kills
 * the process at a system call that the writer has no business with.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rec/writer.h"
#include "synth.h"

/* cmocka wants these first. */
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static unsigned long allocations;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    allocations++;
    return __libc_realloc(old, size);
}

#define ALLOW(name)                                                                                          \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* What part.c may call; write and exit_group are for the test itself. */
static int confine(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(openat),
        ALLOW(close),
        ALLOW(fcntl),
#ifdef SYS_newfstatat
        ALLOW(newfstatat),
#endif
        ALLOW(fstat),
#ifdef SYS_lstat
        ALLOW(lstat),
#endif
#ifdef SYS_unlink
        ALLOW(unlink),
#endif
        ALLOW(unlinkat),
        ALLOW(pwrite64),
        ALLOW(pread64),
        ALLOW(ftruncate),
        ALLOW(sync_file_range),
        ALLOW(prlimit64),
        ALLOW(write),
        ALLOW(exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

/* 0, or what went wrong. Runs confined. */
static int write_trace(struct rec_writer *writer, const char *dir)
{
    struct rec_error err;
    struct synth synth;
    struct rec_op ops[100];
    unsigned long before = allocations;
    if (rec_writer_open(writer, dir, "quiet", "{}", 2, &err) != REC_OK)
        return 10;
    synth_init(&synth, SYNTH_MOE, 0, 8);
    synth_define(&synth, writer);
    for (int i = 0; i < 8000; i++) { /* enough for several parts */
        for (int k = 0; k < 100; k++)
            synth_op(&synth, &ops[k]);
        rec_writer_ops(writer, ops, 100);
        rec_writer_open_ops(writer, synth.now_ns, ops, 3);
        synth_frontiers(&synth, writer);
        rec_writer_heartbeat(writer, synth.now_ns);
        if (i % 50 == 0)
            close(900); /* the descriptor, most likely: reopening must be as quiet */
        if (rec_writer_flush(writer, &err) != REC_OK)
            return 11;
    }
    if (rec_writer_close(writer, &err) != REC_OK)
        return 12;
    return allocations == before ? 0 : 13;
}

static void test_quiet(void **state)
{
    (void)state;
    struct rec_writer_config config = {.max_bytes = 1 << 20};
    char dir[] = "/tmp/frec-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    void *memory = aligned_alloc(64, rec_writer_bytes(&config));
    assert_non_null(memory);
    struct rec_writer *writer = rec_writer_init(memory, &config);
    pid_t child = fork();
    if (child == 0)
        _exit(confine() ? 99 : write_trace(writer, dir));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    for (unsigned part = 0; part < 1000; part++) {
        char path[128];
        snprintf(path, sizeof(path), part ? "%s/quiet.%u.frec" : "%s/quiet.frec", dir, part);
        unlink(path);
    }
    assert_int_equal(rmdir(dir), 0);
    free(memory);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 99)
        skip(); /* no seccomp here */
    assert_false(WIFSIGNALED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_quiet)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
