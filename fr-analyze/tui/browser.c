/* The frame around the views: header, tabs, the loop between keys and work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fr-analyze/tui/browser.h"
#include "fr-common.h"
#include "fr-tui/settings.h"

#define WORK_NS   15000000 /* of reading between two looks at the keys */
#define REDRAW_NS 60000000 /* between two frames while reading */
#define DOUBLE_NS 400000000
#define COUNT(a)  (sizeof(a) / sizeof(a)[0])

const struct view *const browser_views[VIEWS] = {
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

/* ---- drawing ---- */

static int tab_x(unsigned tab)
{
    int x = 1;
    for (unsigned t = 0; t < tab; t++)
        x += (int)strlen(browser_views[t]->name) + 3;
    return x;
}

static void draw_tabs(struct browser *b, int y)
{
    b->tabs_y = y;
    for (unsigned t = 0; t < MAIN_VIEWS; t++)
        tui_say(y, tab_x(t), t == b->here.view ? TUI_COLUMN : TUI_NORMAL, "[%s]", browser_views[t]->name);
    if (b->here.view >= MAIN_VIEWS)
        tui_say(y, tab_x(MAIN_VIEWS), TUI_COLUMN, "[%s]", browser_views[b->here.view]->name);
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
    char folded[41];
    int x = 1 + tui_say(y, 1, good ? TUI_GOOD : TUI_BAD, "%s", rec_verdict_type_name(f->type));
    x += tui_say(y, x, TUI_NORMAL, " (%s)", rec_confidence_name(f->confidence));
    if (f->nculprits > 0) {
        fr_fold_ranks(folded, sizeof folded, f->culprits, f->nculprits);
        x += tui_say(y, x, TUI_NORMAL, "  %s ", f->nculprits > 1 ? "ranks" : "rank");
        x += tui_say(y, x, TUI_BAD, "%s", folded);
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
        if (browser_views[b->here.view]->about != NULL)
            browser_views[b->here.view]->about(b, text, sizeof text, &style);
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
        if (browser_views[v]->rows >= TUI_ROWS_TABLE)
            settings[n++] = (struct tui_setting){browser_views[v]->name, b->tables[v]};
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
        browser_go_back(b);
        break;
    case TUI_SETUP_DONE:
        keep_settings(b);
        break;
    case TUI_OPEN:
        if (browser_views[b->here.view]->target(b, &place))
            browser_go(b, &place);
        break;
    case CMD_VIEW:
        browser_go_to_view(b, b->here.view < MAIN_VIEWS ? (b->here.view + 1) % MAIN_VIEWS : VIEW_VERDICT);
        break;
    case CMD_VIEW_BACK:
        browser_go_to_view(b, b->here.view < MAIN_VIEWS ? (b->here.view + MAIN_VIEWS - 1) % MAIN_VIEWS
                                                        : VIEW_VERDICT);
        break;
    case CMD_1:
    case CMD_2:
    case CMD_3:
    case CMD_4:
        browser_go_to_view(b, (enum view_id)(command - CMD_1));
        break;
    case CMD_DIFF:
        browser_compare(b);
        break;
    case CMD_TIME:
        if (!browser_selected_place(b, &place))
            place = place_in(VIEW_TIME, BROWSE_NONE);
        place.view = VIEW_TIME;
        if (b->here.view != VIEW_TIME)
            browser_go(b, &place);
        break;
    case CMD_FINDING:
        browser_go_to_finding(b);
        break;
    case CMD_RUN:
        browser_go_to_earlier_run(b);
        break;
    default:
        if (browser_views[b->here.view]->command != NULL)
            browser_views[b->here.view]->command(b, command);
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
                    browser_go_to_view(b, (enum view_id)t);
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
    if (browser_views[b->here.view]->rows != TUI_ROWS_LINES || b->here.view == VIEW_DIFF) {
        b->width = tui_columns();
        return;
    }
    browser_remember_row(b);
    struct place place = b->here;
    browser_show(b, &place);
    b->shell.page_open = page;
}

/* Returns the signal that ended it, or 0. */
static int loop(struct browser *b)
{
    uint64_t drawn = 0;
    bool busy = false;
    for (;;) {
        struct tui_event event;
        if (browser_look_again(b)) {
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
            bool more = browser_views[b->here.view]->work != NULL &&
                        browser_views[b->here.view]->work(b, monotonic_ns() + WORK_NS);
            if (!more)
                drawn = 0; /* what has come is shown */
            busy = more;
            continue;
        }
        handle(b, &event);
        if (b->leave || event.type == TUI_EV_QUIT)
            return event.type == TUI_EV_QUIT ? event.signal : 0;
        drawn = 0;
        busy = browser_views[b->here.view]->work != NULL;
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
        const struct view *view = browser_views[v];
        struct tui_binding *keys = b->bindings[v];
        add_bindings(keys, view->bindings, view->nbindings);
        add_bindings(keys, shared, COUNT(shared));
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
        browser_views[v]->fini(b);
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
        const struct place start = place_in(VIEW_VERDICT, BROWSE_NONE);
        b->again = options->again;
        browser_show(b, &start);
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
