#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "story.h"

/* What a hang looks like: nothing more is called for a while, then all is over. */
#define HANG "* wait 8000\n"

struct told {
    const char *name;
    int nranks;
    const char *story, *type, *culprits, *innocent;
};

static void check(const struct told *told, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        print_message("  %s\n", told[i].name);
        story_expect(told[i].nranks, told[i].story, told[i].type, told[i].culprits, told[i].innocent);
    }
}
#define CHECK(table) check(table, sizeof table / sizeof *table)

static void signatures(void **state)
{
    (void)state;
    static const struct told table[] = {
        {"count on rank 0", 4, "* init w\n repeat 5 * ar w 100\n 0 ar w 200\n *-0 ar w 100\n" HANG,
         "signature_mismatch", "0", "1-3"},
        {"count on rank 6 of 7", 7, "* init w\n repeat 5 * ar w 100\n *-6 ar w 14\n 6 ar w 15\n" HANG,
         "signature_mismatch", "6", "0-5"},
        {"count in a subgroup", 8,
         "* init w\n 4-7 init pp\n repeat 3 * ar w 100\n 4,6-7 ar pp 14\n 5 ar pp 15\n" HANG,
         "signature_mismatch", "5", "*-5"},
        {"another collective", 4, "* init w\n repeat 30 * ar w 100\n *-2 ar w 50\n 2 ag w 50\n" HANG,
         "op_mismatch", "2", "*-2"},
        {"a tie of two", 2, "* init w\n repeat 10 * ar w 100\n 0 ag w 50\n 1 ar w 50\n" HANG, "op_mismatch",
         "0-1", ""},
        {"redop, nothing hangs", 4,
         "* init w\n repeat 5 * ar w 100 f32 sum\n 3 ar w 100 f32 max\n *-3 ar w 100 f32 sum\n repeat 5 * ar "
         "w 100\n"
         "* destroy w\n * exit 0",
         "signature_mismatch", "3", "*-3"},
        {"root, nothing hangs", 5,
         "* init w\n *-1 bc w 100 root 0\n 1 bc w 100 root 2\n repeat 5 * ar w 100\n * exit 0",
         "signature_mismatch", "1", "*-1"},
        {"datatype of equal size", 4,
         "* init w\n *-1 ar w 64 bf16\n 1 ar w 64 f16\n repeat 5 * ar w 100\n * exit 0", "signature_mismatch",
         "1", "*-1"},
        {"two of eight", 8,
         "* init w\n repeat 6 * ar w 300\n *-2,5 ar w 300\n 2,5 a2a w 256\n *-2,5 a2a w 256\n 2,5 ar w "
         "300\n" HANG,
         "op_mismatch", "2,5", "*-2,5"},
    };
    CHECK(table);
}

static void order(void **state)
{
    (void)state;
    static const struct told table[] = {
        {"one skipped, the later order shows it", 4,
         "* init w\n *-0 bc w 53 i64\n * bc w 1000 f16\n * bc w 2000 f16\n * bc w 3000 f16\n" HANG,
         "op_mismatch", "0", "1-3"},
        {"two swapped", 4,
         "* init w\n repeat 4 * ar w 100\n *-3 rs w 400\n *-3 rs w 70\n 3 rs w 70\n 3 rs w 400\n * ar w "
         "10\n" HANG,
         "op_mismatch", "3", "0-2"},
        {"one more in the middle", 4,
         "* init w\n repeat 40 * ar w 100\n 1 ar w 1\n repeat 60 * ar w 100\n" HANG, "op_mismatch", "1",
         "0,2-3"},
        {"one more that looks alike, the others went home", 4,
         "* init w\n repeat 40 * ar w 100\n *-1 exit 0\n 1 ar w 100\n" HANG, "rank_not_joined", "1", "0,2-3"},
        {"a checkpoint gathered by rank 0 alone", 8,
         "* init w\n repeat 10 * ar w 100\n 0 ga w 4096\n repeat 3 * ar w 100\n" HANG, "op_mismatch", "0",
         "1-7"},
        {"first divergence, not the last", 4,
         "* init w\n repeat 30 * ar w 256\n *-2 ar w 256 i32 max\n repeat 50 * ar w 256\n * ag w 5000\n" HANG,
         "op_mismatch", "2", "*-2"},
        {"creation and data ops may be exchanged", 2,
         "* init w\n 0 ar w 100\n * split w c\n 1 ar w 100\n repeat 3 * ar c 10\n * exit 0", "healthy", "",
         "*"},
        {"split left out", 4, "* init w\n repeat 3 * ar w 100\n *-2 insplit w\n 2 ar w 100\n" HANG,
         "rank_not_joined", "2", "*-2"},
        {"split by one alone", 4, "* init w\n repeat 3 * ar w 100\n 2 insplit w\n *-2 ar w 100\n" HANG,
         "op_mismatch", "2", "*-2"},
    };
    CHECK(table);
}

static void missing(void **state)
{
    (void)state;
    static const struct told table[] = {
        {"asleep outside", 8, "* init w\n repeat 20 * ar w 100\n *-5 ar w 100\n" HANG, "stuck_outside_nccl",
         "5", "*-5"},
        {"asleep, and others pile up behind", 8,
         "* init w\n 0-1 init t0\n 2-3 init t1\n 4-5 init t2\n 6-7 init t3\n 0,2,4,6 init d0\n 1,3,5,7 init "
         "d1\n"
         "repeat 5 * ar w 8\n 0-1 ar t0 64\n 2-3 ar t1 64\n 6-7 ar t3 64\n 4 ar t2 64\n"
         "0,2,6 ar d0 512\n 1,3,7 ar d1 512\n" HANG,
         "stuck_outside_nccl", "5", "*-5"},
        {"a chain of pipeline stages", 5,
         "* init w\n repeat 3 * ar w 8\n 0 recv w 1 10\n 1 recv w 2 10\n 2 recv w 3 10\n 3 recv w 4 "
         "10\n" HANG,
         "stuck_outside_nccl", "4", "0-3"},
        {"asleep between GroupStart and GroupEnd", 4,
         "* init w\n repeat 9 * ar w 8\n *-1 ar w 100\n 1 {\n 1 ar w 100\n" HANG, "stuck_outside_nccl", "1",
         "*-1"},
        {"finished and exited", 4, "* init w\n repeat 20 * ar w 100\n 2 exit 0\n *-2 ar w 100\n" HANG,
         "rank_not_joined", "2", "*-2"},
        {"raised and exited", 4, "* init w\n repeat 20 * ar w 100\n 2 exit 1\n *-2 ar w 100\n" HANG,
         "rank_not_joined", "2", "*-2"},
        {"killed before the op", 4, "* init w\n repeat 20 * ar w 100\n 3 stops\n *-3 ar w 100\n" HANG,
         "process_dead", "3", "*-3"},
        {"killed inside the op", 4, "* init w\n repeat 20 * ar w 100\n * ar w 100\n 3 stops\n" HANG,
         "process_dead", "3", "*-3"},
        {"segmentation fault", 4,
         "* init w\n repeat 20 * ar w 100\n 1 dies 11\n *-1 ar w 100\n * wait 300\n *-1 dies 15",
         "process_dead", "1", "*-1"},
        {"tears down while the other waits", 2,
         "* init w\n repeat 20 * ar w 100\n 0 ar w 100\n 1 in destroy w\n" HANG, "rank_not_joined", "1", "0"},
        {"finalized, then asleep", 4, "* init w\n repeat 20 * ar w 100\n *-3 ar w 100\n 3 finalize w\n" HANG,
         "rank_not_joined", "3", "0-2"},
        {"the stage skips an op of all", 4,
         "* init w\n 0-1 split w s0\n 2-3 split w s1\n 0,2 split w p0\n 1,3 split w p1\n"
         "repeat 3 * ar w 1\n 0-1 ar w 8\n 2 recv p0 0 256\n 3 recv p1 0 256\n" HANG,
         "rank_not_joined", "2-3", "0-1"},
        {"few skip an op and wait elsewhere", 6,
         "* init w\n * split w x\n repeat 3 * ar w 1\n *-4 ar x 8\n 4 ar w 1\n" HANG, "rank_not_joined", "4",
         "*-4"},
        {"all killed at once in the middle", 4, "* init w\n repeat 30 * ar w 100\n 0-1 ar w 100\n", "healthy",
         "", "*"},
        {"all terminated at once in the middle", 4,
         "* init w\n repeat 30 * ar w 100\n 0-1 ar w 100\n * wait 100\n 0 dies 15\n 1 dies 15\n 2 dies 15\n "
         "3 dies 15",
         "healthy", "", "*"},
        {"terminated after a hang", 4,
         "* init w\n repeat 30 * ar w 100\n *-2 ar w 100\n" HANG
         "0 dies 15\n 1 dies 15\n 2 dies 15\n 3 dies 15",
         "stuck_outside_nccl", "2", "*-2"},
        {"the watchdog of a victim strikes first", 4,
         "* init w\n repeat 30 * ar w 100\n *-2 ar w 100\n" HANG "0 dies 6\n * wait 100\n *-0 dies 15",
         "stuck_outside_nccl", "2", "1,3"},
        {"timeout, then everybody aborts", 4,
         "* init w\n repeat 20 * ar w 100\n *-2 ar w 100\n * wait 4000\n *-2 abort w\n *-2 exit 1\n * wait "
         "2000\n"
         "2 abort w\n 2 exit 1",
         "stuck_outside_nccl", "2", "*-2"},
        {"comes late, after the abort", 4,
         "* init w\n repeat 20 * ar w 100\n *-2 ar w 100\n * wait 4000\n *-2 abort w\n * wait 2000\n 2 ar w "
         "100\n"
         "* wait 4000",
         "stuck_outside_nccl", "2", "*-2"},
        {"an error where nothing hangs before", 4,
         "* init w\n repeat 20 * ar w 100\n 2 async w 6\n * wait 300\n *-2 async w 6\n * abort w\n * exit 1",
         "comm_failed", "2", "*-2"},
        {"a refused call", 4, "* init w\n repeat 20 * ar w 100\n 1 ar w 100 failed\n *-1 ar w 100\n" HANG,
         "comm_failed", "1", "*-1"},
        {"a refused call that was survived, and later one stays away", 4,
         "* init w\n loop 20 ( * ar w 100, * ag w 50 )\n 1 bc w 100 failed\n"
         "loop 5 ( * ar w 100, * ag w 50 )\n *-3 ar w 100\n" HANG,
         "stuck_outside_nccl", "3", "0-2"},
        {"all is well", 4, "* init w\n repeat 30 * ar w 100\n * destroy w\n * exit 0", "healthy", "", "*"},
        {"all watchdogs strike, nobody shows who is late", 4,
         "* init w\n repeat 30 * ar w 100\n" HANG "0 dies 6\n 1 dies 6\n 2 dies 6\n 3 dies 6", "inconclusive",
         "", "*"},
        {"all watchdogs strike, one was asleep", 4,
         "* init w\n repeat 30 * ar w 100\n *-1 ar w 100\n" HANG "0 dies 6\n 1 dies 6\n 2 dies 6\n 3 dies 6",
         "stuck_outside_nccl", "1", "*-1"},
        {"errors after a death are consequences", 4,
         "* init w\n repeat 30 * ar w 100\n 3 dies 11\n *-3 ar w 100\n * wait 3000\n *-3 async w 6\n *-3 "
         "abort w\n"
         "*-3 exit 1",
         "process_dead", "3", "*-3"},
        {"killed while one is still busy elsewhere", 4,
         "* init w\n 2-3 init x\n repeat 30 * ar w 100\n 0-1 ar w 100\n repeat 5000 2-3 ar x 9",
         "inconclusive", "", "*"},
        {"slow but regular", 4,
         "* init w\n * ar w 100\n * wait 4000\n * ar w 100\n * wait 4000\n * ar w 100\n * wait 4000\n 0-1 ar "
         "w 100\n"
         "* wait 3000",
         "healthy", "", "*"},
    };
    CHECK(table);
}

static void creation(void **state)
{
    (void)state;
    static const struct told table[] = {
        {"never splits", 2, "* init w\n repeat 5 * ar w 100\n 1 insplit w\n" HANG, "stuck_outside_nccl", "0",
         "1"},
        {"subset creates a communicator of all", 4,
         "* init w\n repeat 5 * ar w 100\n 0-1 init lazy of 0-3\n" HANG, "init_incomplete", "2-3", "0-1"},
        {"different lists", 4, "* init w\n repeat 5 * ar w 100\n 0-2 init g of 0-3\n 3 init h of 1,3\n" HANG,
         "init_incomplete", "3", "0-2"},
        {"other nranks", 4, "*-3 init w of 0-3\n 3 init w of 0-3 nranks 8\n" HANG, "init_incomplete", "3",
         "0-2"},
        {"pairs created in circles", 4,
         "* init w\n * ar w 1\n 0 init a of 0-1\n 1 init b of 1-2\n 2 init c of 2-3\n 3 init d of 0,3\n" HANG,
         "deadlock_cycle", "0-3", ""},
        {"splits in inconsistent order", 4,
         "* init w\n * split w a\n * split w b\n 0-1 insplit a\n 2-3 insplit b\n" HANG, "deadlock_cycle",
         "0-3", ""},
        {"finalized in a circle", 6,
         "* init w\n 1,4 init a\n 4-5 init b\n 1,5 init c\n * ar w 1\n 4 in finalize b\n 5 in finalize c\n"
         "1 in finalize a\n 0,2-3 exit 0\n" HANG,
         "deadlock_cycle", "1,4-5", "0,2-3"},
        {"shrink without the lost rank", 4,
         "* init w\n repeat 5 * ar w 100\n 3 exit 0\n 0-2 shrink w s\n repeat 5 0-2 ar s 10\n 0-2 destroy s\n"
         "0-2 exit 0",
         "healthy", "", "*"},
    };
    CHECK(table);
}

static void messages(void **state)
{
    (void)state;
    static const struct told table[] = {
        {"send before receive on both", 2,
         "* init w\n * ar w 1\n 0 send w 1 8000\n 1 send w 0 8000\n 0 recv w 1 8000\n"
         "1 recv w 0 8000\n" HANG,
         "deadlock_cycle", "0-1", ""},
        {"a ring of receives", 6,
         "* init w\n * ar w 1\n 0 recv w 5 10\n 1 recv w 0 10\n 2 recv w 1 10\n 3 recv w 2 10\n 4 recv w 3 "
         "10\n"
         "5 recv w 4 10\n 0 send w 1 10\n 1 send w 2 10\n 2 send w 3 10\n 3 send w 4 10\n 4 send w 5 10\n"
         "5 send w 0 10\n" HANG,
         "deadlock_cycle", "0-5", ""},
        {"a message left out of a batch", 2,
         "* init w\n * ar w 1\n 0 {\n 0 send w 1 10\n 0 recv w 1 10\n 0 }\n 1 {\n 1 recv w 0 10\n 1 send w 0 "
         "10\n"
         "1 recv w 0 50\n 1 }\n" HANG,
         "p2p_unmatched", "0", "1"},
        {"left out, and the other has gone on", 2,
         "* init w\n * ar w 1\n 0 {\n 0 send w 1 10\n 0 recv w 1 10\n 0 }\n 1 {\n 1 recv w 0 10\n 1 send w 0 "
         "10\n"
         "1 recv w 0 50\n 1 }\n 0 ar w 7\n" HANG,
         "p2p_unmatched", "0", "1"},
        {"byte counts differ", 4,
         "* init w\n * ar w 1\n 1 send w 2 1\n 2 recv w 1 3\n 0,3 ar w 9\n 1-2 ar w 9\n" HANG, "p2p_mismatch",
         "1-2", "0,3"},
        {"empty parts are fine", 3,
         "* init w\n * {\n 0 send w 1 0\n 0 recv w 1 5\n 1 send w 0 5\n 1 recv w 0 0\n 2 send w 0 3\n 0 recv "
         "w 2 3\n"
         "* }\n * ar w 1\n * exit 0",
         "healthy", "", "*"},
        {"peer exited", 3, "* init w\n * ar w 1\n 2 exit 0\n 1 recv w 2 10\n" HANG, "p2p_unmatched", "2",
         "0-1"},
    };
    CHECK(table);
}

static void circles(void **state)
{
    (void)state;
    static const struct told table[] = {
        {"two communicators, one stream", 2,
         "* init w\n * split w A\n * split w B\n repeat 5 * ar A 100\n repeat 5 * ar B 100\n 0 ar A 1\n 0 ar "
         "B 1\n"
         "1 ar B 1\n 1 ar A 1\n" HANG,
         "order_inversion", "0-1", ""},
        {"two communicators, each waits at once", 2,
         "* init w\n * split w A\n * split w B\n repeat 5 * ar A 100\n 0 ar A 1\n 1 ar B 1\n" HANG,
         "order_inversion", "0-1", ""},
        {"two communicators on two streams are fine", 2,
         "* init w\n * split w A\n * split w B\n 0 ar A 1 stream 1\n 0 ar B 1 stream 2\n 1 ar B 1 stream 2\n"
         "1 ar A 1 stream 1\n * ar w 1\n * exit 0",
         "healthy", "", "*"},
        {"half of a group of eight among twelve", 12,
         "* init w\n 0-7 split w a\n 8-11 nocolor w\n 0-7 split w b\n 8-11 nocolor w\n repeat 2 * ar w 64\n"
         "0-3 a2a a 64\n 0-3 ar b 64\n 4-7 ar b 64\n 4-7 a2a a 64\n * ar w 64\n" HANG,
         "order_inversion", "0-7", "8-11"},
        {"receive holds back a collective", 2,
         "* init w\n * split w one\n * split w two\n repeat 3 * ar two 10\n 0 ar two 10\n 1 recv one 0 10 "
         "thread 1\n" HANG,
         "deadlock_cycle", "0-1", ""},
    };
    CHECK(table);
}

static void lost_evidence(void **state)
{
    (void)state;
    static const struct told table[] = {
        {"trace missing, healthy", 4, "* init w\n repeat 20 * ar w 100\n * exit 0\n 2 notrace",
         "trace_missing", "", "*"},
        {"trace missing, the others stuck", 4,
         "* init w\n repeat 20 * ar w 100\n *-2 ar w 100\n 2 notrace\n" HANG, "inconclusive", "", "*"},
        {"trace missing, another rank is plainly absent", 4,
         "* init w\n *-3 init c\n repeat 20 * ar w 100\n repeat 70 0-2 ar c 5\n 0-1 ar c 5\n 3 "
         "notrace\n" HANG,
         "stuck_outside_nccl", "2", "0-1,3"},
        {"a trace that was cut off, healthy", 4,
         "* init w\n repeat 20 * ar w 100\n 2 torn\n * wait 9000\n repeat 20 * ar w 100\n * exit 0",
         "trace_missing", "", "*"},
        {"a trace that was cut off, somebody else sleeps", 4,
         "* init w\n 0-1 init p\n repeat 20 * ar w 100\n 2 torn\n * wait 100\n repeat 90 0-1 ar p 5\n 0 ar p "
         "6\n" HANG,
         "stuck_outside_nccl", "1", "0,2-3"},
        {"lost records before a mismatch", 4,
         "* init w\n repeat 20 * ar w 100\n 1 lose\n repeat 50 * ar w 100\n 1 record\n repeat 5 * ar w 100\n"
         "*-3 ar w 50\n 3 ag w 50\n" HANG,
         "op_mismatch", "3", "*-3"},
        {"the awaited op itself is lost", 4,
         "* init w\n repeat 20 * ar w 100\n 1 lose\n * ar w 100\n 1 record\n" HANG, "inconclusive", "", "*"},
        {"an old divergence that only checkpoints hold", 3,
         "* init w\n repeat 100 * ar w 100\n *-1 ar w 100\n 1 ar w 100 f32 max\n repeat 20000 * ar w 100\n * "
         "exit 0",
         "signature_mismatch", "1", "0,2"},
        {"an old divergence behind a harmless one in an earlier window", 3,
         "* init w\n repeat 100 * ar w 100\n *-1 ag w 64 bf16\n 1 ag w 64 f16\n repeat 1500 * ar w 100\n"
         "*-1 ar w 100\n 1 ar w 100 f32 max\n repeat 20000 * ar w 100\n * exit 0",
         "signature_mismatch", "1", "0,2"},
    };
    CHECK(table);
}

#define TWO_BY_TWO                                                                                           \
    "* init w\n 0-1 init t0\n 2-3 init t1\n 0,2 init d0\n 1,3 init d1\n"                                     \
    "loop 12 ( 0-1 ar t0 64, 2-3 ar t1 64, 0-1 ar t0 32, 2-3 ar t1 32, 0 ar d0 512, 2 ar d0 512,"            \
    " 1 ar d1 512, 3 ar d1 512, * ar w 1 )\n"

#define EIGHT(line) line line line line line line line line

/* Loops, and one rank that leaves its own. */
static void history(void **state)
{
    (void)state;
    static const struct told table[] = {
        {"skips an op that only two share", 4,
         TWO_BY_TWO "0-1 ar t0 64\n 2-3 ar t1 64\n 0 ar t0 32\n 2-3 ar t1 32\n 1 ar d1 512\n 3 ar d1 512\n"
                    "1-3 ar w 1\n 2 ar d0 512\n" HANG,
         "rank_not_joined", "1", "0,2-3"},
        {"one of eight equal ops in a row is left out", 4,
         "* init w\n 0-1 init t0\n 2-3 init t1\n 0,2 init d0\n 1,3 init d1\n loop 12 ( " EIGHT(
             "0-1 ar t0 64, ")
             EIGHT("2-3 ar t1 64, ") "0 ar d0 512, 2 ar d0 512, 1 ar d1 512, 3 ar d1 512, * ar w 1 )\n "
                                     "repeat 7 0-1 ar t0 64\n 0 ar t0 64\n repeat 8 2-3 ar t1 64\n 1 ar d1 "
                                     "512\n 3 ar d1 512\n 1 ar w "
                                     "1\n 3 ar w 1\n 2 ar d0 512\n" HANG,
         "rank_not_joined", "1", "0,2-3"},
        {"count differs, one against one", 4, TWO_BY_TWO "0-1 ar t0 64\n 2 ar t1 64\n 3 ar t1 640\n" HANG,
         "signature_mismatch", "3", "0-2"},
        {"an argument never used before, in a run of equal ops", 2,
         "* init w\n repeat 20 * ar w 64\n 0 ar w 64\n 1 ar w 640\n" HANG, "signature_mismatch", "1", "0"},
        {"early on, one exchanges two communicators, the others pile up", 8,
         "* init w\n 1,3,5,7 init d\n * ar w 1\n 1,3,5,7 ar d 512\n * ar w 1\n 3 ar w 1\n 3 ar d 512\n 1,5,7 "
         "ar d 512\n"
         "1,5,7 ar w 1\n 0,2,4,6 ar w 1\n" HANG,
         "order_inversion", "3", "*-3"},
        {"another call, one against one", 4, TWO_BY_TWO "0-1 ar t0 64\n 2 ar t1 64\n 3 ar t1 32\n" HANG,
         "op_mismatch", "3", "0-2"},
        {"exchanges two communicators", 4,
         TWO_BY_TWO "0-1 ar t0 64\n 2-3 ar t1 64\n 0-1 ar t0 32\n 2-3 ar t1 32\n 0 ar w 1\n 0 ar d0 512\n"
                    "2 ar d0 512\n 2 ar w 1\n 1 ar d1 512\n 3 ar d1 512\n 1 ar w 1\n 3 ar w 1\n" HANG,
         "order_inversion", "0", "1-3"},
        {"a message left out in a pipeline", 3,
         "* init w\n loop 12 ( 0 send w 1 10, 1 recv w 0 10, 1 send w 2 10, 2 recv w 1 10, 2 send w 1 20,"
         " 1 recv w 2 20, 1 send w 0 20, 0 recv w 1 20, * ar w 3 )\n 0 send w 1 10\n 1 send w 2 10\n 2 recv "
         "w 1 10\n"
         "2 send w 1 20\n 1 recv w 2 20\n 1 send w 0 20\n" HANG,
         "p2p_unmatched", "1", "0,2"},
        {"a new phase is no departure", 4,
         "* init w\n 0-1 init s0\n 2-3 init s1\n 0,2 init p0\n 1,3 init p1\n"
         "loop 20 ( * ar w 1, 0-1 ar s0 5, 2-3 ar s1 5, 0 send p0 1 9, 2 recv p0 0 9, 1 send p1 1 9, 3 recv "
         "p1 0 9 )\n"
         "* ar w 1\n 0-1 ar s0 5\n 2-3 ar s1 5\n 0-1 ar w 8\n 2 recv p0 0 9\n 3 recv p1 0 9\n" HANG,
         "rank_not_joined", "2-3", "0-1"},
    };
    CHECK(table);
}

static void one_slow_rank(void **state)
{
    (void)state;
    struct story story;
    story_tell(&story, 4, "* init w\n loop 60 ( *-2 ar w 9, * wait 30, 2 ar w 9, * wait 5 )\n * exit 0");
    assert_string_equal(rec_verdict_type_name(story.verdict->findings[0].type), "healthy");
    assert_int_equal(story.verdict->nfindings, 2);
    assert_string_equal(rec_verdict_type_name(story.verdict->findings[1].type), "straggler");
    assert_int_equal(story.verdict->findings[1].nculprits, 1);
    assert_int_equal(story.verdict->findings[1].culprits[0], 2);
    assert_int_equal(story.verdict->status, REC_STATUS_HEALTHY);
    story_end(&story);
}

static void capture(void **state)
{
    (void)state;
    static const struct told table[] = {
        {"one captures, the other runs", 2,
         "* init w\n repeat 5 * ar w 9\n 0 capture 1\n 0 ar w 9\n 1 ar w 9\n" HANG, "capture_mismatch", "0-1",
         ""},
        {"one of four captures", 4, "* init w\n repeat 5 * ar w 9\n 3 capture 1\n * ar w 9\n" HANG,
         "capture_mismatch", "3", "0-2"},
        {"launches are not seen", 4, "* init w\n repeat 5 * ar w 9\n 3 capture\n * ar w 9\n" HANG,
         "inconclusive", "", "*"},
        {"nor what others wait for in graphs", 4,
         "* init w\n repeat 5 * ar w 9\n * capture\n * ar w 9\n 2 ar w 9\n" HANG, "inconclusive", "", "*"},
        {"its launch may be lost", 4,
         "* init w\n repeat 5 * ar w 9\n 3 capture 1\n * ar w 9\n 3 lose\n 3 replay 1\n" HANG, "inconclusive",
         "", "*"},
        {"its launch may be cut off", 4,
         "* init w\n repeat 5 * ar w 9\n 3 capture 1\n * ar w 9\n 3 torn\n 3 replay 1\n" HANG, "inconclusive",
         "", "*"},
        {"all capture", 2, "* init w\n repeat 5 * ar w 9\n * capture\n * ar w 9\n * exit 0", "healthy", "",
         "*"},
    };
    CHECK(table);
}

/* One graph of two collectives, launched in turn with a call. */
#define GRAPHS                                                                                               \
    "* init w\n repeat 3 * ar w 9\n * capture 1\n * ar w 9\n * capture 1\n * ag w 9\n"                       \
    "loop 5 ( * replay 1, * bc w 3 )\n"
#define GO_ON "loop 4 ( * replay 1, * bc w 3 )\n"

static void calls_for_launches(void **state)
{
    (void)state;
    static const struct told table[] = {
        {"one calls what the others launch", 4,
         GRAPHS "*-2 replay 1\n 2 ar w 9\n 2 ag w 9\n * bc w 3\n" GO_ON "* exit 0", "healthy", "", "*"},
        {"several, and several times", 4,
         GRAPHS "loop 3 ( 2-3 replay 1, 0-1 ar w 9, 0-1 ag w 9, * bc w 3 )\n" GO_ON "* exit 0", "healthy", "",
         "*"},
        {"and later one stays outside", 4,
         GRAPHS "*-2 replay 1\n 2 ar w 9\n 2 ag w 9\n * bc w 3\n" GO_ON "*-3 replay 1\n" HANG,
         "stuck_outside_nccl", "3", "*-3"},
        {"or calls another op", 4,
         GRAPHS "*-2 replay 1\n 2 ar w 9\n 2 ag w 9\n * bc w 3\n" GO_ON "*-1 bc w 3\n 1 ag w 3\n" HANG,
         "op_mismatch", "1", "*-1"},
        {"one calls more than the others launch", 4,
         GRAPHS "2 ar w 9\n 2 ag w 9\n * replay 1\n * bc w 3\n" GO_ON "* wait 8000\n", "op_mismatch", "2",
         "*-2"},
        {"one calls something else than the others launch", 4,
         GRAPHS "*-2 replay 1\n 2 ar w 9\n 2 ag w 8\n * bc w 3\n" GO_ON "* wait 8000\n", "op_mismatch", "2",
         "*-2"},
        {"one captures for itself what it never launches", 4,
         GRAPHS "1 capture 2\n 1 ar w 5\n" GO_ON "* exit 0", "healthy", "", "*"},
    };
    CHECK(table);
}

static void graphs(void **state)
{
    (void)state;
#define CAPTURED "* init w\n repeat 3 * ar w 9\n * capture 1\n * ar w 9\n "
    static const struct told table[] = {
        {"one launches it no more", 4, CAPTURED "repeat 5 * replay 1\n *-2 replay 1\n" HANG,
         "stuck_outside_nccl", "2", "*-2"},
        {"one skips a launch and goes on", 4, CAPTURED "repeat 5 * replay 1\n *-2 replay 1\n 2 ar w 9\n" HANG,
         "rank_not_joined", "2", "*-2"},
        {"one did not capture it yet", 4,
         "* init w\n repeat 3 * ar w 9\n *-1 capture 1\n *-1 ar w 9\n *-1 replay 1\n" HANG,
         "stuck_outside_nccl", "1", "*-1"},
        {"another number, and it comes short", 3,
         "* init w\n 0 capture 7\n 1-2 capture 1\n * ar w 9\n loop 5 ( 0 replay 7, 1-2 replay 1 )\n 1-2 "
         "replay 1\n" HANG,
         "stuck_outside_nccl", "0", "1-2"},
        {"another number, all well", 3,
         "* init w\n 0 capture 7\n 1-2 capture 1\n * ar w 9\n loop 5 ( 0 replay 7, 1-2 replay 1 )\n * exit 0",
         "healthy", "", "*"},
        {"as a part of another graph: counts need not agree", 3,
         "* init w\n * capture 1\n * ar w 9\n 0 capture 1\n 1-2 capture 2\n * ar w 9\n"
         "repeat 5 1-2 replay 2\n repeat 3 * replay 1\n" HANG,
         "inconclusive", "", "*"},
        {"captured by some and run by others, launched since", 2,
         "* init w\n 0 capture 1\n * ar w 9\n repeat 4 0 replay 1\n" HANG, "inconclusive", "", "*"},
        {"captured by some and run by others, never launched", 2,
         "* init w\n 0 capture 2\n 0 ar w 9\n 1 ar w 9\n" HANG, "capture_mismatch", "0-1", ""},
        {"two communicators in it", 4,
         "* init w\n 0-1 split w a\n 2-3 split w b\n * capture 1\n * ar w 9\n 0-1 capture 1\n 0-1 ar a 9\n"
         "2-3 capture 1\n 2-3 ar b 9\n repeat 4 * replay 1\n *-3 replay 1\n" HANG,
         "stuck_outside_nccl", "3", "*-3"},
        {"the trace of one is missing", 3, CAPTURED "repeat 5 * replay 1\n 0 replay 1\n 2 notrace\n" HANG,
         "inconclusive", "", "*"},
        {"launches without records", 3, CAPTURED "repeat 5 * replay 1\n 2 lose\n * replay 1\n" HANG,
         "inconclusive", "", "*"},
    };
    CHECK(table);
    story_expect_words(4, CAPTURED "repeat 5 * replay 1\n *-2 replay 1\n" HANG, "replay 5, on communicator");
}

/* Twenty ops at once; the GPUs take their time for them. */
#define AHEAD                                                                                                \
    "* init w\n repeat 20 * ar w 9\n * wait 900\n * gpu 5\n * wait 900\n * gpu 8\n * wait 900\n * gpu 11\n"  \
    "* wait 900\n"

/* One host has not come out of the call that launches what all have come to; the GPUs tell nothing. */
static void host_inside(void **state)
{
    (void)state;
    static const struct told table[] = {
        {"inside a collective", 4, "* init w\n repeat 9 * ar w 9\n *-2 ar w 9\n 2 ar w 9 open\n" HANG,
         "stuck_in_call", "2", "*-2"},
        {"inside the end of a group of messages", 3,
         "* init w\n loop 5 ( * {, 0 send w 1 9, 0 recv w 2 9, 1 send w 2 9, 1 recv w 0 9, 2 send w 0 9, 2 "
         "recv w 1 9,"
         " * } )\n * {\n 0 send w 1 9\n 0 recv w 2 9\n 1 send w 2 9\n 1 recv w 0 9\n 2 send w 0 9\n"
         " 2 recv w 1 9\n 0-1 }\n 2 }open\n 1 {\n 1 send w 2 9\n 1 recv w 0 9\n 1 }\n" HANG,
         "stuck_in_call", "2", "0-1"},
        {"all are inside", 3, "* init w\n repeat 9 * ar w 9\n * ar w 9 open\n" HANG, "inconclusive", "", "*"},
        {"its trace may only be cut off there", 3,
         "* init w\n repeat 9 * ar w 9\n 2 ar w 9 open\n 2 torn\n 0-1 ar w 9\n" HANG, "inconclusive", "",
         "*"},
        {"it was killed there", 4,
         "* init w\n repeat 9 * ar w 9\n *-2 ar w 9\n 2 ar w 9 open\n 2 dies 9\n" HANG, "process_dead", "2",
         "*-2"},
    };
    CHECK(table);
    static const char pair[] = "* init w\n repeat 5 0 send w 1 9\n repeat 5 1 recv w 0 9\n 0 send w 1 9\n"
                               "1 recv w 0 9 open\n" HANG;
    story_expect_words(2, pair, "although everybody has come, while rank 0 waits in it since");
}

static void gpu_progress(void **state)
{
    (void)state;
    static const struct told table[] = {
        {"one GPU has not reached it", 4,
         "* init w\n repeat 9 * ar w 9 done\n *-3 ar w 9 started\n 3 ar w 9\n repeat 3 * ar w 9\n" HANG,
         "gpu_not_reached", "3", "0-2"},
        {"all are inside and nobody comes out", 4,
         "* init w\n repeat 9 * ar w 9 done\n * ar w 9 started\n repeat 3 * ar w 9\n" HANG, "stuck_in_kernel",
         "", "*"},
        {"one has not come, whatever the GPUs say", 4,
         "* init w\n repeat 9 * ar w 9 done\n *-1 ar w 9 started\n" HANG, "stuck_outside_nccl", "1", "*-1"},
        {"a pair behind the GPU that is blocked", 4,
         "* init w\n 0-1 init p\n repeat 9 * ar w 9 done\n repeat 9 0-1 ar p 9 done\n 0 ar p 9 started\n 1 "
         "ar p 9\n"
         "2-3 ar w 9 started\n 0-1 ar w 9\n" HANG,
         "gpu_not_reached", "1", "0,2-3"},
        {"the first op of all, not reached by one", 2, "* init w\n 0 ar w 9 started\n 1 ar w 9\n" HANG,
         "gpu_not_reached", "1", "0"},
        {"nobody reaches it: something unseen is in front", 2,
         "* init w\n repeat 9 * ar w 9 done\n * ar w 9\n" HANG, "gpu_not_reached", "", "*"},
        {"one has left the kernel, the other has not", 2,
         "* init w\n repeat 9 * ar w 9 done\n 0 ar w 9 done\n 1 ar w 9 started\n" HANG, "stuck_in_kernel", "",
         "1"},
        {"held back by an op on another stream, for which somebody did not come", 4,
         "* init a\n 0-2 init w\n 0,3 init p\n repeat 9 0-2 ar w 9 done\n 0 ar p 9 stream 1 started\n"
         "1-2 ar w 9 started\n 0 ar w 9\n" HANG,
         "stuck_outside_nccl", "3", "0-2"},
        {"hosts that ran far ahead wait for their GPUs, which go on to the end", 3,
         AHEAD " * gpu 14\n * wait 300\n", "healthy", "", "*"},
        {"and so do GPUs that exchange messages", 2,
         "* init w\n loop 20 ( 0 send w 1 9, 1 recv w 0 9 )\n * wait 900\n * gpu 4\n * wait 900\n"
         "* gpu 8\n * wait 900\n * gpu 12\n * wait 900\n * gpu 16\n * wait 300\n",
         "healthy", "", "*"},
        {"or stop on the way, inside what the others have left", 3,
         AHEAD " 0-1 gpu 14\n * wait 300\n 0-1 gpu 14\n" HANG, "stuck_in_kernel", "", "*"},
        {"all completed", 4, "* init w\n repeat 9 * ar w 9 done\n * exit 0", "healthy", "", "*"},
    };
    CHECK(table);
}

static void clocks(void **state)
{
    (void)state;
    static const struct told table[] = {
        {"all killed at once, one host's clock is behind", 16,
         "0-7 clock 20000\n* init w\n repeat 30 * ar w 100\n 0-1 ar w 100\n", "healthy", "", "*"},
        {"asleep on the host whose clock is ahead", 16,
         "8-15 clock 7000\n* init w\n repeat 30 * ar w 100\n *-9 ar w 100\n" HANG, "stuck_outside_nccl", "9",
         "*-9"},
        {"dead on the host whose clock is ahead", 16,
         "8-15 clock 7000\n* init w\n repeat 30 * ar w 100\n 9 dies 9\n *-9 ar w 100\n" HANG, "process_dead",
         "9", "*-9"},
    };
    CHECK(table);
    story_expect_words(16, "8-15 clock 3000\n* init w\n repeat 30 * ar w 100\n *-9 ar w 100\n" HANG,
                       "clock of host node-1 is 3.000 s ahead of that of node-0");
}

static void wording(void **state)
{
    (void)state;
    static const struct {
        int nranks;
        const char *story, *words;
    } table[] = {
        {4, "* init w\n *-0 bc w 53 i64\n * bc w 1000 f16\n * bc w 2000 f16\n", "rank 0 skipped 1 op"},
        {4, "* init w\n 0 bc w 53 i64\n * bc w 1000 f16\n * bc w 2000 f16\n", "rank 0 made 1 call too many"},
        {4, "* init w\n 0-2 ar w 1\n 3 ar w 2\n 0-2 ar w 2\n 3 ar w 1\n",
         "rank 3 called the same ops in another order"},
        {4, "* init w\n repeat 20 * ar w 100\n 2 exit 0\n *-2 ar w 100\n", "finished and exited"},
        {2, "* init w\n repeat 20 * ar w 100\n 0 ar w 100\n 1 in destroy w\n", "CommDestroy"},
        {4, "* init w\n *-2 ar w 4096 f16\n 2 ag w 4096 f16\n", "AllGather (4,096 × f16)"},
        /* Peers go by the rank that everybody knows, and what two ends share by both. */
        {4, "* init w\n 2-3 init p\n * ar w 9\n 2 recv p 1 9\n 3 exit 0\n", "Recv from rank 3 (9 × f32)"},
        {4,
         "* init w\n 2-3 init p\n * ar w 9 done\n repeat 3 * ar w 9 done\n 2 send p 1 9 started\n"
         "3 recv p 0 9 started\n",
         "ranks 2-3 wait in Send and Recv from rank 2 to rank 3 (9 × f32), message 0 of"},
        {4, "* init w\n * ar w 9\n 0-2 init q of 0-3\n", "ranks 0-2 wait in CommInitRank, the creation of"},
        {4, "* init w\n * ar w 9\n *-1 init q of 0-3\n 1 init q of 0-3 nranks 5\n",
         "the number of ranks differs"},
        {4, "* init w\n repeat 9 * ar w 9 done\n *-3 ar w 9 started\n 3 ar w 9\n",
         ") called AllReduce (9 × f32, sum), op 10 of communicator"},
        {2, "* init w\n 0 capture 2\n 0 ar w 9\n 1 ar w 9\n",
         "rank 0 captured AllReduce (9 × f32, sum), op 1 of"},
        /* Times have dates where a day alone does not tell them apart. */
        {2, "* init w\n repeat 9 * ar w 9\n * wait 90000000\n * ar w 9\n 0 ar w 9\n * wait 60000\n",
         "since 2023-11-15 23:13:2"},
        /* What is said of several is true of each of them. */
        {8, "* init w\n repeat 9 * ar w 9\n 6 exit 0\n 7 exit 1\n 0-5 ar w 9\n",
         ") finished and exited at 22:13:21 UTC, rank 7"},
        {8, "* init w\n repeat 9 * ar w 9\n 6-7 exit 1\n 0-5 ar w 9\n", "ranks 6-7 exited with status 1 at"},
        {8, "* init w\n repeat 9 * ar w 9\n 3 exit 1\n 4 exit 2\n 5 exit 3\n 6 exit 4\n 0-2,7 ar w 9\n",
         "status 3 at 22:13:21 UTC, others in other ways, while"},
        {6, "* init w\n * ar w 9\n 0-1,4 init q of 0-5\n 5 notrace\n 2-3 notrace\n",
         "never came: comm ranks 2-3,5, probably ranks"},
        {1, "* init w\n * ar w 9\n * exit 0\n", "the calls of the only process match and it ended well"},
        /* A circle is told with its communicators, and with all who stand in it. */
        {2, "* init w\n * split w A\n * split w B\n 0 ar A 8\n 1 ar B 8\n 0 ar B 8\n 1 ar A 8\n",
         "sum) of \"A\" → rank 1"},
        {3, "* init w\n repeat 3 * ar w 9\n 0 send w 1 8000000\n 1 recv w 2 8\n 2 ar w 9\n 0-1 ar w 9\n",
         "ranks 0-2 wait for each other in a circle: "},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char story[512];
        snprintf(story, sizeof story, "%s" HANG, table[i].story);
        story_expect_words(table[i].nranks, story, table[i].words);
    }
}

/* Of a long list of ranks the first ones and their number are told. */
static void long_lists(void **state)
{
    (void)state;
    char evens[512] = "0", story[1024];
    for (int rank = 2, at = 1; rank < 80; rank += 2)
        at += snprintf(evens + at, sizeof evens - (size_t)at, ",%d", rank);
    snprintf(story, sizeof story,
             "* init w\n %s init e\n repeat 3 * ar w 9\n %s ar e 9\n 1 exit 0\n %s ar w 9\n" HANG, evens,
             evens, evens);
    story_expect_words(80, story, "while 40 ranks (0,2,4,6,8,10,12,14,16,…) wait in AllReduce");
}

/* Found by tests/property: each of these once blamed somebody who had done nothing. */
static void innocents(void **state)
{
    (void)state;
    static const struct told table[] = {
        {"who sits in a split is not idle", 4,
         "* init w\n repeat 3 * ar w 100\n *-2 insplit w\n 2 ar w 100\n 2 send w 0 9\n" HANG,
         "rank_not_joined", "2", "*-2"},
        {"a message between two of which one has gone on", 6,
         "* init w\n repeat 3 * ar w 9\n 3 send w 2 96\n *-3 ar w 9\n" HANG, "deadlock_cycle", "2-3",
         "0-1,4-5"},
        {"a group whose end was lost was launched", 4,
         "* init w\n repeat 9 * ar w 8\n 1 {\n 1 ar w 9\n 1 lose\n 1 }\n 1 record\n *-1,3 ar w 9\n" HANG,
         "stuck_outside_nccl", "3", "0-2"},
        {"destroyed too early, and busy with another communicator", 5,
         "* init w\n 0-1 init p\n repeat 5 * ar w 8\n repeat 5 0-1 ar p 8\n 0 destroy p\n 1 ar p 9\n"
         "*-1 ar w 9\n" HANG,
         "rank_not_joined", "0", "1-4"},
        {"what a process had begun when it exited is not done", 4,
         "* init w\n 0-1 init p\n repeat 9 * ar w 8\n 0-1 ar p 9\n 1 exit 0\n 2-3 ar w 9\n" HANG,
         "rank_not_joined", "1", "0,2-3"},
        {"clocks that nothing compares tell of no death", 16,
         "8-15 clock 7000\n 0-14 init w of 0-15\n * wait 100\n * dies 15", "healthy", "", "*"},
        {"messages after one that does not fit", 3,
         "* init w\n * ar w 1\n 1 recv w 0 50\n 1 recv w 0 7\n 1 recv w 0 9\n 0 send w 1 7\n 0 send w 1 9\n"
         "2 ar w 1\n" HANG,
         "p2p_mismatch", "0-1", "2"},
        {"a call too many of one that else repeats a loop", 3,
         "* init w\n loop 12 ( 0 send w 1 10, 1 recv w 0 10, 1-2 ar w 3, 0 ar w 3 )\n 0 send w 1 10\n"
         "1 recv w 0 10\n 1 recv w 0 10\n 0 ar w 3\n 2 ar w 3\n 1 ar w 3\n" HANG,
         "deadlock_cycle", "1", "0,2"},
        {"files that are found but not read", 6,
         "* init w\n repeat 20 * ar w 9\n 3-4 unreadable\n *-3,4 ar w 9\n" HANG, "inconclusive", "", "*"},
        {"a file that is found but not read, all well", 4,
         "* init w\n repeat 20 * ar w 9\n * exit 0\n 3 unreadable", "trace_missing", "", "*"},
        {"a file without a record is cut off", 4, "3 torn\n *-3 init w of 0-3\n" HANG, "inconclusive", "",
         "*"},
    };
    CHECK(table);
}

/* Two heartbeats missed: dead, though perhaps only silent. */
static void silence(void **state)
{
    (void)state;
    static const struct told table[] = {
        {"two heartbeats missed", 4,
         "* init w\n repeat 20 * ar w 100\n 3 stops\n *-3 ar w 100\n * wait 5000\n", "process_dead", "3",
         "0-2"},
        {"a short silence of the host at the end", 4, "* init w\n repeat 60 * ar w 100\n * wait 2500\n",
         "healthy", "", "*"},
    };
    CHECK(table);
}

static void folds_ranks(void **state)
{
    (void)state;
    static const int32_t ranks[] = {0, 1, 2, 4, 6, 7};
    char text[32], small[5];
    assert_int_equal(rec_fold_ranks(text, sizeof text, ranks, 6), 9);
    assert_string_equal(text, "0-2,4,6-7");
    assert_int_equal(rec_fold_ranks(small, sizeof small, ranks, 6), 9);
    assert_string_equal(small, "0-2,");
    for (int32_t rank = -1, next = 0; rank <= ranks[5] + 1; rank++) {
        bool one_of_them = next < 6 && ranks[next] == rank;
        assert_int_equal(rec_has_rank(ranks, 6, rank), one_of_them);
        next += one_of_them;
    }
    assert_false(rec_has_rank(NULL, 0, 0));
    rec_fold_ranks(text, sizeof text, ranks, 0);
    assert_string_equal(text, "");
}

static void roles(void **state)
{
    (void)state;
    int32_t culprits[] = {3, 10}, suspects[] = {4}, victims[] = {0, 1, 2};
    struct rec_finding f = {.type = REC_VERDICT_STUCK_OUTSIDE_NCCL,
                            .culprits = culprits,
                            .nculprits = 2,
                            .suspects = suspects,
                            .nsuspects = 1,
                            .victims = victims,
                            .nvictims = 3};
    assert_int_equal(rec_finding_role(&f, 10), REC_ROLE_CULPRIT);
    assert_int_equal(rec_finding_role(&f, 4), REC_ROLE_SUSPECT);
    assert_int_equal(rec_finding_role(&f, 1), REC_ROLE_VICTIM);
    assert_int_equal(rec_finding_role(&f, 5), REC_ROLE_NONE);
    assert_int_equal(rec_finding_role(&f, -1), REC_ROLE_NONE);
    f.type = REC_VERDICT_STRAGGLER;
    assert_int_equal(rec_finding_role(&f, 3), REC_ROLE_SLOW);
    assert_int_equal(rec_finding_role(&(struct rec_finding){0}, 0), REC_ROLE_NONE);
    assert_string_equal(rec_role_name(REC_ROLE_NONE), "");
    assert_string_equal(rec_role_name(REC_ROLE_VICTIM), "waits");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures),    cmocka_unit_test(order),
        cmocka_unit_test(missing),       cmocka_unit_test(creation),
        cmocka_unit_test(messages),      cmocka_unit_test(circles),
        cmocka_unit_test(lost_evidence), cmocka_unit_test(clocks),
        cmocka_unit_test(gpu_progress),  cmocka_unit_test(history),
        cmocka_unit_test(one_slow_rank), cmocka_unit_test(capture),
        cmocka_unit_test(host_inside),   cmocka_unit_test(calls_for_launches),
        cmocka_unit_test(graphs),        cmocka_unit_test(wording),
        cmocka_unit_test(long_lists),    cmocka_unit_test(folds_ranks),
        cmocka_unit_test(roles),         cmocka_unit_test(innocents),
        cmocka_unit_test(silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
