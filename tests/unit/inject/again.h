/* For tests that look at the recorder from inside: the same program once more, with it preloaded. */
#ifndef AGAIN_H
#define AGAIN_H

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rec/live.h"

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

/* In the second run: the recorder's live region. Fails the test when it cannot be had. */
static const struct rec_live *own_region(void)
{
    static struct rec_live live;
    glob_t found;
    char pattern[512];
    struct rec_error err;
    if (live.header)
        return &live;
    snprintf(pattern, sizeof(pattern), "%s/frec-*/%d-*.live", getenv("FREC_LIVE_DIR"), (int)getpid());
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    if (rec_live_map(found.gl_pathv[0], false, &live, &err) != REC_OK)
        fail_msg("%s", err.text);
    globfree(&found);
    return &live;
}

#endif
