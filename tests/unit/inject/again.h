/* For tests that look at the recorder from inside: the same program once more, with it preloaded. */
#ifndef AGAIN_H
#define AGAIN_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* argv[1] is the recorder; in the second run there is none. Returns the exit status. */
static int run_again(char **argv)
{
    char base[] = "/tmp/test-again-XXXXXX", command[64];
    if (!mkdtemp(base))
        return 1;
    pid_t child = fork();
    if (child == 0) {
        setenv("LD_PRELOAD", argv[1], 1);
        setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
        setenv("TSAN_OPTIONS", "die_after_fork=0", 1);
        setenv("FREC_DIR", base, 1);
        setenv("FREC_LIVE_DIR", base, 1);
        unsetenv("FREC_GPU");
        unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
        execl("/proc/self/exe", argv[0], (char *)NULL);
        _exit(127);
    }
    int status = -1;
    waitpid(child, &status, 0);
    snprintf(command, sizeof(command), "rm -rf %s", base);
    return system(command) == 0 && status == 0 ? 0 : 1;
}

#endif
