/* The frame around the views: header, tabs, the way back, the loop between keys and work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fr-analyze/tui/browser.h"
#include "fr-common.h"
#include "fr-tui/settings.h"

#define WAY_MAX   256      /* places that Esc leads back to */
#define WORK_NS   15000000 /* of reading between two looks at the keys */
#define REDRAW_NS 60000000 /* between two frames while reading */
#define DOUBLE_NS 400000000
#define AGAIN_NS  300000000 /* between two questions whether there is something newer */
#define COUNT(a)  (sizeof(a) / sizeof(a)[0])

static const struct view *const views[VIEWS] = {
    [VIEW_VERDICT] = &view_verdict, [VIEW_COMMS] = &view_comms, [VIEW_RANKS] = &view_ranks,
    [VIEW_TIME] = &view_time,       [VIEW_RANK] = &view_rank,   [VIEW_COMM] = &view_comm,
    [VIEW_OP] = &view_op,           [VIEW_CALL] = &view_call,   [VIEW_DIFF] = &view_diff,
};

static const struct tui_binding shared[] = {
    {CMD_VIEW, {TUI_KEY_TAB}, NULL, "next view: verdict, communicators, ranks, timeline"},
    {CMD_VIEW_BACK, {TUI_KEY_BACK_TAB}, NULL, "previous view"},
    {CMD_1, {'1'}, NULL, "verdict"},
    {CMD_2, {'2'}, NULL, "communicators"},
    {CMD_3, {'3'}, NULL, "ranks"},
    {CMD_4, {'4'}, NULL, "timeline"},
    {CMD_DIFF, {TUI_F(7), 'd'}, "Diff", "compare two ranks (tag with Space to choose)"},
    {CMD_TIME, {TUI_F(8), 'l'}, "Time", "show the selected thing on the timeline"},
    {CMD_FINDING, {TUI_F(9), 'f'}, "Finding", "go to the next finding"},
    {CMD_RUN, {'r'}, NULL, "of a job that was restarted: show the run before, after the first the last"},
};
static const struct tui_binding line_keys[] = {
    {TUI_SEARCH, {TUI_F(3), '/'}, "Search", "search: moves to the next line that contains the text"},
    {TUI_SEARCH_NEXT, {'n'}, NULL, "next match"},
    {TUI_SEARCH_PREVIOUS, {'N', TUI_F(15)}, NULL, "previous match"},
    {TUI_FILTER, {TUI_F(4), '\\'}, "Filter", "filter: shows only lines that contain the text (a|b: either)"},
    {TUI_OPEN, {TUI_KEY_ENTER}, NULL, "go to what the selected line is about"},
};
static const struct tui_binding table_keys[] = {
    {TUI_SETUP, {TUI_F(2), 'C'}, "Setup", "setup: choose the columns; kept for the next time"},
    {TUI_SORT_MENU, {TUI_F(6), '<', '>', ',', '.'}, "SortBy", "choose the column to sort by"},
    {TUI_SORT_INVERT, {'I'}, NULL, "invert the sort order"},
    {TUI_TAG, {' '}, NULL, "tag the selected line"},
    {TUI_UNTAG_ALL, {'U'}, NULL, "untag all lines"},
};

static const char *const notes[] = {
    "",
    "Ranks that follow each other and look the same are one line; Enter or + opens it.",
    "Lines that differ are marked with *, <, > or a sign of inequality, not by colour alone.",
    "",
    "Timeline, first letter of a call where it was entered:",
    "    A AllReduce  G AllGather  S ReduceScatter  B Broadcast  R Reduce  T AlltoAll",
    "    g Gather  s Scatter  > Send  < Recv  P Put, Signal  W WaitSignal  I creation",
    "    D teardown  E GroupEnd  L GraphLaunch  o other  * several kinds",
    "    shaded (~): inside NCCL    full (#): GPU at work    dot: lives, outside NCCL",
    "    diamond (!): the op of a finding on a rank that it blames    X: NCCL failed",
    "    dash: called, but without a record",
    "Of a job that runs, the first four views follow what it does, until Z stops that; details stand still.",
    "Times are those of the job's first host: the clocks of the others are corrected by what calls that",
    "synchronize tell. ~ before a host: its clock could not be compared.",
    NULL,
};

/* ---- going from place to place ---- */

static void no_memory(struct browser *b)
{
    snprintf(b->shell.status, sizeof b->shell.status, "no memory");
}

static bool has_subject(const struct browser *b, const struct place *place)
{
    bool process = place->process < b->data.nprocesses;
    switch (place->view) {
    case VIEW_RANK:
        return process;
    case VIEW_COMM:
        return place->comm != NULL && place->comm->nmembers > 0;
    case VIEW_OP:
        return place->comm != NULL && place->seq != NO_SEQ;
    case VIEW_CALL:
        return process && place->comm != NULL;
    case VIEW_DIFF:
        return process && place->other < b->data.nprocesses && place->comm != NULL;
    default:
        return true;
    }
}

static void show_run(struct browser *b, size_t run)
{
    if (run == b->data.run || run >= b->data.nruns)
        return;
    browse_data_show(&b->data, run);
    for (unsigned v = 0; v < VIEWS; v++)
        if (views[v]->forget != NULL)
            views[v]->forget(b, false);
}

static void show(struct browser *b, const struct place *place)
{
    struct tui_table *table = b->tables[place->view];
    if (place->run != 0)
        show_run(b, place->run - 1);
    bool follow = place->view != b->here.view || place->run != b->here.run;
    b->here = *place;
    b->here.run = (uint32_t)b->data.run + 1;
    b->width = tui_columns();
    b->shell.page_open = false;
    b->shell.mode = TUI_MODE_BROWSE;
    b->shell.table = table;
    b->shell.timeline = place->view == VIEW_TIME ? &b->timeline : NULL;
    b->shell.keymap = (struct tui_keymap){.own = b->bindings[place->view],
                                          .table = views[place->view]->keys == KEYS_TREE,
                                          .pause = b->again != NULL};
    while (b->bindings[place->view][b->shell.keymap.nown].command != TUI_NONE)
        b->shell.keymap.nown++;
    if (table != NULL && follow && place->view >= MAIN_VIEWS && !place->has_row) {
        tui_table_filter(table, "");
        tui_table_command(table, TUI_UNTAG_ALL);
        tui_table_command(table, TUI_FIRST);
    }
    if (!views[place->view]->show(b, place))
        no_memory(b);
    if (table != NULL && place->has_row)
        tui_table_select_id(table, place->row + 1);
}

static void remember_row(struct browser *b)
{
    struct tui_table *table = b->tables[b->here.view];
    size_t row = table != NULL ? tui_table_selected(table) : TUI_NO_ROW;
    b->here.has_row = row != TUI_NO_ROW;
    if (b->here.has_row)
        b->here.row = row;
}

static void push(struct browser *b)
{
    remember_row(b);
    if (b->nway == WAY_MAX) {
        memmove(b->way, b->way + 1, (WAY_MAX - 1) * sizeof *b->way);
        b->nway--;
    }
    b->way[b->nway++] = b->here;
}

void browser_go(struct browser *b, const struct place *place)
{
    if (!has_subject(b, place))
        return;
    push(b);
    b->shell.status[0] = '\0';
    struct place to = *place;
    to.has_row = false;
    show(b, &to);
}

static void go_back(struct browser *b)
{
    if (b->nway == 0)
        return;
    struct place place = b->way[--b->nway];
    /* The timeline stays where it is. */
    if (place.view == VIEW_TIME)
        place = (struct place){.view = VIEW_TIME,
                               .run = place.run,
                               .process = BROWSE_NONE,
                               .other = BROWSE_NONE,
                               .seq = NO_SEQ,
                               .src = -1,
                               .dst = -1};
    b->shell.status[0] = '\0';
    show(b, &place);
}

static void go_to_view(struct browser *b, enum view_id view)
{
    struct place place = {
        .view = view, .process = BROWSE_NONE, .other = BROWSE_NONE, .seq = NO_SEQ, .src = -1, .dst = -1};
    if (view != b->here.view)
        browser_go(b, &place);
}

/* Places of the other run remain on the way back. */
static void go_to_run(struct browser *b, size_t run)
{
    struct place place = {.view = b->here.view < MAIN_VIEWS ? b->here.view : VIEW_VERDICT,
                          .run = (uint32_t)run + 1,
                          .process = BROWSE_NONE,
                          .other = BROWSE_NONE,
                          .seq = NO_SEQ,
                          .src = -1,
                          .dst = -1};
    if (run != b->data.run)
        browser_go(b, &place);
}

static void go_to_earlier_run(struct browser *b)
{
    if (b->data.nruns == 1)
        snprintf(b->shell.status, sizeof b->shell.status, "the job was not restarted");
    go_to_run(b, (b->data.run + b->data.nruns - 1) % b->data.nruns);
}

static void go_to_finding(struct browser *b)
{
    struct place place;
    go_to_run(b, b->data.nruns - 1); /* the findings are about the last one */
    size_t n = b->data.verdict->nfindings;
    for (size_t i = 0; i < n; i++) {
        b->finding = (uint32_t)((b->finding + 1) % n);
        if (!browse_finding_place(&b->data, &b->data.verdict->findings[b->finding], NULL, &place))
            continue;
        if (b->here.view == VIEW_TIME)
            place.view = VIEW_TIME;
        browser_go(b, &place);
        snprintf(b->shell.status, sizeof b->shell.status, "finding %u of %zu", b->finding + 1, n);
        return;
    }
    snprintf(b->shell.status, sizeof b->shell.status, "no finding has a place");
}

/* What a command about the selected thing refers to. */
static bool selected_place(struct browser *b, struct place *place)
{
    if (b->here.view == VIEW_RANK || b->here.view == VIEW_CALL || b->here.view == VIEW_DIFF) {
        if (views[b->here.view]->target(b, place) && place->comm != NULL)
            return true;
        *place = b->here;
        return true;
    }
    return views[b->here.view]->target(b, place);
}

/* ---- comparing ---- */

uint32_t browser_reference(const struct browser *b, const struct rec_communicator *comm, uint32_t process)
{
    const struct browse_data *data = &b->data;
    bool blamed = data->ranks[data->rank_of[process]].role == ROLE_CULPRIT;
    uint32_t other = BROWSE_NONE;
    for (uint32_t m = 0; m < comm->nmembers; m++) {
        uint32_t p = comm->members[m]->process->index;
        if (p == process)
            continue;
        if ((data->ranks[data->rank_of[p]].role == ROLE_CULPRIT) != blamed)
            return p;
        if (other == BROWSE_NONE)
            other = p;
    }
    return other;
}

/* The processes of the first two tagged lines of a list of members. */
static void tagged(const struct browser *b, uint32_t pair[2])
{
    const struct tui_table *table = b->tables[b->here.view];
    const struct rec_communicator *comm = b->here.comm;
    unsigned n = 0;
    for (size_t line = 0; table != NULL && n < 2 && line < tui_table_lines(table); line++) {
        size_t row = tui_table_row_at(table, line);
        struct place place;
        if (!tui_table_tagged(table, row + 1))
            continue;
        if (b->here.view == VIEW_COMM && row < comm->nmembers)
            place.process = comm->members[row]->process->index;
        else if (b->here.view != VIEW_OP || !op_row_place(b, row, &place))
            continue;
        pair[n++] = place.process;
    }
}

bool browser_diff_place(const struct browser *b, const struct place *place, struct place *diff)
{
    uint32_t pair[2] = {BROWSE_NONE, BROWSE_NONE};
    *diff = *place;
    diff->view = VIEW_DIFF;
    if (b->here.view == VIEW_COMM || b->here.view == VIEW_OP) {
        diff->comm = b->here.comm;
        tagged(b, pair);
    }
    if (diff->comm == NULL && diff->process < b->data.nprocesses) {
        const struct rec_member *member = b->data.ranks[b->data.rank_of[diff->process]].member;
        diff->comm = member != NULL ? member->comm : NULL;
    }
    if (diff->comm == NULL)
        return false;
    if (pair[0] != BROWSE_NONE)
        diff->process = pair[0];
    if (diff->process >= b->data.nprocesses ||
        browse_member(b->data.processes[diff->process], diff->comm) == NULL)
        diff->process = diff->comm->nmembers > 0 ? diff->comm->members[0]->process->index : BROWSE_NONE;
    if (diff->process == BROWSE_NONE)
        return false;
    diff->other = pair[1] != BROWSE_NONE ? pair[1] : browser_reference(b, diff->comm, diff->process);
    if (diff->other == BROWSE_NONE)
        return false;
    if (diff->seq == NO_SEQ || diff->src >= 0) {
        const struct rec_member *left = browse_member(b->data.processes[diff->process], diff->comm);
        const struct rec_member *right = browse_member(b->data.processes[diff->other], diff->comm);
        diff->seq = left->next_seq < right->next_seq ? left->next_seq : right->next_seq;
    }
    return true;
}

static void compare(struct browser *b)
{
    struct place place, diff;
    if (selected_place(b, &place) && browser_diff_place(b, &place, &diff))
        browser_go(b, &diff);
    else
        snprintf(b->shell.status, sizeof b->shell.status, "nothing to compare here");
}

/* ---- drawing ---- */

static int tab_x(unsigned tab)
{
    int x = 1;
    for (unsigned t = 0; t < tab; t++)
        x += (int)strlen(views[t]->name) + 3;
    return x;
}

static void draw_tabs(struct browser *b, int y)
{
    b->tabs_y = y;
    for (unsigned t = 0; t < MAIN_VIEWS; t++)
        tui_say(y, tab_x(t), t == b->here.view ? TUI_COLUMN : TUI_NORMAL, "[%s]", views[t]->name);
    if (b->here.view >= MAIN_VIEWS)
        tui_say(y, tab_x(MAIN_VIEWS), TUI_COLUMN, "[%s]", views[b->here.view]->name);
}

/* Of a run that is over only this is known. */
static void draw_run_line(const struct browser *b, int y)
{
    const struct rec_generation *run = &b->data.verdict->census->generations[b->data.run];
    int x = 1 + tui_say(y, 1, TUI_WARN, "run %zu of %zu", b->data.run + 1, b->data.nruns);
    x += tui_say(y, x, TUI_NORMAL, ", earlier: ");
    tui_put(y, x, tui_columns() - x, run->nculprits > 0 ? TUI_BAD : TUI_NORMAL, TUI_LEFT,
            run->type != NULL ? run->type : "not examined");
}

static void draw_verdict_line(const struct browser *b, int y)
{
    if (b->data.run + 1 < b->data.nruns) {
        draw_run_line(b, y);
        return;
    }
    const struct rec_finding *f = &b->data.verdict->findings[0];
    bool good = b->data.verdict->status == REC_STATUS_HEALTHY;
    char folded[128] = "";
    int x = 1 + tui_say(y, 1, good ? TUI_GOOD : TUI_BAD, "%s", rec_verdict_type_name(f->type));
    x += tui_say(y, x, TUI_NORMAL, " (%s)", rec_confidence_name(f->confidence));
    if (f->nculprits > 0) {
        rec_fold_ranks(folded, sizeof folded, f->culprits, f->nculprits);
        x += tui_say(y, x, TUI_NORMAL, "  %s ", f->nculprits > 1 ? "ranks" : "rank");
        x += tui_say(y, x, TUI_BAD, "%.40s", folded);
    }
    x += tui_say(y, x, TUI_NORMAL, "  of %zu", b->data.nranks);
    if (b->data.runs)
        x += tui_say(y, x, TUI_NORMAL, ", runs");
    if (b->data.nruns > 1)
        x += tui_say(y, x, TUI_NORMAL, ", run %zu of %zu", b->data.run + 1, b->data.nruns);
    const struct rec_job_info *info = rec_job_info(b->data.job);
    int room = tui_columns() - x - 3;
    if (room > 8)
        tui_put(y, x + 2, room, TUI_DIM, TUI_LEFT, info != NULL ? info->id : "");
}

static void draw(struct browser *b)
{
    tui_begin();
    if (!tui_too_small(5, 20)) {
        int rows = tui_rows(), columns = tui_columns(), y = 0;
        char text[256] = "";
        enum tui_style style = TUI_NORMAL;
        b->tabs_y = -1;
        if (views[b->here.view]->about != NULL)
            views[b->here.view]->about(b, text, sizeof text, &style);
        if (rows >= 12)
            draw_verdict_line(b, y++);
        if (rows >= 12 || text[0] != '\0')
            tui_put(y++, 1, columns - 1, style, TUI_LEFT, text);
        if (rows >= 16)
            draw_tabs(b, y++);
        tui_shell_draw(&b->shell, (struct tui_rect){y, 0, rows - y, columns});
    }
    tui_end();
}

/* ---- what the user chose of columns ---- */

static size_t settings_of(const struct browser *b, struct tui_setting settings[VIEWS])
{
    size_t n = 0;
    for (unsigned v = 0; v < VIEWS; v++)
        if (views[v]->keys == KEYS_TABLE || views[v]->keys == KEYS_TREE)
            settings[n++] = (struct tui_setting){views[v]->name, b->tables[v]};
    return n;
}

static void keep_settings(struct browser *b)
{
    struct tui_setting settings[VIEWS];
    size_t n = settings_of(b, settings);
    if (tui_settings_save(b->shell.name, settings, n, b->shell.status, sizeof b->shell.status))
        b->shell.status[0] = '\0';
}

/* ---- events ---- */

static void run_command(struct browser *b, int command)
{
    struct place place;
    switch (command) {
    case TUI_QUIT:
        b->leave = true;
        break;
    case TUI_BACK:
        go_back(b);
        break;
    case TUI_SETUP_DONE:
        keep_settings(b);
        break;
    case TUI_OPEN:
        if (views[b->here.view]->target(b, &place))
            browser_go(b, &place);
        break;
    case CMD_VIEW:
        go_to_view(b, b->here.view < MAIN_VIEWS ? (b->here.view + 1) % MAIN_VIEWS : VIEW_VERDICT);
        break;
    case CMD_VIEW_BACK:
        go_to_view(b,
                   b->here.view < MAIN_VIEWS ? (b->here.view + MAIN_VIEWS - 1) % MAIN_VIEWS : VIEW_VERDICT);
        break;
    case CMD_1:
    case CMD_2:
    case CMD_3:
    case CMD_4:
        go_to_view(b, (enum view_id)(command - CMD_1));
        break;
    case CMD_DIFF:
        compare(b);
        break;
    case CMD_TIME:
        if (!selected_place(b, &place))
            place = (struct place){.process = BROWSE_NONE, .seq = NO_SEQ, .src = -1, .dst = -1};
        place.view = VIEW_TIME;
        if (b->here.view != VIEW_TIME)
            browser_go(b, &place);
        break;
    case CMD_FINDING:
        go_to_finding(b);
        break;
    case CMD_RUN:
        go_to_earlier_run(b);
        break;
    default:
        if (views[b->here.view]->command != NULL)
            views[b->here.view]->command(b, command);
    }
}

static bool click_timeline(struct browser *b, const struct tui_event *event)
{
    const struct tui_rect *body = &b->shell.body;
    struct tui_timeline *t = &b->timeline;
    int lane = event->y - body->y - 1, cell = event->x - body->x - (body->width - t->width);
    if (b->here.view != VIEW_TIME || b->shell.page_open || lane < 0 || lane >= t->height ||
        event->y >= b->shell.bar_y)
        return false;
    if (t->top + (size_t)lane >= t->source->lanes(t->context))
        return true;
    t->lane = t->top + (size_t)lane;
    if (cell >= 0) {
        t->has_cursor = true;
        t->stick = false;
        t->cursor = t->from + (uint64_t)cell * t->span;
    }
    if (event->mouse == TUI_MOUSE_DOUBLE)
        run_command(b, TUI_OPEN);
    return true;
}

/* Terminals tell of clicks alone; two at one place are a double one. */
static void find_double_click(struct browser *b, struct tui_event *event)
{
    uint64_t now = monotonic_ns();
    if (event->type != TUI_EV_MOUSE || event->mouse != TUI_MOUSE_CLICK)
        return;
    if (event->y == b->click.y && event->x == b->click.x && now - b->click_ns < DOUBLE_NS) {
        event->mouse = TUI_MOUSE_DOUBLE;
        now = 0;
    }
    b->click = *event;
    b->click_ns = now;
}

static void handle(struct browser *b, struct tui_event *event)
{
    find_double_click(b, event);
    if (event->type == TUI_EV_KEY)
        b->shell.status[0] = '\0';
    if (event->type == TUI_EV_MOUSE &&
        (event->mouse == TUI_MOUSE_CLICK || event->mouse == TUI_MOUSE_DOUBLE)) {
        if (event->y == b->tabs_y) {
            for (unsigned t = 0; t < MAIN_VIEWS; t++)
                if (event->x >= tab_x(t) && event->x < tab_x(t + 1) - 1)
                    go_to_view(b, (enum view_id)t);
            return;
        }
        if (click_timeline(b, event))
            return;
    }
    int command = tui_shell_event(&b->shell, event);
    if (command != TUI_NONE)
        run_command(b, command);
}

/* Text is wrapped for a width. */
static void rewrap(struct browser *b)
{
    if (b->width == tui_columns())
        return;
    bool page = b->shell.page_open;
    if (views[b->here.view]->keys != KEYS_LINES || b->here.view == VIEW_DIFF) {
        b->width = tui_columns();
        return;
    }
    remember_row(b);
    struct place place = b->here;
    show(b, &place);
    b->shell.page_open = page;
}

/* ---- the job as it is now ---- */

/* A place in other words: those that outlive the job. */
struct lasting {
    struct place place;
    uint64_t process, other, comm; /* uids; 0 = none */
};

static struct lasting lasting_place(const struct browse_data *data, const struct place *place)
{
    struct lasting lasting = {.place = *place, .comm = place->comm != NULL ? place->comm->uid : 0};
    if (place->process < data->nprocesses)
        lasting.process = data->processes[place->process]->proc_uid;
    if (place->other < data->nprocesses)
        lasting.other = data->processes[place->other]->proc_uid;
    return lasting;
}

static uint32_t process_of_uid(const struct browse_data *data, uint64_t uid)
{
    for (uint32_t i = 0; uid != 0 && i < data->nprocesses; i++)
        if (data->processes[i]->proc_uid == uid)
            return i;
    return BROWSE_NONE;
}

/* What is not there any more makes the place its view's, without a subject. */
static struct place place_again(const struct browser *b, const struct lasting *lasting)
{
    struct place place = lasting->place;
    place.process = process_of_uid(&b->data, lasting->process);
    place.other = process_of_uid(&b->data, lasting->other);
    place.comm = lasting->comm != 0 ? rec_job_find_communicator(b->data.job, lasting->comm) : NULL;
    if (has_subject(b, &place))
        return place;
    return (struct place){.view = place.view < MAIN_VIEWS ? place.view : VIEW_VERDICT,
                          .process = BROWSE_NONE,
                          .other = BROWSE_NONE,
                          .seq = NO_SEQ,
                          .src = -1,
                          .dst = -1};
}

/* False: no memory, and nothing left to show. */
static bool show_again(struct browser *b, const struct rec_job *job, const struct rec_verdict *verdict)
{
    struct lasting *way = calloc(b->nway + 1, sizeof *way);
    bool page = b->shell.page_open, newest = b->data.run + 1 == b->data.nruns;
    enum tui_mode mode = b->shell.mode;
    if (way == NULL)
        return false;
    remember_row(b);
    for (size_t i = 0; i < b->nway; i++)
        way[i] = lasting_place(&b->data, &b->way[i]);
    way[b->nway] = lasting_place(&b->data, &b->here);
    for (unsigned v = 0; v < VIEWS; v++)
        if (views[v]->forget != NULL)
            views[v]->forget(b, true);
    browse_data_free(&b->data);
    bool ok = browse_data_init(&b->data, job, verdict);
    for (size_t i = 0; ok && i < b->nway; i++)
        b->way[i] = place_again(b, &way[i]);
    if (ok) {
        struct place here = place_again(b, &way[b->nway]);
        if (newest)
            here.run = (uint32_t)b->data.nruns;
        show(b, &here);
        b->shell.page_open = page;
        b->shell.mode = mode;
    }
    free(way);
    return ok;
}

/* Details stay as they are while somebody reads them. True: there is something new to see. */
static bool look_again(struct browser *b)
{
    const struct rec_job *job;
    const struct rec_verdict *verdict;
    uint64_t now = monotonic_ns();
    if (b->again == NULL || b->shell.paused || b->here.view >= MAIN_VIEWS || now - b->looked_ns < AGAIN_NS)
        return false;
    b->looked_ns = now;
    if (!b->again->look(b->again->context, &job, &verdict))
        return false;
    b->leave = !show_again(b, job, verdict);
    b->again->keep(b->again->context);
    return true;
}

/* Returns the signal that ended it, or 0. */
static int loop(struct browser *b)
{
    uint64_t drawn = 0;
    bool busy = false;
    for (;;) {
        struct tui_event event;
        if (look_again(b)) {
            busy = true;
            drawn = 0;
        }
        if (b->leave)
            return 0;
        uint64_t now = monotonic_ns();
        if (!busy || now - drawn >= REDRAW_NS) {
            rewrap(b);
            draw(b);
            drawn = now;
        }
        tui_wait(busy ? 0 : b->again != NULL ? (int)(AGAIN_NS / 1000000) : 60000, &event);
        if (event.type == TUI_EV_TIMEOUT) {
            bool more =
                views[b->here.view]->work != NULL && views[b->here.view]->work(b, monotonic_ns() + WORK_NS);
            if (!more)
                drawn = 0; /* what has come is shown */
            busy = more;
            continue;
        }
        handle(b, &event);
        if (b->leave || event.type == TUI_EV_QUIT)
            return event.type == TUI_EV_QUIT ? event.signal : 0;
        drawn = 0;
        busy = views[b->here.view]->work != NULL;
    }
}

/* ---- setting up ---- */

static void add_bindings(struct tui_binding *to, const struct tui_binding *from, size_t count)
{
    while (to->command != TUI_NONE)
        to++;
    if (count > 0)
        memcpy(to, from, count * sizeof *from);
}

static bool set_up(struct browser *b)
{
    b->way = calloc(WAY_MAX, sizeof *b->way);
    bool ok = b->way != NULL;
    for (unsigned v = 0; v < VIEWS && ok; v++) {
        const struct view *view = views[v];
        struct tui_binding *keys = b->bindings[v];
        add_bindings(keys, view->bindings, view->nbindings);
        add_bindings(keys, shared, COUNT(shared));
        if (view->keys == KEYS_LINES || view->keys == KEYS_TABLE)
            add_bindings(keys, line_keys, COUNT(line_keys));
        if (view->keys == KEYS_TABLE)
            add_bindings(keys, table_keys, COUNT(table_keys));
        ok = view->init(b);
    }
    b->symbolizer = rec_symbolizer_new();
    b->finding = BROWSE_NONE;
    b->shell.name = "fr-analyze";
    b->shell.notes = notes;
    if (ok) {
        struct tui_setting settings[VIEWS];
        tui_settings_load(b->shell.name, settings, settings_of(b, settings));
    }
    return ok;
}

static void tear_down(struct browser *b)
{
    for (unsigned v = 0; v < VIEWS; v++) {
        views[v]->fini(b);
        tui_table_free(b->tables[v]);
    }
    rec_symbolizer_free(b->symbolizer);
    free(b->way);
    browse_data_free(&b->data);
}

int browse_run(const struct rec_job *job, const struct rec_verdict *verdict,
               const struct browse_options *options)
{
    struct browser *b = calloc(1, sizeof *b);
    struct tui_options terminal = {.mono = options->mono, .ascii = options->ascii};
    char reason[256] = "no memory";
    int signo = 0;
    if (b == NULL || !browse_data_init(&b->data, job, verdict)) {
        free(b);
        return fr_errorf(NULL, "no memory");
    }
    bool open = set_up(b) && tui_open(&terminal, reason, sizeof reason);
    if (open) {
        const struct place start = {.view = VIEW_VERDICT,
                                    .process = BROWSE_NONE,
                                    .other = BROWSE_NONE,
                                    .seq = NO_SEQ,
                                    .src = -1,
                                    .dst = -1};
        b->again = options->again;
        show(b, &start);
        signo = loop(b);
        tui_close();
    }
    int status = b->data.verdict != NULL ? (int)b->data.verdict->status : FR_EXIT_ERROR;
    tear_down(b);
    free(b);
    if (!open)
        return fr_errorf(NULL, "%s", reason);
    browse_pass_on(signo);
    return status;
}
