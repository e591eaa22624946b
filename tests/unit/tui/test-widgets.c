#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fr-tui/chart.h"
#include "fr-tui/pane.h"
#include "fr-tui/timeline.h"

static void test_history(void **state)
{
    (void)state;
    struct tui_history history = {0};
    assert_true(isnan(tui_history_get(&history, 0)));
    assert_true(tui_history_max(&history, 10) == 0);
    for (int i = 0; i < TUI_HISTORY + 100; i++)
        tui_history_push(&history, i == 300 ? (double)NAN : i);
    assert_true(tui_history_get(&history, 0) == TUI_HISTORY + 99);
    assert_true(tui_history_get(&history, TUI_HISTORY - 1) == 100);
    assert_true(isnan(tui_history_get(&history, TUI_HISTORY)));
    assert_true(tui_history_max(&history, TUI_HISTORY * 2) == TUI_HISTORY + 99);
}

static void test_bars(void **state)
{
    (void)state;
    assert_int_equal(tui_bar_eighths(0, 10, 0, 1), 0);
    assert_int_equal(tui_bar_eighths(NAN, 10, 0, 1), 0);
    assert_int_equal(tui_bar_eighths(5, 0, 0, 1), 0);
    assert_int_equal(tui_bar_eighths(0.001, 10, 0, 1), 1); /* something is never nothing */
    assert_int_equal(tui_bar_eighths(5, 10, 0, 1), 4);
    assert_int_equal(tui_bar_eighths(10, 10, 0, 1), 8);
    assert_int_equal(tui_bar_eighths(99, 10, 0, 1), 8);
    assert_int_equal(tui_bar_eighths(5, 10, 0, 2), 8);
    assert_int_equal(tui_bar_eighths(5, 10, 1, 2), 0);
    assert_int_equal(tui_bar_eighths(7.5, 10, 1, 2), 4);
    assert_int_equal(tui_bar_eighths(INFINITY, 10, 1, 2), 8);
}

/* Everything shown at span 0; never a window beyond the ends. */
static void test_timeline_fit(void **state)
{
    (void)state;
    uint64_t from = 0, span = 0;
    tui_timeline_fit(100, 199, 50, false, &from, &span);
    assert_int_equal(span, 2);
    assert_int_equal(from, 100);
    span = 1;
    tui_timeline_fit(100, 199, 50, true, &from, &span);
    assert_int_equal(from, 150);
    from = 120;
    tui_timeline_fit(100, 199, 50, false, &from, &span);
    assert_int_equal(from, 120);
    from = 5000;
    tui_timeline_fit(100, 199, 50, false, &from, &span);
    assert_int_equal(from, 150);
    from = 0, span = 1;
    tui_timeline_fit(7, 7, 0, true, &from, &span);
    assert_int_equal(from, 7);
    from = 0, span = 0;
    tui_timeline_fit(0, UINT64_MAX, 80, true, &from, &span);
    assert_true(span > 0 && (UINT64_MAX - from) / span < 80);
}

static size_t lanes(void *context)
{
    return *(size_t *)context;
}
static void bounds(void *context, uint64_t *first, uint64_t *last)
{
    (void)context;
    *first = 0;
    *last = 999;
}
static const struct tui_timeline_source source = {.lanes = lanes, .bounds = bounds};

static void test_timeline_moves(void **state)
{
    (void)state;
    size_t count = 10;
    struct tui_timeline timeline;
    tui_timeline_open(&timeline, &source, &count);
    timeline.span = 1;
    timeline.width = 100;
    timeline.height = 4;
    timeline.from = 900;
    for (int i = 0; i < 150; i++)
        assert_true(tui_timeline_command(&timeline, TUI_LEFT_COLUMN));
    assert_int_equal(timeline.cursor, 849);
    assert_int_equal(timeline.from, 849); /* scrolled along */
    assert_false(timeline.stick);
    tui_timeline_command(&timeline, TUI_FIRST);
    assert_int_equal(timeline.cursor, 0);
    tui_timeline_command(&timeline, TUI_COLLAPSE);
    assert_int_equal(timeline.span, 2);
    tui_timeline_command(&timeline, TUI_EXPAND);
    tui_timeline_command(&timeline, TUI_EXPAND);
    assert_int_equal(timeline.span, 1);
    tui_timeline_command(&timeline, TUI_LAST);
    assert_true(timeline.stick);
    for (int i = 0; i < 20; i++)
        tui_timeline_command(&timeline, TUI_DOWN);
    assert_int_equal(timeline.lane, 9);
    assert_int_equal(timeline.top, 6);
    count = 2; /* lanes went away */
    tui_timeline_command(&timeline, TUI_UP);
    assert_true(timeline.lane < 2);
    count = 0;
    tui_timeline_command(&timeline, TUI_PAGE_DOWN);
    assert_int_equal(timeline.lane, 0);
    assert_false(tui_timeline_command(&timeline, TUI_HELP));
}

static size_t text_lines(void *context)
{
    (void)context;
    return 1000;
}
static void text_line(void *context, size_t index, char text[TUI_PANE_LINE], enum tui_style *style)
{
    (void)context;
    (void)style;
    snprintf(text, TUI_PANE_LINE, "line %zu.", index);
}
static const struct tui_pane_source text_source = {text_lines, text_line};

static void test_pane(void **state)
{
    (void)state;
    struct tui_pane pane;
    tui_pane_open(&pane, &text_source, NULL, "title");
    pane.height = 20;
    tui_pane_command(&pane, TUI_UP);
    assert_int_equal(pane.top, 0);
    tui_pane_command(&pane, TUI_PAGE_DOWN);
    assert_int_equal(pane.top, 19);
    tui_pane_command(&pane, TUI_LAST);
    assert_int_equal(pane.top, 980);
    assert_true(tui_pane_search(&pane, "line 500.", 1, true));
    assert_int_equal(pane.match, 500);
    assert_true(pane.top <= 500 && pane.top + 20 > 500);
    assert_true(tui_pane_search(&pane, "line 49", -1, false));
    assert_int_equal(pane.match, 499);
    assert_false(tui_pane_search(&pane, "nothing", 1, true));
    assert_int_equal(pane.match, 499);
    assert_false(tui_pane_command(&pane, TUI_SORT_MENU));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_history),      cmocka_unit_test(test_bars),
        cmocka_unit_test(test_timeline_fit), cmocka_unit_test(test_timeline_moves),
        cmocka_unit_test(test_pane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
