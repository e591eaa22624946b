#include "fr-top/lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fr-top/views.h"

struct tui_mark top_state_mark(enum top_state state)
{
    static const uint32_t glyphs[TOP_STATES][2] = {
        [TOP_DEAD] = {'X', 'X'},       [TOP_CRASHED] = {'X', 'X'},   [TOP_FAILED] = {'F', 'F'},
        [TOP_LATE] = {'L', 'L'},       [TOP_STALLED] = {'S', 'S'},   [TOP_SILENT] = {'?', '?'},
        [TOP_IN_CALL] = {0x2592, 'c'}, [TOP_STARTING] = {'i', 'i'},  [TOP_IDLE] = {0xb7, '.'},
        [TOP_RUNNING] = {0x2588, '#'}, [TOP_EXITED] = {0x2500, '-'},
    };
    return (struct tui_mark){
        .glyph = glyphs[state][0], .ascii = glyphs[state][1], .style = top_state_style(state)};
}

static int compare_lanes(const void *left, const void *right)
{
    const struct top_lane *a = left, *b = right;
    return (a->proc_uid > b->proc_uid) - (a->proc_uid < b->proc_uid);
}

static struct top_lane *find_lane(const struct top_lanes *lanes, size_t count, uint64_t proc_uid)
{
    struct top_lane key;
    key.proc_uid = proc_uid;
    return count > 0 ? bsearch(&key, lanes->lanes, count, sizeof *lanes->lanes, compare_lanes) : NULL;
}

void top_lanes_push(struct top_lanes *lanes, const struct top_snapshot *snapshot)
{
    uint64_t n = lanes->refreshes++;
    size_t kept = 0, sorted;
    lanes->snapshot = snapshot;
    /* Lanes of processes that are not shown any more go; new ones are appended and sorted in. */
    for (size_t i = 0; i < lanes->nlanes; i++)
        lanes->lanes[i].states[n % TUI_HISTORY] = 0;
    for (uint32_t p = 0; p < snapshot->nprocesses; p++) {
        struct top_lane *lane = find_lane(lanes, lanes->nlanes, snapshot->processes[p].proc_uid);
        if (lane != NULL)
            lane->states[n % TUI_HISTORY] = (uint8_t)(snapshot->processes[p].state + 1);
    }
    for (size_t i = 0; i < lanes->nlanes; i++) {
        if (lanes->lanes[i].states[n % TUI_HISTORY] != 0)
            lanes->lanes[kept++] = lanes->lanes[i];
    }
    lanes->nlanes = sorted = kept;
    if (snapshot->nprocesses <= kept)
        return;
    struct top_lane *more = realloc(lanes->lanes, snapshot->nprocesses * sizeof *more);
    if (more == NULL)
        return;
    lanes->lanes = more;
    for (uint32_t p = 0; p < snapshot->nprocesses && lanes->nlanes < snapshot->nprocesses; p++) {
        const struct top_process *process = &snapshot->processes[p];
        if (find_lane(lanes, sorted, process->proc_uid) != NULL)
            continue;
        struct top_lane *lane = &lanes->lanes[lanes->nlanes++];
        *lane = (struct top_lane){.proc_uid = process->proc_uid, .first = n};
        lane->states[n % TUI_HISTORY] = (uint8_t)(process->state + 1);
    }
    qsort(lanes->lanes, lanes->nlanes, sizeof *lanes->lanes, compare_lanes);
}

void top_lanes_clear(struct top_lanes *lanes)
{
    free(lanes->lanes);
    *lanes = (struct top_lanes){0};
}

/* ---- timeline source: lanes in the order of the snapshot ---- */

static size_t lane_count(void *context)
{
    return ((const struct top_lanes *)context)->snapshot->nprocesses;
}

static void lane_label(void *context, size_t index, char *text, size_t size)
{
    const struct top_lanes *lanes = context;
    const struct top_process *process = &lanes->snapshot->processes[index];
    char rank[16];
    top_text_rank(rank, sizeof rank, process);
    snprintf(text, size, "%4s %s", rank, process->host);
}

static void lane_bounds(void *context, uint64_t *first, uint64_t *last)
{
    const struct top_lanes *lanes = context;
    *last = lanes->refreshes > 0 ? lanes->refreshes - 1 : 0;
    *first = *last >= TUI_HISTORY ? *last - TUI_HISTORY + 1 : 0;
}

/* Several refreshes in one cell: the worst state among them. */
static void lane_mark(void *context, size_t index, uint64_t from, uint64_t span, struct tui_mark *mark)
{
    const struct top_lanes *lanes = context;
    uint8_t worst = 0;
    uint64_t first, last;
    const struct top_lane *lane = find_lane(lanes, lanes->nlanes, lanes->snapshot->processes[index].proc_uid);
    lane_bounds(context, &first, &last);
    if (lane == NULL)
        return;
    for (uint64_t n = from; n < from + span && n <= last; n++) {
        uint8_t state = n >= lane->first && n >= first ? lane->states[n % TUI_HISTORY] : 0;
        if (state != 0 && (worst == 0 || state < worst))
            worst = state;
    }
    if (worst != 0)
        *mark = top_state_mark((enum top_state)(worst - 1));
}

static void lane_position(void *context, uint64_t at, char *text, size_t size)
{
    const struct top_lanes *lanes = context;
    uint64_t first, last;
    char age[16];
    lane_bounds(context, &first, &last);
    if (at >= last) {
        snprintf(text, size, "now");
        return;
    }
    top_text_age(age, sizeof age, (uint64_t)((double)(last - at) * lanes->seconds_each * 1e9));
    snprintf(text, size, "-%s", age);
}

const struct tui_timeline_source top_lanes_source = {lane_count, lane_label, lane_bounds, lane_mark,
                                                     lane_position};
