#include "format/checkpoint.h"

#include "rec/model.h"

static void clear(struct rec_track *table, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        table[i] = (struct rec_track){.comm = REC_ID_NONE};
}

void rec_tracks_init(struct rec_tracks *tracks)
{
    tracks->comm_count = 0;
    tracks->pair_count = 0;
    clear(tracks->comms, REC_COMM_TRACKS);
    clear(tracks->pairs, REC_PAIR_TRACKS);
}

static uint32_t slot_of(uint32_t comm, int32_t peer, bool send, uint32_t size)
{
    uint64_t key = (uint64_t)comm << 33 ^ (uint64_t)(uint32_t)peer << 1 ^ (uint64_t)send;
    return (uint32_t)rec_mix64(key) & (size - 1);
}

static struct rec_track *find(struct rec_track *table, uint32_t size, uint32_t *count, uint32_t comm,
                              int32_t peer, bool send)
{
    uint32_t i = slot_of(comm, peer, send, size);
    for (; table[i].comm != REC_ID_NONE; i = (i + 1) & (size - 1))
        if (table[i].comm == comm && table[i].peer == peer && table[i].send == send)
            return &table[i];
    if (*count >= size / 4 * 3)
        return NULL;
    ++*count;
    table[i].comm = comm;
    table[i].peer = peer;
    table[i].send = send;
    table[i].prefix_ok = true;
    return &table[i];
}

/* Linear probing without tombstones: later entries move into the hole when it lies on their way. */
static void erase(struct rec_track *table, uint32_t size, uint32_t hole)
{
    uint32_t mask = size - 1;
    for (uint32_t i = (hole + 1) & mask; table[i].comm != REC_ID_NONE; i = (i + 1) & mask) {
        uint32_t home = slot_of(table[i].comm, table[i].peer, table[i].send, size);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            table[hole] = table[i];
            hole = i;
        }
    }
    table[hole] = (struct rec_track){.comm = REC_ID_NONE};
}

static void give(struct rec_track *track, struct rec_window *window, rec_checkpoint_sink *sink, void *context)
{
    track->prefix += window->hash;
    track->next = window->index + 1;
    struct rec_checkpoint checkpoint = {
        .comm = track->comm,
        .peer = track->peer,
        .send = track->send,
        .prefix_ok = track->prefix_ok,
        .window = window->index,
        .hash = window->hash,
        .prefix = track->prefix_ok ? track->prefix : 0,
    };
    window->count = 0;
    sink(context, &checkpoint);
}

static struct rec_window *lowest(struct rec_track *track)
{
    struct rec_window *best = NULL;
    for (int i = 0; i < REC_TRACK_WINDOWS; i++) {
        struct rec_window *window = &track->windows[i];
        if (window->count && (!best || window->index < best->index))
            best = window;
    }
    return best;
}

static void give_ready(struct rec_track *track, rec_checkpoint_sink *sink, void *context)
{
    for (struct rec_window *window; (window = lowest(track)) != NULL;) {
        if (window->index != track->next || window->count != window->expect)
            return;
        give(track, window, sink, context);
    }
}

/* The lowest window ends here, complete or not; whatever lies before it stays unknown. */
static void give_up_lowest(struct rec_track *track, rec_checkpoint_sink *sink, void *context)
{
    struct rec_window *window = lowest(track);
    bool complete = window->count == window->expect;
    if (!complete || window->index != track->next)
        track->prefix_ok = false;
    if (complete) {
        give(track, window, sink, context);
    } else {
        track->next = window->index + 1;
        window->count = 0;
    }
    give_ready(track, sink, context);
}

static struct rec_window *window_of(struct rec_track *track, uint64_t index, uint64_t first_seq,
                                    rec_checkpoint_sink *sink, void *context)
{
    for (;;) {
        if (index < track->next)
            return NULL;
        struct rec_window *vacant = NULL;
        for (int i = 0; i < REC_TRACK_WINDOWS; i++) {
            struct rec_window *window = &track->windows[i];
            if (window->count == 0)
                vacant = window;
            else if (window->index == index)
                return window;
        }
        if (vacant) {
            *vacant = (struct rec_window){.index = index, .expect = REC_CHECKPOINT_OPS};
            if (index == 0)
                vacant->expect -= (uint32_t)first_seq;
            return vacant;
        }
        /* An op older than all open windows is the one to lose, not them. */
        if (index < lowest(track)->index)
            return NULL;
        give_up_lowest(track, sink, context);
    }
}

void rec_tracks_op(struct rec_tracks *tracks, uint32_t comm, int32_t peer, bool send, uint64_t first_seq,
                   uint64_t seq, uint64_t signature, rec_checkpoint_sink *sink, void *context)
{
    struct rec_track *track =
        peer < 0 ? find(tracks->comms, REC_COMM_TRACKS, &tracks->comm_count, comm, -1, false)
                 : find(tracks->pairs, REC_PAIR_TRACKS, &tracks->pair_count, comm, peer, send);
    if (!track)
        return;
    struct rec_window *window = window_of(track, seq / REC_CHECKPOINT_OPS, first_seq, sink, context);
    if (!window)
        return;
    window->hash += rec_checkpoint_term(seq, signature);
    if (++window->count == window->expect)
        give_ready(track, sink, context);
}

static void give_rest(struct rec_track *track, rec_checkpoint_sink *sink, void *context)
{
    while (lowest(track))
        give_up_lowest(track, sink, context);
}

static void end_comm(struct rec_track *table, uint32_t size, uint32_t *count, uint32_t comm,
                     rec_checkpoint_sink *sink, void *context)
{
    /* An erased place is looked at again: another entry may have moved into it. */
    for (uint32_t i = 0; i < size;) {
        if (table[i].comm == comm) {
            give_rest(&table[i], sink, context);
            erase(table, size, i);
            --*count;
        } else {
            i++;
        }
    }
}

void rec_tracks_end(struct rec_tracks *tracks, uint32_t comm, rec_checkpoint_sink *sink, void *context)
{
    end_comm(tracks->comms, REC_COMM_TRACKS, &tracks->comm_count, comm, sink, context);
    end_comm(tracks->pairs, REC_PAIR_TRACKS, &tracks->pair_count, comm, sink, context);
}

static void finish(struct rec_track *table, uint32_t size, rec_checkpoint_sink *sink, void *context)
{
    for (uint32_t i = 0; i < size; i++)
        if (table[i].comm != REC_ID_NONE)
            give_rest(&table[i], sink, context);
}

void rec_tracks_finish(struct rec_tracks *tracks, rec_checkpoint_sink *sink, void *context)
{
    finish(tracks->comms, REC_COMM_TRACKS, sink, context);
    finish(tracks->pairs, REC_PAIR_TRACKS, sink, context);
}
