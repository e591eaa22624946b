/* What of a command line is kept, and what is hidden. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "secrets.h"

/* Arguments, and how they come out. */
static const char *const cases[][6] = {
    {"train.py", "train.py"},
    {"--hf-token=abc", "--hf-token=***"},
    {"--HF_Token=abc def", "--HF_Token=*** def"},
    {"HF_TOKEN=abc", "HF_TOKEN=***"},
    {"wandb.api_key=abc", "wandb.api_key=***"},
    {"--apikey=a", "--apikey=***"},
    {"--client-secret='a b' --lr=1", "--client-secret=*** --lr=1"},
    {"--db-password=", "--db-password="},
    {"--aws-credentials=/root/x", "--aws-credentials=***"},
    /* Words of the trade that only look alike. */
    {"--max-tokens=4096", "--max-tokens=4096"},
    {"--tokenizer=llama", "--tokenizer=llama"},
    {"--lr=1e-4", "--lr=1e-4"},
    /* Inside a command or a program. */
    {"HF_TOKEN=abc python train.py --api-key xyz --lr 1",
     "HF_TOKEN=*** python train.py --api-key *** --lr 1"},
    {"login(token = \"a b\", x=1)", "login(token = ***, x=1)"},
    {"{\"api_key\": \"abc\", \"n\": 2}", "{\"api_key\": ***, \"n\": 2}"},
    {"https://host/path?token=abc&x=1", "https://host/path?token=***&x=1"},
    {"the token is here", "the token is here"},
};

static void hides_what_is_named_so(void **state)
{
    (void)state;
    char out[256];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool expected = false;
        secrets_hide(cases[i][0], &expected, out, sizeof(out));
        assert_string_equal(out, cases[i][1]);
        assert_false(expected);
    }
}

static void an_option_speaks_of_the_next_argument(void **state)
{
    (void)state;
    static const char *const arguments[][2] = {
        {"--hf-token", "--hf-token"}, {"abc", "***"},   {"abc", "abc"},
        {"-password", "-password"},   {"--lr", "--lr"}, {"1", "1"},
        {"--tokens", "--tokens"},     {"7", "7"},       {"--secret", "--secret"},
    };
    char out[64];
    bool expected = false;
    for (size_t i = 0; i < sizeof(arguments) / sizeof(arguments[0]); i++) {
        secrets_hide(arguments[i][0], &expected, out, sizeof(out));
        assert_string_equal(out, arguments[i][1]);
    }
    assert_true(expected);
}

static void stays_within_the_buffer(void **state)
{
    (void)state;
    const char *text = "--hf-token=abc TOKEN=def secret:x";
    char out[64];
    for (size_t size = 1; size < sizeof(out); size++) {
        bool expected = false;
        memset(out, '#', sizeof(out));
        secrets_hide(text, &expected, out, size);
        assert_true(strlen(out) < size);
        for (size_t i = size; i < sizeof(out); i++)
            assert_int_equal(out[i], '#');
        assert_null(strstr(out, "abc"));
        assert_null(strstr(out, "def"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hides_what_is_named_so),
        cmocka_unit_test(an_option_speaks_of_the_next_argument),
        cmocka_unit_test(stays_within_the_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
