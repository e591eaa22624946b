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
#include "stage.h"

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

int story_ranks(const char *text, int nranks, int *ranks)
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
        count = story_ranks(of, stage->nranks, members);
    else
        memcpy(members, line->ranks, sizeof members), count = line->nranks;
    if (!stage->comms[comm].nmembers)
        set_members(stage, comm, members, count);
    int nranks = number(line, "nranks", count);
    bool complete = line->nranks == count && nranks == count && stage->comms[comm].nmembers == count;
    for (int i = 0; i < line->nranks; i++) {
        int rank = line->ranks[i];
        stage->ranks[rank].comm_rank[comm] = place_of(&stage->comms[comm], rank);
        stage_define_comm(stage, rank, comm, REC_COMM_INIT_RANK,
                          complete ? REC_LIVE_COMM_READY : REC_LIVE_COMM_CREATING, (uint32_t)nranks);
        struct call call = stage_new_call(comm, REC_COMM_INIT_RANK);
        call.op.count = (uint64_t)nranks;
        call.op.peer = stage->ranks[rank].comm_rank[comm];
        call.open = !complete;
        stage_issue(stage, rank, &call);
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
    bool inside = strncmp(verb, "in", 2) == 0;
    unsigned kind = strcmp(verb + (inside ? 2 : 0), "shrink") == 0 ? REC_COMM_SHRINK : REC_COMM_SPLIT;
    for (int i = 0; i < line->nranks; i++) {
        struct teller *t = &stage->ranks[line->ranks[i]];
        struct call call = stage_new_call(parent, kind);
        call.op.peer = child_made ? 0 : -1;
        if (kind == REC_COMM_SHRINK && option(line, "abort"))
            call.op.peer = 1;
        if (kind == REC_COMM_SHRINK)
            call.op.count = inside ? strtoul(line->words[3], NULL, 10)
                                   : (uint64_t)(stage->comms[parent].nmembers - line->nranks);
        call.open = inside;
        stage_issue(stage, line->ranks[i], &call);
        if (!child_made)
            continue;
        t->comm_rank[child] = i;
        t->seq[child] = 1;
        stage_define_comm(stage, line->ranks[i], child, kind, REC_LIVE_COMM_READY, (uint32_t)line->nranks);
    }
}

/* What NCCL says to it; 0 = success. */
static uint8_t result_of(const struct line *line)
{
    return option(line, "failed") ? 4 : option(line, "broken") ? 6 : 0;
}

static const struct {
    const char *verb;
    unsigned kind;
} data_verbs[] = {{"ar", REC_ALL_REDUCE},    {"ag", REC_ALL_GATHER},  {"rs", REC_REDUCE_SCATTER},
                  {"bc", REC_BROADCAST},     {"a2a", REC_ALL_TO_ALL}, {"ga", REC_GATHER},
                  {"send", REC_SEND},        {"recv", REC_RECV},      {"signal", REC_SIGNAL},
                  {"await", REC_WAIT_SIGNAL}};

static bool do_data(const struct line *line)
{
    unsigned kind = 0;
    for (size_t i = 0; i < sizeof data_verbs / sizeof *data_verbs; i++)
        if (strcmp(line->words[1], data_verbs[i].verb) == 0)
            kind = data_verbs[i].kind;
    if (!kind)
        return false;
    unsigned flags = rec_kind_flags(kind);
    bool p2p = (flags & (REC_KF_P2P | REC_KF_RMA)) != 0;
    struct call call = stage_new_call(find_comm(line->stage, line->words[2], false), kind);
    call.op.count = kind == REC_SIGNAL ? 0 : strtoull(line->words[p2p ? 4 : 3], NULL, 10);
    call.op.flags |= option(line, "part") ? REC_OF_PART : 0;
    if (option(line, "several"))
        call.op.signal = REC_SIGNAL_SEVERAL;
    else if (flags & REC_KF_RMA)
        call.op.signal = option(line, "untold")
                             ? REC_SIGNAL_UNKNOWN
                             : rec_signal_id(number(line, "index", 0), number(line, "context", 0));
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
    call.op.result = result_of(line);
    for (int i = 0; i < line->nranks; i++) {
        struct call mine = call;
        place_of(&line->stage->comms[call.op.comm], line->ranks[i]);
        stage_issue(line->stage, line->ranks[i], &mine);
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
        struct call call = stage_new_call(-1, REC_GROUP_END);
        call.thread = t->group_thread;
        call.op.count = t->group_ops;
        call.open = strcmp(line->words[1], "}open") == 0;
        call.op.result = result_of(line);
        stage_issue(line->stage, line->ranks[i], &call);
        t->group = 0;
    }
}

static void do_teardown(const struct line *line, const char *verb, const char *comm, bool open)
{
    unsigned kind = strcmp(verb, "destroy") == 0    ? REC_COMM_DESTROY
                    : strcmp(verb, "finalize") == 0 ? REC_COMM_FINALIZE
                                                    : REC_COMM_ABORT;
    for (int i = 0; i < line->nranks; i++) {
        struct call call = stage_new_call(find_comm(line->stage, comm, false), kind);
        call.open = open;
        stage_issue(line->stage, line->ranks[i], &call);
    }
}

static void do_end(const struct line *line)
{
    const char *verb = line->words[1];
    for (int i = 0; i < line->nranks; i++) {
        struct teller *t = &line->stage->ranks[line->ranks[i]];
        uint64_t now = stage_clock_of(line->stage, line->ranks[i]);
        if (strcmp(verb, "clock") == 0) {
            t->skew_ns = (uint64_t)((int64_t)MS * atoll(line->words[2]));
            continue;
        }
        if (strcmp(verb, "torn") == 0 || strcmp(verb, "behind") == 0) {
            struct stat status;
            assert_int_equal(rec_writer_flush(t->writer, NULL), REC_OK);
            assert_int_equal(stat(t->path, &status), 0);
            t->ends_at = (long)status.st_size + (strcmp(verb, "torn") == 0 ? 5 : 0);
            continue;
        }
        if (strcmp(verb, "unreadable") == 0) {
            t->unreadable = true;
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

/* The GPU has left so many launches by now, and begun the next one if there is one. */
static void do_gpu(const struct line *line)
{
    for (int i = 0; i < line->nranks; i++) {
        struct teller *t = &line->stage->ranks[line->ranks[i]];
        t->gpu.stream = 0;
        t->gpu.ended = strtoull(line->words[2], NULL, 10);
        t->gpu.started = t->gpu.ended < t->launches ? t->gpu.ended + 1 : t->gpu.ended;
        rec_writer_gpu(t->writer, stage_clock_of(line->stage, line->ranks[i]), &t->gpu);
    }
}

static void do_replay(const struct line *line)
{
    unsigned graph = graph_argument(line);
    for (int i = 0; i < line->nranks; i++) {
        struct call call = stage_new_call(-1, REC_GRAPH_LAUNCH);
        call.op.peer = (int32_t)graph;
        call.op.count = 1;
        call.op.stream = 0;
        stage_issue(line->stage, line->ranks[i], &call);
    }
}

static void do_line(const struct line *line)
{
    const char *verb = line->words[1];
    if (strcmp(verb, "init") == 0) {
        do_init(line);
    } else if (strcmp(verb, "split") == 0 || strcmp(verb, "nocolor") == 0 || strcmp(verb, "insplit") == 0 ||
               strcmp(verb, "shrink") == 0 || strcmp(verb, "inshrink") == 0) {
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
    } else if (strcmp(verb, "gpu") == 0) {
        do_gpu(line);
    } else if (strcmp(verb, "window") == 0 || strcmp(verb, "devcomm") == 0) {
        for (int i = 0; i < line->nranks; i++) {
            struct call call =
                stage_new_call(find_comm(line->stage, line->words[2], false),
                               verb[0] == 'w' ? REC_COMM_WINDOW_REGISTER : REC_DEV_COMM_CREATE);
            call.open = option(line, "open") != NULL;
            call.op.result = option(line, "failed") ? 4 : 0;
            stage_issue(line->stage, line->ranks[i], &call);
        }
    } else if (strcmp(verb, "async") == 0) {
        for (int i = 0; i < line->nranks; i++) {
            struct call call =
                stage_new_call(find_comm(line->stage, line->words[2], false), REC_COMM_GET_ASYNC_ERROR);
            call.op.count = strtoull(line->words[3], NULL, 10);
            stage_issue(line->stage, line->ranks[i], &call);
        }
    } else if (strcmp(verb, "clock") == 0 || strcmp(verb, "torn") == 0 || strcmp(verb, "behind") == 0 ||
               strcmp(verb, "exit") == 0 || strcmp(verb, "dies") == 0 || strcmp(verb, "stops") == 0 ||
               strcmp(verb, "notrace") == 0 || strcmp(verb, "unreadable") == 0) {
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
    line.nranks = story_ranks(line.words[0], stage->nranks, line.ranks);
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

/* Between the looking for files and the reading of them. */
static bool spoil(void *context, enum rec_phase phase, uint64_t done, uint64_t total)
{
    struct stage *stage = context;
    (void)total;
    for (int i = 0; i < stage->nranks && phase == REC_PHASE_LOAD && done == 0; i++)
        if (stage->ranks[i].unreadable)
            unlink(stage->ranks[i].path);
    return true;
}

void story_tell(struct story *story, int nranks, const char *text)
{
    struct stage *stage = calloc(1, sizeof *stage);
    assert_non_null(stage);
    strcpy(story->dir, "/tmp/story-XXXXXX");
    assert_non_null(mkdtemp(story->dir));
    stage->nranks = nranks;
    stage->now = START + 1000 * MS;
    stage->marks = strstr(text, " started") || strstr(text, " done") || strstr(text, " gpu ");
    for (int i = 0; i < nranks; i++)
        stage_open_trace(stage, i, story->dir);
    tell_all(stage, text, "\n;");
    uint64_t end = stage->now;
    for (int i = 0; i < nranks; i++)
        stage_close_trace(stage, i);
    struct rec_error err = {0};
    const char *dirs[] = {story->dir};
    const struct rec_progress progress = {spoil, stage};
    struct rec_job_options options = {.no_live = true, .progress = &progress};
    if (rec_job_open(dirs, 1, &options, &story->job, &err) != REC_OK)
        fail_msg("job: %s", err.text);
    free(stage);
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
