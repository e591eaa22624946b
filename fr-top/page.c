#include "fr-top/page.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fr-top/diagnosis.h"
#include "fr-top/views.h"

void top_page_clear(struct top_page *page)
{
    for (size_t i = 0; i < page->nlines; i++)
        free(page->lines[i]);
    free(page->lines);
    free(page->styles);
    page->lines = NULL;
    page->styles = NULL;
    page->nlines = page->room = 0;
}

static size_t page_lines(void *context)
{
    return ((const struct top_page *)context)->nlines;
}

static void page_line(void *context, size_t index, char text[TUI_PANE_LINE], enum tui_style *style)
{
    const struct top_page *page = context;
    snprintf(text, TUI_PANE_LINE, "%s", page->lines[index]);
    *style = page->styles[index];
}

const struct tui_pane_source top_page_source = {page_lines, page_line};

__attribute__((format(printf, 3, 4))) static void add(struct top_page *page, enum tui_style style,
                                                      const char *format, ...)
{
    char text[TUI_PANE_LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (page->nlines == page->room) {
        size_t room = page->room > 0 ? page->room * 2 : 64;
        char **lines = realloc(page->lines, room * sizeof *lines);
        if (lines != NULL)
            page->lines = lines;
        enum tui_style *styles = realloc(page->styles, room * sizeof *styles);
        if (styles != NULL)
            page->styles = styles;
        if (lines == NULL || styles == NULL)
            return;
        page->room = room;
    }
    char *copy = strdup(text);
    if (copy == NULL)
        return;
    page->styles[page->nlines] = style;
    page->lines[page->nlines++] = copy;
}

static void age_text(char *out, size_t size, const struct top_snapshot *snapshot, uint64_t since_ns)
{
    if (since_ns == 0)
        snprintf(out, size, "-");
    else
        top_text_age(out, size, snapshot->now_ns > since_ns ? snapshot->now_ns - since_ns : 0);
}

/* "AllReduce seq 12 on world (1024 x f32, sum, root 0), thread 3" */
static void op_text(char *out, size_t size, const struct top_snapshot *snapshot,
                    const struct top_process *process, const struct top_op *op)
{
    char name[32], comm[64] = "";
    const struct rec_op *o = &op->op;
    unsigned flags = rec_kind_flags(o->kind);
    size_t used = 0;
    top_text_op(name, sizeof name, o);
    used += (size_t)snprintf(out, size, "%s", name);
    if (op->member < process->nmembers) {
        const struct top_member *member = &snapshot->members[process->first_member + op->member];
        top_text_comm(comm, sizeof comm, member->name, member->uid);
        used +=
            (size_t)snprintf(out + used, size - used, " seq %llu on %s", (unsigned long long)o->seq, comm);
    }
    if (flags & REC_KF_DATA) {
        const char *dtype = rec_dtype_name(o->dtype);
        used += (size_t)snprintf(out + used, size - used, ", %llu x %s", (unsigned long long)o->count,
                                 dtype != NULL ? dtype : "?");
    }
    const char *redop = flags & REC_KF_REDOP ? rec_redop_name(o->redop) : NULL;
    if (redop != NULL)
        used += (size_t)snprintf(out + used, size - used, " %s", redop);
    if (flags & (REC_KF_ROOT | REC_KF_P2P))
        used += (size_t)snprintf(out + used, size - used, ", %s %d", flags & REC_KF_ROOT ? "root" : "peer",
                                 o->peer);
    snprintf(out + used, size - used, ", thread %u", o->thread);
}

static void process_calls(struct top_page *page, const struct top_snapshot *snapshot,
                          const struct top_process *process)
{
    char op[256], age[16];
    add(page, TUI_BOLD, "Inside NCCL now: %u", process->nopen);
    uint32_t kept = process->nopen < TOP_MAX_OPEN ? process->nopen : TOP_MAX_OPEN;
    for (uint32_t i = 0; i < kept; i++) {
        op_text(op, sizeof op, snapshot, process, &process->open[i]);
        age_text(age, sizeof age, snapshot, process->open[i].since_ns);
        add(page, TUI_ACCENT, "  %8s  %s", age, op);
    }
    if (kept < process->nopen)
        add(page, TUI_DIM, "  and %u more", process->nopen - kept);
    if (process->in_call || process->now.op.kind == REC_NONE)
        return;
    op_text(op, sizeof op, snapshot, process, &process->now);
    age_text(age, sizeof age, snapshot, process->now.since_ns);
    if (process->pending > 0) {
        bool begun = process->now.op.state == REC_STATE_GPU_STARTED;
        add(page, TUI_BOLD, "Launches that the GPU has not finished: %llu",
            (unsigned long long)process->pending);
        add(page, TUI_ACCENT, "  %8s  %s: %s", age, op, begun ? "begun" : "its turn has not come");
        return;
    }
    const char *result = rec_result_name(process->now.op.result);
    add(page, TUI_NORMAL, "Last call: %s", op);
    add(page, TUI_NORMAL, "  returned %s %s ago%s", result != NULL ? result : "?", age,
        process->now.op.state == REC_STATE_COMPLETED ? ", and is over on the GPU" : "");
}

static void process_memberships(struct top_page *page, const struct top_snapshot *snapshot,
                                const struct top_process *process)
{
    add(page, TUI_BOLD, "Communicators: %u", process->nmembers);
    if (process->nmembers > 0)
        add(page, TUI_DIM, "  %-16s %9s %10s %7s %10s %6s  %s", "COMM", "COMM RANK", "NEXT SEQ", "LAG",
            "SEND/RECV", "LOST", "UID");
    for (uint32_t i = 0; i < process->nmembers; i++) {
        const struct top_member *member = &snapshot->members[process->first_member + i];
        char name[64], place[24] = "-";
        top_text_comm(name, sizeof name, member->name, member->uid);
        if (member->comm_rank != REC_ID_NONE)
            snprintf(place, sizeof place, "%u of %u", member->comm_rank, member->nranks);
        add(page, member->lag > 0 ? TUI_WARN : TUI_NORMAL, "  %-16s %9s %10llu %7llu %10llu %6llu  %016llx",
            name, place, (unsigned long long)member->next_seq, (unsigned long long)member->lag,
            (unsigned long long)member->p2p, (unsigned long long)member->lost,
            (unsigned long long)member->uid);
        if (member->async_error != 0) {
            const char *error = rec_result_name(member->async_error);
            add(page, TUI_BAD, "    asynchronous error: %s", error != NULL ? error : "unknown");
        }
    }
}

static void fill_process(struct top_page *page, const struct top_snapshot *snapshot,
                         const struct top_process *process)
{
    char rank[16], end[64], alive[16], call[16], start[16], ops[16], bytes[16];
    top_text_rank(rank, sizeof rank, process);
    top_text_end(end, sizeof end, process);
    age_text(alive, sizeof alive, snapshot, process->alive_ns);
    age_text(call, sizeof call, snapshot, process->last_call_ns);
    age_text(start, sizeof start, snapshot, process->start_ns);
    top_text_count(ops, sizeof ops, process->ops_per_s);
    top_text_count(bytes, sizeof bytes, process->bytes_per_s);
    const char *role = rec_role_name(top_role_of(snapshot->verdict, process));
    add(page, top_state_style(process->state), "Rank %s on %s, pid %d: %s%s%s%s%s", rank, process->host,
        process->pid, top_state_name(process->state), end[0] != '\0' ? ", " : "", end,
        role[0] != '\0' ? "; verdict: " : "", role);
    add(page, TUI_NORMAL, "Program:   %s", process->exe);
    add(page, TUI_NORMAL, "Job:       %s%s%s", process->job, process->restart[0] != '\0' ? ", restart " : "",
        process->restart);
    add(page, TUI_NORMAL, "Trace in:  %s", process->frec_dir);
    add(page, TUI_NORMAL, "Started %s ago, last sign of life %s ago, last NCCL call %s ago", start, alive,
        call);
    add(page, TUI_NORMAL, "Calls: %llu, %s/s, %s bytes/s", (unsigned long long)process->ops, ops, bytes);
    add(page, process->lost > 0 ? TUI_WARN : TUI_NORMAL, "Calls not recorded: %llu",
        (unsigned long long)process->lost);
    if (process->file_error != 0)
        add(page, TUI_BAD, "The trace cannot be written: %s", strerror((int)process->file_error));
    add(page, TUI_NORMAL, "%s", "");
    process_calls(page, snapshot, process);
    add(page, TUI_NORMAL, "%s", "");
    process_memberships(page, snapshot, process);
}

static void fill_comm(struct top_page *page, const struct top_snapshot *snapshot, const struct top_comm *comm)
{
    char name[64], age[16];
    const char *made_by = rec_kind_name(comm->made_by);
    top_text_comm(name, sizeof name, comm->name, comm->uid);
    age_text(age, sizeof age, snapshot, comm->created_ns);
    add(page, TUI_BOLD, "Communicator %s, uid %016llx", name, (unsigned long long)comm->uid);
    add(page, TUI_NORMAL, "Made by %s %s ago, %u ranks, %u of them seen here",
        made_by != NULL ? made_by : "-", age, comm->nranks, comm->nmembers);
    add(page, TUI_NORMAL, "Front: %llu calls entered; %u members behind it, the last by %llu",
        (unsigned long long)comm->front, comm->lagging, (unsigned long long)(comm->front - comm->back));
    add(page, TUI_NORMAL, "%s", "");
    add(page, TUI_DIM, "%9s %6s %-20s %-9s %10s %8s  %s", "COMM RANK", "RANK", "HOST", "STATE", "NEXT SEQ",
        "LAG", "CALL");
    for (uint32_t m = 0; m < comm->nmembers; m++) {
        const struct top_member *member = &snapshot->members[comm->members[m]];
        const struct top_process *process = &snapshot->processes[member->process];
        char rank[16], op[32], since[16], place[16] = "-";
        top_text_rank(rank, sizeof rank, process);
        top_text_op(op, sizeof op, &process->now.op);
        age_text(since, sizeof since, snapshot, process->now.since_ns);
        if (member->comm_rank != REC_ID_NONE)
            snprintf(place, sizeof place, "%u", member->comm_rank);
        add(page, member->lag > 0 ? TUI_WARN : TUI_NORMAL, "%9s %6s %-20s %-9s %10llu %8llu  %s %s %s%s",
            place, rank, process->host, top_state_name(process->state), (unsigned long long)member->next_seq,
            (unsigned long long)member->lag, process->in_call ? "inside" : "returned from", op, since,
            process->in_call ? "" : " ago");
    }
}

bool top_page_fill(struct top_page *page, const struct top_snapshot *snapshot)
{
    bool comm = page->comm;
    uint64_t id = page->id;
    top_page_clear(page);
    for (uint32_t i = 0; comm && i < snapshot->ncomms; i++) {
        if (snapshot->comms[i].uid == id) {
            fill_comm(page, snapshot, &snapshot->comms[i]);
            return true;
        }
    }
    for (uint32_t i = 0; !comm && i < snapshot->nprocesses; i++) {
        if (snapshot->processes[i].proc_uid == id) {
            fill_process(page, snapshot, &snapshot->processes[i]);
            return true;
        }
    }
    return false;
}
