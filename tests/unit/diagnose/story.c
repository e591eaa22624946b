#include "story.h"

#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "rec/live.h"
#include "rec/writer.h"

#define RANKS_MAX   80
#define COMMS_MAX   24
#define PAIRS_MAX   128
#define THREADS_MAX 4
#define GRAPHS_MAX  16
#define MS          UINT64_C(1000000)
#define START       UINT64_C(1700000000000000000)

struct pair {
    int comm, peer, send;
    uint64_t next;
};

struct teller {
    void *memory;
    struct rec_writer *writer;
    bool over, losing, no_trace, capturing;
    unsigned graph; /* captured into; 0 = its launches are not seen */
    uint64_t launches, replays[GRAPHS_MAX];
    struct rec_gpu gpu;
    uint64_t skew_ns; /* its clock is so much ahead */
    long torn_bytes;  /* the file is cut here, inside a piece; 0 */
    uint64_t stop_ns; /* when it stopped to show signs of life; 0 */
    char path[160];
    uint64_t ordinal[THREADS_MAX];
    uint64_t lost[COMMS_MAX], lost_total;
    uint64_t seq[COMMS_MAX], p2p[COMMS_MAX];
    int comm_rank[COMMS_MAX]; /* -1: no member */
    struct pair pairs[PAIRS_MAX];
    int npairs;
    uint32_t group, groups;
    int group_thread;
    uint64_t group_ops;
    struct rec_op open[8];
    uint32_t nopen;
};

struct comm {
    char name[16];
    int members[RANKS_MAX], nmembers;
    uint32_t parent; /* index + 1 */
};

struct stage {
    struct teller ranks[RANKS_MAX];
    int nranks;
    struct comm comms[COMMS_MAX];
    int ncomms;
    uint64_t now;
    bool marks; /* launches have marks */
};

static uint64_t clock_of(const struct stage *stage, int rank)
{
    return stage->now + stage->ranks[rank].skew_ns;
}

/* ---- files ---- */

static void open_trace(struct stage *stage, int rank, const char *dir)
{
    struct teller *t = &stage->ranks[rank];
    struct rec_writer_config config = {.tick_ns = 1};
    size_t bytes = (rec_writer_bytes(&config) + 63) / 64 * 64;
    t->memory = aligned_alloc(64, bytes);
    assert_non_null(t->memory);
    t->writer = rec_writer_init(t->memory, &config);
    char meta[512], stem[32];
    int n = snprintf(
        meta, sizeof meta,
        "{\"host\":\"node-%d\",\"boot_id\":\"boot-%d\",\"pid\":%d,\"proc_uid\":\"%016x\",\"rank\":%d,"
        "\"world_size\":%d,\"start_ns\":%" PRIu64 ",\"job\":{\"source\":\"FREC_JOB_ID\",\"id\":\"story\"}}",
        rank / 8, rank / 8, 1000 + rank, 1000 + rank, rank, stage->nranks, START);
    snprintf(stem, sizeof stem, "node-%d", 1000 + rank);
    struct rec_error err;
    assert_int_equal(rec_writer_open(t->writer, dir, stem, meta, (size_t)n, &err), REC_OK);
    snprintf(t->path, sizeof t->path, "%s/%s.frec", dir, stem);
    for (int i = 0; i < THREADS_MAX; i++) {
        struct rec_thread_def thread = {.id = (uint32_t)i + 1, .tid = 1000 + rank + i};
        rec_writer_thread(t->writer, &thread);
    }
    for (int i = 0; i < COMMS_MAX; i++)
        t->comm_rank[i] = -1;
}

static void close_trace(struct stage *stage, int rank)
{
    struct teller *t = &stage->ranks[rank];
    struct rec_error err;
    uint64_t last = t->stop_ns ? t->stop_ns : clock_of(stage, rank);
    if (!t->over) {
        for (int c = 0; c < stage->ncomms; c++) {
            struct rec_frontier frontier = {
                .comm = (uint32_t)c, .next_seq = t->seq[c], .p2p_entered = t->p2p[c], .lost = t->lost[c]};
            if (t->comm_rank[c] >= 0)
                rec_writer_frontier(t->writer, last, &frontier);
        }
        rec_writer_open_ops(t->writer, last, t->open, t->nopen);
        rec_writer_heartbeat(t->writer, last);
        assert_int_equal(rec_writer_flush(t->writer, &err), REC_OK);
        rec_writer_abandon(t->writer);
    }
    if (t->torn_bytes)
        assert_int_equal(truncate(t->path, t->torn_bytes), 0);
    if (t->no_trace)
        unlink(t->path);
    free(t->memory);
}

/* ---- ops ---- */

static void define_comm(struct stage *stage, int rank, int comm, uint32_t made_by, uint32_t state,
                        uint32_t nranks)
{
    struct comm *c = &stage->comms[comm];
    struct rec_comm_def def = {.id = (uint32_t)comm,
                               .state = state,
                               .nranks = nranks,
                               .rank = (uint32_t)stage->ranks[rank].comm_rank[comm],
                               .uid = 0xc000u + (uint64_t)comm,
                               .made_by = made_by,
                               .color = -1,
                               .created_ns = clock_of(stage, rank)};
    if (c->parent)
        def.parent_uid = 0xc000u + c->parent - 1;
    memcpy(def.name, c->name, sizeof c->name);
    rec_writer_comm(stage->ranks[rank].writer, &def);
}

struct call {
    struct rec_op op;
    int thread;
    bool open;
    bool started, done; /* as the GPU's marks say */
};

static struct call new_call(int comm, unsigned kind)
{
    return (struct call){.op = {.comm = comm < 0 ? REC_ID_NONE : (uint32_t)comm,
                                .kind = (uint8_t)kind,
                                .dtype = REC_DTYPE_NONE,
                                .redop = REC_REDOP_NONE,
                                .peer = -1,
                                .stream = REC_ID_NONE}};
}

static uint64_t take_seq(struct teller *t, const struct rec_op *op)
{
    unsigned flags = rec_kind_flags(op->kind);
    if (flags & REC_KF_SEQ)
        return t->seq[op->comm]++;
    if (op->kind == REC_GRAPH_LAUNCH)
        return t->replays[op->peer]++;
    if (!(flags & REC_KF_P2P))
        return op->comm == REC_ID_NONE ? 0 : t->seq[op->comm];
    t->p2p[op->comm]++;
    for (int i = 0; i < t->npairs; i++)
        if (t->pairs[i].comm == (int)op->comm && t->pairs[i].peer == op->peer &&
            t->pairs[i].send == (op->kind == REC_SEND))
            return t->pairs[i].next++;
    assert_true(t->npairs < PAIRS_MAX);
    t->pairs[t->npairs++] = (struct pair){(int)op->comm, op->peer, op->kind == REC_SEND, 1};
    return 0;
}

static void issue(struct stage *stage, int rank, struct call *call)
{
    struct teller *t = &stage->ranks[rank];
    assert_false(t->over);
    struct rec_op *op = &call->op;
    int thread = t->group && op->kind != REC_GROUP_END ? t->group_thread : call->thread;
    op->thread = (uint32_t)thread + 1;
    op->ordinal = t->ordinal[thread]++;
    op->seq = take_seq(t, op);
    op->group = t->group;
    t->group_ops += t->group != 0;
    op->enter_ns = clock_of(stage, rank);
    op->result = call->open ? REC_RESULT_NONE : op->result;
    op->flags |= call->open ? REC_OF_OPEN : 0;
    op->flags |= t->capturing ? REC_OF_CAPTURED : 0;
    op->exit_ns = call->open ? 0 : op->enter_ns + MS / 10;
    if (t->capturing)
        op->launch = t->graph;
    else if (stage->marks && (rec_kind_flags(op->kind) & REC_KF_STREAM) && !call->open && !t->group)
        op->launch = ++t->launches;
    t->capturing = false;
    t->gpu.stream = op->stream;
    t->gpu.started = call->started || call->done ? op->launch : t->gpu.started;
    t->gpu.ended = call->done ? op->launch : t->gpu.ended;
    if (call->started || call->done)
        rec_writer_gpu(t->writer, op->enter_ns, &t->gpu);
    op->state = call->open || t->group ? REC_STATE_IN_CALL
                : op->result           ? REC_STATE_FAILED
                                       : REC_STATE_ENQUEUED;
    if (call->open) {
        assert_true(t->nopen < 8);
        t->open[t->nopen++] = *op;
    } else if (t->losing) {
        struct rec_loss loss = {
            .thread = op->thread, .first_ordinal = op->ordinal, .count = 1, .why = REC_LOSS_RING_FULL};
        rec_writer_loss(t->writer, op->enter_ns, &loss);
        if (op->comm != REC_ID_NONE)
            t->lost[op->comm]++;
    } else {
        rec_writer_ops(t->writer, op, 1);
    }
}

/* ---- words ---- */

static int find_comm(struct stage *stage, const char *name, bool create)
{
    for (int i = 0; i < stage->ncomms; i++)
        if (strcmp(stage->comms[i].name, name) == 0)
            return i;
    if (!create)
        fail_msg("no communicator %s", name);
    assert_true(stage->ncomms < COMMS_MAX);
    snprintf(stage->comms[stage->ncomms].name, sizeof stage->comms[0].name, "%s", name);
    return stage->ncomms++;
}

static int parse_ranks(const char *text, int nranks, int *ranks)
{
    bool chosen[RANKS_MAX] = {0};
    bool except = text[0] == '*';
    for (int i = 0; except && i < nranks; i++)
        chosen[i] = true;
    const char *at = except ? text + 1 : text;
    if (except && *at == '-')
        at++;
    while (*at) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        assert_true(end != at && last < RANKS_MAX);
        for (long i = first; i <= last; i++)
            chosen[i] = !except;
        at = end + (*end == ',');
    }
    int count = 0;
    for (int i = 0; i < RANKS_MAX; i++)
        if (chosen[i])
            ranks[count++] = i;
    return count;
}

struct line {
    struct stage *stage;
    char *words[16];
    int nwords;
    int ranks[RANKS_MAX], nranks;
};

/* The word after key; NULL when key is not there. */
static const char *option(const struct line *line, const char *key)
{
    for (int i = 2; i < line->nwords; i++)
        if (strcmp(line->words[i], key) == 0)
            return i + 1 < line->nwords ? line->words[i + 1] : "";
    return NULL;
}

static int number(const struct line *line, const char *key, int missing)
{
    const char *text = option(line, key);
    return text ? atoi(text) : missing;
}

static void set_members(struct stage *stage, int comm, const int *ranks, int count)
{
    struct comm *c = &stage->comms[comm];
    memcpy(c->members, ranks, (size_t)count * sizeof *ranks);
    c->nmembers = count;
}

static int place_of(const struct comm *c, int rank)
{
    for (int i = 0; i < c->nmembers; i++)
        if (c->members[i] == rank)
            return i;
    fail_msg("rank %d is no member of %s", rank, c->name);
    return -1;
}

static void do_init(const struct line *line)
{
    struct stage *stage = line->stage;
    int comm = find_comm(stage, line->words[2], true);
    const char *of = option(line, "of");
    int members[RANKS_MAX], count;
    if (of)
        count = parse_ranks(of, stage->nranks, members);
    else
        memcpy(members, line->ranks, sizeof members), count = line->nranks;
    if (!stage->comms[comm].nmembers)
        set_members(stage, comm, members, count);
    int nranks = number(line, "nranks", count);
    bool complete = line->nranks == count && nranks == count && stage->comms[comm].nmembers == count;
    for (int i = 0; i < line->nranks; i++) {
        int rank = line->ranks[i];
        stage->ranks[rank].comm_rank[comm] = place_of(&stage->comms[comm], rank);
        define_comm(stage, rank, comm, REC_COMM_INIT_RANK,
                    complete ? REC_LIVE_COMM_READY : REC_LIVE_COMM_CREATING, (uint32_t)nranks);
        struct call call = new_call(comm, REC_COMM_INIT_RANK);
        call.op.count = (uint64_t)nranks;
        call.op.peer = stage->ranks[rank].comm_rank[comm];
        call.open = !complete;
        issue(stage, rank, &call);
    }
}

static void do_split(const struct line *line)
{
    struct stage *stage = line->stage;
    const char *verb = line->words[1];
    int parent = find_comm(stage, line->words[2], false), child = -1;
    bool child_made = strcmp(verb, "split") == 0 || strcmp(verb, "shrink") == 0;
    if (child_made) {
        child = find_comm(stage, line->words[3], true);
        set_members(stage, child, line->ranks, line->nranks);
        stage->comms[child].parent = (uint32_t)parent + 1;
    }
    unsigned kind = strcmp(verb, "shrink") == 0 ? REC_COMM_SHRINK : REC_COMM_SPLIT;
    for (int i = 0; i < line->nranks; i++) {
        struct teller *t = &stage->ranks[line->ranks[i]];
        struct call call = new_call(parent, kind);
        call.op.peer = child_made ? 0 : -1;
        if (kind == REC_COMM_SHRINK)
            call.op.count = (uint64_t)(stage->comms[parent].nmembers - line->nranks);
        call.open = strcmp(verb, "insplit") == 0;
        issue(stage, line->ranks[i], &call);
        if (!child_made)
            continue;
        t->comm_rank[child] = i;
        t->seq[child] = 1;
        define_comm(stage, line->ranks[i], child, kind, REC_LIVE_COMM_READY, (uint32_t)line->nranks);
    }
}

static const struct {
    const char *verb;
    unsigned kind;
} data_verbs[] = {{"ar", REC_ALL_REDUCE}, {"ag", REC_ALL_GATHER},  {"rs", REC_REDUCE_SCATTER},
                  {"bc", REC_BROADCAST},  {"a2a", REC_ALL_TO_ALL}, {"ga", REC_GATHER},
                  {"send", REC_SEND},     {"recv", REC_RECV}};

static bool do_data(const struct line *line)
{
    unsigned kind = 0;
    for (size_t i = 0; i < sizeof data_verbs / sizeof *data_verbs; i++)
        if (strcmp(line->words[1], data_verbs[i].verb) == 0)
            kind = data_verbs[i].kind;
    if (!kind)
        return false;
    unsigned flags = rec_kind_flags(kind);
    bool p2p = (flags & REC_KF_P2P) != 0;
    struct call call = new_call(find_comm(line->stage, line->words[2], false), kind);
    call.op.count = strtoull(line->words[p2p ? 4 : 3], NULL, 10);
    call.op.peer = p2p ? atoi(line->words[3]) : flags & REC_KF_ROOT ? number(line, "root", 0) : -1;
    call.op.dtype = 7;
    call.op.redop = flags & REC_KF_REDOP ? 0 : REC_REDOP_NONE;
    for (int i = p2p ? 5 : 4; i < line->nwords; i++) {
        if (rec_dtype_from_name(line->words[i]) >= 0)
            call.op.dtype = (uint8_t)rec_dtype_from_name(line->words[i]);
        else if (rec_redop_from_name(line->words[i]) >= 0)
            call.op.redop = (uint8_t)rec_redop_from_name(line->words[i]);
    }
    call.op.stream = (uint32_t)number(line, "stream", 0);
    call.thread = number(line, "thread", 0);
    call.open = option(line, "open") != NULL;
    call.started = option(line, "started") != NULL;
    call.done = option(line, "done") != NULL;
    call.op.result = option(line, "failed") ? 4 : 0;
    for (int i = 0; i < line->nranks; i++) {
        struct call mine = call;
        place_of(&line->stage->comms[call.op.comm], line->ranks[i]);
        issue(line->stage, line->ranks[i], &mine);
    }
    return true;
}

static void do_group(const struct line *line)
{
    for (int i = 0; i < line->nranks; i++) {
        struct teller *t = &line->stage->ranks[line->ranks[i]];
        if (line->words[1][0] == '{') {
            t->group = ++t->groups;
            t->group_thread = number(line, "thread", 0);
            t->group_ops = 0;
            continue;
        }
        struct call call = new_call(-1, REC_GROUP_END);
        call.thread = t->group_thread;
        call.op.count = t->group_ops;
        call.open = strcmp(line->words[1], "}open") == 0;
        issue(line->stage, line->ranks[i], &call);
        t->group = 0;
    }
}

static void do_teardown(const struct line *line, const char *verb, const char *comm, bool open)
{
    unsigned kind = strcmp(verb, "destroy") == 0    ? REC_COMM_DESTROY
                    : strcmp(verb, "finalize") == 0 ? REC_COMM_FINALIZE
                                                    : REC_COMM_ABORT;
    for (int i = 0; i < line->nranks; i++) {
        struct call call = new_call(find_comm(line->stage, comm, false), kind);
        call.open = open;
        issue(line->stage, line->ranks[i], &call);
    }
}

static void do_end(const struct line *line)
{
    const char *verb = line->words[1];
    for (int i = 0; i < line->nranks; i++) {
        struct teller *t = &line->stage->ranks[line->ranks[i]];
        uint64_t now = clock_of(line->stage, line->ranks[i]);
        if (strcmp(verb, "clock") == 0) {
            t->skew_ns = (uint64_t)((int64_t)MS * atoll(line->words[2]));
            continue;
        }
        if (strcmp(verb, "torn") == 0) {
            struct stat status;
            assert_int_equal(rec_writer_flush(t->writer, NULL), REC_OK);
            assert_int_equal(stat(t->path, &status), 0);
            t->torn_bytes = (long)status.st_size + 5;
            continue;
        }
        if (strcmp(verb, "notrace") == 0) {
            t->no_trace = true;
            continue;
        }
        if (strcmp(verb, "stops") == 0) {
            t->stop_ns = now;
            continue;
        }
        struct rec_end end = {.reason = strcmp(verb, "dies") == 0 ? REC_END_SIGNAL : REC_END_EXIT};
        if (end.reason == REC_END_SIGNAL)
            end.signal = atoi(line->words[2]);
        else
            end.status = atoi(line->words[2]);
        for (int c = 0; c < line->stage->ncomms; c++) {
            struct rec_frontier frontier = {
                .comm = (uint32_t)c, .next_seq = t->seq[c], .p2p_entered = t->p2p[c], .lost = t->lost[c]};
            if (t->comm_rank[c] >= 0)
                rec_writer_frontier(t->writer, now, &frontier);
        }
        if (t->nopen)
            rec_writer_open_ops(t->writer, now, t->open, t->nopen);
        rec_writer_end(t->writer, now, &end);
        struct rec_error err;
        assert_int_equal(rec_writer_close(t->writer, &err), REC_OK);
        t->over = true;
    }
}

static unsigned graph_argument(const struct line *line)
{
    return line->nwords > 2 ? (unsigned)strtoul(line->words[2], NULL, 10) % GRAPHS_MAX : 0;
}

static void do_replay(const struct line *line)
{
    unsigned graph = graph_argument(line);
    for (int i = 0; i < line->nranks; i++) {
        struct call call = new_call(-1, REC_GRAPH_LAUNCH);
        call.op.peer = (int32_t)graph;
        call.op.count = 1;
        call.op.stream = 0;
        issue(line->stage, line->ranks[i], &call);
    }
}

static void do_line(const struct line *line)
{
    const char *verb = line->words[1];
    if (strcmp(verb, "init") == 0) {
        do_init(line);
    } else if (strcmp(verb, "split") == 0 || strcmp(verb, "nocolor") == 0 || strcmp(verb, "insplit") == 0 ||
               strcmp(verb, "shrink") == 0) {
        do_split(line);
    } else if (verb[0] == '{' || verb[0] == '}') {
        do_group(line);
    } else if (strcmp(verb, "in") == 0) {
        do_teardown(line, line->words[2], line->words[3], true);
    } else if (strcmp(verb, "destroy") == 0 || strcmp(verb, "finalize") == 0 || strcmp(verb, "abort") == 0) {
        do_teardown(line, verb, line->words[2], false);
    } else if (strcmp(verb, "wait") == 0) {
        line->stage->now += strtoull(line->words[2], NULL, 10) * MS;
    } else if (strcmp(verb, "capture") == 0 || strcmp(verb, "lose") == 0 || strcmp(verb, "record") == 0) {
        for (int i = 0; i < line->nranks; i++) {
            struct teller *t = &line->stage->ranks[line->ranks[i]];
            t->capturing = t->capturing || verb[0] == 'c';
            t->graph = verb[0] == 'c' ? graph_argument(line) : t->graph;
            t->losing = verb[0] == 'l' || (t->losing && verb[0] != 'r');
        }
    } else if (strcmp(verb, "replay") == 0) {
        do_replay(line);
    } else if (strcmp(verb, "devcomm") == 0) {
        for (int i = 0; i < line->nranks; i++) {
            struct call call = new_call(find_comm(line->stage, line->words[2], false), REC_DEV_COMM_CREATE);
            issue(line->stage, line->ranks[i], &call);
        }
    } else if (strcmp(verb, "async") == 0) {
        for (int i = 0; i < line->nranks; i++) {
            struct call call =
                new_call(find_comm(line->stage, line->words[2], false), REC_COMM_GET_ASYNC_ERROR);
            call.op.count = strtoull(line->words[3], NULL, 10);
            issue(line->stage, line->ranks[i], &call);
        }
    } else if (strcmp(verb, "clock") == 0 || strcmp(verb, "torn") == 0 || strcmp(verb, "exit") == 0 ||
               strcmp(verb, "dies") == 0 || strcmp(verb, "stops") == 0 || strcmp(verb, "notrace") == 0) {
        do_end(line);
    } else if (!do_data(line)) {
        fail_msg("unknown verb %s", verb);
    }
}

static void tell_all(struct stage *stage, const char *text, const char *separators);

/* "loop N ( LINE, LINE … )": like repeat, for several lines. */
static bool tell_loop(struct stage *stage, const char *text)
{
    int times = 0;
    char body[2048];
    if (sscanf(text, " loop %d ( %2047[^)]", &times, body) != 2)
        return false;
    for (int i = 0; i < times; i++)
        tell_all(stage, body, ",");
    return true;
}

/* "repeat N" before a line repeats it. */
static void tell_line(struct stage *stage, char *text)
{
    struct line line = {.stage = stage};
    char *save = NULL;
    if (tell_loop(stage, text))
        return;
    for (char *word = strtok_r(text, " \t", &save); word && line.nwords < 16;
         word = strtok_r(NULL, " \t", &save))
        line.words[line.nwords++] = word;
    if (!line.nwords)
        return;
    int times = 1;
    if (strcmp(line.words[0], "repeat") == 0) {
        times = atoi(line.words[1]);
        memmove(line.words, line.words + 2, 14 * sizeof *line.words);
        line.nwords -= 2;
    }
    line.nranks = parse_ranks(line.words[0], stage->nranks, line.ranks);
    for (int i = 0; i < times; i++) {
        stage->now += MS;
        do_line(&line);
    }
}

static void tell_all(struct stage *stage, const char *text, const char *separators)
{
    char *copy = strdup(text), *save = NULL;
    assert_non_null(copy);
    for (char *line = strtok_r(copy, separators, &save); line; line = strtok_r(NULL, separators, &save))
        tell_line(stage, line);
    free(copy);
}

void story_tell(struct story *story, int nranks, const char *text)
{
    struct stage *stage = calloc(1, sizeof *stage);
    assert_non_null(stage);
    strcpy(story->dir, "/tmp/story-XXXXXX");
    assert_non_null(mkdtemp(story->dir));
    stage->nranks = nranks;
    stage->now = START + 1000 * MS;
    stage->marks = strstr(text, " started") || strstr(text, " done");
    for (int i = 0; i < nranks; i++)
        open_trace(stage, i, story->dir);
    tell_all(stage, text, "\n;");
    uint64_t end = stage->now;
    for (int i = 0; i < nranks; i++)
        close_trace(stage, i);
    free(stage);
    struct rec_error err = {0};
    const char *dirs[] = {story->dir};
    struct rec_job_options options = {.no_live = true};
    if (rec_job_open(dirs, 1, &options, &story->job, &err) != REC_OK)
        fail_msg("job: %s", err.text);
    struct rec_analyze_options analyze = {.now_ns = end};
    if (rec_analyze(story->job, &analyze, &story->verdict, &err) != REC_OK)
        fail_msg("analysis: %s", err.text);
}

void story_end(struct story *story)
{
    rec_verdict_free(story->verdict);
    rec_job_close(story->job);
    DIR *dir = opendir(story->dir);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", story->dir, entry->d_name);
        unlink(path);
    }
    closedir(dir);
    rmdir(story->dir);
}

const char *story_culprits(const struct story *story)
{
    static char folded[256];
    const struct rec_finding *f = &story->verdict->findings[0];
    rec_fold_ranks(folded, sizeof folded, f->culprits, f->nculprits);
    return folded;
}

static bool fault_free(enum rec_verdict_type type)
{
    return type == REC_VERDICT_HEALTHY || type == REC_VERDICT_TRACE_MISSING ||
           type == REC_VERDICT_STRAGGLER || type == REC_VERDICT_INCONCLUSIVE;
}

void story_expect(int nranks, const char *text, const char *type, const char *culprits, const char *innocent)
{
    struct story story;
    story_tell(&story, nranks, text);
    const struct rec_finding *f = &story.verdict->findings[0];
    if (strcmp(rec_verdict_type_name(f->type), type) != 0)
        fail_msg("expected %s %s, got %s: %s", type, culprits, rec_verdict_type_name(f->type), f->summary);
    if (strcmp(story_culprits(&story), culprits) != 0)
        fail_msg("expected ranks [%s], got [%s]: %s", culprits, story_culprits(&story), f->summary);
    int ranks[RANKS_MAX];
    int count = *innocent ? parse_ranks(innocent, nranks, ranks) : 0;
    for (size_t i = 0; i < story.verdict->nfindings; i++) {
        f = &story.verdict->findings[i];
        for (size_t j = 0; j < f->nculprits && !fault_free(f->type); j++)
            for (int k = 0; k < count; k++)
                if (f->culprits[j] == ranks[k])
                    fail_msg("rank %d is blamed: %s: %s", ranks[k], rec_verdict_type_name(f->type),
                             f->summary);
    }
    story_end(&story);
}

void story_expect_words(int nranks, const char *text, const char *words)
{
    struct story story;
    story_tell(&story, nranks, text);
    const struct rec_finding *f = &story.verdict->findings[0];
    bool found = strstr(f->summary, words) != NULL;
    for (size_t i = 0; i < f->nevidence; i++)
        found = found || strstr(f->evidence[i].text, words);
    if (!found)
        fail_msg("no \"%s\" in: %s", words, f->summary);
    story_end(&story);
}
