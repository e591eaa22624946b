#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fr-tui/keys.h"

enum { CMD_OWN = TUI_APP, CMD_OTHER };
static const struct tui_binding own[] = {
    {CMD_OWN, {TUI_F(2), TUI_KEY_TAB}, "View", "next view"},
    {CMD_OTHER, {'t'}, NULL, "takes a shared key"},
};
static const struct tui_keymap full = {own, 2, TUI_ROWS_TREE, true};

static void test_lookup(void **state)
{
    (void)state;
    static const struct {
        int key, command;
    } cases[] = {
        {TUI_F(1), TUI_HELP},     {'h', TUI_HELP},         {'?', TUI_HELP},
        {TUI_F(3), TUI_SEARCH},   {'/', TUI_SEARCH},       {TUI_F(4), TUI_FILTER},
        {'\\', TUI_FILTER},       {TUI_F(5), TUI_TREE},    {TUI_F(6), TUI_SORT_MENU},
        {'<', TUI_SORT_MENU},     {'>', TUI_SORT_MENU},    {'I', TUI_SORT_INVERT},
        {TUI_F(10), TUI_QUIT},    {'q', TUI_QUIT},         {' ', TUI_TAG},
        {'F', TUI_FOLLOW},        {'Z', TUI_PAUSE},        {'g', TUI_FIRST},
        {'G', TUI_LAST},          {TUI_KEY_ESC, TUI_BACK}, {TUI_KEY_PAGE_UP, TUI_PAGE_UP},
        {TUI_KEY_TAB, CMD_OWN},   {'t', CMD_OTHER},        {'x', TUI_NONE},
        {TUI_KEY_NONE, TUI_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(tui_keymap_command(&full, cases[i].key), cases[i].command);
    static const struct {
        enum tui_rows rows;
        int filter, sort, tree;
    } groups[] = {{TUI_ROWS_NONE, TUI_NONE, TUI_NONE, TUI_NONE},
                  {TUI_ROWS_LINES, TUI_FILTER, TUI_NONE, TUI_NONE},
                  {TUI_ROWS_TABLE, TUI_FILTER, TUI_SORT_MENU, TUI_NONE},
                  {TUI_ROWS_TREE, TUI_FILTER, TUI_SORT_MENU, TUI_TREE}};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        struct tui_keymap bare = {NULL, 0, groups[i].rows, false};
        assert_int_equal(tui_keymap_command(&bare, TUI_F(4)), groups[i].filter);
        assert_int_equal(tui_keymap_command(&bare, TUI_F(6)), groups[i].sort);
        assert_int_equal(tui_keymap_command(&bare, TUI_F(5)), groups[i].tree);
        assert_int_equal(tui_keymap_command(&bare, 'Z'), TUI_NONE);
        assert_int_equal(tui_keymap_command(&bare, 'q'), TUI_QUIT);
    }
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        int key;
        const char *name;
    } cases[] = {
        {TUI_F(10), "F10"}, {TUI_F(15), "Shift-F3"}, {' ', "Space"},       {TUI_CTRL('l'), "^L"},
        {'q', "q"},         {TUI_KEY_ESC, "Esc"},    {TUI_KEY_TAB, "Tab"}, {TUI_KEY_PAGE_DOWN, "PgDn"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[16];
        tui_key_name(cases[i].key, name, sizeof name);
        assert_string_equal(name, cases[i].name);
    }
}

/* Whatever the width: nothing overlaps, nothing sticks out, Help goes last. */
static void test_bar(void **state)
{
    (void)state;
    size_t before = 0;
    for (int columns = 0; columns <= 300; columns++) {
        struct tui_bar_item items[TUI_BAR_ITEMS];
        size_t n = tui_keymap_bar(&full, columns, items);
        int end = 0;
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(items[i].start, end);
            end += items[i].width;
            assert_true(items[i].width >= (int)strlen(items[i].label) + 2);
        }
        assert_true(end <= columns);
        assert_true(n >= before);
        if (n > 0)
            assert_int_equal(items[0].command, TUI_HELP);
        if (n > 1)
            assert_int_equal(items[n - 1].command, TUI_QUIT);
        before = n;
    }
    assert_int_equal(before, 7); /* F1 … F6 and F10 */
}

/* Every command that has a key is in the help with that key's name. */
static void test_help(void **state)
{
    (void)state;
    char keys[64];
    const char *help;
    size_t lines = 0;
    bool view = false, quit = false;
    while (tui_keymap_help(&full, lines, keys, sizeof keys, &help)) {
        assert_true(keys[0] != '\0' && help[0] != '\0');
        view |= strcmp(keys, "F2 Tab") == 0 && strcmp(help, "next view") == 0;
        quit |= strcmp(keys, "F10 q") == 0;
        lines++;
    }
    assert_true(view && quit);
    assert_true(lines > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_bar),
        cmocka_unit_test(test_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
