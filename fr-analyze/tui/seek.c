#include <time.h>

#include "fr-analyze/tui/browser.h"

#define NS_PER_S UINT64_C(1000000000)
#define WIDER    8
#define BATCH    256 /* records between two looks at the clock */

uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static bool ours(const struct seek *seek, const struct rec_op *op)
{
    if (op->comm != seek->member->comm_id || op->flags & REC_OF_NO_SEQ)
        return false;
    if (seek->peer >= 0)
        return op->kind == (seek->send ? REC_SEND : REC_RECV) && op->peer == seek->peer;
    return (rec_kind_flags(op->kind) & seek->kinds) != 0;
}

static void give(struct seek *seek, const struct rec_op *op)
{
    if (op->seq >= seek->lo && op->seq <= seek->hi)
        seek->found(seek->context, op);
}

/* Calls that had not returned are known without reading. */
static bool give_open(struct seek *seek)
{
    const struct rec_process *p = seek->member->process;
    bool any = false;
    for (uint32_t i = 0; i < p->nopen; i++) {
        if (!ours(seek, &p->open[i]) || p->open[i].seq < seek->lo || p->open[i].seq > seek->hi)
            continue;
        seek->found(seek->context, &p->open[i]);
        any = true;
    }
    return any;
}

void seek_start(struct seek *seek, uint64_t near_ns)
{
    const struct rec_member *m = seek->member;
    seek->scan = NULL;
    seek->seen = seek->whole = seek->done = false;
    if (give_open(seek) && seek->lo == seek->hi) {
        seek->done = true;
        return;
    }
    uint64_t life = m->last_ns > m->first_ns ? m->last_ns - m->first_ns : 0;
    uint64_t ops = m->next_seq > m->first_seq ? m->next_seq - m->first_seq : 1;
    uint64_t done = seek->lo > m->first_seq ? seek->lo - m->first_seq : 0;
    double part = done < ops ? (double)done / (double)ops : 1;
    seek->center = near_ns != 0 ? near_ns : m->first_ns + (uint64_t)(part * (double)life);
    seek->margin = life / 64 > NS_PER_S ? life / 64 : NS_PER_S;
}

static bool begin(struct seek *seek)
{
    const struct rec_process *p = seek->member->process;
    uint64_t from = seek->center > seek->margin ? seek->center - seek->margin : 0;
    seek->whole = from <= p->start_ns || from <= seek->member->first_ns;
    seek->seen = false;
    struct rec_scan_filter filter = {.from_ns = seek->whole ? 0 : from};
    return rec_scan_open(seek->job, p, &filter, &seek->scan, NULL) == REC_OK;
}

/* Entered too late: once more, from farther back. */
static void again(struct seek *seek)
{
    seek_stop(seek);
    seek->margin *= WIDER;
    seek->found(seek->context, NULL);
    give_open(seek);
}

/* true = the scan goes on */
static bool take(struct seek *seek, const struct rec_op *op)
{
    if (!ours(seek, op))
        return true;
    if (!seek->seen && op->seq > seek->lo && !seek->whole) {
        again(seek);
        return false;
    }
    seek->seen = true;
    give(seek, op);
    seek->done = op->seq >= seek->hi;
    return !seek->done;
}

bool seek_step(struct seek *seek, uint64_t deadline_ns)
{
    struct rec_event event;
    while (!seek->done && monotonic_ns() < deadline_ns) {
        if (seek->scan == NULL && !begin(seek)) {
            seek->done = true;
            break;
        }
        for (int i = 0; i < BATCH; i++) {
            if (rec_scan_next(seek->scan, &event, NULL) != REC_OK) {
                if (seek->seen || seek->whole)
                    seek->done = true;
                else
                    again(seek);
                break;
            }
            if (event.type == REC_EV_OP && !take(seek, &event.u.op))
                break;
        }
    }
    if (seek->done)
        seek_stop(seek);
    return seek->done;
}

void seek_stop(struct seek *seek)
{
    rec_scan_close(seek->scan);
    seek->scan = NULL;
}
