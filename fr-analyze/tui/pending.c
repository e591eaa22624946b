#include "fr-analyze/tui/pending.h"

#include <string.h>

#define NS_PER_S UINT64_C(1000000000)
#define BATCH    256
#define CALLS    400 /* as many as can have marks and not be over, and some */
#define BACK_NS  (120 * NS_PER_S)

void pending_start(struct pending *pending, const struct rec_job *job, const struct rec_process *p)
{
    pending_stop(pending);
    *pending = (struct pending){.process = p};
    uint64_t life = p->last_call_ns > p->start_ns ? p->last_call_ns - p->start_ns : 0;
    uint64_t back = p->ops > 0 ? life / p->ops * CALLS : 0;
    back = back < NS_PER_S ? NS_PER_S : back > BACK_NS ? BACK_NS : back;
    struct rec_scan_filter filter = {.from_ns = p->last_call_ns > back ? p->last_call_ns - back : 0};
    if (p->last_call_ns == 0 || rec_scan_open(job, p, &filter, &pending->scan, NULL) != REC_OK)
        pending->scan = NULL;
}

static void take(struct pending *pending, const struct rec_op *op)
{
    if (op->launch == 0 || op->flags & REC_OF_CAPTURED)
        return;
    pending->known |= op->state == REC_STATE_GPU_STARTED || op->state == REC_STATE_COMPLETED;
    if (op->state != REC_STATE_ENQUEUED && op->state != REC_STATE_GPU_STARTED)
        return;
    uint32_t kept = pending->count < PENDING_SHOWN ? pending->count : PENDING_SHOWN, at = kept;
    while (at > 0 && pending->oldest[at - 1].enter_ns > op->enter_ns)
        at--;
    pending->count++;
    if (at == PENDING_SHOWN)
        return;
    uint32_t behind = (kept < PENDING_SHOWN ? kept : PENDING_SHOWN - 1) - at;
    memmove(&pending->oldest[at + 1], &pending->oldest[at], behind * sizeof *pending->oldest);
    pending->oldest[at] = *op;
}

bool pending_step(struct pending *pending, uint64_t deadline_ns)
{
    struct rec_event event;
    while (pending->scan != NULL) {
        for (int i = 0; i < BATCH && pending->scan != NULL; i++) {
            if (rec_scan_next(pending->scan, &event, NULL) != REC_OK)
                pending_stop(pending);
            else if (event.type == REC_EV_OP)
                take(pending, &event.u.op);
        }
        if (pending->scan != NULL && monotonic_ns() >= deadline_ns)
            return false;
    }
    return true;
}

void pending_stop(struct pending *pending)
{
    rec_scan_close(pending->scan);
    pending->scan = NULL;
}
