#include "fr-tui/table.h"
#include "fr-tui/table_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 31 /* of a tree: one bit of rails each */

/* ---- sets of ids ---- */

static size_t id_place(const struct tui_ids *ids, uint64_t id)
{
    size_t at = (size_t)(id * UINT64_C(0x9e3779b97f4a7c15) >> 17) & (ids->capacity - 1);
    while (ids->slots[at] != 0 && ids->slots[at] != id)
        at = (at + 1) & (ids->capacity - 1);
    return at;
}

bool tui_ids_has(const struct tui_ids *ids, uint64_t id)
{
    if (id == 0)
        return ids->zero;
    return ids->capacity > 0 && ids->slots[id_place(ids, id)] == id;
}

static void ids_clear(struct tui_ids *ids)
{
    free(ids->slots);
    *ids = (struct tui_ids){0};
}

static bool ids_grow(struct tui_ids *ids)
{
    struct tui_ids wider = {.capacity = ids->capacity > 0 ? ids->capacity * 2 : 16, .zero = ids->zero};
    wider.slots = calloc(wider.capacity, sizeof *wider.slots);
    if (wider.slots == NULL)
        return false;
    for (size_t i = 0; i < ids->capacity; i++) {
        if (ids->slots[i] != 0)
            wider.slots[id_place(&wider, ids->slots[i])] = ids->slots[i];
    }
    wider.count = ids->count;
    free(ids->slots);
    *ids = wider;
    return true;
}

static void ids_add(struct tui_ids *ids, uint64_t id)
{
    if (id == 0)
        ids->zero = true;
    if (id == 0 || tui_ids_has(ids, id))
        return;
    if (ids->count * 2 >= ids->capacity && !ids_grow(ids))
        return;
    ids->slots[id_place(ids, id)] = id;
    ids->count++;
}

static void ids_remove(struct tui_ids *ids, uint64_t id)
{
    if (id == 0)
        ids->zero = false;
    if (id == 0 || !tui_ids_has(ids, id))
        return;
    size_t at = id_place(ids, id);
    ids->slots[at] = 0;
    ids->count--;
    /* What lay behind it in the same run must stay reachable. */
    for (size_t i = (at + 1) & (ids->capacity - 1); ids->slots[i] != 0; i = (i + 1) & (ids->capacity - 1)) {
        uint64_t moved = ids->slots[i];
        ids->slots[i] = 0;
        ids->slots[id_place(ids, moved)] = moved;
    }
}

/* ---- building the lines ---- */

struct sort_key {
    double number;
    size_t text; /* offset into the arena */
    uint32_t row;
};

struct build {
    const struct tui_table *table;
    struct sort_key *keys;
    uint32_t *child, *next; /* first child and next sibling; row + 1, 0 = none; child[rows] = roots */
    uint32_t *parent;       /* row, or `rows` for none */
    bool *match, *keep;
    char *arena;
    size_t arena_used, arena_size;
    size_t rows;
    struct tui_line_view *lines;
    size_t nlines;
};

static int compare_keys(const void *left, const void *right, void *context)
{
    const struct sort_key *a = left, *b = right;
    const struct build *build = context;
    const struct tui_table *table = build->table;
    int order = 0;
    if (table->columns[table->sort].numeric) {
        bool none_a = isnan(a->number), none_b = isnan(b->number);
        if (none_a || none_b) {
            if (none_a != none_b)
                return none_a ? 1 : -1;
        } else {
            order = (a->number > b->number) - (a->number < b->number);
        }
    } else {
        order = strverscmp(build->arena + a->text, build->arena + b->text);
    }
    if (order != 0)
        return table->descending ? -order : order;
    return (a->row > b->row) - (a->row < b->row);
}

static bool add_key(struct build *build, size_t row)
{
    const struct tui_table *table = build->table;
    struct tui_cell cell = {.number = NAN};
    table->source->cell(table->context, row, table->sort, &cell);
    struct sort_key *key = &build->keys[row];
    *key = (struct sort_key){.number = cell.number, .row = (uint32_t)row, .text = build->arena_used};
    if (table->columns[table->sort].numeric)
        return true;
    size_t need = strnlen(cell.text, sizeof cell.text - 1) + 1;
    if (build->arena_used + need > build->arena_size) {
        size_t size = build->arena_size * 2 + 4096;
        char *arena = realloc(build->arena, size);
        if (arena == NULL)
            return false;
        build->arena = arena;
        build->arena_size = size;
    }
    memcpy(build->arena + build->arena_used, cell.text, need - 1);
    build->arena[build->arena_used + need - 1] = '\0';
    build->arena_used += need;
    return true;
}

static bool row_matches(const struct tui_table *table, size_t row, const char *words)
{
    for (unsigned c = 0; c < table->ncolumns; c++) {
        struct tui_cell cell = {.number = NAN};
        table->source->cell(table->context, row, c, &cell);
        if (tui_text_matches(cell.text, words))
            return true;
    }
    return false;
}

static void find_parents(struct build *build)
{
    const struct tui_table *table = build->table;
    for (size_t row = 0; row < build->rows; row++) {
        size_t parent =
            table->source->parent != NULL ? table->source->parent(table->context, row) : TUI_NO_ROW;
        build->parent[row] = (uint32_t)(parent < build->rows && parent != row ? parent : build->rows);
    }
}

/*
 * A flat list leaves inner rows out. A tree keeps what the filter matches, with
 * everything below it and the way up to the root. The bound on depth also ends cycles.
 */
static void apply_filter(struct build *build)
{
    const struct tui_table *table = build->table;
    for (size_t row = 0; row < build->rows; row++) {
        bool inner = table->source->inner != NULL ? table->source->inner(table->context, row)
                                                  : build->parent[row] != build->rows;
        bool shown = table->tree || !inner;
        build->match[row] = shown && (table->filter[0] == '\0' || row_matches(table, row, table->filter));
    }
    for (size_t row = 0; row < build->rows; row++) {
        bool keep = build->match[row];
        size_t at = row;
        for (int depth = 0; table->tree && !keep && depth < MAX_DEPTH; depth++) {
            at = build->parent[at];
            if (at == build->rows)
                break;
            keep = build->match[at];
        }
        at = row;
        for (int depth = 0; keep && at < build->rows && !build->keep[at] && depth <= MAX_DEPTH; depth++) {
            build->keep[at] = true;
            at = table->tree ? build->parent[at] : build->rows;
        }
    }
}

static void link_siblings(struct build *build)
{
    for (size_t i = build->rows; i-- > 0;) {
        uint32_t row = build->keys[i].row;
        if (!build->keep[row])
            continue;
        uint32_t parent = build->table->tree ? build->parent[row] : (uint32_t)build->rows;
        build->next[row] = build->child[parent];
        build->child[parent] = row + 1;
    }
}

static bool is_open(const struct tui_table *table, size_t row)
{
    uint64_t id = table->source->id(table->context, row);
    return table->open_by_default != tui_ids_has(&table->toggled, id);
}

/* Depth first along child and next; parents carry the way back, so that depth costs no stack. */
static void lay_out_lines(struct build *build)
{
    const struct tui_table *table = build->table;
    uint32_t at = build->child[build->rows];
    uint32_t rails = 0;
    uint8_t depth = 0;
    while (at != 0 && build->nlines < build->rows) {
        uint32_t row = at - 1;
        uint32_t child = table->tree ? build->child[row] : 0;
        struct tui_line_view *line = &build->lines[build->nlines++];
        *line = (struct tui_line_view){.row = row,
                                       .rails = rails,
                                       .depth = depth,
                                       .parent = child != 0,
                                       .last = build->next[row] == 0,
                                       .open = child != 0 && is_open(table, row)};
        if (line->open && depth < MAX_DEPTH) {
            if (!line->last)
                rails |= 1u << depth;
            depth++;
            at = child;
            continue;
        }
        at = build->next[row];
        while (at == 0 && depth > 0) {
            row = build->parent[row];
            depth--;
            rails &= ~(1u << depth);
            at = build->next[row];
        }
    }
}

static bool allocate(struct build *build)
{
    size_t n = build->rows + 1;
    build->keys = calloc(n, sizeof *build->keys);
    build->child = calloc(n, sizeof *build->child);
    build->next = calloc(n, sizeof *build->next);
    build->parent = calloc(n, sizeof *build->parent);
    build->keep = calloc(n, sizeof *build->keep);
    build->match = calloc(n, sizeof *build->match);
    build->lines = calloc(n, sizeof *build->lines);
    return build->keys && build->child && build->next && build->parent && build->keep && build->match &&
           build->lines;
}

static void release(struct build *build)
{
    free(build->keys);
    free(build->child);
    free(build->next);
    free(build->parent);
    free(build->keep);
    free(build->match);
    free(build->arena);
    free(build->lines);
}

static size_t line_of_id(const struct tui_table *table, uint64_t id)
{
    for (size_t i = 0; i < table->nlines; i++) {
        if (table->source->id(table->context, table->lines[i].row) == id)
            return i;
    }
    return TUI_NO_ROW;
}

static void note_selected(struct tui_table *table)
{
    if (table->nlines > 0)
        table->selected_id = table->source->id(table->context, table->lines[table->selected].row);
}

static void restore_selection(struct tui_table *table)
{
    size_t line = table->moved ? line_of_id(table, table->selected_id) : TUI_NO_ROW;
    if (line != TUI_NO_ROW)
        table->selected = line;
    if (table->selected >= table->nlines)
        table->selected = table->nlines > 0 ? table->nlines - 1 : 0;
    /* A line that is only filtered away comes back selected. */
    if (!table->moved)
        note_selected(table);
}

bool tui_table_update(struct tui_table *table)
{
    struct build build = {.table = table, .rows = table->source->rows(table->context)};
    bool ok = build.rows < UINT32_MAX && allocate(&build);
    for (size_t row = 0; ok && row < build.rows; row++)
        ok = add_key(&build, row);
    if (ok) {
        qsort_r(build.keys, build.rows, sizeof *build.keys, compare_keys, &build);
        find_parents(&build);
        apply_filter(&build);
        link_siblings(&build);
        lay_out_lines(&build);
        struct tui_line_view *old = table->lines;
        table->lines = build.lines;
        table->nlines = build.nlines;
        build.lines = old;
    } else {
        table->nlines = 0;
    }
    release(&build);
    restore_selection(table);
    if (table->follow)
        tui_table_show_selected(table, (size_t)(table->place.height > 1 ? table->place.height - 1 : 1));
    return ok;
}

/* ---- the rest ---- */

struct tui_table *tui_table_new(const struct tui_column *columns, unsigned ncolumns,
                                const struct tui_source *source, void *context)
{
    struct tui_table *table = calloc(1, sizeof *table);
    if (table == NULL)
        return NULL;
    table->columns = columns;
    table->ncolumns = ncolumns < TUI_MAX_COLUMNS ? ncolumns : TUI_MAX_COLUMNS;
    table->source = source;
    table->context = context;
    table->open_by_default = true;
    return table;
}

void tui_table_free(struct tui_table *table)
{
    if (table == NULL)
        return;
    ids_clear(&table->tagged);
    ids_clear(&table->toggled);
    free(table->lines);
    free(table);
}

void tui_table_sort(struct tui_table *table, unsigned column, bool descending)
{
    if (column >= table->ncolumns)
        return;
    table->sort = column;
    table->descending = descending;
    tui_table_update(table);
}

unsigned tui_table_sort_column(const struct tui_table *table)
{
    return table->sort;
}

bool tui_table_sort_descending(const struct tui_table *table)
{
    return table->descending;
}

void tui_table_hide(struct tui_table *table, unsigned column, bool hide)
{
    if (column == 0 || column >= table->ncolumns)
        return;
    table->hidden = hide ? table->hidden | 1u << column : table->hidden & ~(1u << column);
}

bool tui_table_hides(const struct tui_table *table, unsigned column)
{
    return column < table->ncolumns && table->hidden & 1u << column;
}

unsigned tui_table_columns(const struct tui_table *table, const struct tui_column **columns)
{
    *columns = table->columns;
    return table->ncolumns;
}

void tui_table_filter(struct tui_table *table, const char *words)
{
    strncpy(table->filter, words, sizeof table->filter - 1);
    tui_table_update(table);
}

const char *tui_table_filter_words(const struct tui_table *table)
{
    return table->filter;
}

static void move_to(struct tui_table *table, size_t line)
{
    table->moved = true;
    table->selected = line < table->nlines ? line : table->nlines > 0 ? table->nlines - 1 : 0;
    note_selected(table);
    tui_table_show_selected(table, (size_t)(table->place.height > 1 ? table->place.height - 1 : 1));
}

bool tui_table_search(struct tui_table *table, const char *words, int direction, bool here)
{
    size_t n = table->nlines;
    if (words[0] == '\0' || n == 0)
        return false;
    for (size_t step = here ? 0 : 1; step <= n; step++) {
        size_t line = direction > 0 ? (table->selected + step) % n : (table->selected + n - step % n) % n;
        if (row_matches(table, table->lines[line].row, words)) {
            move_to(table, line);
            return true;
        }
    }
    return false;
}

void tui_table_set_tree(struct tui_table *table, bool tree)
{
    table->tree = tree && table->source->parent != NULL;
    tui_table_update(table);
}

bool tui_table_is_tree(const struct tui_table *table)
{
    return table->tree;
}

void tui_table_set_open_by_default(struct tui_table *table, bool open)
{
    table->open_by_default = open;
}

size_t tui_table_selected(const struct tui_table *table)
{
    return tui_table_row_at(table, table->selected);
}

bool tui_table_select_id(struct tui_table *table, uint64_t id)
{
    size_t line = line_of_id(table, id);
    if (line == TUI_NO_ROW)
        return false;
    move_to(table, line);
    return true;
}

bool tui_table_tagged(const struct tui_table *table, uint64_t id)
{
    return tui_ids_has(&table->tagged, id);
}

bool tui_table_follows(const struct tui_table *table)
{
    return table->follow;
}

void tui_table_window(const struct tui_table *table, size_t *first, size_t *count)
{
    size_t height = table->place.height > 1 ? (size_t)table->place.height - 1 : 0;
    *first = table->top < table->nlines ? table->top : table->nlines;
    *count = table->nlines - *first < height ? table->nlines - *first : height;
}

size_t tui_table_lines(const struct tui_table *table)
{
    return table->nlines;
}

size_t tui_table_row_at(const struct tui_table *table, size_t line)
{
    return line < table->nlines ? table->lines[line].row : TUI_NO_ROW;
}

void tui_table_show_selected(struct tui_table *table, size_t height)
{
    if (height == 0)
        height = 1;
    if (table->selected < table->top)
        table->top = table->selected;
    else if (table->selected >= table->top + height)
        table->top = table->selected - height + 1;
}

void tui_table_wheel(struct tui_table *table, int direction)
{
    size_t step = 3;
    if (direction < 0)
        move_to(table, table->selected > step ? table->selected - step : 0);
    else
        move_to(table, table->selected + step);
}

static void tag_selected(struct tui_table *table)
{
    if (table->nlines == 0)
        return;
    uint64_t id = table->source->id(table->context, table->lines[table->selected].row);
    if (tui_ids_has(&table->tagged, id))
        ids_remove(&table->tagged, id);
    else
        ids_add(&table->tagged, id);
    move_to(table, table->selected + 1);
}

/* On a line without branches the command means the branch that the line is on. */
static void set_branch(struct tui_table *table, bool open)
{
    if (table->nlines == 0 || !table->tree)
        return;
    size_t line = table->selected;
    if (!open && !table->lines[line].open) {
        while (line > 0 && table->lines[line].depth >= table->lines[table->selected].depth)
            line--;
        if (table->lines[line].depth >= table->lines[table->selected].depth)
            return;
    }
    if (!table->lines[line].parent || table->lines[line].open == open)
        return;
    uint64_t id = table->source->id(table->context, table->lines[line].row);
    if (open == table->open_by_default)
        ids_remove(&table->toggled, id);
    else
        ids_add(&table->toggled, id);
    move_to(table, line);
    tui_table_update(table);
}

static size_t page(const struct tui_table *table)
{
    return table->place.height > 2 ? (size_t)table->place.height - 2 : 1;
}

int tui_table_farthest(const struct tui_table *table)
{
    return table->total > table->place.width ? table->total - table->place.width : 0;
}

bool tui_table_command(struct tui_table *table, int command)
{
    size_t at = table->selected;
    switch (command) {
    case TUI_UP:
        move_to(table, at > 0 ? at - 1 : 0);
        return true;
    case TUI_DOWN:
        move_to(table, at + 1);
        return true;
    case TUI_PAGE_UP:
        move_to(table, at > page(table) ? at - page(table) : 0);
        return true;
    case TUI_PAGE_DOWN:
        move_to(table, at + page(table));
        return true;
    case TUI_FIRST:
        move_to(table, 0);
        return true;
    case TUI_LAST:
        move_to(table, SIZE_MAX);
        return true;
    case TUI_LEFT_COLUMN:
        table->scroll = table->scroll > 8 ? table->scroll - 8 : 0;
        return true;
    case TUI_RIGHT_COLUMN:
        table->scroll += 8;
        if (table->scroll > tui_table_farthest(table))
            table->scroll = tui_table_farthest(table);
        return true;
    case TUI_TREE:
        tui_table_set_tree(table, !table->tree);
        tui_table_show_selected(table, page(table) + 1);
        return true;
    case TUI_SORT_INVERT:
        tui_table_sort(table, table->sort, !table->descending);
        return true;
    case TUI_TAG:
        tag_selected(table);
        return true;
    case TUI_UNTAG_ALL:
        ids_clear(&table->tagged);
        return true;
    case TUI_FOLLOW:
        table->follow = !table->follow;
        move_to(table, at);
        return true;
    case TUI_EXPAND:
    case TUI_COLLAPSE:
        set_branch(table, command == TUI_EXPAND);
        return true;
    default:
        return false;
    }
}
