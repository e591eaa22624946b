/*
 * --by-site: what the calls of each line of code add up to. Calls are told apart by op and by the
 * line's words (row_site), with --stack by the whole stack.
 */
#include <stdlib.h>
#include <string.h>

#include "dump.h"
#include "out.h"
#include "row.h"

struct total {
    const struct rec_callsite_def *site; /* of the first call; NULL = not known */
    char *words;                         /* "" = not known */
    unsigned kind;
    const struct rec_process *last; /* calls of a process come together */
    uint64_t processes, calls, open;
    uint64_t bytes;                /* 0 for calls that move no data */
    uint64_t host_ns, host_max_ns; /* of calls that returned */
    uint64_t gpu_calls, gpu_ns;    /* of those whose times are known */
};

/* (site, kind) → number of its total + 1; 0 = free. Sites are shared by all processes of a job. */
struct entry {
    const struct rec_callsite_def *site;
    unsigned kind;
    uint32_t total;
};

static struct {
    struct total *totals;
    size_t count, room;
    struct entry *entries;
    size_t used, slots; /* slots: a power of two, never full */
    bool no_memory;
} sites;

static struct entry *entry_at(const struct entry *entries, size_t slots, const struct rec_callsite_def *site,
                              unsigned kind)
{
    size_t i = rec_mix64((uintptr_t)site ^ (uint64_t)kind << 56) & (slots - 1);
    while (entries[i].total != 0 && (entries[i].site != site || entries[i].kind != kind))
        i = (i + 1) & (slots - 1);
    return (struct entry *)&entries[i];
}

static bool grow_entries(void)
{
    size_t slots = sites.slots ? 2 * sites.slots : 1024;
    struct entry *entries = calloc(slots, sizeof(*entries));
    if (!entries)
        return false;
    for (size_t i = 0; i < sites.slots; i++)
        if (sites.entries[i].total != 0)
            *entry_at(entries, slots, sites.entries[i].site, sites.entries[i].kind) = sites.entries[i];
    free(sites.entries);
    sites.entries = entries;
    sites.slots = slots;
    return true;
}

/* Number of the total with these words, made if new; REC_ID_NONE without memory. */
static uint32_t total_of(const struct rec_callsite_def *site, unsigned kind)
{
    const char *words = row_site(site);
    for (size_t i = 0; i < sites.count && !dump_stacks; i++)
        if (sites.totals[i].kind == kind && strcmp(sites.totals[i].words, words) == 0)
            return (uint32_t)i;
    if (sites.count == sites.room) {
        size_t room = sites.room ? 2 * sites.room : 64;
        struct total *totals = reallocarray(sites.totals, room, sizeof(*totals));
        if (!totals)
            return REC_ID_NONE;
        sites.totals = totals;
        sites.room = room;
    }
    sites.totals[sites.count] = (struct total){.site = site, .kind = kind, .words = strdup(words)};
    if (!sites.totals[sites.count].words)
        return REC_ID_NONE;
    return (uint32_t)sites.count++;
}

static struct total *find_total(const struct rec_callsite_def *site, unsigned kind)
{
    if (sites.used * 2 >= sites.slots && !grow_entries())
        return NULL;
    struct entry *entry = entry_at(sites.entries, sites.slots, site, kind);
    if (entry->total == 0) {
        uint32_t total = total_of(site, kind);
        if (total == REC_ID_NONE)
            return NULL;
        *entry = (struct entry){.site = site, .kind = kind, .total = total + 1};
        sites.used++;
    }
    return &sites.totals[entry->total - 1];
}

static void add_op(const struct rec_process *process, const struct rec_op *op)
{
    if (op->flags & REC_OF_PART)
        return;
    const struct rec_callsite_def *site = op->callsite ? rec_process_callsite(process, op->callsite) : NULL;
    struct total *total = sites.no_memory ? NULL : find_total(site, op->kind);
    if (!total) {
        sites.no_memory = true;
        return;
    }
    uint64_t bytes;
    total->processes += total->last != process;
    total->last = process;
    total->calls++;
    if (row_op_bytes(op, &bytes))
        total->bytes += bytes;
    if (op->flags & REC_OF_OPEN) {
        total->open++;
    } else if (op->exit_ns >= op->enter_ns) {
        uint64_t ns = op->exit_ns - op->enter_ns;
        total->host_ns += ns;
        total->host_max_ns = ns > total->host_max_ns ? ns : total->host_max_ns;
    }
    if (op->gpu_start_ns && op->gpu_end_ns >= op->gpu_start_ns) {
        total->gpu_calls++;
        total->gpu_ns += op->gpu_end_ns - op->gpu_start_ns;
    }
}

/* Most time first: on the GPU, where that is known, then of the host threads. */
static int by_time(const void *a, const void *b)
{
    const struct total *x = a, *y = b;
    if (x->gpu_ns != y->gpu_ns)
        return x->gpu_ns < y->gpu_ns ? 1 : -1;
    if (x->host_ns != y->host_ns)
        return x->host_ns < y->host_ns ? 1 : -1;
    if (x->calls != y->calls)
        return x->calls < y->calls ? 1 : -1;
    return x->kind != y->kind ? (x->kind < y->kind ? -1 : 1) : strcmp(x->words, y->words);
}

/* "1.23GB": decimal, as rates of links are told. */
static const char *bytes_text(uint64_t bytes, char *buffer, size_t size)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    size_t unit = 0;
    double value = (double)bytes;
    for (; value >= 999.5 && unit < 6; unit++)
        value /= 1000;
    if (unit == 0 || value >= 100)
        snprintf(buffer, size, "%.0f%s", value, units[unit]);
    else
        snprintf(buffer, size, "%.*f%s", value >= 10 ? 1 : 2, value, units[unit]);
    return buffer;
}

static void put_text_total(const struct total *total)
{
    char bytes[16], host[16], longest[16], gpu[16], name[16], site[512];
    uint64_t returned = total->calls - total->open;
    dump_duration(total->host_ns, host, sizeof(host));
    dump_duration(total->host_max_ns, longest, sizeof(longest));
    dump_duration(total->gpu_ns, gpu, sizeof(gpu));
    out_format("%9llu %5llu %4llu %7s %7s %7s %7s %-13s %s\n", (unsigned long long)total->calls,
               (unsigned long long)total->processes, (unsigned long long)total->open,
               total->bytes ? bytes_text(total->bytes, bytes, sizeof(bytes)) : "-", returned ? host : "-",
               returned ? longest : "-", total->gpu_calls ? gpu : "-",
               row_op_name(total->kind, name, sizeof(name)),
               total->site ? fr_clean(site, sizeof(site), total->words) : "-");
    if (dump_stacks && total->site)
        dump_text_stack(total->site);
}

static int end(void)
{
    for (size_t i = 0; i < sites.count; i++)
        free(sites.totals[i].words);
    free(sites.totals);
    free(sites.entries);
    return sites.no_memory ? fr_errorf(NULL, "no memory: not all calls are counted") : 0;
}

static int finish_text(void)
{
    qsort(sites.totals, sites.count, sizeof(*sites.totals), by_time);
    out_text("    CALLS PROCS OPEN   BYTES IN CALL LONGEST  ON GPU OP            SITE\n");
    for (size_t i = 0; i < sites.count; i++)
        put_text_total(&sites.totals[i]);
    return end();
}

static int finish_json(void)
{
    qsort(sites.totals, sites.count, sizeof(*sites.totals), by_time);
    for (size_t i = 0; i < sites.count; i++) {
        const struct total *total = &sites.totals[i];
        char name[16];
        out_text("{\"op\":");
        out_json(row_op_name(total->kind, name, sizeof(name)));
        if (total->site) {
            out_text(",\"site\":");
            out_json(total->words);
        }
        out_format(",\"calls\":%llu,\"processes\":%llu,\"open\":%llu,\"bytes\":%llu,\"host_ns\":%llu,"
                   "\"host_max_ns\":%llu",
                   (unsigned long long)total->calls, (unsigned long long)total->processes,
                   (unsigned long long)total->open, (unsigned long long)total->bytes,
                   (unsigned long long)total->host_ns, (unsigned long long)total->host_max_ns);
        if (total->gpu_calls)
            out_format(",\"gpu_calls\":%llu,\"gpu_ns\":%llu", (unsigned long long)total->gpu_calls,
                       (unsigned long long)total->gpu_ns);
        if (dump_stacks && total->site)
            dump_json_stack(total->site);
        out_text("}\n");
    }
    return end();
}

const struct dump_printer dump_sites = {.op = add_op, .finish = finish_text};
const struct dump_printer dump_sites_json = {.op = add_op, .finish = finish_json};
