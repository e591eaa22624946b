/* One process, and one of its calls: everything that is known, with the stacks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fr-analyze/tui/pending.h"

#define CLOCK_NS 1000000 /* clocks that differ by less are as good as one */

struct rank_view {
    struct lines lines;
    struct seek seek; /* CALL: the record of the call */
    bool seeking, found;
    struct rec_op op;
    struct pending pending; /* RANK: what the GPU has not finished */
    bool reading;
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static void add_frames(struct browser *b, struct lines *lines, const char *const *modules, uint32_t nmodules,
                       const struct rec_frame *frames, uint32_t nframes)
{
    for (uint32_t i = 0; i < nframes; i++) {
        char name[256] = "";
        if (frames[i].module >= nmodules) {
            lines_add(lines, TUI_DIM, 8, NULL, "    #%u 0x%llx", i, (unsigned long long)frames[i].offset);
            continue;
        }
        const char *module = modules[frames[i].module];
        if (b->symbolizer != NULL &&
            rec_symbolize(b->symbolizer, module, frames[i].offset, name, sizeof name))
            lines_add(lines, TUI_NORMAL, 8, NULL, "    #%u %s (%s)", i, name, base_name(module));
        else
            lines_add(lines, TUI_NORMAL, 8, NULL, "    #%u %s+0x%llx", i, base_name(module),
                      (unsigned long long)frames[i].offset);
    }
}

/* The code that made a call, innermost first; the frame that its author would name stands out. */
static void add_code(struct browser *b, struct lines *lines, const struct rec_process *p, uint32_t callsite)
{
    const struct rec_callsite_def *site = rec_process_callsite(p, callsite);
    const struct rec_source_frame *place = site != NULL ? rec_callsite_place(site) : NULL;
    char text[256];
    if (site == NULL || site->nframes == 0)
        return;
    if (site->kind != REC_CALLSITE_PYTHON) {
        if (rec_callsite_text(site, b->symbolizer, text, sizeof text))
            lines_add(lines, TUI_NORMAL, 8, NULL, "    called by %s", text);
        return;
    }
    for (uint32_t i = 0; i < site->nframes; i++) {
        const struct rec_source_frame *f = &site->frames[i];
        lines_add(lines, f == place ? TUI_BOLD : TUI_DIM, 8, NULL, "  %s %s:%u in %s", f == place ? "▶" : " ",
                  f->file, f->line, f->function[0] != '\0' ? f->function : "?");
    }
}

static void add_stacks(struct browser *b, struct lines *lines, const struct rec_process *p)
{
    char clock[24];
    const struct rec_stall *stall = &p->stall;
    if (stall->why != 0) {
        word_time(clock, sizeof clock, &b->data, p, p->stall_ns, 3);
        lines_add(lines, TUI_BOLD, 0, NULL, "Stacks of the stall seen at %s UTC", clock);
        for (uint32_t i = 0; i < stall->nthreads; i++) {
            const struct rec_stall_thread *t = &stall->threads[i];
            lines_add(lines, TUI_ACCENT, 4, NULL, "  thread %d \"%s\" %c%s%s", t->tid, t->name, t->state,
                      t->where[0] != '\0' ? ", in " : "", t->where);
            add_code(b, lines, p, t->callsite);
            add_frames(b, lines, stall->modules, stall->nmodules, t->frames, t->nframes);
        }
    }
    if (p->end.nframes > 0) {
        lines_add(lines, TUI_BOLD, 0, NULL, "Stack of thread %d when it ended, fault address 0x%llx",
                  p->end.tid, (unsigned long long)p->end.fault);
        add_frames(b, lines, p->end.modules, p->end.nmodules, p->end.frames, p->end.nframes);
    }
}

static void say_call(struct browser *b, struct lines *lines, const struct rec_process *p,
                     const struct rec_op *op, const char *how)
{
    const struct rec_member *member = rec_process_member(p, op->comm);
    const struct rec_callsite_def *site = rec_process_callsite(p, op->callsite);
    struct place to = browse_op_place(&b->data, p, op);
    char call[128], comm[64], code[256] = "";
    word_op(call, sizeof call, op);
    word_comm(comm, sizeof comm, member != NULL ? member->comm : NULL);
    if (site != NULL)
        rec_callsite_text(site, b->symbolizer, code, sizeof code);
    lines_add(lines, op->exit_ns == 0 ? TUI_WARN : TUI_NORMAL, 4, to.view == VIEW_OP ? &to : NULL,
              "  %s, op %llu of %s, %s, thread %u%s%s", call, (unsigned long long)op->seq, comm, how,
              op->thread, code[0] != '\0' ? ", at " : "", code);
}

static void add_calls(struct browser *b, struct lines *lines, const struct rec_process *p)
{
    const struct rank_figures *rank = &b->data.ranks[b->data.rank_of[p->index]];
    char span[24], how[48];
    lines_add(lines, TUI_BOLD, 0, NULL, "Inside NCCL at the end: %u", p->nopen);
    for (uint32_t i = 0; i < p->nopen; i++) {
        const struct rec_op *o = &p->open[i];
        word_span(span, sizeof span, p->last_ns > o->enter_ns ? p->last_ns - o->enter_ns : 0);
        snprintf(how, sizeof how, "for %s", span);
        say_call(b, lines, p, o, how);
    }
    if (p->nopen == 0 && rank->last != NULL) {
        const struct rec_op *o = rank->last;
        word_span(span, sizeof span, p->last_ns > o->enter_ns ? p->last_ns - o->enter_ns : 0);
        snprintf(how, sizeof how, "%s before the end", span);
        lines_add(lines, TUI_BOLD, 0, NULL, "Last call");
        say_call(b, lines, p, o, how);
    }
    lines_add(lines, TUI_NORMAL, 0, NULL, "%s", "");
}

static void add_pending(struct browser *b, const struct rank_view *v, const struct rec_process *p)
{
    struct lines *lines = (struct lines *)&v->lines;
    const struct pending *pending = &v->pending;
    if (v->reading || (pending->count == 0 && !pending->known))
        return;
    lines_add(lines, TUI_BOLD, 0, NULL, "Launched, and not finished on the GPU: %u", pending->count);
    uint32_t kept = pending->count < PENDING_SHOWN ? pending->count : PENDING_SHOWN;
    for (uint32_t i = 0; i < kept; i++)
        say_call(b, lines, p, &pending->oldest[i],
                 pending->oldest[i].state == REC_STATE_GPU_STARTED ? "begun" : "its turn has not come");
    if (kept < pending->count)
        lines_add(lines, TUI_DIM, 2, NULL, "  and %u more", pending->count - kept);
    lines_add(lines, TUI_NORMAL, 0, NULL, "%s", "");
}

static void add_members(struct browser *b, struct lines *lines, const struct rec_process *p)
{
    lines_add(lines, TUI_BOLD, 0, NULL, "Communicators: %u", p->nmembers);
    if (p->nmembers > 0)
        lines_add(lines, TUI_DIM, -1, NULL, "  %-14s %11s %9s %9s %6s  %s", "COMM", "COMM RANK", "ENTERED",
                  "RETURNED", "BEHIND", "LAST OP");
    for (uint32_t i = 0; i < p->nmembers; i++) {
        const struct rec_member *m = p->members[i];
        struct place to = browse_op_place(&b->data, p, &m->last_op);
        char name[64], at[32] = "?", op[128] = "-";
        uint64_t behind = b->data.figures[m->comm->index].front - m->next_seq;
        if (m->last_op.kind == REC_NONE || to.view != VIEW_OP) {
            to.view = VIEW_COMM;
            to.comm = m->comm;
        } else {
            word_op(op, sizeof op, &m->last_op);
        }
        word_comm(name, sizeof name, m->comm);
        if (m->comm_rank != REC_ID_NONE)
            snprintf(at, sizeof at, "%u of %u", m->comm_rank, m->comm->nranks);
        lines_add(lines, behind > 0 ? TUI_WARN : TUI_NORMAL, -1, &to, "  %-14.14s %11s %9llu %9llu %6llu  %s",
                  name, at, (unsigned long long)m->next_seq, (unsigned long long)m->finished,
                  (unsigned long long)behind, op);
    }
    lines_add(lines, TUI_NORMAL, 0, NULL, "%s", "");
}

/* Whoever compares with the host's own logs needs to know. */
static void add_clock(struct browser *b, struct lines *lines, const struct rec_process *p)
{
    int64_t offset = b->data.offsets[p->index];
    char span[24];
    word_span(span, sizeof span, (uint64_t)(offset < 0 ? -offset : offset));
    if (!browse_clock_known(&b->data, p))
        lines_add(lines, TUI_WARN, 2, NULL, "Clock:    of this host, not compared with the others");
    else if (offset > CLOCK_NS || offset < -CLOCK_NS)
        lines_add(lines, TUI_NORMAL, 2, NULL, "Clock:    this host's is %s %s the times here", span,
                  offset < 0 ? "behind" : "ahead of");
}

static void add_process(struct browser *b, struct lines *lines, const struct rec_process *p)
{
    char start[24], last[24], call[24];
    word_time(start, sizeof start, &b->data, p, p->start_ns, 3);
    word_time(last, sizeof last, &b->data, p, p->last_ns, 3);
    word_time(call, sizeof call, &b->data, p, p->last_call_ns, 3);
    lines_add(lines, TUI_NORMAL, 2, NULL, "Program:  %s", p->exe);
    lines_add(lines, TUI_NORMAL, 2, NULL, "Started %s, last NCCL call %s, last sign of life %s (UTC)", start,
              call, last);
    add_clock(b, lines, p);
    lines_add(lines, p->dropped_ops > 0 ? TUI_WARN : TUI_NORMAL, 2, NULL,
              "Calls: %llu on record, %llu without a record%s%s", (unsigned long long)p->ops,
              (unsigned long long)p->dropped_ops, p->rotated ? ", old ones rotated away" : "",
              p->damaged ? ", file damaged" : "");
    if (p->path != NULL)
        lines_add(lines, TUI_NORMAL, 2, NULL, "Trace:    %s", p->path);
    lines_add(lines, TUI_NORMAL, 0, NULL, "%s", "");
}

static const struct tui_column rank_columns[2] = LINES_COLUMNS("PROCESS");
static const struct tui_column call_columns[2] = LINES_COLUMNS("CALL");

static bool init_as(struct browser *b, enum view_id id, const struct tui_column columns[2])
{
    struct rank_view *v = calloc(1, sizeof *v);
    b->state[id] = v;
    return v != NULL && (b->tables[id] = tui_table_new(columns, 2, &lines_source, &v->lines)) != NULL;
}

static void fini_as(struct browser *b, enum view_id id)
{
    struct rank_view *v = b->state[id];
    if (v == NULL)
        return;
    seek_stop(&v->seek);
    pending_stop(&v->pending);
    lines_clear(&v->lines);
    free(v);
}

static bool init_rank(struct browser *b)
{
    return init_as(b, VIEW_RANK, rank_columns);
}

static void fini_rank(struct browser *b)
{
    fini_as(b, VIEW_RANK);
}

static void fill_rank(struct browser *b, struct rank_view *v)
{
    const struct rec_process *p = b->data.processes[b->here.process];
    lines_clear(&v->lines);
    v->lines.width = b->width - 1;
    add_process(b, &v->lines, p);
    add_calls(b, &v->lines, p);
    add_pending(b, v, p);
    add_members(b, &v->lines, p);
    add_stacks(b, &v->lines, p);
    tui_table_sort(b->tables[VIEW_RANK], 1, false);
}

static bool show_rank(struct browser *b, const struct place *place)
{
    struct rank_view *v = b->state[VIEW_RANK];
    const struct rec_process *p = b->data.processes[place->process];
    if (v->pending.process != p) {
        pending_start(&v->pending, b->data.job, p);
        v->reading = true;
    }
    fill_rank(b, v);
    return !v->lines.oom;
}

static bool work_rank(struct browser *b, uint64_t deadline_ns)
{
    struct rank_view *v = b->state[VIEW_RANK];
    if (!v->reading)
        return false;
    if (pending_step(&v->pending, deadline_ns)) {
        v->reading = false;
        fill_rank(b, v);
    }
    return true;
}

static void about_rank(struct browser *b, char *text, size_t size, enum tui_style *style)
{
    const struct rank_figures *rank = &b->data.ranks[b->data.rank_of[b->here.process]];
    const struct rec_process *p = b->data.processes[b->here.process];
    char end[32], state[24];
    word_end(end, sizeof end, p);
    word_state(state, sizeof state, &b->data, rank);
    *style = style_role(rank->role);
    snprintf(text, size, "rank %d on %s, pid %d: %s, end: %s%s%s", p->rank, p->host, p->pid, state, end,
             rank->role != REC_ROLE_NONE ? ", verdict: " : "", rec_role_name(rank->role));
}

static bool target_of(struct browser *b, struct place *to)
{
    struct rank_view *v = b->state[b->here.view];
    return lines_target(&v->lines, tui_table_selected(b->tables[b->here.view]), to);
}

/* ---- one call ---- */

static bool init_call(struct browser *b)
{
    return init_as(b, VIEW_CALL, call_columns);
}

static void fini_call(struct browser *b)
{
    fini_as(b, VIEW_CALL);
}

static void found_call(void *context, const struct rec_op *op)
{
    struct rank_view *v = context;
    v->found = op != NULL;
    if (op != NULL)
        v->op = *op;
}

static void add_times(struct browser *b, struct lines *lines, const struct rec_process *p,
                      const struct rec_op *o)
{
    char clock[32], span[24];
    word_time(clock, sizeof clock, &b->data, p, o->enter_ns, 6);
    lines_add(lines, TUI_NORMAL, 2, NULL, "Entered:    %s UTC", clock);
    if (o->exit_ns != 0) {
        word_time(clock, sizeof clock, &b->data, p, o->exit_ns, 6);
        word_span(span, sizeof span, o->exit_ns - o->enter_ns);
        lines_add(lines, TUI_NORMAL, 2, NULL, "Returned:   %s UTC, after %s", clock, span);
    } else {
        word_span(span, sizeof span, p->last_ns > o->enter_ns ? p->last_ns - o->enter_ns : 0);
        lines_add(lines, TUI_WARN, 2, NULL, "Returned:   not, for %s until the last sign of life", span);
    }
    word_time(clock, sizeof clock, &b->data, p, o->gpu_start_ns, 6);
    lines_add(lines, TUI_NORMAL, 2, NULL, "GPU began:  %s", o->gpu_start_ns != 0 ? clock : "not known");
    word_time(clock, sizeof clock, &b->data, p, o->gpu_end_ns, 6);
    lines_add(lines, TUI_NORMAL, 2, NULL, "GPU ended:  %s", o->gpu_end_ns != 0 ? clock : "not known");
}

static void fill_call(struct browser *b, struct rank_view *v)
{
    struct lines *lines = &v->lines;
    const struct place *here = &b->here;
    const struct rec_process *p = b->data.processes[here->process];
    struct place to_rank = *here, to_comm = *here;
    char text[160], name[64];
    to_rank.view = VIEW_RANK;
    to_comm.view = VIEW_COMM;
    lines_clear(lines);
    word_comm(name, sizeof name, here->comm);
    if (!v->found) {
        lines_add(lines, TUI_WARN, 2, NULL, v->seeking ? "Reading …" : "There is no record of this call.");
    } else {
        const struct rec_op *o = &v->op;
        const char *state = rec_state_name(o->state), *result = rec_result_name(o->result);
        word_op(text, sizeof text, o);
        lines_add(lines, TUI_BOLD, 2, NULL, "%s", text);
        lines_add(lines, TUI_NORMAL, 2, &to_comm, "Place:      op %llu of %s%s", (unsigned long long)o->seq,
                  name, o->flags & REC_OF_CAPTURED ? ", captured into a graph" : "");
        lines_add(lines, style_state(o->state), 2, NULL, "State:      %s%s%s", state != NULL ? state : "?",
                  result != NULL ? ", returned " : "", result != NULL ? result : "");
        add_times(b, lines, p, o);
        const struct rec_thread_def *thread = rec_process_thread(p, o->thread);
        if (thread != NULL)
            lines_add(lines, TUI_NORMAL, 2, NULL, "Thread:     %d \"%s\", its call %llu", thread->tid,
                      thread->name, (unsigned long long)o->ordinal);
        const struct rec_stream_def *stream = rec_process_stream(p, o->stream);
        if (stream != NULL)
            lines_add(lines, TUI_NORMAL, 2, NULL, "Stream:     0x%llx on device %d",
                      (unsigned long long)stream->handle, stream->device);
        if (o->group != 0)
            lines_add(lines, TUI_NORMAL, 2, NULL, "Group:      %u of its thread", o->group);
        if (rec_process_callsite(p, o->callsite) != NULL) {
            lines_add(lines, TUI_BOLD, 0, NULL, "Code");
            add_code(b, lines, p, o->callsite);
        }
    }
    lines_add(lines, TUI_NORMAL, 0, NULL, "%s", "");
    lines_add(lines, TUI_BOLD, 2, &to_rank, "Rank %d on %s, pid %d", p->rank, p->host, p->pid);
    add_stacks(b, lines, p);
    tui_table_sort(b->tables[VIEW_CALL], 1, false);
}

static bool show_call(struct browser *b, const struct place *place)
{
    struct rank_view *v = b->state[VIEW_CALL];
    const struct rec_process *p = b->data.processes[place->process];
    const struct rec_member *member = browse_member(p, place->comm);
    seek_stop(&v->seek);
    v->found = v->seeking = false;
    v->lines.width = b->width - 1;
    if (member != NULL && place->seq != NO_SEQ) {
        bool send = (uint32_t)place->src == member->comm_rank;
        v->seek = (struct seek){.job = b->data.job,
                                .member = member,
                                .lo = place->seq,
                                .hi = place->seq,
                                .peer = place->src < 0 ? -1
                                        : send         ? place->dst
                                                       : place->src,
                                .send = send,
                                .kinds = place->teardown ? REC_KF_TEARDOWN : REC_KF_SEQ,
                                .found = found_call,
                                .context = v};
        seek_start(&v->seek, browse_host_ns(&b->data, p, place->when_ns));
        v->seeking = !v->seek.done;
    }
    fill_call(b, v);
    return !v->lines.oom;
}

static bool work_call(struct browser *b, uint64_t deadline_ns)
{
    struct rank_view *v = b->state[VIEW_CALL];
    if (!v->seeking)
        return false;
    if (seek_step(&v->seek, deadline_ns)) {
        v->seeking = false;
        fill_call(b, v);
    }
    return true;
}

static void forget_lines(struct browser *b, enum view_id view)
{
    struct rank_view *v = b->state[view];
    seek_stop(&v->seek);
    v->seeking = v->found = v->reading = false;
    pending_stop(&v->pending);
    v->pending.process = NULL;
    lines_clear(&v->lines);
    tui_table_update(b->tables[view]);
}

static void forget_rank(struct browser *b, bool again)
{
    (void)again;
    forget_lines(b, VIEW_RANK);
}

static void forget_call(struct browser *b, bool again)
{
    (void)again;
    forget_lines(b, VIEW_CALL);
}

const struct view view_rank = {.name = "Rank",
                               .rows = TUI_ROWS_LINES,
                               .init = init_rank,
                               .fini = fini_rank,
                               .show = show_rank,
                               .target = target_of,
                               .work = work_rank,
                               .forget = forget_rank,
                               .about = about_rank};
const struct view view_call = {.name = "Call",
                               .rows = TUI_ROWS_LINES,
                               .init = init_call,
                               .fini = fini_call,
                               .show = show_call,
                               .target = target_of,
                               .forget = forget_call,
                               .about = about_rank,
                               .work = work_call};
