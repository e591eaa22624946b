#include "batch.h"

#include <stdlib.h>

void batch_flush(struct batch *batch)
{
    if (batch->count)
        rec_writer_ops(batch->writer, batch->ops, batch->count);
    batch->total += batch->count;
    batch->count = 0;
}

void batch_fini(struct batch *batch)
{
    free(batch->next);
    batch->next = NULL;
    batch->nnext = batch->room = 0;
}

static struct batch_next *next_of(struct batch *batch, uint32_t thread)
{
    for (size_t i = batch->nnext; i-- > 0;)
        if (batch->next[i].thread == thread)
            return &batch->next[i];
    if (batch->nnext == batch->room) {
        size_t room = batch->room ? 2 * batch->room : 64;
        struct batch_next *grown = reallocarray(batch->next, room, sizeof(*grown));
        if (!grown)
            return NULL;
        batch->next = grown;
        batch->room = room;
    }
    batch->next[batch->nnext] = (struct batch_next){.thread = thread};
    return &batch->next[batch->nnext++];
}

static bool follows(const struct batch *batch, const struct rec_op *op)
{
    const struct rec_op *last = &batch->ops[batch->count - 1];
    return last->thread == op->thread && last->ordinal + 1 == op->ordinal;
}

/* As it was recorded: what readers conclude from the records of GPU progress, they will conclude again. */
static struct rec_op plain(const struct rec_op *op)
{
    struct rec_op result = *op;
    result.flags &= (uint16_t)~REC_OF_LATE;
    if (op->launch && !(op->flags & REC_OF_CAPTURED)) {
        result.gpu_start_ns = result.gpu_end_ns = 0;
        if (op->state == REC_STATE_GPU_STARTED || op->state == REC_STATE_COMPLETED)
            result.state = REC_STATE_ENQUEUED;
    }
    return result;
}

bool batch_add(struct batch *batch, const struct rec_op *op)
{
    struct batch_next *next = next_of(batch, op->thread);
    if (!next)
        return false;
    bool late = op->flags & REC_OF_LATE;
    if (late || !batch->late_only) {
        if (batch->count == BATCH_OPS || (batch->count && !follows(batch, op)))
            batch_flush(batch);
        if (late && op->ordinal > next->ordinal) {
            struct rec_loss loss = {op->thread, next->ordinal, op->ordinal - next->ordinal,
                                    REC_LOSS_RING_FULL};
            rec_writer_loss(batch->writer, op->enter_ns, &loss);
        }
        batch->ops[batch->count++] = plain(op);
    }
    next->ordinal = op->ordinal + 1;
    return true;
}

bool batch_open(struct batch *batch, uint64_t time_ns, const struct rec_op *ops, uint32_t count)
{
    struct rec_op *copies = calloc(count + 1u, sizeof(*copies));
    if (!copies)
        return false;
    for (uint32_t i = 0; i < count; i++)
        copies[i] = plain(&ops[i]);
    rec_writer_open_ops(batch->writer, time_ns, copies, count);
    free(copies);
    return true;
}
