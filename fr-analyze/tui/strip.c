#include "fr-analyze/tui/strip.h"

#include <stdlib.h>
#include <string.h>

#define BATCH 256

static bool same_window(const struct strip_window *a, const struct strip_window *b)
{
    return a->by_seq == b->by_seq && a->comm == b->comm && a->from == b->from && a->span == b->span &&
           a->width == b->width;
}

static struct strip *place_of(const struct strips *strips, uint32_t process)
{
    /* Neighbours never share a place: fewer lanes are on a screen than there are places. */
    return (struct strip *)&strips->strips[process % STRIPS];
}

const struct strip *strips_get(const struct strips *strips, uint32_t process,
                               const struct strip_window *window)
{
    const struct strip *strip = place_of(strips, process);
    return strip->complete && strip->process == process && same_window(&strip->window, window) ? strip : NULL;
}

/* ---- marking cells ---- */

static int cell_at(const struct strip_window *w, uint64_t at)
{
    if (at < w->from)
        return -1;
    uint64_t cell = (at - w->from) / w->span;
    return cell < (uint64_t)w->width ? (int)cell : w->width;
}

static void cover(struct strip *strip, uint64_t first, uint64_t last, unsigned flags)
{
    int from = cell_at(&strip->window, first), to = cell_at(&strip->window, last);
    for (int i = from < 0 ? 0 : from; i <= to && i < strip->window.width; i++)
        strip->cells[i].flags |= (uint8_t)flags;
}

bool strips_blamed(const struct strips *strips, uint32_t process, const struct rec_communicator *comm,
                   uint64_t from, uint64_t span)
{
    const struct rec_verdict *verdict = strips->data->verdict;
    int32_t rank = strips->data->processes[process]->rank;
    for (size_t i = 0; i < verdict->nfindings; i++) {
        const struct rec_finding *f = &verdict->findings[i];
        if (f->comm != comm || f->seq == NO_SEQ || rec_kind_flags(f->op.kind) & REC_KF_P2P || f->seq < from ||
            f->seq - from >= span)
            continue;
        if (rec_has_rank(f->culprits, f->nculprits, rank))
            return true;
    }
    return false;
}

static void enter(const struct strips *strips, struct strip *strip, const struct rec_op *op, int at)
{
    if (at < 0 || at >= strip->window.width)
        return;
    struct strip_cell *cell = &strip->cells[at];
    const struct rec_member *member;
    cell->flags |= STRIP_BEGIN;
    if (cell->count < UINT16_MAX)
        cell->count++;
    if (op->result != REC_RESULT_SUCCESS && op->result != REC_RESULT_NONE &&
        op->result != REC_RESULT_IN_PROGRESS)
        cell->flags |= STRIP_FAILED;
    if (cell->kind != REC_NONE && cell->kind != op->kind)
        cell->flags |= STRIP_MIXED;
    if (cell->kind == REC_NONE || op->enter_ns < cell->enter_ns) {
        cell->kind = op->kind;
        cell->seq = op->seq;
        cell->comm = op->comm;
        cell->peer = op->peer;
        cell->enter_ns = op->enter_ns;
    }
    if (strips->data->verdict->status != REC_STATUS_FAULT || rec_kind_flags(op->kind) & REC_KF_P2P)
        return;
    member = rec_process_member(strips->data->processes[strip->process], op->comm);
    if (member != NULL && strips_blamed(strips, strip->process, member->comm, op->seq, 1))
        cell->flags |= STRIP_DIVERGE;
}

static bool shown(const struct strips *strips, const struct rec_op *op)
{
    if (strips->comm_id != REC_ID_NONE)
        return op->comm == strips->comm_id && rec_kind_flags(op->kind) != 0;
    return rec_kind_flags(op->kind) != 0 || op->kind == REC_GROUP_END;
}

/* The op with all its times on the common clock. */
static struct rec_op common_op(const struct strips *strips, const struct rec_process *p,
                               const struct rec_op *op)
{
    struct rec_op common = *op;
    common.enter_ns = browse_common_ns(strips->data, p, op->enter_ns);
    common.exit_ns = browse_common_ns(strips->data, p, op->exit_ns);
    common.gpu_start_ns = browse_common_ns(strips->data, p, op->gpu_start_ns);
    common.gpu_end_ns = browse_common_ns(strips->data, p, op->gpu_end_ns);
    return common;
}

static void mark_by_time(const struct strips *strips, struct strip *strip, const struct rec_op *op)
{
    const struct rec_process *p = strips->data->processes[strip->process];
    const struct rec_op common = common_op(strips, p, op);
    uint64_t end = common.exit_ns;
    unsigned flags = STRIP_CALL;
    if (!shown(strips, op))
        return;
    if (end == 0) {
        end = browse_common_ns(strips->data, p, p->last_ns);
        flags |= STRIP_OPEN;
    }
    cover(strip, common.enter_ns, end, flags);
    if (common.gpu_start_ns != 0 && common.gpu_end_ns >= common.gpu_start_ns)
        cover(strip, common.gpu_start_ns, common.gpu_end_ns, STRIP_GPU);
    enter(strips, strip, &common, cell_at(&strip->window, common.enter_ns));
}

static void mark_by_seq(void *context, const struct rec_op *op)
{
    struct strips *strips = context;
    struct strip *strip = strips->filling;
    if (op == NULL) {
        memset(strip->cells, 0, (size_t)strip->window.width * sizeof *strip->cells);
        return;
    }
    int at = cell_at(&strip->window, op->seq);
    if (at < 0 || at >= strip->window.width)
        return;
    strip->cells[at].flags |= (uint8_t)(STRIP_CALL | (op->exit_ns == 0 ? STRIP_OPEN : 0));
    const struct rec_op common = common_op(strips, strips->data->processes[strip->process], op);
    enter(strips, strip, &common, at);
}

/* ---- filling ---- */

static void drop(struct strips *strips)
{
    rec_scan_close(strips->scan);
    strips->scan = NULL;
    seek_stop(&strips->seek);
    strips->filling = NULL;
}

static bool reserve(struct strip *strip, uint32_t process, const struct strip_window *window)
{
    strip->complete = false;
    strip->process = process;
    strip->window = *window;
    if (window->width > strip->room) {
        struct strip_cell *grown = realloc(strip->cells, (size_t)window->width * sizeof *grown);
        if (grown == NULL)
            return false;
        strip->cells = grown;
        strip->room = window->width;
    }
    memset(strip->cells, 0, (size_t)window->width * sizeof *strip->cells);
    return true;
}

/* true = there is something to read */
static bool begin_by_seq(struct strips *strips, const struct rec_member *member)
{
    const struct strip_window *w = &strips->filling->window;
    uint64_t behind = w->from + (uint64_t)w->width * w->span;
    uint64_t lo = w->from > member->first_seq ? w->from : member->first_seq;
    uint64_t hi = behind < member->next_seq ? behind : member->next_seq;
    if (lo >= hi)
        return false;
    strips->seek = (struct seek){.job = strips->data->job,
                                 .member = member,
                                 .lo = lo,
                                 .hi = hi - 1,
                                 .peer = -1,
                                 .kinds = REC_KF_SEQ,
                                 .found = mark_by_seq,
                                 .context = strips};
    seek_start(&strips->seek, 0);
    return true;
}

static bool begin_by_time(struct strips *strips, const struct rec_process *p)
{
    struct strip *strip = strips->filling;
    const struct strip_window *w = &strip->window;
    struct rec_scan_filter filter = {
        .from_ns = browse_host_ns(strips->data, p, w->from),
        .to_ns = browse_host_ns(strips->data, p, w->from + (uint64_t)w->width * w->span)};
    cover(strip, browse_common_ns(strips->data, p, p->start_ns),
          browse_common_ns(strips->data, p, p->last_ns), STRIP_ALIVE);
    for (uint32_t i = 0; i < p->nopen; i++)
        mark_by_time(strips, strip, &p->open[i]);
    if (p->last_ns < filter.from_ns || p->start_ns > filter.to_ns)
        return false;
    return rec_scan_open(strips->data->job, p, &filter, &strips->scan, NULL) == REC_OK;
}

static bool begin(struct strips *strips, uint32_t process, const struct strip_window *window)
{
    const struct rec_process *p = strips->data->processes[process];
    const struct rec_member *member = window->comm != NULL ? browse_member(p, window->comm) : NULL;
    strips->filling = place_of(strips, process);
    if (!reserve(strips->filling, process, window))
        return false;
    strips->comm_id = member != NULL ? member->comm_id : REC_ID_NONE;
    bool more = window->by_seq ? member != NULL && begin_by_seq(strips, member) : begin_by_time(strips, p);
    strips->filling->complete = !more;
    return true;
}

static bool read_by_time(struct strips *strips, uint64_t deadline_ns)
{
    struct rec_event event;
    do {
        for (int i = 0; i < BATCH; i++) {
            if (rec_scan_next(strips->scan, &event, NULL) != REC_OK)
                return true;
            if (event.type == REC_EV_OP)
                mark_by_time(strips, strips->filling, &event.u.op);
        }
    } while (monotonic_ns() < deadline_ns);
    return false;
}

bool strips_fill(struct strips *strips, uint32_t process, const struct strip_window *window,
                 uint64_t deadline_ns)
{
    if (strips_get(strips, process, window) != NULL)
        return true;
    struct strip *strip = strips->filling;
    if (strip == NULL || strip->process != process || !same_window(&strip->window, window)) {
        drop(strips);
        if (!begin(strips, process, window))
            return false;
    }
    strip = strips->filling;
    if (!strip->complete)
        strip->complete =
            window->by_seq ? seek_step(&strips->seek, deadline_ns) : read_by_time(strips, deadline_ns);
    if (strip->complete)
        drop(strips);
    return strip->complete;
}

void strips_drop(struct strips *strips)
{
    drop(strips);
    for (size_t i = 0; i < STRIPS; i++)
        strips->strips[i].complete = false;
}

void strips_free(struct strips *strips)
{
    drop(strips);
    for (size_t i = 0; i < STRIPS; i++)
        free(strips->strips[i].cells);
}
