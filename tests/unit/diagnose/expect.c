/* What a story should be found to tell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "stage.h"
#include "story.h"

static bool fault_free(enum rec_verdict_type type)
{
    return type == REC_VERDICT_HEALTHY || type == REC_VERDICT_TRACE_MISSING ||
           type == REC_VERDICT_STRAGGLER || type == REC_VERDICT_INCONCLUSIVE;
}

void story_expect(int nranks, const char *text, const char *type, const char *culprits, const char *innocent)
{
    struct story story;
    story_tell(&story, nranks, text);
    const struct rec_finding *f = &story.verdict->findings[0];
    if (strcmp(rec_verdict_type_name(f->type), type) != 0)
        fail_msg("expected %s %s, got %s: %s", type, culprits, rec_verdict_type_name(f->type), f->summary);
    if (strcmp(story_culprits(&story), culprits) != 0)
        fail_msg("expected ranks [%s], got [%s]: %s", culprits, story_culprits(&story), f->summary);
    int ranks[RANKS_MAX];
    int count = *innocent ? story_ranks(innocent, nranks, ranks) : 0;
    for (size_t i = 0; i < story.verdict->nfindings; i++) {
        f = &story.verdict->findings[i];
        for (size_t j = 0; j < f->nculprits && !fault_free(f->type); j++)
            for (int k = 0; k < count; k++)
                if (f->culprits[j] == ranks[k])
                    fail_msg("rank %d is blamed: %s: %s", ranks[k], rec_verdict_type_name(f->type),
                             f->summary);
    }
    story_end(&story);
}

void story_expect_also(int nranks, const char *text, const char *type, const char *culprits)
{
    struct story story;
    story_tell(&story, nranks, text);
    bool found = false;
    for (size_t i = 1; i < story.verdict->nfindings && !found; i++) {
        const struct rec_finding *f = &story.verdict->findings[i];
        char folded[256];
        rec_fold_ranks(folded, sizeof folded, f->culprits, f->nculprits);
        found = strcmp(rec_verdict_type_name(f->type), type) == 0 && strcmp(folded, culprits) == 0;
    }
    if (!found)
        fail_msg("no %s of ranks [%s] beside: %s", type, culprits, story.verdict->findings[0].summary);
    story_end(&story);
}

void story_expect_words(int nranks, const char *text, const char *words)
{
    struct story story;
    story_tell(&story, nranks, text);
    const struct rec_finding *f = &story.verdict->findings[0];
    bool found = strstr(f->summary, words) != NULL;
    for (size_t i = 0; i < f->nevidence; i++)
        found = found || strstr(f->evidence[i].text, words);
    if (!found)
        fail_msg("no \"%s\" in: %s", words, f->summary);
    story_end(&story);
}

void story_expect_doubt(int nranks, const char *text, const char *confidence, const char *culprits,
                        const char *suspects)
{
    struct story story;
    story_tell(&story, nranks, text);
    const struct rec_finding *f = &story.verdict->findings[0];
    char folded[256];
    if (strcmp(rec_confidence_name(f->confidence), confidence) != 0)
        fail_msg("expected %s, got %s: %s", confidence, rec_confidence_name(f->confidence), f->summary);
    if (strcmp(story_culprits(&story), culprits) != 0)
        fail_msg("expected ranks [%s], got [%s]: %s", culprits, story_culprits(&story), f->summary);
    rec_fold_ranks(folded, sizeof folded, f->suspects, f->nsuspects);
    if (strcmp(folded, suspects) != 0)
        fail_msg("expected suspects [%s], got [%s]: %s", suspects, folded, f->summary);
    story_end(&story);
}
