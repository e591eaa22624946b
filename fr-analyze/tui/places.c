/* Going from place to place, the way back, and which two ranks are compared. */
#include <stdio.h>
#include <string.h>

#include "fr-analyze/tui/browser.h"

static void no_memory(struct browser *b)
{
    snprintf(b->shell.status, sizeof b->shell.status, "no memory");
}

bool browser_has_subject(const struct browser *b, const struct place *place)
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
        if (browser_views[v]->forget != NULL)
            browser_views[v]->forget(b, false);
}

void browser_show(struct browser *b, const struct place *place)
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
    b->shell.keymap = (struct tui_keymap){
        .own = b->bindings[place->view], .rows = browser_views[place->view]->rows, .pause = b->again != NULL};
    while (b->bindings[place->view][b->shell.keymap.nown].command != TUI_NONE)
        b->shell.keymap.nown++;
    if (table != NULL && follow && place->view >= MAIN_VIEWS && !place->has_row) {
        tui_table_filter(table, "");
        tui_table_command(table, TUI_UNTAG_ALL);
        tui_table_command(table, TUI_FIRST);
    }
    if (!browser_views[place->view]->show(b, place))
        no_memory(b);
    if (table != NULL && place->has_row)
        tui_table_select_id(table, place->row + 1);
}

void browser_remember_row(struct browser *b)
{
    struct tui_table *table = b->tables[b->here.view];
    size_t row = table != NULL ? tui_table_selected(table) : TUI_NO_ROW;
    b->here.has_row = row != TUI_NO_ROW;
    if (b->here.has_row)
        b->here.row = row;
}

static void push(struct browser *b)
{
    browser_remember_row(b);
    if (b->nway == WAY_MAX) {
        memmove(b->way, b->way + 1, (WAY_MAX - 1) * sizeof *b->way);
        b->nway--;
    }
    b->way[b->nway++] = b->here;
}

void browser_go(struct browser *b, const struct place *place)
{
    if (!browser_has_subject(b, place))
        return;
    push(b);
    b->shell.status[0] = '\0';
    struct place to = *place;
    to.has_row = false;
    browser_show(b, &to);
}

void browser_go_back(struct browser *b)
{
    if (b->nway == 0)
        return;
    struct place place = b->way[--b->nway];
    /* The timeline stays where it is. */
    if (place.view == VIEW_TIME) {
        uint32_t run = place.run;
        place = place_in(VIEW_TIME, BROWSE_NONE);
        place.run = run;
    }
    b->shell.status[0] = '\0';
    browser_show(b, &place);
}

void browser_go_to_view(struct browser *b, enum view_id view)
{
    struct place place = place_in(view, BROWSE_NONE);
    if (view != b->here.view)
        browser_go(b, &place);
}

/* Places of the other run remain on the way back. */
static void go_to_run(struct browser *b, size_t run)
{
    struct place place = place_in(b->here.view < MAIN_VIEWS ? b->here.view : VIEW_VERDICT, BROWSE_NONE);
    place.run = (uint32_t)run + 1;
    if (run != b->data.run)
        browser_go(b, &place);
}

void browser_go_to_earlier_run(struct browser *b)
{
    if (b->data.nruns == 1)
        snprintf(b->shell.status, sizeof b->shell.status, "the job was not restarted");
    go_to_run(b, (b->data.run + b->data.nruns - 1) % b->data.nruns);
}

void browser_go_to_finding(struct browser *b)
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
bool browser_selected_place(struct browser *b, struct place *place)
{
    if (b->here.view == VIEW_RANK || b->here.view == VIEW_CALL || b->here.view == VIEW_DIFF) {
        if (browser_views[b->here.view]->target(b, place) && place->comm != NULL)
            return true;
        *place = b->here;
        return true;
    }
    return browser_views[b->here.view]->target(b, place);
}

/* ---- comparing ---- */

uint32_t browser_reference(const struct browser *b, const struct rec_communicator *comm, uint32_t process)
{
    const struct browse_data *data = &b->data;
    bool blamed = data->ranks[data->rank_of[process]].role == REC_ROLE_CULPRIT;
    uint32_t other = BROWSE_NONE;
    for (uint32_t m = 0; m < comm->nmembers; m++) {
        uint32_t p = comm->members[m]->process->index;
        if (p == process)
            continue;
        if ((data->ranks[data->rank_of[p]].role == REC_ROLE_CULPRIT) != blamed)
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

void browser_compare(struct browser *b)
{
    struct place place, diff;
    if (browser_selected_place(b, &place) && browser_diff_place(b, &place, &diff))
        browser_go(b, &diff);
    else
        snprintf(b->shell.status, sizeof b->shell.status, "nothing to compare here");
}
