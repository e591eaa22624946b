/*
 * The timeline: ranks down; time, or the seq of one communicator, across. Lanes are read
 * for the window on the screen only, a little at a time.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "fr-analyze/tui/strip.h"

#define NS_PER_S UINT64_C(1000000000)

enum { CMD_AXIS = CMD_OWN, CMD_COMM, CMD_DIVERGENCE, CMD_STUCK, CMD_PAN_LEFT, CMD_PAN_RIGHT };

static const struct tui_binding bindings[] = {
    {CMD_AXIS, {TUI_F(5), 'm'}, "Axis", "across: time, or seq of the communicator followed"},
    {CMD_COMM,
     {TUI_F(6), 'c'},
     "Comm",
     "follow the next communicator of the selected rank; after the last, all"},
    {CMD_DIVERGENCE, {'x'}, NULL, "to the first divergence"},
    {CMD_STUCK, {'s'}, NULL, "to the first op that is stuck"},
    {TUI_EXPAND, {'+', '='}, NULL, "zoom in"},
    {TUI_COLLAPSE, {'-'}, NULL, "zoom out"},
    {CMD_PAN_LEFT, {'<', ',', '['}, NULL, "half a screen to the left"},
    {CMD_PAN_RIGHT, {'>', '.', ']'}, NULL, "half a screen to the right"},
    {TUI_OPEN, {TUI_KEY_ENTER}, NULL, "the op under the cursor on all ranks; without one the rank"},
};

struct time_view {
    struct browser *browser;
    struct strips strips;
    bool by_seq, placed;
    const struct rec_communicator *comm; /* followed; NULL = all */
    uint64_t comm_uid;                   /* that was followed before the job was looked at again; 0 */
};

static size_t lanes(void *context)
{
    const struct time_view *v = context;
    return v->comm != NULL ? v->comm->nmembers : v->browser->data.nranks;
}

static uint32_t process_of(const struct time_view *v, size_t lane)
{
    if (lane >= lanes((void *)v))
        return BROWSE_NONE;
    return v->comm != NULL ? v->comm->members[lane]->process->index : v->browser->data.ranks[lane].process;
}

static void label(void *context, size_t lane, char *text, size_t size)
{
    const struct time_view *v = context;
    const struct browse_data *data = &v->browser->data;
    uint32_t process = process_of(v, lane);
    if (process == BROWSE_NONE) {
        snprintf(text, size, "%5d no trace", data->ranks[lane].rank);
        return;
    }
    const struct rank_figures *rank = &data->ranks[data->rank_of[process]];
    const char *sign = browse_clock_known(data, data->processes[process]) ? "" : "~";
    snprintf(text, size, "%5d%s%s%s", rank->rank, rank->role == REC_ROLE_CULPRIT ? "!" : " ", sign,
             data->processes[process]->host);
}

static void bounds(void *context, uint64_t *first, uint64_t *last)
{
    const struct time_view *v = context;
    if (!v->by_seq) {
        *first = v->browser->data.first_ns;
        *last = v->browser->data.last_ns;
        return;
    }
    uint64_t front = v->browser->data.figures[v->comm->index].front;
    *first = UINT64_MAX;
    for (uint32_t m = 0; m < v->comm->nmembers; m++)
        if (v->comm->members[m]->first_seq < *first)
            *first = v->comm->members[m]->first_seq;
    if (*first < rec_first_seq(v->comm->made_by))
        *first = rec_first_seq(v->comm->made_by);
    *last = front > *first ? front - 1 : *first;
}

static void position(void *context, uint64_t at, char *text, size_t size)
{
    const struct time_view *v = context;
    uint64_t screen = v->browser->timeline.span * (uint64_t)v->browser->timeline.width;
    if (v->by_seq)
        snprintf(text, size, "%" PRIu64, at);
    else if (screen > 2 * NS_PER_S)
        word_clock(text, size, at, screen > 60 * NS_PER_S ? 0 : 2);
    else
        snprintf(text, size, ".%06" PRIu64, at % NS_PER_S / 1000);
}

static struct strip_window window_of(const struct time_view *v)
{
    const struct tui_timeline *t = &v->browser->timeline;
    return (struct strip_window){
        .by_seq = v->by_seq, .comm = v->comm, .from = t->from, .span = t->span, .width = t->width};
}

static unsigned char letter(unsigned kind)
{
    static const unsigned char letters[] = {
        [REC_ALL_REDUCE] = 'A', [REC_BROADCAST] = 'B',      [REC_BCAST] = 'B',      [REC_REDUCE] = 'R',
        [REC_ALL_GATHER] = 'G', [REC_REDUCE_SCATTER] = 'S', [REC_ALL_TO_ALL] = 'T', [REC_GATHER] = 'g',
        [REC_SCATTER] = 's',    [REC_SEND] = '>',           [REC_RECV] = '<',       [REC_PUT_SIGNAL] = 'P',
        [REC_SIGNAL] = 'P',     [REC_WAIT_SIGNAL] = 'W',    [REC_GROUP_END] = 'E',  [REC_GRAPH_LAUNCH] = 'L',
    };
    if (rec_kind_flags(kind) & REC_KF_CREATE)
        return 'I';
    if (rec_kind_flags(kind) & REC_KF_TEARDOWN)
        return 'D';
    return kind < sizeof letters && letters[kind] != 0 ? letters[kind] : 'o';
}

static struct tui_mark mark_of(const struct strip_cell *cell)
{
    unsigned f = cell->flags;
    enum tui_style style = f & STRIP_OPEN ? TUI_WARN : f & STRIP_GPU ? TUI_GOOD : TUI_NORMAL;
    if (f & STRIP_DIVERGE)
        return (struct tui_mark){0x25c6, '!', TUI_BAD};
    if (f & STRIP_FAILED)
        return (struct tui_mark){'X', 'X', TUI_BAD};
    if (f & STRIP_MIXED)
        return (struct tui_mark){'*', '*', style};
    if (f & STRIP_BEGIN)
        return (struct tui_mark){letter(cell->kind), letter(cell->kind), style};
    if (f & STRIP_OPEN)
        return (struct tui_mark){0x2592, '~', TUI_WARN};
    if (f & STRIP_GPU)
        return (struct tui_mark){0x2588, '#', TUI_GOOD};
    if (f & STRIP_CALL)
        return (struct tui_mark){0x2592, '~', TUI_NORMAL};
    if (f & STRIP_ALIVE)
        return (struct tui_mark){0xb7, '.', TUI_DIM};
    return (struct tui_mark){' ', ' ', TUI_NORMAL};
}

static void mark(void *context, size_t lane, uint64_t from, uint64_t span, struct tui_mark *out)
{
    const struct time_view *v = context;
    const struct strip_window window = window_of(v);
    uint32_t process = process_of(v, lane);
    const struct strip *strip = process != BROWSE_NONE ? strips_get(&v->strips, process, &window) : NULL;
    if (strip == NULL)
        return;
    const struct strip_cell *cell = &strip->cells[(from - window.from) / span];
    *out = mark_of(cell);
    if (!v->by_seq || cell->flags != 0)
        return;
    if (strips_blamed(&v->strips, process, v->comm, from, span))
        *out = (struct tui_mark){0x25c6, '!', TUI_BAD}; /* should have been called here */
    else if (from < v->comm->members[lane]->next_seq)
        *out = (struct tui_mark){0x2500, '-', TUI_DIM}; /* called, but without a record */
}

static const struct tui_timeline_source source = {lanes, label, bounds, mark, position};

/* ---- moving ---- */

/* Messages and teardowns alone take no seq. */
static bool has_seqs(const struct time_view *v, const struct rec_communicator *comm)
{
    return comm->nmembers > 0 && v->browser->data.figures[comm->index].front > rec_first_seq(comm->made_by);
}

static void set_cursor(struct time_view *v, uint64_t at)
{
    struct tui_timeline *t = &v->browser->timeline;
    uint64_t width = t->width > 0 ? (uint64_t)t->width : (uint64_t)(v->browser->width - 14);
    uint64_t before = width * 2 / 3 * t->span;
    t->has_cursor = true;
    t->stick = false;
    t->cursor = at;
    if (at < t->from || at - t->from >= width * t->span)
        t->from = at > before ? at - before : 0;
}

static void set_lane(struct time_view *v, uint32_t process)
{
    size_t n = lanes(v);
    for (size_t lane = 0; process != BROWSE_NONE && lane < n; lane++)
        if (process_of(v, lane) == process)
            v->browser->timeline.lane = lane;
}

/* A cell for each call, on average: then calls can be told apart. */
static uint64_t usual_span(const struct browse_data *data)
{
    uint64_t life = data->quiet_ns > data->first_ns ? data->quiet_ns - data->first_ns : 0, most = 1;
    for (size_t i = 0; i < data->nprocesses; i++)
        most = data->processes[i]->ops > most ? data->processes[i]->ops : most;
    return life / most + 1;
}

static void set_axis(struct time_view *v, bool by_seq)
{
    struct tui_timeline *t = &v->browser->timeline;
    if (by_seq == v->by_seq && v->placed)
        return;
    v->by_seq = by_seq;
    v->placed = true;
    t->from = 0;
    t->span = by_seq ? 1 : usual_span(&v->browser->data);
}

static void follow(struct time_view *v, const struct rec_communicator *comm)
{
    uint32_t process = process_of(v, v->browser->timeline.lane);
    v->comm = comm;
    v->browser->timeline.lane = v->browser->timeline.top = 0;
    set_lane(v, process);
}

static void go_to(struct time_view *v, const struct place *place)
{
    const struct browse_data *data = &v->browser->data;
    bool by_seq = place->comm != NULL && place->seq != NO_SEQ && place->src < 0 && has_seqs(v, place->comm);
    uint64_t front = by_seq ? data->figures[place->comm->index].front : 0;
    if (place->comm != NULL && place->comm->nmembers > 0)
        follow(v, place->comm);
    set_axis(v, by_seq);
    set_lane(v, place->process);
    if (by_seq)
        set_cursor(v, place->seq < front ? place->seq : front > 0 ? front - 1 : 0);
    else
        set_cursor(v, place->when_ns != 0 ? place->when_ns : data->quiet_ns);
}

static void find_followed(struct time_view *v)
{
    if (v->comm_uid != 0)
        v->comm = rec_job_find_communicator(v->browser->data.job, v->comm_uid);
    v->comm_uid = 0;
    if (v->by_seq && (v->comm == NULL || !has_seqs(v, v->comm)))
        v->by_seq = v->placed = false;
}

static bool show(struct browser *b, const struct place *place)
{
    struct time_view *v = b->state[VIEW_TIME];
    find_followed(v);
    if (place->comm != NULL || place->process != BROWSE_NONE || place->when_ns != 0)
        go_to(v, place);
    else if (!v->placed) {
        set_axis(v, false);
        set_cursor(v, b->data.quiet_ns);
    }
    return true;
}

static const struct strip_cell *cell_at_cursor(const struct time_view *v)
{
    const struct tui_timeline *t = &v->browser->timeline;
    const struct strip_window window = window_of(v);
    uint32_t process = process_of(v, t->lane);
    const struct strip *strip = process != BROWSE_NONE ? strips_get(&v->strips, process, &window) : NULL;
    if (strip == NULL || !t->has_cursor || t->cursor < window.from ||
        (t->cursor - window.from) / window.span >= (uint64_t)window.width)
        return NULL;
    return &strip->cells[(t->cursor - window.from) / window.span];
}

/* The op under the cursor, or the one that the cursor is inside of. */
static bool op_at_cursor(const struct time_view *v, struct rec_op *op, unsigned *count)
{
    const struct strip_cell *cell = cell_at_cursor(v);
    if (cell == NULL)
        return false;
    if (cell->kind == REC_NONE && cell->flags & STRIP_CALL && !v->by_seq) {
        const struct strip_window window = window_of(v);
        const struct strip *strip = strips_get(&v->strips, process_of(v, v->browser->timeline.lane), &window);
        while (cell > strip->cells && cell->kind == REC_NONE && cell->flags & STRIP_CALL)
            cell--;
    }
    if (cell->kind == REC_NONE)
        return false;
    const struct rec_process *p = v->browser->data.processes[process_of(v, v->browser->timeline.lane)];
    *op = (struct rec_op){.kind = cell->kind,
                          .seq = cell->seq,
                          .comm = cell->comm,
                          .peer = cell->peer,
                          .enter_ns = browse_host_ns(&v->browser->data, p, cell->enter_ns)};
    *count = cell->count;
    return true;
}

static bool target(struct browser *b, struct place *to)
{
    struct time_view *v = b->state[VIEW_TIME];
    uint32_t process = process_of(v, b->timeline.lane);
    struct rec_op op;
    unsigned count;
    if (process == BROWSE_NONE)
        return false;
    if (op_at_cursor(v, &op, &count)) {
        *to = browse_op_place(&b->data, b->data.processes[process], &op);
        return true;
    }
    *to = place_in(VIEW_RANK, process);
    return true;
}

static void next_comm(struct time_view *v)
{
    uint32_t process = process_of(v, v->browser->timeline.lane);
    if (process == BROWSE_NONE)
        return;
    const struct rec_process *p = v->browser->data.processes[process];
    uint32_t next = 0;
    while (next < p->nmembers && v->comm != NULL && p->members[next]->comm != v->comm)
        next++;
    next += v->comm != NULL;
    if (next < p->nmembers) {
        bool by_seq = v->by_seq && has_seqs(v, p->members[next]->comm);
        if (v->by_seq && !by_seq) {
            set_axis(v, false);
            set_cursor(v, v->browser->data.quiet_ns);
        }
        follow(v, p->members[next]->comm);
        if (by_seq)
            set_cursor(v, p->members[next]->next_seq);
        return;
    }
    set_axis(v, false);
    set_cursor(v, v->browser->data.quiet_ns);
    follow(v, NULL);
}

/* The same moment on the other axis, as near as is known. */
static void other_axis(struct time_view *v)
{
    struct browser *b = v->browser;
    uint32_t process = process_of(v, b->timeline.lane);
    const struct strip_cell *cell = cell_at_cursor(v);
    struct strip_cell at = cell != NULL ? *cell : (struct strip_cell){.seq = 0};
    if (v->by_seq) {
        set_axis(v, false);
        set_cursor(v, at.kind != REC_NONE && at.enter_ns != 0 ? at.enter_ns : b->data.quiet_ns);
        return;
    }
    if (process == BROWSE_NONE)
        return;
    const struct rec_process *p = b->data.processes[process];
    const struct rec_member *member = at.kind != REC_NONE ? rec_process_member(p, at.comm) : NULL;
    bool here = member != NULL && (v->comm == NULL || v->comm == member->comm);
    if (!here)
        member = v->comm != NULL ? browse_member(p, v->comm) : b->data.ranks[b->data.rank_of[process]].member;
    if (member == NULL || !has_seqs(v, member->comm)) {
        snprintf(b->shell.status, sizeof b->shell.status, "no seqs here");
        return;
    }
    follow(v, member->comm);
    set_axis(v, true);
    set_cursor(v, here && rec_kind_flags(at.kind) & REC_KF_SEQ ? at.seq
                  : member->next_seq > 0                       ? member->next_seq - 1
                                                               : 0);
}

static void go_to_divergence(struct time_view *v)
{
    const struct browse_data *data = &v->browser->data;
    const struct rec_verdict *verdict = data->verdict;
    for (size_t i = 0; data->run + 1 == data->nruns && i < verdict->nfindings; i++) {
        struct place place;
        const struct rec_finding *f = &verdict->findings[i];
        if (f->comm == NULL || f->seq == NO_SEQ || f->comm->nmembers == 0)
            continue;
        browse_finding_place(data, f, NULL, &place);
        go_to(v, &place);
        return;
    }
    snprintf(v->browser->shell.status, sizeof v->browser->shell.status, "no divergence");
}

/* The earliest call that has not returned; where all have, the earliest that the verdict says waits. */
static bool first_stuck(const struct browse_data *data, uint32_t *process, uint64_t *when_ns)
{
    const struct rec_finding *f = &data->verdict->findings[0];
    *process = BROWSE_NONE;
    *when_ns = 0;
    for (size_t i = 0; i < data->nranks; i++) {
        const struct rank_figures *rank = &data->ranks[i];
        if (!rank->open)
            continue;
        uint64_t entered_ns = browse_common_ns(data, data->processes[rank->process], rank->last->enter_ns);
        if (*process == BROWSE_NONE || entered_ns < *when_ns) {
            *process = rank->process;
            *when_ns = entered_ns;
        }
    }
    bool open = *process != BROWSE_NONE || data->run + 1 < data->nruns; /* findings are about the last run */
    for (size_t i = 0; i < f->nevidence && !open; i++) {
        const struct rec_evidence *e = &f->evidence[i];
        uint32_t waits = browse_process_of(data, e->rank);
        if (waits == BROWSE_NONE || e->seq == NO_SEQ || e->time_ns == 0 ||
            (f->nvictims > 0 && data->ranks[data->rank_of[waits]].role != REC_ROLE_VICTIM) ||
            (*process != BROWSE_NONE && e->time_ns >= *when_ns))
            continue;
        *process = waits;
        *when_ns = e->time_ns;
    }
    return *process != BROWSE_NONE;
}

static void go_to_stuck(struct time_view *v)
{
    uint32_t process;
    uint64_t when_ns;
    if (!first_stuck(&v->browser->data, &process, &when_ns)) {
        snprintf(v->browser->shell.status, sizeof v->browser->shell.status, "nothing is stuck");
        return;
    }
    if (v->comm != NULL)
        follow(v, NULL);
    set_axis(v, false);
    set_lane(v, process);
    set_cursor(v, when_ns);
}

static void pan(struct time_view *v, bool right)
{
    struct tui_timeline *t = &v->browser->timeline;
    uint64_t first, last, step = (uint64_t)(t->width > 2 ? t->width / 2 : 1) * t->span;
    bounds(v, &first, &last);
    uint64_t at = right ? (last - t->cursor > step ? t->cursor + step : last)
                        : (t->cursor - first > step ? t->cursor - step : first);
    t->from = right ? t->from + step : t->from - first > step ? t->from - step : first;
    set_cursor(v, at);
}

static bool command(struct browser *b, int cmd)
{
    struct time_view *v = b->state[VIEW_TIME];
    switch (cmd) {
    case CMD_AXIS:
        other_axis(v);
        return true;
    case CMD_COMM:
        next_comm(v);
        return true;
    case CMD_DIVERGENCE:
        go_to_divergence(v);
        return true;
    case CMD_STUCK:
        go_to_stuck(v);
        return true;
    case CMD_PAN_LEFT:
    case CMD_PAN_RIGHT:
        pan(v, cmd == CMD_PAN_RIGHT);
        return true;
    default:
        return false;
    }
}

static bool work(struct browser *b, uint64_t deadline_ns)
{
    struct time_view *v = b->state[VIEW_TIME];
    const struct strip_window window = window_of(v);
    size_t n = lanes(v);
    if (window.width <= 0 || window.span == 0)
        return false;
    for (int i = 0; i < b->timeline.height; i++) {
        size_t lane = b->timeline.top + (size_t)i;
        uint32_t process = lane < n ? process_of(v, lane) : BROWSE_NONE;
        if (process == BROWSE_NONE || strips_get(&v->strips, process, &window) != NULL)
            continue;
        strips_fill(&v->strips, process, &window, deadline_ns);
        if (monotonic_ns() >= deadline_ns)
            return true;
    }
    return v->strips.filling != NULL;
}

static void about(struct browser *b, char *text, size_t size, enum tui_style *style)
{
    const struct time_view *v = b->state[VIEW_TIME];
    struct rec_op op;
    unsigned count = 0;
    char comm[64] = "all", at[40], what[160] = "nothing", name[24], of[64];
    uint32_t process = process_of(v, b->timeline.lane);
    if (v->comm != NULL)
        word_comm(comm, sizeof comm, v->comm);
    if (v->by_seq)
        snprintf(at, sizeof at, "seq %" PRIu64, b->timeline.cursor);
    else
        word_clock(at, sizeof at, b->timeline.cursor, 3);
    if (process != BROWSE_NONE && op_at_cursor(v, &op, &count)) {
        const struct rec_member *m = rec_process_member(b->data.processes[process], op.comm);
        word_comm(of, sizeof of, m != NULL ? m->comm : NULL);
        snprintf(what, sizeof what, "%s %" PRIu64 " of %s%s", word_kind(&op, name), op.seq, of,
                 count > 1 ? " and more" : "");
    }
    *style = TUI_NORMAL;
    snprintf(text, size, "[%s] %s rank %d: %s", comm, at,
             process != BROWSE_NONE ? b->data.processes[process]->rank : -1, what);
}

static bool init(struct browser *b)
{
    struct time_view *v = calloc(1, sizeof *v);
    b->state[VIEW_TIME] = v;
    if (v == NULL)
        return false;
    v->browser = b;
    v->strips.data = &b->data;
    for (size_t i = 0; i < STRIPS; i++)
        v->strips.strips[i].process = BROWSE_NONE;
    tui_timeline_open(&b->timeline, &source, v);
    return true;
}

static void fini(struct browser *b)
{
    struct time_view *v = b->state[VIEW_TIME];
    if (v == NULL)
        return;
    strips_free(&v->strips);
    free(v);
}

/* The window stays where it is when the same job is looked at again. */
static void forget(struct browser *b, bool again)
{
    struct time_view *v = b->state[VIEW_TIME];
    strips_drop(&v->strips);
    v->comm_uid = again && v->comm != NULL ? v->comm->uid : 0;
    v->comm = NULL;
    if (again)
        return;
    v->by_seq = v->placed = false;
    b->timeline.lane = b->timeline.top = 0;
}

const struct view view_time = {.name = "Timeline",
                               .bindings = bindings,
                               .nbindings = sizeof bindings / sizeof bindings[0],
                               .init = init,
                               .fini = fini,
                               .show = show,
                               .target = target,
                               .work = work,
                               .forget = forget,
                               .about = about,
                               .command = command};
