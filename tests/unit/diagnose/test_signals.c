/* Waits for signals: which of them count, and who is named when one is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "story.h"

#define HANG "* wait 8000\n"
#define LOOP "* init w\n repeat 9 * ar w 9\n"
/* Nine rounds with one signal, then AllReduce. */
#define ROUNDS "* init w\n loop 9 ( 0 signal w 1, 1 await w 0 1, * ar w 9 )\n"
#define LEAVES "0 exit 0\n" HANG

static void each_signal_counts_for_itself(void **state)
{
    (void)state;
    /* Whoever raised the other one has not raised this one. */
    static const char other[] = ROUNDS "0 signal w 1 index 1\n 1 await w 0 1\n * ar w 9\n" HANG;
    story_expect(3, other, "p2p_unmatched", "0", "1-2");
    story_expect(3, ROUNDS "0 signal w 1 context 1\n 1 await w 0 1\n * ar w 9\n" HANG, "p2p_unmatched", "0",
                 "1-2");
    /* Either may be the wrong one, where no past tells. */
    static const char either[] = LOOP "0 signal w 1 context 1\n 1 await w 0 1 index 1\n" LEAVES;
    story_expect(3, either, "p2p_unmatched", "", "*");
    story_expect_doubt(3, either, "possible", "", "0-1");
    story_expect_words(3, either, "rank 1 may wait for another signal than it should");
    story_expect_words(3, either, "raised what nobody waits for in Signal to rank 1 (index 0, context 1)");
    /* In whatever order they are raised. */
    static const char crossed[] = LOOP "repeat 5 0 signal w 1 index 1\n repeat 5 0 signal w 1\n"
                                       "repeat 4 1 await w 0 1\n 1 await w 0 5 index 1\n 1 await w 0 1\n";
    story_expect(2, crossed, "healthy", "", "*");
    /* One of them too few. */
    static const char few[] = LOOP "repeat 5 0 signal w 1 index 1\n repeat 4 0 signal w 1\n"
                                   "1 await w 0 5 index 1\n 1 await w 0 5\n" LEAVES;
    story_expect(2, few, "p2p_unmatched", "0", "1");
    story_expect_words(2, few, "WaitSignal from rank 0, signal 4 of");
    static const char far[] = LOOP "1 await w 0 1 index 2 context 1\n" LEAVES;
    story_expect_words(2, far, "WaitSignal from rank 0 (index 2, context 1), signal 0 of");
}

static void signals_that_are_not_told(void **state)
{
    (void)state;
    /* As all of them before 1.4: they are counted together. */
    story_expect(2, LOOP "0 signal w 1 untold\n 1 await w 0 2 untold\n" LEAVES, "p2p_unmatched", "0", "1");
    story_expect(2, LOOP "0 signal w 1 untold\n 1 await w 0 1 untold\n * ar w 9\n", "healthy", "", "*");
    /* Those of one recorder say nothing of what another one counted: nobody is to blame. */
    story_expect(2, LOOP "0 signal w 1 untold\n 1 await w 0 1\n * ar w 9\n" HANG, "inconclusive", "", "*");
    story_expect(2, LOOP "0 signal w 1\n 1 await w 0 1 untold\n * ar w 9\n" HANG, "inconclusive", "", "*");
    /* Without any it is. */
    story_expect(2, LOOP "1 await w 0 1 untold\n" LEAVES, "p2p_unmatched", "0", "1");
    story_expect(2, LOOP "1 await w 0 1\n" LEAVES, "p2p_unmatched", "0", "1");
}

/* Rank 2 waits for ranks 0 and 1 at once. */
#define SEVERAL "2 await w -1 2 several\n 2 await w 0 1 part\n 2 await w 1 1 index 1 part\n"
#define SEVERAL_ROUNDS                                                                                       \
    "* init w\n loop 9 ( 0 signal w 2, 1 signal w 2 index 1, 2 await w -1 2 several, 2 await w 0 1 part, "   \
    "2 await w 1 1 index 1 part, * ar w 9 )\n"

static void a_wait_for_several_signals(void **state)
{
    (void)state;
    story_expect(3, SEVERAL_ROUNDS, "healthy", "", "*");
    /* Each of them is needed. */
    static const char no_second[] = SEVERAL_ROUNDS "0 signal w 2\n 1 signal w 2\n" SEVERAL "* ar w 9\n" HANG;
    story_expect(4, no_second, "p2p_unmatched", "1", "0,2-3");
    story_expect_words(4, no_second, "WaitSignal from rank 1 (index 1), signal 9 of");
    static const char no_first[] = SEVERAL_ROUNDS "1 signal w 2 index 1\n" SEVERAL "* ar w 9\n" HANG;
    story_expect(4, no_first, "p2p_unmatched", "0", "1-3");
    /* They are waited for at once. */
    static const char neither[] = LOOP "3 ar w 9\n" SEVERAL HANG;
    story_expect(4, neither, "stuck_outside_nccl", "0-1", "2-3");
    story_expect_words(4, neither, "WaitSignal from rank 0, signal 0 of");
    story_expect_words(4, neither, "WaitSignal from rank 1 (index 1), signal 0 of");
    /* In a group with what it waits for. */
    static const char exchange[] = LOOP "0-1 {\n 0 await w -1 2 several\n 0 await w 1 1 part\n"
                                        "0 await w 1 1 index 1 part\n 0 signal w 1\n 1 await w 0 1\n"
                                        "1 signal w 0 index 1\n 1 signal w 0\n 0-1 }\n * ar w 9\n";
    story_expect(2, exchange, "healthy", "", "*");
    /* Without its parts, as when they got no room, it is taken as fulfilled. */
    story_expect(3, LOOP "2 await w -1 2 several\n * ar w 9\n", "healthy", "", "*");
}

static void signals_of_graphs(void **state)
{
    (void)state;
    /* Each launch raises it again, which no record counts. */
    static const char raised[] = "* init w\n 0 capture 1\n 0 signal w 1\n repeat 5 0 replay 1\n"
                                 "repeat 5 1 await w 0 1\n * ar w 9\n";
    story_expect(2, raised, "healthy", "", "*");
    /* And what is waited for inside one, is no wait of the stream where it was captured. */
    story_expect(
        2, "* init w\n 1 capture 1\n 1 await w 0 5\n * ar w 9\n 0 signal w 1\n 1 await w 0 1\n * ar w 9\n",
        "healthy", "", "*");
}

static void the_past_tells_who_changed_the_signal(void **state)
{
    (void)state;
    static const char waiter[] = ROUNDS "0 signal w 1\n 1 await w 0 1 index 1\n * ar w 9\n" HANG;
    story_expect(3, waiter, "deadlock_cycle", "1", "0,2");
    story_expect_words(3, waiter, "rank 1 left the loop of calls repeated before");
    story_expect_doubt(3, ROUNDS "0 signal w 1\n 1 await w 0 1 index 1\n" LEAVES, "likely", "1", "");
    story_expect_doubt(3, ROUNDS "0 signal w 1 index 1\n 1 await w 0 1\n" LEAVES, "likely", "0", "");
}

/* Who came to the AllReduce may have left the signal out, or who waits an AllReduce before it. */
static void an_order_of_two_is_a_circle(void **state)
{
    (void)state;
    static const char early[] = "* init w\n * ar w 9\n 1 await w 0 1\n * ar w 9\n" HANG;
    story_expect(2, early, "deadlock_cycle", "0-1", "");
}

static void signals_that_nobody_saw_raised(void **state)
{
    (void)state;
    /* Rank 2 may stand outside NCCL for its own wait to end: rank 1's GPU need not have come to the signal.
     */
    static const char unseen[] = "* init w\n 1 signal w 2\n 1 signal w 0 index 1\n 2 await w 1 1\n"
                                 "0 await w 2 1\n" HANG;
    story_expect_doubt(3, unseen, "unknown", "", "2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_signal_counts_for_itself),
        cmocka_unit_test(signals_that_are_not_told),
        cmocka_unit_test(a_wait_for_several_signals),
        cmocka_unit_test(signals_of_graphs),
        cmocka_unit_test(the_past_tells_who_changed_the_signal),
        cmocka_unit_test(an_order_of_two_is_a_circle),
        cmocka_unit_test(signals_that_nobody_saw_raised),
    };
    return cmocka_run_group_tests_name("signals", tests, NULL, NULL);
}
