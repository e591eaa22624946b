/*
 * The recorder as a user meets it: preloaded into programs, judged by what they do and by the
 * traces they leave.
 */
#ifndef PRELOADED_H
#define PRELOADED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rec/live.h"
#include "rec/reader.h"

/*
 * Arguments of each test: the recorder, client.c and opener.c as programs, the stub NCCL, an older one and
 * another one, plugin.c, one that tells a profiler plugin (stub-told.c), and the sanitizer of the build
 * ("none"): its runtime cannot be preloaded into other programs, owns signals and memory, and does not
 * survive a fork. False: they are not that.
 */
bool preloaded_arguments(int argc, char **argv);
extern const char *recorder, *client, *opener, *nccl, *old_nccl, *other_nccl, *plugin, *told_nccl;
extern bool preloaded_sanitized;

/* Of one test: its folder, and in that the one for traces and the one for live regions, which lie in regions.
 */
extern char base[64], traces[96], live_dir[96], regions[128];
#define PRELOADED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
int set_up(void **state);
int tear_down(void **state);

/*
 * Runs a program with the recorder preloaded; settings are names and values, NULL unsets. What it
 * prints is in output. Returns the wait status. run and run_with: of the client.
 */
extern char output[65536];
int run_program(const char *const *settings, const char *const *arguments);
int run_with(const char *const *settings, const char *what, const char *number);
int run(const char *what, const char *number);
void child_environment(const char *const *settings); /* what they set first of all, in the child */
void assert_exit(int status, int want);
void assert_killed(int status, int want);
/* format has one %s. */
void shell(const char *format, const char *argument);

struct trace {
    uint64_t ops, kinds[256], lost, checked_gaps, in_progress;
    uint64_t seqs[256], refused[256]; /* by kind: of the last call that has one; those that have none */
    uint64_t next_seq;                /* of the frontier told last */
    uint32_t comms, threads, stalls, stall_frames;
    uint32_t end, end_frames;
    int32_t end_status, end_signal;
    uint64_t fault;
    uint32_t stall_why, stall_threads, open_calls;
    uint8_t open_kind;
    bool closed;
    char meta[REC_LIVE_META_BYTES];
    char comm_name[64];
    uint64_t uids[2048];
    uint32_t nuids;
};

/* first: gets the path of one. */
uint32_t count_files(const char *directory, const char *suffix, char *first, size_t size);
uint32_t count_traces(void);
uint32_t count_live(void);
/* False: there is not exactly one, or it cannot be mapped. */
bool map_only_live(bool writable, struct rec_live *live);
/* Valid until the next. */
struct trace *read_trace(const char *path);
struct trace *only_trace(void);

#endif
