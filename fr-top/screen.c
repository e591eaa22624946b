/* The screen: views, keys, the loop between refreshes and keys. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fr-top/diagnosis.h"
#include "fr-top/header.h"
#include "fr-top/lanes.h"
#include "fr-top/page.h"
#include "fr-top/top.h"
#include "fr-top/views.h"
#include "fr-analyze/tui/browse.h"
#include "fr-common.h"
#include "fr-tui/settings.h"
#include "fr-tui/shell.h"

enum { VIEW_HISTORY = TOP_TABLES, VIEWS };
enum {
    CMD_VIEW = TUI_APP,
    CMD_VIEW_BACK,
    CMD_RANKS,
    CMD_COMMS,
    CMD_HOSTS,
    CMD_KINDS,
    CMD_HISTORY,
    CMD_BY_STATE,
    CMD_BY_LAG,
    CMD_BROWSE,
    CMD_RUNS
};

static const struct tui_binding bindings[] = {
    {CMD_VIEW, {TUI_KEY_TAB}, NULL, "next view: ranks, communicators, hosts, calls, history"},
    {CMD_VIEW_BACK, {TUI_KEY_BACK_TAB}, NULL, "previous view"},
    {CMD_RANKS, {'1'}, NULL, "ranks"},
    {CMD_COMMS, {'2'}, NULL, "communicators"},
    {CMD_HOSTS, {'3'}, NULL, "hosts"},
    {CMD_KINDS, {'4'}, NULL, "kinds of calls: how many, how large, how fast"},
    {CMD_HISTORY, {'5'}, NULL, "history: the state of every rank over time; + and - zoom"},
    {CMD_BY_STATE, {TUI_F(7), 'S'}, "Worst", "ranks, the worst state first"},
    {CMD_RUNS, {'r'}, NULL, "of a job that was restarted: processes of earlier runs, too"},
    {CMD_BY_LAG, {TUI_F(8), 'L'}, "Lag", "ranks, the largest lag first"},
    {CMD_BROWSE,
     {TUI_F(9), 'b'},
     "Browse",
     "browse the verdict and all calls (fr-analyze --tui); q leads back"},
};

static const char *const notes[] = {
    "",
    "States, worst first:",
    "    dead      gone without a word (SIGKILL, lost node)",
    "    crashed   ended by a fatal signal",
    "    failed    exited with a status other than 0",
    "    late      long outside NCCL while other members of a communicator are ahead",
    "    stalled   no NCCL call began or returned for long (--stall)",
    "    silent    no sign of life: stopped, or its host is",
    "    in_call   inside an NCCL call",
    "    starting  no communicator yet",
    "    idle      no call lately",
    "    running   calls come and go",
    "    exited    ended well",
    "",
    "The verdict is that of fr-analyze. A bad one is shown when two looks in a row give it.",
    "AT tells where a call is: host (inside NCCL), queue (launched, its turn has not come),",
    "gpu (at work), done; - where the GPU's progress is not known.",
    "LAG counts the calls by which a rank is behind the foremost member of a communicator.",
    "B/S is what the calls were given (count x size), not what the network moved.",
    NULL,
};

struct screen {
    struct top_watch *watch;
    struct top_diagnosis *diagnosis; /* NULL = not wanted */
    const struct top_screen_options *options;
    struct tui_options terminal;
    struct top_snapshot *snapshot;
    struct top_view_data data;
    struct tui_table *tables[TOP_TABLES];
    struct tui_timeline timeline;
    struct top_lanes lanes;
    struct top_header header;
    struct tui_shell shell;
    struct top_page page;
    unsigned view;
    int tabs_y; /* -1 = not shown */
    struct rec_error error;
    int status;
    bool refresh_now;
};

static uint64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int tab_x(unsigned view)
{
    int x = 1;
    for (unsigned v = 0; v < view; v++)
        x += (int)strlen(v < TOP_TABLES ? top_views[v]->name : "History") + 3;
    return x;
}

static void draw_tabs(struct screen *screen, int y)
{
    screen->tabs_y = y;
    for (unsigned v = 0; v < VIEWS; v++)
        tui_say(y, tab_x(v), v == screen->view ? TUI_COLUMN : TUI_NORMAL, "[%s]",
                v < TOP_TABLES ? top_views[v]->name : "History");
}

/* What the marks of the history view mean. */
static void draw_legend(int y)
{
    int x = 1;
    for (enum top_state state = 0; state < TOP_STATES && x < tui_columns(); state++) {
        struct tui_mark mark = top_state_mark(state);
        char glyph[8];
        if (state == TOP_CRASHED)
            continue; /* shares its mark with dead */
        glyph[tui_utf8_put(glyph, sizeof glyph - 1, tui_utf8() ? mark.glyph : mark.ascii)] = '\0';
        x += tui_say(y, x, mark.style, "%s", glyph) + 1;
        x += tui_say(y, x, TUI_NORMAL, "%s", top_state_name(state)) + 1;
    }
}

/* Returns the lines used, down to the tabs. */
static int draw_top(struct screen *screen, int rows, int columns)
{
    int y = top_header_draw(&screen->header, rows, columns);
    screen->tabs_y = -1;
    if (rows < 18)
        return y;
    if (screen->view == VIEW_HISTORY)
        draw_legend(y++);
    draw_tabs(screen, y);
    return y + 1;
}

static void draw_nothing(int y)
{
    static const char *const text[] = {
        "No recorded process here.",
        "Start one with LD_PRELOAD=librecorder-inject.so FREC_DIR=DIR in front of its command.",
        "This screen will show it by itself.",
    };
    for (int i = 0; i < 3; i++)
        tui_put(y + i, 2, tui_columns() - 3, i == 0 ? TUI_BOLD : TUI_NORMAL, TUI_LEFT, text[i]);
}

static void draw(struct screen *screen)
{
    tui_begin();
    if (!tui_too_small(5, 20)) {
        int rows = tui_rows(), columns = tui_columns();
        int used = draw_top(screen, rows, columns);
        tui_shell_draw(&screen->shell, (struct tui_rect){used, 0, rows - used, columns});
        if (screen->snapshot->nprocesses == 0 && !screen->shell.page_open &&
            screen->shell.mode == TUI_MODE_BROWSE && rows - used > 6)
            draw_nothing(used + 2);
    }
    tui_end();
}

/* ---- data ---- */

static bool refresh_data(struct screen *screen)
{
    if (top_watch_refresh(screen->watch, &screen->snapshot, &screen->error) != REC_OK)
        return false;
    /* The snapshot is the watch's, and this thread's alone. */
    if (screen->diagnosis != NULL) {
        top_diagnosis_ask(screen->diagnosis, screen->snapshot);
        screen->snapshot->verdict = top_diagnosis_get(screen->diagnosis);
    }
    screen->data.snapshot = screen->header.snapshot = screen->snapshot;
    tui_history_push(&screen->header.ops, screen->snapshot->ops_per_s);
    tui_history_push(&screen->header.bytes, screen->snapshot->bytes_per_s);
    top_lanes_push(&screen->lanes, screen->snapshot);
    for (unsigned v = 0; v < TOP_TABLES; v++)
        tui_table_update(screen->tables[v]);
    if (screen->shell.page_open && screen->page.id != 0)
        top_page_fill(&screen->page, screen->snapshot);
    snprintf(screen->shell.status, sizeof screen->shell.status, "%.150s", screen->snapshot->warning);
    if (screen->options->metrics == NULL)
        return true;
    /* A disk that is full now may have room later: say it and go on. */
    struct rec_error err;
    if (top_write_metrics(screen->snapshot, screen->options->metrics, &err) != REC_OK)
        snprintf(screen->shell.status, sizeof screen->shell.status, "%.80s: %.60s", err.path, err.text);
    return true;
}

static void show_view(struct screen *screen, unsigned view)
{
    screen->view = view;
    screen->shell.page_open = false;
    screen->shell.mode = TUI_MODE_BROWSE;
    screen->shell.table = view < TOP_TABLES ? screen->tables[view] : NULL;
    screen->shell.timeline = view == VIEW_HISTORY ? &screen->timeline : NULL;
}

static void open_details(struct screen *screen)
{
    const struct top_snapshot *snapshot = screen->snapshot;
    size_t row;
    uint32_t comm, process;
    if (screen->view == VIEW_HISTORY) {
        row = screen->timeline.lane;
        comm = TOP_NONE;
        process = row < snapshot->nprocesses ? (uint32_t)row : TOP_NONE;
    } else {
        row = tui_table_selected(screen->tables[screen->view]);
        comm = top_view_comm(snapshot, screen->view, row);
        process = top_view_process(snapshot, screen->view, row);
    }
    bool about_comm = comm != TOP_NONE && snapshot->comms[comm].uid != 0 &&
                      (screen->view == TOP_VIEW_RANKS || process == TOP_NONE);
    if (!about_comm && process == TOP_NONE)
        return;
    screen->page.comm = about_comm;
    screen->page.id = about_comm ? snapshot->comms[comm].uid : snapshot->processes[process].proc_uid;
    if (top_page_fill(&screen->page, snapshot))
        tui_shell_page(&screen->shell, &top_page_source, &screen->page,
                       about_comm ? "Communicator" : "Process");
}

static void settings_of(const struct screen *screen, struct tui_setting settings[TOP_TABLES])
{
    for (unsigned v = 0; v < TOP_TABLES; v++)
        settings[v] = (struct tui_setting){top_views[v]->name, screen->tables[v]};
}

static void keep_settings(struct screen *screen)
{
    struct tui_setting settings[TOP_TABLES];
    settings_of(screen, settings);
    if (tui_settings_save("fr-top", settings, TOP_TABLES, screen->shell.status, sizeof screen->shell.status))
        screen->shell.status[0] = '\0';
}

static void sort_by(struct tui_table *table, const char *name)
{
    const struct tui_column *columns;
    unsigned count = tui_table_columns(table, &columns);
    for (unsigned c = 0; c < count; c++) {
        if (strcmp(columns[c].name, name) == 0)
            tui_table_sort(table, c, columns[c].numeric && !columns[c].rising);
    }
}

static void sort_ranks(struct screen *screen, const char *name)
{
    sort_by(screen->tables[TOP_VIEW_RANKS], name);
    show_view(screen, TOP_VIEW_RANKS);
}

/* Lends the terminal to the browser, which shows the job as the last verdict found it. */
static void browse(struct screen *screen)
{
    const struct rec_job *job;
    const struct rec_verdict *verdict;
    const struct browse_options how = {.mono = screen->options->mono, .ascii = screen->options->ascii};
    char reason[160];
    if (screen->diagnosis == NULL || !top_diagnosis_borrow(screen->diagnosis, &job, &verdict)) {
        snprintf(screen->shell.status, sizeof screen->shell.status, "%s",
                 screen->diagnosis == NULL ? "no verdict wanted" : "no verdict yet");
        return;
    }
    tui_close();
    browse_run(job, verdict, &how);
    top_diagnosis_return(screen->diagnosis);
    if (!tui_open(&screen->terminal, reason, sizeof reason)) {
        screen->status = FR_EXIT_ERROR;
        rec_error_set(&screen->error, REC_ERR_IO, NULL, 0, "%s", reason);
    }
}

/* false = quit */
static bool run_command(struct screen *screen, int command)
{
    switch (command) {
    case TUI_QUIT:
        return false;
    case TUI_OPEN:
        open_details(screen);
        break;
    case TUI_SETUP_DONE:
        keep_settings(screen);
        break;
    case CMD_VIEW:
        show_view(screen, (screen->view + 1) % VIEWS);
        break;
    case CMD_VIEW_BACK:
        show_view(screen, (screen->view + VIEWS - 1) % VIEWS);
        break;
    case CMD_RANKS:
    case CMD_COMMS:
    case CMD_HOSTS:
    case CMD_KINDS:
    case CMD_HISTORY:
        show_view(screen, (unsigned)(command - CMD_RANKS));
        break;
    case CMD_BY_STATE:
        sort_ranks(screen, "STATE");
        break;
    case CMD_BY_LAG:
        sort_ranks(screen, "LAG");
        break;
    case CMD_RUNS:
        screen->header.all_runs = !screen->header.all_runs;
        top_watch_all_runs(screen->watch, screen->header.all_runs);
        screen->refresh_now = true;
        break;
    case CMD_BROWSE:
        browse(screen);
        return screen->status == 0;
    default:
        break;
    }
    return true;
}

static bool handle(struct screen *screen, const struct tui_event *event)
{
    if (event->type == TUI_EV_MOUSE && event->mouse == TUI_MOUSE_CLICK && event->y == screen->tabs_y) {
        for (unsigned v = 0; v < VIEWS; v++) {
            if (event->x >= tab_x(v) && event->x < tab_x(v + 1) - 1)
                show_view(screen, v);
        }
        return true;
    }
    return run_command(screen, tui_shell_event(&screen->shell, event));
}

/* Returns the signal that ended it, or 0. */
static int loop(struct screen *screen)
{
    uint64_t next = monotonic_ms();
    for (;;) {
        uint64_t now = monotonic_ms();
        if (now >= next || screen->refresh_now) {
            screen->refresh_now = false;
            if (!screen->shell.paused && !refresh_data(screen)) {
                screen->status = FR_EXIT_ERROR;
                return 0;
            }
            next = now + screen->options->delay_ms;
        }
        draw(screen);
        struct tui_event event;
        tui_wait((int)(next - now), &event);
        if (!handle(screen, &event))
            return event.type == TUI_EV_QUIT ? event.signal : 0;
    }
}

static bool set_up(struct screen *screen)
{
    for (unsigned v = 0; v < TOP_TABLES; v++) {
        const struct top_view *view = top_views[v];
        screen->tables[v] = tui_table_new(view->columns, view->ncolumns, &view->source, &screen->data);
        if (screen->tables[v] == NULL) {
            rec_error_set(&screen->error, REC_ERR_NOMEM, NULL, 0, "no memory");
            return false;
        }
    }
    screen->lanes.seconds_each = screen->options->delay_ms / 1000.0;
    tui_timeline_open(&screen->timeline, &top_lanes_source, &screen->lanes);
    screen->timeline.span = 1;
    screen->shell.name = "fr-top";
    screen->shell.notes = notes;
    screen->shell.keymap = (struct tui_keymap){
        .own = bindings, .nown = sizeof bindings / sizeof bindings[0], .rows = TUI_ROWS_TREE, .pause = true};
    struct tui_setting settings[TOP_TABLES];
    settings_of(screen, settings);
    tui_settings_load("fr-top", settings, TOP_TABLES);
    sort_by(screen->tables[TOP_VIEW_COMMS], "AGE"); /* the oldest first: what the others were made from */
    show_view(screen, TOP_VIEW_RANKS);
    return true;
}

int top_screen_run(struct top_watch *watch, const struct top_screen_options *options)
{
    static struct screen screen; /* large, and there is one */
    char reason[256];
    int signo = 0;
    static struct top_snapshot nothing = {.oldest = TOP_NONE, .oldest_gpu = TOP_NONE};
    screen = (struct screen){.watch = watch, .options = options, .snapshot = &nothing};
    screen.terminal = (struct tui_options){.mono = options->mono, .ascii = options->ascii};
    screen.data.snapshot = screen.header.snapshot = &nothing;
    bool ready = set_up(&screen);
    bool open = ready && tui_open(&screen.terminal, reason, sizeof reason);
    if (open) {
        screen.diagnosis = options->diagnose != NULL ? top_diagnosis_start(options->diagnose) : NULL;
        screen.header.diagnosed = screen.diagnosis != NULL;
        signo = loop(&screen);
        tui_close();
        top_diagnosis_stop(screen.diagnosis);
    }
    for (unsigned v = 0; v < TOP_TABLES; v++)
        tui_table_free(screen.tables[v]);
    top_lanes_clear(&screen.lanes);
    top_page_clear(&screen.page);
    if (ready && !open)
        return fr_errorf(NULL, "%s", reason);
    if (!ready || screen.status != 0)
        return fr_error(&screen.error);
    if (signo != 0 && signo != SIGINT) {
        signal(signo, SIG_DFL);
        raise(signo);
    }
    return 0;
}
