/* The job as it is now, in place of what it was when it was read. */
#include <stdlib.h>

#include "fr-analyze/tui/browser.h"

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
    if (browser_has_subject(b, &place))
        return place;
    return place_in(place.view < MAIN_VIEWS ? place.view : VIEW_VERDICT, BROWSE_NONE);
}

/* False: no memory, and nothing left to show. */
static bool show_again(struct browser *b, const struct rec_job *job, const struct rec_verdict *verdict)
{
    struct lasting *way = calloc(b->nway + 1, sizeof *way);
    bool page = b->shell.page_open, newest = b->data.run + 1 == b->data.nruns;
    enum tui_mode mode = b->shell.mode;
    if (way == NULL)
        return false;
    browser_remember_row(b);
    for (size_t i = 0; i < b->nway; i++)
        way[i] = lasting_place(&b->data, &b->way[i]);
    way[b->nway] = lasting_place(&b->data, &b->here);
    for (unsigned v = 0; v < VIEWS; v++)
        if (browser_views[v]->forget != NULL)
            browser_views[v]->forget(b, true);
    browse_data_free(&b->data);
    bool ok = browse_data_init(&b->data, job, verdict);
    for (size_t i = 0; ok && i < b->nway; i++)
        b->way[i] = place_again(b, &way[i]);
    if (ok) {
        struct place here = place_again(b, &way[b->nway]);
        if (newest)
            here.run = (uint32_t)b->data.nruns;
        browser_show(b, &here);
        b->shell.page_open = page;
        b->shell.mode = mode;
    }
    free(way);
    return ok;
}

/* Details stay as they are while somebody reads them. True: there is something new to see. */
bool browser_look_again(struct browser *b)
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
