/* Events, meetings and streams: what goes on without the hosts. */
#include <string.h>

#include "machine.h"

/* ---- events ---- */

static bool earlier(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void schedule(struct machine *m, uint64_t at, enum event_kind kind, uint32_t a, uint32_t b)
{
    GROW(m->heap, m->nheap, m->heap_cap);
    size_t i = m->nheap++;
    struct event event = {at, m->order++, kind, a, b};
    for (; i && earlier(&event, &m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = event;
}

struct event machine_next(struct machine *m)
{
    struct event top = m->heap[0], last = m->heap[--m->nheap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->nheap; i = child) {
        if (child + 1 < m->nheap && earlier(&m->heap[child + 1], &m->heap[child]))
            child++;
        if (!earlier(&m->heap[child], &last))
            break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = last;
    return top;
}

void machine_wake(struct machine *m, int rank, int lane, uint64_t after)
{
    m->hosts[rank].threads[lane].wait = WAIT_TIME;
    schedule(m, m->now + after, EV_THREAD, (uint32_t)rank, (uint32_t)lane);
}

/* ---- meetings ---- */

static uint32_t *map_at(struct machine *m, uint64_t key)
{
    if (m->map_used * 2 >= m->map_size) {
        size_t old = m->map_size;
        uint64_t *keys = m->keys;
        uint32_t *values = m->values;
        m->map_size = old ? old * 2 : 1024;
        m->map_used = 0;
        m->keys = calloc(m->map_size, sizeof *m->keys);
        m->values = calloc(m->map_size, sizeof *m->values);
        if (!m->keys || !m->values)
            abort();
        for (size_t i = 0; i < old; i++)
            if (keys[i])
                *map_at(m, keys[i]) = values[i];
        free(keys);
        free(values);
    }
    size_t i = key & (m->map_size - 1);
    while (m->keys[i] && m->keys[i] != key)
        i = (i + 1) & (m->map_size - 1);
    if (!m->keys[i]) {
        m->keys[i] = key;
        m->values[i] = NONE;
        m->map_used++;
    }
    return &m->values[i];
}

uint64_t machine_bytes(const struct act *act)
{
    return act->count * rec_dtype_size(act->dtype);
}

static bool fits(const struct act *a, const struct act *b)
{
    if ((rec_kind_flags(a->kind) & REC_KF_P2P) && a->what == ACT_CALL)
        return machine_bytes(a) == machine_bytes(b);
    if (rec_kind_flags(a->kind) & REC_KF_RMA)
        return true;
    if (a->kind != b->kind)
        return false;
    return !(rec_kind_flags(a->kind) & REC_KF_DATA) || machine_bytes(a) == machine_bytes(b);
}

uint32_t machine_meet(struct machine *m, int class_id, const struct act *act, uint64_t number, int src,
                      int dst, int needed)
{
    uint64_t key = rec_mix64(rec_mix64(number * 16 + (uint64_t)class_id) ^
                             ((uint64_t)act->comm << 20 | (uint64_t)(src + 1) << 10 | (uint64_t)(dst + 1))) |
                   1;
    uint32_t *at = map_at(m, key);
    if (*at == NONE) {
        *at = (uint32_t)m->nmeetings;
        GROW(m->meetings, m->nmeetings, m->meetings_cap);
        m->meetings[m->nmeetings++] =
            (struct meeting){.needed = needed, .first = *act, .fits = true, .parts = NONE};
    }
    struct meeting *meeting = &m->meetings[*at];
    meeting->posted++;
    meeting->fits = meeting->fits && fits(&meeting->first, act);
    return *at;
}

void machine_try(struct machine *m, uint32_t index)
{
    struct meeting *meeting = &m->meetings[index];
    if (meeting->scheduled || !meeting->fits || meeting->active < meeting->needed)
        return;
    meeting->scheduled = true;
    uint64_t duration = 10 * US + machine_bytes(&meeting->first) / 16 + rng_in(&m->rng, 0, 40 * US);
    if (meeting->first.what == ACT_CALL && (rec_kind_flags(meeting->first.kind) & REC_KF_CREATE))
        duration += 2 * MS;
    schedule(m, m->now + duration, EV_MEETING, index, 0);
}

/* ---- streams ---- */

void machine_note_marks(struct machine *m, int rank, int stream)
{
    struct stream *s = &m->hosts[rank].streams[stream];
    uint64_t ended = s->head ? s->launch_of[s->head - 1] : 0;
    bool ours = s->head < s->count && s->launch_of[s->head];
    uint64_t started = ours ? s->launch_of[s->head] : ended;
    if (ours && started == ended)
        ended--; /* another communicator's part of the same launch is still to come */
    if (started == s->started && ended == s->ended)
        return;
    s->started = started;
    s->ended = ended;
    struct rank_run *run = &m->run->ranks[rank];
    GROW(run->marks, run->nmarks, run->marks_cap);
    run->marks[run->nmarks++] = (struct mark){m->now, stream, started, ended};
}

static void activate(struct machine *m, uint32_t index)
{
    struct part *part = &m->parts[index];
    if (part->active || m->hosts[part->rank].dead)
        return;
    part->active = true;
    uint32_t first = part->first_op, last = first + part->nops;
    for (uint32_t i = first; i < last; i++) {
        const struct op *op = &m->ops[i];
        m->meetings[op->meeting].active++;
        machine_try(m, op->meeting);
        if (op->delivers != NONE) {
            m->meetings[op->delivers].active++;
            machine_try(m, op->delivers);
        }
    }
}

void machine_check_head(struct machine *m, int rank, int stream)
{
    struct stream *s = &m->hosts[rank].streams[stream];
    if (s->head >= s->count)
        return;
    uint32_t part = s->parts[s->head];
    if (++m->parts[part].heads == m->parts[part].wants)
        activate(m, part);
}

static void finish_part(struct machine *m, uint32_t index)
{
    struct part *part = &m->parts[index];
    int rank = part->rank;
    unsigned streams = part->streams;
    for (int s = 0; s < STREAMS_MAX; s++)
        if (streams & 1u << s) {
            m->hosts[rank].streams[s].head++;
            machine_note_marks(m, rank, s);
        }
    for (int s = 0; s < STREAMS_MAX; s++)
        if (streams & 1u << s)
            machine_check_head(m, rank, s);
    machine_poll(m, rank);
}

static void finish_op(struct machine *m, uint32_t index)
{
    struct op *op = &m->ops[index];
    if (op->done || m->hosts[op->rank].dead)
        return;
    op->done = true;
    if (--m->parts[op->part].left == 0)
        finish_part(m, op->part);
}

void machine_end_meeting(struct machine *m, uint32_t index)
{
    m->meetings[index].done = true;
    for (uint32_t i = m->meetings[index].parts; i != NONE; i = m->ops[i].next)
        finish_op(m, i);
    for (int r = 0; r < m->plan->nranks; r++)
        machine_poll(m, r);
}
