/* The report for people: the sentence first, then who waits, then what it rests on. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze.h"
#include "fr-common.h"

#define INDENT      2
#define OTHERS_MAX  8
#define HOSTS_MAX   8
#define WIDTH_PLAIN 100
#define WIDTH_LIMIT 120

static int width(void)
{
    int columns = fr_columns(stdout);
    return columns <= 0 ? WIDTH_PLAIN : columns > WIDTH_LIMIT ? WIDTH_LIMIT : columns < 40 ? 40 : columns;
}

static size_t columns_of(const char *word, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += ((unsigned char)word[i] & 0xc0) != 0x80;
    return n;
}

void print_wrapped(const char *text, size_t indent, size_t hang)
{
    size_t limit = (size_t)width(), column = indent;
    size_t room = strlen(text) * 8 + 1;
    char *clean = malloc(room);
    if (!clean) {
        fputs("…\n", stdout);
        return;
    }
    fr_clean(clean, room, text);
    printf("%*s", (int)indent, "");
    bool first = true;
    for (const char *word = clean; *word;) {
        size_t blanks = strspn(word, " ");
        size_t bytes = strcspn(word + blanks, " ");
        size_t columns = columns_of(word + blanks, bytes);
        if (!first && column + blanks + columns > limit) {
            printf("\n%*s", (int)hang, "");
            column = hang;
        } else {
            printf("%*s", (int)blanks, "");
            column += blanks;
        }
        printf("%.*s", (int)bytes, word + blanks);
        column += columns;
        first = false;
        word += blanks + bytes;
    }
    putchar('\n');
    free(clean);
}

static void print_ranks(const char *label, const int32_t *ranks, size_t count)
{
    char folded[512];
    if (fr_fold_ranks(folded, sizeof folded, ranks, count))
        printf("%s [%s]\n", label, folded);
    else
        printf("%s [%s] (%zu ranks)\n", label, folded, count);
}

static void capitalize(char *text)
{
    if (*text >= 'a' && *text <= 'z')
        *text = (char)(*text - 'a' + 'A');
}

static void print_sentence(const struct rec_finding *f, size_t indent)
{
    char *sentence = NULL;
    if (asprintf(&sentence, "%s.", f->summary ? f->summary : "") < 0)
        return;
    capitalize(sentence);
    print_wrapped(sentence, indent, indent);
    free(sentence);
}

/* The hosts of several culprits; one is in the sentence. */
static void print_hosts(const struct rec_job *job, const struct rec_verdict *verdict,
                        const struct rec_finding *f)
{
    size_t count, size;
    const char **hosts = f->nculprits > 1 ? rec_finding_hosts(job, verdict, f, &count) : NULL;
    char *text = NULL;
    FILE *out = hosts && count ? open_memstream(&text, &size) : NULL;
    if (out) {
        fputs("on hosts: [", out);
        for (size_t i = 0; i < count && i < HOSTS_MAX; i++)
            fprintf(out, "%s%s", i ? ", " : "", hosts[i]);
        fputs("]", out);
        if (count > HOSTS_MAX)
            fprintf(out, " and %zu more (--json lists all)", count - HOSTS_MAX);
        if (fclose(out) == 0)
            print_wrapped(text, 0, INDENT);
    }
    free(text);
    free(hosts);
}

static void print_main(const struct rec_job *job, const struct rec_verdict *verdict)
{
    const struct rec_finding *f = &verdict->findings[0];
    bool color = fr_color(stdout);
    printf("%s%s%s (%s)\n", color ? "\033[1m" : "", rec_verdict_type_name(f->type), color ? "\033[0m" : "",
           rec_confidence_name(f->confidence));
    print_sentence(f, INDENT);
    putchar('\n');
    print_ranks("hanging ranks:", f->culprits, f->nculprits);
    print_hosts(job, verdict, f);
    if (f->nsuspects)
        print_ranks("possible, not proven:", f->suspects, f->nsuspects);
    if (f->nvictims)
        print_ranks("waiting because of it:", f->victims, f->nvictims);
    if (!f->nevidence)
        return;
    printf("\nEvidence:\n");
    for (size_t i = 0; i < f->nevidence; i++)
        print_wrapped(f->evidence[i].text, INDENT, INDENT + 2);
}

static void print_others(const struct rec_verdict *verdict)
{
    if (verdict->nfindings < 2)
        return;
    printf("\nAlso found:\n");
    for (size_t i = 1; i < verdict->nfindings && i <= OTHERS_MAX; i++) {
        const struct rec_finding *f = &verdict->findings[i];
        char *line = NULL;
        if (asprintf(&line, "%s (%s): %s.", rec_verdict_type_name(f->type),
                     rec_confidence_name(f->confidence), f->summary ? f->summary : "") >= 0)
            print_wrapped(line, INDENT, INDENT + 2);
        free(line);
    }
    if (verdict->nfindings > OTHERS_MAX + 1)
        printf("  … and %zu more (--json lists all)\n", verdict->nfindings - OTHERS_MAX - 1);
}

static const char *plural(size_t count)
{
    return count == 1 ? "" : "s";
}

static void print_job(const struct rec_job *job)
{
    const struct rec_job_info *info = rec_job_info(job);
    char span[80], *line = NULL;
    format_span(span, sizeof span, info->start_ns, info->last_ns);
    if (asprintf(&line, "Job: %s, %s", info->id, span) >= 0)
        print_wrapped(line, 0, INDENT);
    free(line);
}

static void print_input(const struct rec_job *job, const struct rec_census *census)
{
    struct rec_job_input input;
    rec_job_input(job, &input);
    size_t nprocs, nwarnings;
    rec_job_processes(job, &nprocs);
    const char *const *warnings = rec_job_warnings(job, &nwarnings);
    uint32_t expected = census->generations[census->ngenerations - 1].expected;
    putchar('\n');
    print_job(job);
    printf("Read: %zu process%s", nprocs, nprocs == 1 ? "" : "es");
    if (expected)
        printf(" of %" PRIu32 " rank%s", expected, plural(expected));
    printf(", %" PRIu32 " file%s, %" PRIu32 " live region%s", input.files, plural(input.files), input.live,
           plural(input.live));
    if (input.dropped_ops)
        printf("; %" PRIu64 " call%s no record", input.dropped_ops,
               input.dropped_ops == 1 ? " has" : "s have");
    putchar('\n');
    for (size_t i = 0; i < nwarnings && i < OTHERS_MAX; i++)
        print_wrapped(warnings[i], INDENT, INDENT + 2);
    if (nwarnings > OTHERS_MAX)
        printf("  … and %zu more\n", nwarnings - OTHERS_MAX);
}

void print_verdict(const struct rec_job *job, const struct rec_verdict *verdict)
{
    print_main(job, verdict);
    print_others(verdict);
    print_remarkable(verdict->census);
    print_input(job, verdict->census);
}
