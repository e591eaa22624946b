#include "fr-top/cells.h"

#include <stdio.h>
#include <string.h>

enum tui_style top_state_style(enum top_state state)
{
    switch (state) {
    case TOP_DEAD:
    case TOP_CRASHED:
    case TOP_FAILED:
    case TOP_LATE:
    case TOP_STALLED:
        return TUI_BAD;
    case TOP_SILENT:
        return TUI_WARN;
    case TOP_RUNNING:
        return TUI_GOOD;
    case TOP_IN_CALL:
        return TUI_ACCENT;
    case TOP_IDLE:
    case TOP_EXITED:
        return TUI_DIM;
    default:
        return TUI_NORMAL;
    }
}

enum tui_style top_role_style(enum rec_role role)
{
    static const enum tui_style styles[] = {[REC_ROLE_NONE] = TUI_NORMAL,
                                            [REC_ROLE_CULPRIT] = TUI_BAD,
                                            [REC_ROLE_SUSPECT] = TUI_WARN,
                                            [REC_ROLE_VICTIM] = TUI_NORMAL,
                                            [REC_ROLE_SLOW] = TUI_WARN};
    return styles[role];
}

/* ---- */

void top_put_count(struct tui_cell *cell, double value)
{
    top_text_count(cell->text, sizeof cell->text, value);
    cell->number = value;
}

void top_put_u64(struct tui_cell *cell, uint64_t value)
{
    snprintf(cell->text, sizeof cell->text, "%llu", (unsigned long long)value);
    cell->number = (double)value;
}

void top_put_text(struct tui_cell *cell, const char *text)
{
    snprintf(cell->text, sizeof cell->text, "%.*s", (int)sizeof cell->text - 1, text);
}

/* Counts where zero is the good news. */
void top_put_worry(struct tui_cell *cell, uint64_t value, enum tui_style style)
{
    top_put_count(cell, (double)value);
    cell->style = value > 0 ? style : TUI_DIM;
}

void top_put_age(struct tui_cell *cell, const struct top_snapshot *snapshot, uint64_t since_ns)
{
    if (since_ns == 0) {
        top_put_text(cell, "-");
        return;
    }
    uint64_t age = snapshot->now_ns > since_ns ? snapshot->now_ns - since_ns : 0;
    top_text_age(cell->text, sizeof cell->text, age);
    cell->number = (double)age;
}

void top_put_seq(struct tui_cell *cell, uint64_t next_seq)
{
    if (next_seq > 0)
        top_put_u64(cell, next_seq - 1);
    else
        top_put_text(cell, "-");
}

void top_put_comm(struct tui_cell *cell, const char *name, uint64_t uid)
{
    top_text_comm(cell->text, sizeof cell->text, name, uid);
}

const char *top_made_by(uint32_t made_by)
{
    const char *name = rec_kind_name(made_by);
    return name != NULL ? name : "-";
}

const struct top_snapshot *top_of(void *context)
{
    return ((const struct top_view_data *)context)->snapshot;
}

uint64_t top_member_id(const struct top_snapshot *snapshot, uint32_t m)
{
    const struct top_member *member = &snapshot->members[m];
    return rec_mix64(snapshot->processes[member->process].proc_uid + member->comm_id + 1);
}
