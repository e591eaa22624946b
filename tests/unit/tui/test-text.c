#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <wchar.h>

#include <cmocka.h>

#include "fr-tui/line.h"
#include "fr-tui/text.h"

static void expect_field(const char *text, size_t from, int width, enum tui_align align, bool utf8,
                         const wchar_t *want)
{
    wchar_t field[TUI_FIELD_CHARS];
    tui_text_field(field, text, from, width, align, utf8);
    if (wcscmp(field, want) != 0)
        fail_msg("'%s' from %zu in %d gave '%ls', not '%ls'", text, from, width, field, want);
}

static void test_decode(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t codes[4];
    } cases[] = {
        {"a", {'a'}},
        {"\xc3\xa9", {0xe9}},
        {"\xe2\x82\xac", {0x20ac}},
        {"\xf0\x9f\x98\x80", {0x1f600}},
        {"\xc0\xaf", {0xfffd, 0xfffd}},             /* overlong */
        {"\xe0\x80\xaf", {0xfffd, 0xfffd, 0xfffd}}, /* overlong */
        {"\xed\xa0\x80", {0xfffd, 0xfffd, 0xfffd}}, /* surrogate */
        {"\xf4\x90\x80\x80", {0xfffd, 0xfffd, 0xfffd, 0xfffd}},
        {"\xe2\x82", {0xfffd, 0xfffd}}, /* ends in the middle */
        {"\xe2"
         "a",
         {0xfffd, 'a'}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *p = cases[i].text;
        for (size_t k = 0; k < 4 && cases[i].codes[k] != 0; k++)
            assert_int_equal(tui_utf8_next(&p), cases[i].codes[k]);
        assert_int_equal(tui_utf8_next(&p), 0);
        assert_int_equal(tui_utf8_next(&p), 0); /* stays at the end */
    }
}

static void test_encode_round_trip(void **state)
{
    (void)state;
    for (uint32_t code = 1; code <= 0x10ffff; code += 7) {
        char bytes[5] = "";
        const char *p = bytes;
        if (code >= 0xd800 && code <= 0xdfff)
            continue;
        bytes[tui_utf8_put(bytes, 4, code)] = '\0';
        assert_int_equal(tui_utf8_next(&p), code);
    }
    char room[2];
    assert_int_equal(tui_utf8_put(room, 2, 0x20ac), 0);
    assert_int_equal(tui_utf8_put(room, 2, 0x110000), 0);
}

static void test_field(void **state)
{
    (void)state;
    expect_field("abc", 0, 5, TUI_LEFT, true, L"abc  ");
    expect_field("abc", 0, 5, TUI_RIGHT, true, L"  abc");
    expect_field("abcdef", 0, 4, TUI_LEFT, true, L"abc\u2026");
    expect_field("abcdef", 0, 4, TUI_RIGHT, true, L"abc\u2026");
    expect_field("abcdef", 0, 4, TUI_LEFT, false, L"abc~");
    expect_field("abcdef", 0, 6, TUI_LEFT, true, L"abcdef");
    expect_field("abc", 0, 0, TUI_LEFT, true, L"");
    expect_field("abc", 0, -3, TUI_LEFT, true, L"");
    expect_field("abcdef", 2, 3, TUI_LEFT, true, L"cd\u2026");
    expect_field("abc", 9, 3, TUI_LEFT, true, L"   ");
}

static void test_wide(void **state)
{
    (void)state;
    expect_field("\xe6\xbc\xa2\xe5\xad\x97", 0, 4, TUI_LEFT, true, L"\u6f22\u5b57");
    expect_field("\xe6\xbc\xa2\xe5\xad\x97", 0, 3, TUI_LEFT, true, L"\u6f22\u2026");
    expect_field("\xe6\xbc\xa2\xe5\xad\x97", 0, 2, TUI_LEFT, true, L"\u2026 "); /* no half characters */
    expect_field("\xe6\xbc\xa2\xe5\xad\x97", 1, 4, TUI_LEFT, true, L" \u5b57 ");
    assert_int_equal(tui_text_cells("\xe6\xbc\xa2\xe5\xad\x97", true), 4);
    assert_int_equal(tui_text_cells("\xe6\xbc\xa2\xe5\xad\x97", false), 2);
}

static void test_sanitise(void **state)
{
    (void)state;
    expect_field("a\x1b[31mb", 0, 8, TUI_LEFT, true, L"a?[31mb ");
    expect_field("a\tb\nc", 0, 5, TUI_LEFT, true, L"a b?c");
    expect_field("\xc2\x9b"
                 "31m",
                 0, 4, TUI_LEFT, true, L"?31m"); /* C1 control */
    expect_field("a\xe2\x80\xae"
                 "b",
                 0, 3, TUI_LEFT, true, L"ab ");                   /* direction override */
    expect_field("e\xcc\x81", 0, 2, TUI_LEFT, true, L"e\u0301 "); /* combining mark stays */
    expect_field("\xcc\x81"
                 "e",
                 0, 2, TUI_LEFT, true, L"e "); /* nothing to combine with */
    expect_field("\xff\xfe", 0, 2, TUI_LEFT, true, L"\ufffd\ufffd");
    expect_field("\xc3\xa9", 0, 2, TUI_LEFT, false, L"? ");
}

static void expect_cut(const wchar_t *text, int skip, int cells, const wchar_t *want)
{
    wchar_t field[64];
    wcscpy(field, text);
    tui_text_cut(field, skip, cells);
    if (wcscmp(field, want) != 0)
        fail_msg("'%ls' cut at %d, %d gave '%ls', not '%ls'", text, skip, cells, field, want);
}

static void test_cut(void **state)
{
    (void)state;
    expect_cut(L"abcdef", 0, 6, L"abcdef");
    expect_cut(L"abcdef", 2, 3, L"cde");
    expect_cut(L"abcdef", 4, 9, L"ef");
    expect_cut(L"\u6f22\u5b57", 1, 3, L" \u5b57");
    expect_cut(L"\u6f22\u5b57", 0, 3, L"\u6f22 ");
    expect_cut(L"\u6f22\u5b57", 1, 2, L"  ");
    expect_cut(L"e\u0301x", 0, 1, L"e\u0301");
    expect_cut(L"abc", 1, 0, L"");
}

static void test_matches(void **state)
{
    (void)state;
    assert_true(tui_text_matches("AllReduce", "reduce"));
    assert_true(tui_text_matches("AllReduce", "gather|REDUCE"));
    assert_true(tui_text_matches("anything", ""));
    assert_true(tui_text_matches("anything", "||"));
    assert_false(tui_text_matches("AllReduce", "gather|send"));
    assert_false(tui_text_matches("", "a"));
    assert_false(tui_text_matches("ab", "abc"));
    assert_true(tui_text_matches("\xc3\x89tat", "\xc3\xa9ta"));
}

static void type(struct tui_line *line, const char *text)
{
    for (uint32_t code; (code = tui_utf8_next(&text)) != 0;)
        tui_line_key(line, (int)code);
}

static void test_line(void **state)
{
    (void)state;
    struct tui_line line;
    tui_line_set(&line, "");
    type(&line, "ab\xc3\xa9");
    assert_string_equal(line.text, "ab\xc3\xa9");
    tui_line_key(&line, TUI_KEY_LEFT);
    assert_true(tui_line_key(&line, 'x'));
    assert_string_equal(line.text, "abx\xc3\xa9");
    assert_true(tui_line_key(&line, TUI_KEY_DELETE));
    assert_string_equal(line.text, "abx");
    assert_true(tui_line_key(&line, TUI_KEY_BACKSPACE));
    assert_string_equal(line.text, "ab");
    tui_line_key(&line, TUI_KEY_HOME);
    assert_false(tui_line_key(&line, TUI_KEY_BACKSPACE));
    type(&line, "one two ");
    assert_true(tui_line_key(&line, TUI_CTRL('w')));
    assert_string_equal(line.text, "one ab");
    assert_true(tui_line_key(&line, TUI_CTRL('k')));
    assert_true(tui_line_key(&line, TUI_CTRL('u')));
    assert_string_equal(line.text, "");
    for (int i = 0; i < 1000; i++)
        tui_line_key(&line, 0x20ac);
    assert_true(line.length < sizeof line.text);
    assert_int_equal(line.length % 3, 0); /* whole characters only */
    assert_false(tui_line_key(&line, TUI_KEY_UP));
    assert_false(tui_line_key(&line, 0x1b));
}

int main(void)
{
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL)
        return 77; /* widths of characters come from the locale */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),   cmocka_unit_test(test_encode_round_trip),
        cmocka_unit_test(test_field),    cmocka_unit_test(test_wide),
        cmocka_unit_test(test_sanitise), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_matches),  cmocka_unit_test(test_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
