/* Who is named where two explanations fit, and in which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "story.h"

#define HANG "* wait 8000\n"

/* Rank 2 waits in one AllReduce more, rank 1 is held up by it, the others have left. */
#define ONE_MORE(left)                                                                                       \
    "* init w\n repeat 3 * ar w 9\n 2 ar w 9\n 1 send w 2 8000\n 2 recv w 1 8000\n " left                    \
    " destroy w\n " left " exit 0\n" HANG

static void those_who_left_against_those_who_came(void **state)
{
    (void)state;
    /* As many left as came; who is held up says nothing. */
    story_expect(3, ONE_MORE("0"), "rank_not_joined", "0,2", "1");
    story_expect_doubt(3, ONE_MORE("0"), "possible", "0,2", "");
    story_expect_words(3, ONE_MORE("0"), "it is a tie: rank 2 may have made a call too many");
    /* More left than came. */
    story_expect(4, ONE_MORE("0,3"), "rank_not_joined", "2", "0-1,3");
    story_expect_words(4, ONE_MORE("0,3"), ") entered AllReduce (9 × f32, sum), op 4");
    /* Between two the one that lacks the call is named, the other is suspect. */
    story_expect_doubt(2, "* init w\n repeat 3 * ar w 9\n 1 exit 0\n 0 ar w 9\n" HANG, "possible", "1", "0");
    story_expect_words(2, "* init w\n repeat 3 * ar w 9\n 1 exit 0\n 0 ar w 9\n" HANG,
                       "or rank 0 may have made a call too many");
    story_expect_doubt(3, "* init w\n * ar w 1\n 2 exit 0\n 1 recv w 2 10\n" HANG, "possible", "2", "1");
    /* What explains several ties alone is right about each of them. */
    static const char two_ties[] =
        "* init w\n 0-1 init a\n 1-2 init b\n repeat 3 0-1 ar a 5\n repeat 3 1-2 ar b 5\n"
        "1 exit 0\n 0 ar a 5\n 2 ar b 5\n" HANG;
    story_expect(3, two_ties, "rank_not_joined", "1", "0,2");
    story_expect_doubt(3, two_ties, "likely", "1", "");
    /* A member without a trace may have come, too, or not; with messages the past of the one that waits
     * tells. */
    story_expect_doubt(3, "* init w\n repeat 9 * ar w 9\n 1 exit 0\n 0,2 ar w 9\n 0 notrace\n" HANG,
                       "possible", "", "0-2");
    /* A creation that as many left out as began it was left out. */
#define LEFT_OUT "* init w\n repeat 9 * ar w 9\n 0-1 exit 0\n 2-3 insplit w\n"
    story_expect(4, LEFT_OUT HANG, "rank_not_joined", "0-1", "2-3");
    story_expect_doubt(4, LEFT_OUT HANG, "likely", "0-1", "");
    story_expect_doubt(4, LEFT_OUT "3 notrace\n" HANG, "possible", "", "0-3");
    story_expect_doubt(4, LEFT_OUT "0 notrace\n" HANG, "likely", "1", "");
    static const char open[] =
        "* init w\n repeat 3 * ar w 9\n 1 exit 0\n 2 recv w 1 9\n 0 recv w 2 9\n 0 notrace\n" HANG;
    story_expect_doubt(3, open, "possible", "", "0-2");
    story_expect_words(3, open, "members that are not recorded might tell");
    /* A split is a call of all like any other. */
    story_expect_doubt(4, "* init w\n repeat 9 * ar w 9\n *-2 exit 0\n 2 insplit w\n" HANG, "likely", "2",
                       "");
    story_expect_doubt(2, "* init w\n repeat 9 * ar w 9\n 1 exit 0\n 0 insplit w\n" HANG, "possible", "1",
                       "0");
    story_expect_doubt(4, "* init w\n repeat 9 * ar w 9\n 2 exit 0\n *-2 insplit w\n" HANG, "certain", "2",
                       "");
    /* A majority that they could turn is none, whichever it is. */
    static const char few_came[] =
        "* init w\n repeat 9 * ar w 9\n 6-7 exit 0\n 0-5 ar w 9\n 0-4 notrace\n" HANG;
    story_expect_doubt(8, few_came, "possible", "", "0-7");
    story_expect_words(8, few_came, "ranks 6-7 finished and exited");
    story_expect_doubt(8, "* init w\n repeat 9 * ar w 9\n 5-6 ar w 9\n 0-4,7 exit 0\n 0-4 notrace\n" HANG,
                       "possible", "", "0-7");
    story_expect_doubt(4, "* init w\n repeat 9 * ar w 9\n 2 exit 0\n 0-1,3 ar w 9\n 3 notrace\n" HANG,
                       "likely", "2", "");
    /* A message that only its caller wanted is a message still. */
    story_expect(4,
                 "* init w\n repeat 9 * ar w 9\n 2 {\n 2 send w 3 9000000\n 2 recv w 1 9000000\n 2 }\n"
                 "0-1,3 exit 0\n" HANG,
                 "p2p_unmatched", "2", "0-1,3");
}

static void circles(void **state)
{
    (void)state;
    static const char alone[] = "* init w\n repeat 2 * ar w 9\n 1 ar w 9\n 0 ar w 9\n 2 send w 1 8000\n"
                                "3 recv w 1 8000\n" HANG;
    story_expect(4, alone, "p2p_unmatched", "1", "0,2-3");
    static const char even[] =
        "* init w\n * split w A\n * split w B\n repeat 5 * ar A 100\n 0 ar A 1\n 1 ar B "
        "1\n" HANG;
    story_expect_doubt(2, even, "possible", "0-1", "");
    story_expect_words(2, even, "the records do not tell who of them is wrong");
    /* Where members of its communicators are not recorded the fault may be theirs. */
    static const char unknown[] =
        "* init w\n * split w A\n * split w B\n repeat 5 * ar A 100\n 0 ar A 1\n 1 ar B "
        "1\n 2 notrace\n" HANG;
    story_expect_doubt(3, unknown, "possible", "", "0-2");
    story_expect_words(3, unknown, "is not recorded, so who is wrong is not known");
    /* Also where what they did in the end is all that is missing. */
    static const char torn[] =
        "* init w\n * split w x\n repeat 3 * ar w 1\n 0-2 torn\n *-4 ar x 8\n 4 ar w 1\n" HANG;
    story_expect_doubt(6, torn, "possible", "", "0-2,4");
    /* A majority that counts them as well, and a past that only one has left, tell more. */
    story_expect_doubt(
        6,
        "* init w\n * split w A\n * split w B\n *-1 ar A 1\n 1 ar B 1\n *-1 ar B 1\n 1 ar A 1\n"
        "5 notrace\n" HANG,
        "likely", "1", "");
    story_expect_doubt(3,
                       "* init w\n * split w A\n * split w B\n loop 9 ( * ar A 8, * ar B 8 )\n 0,2 ar A 8\n"
                       "1 ar B 8\n 0,2 ar B 8\n 1 ar A 8\n 2 notrace\n" HANG,
                       "likely", "1", "");
    /* Several waits lack the same two, who wait for all. */
    static const char barrier[] =
        "* init w\n 0,2,4,6 init d0\n 1,3,5,7 init d1\n repeat 3 0,2,4,6 ar d0 8\n repeat 3 1,3,5,7 ar d1 8\n"
        "6-7 ar w 1\n 0,2,4 ar d0 8\n 1,3,5 ar d1 8\n" HANG;
    story_expect(8, barrier, "rank_not_joined", "6-7", "0-5");
    story_expect_words(8, barrier, "ranks 6-7 wait in AllReduce (1 × f32, sum) of communicator");
}

#define THREE_PAIRS                                                                                          \
    "* init w\n 0-1 init t0\n 2-3 init t1\n 4-5 init t2\n"                                                   \
    "loop 3 ( 0-1 ar t0 64, 2-3 ar t1 64, 4-5 ar t2 64 )\n"

static void siblings(void **state)
{
    (void)state;
    static const char tie[] = THREE_PAIRS "2-3 ar t1 64\n 4-5 ar t2 64\n 0 ar t0 64\n 1 ag t0 64\n" HANG;
    story_expect(6, tie, "op_mismatch", "1", "0,2-5");
    story_expect_words(6, tie, "on communicators with the same calls up to there");
    /* Early in a job, where they are children of one. */
    story_expect(6,
                 "* init w\n 0-1 split w t0\n 2-3 split w t1\n 4-5 split w t2\n 0-1 ar t0 64\n 2-3 ar t1 64\n"
                 "4-5 ar t2 64\n 2-3 ar t1 64\n 4-5 ar t2 64\n 0 ar t0 64\n 1 ag t0 64\n" HANG,
                 "op_mismatch", "1", "0,2-5");
    /* Two of them do not tell when they do not agree. */
    story_expect(6, THREE_PAIRS "2-3 ar t1 64\n 4-5 ag t2 64\n 0 ar t0 64\n 1 ag t0 64\n" HANG, "op_mismatch",
                 "0-1", "2-5");
    /* One that is an op ahead is no sibling, though the last ops are the same: here rank 0 skips one. */
    static const char ahead[] =
        "* init w\n 0-1 init t0\n 2-3 init t1\n 0-1 ar t0 2\n"
        "loop 3 ( 0-1 ag t0 64, 2-3 ag t1 64, 0-1 ag t0 64, 2-3 ag t1 64, 0-1 ag t0 64, 2-3 ag t1 64,"
        " 0-1 ag t0 64, 2-3 ag t1 64, 0-1 ar t0 8, 2-3 ar t1 8 )\n"
        "repeat 4 2-3 ag t1 64\n 2-3 ar t1 8\n repeat 3 0-1 ag t0 64\n 1 ag t0 64\n 0 ar t0 8\n" HANG;
    story_expect(4, ahead, "op_mismatch", "0-1", "2-3");
    /* In a circle of two, others came to the one call without the other one, or with it behind them. */
#define TWO_PAIRS                                                                                            \
    "* init w\n 0-1 split w t0\n 2-3 split w t1\n loop 3 ( 0-1 ar t0 64, 2-3 ar t1 64, * ar w 8 )\n"
    static const char circle[] = TWO_PAIRS "1 ar t0 64\n 0 insplit w\n 2-3 insplit w\n" HANG;
    story_expect(4, circle, "rank_not_joined", "1", "0,2-3");
    story_expect_words(4, circle, "all did what the others of the circle did");
    story_expect(4, TWO_PAIRS "1 ar t0 64\n 2-3 ar t1 64\n 0 insplit w\n 2-3 insplit w\n" HANG,
                 "deadlock_cycle", "0", "1-3");
    /* Nor do they tell when they do not agree about the order, or only one is known in full. */
#define GRID                                                                                                 \
    "* init w\n 0-1 split w t0\n 2-3 split w t1\n 4-5 split w t2\n repeat 2 * ar w 9\n"                      \
    "0-1 ar t0 5\n 2-3 ar t1 5\n 4-5 ar t2 5\n"
    static const char inverted[] = GRID "2-3 ar t1 5\n 2-3 ar w 1\n 4-5 ar t2 5\n 4-5 ar w 1\n"
                                        "0 ar t0 5\n 0 ar w 1\n 1 ar w 1\n 1 ar t0 5\n" HANG;
    story_expect(6, inverted, "order_inversion", "1", "0,2-5");
    static const char apart[] = GRID "2-3 ar t1 5\n 2-3 ar w 1\n 4-5 ar w 1\n 4-5 ar t2 5 stream 1\n"
                                     "0 ar t0 5\n 0 ar w 1\n 1 ar w 1\n 1 ar t0 5\n" HANG;
    story_expect_doubt(6, apart, "possible", "0-1", "");
    static const char one[] =
        "* init w\n 0-1 split w t0\n 2-3 split w t1\n repeat 2 * ar w 9\n 0-1 ar t0 5\n"
        "2-3 ar t1 5\n 2 ar t1 5\n 2 ar w 1\n 3 ar t1 5\n 3 lose\n 3 ar w 1\n 3 record\n"
        "0 ar t0 5\n 0 ar w 1\n 1 ar w 1\n 1 ar t0 5\n" HANG;
    story_expect_doubt(4, one, "possible", "0-1", "");
    /* One fault on two of them is one finding. */
    static const char both[] = "* init w\n 0,2,4 init d0\n 1,3,5 init d1\n repeat 3 0,2,4 ar d0 8\n"
                               "repeat 3 1,3,5 ar d1 8\n 4-5 exit 0\n 0,2 ar d0 8\n 1,3 ar d1 8\n" HANG;
    story_expect(6, both, "rank_not_joined", "4-5", "0-3");
    story_expect_words(6, both, "; likewise rank");
}

/* Two pipelines, which exchange two messages a step, and from now on three. */
#define PIPELINES                                                                                            \
    "* init w\n 0-1 split w a\n 2-3 split w b\n"                                                             \
    "loop 9 ( 0 send a 1 64, 1 recv a 0 64, 2 send b 1 64, 3 recv b 0 64, 0 send a 1 64, 1 recv a 0 64,"     \
    " 2 send b 1 64, 3 recv b 0 64, * ar w 8 )\n"                                                            \
    "repeat 3 2 send b 1 64\n repeat 3 3 recv b 0 64\n repeat 3 0 send a 1 64\n repeat 2 1 recv a 0 64\n"

static void twins(void **state)
{
    (void)state;
    /* What the other pipeline does as well is the program's next phase: not who left its loop is wrong. */
    story_expect(4, PIPELINES "1-3 ar w 8\n" HANG, "p2p_unmatched", "1", "0,2-3");
    story_expect_words(4, PIPELINES "1-3 ar w 8\n" HANG, "which had called the same so far, called Recv");
    story_expect_doubt(4, PIPELINES "1 exit 0\n" HANG, "possible", "1", "0");
    /* And the other way round: what only one pipeline does is a call too many. */
    story_expect(
        4,
        "* init w\n 0-1 split w a\n 2-3 split w b\n"
        "loop 9 ( 0 send a 1 64, 1 recv a 0 64, 2 send b 1 64, 3 recv b 0 64, * ar w 8 )\n"
        "0 send a 1 64\n 1 recv a 0 64\n 2 send b 1 64\n 3 recv b 0 64\n 0 send a 1 64\n 1-3 ar w 8\n" HANG,
        "rank_not_joined", "0", "1-3");
    /* A pipeline that is a step ahead, or did something else before, says nothing. */
    story_expect(4,
                 "* init w\n 0-1 split w a\n 2-3 split w b\n 2 send b 1 64\n 3 recv b 0 64\n"
                 "loop 9 ( 0 send a 1 64, 1 recv a 0 64, 2 send b 1 64, 3 recv b 0 64, * ar w 8 )\n"
                 "2 send b 1 64\n 3 recv b 0 64\n 0 send a 1 64\n 1-3 ar w 8\n" HANG,
                 "p2p_unmatched", "1", "0,2-3");
}

static void past(void **state)
{
    (void)state;
    /* What is done again is a new phase. */
    story_expect(
        2,
        "* init w\n loop 12 ( * ar w 64, * ag w 8 )\n 1 destroy w\n 0 ar w 32\n 0 ar w 16\n 0 ar w 32\n" HANG,
        "rank_not_joined", "1", "0");
    /* What is followed by something else that is new is a new phase, too: here rank 0 left early. */
    story_expect(2,
                 "* init w\n * init v\n loop 12 ( 0 send w 1 8, 1 recv w 0 8, * ar v 64, 0 send w 1 9, 1 "
                 "recv w 0 9 )\n"
                 "0 exit 0\n 1 recv w 0 20 stream 2\n 1 ag v 3\n" HANG,
                 "p2p_unmatched", "0", "1");
    /* A creation is no part of a loop, so that it comes tells nothing. */
    story_expect_doubt(
        2,
        "* init w\n * split w a\n loop 9 ( * ar w 9, * ag w 3 )\n 0 destroy w\n 0 exit 0\n 1 insplit w\n"
        "1 wait 8000\n",
        "possible", "0", "1");
    /* Who is through with an inner loop goes on otherwise; a call too many is followed by what was foretold.
     */
    static const char inner[] =
        "* init w\n * init v\n loop 2 ( * ar v 1, * ar w 2 )\n 0 send w 1 9\n 1 recv w 0 9\n * ag v 5\n * rs "
        "w 7\n"
        "loop 8 ( * ar v 1, * ar w 2 )\n 0 exit 0\n 1 recv w 0 9\n 1 ag v 5\n 1 rs w 7\n" HANG;
    story_expect_doubt(2, inner, "possible", "0", "1");
    /* Who tears down where its own loop has the message is no better than who left its loop before it. */
    story_expect_doubt(
        3,
        "* init w\n loop 12 ( 1 send w 2 9, 2 recv w 1 9, 2 send w 0 5, 0 recv w 2 5, * ar w 3 )\n"
        "2 send w 0 5\n 0 recv w 2 5\n 2 recv w 1 9\n 1 destroy w\n 1 exit 0\n 0,2 wait 8000\n 0,2 dies 15",
        "possible", "1", "2");
    /* What the other side shared is a new phase, too. */
    story_expect(
        2,
        "* init w\n loop 12 ( 0 send w 1 8, 1 recv w 0 8, 1 send w 0 8, 0 recv w 1 8 )\n 0 send w 1 20\n"
        "1 recv w 0 20\n 0 exit 0\n 1 recv w 0 8\n" HANG,
        "p2p_unmatched", "0", "1");
    /* The peer is an argument. */
    story_expect(3,
                 "* init w\n loop 8 ( 0 send w 1 8, 1 recv w 0 8, 1 send w 2 8, 2 recv w 1 8, * ar w 1 )\n"
                 "0 send w 1 8\n 1 recv w 0 8\n 1 send w 2 8\n 2 recv w 0 8\n 0-1 ar w 1\n" HANG,
                 "p2p_unmatched", "2", "0-1");
    /* An argument of one side that it uses from now on. */
    story_expect(2,
                 "* init w\n repeat 9 * ar w 64\n 0 ar w 32\n repeat 3 0 ar w 32\n repeat 4 1 ar w 64\n" HANG,
                 "op_mismatch", "0-1", "");
}

static void majorities(void **state)
{
    (void)state;
    /* 2 against 1, and one that nobody knows. */
    story_expect_doubt(4, "* init w\n 1-2 ar w 64\n 3 ar w 65\n 0 ar w 64\n 0 notrace\n" HANG, "likely", "3",
                       "1-2");
    story_expect_words(4, "* init w\n 1-2 ar w 64\n 3 ar w 65\n 0 ar w 64\n 0 notrace\n" HANG,
                       "what the other members called is not recorded");
    story_expect_words(
        4,
        "* init w\n loop 6 ( * ar w 512, * ar w 1 f32 max )\n * ar w 512\n *-3 ar w 1 f32 max\n"
        "*-3 ar w 512\n *-3 ar w 1 f32 max\n 3 ar w 512\n 3 ar w 1 f32 max\n" HANG,
        "rank 3 skipped 1 op");
    /* Everybody who differs is told with its own call. */
    static const char three[] =
        "* init w\n repeat 5 * ar w 64\n 0,3-4 ar w 64\n 1 ar w 65\n 2 ag w 64\n" HANG;
    story_expect(5, three, "signature_mismatch", "1-2", "0,3-4");
    story_expect_words(5, three, "called AllGather (64 × f32) as op");
    /* A size that occurred before is still a wrong size. */
    static const char stale[] =
        "* init w\n * bc w 1000\n * bc w 1 i64\n * bc w 1100\n * bc w 1 i64\n *-2 bc w 1200\n"
        "2 bc w 1000\n" HANG;
    story_expect(4, stale, "signature_mismatch", "2", "0-1,3");
    story_expect_words(4, stale, "the count differs");
}

/* Nobody is blamed for a tie that members without a trace might break. */
static void open_ties(void **state)
{
    (void)state;
    static const char open[] = "* init w\n 1 ar w 64\n 2 ag w 64\n 0 ar w 64\n 0 notrace\n" HANG;
    story_expect_doubt(3, open, "possible", "", "0-2");
    /* Where as many create as not these have left it out; with one that nobody knows it may be so, or not. */
    story_expect_doubt(4, "* init w\n repeat 9 * ar w 9\n 1,3 insplit w\n 0,2 ar w 9\n" HANG, "likely", "0,2",
                       "");
    story_expect_doubt(4, "* init w\n repeat 9 * ar w 9\n 1,3 insplit w\n 0,2 ar w 9\n 3 notrace\n" HANG,
                       "possible", "", "0-3");
    story_expect_doubt(4, "* init w\n repeat 9 * ar w 9\n 1 insplit w\n 0,2-3 ar w 9\n 3 notrace\n" HANG,
                       "possible", "", "0-3");
    /* Two against one, and three who might turn that. */
    story_expect_doubt(6, "* init w\n 1,3 ar w 64\n 2 ar w 65\n 0,4-5 ar w 65\n 0,4-5 notrace\n" HANG,
                       "possible", "", "0-5");
    story_expect_doubt(3, "* init w\n 1 ar w 64\n 2 ag w 64\n 0 wait 1\n" HANG, "likely", "1-2", "");
}

/* Everybody is inside a creation that does not end. */
static void all_inside(void **state)
{
    (void)state;
    story_expect(3, "* init w\n repeat 5 * ar w 9\n * insplit w\n" HANG, "init_incomplete", "", "*");
    story_expect_words(3, "* init w\n repeat 5 * ar w 9\n * insplit w\n" HANG, "every member has called it");
    /* Who is not recorded may be the one that is missing. */
    story_expect_doubt(3, "* init w\n repeat 5 * ar w 9\n * insplit w\n 2 notrace\n" HANG, "unknown", "",
                       "2");
}

/* One call by one rank alone, of a kind that nobody had made, while the others stand outside. */
static void alone(void **state)
{
    (void)state;
    static const char new_kind[] = "* init w\n repeat 10 * ar w 64\n 0 ag w 128\n" HANG;
    story_expect_doubt(4, new_kind, "possible", "0", "1-3");
    story_expect_words(4, new_kind, "nobody had called AllGather there before; or ranks 1-3");
    /* What lies before the window is not known. */
    story_expect_words(4, "* init w\n * ag w 8\n repeat 9000 * ar w 64\n 0 ag w 128\n" HANG,
                       "nobody had called AllGather there in the last calls before; or ranks 1-3");
    /* Several agree on what comes next; so they do when it is the usual; and between two it tells nothing. */
    story_expect(8, "* init w\n repeat 10 * ar w 64\n 0-1 ag w 128\n" HANG, "stuck_outside_nccl", "2-7",
                 "0-1");
    story_expect(4, "* init w\n loop 5 ( * ar w 64, * ag w 128 )\n 0 ar w 64\n" HANG, "stuck_outside_nccl",
                 "1-3", "0");
    story_expect(2, "* init w\n repeat 10 * ar w 64\n 0 ag w 128\n" HANG, "stuck_outside_nccl", "1", "0");
}

/* A collective of no elements is dropped by NCCL, a message is not. */
static void empty(void **state)
{
    (void)state;
    story_expect(3, "* init w\n repeat 5 * ar w 9\n 1 recv w 2 0\n 0,2 ar w 9\n * wait 100\n 2 exit 0\n" HANG,
                 "p2p_unmatched", "2", "0");
    story_expect(2, "* init w\n 0 send w 1 0\n 1 recv w 0 0\n * ar w 0\n * ar w 9 done\n * exit 0", "healthy",
                 "", "*");
}

/* A shrink needs not all. */
static void shrinks(void **state)
{
    (void)state;
    /* Where the others shrink one makes a call too many: that those excluded leave is not why it does not
     * end. */
    story_expect(5,
                 "* init w\n repeat 5 * ar w 9\n 2 ar w 7\n 0,3 shrink w v\n 1,4 destroy w\n 1,4 exit 0\n"
                 "0,3 ar v 5\n 0,2-3 wait 12000\n 0,2-3 dies 15",
                 "rank_not_joined", "2", "0-1,3-4");
    static const char one_of[] = "* init w\n repeat 5 * ar w 9\n 0-1 inshrink w 1\n" HANG;
    story_expect_doubt(4, one_of, "possible", "", "2-3");
    story_expect_words(4, one_of, "1 of those who did not come is excluded by it");
    static const char ended[] = "* init w\n repeat 5 * ar w 9 done\n 3 exit 0\n 0-1 inshrink w 1\n" HANG;
    story_expect(4, ended, "stuck_outside_nccl", "2", "0-1,3");
    story_expect_doubt(4, "* init w\n repeat 5 * ar w 9\n 0-1 inshrink w 0\n" HANG, "likely", "2-3", "");
    /* All that it does not exclude have come. */
    story_expect_doubt(4, "* init w\n repeat 5 * ar w 9\n 2-3 exit 0\n 0-1 inshrink w 2\n * wait 100\n",
                       "certain", "", "");
}

#define PAST                                                                                                 \
    "* init w\n 0-1 init a\n 2-3 init b\n 1-2 init p\n"                                                      \
    "loop 9 ( 0-1 ar a 5, 2-3 ar b 5, 1 send p 1 7, 2 recv p 0 7 )\n"

/* Where the GPUs tell nothing, the last collective of those who are silent may not have ended. */
static void silence_behind_a_collective(void **state)
{
    (void)state;
    static const char both[] = PAST "2-3 ar b 5\n 0-1 ar a 5\n 0-1 ar a 5\n 1 recv p 1 7\n" HANG;
    story_expect(4, both, "inconclusive", "", "*");
    story_expect_words(4, both, "who is awaited may be rank 2");
    /* Where they do, a trace that breaks off does not tell how far its GPU came. */
    story_expect_doubt(4, "* init w\n repeat 9 * ar w 9 done\n *-2 ar w 9 started\n 2 ar w 9\n 2 torn\n" HANG,
                       "likely", "", "2");
    static const char one[] = PAST "2-3 ar b 5\n 3 ar b 5\n 1 recv p 1 7\n" HANG;
    story_expect(4, one, "stuck_outside_nccl", "2", "0-1,3");
    /* Nor may a message, and what they called on other streams since does not tell. */
    static const char message[] = "0-1 init a\n 1-2 init b\n repeat 3 0-1 ar a 5\n repeat 3 1-2 ar b 5\n"
                                  "2 send b 0 9\n 1 recv b 1 9\n 0 ar a 5\n" HANG;
    story_expect_doubt(3, message, "unknown", "", "1");
    static const char streams[] =
        "* init w\n 1-2 init b\n repeat 3 * ar w 9\n 1-2 ar b 5 stream 2\n * ar w 9\n"
        "0 ar w 9\n" HANG;
    story_expect_doubt(3, streams, "unknown", "", "1-2");
}

/* In a registration in which all are, one may be stuck and keep the others. */
static void silence_behind_a_registration(void **state)
{
    (void)state;
    static const char all[] = "0-1 init w\n 1-2 init b\n repeat 9 0-1 ar w 9\n repeat 9 1-2 ar b 9\n 0-1 "
                              "window w open\n 2 ar b 9\n" HANG;
    story_expect_doubt(3, all, "unknown", "", "1");
}

/* A creation and a data op at one seq may both be right; of a creation in which all are one may be stuck. */
static void silence_behind_a_creation(void **state)
{
    (void)state;
    static const char left_out[] =
        "* init w\n repeat 5 * ar w 9\n 0 bc w 7\n * split w c\n 1 window c open\n" HANG;
    story_expect_doubt(2, left_out, "unknown", "", "0");
    static const char inside[] =
        "0-1 init a\n 1-2 init b\n 2-3 init c\n repeat 5 0-1 ar a 9\n repeat 5 1-2 ar b 9\n"
        "repeat 5 2-3 ar c 9\n 1-2 insplit b\n 0 ar a 9\n 3 ar c 9\n" HANG;
    story_expect_words(4, inside, "so no rank is to blame");
    /* What a rank called on a communicator of its own says nothing of what stands in front of it. */
    static const char by_itself[] =
        "0-1 init a\n 1-2 init b\n 1 init c\n repeat 3 0-1 ar a 5\n repeat 3 1-2 ar b 5\n"
        "2 send b 0 9\n 1 recv b 1 9\n 1 ar c 5\n 0 ar a 5\n" HANG;
    story_expect_doubt(3, by_itself, "unknown", "", "1");
}

/* Whoever is in a call that launches an op keeps the others in it, until the host comes out. */
static void silence_behind_a_host(void **state)
{
    (void)state;
    static const char inside[] = "* init w\n 1,3 init b\n *-2 init c\n repeat 3 * ar w 9\n 0-1 bc c 9\n"
                                 "3 bc c 9 open\n 1 ar b 5 stream 1\n 2 ar w 7\n" HANG;
    story_expect(4, inside, "stuck_in_call", "3", "0-2");
    static const char group[] = "* init w\n 1,3 init b\n *-2 init c\n repeat 3 * ar w 9\n 0-1 bc c 9\n"
                                "3 {\n 3 bc c 9\n 3 }open\n 1 ar b 5 stream 1\n 2 ar w 7\n" HANG;
    story_expect(4, group, "stuck_in_call", "3", "0-2");
}

/* In a group what one communicator does on several streams is launched at once. */
/* Rank 0 sends once too often, and what it receives stands behind that: rank 1 may wait for it in its send.
 */
static void buffered_or_blocked(void **state)
{
    (void)state;
    story_expect_doubt(
        3,
        "* init w\n 0-1 init c\n loop 5 ( 0 send w 1 8 stream 6, 1 recv w 0 8 stream 6, 0 recv w 1 8 stream "
        "6,"
        " 1 send w 0 8 stream 6 )\n"
        "0 send w 1 8 stream 6\n 1 recv w 0 8 stream 6\n 0 send w 1 8 stream 6\n 1 send w 0 8 stream 6\n"
        "0 recv w 1 8 stream 6\n repeat 3000 * ar w 9\n 1 send w 2 9\n 2 recv w 1 9\n 0 ar c 5\n 2 destroy "
        "w\n"
        "2 exit 0\n 0-1 wait 8000\n 0-1 dies 6",
        "unknown", "", "1");
}

static void silence_behind_a_group(void **state)
{
    (void)state;
    /* Who is held up in launching more has a full queue: what stands in it since long may not be over. */
    story_expect_doubt(3,
                       "* init w\n 0,2 init c\n repeat 9 * ar w 8\n 1 torn\n 2 recv w 1 8\n"
                       "repeat 80 0,2 ar c 8\n 0 ar c 8\n 2 ar c 8 open\n 0 ar c 9\n" HANG,
                       "unknown", "", "1-2");
    static const char more[] = "* init a\n * init b\n repeat 3 * ar a 5\n * {\n * ga b 64 stream 1\n"
                               "* ar a 15 stream 1\n 1 ar a 64\n * }\n" HANG;
    story_expect_doubt(2, more, "unknown", "", "0");
}

/* A teardown is not counted where its record is lost. */
static void lost_teardown(void **state)
{
    (void)state;
    story_expect(4, "* init w\n repeat 9 * ar w 9\n 3 exit 0\n 0-2 in destroy w\n" HANG, "rank_not_joined",
                 "3", "0-2");
    story_expect_doubt(
        4, "* init w\n repeat 9 * ar w 9\n 3 lose\n 3 destroy w\n 3 exit 0\n 0-2 in destroy w\n" HANG,
        "unknown", "", "3");
}

/* An error that tells of others: who met it is named only where nobody else may have gone. */
static void broken_connections(void **state)
{
    (void)state;
#define ALL_MEET(gone)                                                                                       \
    "* init w\n repeat 5 * ar w 9\n 3 " gone "\n 0-2 ar w 9\n 2 async w 6\n 2 abort w\n 2 exit 1\n"          \
    "* wait 900\n 0-1 async w 6\n 0-1 abort w\n 0-1 exit 1\n"
    story_expect_doubt(4, ALL_MEET("notrace"), "possible", "", "3");
    story_expect_doubt(4, ALL_MEET("torn"), "possible", "", "3");
    story_expect_doubt(4,
                       "* init w\n repeat 5 * ar w 9\n 3 dies 15\n 0-2 ar w 9\n 0-2 async w 6\n 0-2 abort w\n"
                       "0-2 exit 1\n",
                       "possible", "", "3");
    story_expect(4, ALL_MEET("notrace"), "comm_failed", "", "0-2");
    story_expect(4, ALL_MEET("dies 11"), "process_dead", "3", "0-2");
    story_expect(4, ALL_MEET("exit 1"), "rank_not_joined", "3", "0-2");
    story_expect(4, ALL_MEET("ar w 9"), "comm_failed", "2", "0-1,3");
    /* Told by the call, while others wait in it. */
    static const char call[] =
        "* init w\n repeat 5 * ar w 9\n 3 notrace\n 0-1 ar w 9\n 2 ar w 9 broken\n" HANG;
    story_expect(4, call, "comm_failed", "", "0-2");
    story_expect_words(4, call, "that may be rank 3, without a later sign of life, while");
    story_expect(4, "* init w\n repeat 5 * ar w 9\n 0-1,3 ar w 9\n 2 ar w 9 broken\n" HANG, "comm_failed",
                 "2", "0-1,3");
#undef ALL_MEET
}

static void refusals(void **state)
{
    (void)state;
    /* Who goes on behind it stands at other ops than the other one, which is not to blame for that. */
    static const char survived[] =
        "* init w\n repeat 9 * ar w 9\n 1 ar w 9 failed\n 0 ar w 9\n * ar w 9\n 1 insplit w\n"
        "0 ar w 9\n" HANG;
    story_expect(2, survived, "comm_failed", "1", "0");
    story_expect_words(2, survived, "so that it stands at another op 11");
    story_expect(4, "* init w\n repeat 5 * ar w 100\n * ar w 100 failed\n" HANG, "comm_failed", "", "*");
    story_expect_words(4, "* init w\n repeat 5 * ar w 100\n * ar w 100 failed\n" HANG, "no rank is to blame");
    story_expect(4, "* init w\n repeat 5 * ar w 100\n 3 torn\n * ar w 100 failed\n" HANG, "comm_failed", "",
                 "*");
    story_expect(4, "* init w\n repeat 5 * ar w 100\n 3 lose\n * ar w 100 failed\n" HANG, "comm_failed", "",
                 "*");
    story_expect(
        3,
        "* init w\n repeat 5 * ar w 9\n 1 async w 6\n 0 async w 6\n * wait 500\n 2 async w 6\n * abort w\n"
        "* exit 1",
        "comm_failed", "0-1", "2");
    story_expect(2,
                 "* init w\n repeat 5 0 send w 1 9\n repeat 5 1 recv w 0 9\n 0 send w 1 9 failed\n"
                 "1 recv w 0 9\n" HANG,
                 "comm_failed", "0", "1");
    story_expect_words(2, "* init w\n repeat 5 * ar w 9\n 0 {\n 0 ar w 9\n 0 } failed\n 1 ar w 9\n" HANG,
                       "got InvalidArgument from the GroupEnd of the group with AllReduce");
    /* A teardown that waits for work of its communicator is no verdict. */
    story_expect(4, "* init w\n repeat 9 * ar w 9\n 2 ar w 9\n * in finalize w\n" HANG, "rank_not_joined",
                 "2", "0-1,3");
    /* An abort ends what hangs; after the last one has come late it is how they tear down. */
    story_expect(3,
                 "* init w\n repeat 9 * ar w 9 done\n * ar w 9 started\n * wait 3000\n * abort w\n * exit 0",
                 "stuck_in_kernel", "", "*");
    story_expect(3,
                 "* init w\n repeat 9 * ar w 9 done\n *-0 ar w 9 started\n * wait 3000\n 0 ar w 9 started\n"
                 "* abort w\n * exit 0",
                 "healthy", "", "*");
}

/* A peer that is not there: the caller may be wrong, or a color of the split. */
static void uneven_splits(void **state)
{
    (void)state;
    static const char uneven[] =
        "* init w\n repeat 5 * ar w 9\n 0 split w a\n 1-3 split w b\n 0 send a 1 9 failed\n"
        "repeat 2 1-3 ar b 9\n" HANG,
                      even[] = "* init w\n repeat 5 * ar w 9\n 0-1 split w a\n 2-3 split w b\n"
                               "0 send a 2 9 failed\n repeat 2 2-3 ar b 9\n" HANG;
    story_expect(4, uneven, "comm_failed", "", "*");
    story_expect_doubt(4, uneven, "possible", "", "0");
    story_expect_words(4, uneven, "one of its colors may be wrong");
    story_expect(4, even, "comm_failed", "0", "1-3");
    /* Another argument is wrong whatever the split was. */
    story_expect(4,
                 "* init w\n repeat 5 * ar w 9\n 0 split w a\n 1-3 split w b\n 2 ar b 9 failed\n"
                 "1,3 ar b 9\n" HANG,
                 "comm_failed", "2", "0-1,3");
    static const char awaited[] = "* init w\n repeat 5 * ar w 9\n 0 split w a\n 1-3 split w b\n"
                                  "1 bc b 9 root 5 failed\n 2-3 bc b 9\n" HANG;
    story_expect_doubt(4, awaited, "possible", "", "1");
}

/* A group that NCCL refuses and its rank survives takes no places. */
static void refused_groups(void **state)
{
    (void)state;
#define WORK    "* init w\n repeat 5 * ar w 9\n"
#define REFUSED "2 {\n 2 ar w 9\n 2 send w 3 5\n 2 ag w 5 failed\n 2 } failed\n"
    static const char healthy[] = WORK REFUSED "repeat 5 * ar w 9\n 2 send w 3 7\n 3 recv w 2 7\n * exit 0";
    story_expect(4, healthy, "healthy", "", "*");
    story_expect(4, WORK REFUSED "repeat 5 * ar w 9\n *-1 ar w 9\n" HANG, "stuck_outside_nccl", "1", "*-1");
    story_expect_words(4, WORK REFUSED "repeat 5 * ar w 9\n *-1 ar w 9\n" HANG, "op 11 of communicator");
    story_expect(4, WORK REFUSED "repeat 5 * ar w 9\n *-2 ar w 9\n 2 ag w 9\n" HANG, "op_mismatch", "2",
                 "*-2");
    /* Hashes of what came behind it were made with the other numbers. */
    story_expect(3, WORK REFUSED "repeat 9000 * ar w 9\n * exit 0", "healthy", "", "*");
    /* Nothing came behind it: the others wait for what it should have been. */
    story_expect(4, WORK REFUSED "*-2 ar w 9\n" HANG, "comm_failed", "2", "*-2");
    /* Signals and windows are numbered by us. */
    story_expect(4,
                 WORK "2 {\n 2 window w\n 2 ar w 9 failed\n 2 } failed\n * ar w 9\n *-2 window w open\n" HANG,
                 "stuck_outside_nccl", "2", "*-2");
#undef WORK
#undef REFUSED
}

/* Calls that meet on the host, outside of the sequence of their communicator. */
static void host_calls(void **state)
{
    (void)state;
    /* A member of whom nobody knows how many it made could be on either side. */
    story_expect_doubt(
        4,
        "* init w\n repeat 5 * ar w 9\n 2-3 lose\n * window w\n 2-3 record\n repeat 300 * ar w 9\n"
        "0,2-3 exit 0\n 1 window w open\n" HANG,
        "possible", "", "0-1");
    /* Two against one, and the fourth could only make it even. */
    story_expect_doubt(4,
                       "* init w\n repeat 5 * ar w 9\n 3 lose\n * window w\n 3 record\n repeat 300 * ar w 9\n"
                       "0-1,3 exit 0\n 2 window w open\n" HANG,
                       "likely", "2", "");
#define WORK "* init w\n repeat 5 * ar w 9\n"
    story_expect(4, WORK "*-2 window w open\n" HANG, "stuck_outside_nccl", "2", "*-2");
    story_expect_words(4, WORK "* window w\n *-2 window w open\n" HANG,
                       "wait in CommWindowRegister, number 1 on communicator");
    /* It went on without. */
    story_expect(4, WORK "*-2 window w open\n 2 ar w 9\n" HANG, "rank_not_joined", "2", "*-2");
    story_expect(4, WORK "*-2 window w open\n 2 exit 0\n" HANG, "rank_not_joined", "2", "*-2");
    story_expect(4, WORK "*-2 devcomm w open\n 2 destroy w\n" HANG, "rank_not_joined", "2", "*-2");
    /* One made a call too many. */
    story_expect(4, WORK "2 window w open\n *-2 ar w 9\n" HANG, "rank_not_joined", "2", "*-2");
    /* Each kind is counted by itself, and what NCCL refuses is not. */
    story_expect(4, WORK "* devcomm w\n 2 window w failed\n *-2 window w open\n" HANG, "comm_failed", "2",
                 "*-2");
    story_expect(4, WORK "1 window w failed\n * window w\n *-2 window w open\n 2 ar w 9\n" HANG,
                 "rank_not_joined", "2", "*-2");
    story_expect(2, WORK "0 window w open\n 1 devcomm w open\n" HANG, "deadlock_cycle", "0-1", "");
    /* Records of them may be missing: then nobody knows how many it made. */
    story_expect(4,
                 WORK "2 lose\n 2 window w\n 2 record\n *-2 window w\n * ar w 9\n *-2 window w open\n" HANG,
                 "inconclusive", "", "*");
    story_expect(4, WORK "2 lose\n 2 window w\n 2 record\n *-2 window w\n * ar w 9\n 2 window w open\n" HANG,
                 "inconclusive", "", "*");
    story_expect(4, WORK "* window w\n * ar w 9\n * exit 0", "healthy", "", "*");
#undef WORK
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_who_left_against_those_who_came),
        cmocka_unit_test(circles),
        cmocka_unit_test(siblings),
        cmocka_unit_test(twins),
        cmocka_unit_test(past),
        cmocka_unit_test(majorities),
        cmocka_unit_test(open_ties),
        cmocka_unit_test(all_inside),
        cmocka_unit_test(alone),
        cmocka_unit_test(empty),
        cmocka_unit_test(shrinks),
        cmocka_unit_test(silence_behind_a_collective),
        cmocka_unit_test(silence_behind_a_creation),
        cmocka_unit_test(silence_behind_a_registration),
        cmocka_unit_test(silence_behind_a_host),
        cmocka_unit_test(silence_behind_a_group),
        cmocka_unit_test(buffered_or_blocked),
        cmocka_unit_test(lost_teardown),
        cmocka_unit_test(refusals),
        cmocka_unit_test(broken_connections),
        cmocka_unit_test(uneven_splits),
        cmocka_unit_test(refused_groups),
        cmocka_unit_test(host_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
