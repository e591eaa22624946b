#include "machine.h"

/* ---- calls ---- */

static uint64_t host_time(struct machine *m)
{
    return rng_in(&m->rng, 3 * US, 30 * US);
}

static struct call *call_of(struct machine *m, int rank, size_t index)
{
    return &m->run->ranks[rank].calls[index];
}

static size_t new_call(struct machine *m, int rank, int lane, const struct act *act)
{
    struct rank_run *run = &m->run->ranks[rank];
    struct host *host = &m->hosts[rank];
    struct thread *t = &host->threads[lane];
    GROW(run->calls, run->ncalls, run->calls_cap);
    struct call *call = &run->calls[run->ncalls];
    *call = (struct call){.act = *act, .lane = lane, .ordinal = t->ordinal++, .enter = m->now, .exit = NEVER};
    call->group = t->depth || act->what == ACT_GROUP_END ? t->group : 0;
    unsigned flags = act->what == ACT_CALL && act->odd != ODD_REFUSED ? rec_kind_flags(act->kind) : 0;
    if (act->what == ACT_GRAPH)
        call->seq = host->graphs[act->comm]++;
    else if (flags & REC_KF_SEQ)
        call->seq = host->seq[act->comm]++;
    else if (flags & REC_KF_P2P)
        call->seq = host->messages[act->comm][act->peer][act->kind == REC_SEND]++;
    else if (flags & REC_KF_RMA)
        call->seq = host->signals[act->comm][act->peer][act->kind != REC_WAIT_SIGNAL]++;
    else if (act->comm >= 0)
        call->seq = host->seq[act->comm];
    return run->ncalls++;
}

/* The op of a call; its number among the data ops is taken where the call is made. */
static uint32_t post(struct machine *m, int rank, const struct call *call, uint32_t part)
{
    const struct act *act = &call->act;
    struct host *host = &m->hosts[rank];
    const struct plan_comm *comm = &m->plan->comms[act->comm];
    uint32_t meeting, delivers = NONE;
    if (act->what == ACT_GRAPH) {
        meeting = machine_meet(m, 3, act, call->seq, -1, -1, comm->nmembers);
    } else if (plan_pairs(act)) {
        int self = plan_place(comm, rank);
        bool onesided = (rec_kind_flags(act->kind) & REC_KF_RMA) != 0;
        bool send = act->kind != REC_RECV && act->kind != REC_WAIT_SIGNAL;
        bool eager = send && (onesided || machine_bytes(act) < m->plan->eager_bytes);
        meeting = machine_meet(m, onesided ? 7 : 5, act, call->seq, send ? self : act->peer,
                               send ? act->peer : self, 2);
        if (eager) {
            /* The buffer takes it: the other side finds it there whenever it comes. */
            delivers = meeting;
            meeting = machine_meet(m, onesided ? 8 : 6, act, call->seq, self, act->peer, 1);
        }
    } else {
        meeting = machine_meet(m, 1, act, host->data[act->comm]++, -1, -1, comm->nmembers);
    }
    GROW(m->ops, m->nops, m->ops_cap);
    m->ops[m->nops] = (struct op){rank, part, meeting, m->meetings[meeting].parts, delivers, false};
    m->meetings[meeting].parts = (uint32_t)m->nops;
    return (uint32_t)m->nops++;
}

static bool launches(const struct call *call)
{
    const struct act *act = &call->act;
    return act->what == ACT_GRAPH || (act->what == ACT_CALL && (rec_kind_flags(act->kind) & REC_KF_STREAM) &&
                                      act->count && !act->captured && act->odd != ODD_REFUSED);
}

static void push_part(struct machine *m, int rank, uint32_t part, const uint64_t *launch)
{
    for (int s = 0; s < STREAMS_MAX; s++) {
        if (!(m->parts[part].streams & 1u << s))
            continue;
        struct stream *stream = &m->hosts[rank].streams[s];
        GROW(stream->launch_of, stream->count, stream->launch_cap);
        GROW(stream->parts, stream->count, stream->capacity);
        stream->launch_of[stream->count] = launch[s];
        stream->parts[stream->count++] = part;
        machine_note_marks(m, rank, s);
    }
    for (int s = 0; s < STREAMS_MAX; s++)
        if (m->parts[part].streams & 1u << s &&
            m->hosts[rank].streams[s].head + 1 == m->hosts[rank].streams[s].count)
            machine_check_head(m, rank, s);
}

/* Calls first … last-1 of one thread as one launch, communicator by communicator. */
static void launch(struct machine *m, int rank, int lane, size_t first, size_t last)
{
    uint64_t number[STREAMS_MAX] = {0};
    for (size_t i = first; i < last; i++) {
        struct call *call = call_of(m, rank, i);
        if (call->lane != lane || !launches(call))
            continue;
        struct stream *stream = &m->hosts[rank].streams[call->act.stream];
        if (!number[call->act.stream])
            number[call->act.stream] = ++stream->launches;
        call->launch = number[call->act.stream];
    }
    for (int comm = 0; comm < m->plan->ncomms; comm++) {
        uint32_t part = NONE;
        for (size_t i = first; i < last; i++) {
            struct call *call = call_of(m, rank, i);
            if (call->lane != lane || call->act.comm != comm || !launches(call))
                continue;
            if (part == NONE) {
                GROW(m->parts, m->nparts, m->parts_cap);
                part = (uint32_t)m->nparts++;
                m->parts[part] = (struct part){.rank = rank, .first_op = (uint32_t)m->nops, .posted = m->now};
            }
            post(m, rank, call, part);
            struct part *p = &m->parts[part];
            p->nops++;
            p->left++;
            if (!(p->streams & 1u << call->act.stream)) {
                p->streams |= 1u << call->act.stream;
                p->wants++;
            }
        }
        if (part != NONE)
            push_part(m, rank, part, number);
    }
}

static bool queue_full(const struct machine *m, int rank, size_t first, size_t last)
{
    for (size_t i = first; i < last; i++) {
        const struct call *c = &m->run->ranks[rank].calls[i];
        if (!launches(c))
            continue;
        const struct stream *s = &m->hosts[rank].streams[c->act.stream];
        if (s->count - s->head >= (size_t)m->plan->queue_bound)
            return true;
    }
    return false;
}

/* Launches what the thread's current call launches, or leaves it waiting for room. */
static void launch_call(struct machine *m, int rank, int lane)
{
    struct thread *t = &m->hosts[rank].threads[lane];
    size_t index = t->call;
    bool group = call_of(m, rank, index)->act.what == ACT_GROUP_END;
    size_t first = group ? t->group_first : index, last = index + 1;
    if (queue_full(m, rank, first, last)) {
        t->wait = WAIT_QUEUE;
        return;
    }
    uint64_t took = host_time(m);
    enum oddity odd = call_of(m, rank, index)->act.odd;
    t->wait = odd == ODD_NEVER_RETURNS ? WAIT_NONE : WAIT_TIME;
    if (odd != ODD_REFUSED)
        launch(m, rank, lane, first, last);
    if (odd == ODD_NEVER_RETURNS)
        return;
    call_of(m, rank, index)->exit = m->now + took;
    machine_wake(m, rank, lane, took);
}

/* What it had begun and what has not come together yet never will. */
static void withdraw(struct machine *m, int rank)
{
    for (uint32_t i = 0; i < m->nops; i++)
        if (m->ops[i].rank == rank && !m->ops[i].done && m->parts[m->ops[i].part].active)
            m->meetings[m->ops[i].meeting].active--;
    for (int l = 0; l < LANES; l++) {
        const struct thread *t = &m->hosts[rank].threads[l];
        if (t->wait == WAIT_MEETING && t->meeting != NONE)
            m->meetings[t->meeting].active--;
    }
}

static void end_process(struct machine *m, int rank, bool exited, int status)
{
    struct rank_run *run = &m->run->ranks[rank];
    withdraw(m, rank);
    m->hosts[rank].dead = true;
    run->end = m->now;
    run->exited = exited;
    run->status = status;
    for (int l = 0; l < LANES; l++)
        m->hosts[rank].threads[l].wait = WAIT_OVER;
}

/* Calls that make all members wait for each other on the host. */
static void start_gathering(struct machine *m, int rank, int lane, size_t index)
{
    struct thread *t = &m->hosts[rank].threads[lane];
    const struct act *act = &call_of(m, rank, index)->act;
    int needed = m->plan->comms[act->comm].nmembers;
    t->call = index;
    if (act->kind == REC_COMM_SHRINK)
        needed -= (int)act->count;
    if (act->kind == REC_COMM_WINDOW_REGISTER)
        t->meeting = machine_meet(m, 9, act, m->hosts[rank].windows[act->comm]++, -1, -1, needed);
    else
        t->meeting = machine_meet(m, 2, act, m->hosts[rank].created[act->comm]++, -1, -1, needed);
    t->wait = WAIT_MEETING;
    m->meetings[t->meeting].active++;
    machine_try(m, t->meeting);
}

/* Ops of this communicator that are not done on this rank. */
static bool outstanding(const struct machine *m, int rank, int comm)
{
    const struct host *host = &m->hosts[rank];
    for (int s = 0; s < STREAMS_MAX; s++)
        for (size_t i = host->streams[s].head; i < host->streams[s].count; i++) {
            uint32_t op = m->parts[host->streams[s].parts[i]].first_op;
            if (op != NONE && m->meetings[m->ops[op].meeting].first.comm == comm)
                return true;
        }
    return false;
}

static void start_teardown(struct machine *m, int rank, int lane, size_t index)
{
    struct thread *t = &m->hosts[rank].threads[lane];
    const struct act act = call_of(m, rank, index)->act;
    t->call = index;
    if (act.kind == REC_COMM_ABORT) {
        call_of(m, rank, index)->exit = m->now + MS;
        machine_wake(m, rank, lane, MS);
        return;
    }
    t->meeting = NONE;
    if (act.kind == REC_COMM_FINALIZE && m->plan->destroy_waits) {
        t->meeting = machine_meet(m, 4, &act, 0, -1, -1, m->plan->comms[act.comm].nmembers);
        m->meetings[t->meeting].active++;
        machine_try(m, t->meeting);
    }
    t->wait = WAIT_MEETING;
    machine_poll(m, rank);
}

static void start_sync(struct machine *m, int rank, int lane)
{
    struct host *host = &m->hosts[rank];
    for (int s = 0; s < STREAMS_MAX; s++)
        host->threads[lane].targets[s] = s / 4 == lane ? host->streams[s].count : 0;
    host->threads[lane].wait = WAIT_SYNC;
    machine_poll(m, rank);
}

static void do_call(struct machine *m, int rank, int lane, const struct act *act)
{
    struct thread *t = &m->hosts[rank].threads[lane];
    size_t index = new_call(m, rank, lane, act);
    unsigned flags = rec_kind_flags(act->kind);
    bool launches = act->what == ACT_GRAPH || (flags & REC_KF_STREAM);
    if (act->odd == ODD_NEVER_LAUNCHES || (act->odd == ODD_NEVER_RETURNS && !launches)) {
        t->wait = WAIT_NONE;
        return;
    }
    if (act->what == ACT_CALL && ((flags & REC_KF_CREATE) || act->kind == REC_COMM_WINDOW_REGISTER)) {
        start_gathering(m, rank, lane, index);
    } else if (act->what == ACT_CALL && (flags & REC_KF_TEARDOWN)) {
        start_teardown(m, rank, lane, index);
    } else if (t->depth) {
        uint64_t took = host_time(m) / 8;
        call_of(m, rank, index)->exit = m->now + took;
        machine_wake(m, rank, lane, took);
    } else {
        t->call = index;
        launch_call(m, rank, lane);
    }
}

static void start_group(struct machine *m, int rank, int lane)
{
    struct thread *t = &m->hosts[rank].threads[lane];
    if (!t->depth++) {
        t->group = ++t->groups;
        t->group_first = m->run->ranks[rank].ncalls;
    }
    machine_wake(m, rank, lane, US);
}

static void end_group(struct machine *m, int rank, int lane, const struct act *act)
{
    struct thread *t = &m->hosts[rank].threads[lane];
    t->depth--;
    t->call = new_call(m, rank, lane, act);
    if (act->odd == ODD_NEVER_LAUNCHES)
        t->wait = WAIT_NONE;
    else
        launch_call(m, rank, lane);
}

/* Work that is not NCCL's: it has no launch of ours, and what comes behind it waits. */
static void hang_stream(struct machine *m, int rank, int lane, int stream)
{
    uint64_t none[STREAMS_MAX] = {0};
    GROW(m->parts, m->nparts, m->parts_cap);
    m->parts[m->nparts] = (struct part){
        .rank = rank, .first_op = NONE, .left = 1, .streams = 1u << stream, .wants = 1, .posted = m->now};
    push_part(m, rank, (uint32_t)m->nparts++, none);
    machine_wake(m, rank, lane, 20 * US);
}

static void work_outside(struct machine *m, int rank, int lane, const struct act *act)
{
    uint64_t took = act->ns + rng_in(&m->rng, 0, act->ns / 4);
    if (act->odd == ODD_LATE) {
        m->run->late_from = m->now;
        m->run->late_until = m->now + took;
    }
    machine_wake(m, rank, lane, took);
}

static void step(struct machine *m, int rank, int lane)
{
    struct host *host = &m->hosts[rank];
    struct thread *t = &host->threads[lane];
    const struct lane *program = &m->plan->lanes[rank][lane];
    if (host->dead)
        return;
    if (t->pc >= program->count) {
        t->wait = WAIT_OVER;
        machine_poll(m, rank);
        return;
    }
    const struct act *act = &program->acts[t->pc++];
    switch (act->what) {
    case ACT_CALL:
    case ACT_GRAPH:
        do_call(m, rank, lane, act);
        break;
    case ACT_GROUP_START:
        start_group(m, rank, lane);
        break;
    case ACT_GROUP_END:
        end_group(m, rank, lane, act);
        break;
    case ACT_SYNC:
        start_sync(m, rank, lane);
        break;
    case ACT_COMPUTE:
        work_outside(m, rank, lane, act);
        break;
    case ACT_HANG:
        hang_stream(m, rank, lane, act->stream);
        break;
    case ACT_SPAWN:
        if (!host->threads[1].started)
            machine_wake(m, rank, 1, 50 * US);
        host->threads[1].started = true;
        machine_wake(m, rank, lane, 20 * US);
        break;
    case ACT_JOIN:
        t->wait = WAIT_JOIN;
        machine_poll(m, rank);
        break;
    case ACT_KILL:
        end_process(m, rank, false, 0);
        break;
    case ACT_EXIT:
        end_process(m, rank, true, (int)act->count);
        break;
    default: /* asleep for ever */
        t->wait = WAIT_NONE;
        break;
    }
}

/* ---- who can go on? ---- */

static bool synced(const struct host *host, const struct thread *t)
{
    for (int s = 0; s < STREAMS_MAX; s++)
        if (host->streams[s].head < t->targets[s])
            return false;
    return true;
}

static void poll_meeting(struct machine *m, int rank, int lane)
{
    struct thread *t = &m->hosts[rank].threads[lane];
    const struct act *act = &call_of(m, rank, t->call)->act;
    if (t->meeting != NONE && !m->meetings[t->meeting].done)
        return;
    if ((rec_kind_flags(act->kind) & REC_KF_TEARDOWN) && outstanding(m, rank, act->comm))
        return;
    bool inherits = act->kind == REC_COMM_SPLIT || act->kind == REC_COMM_SHRINK;
    int made = inherits ? act->child : rec_kind_flags(act->kind) & REC_KF_CREATE ? act->comm : -1;
    uint64_t took = rng_in(&m->rng, 20 * US, 200 * US);
    call_of(m, rank, t->call)->exit = m->now + took;
    if (made >= 0) {
        m->run->ranks[rank].made[made] = m->now + took;
        if (inherits)
            m->hosts[rank].seq[made] = 1;
    }
    machine_wake(m, rank, lane, took);
}

void machine_poll(struct machine *m, int rank)
{
    struct host *host = &m->hosts[rank];
    for (int lane = 0; lane < LANES && !host->dead; lane++) {
        struct thread *t = &host->threads[lane];
        if (t->wait == WAIT_MEETING)
            poll_meeting(m, rank, lane);
        else if (t->wait == WAIT_SYNC && synced(host, t))
            machine_wake(m, rank, lane, 10 * US);
        else if (t->wait == WAIT_QUEUE)
            launch_call(m, rank, lane);
        else if (t->wait == WAIT_JOIN && (!host->threads[1].started || host->threads[1].wait == WAIT_OVER))
            machine_wake(m, rank, lane, 10 * US);
    }
}

static void begin(struct machine *m)
{
    for (int r = 0; r < m->plan->nranks; r++) {
        m->run->ranks[r].end = NEVER;
        for (int c = 0; c < COMMS_MAX; c++)
            m->run->ranks[r].made[c] = NEVER;
        m->now = rng_in(&m->rng, 0, 300 * MS);
        machine_wake(m, r, 0, 0);
    }
}

/* When a rank issued the first of what it still waits for. */
static uint64_t stuck_since(const struct machine *m, int rank)
{
    const struct host *host = &m->hosts[rank];
    uint64_t since = NEVER;
    for (int s = 0; s < STREAMS_MAX && !host->dead; s++)
        if (host->streams[s].head < host->streams[s].count) {
            const struct part *part = &m->parts[host->streams[s].parts[host->streams[s].head]];
            since = part->posted < since ? part->posted : since;
        }
    for (int l = 0; l < LANES && !host->dead; l++)
        if (host->threads[l].wait == WAIT_MEETING) {
            uint64_t enter = m->run->ranks[rank].calls[host->threads[l].call].enter;
            since = enter < since ? enter : since;
        }
    return since;
}

static void finish(struct machine *m)
{
    for (int r = 0; r < m->plan->nranks; r++) {
        m->run->ranks[r].stuck_since = stuck_since(m, r);
        m->run->stuck = m->run->stuck || !m->hosts[r].dead;
        for (int s = 0; s < STREAMS_MAX; s++) {
            free(m->hosts[r].streams[s].parts);
            free(m->hosts[r].streams[s].launch_of);
        }
    }
    free(m->hosts);
    free(m->heap);
    free(m->meetings);
    free(m->ops);
    free(m->parts);
    free(m->keys);
    free(m->values);
}

void run_plan(const struct plan *plan, uint64_t seed, uint64_t until, struct run *run)
{
    *run = (struct run){.late_from = NEVER, .late_until = NEVER};
    struct machine m = {.plan = plan, .run = run, .rng = {seed}};
    m.hosts = calloc((size_t)plan->nranks, sizeof *m.hosts);
    if (!m.hosts)
        abort();
    begin(&m);
    while (m.nheap) {
        struct event event = machine_next(&m);
        if (event.at > until) {
            run->was_stopped = true;
            break;
        }
        m.now = run->last = event.at;
        if (event.kind == EV_THREAD)
            step(&m, (int)event.a, (int)event.b);
        else
            machine_end_meeting(&m, event.a);
    }
    finish(&m);
}

void run_free(struct run *run)
{
    for (int r = 0; r < RANKS_MAX; r++) {
        free(run->ranks[r].calls);
        free(run->ranks[r].marks);
    }
}
