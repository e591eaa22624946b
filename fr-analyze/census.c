/* The census as text: runs, clocks and communicators of the job. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "analyze.h"
#include "fr-common.h"

#define NOTES_MAX 4
#define DAY_NS    UINT64_C(86400000000000)
#define TELL_NS   INT64_C(100000000) /* a clock that is off by more is worth a line in every report */

static void format_clock(char *buffer, size_t size, uint64_t ns, bool dated)
{
    time_t seconds = (time_t)(ns / 1000000000);
    struct tm tm;
    if (!ns || !gmtime_r(&seconds, &tm) ||
        !strftime(buffer, size, dated ? "%Y-%m-%d %H:%M:%S" : "%H:%M:%S", &tm))
        snprintf(buffer, size, "?");
}

void format_span(char *buffer, size_t size, uint64_t start_ns, uint64_t last_ns)
{
    char from[32], to[32];
    format_clock(from, sizeof from, start_ns, true);
    format_clock(to, sizeof to, last_ns, start_ns / DAY_NS != last_ns / DAY_NS);
    snprintf(buffer, size, "%s to %s UTC", from, to);
}

static void print_note(const char *note)
{
    char *line = NULL;
    if (asprintf(&line, "%s.", note) >= 0) {
        if (*line >= 'a' && *line <= 'z')
            *line = (char)(*line - 'a' + 'A');
        print_wrapped(line, 2, 4);
    }
    free(line);
}

/* ---- runs ---- */

static void print_generation(const struct rec_census *census, size_t index)
{
    const struct rec_generation *g = &census->generations[index];
    char ranks[128], span[80], *line = NULL;
    fr_fold_ranks(ranks, sizeof ranks, g->ranks, g->nranks);
    format_span(span, sizeof span, g->start_ns, g->last_ns);
    bool last = index + 1 == census->ngenerations;
    int length = asprintf(&line, "%zu. %s, ranks [%s]%s%s%s%s%s%s", index + 1, span, ranks,
                          g->restart[0] ? ", restart " : "", g->restart,
                          last ? " (the verdict is about this one)" : "", g->type ? "; " : "",
                          g->type ? g->type : "", g->type ? ": " : "");
    if (length >= 0 && g->summary) {
        char *more = NULL;
        if (asprintf(&more, "%s%s", line, g->summary) >= 0) {
            free(line);
            line = more;
        }
    }
    if (length >= 0)
        print_wrapped(line, 2, 5);
    free(line);
}

static void print_generations(const struct rec_census *census, size_t most)
{
    if (census->ngenerations < 2)
        return;
    printf("\nGenerations (restarts of the job): %zu\n", census->ngenerations);
    size_t from = census->ngenerations > most ? census->ngenerations - most : 0;
    if (from)
        printf("  … %zu earlier ones (--census lists all)\n", from);
    for (size_t i = from; i < census->ngenerations; i++)
        print_generation(census, i);
}

/* ---- clocks ---- */

static void format_ns(char *buffer, size_t size, uint64_t ns)
{
    if (ns < 1000000)
        snprintf(buffer, size, "%.1f us", (double)ns / 1e3);
    else if (ns < 1000000000)
        snprintf(buffer, size, "%.3f ms", (double)ns / 1e6);
    else
        snprintf(buffer, size, "%.6f s", (double)ns / 1e9);
}

static void print_clocks(const struct rec_census *census, bool all)
{
    size_t shown = 0, most = all ? SIZE_MAX : NOTES_MAX, left = 0;
    for (size_t i = 1; i < census->nclocks; i++) {
        const struct rec_host_clock *c = &census->clocks[i];
        int64_t off = c->offset_ns < 0 ? -c->offset_ns : c->offset_ns;
        if (!all && (!c->known || off < TELL_NS || (uint64_t)off < c->uncertainty_ns))
            continue;
        if (shown == most) {
            left++;
            continue;
        }
        if (!shown++) {
            char first[160];
            printf("\nClocks against that of %s:\n", fr_clean(first, sizeof first, census->clocks[0].host));
        }
        char host[160], offset[32], uncertainty[32];
        fr_clean(host, sizeof host, c->host);
        format_ns(offset, sizeof offset, (uint64_t)off);
        format_ns(uncertainty, sizeof uncertainty, c->uncertainty_ns);
        if (c->known)
            printf("  %s  %c%s ± %s  (%" PRIu32 " samples)\n", host, c->offset_ns < 0 ? '-' : '+', offset,
                   uncertainty, c->samples);
        else
            printf("  %s  unknown: it shares no communicator\n", host);
    }
    if (left)
        printf("  … and %zu more (--census lists all)\n", left);
}

/* ---- communicators ---- */

static void format_bytes(char *buffer, size_t size, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1000 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1024;
    snprintf(buffer, size, unit && value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

static void format_name(char *buffer, size_t size, const struct rec_communicator *comm)
{
    char clean[48];
    if (comm->name[0])
        snprintf(buffer, size, "\"%s\"", fr_clean(clean, sizeof clean, comm->name));
    else if (comm->uid)
        snprintf(buffer, size, "%016" PRIx64, comm->uid);
    else
        snprintf(buffer, size, "(never complete)");
}

static size_t number_of(const struct rec_census *census, const struct rec_communicator *comm)
{
    for (size_t i = 0; i < census->ncomms; i++)
        if (census->comms[i].comm == comm)
            return i + 1;
    return 0;
}

static void print_communicator(const struct rec_census *census, size_t index)
{
    const struct rec_comm_census *row = &census->comms[index];
    const struct rec_communicator *comm = row->comm;
    char name[64], ranks[24], bytes[24], size[24];
    format_name(name, sizeof name, comm);
    fr_fold_ranks(ranks, sizeof ranks, row->ranks, comm->nmembers);
    format_bytes(bytes, sizeof bytes, row->bytes);
    snprintf(size, sizeof size, "%" PRIu32, comm->nranks);
    if (comm->nmembers < comm->nranks)
        snprintf(size, sizeof size, "%" PRIu32 "/%" PRIu32, comm->nmembers, comm->nranks);
    const char *made_by = rec_kind_name(comm->made_by);
    printf("  %3zu  %-18s %7s  %-22s %11" PRIu64 " %10" PRIu64 " %9s  %s", index + 1, name, size, ranks,
           row->collectives, row->sends + row->onesided, bytes, made_by ? made_by : "?");
    if (comm->parent)
        printf(" of #%zu", number_of(census, comm->parent));
    if (row->same_members)
        printf(", same members as #%zu", number_of(census, row->same_members));
    if (row->lost)
        printf(", %" PRIu64 " calls have no record", row->lost);
    putchar('\n');
}

void print_remarkable(const struct rec_census *census)
{
    print_generations(census, NOTES_MAX);
    print_clocks(census, false);
    if (!census->nnotes)
        return;
    printf("\nCommunicators:\n");
    for (size_t i = 0; i < census->nnotes && i < NOTES_MAX; i++)
        print_note(census->notes[i]);
    if (census->nnotes > NOTES_MAX)
        printf("  … and %zu more (--census lists all)\n", census->nnotes - NOTES_MAX);
}

void print_census(const struct rec_census *census)
{
    printf("\nCensus: %zu communicator%s, %zu host%s, %zu generation%s\n", census->ncomms,
           census->ncomms == 1 ? "" : "s", census->nclocks, census->nclocks == 1 ? "" : "s",
           census->ngenerations, census->ngenerations == 1 ? "" : "s");
    if (census->ngenerations > NOTES_MAX)
        print_generations(census, SIZE_MAX);
    print_clocks(census, true);
    printf("\n    #  %-18s %7s  %-22s %11s %10s %9s  %s\n", "communicator", "ranks", "job ranks",
           "collectives", "messages", "bytes", "made by");
    for (size_t i = 0; i < census->ncomms; i++) {
        if (census->ngenerations > 1 &&
            (!i || census->comms[i].generation != census->comms[i - 1].generation))
            printf("  generation %" PRIu32 "\n", census->comms[i].generation + 1);
        print_communicator(census, i);
    }
    if (census->nnotes > NOTES_MAX) {
        printf("\nNotes:\n");
        for (size_t i = 0; i < census->nnotes; i++)
            print_note(census->notes[i]);
    }
    printf("\nThe order of collectives on different communicators was compared on %s.\n",
           census->whole ? "all recorded calls" : "the last calls of each process only");
}
