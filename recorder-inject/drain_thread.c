/*
 * The one thread of the recorder: carries what is new from the live region to the trace file.
 *
 * It owns writer, drain and file. It blocks all signals and takes no lock that the application
 * can hold: no allocation, no stdio, no dynamic linking; it waits only for its futex, with a
 * time limit, and for the file system. Others talk to it through two words of flags: asked (set by
 * them, then woken) and answered (set by it, then woken).
 */
#include "inject.h"
#include "launches.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rec/drain.h"
#include "stall.h"

#define MIN_WAIT_MS  10
#define MAX_WAIT_MS  250
#define HEARTBEAT_NS UINT64_C(2000000000)
#define STACK_BYTES  (256u << 10)

enum { ASK_FLUSH = 1, ASK_FINISH = 2 };

static struct {
    void *memory;
    size_t bytes;
    struct rec_writer *writer; /* NULL: no file could be made */
    struct rec_drain *drain;
    uint64_t next_heartbeat_ns;
    bool running;
    struct stacks *stacks;
    bool maps_read; /* in this step */
    struct stall_watch stall;
    /* Of the thread that got a fatal signal; published by end.reason (release). */
    uint64_t crash_pc, crash_sp;
    uint64_t crash_seen_ns; /* monotonic; 0 = none, or done with */
    _Atomic uint32_t asked, answered;
} self;

static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t ms)
{
    struct timespec ts = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &ts, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* ---- Python that comes late ----------------------------------------------------------------------- */

/* Written before callsite_look_again publishes it, once. */
static char late_python[4096];

static void *find_late_symbol(const char *name)
{
    static void *library; /* by one thread only; never closed: what is found must stay */
    if (!library)
        library = dlopen(late_python, RTLD_LAZY | RTLD_NOLOAD);
    return library ? real_dlsym(library, name) : NULL;
}

static void find_late_python(struct callsite_symbols *symbols)
{
    callsite_find(symbols, find_late_symbol);
}

/* ---- one step ------------------------------------------------------------------------------- */

static void publish_status(const struct rec_drain_result *result)
{
    struct rec_live_header *header = recorder.live.header;
    struct rec_writer_status status = {0};
    if (self.writer)
        rec_writer_status(self.writer, &status);
    atomic_store_explicit(&header->file_bytes, status.file_bytes, memory_order_relaxed);
    atomic_store_explicit(&header->file_error, (uint32_t)status.error, memory_order_relaxed);
    atomic_fetch_add_explicit(&header->file_lost, result->given_up, memory_order_relaxed);
}

/*
 * An interpreter that came after the first NCCL call. Its symbols are looked up by the application's thread
 * that calls next, for that takes locks of the dynamic linker.
 */
static void look_for_python(void)
{
    const char *path = callsite_without_python() ? stacks_find_file(self.stacks, "libpython3") : NULL;
    if (!path || strlen(path) >= sizeof(late_python))
        return;
    strcpy(late_python, path);
    callsite_look_again(find_late_python);
}

/* Of a native call site. The mappings are read again in each step that meets a new one. */
static bool locate(void *unused, uint64_t address, struct rec_source_frame *frame)
{
    (void)unused;
    if (!self.maps_read) {
        stacks_read_maps(self.stacks);
        look_for_python();
    }
    self.maps_read = true;
    return stacks_locate(self.stacks, address, frame);
}

static enum rec_code step(bool final, struct rec_drain_result *result)
{
    struct rec_live_header *header = recorder.live.header;
    clock_refresh(&header->clock);
    uint64_t now = trace_now_ns();
    bool heartbeat = now >= self.next_heartbeat_ns;
    if (heartbeat)
        self.next_heartbeat_ns = now + HEARTBEAT_NS;
    self.maps_read = false;
    enum rec_code code = rec_drain_step(self.drain, self.writer, now, heartbeat, final, result, NULL);
    /* Release: a claimer that reserves one of these finds a chunk whose owner is 0. */
    atomic_fetch_add_explicit(&free_chunks, result->freed_chunks, memory_order_release);
    if (result->freed_comms)
        comm_release_freed();
    publish_status(result);
    atomic_store_explicit(&header->alive_ns, real_now_ns(), memory_order_relaxed);
    return code;
}

/* ---- stalls ----------------------------------------------------------------------------------- */

/* The Python stack of a blocked thread, if it is one that has called NCCL. */
static uint32_t python_stack(const struct rec_stall_thread *thread)
{
    if (thread->state != 'S' && thread->state != 'D')
        return 0;
    struct thread_mark *mark = thread_mark_of(thread->tid);
    return mark ? callsite_of_thread(&mark->python) : 0;
}

static void watch_stalls(void)
{
    struct rec_stall stall;
    if (!self.writer || !stall_check(&self.stall, &stall))
        return;
    stacks_read_maps(self.stacks);
    stall.nthreads = stacks_read_threads(self.stacks, gettid());
    stall.threads = self.stacks->threads;
    for (uint32_t i = 0; i < stall.nthreads; i++)
        self.stacks->threads[i].callsite = python_stack(&self.stacks->threads[i]);
    stall.nmodules = self.stacks->nmodules;
    stall.modules = self.stacks->modules;
    rec_writer_stall(self.writer, trace_now_ns(), &stall);
    rec_writer_flush(self.writer, NULL);
}

/* ---- the end ---------------------------------------------------------------------------------- */

/* Where the dying thread was: into the region, which outlives us, and for the END record. */
static void read_crash(struct rec_end *end)
{
    struct rec_live_end *live_end = &recorder.live.header->end;
    uint64_t pcs[STACKS_FRAMES];
    stacks_read_maps(self.stacks);
    end->frames = self.stacks->frames[0];
    end->nframes = stacks_scan(self.stacks, self.crash_pc, self.crash_sp, self.stacks->frames[0], pcs);
    end->nmodules = self.stacks->nmodules;
    end->modules = self.stacks->modules;
    for (uint32_t i = 0; i < end->nframes && i < REC_LIVE_CRASH_PCS; i++)
        atomic_store_explicit(&live_end->pcs[i], pcs[i], memory_order_relaxed);
    atomic_store_explicit(&live_end->npcs, end->nframes, memory_order_release);
}

static void write_end(void)
{
    const struct rec_live_end *source = &recorder.live.header->end;
    struct rec_end end = {
        .reason = atomic_load_explicit(&source->reason, memory_order_acquire),
        .status = atomic_load_explicit(&source->status, memory_order_relaxed),
        .signal = atomic_load_explicit(&source->signal, memory_order_relaxed),
        .tid = atomic_load_explicit(&source->tid, memory_order_relaxed),
        .fault = atomic_load_explicit(&source->fault, memory_order_relaxed),
    };
    if (end.reason == REC_END_SIGNAL)
        read_crash(&end);
    rec_writer_end(self.writer, trace_now_ns(), &end);
}

static void answer(uint32_t what)
{
    atomic_fetch_or_explicit(&self.answered, what, memory_order_release);
    futex_wake(&self.answered);
}

static void finish(void)
{
    struct rec_drain_result result;
    bool complete = step(true, &result) == REC_OK;
    if (self.writer) {
        write_end();
        complete &= rec_writer_close(self.writer, NULL) == REC_OK;
    }
    /* Everything is in the file: the region has nothing to add. Without a file it goes as well: jobs
     * that cannot write traces must not fill the memory of the host. */
    if (complete && recorder.live_path[0])
        unlink(recorder.live_path);
    answer(ASK_FINISH);
}

/* A fatal signal that the program itself handles: perhaps the end, perhaps not. */
static void flush_for_crash(void)
{
    struct rec_drain_result result;
    step(false, &result);
    if (self.writer) {
        write_end();
        rec_writer_flush(self.writer, NULL);
    }
    self.crash_seen_ns = monotonic_now_ns();
    answer(ASK_FLUSH);
}

static void await(uint32_t what, uint64_t wait_ms)
{
    uint64_t deadline = monotonic_now_ns() + wait_ms * 1000000;
    for (uint64_t now = 0; (now = monotonic_now_ns()) < deadline;) {
        uint32_t answered = atomic_load_explicit(&self.answered, memory_order_acquire);
        if (answered & what)
            return;
        futex_wait(&self.answered, answered, (deadline - now) / 1000000 + 1);
    }
}

static void ask(uint32_t what, uint64_t wait_ms)
{
    uint32_t before = atomic_fetch_or_explicit(&self.asked, what, memory_order_acq_rel);
    if (!(before & what))
        futex_wake(&self.asked);
    await(what, wait_ms);
}

void drain_flush(uint64_t wait_ms)
{
    if (self.running)
        ask(ASK_FLUSH, wait_ms);
}

void drain_finish(uint64_t wait_ms)
{
    if (self.running)
        ask(ASK_FINISH, wait_ms);
}

void drain_finish_here(void)
{
    if (!self.running && self.drain)
        finish();
}

void drain_note_stack(uint64_t pc, uint64_t sp)
{
    self.crash_pc = pc;
    self.crash_sp = sp;
}

/* ---- the thread --------------------------------------------------------------------------------- */

/* Sooner when an eighth of the ring came in one interval, later when it was little. */
static uint64_t next_wait(uint64_t wait, const struct rec_drain_result *result)
{
    const struct rec_live_header *header = recorder.live.header;
    uint64_t capacity = (uint64_t)header->chunk_count * REC_LIVE_CHUNK_SLOTS;
    if (result->ops > capacity / 8)
        wait /= 2;
    else if (result->ops < capacity / 32)
        wait += wait / 2;
    return wait < MIN_WAIT_MS ? MIN_WAIT_MS : wait > MAX_WAIT_MS ? MAX_WAIT_MS : wait;
}

static void *run(void *unused)
{
    (void)unused;
    uint64_t wait = MIN_WAIT_MS;
    uint32_t asked = 0;
    for (;;) {
        futex_wait(&self.asked, asked, wait);
        uint32_t before = asked;
        asked = atomic_load_explicit(&self.asked, memory_order_acquire);
        if (asked & ASK_FINISH) {
            finish();
            return NULL;
        }
        if (asked & ~before & ASK_FLUSH)
            flush_for_crash();
        struct rec_drain_result result;
        step(false, &result);
        wait = next_wait(wait, &result);
        watch_stalls();
        if (self.crash_seen_ns && monotonic_now_ns() > self.crash_seen_ns + HEARTBEAT_NS) {
            self.crash_seen_ns = 0;
            asked &= ~(uint32_t)ASK_FLUSH;
            atomic_fetch_and_explicit(&self.answered, ~(uint32_t)ASK_FLUSH, memory_order_relaxed);
            atomic_fetch_and_explicit(&self.asked, ~(uint32_t)ASK_FLUSH, memory_order_relaxed);
            crash_survived();
        }
    }
}

static bool start_thread(void)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* A program with a lot of thread-local data needs more than we think is enough. */
    int error = pthread_create(&thread, &attributes, run, NULL);
    if (error == EINVAL) {
        pthread_attr_setstacksize(&attributes, 8u << 20);
        error = pthread_create(&thread, &attributes, run, NULL);
    }
    pthread_attr_destroy(&attributes);
    if (error == 0)
        pthread_setname_np(thread, "frec-drain");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0;
}

/* <host>-<pid>, and with the process's random number when that exists already. */
static void open_file(void *memory, const struct rec_writer_config *settings)
{
    struct rec_live_header *header = recorder.live.header;
    if (!options.dir[0] || !make_directories(options.dir)) {
        verbose("%s: cannot be used as FREC_DIR: %s", options.dir, strerror(errno));
        return;
    }
    char stem[384];
    struct rec_error error = {0};
    const char *meta = header->meta;
    size_t meta_bytes = atomic_load_explicit(&header->meta_bytes, memory_order_relaxed);
    for (int attempt = 0; attempt < 2; attempt++) {
        if (attempt == 0)
            snprintf(stem, sizeof(stem), "%s-%d", meta_host(), (int)recorder.pid);
        else
            snprintf(stem, sizeof(stem), "%s-%d-%016llx", meta_host(), (int)recorder.pid,
                     (unsigned long long)recorder.proc_uid);
        struct rec_writer *writer = rec_writer_init(memory, settings);
        if (rec_writer_open(writer, options.dir, stem, meta, meta_bytes, &error) == REC_OK) {
            self.writer = writer;
            snprintf(header->frec_name, sizeof(header->frec_name), "%s.frec", stem);
            return;
        }
    }
    verbose("%s: %s", error.path, error.text);
}

void drain_start(void)
{
    const struct rec_writer_config settings = {.tick_ns = options.tick_ns, .max_bytes = options.max_bytes};
    size_t writer_bytes = (rec_writer_bytes(&settings) + 63) & ~(size_t)63;
    size_t drain_bytes = (rec_drain_bytes(&recorder.live) + 63) & ~(size_t)63;
    self.bytes = writer_bytes + drain_bytes + sizeof(struct stacks);
    self.memory = mmap(NULL, self.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (self.memory == MAP_FAILED) {
        self.memory = NULL;
        verbose("no memory for the trace writer: only the live region is kept");
        return;
    }
    open_file(self.memory, &settings);
    self.drain = rec_drain_init((char *)self.memory + writer_bytes, &recorder.live);
    self.stacks = (struct stacks *)((char *)self.memory + writer_bytes + drain_bytes);
    rec_drain_resolver(self.drain, locate, NULL);
    rec_drain_times(self.drain, launch_take_time);
    self.running = start_thread();
    if (!self.running)
        verbose("no thread for draining: the trace is written at exit only");
}

void drain_forget(void)
{
    if (self.writer)
        rec_writer_abandon(self.writer);
    if (self.memory)
        munmap(self.memory, self.bytes);
    memset(&self, 0, sizeof(self));
}
