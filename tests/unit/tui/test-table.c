#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fr-tui/settings.h"

/* A table over an array that the test changes. */
struct row {
    uint64_t id;
    const char *name;
    double value;
    size_t parent;
};
struct data {
    struct row rows[64];
    size_t count;
};

static size_t rows(void *context)
{
    return ((struct data *)context)->count;
}
static uint64_t id(void *context, size_t row)
{
    return ((struct data *)context)->rows[row].id;
}
static size_t parent(void *context, size_t row)
{
    return ((struct data *)context)->rows[row].parent;
}
static void cell(void *context, size_t row, unsigned column, struct tui_cell *out)
{
    const struct row *r = &((struct data *)context)->rows[row];
    if (column == 0) {
        snprintf(out->text, sizeof out->text, "%s", r->name);
    } else {
        snprintf(out->text, sizeof out->text, "%g", r->value);
        out->number = r->value;
    }
}

static const struct tui_source source = {.rows = rows, .id = id, .parent = parent, .cell = cell};
static const struct tui_column columns[] = {{"NAME", NULL, .width = 10},
                                            {"VALUE", NULL, .width = 6, .numeric = true}};

static struct tui_table *make(struct data *data)
{
    struct tui_table *table = tui_table_new(columns, 2, &source, data);
    assert_non_null(table);
    assert_true(tui_table_update(table));
    return table;
}

/* The names shown, in order, each followed by a blank. */
static void expect(const struct tui_table *table, const struct data *data, const char *want)
{
    char got[256] = "";
    for (size_t i = 0; i < tui_table_lines(table); i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s ",
                 data->rows[tui_table_row_at(table, i)].name);
    assert_string_equal(got, want);
}

static const char *selected(const struct tui_table *table, const struct data *data)
{
    size_t row = tui_table_selected(table);
    return row == TUI_NO_ROW ? "" : data->rows[row].name;
}

static struct data flat(void)
{
    return (struct data){.count = 4,
                         .rows = {{11, "node10", 3, TUI_NO_ROW},
                                  {12, "node9", NAN, TUI_NO_ROW},
                                  {13, "node1", 7, TUI_NO_ROW},
                                  {14, "node2", 3, TUI_NO_ROW}}};
}

static void test_sort(void **state)
{
    (void)state;
    struct data data = flat();
    struct tui_table *table = make(&data);
    expect(table, &data, "node1 node2 node9 node10 "); /* numbers inside names count as numbers */
    tui_table_sort(table, 0, true);
    expect(table, &data, "node10 node9 node2 node1 ");
    tui_table_sort(table, 1, true);
    expect(table, &data, "node1 node10 node2 node9 "); /* ties in the data's order, unknown last */
    tui_table_sort(table, 1, false);
    expect(table, &data, "node10 node2 node1 node9 "); /* … always */
    tui_table_sort(table, 99, false);
    assert_int_equal(tui_table_sort_column(table), 1);
    assert_true(tui_table_command(table, TUI_SORT_INVERT));
    assert_true(tui_table_sort_descending(table));
    tui_table_free(table);
}

static void test_selection_stays(void **state)
{
    (void)state;
    struct data data = flat();
    struct tui_table *table = make(&data);
    assert_string_equal(selected(table, &data), "node1");
    tui_table_sort(table, 1, true);
    assert_string_equal(selected(table, &data), "node1");
    tui_table_sort(table, 0, true); /* nobody has chosen yet: the first line stays selected */
    assert_string_equal(selected(table, &data), "node10");
    tui_table_command(table, TUI_DOWN);
    assert_string_equal(selected(table, &data), "node9");
    tui_table_sort(table, 0, false);
    assert_string_equal(selected(table, &data), "node9");
    /* The data is replaced: other places, other values, one row gone. */
    data.rows[0] = (struct row){12, "node9", 1, TUI_NO_ROW};
    data.count = 3;
    tui_table_update(table);
    assert_string_equal(selected(table, &data), "node9");
    data.count = 0;
    tui_table_update(table);
    assert_int_equal(tui_table_selected(table), TUI_NO_ROW);
    for (int command = TUI_HELP; command <= TUI_LAST; command++)
        tui_table_command(table, command); /* on nothing */
    assert_false(tui_table_search(table, "x", 1, true));
    tui_table_free(table);
}

static void test_filter_and_search(void **state)
{
    (void)state;
    struct data data = flat();
    struct tui_table *table = make(&data);
    tui_table_filter(table, "NODE1");
    expect(table, &data, "node1 node10 ");
    tui_table_filter(table, "node9|7");
    expect(table, &data, "node1 node9 "); /* any column */
    tui_table_filter(table, "nothing");
    expect(table, &data, "");
    tui_table_filter(table, "");
    assert_true(tui_table_search(table, "node9", 1, true));
    assert_string_equal(selected(table, &data), "node9");
    assert_true(tui_table_search(table, "node1", 1, false));
    assert_string_equal(selected(table, &data), "node10");
    assert_true(tui_table_search(table, "node1", 1, false)); /* round the end */
    assert_string_equal(selected(table, &data), "node1");
    assert_true(tui_table_search(table, "node1", -1, false));
    assert_string_equal(selected(table, &data), "node10");
    assert_false(tui_table_search(table, "nothing", 1, true));
    assert_string_equal(selected(table, &data), "node10");
    /* A selected line that the filter hides comes back selected. */
    tui_table_filter(table, "node2");
    tui_table_filter(table, "");
    assert_string_equal(selected(table, &data), "node10");
    tui_table_free(table);
}

static struct data family(void)
{
    return (struct data){.count = 6,
                         .rows = {{1, "b", 1, TUI_NO_ROW},
                                  {2, "a", 2, TUI_NO_ROW},
                                  {3, "b2", 5, 0},
                                  {4, "b1", 6, 0},
                                  {5, "a1", 7, 1},
                                  {6, "b1x", 8, 3}}};
}

static void test_tree(void **state)
{
    (void)state;
    struct data data = family();
    struct tui_table *table = make(&data);
    expect(table, &data, "a b ");
    tui_table_set_tree(table, true);
    expect(table, &data, "a a1 b b1 b1x b2 ");
    tui_table_sort(table, 1, true); /* among brothers */
    expect(table, &data, "a a1 b b1 b1x b2 ");
    tui_table_sort(table, 0, true);
    expect(table, &data, "b b2 b1 b1x a a1 ");
    assert_true(tui_table_select_id(table, 6));
    tui_table_command(table, TUI_COLLAPSE); /* on a leaf: the branch it is on */
    expect(table, &data, "b b2 b1 a a1 ");
    assert_string_equal(selected(table, &data), "b1");
    tui_table_command(table, TUI_EXPAND);
    expect(table, &data, "b b2 b1 b1x a a1 ");
    tui_table_filter(table, "b1x"); /* with the way up */
    expect(table, &data, "b b1 b1x ");
    tui_table_filter(table, "a"); /* with everything below */
    expect(table, &data, "a a1 ");
    tui_table_filter(table, "");
    tui_table_set_open_by_default(table, false);
    tui_table_update(table);
    expect(table, &data, "b a ");
    tui_table_free(table);
}

/* Parents that lead nowhere or in circles must neither hang nor crash. */
static void test_strange_trees(void **state)
{
    (void)state;
    struct data data = family();
    data.rows[0].parent = 3; /* b and b1 are each other's parent */
    data.rows[1].parent = 1; /* its own */
    data.rows[4].parent = 4711;
    struct tui_table *table = make(&data);
    tui_table_set_tree(table, true);
    expect(table, &data, "a a1 ");
    tui_table_filter(table, "b1x");
    tui_table_free(table);

    struct data deep = {.count = 64};
    for (size_t i = 0; i < 64; i++)
        deep.rows[i] = (struct row){i + 1, "n", 0, i > 0 ? i - 1 : TUI_NO_ROW};
    table = make(&deep);
    tui_table_set_tree(table, true);
    assert_true(tui_table_lines(table) >= 30);
    tui_table_free(table);
}

static void test_tags(void **state)
{
    (void)state;
    struct data data = {.count = 64};
    for (size_t i = 0; i < 64; i++)
        data.rows[i] = (struct row){i, "n", (double)i, TUI_NO_ROW}; /* id 0 too */
    struct tui_table *table = make(&data);
    for (size_t i = 0; i < 64; i++)
        tui_table_command(table, TUI_TAG);
    for (size_t i = 0; i < 64; i++)
        assert_true(tui_table_tagged(table, i));
    tui_table_command(table, TUI_FIRST);
    for (size_t i = 0; i < 32; i++)
        tui_table_command(table, TUI_TAG);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(tui_table_tagged(table, i), i >= 32);
    tui_table_command(table, TUI_UNTAG_ALL);
    assert_false(tui_table_tagged(table, 40));
    tui_table_free(table);
}

static void test_layout(void **state)
{
    (void)state;
    static const struct tui_column c[] = {{"A", NULL, .width = 5, .max_width = 8, .tree_width = 9},
                                          {"B", NULL, .width = 10, .yields = 1},
                                          {"C", NULL, .width = 4, .max_width = 100},
                                          {"D", NULL, .width = 3}};
    int widths[4];
    unsigned order[4], fit;
    assert_int_equal(tui_columns_layout(c, 4, 0, 29, false, order, &fit, widths), 4);
    assert_int_equal(fit, 4);
    assert_int_equal(widths[0], 7);
    assert_int_equal(widths[1], 10);
    assert_int_equal(widths[2], 6);
    tui_columns_layout(c, 4, 0, 300, false, order, &fit, widths);
    assert_int_equal(widths[2], 100);

    /* Too narrow for all: B goes first because it says so, then those at the right; A never. */
    assert_int_equal(tui_columns_layout(c, 4, 0, 24, false, order, &fit, widths), 4);
    assert_int_equal(fit, 3);
    assert_memory_equal(order, ((unsigned[]){0, 2, 3, 1}), sizeof order);
    assert_int_equal(widths[0] + widths[2] + widths[3], 22);
    assert_int_equal(tui_columns_layout(c, 4, 0, 10, false, order, &fit, widths), 4);
    assert_int_equal(fit, 2);
    assert_memory_equal(order, ((unsigned[]){0, 2, 1, 3}), sizeof order);
    tui_columns_layout(c, 4, 0, 2, true, order, &fit, widths);
    assert_int_equal(fit, 1);
    assert_int_equal(widths[0], 9);

    /* Hidden ones take no room and are nowhere; the first cannot be hidden. */
    assert_int_equal(tui_columns_layout(c, 4, 1u << 0 | 1u << 2, 20, false, order, &fit, widths), 3);
    assert_int_equal(fit, 3);
    assert_memory_equal(order, ((unsigned[]){0, 1, 3}), 3 * sizeof *order);
    assert_int_equal(tui_columns_layout(c, 0, 0, 10, false, order, &fit, widths), 0);
}

static void test_settings(void **state)
{
    (void)state;
    static const struct tui_column four[] = {{"RANK", NULL, .width = 4},
                                             {"LAST CALL", NULL, .width = 4},
                                             {"HOST", NULL, .width = 4},
                                             {"HOSTS", NULL, .width = 4}};
    struct data data = {0};
    struct tui_table *table = tui_table_new(four, 4, &source, &data);
    struct tui_table *again = tui_table_new(four, 4, &source, &data);
    char home[] = "/tmp/tui-settings.XXXXXX", reason[256], path[512];
    assert_non_null(mkdtemp(home));
    setenv("XDG_CONFIG_HOME", home, 1);
    const struct tui_setting settings = {"ranks", table}, same = {"ranks", again};
    tui_table_hide(table, 0, true);
    tui_table_hide(table, 1, true);
    tui_table_hide(table, 3, true);
    assert_true(tui_settings_save("test", &settings, 1, reason, sizeof reason));
    tui_settings_load("test", &same, 1);
    assert_false(tui_table_hides(again, 0));
    assert_true(tui_table_hides(again, 1));
    assert_false(tui_table_hides(again, 2));
    assert_true(tui_table_hides(again, 3));
    snprintf(path, sizeof path, "%s/flight-recorder/test.conf", home);
    assert_int_equal(unlink(path), 0);
    tui_settings_load("test", &same, 1); /* no file is no news */
    assert_int_equal(chmod(home, 0700), 0);
    snprintf(path, sizeof path, "%s/flight-recorder", home);
    assert_int_equal(rmdir(path), 0);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_false(tui_settings_save("test", &settings, 1, reason, sizeof reason));
    assert_non_null(strstr(reason, "test.conf: Not a directory"));
    unlink(path);
    rmdir(home);
    tui_table_free(table);
    tui_table_free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sort),
        cmocka_unit_test(test_selection_stays),
        cmocka_unit_test(test_filter_and_search),
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_strange_trees),
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
