#include "flows.h"

#include <stdlib.h>

uint64_t flow_time(const struct rec_process *process, const struct rec_op *op)
{
    uint64_t end = op->exit_ns ? op->exit_ns : process->last_ns;
    return op->kind == REC_RECV && end > op->enter_ns ? end - 1 : op->enter_ns;
}

/* 0 for calls that belong to no set. */
static uint64_t id_of(const struct rec_process *process, const struct rec_op *op)
{
    unsigned flags = rec_kind_flags(op->kind);
    const struct rec_member *member = rec_process_member(process, op->comm);
    if (!member || !member->def.uid || !op->enter_ns || (op->flags & REC_OF_NO_SEQ))
        return 0;
    uint64_t id = rec_mix64(member->def.uid ^ rec_mix64(op->seq + 1));
    if (flags & REC_KF_P2P) {
        if (op->peer < 0 || member->comm_rank == REC_ID_NONE)
            return 0;
        uint64_t me = member->comm_rank, peer = (uint32_t)op->peer;
        id = rec_mix64(id ^ (op->kind == REC_SEND ? me << 32 | peer : peer << 32 | me));
        id = rec_mix64(id + 1);
    } else if (!(flags & REC_KF_SEQ)) {
        return 0;
    }
    return id ? id : 1;
}

static struct flow *slot_of(const struct flows *flows, uint64_t id)
{
    size_t i = id & (flows->room - 1);
    while (flows->items[i].id && flows->items[i].id != id)
        i = (i + 1) & (flows->room - 1);
    return &flows->items[i];
}

/* At most half full, so searching is short. */
static bool make_room(struct flows *flows)
{
    if (2 * flows->count < flows->room)
        return true;
    struct flows grown = {.room = flows->room ? 2 * flows->room : 1024};
    grown.items = calloc(grown.room, sizeof(*grown.items));
    if (!grown.items)
        return false;
    for (size_t i = 0; i < flows->room; i++)
        if (flows->items[i].id)
            *slot_of(&grown, flows->items[i].id) = flows->items[i];
    free(flows->items);
    flows->items = grown.items;
    flows->room = grown.room;
    return true;
}

bool flows_note(struct flows *flows, const struct rec_process *process, const struct rec_op *op)
{
    uint64_t id = id_of(process, op), at = flow_time(process, op);
    if (!id)
        return true;
    if (!make_room(flows))
        return false;
    struct flow *flow = slot_of(flows, id);
    if (!flow->id && flows->count == FLOWS_MAX) {
        flows->full = true;
        return true;
    }
    if (!flow->id) {
        flows->count++;
        *flow = (struct flow){.id = id, .first_ns = UINT64_MAX};
    }
    /* Equal times: the order in which processes are written. */
    if (at < flow->first_ns || (at == flow->first_ns && process->index < flow->first_process)) {
        flow->first_ns = at;
        flow->first_process = process->index;
    }
    if (at > flow->last_ns || (at == flow->last_ns && process->index > flow->last_process)) {
        flow->last_ns = at;
        flow->last_process = process->index;
    }
    flow->count++;
    return true;
}

enum flow_phase flows_phase(struct flows *flows, const struct rec_process *process, const struct rec_op *op,
                            uint64_t *id)
{
    uint64_t at = flow_time(process, op);
    *id = id_of(process, op);
    struct flow *flow = *id && flows->room ? slot_of(flows, *id) : NULL;
    if (!flow || !flow->id || flow->count < 2)
        return FLOW_NONE;
    bool first = at == flow->first_ns && process->index == flow->first_process;
    bool last = at == flow->last_ns && process->index == flow->last_process;
    if (first && !flow->began) {
        flow->began = true;
        return FLOW_BEGIN;
    }
    if (last) {
        bool again = flow->ended;
        flow->ended = true;
        return again ? FLOW_NONE : FLOW_END;
    }
    return FLOW_STEP;
}

void flows_fini(struct flows *flows)
{
    free(flows->items);
    *flows = (struct flows){0};
}
