#include "format/writer_state.h"

static bool merge(struct rec_loss_entry *entry, uint64_t time_ns, const struct rec_loss *loss)
{
    if (entry->in_piece || entry->loss.thread != loss->thread || entry->loss.why != loss->why)
        return false;
    if (loss->thread != REC_ID_NONE && entry->loss.first_ordinal + entry->loss.count != loss->first_ordinal)
        return false;
    entry->loss.count += loss->count;
    entry->time_ns = time_ns;
    return true;
}

void rec_losses_add(struct rec_losses *losses, uint64_t time_ns, const struct rec_loss *loss)
{
    for (uint32_t i = losses->count; i-- > 0;)
        if (merge(&losses->entries[i], time_ns, loss))
            return;
    if (losses->count < REC_LOSSES) {
        losses->entries[losses->count++] = (struct rec_loss_entry){.loss = *loss, .time_ns = time_ns};
        return;
    }
    /* Full: the last entry stands for everything that found no place of its own. */
    struct rec_loss_entry *last = &losses->entries[REC_LOSSES - 1];
    uint64_t before = last->in_piece ? 0 : last->loss.count; /* else that much has been told */
    *last = (struct rec_loss_entry){.loss = *loss, .time_ns = time_ns};
    last->loss.thread = REC_ID_NONE;
    last->loss.first_ordinal = 0;
    last->loss.count += before;
}

void rec_losses_written(struct rec_losses *losses)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < losses->count; i++)
        if (!losses->entries[i].in_piece)
            losses->entries[kept++] = losses->entries[i];
    losses->count = kept;
}

void rec_losses_failed(struct rec_losses *losses)
{
    for (uint32_t i = 0; i < losses->count; i++)
        losses->entries[i].in_piece = false;
}
