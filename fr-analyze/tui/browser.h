/*
 * Inside the browser.
 *
 * What is on the screen is a place: a view and what it is about. Enter leads to another
 * place, Esc back along the way that was come. Each view fills its table when it is shown;
 * what must be read from the traces first is read in steps between two keys (work), so that
 * keys never wait for it. In every table the id of a row is its number + 1. One thread.
 */
#ifndef BROWSER_H
#define BROWSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fr-analyze/tui/browse.h"
#include "fr-tui/shell.h"
#include "rec/symbolize.h"

#define BROWSE_NONE UINT32_MAX
#define NO_SEQ      UINT64_MAX

enum view_id {
    VIEW_VERDICT,
    VIEW_COMMS,
    VIEW_RANKS,
    VIEW_TIME,
    MAIN_VIEWS,             /* those with a tab of their own */
    VIEW_RANK = MAIN_VIEWS, /* one process */
    VIEW_COMM,              /* the members of one communicator */
    VIEW_OP,                /* one op on all ranks */
    VIEW_CALL,              /* one op on one rank */
    VIEW_DIFF,              /* two ranks' ops on one communicator */
    VIEWS
};

struct place {
    enum view_id view;
    uint32_t run;     /* number of the run that it belongs to; 0 = the one that is shown */
    uint32_t process; /* index in the job's list; BROWSE_NONE */
    uint32_t other;   /* DIFF: the right one */
    const struct rec_communicator *comm;
    uint64_t seq;     /* NO_SEQ = none */
    int32_t src, dst; /* comm ranks of a message; -1 for what all members call */
    bool teardown;    /* the teardown call made at seq, not the op */
    uint64_t when_ns; /* about when that was, on the common clock; 0 = not known */
    size_t row;       /* the selected one, on the way back */
    bool has_row;
};

/* A view of a process (BROWSE_NONE = of none), and of no op or communicator. */
static inline struct place place_in(enum view_id view, uint32_t process)
{
    return (struct place){
        .view = view, .process = process, .other = BROWSE_NONE, .seq = NO_SEQ, .src = -1, .dst = -1};
}

/* ---- what all views share, computed once (data.c) ---- */

struct comm_figures {
    uint64_t front, back; /* highest and lowest next_seq of the members seen */
    uint64_t lost;
    uint32_t behind, ended; /* members */
    uint32_t finding;       /* first one about it; BROWSE_NONE */
};

/* A rank of the job: one for each process, and one for each rank without a trace. */
struct rank_figures {
    int32_t rank;     /* -1 unknown */
    uint32_t process; /* BROWSE_NONE: no trace */
    enum rec_role role;
    uint64_t lag;                    /* ops behind the foremost member of any of its communicators */
    const struct rec_op *last;       /* NULL = none */
    const struct rec_member *member; /* of last; NULL */
    bool open;                       /* last has not returned */
};

/*
 * A job that was restarted has several runs (generations). One is shown at a time, at first the
 * last one, which the findings are about; ranks, shown and the times below are its own.
 */
struct browse_data {
    const struct rec_job *job;
    const struct rec_verdict *verdict;
    struct rec_process *const *processes;
    size_t nprocesses;
    struct rec_communicator *const *comms;
    size_t ncomms;
    struct comm_figures *figures; /* by communicator index */
    bool runs;                    /* processes of it live */
    size_t run, nruns;            /* the run that is shown, of how many; from 0 */
    uint32_t *shown;              /* indices of its communicators */
    size_t nshown;
    uint32_t *shown_at; /* by communicator index: its place in shown; BROWSE_NONE */
    struct rank_figures *ranks;
    size_t nranks;
    uint32_t *rank_of;          /* by process index: its entry in ranks; BROWSE_NONE = of another run */
    int64_t *offsets;           /* by process index: of its host's clock against the common one, ns */
    uint64_t first_ns, last_ns; /* of the run, common clock */
    uint64_t quiet_ns;          /* last time that any NCCL call began or returned, common clock */
};

bool browse_data_init(struct browse_data *data, const struct rec_job *job, const struct rec_verdict *verdict);
void browse_data_free(struct browse_data *data);
void browse_data_show(struct browse_data *data, size_t run);
/*
 * Records have the clock of their host; a verdict's times, places and what is shown have the common
 * one, which is that of the job's first host. From the one to the other; 0 stays 0.
 */
uint64_t browse_common_ns(const struct browse_data *data, const struct rec_process *process, uint64_t ns);
uint64_t browse_host_ns(const struct browse_data *data, const struct rec_process *process, uint64_t ns);
/* Could the clock of its host be compared with the common one? */
bool browse_clock_known(const struct browse_data *data, const struct rec_process *process);
/* The last process of a job rank in the run that is shown; BROWSE_NONE. */
uint32_t browse_process_of(const struct browse_data *data, int32_t rank);
struct rec_member *browse_member(const struct rec_process *process, const struct rec_communicator *comm);
struct rec_member *browse_member_at(const struct rec_communicator *comm, int64_t comm_rank);
/* The place of an op that a process called. */
struct place browse_op_place(const struct browse_data *data, const struct rec_process *process,
                             const struct rec_op *op);
/* Where a finding, or a line of its evidence (may be NULL), points. False: nowhere. */
bool browse_finding_place(const struct browse_data *data, const struct rec_finding *finding,
                          const struct rec_evidence *evidence, struct place *place);

/*
 * The very op, as its record says it, that a line of evidence speaks of, read from the trace around its time,
 * for 30 ms at most. False when it is not found so.
 */
bool browse_evidence_op(const struct browse_data *data, const struct rec_evidence *evidence,
                        struct rec_op *op);

/* ---- words.c ---- */

const char *word_kind(const struct rec_op *op, char buffer[24]);
void word_op(char *out, size_t size, const struct rec_op *op); /* "AllReduce 1024 f32 sum" */
void word_comm(char *out, size_t size, const struct rec_communicator *comm);
void word_end(char *out, size_t size, const struct rec_process *process); /* "exit 0", "SIGSEGV", "" */
void word_state(char *out, size_t size, const struct browse_data *data, const struct rank_figures *rank);
void word_count(char *out, size_t size, uint64_t value);
void word_span(char *out, size_t size, uint64_t ns);                /* "12.3 ms" */
void word_clock(char *out, size_t size, uint64_t ns, int decimals); /* "05:18:50.123" UTC */
/* The same of a time in a process's records, on the common clock. */
void word_time(char *out, size_t size, const struct browse_data *data, const struct rec_process *process,
               uint64_t ns, int decimals);
enum tui_style style_role(enum rec_role role);
enum tui_style style_state(unsigned state);
/* What cannot be shown without UTF-8 in letters: arrows and the like; cut to size. */
void word_plain(char *out, size_t size, const char *text);

/* ---- lines.c: text with targets, as a table of one column ---- */

struct line {
    char text[128];
    enum tui_style style;
    bool has_target;
    struct place target;
    const void *about; /* what lines->about was when the line was added */
};
struct lines {
    struct line *lines;
    size_t count, room;
    int width; /* cells to wrap at */
    const void *about;
    bool oom;
};
extern const struct tui_source lines_source; /* context: struct lines */
/* The second column takes no room: sorting by it keeps the lines in their order. */
#define LINES_COLUMNS(title)                                                                                 \
    {                                                                                                        \
        {.name = title, .width = 20, .max_width = 1000},                                                     \
        {                                                                                                    \
            .name = "", .numeric = true, .rising = true                                                      \
        }                                                                                                    \
    }
void lines_clear(struct lines *lines);
/* One paragraph; further lines are indented by hang, < 0: one line, however long. target may be NULL. */
void lines_add(struct lines *lines, enum tui_style style, int hang, const struct place *target,
               const char *format, ...) __attribute__((format(printf, 5, 6)));
bool lines_target(const struct lines *lines, size_t row, struct place *target);

/* ---- seek.c: the ops of one member by seq ---- */

/*
 * Reads in steps. The trace is entered near where the op should be, by time, and farther back
 * when that was too late; a look-up touches a few segments, whatever the trace's length.
 */
struct seek {
    const struct rec_job *job;
    const struct rec_member *member;
    uint64_t lo, hi;
    int32_t peer;                                          /* >= 0: messages to or from this comm rank */
    bool send;                                             /* which of them */
    unsigned kinds;                                        /* enum rec_kind_flags: one of these */
    void (*found)(void *context, const struct rec_op *op); /* op NULL: begins anew, forget what was found */
    void *context;

    struct rec_scan *scan;
    uint64_t center, margin;
    bool seen, whole, done;
};
/* The fields above scan are the caller's to fill; near_ns by the member's own clock, 0 = from the seq. */
void seek_start(struct seek *seek, uint64_t near_ns);
/* Works until deadline_ns (monotonic); true = done. */
bool seek_step(struct seek *seek, uint64_t deadline_ns);
void seek_stop(struct seek *seek);

uint64_t monotonic_ns(void);

/* ---- views ---- */

struct browser;
struct view {
    const char *name;
    enum tui_rows rows;
    const struct tui_binding *bindings; /* its own, besides those of all views */
    size_t nbindings;
    bool (*init)(struct browser *browser);                            /* false = no memory */
    void (*fini)(struct browser *browser);                            /* after a failed init too */
    bool (*show)(struct browser *browser, const struct place *place); /* false = no memory */
    /* What Enter leads to; false = nothing. May act itself (open a branch) and return false. */
    bool (*target)(struct browser *browser, struct place *target);
    /* Reads on until deadline_ns; true = the screen has something new or will have. NULL = never. */
    bool (*work)(struct browser *browser, uint64_t deadline_ns);
    /* Another run is shown, or (again) the job as it is now: let go of the old one's. NULL = nothing is kept
     */
    void (*forget)(struct browser *browser, bool again);
    void (*about)(struct browser *browser, char *text, size_t size, enum tui_style *style);
    bool (*command)(struct browser *browser, int command); /* its own commands; NULL = none */
};
extern const struct view view_verdict, view_comms, view_ranks, view_time, view_rank, view_comm, view_op,
    view_call, view_diff;

enum {
    CMD_VIEW = TUI_APP,
    CMD_VIEW_BACK,
    CMD_1,
    CMD_2,
    CMD_3,
    CMD_4,
    CMD_DIFF,
    CMD_TIME,
    CMD_FINDING,
    CMD_RUN,
    CMD_OWN, /* commands of one view begin here */
};

struct browser {
    struct browse_data data;
    struct rec_symbolizer *symbolizer;
    struct tui_shell shell;
    struct place here;
    const struct browse_again *again; /* NULL */
    uint64_t looked_ns;               /* when again->look was called */
    struct place *way;                /* where Esc leads, the last one first */
    size_t nway;
    uint32_t finding; /* the one that CMD_FINDING went to last */
    bool leave;
    int width; /* for which the view was shown */

    struct tui_table *tables[VIEWS];
    struct tui_timeline timeline;
    void *state[VIEWS]; /* each view's own */
    struct tui_binding bindings[VIEWS][32];
    int tabs_y;             /* -1 = not shown */
    struct tui_event click; /* the last one */
    uint64_t click_ns;
};

/* ---- browser.c ---- */

extern const struct view *const browser_views[VIEWS];

/* ---- places.c ---- */

#define WAY_MAX 256 /* places that Esc leads back to */

bool browser_has_subject(const struct browser *browser, const struct place *place);
/* Shows a place, with nothing on the way back; browser_go puts here there. */
void browser_show(struct browser *browser, const struct place *place);
void browser_go(struct browser *browser, const struct place *place);
void browser_go_back(struct browser *browser);
void browser_go_to_view(struct browser *browser, enum view_id view);
void browser_go_to_finding(struct browser *browser);
void browser_go_to_earlier_run(struct browser *browser);
void browser_remember_row(struct browser *browser); /* of here */
/* What a command about the selected thing refers to. */
bool browser_selected_place(struct browser *browser, struct place *place);
void browser_compare(struct browser *browser);
/* The call of a row of the OP view; false when that member has no trace. */
bool op_row_place(const struct browser *browser, size_t row, struct place *place);
/* A process that can be compared with this one on the communicator: one that is not blamed. */
uint32_t browser_reference(const struct browser *browser, const struct rec_communicator *comm,
                           uint32_t process);
/* The place to compare two members around an op, for CMD_DIFF. False: there are not two. */
bool browser_diff_place(const struct browser *browser, const struct place *place, struct place *diff);

/* ---- renew.c ---- */

#define AGAIN_NS 300000000 /* between two questions whether there is something newer */

/* Details stay as they are while somebody reads them. True: there is something new to see. */
bool browser_look_again(struct browser *browser);

#endif
