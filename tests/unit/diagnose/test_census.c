/* What an analysis tells besides its findings, and what is no fault at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "story.h"

static const struct rec_comm_census *row_of(const struct rec_census *census, const char *name)
{
    for (size_t i = 0; i < census->ncomms; i++)
        if (strcmp(census->comms[i].comm->name, name) == 0)
            return &census->comms[i];
    fail_msg("no communicator %s", name);
    return NULL;
}

static void figures(void **state)
{
    (void)state;
    struct story story;
    story_tell(
        &story, 4,
        "* init w\n 0-1 split w a\n * wait 5\n repeat 10 0-1 ar a 100\n 0 send w 1 50\n 1 recv w 0 50\n"
        "* ar w 8\n * exit 0");
    const struct rec_census *census = story.verdict->census;
    assert_int_equal(census->ngenerations, 1);
    assert_int_equal(census->generations[0].expected, 4);
    assert_int_equal(census->generations[0].nranks, 4);
    assert_int_equal(census->ncomms, 2);
    assert_string_equal(census->comms[0].comm->name, "w");
    const struct rec_comm_census *w = row_of(census, "w"), *a = row_of(census, "a");
    assert_int_equal(w->collectives, 1);
    assert_int_equal(w->sends, 1);
    assert_int_equal(w->bytes, 4 * 8 * 4 + 2 * 50 * 4);
    assert_int_equal(a->collectives, 10);
    assert_int_equal(a->bytes, 2 * 10 * 100 * 4);
    assert_ptr_equal(a->comm->parent, w->comm);
    assert_null(a->same_members);
    assert_int_equal(census->nnotes, 0);
    story_end(&story);
}

static void same_members(void **state)
{
    (void)state;
    struct story story;
    story_tell(&story, 3,
               "* init w\n * init x\n 0-1 init y\n repeat 3 * ar w 9\n * ar x 9\n 0-1 ar y 9\n * exit 0");
    const struct rec_census *census = story.verdict->census;
    assert_null(row_of(census, "w")->same_members);
    assert_ptr_equal(row_of(census, "x")->same_members, row_of(census, "w")->comm);
    assert_null(row_of(census, "y")->same_members);
    assert_int_equal(census->nnotes, 1);
    assert_string_equal(census->notes[0],
                        "2 communicators in use have the same members, ranks 0-2: \"w\", \"x\"");
    story_end(&story);
    /* One after the other is no two at a time. */
    story_tell(&story, 3, "* init a\n * ar a 9\n * destroy a\n * init b\n * ar b 9\n * destroy b\n * exit 0");
    census = story.verdict->census;
    assert_ptr_equal(row_of(census, "b")->same_members, row_of(census, "a")->comm);
    assert_int_equal(census->nnotes, 0);
    story_end(&story);
    story_tell(&story, 3,
               "* init w\n * ar w 9\n * init a\n * ar a 9\n * destroy a\n * init b\n * ar b 9\n * destroy "
               "b\n * exit 0");
    assert_int_equal(story.verdict->census->nnotes, 1);
    assert_non_null(strstr(story.verdict->census->notes[0], "3 communicators in use"));
    story_end(&story);
}

static void orders(void **state)
{
    (void)state;
    struct {
        const char *story;
        size_t differences;
    } told[] = {
        /* the same everywhere, with and without ops in between */
        {"repeat 5 * ar a 9\n repeat 3 * ar b 9 stream 1\n * ar a 9\n * ar b 9 stream 1\n", 0},
        /* rank 2 issues b's first */
        {"repeat 5 * ar a 9\n *-2 ar a 7\n *-2 ar b 9 stream 1\n 2 ar b 9 stream 1\n 2 ar a 7\n", 1},
        /* the very first ones */
        {"0 ar a 9\n 0 ar b 9 stream 1\n 1-2 ar b 9 stream 1\n 1-2 ar a 9\n", 1},
        /* inside a group there is no order */
        {"0 {\n 0 ar a 9\n 0 ar b 9 stream 1\n 0 }\n 1-2 {\n 1-2 ar b 9 stream 1\n 1-2 ar a 9\n 1-2 }\n", 0},
    };
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        struct story story;
        char text[512];
        snprintf(text, sizeof text, "* init a\n * init b\n %s * exit 0", told[i].story);
        story_tell(&story, 3, text);
        const struct rec_census *census = story.verdict->census;
        assert_int_equal(story.verdict->findings[0].type, REC_VERDICT_HEALTHY);
        assert_int_equal(census->ndifferences, told[i].differences);
        assert_true(census->whole);
        if (told[i].differences)
            assert_non_null(strstr(census->notes[0], "issued in different orders"));
        story_end(&story);
    }
}

static void host_clocks(void **state)
{
    (void)state;
    struct story story;
    story_tell(&story, 24, "8-15 clock 3000\n * init w\n 0-15 init x\n repeat 20 * ar w 9\n * exit 0");
    const struct rec_census *census = story.verdict->census;
    assert_int_equal(census->nclocks, 3);
    for (size_t i = 0; i < 3; i++) {
        const struct rec_host_clock *clock = &census->clocks[i];
        int64_t ns = strcmp(clock->host, "node-1") == 0 ? 3000000000 : 0;
        assert_true(clock->known);
        assert_true(llabs(clock->offset_ns - ns) <= (int64_t)clock->uncertainty_ns);
        assert_true(clock->uncertainty_ns < 1000000);
    }
    story_end(&story);
}

/* Times of traces may be anything: sums of such differences must not overflow. */
static void absurd_clocks(void **state)
{
    (void)state;
    struct story story;
    story_tell(&story, 24, "8-15 clock 9000000000000\n * init w\n repeat 20 * ar w 9\n * exit 0");
    const struct rec_census *census = story.verdict->census;
    for (size_t i = 0; i < census->nclocks; i++)
        assert_in_range(llabs(census->clocks[i].offset_ns), 0, INT64_MAX / 4);
    story_end(&story);
}

/* Frameworks send what NCCL has no type for as another one: the bytes are what matters. */
static void other_types(void **state)
{
    (void)state;
    story_expect(4, "* init w\n repeat 5 * ag w 64 f16\n repeat 5 * a2a w 128 f32\n * exit 0", "healthy", "",
                 "*");
    story_expect(4,
                 "* init w\n repeat 5 * ag w 64 f32\n *-1 ag w 64 f32\n 1 ag w 256 u8\n * ar w 9\n * exit 0",
                 "healthy", "", "*");
    story_expect(2, "* init w\n 0 bc w 100 f64\n 1 bc w 200 f32\n * ar w 9\n * exit 0", "healthy", "", "*");
    story_expect(2, "* init w\n 0 send w 1 100 f64\n 1 recv w 0 200 f32\n * ar w 9\n * exit 0", "healthy", "",
                 "*");
    story_expect(4,
                 "* init w\n loop 1500 ( *-1 ag w 64 f32, 1 ag w 256 u8, * ar w 9 )\n *-2 ar w 9\n 2 ar w 5\n"
                 "* wait 8000",
                 "signature_mismatch", "2", "*-2");
    /* A reduction computes with the type. */
    story_expect(4, "* init w\n *-1 ar w 64 bf16\n 1 ar w 64 f16\n * ar w 9\n * exit 0", "signature_mismatch",
                 "1", "*-1");
}

/* What no record shows is said, whatever the verdict. */
static void unseen(void **state)
{
    (void)state;
    struct story story;
    story_tell(&story, 4, "* init w\n 1-2 devcomm w\n repeat 5 * ar w 9\n * exit 0");
    const struct rec_census *census = story.verdict->census;
    assert_int_equal(story.verdict->status, REC_STATUS_HEALTHY);
    assert_int_equal(census->nnotes, 1);
    assert_non_null(strstr(census->notes[0], "kernels of ranks 1-2 communicate by themselves"));
    story_end(&story);
    story_tell(&story, 4,
               "* init w\n 0-1 capture 3\n 2-3 capture\n * ar w 9\n 0-1 replay 3\n * ar w 9\n * exit 0");
    census = story.verdict->census;
    assert_int_equal(story.verdict->status, REC_STATUS_HEALTHY);
    assert_int_equal(census->nnotes, 1);
    assert_non_null(
        strstr(census->notes[0], "calls of ranks 2-3 were captured into CUDA graphs whose launches"));
    story_end(&story);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures),     cmocka_unit_test(same_members),  cmocka_unit_test(orders),
        cmocka_unit_test(host_clocks), cmocka_unit_test(absurd_clocks), cmocka_unit_test(other_types),
        cmocka_unit_test(unseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
