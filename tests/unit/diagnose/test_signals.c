/* Waits for signals: which of them count, and who is named when one is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "story.h"

#define HANG "* wait 8000\n"
#define LOOP "* init w\n repeat 9 * ar w 9\n"

static void each_signal_counts_for_itself(void **state)
{
    (void)state;
    /* Whoever raised the other one has not raised this one. */
    static const char other[] = LOOP "0 signal w 1 index 1\n 1 await w 0 1\n * ar w 9\n" HANG;
    story_expect(3, other, "p2p_unmatched", "0", "1-2");
    story_expect(3, LOOP "0 signal w 1 context 1\n 1 await w 0 1\n * ar w 9\n" HANG, "p2p_unmatched", "0",
                 "1-2");
    story_expect(3, LOOP "0 signal w 1 context 1\n 1 await w 0 1 index 1\n * ar w 9\n" HANG, "p2p_unmatched",
                 "0", "1-2");
    /* In whatever order they are raised. */
    static const char crossed[] = LOOP "repeat 5 0 signal w 1 index 1\n repeat 5 0 signal w 1\n"
                                       "repeat 4 1 await w 0 1\n 1 await w 0 5 index 1\n 1 await w 0 1\n";
    story_expect(2, crossed, "healthy", "", "*");
    /* One of them too few. */
    static const char few[] = LOOP "repeat 5 0 signal w 1 index 1\n repeat 4 0 signal w 1\n"
                                   "1 await w 0 5 index 1\n 1 await w 0 5\n * ar w 9\n" HANG;
    story_expect(2, few, "p2p_unmatched", "0", "1");
    story_expect_words(2, few, "WaitSignal from comm rank 0, signal 4 of");
    static const char far[] = LOOP "1 await w 0 1 index 2 context 1\n * ar w 9\n" HANG;
    story_expect_words(2, far, "WaitSignal from comm rank 0 (index 2, context 1), signal 0 of");
}

static void signals_that_are_not_told(void **state)
{
    (void)state;
    /* As all of them before 1.4: they are counted together. */
    story_expect(2, LOOP "0 signal w 1 untold\n 1 await w 0 2 untold\n * ar w 9\n" HANG, "p2p_unmatched", "0",
                 "1");
    story_expect(2, LOOP "0 signal w 1 untold\n 1 await w 0 1 untold\n * ar w 9\n", "healthy", "", "*");
    /* Those of one recorder say nothing of what another one counted: nobody is to blame. */
    story_expect(2, LOOP "0 signal w 1 untold\n 1 await w 0 1\n * ar w 9\n" HANG, "inconclusive", "", "*");
    story_expect(2, LOOP "0 signal w 1\n 1 await w 0 1 untold\n * ar w 9\n" HANG, "inconclusive", "", "*");
    /* Without any it is. */
    story_expect(2, LOOP "1 await w 0 1 untold\n * ar w 9\n" HANG, "p2p_unmatched", "0", "1");
    story_expect(2, LOOP "1 await w 0 1\n * ar w 9\n" HANG, "p2p_unmatched", "0", "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_signal_counts_for_itself),
        cmocka_unit_test(signals_that_are_not_told),
    };
    return cmocka_run_group_tests_name("signals", tests, NULL, NULL);
}
