/* What the ends of processes tell: causes, or how somebody gave up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "story.h"

#define LOOP    "* init w\n repeat 20 * ar w 100\n"
#define TIMEOUT "* wait 12000\n"

static void watchdogs(void **state)
{
    (void)state;
    /* One sleeps: what was stuck before the ends is the root, whoever ends first. */
    static const char asleep[] = LOOP "*-2 ar w 100\n" TIMEOUT "2 dies 6\n * wait 20\n *-2 dies 6";
    story_expect(4, asleep, "stuck_outside_nccl", "2", "*-2");
    story_expect_words(4, asleep, "until they died of signal 6 (SIGABRT)");
    /* Its trace is missing: nobody else is to blame. */
    story_expect_doubt(4, LOOP "*-2 ar w 100\n" TIMEOUT "*-2 dies 6\n 2 notrace", "unknown", "", "2");
    /* Nor is one of which no call is recorded, who may have stood still like them. */
    story_expect_doubt(4, "0 lose\n" LOOP "*-2 ar w 100\n" TIMEOUT "* dies 6\n 2 notrace", "unknown", "",
                       "2");
    /* All are inside the kernel. */
    story_expect(4, LOOP "* ar w 100 started\n" TIMEOUT "* dies 6", "stuck_in_kernel", "", "*");
    /* They had paused for longer before than the timeout is. */
    story_expect(4,
                 LOOP "* wait 4000\n repeat 3 * ar w 9\n *-1 ar w 9\n * wait 5000\n *-1 dies 6\n 1 dies 15",
                 "stuck_outside_nccl", "1", "*-1");
    /* Those who crash in the wake of that, too. */
    story_expect(4, LOOP "*-2 ar w 100\n" TIMEOUT "0 dies 6\n * wait 100\n 1,3 dies 11\n * wait 9000",
                 "stuck_outside_nccl", "2", "*-2");
    /* Without a standstill before it, an abort is a fault of its own … */
    story_expect(4, LOOP "2 dies 6\n *-2 ar w 100\n" TIMEOUT "*-2 dies 6", "process_dead", "2", "*-2");
    /* … and so is one after a long pause, when others come and miss it. */
    story_expect(4, LOOP "* wait 12000\n 2 dies 6\n *-2 ar w 100\n" TIMEOUT "*-2 dies 6", "process_dead", "2",
                 "*-2");
    story_expect(4, LOOP "* wait 12000\n 2 dies 6\n *-2 ar w 100\n * wait 500\n *-2 dies 15", "process_dead",
                 "2", "*-2");
    /* Who dies elsewhere in the wake of a watchdog has not begun it. */
    story_expect(
        4,
        "* init w\n 0,2 init x\n 1,3 init y\n repeat 20 * ar w 100\n 0 ar x 9\n repeat 6000 1,3 ar y 5\n"
        "0 dies 6\n 3 dies 11\n 1 ar y 5\n * wait 6000",
        "stuck_outside_nccl", "2", "0-1,3");
    /* All at once: all, or nobody. */
    story_expect(4, LOOP "0 dies 6\n 1 dies 6\n 2 dies 6\n 3 dies 6", "process_dead", "0-3", "");
}

static void last_one(void **state)
{
    (void)state;
    /* Nothing of NCCL can hold up the only one that is left when the others have ended well. */
    story_expect(4, LOOP "*-2 exit 0\n" TIMEOUT "2 dies 15", "healthy", "", "*");
    /* But a message that nobody has sent can, also where the order of the messages before is not plain. */
    story_expect(4,
                 "* init w\n loop 9 ( 0 send w 1 9, 1 send w 2 9, 2 send w 3 9, 3 send w 0 9, 0 recv w 3 9, "
                 "1 recv w 0 9, 2 recv w 1 9, 3 recv w 2 9 )\n 0-1,3 exit 0\n 2 recv w 1 9\n" TIMEOUT
                 "2 dies 15",
                 "inconclusive", "", "*");
    story_expect(4, LOOP "*-2-3 exit 0\n" TIMEOUT "2-3 dies 15", "inconclusive", "", "*");
    story_expect(4, LOOP "*-2 exit 1\n" TIMEOUT "2 dies 15", "inconclusive", "", "*");
}

static void timeouts(void **state)
{
    (void)state;
    /* Aborted communicators were waited for, however the processes end. */
    static const char well[] = LOOP "*-2 ar w 100\n" TIMEOUT "*-2 abort w\n *-2 exit 0\n * wait 3000";
    story_expect(4, well, "stuck_outside_nccl", "2", "*-2");
    story_expect_words(4, well, "until they aborted it");
    /* … also where pauses had been longer than the timeout. */
    story_expect(4,
                 LOOP
                 "* wait 4000\n repeat 3 * ar w 9\n *-1 ar w 9\n * wait 5000\n *-1 abort w\n *-1 exit 1\n"
                 "* wait 3000",
                 "stuck_outside_nccl", "1", "*-1");
    /* … or go on without the one that did not come, on the same stream; another standstill comes first. */
    story_expect(4,
                 "* init w\n repeat 9 * ar w 9 done\n *-2 ar w 9 started\n" TIMEOUT
                 "*-2 abort w\n 0-1,3 init v\n repeat 9 *-2 ar v 9 done\n *-2 exit 0\n * wait 3000",
                 "stuck_outside_nccl", "2", "*-2");
    static const char again[] = LOOP "2 exit 0\n *-2 ar w 100\n" TIMEOUT "*-2 abort w\n 0-1,3 init v\n"
                                     "repeat 20 *-2 ar v 9\n 0-1 ar v 9\n" TIMEOUT;
    story_expect(4, again, "stuck_outside_nccl", "3", "0-1");
    story_expect_also(4, again, "rank_not_joined", "2");
    /* A shrink with an abort ends them, too. */
    story_expect(4,
                 "* init w\n repeat 9 * ar w 9 done\n *-2 ar w 9 started\n" TIMEOUT
                 "0-1,3 shrink w v abort\n repeat 9 *-2 ar v 9 done\n *-2 exit 0\n * wait 3000",
                 "stuck_outside_nccl", "2", "*-2");
    /* Who aborted its own wait for one that is not recorded was held up until then. */
    story_expect_doubt(
        4,
        "* init w\n 2-3 init p\n repeat 9 * ar w 9 done\n 2 ar p 9 started\n 0-1 ar w 9 started\n"
        "* wait 9000\n 2 abort p\n 2 abort w\n * wait 800\n 0-1 abort w\n 0-2 init v\n"
        "repeat 9 0-2 ar v 9 done\n 0-2 exit 0\n 3 notrace\n * wait 3000",
        "unknown", "", "3");
    /* A GPU that did not reach it, whatever the others did since. */
    story_expect(3,
                 "* init w\n repeat 9 * ar w 9 done\n *-1 ar w 9 started\n 1 ar w 9\n" TIMEOUT
                 "* abort w\n 0,2 init v\n repeat 9 *-1 ar v 9 done\n *-1 exit 0\n * wait 3000",
                 "gpu_not_reached", "1", "*-1");
    /* Not all go on: who does not is missed. */
    story_expect(4,
                 "* init w\n repeat 9 * ar w 9 done\n *-3 ar w 9 started\n" TIMEOUT
                 "*-3 abort w\n * wait 1000\n 3 abort w\n 0,2-3 init v of 0-3\n" TIMEOUT,
                 "init_incomplete", "1", "0,2");
    /* Two of them, one after the other, and the job ends well. */
    static const char twice[] =
        "* init w\n repeat 9 * ar w 9 done\n *-3 ar w 9 started\n" TIMEOUT
        "*-3 abort w\n 0-2 init v\n repeat 9 *-3 ar v 9 done\n 2 dies 9\n"
        "0-1 ar v 9 started\n" TIMEOUT
        "0-1 abort v\n 0-1 init u\n repeat 9 0-1 ar u 9 done\n 0-1 exit 0\n * wait 3000";
    story_expect(4, twice, "stuck_outside_nccl", "3", "0-1");
    story_expect_also(4, twice, "process_dead", "2");
    /* The one that did not come may wait later, for another. */
    static const char two[] = "* init w\n repeat 9 * ar w 9 done\n *-1 ar w 9 started\n" TIMEOUT
                              "*-1 abort w\n * wait 1000\n 1 abort w\n * init v\n"
                              "repeat 9 * ar v 9 done\n *-2 ar v 9 started\n" TIMEOUT;
    story_expect(4, two, "stuck_outside_nccl", "2", "0,3");
    story_expect_also(4, two, "stuck_outside_nccl", "1");
    /* Who waited for somebody who waited then is explained by that, whatever came after. */
    story_expect(3,
                 "* init w\n 0-1 init x\n 1-2 init y\n repeat 9 * ar w 9\n 1 ar y 9\n 0 ar x 9\n" TIMEOUT
                 "0 abort x\n 1 abort y\n 0-1 init v\n repeat 9 0-1 ar v 9\n 0-1 exit 0\n * wait 3000",
                 "stuck_outside_nccl", "2", "0-1");
    /* Died after a fault, but nobody waited for them. */
    story_expect(4, LOOP "*-3 ar w 100\n 3 ag w 100\n * wait 300\n * dies 11", "op_mismatch", "3", "*-3");
    /* An exception that others ran into, too. */
    story_expect(4, LOOP "1 exit 1\n *-1 ar w 100\n" TIMEOUT "*-1 exit 1", "rank_not_joined", "1", "*-1");
}

static void latecomers(void **state)
{
    (void)state;
    static const char late[] =
        LOOP "*-2 ar w 100\n" TIMEOUT "*-2 dies 6\n * wait 2000\n 2 ar w 100\n 2 ar w 100\n * wait 4000";
    story_expect(4, late, "stuck_outside_nccl", "2", "*-2");
    story_expect_words(4, late, "when it came too late");
    /* The others had called several ops ahead. */
    story_expect(4,
                 LOOP "repeat 3 *-2 ar w 100\n" TIMEOUT "*-2 exit 1\n * wait 2000\n 2 ar w 100\n * wait 4000",
                 "stuck_outside_nccl", "2", "*-2");
    /* Late for all others, because it waited elsewhere for another one. */
    static const char chain[] =
        "* init w\n 0-1 init t0\n 2-3 init t1\n 0,2 init d0\n 1,3 init d1\n repeat 9 * ar w 8\n 0-1 ar t0 8\n"
        "2 ar t1 8\n 0 ar d0 8\n 1 ar d1 8\n" TIMEOUT "0-1 dies 6\n * wait 2000\n 3 ar t1 8\n 2 ar d0 8\n"
        "3 ar d1 8\n * wait 4000";
    story_expect(4, chain, "stuck_outside_nccl", "3", "0-2");
    /* A message for one that has given up. */
    story_expect(2, LOOP "1 recv w 0 100\n" TIMEOUT "1 dies 6\n * wait 2000\n 0 send w 1 100\n * wait 4000",
                 "stuck_outside_nccl", "0", "1");
    /* Whom nobody awaited when it died was not missed by those who come later: they are not late. */
    story_expect(4, LOOP "* wait 12000\n 2 exit 1\n * wait 2000\n *-2 ar w 100\n" TIMEOUT, "rank_not_joined",
                 "2", "*-2");
}

static void told_to_end(void **state)
{
    (void)state;
    static const char one[] = LOOP "2 dies 15\n *-2 ar w 100\n * wait 2600\n *-2 dies 15";
    story_expect(4, one, "process_dead", "2", "*-2");
    story_expect_words(4, one, "until they died of signal 15 (SIGTERM)");
    /* Most at once, one takes its time: a launcher did it. */
    story_expect(4, LOOP "0 ar w 100\n *-0 dies 15\n * wait 2600\n 0 dies 15", "healthy", "", "*");
    /* So too when they are told in the middle of an op: who died inside waits there for nobody. */
    story_expect(
        4,
        "* init w\n repeat 130 * ar w 9 done\n 1 ar w 9\n *-1 ar w 9 started\n 1-3 dies 15\n * wait 1800\n"
        "0 dies 15",
        "healthy", "", "*");
    story_expect_words(4, LOOP "* destroy w\n 0-2 exit 0\n 3 exit 1",
                       "3 of them ended well, 1 exited with an error");
    /* Half of a job. */
    story_expect(2, LOOP "1 stops\n 0 ar w 100\n * wait 8000", "process_dead", "1", "0");
}

static void lost_together(void **state)
{
    (void)state;
    /* 8 ranks share a host. */
    static const char node[] = "* init w\n 0-7 init t0\n 8-15 init t1\n 16-23 init t2\n repeat 9 * ar w 8\n"
                               "8-15 stops\n 0-7,16-23 ar w 8\n" TIMEOUT "0-7,16-23 dies 6";
    story_expect(24, node, "process_dead", "8-15", "0-7,16-23");
    story_expect_words(24, node, "ranks 8-15 (all of host ");
    /* Not heard of when the others gave up, which is longer than a heartbeat takes. */
    story_expect(24,
                 "* init w\n repeat 9 * ar w 8\n 8-15 stops\n 0-7,16-23 ar w 8\n * wait 3000\n"
                 "0-7,16-23 dies 6",
                 "process_dead", "8-15", "0-7,16-23");
    /* Of these only one was missed. */
    story_expect(
        24,
        "* init w\n 0,8 init x\n 1-7 init y\n 16-23 init z\n repeat 9 * ar w 8\n 8-15 stops\n 0 ar x 8\n"
        "repeat 1500 1-7 ar y 8\n repeat 1500 16-23 ar z 8\n 0 dies 6\n 1-7,16-23 dies 15",
        "process_dead", "8-15", "0-7,16-23");
}

/* What comes after the end of all waiting is not what was waited for. */
static void afterwards(void **state)
{
    (void)state;
    /* It came too late, did the rest with the others, and ended as well as they did. */
    static const char late[] = "* init w\n repeat 9 * ar w 9 done\n 0-1 ar w 9 started\n" TIMEOUT
                               "0-1 abort w\n * wait 2000\n 2 abort w\n * init v\n repeat 9 * ar v 9 done\n"
                               "2 exit 0\n * wait 50\n 0-1 exit 0";
    story_expect(3, late, "stuck_outside_nccl", "2", "0-1");
    /* Somebody had failed; others end well, the last one is killed with the job. */
    story_expect(4,
                 LOOP "1 async w 6\n 0-1 ar w 9 started\n 1 exit 3\n * wait 4000\n 0 stops\n * wait 300\n"
                      "2-3 exit 0\n * wait 1000",
                 "comm_failed", "1", "0,2-3");
}

#define BEHIND "* init w\n repeat 20 * ar w 9 done\n 2 behind\n * wait 9000\n repeat 20 * ar w 9 done\n"

/* What others complete only with a process shows that it lives, wherever its file ends. */
static void outlived(void **state)
{
    (void)state;
    story_expect(4, BEHIND "*-2 exit 0", "trace_missing", "", "");
    /* So do creations. */
    story_expect(4, LOOP "2 behind\n * wait 9000\n * split w x\n *-2 exit 0", "trace_missing", "", "");
    /* What nobody has completed tells nothing. */
    story_expect(4, LOOP "2 behind\n *-2 ar w 9 started\n * wait 9000", "process_dead", "2", "*-2");
    /* When the others have stood still for long since then, it died then. */
    story_expect(4, BEHIND "*-2 ar w 9 started\n * wait 12000", "process_dead", "2", "*-2");
}

/* Deaths that are consequences: those in different ways are not told as one. */
static void ways_to_die(void **state)
{
    (void)state;
    struct story story;
    bool bus = false, fault = false;
    story_tell(
        &story, 8,
        "* init w\n repeat 9 * ar w 9\n 0-6 ar w 9\n * wait 8000\n 0 dies 7\n 1-2 dies 11\n * wait 8000\n");
    assert_int_equal(story.verdict->findings[0].type, REC_VERDICT_STUCK_OUTSIDE_NCCL);
    for (size_t i = 1; i < story.verdict->nfindings; i++) {
        const char *summary = story.verdict->findings[i].summary;
        bus = bus || (strncmp(summary, "rank 0 (", 8) == 0 && strstr(summary, "signal 7 (SIGBUS)"));
        fault = fault || strstr(summary, "ranks 1-2 died of signal 11 (SIGSEGV)");
    }
    assert_true(bus && fault);
    story_end(&story);
}

/* Who aborts its communicators after waiting and exits with an error has not caused what others waited for.
 */
static void aborted_and_exited(void **state)
{
    (void)state;
    /* … or left them with who did. */
    story_expect(
        4,
        "* init w\n repeat 5 * ar w 9\n 0 destroy w\n 0 exit 0\n 1 recv w 0 9\n 2-3 ar w 9\n 1-3 wait 9000\n"
        "1-3 abort w\n 1-3 exit 1\n",
        "rank_not_joined", "0", "1-3");
    /* Nor does the abort make what was lost before the wait old. */
    story_expect_doubt(
        4,
        "* init w\n repeat 20 * ar w 9 done\n 2 lose\n 2 send w 3 5\n 2 record\n"
        "repeat 20 * ar w 9 done\n 3 notrace\n 0-1 ar w 9\n * wait 15000\n 0-2 abort w\n 0-2 exit 1\n",
        "unknown", "", "2-3");
    static const char raised[] =
        "* init w\n repeat 5 * ar w 9\n 1 exit 1\n 2 recv w 1 9\n 0,3 ar w 9\n * wait 9000\n"
        "0,2-3 abort w\n * wait 50\n 0,2-3 exit 1\n";
    story_expect(4, raised, "p2p_unmatched", "1", "0,2-3");
    static const char silent[] =
        "0-1 init a\n 1-2 init b\n repeat 3 0-1 ar a 5\n repeat 3 1-2 ar b 5\n 1-2 ar b 9\n"
        "0 ar a 5\n * wait 9000\n 0-1 abort a\n 1-2 abort b\n * wait 50\n * exit 1\n";
    story_expect_doubt(3, silent, "unknown", "", "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(watchdogs),          cmocka_unit_test(ways_to_die), cmocka_unit_test(last_one),
        cmocka_unit_test(timeouts),           cmocka_unit_test(latecomers),  cmocka_unit_test(told_to_end),
        cmocka_unit_test(lost_together),      cmocka_unit_test(outlived),    cmocka_unit_test(afterwards),
        cmocka_unit_test(aborted_and_exited),
    };
    return cmocka_run_group_tests_name("ends", tests, NULL, NULL);
}
